//! A packet in a few words.

use std::net::{Ipv4Addr, Ipv6Addr};

const TAGS: [u16; 2] = [0x8100, 0x88a8];

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Protocol, addresses, ports and TCP's flags of an Ethernet frame; what is not known by its
/// number.
pub fn describe(frame: &[u8]) -> String {
    let length = frame.len();
    network(frame)
        .map_or_else(|| format!("{length} bytes"), |text| format!("{text}, {length} bytes"))
}

fn network(frame: &[u8]) -> Option<String> {
    let (mut at, mut vlan) = (12, String::new());
    let mut ethertype = u16_at(frame, at)?;
    if TAGS.contains(&ethertype) {
        vlan = format!("vlan {} ", u16_at(frame, at + 2)? & 0x0fff);
        at += 4;
        ethertype = u16_at(frame, at)?;
    }
    let packet = frame.get(at + 2..)?;
    let text = match ethertype {
        0x0800 => ipv4(packet)?,
        0x86dd => ipv6(packet)?,
        0x0806 => "ARP".to_owned(),
        other => format!("ethertype {other:#06x}"),
    };
    Some(vlan + &text)
}

fn ipv4(packet: &[u8]) -> Option<String> {
    let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
    let address = |at: usize| -> Option<Ipv4Addr> {
        Some(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?.into())
    };
    let (source, destination) = (address(12)?.to_string(), address(16)?.to_string());
    let later_fragment = u16_at(packet, 6)? & 0x1fff != 0;
    let rest = if later_fragment { None } else { packet.get(header_bytes..) };
    Some(transport(*packet.get(9)?, &source, &destination, rest))
}

fn ipv6(packet: &[u8]) -> Option<String> {
    let address = |at: usize| -> Option<Ipv6Addr> {
        Some(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?.into())
    };
    let (source, destination) = (format!("[{}]", address(8)?), format!("[{}]", address(24)?));
    Some(transport(*packet.get(6)?, &source, &destination, packet.get(40..)))
}

fn transport(protocol: u8, source: &str, destination: &str, rest: Option<&[u8]>) -> String {
    let name = match protocol {
        1 => "ICMP",
        6 => "TCP",
        17 => "UDP",
        58 => "ICMPv6",
        other => return format!("protocol {other} {source} > {destination}"),
    };
    let rest = rest.unwrap_or_default();
    match (protocol, u16_at(rest, 0), u16_at(rest, 2)) {
        (6 | 17, Some(from), Some(to)) => {
            let flags =
                if protocol == 6 { rest.get(13).map(|flags| tcp_flags(*flags)) } else { None };
            format!("{name} {source}:{from} > {destination}:{to}{}", flags.unwrap_or_default())
        }
        (1 | 58, Some(kind), _) => format!("{name} {source} > {destination} type {}", kind >> 8),
        _ => format!("{name} {source} > {destination}"),
    }
}

fn tcp_flags(flags: u8) -> String {
    let names = [(2, "SYN"), (16, "ACK"), (8, "PSH"), (1, "FIN"), (4, "RST")];
    let set: Vec<&str> =
        names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { String::new() } else { format!(" {}", set.join("+")) }
}
