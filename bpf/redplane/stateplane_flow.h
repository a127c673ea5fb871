/* stateplane_flow.h: FlowState objects in the data plane.
 *
 * Owns: per-flow entries, leases as the switch sees them, output commit, the pending ring and the
 * packet generator. Must not know: the P4 program. The compiler defines SP_FLOW_OBJECTS(X) and
 * includes this after stateplane_xdp.h. The messages are described in
 * systems/redplane/docs/state-protocol.md; "rule N" below means its rules of the switch.
 *
 * Invariants:
 * - A value is handed to the program only while the entry's session is the shard's current one and
 *   its lease lives, and the entry is not marked released: all read together (sequence lock, or the
 *   entry's spin lock).
 * - An entry changes only under its spin lock, with `version` odd meanwhile.
 * - seq >= acked_seq. A packet that saw seq > acked_seq, or made it so, leaves only inside UPDATE
 *   or READ_COMMIT (not of an asynchronous object). With sp_commit_on it waits in the switch for
 *   the batch that the entry names (stateplane_commit.h), and acked_seq stays behind until a
 *   later read settles it. An entry that names none had its last update in a message of its own.
 *   (An asynchronous object's entry that stands in the ring may name a batch with an older one.)
 * - An entry with seq > acked_seq that names no batch, or released and not acknowledged, has
 *   SP_FLOW_QUEUED set and stands in the ring (or is in the generator's hands).
 * - An epoch under which an entry was released is never the switch's again: neither a late nor a
 *   repeated grant brings it back.
 */
#ifndef STATEPLANE_FLOW_H
#define STATEPLANE_FLOW_H

#ifndef SP_SNAPSHOT_OBJECTS
#define SP_SNAPSHOT_OBJECTS(X)
#endif

#include "stateplane_messages.h"
#include "stateplane_flow_numbers.h"
#include "stateplane_flow_layouts.h"

/* Room for one key and one value of the program, in whole words. Most programs' keys and values are
 * short, and so are then the loops over them; the compiler says more for others. */
#ifndef SP_FLOW_KEY_ROOM
#define SP_FLOW_KEY_ROOM 64
#endif
#ifndef SP_FLOW_VALUE_ROOM
#define SP_FLOW_VALUE_ROOM 64
#endif

#define SP_FLOW_OUTER_BYTES 42 /* Ethernet, IPv4 without options, UDP */
#define SP_FLOW_MAX_ATTEMPTS 64
#define SP_FLOW_DROP_PORT 511
/* In `port`, whose upper bits the store echoes: the answer is one to a READ_COMMIT. */
#define SP_FLOW_PORT_READ 512
/* "Replays": no reply is taken to a request that was sent longer ago. */
#define SP_FLOW_LATE_NS 1000000000ull
/* last use is noted this coarsely: a write for each packet would move the cache line between CPUs
 */
#define SP_FLOW_USE_GRAIN_NS 100000000ull

enum { SP_STATE_HIT, SP_STATE_MISS, SP_STATE_PENDING };
/* Is a mode in a set of modes (stateplane_flow_numbers.h)? */
#define SP_FLOW_IN(consistency, set) ((set) >> (consistency) & 1)
enum { SP_PHASE_OPEN, SP_PHASE_HALF_OPEN, SP_PHASE_HALF_CLOSED, SP_PHASE_CLOSED };
enum { SP_ALLOCATOR_ZERO, SP_ALLOCATOR_NAT_PORTS, SP_ALLOCATOR_BACKENDS };
/* What becomes of the packet when the program is through: sp_flow_context.kind. */
enum { SP_FLOW_NOTHING, SP_FLOW_PARK, SP_FLOW_COMMIT };
#define SP_FLOW_PHASES (SP_FLOW_HALF_CLOSED | SP_FLOW_CLOSED | SP_FLOW_HALF_OPEN)

/* FlowStates by position. (Their numbers have gaps where other objects are declared before.) */
#define SP_FLOW_POSITION(name, id, flows, kb, vb, consistency, allocator) SP_FLOW_AT_##name,
enum { SP_FLOW_OBJECTS(SP_FLOW_POSITION) SP_FLOW_OBJECT_COUNT };

/* Of a number that the compiler knows: a constant. */
#define SP_FLOW_CASE_AT(name, id, flows, kb, vb, consistency, allocator) \
	case id:                                                          \
		return SP_FLOW_AT_##name;
static __always_inline __u32 sp_flow_at(__u32 object_id)
{
	switch (object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_AT)
	}
	return 0;
}

/* What a get saw, and in which entry: set checks that it is about the same flow, and that nothing
 * changed since. */
struct sp_flow_seen {
	void *entry;
	__u64 seq;
	__u32 epoch;
};

/* One packet's dealings with FlowStates; on the program's stack, so small. */
struct sp_flow_context {
	__u32 kind;
	__u32 ingress_port;
	__u32 attempts; /* times that this packet was parked already */
	__u32 absent_object; /* the store just said: no such state (key in the scratch) */
#ifdef SP_FLOW_HAS_SET
	struct sp_flow_seen read[SP_FLOW_OBJECT_COUNT]; /* by the last get of each object */
#endif
#ifdef SP_FLOW_GROUPED
	__u32 staged; /* objects whose sets wait in the scratch for the packet's end, by position */
	__u64 oldest; /* number of the first batch that the packet has read of; 0: of none */
#elif defined(SP_FLOW_STAGED)
	__u32 staged; /* the object whose set waits in the scratch for the packet's end, or 0 */
#endif
	__u32 updated; /* it changed a SnapshotState: it must not run again */
	__u32 park; /* when kind is SP_FLOW_PARK: what to do, one of the following */
};
enum {
	SP_PARK_AT_STORE, /* no lease: wait in the network for it */
	SP_PARK_RUN_AGAIN, /* another CPU changed the flow between get and set: run the program again */
	SP_PARK_DROP, /* cannot go on (counted) */
};

/* What a message did to its flow's entry. */
enum {
	SP_EFFECT_DONE,
	SP_EFFECT_ANSWER = 1,
	SP_EFFECT_UNKNOWN_OBJECT = -1,
	SP_EFFECT_NO_ROOM = -2
};

struct sp_flow_pending {
	__u32 object_id;
	__u32 part; /* of a snapshot */
	__u8 key[SP_FLOW_KEY_ROOM];
};

struct sp_flow_outer {
	__u8 destination_mac[6];
	__u8 source_mac[6];
	__be16 ethertype;
	__u8 version_ihl;
	__u8 tos;
	__be16 total_length;
	__be16 identification;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__sum16 checksum;
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	__be16 udp_length;
	__be16 udp_checksum;
} __attribute__((packed));
_Static_assert(sizeof(struct sp_flow_outer) == SP_FLOW_OUTER_BYTES, "Ethernet + IPv4 + UDP");

#ifdef SP_FLOW_GROUPED
/* A set that waits for the packet's end. */
struct sp_flow_staged {
	struct sp_flow_seen read; /* by the last get before the set */
	__u64 before; /* name of the update before; of this one */
	__u64 name;
	__u64 seq;
	__u64 phases;
	__u8 key[SP_FLOW_KEY_ROOM];
	__u8 value[SP_FLOW_VALUE_ROOM];
	__u8 old[SP_FLOW_VALUE_ROOM];
};
/* Is a number that of an object whose sets are one with others'? */
#define SP_FLOW_IS_GROUPED(object_id) (SP_FLOW_GROUPED >> ((object_id) & 63) & 1)
#else
#define SP_FLOW_IS_GROUPED(object_id) 0
#endif

#define SP_FLOW_CHUNK_BYTES 256
/* What does not fit on the stack: a message being put together or taken apart, and an entry being
 * made. */
struct sp_flow_scratch {
	__u32 object_id;
	__u32 type;
	__u32 flags;
	__u32 port;
	__u64 seq;
	__u64 request_ns; /* received */
	__u64 received_ns; /* received */
	__u64 lease_ns; /* received */
	__u64 tag; /* received */
	__u32 incarnation; /* received */
	__u32 epoch;
	__u32 session; /* received */
	__u32 shard; /* received, and of a HEARTBEAT */
	__u32 idle_ms; /* of a RELEASE */
	__u32 key_bytes;
	__u32 value_bytes;
	__u32 with_packet; /* for sp_send: around the packet, or in place of it */
	__u32 fault; /* why a message is not taken: a statistic */
	__u64 name; /* of the update that the packet waits for (stateplane_commit.h) */
	__u8 key[SP_FLOW_KEY_ROOM];
	__u8 value[SP_FLOW_VALUE_ROOM];
	__u8 absent_key[SP_FLOW_KEY_ROOM];
	__u8 reverse_key[SP_FLOW_KEY_ROOM];
#ifdef SP_FLOW_GROUPED
	struct sp_flow_staged staged[SP_FLOW_OBJECT_COUNT];
#elif defined(SP_FLOW_STAGED)
	struct sp_flow_seen staged_read; /* by the last get before the set */
	__u8 staged_key[SP_FLOW_KEY_ROOM];
	__u8 staged_value[SP_FLOW_VALUE_ROOM];
#endif
	struct bpf_fib_lookup route;
	__u64 entry[(SP_FLOW_ENTRY_HEAD_BYTES + SP_FLOW_KEY_ROOM + SP_FLOW_VALUE_ROOM) / 8];
	__u64 chunk[SP_FLOW_CHUNK_BYTES / 8 + 1]; /* of the datagram, for its tag */
	/* What the program calls with, if it is too long for the stack. */
	__u64 wire_key[SP_FLOW_KEY_ROOM / 8];
	__u64 wire_value[SP_FLOW_VALUE_ROOM / 8];
};

#include "stateplane_flow_maps.h"

/* Of switch.toml; 0 until the agent has written it, and where it has none. */
static __always_inline __u32 sp_flow_switch_id(void)
{
	__u32 zero = 0;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);

	return settings ? settings->switch_id : 0;
}

#define sp_barrier() asm volatile("" ::: "memory")

static __always_inline void sp_flow_count_by(__u32 stat, __u64 by)
{
	sp_count(&sp_flow_stats, stat, by);
}

static __always_inline void sp_flow_count(__u32 stat)
{
	sp_flow_count_by(stat, 1);
}

static __always_inline struct sp_flow_scratch *sp_flow_get_scratch(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&sp_flow_scratch, &zero);
}

/* Whether a lease lives is decided by the coarse clock; lease_margin_ns covers its lag. From here
 * on to the end of a lease it is not good enough: the kernel may let its tick stall for some
 * ticks. */
#define SP_FLOW_EXACT_BEFORE_END_NS 50000000ull

/* Is the lease over? `now_ns` is the coarse clock's, which never runs ahead. */
static __always_inline int sp_flow_is_over(__u64 lease_end_ns, __u64 now_ns)
{
	if (now_ns + SP_FLOW_EXACT_BEFORE_END_NS < lease_end_ns)
		return 0;
	return lease_end_ns <= (sp_virtual_clock ? now_ns : bpf_ktime_get_ns());
}

/* What a flow taken from the ring needs: bits. */
enum {
	SP_GENERATE_DONE,
	SP_GENERATE_KEEP = 1,
	SP_GENERATE_SEND = 2,
	SP_GENERATE_RECORDED = 4, /* it is a record in the open batch of its shard */
};

/* Copies whole 8-byte words: keys and values are padded to them. `bytes` is a constant. */
static __always_inline void sp_flow_copy(void *to, const void *from, __u32 bytes)
{
	for (__u32 i = 0; i < SP_ROUND8(bytes) / 8; i++)
		((__u64 *)to)[i] = ((const __u64 *)from)[i];
}

static __always_inline int sp_flow_equal(const void *a, const void *b, __u32 bytes)
{
	__u64 difference = 0;
	for (__u32 i = 0; i < SP_ROUND8(bytes) / 8; i++)
		difference |= ((const __u64 *)a)[i] ^ ((const __u64 *)b)[i];
	return difference == 0;
}

/* Unaligned packet bytes to a padded buffer; the padding becomes zero. */
static __always_inline void sp_flow_copy_in(void *to, const void *packet, __u32 bytes)
{
	if (bytes & 7)
		((__u64 *)to)[bytes / 8] = 0;
	__builtin_memcpy(to, packet, bytes);
}

/* Puts a flow into the ring; `pending` is room for it. SP_FLOW_QUEUED was set under the entry's
 * lock, which is let go. */
static __always_inline int sp_flow_push_part(
    struct sp_flow_pending *pending, __u32 object_id, __u32 part, const void *key, __u32 key_bytes)
{
	__u32 zero = 0;
	__u64 *work;

	pending->object_id = object_id;
	pending->part = part;
	for (__u32 i = 0; i < SP_FLOW_KEY_ROOM / 8; i++)
		((__u64 *)pending->key)[i] = i < SP_ROUND8(key_bytes) / 8 ? ((const __u64 *)key)[i] : 0;
	if (bpf_map_push_elem(&sp_flow_ring, pending, 0)) {
		sp_flow_count(SP_STAT_RING_FULL);
		return -1;
	}
	work = bpf_map_lookup_elem(&sp_generator_work, &zero);
	if (work)
		__sync_fetch_and_add(work, 1);
	return 0;
}

static __always_inline int sp_flow_push(
    struct sp_flow_pending *pending, __u32 object_id, const void *key, __u32 key_bytes)
{
	return sp_flow_push_part(pending, object_id, 0, key, key_bytes);
}

/* The same, for what runs on packets; if the ring has no room, the flag goes. */
static __always_inline void sp_flow_enqueue(struct sp_flow_scratch *scratch,
    struct sp_flow_entry_head *entry, __u32 object_id, const void *key, __u32 key_bytes)
{
	if (!sp_flow_push((void *)scratch->entry, object_id, key, key_bytes))
		return;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	entry->flags &= ~SP_FLOW_QUEUED;
	entry->name = 0; /* no batch has its newest update */
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
}

/* The fast path: the value and whose it is, read together. Returns 0 when a writer was at work or
 * the entry is another flow's by now. */
static __always_inline int sp_flow_read(const struct sp_flow_entry_head *entry,
    const void *entry_key, const void *entry_value, const void *key, __u32 key_bytes, void *value,
    __u32 value_bytes, struct sp_flow_entry_head *seen)
{
	__u32 version = *(volatile __u32 *)&entry->version;
	int same;

	sp_barrier();
	seen->session = entry->session;
	seen->shard = entry->shard;
	seen->seq = entry->seq;
	seen->acked_seq = entry->acked_seq;
	seen->epoch = entry->epoch;
	seen->flags = entry->flags;
	seen->name = entry->name;
	sp_flow_copy(value, entry_value, value_bytes);
	same = sp_flow_equal(entry_key, key, key_bytes);
	sp_barrier();
	return same && !(version & 1) && version == *(volatile __u32 *)&entry->version;
}

/* Remembers in the scratch what this packet's output depends on. */
static __always_inline void sp_flow_remember(struct sp_flow_scratch *scratch, __u32 object_id,
    __u32 type, __u32 flags, const void *key, __u32 key_bytes, __u64 seq, __u32 epoch)
{
	scratch->object_id = object_id;
	scratch->type = type;
	scratch->flags = flags;
	scratch->seq = seq;
	scratch->epoch = epoch;
	scratch->key_bytes = key_bytes;
	scratch->value_bytes = 0;
	scratch->port = 0;
	sp_flow_copy(scratch->key, key, key_bytes);
}

#ifdef SP_FLOW_HAS_COMMIT
#define SP_COMMIT_KEY_WORDS (SP_FLOW_KEY_ROOM / 8)
#include "stateplane_commit.h"
#include "stateplane_flow_record.h"
#endif
#include "stateplane_flow_session.h"
#include "stateplane_flow_tag.h"
#include "stateplane_flow_access.h"
#ifdef SP_FLOW_GROUPED
#include "stateplane_flow_group.h"
#elif defined(SP_FLOW_STAGED)
#include "stateplane_flow_staged.h"
#endif
#include "stateplane_flow_send.h"
#include "stateplane_snapshot.h"
#include "stateplane_flow_unheld.h"
#include "stateplane_snapshot_message.h"
#include "stateplane_flow_apply.h"
#ifdef SP_FLOW_HAS_COMMIT
#include "stateplane_flow_commit.h"
#endif
#include "stateplane_flow_receive.h"
#include "stateplane_flow_generator.h"
#include "stateplane_flow_sweep.h"

#ifdef SP_FLOW_STAGED
#define SP_FLOW_GET_STAGED(id, kb, vb)                                                             \
	((SP_FLOW_STAGED >> id & 1) && sp_flow_get_staged(flow, id, key, kb, value, vb))
#define SP_FLOW_DO_SET(name, id, kb, vb, consistency)                                             \
	sp_flow_stage(flow, id, key, kb, value, vb)
#else
#define SP_FLOW_GET_STAGED(id, kb, vb) 0
#define SP_FLOW_DO_SET(name, id, kb, vb, consistency)                                             \
	sp_flow_set(flow, &name, id, key, kb, value, vb, consistency)
#endif

/* What the compiler calls. */
#define SP_FLOW_GET(name, id, flows, kb, vb, consistency, allocator)                               \
	static __always_inline __u32 name##_get(                                                   \
	    struct sp_flow_context *flow, const __u8 *key, __u8 *value, int allocate)              \
	{                                                                                          \
		if (SP_FLOW_GET_STAGED(id, kb, vb))                                                \
			return SP_STATE_HIT;                                                       \
		return sp_flow_get(                                                                \
		    flow, &name, id, key, kb, value, vb, consistency, allocator, allocate);        \
	}
SP_FLOW_OBJECTS(SP_FLOW_GET)

#ifdef SP_FLOW_HAS_SET
#define SP_FLOW_SET(name, id, flows, kb, vb, consistency, allocator)                               \
	static __always_inline void name##_set(                                                    \
	    struct sp_flow_context *flow, const __u8 *key, const __u8 *value)                      \
	{                                                                                          \
		SP_FLOW_DO_SET(name, id, kb, vb, consistency);                                    \
	}
SP_FLOW_OBJECTS(SP_FLOW_SET)
#endif

#ifdef SP_FLOW_HAS_PHASE
#define SP_FLOW_PHASE(name, id, flows, kb, vb, consistency, allocator)                             \
	static __always_inline void name##_phase(                                                  \
	    struct sp_flow_context *flow, const __u8 *key, __u32 phase)                            \
	{                                                                                          \
		sp_flow_phase(flow, &name, key, kb, phase);                                        \
	}
SP_FLOW_OBJECTS(SP_FLOW_PHASE)
#endif

#endif
