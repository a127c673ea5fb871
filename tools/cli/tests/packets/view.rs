//! What is in a packet that came out: its fields, without trust in any of them.

use super::packet::{ICMP, ICMP6, IPV6_FRAGMENT, TCP, UDP, checksum, transport_sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A packet's fields.
#[derive(Clone, Debug)]
pub struct View {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub ttl: u8,
    pub tos: u8,
    pub protocol: u8,
    /// IPv4: identification; IPv6: the flow label's lower bits.
    pub id: u16,
    pub dont_fragment: bool,
    pub offset: usize,
    pub more: bool,
    /// The IP header without the fragment header.
    pub header: Vec<u8>,
    /// Behind it, as far as it goes by its length and is there.
    pub payload: Vec<u8>,
    /// The header's length says more than is there.
    pub cut: bool,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

impl View {
    /// Reads an IP packet; none if it is not even a header.
    pub fn of(bytes: &[u8]) -> Option<View> {
        match bytes.first()? >> 4 {
            4 => View::of_ipv4(bytes),
            6 => View::of_ipv6(bytes),
            _ => None,
        }
    }

    fn of_ipv4(bytes: &[u8]) -> Option<View> {
        let header = usize::from(bytes[0] & 15) * 4;
        if header < 20 || bytes.len() < header {
            return None;
        }
        let total = usize::from(word(bytes, 2));
        let address = |at: usize| {
            IpAddr::V4(Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]))
        };
        Some(View {
            source: address(12),
            destination: address(16),
            ttl: bytes[8],
            tos: bytes[1],
            protocol: bytes[9],
            id: word(bytes, 4),
            dont_fragment: bytes[6] & 0x40 != 0,
            offset: usize::from(word(bytes, 6) & 0x1fff) * 8,
            more: bytes[6] & 0x20 != 0,
            header: bytes[..header].to_vec(),
            payload: bytes[header..total.clamp(header, bytes.len())].to_vec(),
            cut: total > bytes.len(),
        })
    }

    fn of_ipv6(bytes: &[u8]) -> Option<View> {
        if bytes.len() < 40 {
            return None;
        }
        let total = 40 + usize::from(word(bytes, 4));
        let address = |at: usize| {
            let octets: [u8; 16] = bytes[at..at + 16].try_into().expect("16 bytes");
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let mut view = View {
            source: address(8),
            destination: address(24),
            ttl: bytes[7],
            tos: bytes[0] << 4 | bytes[1] >> 4,
            protocol: bytes[6],
            id: word(bytes, 2),
            dont_fragment: true,
            offset: 0,
            more: false,
            header: bytes[..40].to_vec(),
            payload: bytes[40..total.clamp(40, bytes.len())].to_vec(),
            cut: total > bytes.len(),
        };
        if view.protocol == IPV6_FRAGMENT && view.payload.len() >= 8 {
            view.protocol = view.payload[0];
            view.offset = usize::from(word(&view.payload, 2) & !7);
            view.more = view.payload[3] & 1 != 0;
            view.payload.drain(..8);
            view.dont_fragment = false;
        }
        Some(view)
    }

    pub fn is_fragment(&self) -> bool {
        self.offset > 0 || self.more
    }

    /// Source and destination port; an echo's identifier is the port of the side that asked.
    pub fn ports(&self) -> (Option<u16>, Option<u16>) {
        let at = |at: usize| {
            (self.offset == 0 && self.payload.len() >= at + 2).then(|| word(&self.payload, at))
        };
        match (self.protocol, self.payload.first()) {
            (TCP | UDP, _) => (at(0), at(2)),
            (ICMP, Some(8)) | (ICMP6, Some(128)) => (at(4), None),
            (ICMP, Some(0)) | (ICMP6, Some(129)) => (None, at(4)),
            _ => (None, None),
        }
    }

    /// The type, code and second word of an ICMP error, and what it quotes.
    pub fn error(&self) -> Option<(u8, u8, u32, &[u8])> {
        if self.offset > 0 || self.payload.len() < 8 {
            return None;
        }
        let kind = self.payload[0];
        let is_error = match self.protocol {
            ICMP => matches!(kind, 3 | 4 | 5 | 11 | 12),
            ICMP6 => kind < 128,
            _ => false,
        };
        let rest = u32::from_be_bytes(self.payload[4..8].try_into().expect("four bytes"));
        is_error.then(|| (kind, self.payload[1], rest, &self.payload[8..]))
    }

    pub fn header_sum_is_good(&self) -> bool {
        self.header.len() == 40 && self.header[0] >> 4 == 6 || checksum(&self.header, 0) == 0
    }

    /// Whether the transport's checksum is good; none: it has none.
    pub fn transport_sum_is_good(&self) -> Option<bool> {
        let has_none = match self.protocol {
            UDP => self.payload.len() < 8 || self.payload[6..8] == [0, 0],
            TCP => self.payload.len() < 20,
            ICMP | ICMP6 => self.payload.len() < 8,
            _ => true,
        };
        (!has_none).then(|| transport_sum(&self.header, self.protocol, &self.payload) == 0)
    }

    /// A whole packet of its fragments, if they are all there.
    pub fn whole(parts: &[View]) -> Option<View> {
        let mut parts = parts.to_vec();
        parts.sort_by_key(|part| part.offset);
        parts.dedup_by(|one, other| one.offset == other.offset && one.payload == other.payload);
        let mut whole = parts.first()?.clone();
        if whole.offset != 0 {
            return None;
        }
        for part in &parts[1..] {
            // What overlaps or leaves a gap is no packet.
            if part.offset != whole.payload.len() {
                return None;
            }
            whole.payload.extend(&part.payload);
            whole.more = part.more;
        }
        (!whole.more).then_some(whole)
    }
}
