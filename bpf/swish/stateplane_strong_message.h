/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_message.h: messages of a chain of switches: their bytes, tags, and how they
 * leave. Part of stateplane_strong.h.
 *
 * Must not know: the log, what a batch does.
 */
#ifndef STATEPLANE_STRONG_MESSAGE_H
#define STATEPLANE_STRONG_MESSAGE_H

#include "stateplane_siphash.h"

/* Ethernet, IPv4 without options, UDP. */
#define SP_STRONG_AT 42
#define SP_STRONG_HEADER_BYTES (SP_STRONG_HEADER_WORDS * 8)
#define SP_STRONG_TAG_WORD 8
#define SP_STRONG_DIGEST_WORD 7
#define SP_STRONG_SEQ_WORD 4
/* Without an answer for so long a message is sent again. */
#define SP_STRONG_RESEND_NS 2000000ull

enum {
	SP_STRONG_RECEIVE,
	SP_STRONG_ACKED,
	SP_STRONG_COMMIT,
	SP_STRONG_SEND,
	SP_STRONG_AGAIN,
	SP_STRONG_PASS,
	SP_STRONG_GIVE,
	SP_STRONG_TAKE,
	SP_STRONG_CARRY,
	SP_STRONG_TELL,
	SP_STRONG_HEAR,
	SP_STRONG_PROGRAMS
};
int sp_strong_receive(struct xdp_md *xdp); /* a message of a member */
int sp_strong_acked(struct xdp_md *xdp); /* an answer, which was checked */
int sp_strong_commit(struct xdp_md *xdp); /* a finished packet that waits */
int sp_strong_send(struct xdp_md *xdp); /* the batch in sp_commit_work */
int sp_strong_again(struct xdp_md *xdp); /* the P4 program on a packet that was here before */
int sp_strong_pass(struct xdp_md *xdp); /* a round, which was checked */
int sp_strong_give(struct xdp_md *xdp); /* the frame carries the next part of a copy */
int sp_strong_take(struct xdp_md *xdp); /* a part of a copy, which was checked */
int sp_strong_carry(struct xdp_md *xdp); /* the frame carries a ready packet out */
int sp_strong_tell(struct xdp_md *xdp); /* the frame becomes a hello */
int sp_strong_hear(struct xdp_md *xdp); /* a hello, which was checked */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, SP_STRONG_PROGRAMS);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} sp_strong_programs SEC(".maps") = {
	.values = {
		[SP_STRONG_RECEIVE] = (void *)&sp_strong_receive,
		[SP_STRONG_ACKED] = (void *)&sp_strong_acked,
		[SP_STRONG_COMMIT] = (void *)&sp_strong_commit,
		[SP_STRONG_SEND] = (void *)&sp_strong_send,
		[SP_STRONG_AGAIN] = (void *)&sp_strong_again,
		[SP_STRONG_PASS] = (void *)&sp_strong_pass,
		[SP_STRONG_GIVE] = (void *)&sp_strong_give,
		[SP_STRONG_TAKE] = (void *)&sp_strong_take,
		[SP_STRONG_CARRY] = (void *)&sp_strong_carry,
		[SP_STRONG_TELL] = (void *)&sp_strong_tell,
		[SP_STRONG_HEAR] = (void *)&sp_strong_hear,
	},
};

/* The header's fields (swish_protocol::strong::Message), in host order. */
struct sp_strong_header {
	__u8 kind;
	__u8 key_id;
	__u16 count;
	__u16 words;
	__u16 origin;
	__u16 stream;
	__u16 resender;
	__u32 incarnation;
	__u32 view;
	__u32 uncommitted;
	__u64 batch;
	__u64 seq;
	__u64 refused;
	__u64 full;
};

SP_INLINE void sp_strong_parse(const __u64 *message, struct sp_strong_header *header)
{
	__u64 first = bpf_be64_to_cpu(message[0]), second = bpf_be64_to_cpu(message[1]);
	__u64 third = bpf_be64_to_cpu(message[2]);

	header->kind = first >> 56;
	header->key_id = first >> 48 & (SP_SECRETS - 1);
	header->count = first >> 32;
	header->words = first >> 16;
	header->origin = first;
	header->stream = second >> 48;
	header->resender = second >> 32;
	header->incarnation = second;
	header->view = third >> 32;
	header->uncommitted = third;
	header->batch = bpf_be64_to_cpu(message[3]);
	header->seq = bpf_be64_to_cpu(message[4]);
	header->refused = bpf_be64_to_cpu(message[5]);
	header->full = bpf_be64_to_cpu(message[6]);
}

/* All but digest and tag. */
SP_INLINE void sp_strong_write(__u64 *message, const struct sp_strong_header *header)
{
	message[0] = bpf_cpu_to_be64((__u64)header->kind << 56 | (__u64)header->key_id << 48 |
				     (__u64)header->count << 32 | (__u64)header->words << 16 |
				     header->origin);
	message[1] = bpf_cpu_to_be64((__u64)header->stream << 48 | (__u64)header->resender << 32 |
				     header->incarnation);
	message[2] = bpf_cpu_to_be64((__u64)header->view << 32 | header->uncommitted);
	message[3] = bpf_cpu_to_be64(header->batch);
	message[4] = bpf_cpu_to_be64(header->seq);
	message[5] = bpf_cpu_to_be64(header->refused);
	message[6] = bpf_cpu_to_be64(header->full);
}

SP_INLINE struct sp_strong_view *sp_strong_get_view(void)
{
	__u32 at = sp_strong_word(SP_STRONG_VIEWS) & 1;

	return bpf_map_lookup_elem(&sp_strong_views, &at);
}

SP_INLINE __u32 sp_strong_address(const struct sp_strong_view *view, __u32 member)
{
	__u64 at = member;

	if (at >= SP_STRONG_MEMBERS)
		return 0;
	return view->address[sp_below(at, SP_STRONG_MEMBERS)];
}

/* ---- tags ----------------------------------------------------------------------------------- */

/* Of the records of the message in the scratch: made once, by the origin. */
static __noinline __u64 sp_strong_digest(const __u64 *records, __u32 words, __u32 key_id)
{
	__u32 zero = 0;
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_sip sip;

	if (!secrets)
		return 0;
	key_id &= SP_SECRETS - 1;
	sp_sip_begin(&sip, secrets->secret[key_id][0], secrets->secret[key_id][1]);
	for (__u32 i = 0; i < SP_STRONG_WORDS; i++) {
		if (i >= words)
			break;
		sp_sip_word(&sip, records[i]);
	}
	return bpf_cpu_to_be64(sp_sip_end(&sip, (__u64)words << 59));
}

/* Of addresses, the group's layout, and the header. 0: there is no such secret. */
static __noinline __u64 sp_strong_tag(const __u64 *message, __u64 addresses, __u64 layout)
{
	__u32 zero = 0, key_id = bpf_be64_to_cpu(message[0]) >> 48 & (SP_SECRETS - 1);
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_sip sip;
	__u64 tag;

	if (!secrets || !(secrets->present >> key_id & 1))
		return 0;
	sp_sip_begin(&sip, secrets->secret[key_id][0], secrets->secret[key_id][1]);
	sp_sip_word(&sip, addresses);
	sp_sip_word(&sip, layout);
	for (int i = 0; i < SP_STRONG_TAG_WORD; i++)
		sp_sip_word(&sip, message[i]);
	tag = sp_sip_end(&sip, (__u64)(SP_STRONG_TAG_WORD + 2) << 59);
	return tag ? bpf_cpu_to_be64(tag) : 1;
}

/* ---- what leaves ---------------------------------------------------------------------------- */

SP_INLINE void sp_strong_outer(__u8 *data, __u32 from, __u32 to, __u32 bytes)
{
	/* The sum of the header's words that are written below; the checksum counts as 0. */
	__u32 sum = 0x4500 + (bytes - 14) + 0x4000 + (64 << 8 | 17) + (bpf_ntohl(from) >> 16) +
		    (bpf_ntohl(from) & 0xffff) + (bpf_ntohl(to) >> 16) + (bpf_ntohl(to) & 0xffff);

	sp_put16(data + 12, 0x0800);
	sp_put16(data + 14, 0x4500);
	sp_put16(data + 16, bytes - 14);
	sp_put16(data + 18, 0);
	sp_put16(data + 20, 0x4000); /* not to be fragmented */
	sp_put16(data + 22, 64 << 8 | 17);
	*(sp_u32a *)(data + 26) = from;
	*(sp_u32a *)(data + 30) = to;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sp_put16(data + 24, ~sum);
	/* One flow between two members: what is sent in order comes in order. */
	sp_put16(data + 34, SP_STRONG_UDP_PORT);
	sp_put16(data + 36, SP_STRONG_UDP_PORT);
	sp_put16(data + 38, bytes - 34);
	sp_put16(data + 40, 0);
}

/* The kernel's route to a member. Members whose addresses end alike take turns at one place. */
struct sp_strong_route {
	__u64 found_ns; /* coarse */
	__u64 source_mac;
	__u64 destination_mac;
	__u32 to;
	__u32 ifindex; /* whose rules hold */
	__u32 port;
	__u32 mtu;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_STRONG_MEMBERS);
	__type(key, __u32);
	__type(value, struct sp_strong_route);
} sp_strong_routes SEC(".maps");

/* The route for so many bytes; 0: there is none. It counts until the coarse clock's next tick (4 ms
 * with 250 Hz): the kernel's look-up for each message was a tenth of a write's cost. */
SP_INLINE struct sp_strong_route *sp_strong_route_to(struct xdp_md *xdp, __u32 from, __u32 to,
						     __u32 bytes, __u32 ifindex)
{
	__u32 at = bpf_ntohl(to) & (SP_STRONG_MEMBERS - 1), port = 0, mtu = 0;
	struct sp_strong_route *route = bpf_map_lookup_elem(&sp_strong_routes, &at);
	__u64 now = sp_coarse_ns(), source_mac = 0, destination_mac = 0;

	if (!route)
		return 0;
	if (route->to == to && route->ifindex == ifindex && route->found_ns == now &&
	    bytes <= route->mtu)
		return route;
	route->to = 0;
	if (sp_fib_lookup_ipv4(xdp, ifindex, bpf_ntohl(from), bpf_ntohl(to), 17, SP_STRONG_UDP_PORT,
			       SP_STRONG_UDP_PORT, bytes, 0, &port, &source_mac, &destination_mac,
			       &mtu) != SP_FIB_FORWARD)
		return 0;
	route->found_ns = now;
	route->source_mac = source_mac;
	route->destination_mac = destination_mac;
	route->ifindex = ifindex;
	route->port = port;
	route->mtu = mtu;
	route->to = to;
	return route;
}

/*
 * Sends the frame, `bytes` long, with the header that stands in the scratch. To this switch itself:
 * the frame is a message that came in. The verdict.
 */
static __noinline int sp_strong_emit(struct xdp_md *xdp, __u32 to, __u32 bytes, __u32 ifindex)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_route *route;
	__u64 source_mac = 0, destination_mac = 0;
	__u32 own, port = 0;
	__u8 *data;

	if (!scratch || !view)
		return XDP_ABORTED;
	own = sp_strong_address(view, view->own);
	if (to != own) {
		route = sp_strong_route_to(xdp, own, to, bytes - 14, ifindex);
		/* (Hellos are sent whether or not somebody is there.) */
		if (!route && bpf_be64_to_cpu(scratch->message[0]) >> 56 != SP_STRONG_HELLO)
			sp_strong_count(SP_STRONG_STAT_NO_ROUTE);
		if (!route)
			return XDP_DROP;
		source_mac = route->source_mac;
		destination_mac = route->destination_mac;
		port = route->port;
	}
	data = (void *)(long)xdp->data;
	if (data + SP_STRONG_AT + SP_STRONG_HEADER_BYTES > (__u8 *)(long)xdp->data_end)
		return XDP_ABORTED;
	sp_put16(data, destination_mac >> 32);
	sp_put32(data + 2, destination_mac);
	sp_put16(data + 6, source_mac >> 32);
	sp_put32(data + 8, source_mac);
	sp_strong_outer(data, own, to, bytes);
	scratch->message[SP_STRONG_TAG_WORD] =
		sp_strong_tag(scratch->message, (__u64)own | (__u64)to << 32, view->layout);
	if (bpf_xdp_store_bytes(xdp, SP_STRONG_AT, scratch->message, SP_STRONG_HEADER_BYTES))
		return XDP_ABORTED;
	if (to != own)
		return sp_forward(port, bytes);
	return SP_COMMIT_NOTHING;
}

/* The same, where a message to this switch itself is handled next. */
SP_INLINE int sp_strong_deliver(struct xdp_md *xdp, __u32 to, __u32 bytes, __u32 ifindex)
{
	int verdict = sp_strong_emit(xdp, to, bytes, ifindex);

	if (verdict != SP_COMMIT_NOTHING)
		return verdict;
	bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_RECEIVE);
	sp_strong_count(SP_STRONG_STAT_FAULTS);
	return XDP_DROP;
}

SP_INLINE int sp_strong_end(void)
{
	return sp_test_mode ? sp_test_verdict(SP_VERDICT_DROP, SP_DROP_PORT, 0) : XDP_DROP;
}

SP_INLINE int sp_strong_refuse(__u32 why)
{
	sp_strong_count(why);
	return sp_strong_end();
}

#endif
