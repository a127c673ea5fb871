/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_peers.h: PeerLeases of stateplane/netchain.p4, and the frames that this switch's
 * packet generator makes: probes of peers, and copies of slots.
 *
 * Owns: which clock each peer has returned, and until when its lease holds. Must not know: which
 * answers renew a lease, chains, slots' values.
 *
 * The agent queues what a generated frame is to become, and has as many frames made as it queued.
 * A frame goes through the P4 program, as one from SP_GENERATOR_PORT.
 *
 * Invariants:
 * - A lease ends `lease_ns` after the exact clock that its probe carried. `hold` reads the clock of
 *   the last tick, which is behind: the agent makes `lease_ns` shorter by LEASE_CLOCK_MARGIN_MS. If
 *   the CPU that ticks stands still, the next probe ends a lease that is over.
 * - Only this life of the agent's numbers count, so a clock that was recorded before a boot is no
 *   later one.
 */
#ifndef STATEPLANE_PEERS_H
#define STATEPLANE_PEERS_H

#include "stateplane_messages.h"
#include "stateplane_slots_layouts.h"

/* In `hold`: nobody. */
#define SP_PEER_NOBODY 255

/* By number. Who is a peer is the agent's to say; clocks are the program's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_PEERS);
	__type(key, __u32);
	__type(value, struct sp_peer);
} sp_peers SEC(".maps");

/* By number: what the program knows of it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_PEERS);
	__type(key, __u32);
	__type(value, struct sp_peer_clock);
} sp_peer_clocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_peer_settings);
} sp_peer_settings SEC(".maps");

/* What the next generated frames become. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, SP_PEERS_DUE);
	__type(value, struct sp_peers_due);
} sp_peers_due SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_PEERS_STAT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} sp_peers_stats SEC(".maps");

SP_INLINE void sp_peers_count(__u32 what)
{
	sp_count(&sp_peers_stats, what, 1);
}

/* PeerLeases.answered */
static __noinline void sp_peers_answered(__u32 number, __u32 address, __u64 life, __u64 clock_ns,
					 __u32 lease)
{
	__u32 zero = 0;
	struct sp_peer_settings *settings = bpf_map_lookup_elem(&sp_peer_settings, &zero);
	struct sp_peer *peer = bpf_map_lookup_elem(&sp_peers, &number);
	struct sp_peer_clock *clock = bpf_map_lookup_elem(&sp_peer_clocks, &number);

	if (!settings || !peer || !clock || !address || bpf_ntohl(peer->address) != address ||
	    settings->life != life || clock_ns < peer->since_ns) {
		sp_peers_count(SP_PEERS_STAT_FOREIGN);
		return;
	}
	sp_peers_count(SP_PEERS_STAT_ANSWERS);
	/* Another CPU may do the same at this instant: then the older of two probes may stay. */
	if (clock_ns > clock->heard_ns)
		clock->heard_ns = clock_ns;
	if (lease && clock_ns + settings->lease_ns > clock->lease_until_ns)
		clock->lease_until_ns = clock_ns + settings->lease_ns;
}

SP_INLINE int sp_peers_has_lease(__u32 number, __u64 now_ns)
{
	struct sp_peer_clock *clock;

	if (number == SP_PEER_NOBODY)
		return 1;
	clock = bpf_map_lookup_elem(&sp_peer_clocks, &number);
	return clock && *(volatile __u64 *)&clock->lease_until_ns > now_ns;
}

/* PeerLeases.hold */
static __noinline __u32 sp_peers_hold(__u32 peers)
{
	__u64 now_ns;

	if (peers == ~0U)
		return 1;
	now_ns = sp_coarse_ns();
	return sp_peers_has_lease(peers >> 24, now_ns) &&
	       sp_peers_has_lease(peers >> 16 & 0xff, now_ns) &&
	       sp_peers_has_lease(peers >> 8 & 0xff, now_ns) &&
	       sp_peers_has_lease(peers & 0xff, now_ns);
}

/* ---- Generated frames ---- */

#define SP_PEERS_UDP_PORT 5410
/* The message's format, operation and flags; systems/netchain/docs/design.md, "Message". */
#define SP_PEERS_FORMAT 1
#define SP_PEERS_STAMPED 0x4000
/* Bytes of a message without records and value, and of a frame in front of the message. */
#define SP_PEERS_MESSAGE_BYTES 88
#define SP_PEERS_MESSAGE_AT 42
#define SP_PEERS_PROBE_BYTES (SP_PEERS_MESSAGE_AT + SP_PEERS_MESSAGE_BYTES)
/* A copy has four records, and room for 128 bytes (3). */
#define SP_PEERS_COPY_BYTES (SP_PEERS_PROBE_BYTES + 84 + 128)
#define SP_PEERS_ROOM 3

/* The sum of an IPv4 header without options, as its checksum has it. */
SP_INLINE __u16 sp_peers_ip_checksum(const __u8 *ip)
{
	__u32 sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += sp_get16(ip + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Ethernet (the program fills it in), IPv4, UDP, and the message's first fields. */
SP_INLINE void sp_peers_frame(__u8 *frame, __u32 bytes, __u8 operation,
			      const struct sp_peer_settings *settings,
			      const struct sp_peers_due *due)
{
	__u8 *ip = frame + 14, *udp = ip + 20, *message = frame + SP_PEERS_MESSAGE_AT;

	sp_put16(frame + 12, 0x0800);
	sp_put16(ip, 0x4500);
	sp_put16(ip + 2, bytes - 14);
	sp_put16(ip + 6, 0x4000); /* not to be fragmented */
	sp_put8(ip + 8, 64);
	sp_put8(ip + 9, 17);
	*(sp_u32a *)(ip + 12) = settings->own;
	*(sp_u32a *)(ip + 16) = due->to;
	sp_put16(ip + 10, sp_peers_ip_checksum(ip));
	sp_put16(udp, SP_PEERS_UDP_PORT);
	sp_put16(udp + 2, SP_PEERS_UDP_PORT);
	sp_put16(udp + 4, bytes - 34);
	sp_put8(message, SP_PEERS_FORMAT);
	sp_put8(message + 1, operation);
	sp_put16(message + 4, SP_PEERS_STAMPED);
	sp_put32(message + 16, settings->ring);
	sp_put8(message + 27, 255); /* no value */
	sp_put32(message + 28, due->number);
}

/* A frame of so many bytes (a constant), all zero. */
#define SP_PEERS_CLEARED(xdp, bytes)                                                             \
	({                                                                                       \
		__u8 *sp_frame_ = 0;                                                             \
		if (!bpf_xdp_adjust_tail(xdp, (int)((bytes) - sp_length(xdp)))) {                \
			sp_frame_ = (void *)(long)(xdp)->data;                                   \
			if (sp_frame_ + (bytes) > (__u8 *)(long)(xdp)->data_end)                 \
				sp_frame_ = 0;                                                   \
			else                                                                     \
				__builtin_memset(sp_frame_, 0, bytes);                           \
		}                                                                                \
		sp_frame_;                                                                       \
	})

/* The frame as it comes out of the generator goes through the program. */
SP_INLINE int sp_peers_enter(struct xdp_md *xdp)
{
	struct sp_slots_scratch *scratch = sp_slots_get_scratch();

	if (!scratch)
		return XDP_ABORTED;
	scratch->context = (struct sp_slots_context){ .ingress_port = SP_GENERATOR_PORT };
	bpf_tail_call(xdp, &sp_slots_programs, 0);
	return XDP_ABORTED;
}

SP_INLINE int sp_peers_probe(struct xdp_md *xdp, const struct sp_peer_settings *settings,
			     const struct sp_peers_due *due)
{
	__u8 *frame = SP_PEERS_CLEARED(xdp, SP_PEERS_PROBE_BYTES);
	struct sp_peer_clock *clock = bpf_map_lookup_elem(&sp_peer_clocks, &due->number);
	__u64 now_ns = sp_now_ns();

	if (!frame || !clock)
		return XDP_ABORTED;
	/* A lease that is over ends now, however far the clock of the last tick is behind. */
	if (clock->lease_until_ns <= now_ns)
		clock->lease_until_ns = 0;
	sp_peers_frame(frame, SP_PEERS_PROBE_BYTES, SP_PEERS_PROBE, settings, due);
	sp_put64(frame + SP_PEERS_MESSAGE_AT + 32, settings->life);
	sp_put64(frame + SP_PEERS_MESSAGE_AT + 48, now_ns);
	sp_peers_count(SP_PEERS_STAT_PROBES);
	return sp_peers_enter(xdp);
}

/* The key's place in a message, and its length. */
#define SP_PEERS_KEY_AT (SP_PEERS_MESSAGE_AT + 56)
#define SP_PEERS_KEY_BYTES 16

/* The key of a slot in an object, if it is one of the part that the agent queued it for. */
#define SP_PEERS_KEY_OF(name, id, size, key_bytes, value_bytes)                                  \
	if (due.object == (id) && (key_bytes) == SP_PEERS_KEY_BYTES)                             \
		found = name##_key(due.number, due.part, key);

/* Each generated frame becomes what the agent queued first. -1: it queued nothing. */
SP_INLINE int sp_peers_generated(struct xdp_md *xdp)
{
	__u32 zero = 0;
	struct sp_peer_settings *settings = bpf_map_lookup_elem(&sp_peer_settings, &zero);
	struct sp_peers_due due = {};
	__u64 key[SP_PEERS_KEY_BYTES / 8] = {};
	int found = 0;
	__u8 *frame;

	if (!settings || bpf_map_pop_elem(&sp_peers_due, &due))
		return -1;
	if (due.operation == SP_PEERS_PROBE)
		return sp_peers_probe(xdp, settings, &due);
#ifdef SP_SLOTS_OBJECTS
	SP_SLOTS_OBJECTS(SP_PEERS_KEY_OF)
#endif
	/* (The slot may have been freed since, and may have another part's key.) */
	if (!found)
		return XDP_DROP;
	frame = SP_PEERS_CLEARED(xdp, SP_PEERS_COPY_BYTES);
	if (!frame)
		return XDP_ABORTED;
	sp_peers_frame(frame, SP_PEERS_COPY_BYTES, due.operation, settings, &due);
	sp_put16(frame + SP_PEERS_MESSAGE_AT + 24, due.part);
	sp_put8(frame + SP_PEERS_MESSAGE_AT + 26, SP_PEERS_ROOM);
	for (int i = 0; i < SP_PEERS_KEY_BYTES; i += 8)
		*(sp_u64a *)(frame + SP_PEERS_KEY_AT + i) = key[i / 8];
	sp_peers_count(SP_PEERS_STAT_COPIES);
	return sp_peers_enter(xdp);
}

#endif
