/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared_layouts.h: what SwiSh's data plane shares with user space in maps.
 *
 * Generated from systems/swish/protocol/src/layouts.rs. Edit that, then run
 * UPDATE=1 cargo test -p swish-protocol --lib
 */
#ifndef STATEPLANE_SHARED_LAYOUTS_H
#define STATEPLANE_SHARED_LAYOUTS_H

#define SP_SHARED_UDP_PORT 5411 /* of messages between switches */
#define SP_SHARED_CELLS 360 /* of 32 bits in a block */
#define SP_SHARED_LINES 24 /* of a block */
#define SP_SHARED_LINE_CELLS 15 /* of a line */
#define SP_SHARED_TRIES 64 /* of CPUs that change one word */
#define SP_SHARED_GROUPS 4 /* of variables */
#define SP_SHARED_CPUS 64 /* with packets */
#define SP_SHARED_SECRETS 4 /* of the fabric */
#define SP_SHARED_DUE 1024 /* generated frames that wait */
#define SP_SHARED_HEADER_BYTES 32 /* of a message */
#define SP_SHARED_BUCKETS 896 /* of windows' times */
#define SP_SHARED_NOT_KNOWN 4294967295u /* a count of messages */
#define SP_SHARED_NOTHING 65535 /* no message's number */
#define SP_SHARED_HOPS 15 /* of a frame that brings nothing */
#define SP_SHARED_MANY 64 /* messages of a large window */
#define SP_SHARED_LONGER 32 /* times as many hops in large windows */
#define SP_SHARED_YOUNG_NS 10000000 /* so long after they began */
#define SP_SHARED_KEPT 4 /* frames of a CPU go on in READY */
#define SP_SHARED_SHORT_NS 2000 /* a message, where more frames would wait */
#define SP_SHARED_CLEARING 32768 /* a CPU clears the line */
#define SP_SHARED_SUM 0 /* how cells merge */
#define SP_SHARED_OR 1
#define SP_SHARED_MAX 2
#define SP_SHARED_OWN 3 /* from here on: functions of the program */
#define SP_SHARED_ADVANCED 0 /* phases of a window */
#define SP_SHARED_RESETTING 1
#define SP_SHARED_READY 2
#define SP_SHARED_TURNING 3
#define SP_SHARED_ROTATED 4
#define SP_SHARED_COUNTING 5
#define SP_SHARED_SENDING 6
#define SP_SHARED_GATHERING 7
#define SP_SHARED_NO_TREE 0 /* a switch's place in the aggregation tree */
#define SP_SHARED_ROOT 1
#define SP_SHARED_BELOW 2
#define SP_SHARED_KIND_CELLS 1 /* the message brings cells */
#define SP_SHARED_KIND_SINGLE 2 /* single ones of several blocks */
#define SP_SHARED_KIND_PREVIOUS 4 /* of the window before */
#define SP_SHARED_KIND_SECRET_SHIFT 3 /* which secret */
#define SP_SHARED_KIND_PHASE_SHIFT 5 /* the sender's phase */

/* Of the map sp_shared_stats. */
enum {
	SP_SHARED_STAT_WINDOWS,
	SP_SHARED_STAT_SENT,
	SP_SHARED_STAT_RECEIVED,
	SP_SHARED_STAT_REPEATED,
	SP_SHARED_STAT_SEALED,
	SP_SHARED_STAT_FULL_DROPPED,
	SP_SHARED_STAT_FULL_PASSED,
	SP_SHARED_STAT_LINE_STUCK,
	SP_SHARED_STAT_MALFORMED,
	SP_SHARED_STAT_NOT_FABRIC,
	SP_SHARED_STAT_FOREIGN,
	SP_SHARED_STAT_FORGED,
	SP_SHARED_STAT_NO_ROUTE,
	SP_SHARED_STAT_NO_SECRET,
	SP_SHARED_STAT_FAULTS,
	SP_SHARED_STAT_EVENTUAL_SENT,
	SP_SHARED_STAT_EVENTUAL_GOSSIP,
	SP_SHARED_STAT_EVENTUAL_RECEIVED,
	SP_SHARED_STAT_EVENTUAL_RAISED,
	SP_SHARED_STAT_EVENTUAL_SKIPPED,
	SP_SHARED_STAT_NO_SLOT,
	SP_SHARED_STAT_CELL_STUCK,
	SP_SHARED_STAT_TABLE_FULL,
	SP_SHARED_STAT_COUNT,
};

/* 360 cells, twice as what packets read, twice as what they change. */
struct sp_shared_block {
	__u64 window[2]; /* The newest window that each value includes; 0: none. */
	/* Of each delta: the newest rotation with a changed cell, and how many (16 bits). */
	__u64 changed[2];
	/* Of each delta: the rotation (48 bits), SP_SHARED_CLEARING, a bit for each changed cell. */
	__u64 line[2][24];
	__u32 delta[2][360]; /* What packets change. */
	__u32 value[2][360]; /* What they read. */
};
_Static_assert(sizeof(struct sp_shared_block) == 6176, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_shared_block, value) == 3296, "as in Rust");

/* A group of variables on this switch. */
struct sp_shared_node {
	__u64 word; /* The window (61 bits) and the phase; 0: the group has not begun. */
	__u64 sealed; /* Not 0: nothing is merged, sent or turned. */
	/*
	 * Members that are ready, this switch too: for the windows of each lowest bit. In a tree:
	 * this switch, and children when all below them are ready, too.
	 */
	__u32 ready[2];
	__u64 all_ready; /* A member said that all are ready for this window. */
	__u32 complete; /* Members whose blocks of this window are all merged. */
	__u32 limit; /* Members' numbers are below this. */
	__u64 period_ns; /* Of a window, at the least; 0: the next one begins at once. */
	__u64 next_ns; /* When the next window may begin (CLOCK_MONOTONIC). */
	/* When the newest two windows began, by the window's lowest bit (CLOCK_MONOTONIC). */
	__u64 began_ns[2];
	__u32 view; /* The view; messages carry its low 16 bits. */
	__u32 own; /* This switch's number as a member. */
	__u32 count; /* How many members the view has. In a tree: neighbours, and this switch. */
	__u32 cpus; /* CPUs that may have packets. */
	__u32 first; /* The group's first block. */
	__u32 blocks; /* Its blocks. */
	/* Blocks of each of the window's messages: 1, or as SHAPES have it. */
	__u32 message_blocks;
	__be32 address; /* This switch's address. */
	/* This switch's messages of the newest two windows, by the window's lowest bit. */
	__u32 totals[2];
	/* Cells that packets changed in one block, at the most, in each delta. */
	__u32 most_cells[2];
	__u32 dirty_blocks[2]; /* Blocks that they changed. */
	/*
	 * Not 0, in measurements only: each window sends what user space has put into the deltas
	 * and the lists. (Packets cannot change all cells of a large variable in each window.)
	 */
	__u32 filled;
	/* Not 0: packets find that the group has not begun, as the switch is to leave it. */
	__u32 closed;
	__u64 moved_ns; /* When the newest window's frames began to move (CLOCK_MONOTONIC). */
	/* Cap on bandwidth: how long a byte takes, in 2^-16 ns; 0: there is none. */
	__u64 byte_time;
	__u64 sent_bytes; /* What this switch had sent when `moved_ns` was written. */
	__u64 busy_ns; /* How long its CPUs had worked on frames then. */
	__u32 cpu_percent; /* Cap on CPU time, of one CPU; 0: there is none. */
	__u32 tree; /* This switch's place in the group's aggregation tree. */
	/* What the agent compares when it takes the group over: of all members and the tree. */
	__u64 members;
};
_Static_assert(sizeof(struct sp_shared_node) == 184, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_shared_node, members) == 176, "as in Rust");

/* A member of a group, as this switch knows it. */
struct sp_shared_member {
	__u64 ready; /* The newest window that it was ready for. */
	__u32 total; /* Its messages in this window; SP_SHARED_NOT_KNOWN. */
	__u32 merged; /* Of those, so many are merged. */
	__u32 complete; /* 1: all of them. */
	__u32 frames; /* Frames that it sent. */
	/*
	 * Messages that it was sent, by the lowest bit of its window: in the lower half so many
	 * from the first one on, in the upper half so many from the last one back.
	 */
	__u64 next[2];
	/* Its address. 0.0.0.0: no member has this number; in a tree: no neighbour. */
	__be32 address;
	__u32 full; /* Of the frames that it sent, so many brought cells. */
};
_Static_assert(sizeof(struct sp_shared_member) == 48, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_shared_member, full) == 44, "as in Rust");

/* What a CPU works on in a group. Two cache lines: packets touch the first one only. */
struct sp_shared_cpu {
	/* The pin of the packet that is under way: window and phase; 0: none, 1: not known yet. */
	__u64 packet;
	__u64 frame; /* The same of a message. */
	__u64 rotation; /* The rotation that `used` counts. */
	__u64 used; /* Updates of this CPU in it. */
	__u64 share; /* As many may be. */
	/*
	 * The first rotation of the period of so many windows that `period_of` is in: packets of a
	 * window find it here instead of dividing.
	 */
	__u64 period_first;
	__u64 period_of; /* The rotation whose period that is. */
	__u64 period; /* How many windows the period has; 0: none was asked for. */
	__u64 sent_bytes; /* Bytes of frames that it sent. */
	__u64 busy_ns; /* How long it worked on frames, if there is a cap on that. */
	__u64 bare; /* Frames of large windows that brought nothing. */
	/* The window in which this CPU was last ready, and its phase: what `emptied` counts. */
	__u64 told;
	__u64 emptied; /* Frames that lost their cells when windows turned, and were to tell it. */
	__u64 unused[3]; /* 0. */
};
_Static_assert(sizeof(struct sp_shared_cpu) == 128, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_shared_cpu, unused) == 104, "as in Rust");

/* What tags are made with, of one of the fabric's secrets, for a group in a view. */
struct sp_shared_secret {
	__u64 sip[2]; /* As SipHash takes it. */
	__u32 hash[360]; /* Of the universal hash, a word for each cell. */
	__u64 present; /* 0: there is no such secret. */
};
_Static_assert(sizeof(struct sp_shared_secret) == 1464, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_shared_secret, present) == 1456, "as in Rust");

/* What a generated frame becomes. */
struct sp_shared_due {
	__u32 group; /* Which group. */
	__u32 member; /* To which member; this switch itself: its own message `want` is merged. */
	__u32 want; /* The number of a message that this switch lacks, or SP_SHARED_NOTHING. */
	__u32 flow; /* UDP source port. */
	__u32 window; /* The low bits of the window in which it was queued. */
};
_Static_assert(sizeof(struct sp_shared_due) == 20, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_shared_due, window) == 16, "as in Rust");

#endif
