//! The network around a switch, as the kernel's tables would have it: ports, neighbours and routes.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// What `gateway_check` asks the routes about sources (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// Nothing.
    #[default]
    Off,
    /// That there is a route.
    Loose,
    /// That it goes out of the packet's port, or of a sibling.
    Strict,
}

/// A P4 port.
#[derive(Clone, Debug, Default)]
pub struct Port {
    /// In the low 48 bits.
    pub mac: u64,
    /// Frames for other MACs are not for it.
    pub own_mac: bool,
    /// What is asked of sources.
    pub reverse_path: ReversePath,
    /// Bit p: port p shares a multipath route with this one.
    pub siblings: u64,
    /// The host's addresses there, with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The longest IP packet in bytes; 0: not known.
    pub mtu: u32,
}

/// Which way a route goes.
#[derive(Clone, Debug)]
pub enum Way {
    /// To a next hop.
    Via {
        /// Its address.
        gateway: IpAddr,
        /// P4 port.
        port: u32,
    },
    /// Nowhere: unreachable, blackhole or prohibit.
    Nowhere,
}

/// What a switch's host knows of the network around it, and how it is configured.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// By P4 port.
    pub ports: BTreeMap<u32, Port>,
    /// MACs by P4 port and address.
    pub neighbors: BTreeMap<(u32, IpAddr), u64>,
    /// Prefixes and their ways, beside those of the ports' own addresses.
    pub routes: Vec<(IpAddr, u8, Way)>,
    /// Prefixes that only the network has (`@own_destination`), and those taken out of them.
    pub own_destinations: Vec<(IpAddr, u8, bool)>,
    /// ICMP errors a second; 0: none are sent.
    pub icmp_rate_per_s: u32,
    /// `clamp_tcp_mss` does something.
    pub clamp_mss: bool,
    /// Fragments wait for their first one.
    pub hold_fragments: bool,
}

/// What the routes say of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// This host, or no route.
    Local,
    Nowhere,
    Out {
        port: u32,
        next_hop: IpAddr,
    },
}

/// An address's first bits, as a number.
fn leading(address: IpAddr, length: u8) -> u128 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    bits.checked_shr(128 - u32::from(length)).unwrap_or(0)
}

fn contains(prefix: IpAddr, length: u8, address: IpAddr) -> bool {
    prefix.is_ipv4() == address.is_ipv4() && leading(prefix, length) == leading(address, length)
}

/// What the kernel routes for no one else (ip6_route.c: rt6_need_strict).
fn stays_on_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
    }
}

/// The broadcast address of an IPv4 prefix, the subnet router's anycast address of an IPv6 prefix
/// (RFC 4291, 2.6.1).
fn is_of_subnet(prefix: IpAddr, length: u8, address: IpAddr) -> bool {
    match (prefix, address) {
        (IpAddr::V4(_), IpAddr::V4(to)) => {
            length < 31
                && contains(prefix, length, address)
                && to.to_bits() | u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)
                    == u32::MAX
        }
        (IpAddr::V6(_), IpAddr::V6(to)) => {
            length < 127 && contains(prefix, length, address) && to.to_bits() << length == 0
        }
        _ => false,
    }
}

impl Network {
    pub(super) fn port(&self, port: u32) -> Port {
        self.ports.get(&port).cloned().unwrap_or_default()
    }

    fn addresses(&self) -> impl Iterator<Item = (u32, IpAddr, u8)> {
        let of = |(number, port): (&u32, &Port)| {
            let number = *number;
            port.addresses
                .clone()
                .into_iter()
                .map(move |(address, length)| (number, address, length))
        };
        self.ports.iter().flat_map(of)
    }

    pub(super) fn is_local(&self, address: IpAddr) -> bool {
        self.addresses().any(|(_, own, _)| own == address)
    }

    /// An address of this host, or the broadcast of one of its networks.
    pub(super) fn is_own(&self, address: IpAddr) -> bool {
        let broadcast = |(_, own, length): (u32, IpAddr, u8)| {
            own.is_ipv4() && is_of_subnet(own, length, address)
        };
        self.is_local(address) || self.addresses().any(broadcast)
    }

    /// May nobody have it as a source?
    pub(super) fn is_nobodys(&self, source: IpAddr) -> bool {
        let fitting = self
            .own_destinations
            .iter()
            .filter(|(prefix, length, _)| contains(*prefix, *length, source));
        self.is_own(source)
            || fitting.max_by_key(|(_, length, _)| *length).is_some_and(|(.., is_own)| *is_own)
    }

    /// The longest prefix's way.
    pub(super) fn route(&self, source: IpAddr, destination: IpAddr) -> Route {
        let strict_source = source.is_ipv6() && stays_on_link(source);
        let of_subnet =
            |(_, own, length): (u32, IpAddr, u8)| is_of_subnet(own, length, destination);
        if strict_source
            || stays_on_link(destination)
            || self.is_local(destination)
            || self.addresses().any(of_subnet)
        {
            return Route::Local;
        }
        let connected = self.addresses().map(|(port, own, length)| {
            let out = Route::Out { port, next_hop: destination };
            (own, length, out)
        });
        let given = self.routes.iter().map(|(prefix, length, way)| {
            let route = match way {
                Way::Via { gateway, port } => Route::Out { port: *port, next_hop: *gateway },
                Way::Nowhere => Route::Nowhere,
            };
            (*prefix, *length, route)
        });
        let fitting = connected
            .chain(given)
            .filter(|(prefix, length, _)| contains(*prefix, *length, destination));
        fitting.max_by_key(|(_, length, _)| *length).map_or(Route::Local, |(_, _, route)| route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn given() -> Network {
        let of = |addresses: &[(&str, u8)]| Port {
            addresses: addresses.iter().map(|(address, length)| (ip(address), *length)).collect(),
            ..Port::default()
        };
        let via = |gateway: &str, port: u32| Way::Via { gateway: ip(gateway), port };
        Network {
            ports: BTreeMap::from([
                (0, of(&[("10.0.0.1", 24), ("2001:db8::1", 64)])),
                (1, of(&[("192.0.2.2", 31)])),
            ]),
            routes: vec![
                (ip("0.0.0.0"), 0, via("192.0.2.3", 1)),
                (ip("10.0.0.64"), 26, via("10.0.0.9", 0)),
                (ip("10.9.0.0"), 16, Way::Nowhere),
                (ip("2001:db8:1::"), 48, via("2001:db8::9", 0)),
            ],
            ..Network::default()
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let network = given();
        let route = |to: &str| network.route(ip("198.51.100.1"), ip(to));
        let out = |port: u32, next_hop: &str| Route::Out { port, next_hop: ip(next_hop) };
        assert_eq!(route("10.0.0.7"), out(0, "10.0.0.7"));
        assert_eq!(route("10.0.0.70"), out(0, "10.0.0.9"));
        assert_eq!(route("10.9.1.1"), Route::Nowhere);
        assert_eq!(route("203.0.113.1"), out(1, "192.0.2.3"));
        assert_eq!(route("192.0.2.3"), out(1, "192.0.2.3"));
        for own in ["10.0.0.1", "10.0.0.255", "192.0.2.2", "224.0.0.5"] {
            assert_eq!(route(own), Route::Local, "{own}");
        }
        let route = |from: &str, to: &str| network.route(ip(from), ip(to));
        assert_eq!(route("2001:db8:2::1", "2001:db8:1::5"), out(0, "2001:db8::9"));
        for to in ["2001:db8::", "2001:db8::1", "2001:db8:2::1", "fe80::1", "ff02::1"] {
            assert_eq!(route("2001:db8:1::1", to), Route::Local, "{to}");
        }
        assert_eq!(route("fe80::1", "2001:db8:1::5"), Route::Local);
    }
}
