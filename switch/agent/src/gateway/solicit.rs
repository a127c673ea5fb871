//! Asks a router whether it is still where the neighbour table says: an ARP request (RFC 826) or a
//! neighbour solicitation (RFC 4861, 4.3). The answer goes to the kernel, which acts by it as if it
//! had asked itself.

use super::message::Hop;
use nix::sys::socket::{
    AddressFamily, ControlMessage, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrIn6, SockaddrLike, SockaddrStorage, sendmsg, setsockopt, socket, sockopt,
};
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

const BROADCAST: [u8; 6] = [0xff; 6];
/// Bytes of an ARP request on Ethernet for IPv4.
const ARP_BYTES: usize = 28;
/// RFC 4861: what has passed a router is no neighbour discovery.
const HOP_LIMIT: i32 = 255;
/// `struct icmp6_filter` that lets nothing in, and its option.
const NOTHING: [u32; 8] = [u32::MAX; 8];
const ICMP6_FILTER: libc::c_int = 1;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From {
    /// The interface's MAC.
    pub mac: [u8; 6],
    /// The address that is told for this host; none: the interface has none that would do.
    pub ipv4: Option<Ipv4Addr>,
}

/// An ARP request for `target`, without an Ethernet header.
fn arp_request(mac: [u8; 6], source: Ipv4Addr, target: Ipv4Addr) -> [u8; ARP_BYTES] {
    let mut bytes = [0; ARP_BYTES];
    // Ethernet, IPv4, their addresses' lengths, request.
    bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    bytes[8..14].copy_from_slice(&mac);
    bytes[14..18].copy_from_slice(&source.octets());
    bytes[24..28].copy_from_slice(&target.octets());
    bytes
}

/// A neighbour solicitation for `target`, without its IPv6 header; the kernel fills in the
/// checksum.
fn solicitation(mac: [u8; 6], target: Ipv6Addr) -> Vec<u8> {
    let mut bytes = vec![135, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(target.octets());
    // Option: source link-layer address, in units of 8 bytes.
    bytes.extend([1, 1]);
    bytes.extend(mac);
    bytes
}

/// The group that the owner of an address has joined (RFC 4291, 2.7.1).
fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    let last = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), last)
}

/// Sockets to ask by.
pub(crate) struct Solicitor {
    arp: OwnedFd,
    /// None: this host has no IPv6.
    icmpv6: Option<OwnedFd>,
}

impl Solicitor {
    pub fn new() -> io::Result<Solicitor> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        // Protocol 0: it receives nothing.
        let arp = socket(AddressFamily::Packet, SockType::Datagram, flags, None)?;
        let icmpv6 = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)
            .map_err(io::Error::from)
            .and_then(|socket| {
                setsockopt(&socket, sockopt::Ipv6Ttl, &HOP_LIMIT)?;
                super::raw_option(
                    &socket,
                    libc::IPPROTO_IPV6,
                    libc::IPV6_MULTICAST_HOPS,
                    &HOP_LIMIT,
                )?;
                super::raw_option(&socket, libc::IPPROTO_ICMPV6, ICMP6_FILTER, &NOTHING)?;
                Ok(socket)
            });
        Ok(Solicitor { arp, icmpv6: icmpv6.ok() })
    }

    /// Asks at this MAC (of an IPv6 router: where the neighbour table says) or, without one, all.
    pub fn ask(&self, hop: Hop, to: Option<[u8; 6]>, from: From) -> io::Result<()> {
        match hop.address {
            IpAddr::V4(target) => {
                let Some(source) = from.ipv4 else { return Ok(()) };
                let request = arp_request(from.mac, source, target);
                let address = link_address(hop.ifindex, to.unwrap_or(BROADCAST))?;
                let data = [IoSlice::new(&request)];
                sendmsg(self.arp.as_raw_fd(), &data, &[], MsgFlags::empty(), Some(&address))?;
            }
            IpAddr::V6(target) => {
                let Some(socket) = &self.icmpv6 else { return Ok(()) };
                let to = if to.is_some() { target } else { solicited_node(target) };
                let scope =
                    if to.is_multicast() || to.is_unicast_link_local() { hop.ifindex } else { 0 };
                let address = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, scope));
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: [0; 16] },
                    ipi6_ifindex: hop.ifindex,
                };
                let control = [ControlMessage::Ipv6PacketInfo(&info)];
                let message = solicitation(from.mac, target);
                let data = [IoSlice::new(&message)];
                sendmsg(socket.as_raw_fd(), &data, &control, MsgFlags::empty(), Some(&address))?;
            }
        }
        Ok(())
    }
}

fn link_address(ifindex: u32, mac: [u8; 6]) -> io::Result<LinkAddr> {
    // SAFETY: all-zero bytes are a valid value of this C struct of integers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ARP as u16).to_be();
    address.sll_ifindex = i32::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput)?;
    address.sll_halen = mac.len() as u8;
    address.sll_addr[..mac.len()].copy_from_slice(&mac);
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer is to a `sockaddr_ll` of that length, which lives until the call returns.
    let storage = unsafe { SockaddrStorage::from_raw((&raw const address).cast(), Some(length)) };
    storage.and_then(|it| it.as_link_addr().copied()).ok_or(io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arp_request_is_as_rfc_826_has_it() {
        let mac = [2, 0, 0, 0, 0, 9];
        let request = arp_request(mac, Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 1));
        let wanted = [
            0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1,
        ];
        assert_eq!(request, wanted);
    }

    #[test]
    fn a_solicitation_names_the_target_and_goes_to_its_group() {
        let target: Ipv6Addr = "fe80::12:3456".parse().unwrap();
        let message = solicitation([2, 0, 0, 0, 0, 9], target);
        assert_eq!((message.len(), message[0], &message[8..24]), (32, 135, &target.octets()[..]));
        assert_eq!(message[24..], [1, 1, 2, 0, 0, 0, 0, 9]);
        let group: Ipv6Addr = "ff02::1:ff12:3456".parse().unwrap();
        assert_eq!(solicited_node(target), group);
    }
}
