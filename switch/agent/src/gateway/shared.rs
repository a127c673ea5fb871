//! What the gateway's thread and the rest of the agent share.

use crate::drops::Drops;
use crate::load::HopLoad;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the thread counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Packets that the kernel sent as they were.
    Sent,
    /// Packets that the kernel sent in fragments.
    Fragmented,
    /// Packets longer than the MTU that must not be fragmented.
    TooBig,
    /// Packets to which the kernel had no way.
    Unreachable,
    /// Packets that the kernel did not take.
    Refused,
    /// Records or packets that make no sense.
    Malformed,
    /// What lay in the ring when the agent began, and was nobody's any more.
    Stale,
    /// Fragments that went on when their first had come.
    FragmentsReleased,
    /// Fragments whose first did not come in time.
    FragmentsExpired,
    /// Fragments beyond the limit, or too long to be held.
    FragmentsNotHeld,
    /// Fragments that could not be run again.
    FragmentsFailed,
    /// Routers that were asked at their MAC.
    UnicastRequests,
    /// Routers that were asked by broadcast.
    BroadcastRequests,
    /// Neighbour entries that were made or changed.
    EntriesChanged,
    /// What the kernel refused of that.
    EntriesRefused,
    /// Routes and neighbours were read anew.
    Rereads,
}

/// All of them, with their names. For a reason to drop a packet: the remedy.
pub(crate) const COUNTS: [(Count, &str, Option<&str>); 16] = [
    (Count::Sent, "sent", None),
    (Count::Fragmented, "fragmented", None),
    (
        Count::TooBig,
        "too_big",
        Some(
            "longer than the MTU of its route, and must not be fragmented: raise that MTU, or set \
             clamp_mss = true",
        ),
    ),
    (
        Count::Unreachable,
        "unreachable",
        Some(
            "the kernel has no route or no neighbour: `ip route get ADDRESS`, and `stateplane status` names silent next hops",
        ),
    ),
    (
        Count::Refused,
        "refused",
        Some("the kernel did not take it: nftables' output or postrouting hook, or no buffers"),
    ),
    (
        Count::Malformed,
        "malformed",
        Some(
            "the program handed over bytes that are not a packet: look for a faulty host; else report it as a bug",
        ),
    ),
    (Count::Stale, "stale", Some("waited while no agent ran: keep the agent up")),
    (Count::FragmentsReleased, "fragments_released", None),
    (
        Count::FragmentsExpired,
        "fragments_expired",
        Some(
            "the first fragment did not come in time: lost on the way; or raise `held_ms` in [fragments]",
        ),
    ),
    (
        Count::FragmentsNotHeld,
        "fragments_not_held",
        Some("too many fragments wait: raise `held` in [fragments]"),
    ),
    (
        Count::FragmentsFailed,
        "fragments_failed",
        Some("the kernel did not run the program on a held fragment: see the agent's log"),
    ),
    (Count::UnicastRequests, "unicast_requests", None),
    (Count::BroadcastRequests, "broadcast_requests", None),
    (Count::EntriesChanged, "entries_changed", None),
    (Count::EntriesRefused, "entries_refused", None),
    (Count::Rereads, "rereads", None),
];

/// The next hops.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hops {
    /// All of them.
    pub count: usize,
    /// Those that are not resolved.
    pub unresolved: Vec<HopLoad>,
}

/// What the gateway's thread and the rest of the agent share.
pub(crate) struct Gateway {
    counts: [AtomicU64; COUNTS.len()],
    /// Fragments that are held now.
    pub held: AtomicU64,
    hops: Mutex<Hops>,
    /// The ports by the indexes of their interfaces, and their MTUs by port.
    ports: Mutex<BTreeMap<u32, u32>>,
    mtus: Mutex<BTreeMap<u32, u32>>,
    stop: AtomicBool,
    wake: EventFd,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gateway {
    pub fn new() -> std::io::Result<Gateway> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Gateway {
            counts: Default::default(),
            held: AtomicU64::new(0),
            hops: Mutex::default(),
            ports: Mutex::default(),
            mtus: Mutex::default(),
            stop: AtomicBool::new(false),
            wake: EventFd::from_value_and_flags(0, flags)?,
        })
    }

    pub fn count(&self, count: Count, more: u64) {
        self.counts[count as usize].fetch_add(more, Ordering::Relaxed);
    }

    /// What has been counted, by name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        COUNTS
            .iter()
            .map(|(it, name, _)| (*name, self.counts[*it as usize].load(Ordering::Relaxed)))
    }

    /// What of that was dropped, and the remedy.
    pub fn drops(&self) -> impl Iterator<Item = Drops> {
        let count = |count: Count| self.counts[count as usize].load(Ordering::Relaxed);
        COUNTS.iter().filter_map(move |(it, reason, remedy)| {
            Some(Drops { reason, count: count(*it), remedy: (*remedy)? })
        })
    }

    pub fn hops(&self) -> Hops {
        lock(&self.hops).clone()
    }

    pub fn set_hops(&self, hops: Hops) {
        *lock(&self.hops) = hops;
    }

    pub fn ports(&self) -> BTreeMap<u32, u32> {
        lock(&self.ports).clone()
    }

    /// The ports have changed: `(port, index of the interface)`.
    pub fn set_ports(&self, ports: &[(u32, u32)]) {
        let by_interface = ports.iter().map(|(port, ifindex)| (*ifindex, *port)).collect();
        let before = std::mem::replace(&mut *lock(&self.ports), by_interface);
        if before != *lock(&self.ports) {
            self.wake();
        }
    }

    /// MTUs by port, as far as they are known.
    pub fn mtus(&self) -> BTreeMap<u32, u32> {
        lock(&self.mtus).clone()
    }

    pub fn set_mtus(&self, mtus: BTreeMap<u32, u32>) {
        *lock(&self.mtus) = mtus;
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        // It fails only if so many are waiting already.
        let _ = self.wake.write(1);
    }

    /// What becomes readable when somebody calls.
    pub fn calls(&self) -> &EventFd {
        &self.wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_its_name() {
        for (index, (count, ..)) in COUNTS.iter().enumerate() {
            assert_eq!(*count as usize, index);
        }
        let gateway = Gateway::new().unwrap();
        gateway.count(Count::Rereads, 2);
        let counted: Vec<_> = gateway.counts().filter(|(_, count)| *count != 0).collect();
        assert_eq!(counted, [("rereads", 2)]);
    }
}
