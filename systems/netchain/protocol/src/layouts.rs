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
        ])
        .enumeration("", "Of the map sp_slots_stats.", &counters)
        .beginning(&SlotHead::LAYOUT, "SP_SLOT_HEAD")
        .beginning(&WindowHead::LAYOUT, "SP_WINDOW_HEAD")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_c_header_has_these_layouts() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../bpf/netchain");
        super::header().assert_is(format!("{folder}/stateplane_slots_layouts.h"));
    }
}
