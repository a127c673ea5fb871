//! Variables with EWO: what the data plane shares with user space in maps, and messages. The C
//! header `bpf/swish/stateplane_eventual_layouts.h` is made of it.

use crate::layouts::{CELLS, HEADER_BYTES, MEMBERS};
use crate::lww::{KEY_WORDS, Record, VALUE_WORDS, flag};
use c_layout::{CStruct, Header, Number, c_struct};
use serde::Serialize;
use std::fmt;
use std::net::Ipv4Addr;

/// The UDP port of switches' messages about variables with EWO.
pub const PORT: u16 = 5413;
/// Cells that a message with single ones has room for: each takes three words.
pub const SINGLE: u32 = CELLS / 3;
/// Cells that a message with a run of them has room for: each takes two words.
pub const RUN: u32 = CELLS / 2;
/// In a cell's number in a message with single ones: it has no slots.
pub const DIRECT: u32 = 1 << 31;
/// Generated frames that can wait to be made.
pub const DUE: u32 = 1024;
/// In the place of a column: cells that have no slots.
pub const NO_COLUMN: u32 = u32::MAX;
/// In the place of a column: what packets of this switch changed.
pub const CHANGED: u32 = u32::MAX - 1;
/// In the place of a column: a run of records ([`crate::lww`]).
pub const RECORDS: u32 = u32::MAX - 2;
/// In the place of a column: records that this switch changed.
pub const RECORDS_CHANGED: u32 = u32::MAX - 3;
/// Bytes of a message.
pub const BYTES: usize = (HEADER_BYTES + CELLS * 4) as usize;
/// Bytes of its frame.
pub const FRAME_BYTES: u64 = 42 + BYTES as u64;

/// The first byte of a message.
pub mod kind {
    /// It brings a run of cells; else single ones.
    pub const RUN: u32 = 1;
    /// It brings records ([`crate::lww`]), and no cells.
    pub const RECORDS: u32 = 2;
    /// Two bits: which of the fabric's secrets.
    pub const SECRET_SHIFT: u32 = 3;
    /// All messages have these bits; of windows' messages none does (`layouts::kind::PHASE_SHIFT`).
    pub const EVENTUAL: u32 = 7 << 5;
}

/// A switch between two restarts: whose a slot is. Never 0.
pub fn life(member: u32, incarnation: u32) -> u64 {
    (u64::from(incarnation) + 1) << 6 | u64::from(member & 63)
}

/// A switch between two restarts, in a group with controllers: it has a life before it is a member.
pub fn life_of(address: Ipv4Addr, incarnation: u32) -> u64 {
    u64::from(incarnation) << 32 | u64::from(u32::from(address))
}

/// The incarnation in a life; of a base, its number.
pub fn incarnation_of(life: u64) -> u32 {
    (life >> 32) as u32
}

/// In the place of the address in a life: the column is the base, the sum of slots of lives that
/// are over (systems/swish/docs/slots.md). No switch has this address.
pub const BASE: u32 = u32::MAX;
/// The same: slots that are about to become a part of the base. No message has them.
pub const FOLDING: u32 = u32::MAX - 1;
/// Columns that no life takes: two bases have room beside each other.
pub const BASES: u32 = 2;

/// In the place of a life: the base with this number.
pub fn base_life(number: u32) -> u64 {
    u64::from(number) << 32 | u64::from(BASE)
}

/// Whether it is the base.
pub fn is_base(life: u64) -> bool {
    life as u32 == BASE
}

/// In the place of a life: slots that become a part of the base with this number.
pub fn folding_life(number: u32) -> u64 {
    u64::from(number) << 32 | u64::from(FOLDING)
}

/// The number of the base that these slots become a part of. `None`: they do not.
pub fn folds_into(life: u64) -> Option<u32> {
    (life as u32 == FOLDING).then_some(incarnation_of(life))
}

/// Columns of a cell with so many slots. (Without any, the maps have one.)
pub fn columns(slots: u32) -> u32 {
    if slots == 0 { 0 } else { slots + BASES }
}

/// Whose life it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Whose {
    /// Of the member with this number: [`life`].
    Member(u32),
    /// Of this switch: [`life_of`].
    Switch(Ipv4Addr),
    /// Of many lives that are over: [`base_life`].
    Base(&'static str),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whose::Member(number) => number.fmt(f),
            Whose::Switch(address) => address.fmt(f),
            Whose::Base(name) => name.fmt(f),
        }
    }
}

/// Whose life it is, and its incarnation; of a base, its number. (Those by the clock are never so
/// low that the two kinds are taken for each other.)
pub fn whose(life: u64) -> (Whose, u32) {
    if is_base(life) {
        return (Whose::Base("base"), incarnation_of(life));
    }
    if life >> 38 == 0 {
        return (Whose::Member((life & 63) as u32), ((life >> 6) as u32).wrapping_sub(1));
    }
    (Whose::Switch(Ipv4Addr::from(life as u32)), incarnation_of(life))
}

c_struct! {
    /// What packets read, and change.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CellValue as "sp_eventual_cell" {
        /// The sum of all slots; or, without slots, the cell itself.
        pub value: u64,
        /// One more than its newest place in the list of changes; 0: none.
        pub listed: u64,
    }
}

c_struct! {
    /// A group's variables with EWO on this switch. Only user space changes it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NodeValue as "sp_eventual_node" {
        /// This switch's life: whose the slots of column 0 are; 0: the group has not begun.
        pub life: u64,
        /// A bit for each member of the view, this switch too; 0: no message goes or comes.
        pub members: u64,
        /// The view; messages carry its low 16 bits.
        pub view: u32,
        /// This switch's number as a member.
        pub own: u32,
        /// How many members the view has.
        pub count: u32,
        /// This switch's address.
        pub address: Ipv4Addr,
        /// The group's first cell with slots.
        pub first_slotted: u32,
        /// How many it has.
        pub slotted: u32,
        /// The group's first cell without.
        pub first_direct: u32,
        /// How many it has.
        pub direct: u32,
    }
}

c_struct! {
    /// The ends of a group's list of changes. Only packets and frames change them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EndsValue as "sp_eventual_ends" {
        /// Places that are given out. A cache line of its own.
        pub listed: u64,
        /// To the end of the cache line.
        pub listed_padding: [u64; 7],
        /// Places below this were sent to some member. A cache line of its own.
        pub taken: u64,
        /// See `listed_padding`.
        pub taken_padding: [u64; 7],
    }
}

c_struct! {
    /// A member of a group, as this switch knows it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MemberValue as "sp_eventual_member" {
        /// The place of the list of changes that it is sent next.
        pub next: u64,
        /// Its address.
        pub address: Ipv4Addr,
        /// Messages that came from it.
        pub frames: u32,
    }
}

c_struct! {
    /// What a generated frame becomes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DueValue as "sp_eventual_due" {
        /// Which group.
        pub group: u32,
        /// To which member.
        pub member: u32,
        /// A column, or SP_EVENTUAL_NO_COLUMN, SP_EVENTUAL_CHANGED, SP_EVENTUAL_RECORDS,
        /// SP_EVENTUAL_RECORDS_CHANGED.
        pub column: u32,
        /// The first cell of the group's; the first record of all groups'.
        pub first: u32,
        /// Not 0: it is the group's first run of records, which is sent also if it has none.
        pub begins: u32,
        /// UDP source port.
        pub flow: u32,
    }
}

/// What a message brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Single cells of the group: whether it has slots, number, value.
    Single(Vec<(bool, u32, u64)>),
    /// A run of cells: the first one's number, values.
    Run(u32, Vec<u64>),
    /// Records: whether it is gossip; the members that the sender hears; the records.
    Records(bool, u32, Vec<Record>),
}

/// A message: the payload of a UDP datagram (`bpf/swish/stateplane_eventual_frame.h`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which group of the program's variables.
    pub group: u8,
    /// The low 16 bits of the view.
    pub view: u16,
    /// Members, by number.
    pub sender: u8,
    /// See `sender`.
    pub receiver: u8,
    /// The number of the fabric's secret.
    pub secret: u8,
    /// Whose slots it brings; 0: all its cells have none. With records: when it was sent (TAI, ns).
    pub life: u64,
    /// Who knows the secret made it.
    pub tag: u64,
    /// What it brings.
    pub cells: Cells,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Another length.
    Length,
    /// Another first byte.
    Kind,
    /// More cells than a message has room for.
    Cells,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wrong::Length => "not as long as a message",
            Wrong::Kind => "the first byte is of no message about variables with EWO",
            Wrong::Cells => "more cells than a message has room for",
        })
    }
}

fn word(words: &[u32], at: usize) -> u32 {
    words.get(at).copied().unwrap_or_default()
}

fn long(words: &[u32], at: usize) -> u64 {
    u64::from(word(words, at)) | u64::from(word(words, at + 1)) << 32
}

/// The records of a message whose header says that they have this shape.
fn records(shape: u32, count: usize, words: &[u32]) -> Result<Vec<Record>, Wrong> {
    let (key, value) = ((shape >> 8) as usize, (shape & 0xff) as usize);
    if key > KEY_WORDS || value > VALUE_WORDS || count * (4 + key + value) * 2 > words.len() {
        return Err(Wrong::Cells);
    }
    let record = |at: usize| {
        let first = at * (4 + key + value);
        let nth = |at: usize| long(words, 2 * (first + at));
        Record {
            time: nth(0),
            writer: nth(1),
            removed: nth(2) & u64::from(flag::REMOVED) != 0,
            object: nth(3) as u32,
            key: (0..key).map(|at| nth(4 + at)).collect(),
            value: (0..value).map(|at| nth(4 + key + at)).collect(),
        }
    };
    Ok((0..count).map(record).collect())
}

impl Message {
    /// Reads a message. The tag is not checked.
    ///
    /// # Errors
    /// The bytes do not follow the layout.
    pub fn decode(bytes: &[u8]) -> Result<Message, Wrong> {
        let (header, cells) = bytes.split_at_checked(HEADER_BYTES as usize).ok_or(Wrong::Length)?;
        let header: &[u8; 32] = header.try_into().map_err(|_| Wrong::Length)?;
        if bytes.len() != BYTES {
            return Err(Wrong::Length);
        }
        let words: Vec<u32> = cells
            .chunks_exact(4)
            .map(|it| it.first_chunk().copied().map_or(0, u32::from_le_bytes))
            .collect();
        let [first, group, view @ ..] = header;
        let bits = u32::from(*first);
        if bits & kind::EVENTUAL != kind::EVENTUAL {
            return Err(Wrong::Kind);
        }
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let eight = |at: usize| header[at..].first_chunk().copied().unwrap_or_default();
        let count = u32::from(short(6));
        let is_run = bits & kind::RUN != 0;
        let number = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
        let from = number(8);
        let records = (bits & kind::RECORDS != 0).then(|| records(from, count as usize, &words));
        if records.is_none() && count > if is_run { RUN } else { SINGLE } {
            return Err(Wrong::Cells);
        }
        let cells = if let Some(records) = records {
            Cells::Records(is_run, number(20), records?)
        } else if is_run {
            Cells::Run(from, (0..count as usize).map(|at| long(&words, 2 * at)).collect())
        } else {
            let single = |at: usize| {
                let cell = word(&words, 3 * at);
                (cell & DIRECT == 0, cell & !DIRECT, long(&words, 3 * at + 1))
            };
            Cells::Single((0..count as usize).map(single).collect())
        };
        Ok(Message {
            group: group & 15,
            view: u16::from_be_bytes([view[0], view[1]]),
            sender: header[4],
            receiver: header[5],
            secret: (bits >> kind::SECRET_SHIFT & 3) as u8,
            life: u64::from_be_bytes(eight(12)),
            tag: u64::from_le_bytes(eight(24)),
            cells,
        })
    }
}

/// The C file.
pub fn header() -> Header {
    let about = "what variables with EWO share with user space in maps.";
    let (source, update) =
        ("systems/swish/protocol/src/eventual.rs", "cargo test -p swish-protocol --lib");
    let number = |name: &'static str, value: u32, about: &'static str| {
        Number::new(name, u64::from(value), about)
    };
    Header::new("stateplane_eventual_layouts.h", about, source, update)
        .defines(&[
            number("SP_EVENTUAL_UDP_PORT", PORT.into(), "of messages between switches"),
            number("SP_EVENTUAL_MEMBERS", MEMBERS, "of a group"),
            number("SP_EVENTUAL_SINGLE", SINGLE, "single cells of a message"),
            number("SP_EVENTUAL_RUN", RUN, "cells of a message with a run of them"),
            number("SP_EVENTUAL_DIRECT", DIRECT, "the cell has no slots"),
            number("SP_EVENTUAL_DUE", DUE, "generated frames that wait"),
            number("SP_EVENTUAL_NO_COLUMN", NO_COLUMN, "cells without slots"),
            number("SP_EVENTUAL_CHANGED", CHANGED, "what packets changed"),
            number("SP_EVENTUAL_RECORDS", RECORDS, "a run of records"),
            number("SP_EVENTUAL_RECORDS_CHANGED", RECORDS_CHANGED, "records that packets changed"),
            number("SP_EVENTUAL_BASE", BASE, "in the place of a life's address"),
            number("SP_EVENTUAL_BASES", BASES, "columns that no life takes"),
            number("SP_EVENTUAL_KIND_RECORDS", kind::RECORDS, "the message brings records"),
            number("SP_EVENTUAL_KIND_RUN", kind::RUN, "the message brings a run of cells"),
            number("SP_EVENTUAL_KIND", kind::EVENTUAL, "all messages have these bits"),
            number("SP_EVENTUAL_KIND_SECRET_SHIFT", kind::SECRET_SHIFT, "which secret"),
        ])
        .structure(&CellValue::LAYOUT)
        .structure(&NodeValue::LAYOUT)
        .structure(&EndsValue::LAYOUT)
        .structure(&MemberValue::LAYOUT)
        .structure(&DueValue::LAYOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/swish");
        header().assert_is(format!("{folder}/stateplane_eventual_layouts.h"));
    }

    fn bytes(first: u8, count: u16, words: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[0] = first | 0xe0;
        bytes[6..8].copy_from_slice(&count.to_be_bytes());
        bytes[8..12].copy_from_slice(&7u32.to_be_bytes());
        bytes[12..20].copy_from_slice(&life(2, 1).to_be_bytes());
        for (at, word) in words.iter().enumerate() {
            bytes[32 + 4 * at..36 + 4 * at].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn both_kinds_are_read() {
        let single = Message::decode(&bytes(0, 2, &[5, 1, 2, DIRECT | 6, 3, 0])).expect("one");
        assert_eq!(single.cells, Cells::Single(vec![(true, 5, 1 | 2 << 32), (false, 6, 3)]));
        assert_eq!(whose(single.life), (Whose::Member(2), 1));
        let run = Message::decode(&bytes(1, 2, &[5, 0, 6, 1])).expect("a message");
        assert_eq!(run.cells, Cells::Run(7, vec![5, 6 | 1 << 32]));
    }

    #[test]
    fn lives_of_both_kinds_are_told_apart() {
        let address = Ipv4Addr::new(10, 9, 0, 3);
        assert_eq!(whose(life_of(address, 7_000_000)), (Whose::Switch(address), 7_000_000));
        assert_eq!(whose(life(31, 7_000_000)), (Whose::Member(31), 7_000_000));
        assert_eq!(whose(base_life(7)), (Whose::Base("base"), 7));
        assert_eq!((folds_into(folding_life(7)), folds_into(base_life(7))), (Some(7), None));
    }

    #[test]
    fn records_are_read() {
        let words = [9, 1, 66, 0, 2, 0, 3, 0, 5, 6, 7, 8];
        let mut message = bytes(3, 1, &words);
        message[8..12].copy_from_slice(&0x101u32.to_be_bytes());
        message[20..24].copy_from_slice(&6u32.to_be_bytes());
        let read = Message::decode(&message).expect("a message");
        let record = Record {
            time: 9 | 1 << 32,
            writer: 66,
            removed: true,
            object: 3,
            key: vec![5 | 6 << 32],
            value: vec![7 | 8 << 32],
        };
        assert_eq!(read.cells, Cells::Records(true, 6, vec![record]));
        message[6..8].copy_from_slice(&31u16.to_be_bytes());
        assert_eq!(Message::decode(&message), Err(Wrong::Cells));
        message[8..12].copy_from_slice(&0x1_0000u32.to_be_bytes());
        assert_eq!(Message::decode(&message), Err(Wrong::Cells));
    }

    #[test]
    fn what_no_switch_sends_is_refused() {
        assert_eq!(Message::decode(&[0; 40]), Err(Wrong::Length));
        assert_eq!(Message::decode(&[0; BYTES]), Err(Wrong::Kind));
        assert_eq!(Message::decode(&bytes(0, 121, &[])), Err(Wrong::Cells));
        assert_eq!(Message::decode(&bytes(1, 181, &[])), Err(Wrong::Cells));
    }
}
