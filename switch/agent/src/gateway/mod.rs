//! What makes a switch a gateway on any network: it keeps next hops resolved, tells the program
//! what its ports are, and does for the program what only the kernel can.
//!
//! One thread. It owns: the sockets to the kernel's routing (rtnetlink, ARP, raw IP), and the ring
//! of the program's slow path. It must not know: the P4 program. What is decided, is decided in
//! [`keeper`], [`network`], [`holder`] and [`fragment`], without sockets or clocks.

mod fragment;
mod holder;
mod keeper;
mod message;
mod netlink;
mod network;
mod send;
mod shared;
mod slow;
mod solicit;
mod worker;

#[cfg(test)]
pub(crate) use shared::COUNTS;
pub(crate) use shared::Gateway;
pub(crate) use worker::{Worker, release};

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Sets a socket option that nix has no name for.
fn raw_option<T: Copy>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads `length` bytes of a value that outlives
    // the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
