//! `bpf/core/stateplane_layouts.h`.

use crate::commit::COMMIT_COUNTERS;
use c_layout::{Header, Number, c_struct};
use manifest::{DROP_PORT, GENERATOR_PORT, MAX_PORTS};

/// In test mode a frame that goes to the loop (`stateplane_commit.h`) goes to this port plus the
/// number of its copies.
pub const LOOP_PORT: u32 = 0xff00;
/// Most copies of a frame.
pub const MOST_COPIES: u32 = 16;
/// Interfaces' indexes are below this.
pub const MAX_IFINDEX: u32 = 65_536;
/// Secrets that a switch can have; a power of two.
pub const SECRETS: usize = wire::MOST_SECRETS;
/// Bits of an address's hash in `sp_local_filter`.
pub const LOCAL_FILTER_BITS: u32 = 12;
/// Words of `sp_local_filter`.
pub const LOCAL_FILTER_WORDS: usize = 1 << (LOCAL_FILTER_BITS - 6);
/// By which an address is multiplied for its hash.
pub const LOCAL_FILTER_FACTOR: u32 = 2_654_435_761;

c_struct! {
    /// What a port has seen; in the map, on one CPU.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub struct PortStats as "sp_port_stats_value" {
        /// Frames in.
        pub rx_packets: u64,
        /// Bytes in.
        pub rx_bytes: u64,
        /// Frames out.
        pub tx_packets: u64,
        /// Bytes out.
        pub tx_bytes: u64,
        /// Frames that came in and were dropped.
        pub dropped: u64,
        /// Frames that came in and went to the kernel.
        pub to_host: u64,
    }
}

c_struct! {
    /// A counter's element; in the map, on one CPU.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub struct CounterValue as "sp_counter_value" {
        /// Packets counted.
        pub packets: u64,
        /// Bytes counted.
        pub bytes: u64,
    }
}

/// Verdicts in [`TestValue`].
pub mod verdict {
    /// The frame goes nowhere.
    pub const DROP: u32 = 0;
    /// Out of a port.
    pub const FORWARD: u32 = 1;
    /// Up to the kernel.
    pub const TO_HOST: u32 = 2;
}

c_struct! {
    /// A frame that is run in test mode: how it comes in, and what became of it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TestValue as "sp_test_value" {
        /// The P4 port that it comes in on.
        pub ingress_port: u32,
        /// Out of which it goes.
        pub egress_port: u32,
        /// SP_VERDICT_
        pub verdict: u32,
        /// In front of the frame: the kernel runs none under 14 bytes.
        pub padding_bytes: u32,
        /// Now.
        pub clock_ns: u64,
        /// Of a frame that is forwarded, without what is behind it to make 14 bytes.
        pub egress_bytes: u32,
        /// On which CPU the program believes to run (stateplane_commit.h).
        pub cpu: u32,
    }
}

c_struct! {
    /// A bit for each of the host's own addresses, by their hash: a packet whose bit is not set
    /// costs no look-up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LocalFilterValue as "sp_local_filter_value" {
        /// Bit n is in word n / 64.
        pub word: [u64; LOCAL_FILTER_WORDS],
    }
}

c_struct! {
    /// All secrets that are accepted, and which one is sent with. One value, so that a change is
    /// one write.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct SecretSetValue as "sp_secret_set" {
        /// As SipHash takes them: two little-endian words.
        pub secret: [[u64; 2]; SECRETS],
        /// Bit n: secret n is there.
        pub present: u32,
        /// The number of the one that tags what is sent.
        pub sends: u32,
    }
}

/// The C file.
pub fn header() -> Header {
    use c_layout::CStruct;
    let about = "what the platform's headers share with user space.";
    let (source, update) =
        ("switch/dataplane/src/layouts/core.rs", "cargo test -p dataplane --lib layouts");
    let counters = COMMIT_COUNTERS.map(|(name, _)| format!("SP_COMMIT_{}", name.to_uppercase()));
    let mut counted: Vec<Number<'_>> = counters.iter().map(|name| Number::next(name, "")).collect();
    counted.push(Number::next("SP_COMMIT_STATS", "how many"));
    Header::new("stateplane_layouts.h", about, source, update)
        .defines(&[
            Number::new("SP_DROP_PORT", DROP_PORT.into(), "the P4 port of what is dropped"),
            Number::new(
                "SP_GENERATOR_PORT",
                GENERATOR_PORT.into(),
                "the P4 port of generated packets",
            ),
            Number::new(
                "SP_LOOP_PORT",
                LOOP_PORT.into(),
                "in test mode: to the loop, in as many copies as this is less than the port",
            ),
            Number::new("SP_MAX_PORTS", MAX_PORTS.into(), "P4 ports"),
            Number::new("SP_MAX_IFINDEX", MAX_IFINDEX.into(), "interfaces' indexes are below"),
            Number::new("SP_SECRETS", SECRETS as u64, "secrets; a power of two"),
            Number::new("SP_LOCAL_FILTER_BITS", LOCAL_FILTER_BITS.into(), "of an address's hash"),
            Number::new("SP_LOCAL_FILTER_FACTOR", LOCAL_FILTER_FACTOR.into(), "of the hash"),
        ])
        .enumeration(
            "",
            "What becomes of a frame in test mode.",
            &[
                Number::new("SP_VERDICT_DROP", verdict::DROP.into(), ""),
                Number::new("SP_VERDICT_FORWARD", verdict::FORWARD.into(), ""),
                Number::new("SP_VERDICT_TO_HOST", verdict::TO_HOST.into(), ""),
            ],
        )
        .enumeration("sp_commit_stat", "What output commit counts.", &counted)
        .structure(&PortStats::LAYOUT)
        .structure(&CounterValue::LAYOUT)
        .structure(&TestValue::LAYOUT)
        .structure(&LocalFilterValue::LAYOUT)
        .structure(&SecretSetValue::LAYOUT)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/core");
        super::header().assert_is(format!("{folder}/stateplane_layouts.h"));
    }
}
