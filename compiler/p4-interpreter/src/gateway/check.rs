//! What a gateway checks of a packet before it forwards it: `gateway_check`.

use super::network::{Network, ReversePath, Route};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A big-endian number in the packet, which must be there.
pub(super) fn number(bytes: &[u8], at: usize, count: usize) -> Option<usize> {
    Some(bytes.get(at..at + count)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

/// The network around the switch, and the port that a frame came in on.
type Place<'a> = Option<(&'a Network, u32)>;

/// Why a frame is not fit to be forwarded; None: it is.
pub(super) fn refused(frame: &[u8], place: Place<'_>) -> Option<&'static str> {
    let packet = frame.get(14..)?;
    match number(frame, 12, 2)? {
        0x0800 => refused_ipv4(frame, packet, place),
        0x86dd => refused_ipv6(frame, packet, place),
        // VLAN 0: the kernel would take it for a frame without a tag. ARP is the kernel's anyway.
        0x8100 | 0x88a8
            if number(packet, 0, 2)? & 0xfff == 0 && number(packet, 2, 2)? != 0x0806 =>
        {
            Some("priority_tag")
        }
        _ => None,
    }
}

/// Is the frame for this port?
fn refused_frame(frame: &[u8], place: Place<'_>, is_for_many: bool) -> Option<&'static str> {
    let (network, number) = place?;
    let port = network.ports.get(&number)?;
    let is_fit =
        if port.own_mac { frame[..6] == port.mac.to_be_bytes()[2..] } else { frame[0] & 1 == 0 };
    match (is_fit, frame[0] & 1 == 1) {
        (true, _) => None,
        (false, true) => (!is_for_many).then_some("broadcast_frame"),
        (false, false) => Some("other_mac"),
    }
}

/// Where would an answer to the source go (RFC 3704)?
fn refused_source(source: IpAddr, destination: IpAddr, place: Place<'_>) -> Option<&'static str> {
    let (network, number) = place?;
    if network.is_nobodys(source) {
        return Some("martian_source");
    }
    let port = network.port(number);
    if port.reverse_path == ReversePath::Off {
        return None;
    }
    let is_good = match network.route(destination, source) {
        Route::Local | Route::Nowhere => false,
        Route::Out { port: out, .. } => {
            let is_sibling = out < 64 && port.siblings >> out & 1 == 1;
            port.reverse_path == ReversePath::Loose || out == number || is_sibling
        }
    };
    (!is_good).then_some("reverse_path")
}

fn ipv4(packet: &[u8], at: usize) -> IpAddr {
    <[u8; 4]>::try_from(&packet[at..at + 4]).map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::from)
}

fn ipv6(packet: &[u8], at: usize) -> IpAddr {
    <[u8; 16]>::try_from(&packet[at..at + 16])
        .map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::from)
}

fn refused_ipv4(frame: &[u8], packet: &[u8], place: Place<'_>) -> Option<&'static str> {
    const SHORT: Option<&str> = Some("short_header");
    if packet.len() < 20 {
        return SHORT;
    }
    let is_own = place.is_some_and(|(network, _)| network.is_own(ipv4(packet, 16)));
    if let Some(reason) = refused_frame(frame, place, packet[16] >> 4 == 0xe || is_own) {
        return Some(reason);
    }
    let header_bytes = usize::from(packet[0] & 15) * 4;
    let total = number(packet, 2, 2)?;
    if packet[0] >> 4 != 4 || header_bytes < 20 || total < header_bytes {
        return SHORT;
    }
    if total > packet.len() {
        return Some("length");
    }
    let mut sum: usize = (0..header_bytes).step_by(2).filter_map(|at| number(packet, at, 2)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    if sum != 0xffff {
        return Some("header_checksum");
    }
    if !are_options_right(&packet[20..header_bytes]) {
        return Some("options");
    }
    let (source, destination) = (packet[12], packet[16]);
    if matches!(source, 0 | 127 | 224..) {
        return Some("martian_source");
    }
    if matches!(destination, 0 | 127) || packet[16..20] == [255; 4] {
        return Some("martian_destination");
    }
    let fragment = number(packet, 6, 2)?;
    let (offset, has_more) = ((fragment & 0x1fff) * 8, fragment & 0x2000 != 0);
    if !is_fragment_right(offset, has_more, total - header_bytes, header_bytes) {
        return Some("fragment");
    }
    let wrong = match offset {
        0 => refused_transport(&packet[header_bytes..total], packet[9], has_more),
        _ => None,
    };
    wrong.or_else(|| refused_source(ipv4(packet, 12), ipv4(packet, 16), place))
}

/// Does each option of an IPv4 header have a length that fits (RFC 791, 3.1)?
fn are_options_right(options: &[u8]) -> bool {
    match options {
        [] | [0, ..] => true,
        [1, rest @ ..] => are_options_right(rest),
        [_, length, ..] if (2..=options.len()).contains(&usize::from(*length)) => {
            are_options_right(&options[usize::from(*length)..])
        }
        _ => false,
    }
}

/// Can a whole packet be made of it and others? A packet that is no fragment is right.
fn is_fragment_right(offset: usize, has_more: bool, payload: usize, before: usize) -> bool {
    let is_whole = offset == 0 && !has_more;
    let fills = !has_more || (payload != 0 && payload.is_multiple_of(8));
    is_whole || (fills && before + offset + payload <= 0xffff)
}

/// IPv6 addresses that no packet on a wire has (RFC 4291, 2.5.2 and 2.5.3), and IPv4's (2.5.5.2).
fn is_martian_ipv6(address: &[u8]) -> bool {
    let zeros = address.iter().take_while(|byte| **byte == 0).count();
    zeros == 16
        || (zeros == 15 && address[15] == 1)
        || (zeros == 10 && address[10..12] == [0xff, 0xff])
}

fn refused_ipv6(frame: &[u8], packet: &[u8], place: Place<'_>) -> Option<&'static str> {
    if packet.len() < 40 {
        return Some("short_header");
    }
    if let Some(reason) = refused_frame(frame, place, packet[24] == 0xff) {
        return Some(reason);
    }
    if packet[0] >> 4 != 6 {
        return Some("short_header");
    }
    let payload = number(packet, 4, 2)?;
    if payload + 40 > packet.len() {
        return Some("length");
    }
    if packet[8] == 0xff || is_martian_ipv6(&packet[8..24]) {
        return Some("martian_source");
    }
    if is_martian_ipv6(&packet[24..40]) {
        return Some("martian_destination");
    }
    refused_payload_ipv6(&packet[40..40 + payload], packet[6])
        .or_else(|| refused_source(ipv6(packet, 8), ipv6(packet, 24), place))
}

/// Behind a fragment header, too.
fn refused_payload_ipv6(payload: &[u8], next_header: u8) -> Option<&'static str> {
    if next_header != 44 {
        return refused_transport(payload, next_header, false);
    }
    if payload.len() < 8 {
        return Some("length");
    }
    let fragment = number(payload, 2, 2)?;
    let (offset, has_more) = (fragment & 0xfff8, fragment & 1 != 0);
    if !is_fragment_right(offset, has_more, payload.len() - 8, 0) {
        return Some("fragment");
    }
    if offset != 0 {
        return None;
    }
    refused_transport(&payload[8..], payload[0], has_more)
}

fn refused_transport(payload: &[u8], protocol: u8, has_more: bool) -> Option<&'static str> {
    let is_right = match protocol {
        6 if payload.len() >= 20 => {
            (20..=payload.len()).contains(&(usize::from(payload[12] >> 4) * 4))
        }
        17 if payload.len() >= 8 => {
            let length = number(payload, 4, 2)?;
            length >= 8 && (has_more || length <= payload.len())
        }
        6 | 17 => false,
        _ => true,
    };
    (!is_right).then_some("length")
}
