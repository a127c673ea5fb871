/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_slots_layouts.h: what NetChain's data plane shares with user space in maps.
 *
 * Made of systems/netchain/protocol/src/layouts.rs; to change it, change that, and run
 * UPDATE=1 cargo test -p netchain-protocol --lib
 */
#ifndef STATEPLANE_SLOTS_LAYOUTS_H
#define STATEPLANE_SLOTS_LAYOUTS_H

#define SP_SLOTS_VALUE_MAX 512 /* bytes */
#define SP_WINDOW_CELLS 256 /* of a client's window */

/* Of the map sp_slots_stats. */
enum {
	SP_SLOTS_STAT_AGAIN,
	SP_SLOTS_STAT_TOO_OFTEN,
	SP_SLOTS_STAT_NO_READ,
	SP_SLOTS_STAT_FULL,
	SP_SLOTS_STAT_NO_WINDOW,
	SP_SLOTS_STAT_COUNT,
};

/* With what every slot begins; its key and its value follow, padded to whole words. */
#define SP_SLOT_HEAD \
	struct bpf_spin_lock lock; /* Held while the slot changes. */ \
	__u32 generation; /* Odd while a CPU writes the slot. */
struct sp_slot_head {
	SP_SLOT_HEAD
};
_Static_assert(sizeof(struct sp_slot_head) == 8, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_slot_head, generation) == 4, "as in Rust");

/*
 * With what every client's window begins; its key follows, padded to whole words, then its
 * cells.
 */
#define SP_WINDOW_HEAD \
	__u64 heard_ns; /* When the newest request came (CLOCK_MONOTONIC); 0: the window is free. */
struct sp_window_head {
	SP_WINDOW_HEAD
};
_Static_assert(sizeof(struct sp_window_head) == 8, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_window_head, heard_ns) == 0, "as in Rust");

#endif
