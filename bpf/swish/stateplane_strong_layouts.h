/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_layouts.h: what SwiSh's chains of switches share with user space.
 *
 * Generated from systems/swish/protocol/src/strong.rs. Edit that, then run
 * UPDATE=1 cargo test -p swish-protocol --lib strong
 */
#ifndef STATEPLANE_STRONG_LAYOUTS_H
#define STATEPLANE_STRONG_LAYOUTS_H

#define SP_STRONG_UDP_PORT 5414 /* of members of a chain */
#define SP_STRONG_MEMBERS 32 /* of a group */
#define SP_STRONG_CPUS 64 /* of a switch */
#define SP_STRONG_HEADER_WORDS 9 /* of a message, in front of its records */
#define SP_STRONG_RECORD_WORDS 2 /* of a record, in front of its key */
#define SP_STRONG_RECORDS 63 /* of a batch */
#define SP_STRONG_WORDS 175 /* of a batch's records */
#define SP_STRONG_LOG 256 /* batches that a member keeps */
#define SP_STRONG_TOMBS 1024 /* removed keys that it remembers */
#define SP_STRONG_KEY_WORDS 5 /* of a key */
#define SP_STRONG_VALUE_WORDS 8 /* of a value */
#define SP_STRONG_PACKET_RECORDS 8 /* of one packet */
#define SP_STRONG_PACKET_WORDS 64 /* of one packet's records */
#define SP_STRONG_TABLES 16 /* of a program */
#define SP_STRONG_NO_MEMBER 65535 /* no member's number */
#define SP_STRONG_ON 1 /* the member takes messages */
#define SP_STRONG_HEAD 2 /* it decides */
#define SP_STRONG_TAIL 4 /* it answers */
#define SP_STRONG_JOINS 8 /* it is to be given what the others have */
#define SP_STRONG_GIVES 16 /* the next one is */
#define SP_STRONG_QUIET 32 /* it is lent no more time to read */
#define SP_STRONG_MEETS 64 /* there are no controllers */
#define SP_STRONG_ORDER_LOOK 0
#define SP_STRONG_ORDER_WRITE 1
#define SP_STRONG_ORDER_ASK 2
#define SP_STRONG_ORDER_DONE 0
#define SP_STRONG_ORDER_WAITS 1
#define SP_STRONG_ORDER_BUSY 2
#define SP_STRONG_ORDER_NO_LEASE 3
#define SP_STRONG_ORDER_FULL 4
#define SP_STRONG_ORDER_REFUSED 5
#define SP_STRONG_ORDER_FORGOTTEN 6
#define SP_STRONG_ORDER_FAULT 7
#define SP_STRONG_REQUEST 16
#define SP_STRONG_BATCH 32
#define SP_STRONG_ACK 48
#define SP_STRONG_ROUND 64
#define SP_STRONG_COPY 80
#define SP_STRONG_COPIED 96
#define SP_STRONG_HELLO 112
#define SP_STRONG_GROUP 1
#define SP_STRONG_ABSENT 2
#define SP_STRONG_SINCE 4
#define SP_STRONG_REMOVE 8
#define SP_STRONG_READ 16

/* Of the map sp_strong_stats. */
enum {
	SP_STRONG_STAT_WRITES,
	SP_STRONG_STAT_READS_WAITED,
	SP_STRONG_STAT_DECIDED,
	SP_STRONG_STAT_CONFLICTS,
	SP_STRONG_STAT_APPLIED,
	SP_STRONG_STAT_FORWARDED,
	SP_STRONG_STAT_ANSWERED,
	SP_STRONG_STAT_REPEATED,
	SP_STRONG_STAT_EARLY,
	SP_STRONG_STAT_SENT_AGAIN,
	SP_STRONG_STAT_RAN_AGAIN,
	SP_STRONG_STAT_EXPIRED,
	SP_STRONG_STAT_ROUNDS,
	SP_STRONG_STAT_COPIED,
	SP_STRONG_STAT_TOO_OFTEN,
	SP_STRONG_STAT_TABLE_FULL,
	SP_STRONG_STAT_NO_LEASE,
	SP_STRONG_STAT_TOO_MANY,
	SP_STRONG_STAT_TO_HOST,
	SP_STRONG_STAT_LOG_FULL,
	SP_STRONG_STAT_BUSY,
	SP_STRONG_STAT_MALFORMED,
	SP_STRONG_STAT_FOREIGN,
	SP_STRONG_STAT_RESTARTED,
	SP_STRONG_STAT_FORGED,
	SP_STRONG_STAT_NO_ROUTE,
	SP_STRONG_STAT_FAULTS,
	SP_STRONG_STAT_ORDERS,
	SP_STRONG_STAT_COUNT,
};

/* A chain's member on this switch: numbers of batches in the group's one order. */
struct sp_strong_node {
	__u64 lock; /* A CPU changes what is below; 0: none does. */
	__u64 view; /* The view that this member has taken. */
	__u64 since_ns; /* When (CLOCK_MONOTONIC). */
	__u64 resent_ns; /* When a batch was last sent again. */
	__u64 tombs; /* Removed keys so far. */
	__u64 swept_ns; /* When the head last looked for keys whose time is over. */
	__u64 sweeps; /* How often it did. */
	__u64 padding; /* To the end of the cache line. */
	__u64 applying; /* A batch up to this one may be half written. */
	__u64 applied; /* All batches up to this one are written here. */
	__u64 committed; /* The tail has all up to this one, as far as is known here. */
	__u64 forgotten; /* Keys that were removed up to this one may be forgotten. */
	__u64 reads_ns; /* Packets may read until then (CLOCK_MONOTONIC). */
	__u64 whole; /* All that the others have is here, too. */
	__u64 begun; /* It is known from which batch on this is a member. */
	/* One that joins: all is here once this batch is; 0: that is not known yet. */
	__u64 whole_at;
	__u64 round; /* The newest round of this view that came by. */
	__u64 round_done; /* The head: it has come back. */
	__u64 passed_ns; /* When it came by. */
	__u64 before_ns; /* When the one before it did. */
	__u64 round_ns; /* The head: when it last sent it. */
	/* The part of a copy that is under way from here, or was the last one to come. */
	__u64 part;
	__u64 cursor; /* Where the one from here begins: table, then place. */
	__u64 part_ns; /* When it was sent. */
};
_Static_assert(sizeof(struct sp_strong_node) == 192, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_strong_node, part_ns) == 184, "as in Rust");

/* A view of the group, as this switch is in it. */
struct sp_strong_view {
	__u64 number; /* Its number: at least 1. */
	/*
	 * The tail answers nothing until it has been in the view for so long: then leases of
	 * removed members are over.
	 */
	__u64 wait_ns;
	/* So long packets read after all members were known to be in the view; 0: for good. */
	__u64 lease_ns;
	__u64 layout; /* A number for the layout of the group's variables, in each tag. */
	__u32 standing; /* SP_STRONG_ON and the like. */
	__u32 own; /* This switch's number as a member. */
	__u32 incarnation; /* This life of the switch. */
	__u32 head; /* The first of the chain. */
	__u32 next; /* The one behind this switch. */
	__u32 previous; /* The one before it. */
	__u32 last; /* The last of the chain. */
	__u32 padding; /* To the end of the word. */
	/*
	 * Without controllers: a number for the lives that this member agrees to; 0: it has not
	 * heard of all.
	 */
	__u64 offer;
	__u32 address[32]; /* By number: addresses of all members; 0.0.0.0: none. */
	__u32 life[32]; /* Without controllers: the lives that it agrees to. */
};
_Static_assert(sizeof(struct sp_strong_view) == 328, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_strong_view, life) == 200, "as in Rust");

/* Without controllers: what was heard of a member. */
struct sp_strong_life {
	/* When it was heard of (CLOCK_MONOTONIC); of this switch: when it last sent a hello. */
	__u64 heard_ns;
	__u64 offer; /* The number for the lives that it agrees to. */
	__u64 applied; /* Batches that are written there. */
	__u64 other_ns; /* When another life of it was heard of. */
	__u32 life; /* Its life; 0: it was never heard of. */
	__u32 other; /* Another life of it, whose messages are refused. */
	__u32 refuses; /* A bit for each member of which it refuses another life. */
	__u32 turn; /* Of this switch: to whom the last hello went. */
};
_Static_assert(sizeof(struct sp_strong_life) == 48, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_strong_life, turn) == 44, "as in Rust");

/* The last batch of a stream that was decided. */
struct sp_strong_stream {
	__u64 batch; /* Its number in the stream. */
	__u64 seq; /* Its number in the group's order. */
	__u64 refused; /* A bit for each record that was refused. */
	__u64 full; /* Of those, which ones for want of room. */
	__u64 incarnation; /* The origin's life. */
};
_Static_assert(sizeof(struct sp_strong_stream) == 40, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_strong_stream, incarnation) == 32, "as in Rust");

/* A table. */
struct sp_strong_table {
	__u32 live; /* Keys. */
	__u32 used; /* Records that were ever used. */
	__u32 swept; /* The next record that the head looks at: is its time over? */
	__u32 padding; /* To the end of the word. */
};
_Static_assert(sizeof(struct sp_strong_table) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_strong_table, padding) == 12, "as in Rust");

/* An operator's order, in front of [`KEY_BYTES`] of a key and [`VALUE_BYTES`] of a value. */
struct sp_strong_order_head {
	__u32 what; /* SP_STRONG_ORDER_LOOK and the like. */
	__u32 object; /* Which object. */
	/* SP_STRONG_ABSENT, SP_STRONG_REMOVE, SP_STRONG_READ; 0: the value is written. */
	__u32 flags;
	__u32 idle_s; /* Seconds without a packet after which the key's time is over; 0: never. */
	__u32 status; /* SP_STRONG_ORDER_DONE and the like: the answer. */
	__u32 found; /* Whether the key that was looked for is there. */
	__u64 name; /* The record that was written. */
	__u64 incarnation; /* Of the switch's life when it was written. */
};
_Static_assert(sizeof(struct sp_strong_order_head) == 40, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_strong_order_head, incarnation) == 32, "as in Rust");

#endif
