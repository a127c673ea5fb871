//! What SwiSh's data plane shares with user space in maps. The C header
//! `bpf/swish/stateplane_shared_layouts.h` is made of it.

use c_layout::{CStruct, Header, Number, c_struct};
use std::net::Ipv4Addr;

/// Cells of 32 bits in a block, which is what a message carries at the most.
pub const CELLS: u32 = 360;
/// Lines of a block: what is cleared at once.
pub const LINES: u32 = 24;
/// Cells of a line.
pub const LINE_CELLS: u32 = CELLS / LINES;
/// A message with single cells has so many blocks, and of each as many cells at the most: number
/// and count in a word, the cells' values, two bytes for where in the block each is.
pub const SHAPES: [(u32, u32); 4] = [(32, 6), (16, 14), (8, 29), (4, 59)];
/// Groups of variables that a program can have.
pub const GROUPS: u32 = 4;
/// Members of a group: switches, by number. With SDW a program may have room for more of them.
pub const MEMBERS: u32 = 32;
/// As many at the most, with SDW.
pub const MEMBERS_MAX: u32 = 4096;
/// CPUs that packets may be on.
pub const CPUS: u32 = 64;
/// Secrets of the fabric that switches may know at a time.
pub const SECRETS: u32 = 4;
/// Generated frames that can wait to be made.
pub const DUE: u32 = 1024;
/// Bytes of a message's header.
pub const HEADER_BYTES: u32 = 32;
/// In the place of a count of messages: not known yet.
pub const NOT_KNOWN: u32 = u32::MAX;
/// In the place of a message's number: none.
pub const NOTHING: u16 = u16::MAX;
/// Buckets of the histogram of windows' times: up to 4.2 s.
pub const BUCKETS: u32 = 28 * 32;
/// Frames that bring nothing go back so often.
pub const HOPS: u32 = 15;
/// Messages that make a window a large one.
pub const MANY: u32 = 64;
/// In large windows, frames that bring nothing go back so many times as often.
pub const LONGER: u32 = 32;
/// But not in a window that has begun so long ago: a member holds it up.
pub const YOUNG_NS: u32 = 10_000_000;
/// Frames that a CPU lets go on in READY, of those that lost their cells as the window turned.
pub const KEPT: u32 = 4;
/// But all of them if a message of the newest window took longer than this, in each direction.
pub const SHORT_NS: u32 = 2_000;

/// How cells merge.
pub mod merge {
    /// By addition, modulo 2^32.
    pub const SUM: u32 = 0;
    /// By bitwise or.
    pub const OR: u32 = 1;
    /// The larger one.
    pub const MAX: u32 = 2;
    /// From here on: by functions of the program.
    pub const OWN: u32 = 3;
}

/// What a switch does in a window, in this order (but for GATHERING).
pub mod phase {
    /// The window is the newest one; packets of the one before may be under way.
    pub const ADVANCED: u64 = 0;
    /// A CPU empties the records of the window before.
    pub const RESETTING: u64 = 1;
    /// The switch says so.
    pub const READY: u64 = 2;
    /// A CPU empties the lists of the delta that takes updates next.
    pub const TURNING: u64 = 3;
    /// Updates go into the other delta.
    pub const ROTATED: u64 = 4;
    /// A CPU counts what there is to send.
    pub const COUNTING: u64 = 5;
    /// Until all blocks of all members are merged.
    pub const SENDING: u64 = 6;
    /// In an aggregation tree, between ROTATED and COUNTING: messages of the children go into what
    /// this switch sends.
    pub const GATHERING: u64 = 7;
}

/// A switch's place in its group's aggregation tree.
pub mod tree {
    /// There is no tree: each switch sends each other one its messages.
    pub const NONE: u32 = 0;
    /// The root.
    pub const ROOT: u32 = 1;
    /// Below a parent: the only neighbour whose number is smaller.
    pub const BELOW: u32 = 2;
}

/// The first byte of a message: bits, and where the phase and the number of the secret begin.
pub mod kind {
    /// The message brings cells.
    pub const CELLS: u32 = 1;
    /// They are single ones of several blocks.
    pub const SINGLE: u32 = 2;
    /// Cells and total are of the window before.
    pub const PREVIOUS: u32 = 4;
    /// Two bits: which of the fabric's secrets.
    pub const SECRET_SHIFT: u32 = 3;
    /// Three bits: the sender's phase.
    pub const PHASE_SHIFT: u32 = 5;
}

/// What the data plane counts, in the order of its map `sp_shared_stats`. For a reason to drop a
/// packet, an update or a message: the remedy.
pub const COUNTED: [(&str, Option<&str>); 23] = [
    ("windows", None),
    ("sent", None),
    ("received", None),
    ("repeated", None),
    ("sealed", None),
    (
        "full_dropped",
        Some("more updates in a rotation than the bound: raise it, or see what holds windows up"),
    ),
    (
        "full_passed",
        Some("more updates in a rotation than the bound: raise it, or see what holds windows up"),
    ),
    ("line_stuck", Some("a CPU stood still while it cleared a line; an update was lost")),
    ("malformed", Some("messages of another version, or somebody forges them")),
    ("not_fabric", Some("messages of switches come in at a port that is no fabric port")),
    ("foreign", Some("messages of another view or to another switch: `stateplane shared status`")),
    ("forged", Some("somebody without the fabric's secret sends messages of switches")),
    ("no_route", Some("no route or neighbour for a member's address: `ip route get`, `ip neigh`")),
    ("no_secret", Some("the secret that tags messages is gone: `stateplane keys show`")),
    ("faults", Some("the data plane met a state that it must not: report it")),
    ("eventual_sent", None),
    ("eventual_gossip", None),
    ("eventual_received", None),
    ("eventual_raised", None),
    ("eventual_skipped", None),
    (
        "no_slot",
        Some(
            "more lives of switches than a cell has slots: take switches that are gone for good \
             out of the controllers' configuration, or compile with a larger @slots(N)",
        ),
    ),
    (
        "cell_stuck",
        Some("a cell changed so often that a message was not merged; gossip repeats it"),
    ),
    (
        "table_full",
        Some(
            "a table or set with EWO is full (`stateplane switch status --json` says which): make \
             it larger, or remove keys",
        ),
    ),
];

c_struct! {
    /// 360 cells, twice as what packets read, twice as what they change.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct BlockValue as "sp_shared_block" {
        /// The newest window that each value includes; 0: none.
        pub window: [u64; 2],
        /// Of each delta: the newest rotation with a changed cell, and how many (16 bits).
        pub changed: [u64; 2],
        /// Of each delta: the rotation (48 bits), SP_SHARED_CLEARING, a bit for each changed cell.
        pub line: [[u64; 24]; 2],
        /// What packets change.
        pub delta: [[u32; 360]; 2],
        /// What they read.
        pub value: [[u32; 360]; 2],
    }
}

c_struct! {
    /// A group of variables on this switch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NodeValue as "sp_shared_node" {
        /// The window (61 bits) and the phase; 0: the group has not begun.
        pub word: u64,
        /// Not 0: nothing is merged, sent or turned.
        pub sealed: u64,
        /// Members that are ready, this switch too: for the windows of each lowest bit. In a tree:
        /// this switch, and children when all below them are ready, too.
        pub ready: [u32; 2],
        /// A member said that all are ready for this window.
        pub all_ready: u64,
        /// Members whose blocks of this window are all merged.
        pub complete: u32,
        /// Members' numbers are below this.
        pub limit: u32,
        /// Of a window, at the least; 0: the next one begins at once.
        pub period_ns: u64,
        /// When the next window may begin (CLOCK_MONOTONIC).
        pub next_ns: u64,
        /// When the newest two windows began, by the window's lowest bit (CLOCK_MONOTONIC).
        pub began_ns: [u64; 2],
        /// The view; messages carry its low 16 bits.
        pub view: u32,
        /// This switch's number as a member.
        pub own: u32,
        /// How many members the view has. In a tree: neighbours, and this switch.
        pub count: u32,
        /// CPUs that may have packets.
        pub cpus: u32,
        /// The group's first block.
        pub first: u32,
        /// Its blocks.
        pub blocks: u32,
        /// Blocks of each of the window's messages: 1, or as SHAPES have it.
        pub message_blocks: u32,
        /// This switch's address.
        pub address: Ipv4Addr,
        /// This switch's messages of the newest two windows, by the window's lowest bit.
        pub totals: [u32; 2],
        /// Cells that packets changed in one block, at the most, in each delta.
        pub most_cells: [u32; 2],
        /// Blocks that they changed.
        pub dirty_blocks: [u32; 2],
        /// Not 0, in measurements only: each window sends what user space has put into the deltas
        /// and the lists. (Packets cannot change all cells of a large variable in each window.)
        pub filled: u32,
        /// Not 0: packets find that the group has not begun, as the switch is to leave it.
        pub closed: u32,
        /// When the newest window's frames began to move (CLOCK_MONOTONIC).
        pub moved_ns: u64,
        /// Cap on bandwidth: how long a byte takes, in 2^-16 ns; 0: there is none.
        pub byte_time: u64,
        /// What this switch had sent when `moved_ns` was written.
        pub sent_bytes: u64,
        /// How long its CPUs had worked on frames then.
        pub busy_ns: u64,
        /// Cap on CPU time, of one CPU; 0: there is none.
        pub cpu_percent: u32,
        /// This switch's place in the group's aggregation tree.
        pub tree: u32,
        /// What the agent compares when it takes the group over: of all members and the tree.
        pub members: u64,
    }
}

c_struct! {
    /// A member of a group, as this switch knows it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MemberValue as "sp_shared_member" {
        /// The newest window that it was ready for.
        pub ready: u64,
        /// Its messages in this window; SP_SHARED_NOT_KNOWN.
        pub total: u32,
        /// Of those, so many are merged.
        pub merged: u32,
        /// 1: all of them.
        pub complete: u32,
        /// Frames that it sent.
        pub frames: u32,
        /// Messages that it was sent, by the lowest bit of its window: in the lower half so many
        /// from the first one on, in the upper half so many from the last one back.
        pub next: [u64; 2],
        /// Its address. 0.0.0.0: no member has this number; in a tree: no neighbour.
        pub address: Ipv4Addr,
        /// Of the frames that it sent, so many brought cells.
        pub full: u32,
    }
}

c_struct! {
    /// What a CPU works on in a group. Two cache lines: packets touch the first one only.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CpuValue as "sp_shared_cpu" {
        /// The pin of the packet that is under way: window and phase; 0: none, 1: not known yet.
        pub packet: u64,
        /// The same of a message.
        pub frame: u64,
        /// The rotation that `used` counts.
        pub rotation: u64,
        /// Updates of this CPU in it.
        pub used: u64,
        /// As many may be.
        pub share: u64,
        /// The first rotation of the period of so many windows that `period_of` is in: packets of a
        /// window find it here instead of dividing.
        pub period_first: u64,
        /// The rotation whose period that is.
        pub period_of: u64,
        /// How many windows the period has; 0: none was asked for.
        pub period: u64,
        /// Bytes of frames that it sent.
        pub sent_bytes: u64,
        /// How long it worked on frames, if there is a cap on that.
        pub busy_ns: u64,
        /// Frames of large windows that brought nothing.
        pub bare: u64,
        /// The window in which this CPU was last ready, and its phase: what `emptied` counts.
        pub told: u64,
        /// Frames that lost their cells when windows turned, and were to tell it.
        pub emptied: u64,
        /// 0.
        pub unused: [u64; 3],
    }
}

c_struct! {
    /// What tags are made with, of one of the fabric's secrets, for a group in a view.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct SecretValue as "sp_shared_secret" {
        /// As SipHash takes it.
        pub sip: [u64; 2],
        /// Of the universal hash, a word for each cell.
        pub hash: [u32; 360],
        /// 0: there is no such secret.
        pub present: u64,
    }
}

c_struct! {
    /// What a generated frame becomes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DueValue as "sp_shared_due" {
        /// Which group.
        pub group: u32,
        /// To which member; this switch itself: its own message `want` is merged.
        pub member: u32,
        /// The number of a message that this switch lacks, or SP_SHARED_NOTHING.
        pub want: u32,
        /// UDP source port.
        pub flow: u32,
        /// The low bits of the window in which it was queued.
        pub window: u32,
    }
}

/// The C file.
pub fn header() -> Header {
    let about = "what SwiSh's data plane shares with user space in maps.";
    let (source, update) =
        ("systems/swish/protocol/src/layouts.rs", "cargo test -p swish-protocol --lib");
    let names = COUNTED.map(|(name, _)| format!("SP_SHARED_STAT_{}", name.to_uppercase()));
    let names = names.iter().map(String::as_str).chain(["SP_SHARED_STAT_COUNT"]);
    let counters: Vec<Number<'_>> = names.map(|name| Number::next(name, "")).collect();
    let number = |name: &'static str, value: u32, about: &'static str| {
        Number::new(name, u64::from(value), about)
    };
    Header::new("stateplane_shared_layouts.h", about, source, update)
        .defines(&[
            number("SP_SHARED_UDP_PORT", crate::PORT.into(), "of messages between switches"),
            number("SP_SHARED_CELLS", CELLS, "of 32 bits in a block"),
            number("SP_SHARED_LINES", LINES, "of a block"),
            number("SP_SHARED_LINE_CELLS", LINE_CELLS, "of a line"),
            number("SP_SHARED_TRIES", 64, "of CPUs that change one word"),
            number("SP_SHARED_GROUPS", GROUPS, "of variables"),
            number("SP_SHARED_CPUS", CPUS, "with packets"),
            number("SP_SHARED_SECRETS", SECRETS, "of the fabric"),
            number("SP_SHARED_DUE", DUE, "generated frames that wait"),
            number("SP_SHARED_HEADER_BYTES", HEADER_BYTES, "of a message"),
            number("SP_SHARED_BUCKETS", BUCKETS, "of windows' times"),
            number("SP_SHARED_NOT_KNOWN", NOT_KNOWN, "a count of messages"),
            number("SP_SHARED_NOTHING", NOTHING.into(), "no message's number"),
            number("SP_SHARED_HOPS", HOPS, "of a frame that brings nothing"),
            number("SP_SHARED_MANY", MANY, "messages of a large window"),
            number("SP_SHARED_LONGER", LONGER, "times as many hops in large windows"),
            number("SP_SHARED_YOUNG_NS", YOUNG_NS, "so long after they began"),
            number("SP_SHARED_KEPT", KEPT, "frames of a CPU go on in READY"),
            number("SP_SHARED_SHORT_NS", SHORT_NS, "a message, where more frames would wait"),
            number("SP_SHARED_CLEARING", 1 << LINE_CELLS, "a CPU clears the line"),
            number("SP_SHARED_SUM", merge::SUM, "how cells merge"),
            number("SP_SHARED_OR", merge::OR, ""),
            number("SP_SHARED_MAX", merge::MAX, ""),
            number("SP_SHARED_OWN", merge::OWN, "from here on: functions of the program"),
            Number::new("SP_SHARED_ADVANCED", phase::ADVANCED, "phases of a window"),
            Number::new("SP_SHARED_RESETTING", phase::RESETTING, ""),
            Number::new("SP_SHARED_READY", phase::READY, ""),
            Number::new("SP_SHARED_TURNING", phase::TURNING, ""),
            Number::new("SP_SHARED_ROTATED", phase::ROTATED, ""),
            Number::new("SP_SHARED_COUNTING", phase::COUNTING, ""),
            Number::new("SP_SHARED_SENDING", phase::SENDING, ""),
            Number::new("SP_SHARED_GATHERING", phase::GATHERING, ""),
            number("SP_SHARED_NO_TREE", tree::NONE, "a switch's place in the aggregation tree"),
            number("SP_SHARED_ROOT", tree::ROOT, ""),
            number("SP_SHARED_BELOW", tree::BELOW, ""),
            number("SP_SHARED_KIND_CELLS", kind::CELLS, "the message brings cells"),
            number("SP_SHARED_KIND_SINGLE", kind::SINGLE, "single ones of several blocks"),
            number("SP_SHARED_KIND_PREVIOUS", kind::PREVIOUS, "of the window before"),
            number("SP_SHARED_KIND_SECRET_SHIFT", kind::SECRET_SHIFT, "which secret"),
            number("SP_SHARED_KIND_PHASE_SHIFT", kind::PHASE_SHIFT, "the sender's phase"),
        ])
        .enumeration("", "Of the map sp_shared_stats.", &counters)
        .structure(&BlockValue::LAYOUT)
        .structure(&NodeValue::LAYOUT)
        .structure(&MemberValue::LAYOUT)
        .structure(&CpuValue::LAYOUT)
        .structure(&SecretValue::LAYOUT)
        .structure(&DueValue::LAYOUT)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/swish");
        super::header().assert_is(format!("{folder}/stateplane_shared_layouts.h"));
    }
}
