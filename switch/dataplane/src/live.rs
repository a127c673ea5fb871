//! Programs for live frames (BPF_PROG_RUN as packet generator), kept ready to run.

use crate::sys;
use libbpf_rs::libbpf_sys::XDP_FLAGS_SKB_MODE;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The first interface of every network namespace.
const LOOPBACK: u32 = 1;

/// Keeps a program ready for BPF_PROG_RUN with several frames, until it is dropped.
///
/// The kernel calls XDP programs through a dispatcher, code that it patches whenever the set of
/// programs in use changes. A run of more than one frame puts its program there and takes it away
/// again: each time with a wait for an RCU grace period (8 to 80 ms measured) and a patch on all
/// CPUs. A program that is attached somewhere is in there already, and a run of 64 frames takes 14
/// µs. So this attaches it where no packet ever comes: to the loopback interface, which stays down,
/// of a network namespace that nobody else has and that goes with this value.
#[derive(Debug)]
pub struct LiveReady {
    _link: OwnedFd,
    _namespace: File,
}

impl LiveReady {
    /// Makes a program ready.
    ///
    /// # Errors
    /// No network namespace can be made (CAP_SYS_ADMIN), or the program cannot be attached. Runs
    /// work all the same, slowly.
    pub fn new(program: BorrowedFd<'_>) -> io::Result<LiveReady> {
        let attach = || -> io::Result<LiveReady> {
            let namespace = File::open("/proc/thread-self/ns/net")?;
            let link = sys::link_xdp(program, LOOPBACK, XDP_FLAGS_SKB_MODE)?;
            Ok(LiveReady { _link: link, _namespace: namespace })
        };
        netns::inside_new(attach).map_err(io::Error::other)?
    }
}
