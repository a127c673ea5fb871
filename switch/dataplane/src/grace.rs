//! Waiting until no running program has what packets could find before.

use crate::error::{Error, Result};
use crate::sys::{self, Update};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapHandle, MapType};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::OnceLock;

/// Makes a map; `inner`: what the maps are like that an array of maps has.
pub(crate) fn create(
    kind: MapType,
    name: &str,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: Option<BorrowedFd<'_>>,
) -> io::Result<MapHandle> {
    let options = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        map_flags: flags,
        inner_map_fd: inner.map_or(0, |map| map.as_raw_fd() as _),
        ..Default::default()
    };
    MapHandle::create(kind, Some(name), key_bytes, value_bytes, entries, &options).map_err(
        |error| {
            let kind = match error.kind() {
                libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
                _ => io::ErrorKind::Other,
            };
            io::Error::new(kind, format!("{error:#}"))
        },
    )
}

/// An array of one map, and the map that it has.
struct Gate {
    array: MapHandle,
    map: MapHandle,
}

fn gate() -> io::Result<&'static Gate> {
    static GATE: OnceLock<Gate> = OnceLock::new();
    if let Some(gate) = GATE.get() {
        return Ok(gate);
    }
    let map = create(MapType::Array, "sp_gate_map", 4, 4, 1, 0, None)?;
    let array = create(MapType::ArrayOfMaps, "sp_gate", 4, 4, 1, 0, Some(map.as_fd()))?;
    Ok(GATE.get_or_init(|| Gate { array, map }))
}

/// Waits until every XDP program that is running now has ended: what was written to maps before is
/// seen by all packets afterwards, and no packet uses what it found earlier. Frames that were sent
/// may still be on their way.
///
/// The kernel waits so (an RCU grace period, some milliseconds) when a map in a map is exchanged;
/// no other call of BPF promises it. So this exchanges a map in an array that no program has.
///
/// # Errors
/// The kernel makes no maps for this process.
pub fn wait_for_packets() -> Result<()> {
    let wait = || {
        let gate = gate()?;
        let descriptor = gate.map.as_fd().as_raw_fd().to_ne_bytes();
        sys::map_update(&gate.array, &0u32.to_ne_bytes(), &descriptor, Update::Any)
    };
    wait().map_err(|error| Error::kernel("wait for running programs", error))
}
