//! Frames between machines: Ethernet, IPv4, UDP, a message; and whose addresses are whose.

use crate::scenario::Machine;
use netchain_protocol::PORT;
use std::net::Ipv4Addr;

/// Where the message begins in a frame.
pub(crate) const MESSAGE_AT: usize = 42;
/// The UDP port of every client.
const CLIENT_PORT: u16 = 4000;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;

/// A switch's NetChain address.
pub(crate) fn switch_address(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, at as u8 + 1)
}

/// A machine's address.
pub(crate) fn address_of(machine: Machine) -> Ipv4Addr {
    match machine {
        Machine::Switch(at) => switch_address(at),
        Machine::Client(at) => Ipv4Addr::new(10, 1, 0, at as u8 + 1),
        Machine::Controller => Ipv4Addr::new(10, 2, 0, 1),
    }
}

/// Whose address it is.
pub(crate) fn machine_at(address: Ipv4Addr) -> Machine {
    match address.octets() {
        [10, 9, 0, at] => Machine::Switch(usize::from(at).saturating_sub(1)),
        [10, 1, 0, at] => Machine::Client(usize::from(at).saturating_sub(1)),
        _ => Machine::Controller,
    }
}

fn port_of(address: Ipv4Addr) -> u16 {
    match machine_at(address) {
        Machine::Switch(_) => PORT,
        // (A tombstone that a member without a next one collects: the program drops it.)
        _ if address.is_unspecified() => PORT,
        _ => CLIENT_PORT,
    }
}

/// A frame with a message.
pub(crate) fn frame(from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let udp = UDP_BYTES + payload.len();
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend(((IPV4_BYTES + udp) as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(from.octets());
    frame.extend(to.octets());
    for number in [port_of(from), port_of(to), udp as u16, 0] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

fn address_at(frame: &[u8], at: usize) -> Ipv4Addr {
    let bytes = frame.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
    bytes.map_or(Ipv4Addr::UNSPECIFIED, |bytes| Ipv4Addr::from(*bytes))
}

/// Where a frame is from, by its header.
pub(crate) fn source(frame: &[u8]) -> Ipv4Addr {
    address_at(frame, 26)
}

/// Where it goes.
pub(crate) fn destination(frame: &[u8]) -> Ipv4Addr {
    address_at(frame, 30)
}

/// The UDP payload.
pub(crate) fn payload(frame: &[u8]) -> &[u8] {
    frame.get(MESSAGE_AT..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program reads no message of another port: it would take its group and number for 0.
    #[test]
    fn what_a_switch_generates_for_nobody_is_a_message() {
        let port = |to| frame(switch_address(0), to, &[])[36..38].to_vec();
        assert_eq!(port(Ipv4Addr::UNSPECIFIED), PORT.to_be_bytes());
        assert_eq!(port(switch_address(1)), PORT.to_be_bytes());
        assert_eq!(port(address_of(Machine::Client(0))), CLIENT_PORT.to_be_bytes());
    }
}
