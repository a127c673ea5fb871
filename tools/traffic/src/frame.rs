//! A packet's bytes: Ethernet, IPv4, TCP or UDP, a payload of zeros, right checksums.

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

/// One's complement sum of big-endian words (RFC 1071).
fn sum(bytes: &[u8], start: u32) -> u32 {
    bytes.chunks(2).fold(start, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
    })
}

fn checksum(mut sum: u32) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Writes the frame of `frame_bytes` (at least [`SMALLEST_FRAME_BYTES`]) to `frame`.
pub(crate) fn write(headers: &Headers, frame_bytes: usize, frame: &mut Vec<u8>) {
    frame.clear();
    frame.resize(frame_bytes, 0);
    frame[0..6].copy_from_slice(&headers.destination_mac);
    frame[6..12].copy_from_slice(&headers.source_mac);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut frame[ETHERNET_BYTES..];
    ip[0] = 0x45;
    let transport_bytes = if headers.protocol == TCP { TCP_BYTES } else { UDP_BYTES };
    let length = (transport_bytes + payload_bytes(headers.protocol, frame_bytes)) as u16;
    ip[2..4].copy_from_slice(&(IPV4_BYTES as u16 + length).to_be_bytes());
    ip[4..6].copy_from_slice(&headers.identification.to_be_bytes());
    ip[6] = 0x40; // don't fragment
    ip[8] = 64;
    ip[9] = headers.protocol;
    ip[12..16].copy_from_slice(&headers.source.0.octets());
    ip[16..20].copy_from_slice(&headers.destination.0.octets());
    let value = checksum(sum(&ip[..IPV4_BYTES], 0));
    ip[10..12].copy_from_slice(&value);
    let pseudo_header = sum(&ip[12..20], u32::from(headers.protocol) + u32::from(length));
    let transport = &mut ip[IPV4_BYTES..];
    transport[0..2].copy_from_slice(&headers.source.1.to_be_bytes());
    transport[2..4].copy_from_slice(&headers.destination.1.to_be_bytes());
    // The payload is zero and adds nothing to the sum.
    if headers.protocol == TCP {
        transport[4..8].copy_from_slice(&headers.sequence.to_be_bytes());
        transport[8..12].copy_from_slice(&u32::from(headers.flags & ACK != 0).to_be_bytes());
        transport[12] = 0x50;
        transport[13] = headers.flags;
        transport[14..16].copy_from_slice(&[0xff, 0xff]);
        let value = checksum(sum(&transport[..TCP_BYTES], pseudo_header));
        transport[16..18].copy_from_slice(&value);
    } else {
        transport[4..6].copy_from_slice(&length.to_be_bytes());
        let value = checksum(sum(&transport[..UDP_BYTES], pseudo_header));
        // RFC 768: zero would mean that there is none.
        transport[6..8].copy_from_slice(if value == [0, 0] { &[0xff, 0xff] } else { &value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(checksum(sum(&frame[14..34], 0)), [0, 0], "IPv4 header");
            let length = u32::from(u16::from_be_bytes([frame[16], frame[17]])) - 20;
            assert_eq!(
                length,
                if frame_bytes == 64 && protocol == TCP { 20 } else { frame_bytes as u32 - 34 }
            );
            let pseudo_header = sum(&frame[26..34], u32::from(protocol) + length);
            assert_eq!(checksum(sum(&frame[34..], pseudo_header)), [0, 0], "protocol {protocol}");
        }
    }
}
