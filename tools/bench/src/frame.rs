//! Frames of 64 bytes, with checksums over the whole packet: what goes
//! in, and what must come out.

use etherparse::{IpHeaders, Ipv4Header, PacketBuilder, TcpHeader};
use std::net::Ipv4Addr;

/// Bytes of a measured frame.
pub const FRAME_BYTES: usize = 64;
/// Of Ethernet and IPv4.
const HEADER_BYTES: usize = 34;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// All that differs between measured frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Ethernet destination.
    pub destination_mac: Mac,
    /// Ethernet source.
    pub source_mac: Mac,
    /// IPv4 source and port.
    pub source: (Ipv4Addr, u16),
    /// IPv4 destination and port.
    pub destination: (Ipv4Addr, u16),
    /// [`TCP`] or [`UDP`].
    pub protocol: u8,
    /// Hops left.
    pub ttl: u8,
}

impl Packet {
    /// The frame; the payload is zero.
    pub fn frame(&self) -> [u8; FRAME_BYTES] {
        let ip = Ipv4Header {
            dont_fragment: true,
            time_to_live: self.ttl,
            source: self.source.0.octets(),
            destination: self.destination.0.octets(),
            ..Ipv4Header::default()
        };
        let builder = PacketBuilder::ethernet2(self.source_mac, self.destination_mac)
            .ip(IpHeaders::Ipv4(ip, Default::default()));
        let (from, to) = (self.source.1, self.destination.1);
        let mut frame = [0u8; FRAME_BYTES];
        let room = &mut frame.as_mut_slice();
        let written = if self.protocol == TCP {
            let mut tcp = TcpHeader::new(from, to, 0, u16::MAX);
            tcp.ack = true;
            builder.tcp_header(tcp).write(room, &[0; FRAME_BYTES - HEADER_BYTES - TCP_BYTES])
        } else {
            builder.udp(from, to).write(room, &[0; FRAME_BYTES - HEADER_BYTES - UDP_BYTES])
        };
        written.expect("the frame has room for exactly this");
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetHeaders, PacketHeaders, TransportHeader};

    #[test]
    fn checksums_verify() {
        for protocol in [TCP, UDP] {
            let packet = Packet {
                destination_mac: [1; 6],
                source_mac: [2; 6],
                source: (Ipv4Addr::new(10, 0, 0, 5), 40000),
                destination: (Ipv4Addr::new(198, 51, 100, 80), 80),
                protocol,
                ttl: 64,
            };
            let frame = packet.frame();
            let packet = PacketHeaders::from_ethernet_slice(&frame).unwrap();
            let Some(NetHeaders::Ipv4(ip, _)) = packet.net else { panic!("{packet:?}") };
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(usize::from(ip.total_len), FRAME_BYTES - 14);
            let payload = packet.payload.slice();
            let (said, right) = match packet.transport {
                Some(TransportHeader::Tcp(tcp)) => {
                    (tcp.checksum, tcp.calc_checksum_ipv4(&ip, payload).unwrap())
                }
                Some(TransportHeader::Udp(udp)) => {
                    (udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap())
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(said, right, "protocol {protocol}");
        }
    }
}
