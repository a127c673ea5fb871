/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_slots_layouts.h: what NetChain's data plane shares with user space in maps.
 *
 * Generated from systems/netchain/protocol/src/layouts.rs. Edit that, then run
 * UPDATE=1 cargo test -p netchain-protocol --lib
 */
#ifndef STATEPLANE_SLOTS_LAYOUTS_H
#define STATEPLANE_SLOTS_LAYOUTS_H

#define SP_SLOTS_VALUE_MAX 512 /* bytes */
#define SP_WINDOW_CELLS 256 /* of a client's window */
#define SP_TAGS_KEYS 1025 /* keys; number 0: clients without one */
#define SP_TAGS_READ 1 /* the client may read */
#define SP_TAGS_WRITE 2 /* it may write */
#define SP_PEERS 255 /* peers; their numbers are below it */
#define SP_PEERS_DUE 8192 /* generated frames that wait */
#define SP_PEERS_PROBE 10 /* the operation of a probe */

/* Of the map sp_slots_stats. */
enum {
	SP_SLOTS_STAT_AGAIN,
	SP_SLOTS_STAT_TOO_OFTEN,
	SP_SLOTS_STAT_NO_READ,
	SP_SLOTS_STAT_FULL,
	SP_SLOTS_STAT_NO_WINDOW,
	SP_SLOTS_STAT_COUNT,
};

/* Of the map sp_peers_stats. */
enum {
	SP_PEERS_STAT_PROBES,
	SP_PEERS_STAT_ANSWERS,
	SP_PEERS_STAT_FOREIGN,
	SP_PEERS_STAT_COPIES,
	SP_PEERS_STAT_COUNT,
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

/* A client's key. */
struct sp_client_key {
	__u64 secret[2]; /* As SipHash takes it: two little-endian words. */
	__u64 prefix[2]; /* Of the keys of the store that it may name: high and low word. */
	__u64 mask[2]; /* The bits of the prefix that count. */
	__u64 interval_ns; /* Of its messages, on average; 0: any rate. */
	__u64 ahead_ns; /* So far it may be ahead of that. */
	__u64 rights; /* SP_TAGS_READ, SP_TAGS_WRITE; 0: there is no such key. */
};
_Static_assert(sizeof(struct sp_client_key) == 72, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_client_key, rights) == 64, "as in Rust");

/* Messages of a client that were dropped or refused; in the map, on one CPU. */
struct sp_client_drops {
	__u64 forged; /* The key does not make their tags. */
	__u64 denied; /* They ask for what the client may not do. */
	__u64 over_rate; /* They are above its rate. */
};
_Static_assert(sizeof(struct sp_client_drops) == 24, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_client_drops, over_rate) == 16, "as in Rust");

/* A peer, as the agent says. */
struct sp_peer {
	__u64 since_ns; /* When it became this switch's peer (CLOCK_MONOTONIC). */
	__be32 address; /* Its address; 0: there is none with this number. */
	__u32 padding; /* So that the size is a multiple of eight. */
};
_Static_assert(sizeof(struct sp_peer) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_peer, padding) == 12, "as in Rust");

/* What the data plane knows of a peer. */
struct sp_peer_clock {
	__u64 heard_ns; /* The newest clock that it has returned (CLOCK_MONOTONIC); 0: none yet. */
	__u64 lease_until_ns; /* When the lease of it ends; 0: there was none yet. */
};
_Static_assert(sizeof(struct sp_peer_clock) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_peer_clock, lease_until_ns) == 8, "as in Rust");

/* What probes carry, and how long a lease holds. */
struct sp_peer_settings {
	__u64 lease_ns; /* Of a lease, from the probe's clock on. */
	__u64 life; /* A number of this life of the agent's. */
	__be32 own; /* This switch's NetChain address. */
	__u32 ring; /* Fingerprint of the ring. */
};
_Static_assert(sizeof(struct sp_peer_settings) == 24, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_peer_settings, ring) == 20, "as in Rust");

/* What a generated frame becomes. */
struct sp_peers_due {
	__u32 operation; /* An operation of a message. */
	__u32 number; /* Of the peer, or of the slot that is copied. */
	__be32 to; /* Where it goes. */
	__u16 part; /* Of a slot that is copied; the object has it in the manifest. */
	__u16 object; /* The object. */
};
_Static_assert(sizeof(struct sp_peers_due) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_peers_due, object) == 14, "as in Rust");

/* What is noted of a slot, beside it. */
struct sp_slot_mark {
	__u32 copied_view; /* The view in which another switch has acknowledged a copy. */
	__u16 part; /* The part of all slots that its key belongs to. */
	__u16 used; /* 0: it is free. */
};
_Static_assert(sizeof(struct sp_slot_mark) == 8, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_slot_mark, used) == 6, "as in Rust");

#endif
