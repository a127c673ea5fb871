/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_gateway_icmp.h: reply_icmp_error() of stateplane.p4. Part of stateplane_gateway.h.
 * Answers are rare, so they are made in a program of their own.
 */
#ifndef STATEPLANE_GATEWAY_ICMP_H
#define STATEPLANE_GATEWAY_ICMP_H

enum { SP_GATEWAY_PROGRAM_ICMP, SP_GATEWAY_PROGRAMS };
int sp_icmp(struct xdp_md *xdp);
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SP_GATEWAY_PROGRAMS);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} sp_gateway_programs SEC(".maps") = {
	.values = { [SP_GATEWAY_PROGRAM_ICMP] = (void *)&sp_icmp },
};

/* What sp_icmp must know. */
struct sp_icmp_request_value {
	__u32 ingress_port;
	__u32 rest;
	__u8 type;
	__u8 code;
	__u8 zero[2];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_icmp_request_value);
	__uint(max_entries, 1);
} sp_icmp_request SEC(".maps");

/*
 * The token bucket of all CPUs: when the bucket would be full again, with one second's answers in
 * it.
 */
struct sp_icmp_bucket_value {
	struct bpf_spin_lock lock;
	__u32 zero;
	__u64 full_ns;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_icmp_bucket_value);
	__uint(max_entries, 1);
} sp_icmp_bucket SEC(".maps");

#define SP_ICMP_BURST_NS 1000000000ull

/* Takes a token. */
SP_INLINE int sp_icmp_may_send(void)
{
	__u32 zero = 0, rate;
	struct sp_gateway_settings_value *settings = sp_gateway_get_settings();
	struct sp_icmp_bucket_value *bucket = bpf_map_lookup_elem(&sp_icmp_bucket, &zero);
	__u64 now = sp_now_ns(), full, token;
	int may;

	if (!settings || !bucket)
		return 0;
	rate = settings->icmp_rate_per_s;
	if (!rate)
		return 0;
	token = SP_ICMP_BURST_NS / rate;
	bpf_spin_lock(&bucket->lock);
	full = bucket->full_ns > now ? bucket->full_ns : now;
	full += token;
	may = full <= now + SP_ICMP_BURST_NS;
	if (may)
		bucket->full_ns = full;
	bpf_spin_unlock(&bucket->lock);
	return may;
}

SP_INLINE int sp_icmp_give_up(__u32 ingress_port, __u32 event)
{
	sp_gateway_count(event);
	return sp_drop(ingress_port);
}

/* May an ICMP error be sent about this packet (RFC 1812, 4.3.2.7)? */
SP_INLINE int sp_icmp_is_due_ipv4(const __u8 *frame, const void *end)
{
	__u32 source = sp_get32(frame + 26) >> 24, destination = sp_get32(frame + 30) >> 24;
	const __u8 *transport = frame + 14 + (frame[14] & 15) * 4;

	if (frame[0] & 1 || sp_get16(frame + 20) & 0x1fff || destination >= 224 || source == 0 ||
	    source == 127 ||
	    source >= 224)
		return 0;
	if (frame[23] != 1)
		return 1;
	if ((void *)(transport + 1) > end)
		return 0;
	/* Of the types beyond these it is not known what they are. */
	return *transport <= 18 && *transport != 3 && *transport != 4 && *transport != 5 &&
	       *transport != 11 && *transport != 12;
}

#define SP_ICMP_MOST_EXTENSIONS 8

/* Hop-by-hop options, routing, fragment, destination options. */
SP_INLINE int sp_icmp_is_extension(__u32 next)
{
	return next == 0 || next == 43 || next == 44 || next == 60;
}

/* The same of ICMPv6 (RFC 4443, 2.4 (e)). */
SP_INLINE int sp_icmp_is_due_ipv6(const __u8 *frame, const void *end, __u32 type, __u32 code)
{
	__u32 next = frame[20], at = 54;
	const sp_u32a *source = (const void *)(frame + 22);

	/* "Packet too big" and an option that is not known are said to multicasts too. */
	if ((frame[0] & 1 || frame[38] == 0xff) && type != 2 && !(type == 4 && code == 2))
		return 0;
	if (frame[22] == 0xff || !(source[0] | source[1] | source[2] | source[3]))
		return 0;
	for (int i = 0; i < SP_ICMP_MOST_EXTENSIONS; i++) {
		const __u8 *extension = frame + at;

		if (!sp_icmp_is_extension(next))
			break;
		if ((void *)(extension + 8) > end)
			return 0;
		if (next == 44 && sp_get16(extension + 2) & 0xfff8)
			return 1; /* a fragment after the first */
		at += next == 44 ? 8 : (extension[1] + 1) * 8;
		next = extension[0];
	}
	if (next != 58)
		return !sp_icmp_is_extension(next); /* too many to know what is behind them */
	if ((void *)(frame + at + 1) > end)
		return 0;
	return frame[at] >= 128 && frame[at] != 137; /* no error, no redirect */
}

/* The sum of what stands from `at` on, in network order; the frame is in one piece. */
SP_INLINE __u64 sp_icmp_sum(const __u8 *at, const void *end)
{
	__u64 sum = 0;

	for (int i = 0; i < 88; i++) {
		if ((void *)(at + 16) > end)
			break;
		sum += (__u64)sp_get32(at) + sp_get32(at + 4) + sp_get32(at + 8) + sp_get32(at + 12);
		at += 16;
	}
	for (int i = 0; i < 8; i++) {
		if ((void *)(at + 2) > end)
			break;
		sum += sp_get16(at);
		at += 2;
	}
	if ((void *)(at + 1) <= end)
		sum += (__u64)sp_get8(at) << 8;
	return sum;
}

/* Bytes of the frame that lie in one piece. */
SP_INLINE __u32 sp_icmp_linear(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;

	return (__u32)(end - data);
}

/* Leaves `quote` bytes of the packet, and `more` bytes of room in front of it. */
SP_INLINE int sp_icmp_make_room(struct xdp_md *xdp, __u32 quote, __u32 more)
{
	int surplus = (int)sp_length(xdp) - (int)(14 + quote);

	if (surplus > 0 && bpf_xdp_adjust_tail(xdp, -surplus))
		return -1;
	if (bpf_xdp_adjust_head(xdp, -(int)more))
		return -1;
	/* What is in other buffers could not be summed. */
	return sp_length(xdp) == sp_icmp_linear(xdp) ? 0 : -1;
}

/* The Ethernet header of an answer: MACs are in the low 48 bits. */
SP_INLINE void sp_icmp_put_ethernet(__u8 *frame, __u64 destination, __u64 source, __u16 type)
{
	sp_put32(frame, destination >> 16);
	sp_put16(frame + 4, destination);
	sp_put16(frame + 6, source >> 32);
	sp_put32(frame + 8, source);
	sp_put16(frame + 12, type);
}

/*
 * An IP header and 8 bytes of ICMP go before the quotation; with these the answers may be so long.
 */
#define SP_ICMP_MOST_IPV4 576
#define SP_ICMP_MOST_IPV6 1280

SP_INLINE int sp_icmp_ipv4(struct xdp_md *xdp, const struct sp_icmp_request_value *request,
			   const struct sp_gateway_port_value *port)
{
	__u8 *frame = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	__u32 quote, there = sp_icmp_linear(xdp) - 14, peer;
	__u64 from, to, sum;

	if (frame + 34 > end || !sp_icmp_is_due_ipv4(frame, end))
		return sp_icmp_give_up(request->ingress_port, SP_EVENT_ICMP_SUPPRESSED);
	if (!port->ipv4)
		return sp_icmp_give_up(request->ingress_port, SP_EVENT_ICMP_NO_ADDRESS);
	if (!sp_icmp_may_send())
		return sp_icmp_give_up(request->ingress_port, SP_EVENT_ICMP_RATE_LIMITED);
	quote = sp_get16(frame + 16);
	quote = quote > there ? there : quote;
	quote = quote > SP_ICMP_MOST_IPV4 - 28 ? SP_ICMP_MOST_IPV4 - 28 : quote;
	to = sp_get64(frame + 4) & 0xffffffffffffull;
	from = (port->mac ? bpf_be64_to_cpu(port->mac) : sp_get64(frame)) >> 16;
	peer = sp_get32(frame + 26);
	if (sp_icmp_make_room(xdp, quote, 28))
		return sp_drop(request->ingress_port);
	frame = (void *)(long)xdp->data;
	end = (void *)(long)xdp->data_end;
	if (frame + 42 > end)
		return sp_drop(request->ingress_port);
	sp_icmp_put_ethernet(frame, to, from, 0x0800);
	sp_put16(frame + 14, 0x45c0); /* internetwork control: RFC 1812, 4.3.2.5 */
	sp_put16(frame + 16, 28 + quote);
	sp_put32(frame + 18, 0x4000); /* no identification: it is not fragmented (RFC 6864) */
	sp_put32(frame + 22, 64 << 24 | 1 << 16);
	*(sp_u32a *)(frame + 26) = port->ipv4;
	sp_put32(frame + 30, peer);
	sum = (__u64)sp_get32(frame + 14) + sp_get32(frame + 18) + sp_get32(frame + 22) +
	      sp_get32(frame + 26) + peer;
	sp_put16(frame + 24, sp_csum_fold(sum));
	sp_put32(frame + 34, (__u32)request->type << 24 | (__u32)request->code << 16);
	sp_put32(frame + 38, request->rest);
	sp_put16(frame + 36, sp_csum_fold(sp_icmp_sum(frame + 34, end)));
	sp_gateway_count(SP_EVENT_ICMP_SENT);
	return sp_forward(request->ingress_port, 42 + quote);
}

SP_INLINE int sp_icmp_ipv6(struct xdp_md *xdp, const struct sp_icmp_request_value *request,
			   const struct sp_gateway_port_value *port)
{
	__u8 *frame = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	__u32 quote, there = sp_icmp_linear(xdp) - 14;
	struct sp_ipv6_address peer;
	__u64 from, to, sum;

	if (frame + 54 > end || !sp_icmp_is_due_ipv6(frame, end, request->type, request->code))
		return sp_icmp_give_up(request->ingress_port, SP_EVENT_ICMP_SUPPRESSED);
	if (!(port->ipv6[0] | port->ipv6[1] | port->ipv6[2] | port->ipv6[3]))
		return sp_icmp_give_up(request->ingress_port, SP_EVENT_ICMP_NO_ADDRESS);
	if (!sp_icmp_may_send())
		return sp_icmp_give_up(request->ingress_port, SP_EVENT_ICMP_RATE_LIMITED);
	quote = sp_get16(frame + 18) + 40;
	quote = quote > there ? there : quote;
	quote = quote > SP_ICMP_MOST_IPV6 - 48 ? SP_ICMP_MOST_IPV6 - 48 : quote;
	to = sp_get64(frame + 4) & 0xffffffffffffull;
	from = (port->mac ? bpf_be64_to_cpu(port->mac) : sp_get64(frame)) >> 16;
	for (int i = 0; i < 4; i++)
		peer.word[i] = ((sp_u32a *)(frame + 22))[i];
	if (sp_icmp_make_room(xdp, quote, 48))
		return sp_drop(request->ingress_port);
	frame = (void *)(long)xdp->data;
	end = (void *)(long)xdp->data_end;
	if (frame + 62 > end)
		return sp_drop(request->ingress_port);
	sp_icmp_put_ethernet(frame, to, from, 0x86dd);
	sp_put32(frame + 14, 0x6c000000); /* CS6, as of IPv4 */
	sp_put16(frame + 18, 8 + quote);
	sp_put16(frame + 20, 58 << 8 | 64);
	for (int i = 0; i < 4; i++) {
		((sp_u32a *)(frame + 22))[i] = port->ipv6[i];
		((sp_u32a *)(frame + 38))[i] = peer.word[i];
	}
	sp_put32(frame + 54, (__u32)request->type << 24 | (__u32)request->code << 16);
	sp_put32(frame + 58, request->rest);
	/* Addresses and the rest in one run; of the pseudo-header, length and protocol are left. */
	sum = sp_icmp_sum(frame + 22, end) + 8 + quote + 58;
	sp_put16(frame + 56, sp_csum_fold(sum));
	sp_gateway_count(SP_EVENT_ICMP_SENT);
	return sp_forward(request->ingress_port, 62 + quote);
}

/* Answers the packet, as it came in, with an ICMP error. */
SEC("xdp.frags")
int sp_icmp(struct xdp_md *xdp)
{
	__u8 *frame = (void *)(long)xdp->data;
	__u32 zero = 0, number;
	struct sp_icmp_request_value *request = bpf_map_lookup_elem(&sp_icmp_request, &zero);
	struct sp_gateway_port_value *port;

	if (!request)
		return XDP_ABORTED;
	number = request->ingress_port;
	port = bpf_map_lookup_elem(&sp_gateway_port, &number);
	if (!port || sp_test_padding() || frame + 14 > (__u8 *)(long)xdp->data_end)
		return sp_drop(request->ingress_port);
	if (sp_get16(frame + 12) == 0x0800)
		return sp_icmp_ipv4(xdp, request, port);
	if (sp_get16(frame + 12) == 0x86dd)
		return sp_icmp_ipv6(xdp, request, port);
	return sp_icmp_give_up(request->ingress_port, SP_EVENT_ICMP_SUPPRESSED);
}

/* Verdict: the packet, as it came in, is answered. */
SP_INLINE int sp_gateway_reply(struct xdp_md *xdp, __u32 ingress_port, __u32 type, __u32 code,
			       __u32 rest)
{
	__u32 zero = 0;
	struct sp_icmp_request_value *request = bpf_map_lookup_elem(&sp_icmp_request, &zero);

	if (request) {
		request->ingress_port = ingress_port;
		request->rest = rest;
		request->type = type;
		request->code = code;
		bpf_tail_call(xdp, &sp_gateway_programs, SP_GATEWAY_PROGRAM_ICMP);
	}
	return sp_drop(ingress_port);
}

#endif
