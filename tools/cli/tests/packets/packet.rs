//! Packets as the suite sends them: good ones built from a description, and the bytes of bad ones
//! changed afterwards.

use etherparse::{
    IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, Ipv6FlowLabel, Ipv6Header, TcpHeader,
    UdpHeader,
};
use std::net::{IpAddr, Ipv4Addr};

pub const TCP_FIN: u8 = 1;
pub const TCP_SYN: u8 = 2;
pub const TCP_RST: u8 = 4;
pub const TCP_ACK: u8 = 16;

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const IPV6_FRAGMENT: u8 = 44;
pub const ICMP6: u8 = 58;

/// What a packet carries.
#[derive(Clone, Debug)]
pub enum Body {
    Udp,
    Tcp {
        flags: u8,
        /// Whole words.
        options: Vec<u8>,
    },
    /// Its identifier is the port of the side that asks.
    Echo {
        request: bool,
    },
    /// An ICMP or ICMPv6 error.
    Error {
        kind: u8,
        code: u8,
        rest: u32,
        quoted: Vec<u8>,
    },
    /// A protocol that nobody here translates.
    Other(u8),
}

/// A packet, from its IP header on.
#[derive(Clone, Debug)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
    pub body: Body,
    /// Bytes behind the transport's header.
    pub payload: usize,
    pub ttl: u8,
    pub dont_fragment: bool,
    pub tos: u8,
    /// IPv4: identification; IPv6: flow label. Unique among the packets of a run, by which what
    /// comes out is known again.
    pub id: u16,
    /// Whole words.
    pub ip_options: Vec<u8>,
    /// UDP without a checksum.
    pub no_checksum: bool,
}

impl Packet {
    pub fn new(from: (IpAddr, u16), to: (IpAddr, u16), body: Body) -> Packet {
        Packet {
            source: from.0,
            destination: to.0,
            source_port: from.1,
            destination_port: to.1,
            body,
            payload: 32,
            ttl: 64,
            dont_fragment: false,
            tos: 0,
            id: 0,
            ip_options: vec![],
            no_checksum: false,
        }
    }

    /// With so much payload that the whole packet has `bytes` bytes.
    pub fn sized(mut self, bytes: usize) -> Packet {
        self.payload = 0;
        self.payload = bytes - self.bytes().len();
        self
    }

    fn protocol(&self) -> u8 {
        match (&self.body, self.source) {
            (Body::Udp, _) => UDP,
            (Body::Tcp { .. }, _) => TCP,
            (Body::Other(protocol), _) => *protocol,
            (_, IpAddr::V4(_)) => ICMP,
            (_, IpAddr::V6(_)) => ICMP6,
        }
    }

    /// The transport's header and payload, without checksum.
    fn transport(&self) -> Vec<u8> {
        let payload: Vec<u8> =
            (0..self.payload).map(|at| (at as u8).wrapping_mul(7) ^ self.id as u8).collect();
        let mut bytes = match &self.body {
            Body::Udp => UdpHeader {
                source_port: self.source_port,
                destination_port: self.destination_port,
                length: (8 + payload.len()) as u16,
                checksum: 0,
            }
            .to_bytes()
            .to_vec(),
            Body::Tcp { flags, options } => {
                let mut header =
                    TcpHeader::new(self.source_port, self.destination_port, 1000, 8192);
                header.acknowledgment_number = if flags & TCP_ACK != 0 { 1 } else { 0 };
                header.set_options_raw(options).expect("options of whole words");
                let mut bytes = header.to_bytes().to_vec();
                bytes[13] = *flags;
                bytes
            }
            Body::Echo { request } => {
                let (kind, identifier) = match (self.source, request) {
                    (IpAddr::V4(_), true) => (8, self.source_port),
                    (IpAddr::V4(_), false) => (0, self.destination_port),
                    (IpAddr::V6(_), true) => (128, self.source_port),
                    (IpAddr::V6(_), false) => (129, self.destination_port),
                };
                let mut bytes = vec![kind, 0, 0, 0];
                bytes.extend(identifier.to_be_bytes());
                bytes.extend(1_u16.to_be_bytes());
                bytes
            }
            Body::Error { kind, code, rest, quoted } => {
                let mut bytes = vec![*kind, *code, 0, 0];
                bytes.extend(rest.to_be_bytes());
                bytes.extend(quoted);
                return bytes;
            }
            Body::Other(_) => vec![],
        };
        bytes.extend(payload);
        bytes
    }

    /// The packet, good in all respects.
    pub fn bytes(&self) -> Vec<u8> {
        let mut transport = self.transport();
        let mut bytes = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = Ipv4Header {
                    total_len: (20 + self.ip_options.len() + transport.len()) as u16,
                    identification: self.id,
                    dont_fragment: self.dont_fragment,
                    time_to_live: self.ttl,
                    protocol: IpNumber(self.protocol()),
                    source: source.octets(),
                    destination: destination.octets(),
                    options: Ipv4Options::try_from(self.ip_options.as_slice())
                        .expect("options of whole words"),
                    ..Ipv4Header::default()
                };
                header.fragment_offset = IpFragOffset::ZERO;
                let mut bytes = header.to_bytes().to_vec();
                bytes[1] = self.tos;
                bytes
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ipv6Header {
                flow_label: Ipv6FlowLabel::try_from(u32::from(self.id)).expect("16 bits"),
                payload_length: transport.len() as u16,
                next_header: IpNumber(self.protocol()),
                hop_limit: self.ttl,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            }
            .to_bytes()
            .to_vec(),
            other => panic!("two families: {other:?}"),
        };
        if let Some(at) = checksum_at(self.protocol()) {
            let sum = transport_sum(&bytes, self.protocol(), &transport);
            let sum = if self.protocol() == UDP && sum == 0 { 0xffff } else { sum };
            let sum = if self.no_checksum { 0 } else { sum };
            transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.extend(transport);
        set_header_checksum(&mut bytes);
        bytes
    }
}

/// Where in a transport's header its checksum is.
pub fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        ICMP | ICMP6 => Some(2),
        TCP => Some(16),
        UDP => Some(6),
        _ => None,
    }
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8], begin: u32) -> u16 {
    let mut sum = begin;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// The checksum of a transport's bytes under an IP header. Over bytes with a good checksum in them
/// it is 0.
pub fn transport_sum(ip_header: &[u8], protocol: u8, transport: &[u8]) -> u16 {
    if protocol == ICMP {
        return checksum(transport, 0);
    }
    let addresses = if ip_header[0] >> 4 == 4 { &ip_header[12..20] } else { &ip_header[8..40] };
    checksum(
        transport,
        u32::from(!checksum(addresses, u32::from(protocol) + transport.len() as u32)),
    )
}

/// Makes an IPv4 header's checksum good again after a change; leaves IPv6 alone.
pub fn set_header_checksum(bytes: &mut [u8]) {
    if bytes[0] >> 4 != 4 {
        return;
    }
    let header = (usize::from(bytes[0] & 15) * 4).min(bytes.len());
    bytes[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum(&bytes[..header], 0);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Cuts a packet into fragments. Each part is the bytes of the payload from..to, where `from` is a
/// multiple of 8.
pub fn fragments(packet: &[u8], parts: &[(usize, usize)], id: u16) -> Vec<Vec<u8>> {
    if packet[0] >> 4 == 6 {
        return fragments_ipv6(packet, parts, id);
    }
    let header = usize::from(packet[0] & 15) * 4;
    let payload = &packet[header..];
    let part = |&(from, to): &(usize, usize)| {
        let to = to.min(payload.len());
        let mut bytes = packet[..header].to_vec();
        let more = if to < payload.len() { 0x2000 } else { 0 };
        bytes[2..4].copy_from_slice(&((header + to - from) as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&(more | (from / 8) as u16).to_be_bytes());
        bytes.extend(&payload[from..to]);
        set_header_checksum(&mut bytes);
        bytes
    };
    parts.iter().map(part).collect()
}

fn fragments_ipv6(packet: &[u8], parts: &[(usize, usize)], id: u16) -> Vec<Vec<u8>> {
    let payload = &packet[40..];
    let part = |&(from, to): &(usize, usize)| {
        let to = to.min(payload.len());
        let mut bytes = packet[..40].to_vec();
        bytes[4..6].copy_from_slice(&((8 + to - from) as u16).to_be_bytes());
        bytes[6] = IPV6_FRAGMENT;
        let more = u16::from(to < payload.len());
        bytes.extend([packet[6], 0]);
        bytes.extend((from as u16 | more).to_be_bytes());
        bytes.extend(u32::from(id).to_be_bytes());
        bytes.extend(&payload[from..to]);
        bytes
    };
    parts.iter().map(part).collect()
}

/// An IPv4 packet in a GTP-U tunnel (TS 29.281), with the identification of the packet inside.
pub fn in_tunnel(inner: &[u8], from: Ipv4Addr, to: Ipv4Addr, teid: u32) -> Vec<u8> {
    let mut payload = vec![0x30, 255];
    payload.extend((inner.len() as u16).to_be_bytes());
    payload.extend(teid.to_be_bytes());
    payload.extend(inner);
    let mut bytes = Ipv4Header {
        total_len: (28 + payload.len()) as u16,
        identification: u16::from_be_bytes([inner[4], inner[5]]),
        time_to_live: 64,
        protocol: IpNumber::UDP,
        source: from.octets(),
        destination: to.octets(),
        ..Ipv4Header::default()
    }
    .to_bytes()
    .to_vec();
    bytes.extend(
        UdpHeader {
            source_port: 2152,
            destination_port: 2152,
            length: (8 + payload.len()) as u16,
            checksum: 0,
        }
        .to_bytes(),
    );
    bytes.extend(payload);
    set_header_checksum(&mut bytes);
    bytes
}

/// What is in a packet of a GTP-U tunnel, if it is one, and whole.
pub fn out_of_tunnel(packet: &[u8]) -> Option<&[u8]> {
    let udp = packet.first() == Some(&0x45) && packet.len() > 44 && packet[9] == UDP;
    let whole = udp && packet[6] & 0x3f == 0 && packet[7] == 0;
    if !whole || packet[22..24] != 2152_u16.to_be_bytes() || packet[29] != 255 {
        return None;
    }
    packet.get(if packet[28] & 7 == 0 { 36 } else { 40 }..)
}
