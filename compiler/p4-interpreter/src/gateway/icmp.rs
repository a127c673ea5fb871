//! `reply_icmp_error`, and `clamp_tcp_mss`.

use super::check::number;
use super::network::Port;
use std::net::{IpAddr, Ipv6Addr};

/// An IP header and eight bytes of ICMP go before the quotation; with these an answer is so long at
/// the most.
const MOST_IPV4: usize = 576;
const MOST_IPV6: usize = 1280;

/// An error's type, code and second word.
#[derive(Clone, Copy)]
pub(super) struct Error {
    pub kind: u8,
    pub code: u8,
    pub rest: u32,
}

/// The sum of 16-bit words, complemented (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// May an error be sent about this packet (RFC 1812, 4.3.2.7)? `packet` is behind the Ethernet
/// header.
fn is_due_ipv4(frame: &[u8], packet: &[u8]) -> Option<bool> {
    let fragment = number(packet, 6, 2)?;
    let (source, destination) = (packet.get(12)?, packet.get(16)?);
    if frame[0] & 1 != 0
        || fragment & 0x1fff != 0
        || *destination >= 224
        || matches!(source, 0 | 127 | 224..)
    {
        return Some(false);
    }
    if packet[9] != 1 {
        return Some(true);
    }
    let kind = packet.get(usize::from(packet[0] & 15) * 4)?;
    Some(*kind <= 18 && !matches!(kind, 3 | 4 | 5 | 11 | 12))
}

/// More extension headers hide what is behind them.
const MOST_EXTENSIONS: usize = 8;

/// Hop-by-hop options, routing, fragment, destination options.
fn is_extension(next: u8) -> bool {
    matches!(next, 0 | 43 | 44 | 60)
}

/// The same of ICMPv6 (RFC 4443, 2.4 (e)).
fn is_due_ipv6(frame: &[u8], packet: &[u8], error: Error) -> Option<bool> {
    let (source, destination) = (packet.get(8..24)?, packet.get(24..40)?);
    let is_for_many = frame[0] & 1 != 0 || destination[0] == 0xff;
    if is_for_many && error.kind != 2 && (error.kind, error.code) != (4, 2) {
        return Some(false);
    }
    if source[0] == 0xff || source.iter().all(|byte| *byte == 0) {
        return Some(false);
    }
    let (mut next, mut at) = (packet[6], 40);
    for _ in 0..MOST_EXTENSIONS {
        if !is_extension(next) {
            break;
        }
        let extension = packet.get(at..at + 8)?;
        if next == 44 && number(extension, 2, 2)? & 0xfff8 != 0 {
            return Some(true);
        }
        at += if next == 44 { 8 } else { (usize::from(extension[1]) + 1) * 8 };
        next = extension[0];
    }
    if is_extension(next) {
        return Some(false);
    }
    if next != 58 {
        return Some(true);
    }
    let kind = *packet.get(at)?;
    Some(kind >= 128 && kind != 137)
}

/// May an error be sent about this frame?
pub(super) fn is_due(frame: &[u8], error: Error) -> bool {
    let Some(packet) = frame.get(14..) else { return false };
    match number(frame, 12, 2) {
        Some(0x0800) if packet.len() >= 20 => is_due_ipv4(frame, packet).unwrap_or(false),
        Some(0x86dd) if packet.len() >= 40 => is_due_ipv6(frame, packet, error).unwrap_or(false),
        _ => false,
    }
}

/// The answer to a frame about which an error is due. None: the port has no address.
pub(super) fn answer(frame: &[u8], port: &Port, error: Error) -> Option<Vec<u8>> {
    let packet = &frame[14..];
    let mut answer = frame[6..12].to_vec();
    match port.mac {
        0 => answer.extend(&frame[..6]),
        mac => answer.extend(&mac.to_be_bytes()[2..]),
    }
    answer.extend(&frame[12..14]);
    let mut icmp = vec![error.kind, error.code, 0, 0];
    icmp.extend(error.rest.to_be_bytes());
    let addresses = || port.addresses.iter().map(|(address, _)| *address);
    if number(frame, 12, 2)? == 0x0800 {
        let own =
            addresses().find_map(|own| if let IpAddr::V4(own) = own { Some(own) } else { None })?;
        let quote = number(packet, 2, 2)?.min(packet.len()).min(MOST_IPV4 - 28);
        icmp.extend(&packet[..quote]);
        // Internetwork control (RFC 1812, 4.3.2.5); never fragmented.
        let mut header = vec![0x45, 0xc0];
        header.extend(((icmp.len() + 20) as u16).to_be_bytes());
        header.extend([0, 0, 0x40, 0, 64, 1, 0, 0]);
        header.extend(own.octets());
        header.extend(&packet[12..16]);
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let sum = checksum(&icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        answer.extend(header);
    } else {
        let own =
            addresses().find_map(|own| if let IpAddr::V6(own) = own { Some(own) } else { None })?;
        let quote = (number(packet, 4, 2)? + 40).min(packet.len()).min(MOST_IPV6 - 48);
        icmp.extend(&packet[..quote]);
        let header = header_ipv6(own, &packet[8..24], icmp.len());
        let pseudo = [&header[8..], &[0, 0], &header[4..6], &[0, 0, 0, 58], &icmp].concat();
        let sum = checksum(&pseudo);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        answer.extend(header);
    }
    answer.extend(icmp);
    Some(answer)
}

fn header_ipv6(own: Ipv6Addr, peer: &[u8], length: usize) -> Vec<u8> {
    let mut header = vec![0x6c, 0, 0, 0];
    header.extend((length as u16).to_be_bytes());
    header.extend([58, 64]);
    header.extend(own.octets());
    header.extend(peer);
    header
}

/// Where the TCP header of a frame begins, and what of an MTU is not for a segment.
fn segment(frame: &[u8]) -> Option<(usize, u32)> {
    let version = frame.get(14)? >> 4;
    match number(frame, 12, 2)? {
        0x0800 if version == 4 && *frame.get(23)? == 6 && number(frame, 20, 2)? & 0x1fff == 0 => {
            Some((14 + usize::from(frame[14] & 15) * 4, 40))
        }
        0x86dd if version == 6 && *frame.get(20)? == 6 => Some((54, 60)),
        _ => None,
    }
}

/// Source and destination of a finished frame.
pub(super) fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let ipv4 = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(frame.get(at..at + 4)?).ok()?));
    let ipv6 = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(frame.get(at..at + 16)?).ok()?));
    match number(frame, 12, 2)? {
        0x0800 => Some((ipv4(26)?, ipv4(30)?)),
        0x86dd => Some((ipv6(22)?, ipv6(38)?)),
        _ => None,
    }
}

/// Lowers the maximum segment size that a finished frame names, if it is a TCP segment with SYN, to
/// what the MTU leaves. None: it is left as it is.
pub(super) fn clamp(frame: &mut [u8], mtu: u32) -> Option<()> {
    let (tcp, headers) = segment(frame)?;
    let most = mtu.checked_sub(headers).filter(|most| *most > 0)? as usize;
    frame.get(tcp + 19)?;
    if frame[tcp + 13] & 2 == 0 {
        return None;
    }
    let end = tcp + usize::from(frame[tcp + 12] >> 4) * 4;
    let mut at = tcp + 20;
    while at < end {
        let option = frame.get(at..at + 4)?;
        let length = match option[0] {
            0 => return None,
            1 => 1,
            _ => usize::from(option[1]),
        };
        if length == 0 || at + length > end {
            return None;
        }
        if option[0] == 2 && length == 4 {
            let before = number(frame, at + 2, 2)?;
            if before > most {
                replace(frame, tcp, at + 2, most as u16);
            }
            return None;
        }
        at += length;
    }
    None
}

/// Replaces two bytes of a TCP segment, and with them its checksum (RFC 1624, equation 3).
fn replace(frame: &mut [u8], tcp: usize, at: usize, after: u16) {
    let before = u16::from_be_bytes([frame[at], frame[at + 1]]);
    let sum = u16::from_be_bytes([frame[tcp + 16], frame[tcp + 17]]);
    let is_odd = (at - tcp) % 2 == 1;
    let word = |value: u16| if is_odd { value.swap_bytes() } else { value };
    let [upper, lower] = [!sum, !word(before)].map(u16::to_be_bytes);
    let sum = checksum(&[upper, lower, word(after).to_be_bytes()].concat());
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    frame[at..at + 2].copy_from_slice(&after.to_be_bytes());
}
