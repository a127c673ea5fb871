//! A UDP socket that sends and receives in batches (sendmmsg, recvmmsg), and one message at a time
//! where there is only one.
#![allow(unsafe_code)]

use crate::core::Send;
use netchain_protocol::PORT;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Messages of a system call.
pub(crate) const BATCH: usize = 64;
/// Longer than any message.
const BYTES: usize = 512;
/// Of the kernel's buffers, each way: for all replies that may be under way.
const KERNEL_BYTES: libc::c_int = 4 << 20;

/// What system calls a socket made: what it costs beside the work of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// sendto and sendmmsg.
    pub sends: u64,
    /// Messages in them.
    pub sent: u64,
    /// recv and recvmmsg.
    pub receives: u64,
    /// Messages in them.
    pub received: u64,
    /// setsockopt: another time to wait.
    pub timeouts: u64,
}

/// See the module.
pub(crate) struct Socket {
    socket: UdpSocket,
    buffers: Box<[[u8; BYTES]; BATCH]>,
    lengths: [usize; BATCH],
    /// SO_RCVTIMEO, in milliseconds; 0: none.
    timeout_ms: u64,
    pub(crate) calls: Calls,
}

fn address_of(to: Ipv4Addr) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr { s_addr: to.to_bits().to_be() },
        sin_zero: [0; 8],
    }
}

fn no_message() -> libc::mmsghdr {
    // SAFETY: mmsghdr is integers and pointers; all zeros is a valid value.
    unsafe { mem::zeroed() }
}

/// Nothing came in time, or the kernel says that something sent before went nowhere.
fn is_no_news(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock,
    };
    let kinds =
        [WouldBlock, TimedOut, Interrupted, ConnectionRefused, HostUnreachable, NetworkUnreachable];
    kinds.contains(&error.kind())
}

impl Socket {
    pub(crate) fn open() -> io::Result<Socket> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for (forced, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // (Only root gets more than net.core.rmem_max.)
            if !set_option(&socket, forced) {
                set_option(&socket, plain);
            }
        }
        let buffers = Box::new([[0; BYTES]; BATCH]);
        let calls = Calls::default();
        Ok(Socket { socket, buffers, lengths: [0; BATCH], timeout_ms: 0, calls })
    }

    /// Sends all. What the kernel does not take is lost, as on the way: it goes again in its time.
    pub(crate) fn send(&mut self, messages: &[Send]) {
        if let [one] = messages {
            (self.calls.sends, self.calls.sent) = (self.calls.sends + 1, self.calls.sent + 1);
            drop(self.socket.send_to(&one.payload, (one.to, PORT)));
            return;
        }
        for batch in messages.chunks(BATCH) {
            self.send_batch(batch);
        }
    }

    fn send_batch(&mut self, batch: &[Send]) {
        let mut addresses = [address_of(Ipv4Addr::UNSPECIFIED); BATCH];
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        let mut headers = [no_message(); BATCH];
        let places = addresses.iter_mut().zip(&mut parts).zip(&mut headers);
        for (message, ((address, part), header)) in batch.iter().zip(places) {
            *address = address_of(message.to);
            // (The kernel only reads through this pointer.)
            part.iov_base = message.payload.as_ptr().cast_mut().cast();
            part.iov_len = message.payload.len();
            header.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            header.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
        }
        let mut first = 0;
        while first < batch.len() {
            let left = &mut headers[first..batch.len()];
            // SAFETY: each header points to one address and one iovec, and that to bytes, which all
            // live until the call returns; sending only reads them.
            let sent = unsafe {
                let count = left.len() as libc::c_uint;
                libc::sendmmsg(self.socket.as_raw_fd(), left.as_mut_ptr(), count, 0)
            };
            self.calls.sends += 1;
            // One that has no route is skipped.
            let sent = usize::try_from(sent).unwrap_or(1).max(1);
            self.calls.sent += sent as u64;
            first += sent;
        }
    }

    /// Receives what is there, up to [`BATCH`] messages; returns how many.
    pub(crate) fn receive_now(&mut self) -> io::Result<usize> {
        self.receive_batch(libc::MSG_DONTWAIT)
    }

    /// Waits for a message, for at least one millisecond and at most about `wait`; then takes what
    /// is there. `one`: no more than one message can come.
    pub(crate) fn receive(&mut self, wait: Duration, one: bool) -> io::Result<usize> {
        self.set_timeout(wait)?;
        if !one {
            return self.receive_batch(libc::MSG_WAITFORONE);
        }
        self.calls.receives += 1;
        match self.socket.recv(&mut self.buffers[0]) {
            Ok(bytes) => {
                self.calls.received += 1;
                self.lengths[0] = bytes;
                Ok(1)
            }
            Err(error) if is_no_news(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The kernel counts in jiffies of up to 10 ms. A timeout that is a little short stays: it
    /// costs less to wait twice than to set another one.
    fn set_timeout(&mut self, wait: Duration) -> io::Result<()> {
        let needed_ms = (wait.as_micros() as u64).div_ceil(1000).max(1);
        if self.timeout_ms != 0
            && self.timeout_ms <= needed_ms
            && needed_ms <= self.timeout_ms.saturating_mul(8)
        {
            return Ok(());
        }
        self.calls.timeouts += 1;
        self.socket.set_read_timeout(Some(Duration::from_millis(needed_ms)))?;
        self.timeout_ms = needed_ms;
        Ok(())
    }

    fn receive_batch(&mut self, flags: libc::c_int) -> io::Result<usize> {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: BYTES }; BATCH];
        let mut headers = [no_message(); BATCH];
        for ((part, header), buffer) in
            parts.iter_mut().zip(&mut headers).zip(self.buffers.iter_mut())
        {
            part.iov_base = buffer.as_mut_ptr().cast();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
        }
        self.calls.receives += 1;
        // SAFETY: each header points to one iovec, and that to a buffer of its length, which all
        // live, unshared, until the call returns.
        let count = unsafe {
            let none = std::ptr::null_mut();
            let headers = headers.as_mut_ptr();
            libc::recvmmsg(self.socket.as_raw_fd(), headers, BATCH as libc::c_uint, flags, none)
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if is_no_news(&error) { Ok(0) } else { Err(error) };
        };
        for (length, header) in self.lengths.iter_mut().zip(&headers[..count]) {
            *length = header.msg_len as usize;
        }
        self.calls.received += count as u64;
        Ok(count)
    }

    /// A message of the last `receive`.
    pub(crate) fn received(&self, at: usize) -> &[u8] {
        &self.buffers[at][..self.lengths[at].min(BYTES)]
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set_option(socket: &UdpSocket, option: libc::c_int) -> bool {
    let value = KERNEL_BYTES;
    let length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option's value is an int that lives until the call returns.
    unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, length) == 0
    }
}
