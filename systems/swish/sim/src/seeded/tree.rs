//! Seeded bugs of aggregation trees.

use super::SeededBug;

/// Only runs with a tree show them.
pub const TREE: &[SeededBug] = &[
    SeededBug {
        name: "ReadyBeforeSubtree",
        what: "A switch says that it is ready before all below it are.",
        header: "stateplane_shared_tree.h",
        right: "SP_SHARED_LOAD(node->ready[window & 1]) + 1 != node->count)",
        wrong: "0)",
    },
    SeededBug {
        name: "ParentCountedReady",
        what: "A parent that says it is ready counts as a child that does.",
        header: "stateplane_shared_frame.h",
        right: "if (!sp_shared_is_parent(node, from))\n",
        wrong: "if (1)\n",
    },
    SeededBug {
        name: "CountedBeforeChildren",
        what: "A switch counts what it sends up before all of its children's messages are in.",
        header: "stateplane_shared_window.h",
        right: "if (SP_SHARED_LOAD(node->complete) + 1 + sp_shared_is_below(node) != node->count)",
        wrong: "if (0)",
    },
    SeededBug {
        name: "GatheredEarly",
        what: "A child's messages are merged while packets change the delta that they go into.",
        header: "stateplane_shared_window.h",
        right: "\t\t\tif (!sp_shared_drained(group, word, node->cpus))\n\t\t\t\tbreak;\n\t\t\tnext = SP_SHARED_WORD(window, SP_SHARED_GATHERING);",
        wrong: "\t\t\tnext = SP_SHARED_WORD(window, SP_SHARED_GATHERING);",
    },
    SeededBug {
        name: "TotalAdded",
        what: "The total is added to what a switch sends on, and does not replace it.",
        header: "stateplane_shared_tree.h",
        right: "*cell = replaces ? *cells : sp_shared_joined",
        wrong: "*cell = sp_shared_joined",
    },
    SeededBug {
        name: "TotalAddedToBlock",
        what: "The same, of a whole block.",
        header: "stateplane_shared_tree.h",
        right: "if (replaces) {\n\t\tfor (int",
        wrong: "if (0) {\n\t\tfor (int",
    },
    SeededBug {
        name: "UpToldToChild",
        what: "A switch sends its children what it sends up.",
        header: "stateplane_shared_tree.h",
        right: "return sp_shared_is_below(node) ? 0 : window;",
        wrong: "return window;",
    },
    SeededBug {
        name: "OwnMergedBelow",
        what: "A switch with a parent merges its own messages into its value, and the total, too.",
        header: "stateplane_shared_frame.h",
        right: "if (sp_shared_is_below(node)) {\n\t\tsp_shared_count(SP_SHARED_STAT_SENT);",
        wrong: "if (0) {\n\t\tsp_shared_count(SP_SHARED_STAT_SENT);",
    },
    SeededBug {
        name: "OldCellsKept",
        what: "What a block had in the rotation before last is sent on with a child's cells.",
        header: "stateplane_shared_tree.h",
        right: "\tif (!node->filled)\n\t\tsp_shared_freshen(number, window);\n\tbpf_spin_lock(&lock->lock);\n\tchanged = block->changed[side];\n\tcells_changed",
        wrong: "\tbpf_spin_lock(&lock->lock);\n\tchanged = block->changed[side];\n\tcells_changed",
    },
    SeededBug {
        name: "NotSentOn",
        what: "A switch with children does not keep the total for them.",
        header: "stateplane_shared_frame.h",
        right: "if (node->tree && (!up || sp_shared_has_children(node)))",
        wrong: "if (node->tree && !up)",
    },
];
