/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_flow_layouts.h: what RedPlane's data plane shares with user space.
 *
 * Generated from systems/redplane/protocol/src/layouts.rs. Edit that, then run
 * UPDATE=1 cargo test -p state-protocol --lib
 */
#ifndef STATEPLANE_FLOW_LAYOUTS_H
#define STATEPLANE_FLOW_LAYOUTS_H

#define SP_FLOW_SHARDS_MAX 256 /* shards of a cluster */
/* least of the round-trip time's variation, as far as time-outs go */
#define SP_RESEND_GRANULARITY_NS 2000000
#define SP_SEEN_SETS 131072
#define SP_SEEN_IN_SET 7
#define SP_BACKEND_PLACE_BITS 10 /* of a hash */
#define SP_BACKEND_PLACES 1024
#define SP_SNAPSHOT_PART_BYTES 1280 /* of slots in one message */
#define SP_FLOW_ENTRY_HEAD_BYTES 64

/* Bits of sp_flow_entry_head.flags. */
enum {
	SP_FLOW_QUEUED = 1, /* stands in the ring */
	SP_FLOW_HALF_CLOSED = 4, /* the program said so (phase) */
	SP_FLOW_CLOSED = 8, /* the same */
	SP_FLOW_HALF_OPEN = 256, /* the same */
	SP_FLOW_UNKNOWN = 16, /* released: the value here is not that epoch's */
	SP_FLOW_RELEASED = 32, /* no longer this switch's under this epoch */
	SP_FLOW_RELEASE_ACKED = 64, /* and the store knows */
	SP_FLOW_DYING = 128, /* being removed: no value any more */
	SP_FLOW_RECALLED = 512, /* to be released when it is durable */
};

/* The header of a message, as it stands on the wire: systems/redplane/docs/state-protocol.md. */
struct sp_flow_header {
	__be16 magic; /* SP_FLOW_MAGIC. */
	__u8 version; /* SP_FLOW_VERSION. */
	__u8 message_type; /* Of enum sp_flow_type. */
	__be16 object_id; /* The object's number in the manifest. */
	__be16 flags; /* Of enum sp_flow_flag. */
	__be32 switch_id; /* Who asks; replies echo it. */
	__be32 incarnation; /* Which of its lives. */
	__be64 request_ns; /* The switch's clock when it sent the request; replies echo it. */
	__be32 epoch; /* The grant. */
	__be16 key_bytes; /* Of the key behind the header. */
	__be16 value_bytes; /* Of the value behind the key. */
	__be64 seq; /* Of the flow's updates. */
	__be32 lease_us; /* Of a reply: the lease; of a RELEASE: milliseconds without a packet. */
	__be16 port; /* P4 port of the packet. */
	__be16 packet_bytes; /* Of the packet behind the value. */
	__be32 session; /* The switch's session with the shard. */
	__be16 shard; /* The key's shard. */
	__u8 key_id; /* Of the tag's secret. */
	__u8 zero; /* Zero. */
	__be64 tag; /* Over addresses and the rest of the message. */
} __attribute__((packed));
_Static_assert(sizeof(struct sp_flow_header) == 64, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_flow_header, tag) == 56, "as in Rust");

/*
 * With what every entry begins: a flow's, then its key and value follow; an instance's of a
 * SnapshotState, then its key, its book and its slots.
 */
#define SP_FLOW_ENTRY_HEAD \
	struct bpf_spin_lock lock; /* Held while the entry changes. */ \
	__u32 version; /* Odd while being written. */ \
	__u64 seq; /* The last update. */ \
	__u64 acked_seq; /* The last update that the store has. */ \
	__u64 used_ns; /* Coarse clock of the last get, to SP_FLOW_USE_GRAIN_NS. */ \
	__u64 sent_ns; /* When the last UPDATE or RELEASE was sent. */ \
	__u32 epoch; /* The grant; 0: never granted. */ \
	__u32 session; /* In which the store says that the flow is this switch's. */ \
	__u16 shard; /* Never changes. */ \
	__u16 flags; /* SP_FLOW_QUEUED and others. */ \
	__u32 resends; /* Since the store last acknowledged something new: the back-off. */ \
	__u64 name; /* The place of the last update in a batch (stateplane_commit.h); 0: it was in none. */
struct sp_flow_entry_head {
	SP_FLOW_ENTRY_HEAD
};
_Static_assert(sizeof(struct sp_flow_entry_head) == 64, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_flow_entry_head, name) == 56, "as in Rust");

/* The switch's settings; written by the agent. */
struct sp_flow_settings {
	__u32 switch_id; /* Who this is in the state protocol. */
	__u32 incarnation; /* Which life of it. */
	__be32 protocol_address; /* Source of its messages, and where replies go. */
	__u32 shards; /* Of the cluster; 0: not known yet. */
	__u64 lease_margin_ns; /* Subtracted from every lease. */
	/*
	 * An update or release that is not acknowledged is sent again, no sooner than after so
	 * long ("Re-sending"); also before anything was measured.
	 */
	__u64 resend_least_ns;
	__u64 resend_most_ns; /* And no later. */
	/* Packets of a shard that may wait for the store; 0: any number ("Window"). */
	__u64 window;
	/*
	 * Between two looks of the packet generator at its work: a snapshot is taken at the look
	 * nearest to its time, so up to half of this early.
	 */
	__u64 look_ns;
};
_Static_assert(sizeof(struct sp_flow_settings) == 56, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_flow_settings, look_ns) == 48, "as in Rust");

/* The head of a shard's chain. */
struct sp_shard_head {
	__be32 address; /* 0: not known. */
	__be16 port; /* Its UDP port. */
	__u16 reserved; /* Zero. */
	__u64 since_ns; /* What was sent before went to another head. */
};
_Static_assert(sizeof(struct sp_shard_head) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_shard_head, since_ns) == 8, "as in Rust");

/*
 * This switch's session with a shard ("Sessions" 1 and 2). Written under the lock, the number
 * before the end; read without (rule 4).
 */
struct sp_session {
	struct bpf_spin_lock lock; /* Held while the session changes. */
	__u32 number; /* 0: none. */
	__u64 lease_end_ns; /* This switch's clock. */
	/* Its length, as the store said last: a third of it is the heartbeats' interval. */
	__u64 lease_ns;
	__u64 srtt_ns; /* "Re-sending": smoothed round-trip time (RFC 6298), 0: nothing measured. */
	__u64 rttvar_ns; /* And its variation. */
	__u64 sent; /* "Window": requests sent. */
	__u64 done; /* Of these, answered or given up. */
	/*
	 * So many were sent when the clock was mark_ns: an answer to a later request says that
	 * these are answered or lost.
	 */
	__u64 mark_sent;
	__u64 mark_ns; /* When. */
	/* When `done` last grew, or the first request left after a time without any. */
	__u64 progress_ns;
};
_Static_assert(sizeof(struct sp_session) == 80, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_session, progress_ns) == 72, "as in Rust");

/* The names of the newest replies whose own bits select this set; a cache line. */
struct sp_seen_set {
	struct bpf_spin_lock lock; /* Held while the set changes. */
	__u32 next; /* Its oldest, which the next one replaces. */
	__u64 names[7]; /* In no order. */
};
_Static_assert(sizeof(struct sp_seen_set) == 64, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_seen_set, names) == 8, "as in Rust");

/* What the agent asks of sp_sweep. Times are CLOCK_MONOTONIC's. */
struct sp_flow_sweep_request {
	__u32 object_id; /* Of which object a flow is. */
	__u32 reserved; /* Zero. */
	/* Without packets since then, a local flow is removed, another one released. */
	__u64 idle_before_ns;
	__u64 half_closed_before_ns; /* The same of a flow that is closed in one direction. */
	__u64 closed_before_ns; /* And of a closed one. */
	/* Released, and the last message about it sent, before then: to be removed. */
	__u64 released_before_ns;
	__u8 key[256]; /* Padded with zeros. */
};
_Static_assert(sizeof(struct sp_flow_sweep_request) == 296, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_flow_sweep_request, key) == 40, "as in Rust");

/* What the local NAT_PORTS allocator draws from. */
struct sp_nat_pool {
	__u32 count; /* Addresses. */
	__u16 port_low; /* The first port. */
	__u16 port_high; /* The last port. */
	__be32 address[16]; /* The first `count` of them. */
};
_Static_assert(sizeof(struct sp_nat_pool) == 72, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_nat_pool, address) == 8, "as in Rust");

/*
 * Where the local BACKENDS allocator sends a new conversation whose hash is this place. Each
 * backend has places in proportion to its weight.
 */
struct sp_backend {
	__be32 address; /* 0: no backend. */
	__be16 port; /* Its port. */
	__u16 reserved; /* Zero. */
};
_Static_assert(sizeof(struct sp_backend) == 8, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_backend, reserved) == 6, "as in Rust");

/* Bookkeeping of an instance, behind the key. Bit i of the sets is part i. */
struct sp_snapshot_book {
	__u64 flip_ns; /* When the newest snapshot was taken. */
	__u64 due_ns; /* When the next one is to be. */
	__u64 since_flip_ns; /* The first update since then; 0: none. */
	/* When the oldest update came that is in no acknowledged snapshot; 0: there is none. */
	__u64 unsaved_ns;
	__u64 acked_parts; /* Of the snapshot in flight: on all servers. */
	__u64 queued_parts; /* Have a place in the ring. */
	__u64 seen_parts; /* Of a snapshot that is coming in. */
	__u64 seen_seq; /* Its number. */
	__u32 seen_epoch; /* Its grant. */
	__u32 held_epoch; /* The last grant under which a packet was here with a lease. */
	__u64 unleased_ns; /* Since when packets have gone on without a lease; 0: they have one. */
	__u64 wanted_ns; /* The last one that did. */
	/*
	 * When the store was last asked about the instance: by a part of a snapshot, or by
	 * LEASE_REQUEST.
	 */
	__u64 asked_ns;
	__u64 since_flip_updates; /* Accesses that changed something, since the flip. */
	/* And those of the interval before it, while its snapshot is in flight. */
	__u64 in_flight_updates;
};
_Static_assert(sizeof(struct sp_snapshot_book) == 112, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_snapshot_book, in_flight_updates) == 104, "as in Rust");

/* A slot of up to 32 bits. */
struct sp_slot4 {
	__u32 tag; /* The interval of its last update. */
	__u32 copy[2]; /* The newest value is at `tag & 1`. */
};
_Static_assert(sizeof(struct sp_slot4) == 12, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_slot4, copy) == 4, "as in Rust");

/* A slot of up to 64 bits. */
struct sp_slot8 {
	__u64 copy[2]; /* The newest value is at `tag & 1`. */
	__u32 tag; /* The interval of its last update. */
	__u32 reserved; /* Zero. */
};
_Static_assert(sizeof(struct sp_slot8) == 24, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_slot8, reserved) == 20, "as in Rust");

#endif
