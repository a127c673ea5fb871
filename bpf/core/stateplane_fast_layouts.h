/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_fast_layouts.h: a chain's fast path: what user space of a store and its program share.
 *
 * Generated from core/fast-chain/src/layouts.rs. Edit that, then run
 * UPDATE=1 cargo test -p fast-chain --lib layouts
 */
#ifndef STATEPLANE_FAST_LAYOUTS_H
#define STATEPLANE_FAST_LAYOUTS_H

#define SP_FAST_PORT 5407 /* UDP port of switches */
#define SP_FAST_OBJECTS 64 /* objects that have numbers below */
#define SP_FAST_CONTENT_WORDS 19 /* of a record's key and value */
#define SP_FAST_LINE_ENTRIES 8 /* records that an index line names */
#define SP_FAST_SECRETS 4
#define SP_FAST_LOCK_FREE 0
#define SP_FAST_LOCK_PROGRAM 1 /* a run of the program has it */
#define SP_FAST_LOCK_STORE 2 /* user space has it */
#define SP_FAST_STANDING_ON 1 /* batches are taken */
#define SP_FAST_STANDING_HEAD 2
#define SP_FAST_STANDING_TAIL 4

/* What the program counts. */
enum sp_fast_count {
	SP_FAST_ANSWERED = 0, /* batches that the tail answered */
	SP_FAST_FORWARDED = 1, /* batches that went on to the next member */
	SP_FAST_RECORDS = 2, /* records of those batches */
	SP_FAST_OFF = 3, /* to user space: the shard is off, or the view another */
	SP_FAST_BUSY = 4, /* to user space: it was at work on the shard */
	SP_FAST_MALFORMED = 5, /* to user space: not a batch as it must be */
	SP_FAST_FORGED = 6, /* to user space: not genuine */
	SP_FAST_ABSENT = 7, /* to user space: a record is not here */
	SP_FAST_NOT_HELD = 8, /* to user space: not the sender's under that grant and session */
	SP_FAST_KNOWN = 9, /* to user space: all of it was here, and may be nowhere else */
	SP_FAST_EARLY = 10, /* to user space: the grant of a record is not here yet */
	SP_FAST_NO_ROUTE = 11, /* to user space: no route, or no room for the answer */
	SP_FAST_GROUP = 12, /* to user space: records count only together */
	SP_FAST_COUNTS = 13,
};

/* A shard, as one member of its chain sees it: a cache line. */
struct sp_fast_shard {
	__u64 lock; /* SP_FAST_LOCK_*: held while anything of the shard is read or changed. */
	__u64 view; /* Number of the view. */
	__u32 standing; /* SP_FAST_STANDING_*. */
	__u32 changed; /* The first of the records that the program changed, plus one; 0: none. */
	__be32 previous; /* The member before this one; 0: none. */
	__be32 next; /* The member behind this one; 0: none. */
	__be16 next_port; /* UDP port of the member behind this one. */
	__u16 zero[15]; /* Zero. */
};
_Static_assert(sizeof(struct sp_fast_shard) == 64, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_fast_shard, zero) == 34, "as in Rust");

/* A record of a shard: three cache lines. A short key and value are in the first. */
struct sp_fast_record {
	__u16 object_id; /* The object's number in the manifest. */
	__u8 key_words; /* Words of the key; 0: no record is here. */
	__u8 value_words; /* Words of the value. */
	__u8 flags; /* The system's own bits of a record's flags. */
	__u8 changed; /* In the list of records that the program changed. */
	__u16 zero; /* Zero. */
	__u32 epoch; /* The newest grant. */
	/* Its owner's session; 0: at the head, only user space may take an update. */
	__u32 session;
	__u64 seq; /* Of the newest update. */
	__u32 switch_id; /* The owner; 0: nobody. */
	__u32 incarnation; /* Which of the owner's lives. */
	__u32 slot; /* The store's own number of the record. */
	__u32 next_changed; /* The next record that the program changed, plus one; 0: none. */
	/* Key and value, each filled up with zeros to whole words, as on the wire. */
	__u64 content[19];
};
_Static_assert(sizeof(struct sp_fast_record) == 192, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_fast_record, content) == 40, "as in Rust");

/* Lengths of an object's keys and values; zero: its records are not here. */
struct sp_fast_object {
	__u8 key_words; /* Words of a key. */
	__u8 value_words; /* Words of a value. */
	__u8 value_rest_bits; /* Bits behind the value in its last word, which are zero. */
	__u8 zero; /* Zero. */
};
_Static_assert(sizeof(struct sp_fast_object) == 4, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_fast_object, zero) == 3, "as in Rust");

/* What holds for all shards. */
struct sp_fast_config {
	/* Of the hash of keys: hosts choose keys, and must not choose where they lie. */
	__u64 seed;
	__u64 secrets[4][2]; /* The secrets by their numbers, as two little-endian words each. */
	__u8 known_secrets; /* Bit n: secret n is known. */
	__u8 send; /* Number of the secret that messages are signed with. */
	__be16 port; /* UDP port of this member. */
	__be32 address; /* Address of this member. */
	__u32 shards; /* Number of shards. */
	__u32 records; /* Records of a shard. */
	__u32 line_mask; /* Index lines of a shard, less one: all ones. */
	__u32 zero; /* Zero. */
	struct sp_fast_object objects[64]; /* By the object's number. */
};
_Static_assert(sizeof(struct sp_fast_config) == 352, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_fast_config, objects) == 96, "as in Rust");

#endif
