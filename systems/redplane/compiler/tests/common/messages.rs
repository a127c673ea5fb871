//! Frames of the state protocol between a switch and a server, for the rigs.

use state_protocol::Message;
use std::net::Ipv4Addr;
use wire::KeyRing;

/// Ethernet, IPv4 and UDP around a message.
const OUTER_BYTES: usize = 42;

/// A message's datagram, tagged.
pub fn signed(ring: &KeyRing, message: &Message<'_>, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut datagram = Vec::new();
    message.append_to(&mut datagram).unwrap();
    assert!(ring.sign(&mut datagram, from, to));
    datagram
}

/// The frame in which a datagram comes in from a server.
pub fn arriving(datagram: &[u8], from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend(((datagram.len() + 28) as u16).to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    frame.extend(wire::PORT.to_be_bytes());
    frame.extend(wire::PORT.to_be_bytes());
    frame.extend(((datagram.len() + 8) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend_from_slice(datagram);
    frame
}

/// Whom a frame is from, and to whom.
pub fn addresses(frame: &[u8]) -> (Ipv4Addr, Ipv4Addr) {
    let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).unwrap());
    (address(26), address(30))
}

/// The datagram of a frame that the switch sent, found genuine.
pub fn genuine(ring: &KeyRing, frame: &[u8]) -> Vec<u8> {
    let datagram = frame[OUTER_BYTES..].to_vec();
    let (from, to) = addresses(frame);
    assert_eq!(ring.verify(&datagram, from, to), Ok(()), "{} bytes", datagram.len());
    datagram
}
