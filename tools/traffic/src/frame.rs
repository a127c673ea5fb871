//! A packet's bytes: Ethernet, IPv4, TCP or UDP, a payload of zeros, right checksums.

use etherparse::{IpHeaders, Ipv4Header, PacketBuilder, TcpHeader};
use std::net::Ipv4Addr;

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// TCP's flags.
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const ACK: u8 = 0x10;

/// What a packet's headers say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub destination_mac: [u8; 6],
    pub source_mac: [u8; 6],
    pub source: (Ipv4Addr, u16),
    pub destination: (Ipv4Addr, u16),
    pub protocol: u8,
    pub identification: u16,
    /// TCP only.
    pub sequence: u32,
    /// TCP only.
    pub flags: u8,
}

/// The smallest frame: TCP's are bare acknowledgements, and padded.
pub(crate) const SMALLEST_FRAME_BYTES: usize = 64;

/// How many bytes of a frame are payload.
pub(crate) fn payload_bytes(protocol: u8, frame_bytes: usize) -> usize {
    match protocol {
        TCP if frame_bytes <= SMALLEST_FRAME_BYTES => 0,
        TCP => frame_bytes - ETHERNET_BYTES - IPV4_BYTES - TCP_BYTES,
        _ => frame_bytes - ETHERNET_BYTES - IPV4_BYTES - UDP_BYTES,
    }
}

/// Writes the frame of `frame_bytes` (at least [`SMALLEST_FRAME_BYTES`]) to `frame`.
pub(crate) fn write(headers: &Headers, frame_bytes: usize, frame: &mut Vec<u8>) {
    let ip = Ipv4Header {
        identification: headers.identification,
        dont_fragment: true,
        time_to_live: 64,
        source: headers.source.0.octets(),
        destination: headers.destination.0.octets(),
        ..Ipv4Header::default()
    };
    let builder = PacketBuilder::ethernet2(headers.source_mac, headers.destination_mac)
        .ip(IpHeaders::Ipv4(ip, Default::default()));
    let payload = vec![0; payload_bytes(headers.protocol, frame_bytes)];
    let (from, to) = (headers.source.1, headers.destination.1);
    frame.clear();
    let written = if headers.protocol == TCP {
        let mut tcp = TcpHeader::new(from, to, headers.sequence, u16::MAX);
        tcp.fin = headers.flags & FIN != 0;
        tcp.syn = headers.flags & SYN != 0;
        tcp.ack = headers.flags & ACK != 0;
        tcp.acknowledgment_number = u32::from(tcp.ack);
        builder.tcp_header(tcp).write(frame, &payload)
    } else {
        builder.udp(from, to).write(frame, &payload)
    };
    written.expect("a payload that a frame has room for, into memory");
    frame.resize(frame_bytes, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetHeaders, PacketHeaders, TransportHeader};

    #[test]
    fn checksums_verify_over_the_whole_packet() {
        for (protocol, frame_bytes) in [(TCP, 64), (UDP, 64), (TCP, 1500), (UDP, 1499)] {
            let headers = Headers {
                destination_mac: [1; 6],
                source_mac: [2; 6],
                source: (Ipv4Addr::new(10, 1, 2, 3), 4_444),
                destination: (Ipv4Addr::new(198, 51, 100, 7), 443),
                protocol,
                identification: 9,
                sequence: 0xdead_beef,
                flags: ACK,
            };
            let mut frame = vec![7; 3];
            write(&headers, frame_bytes, &mut frame);
            assert_eq!(frame.len(), frame_bytes);
            let packet = PacketHeaders::from_ethernet_slice(&frame).unwrap();
            let Some(NetHeaders::Ipv4(ip, _)) = packet.net else { panic!("{packet:?}") };
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            let transport = if protocol == TCP { 20 } else { 8 };
            let payload = &packet.payload.slice()[..usize::from(ip.total_len) - 20 - transport];
            assert_eq!(payload.len(), payload_bytes(protocol, frame_bytes));
            match packet.transport {
                Some(TransportHeader::Tcp(tcp)) => {
                    assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(&ip, payload).unwrap());
                    assert_eq!((tcp.ack, tcp.sequence_number), (true, 0xdead_beef));
                }
                Some(TransportHeader::Udp(udp)) => {
                    assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap());
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
