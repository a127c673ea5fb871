//! Seeded bugs that only windows of many messages show.

use super::SeededBug;

/// Those of the data plane.
pub const LARGE: &[SeededBug] = &[
    SeededBug {
        name: "BackHalfUnsent",
        what: "What is to be sent from the last message back is counted, and not sent.",
        header: "stateplane_shared_frame.h",
        right: "return backwards ? total - 1 - (taken >> 32) : taken;",
        wrong: "return backwards ? SP_SHARED_NOTHING : taken;",
    },
    SeededBug {
        name: "HalvesOverlap",
        what: "Each half goes on until it has sent all messages.",
        header: "stateplane_shared_frame.h",
        right: "if ((__u32)taken + (taken >> 32) >= total)\n\t\treturn SP_SHARED_NOTHING;\n\ttaken = __sync_fetch_and_add(&peer->next[side & 1], backwards ? 1ull << 32 : 1);\n\tif ((__u32)taken + (taken >> 32) >= total)",
        wrong: "if ((backwards ? taken >> 32 : (__u32)taken) >= total)\n\t\treturn SP_SHARED_NOTHING;\n\ttaken = __sync_fetch_and_add(&peer->next[side & 1], backwards ? 1ull << 32 : 1);\n\tif ((backwards ? taken >> 32 : (__u32)taken) >= total)",
    },
    SeededBug {
        name: "BitsOfOneWord",
        what: "Messages whose numbers differ by 64 count as one.",
        header: "stateplane_shared_window.h",
        right: "word = sp_shared_got_word(group, member, number / 64);",
        wrong: "word = sp_shared_got_word(group, member, 0);",
    },
    SeededBug {
        name: "FirstWordReset",
        what: "Of a member's bits, those of the first 64 messages are emptied.",
        header: "stateplane_shared_window.h",
        right: "return total < SP_SHARED_MESSAGES ? (total + 63) / 64 : SP_SHARED_GOT_WORDS;",
        wrong: "return 1;",
    },
];
