/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_flow_numbers.h: numbers of messages and counters that the data plane shares with Rust.
 *
 * Generated from systems/redplane/protocol/src. Edit that, then run
 * UPDATE=1 cargo test -p state-protocol --lib
 */
#ifndef STATEPLANE_FLOW_NUMBERS_H
#define STATEPLANE_FLOW_NUMBERS_H

#define SP_FLOW_MAGIC 21328 /* first two bytes of a message */
#define SP_FLOW_VERSION 2 /* of the protocol */
#define SP_FLOW_PORT 5407 /* UDP port of stores and switches */
#define SP_FLOW_HEADER_BYTES 64 /* of a message */
#define SP_FLOW_KEY_MAX 256 /* bytes */
#define SP_FLOW_VALUE_MAX 256 /* bytes */
#define SP_FLOW_PACKET_MAX 16384 /* bytes that a message carries */

enum sp_flow_type {
	SP_LEASE_REQUEST = 1,
	SP_UPDATE = 3,
	SP_READ_COMMIT = 4,
	SP_HEARTBEAT = 5,
	SP_RELEASE = 6,
	SP_SNAPSHOT = 7,
	SP_LEASE_GRANT = 65,
	SP_ABSENT = 66,
	SP_UPDATE_ACK = 67,
	SP_REFUSED = 68,
	SP_HEARTBEAT_ACK = 69,
	SP_RECALL = 70,
	SP_RELEASE_ACK = 71,
	SP_SNAPSHOT_ACK = 72,
	SP_SNAPSHOT_STATE = 73,
};

/* Sets of types of replies, by bit. */
enum sp_flow_reply {
	SP_FLOW_FIRST_REPLY = 64, /* the type of bit 0 */
	SP_FLOW_REPLIES = 1022, /* all */
	SP_FLOW_WITH_KEY = 990, /* with a key */
	SP_FLOW_WITH_VALUE = 258, /* with a value */
	SP_FLOW_WITH_PACKET = 526, /* or without one */
};

/* Of a message's header. */
enum sp_flow_flag {
	SP_FLAG_ALLOCATE = 1,
	SP_FLAG_EXHAUSTED = 2,
	SP_FLAG_HALF_CLOSED = 4,
	SP_FLAG_CLOSED = 8,
	SP_FLAG_UNKNOWN = 16,
	SP_FLAG_PROBE = 32,
	SP_FLAG_REVERSE = 64,
	SP_FLAG_HALF_OPEN = 256,
};

/* Of a record in a batch. */
enum sp_flow_record_flag {
	SP_RECORD_HALF_CLOSED = 4,
	SP_RECORD_CLOSED = 8,
	SP_RECORD_HALF_OPEN = 16,
};

/* Of the map sp_flow_stats. */
enum sp_flow_stat {
	SP_STAT_PARKED,
	SP_STAT_GRANTS,
	SP_STAT_ABSENT,
	SP_STAT_UPDATES,
	SP_STAT_READ_COMMITS,
	SP_STAT_ACKS,
	SP_STAT_REFUSED,
	SP_STAT_RESENT,
	SP_STAT_CONFLICTS,
	SP_STAT_COMMIT_CONFLICTS,
	SP_STAT_IGNORED_GRANTS,
	SP_STAT_MALFORMED,
	SP_STAT_NOT_FABRIC,
	SP_STAT_UNKNOWN_OBJECT,
	SP_STAT_FLOWS_FULL,
	SP_STAT_TOO_MANY_ATTEMPTS,
	SP_STAT_NO_ROUTE,
	SP_STAT_TOO_BIG,
	SP_STAT_RING_FULL,
	SP_STAT_PORTS_EXHAUSTED,
	SP_STAT_BAD_TAG,
	SP_STAT_LATE,
	SP_STAT_RECALLED,
	SP_STAT_RECALLED_UNKNOWN,
	SP_STAT_RELEASED,
	SP_STAT_RELEASE_ACKS,
	SP_STAT_HEARTBEATS,
	SP_STAT_NO_HEAD,
	SP_STAT_NO_SECRET,
	SP_STAT_BACKENDS_EXHAUSTED,
	SP_STAT_SNAPSHOTS,
	SP_STAT_SNAPSHOT_PARTS,
	SP_STAT_SNAPSHOT_PARTS_RESENT,
	SP_STAT_SNAPSHOT_PARTS_MISSING,
	SP_STAT_SNAPSHOT_OVERDUE,
	SP_STAT_REPLAYED,
	SP_STAT_OTHER_INCARNATION,
	SP_STAT_SNAPSHOT_WITHOUT_LEASE,
	SP_STAT_SNAPSHOT_UPDATES_LOST,
	SP_STAT_WINDOW_FULL,
	SP_STAT_WINDOW_LOST,
	SP_STAT_COUNT,
};

/* Consistency in stateplane/redplane.p4. */
enum sp_flow_consistency {
	SP_FLOW_LOCAL,
	SP_FLOW_LINEARIZABLE,
	SP_FLOW_ASYNCHRONOUS,
};

/* Sets of modes whose packets wait, by bit. */
enum sp_flow_waiting {
	SP_FLOW_UPDATES_WAIT = 2, /* whose updates */
	SP_FLOW_READS_WAIT = 2, /* whose reads */
};

#endif
