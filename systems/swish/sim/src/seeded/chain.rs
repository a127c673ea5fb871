//! Seeded bugs of chains of switches (SRO).

use super::SeededBug;

/// Few removed keys are remembered: runs come to the end of them.
pub(crate) const FEW_TOMBS: SeededBug = SeededBug {
    name: "FewTombs",
    what: "Few removed keys are remembered.",
    header: "stateplane_strong_layouts.h",
    right: "#define SP_STRONG_TOMBS 1024",
    wrong: "#define SP_STRONG_TOMBS 8",
};

/// All of them.
pub const CHAIN: &[SeededBug] = &[
    SeededBug {
        name: "HeadAnswers",
        what: "The head answers before the tail has the batch.",
        header: "stateplane_strong_chain.h",
        right: "\tif (view->standing & SP_STRONG_TAIL) {\n\t\theader.kind = SP_STRONG_ACK;",
        wrong: "\tif (view->standing & (SP_STRONG_TAIL | SP_STRONG_HEAD)) {\n\t\theader.kind = SP_STRONG_ACK;",
    },
    SeededBug {
        name: "SecondOverwrites",
        what: "The second insert of a key overwrites the first one (notes, 13).",
        header: "stateplane_strong_records.h",
        right: "if (wrong && !walk->wrong)",
        wrong: "if (wrong == SP_STRONG_FULL && !walk->wrong)",
    },
    SeededBug {
        name: "DecidedTwice",
        what: "A batch that comes again is decided again.",
        header: "stateplane_strong_chain.h",
        right: "if (header->incarnation == stream->incarnation && header->batch <= stream->batch) {",
        wrong: "if (header->incarnation == stream->incarnation && header->batch < stream->batch) {",
    },
    SeededBug {
        name: "PendingReadLeaves",
        what: "A packet leaves with what the tail does not have yet.",
        header: "stateplane_strong.h",
        right: "strong->waits |= seq > committed; ",
        wrong: "(void)committed; (void)seq; ",
    },
    SeededBug {
        name: "HalfRefused",
        what: "Of a packet's writes only the last one is refused.",
        header: "stateplane_strong_records.h",
        right: "bit = (bit << 1) - (1ull << (walk->from & 63));",
        wrong: "bit = 1ull << (record & 63);",
    },
    SeededBug {
        name: "GapIgnored",
        what: "A member writes a batch that comes before an earlier one.",
        header: "stateplane_strong_chain.h",
        right: "\tif (header->seq != node->applied + 1)\n\t\treturn SP_STRONG_STAT_EARLY;",
        wrong: "",
    },
    SeededBug {
        name: "LoserLeaves",
        what: "A packet whose writes were refused leaves as if they were not.",
        header: "stateplane_strong_commit.h",
        right: "if (header.refused && *(volatile",
        wrong: "if (0 && *(volatile",
    },
    SeededBug {
        name: "ReadsForGood",
        what: "A removed switch reads after its lease is over.",
        header: "stateplane_strong.h",
        right: "if (until != SP_STRONG_FOR_GOOD && sp_coarse_ns() >= until)",
        wrong: "if (0)",
    },
    SeededBug {
        name: "CommitsAtOnce",
        what: "A new view answers while a removed switch may still read.",
        header: "stateplane_strong_chain.h",
        right: "return view->standing & SP_STRONG_TAIL && sp_now_ns() - node->since_ns >= view->wait_ns;",
        wrong: "return !!(view->standing & SP_STRONG_TAIL);",
    },
    SeededBug {
        name: "JoinerReads",
        what: "A switch that joins reads before all is copied.",
        header: "stateplane_strong_round.h",
        right: "if (node->before_ns && node->whole && ",
        wrong: "if (node->before_ns && ",
    },
    SeededBug {
        name: "CopyOverwrites",
        what: "A copy of a key overwrites what was written since.",
        header: "stateplane_strong_records.h",
        right: "if (scratch->copies == SP_STRONG_COPY_GIVEN && !fresh && ",
        wrong: "if (0 && scratch->copies == SP_STRONG_COPY_GIVEN && !fresh && ",
    },
    SeededBug {
        name: "RemovalForgotten",
        what: "A key that was removed while it was being copied comes back.",
        header: "stateplane_strong_records.h",
        right: "if (removes && scratch->copies != SP_STRONG_COPY_LACKS) ",
        wrong: "if (removes) ",
    },
];

/// Those that random runs do not show: runs that are written out do.
pub const CHAIN_DIRECTED: &[SeededBug] = &[
    SeededBug {
        name: "LeaseFromNow",
        what: "A round lends time from when it comes, and not from when the last but one came.",
        header: "stateplane_strong_round.h",
        right: "__u64 until = node->before_ns + view->lease_ns;",
        wrong: "__u64 until = sp_now_ns() + view->lease_ns;",
    },
    SeededBug {
        name: "WholeEarly",
        what: "A joiner is whole before it has the batch that the last part was made after.",
        header: "stateplane_strong_copy.h",
        right: "node->whole = node->applied >= header->seq;",
        wrong: "node->whole = 1;",
    },
    SeededBug {
        name: "PlacesLost",
        what: "Some places of removed keys are lost: keys that are written have none.",
        header: "stateplane_strong_records.h",
        right: "if (bpf_map_push_elem(&name##_free, &place, 0))",
        wrong: "if (place & 1 && bpf_map_push_elem(&name##_free, &place, 0))",
    },
    SeededBug {
        name: "WritesListed",
        what: "Each write puts a key on the list of removed ones, and ends another one there.",
        header: "stateplane_strong_records.h",
        right: "return removes ? (long)place : -1;",
        wrong: "return removes ? place : -1;",
    },
    SeededBug {
        name: "AbsentForGood",
        what: "A key that an operator writes if it is absent has no time.",
        header: "stateplane_strong_order.h",
        right: "flags & SP_STRONG_NEVER_REFUSED ? 0 : sp_strong_time(idle_s);",
        wrong: "flags ? 0 : sp_strong_time(idle_s);",
    },
    SeededBug {
        name: "OverIsThere",
        what: "A key whose time is over counts as there until it is removed.",
        header: "stateplane_strong.h",
        right: "flags &= ~SP_STRONG_ABSENT;",
        wrong: "flags &= ~0u;",
    },
];

/// Those of groups without controllers.
pub const LIVES: &[SeededBug] = &[
    SeededBug {
        name: "AgreesToAll",
        what: "Who is heard of has agreed, whatever it has agreed to.",
        header: "stateplane_strong_lives.h",
        right: "life->offer = header.full;",
        wrong: "life->offer = view->offer;",
    },
    SeededBug {
        name: "TakesOtherViews",
        what: "A member takes messages of others in other lives, and before all have agreed.",
        header: "stateplane_strong_chain.h",
        right: "wrong = sp_strong_other_view(view, header);",
        wrong: "wrong = 0;",
    },
];

/// Those of programs with SRO beside SDW and EWO that random runs do not show, as their windows are
/// never full.
pub const TALLY_DIRECTED: &[SeededBug] = &[
    SeededBug {
        name: "RenewedForFree",
        what: "A packet that waited takes no place in the window in which it leaves.",
        header: "stateplane_shared.h",
        right: "if (!sp_shared_charge(cpu, sp_shared_rotation(word), drops, 1)) {",
        wrong: "if (0) {",
    },
    SeededBug {
        name: "RefusedLeaves",
        what: "A packet that waited leaves, though its window is full.",
        header: "stateplane_swish.h",
        right: "if (sp_shared_commit(&noted->windows) && !drops)\n\t\treturn 1;",
        wrong: "if (sp_shared_commit(&noted->windows) && drops)\n\t\treturn 1;",
    },
];

/// Those of programs with SRO beside SDW and EWO.
pub const TALLY: &[SeededBug] = &[
    SeededBug {
        name: "CountedAgain",
        what: "A packet is counted in each of its runs.",
        header: "stateplane_swish.h",
        right: "sp_swish_forget(shared);\n\treturn sp_strong_stop(",
        wrong: "sp_eventual_commit(&shared->eventual);\n\tsp_swish_forget(shared);\n\treturn sp_strong_stop(",
    },
    SeededBug {
        name: "CountedEarly",
        what: "A packet is counted when it begins to wait, and when it leaves.",
        header: "stateplane_swish.h",
        right: "sp_swish_forget(shared);\n\tif (fails)",
        wrong: "sp_shared_commit(&shared->windows);\n\tif (fails)",
    },
    SeededBug {
        name: "CountedOfAnother",
        what: "What a packet notes goes beside the slot of another one.",
        header: "stateplane_swish.h",
        right: "bpf_map_lookup_elem(&sp_commit_noted, &index);",
        wrong: "(index ^= 1, bpf_map_lookup_elem(&sp_commit_noted, &index));",
    },
];

/// Of what operators read and write.
pub const ORDERS: &[SeededBug] = &[
    SeededBug {
        name: "OrderUnanswered",
        what: "An order is done before the tail has answered it.",
        header: "stateplane_strong_order.h",
        right: "if (SP_STRONG_LOAD(stream->acked) < sp_commit_number_of(head->name))\n\t\treturn SP_STRONG_ORDER_WAITS;",
        wrong: "",
    },
    SeededBug {
        name: "OrderReadsPending",
        what: "An operator reads what the tail does not have yet.",
        header: "stateplane_strong_order.h",
        right: "return strong.waits ? SP_STRONG_ORDER_WAITS : SP_STRONG_ORDER_DONE;",
        wrong: "return SP_STRONG_ORDER_DONE;",
    },
    SeededBug {
        name: "AbsentForgotten",
        what: "A write that asks that the key is absent does not ask it.",
        header: "stateplane_strong_order.h",
        right: "words = sp_strong_stage(strong, id, flags, ",
        wrong: "words = sp_strong_stage(strong, id, flags & ~SP_STRONG_ABSENT, ",
    },
    SeededBug {
        name: "RefusalForgotten",
        what: "An order that the head refused is told as done.",
        header: "stateplane_strong_order.h",
        right: "SP_STRONG_STORE(ordered->refused, name);",
        wrong: "(void)name;",
    },
];
