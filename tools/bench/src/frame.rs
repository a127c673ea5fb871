//! Frames of 64 bytes, built from scratch with checksums summed over the whole packet: what goes
//! in, and what must come out.

use std::net::Ipv4Addr;

/// Bytes of a measured frame.
pub const FRAME_BYTES: usize = 64;
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const ETHERTYPE_IPV4: u16 = 0x0800;
const DONT_FRAGMENT: u16 = 0x4000;
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

fn checksum(bytes: &[u8], start: u32) -> u16 {
    let mut sum = bytes.chunks(2).fold(start, |sum, pair| {
        sum + u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))
    });
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl Packet {
    /// The frame; the payload is zero.
    pub fn frame(&self) -> [u8; FRAME_BYTES] {
        let mut frame = [0u8; FRAME_BYTES];
        frame[0..6].copy_from_slice(&self.destination_mac);
        frame[6..12].copy_from_slice(&self.source_mac);
        frame[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        let (ip, transport) = frame[ETHERNET_BYTES..].split_at_mut(IPV4_BYTES);
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((FRAME_BYTES - ETHERNET_BYTES) as u16).to_be_bytes());
        ip[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
        ip[8] = self.ttl;
        ip[9] = self.protocol;
        ip[12..16].copy_from_slice(&self.source.0.octets());
        ip[16..20].copy_from_slice(&self.destination.0.octets());
        let value = checksum(ip, 0);
        ip[10..12].copy_from_slice(&value.to_be_bytes());
        self.transport(transport, &ip[12..20]);
        frame
    }

    fn transport(&self, bytes: &mut [u8], addresses: &[u8]) {
        let length = bytes.len() as u16;
        bytes[0..2].copy_from_slice(&self.source.1.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination.1.to_be_bytes());
        let at = if self.protocol == TCP {
            bytes[12..14].copy_from_slice(&0x5010u16.to_be_bytes()); // 20 bytes of header, ACK
            bytes[14..16].copy_from_slice(&0xffffu16.to_be_bytes());
            16
        } else {
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
            6
        };
        let pseudo_header =
            u32::from(!checksum(addresses, 0)) + u32::from(self.protocol) + u32::from(length);
        let value = checksum(bytes, pseudo_header);
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(checksum(&frame[14..34], 0), 0, "IPv4 header");
            let pseudo_header = u32::from(!checksum(&frame[26..34], 0)) + u32::from(protocol) + 30;
            assert_eq!(checksum(&frame[34..], pseudo_header), 0, "protocol {protocol}");
        }
    }
}
