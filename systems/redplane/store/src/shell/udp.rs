//! A UDP socket that receives and sends in batches: recvmmsg and sendmmsg, and in each of their
//! messages many datagrams of one size from or to one peer (UDP GRO and GSO, udp(7)), which then
//! pass through the kernel as one.

use crate::core::{Outputs, Run};
use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

/// Messages of a system call.
const BATCH: usize = 64;
/// The longest UDP datagram there is, and the most that the kernel gathers into one message, so
/// that nothing is cut.
const MESSAGE_BYTES: usize = 65_536;
/// Between the beginnings of two buffers: not a power of two, or the beginnings, which are all that
/// is used of most, would share a few lines of the caches.
const BUFFER_STRIDE: usize = MESSAGE_BYTES + 17 * 64;
/// Segments that the kernel takes in one message: 64 in Linux before 6.9, 128 since.
const MOST_SEGMENTS: usize = 64;
/// Bytes of one sent message: an IPv4 packet's, less its headers.
const MOST_SENT_BYTES: usize = 65_507;
/// Of the kernel's buffers, each way, as the options name it: the kernel doubles it for what it
/// counts beside the bytes (socket(7)).
pub(super) const SOCKET_BUFFER_BYTES: libc::c_int = 16 << 20;
/// Room for one control message with an int, 8-byte aligned as cmsg(3) wants it.
const CONTROL_WORDS: usize = 4;
type Control = [u64; CONTROL_WORDS];

/// A bound socket with its buffers.
pub struct BatchSocket {
    socket: UdpSocket,
    buffers: Vec<u8>,
    addresses: Vec<libc::sockaddr_in>,
    /// Of each message received: its length, and that of each datagram in it but the last.
    lengths: [(usize, usize); BATCH],
    /// Longer datagrams are sent one by one: the way does not take them in one piece, or the kernel
    /// cannot cut at all (0).
    most_segment_bytes: usize,
    /// Datagrams that the kernel would not send.
    pub send_errors: u64,
}

fn zeroed_address() -> libc::sockaddr_in {
    // SAFETY: sockaddr_in is plain integers; all zeros is a valid value.
    unsafe { mem::zeroed() }
}

fn zeroed_message() -> libc::mmsghdr {
    // SAFETY: mmsghdr is integers and pointers; all zeros (null pointers, zero lengths) is a valid
    // value.
    unsafe { mem::zeroed() }
}

fn to_raw(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: address.ip().to_bits().to_be() },
        ..zeroed_address()
    }
}

fn from_raw(address: &libc::sockaddr_in) -> SocketAddrV4 {
    let ip = Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr));
    SocketAddrV4::new(ip, u16::from_be(address.sin_port))
}

impl BatchSocket {
    /// Binds, and asks for large kernel buffers (as root beyond net.core.rmem_max) and for gathered
    /// datagrams.
    pub fn bind(address: SocketAddrV4) -> io::Result<BatchSocket> {
        let socket = UdpSocket::bind(address)?;
        for (forced, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            if !set_option(&socket, libc::SOL_SOCKET, forced, SOCKET_BUFFER_BYTES) {
                set_option(&socket, libc::SOL_SOCKET, plain, SOCKET_BUFFER_BYTES);
            }
        }
        // Linux before 5.0 refuses, and gives each datagram by itself.
        set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        Ok(BatchSocket {
            socket,
            buffers: vec![0; BATCH * BUFFER_STRIDE],
            addresses: vec![zeroed_address(); BATCH],
            lengths: [(0, 0); BATCH],
            most_segment_bytes: MESSAGE_BYTES,
            send_errors: 0,
        })
    }

    /// The kernel's buffers that are smaller than asked for: which, their bytes, and the sysctl
    /// that limits them.
    pub fn small_buffers(&self) -> Vec<(&'static str, usize, &'static str)> {
        use nix::sys::socket::{getsockopt, sockopt};
        let buffers = [
            ("receive", getsockopt(&self.socket, sockopt::RcvBuf), "net.core.rmem_max"),
            ("send", getsockopt(&self.socket, sockopt::SndBuf), "net.core.wmem_max"),
        ];
        let bytes = buffers
            .into_iter()
            .filter_map(|(what, doubled, limit)| Some((what, doubled.ok()? / 2, limit)));
        bytes.filter(|(_, bytes, _)| *bytes < SOCKET_BUFFER_BYTES as usize).collect()
    }

    /// Receives what is there, up to a batch of messages, without waiting; returns how many. More
    /// may be there if it is `FULL`.
    pub fn receive(&mut self) -> io::Result<usize> {
        let mut parts: [libc::iovec; BATCH] =
            [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        let mut controls: [Control; BATCH] = [[0; CONTROL_WORDS]; BATCH];
        let mut messages: [libc::mmsghdr; BATCH] = [zeroed_message(); BATCH];
        let buffers = self.buffers.chunks_exact_mut(BUFFER_STRIDE);
        let places = buffers.zip(&mut self.addresses).zip(&mut controls);
        for ((message, part), ((buffer, address), control)) in
            messages.iter_mut().zip(&mut parts).zip(places)
        {
            *part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: MESSAGE_BYTES };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            message.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
            message.msg_hdr.msg_control = std::ptr::from_mut(control).cast();
            message.msg_hdr.msg_controllen = mem::size_of::<Control>() as _;
        }
        // SAFETY: every header points to one iovec, one address, one control buffer and one buffer
        // that live, unshared, until the call returns; their lengths are no greater than what they
        // point to.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        let count = count as usize; // not negative
        for (lengths, message) in self.lengths.iter_mut().zip(&messages[..count]) {
            let length = message.msg_len as usize;
            *lengths = (length, segment_bytes(&message.msg_hdr).unwrap_or(length).max(1));
        }
        Ok(count)
    }

    /// A `receive` that returned as many may have left some.
    pub const FULL: usize = BATCH;

    /// The datagrams of the last `receive`, with their senders.
    pub fn received(&self, count: usize) -> impl Iterator<Item = (SocketAddrV4, &[u8])> {
        let messages =
            self.addresses.iter().zip(self.buffers.chunks_exact(BUFFER_STRIDE)).zip(&self.lengths);
        messages.take(count).flat_map(|((address, buffer), (length, segment))| {
            let from = from_raw(address);
            let empty = (*length == 0).then_some(&buffer[..0]); // of which `chunks` makes none
            empty
                .into_iter()
                .chain(buffer[..*length].chunks(*segment))
                .map(move |datagram| (from, datagram))
        })
    }

    /// Sends all datagrams; what the kernel refuses is counted and skipped, as a network may lose
    /// it too.
    pub fn send(&mut self, outputs: &Outputs) {
        let mut batch: [Run<'_>; BATCH] = [Run::EMPTY; BATCH];
        let mut count = 0;
        for run in outputs.runs(MOST_SEGMENTS, MOST_SENT_BYTES, self.most_segment_bytes) {
            batch[count] = run;
            count += 1;
            if count == BATCH {
                self.send_batch(&batch);
                count = 0;
            }
        }
        self.send_batch(&batch[..count]);
    }

    fn send_batch(&mut self, runs: &[Run<'_>]) {
        let mut addresses: [libc::sockaddr_in; BATCH] = [zeroed_address(); BATCH];
        let mut parts: [libc::iovec; BATCH] =
            [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        let mut controls: [Control; BATCH] = [[0; CONTROL_WORDS]; BATCH];
        let mut messages: [libc::mmsghdr; BATCH] = [zeroed_message(); BATCH];
        let places = addresses.iter_mut().zip(&mut parts).zip(&mut controls);
        for ((message, run), ((address, part), control)) in
            messages.iter_mut().zip(runs).zip(places)
        {
            *address = to_raw(run.to);
            // The kernel only reads through this pointer.
            *part = libc::iovec {
                iov_base: run.bytes.as_ptr().cast_mut().cast(),
                iov_len: run.bytes.len(),
            };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            message.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
            if run.segment_bytes < run.bytes.len() {
                cut_into(&mut message.msg_hdr, control, run.segment_bytes);
            }
        }
        let mut first = 0;
        while first < runs.len() {
            let left = &mut messages[first..runs.len()];
            // SAFETY: the headers point to addresses, iovecs, control buffers and bytes that live
            // until the call returns; sending only reads them.
            let sent = unsafe {
                let (messages, count) = (left.as_mut_ptr(), left.len() as libc::c_uint);
                libc::sendmmsg(self.socket.as_raw_fd(), messages, count, libc::MSG_DONTWAIT)
            };
            if sent > 0 {
                first += sent as usize; // positive
                continue;
            }
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::WouldBlock {
                // A line that takes nothing must not stop everything else that this thread does.
                // What is lost is sent again, as if the network had lost it.
                let datagrams =
                    |run: &Run<'_>| run.bytes.len().div_ceil(run.segment_bytes.max(1)) as u64;
                self.send_errors += runs[first..].iter().map(datagrams).sum::<u64>();
                return;
            }
            if error.kind() != io::ErrorKind::Interrupted {
                self.refused(&runs[first], &error);
                first += 1;
            }
        }
    }

    /// The kernel refused a run: a single datagram is lost, several go one by one, and others like
    /// them from now on.
    fn refused(&mut self, run: &Run<'_>, error: &io::Error) {
        if run.segment_bytes >= run.bytes.len() {
            self.send_errors += 1;
            return;
        }
        self.most_segment_bytes = match error.raw_os_error() {
            // Longer than the MTU: by itself it goes as IP fragments.
            Some(libc::EMSGSIZE | libc::EINVAL) => {
                self.most_segment_bytes.min(run.segment_bytes - 1)
            }
            Some(libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT) => 0,
            _ => self.most_segment_bytes,
        };
        for datagram in run.bytes.chunks(run.segment_bytes) {
            if self.socket.send_to(datagram, run.to).is_err() {
                self.send_errors += 1;
            }
        }
    }
}

/// Has the kernel cut a message into datagrams of `segment_bytes`.
fn cut_into(header: &mut libc::msghdr, control: &mut Control, segment_bytes: usize) {
    let size = segment_bytes as u16; // a datagram's length
    header.msg_control = std::ptr::from_mut(control).cast();
    // SAFETY: these only compute lengths.
    let (space, length) = unsafe { (libc::CMSG_SPACE(2), libc::CMSG_LEN(2)) };
    header.msg_controllen = space as _;
    // SAFETY: the control buffer is aligned, has room for `space` bytes (24 of 32), and
    // `msg_controllen` says so, so CMSG_FIRSTHDR is its beginning and the data lie within it.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = length as _;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(size);
    }
}

/// Of a received message with gathered datagrams: the length of each but the last.
fn segment_bytes(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel filled in the control buffer and its length; CMSG_FIRSTHDR is null if
    // there is no whole header in it.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return None;
    }
    // SAFETY: not null, so a whole header within the control buffer.
    let (level, kind, length) =
        unsafe { ((*message).cmsg_level, (*message).cmsg_type, (*message).cmsg_len as usize) };
    // SAFETY: this only computes a length.
    let needed = unsafe { libc::CMSG_LEN(mem::size_of::<libc::c_int>() as libc::c_uint) } as usize;
    if (level, kind) != (libc::SOL_UDP, libc::UDP_GRO) || length < needed {
        return None;
    }
    // SAFETY: the message is long enough for an int, which is what UDP_GRO carries.
    let size = unsafe { libc::CMSG_DATA(message).cast::<libc::c_int>().read_unaligned() };
    usize::try_from(size).ok().filter(|size| *size > 0)
}

impl AsRawFd for BatchSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn set_option(
    socket: &UdpSocket,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> bool {
    // SAFETY: the pointer and length are those of one c_int that lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(&value).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn address(socket: &UdpSocket) -> SocketAddrV4 {
        let Ok(std::net::SocketAddr::V4(address)) = socket.local_addr() else {
            panic!("no address")
        };
        address
    }

    /// All that comes until `count` datagrams are there.
    fn take(socket: &mut BatchSocket, count: usize) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let mut polled =
                [nix::poll::PollFd::new(socket.socket.as_fd(), nix::poll::PollFlags::POLLIN)];
            assert_eq!(
                nix::poll::poll(&mut polled, 5_000u16),
                Ok(1),
                "{} of {count} came",
                taken.len()
            );
            let received = socket.receive().unwrap();
            taken.extend(socket.received(received).map(|(_, datagram)| datagram.to_vec()));
        }
        taken
    }

    #[test]
    fn a_buffer_that_the_kernel_cut_is_told() {
        let socket = BatchSocket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        // As without CAP_NET_ADMIN under a low net.core.rmem_max.
        assert!(set_option(&socket.socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 100_000));
        let small = socket.small_buffers();
        assert!(small.contains(&("receive", 100_000, "net.core.rmem_max")), "{small:?}");
        let enough = nix::unistd::geteuid().is_root();
        assert!(!enough || small.len() == 1, "root gets what it asks for: {small:?}");
    }

    #[test]
    fn datagrams_come_out_as_they_went_in() {
        let localhost = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let (mut one, mut two) =
            (BatchSocket::bind(localhost).unwrap(), BatchSocket::bind(localhost).unwrap());
        let to = address(&two.socket);
        let mut outputs = Outputs::new();
        // Runs of one length, one that ends in a shorter one, one longer than the kernel gathers,
        // and datagrams above any MTU.
        let lengths = [
            [100; 150].as_slice(),
            &[60, 100, 61],
            &[1_400; 60],
            &[1, 0, 0, 2],
            &[65_507, 20_000, 20_000],
        ];
        let sent: Vec<Vec<u8>> = lengths
            .concat()
            .iter()
            .enumerate()
            .map(|(at, length)| vec![at as u8; *length])
            .collect();
        sent.iter().for_each(|bytes| outputs.push(to, bytes));
        one.send(&outputs);
        assert_eq!(one.send_errors, 0);
        assert!(take(&mut two, sent.len()) == sent);
    }

    #[test]
    fn a_kernel_that_does_not_cut_gets_datagrams_one_by_one() {
        let localhost = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let (mut one, mut two) =
            (BatchSocket::bind(localhost).unwrap(), BatchSocket::bind(localhost).unwrap());
        let to = address(&two.socket);
        let bytes = [7; 250];
        one.refused(
            &Run { to, bytes: &bytes, segment_bytes: 100 },
            &io::Error::from_raw_os_error(libc::EMSGSIZE),
        );
        assert_eq!((one.most_segment_bytes, one.send_errors), (99, 0));
        one.refused(
            &Run { to, bytes: &bytes, segment_bytes: 50 },
            &io::Error::from_raw_os_error(libc::EIO),
        );
        assert_eq!(one.most_segment_bytes, 0);
        one.refused(
            &Run { to, bytes: &bytes, segment_bytes: 250 },
            &io::Error::from_raw_os_error(libc::EIO),
        );
        assert_eq!(one.send_errors, 1, "a single one is lost");
        let lengths: Vec<_> = take(&mut two, 8).iter().map(Vec::len).collect();
        assert_eq!(lengths, [100, 100, 50, 50, 50, 50, 50, 50]);
    }
}
