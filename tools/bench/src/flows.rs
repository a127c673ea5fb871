//! The conversations: addresses, ports, and the binding of each.

use crate::frame::{Mac, Packet};
use std::net::Ipv4Addr;

/// The prefix of the inside hosts, and its length.
pub const INSIDE: (Ipv4Addr, u32) = (Ipv4Addr::new(10, 0, 0, 0), 8);
/// The prefix of the external addresses, and its length.
pub const EXTERNAL: (Ipv4Addr, u32) = (Ipv4Addr::new(203, 0, 113, 0), 28);
/// External addresses in use: all of [`EXTERNAL`].
pub const EXTERNAL_ADDRESSES: u32 = 16;
/// Lowest external port.
pub const PORT_LOW: u16 = 1024;
/// The inside host of the first flows.
pub const FIRST_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 0);
/// Everybody talks to this one.
pub const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 80);
/// At this port.
pub const REMOTE_PORT: u16 = 7;
/// Conversations of one inside host, at ports from [`FIRST_PORT`].
const FLOWS_OF_A_HOST: u32 = 16;
/// See [`FLOWS_OF_A_HOST`]; tools/bench/setups/traffic.c counts the same way.
const FIRST_PORT: u16 = 20_000;
const TTL: u8 = 64;

/// One conversation with its binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Inside address and port.
    pub inside: (Ipv4Addr, u16),
    /// What they become.
    pub external: (Ipv4Addr, u16),
    /// The other side.
    pub remote: (Ipv4Addr, u16),
    /// IP protocol.
    pub protocol: u8,
}

/// The Ethernet addresses around the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Macs {
    /// The translator's inside port.
    pub inside_port: Mac,
    /// The translator's outside port.
    pub outside_port: Mac,
    /// The next hop inside.
    pub inside_hop: Mac,
    /// The next hop outside.
    pub outside_hop: Mac,
}

/// Flow number `number`. All hosts with one external address share its ports, and no two flows an
/// address and port.
pub fn flow(number: u32, protocol: u8) -> Flow {
    let host = number / FLOWS_OF_A_HOST;
    let port = (number % FLOWS_OF_A_HOST) as u16;
    let external = u32::from(EXTERNAL.0) + host % EXTERNAL_ADDRESSES;
    let external_port =
        u32::from(PORT_LOW) + host / EXTERNAL_ADDRESSES * FLOWS_OF_A_HOST + u32::from(port);
    Flow {
        inside: (Ipv4Addr::from(u32::from(FIRST_INSIDE) + host), FIRST_PORT + port),
        // 65,536 flows need 4,096 ports of each address.
        external: (Ipv4Addr::from(external), external_port as u16),
        remote: (REMOTE, REMOTE_PORT),
        protocol,
    }
}

/// A packet as it comes, and as it must leave.
pub type Translation = (Packet, Packet);

impl Flow {
    /// From inside to the remote side.
    pub fn outbound(&self, macs: &Macs) -> Translation {
        let came = Packet {
            destination_mac: macs.inside_port,
            source_mac: macs.inside_hop,
            source: self.inside,
            destination: self.remote,
            protocol: self.protocol,
            ttl: TTL,
        };
        let left = Packet {
            destination_mac: macs.outside_hop,
            source_mac: macs.outside_port,
            source: self.external,
            ttl: TTL - 1,
            ..came
        };
        (came, left)
    }

    /// From the remote side back in.
    pub fn inbound(&self, macs: &Macs) -> Translation {
        let came = Packet {
            destination_mac: macs.outside_port,
            source_mac: macs.outside_hop,
            source: self.remote,
            destination: self.external,
            protocol: self.protocol,
            ttl: TTL,
        };
        let left = Packet {
            destination_mac: macs.inside_hop,
            source_mac: macs.inside_port,
            destination: self.inside,
            ttl: TTL - 1,
            ..came
        };
        (came, left)
    }

    /// The 13 bytes that both translators look up for outbound and inbound packets: addresses,
    /// ports, protocol, big-endian.
    pub fn keys(&self) -> [[u8; 13]; 2] {
        let key = |source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)| {
            let mut bytes = [0u8; 13];
            bytes[0..4].copy_from_slice(&source.0.octets());
            bytes[4..8].copy_from_slice(&destination.0.octets());
            bytes[8..10].copy_from_slice(&source.1.to_be_bytes());
            bytes[10..12].copy_from_slice(&destination.1.to_be_bytes());
            bytes[12] = self.protocol;
            bytes
        };
        [key(self.inside, self.remote), key(self.remote, self.external)]
    }

    /// The 6 bytes that the keys of [`Flow::keys`] lead to: address, port, big-endian.
    pub fn values(&self) -> [[u8; 6]; 2] {
        [self.external, self.inside].map(|(address, port)| {
            let mut bytes = [0u8; 6];
            bytes[0..4].copy_from_slice(&address.octets());
            bytes[4..6].copy_from_slice(&port.to_be_bytes());
            bytes
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_flows_share_a_key() {
        let keys: HashSet<_> =
            (0..65_536).flat_map(|number| flow(number, crate::frame::UDP).keys()).collect();
        assert_eq!(keys.len(), 2 * 65_536);
    }
}
