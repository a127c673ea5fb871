/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_layouts.h: what the platform's headers share with user space.
 *
 * Generated from switch/dataplane/src/layouts/core.rs. Edit that, then run
 * UPDATE=1 cargo test -p dataplane --lib layouts
 */
#ifndef STATEPLANE_LAYOUTS_H
#define STATEPLANE_LAYOUTS_H

#define SP_DROP_PORT 511 /* the P4 port of what is dropped */
#define SP_GENERATOR_PORT 509 /* the P4 port of generated packets */
/* in test mode: to the loop, in as many copies as this is less than the port */
#define SP_LOOP_PORT 65280
#define SP_MAX_PORTS 512 /* P4 ports */
#define SP_MAX_IFINDEX 65536 /* interfaces' indexes are below */
#define SP_SECRETS 4 /* secrets; a power of two */
#define SP_LOCAL_FILTER_BITS 12 /* of an address's hash */
#define SP_LOCAL_FILTER_FACTOR 2654435761u /* of the hash */

/* What becomes of a frame in test mode. */
enum {
	SP_VERDICT_DROP = 0,
	SP_VERDICT_FORWARD = 1,
	SP_VERDICT_TO_HOST = 2,
};

/* What output commit counts. */
enum sp_commit_stat {
	SP_COMMIT_PARKED,
	SP_COMMIT_RECORDED,
	SP_COMMIT_BATCHES,
	SP_COMMIT_BATCHES_RESENT,
	SP_COMMIT_BATCHES_ACKED,
	SP_COMMIT_STALE_ACKS,
	SP_COMMIT_RECORDS_REFUSED,
	SP_COMMIT_EXCHANGED,
	SP_COMMIT_COPIED,
	SP_COMMIT_BATCH_FULL,
	SP_COMMIT_LOT_FULL,
	SP_COMMIT_COMMIT_REFUSED,
	SP_COMMIT_EXPIRED,
	SP_COMMIT_SHORT_FRAMES,
	SP_COMMIT_IDLE_COPIES,
	SP_COMMIT_COMMIT_FAULTS,
	SP_COMMIT_BATCH_FULL_WRAPPED,
	SP_COMMIT_LOT_FULL_WRAPPED,
	SP_COMMIT_DEFERRED,
	SP_COMMIT_STATS, /* how many */
};

/* What a port has seen; in the map, on one CPU. */
struct sp_port_stats_value {
	__u64 rx_packets; /* Frames in. */
	__u64 rx_bytes; /* Bytes in. */
	__u64 tx_packets; /* Frames out. */
	__u64 tx_bytes; /* Bytes out. */
	__u64 dropped; /* Frames that came in and were dropped. */
	__u64 to_host; /* Frames that came in and went to the kernel. */
};
_Static_assert(sizeof(struct sp_port_stats_value) == 48, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_port_stats_value, to_host) == 40, "as in Rust");

/* A counter's element; in the map, on one CPU. */
struct sp_counter_value {
	__u64 packets; /* Packets counted. */
	__u64 bytes; /* Bytes counted. */
};
_Static_assert(sizeof(struct sp_counter_value) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_counter_value, bytes) == 8, "as in Rust");

/* A frame that is run in test mode: how it comes in, and what became of it. */
struct sp_test_value {
	__u32 ingress_port; /* The P4 port that it comes in on. */
	__u32 egress_port; /* Out of which it goes. */
	__u32 verdict; /* SP_VERDICT_ */
	__u32 padding_bytes; /* In front of the frame: the kernel runs none under 14 bytes. */
	__u64 clock_ns; /* Now. */
	/* Of a frame that is forwarded, without what is behind it to make 14 bytes. */
	__u32 egress_bytes;
	__u32 cpu; /* On which CPU the program believes to run (stateplane_commit.h). */
};
_Static_assert(sizeof(struct sp_test_value) == 32, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_test_value, cpu) == 28, "as in Rust");

/*
 * A bit for each of the host's own addresses, by their hash: a packet whose bit is not set
 * costs no look-up.
 */
struct sp_local_filter_value {
	__u64 word[64]; /* Bit n is in word n / 64. */
};
_Static_assert(sizeof(struct sp_local_filter_value) == 512, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_local_filter_value, word) == 0, "as in Rust");

/*
 * All secrets that are accepted, and which one is sent with. One value, so that a change is
 * one write.
 */
struct sp_secret_set {
	__u64 secret[4][2]; /* As SipHash takes them: two little-endian words. */
	__u32 present; /* Bit n: secret n is there. */
	__u32 sends; /* The number of the one that tags what is sent. */
};
_Static_assert(sizeof(struct sp_secret_set) == 72, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_secret_set, sends) == 68, "as in Rust");

#endif
