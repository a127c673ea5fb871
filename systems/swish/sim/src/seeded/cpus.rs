//! The packets' part of a node a CPU, for measurements (systems/swish/docs/cpus.md).

use super::SeededBug;

/// Packets as they would be if each CPU were a node of its own: its own deltas, no pins, plain
/// additions.
///
/// It is right for what a packet costs, and for nothing else: windows still turn for the switch,
/// only the first CPU's updates are sent, and an update may come late. All CPUs read the values of
/// the first one (as programs keep what they read in registers that all CPUs share). Two CPUs at
/// the most.
pub const A_NODE_A_CPU: &[SeededBug] = &[
    SeededBug {
        name: "OwnBlocks",
        what: "Each CPU has all blocks.",
        right: "\t__uint(max_entries, SP_SHARED_BLOCKS);\n\t__type(key, __u32);\n\t__type(value, struct sp_shared_block);",
        wrong: "\t__uint(max_entries, 2 * SP_SHARED_BLOCKS);\n\t__type(key, __u32);\n\t__type(value, struct sp_shared_block);",
        ..PACKETS
    },
    SeededBug {
        name: "OwnBlock",
        what: "A packet knows its CPU's block.",
        right: "\treturn bpf_map_lookup_elem(&sp_shared_blocks, &block);\n}\n",
        wrong: "\treturn bpf_map_lookup_elem(&sp_shared_blocks, &block);\n}\n\n/* The block of this CPU's node. */\nSP_INLINE __u32 sp_shared_here(__u32 block)\n{\n\treturn block + (sp_shared_this_cpu() & 1) * SP_SHARED_BLOCKS;\n}\n",
        ..PACKETS
    },
    SeededBug {
        name: "NoCpu",
        what: "A packet looks up no pin.",
        right: "\tcpu = sp_shared_cpu(group, sp_shared_this_cpu());\n\tnode = sp_shared_node(group);\n\tif (!cpu || !node)",
        wrong: "\tnode = sp_shared_node(group);\n\tif (!node)",
        ..PACKETS
    },
    SeededBug {
        name: "NoCpuDeclared",
        what: "The same: no place for it.",
        right: "\tstruct sp_shared_cpu *cpu;\n\tstruct sp_shared_node *node;\n\t__u64 word;\n",
        wrong: "\tstruct sp_shared_node *node;\n\t__u64 word;\n",
        ..PACKETS
    },
    SeededBug {
        name: "NoUnknownPin",
        what: "A packet exchanges no pin before it loads the window.",
        right: "\t__sync_lock_test_and_set(&cpu->packet, SP_SHARED_UNKNOWN_PIN);\n",
        wrong: "",
        ..PACKETS
    },
    SeededBug {
        name: "NoPin",
        what: "A packet stores no pin.",
        right: "\tSP_SHARED_STORE(cpu->packet, word);\n",
        wrong: "",
        ..PACKETS
    },
    SeededBug {
        name: "NoPinAtVerdict",
        what: "No pin is taken away.",
        right: "\t\tcpu = sp_shared_cpu(group, sp_shared_this_cpu());\n\t\tif (!cpu)\n\t\t\tcontinue;\n\t\t/* After all that the packet did: an exchange, where a store could come before it. */\n\t\tif (sp_total_store_order)\n\t\t\tSP_SHARED_STORE(cpu->packet, SP_SHARED_NO_PIN);\n\t\telse\n\t\t\t__sync_lock_test_and_set(&cpu->packet, SP_SHARED_NO_PIN);\n",
        wrong: "",
        ..PACKETS
    },
    SeededBug {
        name: "NoPinDeclared",
        what: "The same: no place for it.",
        right: "\t\tstruct sp_shared_cpu *cpu;\n\n\t\tif (!shared->word[group])",
        wrong: "\t\tif (!shared->word[group])",
        ..PACKETS
    },
    SeededBug {
        name: "UpdatesOwn",
        what: "A packet updates its CPU's delta.",
        right: "block = sp_shared_block(number);\n\tstruct sp_shared_node *node = sp_shared_node(group);",
        wrong: "block = sp_shared_block(sp_shared_here(number));\n\tstruct sp_shared_node *node = sp_shared_node(group);",
        ..PACKETS
    },
    SeededBug {
        name: "ClaimsOwn",
        what: "A packet clears its CPU's line.",
        right: "!sp_shared_claim_line(number, side, line, rotation)",
        wrong: "!sp_shared_claim_line(sp_shared_here(number), side, line, rotation)",
        ..PACKETS
    },
    SeededBug {
        name: "PlainClaim",
        what: "A line is claimed by plain loads and stores.",
        right: "if (old >> 16 != rotation &&\n\t    __sync_val_compare_and_swap(place, old, fresh | SP_SHARED_CLEARING) == old) {",
        wrong: "if (old >> 16 != rotation) {",
        ..PACKETS
    },
    SeededBug {
        name: "PlainClear",
        what: "A cleared line is stored without a barrier.",
        right: "\t\t__sync_lock_test_and_set(place, fresh);\n",
        wrong: "\t\t*place = fresh;\n",
        ..PACKETS
    },
    SeededBug {
        name: "BoundedCell",
        what: "Nothing changes but what the verifier knows of the cell, as it must for plain stores.",
        right: "place = &block->delta[side][cell];",
        wrong: "place = &block->delta[side][sp_below(cell, SP_SHARED_CELLS)];",
        ..PACKETS
    },
    SeededBug {
        name: "PlainSum",
        what: "Plain additions.",
        right: "__sync_fetch_and_add(place, by);",
        wrong: "*place += by;",
        ..PACKETS
    },
    SeededBug {
        name: "PlainUnion",
        what: "Plain unions.",
        right: "__sync_fetch_and_or(place, by);",
        wrong: "*place |= by;",
        ..PACKETS
    },
    SeededBug {
        name: "PlainBit",
        what: "A changed cell is marked by a plain store.",
        right: "\tif (__sync_fetch_and_or(&block->line[side][line], bit) & bit)\n\t\treturn 0;\n",
        wrong: "\tblock->line[side][line] |= bit;\n",
        ..PACKETS
    },
    SeededBug {
        name: "PlainCount",
        what: "Changed cells are counted by a plain store.",
        right: "\t\tif (__sync_val_compare_and_swap(&block->changed[side], old, fresh) == old)\n\t\t\tbreak;",
        wrong: "\t\tblock->changed[side] = fresh;\n\t\tbreak;",
        ..PACKETS
    },
    SeededBug {
        name: "FirstCpuSends",
        what: "Only the first CPU's blocks are sent: a list has room for each block once.",
        right: "\tif (old >> 16 != rotation)\n\t\tsp_shared_list_block",
        wrong: "\tif (old >> 16 != rotation && !sp_shared_here(0))\n\t\tsp_shared_list_block",
        ..PACKETS
    },
    SeededBug {
        name: "PlainList",
        what: "A changed block is listed by a plain addition.",
        right: "__sync_fetch_and_add(&node->dirty_blocks[side & 1], 1);",
        wrong: "node->dirty_blocks[side & 1]++;",
        ..PACKETS
    },
];

/// All of them are in the packets' header.
const PACKETS: SeededBug =
    SeededBug { name: "", what: "", header: "stateplane_shared.h", right: "", wrong: "" };
