/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_gateway.h: what a gateway needs beyond headers and tables. An object has only the
 * parts that its program uses: the compiler defines SP_GATEWAY_CHECK, _ICMP, _FRAGMENTS, _CLAMP and
 * _KERNEL_PORT, and includes this after stateplane_xdp.h.
 *
 * Owns: what user space tells of ports, and the counts of what is dropped and answered.
 * Must not know: the P4 program, or any system's objects.
 *
 * User space writes and reads these maps by the same layouts (stateplane_gateway_layouts.h).
 * Integers are in host order, addresses in network order. A port without an entry has no MAC, no
 * address and no reverse-path check.
 */
#ifndef STATEPLANE_GATEWAY_H
#define STATEPLANE_GATEWAY_H

#include "stateplane_gateway_layouts.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32); /* P4 port */
	__type(value, struct sp_gateway_port_value);
	__uint(max_entries, SP_MAX_PORTS);
} sp_gateway_port SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_gateway_settings_value);
	__uint(max_entries, 1);
} sp_gateway_settings SEC(".maps");

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
	return sp_test_mode ? sp_test_verdict(SP_VERDICT_DROP, SP_DROP_PORT, 0) : XDP_DROP;
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
