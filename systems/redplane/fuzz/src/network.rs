//! The network that the frames meet: ports, neighbours and routes in a network namespace of a
//! thread's own, and what they mean.

use anyhow::Result;
use nix::net::if_::if_nametoindex;
use std::net::Ipv4Addr;

/// P4 port towards the inside hosts.
pub const INSIDE_PORT: u32 = 0;
/// P4 port towards the outside.
pub const OUTSIDE_PORT: u32 = 1;
/// P4 port of the fabric, where the state store's messages come in.
pub const FABRIC_PORT: u32 = 2;
const PORTS: usize = 3;
const MTU: u16 = 1500;

/// Address and prefix length of each port.
const OWN: [([u8; 4], u32); PORTS] =
    [([10, 0, 0, 1], 24), ([192, 0, 2, 2], 24), ([10, 2, 1, 1], 24)];
/// Next hops whose link address is known.
const NEIGHBORS: [([u8; 4], u8, u32); 5] = [
    ([10, 0, 0, 5], 0x05, INSIDE_PORT),
    ([10, 0, 0, 6], 0x06, INSIDE_PORT),
    ([10, 0, 0, 2], 0x02, INSIDE_PORT),
    ([192, 0, 2, 1], 0x11, OUTSIDE_PORT),
    ([10, 2, 1, 10], 0x21, FABRIC_PORT),
];
/// Routes: destination, length, next hop (`None`: blackhole).
const ROUTES: [([u8; 4], u32, Option<[u8; 4]>); 5] = [
    ([10, 1, 0, 0], 16, Some([10, 0, 0, 2])),
    ([198, 51, 100, 0], 24, Some([192, 0, 2, 1])),
    ([198, 51, 101, 0], 24, Some([192, 0, 2, 9])),
    ([198, 51, 102, 0], 24, None),
    ([198, 51, 100, 128], 25, Some([192, 0, 2, 1])),
];
/// An address of the host itself that is on no port: where the store's messages go.
pub const PROTOCOL_ADDRESS: [u8; 4] = [10, 255, 0, 1];

/// What the routes say of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out of a port, with these link addresses.
    Forward {
        /// P4 port.
        port: u32,
        /// The next hop's.
        destination_mac: [u8; 6],
        /// The port's.
        source_mac: [u8; 6],
    },
    /// To this host, or no route: the kernel does not tell which.
    Local,
    /// The kernel must see to it: next hop not resolved.
    Kernel,
    /// Larger than the link's MTU.
    TooBig,
    /// A blackhole.
    Unreachable,
}

fn covers(prefix: [u8; 4], length: u32, address: u32) -> bool {
    (u32::from_be_bytes(prefix) ^ address).checked_shr(32 - length).unwrap_or(0) == 0
}

fn port_mac(port: u32) -> [u8; 6] {
    [2, 0, 0, 0, 0, 0xa0 + port as u8]
}

/// Where a packet of so many bytes to an address goes.
pub fn way(destination: u32, total_length: u16) -> Way {
    let own = |address: [u8; 4]| u32::from_be_bytes(address) == destination;
    let is_broadcast = |(address, length): &([u8; 4], u32)| {
        let host = u32::MAX >> length;
        covers(*address, *length, destination) && destination & host == host
    };
    if destination >> 24 == 127
        || own(PROTOCOL_ADDRESS)
        || OWN.iter().any(|link| own(link.0) || is_broadcast(link))
    {
        return Way::Local;
    }
    let connected =
        OWN.iter().map(|(address, length)| (*address, *length, Some(destination.to_be_bytes())));
    let routes =
        connected.chain(ROUTES).filter(|(prefix, length, _)| covers(*prefix, *length, destination));
    let Some((_, _, hop)) = routes.max_by_key(|(_, length, _)| *length) else { return Way::Local };
    let Some(hop) = hop else { return Way::Unreachable };
    if total_length > MTU {
        return Way::TooBig;
    }
    match NEIGHBORS.iter().find(|(address, ..)| *address == hop) {
        Some((_, last, port)) => Way::Forward {
            port: *port,
            destination_mac: [2, 0, 0, 0, 0, *last],
            source_mac: port_mac(*port),
        },
        None => Way::Kernel,
    }
}

/// Calls `body` in a fresh network namespace, on a thread of its own; it is given the ports'
/// interface indices. The kernel removes the namespace when the thread has ended.
pub(crate) fn inside<T: Send>(body: impl FnOnce([u32; PORTS]) -> Result<T> + Send) -> Result<T> {
    netns::inside_new(|| {
        netns::forward()?;
        netns::ip_batch(&commands())?;
        let mut indices = [0; PORTS];
        for (port, index) in indices.iter_mut().enumerate() {
            *index = if_nametoindex(format!("port{port}").as_str())?;
        }
        body(indices)
    })?
}

/// The `ip` commands that make the network.
fn commands() -> Vec<String> {
    let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let mut lines = vec![
        "link set lo up".to_owned(),
        format!("address add {}/32 dev lo", Ipv4Addr::from(PROTOCOL_ADDRESS)),
    ];
    for (port, (address, length)) in OWN.into_iter().enumerate() {
        lines.push(format!(
            "link add port{port} address {} mtu {MTU} type veth peer name peer{port}",
            mac(port_mac(port as u32))
        ));
        lines.push(format!("link set peer{port} up"));
        lines.push(format!("link set port{port} up"));
        lines.push(format!("address add {}/{length} dev port{port}", Ipv4Addr::from(address)));
    }
    for (address, last, port) in NEIGHBORS {
        let address = Ipv4Addr::from(address);
        lines.push(format!(
            "neighbor replace {address} lladdr {} dev port{port} nud permanent",
            mac([2, 0, 0, 0, 0, last])
        ));
    }
    for (address, length, hop) in ROUTES {
        let prefix = format!("{}/{length}", Ipv4Addr::from(address));
        lines.push(match hop {
            Some(hop) => format!("route add {prefix} via {}", Ipv4Addr::from(hop)),
            None => format!("route add blackhole {prefix}"),
        });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_by_longest_prefix() {
        let to = |address: [u8; 4]| way(u32::from_be_bytes(address), 100);
        assert!(matches!(
            to([10, 1, 2, 3]),
            Way::Forward { port: INSIDE_PORT, destination_mac: [2, 0, 0, 0, 0, 2], .. }
        ));
        assert!(matches!(to([198, 51, 100, 200]), Way::Forward { port: OUTSIDE_PORT, .. }));
        assert_eq!(to([198, 51, 101, 1]), Way::Kernel);
        assert_eq!(to([198, 51, 102, 1]), Way::Unreachable);
        assert_eq!(to([10, 0, 0, 255]), Way::Local);
        assert_eq!(to([8, 8, 8, 8]), Way::Local);
        assert_eq!(way(u32::from_be_bytes([10, 1, 2, 3]), 1501), Way::TooBig);
    }
}
