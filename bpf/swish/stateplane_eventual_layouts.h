/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_eventual_layouts.h: what variables with EWO share with user space in maps.
 *
 * Generated from systems/swish/protocol/src/eventual.rs. Edit that, then run
 * UPDATE=1 cargo test -p swish-protocol --lib
 */
#ifndef STATEPLANE_EVENTUAL_LAYOUTS_H
#define STATEPLANE_EVENTUAL_LAYOUTS_H

#define SP_EVENTUAL_UDP_PORT 5413 /* of messages between switches */
#define SP_EVENTUAL_MEMBERS 32 /* of a group */
#define SP_EVENTUAL_SINGLE 120 /* single cells of a message */
#define SP_EVENTUAL_RUN 180 /* cells of a message with a run of them */
#define SP_EVENTUAL_DIRECT 2147483648u /* the cell has no slots */
#define SP_EVENTUAL_DUE 1024 /* generated frames that wait */
#define SP_EVENTUAL_NO_COLUMN 4294967295u /* cells without slots */
#define SP_EVENTUAL_CHANGED 4294967294u /* what packets changed */
#define SP_EVENTUAL_RECORDS 4294967293u /* a run of records */
#define SP_EVENTUAL_RECORDS_CHANGED 4294967292u /* records that packets changed */
#define SP_EVENTUAL_BASE 4294967295u /* in the place of a life's address */
#define SP_EVENTUAL_BASES 2 /* columns that no life takes */
#define SP_EVENTUAL_KIND_RECORDS 2 /* the message brings records */
#define SP_EVENTUAL_KIND_RUN 1 /* the message brings a run of cells */
#define SP_EVENTUAL_KIND 224 /* all messages have these bits */
#define SP_EVENTUAL_KIND_SECRET_SHIFT 3 /* which secret */

/* What packets read, and change. */
struct sp_eventual_cell {
	__u64 value; /* The sum of all slots; or, without slots, the cell itself. */
	__u64 listed; /* One more than its newest place in the list of changes; 0: none. */
};
_Static_assert(sizeof(struct sp_eventual_cell) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_eventual_cell, listed) == 8, "as in Rust");

/* A group's variables with EWO on this switch. Only user space changes it. */
struct sp_eventual_node {
	/* This switch's life: whose the slots of column 0 are; 0: the group has not begun. */
	__u64 life;
	/* A bit for each member of the view, this switch too; 0: no message goes or comes. */
	__u64 members;
	__u32 view; /* The view; messages carry its low 16 bits. */
	__u32 own; /* This switch's number as a member. */
	__u32 count; /* How many members the view has. */
	__be32 address; /* This switch's address. */
	__u32 first_slotted; /* The group's first cell with slots. */
	__u32 slotted; /* How many it has. */
	__u32 first_direct; /* The group's first cell without. */
	__u32 direct; /* How many it has. */
};
_Static_assert(sizeof(struct sp_eventual_node) == 48, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_eventual_node, direct) == 44, "as in Rust");

/* The ends of a group's list of changes. Only packets and frames change them. */
struct sp_eventual_ends {
	__u64 listed; /* Places that are given out. A cache line of its own. */
	__u64 listed_padding[7]; /* To the end of the cache line. */
	__u64 taken; /* Places below this were sent to some member. A cache line of its own. */
	__u64 taken_padding[7]; /* See `listed_padding`. */
};
_Static_assert(sizeof(struct sp_eventual_ends) == 128, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_eventual_ends, taken_padding) == 72, "as in Rust");

/* A member of a group, as this switch knows it. */
struct sp_eventual_member {
	__u64 next; /* The place of the list of changes that it is sent next. */
	__be32 address; /* Its address. */
	__u32 frames; /* Messages that came from it. */
};
_Static_assert(sizeof(struct sp_eventual_member) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_eventual_member, frames) == 12, "as in Rust");

/* What a generated frame becomes. */
struct sp_eventual_due {
	__u32 group; /* Which group. */
	__u32 member; /* To which member. */
	/*
	 * A column, or SP_EVENTUAL_NO_COLUMN, SP_EVENTUAL_CHANGED, SP_EVENTUAL_RECORDS,
	 * SP_EVENTUAL_RECORDS_CHANGED.
	 */
	__u32 column;
	__u32 first; /* The first cell of the group's; the first record of all groups'. */
	/* Not 0: it is the group's first run of records, which is sent also if it has none. */
	__u32 begins;
	__u32 flow; /* UDP source port. */
};
_Static_assert(sizeof(struct sp_eventual_due) == 24, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_eventual_due, flow) == 20, "as in Rust");

#endif
