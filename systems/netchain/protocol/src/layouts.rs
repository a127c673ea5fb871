//! What NetChain's data plane shares with user space in maps. The C header
//! `bpf/netchain/stateplane_slots_layouts.h` is made of it.

use crate::Operation;
use c_layout::{CStruct, Header, Member, Number, SpinLock, c_struct};
use std::net::Ipv4Addr;

/// What the runtime counts, in the order of its map `sp_slots_stats`. For a reason to drop or
/// refuse a packet: the remedy.
pub const COUNTED: [(&str, Option<&str>); 5] = [
    ("slots_again", None),
    (
        "slots_too_often",
        Some(
            "too many packets write one key at once: their clients ask again; spread the key's writes",
        ),
    ),
    (
        "slots_no_read",
        Some(
            "the program writes a key that it has not read; no packet of such a program can write",
        ),
    ),
    ("slots_full", Some("all slots hold keys: compile the program with more of them")),
    (
        "no_window",
        Some(
            "too many clients at once: compile the program with more windows; one is free when its \
             client has been silent for 60 s",
        ),
    ),
];

/// What a MessageTag drops or refuses, in the order of its map `sp_tags_drops`: reason and remedy.
/// The first one is of members, the others of clients.
pub const TAG_DROPS: [(&str, &str); 5] = [
    (
        "forged_member",
        "somebody without the fabric's secret sends messages of members, or a member has other \
         secrets: compare `stateplane keys show` on all of them",
    ),
    (
        "forged",
        "somebody uses the number of a key without its secret, or a client has a damaged \
         identity file; `stateplane status --json` says which key",
    ),
    (
        "unknown_key",
        "clients without a key, or with one that was revoked or is out of date: `stateplane kv \
         key list`; all switches need the same file",
    ),
    (
        "over_rate",
        "a client sends more than its rate_per_s: let it wait, or raise it in the file of keys",
    ),
    (
        "denied",
        "a client asks for what its key does not allow; `stateplane status --json` says which, \
         `stateplane kv key list` what it may do",
    ),
];

/// Places for clients' keys: numbers from 1 on; 0 is for all clients without a key.
pub const KEY_PLACES: u32 = crate::KEYS_MAX as u32 + 1;

/// Bits of [`ClientKeyValue::rights`].
pub mod rights {
    /// The client may read.
    pub const READ: u64 = 1;
    /// It may write.
    pub const WRITE: u64 = 2;
}

c_struct! {
    /// A client's key.
    #[derive(Clone, Copy, Default, PartialEq, Eq)]
    pub struct ClientKeyValue as "sp_client_key" {
        /// As SipHash takes it: two little-endian words.
        pub secret: [u64; 2],
        /// Of the keys of the store that it may name: high and low word.
        pub prefix: [u64; 2],
        /// The bits of the prefix that count.
        pub mask: [u64; 2],
        /// Of its messages, on average; 0: any rate.
        pub interval_ns: u64,
        /// So far it may be ahead of that.
        pub ahead_ns: u64,
        /// SP_TAGS_READ, SP_TAGS_WRITE; 0: there is no such key.
        pub rights: u64,
    }
}

c_struct! {
    /// Messages of a client that were dropped or refused; in the map, on one CPU.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ClientDropsValue as "sp_client_drops" {
        /// The key does not make their tags.
        pub forged: u64,
        /// They ask for what the client may not do.
        pub denied: u64,
        /// They are above its rate.
        pub over_rate: u64,
    }
}

/// Peers that a switch can have: their numbers are below it, and fit into a byte beside
/// [`NO_PEER`].
pub const PEERS: u32 = 255;

/// In the place of a peer's number: nobody.
pub const NO_PEER: u8 = 255;

/// Generated frames that can wait to be made.
pub const PEERS_DUE: u32 = 8192;

/// By so much the data plane's lease is shorter than the one that the controller waits for: the
/// clock that reads are compared with is that of the last tick (10 ms with the slowest one), on a
/// CPU that may have been stopped meanwhile.
pub const LEASE_CLOCK_MARGIN_MS: u64 = 20;

/// What the data plane counts of peers, in the order of its map `sp_peers_stats`.
pub const PEERS_COUNTED: [&str; 4] = ["probes", "answers", "foreign", "copies"];

c_struct! {
    /// A peer, as the agent says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PeerValue as "sp_peer" {
        /// When it became this switch's peer (CLOCK_MONOTONIC).
        pub since_ns: u64,
        /// Its address; 0: there is none with this number.
        pub address: Ipv4Addr,
        /// So that the size is a multiple of eight.
        pub padding: u32,
    }
}

c_struct! {
    /// What the data plane knows of a peer.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PeerClockValue as "sp_peer_clock" {
        /// The newest clock that it has returned (CLOCK_MONOTONIC); 0: none yet.
        pub heard_ns: u64,
        /// When the lease of it ends; 0: there was none yet.
        pub lease_until_ns: u64,
    }
}

c_struct! {
    /// What probes carry, and how long a lease holds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PeerSettingsValue as "sp_peer_settings" {
        /// Of a lease, from the probe's clock on.
        pub lease_ns: u64,
        /// A number of this life of the agent's.
        pub life: u64,
        /// This switch's NetChain address.
        pub own: Ipv4Addr,
        /// Fingerprint of the ring.
        pub ring: u32,
    }
}

c_struct! {
    /// What a generated frame becomes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PeersDueValue as "sp_peers_due" {
        /// An operation of a message.
        pub operation: u32,
        /// Of the peer, or of the slot that is copied.
        pub number: u32,
        /// Where it goes.
        pub to: Ipv4Addr,
        /// Of a slot that is copied; the object has it in the manifest.
        pub part: u16,
        /// The object.
        pub object: u16,
    }
}

c_struct! {
    /// What is noted of a slot, beside it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SlotMark as "sp_slot_mark" {
        /// The view in which another switch has acknowledged a copy.
        pub copied_view: u32,
        /// The part of all slots that its key belongs to.
        pub part: u16,
        /// 0: it is free.
        pub used: u16,
    }
}

impl SlotMark {
    /// One that was read as a word.
    pub fn from_word(word: u64) -> SlotMark {
        SlotMark::from_bytes(&word.to_ne_bytes())
    }
}

/// Bytes of an object's value at the most: the runtime's scratch holds as much.
pub const SCRATCH_VALUE_BYTES: u32 = 512;

c_struct! {
    /// With what every slot begins; its key and its value follow, padded to whole words.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SlotHead as "sp_slot_head" {
        /// Held while the slot changes.
        pub lock: SpinLock,
        /// Odd while a CPU writes the slot.
        pub generation: u32,
    }
}

c_struct! {
    /// With what every client's window begins; its key follows, padded to whole words, then its
    /// cells.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WindowHead as "sp_window_head" {
        /// When the newest request came (CLOCK_MONOTONIC); 0: the window is free.
        pub heard_ns: u64,
    }
}

/// Cells of a client's window: requests that it may have under way.
pub const WINDOW_CELLS: u32 = 256;

/// Where in a window its cells begin.
pub const fn window_cells_offset(key_bytes: u32) -> u32 {
    WindowHead::BYTES as u32 + key_bytes.next_multiple_of(8)
}

/// Where in a slot its value begins.
pub const fn slot_value_offset(key_bytes: u32) -> u32 {
    SlotHead::BYTES as u32 + key_bytes.next_multiple_of(8)
}

/// The C file.
pub fn header() -> Header {
    let about = "what NetChain's data plane shares with user space in maps.";
    let (source, update) =
        ("systems/netchain/protocol/src/layouts.rs", "cargo test -p netchain-protocol --lib");
    let names = COUNTED.map(|(name, _)| {
        let name = name.strip_prefix("slots_").unwrap_or(name);
        format!("SP_SLOTS_STAT_{}", name.to_uppercase())
    });
    let names = names.iter().map(String::as_str).chain(["SP_SLOTS_STAT_COUNT"]);
    let counters: Vec<Number<'_>> = names.map(|name| Number::next(name, "")).collect();
    let of_peers = PEERS_COUNTED.map(|name| format!("SP_PEERS_STAT_{}", name.to_uppercase()));
    let of_peers = of_peers.iter().map(String::as_str).chain(["SP_PEERS_STAT_COUNT"]);
    let peers: Vec<Number<'_>> = of_peers.map(|name| Number::next(name, "")).collect();
    Header::new("stateplane_slots_layouts.h", about, source, update)
        .defines(&[
            Number::new("SP_SLOTS_VALUE_MAX", SCRATCH_VALUE_BYTES.into(), "bytes"),
            Number::new("SP_WINDOW_CELLS", WINDOW_CELLS.into(), "of a client's window"),
            Number::new("SP_TAGS_KEYS", KEY_PLACES.into(), "keys; number 0: clients without one"),
            Number::new("SP_TAGS_READ", rights::READ, "the client may read"),
            Number::new("SP_TAGS_WRITE", rights::WRITE, "it may write"),
            Number::new("SP_PEERS", PEERS.into(), "peers; their numbers are below it"),
            Number::new("SP_PEERS_DUE", PEERS_DUE.into(), "generated frames that wait"),
            Number::new("SP_PEERS_PROBE", Operation::Probe as u64, "the operation of a probe"),
        ])
        .enumeration("", "Of the map sp_slots_stats.", &counters)
        .enumeration("", "Of the map sp_peers_stats.", &peers)
        .beginning(&SlotHead::LAYOUT, "SP_SLOT_HEAD")
        .beginning(&WindowHead::LAYOUT, "SP_WINDOW_HEAD")
        .structure(&ClientKeyValue::LAYOUT)
        .structure(&ClientDropsValue::LAYOUT)
        .structure(&PeerValue::LAYOUT)
        .structure(&PeerClockValue::LAYOUT)
        .structure(&PeerSettingsValue::LAYOUT)
        .structure(&PeersDueValue::LAYOUT)
        .structure(&SlotMark::LAYOUT)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/netchain");
        super::header().assert_is(format!("{folder}/stateplane_slots_layouts.h"));
    }
}
