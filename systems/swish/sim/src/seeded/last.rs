//! Seeded bugs of registers, tables and sets with EWO.

use super::SeededBug;

/// All of them.
pub const LAST: &[SeededBug] = &[
    SeededBug {
        name: "ClockOfItsOwn",
        what: "A switch's clock is not raised by what it sees (notes, 12).",
        header: "stateplane_lww.h",
        right: "sp_lww_raise(&node->clock, scratch->hand.time);",
        wrong: ";",
    },
    SeededBug {
        name: "ClockStandsStill",
        what: "Two writes of one moment have the same time.",
        header: "stateplane_lww.h",
        right: "next = now > seen ? now : seen + 1;",
        wrong: "next = now > seen ? now : seen;",
    },
    SeededBug {
        name: "ForgottenEarly",
        what: "A tombstone is forgotten before all have it (notes, 12).",
        header: "stateplane_lww_frame.h",
        right: "forgotten = ours && flags & SP_LWW_REMOVED && record->head.since < fill->forget_before;",
        wrong: "forgotten = ours && flags & SP_LWW_REMOVED;",
    },
    SeededBug {
        name: "NeverForgotten",
        what: "Two switches go on telling each other of a tombstone that has ended.",
        header: "stateplane_lww.h",
        right: "scratch->hand.time <= SP_SHARED_LOAD(node->forgotten)",
        wrong: "0",
    },
    SeededBug {
        name: "NoTombstone",
        what: "A removed key's message is not merged where the key is not known.",
        header: "stateplane_lww.h",
        right: "if (object.is_register || scratch->hand.flags & SP_LWW_PRESENT ||",
        wrong: "if (object.is_register || scratch->hand.flags & (SP_LWW_PRESENT | SP_LWW_REMOVED) ||",
    },
    SeededBug {
        name: "Torn",
        what: "Of a value only the first eight bytes are written.",
        header: "stateplane_lww.h",
        right: "sp_lww_copy(record->value, hand->value, SP_LWW_VALUE_WORDS);\n\t}",
        wrong: "sp_lww_copy(record->value, hand->value, 1);\n\t}",
    },
    SeededBug {
        name: "FirstWins",
        what: "An older write that comes late takes the place of a newer one.",
        header: "stateplane_lww.h",
        right: "newer = hand->time > record->head.time ||",
        wrong: "newer = hand->time != record->head.time ||",
    },
    SeededBug {
        name: "NoTie",
        what: "Of two writes of one time, each switch keeps the one that came first.",
        header: "stateplane_lww.h",
        right: "(hand->time == record->head.time && hand->writer > record->head.writer);",
        wrong: "0;",
    },
    SeededBug {
        name: "WriterIsSender",
        what: "A write that another switch passes on is taken for one of this switch.",
        header: "stateplane_lww_frame.h",
        right: "merge->won += sp_lww_apply(0) == SP_LWW_WON;",
        wrong: "merge->won += sp_lww_apply(1) == SP_LWW_WON;",
    },
    SeededBug {
        name: "ChangedOnce",
        what: "A record that was sent once is not listed again.",
        header: "stateplane_lww.h",
        right: "SP_SHARED_LOAD(record->head.listed) > SP_SHARED_LOAD(node->taken))",
        wrong: "SP_SHARED_LOAD(record->head.listed) > 0)",
    },
    SeededBug {
        name: "PlaceOfAnother",
        what: "A place that was given back keeps its entry in the index.",
        header: "stateplane_lww_frame.h",
        right: "bpf_map_delete_elem(&sp_lww_index, &scratch->hand.object);",
        wrong: ";",
    },
];
