//! What is around a message between a switch that runs in test mode and the store: Ethernet, IPv4
//! without options, UDP.

use std::net::{Ipv4Addr, SocketAddrV4};

/// What the runtime calls "to the store" in test mode.
pub const STORE_PORT: u32 = 0xffff;
/// Before the message.
const OUTER_BYTES: usize = 42;

/// The message (UDP payload) in a frame that a switch sent, and to whom.
pub fn message_of(frame: &[u8]) -> Option<(SocketAddrV4, Vec<u8>)> {
    let to = Ipv4Addr::from(<[u8; 4]>::try_from(frame.get(30..34)?).ok()?);
    let port = u16::from_be_bytes(frame.get(36..38)?.try_into().ok()?);
    Some((SocketAddrV4::new(to, port), frame.get(OUTER_BYTES..)?.to_vec()))
}

/// The frame in which a message of the store comes to a switch.
pub fn frame_of(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let total = (payload.len() + 28) as u16;
    frame.extend_from_slice(&[0x45, 0]);
    frame.extend_from_slice(&total.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend_from_slice(&from.octets());
    frame.extend_from_slice(&to.octets());
    frame.extend_from_slice(&wire::PORT.to_be_bytes());
    frame.extend_from_slice(&wire::PORT.to_be_bytes());
    frame.extend_from_slice(&(total - 20).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    frame
}
