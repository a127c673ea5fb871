//! Packets for the applications: Ethernet (addresses are filled in when they are sent), IPv4, UDP,
//! and what each application carries.

use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv4Header, UdpHeader};
use std::net::Ipv4Addr;

/// Bytes before a UDP payload.
pub const UDP_PAYLOAD: usize = 42;
const IPV4_BYTES: u16 = 20;
const UDP_BYTES: usize = 8;
/// Port of requests to the key-value store.
pub const KV_PORT: u16 = 5_409;
/// GTP-U (TS 29.281).
const GTP_PORT: u16 = 2_152;
/// The gateway's signalling.
const SIGNALLING_PORT: u16 = 2_123;

/// An end of a conversation.
pub type End = (Ipv4Addr, u16);

/// IPv4 with UDP, without Ethernet; UDP's checksum is left out (RFC 768).
fn datagram(from: End, to: End, payload: &[u8]) -> Vec<u8> {
    let length = (UDP_BYTES + payload.len()) as u16;
    let mut ip = Ipv4Header {
        total_len: IPV4_BYTES + length,
        dont_fragment: true,
        time_to_live: 64,
        protocol: IpNumber::UDP,
        source: from.0.octets(),
        destination: to.0.octets(),
        ..Ipv4Header::default()
    };
    ip.header_checksum = ip.calc_header_checksum();
    let udp = UdpHeader { source_port: from.1, destination_port: to.1, length, checksum: 0 };
    [&ip.to_bytes()[..], &udp.to_bytes(), payload].concat()
}

fn framed(packet: &[u8]) -> Vec<u8> {
    let ethernet = Ethernet2Header { ether_type: EtherType::IPV4, ..Default::default() };
    [&ethernet.to_bytes(), packet].concat()
}

/// A UDP packet of this many bytes in all, at least 64.
pub fn udp(from: End, to: End, bytes: usize) -> Vec<u8> {
    framed(&datagram(from, to, &vec![0; bytes.max(64) - UDP_PAYLOAD]))
}

/// A user's UDP packet in its tunnel to the gateway.
pub fn uplink(
    station: Ipv4Addr,
    gateway: Ipv4Addr,
    teid: u32,
    from: End,
    to: End,
    bytes: usize,
) -> Vec<u8> {
    let inner = datagram(from, to, &vec![0; bytes.max(64) - UDP_PAYLOAD]);
    // Version 1, GTP, no options; a G-PDU.
    let mut gtp = vec![0x30, 255];
    gtp.extend_from_slice(&(inner.len() as u16).to_be_bytes());
    gtp.extend_from_slice(&teid.to_be_bytes());
    gtp.extend_from_slice(&inner);
    framed(&datagram((station, GTP_PORT), (gateway, GTP_PORT), &gtp))
}

/// Where a user's UDP payload is in [`uplink`].
pub const UPLINK_PAYLOAD: usize = UDP_PAYLOAD + 8 + 28;

/// What a signalling packet asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A new session.
    Create = 32,
    /// The session's base station changes.
    Modify = 34,
}

/// A signalling packet to the gateway about a user, whose tunnels both have the number `teid`.
pub fn signalling(
    manager: Ipv4Addr,
    gateway: Ipv4Addr,
    signal: Signal,
    sequence: u32,
    user: Ipv4Addr,
    teid: u32,
    station: Ipv4Addr,
) -> Vec<u8> {
    let mut body = vec![0x48, signal as u8, 0, 28];
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&sequence.to_be_bytes()[1..]);
    body.push(0);
    body.extend_from_slice(&user.octets());
    body.extend_from_slice(&teid.to_be_bytes());
    body.extend_from_slice(&teid.to_be_bytes());
    body.extend_from_slice(&station.octets());
    body.extend_from_slice(&[0; 4]);
    framed(&datagram((manager, SIGNALLING_PORT), (gateway, SIGNALLING_PORT), &body))
}

/// A request to the key-value store.
pub fn key_value(from: End, service: Ipv4Addr, update: bool, key: u64, value: u64) -> Vec<u8> {
    let mut body = vec![0x4b, 0x56, if update { 2 } else { 1 }, 0];
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&u128::from(key).to_be_bytes());
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(&u128::from(value).to_be_bytes());
    body.extend_from_slice(&[0; 16]);
    framed(&datagram(from, (service, KV_PORT), &body))
}

/// Whether a frame is a request that changes a value.
pub fn is_key_value_update(frame: &[u8]) -> bool {
    frame.get(UDP_PAYLOAD + 2) == Some(&2)
}

/// Whether a frame is signalling.
pub fn is_signalling(frame: &[u8]) -> bool {
    frame.get(36..38) == Some(&SIGNALLING_PORT.to_be_bytes()[..])
}

/// The same packet with a VLAN tag.
pub fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    let mut tagged = addresses.to_vec();
    tagged.extend_from_slice(&[0x81, 0x00]);
    tagged.extend_from_slice(&(vlan & 0xfff).to_be_bytes());
    tagged.extend_from_slice(rest);
    tagged
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: End = (Ipv4Addr::new(10, 1, 0, 10), 1_000);
    const B: End = (Ipv4Addr::new(198, 51, 100, 10), 7);

    #[test]
    fn lengths_and_sums_are_right() {
        let tunnelled = uplink(A.0, B.0, 9, A, B, 64);
        for frame in [udp(A, B, 64), tunnelled.clone(), key_value(A, B.0, true, 1, 2)] {
            let (ip, _) = Ipv4Header::from_slice(&frame[14..]).unwrap();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), frame.len() - 14);
        }
        assert_eq!(udp(A, B, 64).len(), 64);
        assert_eq!(tunnelled.len(), UPLINK_PAYLOAD + 22);
        assert_eq!(
            key_value(A, B.0, true, 1, 2).len(),
            UDP_PAYLOAD + 64,
            "key_value.p4's KV_BYTES"
        );
        assert!(
            is_signalling(&signalling(A.0, B.0, Signal::Create, 1, A.0, 3, A.0))
                && !is_signalling(&udp(A, B, 64))
        );
        assert_eq!(tagged(&udp(A, B, 64), 5)[12..18], [0x81, 0, 0, 5, 8, 0]);
        assert_eq!(
            signalling(A.0, B.0, Signal::Create, 1, A.0, 3, A.0).len(),
            UDP_PAYLOAD + 32,
            "SIGNALLING_BYTES"
        );
    }
}
