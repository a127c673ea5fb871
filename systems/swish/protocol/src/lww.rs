//! Registers, tables and sets with EWO, of which the last writer wins: what the data plane shares
//! with user space in maps. The C header `bpf/swish/stateplane_lww_layouts.h` is made of it.

use c_layout::{CStruct, Header, Number, c_struct};

/// 64-bit words of a key at the most.
pub const KEY_WORDS: usize = 4;
/// 64-bit words of a value at the most.
pub const VALUE_WORDS: usize = 8;
/// Of a record in front of its key: [`HeadValue`] and the lock.
pub const RECORD_HEAD_BYTES: u32 = 48;
/// Of a write in front of its key, in a message.
pub const ENTRY_HEAD_BYTES: u32 = 32;
/// Writes of one packet at the most.
pub const WRITES: u32 = 16;
/// Of the map from keys to records: more entries than records, as CPUs keep free ones of their own.
pub const SPARE: u32 = 1024;

/// Flags of records and of writes.
pub mod flag {
    /// The record has a key.
    pub const HELD: u32 = 1;
    /// The key was removed: a tombstone.
    pub const REMOVED: u32 = 2;
    /// Of a write: only if the key is not there.
    pub const ABSENT: u32 = 4;
    /// Of a write: only if the key is there.
    pub const PRESENT: u32 = 8;
}

c_struct! {
    /// What a record begins with.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct HeadValue as "sp_lww_head" {
        /// Of the write that made it: TAI, or more; 0: there was none.
        pub time: u64,
        /// The life that wrote it.
        pub writer: u64,
        /// One more than its newest place in the list of changes; 0: none.
        pub listed: u64,
        /// A tombstone: since when this switch has it (CLOCK_MONOTONIC).
        pub since: u64,
        /// SP_LWW_HELD, SP_LWW_REMOVED.
        pub flags: u32,
        /// Which object's it is.
        pub object: u32,
    }
}

c_struct! {
    /// A group's records on this switch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NodeValue as "sp_lww_node" {
        /// The largest time that was seen. A cache line of its own.
        pub clock: u64,
        /// The largest time of a tombstone that was forgotten.
        pub forgotten: u64,
        /// To the end of the cache line.
        pub clock_padding: [u64; 6],
        /// Places of the list of changes that are given out. A cache line of its own.
        pub listed: u64,
        /// See `clock_padding`.
        pub listed_padding: [u64; 7],
        /// Places below this were sent to some member. A cache line of its own.
        pub taken: u64,
        /// See `clock_padding`.
        pub taken_padding: [u64; 7],
    }
}

c_struct! {
    /// What user space says of a group.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TermsValue as "sp_lww_terms" {
        /// Tombstones that are here since before have ended (CLOCK_MONOTONIC).
        pub forget_before: u64,
        /// A bit for each member that this switch hears.
        pub hears: u64,
    }
}

c_struct! {
    /// A member of a group, as this switch knows it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MemberValue as "sp_lww_member" {
        /// The place of the list of changes that it is sent next.
        pub next: u64,
        /// A bit for each member that it hears, as it said last.
        pub hears: u64,
        /// When it sent its newest message with records, by its clock (TAI).
        pub sent_ns: u64,
        /// Messages with records that were newer than all before.
        pub newer: u64,
    }
}

c_struct! {
    /// How many records an object has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CountsValue as "sp_lww_counts" {
        /// Places that were ever given out.
        pub used: u64,
        /// Keys that are there.
        pub live: u64,
        /// Tombstones.
        pub removed: u64,
        /// Writes of this switch that found no room.
        pub full: u64,
        /// Writes of other switches that found none.
        pub full_of_others: u64,
    }
}

c_struct! {
    /// What an operator writes: in front of key and value.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OrderValue as "sp_lww_order" {
        /// Which object.
        pub object: u32,
        /// SP_LWW_REMOVED, SP_LWW_ABSENT, SP_LWW_PRESENT.
        pub flags: u32,
    }
}

/// A record in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// See [`HeadValue`].
    pub time: u64,
    /// See [`HeadValue`].
    pub writer: u64,
    /// It is a tombstone.
    pub removed: bool,
    /// Which object's it is.
    pub object: u32,
    /// In wire form, in 64-bit words.
    pub key: Vec<u64>,
    /// See `key`.
    pub value: Vec<u64>,
}

/// The C file.
pub fn header() -> Header {
    let about = "what registers, tables and sets with EWO share with user space in maps.";
    let (source, update) =
        ("systems/swish/protocol/src/lww.rs", "cargo test -p swish-protocol --lib");
    let number = |name: &'static str, value: u32, about: &'static str| {
        Number::new(name, u64::from(value), about)
    };
    Header::new("stateplane_lww_layouts.h", about, source, update)
        .defines(&[
            number("SP_LWW_HELD", flag::HELD, "the record has a key"),
            number("SP_LWW_REMOVED", flag::REMOVED, "the key was removed"),
            number("SP_LWW_ABSENT", flag::ABSENT, "a write, if the key is not there"),
            number("SP_LWW_PRESENT", flag::PRESENT, "a write, if it is there"),
            number("SP_LWW_SPARE", SPARE, "free entries of the index"),
        ])
        .structure(&HeadValue::LAYOUT)
        .structure(&NodeValue::LAYOUT)
        .structure(&TermsValue::LAYOUT)
        .structure(&MemberValue::LAYOUT)
        .structure(&CountsValue::LAYOUT)
        .structure(&OrderValue::LAYOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/swish");
        header().assert_is(format!("{folder}/stateplane_lww_layouts.h"));
    }
}
