//! A UDP socket that receives and sends in batches: recvmmsg and sendmmsg.

use crate::core::Outputs;
use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const BATCH: usize = 64;
/// The longest UDP datagram there is, so that none is cut.
const DATAGRAM_BYTES: usize = 65_536;
const SOCKET_BUFFER_BYTES: libc::c_int = 16 << 20;

/// A bound socket with its buffers.
pub struct BatchSocket {
    socket: UdpSocket,
    buffers: Vec<u8>,
    addresses: Vec<libc::sockaddr_in>,
    lengths: [usize; BATCH],
    /// Datagrams that the kernel would not send.
    pub send_errors: u64,
}

fn zeroed_address() -> libc::sockaddr_in {
    // SAFETY: sockaddr_in is plain integers; all zeros is a valid value.
    unsafe { mem::zeroed() }
}

fn zeroed_message() -> libc::mmsghdr {
    // SAFETY: mmsghdr is integers and pointers; all zeros (null pointers, zero lengths) is a valid value.
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
    /// Binds, and asks for large kernel buffers (as root beyond net.core.rmem_max).
    pub fn bind(address: SocketAddrV4) -> io::Result<BatchSocket> {
        let socket = UdpSocket::bind(address)?;
        for (forced, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            if !set_buffer(&socket, forced) {
                set_buffer(&socket, plain);
            }
        }
        Ok(BatchSocket {
            socket,
            buffers: vec![0; BATCH * DATAGRAM_BYTES],
            addresses: vec![zeroed_address(); BATCH],
            lengths: [0; BATCH],
            send_errors: 0,
        })
    }

    /// Receives what is there, up to a batch, without waiting; returns how many.
    pub fn receive(&mut self) -> io::Result<usize> {
        let mut parts: [libc::iovec; BATCH] =
            std::array::from_fn(|_| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });
        let mut messages: [libc::mmsghdr; BATCH] = std::array::from_fn(|_| zeroed_message());
        let buffers = self.buffers.chunks_exact_mut(DATAGRAM_BYTES);
        for (((message, part), buffer), address) in
            messages.iter_mut().zip(&mut parts).zip(buffers).zip(&mut self.addresses)
        {
            *part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            message.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
        }
        // SAFETY: every header points to one iovec, one address and one buffer that live, unshared, until the call returns; their lengths are
        // those of what they point to.
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
        for (length, message) in self.lengths.iter_mut().zip(&messages[..count]) {
            *length = message.msg_len as usize;
        }
        Ok(count)
    }

    /// The datagrams of the last `receive`, with their senders.
    pub fn received(&self, count: usize) -> impl Iterator<Item = (SocketAddrV4, &[u8])> {
        let buffers = self.buffers.chunks_exact(DATAGRAM_BYTES);
        self.addresses
            .iter()
            .zip(buffers)
            .zip(&self.lengths)
            .take(count)
            .map(|((address, buffer), length)| (from_raw(address), &buffer[..*length]))
    }

    /// Sends all datagrams; what the kernel refuses is counted and skipped, as a network may lose it too.
    pub fn send(&mut self, outputs: &Outputs) {
        let mut datagrams = outputs.datagrams();
        loop {
            let mut addresses: [libc::sockaddr_in; BATCH] = std::array::from_fn(|_| zeroed_address());
            let mut parts: [libc::iovec; BATCH] =
                std::array::from_fn(|_| libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });
            let mut count = 0;
            for ((to, bytes), (address, part)) in
                datagrams.by_ref().take(BATCH).zip(addresses.iter_mut().zip(&mut parts))
            {
                *address = to_raw(to);
                // The kernel only reads through this pointer.
                *part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
                count += 1;
            }
            if count == 0 {
                return;
            }
            self.send_batch(&mut addresses[..count], &mut parts[..count]);
        }
    }

    fn send_batch(&mut self, addresses: &mut [libc::sockaddr_in], parts: &mut [libc::iovec]) {
        let mut messages: [libc::mmsghdr; BATCH] = std::array::from_fn(|_| zeroed_message());
        let count = addresses.len();
        for ((message, part), address) in messages.iter_mut().zip(parts).zip(addresses) {
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            message.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
        }
        let mut first = 0;
        while first < count {
            let left = &mut messages[first..count];
            // SAFETY: the headers point to addresses, iovecs and bytes that live until the call returns; sending only reads them.
            let sent =
                unsafe { libc::sendmmsg(self.socket.as_raw_fd(), left.as_mut_ptr(), left.len() as libc::c_uint, 0) };
            if sent > 0 {
                first += sent as usize; // positive
            } else if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                self.send_errors += 1;
                first += 1;
            }
        }
    }
}

impl AsFd for BatchSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set_buffer(socket: &UdpSocket, option: libc::c_int) -> bool {
    let size = SOCKET_BUFFER_BYTES;
    // SAFETY: the pointer and length are those of one c_int that lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&size).cast(),
            mem::size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
}
