/* stateplane_flow_send.h: the state protocol's messages as the switch sends them, and how a packet
 * ends that waits in one. Part of stateplane_flow.h. systems/redplane/docs/state-protocol.md has
 * the format. */
#ifndef STATEPLANE_FLOW_SEND_H
#define STATEPLANE_FLOW_SEND_H

static __always_inline __sum16 sp_flow_ip_checksum(const struct sp_flow_outer *outer)
{
	const __u16 *word = (const void *)&outer->version_ihl;
	__u32 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The headers in front of a message to a shard's head, in a frame of `bytes` bytes. */
static __always_inline void sp_flow_fill_outer(struct sp_flow_outer *outer,
    const struct sp_flow_settings *settings, const struct sp_shard_head *head, __u32 bytes)
{
	outer->ethertype = bpf_htons(0x0800);
	outer->version_ihl = 0x45;
	outer->tos = 0xc0; /* CS6: network control */
	outer->total_length = bpf_htons(bytes - 14);
	outer->identification = 0;
	outer->fragment = bpf_htons(0x4000);
	outer->ttl = 64;
	outer->protocol = 17;
	outer->checksum = 0;
	outer->source = settings->protocol_address;
	outer->destination = head->address;
	outer->checksum = sp_flow_ip_checksum(outer);
	outer->source_port = bpf_htons(SP_FLOW_PORT);
	outer->destination_port = head->port;
	outer->udp_length = bpf_htons(bytes - 34);
	outer->udp_checksum = 0; /* none (RFC 768): the links' own CRC covers it */
}

static __always_inline int sp_flow_fill(struct xdp_md *xdp, const struct sp_flow_scratch *scratch,
					const struct sp_flow_settings *settings, const struct sp_shard_head *head,
					__u32 shard, __u32 session, __u32 key_id, __u32 message_bytes,
					__u32 packet_bytes)
{
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_flow_header *header = (void *)(outer + 1);

	if ((void *)(header + 1) > (void *)(long)xdp->data_end)
		return -1;
	sp_flow_fill_outer(outer, settings, head, message_bytes + packet_bytes);
	header->magic = bpf_htons(SP_FLOW_MAGIC);
	header->version = SP_FLOW_VERSION;
	header->message_type = scratch->type;
	header->object_id = bpf_htons(scratch->object_id);
	header->flags = bpf_htons(scratch->flags);
	header->switch_id = bpf_htonl(settings->switch_id);
	header->incarnation = bpf_htonl(settings->incarnation);
	header->request_ns = bpf_cpu_to_be64(sp_now_ns());
	header->epoch = bpf_htonl(scratch->epoch);
	header->key_bytes = bpf_htons(scratch->key_bytes);
	header->value_bytes = bpf_htons(scratch->value_bytes);
	header->seq = bpf_cpu_to_be64(scratch->seq);
	header->lease_us = scratch->type == SP_RELEASE ? bpf_htonl(scratch->idle_ms) : 0;
	header->port = bpf_htons(scratch->port);
	header->packet_bytes = bpf_htons(packet_bytes);
	header->session = bpf_htonl(session);
	header->shard = bpf_htons(shard);
	header->key_id = key_id;
	header->zero = 0;
	header->tag = 0;
	return 0;
}

/* Finds the way to the store, from the interface `ifindex`, and redirects the finished message
 * there. */
static __always_inline int sp_flow_route(struct xdp_md *xdp, struct bpf_fib_lookup *route,
					 const struct sp_flow_settings *settings, const struct sp_shard_head *head,
					 __u32 total_length, __u32 ifindex)
{
	struct sp_flow_outer *outer;

	if (sp_test_mode) /* to the store, whatever port that is */
		return sp_test_verdict(1, 0xffff, bpf_xdp_get_buff_len(xdp));
	__builtin_memset(route, 0, sizeof(*route));
	route->family = 2; /* AF_INET */
	route->l4_protocol = 17;
	route->sport = bpf_htons(SP_FLOW_PORT);
	route->dport = head->port;
	route->tot_len = total_length;
	route->ifindex = ifindex;
	route->ipv4_src = settings->protocol_address;
	route->ipv4_dst = head->address;
	switch (bpf_fib_lookup(xdp, route, sizeof(*route), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		break;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED: /* the fabric's MTU must be larger than the hosts' by the
					      headers */
		sp_flow_count(SP_STAT_TOO_BIG);
		return XDP_DROP;
	default:
		sp_flow_count(SP_STAT_NO_ROUTE);
		return XDP_DROP;
	}
	outer = (void *)(long)xdp->data;
	if ((void *)(outer + 1) > (void *)(long)xdp->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(outer->destination_mac, route->dmac, 6);
	__builtin_memcpy(outer->source_mac, route->smac, 6);
	return bpf_redirect(route->ifindex, 0);
}

/* A packet on its way back in its frame, in chunks. */
struct sp_move_work {
	struct xdp_md *xdp;
	struct sp_flow_scratch *scratch;
	__u32 left;
	__u32 by;
};

/* The last chunk that has not moved yet. */
static long sp_flow_move_chunk(__u32 index, void *context)
{
	struct sp_move_work *work = context;
	__u64 bytes = work->left;

	if (bytes > SP_FLOW_CHUNK_BYTES)
		bytes = SP_FLOW_CHUNK_BYTES;
	asm volatile("" : "+r"(bytes));
	if (bytes < 1 || bytes > SP_FLOW_CHUNK_BYTES)
		return 1;
	if (bpf_xdp_load_bytes(work->xdp, work->left - bytes, work->scratch->chunk, bytes) ||
	    bpf_xdp_store_bytes(work->xdp, work->left - bytes + work->by, work->scratch->chunk, bytes))
		return 1;
	work->left -= bytes;
	return 0;
}

/* Key and value are longer than the front's room: the frame grows at its end, if it can, and the
 * packet in it moves there. */
static __always_inline int sp_flow_grow(
    struct xdp_md *xdp, struct sp_flow_scratch *scratch, __u32 more, int with_packet)
{
	struct sp_move_work work = { .xdp = xdp, .scratch = scratch, .by = more };

	if (with_packet)
		work.left = bpf_xdp_get_buff_len(xdp);
	if (bpf_xdp_adjust_tail(xdp, more))
		return -1;
	bpf_loop((work.left + SP_FLOW_CHUNK_BYTES - 1) / SP_FLOW_CHUNK_BYTES, sp_flow_move_chunk, &work, 0);
	return work.left ? -1 : 0;
}

/* Room for key and value at the front: XDP's 256 bytes, less struct xdp_frame and all headers. */
#define SP_FLOW_FRONT_BYTES 110
#define SP_FLOW_ONE_IS_LONG(name, id, flows, kb, vb, consistency, allocator) \
	|| (consistency != SP_FLOW_LOCAL && kb + vb > SP_FLOW_FRONT_BYTES)
#define SP_FLOW_ANY_IS_LONG (0 SP_FLOW_OBJECTS(SP_FLOW_ONE_IS_LONG))

/* Makes room for the message around the packet, or makes the frame as long as the message alone. */
static __always_inline int sp_flow_make_room(struct xdp_md *xdp, struct sp_flow_scratch *scratch,
    __u32 message_bytes, int with_packet)
{
	int more = (int)message_bytes - (with_packet ? 0 : (int)bpf_xdp_get_buff_len(xdp));

	/* At the front, where XDP always has room; at the end there may be none. */
	if (more > 0) {
		int failed = bpf_xdp_adjust_head(xdp, -more);

		return failed && SP_FLOW_ANY_IS_LONG ? sp_flow_grow(xdp, scratch, more, with_packet) : failed;
	}
	return more ? bpf_xdp_adjust_tail(xdp, more) : 0;
}

/* Writes the tag into the finished message. */
static __always_inline int sp_flow_sign(struct xdp_md *xdp, __u32 key_id, __u32 body_bytes)
{
	struct sp_flow_outer *outer;
	struct sp_flow_header *header;
	__u64 tag = 0;

	if (sp_tag(xdp, key_id, body_bytes, &tag))
		return -1;
	outer = (void *)(long)xdp->data;
	header = (void *)(outer + 1);
	if ((void *)(header + 1) > (void *)(long)xdp->data_end)
		return -1;
	header->tag = bpf_cpu_to_be64(tag);
	return 0;
}

/* Sends the message in the scratch to the head of its key's shard, around the packet or in place of
 * it. */
SEC("xdp.frags")
int sp_send(struct xdp_md *xdp)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0, shard, message_bytes, packet_bytes;
	__u64 key_bytes, value_bytes;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_session *session;
	struct sp_shard_head *head;
	__u32 key_id;

	if (!scratch || !settings || !secrets)
		return XDP_ABORTED;
	key_bytes = scratch->key_bytes;
	value_bytes = scratch->value_bytes;
	/* one register each, so that the bounds below stick to it */
	asm volatile("" : "+r"(key_bytes), "+r"(value_bytes));
	if (key_bytes > SP_FLOW_KEY_ROOM || value_bytes > SP_FLOW_VALUE_ROOM)
		return XDP_ABORTED;
	key_id = secrets->sends & (SP_SECRETS - 1);
	if (!(secrets->present >> key_id & 1)) {
		sp_flow_count(SP_STAT_NO_SECRET);
		return XDP_DROP;
	}
	shard = scratch->type == SP_HEARTBEAT ? scratch->shard :
						sp_key_shard(scratch->object_id, scratch->key, key_bytes, settings->shards);
	head = bpf_map_lookup_elem(&sp_shards, &shard);
	session = sp_get_session(shard);
	if (!head || !session || !head->address || !settings->shards) {
		sp_flow_count(SP_STAT_NO_HEAD);
		return XDP_DROP;
	}
	/* An UPDATE's room was looked for before it was made; a READ_COMMIT without a packet
	 * answers a probe. */
	if ((scratch->type == SP_LEASE_REQUEST ||
		(scratch->type == SP_READ_COMMIT && scratch->with_packet)) &&
	    sp_session_full(session, settings))
		return XDP_DROP;
	message_bytes = SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + key_bytes + value_bytes;
	packet_bytes = scratch->with_packet ? bpf_xdp_get_buff_len(xdp) : 0;
	if (packet_bytes > SP_FLOW_PACKET_MAX ||
	    sp_flow_make_room(xdp, scratch, message_bytes, scratch->with_packet)) {
		sp_flow_count(SP_STAT_TOO_BIG);
		return XDP_DROP;
	}
	sp_session_sent(session);
	if (sp_flow_fill(xdp, scratch, settings, head, shard, session->number, key_id,
		message_bytes, packet_bytes))
		return XDP_ABORTED;
	if (key_bytes && bpf_xdp_store_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES,
			     scratch->key, key_bytes))
		return XDP_ABORTED;
	if (value_bytes && bpf_xdp_store_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + key_bytes,
					       scratch->value, value_bytes))
		return XDP_ABORTED;
	if (sp_flow_sign(xdp, key_id, key_bytes + value_bytes + packet_bytes))
		return XDP_ABORTED;
	return sp_flow_route(xdp, &scratch->route, settings, head, message_bytes + packet_bytes - 14,
	    xdp->ingress_ifindex);
}

static __always_inline int sp_flow_send_by_tail_call(
    struct xdp_md *xdp, struct sp_flow_scratch *scratch, int with_packet)
{
	scratch->with_packet = with_packet;
	bpf_tail_call(xdp, &sp_programs, SP_PROGRAM_SEND);
	sp_flow_count(SP_STAT_TOO_MANY_ATTEMPTS); /* the kernel allows 33 tail calls */
	return XDP_DROP;
}

/* The P4 program runs on the packet again. */
static __always_inline int sp_flow_run_again(struct xdp_md *xdp, const struct sp_flow_context *flow)
{
	__u32 zero = 0;
	struct sp_flow_resume *resume = bpf_map_lookup_elem(&sp_flow_resume, &zero);

	if (!resume)
		return XDP_ABORTED;
	resume->ingress_port = flow->ingress_port;
	resume->attempts = flow->attempts;
	resume->absent_object = flow->absent_object;
	bpf_tail_call(xdp, &sp_programs, SP_PROGRAM_AGAIN);
	sp_flow_count(SP_STAT_TOO_MANY_ATTEMPTS);
	return XDP_DROP;
}

/* The other end of sp_flow_run_again, at the start of sp_again. */
static __always_inline int sp_flow_resumed(struct sp_flow_context *flow)
{
	__u32 zero = 0;
	struct sp_flow_resume *resume = bpf_map_lookup_elem(&sp_flow_resume, &zero);

	if (!resume)
		return -1;
	flow->ingress_port = resume->ingress_port;
	flow->attempts = resume->attempts;
	flow->absent_object = resume->absent_object;
	return 0;
}

/*
 * Verdict: up to this host's kernel. A packet that comes back from the store does so on another
 * interface than it first came in on, whose address it has: the kernel would take it for somebody
 * else's (PACKET_OTHERHOST) and drop it.
 */
static __always_inline int sp_flow_to_host(
    struct xdp_md *xdp, const struct sp_flow_context *flow, __u32 ingress_port)
{
	__u32 zero = 0;
	struct sp_flow_resume *resume;
	__u8 *frame = (void *)(long)xdp->data;

	if (flow->attempts) {
		resume = bpf_map_lookup_elem(&sp_flow_resume, &zero);
		if (resume && frame + 6 <= (__u8 *)(long)xdp->data_end &&
		    !(frame[0] & 1)) /* but for broadcast and multicast */
			__builtin_memcpy(frame, resume->host_mac, 6);
	}
	return sp_to_host(ingress_port);
}

/* Ends a packet whose kind is SP_FLOW_PARK; it is as it came in. */
static __always_inline int sp_flow_park(struct xdp_md *xdp, struct sp_flow_context *flow)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();

	if (!scratch)
		return XDP_ABORTED;
	if (flow->updated) {
		sp_flow_count(SP_STAT_COMMIT_CONFLICTS);
		return XDP_DROP;
	}
	if (flow->park == SP_PARK_RUN_AGAIN)
		return sp_flow_run_again(xdp, flow);
	if (flow->park == SP_PARK_DROP)
		return XDP_DROP;
	if (flow->attempts >= SP_FLOW_MAX_ATTEMPTS) {
		sp_flow_count(SP_STAT_TOO_MANY_ATTEMPTS);
		return XDP_DROP;
	}
	/* The store echoes `port`: its upper bits count how often this packet was parked. */
	scratch->port = ((flow->attempts + 1) << 9) | (flow->ingress_port & 0x1ff);
	sp_flow_count(SP_STAT_PARKED);
	return sp_flow_send_by_tail_call(xdp, scratch, 1);
}

/* Ends a packet whose kind is SP_FLOW_COMMIT; it is finished, and waits in the network for the
 * store's acknowledgement. */
static __always_inline int sp_flow_finish(
    struct xdp_md *xdp, struct sp_flow_context *flow, __u32 egress_port)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();

	if (!scratch)
		return XDP_ABORTED;
	scratch->port = (egress_port & 0x1ff) | (scratch->type == SP_READ_COMMIT ? SP_FLOW_PORT_READ : 0);
	sp_flow_count(scratch->type == SP_UPDATE ? SP_STAT_UPDATES : SP_STAT_READ_COMMITS);
#ifdef SP_FLOW_HAS_COMMIT
	/* (But for an update that found no room in a batch.) */
	if (sp_commit_on && (scratch->type != SP_UPDATE || scratch->name)) {
		if (egress_port == SP_FLOW_DROP_PORT && scratch->type != SP_UPDATE)
			return XDP_DROP;
		scratch->port = egress_port & 0x1ff;
		bpf_tail_call(xdp, &sp_programs, SP_PROGRAM_COMMIT);
		sp_flow_count(SP_STAT_TOO_MANY_ATTEMPTS);
		return XDP_DROP;
	}
#endif
	if (egress_port == SP_FLOW_DROP_PORT)
		return scratch->type == SP_UPDATE ? sp_flow_send_by_tail_call(xdp, scratch, 0) : XDP_DROP;
	return sp_flow_send_by_tail_call(xdp, scratch, 1);
}

#endif
