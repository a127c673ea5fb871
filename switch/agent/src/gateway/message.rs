//! rtnetlink(7) messages: what the kernel says of links, addresses, routes and neighbours, and what
//! is asked of it. Bytes only, no sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of `struct nlmsghdr`.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of `struct ndmsg`.
const NEIGHBOUR_BYTES: usize = 12;
/// Bytes of `struct rtnexthop`.
const HOP_BYTES: usize = 8;

// linux/rtnetlink.h, linux/nexthop.h, linux/neighbour.h: what libc does not name everywhere.
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
/// The request for nexthop objects.
pub(crate) const RTM_GETNEXTHOP: u16 = 106;
const RTA_VIA: u16 = 18;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NDA_PROTOCOL: u16 = 12;
const NDA_FLAGS_EXT: u16 = 15;
const NTF_EXT_MANAGED: u32 = 1;
const IFA_F_SECONDARY: u8 = 1;
const RTN_UNICAST: u8 = 1;
/// A copy of a route in the kernel's cache, no route by itself.
const RTM_F_CLONED: u32 = 0x200;
/// Marks entries of the neighbour table as ours, as routing daemons mark their routes: a number
/// that iproute2's rt_protos does not give to anybody.
const PROTOCOL: u8 = 219;

/// A next hop: a router's address, and the interface behind which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hop {
    /// Index of the interface.
    pub ifindex: u32,
    /// The router's address on that link.
    pub address: IpAddr,
}

/// What the neighbour table says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neighbour {
    /// Whose entry it is.
    pub hop: Hop,
    /// `NUD_*`.
    pub state: u16,
    /// Its MAC, if the entry has one.
    pub mac: Option<[u8; 6]>,
    /// Time since it was last known to be right, in ms.
    pub confirmed_ms: u64,
    /// The kernel keeps it resolved (NTF_EXT_MANAGED).
    pub managed: bool,
    /// This program asked for that.
    pub ours: bool,
}

/// What the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// An interface is there, or has changed.
    Link { ifindex: u32, up: bool, mac: Option<[u8; 6]>, mtu: u32 },
    /// It is gone.
    LinkGone { ifindex: u32 },
    /// An address of this host.
    Address { gone: bool, ifindex: u32, address: IpAddr, length: u8, secondary: bool, scope: u8 },
    /// A unicast route: the interfaces that it leads out of, each with its router, if it has one.
    Route { gone: bool, paths: Vec<(u32, Option<IpAddr>)> },
    /// A nexthop object (`ip nexthop`), which routes refer to: one path, or the members of a group.
    NextHop { gone: bool, id: u32, path: Option<(u32, Option<IpAddr>)>, group: Vec<u32> },
    /// Rules of policy routing have changed.
    Rule,
    /// An entry of the neighbour table.
    Neighbour(Neighbour),
    /// It is gone.
    NeighbourGone(Hop),
}

/// One netlink message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// `RTM_*`, `NLMSG_*`.
    pub kind: u16,
    /// Of the request that it answers.
    pub sequence: u32,
    /// Behind the header.
    pub body: &'a [u8],
}

/// The messages of what one call has read; it ends where the bytes make no sense.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let body = bytes.get(HEADER_BYTES..length)?;
        let message = Message { kind: u16_at(bytes, 4)?, sequence: u32_at(bytes, 8)?, body };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes behind a message's fixed part: type without its flags, and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const FLAGS: u16 = 0xc000;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..length)?;
        let kind = u16_at(bytes, 2)? & !FLAGS;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))),
        16 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))),
        _ => None,
    }
}

/// What a message says; none: nothing that matters here.
pub(crate) fn news(message: &Message<'_>) -> Option<News> {
    let body = message.body;
    match message.kind {
        libc::RTM_NEWLINK => link(body),
        libc::RTM_DELLINK => Some(News::LinkGone { ifindex: u32_at(body, 4)? }),
        libc::RTM_NEWADDR => address(body, false),
        libc::RTM_DELADDR => address(body, true),
        libc::RTM_NEWROUTE => route(body, false),
        libc::RTM_DELROUTE => route(body, true),
        RTM_NEWNEXTHOP => next_hop(body, false),
        RTM_DELNEXTHOP => next_hop(body, true),
        libc::RTM_NEWRULE | libc::RTM_DELRULE => Some(News::Rule),
        libc::RTM_NEWNEIGH => neighbour(body).map(News::Neighbour),
        libc::RTM_DELNEIGH => neighbour(body).map(|gone| News::NeighbourGone(gone.hop)),
        _ => None,
    }
}

/// `struct ifinfomsg` and its attributes.
fn link(body: &[u8]) -> Option<News> {
    let family = *body.first()?;
    // A bridge says the same of its ports in a family of its own, without what matters here.
    if i32::from(family) != libc::AF_UNSPEC {
        return None;
    }
    let flags = u32_at(body, 8)?;
    let rest = body.get(16..)?;
    let mac: Option<[u8; 6]> =
        attribute(rest, libc::IFLA_ADDRESS).and_then(|it| it.try_into().ok());
    // Loopback has one, of zeros.
    let mac = mac.filter(|mac| *mac != [0; 6]);
    let mtu = attribute(rest, libc::IFLA_MTU).and_then(|mtu| u32_at(mtu, 0)).unwrap_or(0);
    let needed = (libc::IFF_UP | libc::IFF_RUNNING) as u32;
    Some(News::Link { ifindex: u32_at(body, 4)?, up: flags & needed == needed, mac, mtu })
}

/// `struct ifaddrmsg` and its attributes.
fn address(body: &[u8], gone: bool) -> Option<News> {
    let (length, flags, scope) = (*body.get(1)?, *body.get(2)?, *body.get(3)?);
    let rest = body.get(8..)?;
    // On a point-to-point interface IFA_ADDRESS is the other end's.
    let own = attribute(rest, libc::IFA_LOCAL).or_else(|| attribute(rest, libc::IFA_ADDRESS));
    let address = ip(own?)?;
    let secondary = flags & IFA_F_SECONDARY != 0;
    Some(News::Address { gone, ifindex: u32_at(body, 4)?, address, length, secondary, scope })
}

/// `struct rtmsg` and its attributes.
fn route(body: &[u8], gone: bool) -> Option<News> {
    let (family, kind) = (i32::from(*body.first()?), *body.get(7)?);
    let (flags, rest) = (u32_at(body, 8)?, body.get(12..)?);
    let is_ip = family == libc::AF_INET || family == libc::AF_INET6;
    if !is_ip || kind != RTN_UNICAST || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut paths = vec![];
    if let Some(oif) = attribute(rest, libc::RTA_OIF).and_then(|oif| u32_at(oif, 0)) {
        paths.push((oif, gateway(rest)));
    }
    let mut hops = attribute(rest, libc::RTA_MULTIPATH).unwrap_or_default();
    while let Some(length) = u16_at(hops, 0).map(usize::from) {
        let Some(hop) = hops.get(HOP_BYTES..length) else { break };
        paths.push((u32_at(hops, 4)?, gateway(hop)));
        hops = hops.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(News::Route { gone, paths })
}

/// The router among a route's attributes; of an IPv4 route it may have an IPv6 address (RFC 8950).
fn gateway(attributes: &[u8]) -> Option<IpAddr> {
    let via = || attribute(attributes, RTA_VIA).and_then(|via| via.get(2..));
    let found = attribute(attributes, libc::RTA_GATEWAY).or_else(via)?;
    ip(found).filter(|address| !address.is_unspecified())
}

/// `struct nhmsg` and its attributes.
fn next_hop(body: &[u8], gone: bool) -> Option<News> {
    let rest = body.get(8..)?;
    let id = attribute(rest, NHA_ID).and_then(|id| u32_at(id, 0))?;
    let gateway = attribute(rest, NHA_GATEWAY).and_then(ip);
    let path = attribute(rest, NHA_OIF).and_then(|oif| u32_at(oif, 0)).map(|oif| (oif, gateway));
    // `struct nexthop_grp`: id, weight, and what is reserved.
    let members = attribute(rest, NHA_GROUP).unwrap_or_default().chunks_exact(8);
    let group = members.filter_map(|member| u32_at(member, 0)).collect();
    Some(News::NextHop { gone, id, path, group })
}

/// `struct ndmsg` and its attributes.
fn neighbour(body: &[u8]) -> Option<Neighbour> {
    let family = i32::from(*body.first()?);
    if family != libc::AF_INET && family != libc::AF_INET6 {
        return None;
    }
    let rest = body.get(NEIGHBOUR_BYTES..)?;
    let address = ip(attribute(rest, libc::NDA_DST)?)?;
    let number = |wanted| attribute(rest, wanted).and_then(|value| u32_at(value, 0));
    // `struct nda_cacheinfo` begins with the time since the confirmation, in hundredths of a
    // second.
    let confirmed = number(libc::NDA_CACHEINFO).unwrap_or(u32::MAX);
    Some(Neighbour {
        hop: Hop { ifindex: u32_at(body, 4)?, address },
        state: u16_at(body, 8)?,
        mac: attribute(rest, libc::NDA_LLADDR).and_then(|mac| mac.try_into().ok()),
        confirmed_ms: u64::from(confirmed) * 10,
        managed: number(NDA_FLAGS_EXT).unwrap_or(0) & NTF_EXT_MANAGED != 0,
        ours: attribute(rest, NDA_PROTOCOL) == Some(&[PROTOCOL]),
    })
}

/// What a neighbour entry is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A new entry that the kernel keeps resolved; one that is there already is left alone.
    Create,
    /// The kernel is to keep resolved what is there.
    Manage,
    /// It is to do so no longer.
    Release,
    /// It is used: if it is stale, the kernel asks whether it is still right.
    Use,
}

/// A message that is built.
struct Builder(Vec<u8>);

impl Builder {
    fn new(kind: u16, flags: i32, sequence: u32) -> Builder {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((flags as u16).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        Builder(bytes)
    }

    fn attribute(mut self, kind: u16, value: &[u8]) -> Builder {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn neighbour(mut self, hop: Hop, flags: u8) -> Builder {
        let (family, bytes) = match hop.address {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        self.0.extend([family as u8, 0, 0, 0]);
        self.0.extend(hop.ifindex.to_ne_bytes());
        self.0.extend(libc::NUD_NONE.to_ne_bytes());
        self.0.extend([flags, 0]);
        self.attribute(libc::NDA_DST, &bytes)
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// Asks for all of a kind: `RTM_GET*`.
pub(crate) fn dump_request(kind: u16, sequence: u32) -> Vec<u8> {
    let fixed_bytes = match kind {
        libc::RTM_GETLINK => 16,
        RTM_GETNEXTHOP | libc::RTM_GETADDR => 8,
        _ => 12,
    };
    let mut builder = Builder::new(kind, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, sequence);
    // AF_UNSPEC: both families.
    builder.0.extend(std::iter::repeat_n(0, fixed_bytes));
    builder.finish()
}

/// Asks for one entry of the neighbour table.
pub(crate) fn neighbour_request(hop: Hop, sequence: u32) -> Vec<u8> {
    Builder::new(libc::RTM_GETNEIGH, libc::NLM_F_REQUEST, sequence).neighbour(hop, 0).finish()
}

/// Changes an entry of the neighbour table; answered by an acknowledgement.
pub(crate) fn change_request(hop: Hop, change: Change, sequence: u32) -> Vec<u8> {
    let mut flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    if change == Change::Create {
        flags |= libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    }
    let builder = Builder::new(libc::RTM_NEWNEIGH, flags, sequence).neighbour(hop, libc::NTF_USE);
    match change {
        Change::Create | Change::Manage => builder
            .attribute(NDA_PROTOCOL, &[PROTOCOL])
            .attribute(NDA_FLAGS_EXT, &NTF_EXT_MANAGED.to_ne_bytes())
            .finish(),
        Change::Release | Change::Use => builder.finish(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOP: Hop = Hop { ifindex: 7, address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)) };

    /// What the kernel would say, made by the builder.
    fn message(kind: u16, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::new(kind, 0, 0);
        builder.0.extend(fixed);
        let all = attributes.iter().fold(builder, |it, (kind, value)| it.attribute(*kind, value));
        all.finish()
    }

    fn one(bytes: &[u8]) -> Option<News> {
        let mut all = messages(bytes);
        let first = all.next().and_then(|message| news(&message));
        assert_eq!(all.next(), None);
        first
    }

    #[test]
    fn reads_routes_with_one_path_several_and_a_router_of_the_other_family() {
        let unicast = [2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
        let oif = 7u32.to_ne_bytes();
        let plain = message(libc::RTM_NEWROUTE, &unicast, &[(5, &[192, 0, 2, 1]), (4, &oif)]);
        let paths = vec![(7, Some(HOP.address))];
        assert_eq!(one(&plain), Some(News::Route { gone: false, paths }));

        let mut hops = vec![];
        for (ifindex, last) in [(7u32, 1), (8, 2)] {
            hops.extend([16, 0, 0, 0]);
            hops.extend(ifindex.to_ne_bytes());
            hops.extend([8, 0, 5, 0, 192, 0, 2, last]);
        }
        let many = message(libc::RTM_DELROUTE, &unicast, &[(9, &hops)]);
        let second = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)));
        let paths = vec![(7, Some(HOP.address)), (8, second)];
        assert_eq!(one(&many), Some(News::Route { gone: true, paths }));

        let mut via = vec![10, 0];
        via.extend("fe80::1".parse::<Ipv6Addr>().unwrap().octets());
        let other = message(libc::RTM_NEWROUTE, &unicast, &[(RTA_VIA, &via), (4, &oif)]);
        let paths = vec![(7, Some("fe80::1".parse().unwrap()))];
        assert_eq!(one(&other), Some(News::Route { gone: false, paths }));

        let local = [2, 32, 0, 0, 255, 2, 0, 2, 0, 0, 0, 0];
        assert_eq!(one(&message(libc::RTM_NEWROUTE, &local, &[(4, &oif)])), None, "of type local");
    }

    #[test]
    fn what_it_asks_of_an_entry_is_what_it_reads_from_one() {
        let request = change_request(HOP, Change::Create, 3);
        let Some(News::Neighbour(read)) = one(&request) else { panic!("{request:?}") };
        assert_eq!((read.hop, read.managed, read.ours, read.mac), (HOP, true, true, None));
        let request = change_request(HOP, Change::Release, 3);
        let Some(News::Neighbour(read)) = one(&request) else { panic!("{request:?}") };
        assert!(!read.managed, "Use and Release are requests without the flag");
    }

    #[test]
    fn what_is_cut_short_says_nothing_and_nothing_panics() {
        let whole = change_request(HOP, Change::Create, 3);
        for length in 0..whole.len() {
            assert_eq!(messages(&whole[..length]).next(), None, "{length} bytes");
        }
        // A length of zero would never end; and fixed parts that are cut short say nothing.
        assert_eq!(messages(&[0; 64]).next(), None);
        for kind in [16, 17, 20, 21, 24, 25, 28, 29, 32, 104, 105] {
            for length in 0..24 {
                let bytes = message(kind, &vec![2; length], &[]);
                one(&bytes);
            }
        }
    }
}
