//! What the program must know of a gateway's ports, and what it counts (stateplane_gateway.h).
//!
//! An object has these maps only if its program uses what needs them.

use crate::Dataplane;
use crate::error::Result;
use crate::layouts::net::{PortValue, SettingsValue};
use c_layout::CStruct;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::PoisonError;

/// The P4 port by which this host's kernel sends a packet on (`KERNEL_PORT` in stateplane.p4).
pub const KERNEL_PORT: u32 = 510;

/// Why `gateway_check` said no, in the order of `enum sp_gateway_drop`, each with its remedy.
pub const GATEWAY_DROPS: [(&str, &str); 11] = [
    (
        "other_mac",
        "frames for another machine: a switch on the link floods them; to accept them, set \
         destination_mac = \"any\"",
    ),
    (
        "broadcast_frame",
        "an IP packet to one host in a broadcast frame: a faulty host; its MAC is in a capture on the port",
    ),
    ("short_header", "cut off, or not what its type says: look for a faulty host or card"),
    (
        "length",
        "the IP length is longer than the frame, or shorter than its header: look for a faulty host or card",
    ),
    ("header_checksum", "a wrong IPv4 checksum: look for a faulty host or card"),
    ("martian_source", "a source that no host has (RFC 1812, 5.3.7): look for spoofed packets"),
    (
        "martian_destination",
        "a destination that is never forwarded (RFC 1812, 5.3.7): look for a wrong route at the sender",
    ),
    (
        "reverse_path",
        "no route back out of that port: the source is spoofed, or routing is asymmetric: set \
         reverse_path = \"loose\" in [ingress] or [[port]]",
    ),
    ("priority_tag", "a VLAN tag of number 0: turn priority tags off at the sender"),
    ("options", "an IPv4 option that does not fit its header: look for a faulty host"),
    (
        "fragment",
        "a fragment with a length or place that no packet can have: look for a faulty host",
    ),
];

/// What else the gateway's runtime counts, in the order of `enum sp_gateway_event`. For a reason to
/// drop a packet: the remedy.
pub const GATEWAY_EVENTS: [(&str, Option<&str>); 9] = [
    ("icmp_sent", None),
    ("icmp_suppressed", None),
    (
        "icmp_rate_limited",
        Some("too many packets that need an ICMP error: raise icmp_rate_per_s, or find the sender"),
    ),
    ("icmp_no_address", Some("the port has no address to answer from: `ip address add` on it")),
    ("sent_by_kernel", None),
    (
        "slow_path_full",
        Some(
            "too many packets that only the kernel can send: is the agent up, and are next hops resolved?",
        ),
    ),
    ("fragments_remembered", None),
    ("fragments_held", None),
    (
        "fragments_refused",
        Some(
            "fragments whose first was dropped or did not come: raise `held` in [fragments]; see the other reasons",
        ),
    ),
];

/// All of [`GATEWAY_DROPS`] and [`GATEWAY_EVENTS`]: the name, and for a drop the remedy.
pub fn gateway_counters() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let drops = GATEWAY_DROPS.iter().map(|(name, remedy)| (*name, Some(*remedy)));
    drops.chain(GATEWAY_EVENTS)
}

/// What is asked of a packet's source (RFC 3704; Linux's `rp_filter`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReversePath {
    /// Nothing.
    #[default]
    Off,
    /// There is a route to it.
    Loose,
    /// Its route goes out of the port that the packet came in on.
    Strict,
}

/// A port, as the program is told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayPort {
    /// Its Ethernet address; all zero: not known, every frame is for it.
    pub mac: [u8; 6],
    /// Ports below 64 that share a multipath route with it, a bit each.
    pub siblings: u64,
    /// The source of its ICMP errors.
    pub ipv4: Option<Ipv4Addr>,
    /// The same of ICMPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// Its interface.
    pub ifindex: u32,
    /// The longest IP packet in bytes; 0: not known.
    pub mtu: u32,
    /// Frames for other addresses are taken too.
    pub any_mac: bool,
    /// What is asked of sources.
    pub reverse_path: ReversePath,
    /// Another number after each change of routes, rules, addresses and links.
    pub route_generation: u32,
}

/// Where in the tag of sources the route generation begins.
const GENERATION_SHIFT: u32 = 41;
/// Bits of the route generation in an entry of `sp_gateway_sources_ipv4`.
const SOURCE_GENERATION: u64 = 0x7ffff;

impl GatewayPort {
    fn value(&self, port: u32) -> PortValue {
        let [a, b, c, d, e, f] = self.mac;
        let mask = match (self.mac, self.any_mac) {
            ([0, 0, 0, 0, 0, 0], _) => [0; 8],
            (_, true) => [1, 0, 0, 0, 0, 0, 0, 0],
            (_, false) => [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
        };
        let generation = u64::from(self.route_generation) & SOURCE_GENERATION;
        PortValue {
            mac: u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]),
            mac_mask: u64::from_ne_bytes(mask),
            source_tag: u64::from(port) << 32
                | generation << GENERATION_SHIFT
                | (self.reverse_path as u64) << 60,
            siblings: self.siblings,
            ipv4: self.ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED),
            ipv6: self.ipv6.unwrap_or(Ipv6Addr::UNSPECIFIED),
            ifindex: self.ifindex,
            mtu: self.mtu,
            route_generation: self.route_generation,
            reverse_path: self.reverse_path as u8,
            zero: [0; 7],
        }
    }
}

/// The switch's settings, as the program is told of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewaySettings {
    /// ICMP errors a second; 0: none.
    pub icmp_rate_per_s: u32,
    /// `clamp_tcp_mss` has an effect.
    pub clamp_mss: bool,
    /// The agent takes fragments that come before the first.
    pub hold_fragments: bool,
}

impl Dataplane {
    /// Does the program look at ports as a gateway does?
    pub fn is_gateway(&self) -> bool {
        self.has_map("sp_gateway_port")
    }

    /// Tells the program of a port. Programs that are no gateways are left alone.
    pub fn set_gateway_port(&self, port: u32, value: &GatewayPort) -> Result<()> {
        if !self.is_gateway() {
            return Ok(());
        }
        let changes = self.own_changes.lock().unwrap_or_else(PoisonError::into_inner);
        let route_generation = value.route_generation.wrapping_add(*changes);
        let value = GatewayPort { route_generation, ..value.clone() };
        self.write_array("sp_gateway_port", port, &value.value(port).to_bytes())
    }

    /// What the program knows of sources is void.
    pub(crate) fn forget_sources(&self) -> Result<()> {
        let mut changes = self.own_changes.lock().unwrap_or_else(PoisonError::into_inner);
        *changes = changes.wrapping_add(1);
        for port in 0..self.manifest.max_ports {
            let bytes = self.read_array("sp_gateway_port", port)?;
            if bytes.iter().all(|byte| *byte == 0) {
                continue;
            }
            let mut value = PortValue::from_bytes(&bytes);
            value.route_generation = value.route_generation.wrapping_add(1);
            let generation = u64::from(value.route_generation) & SOURCE_GENERATION;
            let others = value.source_tag & !(SOURCE_GENERATION << GENERATION_SHIFT);
            value.source_tag = others | generation << GENERATION_SHIFT;
            self.write_array("sp_gateway_port", port, &value.to_bytes())?;
        }
        Ok(())
    }

    /// Tells the program of the switch's settings. Programs that are no gateways are left alone.
    pub fn set_gateway_settings(&self, settings: &GatewaySettings) -> Result<()> {
        if !self.is_gateway() {
            return Ok(());
        }
        let value = SettingsValue {
            icmp_rate_per_s: settings.icmp_rate_per_s,
            clamp_mss: settings.clamp_mss.into(),
            hold_fragments: settings.hold_fragments.into(),
        };
        self.write_array("sp_gateway_settings", 0, &value.to_bytes())
    }

    /// The number of the routes' state that the program goes by on a port; 0 if it is no gateway.
    pub fn route_generation(&self, port: u32) -> Result<u32> {
        match self.is_gateway() {
            true => {
                let value = PortValue::from_bytes(&self.read_array("sp_gateway_port", port)?);
                Ok(value.route_generation)
            }
            false => Ok(0),
        }
    }

    /// Those of these counts ([`GATEWAY_DROPS`], [`GATEWAY_EVENTS`]) that the program has.
    pub fn gateway_counts(
        &self,
        names: impl Iterator<Item = &'static str>,
    ) -> Result<Vec<(&'static str, u64)>> {
        let count =
            |name: &'static str| Some(self.gateway_count(name).transpose()?.map(|it| (name, it)));
        names.filter_map(count).collect()
    }

    /// One of [`GATEWAY_DROPS`] or [`GATEWAY_EVENTS`], summed over CPUs; None: there is no count of
    /// that name, or the program does not have it.
    pub fn gateway_count(&self, name: &str) -> Result<Option<u64>> {
        let in_drops = GATEWAY_DROPS
            .iter()
            .position(|known| known.0 == name)
            .map(|at| ("sp_gateway_drops", at));
        let in_events = GATEWAY_EVENTS
            .iter()
            .position(|known| known.0 == name)
            .map(|at| ("sp_gateway_events", at));
        let Some((map, index)) = in_drops.or(in_events) else { return Ok(None) };
        self.has_map(map).then(|| self.read_count(map, index as u32)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_laid_out_as_the_program_reads_it() {
        let port = GatewayPort {
            mac: [2, 0, 0, 0, 0, 0xa0],
            siblings: 5,
            ipv4: Some(Ipv4Addr::new(10, 0, 0, 1)),
            ipv6: Some(Ipv6Addr::LOCALHOST),
            ifindex: 7,
            mtu: 1500,
            any_mac: true,
            reverse_path: ReversePath::Strict,
            route_generation: 0x8_0003,
        };
        let bytes = port.value(9).to_bytes();
        assert_eq!(&bytes[..16], [2, 0, 0, 0, 0, 0xa0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let value = port.value(9);
        assert_eq!(value.source_tag, 2 << 60 | 3 << 41 | 9 << 32);
        assert_eq!((value.siblings, value.route_generation), (5, 0x8_0003));
        assert_eq!((value.ifindex, value.mtu, value.reverse_path), (7, 1500, 2));
        assert_eq!(bytes[32..36], [10, 0, 0, 1]);
        let own_mac = GatewayPort { any_mac: false, ..port.clone() };
        assert_eq!(&own_mac.value(9).to_bytes()[8..16], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        assert_eq!(GatewayPort { mac: [0; 6], ..port }.value(9).mac_mask, 0);
    }
}
