//! Windows of clients' requests (`RequestWindow`): that of a silent client goes to another one.
//!
//! A round goes over all windows that were ever in use, over as many sweeps as it takes. It clears
//! a window in two rounds: the first takes the client out of the hash map, the second clears the
//! window and gives its number back. Packets that found the client before the first are over by
//! then. All that a round must know is in the maps, so another agent can go on.

use c_layout::{CStruct, Member};
use dataplane::{Dataplane, Result};
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Layout, StateObject};
use netchain_protocol::layouts::WindowHead;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// A client that sent nothing for so long is forgotten. No copy of a request lives that long.
const SILENT_NS: u64 = 60_000_000_000;

/// Elements of an object (slots, windows) that were ever in use.
pub(crate) fn used(dataplane: &Dataplane, object: &StateObject) -> Result<u32> {
    let bytes = dataplane.read_array(&format!("{}_used", object.map), 0)?;
    let used = bytes.first_chunk().copied().map_or(0, u32::from_ne_bytes);
    // CPUs that came too late for the last element have counted on.
    Ok(used.min(object.capacity))
}

/// The windows of one object.
pub struct Windows {
    /// In the manifest.
    pub object: StateObject,
    /// The window that the next sweep begins with.
    next: AtomicU32,
    /// Clients that this round has counted, and that the last one had.
    counted: AtomicU32,
    clients: AtomicU32,
    /// One at a time clears windows: each number is given back once.
    clears: Mutex<()>,
}

impl Windows {
    /// As an agent finds them.
    pub fn new(object: StateObject) -> Windows {
        let zero = AtomicU32::default;
        Windows { object, next: zero(), counted: zero(), clients: zero(), clears: Mutex::default() }
    }

    /// Clients that had a window in the last round.
    pub fn clients(&self) -> u32 {
        self.clients.load(Ordering::Relaxed)
    }

    /// Goes on with the round until its end, or `until`. `now_ns`: of the clock that the packets
    /// have (CLOCK_MONOTONIC).
    ///
    /// # Errors
    /// The kernel refuses an access to a map.
    pub fn sweep(&self, dataplane: &Dataplane, now_ns: u64, until: Instant) -> Result<()> {
        let _only = self.clears.lock().unwrap_or_else(PoisonError::into_inner);
        let used = used(dataplane, &self.object)?;
        let mut at = self.next.load(Ordering::Relaxed);
        while at < used && Instant::now() < until {
            if self.look_at(dataplane, at, now_ns)? {
                self.counted.fetch_add(1, Ordering::Relaxed);
            }
            at += 1;
        }
        if at >= used {
            self.clients.store(self.counted.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            at = 0;
        }
        self.next.store(at, Ordering::Relaxed);
        Ok(())
    }

    /// Forgets all clients. No packet may use a window meanwhile.
    ///
    /// # Errors
    /// The kernel refuses an access to a map.
    pub fn clear(&self, dataplane: &Dataplane) -> Result<()> {
        let _only = self.clears.lock().unwrap_or_else(PoisonError::into_inner);
        for number in 0..used(dataplane, &self.object)? {
            // (The first look takes the client out of the hash map, the second one the window.)
            for _ in 0..2 {
                self.look_at(dataplane, number, u64::MAX)?;
            }
        }
        Ok(())
    }

    /// Whether a client has this window.
    fn look_at(&self, dataplane: &Dataplane, number: u32, now_ns: u64) -> Result<bool> {
        let (Some(map), Some(windows)) = (&self.object.slots_map, dataplane.map(&self.object.map))
        else {
            return Ok(false);
        };
        let window = dataplane.read_array(map, number)?;
        let Layout::Slots { offset, .. } = self.object.value else { return Ok(false) };
        let Some(client) = window.get(WindowHead::BYTES..offset as usize) else { return Ok(false) };
        // 0: free, or a client's that gets it at this instant.
        let heard_ns = WindowHead::from_bytes(&window).heard_ns;
        if heard_ns == 0 {
            return Ok(false);
        }
        if now_ns.saturating_sub(heard_ns) < SILENT_NS {
            return Ok(true);
        }
        let own = number.to_ne_bytes();
        let failed = |error| dataplane::Error::libbpf(format!("clear {map}[{number}]"), error);
        if windows.lookup(client, MapFlags::ANY).map_err(failed)?.as_deref() == Some(&own[..]) {
            windows.delete(client).map_err(failed)?;
            return Ok(true);
        }
        dataplane.write_array(map, number, &vec![0; window.len()])?;
        if let Some(free) = dataplane.map(&format!("{}_free", self.object.map)) {
            free.update(&[], &own, MapFlags::ANY).map_err(failed)?;
        }
        Ok(false)
    }
}
