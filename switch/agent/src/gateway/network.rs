//! What the kernel knows of links, addresses and routes, as far as a gateway needs it: which next
//! hops are to be kept resolved, which ports share a route, and what each port is.

use super::message::{Hop, News};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// RT_SCOPE_HOST: an address that nobody else can answer to.
const SCOPE_HOST: u8 = 254;
/// Ports of a set that fits into 64 bits.
const SIBLING_PORTS: u32 = 64;
/// Routers, sets of interfaces and nexthop objects that are remembered at most, of each.
const MOST: usize = 16_384;

/// An interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// It is up, and has a carrier.
    pub up: bool,
    /// None: it is no Ethernet.
    pub mac: Option<[u8; 6]>,
    /// Bytes.
    pub mtu: u32,
}

/// An address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    address: IpAddr,
    length: u8,
    secondary: bool,
    scope: u8,
}

/// What news change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Where packets go.
    Routes,
    /// And what is known of ports or next hops.
    Ports,
    /// And something is gone of which another route may say the same: only reading all anew tells.
    Gone,
}

/// Links, addresses and routes.
#[derive(Debug, Default)]
pub(crate) struct Network {
    links: BTreeMap<u32, Link>,
    own: BTreeMap<u32, Vec<Own>>,
    /// The routers that routes and nexthop objects name.
    hops: BTreeSet<Hop>,
    /// Sets of interfaces that share a route.
    shared: BTreeSet<BTreeSet<u32>>,
    /// Nexthop objects: the interface of each that is a single path, and the members of groups.
    paths: BTreeMap<u32, u32>,
    groups: BTreeMap<u32, Vec<u32>>,
}

impl Network {
    /// Takes news in.
    pub fn take(&mut self, news: &News) -> Effect {
        let changed = match news {
            News::Link { ifindex, up, mac, mtu } => {
                let link = Link { up: *up, mac: *mac, mtu: *mtu };
                self.links.insert(*ifindex, link) != Some(link)
            }
            News::LinkGone { ifindex } => {
                self.own.remove(ifindex);
                self.links.remove(ifindex).is_some()
            }
            News::Address { gone, ifindex, address, length, secondary, scope } => {
                let (address, length) = (*address, *length);
                let own = Own { address, length, secondary: *secondary, scope: *scope };
                self.address(*ifindex, own, *gone)
            }
            News::Route { gone: true, .. } | News::NextHop { gone: true, .. } => {
                return Effect::Gone;
            }
            News::Route { paths, .. } => {
                let known = self.hops.len();
                paths.iter().for_each(|path| self.hop(*path));
                let changed = self.hops.len() > known;
                let shares = paths.len() > 1 && self.shared.len() < MOST;
                let new = shares && self.shared.insert(paths.iter().map(|(it, _)| *it).collect());
                return if changed || new { Effect::Ports } else { Effect::Routes };
            }
            News::NextHop { id, path, group, .. } => {
                if let Some(path) = path.filter(|_| self.paths.len() < MOST) {
                    self.hop(path);
                    self.paths.insert(*id, path.0);
                }
                if !group.is_empty() && self.groups.len() < MOST {
                    self.groups.insert(*id, group.clone());
                }
                true
            }
            News::Rule => return Effect::Routes,
            News::Neighbour(_) | News::NeighbourGone(_) => false,
        };
        if changed { Effect::Ports } else { Effect::None }
    }

    fn address(&mut self, ifindex: u32, own: Own, gone: bool) -> bool {
        let all = self.own.entry(ifindex).or_default();
        let known = all.iter().position(|it| it.address == own.address && it.length == own.length);
        match (known, gone) {
            (Some(at), true) => drop(all.remove(at)),
            (Some(at), false) if all[at] != own => all[at] = own,
            (None, false) => all.push(own),
            _ => return false,
        }
        true
    }

    /// Adds the router of a path, if it has one.
    fn hop(&mut self, (ifindex, gateway): (u32, Option<IpAddr>)) {
        if let Some(address) = gateway.filter(|_| self.hops.len() < MOST) {
            self.hops.insert(Hop { ifindex, address });
        }
    }

    /// An interface.
    pub fn link(&self, ifindex: u32) -> Option<Link> {
        self.links.get(&ifindex).copied()
    }

    /// The routers behind these interfaces, as far as they are up.
    pub fn wanted(&self, ports: &BTreeMap<u32, u32>) -> BTreeSet<Hop> {
        let up = |hop: &&Hop| {
            ports.contains_key(&hop.ifindex) && self.link(hop.ifindex).is_some_and(|link| link.up)
        };
        self.hops.iter().filter(up).copied().collect()
    }

    /// The ports, of the first 64, that share a route with this interface; `ports`: by interface.
    pub fn siblings(&self, ifindex: u32, ports: &BTreeMap<u32, u32>) -> u64 {
        let of_group = |members: &Vec<u32>| {
            members.iter().filter_map(|id| self.paths.get(id).copied()).collect::<BTreeSet<u32>>()
        };
        let sets = self.shared.iter().cloned().chain(self.groups.values().map(of_group));
        let others = sets.filter(|set| set.contains(&ifindex)).flatten();
        let ports = others.filter_map(|other| ports.get(&other).copied());
        ports.filter(|port| *port < SIBLING_PORTS).fold(0, |set, port| set | 1 << port)
    }

    /// The addresses of an interface that others can answer to.
    fn usable(&self, ifindex: u32) -> impl Iterator<Item = (Ipv4Addr, &Own)> {
        let all = self.own.get(&ifindex).into_iter().flatten();
        all.filter_map(|own| match own.address {
            IpAddr::V4(it) if own.scope < SCOPE_HOST && !it.is_loopback() => Some((it, own)),
            _ => None,
        })
    }

    /// The address that this host has on an interface: that in `to`'s network if there is one, else
    /// the interface's first. An interface without one speaks with an address of `lo`, or any.
    pub fn ipv4_of(&self, ifindex: u32, to: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        let is_near = |(address, own): &(Ipv4Addr, &Own)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(own.length.min(32))).unwrap_or(0);
            to.is_some_and(|to| (u32::from(to) ^ u32::from(*address)) & mask == 0)
        };
        let near = self.usable(ifindex).find(is_near);
        let first = || self.usable(ifindex).find(|(_, own)| !own.secondary);
        let has_no_mac = |ifindex: &u32| self.link(*ifindex).is_some_and(|link| link.mac.is_none());
        let on_lo =
            || self.own.keys().filter(|it| has_no_mac(it)).find_map(|it| self.usable(*it).next());
        let any = || self.own.keys().find_map(|it| self.usable(*it).next());
        near.or_else(first).or_else(on_lo).or_else(any).map(|(address, _)| address)
    }

    /// The IPv6 address that this host answers from on an interface: a global one before the
    /// link's own.
    pub fn ipv6_of(&self, ifindex: u32) -> Option<Ipv6Addr> {
        let all =
            self.own.get(&ifindex).into_iter().flatten().filter_map(|own| match own.address {
                IpAddr::V6(address) if !address.is_loopback() => Some(address),
                _ => None,
            });
        all.min_by_key(Ipv6Addr::is_unicast_link_local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn link(ifindex: u32, up: bool) -> News {
        News::Link { ifindex, up, mac: Some([2, 0, 0, 0, 0, 1]), mtu: 1500 }
    }

    fn own(ifindex: u32, text: &str, length: u8) -> News {
        let address = ip(text);
        News::Address { gone: false, ifindex, address, length, secondary: false, scope: 0 }
    }

    #[test]
    fn routers_behind_ports_that_are_up_are_wanted() {
        let mut network = Network::default();
        let paths = [3, 4, 5, 6].map(|ifindex| (ifindex, Some(ip("192.0.2.1")))).to_vec();
        let route = News::Route { gone: false, paths };
        assert_eq!(network.take(&route), Effect::Ports);
        assert_eq!(network.take(&route), Effect::Routes, "known already");
        let connected = News::Route { gone: false, paths: vec![(3, None)] };
        assert_eq!(network.take(&connected), Effect::Routes);
        for (ifindex, up) in [(3, true), (4, false), (5, true)] {
            assert_eq!(network.take(&link(ifindex, up)), Effect::Ports);
            assert_eq!(network.take(&link(ifindex, up)), Effect::None);
        }
        let ports = BTreeMap::from([(3, 1), (4, 2), (6, 70)]);
        let wanted = BTreeSet::from([Hop { ifindex: 3, address: ip("192.0.2.1") }]);
        assert_eq!(network.wanted(&ports), wanted, "4 is down, 5 is no port, 6 is not there");
        assert_eq!(network.siblings(3, &ports), 0b110);
        assert_eq!(network.siblings(7, &ports), 0);
        let gone = News::Route { gone: true, paths: vec![] };
        assert_eq!(network.take(&gone), Effect::Gone);
    }

    #[test]
    fn members_of_a_nexthop_group_are_siblings() {
        let mut network = Network::default();
        for (id, ifindex) in [(11, 3), (12, 4)] {
            let path = Some((ifindex, Some(ip("fe80::1"))));
            let object = News::NextHop { gone: false, id, path, group: vec![] };
            assert_eq!(network.take(&object), Effect::Ports);
        }
        let ports = BTreeMap::from([(3, 0), (4, 1)]);
        assert_eq!(network.siblings(3, &ports), 0);
        network.take(&News::NextHop { gone: false, id: 13, path: None, group: vec![11, 12] });
        assert_eq!(network.siblings(4, &ports), 0b11);
    }

    #[test]
    fn a_port_speaks_with_an_address_of_its_own_or_that_of_lo() {
        let mut network = Network::default();
        network.take(&News::Link { ifindex: 1, up: true, mac: None, mtu: 65_536 });
        network.take(&News::Address {
            gone: false,
            ifindex: 1,
            address: ip("127.0.0.1"),
            length: 8,
            secondary: false,
            scope: SCOPE_HOST,
        });
        network.take(&link(3, true));
        network.take(&link(4, true));
        assert_eq!(network.ipv4_of(4, None), None);
        network.take(&own(3, "198.51.100.7", 24));
        assert_eq!(network.ipv4_of(4, None), Some(Ipv4Addr::new(198, 51, 100, 7)), "any");
        network.take(&own(1, "203.0.113.7", 32));
        assert_eq!(network.ipv4_of(4, None), Some(Ipv4Addr::new(203, 0, 113, 7)), "of lo");
        network.take(&own(4, "10.0.0.7", 24));
        network.take(&own(4, "10.0.1.7", 24));
        let to = Some(Ipv4Addr::new(10, 0, 1, 1));
        assert_eq!(network.ipv4_of(4, to), Some(Ipv4Addr::new(10, 0, 1, 7)), "in its network");
        assert_eq!(network.ipv4_of(4, None), Some(Ipv4Addr::new(10, 0, 0, 7)), "the first");
        network.take(&own(4, "fe80::7", 64));
        assert_eq!(network.ipv6_of(4), Some("fe80::7".parse().unwrap()));
        network.take(&own(4, "2001:db8::7", 64));
        assert_eq!(network.ipv6_of(4), Some("2001:db8::7".parse().unwrap()));
    }
}
