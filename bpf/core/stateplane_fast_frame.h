/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_fast_frame.h: frames of a chain's fast path: which one is a batch, and how it goes on.
 * Part of fast_chain.c.
 *
 * Owns: Ethernet, IPv4, UDP, routes. Must not know: records, secrets.
 */
#ifndef STATEPLANE_FAST_FRAME_H
#define STATEPLANE_FAST_FRAME_H

#define SP_FAST_HEADERS_BYTES 42 /* Ethernet, IPv4 without options, UDP */
#define SP_FAST_IP_PROTOCOL 0x0800
#define SP_FAST_FAMILY_IPV4 2
#define SP_FAST_UDP 17
#define SP_FAST_FRAGMENT 0x3fff /* more fragments, or not the first one */
#define SP_FAST_TTL 64
/* Routes are looked up as for what the host itself sends: by the loopback interface's number. */
#define SP_FAST_LOOPBACK 1

/* All headers, and how a message begins. */
struct sp_fast_frame {
	__u8 destination_mac[6];
	__u8 source_mac[6];
	__be16 protocol;
	__u8 version_and_length;
	__u8 tos;
	__be16 ip_bytes;
	__be16 identification;
	__be16 fragment;
	__u8 ttl;
	__u8 ip_protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	__be16 udp_bytes;
	__be16 udp_checksum;
	__be16 magic;
	__u8 version;
	__u8 message_type;
} __attribute__((packed));
_Static_assert(__builtin_offsetof(struct sp_fast_frame, magic) == SP_FAST_HEADERS_BYTES, "length");

/* Where a message came from, and how long it is. */
struct sp_fast_origin {
	__be32 address;
	__be16 port;
	__u16 bytes;
	__u32 frame_bytes;
	__u8 tos;
};

/* Whether this is a batch to this member, in one plain datagram. */
static __always_inline int sp_fast_is_batch(struct xdp_md *xdp, const struct sp_fast_config *config,
					    struct sp_fast_origin *origin)
{
	struct sp_fast_frame *frame = (void *)(long)xdp->data;
	__u32 bytes = bpf_xdp_get_buff_len(xdp);
	__u32 ip_bytes, udp_bytes;

	if ((void *)(frame + 1) > (void *)(long)xdp->data_end)
		return 0;
	if (frame->protocol != bpf_htons(SP_FAST_IP_PROTOCOL) || frame->version_and_length != 0x45 ||
	    frame->ip_protocol != SP_FAST_UDP ||
	    frame->destination_port != config->port || frame->destination != config->address ||
	    (frame->fragment & bpf_htons(SP_FAST_FRAGMENT)))
		return 0;
	ip_bytes = bpf_ntohs(frame->ip_bytes);
	udp_bytes = bpf_ntohs(frame->udp_bytes);
	if (bytes != ip_bytes + 14 || ip_bytes != udp_bytes + 20 || udp_bytes < 12)
		return 0;
	if (frame->magic != bpf_htons(SP_BATCH_MAGIC) || frame->version != SP_BATCH_VERSION ||
	    frame->message_type != SP_BATCH)
		return 0;
	origin->address = frame->source;
	origin->port = frame->source_port;
	origin->bytes = udp_bytes - 8;
	origin->frame_bytes = bytes;
	origin->tos = frame->tos;
	return 1;
}

/* The route of a message of so many bytes; 0: there is none, or it is too narrow. */
static __always_inline int sp_fast_find_route(struct xdp_md *xdp,
					      const struct sp_fast_config *config,
					      struct bpf_fib_lookup *route, __be32 to,
					      __be16 to_port, __u32 bytes, __u8 tos)
{
	__builtin_memset(route, 0, sizeof(*route));
	route->family = SP_FAST_FAMILY_IPV4;
	route->l4_protocol = SP_FAST_UDP;
	route->sport = config->port;
	route->dport = to_port;
	route->tot_len = bytes + 28;
	route->ifindex = SP_FAST_LOOPBACK;
	route->tos = tos;
	route->ipv4_src = config->address;
	route->ipv4_dst = to;
	return bpf_fib_lookup(xdp, route, sizeof(*route), 0) == BPF_FIB_LKUP_RET_SUCCESS;
}

/* Of an IPv4 header whose checksum is 0. */
static __always_inline __u16 sp_fast_checksum(const struct sp_fast_frame *frame)
{
	const __u16 *word = (const void *)&frame->version_and_length;
	__u32 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/*
 * Writes the headers of a message of so many bytes that takes this route; 0: it is no frame. `to`:
 * the route names the router, if there is one between.
 */
static __always_inline int sp_fast_write_headers(struct xdp_md *xdp,
						 const struct sp_fast_config *config,
						 const struct bpf_fib_lookup *route, __be32 to,
						 __be16 to_port, __u32 bytes)
{
	struct sp_fast_frame *frame = (void *)(long)xdp->data;

	if ((void *)(frame + 1) > (void *)(long)xdp->data_end)
		return 0;
	__builtin_memcpy(frame->destination_mac, route->dmac, 6);
	__builtin_memcpy(frame->source_mac, route->smac, 6);
	frame->ip_bytes = bpf_htons(bytes + 28);
	frame->ttl = SP_FAST_TTL;
	frame->checksum = 0;
	frame->source = config->address;
	frame->destination = to;
	frame->checksum = sp_fast_checksum(frame);
	frame->source_port = config->port;
	frame->destination_port = to_port;
	frame->udp_bytes = bpf_htons(bytes + 8);
	frame->udp_checksum = 0;
	return 1;
}

#endif
