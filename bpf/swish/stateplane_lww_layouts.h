/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_lww_layouts.h: what registers, tables and sets with EWO share with user space in maps.
 *
 * Generated from systems/swish/protocol/src/lww.rs. Edit that, then run
 * UPDATE=1 cargo test -p swish-protocol --lib
 */
#ifndef STATEPLANE_LWW_LAYOUTS_H
#define STATEPLANE_LWW_LAYOUTS_H

#define SP_LWW_HELD 1 /* the record has a key */
#define SP_LWW_REMOVED 2 /* the key was removed */
#define SP_LWW_ABSENT 4 /* a write, if the key is not there */
#define SP_LWW_PRESENT 8 /* a write, if it is there */
#define SP_LWW_SPARE 1024 /* free entries of the index */

/* What a record begins with. */
struct sp_lww_head {
	__u64 time; /* Of the write that made it: TAI, or more; 0: there was none. */
	__u64 writer; /* The life that wrote it. */
	__u64 listed; /* One more than its newest place in the list of changes; 0: none. */
	__u64 since; /* A tombstone: since when this switch has it (CLOCK_MONOTONIC). */
	__u32 flags; /* SP_LWW_HELD, SP_LWW_REMOVED. */
	__u32 object; /* Which object's it is. */
};
_Static_assert(sizeof(struct sp_lww_head) == 40, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_lww_head, object) == 36, "as in Rust");

/* A group's records on this switch. */
struct sp_lww_node {
	__u64 clock; /* The largest time that was seen. A cache line of its own. */
	__u64 forgotten; /* The largest time of a tombstone that was forgotten. */
	__u64 clock_padding[6]; /* To the end of the cache line. */
	/* Places of the list of changes that are given out. A cache line of its own. */
	__u64 listed;
	__u64 listed_padding[7]; /* See `clock_padding`. */
	__u64 taken; /* Places below this were sent to some member. A cache line of its own. */
	__u64 taken_padding[7]; /* See `clock_padding`. */
};
_Static_assert(sizeof(struct sp_lww_node) == 192, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_lww_node, taken_padding) == 136, "as in Rust");

/* What user space says of a group. */
struct sp_lww_terms {
	/* Tombstones that are here since before have ended (CLOCK_MONOTONIC). */
	__u64 forget_before;
	__u64 hears; /* A bit for each member that this switch hears. */
};
_Static_assert(sizeof(struct sp_lww_terms) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_lww_terms, hears) == 8, "as in Rust");

/* A member of a group, as this switch knows it. */
struct sp_lww_member {
	__u64 next; /* The place of the list of changes that it is sent next. */
	__u64 hears; /* A bit for each member that it hears, as it said last. */
	__u64 sent_ns; /* When it sent its newest message with records, by its clock (TAI). */
	__u64 newer; /* Messages with records that were newer than all before. */
};
_Static_assert(sizeof(struct sp_lww_member) == 32, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_lww_member, newer) == 24, "as in Rust");

/* How many records an object has. */
struct sp_lww_counts {
	__u64 used; /* Places that were ever given out. */
	__u64 live; /* Keys that are there. */
	__u64 removed; /* Tombstones. */
	__u64 full; /* Writes of this switch that found no room. */
	__u64 full_of_others; /* Writes of other switches that found none. */
};
_Static_assert(sizeof(struct sp_lww_counts) == 40, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_lww_counts, full_of_others) == 32, "as in Rust");

/* What an operator writes: in front of key and value. */
struct sp_lww_order {
	__u32 object; /* Which object. */
	__u32 flags; /* SP_LWW_REMOVED, SP_LWW_ABSENT, SP_LWW_PRESENT. */
};
_Static_assert(sizeof(struct sp_lww_order) == 8, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_lww_order, flags) == 4, "as in Rust");

#endif
