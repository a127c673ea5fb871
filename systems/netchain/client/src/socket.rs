//! A UDP socket that sends and receives in batches: one system call for many messages, and one walk
//! through the kernel for messages of one length to one switch (UDP_SEGMENT, UDP_GRO: udp(7)).
#![allow(unsafe_code)]

use crate::core::Send;
use netchain_protocol::PORT;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Messages of a system call that sends. Also the most that the kernel joins (UDP_MAX_SEGMENTS was
/// 64 before Linux 6.9).
pub(crate) const BATCH: usize = 64;
/// Of what the kernel takes as one: an IPv4 packet's payload.
const JOINED_BYTES: usize = 65_507;
/// Runs of replies that a system call receives.
const PLACES: usize = 32;
/// Longer than any run of replies that the kernel joined. (Pages that none reaches take no memory.)
const PLACE_BYTES: usize = 1 << 16;
/// Of the kernel's buffers, each way: for all replies that may be under way.
const KERNEL_BYTES: libc::c_int = 4 << 20;

/// What system calls a socket made: what it costs beside the work of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// sendto and sendmmsg.
    pub sends: u64,
    /// Messages in them.
    pub sent: u64,
    /// recvmsg and recvmmsg.
    pub receives: u64,
    /// Messages in them.
    pub received: u64,
    /// setsockopt: another time to wait.
    pub timeouts: u64,
}

/// A control message (cmsg(3)) with one number, as long as `CMSG_SPACE` says.
#[repr(C)]
#[derive(Clone, Copy)]
struct Control<T> {
    header: libc::cmsghdr,
    value: T,
    _rest: [u8; 4],
}

/// See the module.
pub(crate) struct Socket {
    socket: UdpSocket,
    /// [`PLACES`] of [`PLACE_BYTES`].
    buffers: Vec<u8>,
    /// The messages of the last `receive`: from where to where in `buffers`.
    messages: Vec<(usize, usize)>,
    /// Messages of one length to one switch go as one. Not if the way out cannot do it.
    joins: bool,
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

/// Of UDP's level, with this number.
fn control<T>(kind: libc::c_int, value: T, _rest: [u8; 4]) -> Control<T> {
    // SAFETY: cmsghdr is integers; all zeros is a valid value.
    let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
    header.cmsg_len = (mem::size_of::<libc::cmsghdr>() + mem::size_of::<T>()) as _;
    (header.cmsg_level, header.cmsg_type) = (libc::SOL_UDP, kind);
    Control { header, value, _rest }
}

/// The device on the way out has no checksums, or packets that are shorter than a message.
fn cannot_join(error: &io::Error) -> bool {
    let codes = [libc::EIO, libc::EINVAL, libc::EOPNOTSUPP, libc::EMSGSIZE];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
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
        UdpSocket::bind("0.0.0.0:0").map(Socket::over)
    }

    fn over(socket: UdpSocket) -> Socket {
        for (forced, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // (Only root gets more than net.core.rmem_max.)
            if !set_option(&socket, libc::SOL_SOCKET, forced, KERNEL_BYTES) {
                set_option(&socket, libc::SOL_SOCKET, plain, KERNEL_BYTES);
            }
        }
        // (A kernel without it gives replies one by one.)
        set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        // (A kernel without it would not say so: it would send a run as one long message. 0: no
        // message is cut but where its control message says so.)
        let joins = set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
        Socket {
            socket,
            buffers: vec![0; PLACES * PLACE_BYTES],
            messages: Vec::with_capacity(PLACES),
            joins,
            timeout_ms: 0,
            calls: Calls::default(),
        }
    }

    /// Sends all, in any order. What the kernel does not take is lost, as on the way: it goes again
    /// in its time.
    pub(crate) fn send(&mut self, messages: &mut [Send]) {
        if let [one] = messages {
            (self.calls.sends, self.calls.sent) = (self.calls.sends + 1, self.calls.sent + 1);
            drop(self.socket.send_to(&one.payload, (one.to, PORT)));
            return;
        }
        messages.sort_by_key(|message| (message.to, message.payload.len()));
        for batch in messages.chunks(BATCH) {
            if !self.joins || !self.send_batch(batch, true) {
                self.send_batch(batch, false);
            }
        }
    }

    /// `joins`: messages of one length to one switch go as one. Says whether that can be done.
    fn send_batch(&mut self, batch: &[Send], joins: bool) -> bool {
        let mut addresses = [address_of(Ipv4Addr::UNSPECIFIED); BATCH];
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        let mut controls = [control(libc::UDP_SEGMENT, 0_u16, [0; 4]); BATCH];
        let mut headers = [no_message(); BATCH];
        let mut counts = [0; BATCH];
        let mut runs = 0;
        let places = addresses.iter_mut().zip(&mut controls).zip(&mut headers).zip(&mut counts);
        let mut left = (batch, &mut parts[..]);
        for (((address, control), header), count) in places {
            let Some(first) = left.0.first() else { break };
            let bytes = first.payload.len();
            let most = if joins { (JOINED_BYTES / bytes.max(1)).max(1) } else { 1 };
            let is_next = |it: &&Send| it.to == first.to && it.payload.len() == bytes;
            *count = left.0.iter().take(most).take_while(is_next).count();
            let (run, rest) = left.0.split_at(*count);
            let (run_parts, rest_parts) = left.1.split_at_mut(*count);
            left = (rest, rest_parts);
            *address = address_of(first.to);
            for (message, part) in run.iter().zip(run_parts.iter_mut()) {
                // (The kernel only reads through this pointer.)
                part.iov_base = message.payload.as_ptr().cast_mut().cast();
                part.iov_len = bytes;
            }
            header.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            header.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_hdr.msg_iov = run_parts.as_mut_ptr();
            header.msg_hdr.msg_iovlen = *count as _;
            if *count > 1 {
                control.value = bytes as u16;
                header.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
                header.msg_hdr.msg_controllen = mem::size_of_val(control) as _;
            }
            runs += 1;
        }
        let mut first = 0;
        while first < runs {
            let left = &mut headers[first..runs];
            // SAFETY: each header points to one address, its iovecs, and these to bytes, and to a
            // control message or none, which all live until the call returns; sending only reads.
            let sent = unsafe {
                let count = left.len() as libc::c_uint;
                libc::sendmmsg(self.socket.as_raw_fd(), left.as_mut_ptr(), count, 0)
            };
            self.calls.sends += 1;
            if sent < 0 && counts[first] > 1 && cannot_join(&io::Error::last_os_error()) {
                self.joins = false;
                // (What went already goes twice, once.)
                return false;
            }
            // One that has no route is skipped.
            let sent = usize::try_from(sent).unwrap_or(1).max(1);
            self.calls.sent += counts[first..first + sent].iter().sum::<usize>() as u64;
            first += sent;
        }
        true
    }

    /// Receives what is there, up to [`PLACES`] runs of messages; returns how many messages.
    pub(crate) fn receive_now(&mut self) -> io::Result<usize> {
        self.receive_runs::<PLACES>(libc::MSG_DONTWAIT)
    }

    /// Waits for a message, for at least one millisecond and at most about `wait`; then takes what
    /// is there. `one`: no more than one message can come.
    pub(crate) fn receive(&mut self, wait: Duration, one: bool) -> io::Result<usize> {
        self.set_timeout(wait)?;
        if one {
            self.receive_runs::<1>(libc::MSG_WAITFORONE)
        } else {
            self.receive_runs::<PLACES>(libc::MSG_WAITFORONE)
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

    fn receive_runs<const N: usize>(&mut self, flags: libc::c_int) -> io::Result<usize> {
        let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: PLACE_BYTES }; N];
        let mut controls = [control(libc::UDP_GRO, 0_i32, [0; 4]); N];
        let mut headers = [no_message(); N];
        let buffers = self.buffers.chunks_exact_mut(PLACE_BYTES);
        for (((part, control), header), buffer) in
            parts.iter_mut().zip(&mut controls).zip(&mut headers).zip(buffers)
        {
            part.iov_base = buffer.as_mut_ptr().cast();
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
            header.msg_hdr.msg_controllen = mem::size_of_val(control) as _;
        }
        self.calls.receives += 1;
        self.messages.clear();
        // SAFETY: each header points to one iovec, that to a buffer of its length, and to a
        // control message, which all live, unshared, until the call returns.
        let count = unsafe {
            let (none, socket) = (std::ptr::null_mut(), self.socket.as_raw_fd());
            if N == 1 {
                // (Cheaper than recvmmsg.)
                let bytes = libc::recvmsg(socket, &raw mut headers[0].msg_hdr, 0);
                headers[0].msg_len = libc::c_uint::try_from(bytes).unwrap_or(0);
                if bytes < 0 { -1 } else { 1 }
            } else {
                let headers = headers.as_mut_ptr();
                libc::recvmmsg(socket, headers, N as libc::c_uint, flags, none)
            }
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if is_no_news(&error) { Ok(0) } else { Err(error) };
        };
        for (place, (header, control)) in headers.iter().zip(&controls).take(count).enumerate() {
            let start = place * PLACE_BYTES;
            let ends = start + (header.msg_len as usize).min(PLACE_BYTES);
            // (Without a control message the kernel joined nothing.)
            let each = match usize::try_from(control.value) {
                Ok(each) if each > 0 && header.msg_hdr.msg_controllen > 0 => each,
                _ => PLACE_BYTES,
            };
            // (One of no bytes is a message, too: a caller that was told of none would stop.)
            let starts = (start..ends.max(start + 1)).step_by(each);
            self.messages.extend(starts.map(|at| (at, ends.min(at + each))));
        }
        self.calls.received += self.messages.len() as u64;
        Ok(self.messages.len())
    }

    /// A message of the last `receive`.
    pub(crate) fn received(&self, at: usize) -> &[u8] {
        let (start, end) = self.messages[at];
        &self.buffers[start..end]
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set_option(
    socket: &UdpSocket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> bool {
    let length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option's value is an int that lives until the call returns.
    unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, length) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `seed` and length say which bytes.
    fn message(to: Ipv4Addr, seed: usize, bytes: usize) -> Send {
        Send { to, payload: (0..bytes).map(|at| (seed * 31 + at) as u8).collect() }
    }

    fn all(socket: &mut Socket, count: usize) -> Vec<Vec<u8>> {
        let mut told = vec![];
        while told.len() < count {
            let came = socket.receive(Duration::from_secs(5), false).unwrap();
            assert!(came > 0, "{} of {count} messages came", told.len());
            told.extend((0..came).map(|at| socket.received(at).to_vec()));
        }
        told
    }

    /// Lengths that may be joined, and lengths that may not; more of one than a packet holds.
    #[test]
    fn messages_arrive_as_they_were_sent() {
        // (Each test has addresses of its own: the port is one.)
        let addresses = [Ipv4Addr::new(127, 20, 1, 1), Ipv4Addr::new(127, 20, 1, 2)];
        let mut switches =
            addresses.map(|to| Socket::over(UdpSocket::bind((to, PORT)).expect("loopback")));
        let mut client = Socket::open().unwrap();
        let mut sends: Vec<Send> = (0..600)
            .map(|at| message(addresses[at % 2], at, [100, 228, 228, 101, 1][at % 5]))
            .collect();
        let sent = sends.clone();
        client.send(&mut sends);
        assert!(client.joins, "loopback joins messages");
        for (switch, to) in switches.iter_mut().zip(addresses) {
            let mut wanted: Vec<_> =
                sent.iter().filter(|it| it.to == to).map(|it| it.payload.clone()).collect();
            let mut came = all(switch, wanted.len());
            assert!(switch.calls.receives <= 10, "{:?}", switch.calls);
            wanted.sort();
            came.sort();
            assert_eq!(came, wanted);
        }
    }

    #[test]
    fn one_message_at_a_time_is_whole_too() {
        let to = Ipv4Addr::new(127, 20, 2, 1);
        let mut switch = Socket::over(UdpSocket::bind((to, PORT)).expect("loopback"));
        let mut client = Socket::open().unwrap();
        client.send(&mut [message(to, 1, 90), message(to, 2, 90)]);
        // Two came as one, though the caller waits for one.
        assert_eq!(switch.receive(Duration::from_secs(5), true).unwrap(), 2);
        assert_eq!(switch.received(0), message(to, 1, 90).payload);
        assert_eq!(switch.received(1), message(to, 2, 90).payload);
    }

    /// Anybody can send them.
    #[test]
    fn empty_messages_hide_none_behind_them() {
        let to = Ipv4Addr::new(127, 20, 4, 1);
        let mut switch = Socket::over(UdpSocket::bind((to, PORT)).expect("loopback"));
        let mut client = Socket::open().unwrap();
        client.joins = false;
        let empty = (0..2 * PLACES).map(|_| message(to, 0, 0));
        client.send(&mut empty.collect::<Vec<_>>());
        client.send(&mut [message(to, 1, 90)]);
        let came = all(&mut switch, 2 * PLACES + 1);
        assert_eq!(came.last(), Some(&message(to, 1, 90).payload));
    }

    #[test]
    fn without_joining_all_go_one_by_one() {
        let to = Ipv4Addr::new(127, 20, 3, 1);
        let mut switch = Socket::over(UdpSocket::bind((to, PORT)).expect("loopback"));
        let mut client = Socket::open().unwrap();
        client.joins = false;
        client.send(&mut (0..100).map(|at| message(to, at, 64)).collect::<Vec<_>>());
        assert_eq!(all(&mut switch, 100).len(), 100);
        assert_eq!(client.calls.sent, 100);
    }
}
