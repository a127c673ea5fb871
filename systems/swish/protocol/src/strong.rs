//! SRO's maps and messages (`bpf/swish/stateplane_strong*.h`). The C header
//! `bpf/swish/stateplane_strong_layouts.h` is made of this.

use crate::layouts::MEMBERS;
use c_layout::{CStruct, Header, Number, c_struct};
use siphasher::sip::SipHasher24;
use std::fmt;
use std::hash::Hasher;
use std::net::Ipv4Addr;

/// The UDP port of members of a chain.
pub const PORT: u16 = 5414;
/// Words of 8 bytes of a message in front of its records.
pub const HEADER_WORDS: u32 = 9;
/// Words of a record in front of its key.
pub const RECORD_WORDS: u32 = 2;
/// Records of a batch.
pub const RECORDS: u32 = 63;
/// Words of a batch's records.
pub const WORDS: u32 = 175;
/// Batches that a member keeps: so many may be on their way to the tail.
pub const LOG: u32 = 256;
/// Removed keys that a member remembers: the next one makes it forget the oldest.
pub const TOMBS: u32 = 1024;
/// CPUs of a switch with streams of their own.
pub const CPUS: u32 = 64;
/// Bytes of a key, and of a value, at the most.
pub const KEY_BYTES: u32 = 40;
/// See [`KEY_BYTES`].
pub const VALUE_BYTES: u32 = 64;
/// Writes of one packet.
pub const PACKET_RECORDS: u32 = 8;
/// Words of one packet's records.
pub const PACKET_WORDS: u32 = 64;
/// Objects of a program.
pub const OBJECTS: u32 = 16;
/// Programs that call each other (`sp_strong_programs`).
pub const PROGRAMS: u32 = 11;
/// Words of `sp_strong_words`.
pub const NODE_WORDS: u32 = 2;
/// `struct sp_strong_scratch`: a message with a key and a value behind it, where its records begin,
/// the record at hand, the packet's writes, the finished packet.
pub const SCRATCH_BYTES: u32 = 8 * (HEADER_WORDS + WORDS)
    + 2 * (KEY_BYTES + VALUE_BYTES)
    + (RECORDS + 1)
    + 2 * 8
    + (3 * 4 + OBJECTS).next_multiple_of(8)
    + 8 * PACKET_WORDS
    + PACKET_RECORDS
    + 2 * 8;

/// What a message is. No message of windows begins with one of these bytes and is as long.
pub mod kind {
    /// An origin's batch, to the head.
    pub const REQUEST: u8 = 16;
    /// A decided batch, down the chain.
    pub const BATCH: u8 = 32;
    /// The tail has a batch.
    pub const ACK: u8 = 48;
    /// It goes round the chain: all members are in this view.
    pub const ROUND: u8 = 64;
    /// Keys and streams, to a member that joins.
    pub const COPY: u8 = 80;
    /// It has them.
    pub const COPIED: u8 = 96;
    /// Without controllers: which life its sender is in, and whose lives it agrees to.
    pub const HELLO: u8 = 112;
    /// All of them.
    pub const ALL: [u8; 7] = [REQUEST, BATCH, ACK, ROUND, COPY, COPIED, HELLO];
    /// Those without records.
    pub const SHORT: [u8; 3] = [ACK, ROUND, HELLO];
}

/// Flags of a record.
pub mod flag {
    /// The next record is the same packet's.
    pub const GROUP: u8 = 1;
    /// The key must be absent.
    pub const ABSENT: u8 = 2;
    /// The key must be as it was at the record's number.
    pub const SINCE: u8 = 4;
    /// The key is removed.
    pub const REMOVE: u8 = 8;
    /// Nothing is written: the packet waits until the tail has what it read.
    pub const READ: u8 = 16;
}

/// What a member does in a view.
pub mod standing {
    /// It takes messages.
    pub const ON: u32 = 1;
    /// It decides.
    pub const HEAD: u32 = 2;
    /// It answers.
    pub const TAIL: u32 = 4;
    /// It is to be given what the others have.
    pub const JOINS: u32 = 8;
    /// The next one is.
    pub const GIVES: u32 = 16;
    /// Rounds lend it no more time to read: it is to leave.
    pub const QUIET: u32 = 32;
    /// No controller decides: members agree on their lives before the first one is on.
    pub const MEETS: u32 = 64;
}

/// What the data plane counts, in the order of its map `sp_strong_stats`. For a reason to drop a
/// packet or message: the remedy.
pub const COUNTED: [(&str, Option<&str>); 28] = [
    ("writes", None),
    ("reads_waited", None),
    ("decided", None),
    ("conflicts", None),
    ("applied", None),
    ("forwarded", None),
    ("answered", None),
    ("repeated", None),
    ("early", None),
    ("sent_again", None),
    ("ran_again", None),
    ("expired", None),
    ("rounds", None),
    ("copied", None),
    (
        "too_often",
        Some("a packet's writes lost to other switches' again and again: spread the keys"),
    ),
    ("table_full", Some("a SharedTable has as many keys as its size: make it larger, or remove")),
    (
        "no_lease",
        Some(
            "the switch may not read: it is not in the group, has not joined yet, or a member does \
             not answer: `stateplane shared status`",
        ),
    ),
    ("too_many", Some("a packet writes more keys than it may: 8 records, 512 bytes in all")),
    (
        "to_host",
        Some("a packet that wrote or read what is under way goes to the kernel: it cannot wait"),
    ),
    ("log_full", Some("the tail is far behind: see what slows it, or its link")),
    (
        "busy",
        Some("CPUs wait for each other at a member: they have more batches than they can take"),
    ),
    ("malformed", Some("messages of another version, or somebody forges them")),
    ("foreign", Some("messages of another view, or of no member: members disagree on the group")),
    (
        "restarted",
        Some(
            "a member of a group without controllers restarted without its state: begin the group \
             anew; `stateplane shared status` names it",
        ),
    ),
    ("forged", Some("somebody without the fabric's secret sends messages of switches")),
    ("no_route", Some("no route or neighbour for a member's address: `ip route get`, `ip neigh`")),
    ("faults", Some("the data plane met a state that it must not: report it")),
    ("orders", None),
];

c_struct! {
    /// A chain's member on this switch: numbers of batches in the group's one order.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NodeValue as "sp_strong_node" {
        /// A CPU changes what is below; 0: none does.
        pub lock: u64,
        /// The view that this member has taken.
        pub view: u64,
        /// When (CLOCK_MONOTONIC).
        pub since_ns: u64,
        /// When a batch was last sent again.
        pub resent_ns: u64,
        /// Removed keys so far.
        pub tombs: u64,
        /// When the head last looked for keys whose time is over.
        pub swept_ns: u64,
        /// How often it did.
        pub sweeps: u64,
        /// To the end of the cache line.
        pub padding: u64,
        /// A batch up to this one may be half written.
        pub applying: u64,
        /// All batches up to this one are written here.
        pub applied: u64,
        /// The tail has all up to this one, as far as is known here.
        pub committed: u64,
        /// Keys that were removed up to this one may be forgotten.
        pub forgotten: u64,
        /// Packets may read until then (CLOCK_MONOTONIC).
        pub reads_ns: u64,
        /// All that the others have is here, too.
        pub whole: u64,
        /// It is known from which batch on this is a member.
        pub begun: u64,
        /// One that joins: all is here once this batch is; 0: that is not known yet.
        pub whole_at: u64,
        /// The newest round of this view that came by.
        pub round: u64,
        /// The head: it has come back.
        pub round_done: u64,
        /// When it came by.
        pub passed_ns: u64,
        /// When the one before it did.
        pub before_ns: u64,
        /// The head: when it last sent it.
        pub round_ns: u64,
        /// The part of a copy that is under way from here, or was the last one to come.
        pub part: u64,
        /// Where the one from here begins: table, then place.
        pub cursor: u64,
        /// When it was sent.
        pub part_ns: u64,
    }
}

c_struct! {
    /// A view of the group, as this switch is in it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ViewValue as "sp_strong_view" {
        /// Its number: at least 1.
        pub number: u64,
        /// The tail answers nothing until it has been in the view for so long: then leases of
        /// removed members are over.
        pub wait_ns: u64,
        /// So long packets read after all members were known to be in the view; 0: for good.
        pub lease_ns: u64,
        /// A number for the layout of the group's variables, in each tag.
        pub layout: u64,
        /// SP_STRONG_ON and the like.
        pub standing: u32,
        /// This switch's number as a member.
        pub own: u32,
        /// This life of the switch.
        pub incarnation: u32,
        /// The first of the chain.
        pub head: u32,
        /// The one behind this switch.
        pub next: u32,
        /// The one before it.
        pub previous: u32,
        /// The last of the chain.
        pub last: u32,
        /// To the end of the word.
        pub padding: u32,
        /// Without controllers: a number for the lives that this member agrees to; 0: it has not
        /// heard of all.
        pub offer: u64,
        /// By number: addresses of all members; 0.0.0.0: none.
        pub address: [u32; 32],
        /// Without controllers: the lives that it agrees to.
        pub life: [u32; 32],
    }
}

c_struct! {
    /// Without controllers: what was heard of a member.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LifeValue as "sp_strong_life" {
        /// When it was heard of (CLOCK_MONOTONIC); of this switch: when it last sent a hello.
        pub heard_ns: u64,
        /// The number for the lives that it agrees to.
        pub offer: u64,
        /// Batches that are written there.
        pub applied: u64,
        /// When another life of it was heard of.
        pub other_ns: u64,
        /// Its life; 0: it was never heard of.
        pub life: u32,
        /// Another life of it, whose messages are refused.
        pub other: u32,
        /// A bit for each member of which it refuses another life.
        pub refuses: u32,
        /// Of this switch: to whom the last hello went.
        pub turn: u32,
    }
}

c_struct! {
    /// The last batch of a stream that was decided.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct StreamValue as "sp_strong_stream" {
        /// Its number in the stream.
        pub batch: u64,
        /// Its number in the group's order.
        pub seq: u64,
        /// A bit for each record that was refused.
        pub refused: u64,
        /// Of those, which ones for want of room.
        pub full: u64,
        /// The origin's life.
        pub incarnation: u64,
    }
}

c_struct! {
    /// A table.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TableValue as "sp_strong_table" {
        /// Keys.
        pub live: u32,
        /// Records that were ever used.
        pub used: u32,
        /// The next record that the head looks at: is its time over?
        pub swept: u32,
        /// To the end of the word.
        pub padding: u32,
    }
}

/// What an operator's order is to do.
pub mod order {
    /// To read a key, as a packet does.
    pub const LOOK: u32 = 0;
    /// To write a record, as a packet does.
    pub const WRITE: u32 = 1;
    /// To tell whether a record that was written is answered.
    pub const ASK: u32 = 2;
}

/// What became of it.
pub mod outcome {
    /// It is done, or answered.
    pub const DONE: u32 = 0;
    /// The tail has not answered it; of a read: what was read.
    pub const WAITS: u32 = 1;
    /// There is no room in the open batch, or what was read is being written. Soon there is.
    pub const BUSY: u32 = 2;
    /// Packets may not read or write here.
    pub const NO_LEASE: u32 = 3;
    /// The table has no room for the key.
    pub const FULL: u32 = 4;
    /// A condition did not hold.
    pub const REFUSED: u32 = 5;
    /// The switch was removed, and does not know what became of it.
    pub const FORGOTTEN: u32 = 6;
    /// A state that must not be.
    pub const FAULT: u32 = 7;
}

c_struct! {
    /// An operator's order, in front of [`KEY_BYTES`] of a key and [`VALUE_BYTES`] of a value.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OrderValue as "sp_strong_order_head" {
        /// SP_STRONG_ORDER_LOOK and the like.
        pub what: u32,
        /// Which object.
        pub object: u32,
        /// SP_STRONG_ABSENT, SP_STRONG_REMOVE, SP_STRONG_READ; 0: the value is written.
        pub flags: u32,
        /// Seconds without a packet after which the key's time is over; 0: never.
        pub idle_s: u32,
        /// SP_STRONG_ORDER_DONE and the like: the answer.
        pub status: u32,
        /// Whether the key that was looked for is there.
        pub found: u32,
        /// The record that was written.
        pub name: u64,
        /// Of the switch's life when it was written.
        pub incarnation: u64,
    }
}

/// A message, but for its records' keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// See [`kind`].
    pub kind: u8,
    /// The number of the fabric's secret.
    pub key_id: u8,
    /// Records.
    pub count: u16,
    /// Words of them.
    pub words: u16,
    /// Who wrote.
    pub origin: u16,
    /// On which of its CPUs.
    pub stream: u16,
    /// The member that sent it again by itself, and wants the answer; NO_MEMBER.
    pub resender: u16,
    /// The origin's life.
    pub incarnation: u32,
    /// The view.
    pub view: u32,
    /// Batches that are not known to be at the tail, this one too.
    pub uncommitted: u32,
    /// The batch's number in its stream.
    pub batch: u64,
    /// In the group's order; of a request: what the origin knows to be at the tail.
    pub seq: u64,
    /// A bit for each record that was refused.
    pub refused: u64,
    /// Of those, which ones for want of room.
    pub full: u64,
}

/// In the place of a member's number: none.
pub const NO_MEMBER: u16 = u16::MAX;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong;

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not as long as a message of a chain of switches, or of an unknown kind")
    }
}

impl Message {
    /// Reads a message. Neither tag nor records are checked.
    ///
    /// # Errors
    /// The bytes do not follow the layout.
    pub fn decode(bytes: &[u8]) -> Result<Message, Wrong> {
        let header = 8 * HEADER_WORDS as usize;
        let word = |at: usize| {
            let bytes = bytes.get(8 * at..).and_then(|rest| rest.first_chunk()).copied();
            bytes.map(u64::from_be_bytes).ok_or(Wrong)
        };
        let words = [word(0)?, word(1)?, word(2)?, word(3)?, word(4)?, word(5)?, word(6)?];
        let message = Message {
            kind: (words[0] >> 56) as u8,
            key_id: (words[0] >> 48) as u8,
            count: (words[0] >> 32) as u16,
            words: (words[0] >> 16) as u16,
            origin: words[0] as u16,
            stream: (words[1] >> 48) as u16,
            resender: (words[1] >> 32) as u16,
            incarnation: words[1] as u32,
            view: (words[2] >> 32) as u32,
            uncommitted: words[2] as u32,
            batch: words[3],
            seq: words[4],
            refused: words[5],
            full: words[6],
        };
        let records =
            if kind::SHORT.contains(&message.kind) { 0 } else { 8 * usize::from(message.words) };
        let known = kind::ALL.contains(&message.kind);
        if known && bytes.len() == header + records { Ok(message) } else { Err(Wrong) }
    }
}

/// A number for how the group's variables lie: members with another one do not understand each
/// other. Of each: object, size, bytes of key and value.
pub fn layout(group: &str, objects: impl Iterator<Item = [u32; 4]>) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(group.as_bytes());
    for number in objects.flatten() {
        hasher.write(&number.to_be_bytes());
    }
    hasher.finish()
}

/// A number for the lives of all members: who has another one is of another group. Never 0, nor are
/// its lower 32 bits.
pub fn offer(lives: &[u32]) -> u64 {
    let mut hasher = SipHasher24::new();
    for life in lives {
        hasher.write(&life.to_be_bytes());
    }
    let number = hasher.finish();
    if number as u32 == 0 { number | 1 } else { number }
}

/// An address as the data plane has it.
pub fn address(address: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(address.octets())
}

/// The C file.
pub fn header() -> Header {
    let about = "what SwiSh's chains of switches share with user space.";
    let (source, update) =
        ("systems/swish/protocol/src/strong.rs", "cargo test -p swish-protocol --lib strong");
    let names = COUNTED.map(|(name, _)| format!("SP_STRONG_STAT_{}", name.to_uppercase()));
    let names = names.iter().map(String::as_str).chain(["SP_STRONG_STAT_COUNT"]);
    let counters: Vec<Number<'_>> = names.map(|name| Number::next(name, "")).collect();
    let number = |name: &'static str, value: u32, about: &'static str| {
        Number::new(name, u64::from(value), about)
    };
    let names = ["REQUEST", "BATCH", "ACK", "ROUND", "COPY", "COPIED", "HELLO"];
    let kinds: Vec<(&str, u8)> = names.into_iter().zip(kind::ALL).collect();
    let flags = [
        ("GROUP", flag::GROUP),
        ("ABSENT", flag::ABSENT),
        ("SINCE", flag::SINCE),
        ("REMOVE", flag::REMOVE),
        ("READ", flag::READ),
    ];
    let named: Vec<(String, u8)> = (kinds.iter().chain(&flags))
        .map(|(name, value)| (format!("SP_STRONG_{name}"), *value))
        .collect();
    let mut numbers = vec![
        number("SP_STRONG_UDP_PORT", PORT.into(), "of members of a chain"),
        number("SP_STRONG_MEMBERS", MEMBERS, "of a group"),
        number("SP_STRONG_CPUS", CPUS, "of a switch"),
        number("SP_STRONG_HEADER_WORDS", HEADER_WORDS, "of a message, in front of its records"),
        number("SP_STRONG_RECORD_WORDS", RECORD_WORDS, "of a record, in front of its key"),
        number("SP_STRONG_RECORDS", RECORDS, "of a batch"),
        number("SP_STRONG_WORDS", WORDS, "of a batch's records"),
        number("SP_STRONG_LOG", LOG, "batches that a member keeps"),
        number("SP_STRONG_TOMBS", TOMBS, "removed keys that it remembers"),
        number("SP_STRONG_KEY_WORDS", KEY_BYTES / 8, "of a key"),
        number("SP_STRONG_VALUE_WORDS", VALUE_BYTES / 8, "of a value"),
        number("SP_STRONG_PACKET_RECORDS", PACKET_RECORDS, "of one packet"),
        number("SP_STRONG_PACKET_WORDS", PACKET_WORDS, "of one packet's records"),
        number("SP_STRONG_TABLES", OBJECTS, "of a program"),
        number("SP_STRONG_NO_MEMBER", NO_MEMBER.into(), "no member's number"),
        number("SP_STRONG_ON", standing::ON, "the member takes messages"),
        number("SP_STRONG_HEAD", standing::HEAD, "it decides"),
        number("SP_STRONG_TAIL", standing::TAIL, "it answers"),
        number("SP_STRONG_JOINS", standing::JOINS, "it is to be given what the others have"),
        number("SP_STRONG_GIVES", standing::GIVES, "the next one is"),
        number("SP_STRONG_QUIET", standing::QUIET, "it is lent no more time to read"),
        number("SP_STRONG_MEETS", standing::MEETS, "there are no controllers"),
    ];
    let orders = [
        ("LOOK", order::LOOK),
        ("WRITE", order::WRITE),
        ("ASK", order::ASK),
        ("DONE", outcome::DONE),
        ("WAITS", outcome::WAITS),
        ("BUSY", outcome::BUSY),
        ("NO_LEASE", outcome::NO_LEASE),
        ("FULL", outcome::FULL),
        ("REFUSED", outcome::REFUSED),
        ("FORGOTTEN", outcome::FORGOTTEN),
        ("FAULT", outcome::FAULT),
    ];
    let orders = orders.map(|(name, value)| (format!("SP_STRONG_ORDER_{name}"), value));
    numbers.extend(orders.iter().map(|(name, value)| Number::new(name, u64::from(*value), "")));
    numbers.extend(named.iter().map(|(name, value)| Number::new(name, u64::from(*value), "")));
    Header::new("stateplane_strong_layouts.h", about, source, update)
        .defines(&numbers)
        .enumeration("", "Of the map sp_strong_stats.", &counters)
        .structure(&NodeValue::LAYOUT)
        .structure(&ViewValue::LAYOUT)
        .structure(&LifeValue::LAYOUT)
        .structure(&StreamValue::LAYOUT)
        .structure(&TableValue::LAYOUT)
        .structure(&OrderValue::LAYOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/swish");
        header().assert_is(format!("{folder}/stateplane_strong_layouts.h"));
    }

    #[test]
    fn a_message_is_read_and_others_are_refused() {
        let mut bytes = vec![0; 8 * HEADER_WORDS as usize];
        bytes[..8].copy_from_slice(&[kind::ACK, 1, 0, 2, 0, 9, 0, 3]);
        bytes[8..16].copy_from_slice(&[0, 1, 0xff, 0xff, 0, 0, 0, 7]);
        bytes[39] = 5;
        let message = Message::decode(&bytes).expect("a message");
        assert_eq!((message.count, message.words, message.origin, message.seq), (2, 9, 3, 5));
        assert_eq!((message.stream, message.resender), (1, NO_MEMBER));
        bytes[0] = kind::BATCH;
        assert_eq!(Message::decode(&bytes), Err(Wrong));
        bytes.extend([0; 72]);
        assert!(Message::decode(&bytes).is_ok());
        bytes[0] = 33;
        assert_eq!(Message::decode(&bytes), Err(Wrong));
        assert_eq!(Message::decode(&[]), Err(Wrong));
    }

    #[test]
    fn who_has_another_layout_has_another_number() {
        let one = layout("main", [[1, 64, 4, 8]].into_iter());
        assert_ne!(one, layout("main", [[1, 65, 4, 8]].into_iter()));
        assert_ne!(one, layout("other", [[1, 64, 4, 8]].into_iter()));
    }
}
