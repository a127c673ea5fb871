/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_gateway_slow.h: the slow path to the switch agent (KERNEL_PORT), and fragments
 * (fragment_ports of stateplane.p4). Part of stateplane_gateway.h.
 */
#ifndef STATEPLANE_GATEWAY_SLOW_H
#define STATEPLANE_GATEWAY_SLOW_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} sp_slow SEC(".maps");

/* The longest frame that the slow path takes. */
#define SP_SLOW_FRAME_MAX 16384

struct sp_slow_scratch_value {
	struct sp_slow_record record;
	__u8 frame[SP_SLOW_FRAME_MAX];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_slow_scratch_value);
	__uint(max_entries, 1);
} sp_slow_scratch SEC(".maps");

SP_INLINE struct sp_slow_scratch_value *sp_slow_get_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sp_slow_scratch, &zero);
}

/*
 * Hands the frame to the agent; its key stands in the scratch. 0: the ring is full, or it is too
 * long.
 */
SP_INLINE int sp_slow_put(struct xdp_md *xdp, struct sp_slow_scratch_value *scratch, __u32 kind,
			  __u32 port)
{
	__u64 length = sp_length(xdp);

	asm volatile("" : "+r"(length)); /* one register, so that the bounds stick to it */
	if (length < 14 || length > SP_SLOW_FRAME_MAX)
		return 0;
	scratch->record.kind = kind;
	scratch->record.port = port;
	scratch->record.length = length;
	scratch->record.zero = 0;
	if (bpf_xdp_load_bytes(xdp, 0, scratch->frame, length))
		return 0;
	return !bpf_ringbuf_output(&sp_slow, scratch, sizeof(scratch->record) + length, 0);
}

#ifdef SP_GATEWAY_KERNEL_PORT
/*
 * Has the kernel send the frame on: 0 if the agent cannot take it. A function that the verifier
 * checks once.
 */
__attribute__((noinline)) int sp_slow_send(struct xdp_md *xdp, __u32 port)
{
	struct sp_slow_scratch_value *scratch = sp_slow_get_scratch();

	if (!scratch)
		return 0;
	__builtin_memset(&scratch->record.key, 0, sizeof(scratch->record.key));
	if (!sp_slow_put(xdp, scratch, SP_SLOW_SEND, port)) {
		sp_gateway_count(SP_EVENT_SLOW_PATH_FULL);
		return 0;
	}
	sp_gateway_count(SP_EVENT_SENT_BY_KERNEL);
	return 1;
}

/* Verdict: the finished packet leaves by this host's kernel. */
SP_INLINE int sp_send_by_kernel(struct xdp_md *xdp, __u32 ingress_port, __u32 bytes)
{
	if (sp_test_mode)
		return sp_test_verdict(SP_VERDICT_FORWARD, SP_KERNEL_PORT, bytes);
	return sp_slow_send(xdp, ingress_port) ? XDP_DROP : sp_drop(ingress_port);
}
#endif

#ifdef SP_GATEWAY_FRAGMENTS
/* The ordinals of FragmentResult in stateplane.p4. */
enum { SP_FRAGMENT_PORTS, SP_FRAGMENT_HELD, SP_FRAGMENT_FULL };

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct sp_fragment_key);
	__type(value, struct sp_fragment_value);
	__uint(max_entries, 16384);
} sp_fragments SEC(".maps");

SP_INLINE int sp_fragment_is_released(struct xdp_md *xdp)
{
	__u64 *meta = (void *)(long)xdp->data_meta;

	return (void *)(meta + 1) <= (void *)(long)xdp->data && *meta == SP_RELEASED_META;
}

/*
 * Remembers the ports of a first fragment, or finds those of another. The key stands in the
 * scratch. Returns a result << 32 | source port << 16 | destination port.
 */
__attribute__((noinline)) __u64 sp_fragment_find(struct xdp_md *xdp, __u32 ingress_port,
						 __u32 first, __u32 ports)
{
	struct sp_slow_scratch_value *scratch = sp_slow_get_scratch();
	struct sp_gateway_settings_value *settings = sp_gateway_get_settings();
	struct sp_fragment_value *known;
	__u64 now = sp_now_ns();

	if (!scratch || !settings)
		return (__u64)SP_FRAGMENT_FULL << 32 | ports;
	if (first) {
		struct sp_fragment_value value = {
			.seen_ns = now, .source_port = ports >> 16, .destination_port = ports
		};

		if (!bpf_map_update_elem(&sp_fragments, &scratch->record.key, &value, BPF_ANY))
			sp_gateway_count(SP_EVENT_FRAGMENTS_REMEMBERED);
		return (__u64)SP_FRAGMENT_PORTS << 32 | ports;
	}
	known = bpf_map_lookup_elem(&sp_fragments, &scratch->record.key);
	if (known && now - known->seen_ns < SP_FRAGMENT_LIFE_NS)
		return (__u64)SP_FRAGMENT_PORTS << 32 | (__u32)known->source_port << 16 | known->destination_port;
	if (settings->hold_fragments && !sp_fragment_is_released(xdp) &&
	    (sp_test_mode || sp_slow_put(xdp, scratch, SP_SLOW_HOLD, ingress_port))) {
		sp_gateway_count(SP_EVENT_FRAGMENTS_HELD);
		return (__u64)SP_FRAGMENT_HELD << 32 | ports;
	}
	sp_gateway_count(SP_EVENT_FRAGMENTS_REFUSED);
	return (__u64)SP_FRAGMENT_FULL << 32 | ports;
}

SP_INLINE __u32 sp_fragment_ports(struct xdp_md *xdp, __u32 ingress_port, sp_u128 source,
				  sp_u128 destination,
				  __u32 identification, __u8 protocol, __u32 first, __u32 *source_port,
				  __u32 *destination_port)
{
	struct sp_slow_scratch_value *scratch = sp_slow_get_scratch();
	struct sp_fragment_key *key;
	__u64 found;

	if (!scratch)
		return SP_FRAGMENT_FULL;
	key = &scratch->record.key;
	for (int i = 0; i < 4; i++) {
		int right = i % 2 ? 0 : 32;

		key->source[i] = bpf_htonl((__u32)((i < 2 ? sp_high64(source) : (__u64)source) >> right));
		key->destination[i] = bpf_htonl((__u32)((i < 2 ? sp_high64(destination) : (__u64)destination) >> right));
	}
	key->identification = identification;
	key->protocol = protocol;
	__builtin_memset(key->zero, 0, sizeof(key->zero));
	found = sp_fragment_find(xdp, ingress_port, first, *source_port << 16 | *destination_port);
	*source_port = (__u16)(found >> 16);
	*destination_port = (__u16)found;
	return found >> 32;
}
#endif

#endif
