//! Frames as an interface carries them: a packet socket with a filter in the kernel.
//!
//! A packet socket sees what the kernel's stack sees. Frames that an XDP program drops or sends on,
//! and those that one sends out of an interface, never come there: capture on the other end of the
//! link, or on the store's machine.

use crate::{Frame, Link};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockType, SockaddrIn,
    recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal, TimeValLike};
use std::io::{Error, ErrorKind, IoSliceMut, Result};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longer than what any link carries (GRO makes frames of 64 KiB).
const BUFFER_BYTES: usize = 1 << 17;
const LOOPBACK: &str = "lo";
const KERNEL_BUFFER_BYTES: usize = 8 << 20;

/// What the kernel counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that passed the filter.
    pub seen: u32,
    /// Of them, those that did not fit into the buffer, because they were not fetched fast enough.
    pub lost: u32,
}

/// Where a frame was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The interface's index in its network namespace.
    pub interface: u32,
    /// The machine sent it there, rather than received it.
    pub outgoing: bool,
}

/// An interface that is listened to, or all of a network namespace.
pub struct Interface {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// The socket's time-out.
    patience: Option<TimeVal>,
}

/// Ports that a filter can have: its jumps are at most 255 instructions long.
const MOST_PORTS: usize = 100;

/// Classic BPF: accept untagged IPv4 UDP with one of these ports, as source or destination, and the
/// second and later fragments not.
fn filter(ports: &[u16]) -> Result<Vec<libc::sock_filter>> {
    const LOAD_HALF: u16 = 0x28;
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_HALF_AT_X: u16 = 0x48;
    const LOAD_X_HEADER_LENGTH: u16 = 0xb1;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    if ports.len() > MOST_PORTS {
        let text = format!("{} ports; at most {MOST_PORTS} can be captured", ports.len());
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // What follows the test of the fragment: two loads, two tests of each port.
    let tests = 2 * ports.len() as u8;
    let mut steps = vec![
        step(LOAD_HALF, 0, 0, 12), // type of the Ethernet frame: the kernel took VLAN tags off
        step(JUMP_EQUAL, 0, 7 + tests, 0x0800),
        step(LOAD_BYTE, 0, 0, 23), // protocol
        step(JUMP_EQUAL, 0, 5 + tests, 17),
        step(LOAD_HALF, 0, 0, 20), // flags and offset of the fragment
        step(JUMP_SET, 3 + tests, 0, 0x1fff),
        step(LOAD_X_HEADER_LENGTH, 0, 0, 14),
    ];
    // To the last step, over the tests that are left, the second load and the step that refuses.
    let mut left = tests;
    for (place, loads) in [(14, 2), (16, 1)] {
        steps.push(step(LOAD_HALF_AT_X, 0, 0, place)); // source port, destination port
        for port in ports {
            left -= 1;
            steps.push(step(JUMP_EQUAL, left + loads, 0, u32::from(*port)));
        }
    }
    steps.extend([step(RETURN, 0, 0, 0), step(RETURN, 0, 0, u32::MAX)]);
    Ok(steps)
}

impl Interface {
    /// Listens on an interface for UDP datagrams from or to one of `ports`. Needs CAP_NET_RAW.
    pub fn open(name: &str, ports: impl AsRef<[u16]>) -> Result<Interface> {
        Interface::open_with(name, Some(&filter(ports.as_ref())?))
    }

    /// Listens for all frames. (The kernel takes a first VLAN tag off.) Needs CAP_NET_RAW.
    pub fn open_all(name: &str) -> Result<Interface> {
        Interface::open_with(name, None)
    }

    /// Listens on all interfaces of the calling thread's network namespace for UDP datagrams from
    /// or to one of `ports`. Needs CAP_NET_RAW.
    pub fn open_namespace(ports: impl AsRef<[u16]>) -> Result<Interface> {
        Interface::open_index("all interfaces", 0, Some(&filter(ports.as_ref())?))
    }

    fn open_with(name: &str, filter: Option<&[libc::sock_filter]>) -> Result<Interface> {
        let index = nix::net::if_::if_nametoindex(name).map_err(|_| {
            Error::new(
                ErrorKind::NotFound,
                format!("{name}: there is no such interface; see `ip link`"),
            )
        })?;
        Interface::open_index(name, index, filter)
    }

    /// Index 0 stands for all interfaces.
    fn open_index(
        name: &str,
        index: u32,
        filter: Option<&[libc::sock_filter]>,
    ) -> Result<Interface> {
        // Protocol 0: nothing arrives before the filter is there and `bind` names a protocol.
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)
            .map_err(|errno| {
                let remedy = if errno == nix::errno::Errno::EPERM {
                    "; run as root (it needs CAP_NET_RAW)"
                } else {
                    ""
                };
                Error::new(ErrorKind::PermissionDenied, format!("{name}: {errno}{remedy}"))
            })?;
        if let Some(filter) = filter {
            attach(&socket, filter)?;
        }
        if name == LOOPBACK {
            // There each frame goes out and comes in: once is enough.
            set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        }
        // As much as is allowed will do.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &KERNEL_BUFFER_BYTES);
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        bind(&socket, index)?;
        Ok(Interface { socket, buffer: vec![0; BUFFER_BYTES], patience: None })
    }

    /// The next frame; none if there is none within `patience`.
    pub fn next_frame(&mut self, patience: Duration) -> Result<Option<Frame<'_>>> {
        Ok(self.next_seen(patience)?.map(|(frame, _)| frame))
    }

    /// The next frame, with the time at which the kernel saw it, and where it did; none if there is
    /// none within `patience`.
    pub fn next_seen(&mut self, patience: Duration) -> Result<Option<(Frame<'_>, Seen)>> {
        let patience =
            TimeVal::microseconds(i64::try_from(patience.as_micros()).unwrap_or(i64::MAX).max(1));
        if self.patience != Some(patience) {
            setsockopt(&self.socket, sockopt::ReceiveTimeout, &patience)?;
            self.patience = Some(patience);
        }
        let mut told = nix::cmsg_space!(TimeSpec);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        // MSG_TRUNC: the frame's own length, even if the buffer is shorter.
        let flags = MsgFlags::MSG_TRUNC;
        let message = match recvmsg::<LinkAddr>(
            self.socket.as_raw_fd(),
            &mut parts,
            Some(&mut told),
            flags,
        ) {
            Ok(message) => message,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let stamped = message.cmsgs()?.find_map(|told| match told {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        let time = stamped
            .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let seen = message.address.map_or(Seen { interface: 0, outgoing: false }, |address| Seen {
            interface: u32::try_from(address.ifindex()).unwrap_or(0),
            outgoing: address.pkttype() == libc::PACKET_OUTGOING,
        });
        let length = message.bytes;
        let frame = Frame {
            time_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            link: Link::Ethernet,
            bytes: &self.buffer[..length.min(BUFFER_BYTES)],
            original_bytes: length as u32,
        };
        Ok(Some((frame, seen)))
    }

    /// What the kernel counted since the last time that this was asked.
    pub fn statistics(&self) -> Statistics {
        let mut found = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `found`, which has as many.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut found).cast(),
                &mut length,
            )
        };
        if result != 0 {
            Statistics::default()
        } else {
            Statistics { seen: found.tp_packets, lost: found.tp_drops }
        }
    }
}

/// Waits until the kernel stamps frames when it sees them; whether it does so within `limit`. Who
/// asks for times, as [`Interface`] does, only has a worker of the kernel switch that on for the
/// whole machine some time later (`net_enable_timestamp` of net/core/dev.c). On a busy machine that
/// takes a while, and until then a frame gets the time at which it is *fetched*
/// (`__sock_recv_timestamp` of net/socket.c). The loopback interface must be up.
pub fn stamps_frames(limit: Duration) -> Result<bool> {
    let deadline = Instant::now() + limit;
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    while Instant::now() < deadline {
        sender.send_to(&[0], receiver.local_addr()?)?;
        let mut arrives = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
        if poll(&mut arrives, PollTimeout::from(100_u8)).unwrap_or(0) == 0 {
            continue;
        }
        // It is there: a time that is later than now is not that of its arrival.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (mut byte, mut told) = ([0], nix::cmsg_space!(TimeSpec));
        let mut parts = [IoSliceMut::new(&mut byte)];
        let message = recvmsg::<SockaddrIn>(
            receiver.as_raw_fd(),
            &mut parts,
            Some(&mut told),
            MsgFlags::MSG_DONTWAIT,
        )?;
        let stamped = message.cmsgs()?.find_map(|told| match told {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        if stamped.is_some_and(|time| time <= now) {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

fn attach(socket: &OwnedFd, filter: &[libc::sock_filter]) -> Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // `program` points to `filter.len()` instructions, which the kernel copies.
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn set_option<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has `length` bytes, of which the kernel reads no more; what it points to
    // lives until this returns.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), length)
    };
    if result != 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn bind(socket: &OwnedFd, index: u32) -> Result<()> {
    // SAFETY: all zeros is a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: `address` is a `sockaddr_ll` of the length that is given.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result != 0 { Err(Error::last_os_error()) } else { Ok(()) }
}
