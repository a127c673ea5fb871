//! Sends finished packets by the kernel's own routes: it resolves the next hop, and holds the
//! packet meanwhile.
//!
//! Raw sockets: headers are as the program made them. The kernel looks up the way for the packet's
//! own source and destination, so rules by source hold; it does not fragment what is longer than
//! the interface's MTU, and says how long that is.

use super::fragment::Packet;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

const ETHERNET_BYTES: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_HEADER_BYTES: usize = 40;
/// Room for packets that wait for their next hop: 200,000 bytes of them to each, and this in all.
const SEND_BYTES: usize = 8 << 20;
/// Errors that wait are read away, at most so many.
const MOST_ERRORS: usize = 64;
/// linux/in6.h.
const IPV6_TRANSPARENT: libc::c_int = 75;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The kernel has it.
    Whole,
    /// The kernel has it, in fragments.
    Fragmented,
    /// It is longer than the MTU, and must not or cannot be fragmented.
    TooBig,
    /// There is no way to it.
    Unreachable,
    /// The kernel did not take it: no room, or its filters say no.
    Refused,
    /// It is no IP packet.
    Malformed,
}

/// Sockets to send by.
pub(crate) struct Sender {
    ipv4: OwnedFd,
    /// None: this host has no IPv6.
    ipv6: Option<OwnedFd>,
    /// The identification of the last packet that had none and was cut into fragments.
    identification: Cell<u16>,
}

impl Sender {
    pub fn new() -> io::Result<Sender> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let open = |family| -> io::Result<OwnedFd> {
            // IPPROTO_RAW: the header comes with the data, and nothing is received.
            let socket = socket(family, SockType::Raw, flags, SockProtocol::Raw)?;
            if setsockopt(&socket, sockopt::SndBufForce, &SEND_BYTES).is_err() {
                setsockopt(&socket, sockopt::SndBuf, &SEND_BYTES)?;
            }
            Ok(socket)
        };
        let ipv4 = open(AddressFamily::Inet)?;
        // Tells the MTU of an interface for which a packet was too long.
        setsockopt(&ipv4, sockopt::Ipv4RecvErr, &true)?;
        let ipv6 = open(AddressFamily::Inet6).and_then(|socket| {
            // Sources that are not this host's.
            super::raw_option(&socket, libc::IPPROTO_IPV6, IPV6_TRANSPARENT, &1i32)?;
            Ok(socket)
        });
        Ok(Sender { ipv4, ipv6: ipv6.ok(), identification: Cell::new(0) })
    }

    /// Sends what is behind a frame's Ethernet header.
    pub fn send(&self, frame: &[u8]) -> Sent {
        let Some((ethernet, packet)) = frame.split_at_checked(ETHERNET_BYTES) else {
            return Sent::Malformed;
        };
        match [ethernet[12], ethernet[13]] {
            ETHERTYPE_IPV4 => {
                Packet::new(packet).map_or(Sent::Malformed, |packet| self.ipv4(&packet))
            }
            ETHERTYPE_IPV6 => self.ipv6(packet),
            _ => Sent::Malformed,
        }
    }

    fn ipv4(&self, packet: &Packet<'_>) -> Sent {
        let (source, destination) = packet.addresses();
        match self.ipv4_bytes(&packet.bytes(), source, destination) {
            Ok(()) => Sent::Whole,
            Err(Errno::EMSGSIZE) => {
                let mtu = self.told_mtu();
                let fragments = mtu
                    .filter(|_| !packet.is_whole())
                    .and_then(|it| packet.fragments(it, self.fresh_identification()));
                let Some(fragments) = fragments else { return Sent::TooBig };
                let mut all = fragments.iter().map(|it| self.ipv4_bytes(it, source, destination));
                all.find_map(Result::err).map_or(Sent::Fragmented, refusal)
            }
            Err(error) => refusal(error),
        }
    }

    /// Not 0, and another one than the 65,534 before.
    fn fresh_identification(&self) -> u16 {
        let next = self.identification.get().checked_add(1).unwrap_or(1);
        self.identification.set(next);
        next
    }

    fn ipv4_bytes(&self, bytes: &[u8], source: [u8; 4], destination: [u8; 4]) -> Result<(), Errno> {
        let to = SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::from(destination), 0));
        let info = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source) },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        let control = [ControlMessage::Ipv4PacketInfo(&info)];
        let data = [IoSlice::new(bytes)];
        sendmsg(self.ipv4.as_raw_fd(), &data, &control, MsgFlags::empty(), Some(&to)).map(drop)
    }

    fn ipv6(&self, packet: &[u8]) -> Sent {
        let Some(socket) = &self.ipv6 else { return Sent::Unreachable };
        let Some(header) = packet.get(..IPV6_HEADER_BYTES).filter(|header| header[0] >> 4 == 6)
        else {
            return Sent::Malformed;
        };
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let Some(bytes) = packet.get(..IPV6_HEADER_BYTES + length) else { return Sent::Malformed };
        let address = |at: usize| -> [u8; 16] { std::array::from_fn(|byte| header[at + byte]) };
        let to = SocketAddrV6::new(Ipv6Addr::from(address(24)), 0, 0, 0);
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: address(8) },
            ipi6_ifindex: 0,
        };
        let control = [ControlMessage::Ipv6PacketInfo(&info)];
        let (data, to) = ([IoSlice::new(bytes)], SockaddrIn6::from(to));
        match sendmsg(socket.as_raw_fd(), &data, &control, MsgFlags::empty(), Some(&to)) {
            Ok(_) => Sent::Whole,
            Err(error) => refusal(error),
        }
    }

    /// The MTU of the interface for which the last packet was too long.
    fn told_mtu(&self) -> Option<usize> {
        let mut told = None;
        for _ in 0..MOST_ERRORS {
            // Room for `struct sock_extended_err` and the address behind it.
            let mut room = nix::cmsg_space!([u8; 64]);
            let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
            let descriptor = self.ipv4.as_raw_fd();
            let Ok(message) =
                recvmsg::<SockaddrStorage>(descriptor, &mut [], Some(&mut room), flags)
            else {
                break;
            };
            for control in message.cmsgs().into_iter().flatten() {
                if let ControlMessageOwned::Ipv4RecvErr(error, _) = control
                    && error.ee_errno == libc::EMSGSIZE as u32
                {
                    told = Some(error.ee_info as usize);
                }
            }
        }
        told
    }
}

fn refusal(error: Errno) -> Sent {
    match error {
        Errno::EMSGSIZE => Sent::TooBig,
        Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ENETDOWN | Errno::EACCES => {
            Sent::Unreachable
        }
        _ => Sent::Refused,
    }
}
