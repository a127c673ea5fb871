/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_gateway.h: what a gateway needs beyond headers and tables. An object has only the
 * parts that its program uses: the compiler defines SP_GATEWAY_CHECK, _ICMP, _FRAGMENTS, _CLAMP and
 * _KERNEL_PORT, and includes this after stateplane_xdp.h.
 *
 * Owns: what user space tells of ports, and the counts of what is dropped and answered.
 * Must not know: the P4 program, or any system's objects.
 *
 * User space writes and reads these maps by their layouts (switch/dataplane/src/gateway.rs).
 * Integers are in host order, addresses in network order. A port without an entry has no MAC, no
 * address and no reverse-path check.
 */
#ifndef STATEPLANE_GATEWAY_H
#define STATEPLANE_GATEWAY_H

#define SP_KERNEL_PORT 510

enum { SP_REVERSE_PATH_OFF, SP_REVERSE_PATH_LOOSE, SP_REVERSE_PATH_STRICT };

struct sp_gateway_port_value {
	__u64 mac; /* as the first eight bytes of a frame for it, the last two 0; 0: not known */
	__u64 mac_mask; /* what of it a unicast frame must have; any MAC: only that it is unicast */
	/* Of sp_gateway_sources_ipv4 the bits 32 to 61: port, route generation, reverse path. */
	__u64 source_tag;
	__u64 siblings; /* bit p: port p < 64 shares a multipath route with this one */
	__be32 ipv4; /* the source of ICMP errors; 0: none */
	__be32 ipv6[4];
	__u32 ifindex;
	__u32 mtu; /* bytes of an IP packet; 0: not known */
	/* Grows with each change of routes, rules, addresses and links: what is known of sources is
	 * void then. */
	__u32 route_generation;
	__u8 reverse_path; /* SP_REVERSE_PATH_ */
	__u8 zero[7];
};
_Static_assert(sizeof(struct sp_gateway_port_value) == 72, "switch/dataplane/src/gateway.rs");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32); /* P4 port */
	__type(value, struct sp_gateway_port_value);
	__uint(max_entries, SP_MAX_PORTS);
} sp_gateway_port SEC(".maps");

struct sp_gateway_settings_value {
	__u32 icmp_rate_per_s; /* 0: no ICMP errors */
	__u32 clamp_mss;
	__u32 hold_fragments; /* 0: the agent takes none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_gateway_settings_value);
	__uint(max_entries, 1);
} sp_gateway_settings SEC(".maps");

/* Why gateway_check() said no. The names, in this order: switch/dataplane/src/gateway.rs. */
enum sp_gateway_drop {
	SP_DROP_OTHER_MAC, /* a unicast frame for another MAC */
	SP_DROP_BROADCAST_FRAME, /* a unicast packet in a broadcast or multicast frame */
	SP_DROP_SHORT_HEADER, /* version, IHL or total length below a header, or the frame ends in it */
	SP_DROP_LENGTH, /* total length beyond the frame, UDP's or TCP's beyond the packet */
	SP_DROP_HEADER_CHECKSUM,
	SP_DROP_MARTIAN_SOURCE,
	SP_DROP_MARTIAN_DESTINATION,
	SP_DROP_REVERSE_PATH,
	SP_DROP_PRIORITY_TAG, /* a tag that names no VLAN */
	SP_DROP_OPTIONS, /* an IPv4 option whose length does not fit the header */
	SP_DROP_FRAGMENT, /* of which, by its length or place, no packet can be made */
	SP_DROP_REASONS, /* as a result: none */
};

/* The names, in this order: switch/dataplane/src/gateway.rs. */
enum sp_gateway_event {
	SP_EVENT_ICMP_SENT,
	SP_EVENT_ICMP_SUPPRESSED,
	SP_EVENT_ICMP_RATE_LIMITED,
	SP_EVENT_ICMP_NO_ADDRESS,
	SP_EVENT_SENT_BY_KERNEL,
	SP_EVENT_SLOW_PATH_FULL,
	SP_EVENT_FRAGMENTS_REMEMBERED,
	SP_EVENT_FRAGMENTS_HELD,
	SP_EVENT_FRAGMENTS_REFUSED,
	SP_EVENTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, SP_EVENTS);
} sp_gateway_events SEC(".maps");

SP_INLINE void sp_gateway_count(__u32 event)
{
	__u64 *count = bpf_map_lookup_elem(&sp_gateway_events, &event);

	if (count)
		*count += 1;
}

SP_INLINE struct sp_gateway_settings_value *sp_gateway_get_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sp_gateway_settings, &zero);
}

/* Verdict: the packet is in user space's hands, or answered. */
SP_INLINE int sp_consumed(void)
{
	return sp_test_mode ? sp_test_verdict(0, SP_DROP_PORT, 0) : XDP_DROP;
}

#if defined(SP_GATEWAY_CHECK) || defined(SP_GATEWAY_CLAMP)
/* Not on the stack, which the P4 program needs. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct bpf_fib_lookup);
	__uint(max_entries, 1);
} sp_gateway_route SEC(".maps");
#endif

#ifdef SP_GATEWAY_CHECK
#include "stateplane_gateway_check.h"
#endif
#ifdef SP_GATEWAY_ICMP
#include "stateplane_gateway_icmp.h"
#endif
#if defined(SP_GATEWAY_KERNEL_PORT) || defined(SP_GATEWAY_FRAGMENTS)
#include "stateplane_gateway_slow.h"
#endif
#ifdef SP_GATEWAY_CLAMP
#include "stateplane_gateway_mss.h"
#endif

#endif
