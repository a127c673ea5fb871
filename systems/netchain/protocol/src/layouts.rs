//! What NetChain's data plane shares with user space in maps. The C header
//! `bpf/netchain/stateplane_slots_layouts.h` is made of it.

use c_layout::{CStruct, Header, Member, Number, SpinLock, c_struct};

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
    Header::new("stateplane_slots_layouts.h", about, source, update)
        .defines(&[
            Number::new("SP_SLOTS_VALUE_MAX", SCRATCH_VALUE_BYTES.into(), "bytes"),
            Number::new("SP_WINDOW_CELLS", WINDOW_CELLS.into(), "of a client's window"),
            Number::new("SP_TAGS_KEYS", KEY_PLACES.into(), "keys; number 0: clients without one"),
            Number::new("SP_TAGS_READ", rights::READ, "the client may read"),
            Number::new("SP_TAGS_WRITE", rights::WRITE, "it may write"),
        ])
        .enumeration("", "Of the map sp_slots_stats.", &counters)
        .beginning(&SlotHead::LAYOUT, "SP_SLOT_HEAD")
        .beginning(&WindowHead::LAYOUT, "SP_WINDOW_HEAD")
        .structure(&ClientKeyValue::LAYOUT)
        .structure(&ClientDropsValue::LAYOUT)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/netchain");
        super::header().assert_is(format!("{folder}/stateplane_slots_layouts.h"));
    }
}
