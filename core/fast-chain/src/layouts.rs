//! What a store's user space and its XDP program share: the maps' values. The C header
//! `bpf/core/stateplane_fast_layouts.h` is made of them.

use crate::count::Count;
use c_layout::{Be16, CStruct, Header, Member, Number, c_struct};
use std::net::Ipv4Addr;
use wire::{MOST_SECRETS, PORT};

/// Most 8-byte words of a record's key and value: three cache lines with what is in front.
pub const MOST_CONTENT_WORDS: usize = 19;
/// Objects with numbers below this may have records here.
pub const MOST_OBJECTS: usize = 64;
/// Records that an index line can name.
pub const LINE_ENTRIES: usize = 8;

/// The lock is free.
pub const LOCK_FREE: u64 = 0;
/// A run of the program has the lock.
pub const LOCK_PROGRAM: u64 = 1;
/// User space has the lock.
pub const LOCK_STORE: u64 = 2;

/// In `FastShard::standing`: the program takes batches of the shard.
pub const STANDING_ON: u32 = 1;
/// The same: this member is the head.
pub const STANDING_HEAD: u32 = 2;
/// The same: it is the tail.
pub const STANDING_TAIL: u32 = 4;

c_struct! {
    /// A shard, as one member of its chain sees it: a cache line.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FastShard as "sp_fast_shard" {
        /// SP_FAST_LOCK_*: held while anything of the shard is read or changed.
        pub lock: u64,
        /// Number of the view.
        pub view: u64,
        /// SP_FAST_STANDING_*.
        pub standing: u32,
        /// The first of the records that the program changed, plus one; 0: none.
        pub changed: u32,
        /// The member before this one; 0: none.
        pub previous: Ipv4Addr,
        /// The member behind this one; 0: none.
        pub next: Ipv4Addr,
        /// UDP port of the member behind this one.
        pub next_port: Be16,
        /// Zero.
        pub zero: [u16; 15],
    }
}

c_struct! {
    /// A record of a shard: three cache lines. A short key and value are in the first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FastRecord as "sp_fast_record" {
        /// The object's number in the manifest.
        pub object_id: u16,
        /// Words of the key; 0: no record is here.
        pub key_words: u8,
        /// Words of the value.
        pub value_words: u8,
        /// The system's own bits of a record's flags.
        pub flags: u8,
        /// In the list of records that the program changed.
        pub changed: u8,
        /// Zero.
        pub zero: u16,
        /// The newest grant.
        pub epoch: u32,
        /// Its owner's session; 0: at the head, only user space may take an update.
        pub session: u32,
        /// Of the newest update.
        pub seq: u64,
        /// The owner; 0: nobody.
        pub switch_id: u32,
        /// Which of the owner's lives.
        pub incarnation: u32,
        /// The store's own number of the record.
        pub slot: u32,
        /// The next record that the program changed, plus one; 0: none.
        pub next_changed: u32,
        /// Key and value, each filled up with zeros to whole words, as on the wire.
        pub content: [u64; MOST_CONTENT_WORDS],
    }
}

c_struct! {
    /// Lengths of an object's keys and values; zero: its records are not here.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FastObject as "sp_fast_object" {
        /// Words of a key.
        pub key_words: u8,
        /// Words of a value.
        pub value_words: u8,
        /// Bits behind the value in its last word, which are zero.
        pub value_rest_bits: u8,
        /// Zero.
        pub zero: u8,
    }
}

c_struct! {
    /// What holds for all shards.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FastConfig as "sp_fast_config" {
        /// Of the hash of keys: hosts choose keys, and must not choose where they lie.
        pub seed: u64,
        /// The secrets by their numbers, as two little-endian words each.
        pub secrets: [[u64; 2]; MOST_SECRETS],
        /// Bit n: secret n is known.
        pub known_secrets: u8,
        /// Number of the secret that messages are signed with.
        pub send: u8,
        /// UDP port of this member.
        pub port: Be16,
        /// Address of this member.
        pub address: Ipv4Addr,
        /// Number of shards.
        pub shards: u32,
        /// Records of a shard.
        pub records: u32,
        /// Index lines of a shard, less one: all ones.
        pub line_mask: u32,
        /// Zero.
        pub zero: u32,
        /// By the object's number.
        pub objects: [FastObject; MOST_OBJECTS],
    }
}

const _: () = assert!(FastShard::BYTES == 64 && FastRecord::BYTES == 192);

/// The C file.
pub fn header() -> Header {
    let about = "a chain's fast path: what user space of a store and its program share.";
    let number = |name, value: usize, doc| Number::new(name, value as u64, doc);
    let counts: Vec<(String, Count)> =
        Count::ALL.iter().map(|count| (count.c_name(), *count)).collect();
    let mut counts: Vec<Number<'_>> = counts
        .iter()
        .map(|(name, count)| Number::new(name, *count as u64, count.meaning()))
        .collect();
    counts.push(number("SP_FAST_COUNTS", Count::ALL.len(), ""));
    Header::new(
        "stateplane_fast_layouts.h",
        about,
        "core/fast-chain/src/layouts.rs",
        "cargo test -p fast-chain --lib layouts",
    )
    .defines(&[
        number("SP_FAST_PORT", PORT.into(), "UDP port of switches"),
        number("SP_FAST_OBJECTS", MOST_OBJECTS, "objects that have numbers below"),
        number("SP_FAST_CONTENT_WORDS", MOST_CONTENT_WORDS, "of a record's key and value"),
        number("SP_FAST_LINE_ENTRIES", LINE_ENTRIES, "records that an index line names"),
        number("SP_FAST_SECRETS", MOST_SECRETS, ""),
        Number::new("SP_FAST_LOCK_FREE", LOCK_FREE, ""),
        Number::new("SP_FAST_LOCK_PROGRAM", LOCK_PROGRAM, "a run of the program has it"),
        Number::new("SP_FAST_LOCK_STORE", LOCK_STORE, "user space has it"),
        Number::new("SP_FAST_STANDING_ON", STANDING_ON.into(), "batches are taken"),
        Number::new("SP_FAST_STANDING_HEAD", STANDING_HEAD.into(), ""),
        Number::new("SP_FAST_STANDING_TAIL", STANDING_TAIL.into(), ""),
    ])
    .enumeration("sp_fast_count", "What the program counts.", &counts)
    .structure(&FastShard::LAYOUT)
    .structure(&FastRecord::LAYOUT)
    .structure(&FastObject::LAYOUT)
    .structure(&FastConfig::LAYOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/core");
        header().assert_is(format!("{folder}/stateplane_fast_layouts.h"));
    }
}
