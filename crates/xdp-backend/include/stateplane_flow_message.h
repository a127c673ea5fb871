/* stateplane_flow_message.h: the state protocol's messages as the switch sends and takes them.
 * Part of stateplane_flow.h. docs/state-protocol.md has the format. */
#ifndef STATEPLANE_FLOW_MESSAGE_H
#define STATEPLANE_FLOW_MESSAGE_H

/* ---- sending --------------------------------------------------------------------------------------------------- */

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

static __always_inline int sp_flow_fill(struct xdp_md *xdp, const struct sp_flow_scratch *scratch,
					const struct sp_flow_settings *settings, __u32 message_bytes,
					__u32 packet_bytes)
{
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_flow_header *header = (void *)(outer + 1);

	if ((void *)(header + 1) > (void *)(long)xdp->data_end)
		return -1;
	outer->ethertype = bpf_htons(0x0800);
	outer->version_ihl = 0x45;
	outer->tos = 0xc0; /* CS6: network control */
	outer->total_length = bpf_htons(message_bytes + packet_bytes - 14);
	outer->identification = 0;
	outer->fragment = bpf_htons(0x4000);
	outer->ttl = 64;
	outer->protocol = 17;
	outer->checksum = 0;
	outer->source = settings->protocol_address;
	outer->destination = settings->store_address;
	outer->checksum = sp_flow_ip_checksum(outer);
	outer->source_port = bpf_htons(SP_FLOW_PORT);
	outer->destination_port = settings->store_port;
	outer->udp_length = bpf_htons(message_bytes + packet_bytes - 34);
	outer->udp_checksum = 0; /* none (RFC 768): the links' own CRC covers it */
	header->magic = bpf_htons(SP_FLOW_MAGIC);
	header->version = SP_FLOW_VERSION;
	header->type = scratch->type;
	header->object_id = bpf_htons(scratch->object_id);
	header->flags = bpf_htons(scratch->flags);
	header->switch_id = bpf_htonl(settings->switch_id);
	header->incarnation = bpf_htonl(settings->incarnation);
	header->request_ns = bpf_cpu_to_be64(sp_flow_exact_clock());
	header->epoch = bpf_htonl(scratch->epoch);
	header->key_bytes = bpf_htons(scratch->key_bytes);
	header->value_bytes = bpf_htons(scratch->value_bytes);
	header->seq = bpf_cpu_to_be64(scratch->seq);
	header->lease_us = 0;
	header->port = bpf_htons(scratch->port);
	header->packet_bytes = bpf_htons(packet_bytes);
	return 0;
}

/* Finds the way to the store and redirects the finished message there. */
static __always_inline int sp_flow_route(struct xdp_md *xdp, struct bpf_fib_lookup *route,
					 const struct sp_flow_settings *settings, __u32 total_length)
{
	struct sp_flow_outer *outer;
	__u32 zero = 0;

	if (sp_test_mode) {
		struct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);
		if (test) {
			test->verdict = 1;
			test->egress_port = 0xffff; /* to the store, whatever port that is */
		}
		return XDP_PASS;
	}
	__builtin_memset(route, 0, sizeof(*route));
	route->family = 2; /* AF_INET */
	route->l4_protocol = 17;
	route->sport = bpf_htons(SP_FLOW_PORT);
	route->dport = settings->store_port;
	route->tot_len = total_length;
	route->ifindex = xdp->ingress_ifindex;
	route->ipv4_src = settings->protocol_address;
	route->ipv4_dst = settings->store_address;
	switch (bpf_fib_lookup(xdp, route, sizeof(*route), 0)) {
	case BPF_FIB_LKUP_RET_SUCCESS:
		break;
	case BPF_FIB_LKUP_RET_FRAG_NEEDED: /* the fabric's MTU must be larger than the hosts' by the headers */
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

/* Sends the message in the scratch to the store, around the packet or (with_packet = 0) in place of it. Returns the XDP
 * verdict. */
static __always_inline int sp_flow_send(struct xdp_md *xdp, int with_packet)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0, message_bytes, frame_bytes, packet_bytes;
	__u64 key_bytes, value_bytes;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);

	if (!scratch || !settings)
		return XDP_ABORTED;
	key_bytes = scratch->key_bytes;
	value_bytes = scratch->value_bytes;
	asm volatile("" : "+r"(key_bytes), "+r"(value_bytes)); /* one register each, so that the bounds below stick to it */
	if (key_bytes < 1 || key_bytes > SP_FLOW_KEY_MAX || value_bytes > SP_FLOW_VALUE_MAX)
		return XDP_ABORTED;
	message_bytes = SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + key_bytes + value_bytes;
	frame_bytes = bpf_xdp_get_buff_len(xdp);
	packet_bytes = with_packet ? frame_bytes : 0;
	if (packet_bytes > 65000 || (with_packet ? bpf_xdp_adjust_head(xdp, -(int)message_bytes) :
						   bpf_xdp_adjust_tail(xdp, (int)message_bytes - (int)frame_bytes))) {
		sp_flow_count(SP_STAT_TOO_BIG);
		return XDP_DROP;
	}
	if (sp_flow_fill(xdp, scratch, settings, message_bytes, packet_bytes) ||
	    bpf_xdp_store_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES, scratch->key, key_bytes))
		return XDP_ABORTED;
	if (value_bytes && bpf_xdp_store_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + key_bytes,
					       scratch->value, value_bytes))
		return XDP_ABORTED;
	return sp_flow_route(xdp, &scratch->route, settings, message_bytes + packet_bytes - 14);
}

SEC("xdp.frags")
int sp_send(struct xdp_md *xdp)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();

	return scratch ? sp_flow_send(xdp, scratch->with_packet) : XDP_ABORTED;
}

static __always_inline int sp_flow_send_by_tail_call(struct xdp_md *xdp, struct sp_flow_scratch *scratch, int with_packet)
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

/* Ends a packet whose kind is SP_FLOW_PARK; it is as it came in. */
static __always_inline int sp_flow_park(struct xdp_md *xdp, struct sp_flow_context *flow)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();

	if (!scratch)
		return XDP_ABORTED;
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

/* Ends a packet whose kind is SP_FLOW_COMMIT; it is finished, and waits in the network for the store's acknowledgement. */
static __always_inline int sp_flow_finish(struct xdp_md *xdp, struct sp_flow_context *flow, __u32 egress_port)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();

	if (!scratch)
		return XDP_ABORTED;
	scratch->port = egress_port & 0x1ff;
	sp_flow_count(scratch->type == SP_UPDATE ? SP_STAT_UPDATES : SP_STAT_READ_COMMITS);
	if (egress_port == SP_FLOW_DROP_PORT)
		return scratch->type == SP_UPDATE ? sp_flow_send_by_tail_call(xdp, scratch, 0) : XDP_DROP;
	return sp_flow_send_by_tail_call(xdp, scratch, 1);
}

/* ---- receiving ------------------------------------------------------------------------------------------------- */

/* Rule 3. The grant's key, value, seq, epoch and lease stand in the scratch. */
static __always_inline int sp_flow_install(void *map, struct sp_flow_scratch *scratch, __u32 key_bytes,
					    __u32 value_bytes, __u64 now)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);
	__u64 renew_at_ns = now + (scratch->lease_end_ns - now) / 2;
	void *entry_key;

	if (!entry) {
		entry = sp_flow_new_entry(scratch, scratch->key, key_bytes, scratch->value, value_bytes);
		entry->lease_end_ns = scratch->lease_end_ns;
		entry->renew_at_ns = renew_at_ns;
		entry->seq = scratch->seq;
		entry->acked_seq = scratch->seq;
		entry->epoch = scratch->epoch;
		if (!bpf_map_update_elem(map, scratch->key, entry, BPF_NOEXIST))
			return 0;
		entry = bpf_map_lookup_elem(map, scratch->key); /* another CPU was faster, or the map is full */
		if (!entry) {
			sp_flow_count(SP_STAT_FLOWS_FULL);
			return -1;
		}
	}
	entry_key = (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal(entry_key, scratch->key, key_bytes) && scratch->epoch >= entry->epoch &&
	    !(entry->flags & SP_FLOW_DYING)) {
		entry->version++;
		sp_barrier();
		if (scratch->epoch > entry->epoch) {
			entry->epoch = scratch->epoch;
			entry->seq = scratch->seq;
			entry->acked_seq = scratch->seq;
			entry->lease_end_ns = scratch->lease_end_ns;
			sp_flow_copy(entry_key + SP_ROUND8(key_bytes), scratch->value, value_bytes);
		} else if (scratch->lease_end_ns > entry->lease_end_ns) {
			entry->lease_end_ns = scratch->lease_end_ns; /* same grant: what stands here is the newest */
		}
		entry->renew_at_ns = renew_at_ns;
		sp_barrier();
		entry->version++;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	return 0;
}

/* An acknowledgement covers every update up to its seq, and renews the lease. */
static __always_inline void sp_flow_acknowledge(void *map, struct sp_flow_scratch *scratch, __u32 key_bytes, __u64 now)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);

	if (!entry)
		return;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    scratch->epoch == entry->epoch) {
		entry->version++;
		sp_barrier();
		if (scratch->seq > entry->acked_seq && scratch->seq <= entry->seq)
			entry->acked_seq = scratch->seq;
		if (scratch->lease_end_ns > entry->lease_end_ns && scratch->lease_end_ns > now) {
			entry->lease_end_ns = scratch->lease_end_ns;
			entry->renew_at_ns = now + (scratch->lease_end_ns - now) / 2;
		}
		sp_barrier();
		entry->version++;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
}

/* Fenced: the grant that the refused request named is not the current one, and never will be again. A grant that came meanwhile has another epoch. The lease and what was not acknowledged are forgotten; epoch 0 makes the next grant
 * install the store's value. */
static __always_inline void sp_flow_forget(void *map, struct sp_flow_scratch *scratch, __u32 key_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);

	if (!entry)
		return;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    scratch->epoch == entry->epoch) {
		entry->version++;
		sp_barrier();
		entry->lease_end_ns = 0;
		entry->epoch = 0;
		entry->acked_seq = entry->seq;
		sp_barrier();
		entry->version++;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
}

static __always_inline int sp_flow_apply(void *map, struct sp_flow_scratch *scratch, __u32 key_bytes,
					  __u32 value_bytes, __u64 now)
{
	if (scratch->type == SP_LEASE_GRANT) {
		sp_flow_count(scratch->lease_end_ns > now ? SP_STAT_GRANTS : SP_STAT_LATE_GRANTS);
		if (scratch->lease_end_ns > now)
			return sp_flow_install(map, scratch, key_bytes, value_bytes, now);
	} else if (scratch->type == SP_UPDATE_ACK) {
		sp_flow_count(SP_STAT_ACKS);
		sp_flow_acknowledge(map, scratch, key_bytes, now);
	} else if (scratch->type == SP_REFUSED) {
		sp_flow_count(SP_STAT_REFUSED);
		sp_flow_forget(map, scratch, key_bytes);
	}
	return 0;
}

/* Only the sizes that the object has are taken. */
#define SP_FLOW_CASE_SIZES(name, id, flows, kb, vb, consistency, allocator)                                            \
	case id:                                                                                                       \
		known = consistency == SP_FLOW_LINEARIZABLE && scratch->key_bytes == kb &&                             \
			scratch->value_bytes == (scratch->type == SP_LEASE_GRANT ? vb : 0);                            \
		break;
#define SP_FLOW_CASE_APPLY(name, id, flows, kb, vb, consistency, allocator)                                            \
	case id:                                                                                                       \
		full = sp_flow_apply(&name, scratch, kb, vb, now);                                                            \
		break;

/* Reads the message's header, key and value into the scratch. Returns the length of the packet in it, or -1 if it is
 * malformed. */
static __always_inline int sp_flow_decode(struct xdp_md *xdp)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_flow_header *header = (void *)(outer + 1);
	__u64 key_bytes, value_bytes, lease_ns;
	__u32 packet_bytes, udp_length;

	if (!scratch || !settings || (void *)(header + 1) > (void *)(long)xdp->data_end)
		return -1;
	if (header->magic != bpf_htons(SP_FLOW_MAGIC) || header->version != SP_FLOW_VERSION ||
	    header->switch_id != bpf_htonl(settings->switch_id) ||
	    header->incarnation != bpf_htonl(settings->incarnation))
		return -1; /* an earlier incarnation's lease is not ours */
	if (header->type != SP_LEASE_GRANT && header->type != SP_ABSENT && header->type != SP_UPDATE_ACK &&
	    header->type != SP_REFUSED)
		return -1;
	if (outer->fragment & bpf_htons(0x3fff)) /* what stands here may be the middle of anything */
		return -1;
	scratch->type = header->type;
	scratch->object_id = bpf_ntohs(header->object_id);
	scratch->flags = bpf_ntohs(header->flags);
	scratch->epoch = bpf_ntohl(header->epoch);
	scratch->seq = bpf_be64_to_cpu(header->seq);
	scratch->port = bpf_ntohs(header->port);
	key_bytes = bpf_ntohs(header->key_bytes);
	value_bytes = bpf_ntohs(header->value_bytes);
	packet_bytes = bpf_ntohs(header->packet_bytes);
	udp_length = bpf_ntohs(outer->udp_length);
	/* Counted from when the request left (the store counts from when it granted, which is later), less the margin for
	 * drift and clock lag. */
	lease_ns = (__u64)bpf_ntohl(header->lease_us) * 1000;
	scratch->lease_end_ns = lease_ns > settings->lease_margin_ns ?
					bpf_be64_to_cpu(header->request_ns) + lease_ns - settings->lease_margin_ns :
					0;
	asm volatile("" : "+r"(key_bytes), "+r"(value_bytes));
	if (key_bytes < 1 || key_bytes > SP_FLOW_KEY_MAX || value_bytes > SP_FLOW_VALUE_MAX)
		return -1;
	if (packet_bytes > SP_FLOW_PACKET_MAX || (packet_bytes && header->type == SP_REFUSED))
		return -1;
	if (bpf_be64_to_cpu(header->request_ns) > sp_flow_exact_clock())
		return -1; /* nobody answers a request before it was sent */
	if (udp_length != 8 + SP_FLOW_HEADER_BYTES + key_bytes + value_bytes + packet_bytes ||
	    bpf_ntohs(outer->total_length) != 20 + udp_length || bpf_xdp_get_buff_len(xdp) < 34 + (__u64)udp_length)
		return -1;
	scratch->key_bytes = key_bytes;
	scratch->value_bytes = value_bytes;
	for (__u32 i = 0; i < SP_FLOW_KEY_MAX / 8; i++) {
		((__u64 *)scratch->key)[i] = 0;
		((__u64 *)scratch->value)[i] = 0;
	}
	if (bpf_xdp_load_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES, scratch->key, key_bytes))
		return -1;
	if (value_bytes && bpf_xdp_load_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + key_bytes,
					      scratch->value, value_bytes))
		return -1;
	return packet_bytes;
}

/* Leaves only the packet in the message: also cuts off what Ethernet padded. */
static __always_inline int sp_flow_strip(struct xdp_md *xdp, __u32 message_bytes, __u32 packet_bytes)
{
	int padding = (int)bpf_xdp_get_buff_len(xdp) - (int)(message_bytes + packet_bytes);

	if (padding > 0 && bpf_xdp_adjust_tail(xdp, -padding))
		return -1;
	return bpf_xdp_adjust_head(xdp, message_bytes);
}

/* Lets the message in the scratch take its effect on its flow's entry. Returns -1 if no object has such messages, -2 if there is no
 * room for the flow: its packet is dropped, as it could only ask again. */
static __always_inline int sp_flow_take_effect(void)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	int known = 0, full = 0;
	__u64 now;

	if (!scratch)
		return -1;
	switch (scratch->object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_SIZES)
	}
	if (!known)
		return -1;
	now = sp_flow_coarse_clock();
	switch (scratch->object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_APPLY)
	}
	return full ? -2 : 0;
}

/* What becomes of the packet in the message: -1 when it shall now run through the program, else the XDP verdict. */
static __always_inline int sp_flow_release(struct xdp_md *xdp, struct sp_flow_context *flow, int packet_bytes)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0;

	if (!scratch)
		return XDP_ABORTED;
	if (packet_bytes < 14 || scratch->type == SP_REFUSED)
		return XDP_DROP; /* nothing to release */
	if (sp_flow_strip(xdp,
			  SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + scratch->key_bytes + scratch->value_bytes,
			  packet_bytes))
		return XDP_ABORTED;
	if (scratch->type == SP_UPDATE_ACK) {
		if (!sp_test_mode)
			return bpf_redirect_map(&sp_ports, scratch->port & 0x1ff, 0);
		struct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);
		if (test) {
			test->verdict = 1;
			test->egress_port = scratch->port & 0x1ff;
		}
		return XDP_PASS;
	}
	if (scratch->type == SP_ABSENT) {
		sp_flow_count(SP_STAT_ABSENT);
		flow->absent_object = scratch->object_id;
		for (__u32 i = 0; i < SP_FLOW_KEY_MAX / 8; i++)
			((__u64 *)scratch->absent_key)[i] = ((__u64 *)scratch->key)[i];
	}
	flow->ingress_port = scratch->port & 0x1ff;
	flow->attempts = scratch->port >> 9;
	return -1;
}

/* A message from the store, to this switch. Its packet, if the P4 program shall see it, goes on in sp_again. */
SEC("xdp.frags")
int sp_receive(struct xdp_md *xdp)
{
	struct sp_flow_context flow = {};
	__u32 port = 0;
	__u8 *fabric;
	int packet_bytes, effect, verdict;

	if (!sp_ingress_port(xdp, &port))
		return XDP_ABORTED;
	fabric = bpf_map_lookup_elem(&sp_fabric_port, &port);
	if (!fabric || !*fabric) { /* rule 5 */
		sp_flow_count(SP_STAT_NOT_FABRIC);
		return XDP_DROP;
	}
	packet_bytes = sp_flow_decode(xdp);
	if (packet_bytes < 0) {
		sp_flow_count(SP_STAT_MALFORMED);
		return XDP_DROP;
	}
	effect = sp_flow_take_effect();
	if (effect) {
		if (effect == -1)
			sp_flow_count(SP_STAT_UNKNOWN_OBJECT);
		return XDP_DROP;
	}
	verdict = sp_flow_release(xdp, &flow, packet_bytes);
	return verdict == -1 ? sp_flow_run_again(xdp, &flow) : verdict;
}

#define SP_FLOW_LINEARIZABLE_PART(name, id, flows, kb, vb, consistency, allocator)                                     \
	+(consistency == SP_FLOW_LINEARIZABLE)
#define SP_FLOW_ANY_LINEARIZABLE (0 SP_FLOW_OBJECTS(SP_FLOW_LINEARIZABLE_PART))

/* Every packet comes by here first. -1: an ordinary packet; else the XDP verdict. */
static __always_inline int sp_flow_receive(struct xdp_md *xdp)
{
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_flow_settings *settings;
	__u32 zero = 0;

	if (!SP_FLOW_ANY_LINEARIZABLE)
		return -1;
	if ((void *)(outer + 1) > (void *)(long)xdp->data_end || outer->protocol != 17 ||
	    outer->destination_port != bpf_htons(SP_FLOW_PORT) || outer->ethertype != bpf_htons(0x0800) ||
	    outer->version_ihl != 0x45)
		return -1;
	settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	if (!settings || !settings->protocol_address || outer->destination != settings->protocol_address)
		return -1;
	bpf_tail_call(xdp, &sp_programs, SP_PROGRAM_RECEIVE);
	return XDP_ABORTED;
}

#endif
