//! Frames of a client, as tests put them into a switch.

use std::net::Ipv4Addr;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

/// A client's message to a switch, with Ethernet, IPv4 and UDP in front.
pub fn frame(to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let (bytes, mut out) = (message.len() as u16, vec![0; 12]);
    out.extend([8, 0, 0x45, 0]);
    out.extend((28 + bytes).to_be_bytes());
    out.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    out.extend(CLIENT.octets());
    out.extend(to.octets());
    out.extend([40_000_u16.to_be_bytes(), 5410_u16.to_be_bytes()].concat());
    out.extend([(8 + bytes).to_be_bytes(), [0, 0]].concat());
    out.extend(message);
    out
}
