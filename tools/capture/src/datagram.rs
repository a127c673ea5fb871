//! From a frame to the UDP datagram in it.

use crate::{Frame, Link};
use std::net::{Ipv4Addr, SocketAddrV4};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// IEEE 802.1Q and 802.1ad tags, which may stand before the type.
const ETHERTYPE_TAGS: [u16; 2] = [0x8100, 0x88a8];
const MOST_TAGS: usize = 2;
const PROTOCOL_UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;

/// A UDP datagram over IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Where it comes from.
    pub source: SocketAddrV4,
    /// Where it goes.
    pub destination: SocketAddrV4,
    /// What was captured of its payload.
    pub payload: &'a [u8],
    /// The payload's length as its UDP header has it, in bytes: more than `payload` has if the
    /// capture cut it.
    pub payload_bytes: usize,
    /// A fragment of a datagram that was cut into several: `payload` is its beginning.
    pub fragmented: bool,
}

/// The datagram in a frame; none if the frame has none, or the second or a later fragment of one.
pub fn datagram<'a>(frame: &Frame<'a>) -> Option<Datagram<'a>> {
    ipv4(ipv4_packet(frame)?)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The frame as Ethernet carries it, for those who need that: a frame of another link layer gets a
/// header with the type that it names and the sender's address, if it has one. False, and nothing
/// in `out`, if the link layer is unknown.
pub fn ethernet_into(frame: &Frame<'_>, out: &mut Vec<u8>) -> bool {
    out.clear();
    if frame.link == Link::Ethernet {
        out.extend_from_slice(frame.bytes);
        return true;
    }
    let Some((ethertype, packet)) = typed(frame.link, frame.bytes) else { return false };
    let source = match frame.link {
        Link::LinuxCooked => frame.bytes.get(6..12),
        Link::LinuxCooked2 => frame.bytes.get(12..18),
        _ => None,
    };
    out.extend_from_slice(&[0; 6]);
    out.extend_from_slice(source.unwrap_or(&[0; 6]));
    out.extend_from_slice(&ethertype.to_be_bytes());
    out.extend_from_slice(packet);
    true
}

/// What a link layer carries, with its EtherType.
fn typed(link: Link, bytes: &[u8]) -> Option<(u16, &[u8])> {
    match link {
        Link::Ethernet => Some((u16_at(bytes, 12)?, bytes.get(14..)?)),
        Link::LinuxCooked => Some((u16_at(bytes, 14)?, bytes.get(16..)?)),
        Link::LinuxCooked2 => Some((u16_at(bytes, 0)?, bytes.get(20..)?)),
        Link::RawIp => match bytes.first()? >> 4 {
            4 => Some((ETHERTYPE_IPV4, bytes)),
            6 => Some((ETHERTYPE_IPV6, bytes)),
            _ => None,
        },
        Link::Other(_) => None,
    }
}

/// The IPv4 packet that a frame carries, with what pads it; none if it carries another.
pub fn ipv4_packet<'a>(frame: &Frame<'a>) -> Option<&'a [u8]> {
    let (mut ethertype, mut packet) = typed(frame.link, frame.bytes)?;
    for _ in 0..MOST_TAGS {
        if !ETHERTYPE_TAGS.contains(&ethertype) {
            break;
        }
        (ethertype, packet) = (u16_at(packet, 2)?, packet.get(4..)?);
    }
    (ethertype == ETHERTYPE_IPV4).then_some(packet)
}

fn ipv4(bytes: &[u8]) -> Option<Datagram<'_>> {
    let header_bytes = usize::from(bytes.first()? & 0x0f) * 4;
    if bytes[0] >> 4 != 4 || header_bytes < 20 || bytes.len() < header_bytes {
        return None;
    }
    let total_bytes = usize::from(u16_at(bytes, 2)?);
    let fragment = u16_at(bytes, 6)?;
    if bytes[9] != PROTOCOL_UDP
        || fragment & 0x1fff != 0
        || total_bytes < header_bytes + UDP_HEADER_BYTES
    {
        return None;
    }
    // Ethernet pads short frames: what lies after the packet is not of it.
    let udp = bytes.get(header_bytes..total_bytes.min(bytes.len()))?;
    let address = |at: usize| -> Option<Ipv4Addr> {
        let octets: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(octets.into())
    };
    let payload_bytes = usize::from(u16_at(udp, 4)?).checked_sub(UDP_HEADER_BYTES)?;
    let payload = udp.get(UDP_HEADER_BYTES..)?;
    Some(Datagram {
        source: SocketAddrV4::new(address(12)?, u16_at(udp, 0)?),
        destination: SocketAddrV4::new(address(16)?, u16_at(udp, 2)?),
        payload: &payload[..payload.len().min(payload_bytes)],
        payload_bytes,
        fragmented: fragment & 0x2000 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// IPv4 with one option word, UDP 7 → 5407, payload "abc", and two bytes of Ethernet padding.
    const PACKET: &[u8] = &[
        0x46, 0, 0, 35, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 1, 0, 7,
        0x15, 0x1f, 0, 11, 0, 0, b'a', b'b', b'c', 0, 0,
    ];

    fn with(link: Link, before: &[u8]) -> Option<(u16, Vec<u8>)> {
        let bytes = [before, PACKET].concat();
        let found = datagram(&Frame { time_ns: 0, link, bytes: &bytes, original_bytes: 0 })?;
        Some((found.destination.port(), found.payload.to_vec()))
    }

    #[test]
    fn every_link_layer_is_peeled_off() {
        let expected = Some((5407, b"abc".to_vec()));
        let ethernet = [[0u8; 12].as_slice(), &[8, 0]].concat();
        let tagged = [[0u8; 12].as_slice(), &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat();
        assert_eq!(with(Link::Ethernet, &ethernet), expected);
        assert_eq!(with(Link::Ethernet, &tagged), expected);
        assert_eq!(with(Link::LinuxCooked, &[[0u8; 14].as_slice(), &[8, 0]].concat()), expected);
        assert_eq!(with(Link::LinuxCooked2, &[[8u8, 0].as_slice(), &[0; 18]].concat()), expected);
        assert_eq!(with(Link::RawIp, &[]), expected);
        assert_eq!(with(Link::Other(9), &[]), None);
        assert_eq!(
            with(Link::Ethernet, &[[0u8; 12].as_slice(), &[0x86, 0xdd]].concat()),
            None,
            "IPv6"
        );
    }

    #[test]
    fn every_link_layer_becomes_ethernet() {
        let mut out = vec![9];
        let mut made = |link, before: &[u8]| {
            let bytes = [before, PACKET].concat();
            ethernet_into(&Frame { time_ns: 0, link, bytes: &bytes, original_bytes: 0 }, &mut out)
                .then(|| out.clone())
        };
        let expected =
            |source: [u8; 6]| Some([[0u8; 6].as_slice(), &source, &[8, 0], PACKET].concat());
        let cooked = [0, 0, 0, 1, 0, 6, 2, 3, 4, 5, 6, 7, 0, 0, 8, 0];
        assert_eq!(made(Link::LinuxCooked, &cooked), expected([2, 3, 4, 5, 6, 7]));
        let cooked = [8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 3, 4, 5, 6, 7, 0, 0];
        assert_eq!(made(Link::LinuxCooked2, &cooked), expected([2, 3, 4, 5, 6, 7]));
        assert_eq!(made(Link::RawIp, &[]), expected([0; 6]));
        assert_eq!(made(Link::Ethernet, &[1; 14]), Some([[1; 14].as_slice(), PACKET].concat()));
        assert_eq!(made(Link::Other(9), &[]), None);
    }

    #[test]
    fn cut_and_fragmented_ones_say_so() {
        let cut = Frame { time_ns: 0, link: Link::RawIp, bytes: &PACKET[..33], original_bytes: 37 };
        let found = datagram(&cut).unwrap();
        assert_eq!(
            (found.payload, found.payload_bytes, found.fragmented),
            (b"a".as_slice(), 3, false)
        );
        let mut first = PACKET.to_vec();
        first[6] = 0x20;
        assert!(datagram(&Frame { bytes: &first, ..cut }).unwrap().fragmented);
        first[7] = 1;
        assert_eq!(datagram(&Frame { bytes: &first, ..cut }), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), link in 0i32..300) {
            for link in [Link::Ethernet, Link::LinuxCooked, Link::LinuxCooked2, Link::RawIp, Link::from_number(link)] {
                let frame = Frame { time_ns: 0, link, bytes: &bytes, original_bytes: 0 };
                if let Some(found) = datagram(&frame) {
                    prop_assert!(found.payload.len() <= found.payload_bytes);
                }
                let mut out = vec![];
                if ethernet_into(&frame, &mut out) {
                    let again = Frame { link: Link::Ethernet, bytes: &out, ..frame };
                    prop_assert_eq!(datagram(&again), datagram(&frame));
                }
            }
        }
    }
}
