//! `bpf/net/stateplane_gateway_layouts.h`.

use crate::gateway::{GATEWAY_DROPS, GATEWAY_EVENTS, KERNEL_PORT, ReversePath};
use c_layout::{CStruct, Header, Number, c_struct};
use std::net::{Ipv4Addr, Ipv6Addr};

/// How long the program goes by what it remembers of a first fragment: RFC 791 and RFC 8200 have a
/// receiver wait at least so long for the rest of a packet.
pub const FRAGMENT_LIFE_NS: u64 = 30_000_000_000;
/// In front of a fragment that the agent held and runs again, as its XDP metadata: such a one is
/// not held twice.
pub const RELEASED: u64 = 0x7370_7265_6c65_6173;
/// [`SlowRecord::kind`]: the kernel is to send it as it is; the agent strips the Ethernet header.
pub const SLOW_SEND: u32 = 1;
/// [`SlowRecord::kind`]: a fragment as it came in; hold it until its key is in `sp_fragments`.
pub const SLOW_HOLD: u32 = 2;

c_struct! {
    /// What user space tells of a port.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PortValue as "sp_gateway_port_value" {
        /// As the first eight bytes of a frame for it, the last two 0; 0: not known.
        pub mac: u64,
        /// What of it a unicast frame must have; any MAC: only that it is unicast.
        pub mac_mask: u64,
        /// Of sp_gateway_sources_ipv4 the bits 32 to 61: port, route generation, reverse path.
        pub source_tag: u64,
        /// Bit p: port p below 64 shares a multipath route with this one.
        pub siblings: u64,
        /// The source of ICMP errors; 0: none.
        pub ipv4: Ipv4Addr,
        /// The same of ICMPv6.
        pub ipv6: Ipv6Addr,
        /// Its interface.
        pub ifindex: u32,
        /// Bytes of an IP packet; 0: not known.
        pub mtu: u32,
        /// Grows with each change of routes, rules, addresses and links: what is known of sources
        /// is void then.
        pub route_generation: u32,
        /// SP_REVERSE_PATH_
        pub reverse_path: u8,
        /// Zero.
        pub zero: [u8; 7],
    }
}

c_struct! {
    /// The switch's settings.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SettingsValue as "sp_gateway_settings_value" {
        /// ICMP errors a second; 0: none.
        pub icmp_rate_per_s: u32,
        /// 0: clamp_tcp_mss has no effect.
        pub clamp_mss: u32,
        /// 0: the agent takes no fragments.
        pub hold_fragments: u32,
    }
}

c_struct! {
    /// A key of an LPM trie of IPv4 prefixes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PrefixIpv4 as "sp_gateway_prefix_ipv4" {
        /// Its length.
        pub bits: u32,
        /// What it begins with.
        pub address: Ipv4Addr,
    }
}

c_struct! {
    /// Which fragments are parts of one packet. IPv4 addresses stand in the last four bytes of
    /// sixteen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FragmentKeyValue as "sp_fragment_key" {
        /// The packet's.
        pub source: Ipv6Addr,
        /// The packet's.
        pub destination: Ipv6Addr,
        /// The packet's.
        pub identification: u32,
        /// The packet's.
        pub protocol: u8,
        /// Zero.
        pub zero: [u8; 3],
    }
}

c_struct! {
    /// What the program hands to the agent; `length` bytes of the frame follow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RecordHead as "sp_slow_record" {
        /// SP_SLOW_
        pub kind: u32,
        /// The P4 port that it came in on.
        pub port: u32,
        /// Bytes of the frame.
        pub length: u32,
        /// Zero.
        pub zero: u32,
        /// Of SP_SLOW_HOLD.
        pub key: FragmentKeyValue,
    }
}

c_struct! {
    /// What is known of a first fragment.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FragmentValue as "sp_fragment_value" {
        /// When it came (bpf_ktime_get_ns).
        pub seen_ns: u64,
        /// Its ports.
        pub source_port: u16,
        /// Its ports.
        pub destination_port: u16,
        /// Zero.
        pub zero: u32,
    }
}

/// The C file.
pub fn header() -> Header {
    let about = "what the parts for gateways share with user space.";
    let (source, update) =
        ("switch/dataplane/src/layouts/net.rs", "cargo test -p dataplane --lib layouts");
    let upper = |prefix: &str, name: &str| format!("{prefix}{}", name.to_uppercase());
    let drops = GATEWAY_DROPS.map(|(name, _)| upper("SP_DROP_", name));
    let events = GATEWAY_EVENTS.map(|(name, _)| upper("SP_EVENT_", name));
    let counted = |names: &'_ [String], last: &'static str, doc: &'static str| {
        let names = names.iter().map(|name| (name.clone(), ""));
        names.chain([(last.to_owned(), doc)]).collect::<Vec<_>>()
    };
    let (drops, events) = (
        counted(&drops, "SP_DROP_REASONS", "as a result: none"),
        counted(&events, "SP_EVENTS", "how many"),
    );
    fn numbers<'a>(named: &'a [(String, &'a str)]) -> Vec<Number<'a>> {
        named.iter().map(|(name, doc)| Number::next(name, doc)).collect()
    }
    Header::new("stateplane_gateway_layouts.h", about, source, update)
        .defines(&[
            Number::new(
                "SP_KERNEL_PORT",
                KERNEL_PORT.into(),
                "the P4 port by which the kernel sends",
            ),
            Number::new(
                "SP_FRAGMENT_LIFE_NS",
                FRAGMENT_LIFE_NS,
                "of what is remembered of a first fragment",
            ),
            Number::new("SP_RELEASED_META", RELEASED, "in front of a fragment that was held"),
        ])
        .enumeration(
            "",
            "What is asked of a source.",
            &[
                Number::new("SP_REVERSE_PATH_OFF", ReversePath::Off as u64, ""),
                Number::new("SP_REVERSE_PATH_LOOSE", ReversePath::Loose as u64, ""),
                Number::new("SP_REVERSE_PATH_STRICT", ReversePath::Strict as u64, ""),
            ],
        )
        .enumeration(
            "",
            "What the agent is to do with a frame.",
            &[
                Number::new(
                    "SP_SLOW_SEND",
                    SLOW_SEND.into(),
                    "send it without its Ethernet header",
                ),
                Number::new(
                    "SP_SLOW_HOLD",
                    SLOW_HOLD.into(),
                    "hold a fragment until its key is in sp_fragments",
                ),
            ],
        )
        .enumeration("sp_gateway_drop", "Why gateway_check() said no.", &numbers(&drops))
        .enumeration("sp_gateway_event", "What else is counted.", &numbers(&events))
        .structure(&PortValue::LAYOUT)
        .structure(&SettingsValue::LAYOUT)
        .structure(&PrefixIpv4::LAYOUT)
        .structure(&FragmentKeyValue::LAYOUT)
        .structure(&RecordHead::LAYOUT)
        .structure(&FragmentValue::LAYOUT)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/net");
        super::header().assert_is(format!("{folder}/stateplane_gateway_layouts.h"));
    }
}
