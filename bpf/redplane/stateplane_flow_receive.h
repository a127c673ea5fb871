/* stateplane_flow_receive.h: the state protocol's messages as the switch takes them. Part of
 * stateplane_flow.h. systems/redplane/docs/state-protocol.md has the format; nothing of a message
 * counts before its tag is found right. */
#ifndef STATEPLANE_FLOW_RECEIVE_H
#define STATEPLANE_FLOW_RECEIVE_H

/* ---- reading a message ---------------------------------------------------------------------- */

/* The type's bit in sets of replies (enum sp_flow_reply); 0: it is none. */
static __always_inline __u32 sp_flow_reply_bit(__u32 type)
{
	__u32 bit = type - SP_FLOW_FIRST_REPLY;

	return bit < 32 ? (1U << bit) & SP_FLOW_REPLIES : 0;
}

/* Reads the message's header into the scratch. Returns the length of the packet in it, or -1 if it
 * is malformed. */
static __always_inline int sp_flow_decode(
    struct xdp_md *xdp, struct sp_flow_scratch *scratch, const struct sp_flow_settings *settings)
{
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_flow_header *header = (void *)(outer + 1);
	__u32 key_bytes, value_bytes, packet_bytes, udp_length, reply;

	if ((void *)(header + 1) > (void *)(long)xdp->data_end)
		return -1;
	if (header->magic != bpf_htons(SP_FLOW_MAGIC) || header->version != SP_FLOW_VERSION ||
	    header->switch_id != bpf_htonl(settings->switch_id))
		return -1;
	reply = sp_flow_reply_bit(header->message_type);
	if (!reply)
		return -1;
	if (outer->fragment & bpf_htons(0x3fff)) /* what stands here may be the middle of anything */
		return -1;
	scratch->type = header->message_type;
	scratch->incarnation = bpf_ntohl(header->incarnation);
	scratch->object_id = bpf_ntohs(header->object_id);
	scratch->flags = bpf_ntohs(header->flags);
	scratch->epoch = bpf_ntohl(header->epoch);
	scratch->seq = bpf_be64_to_cpu(header->seq);
	scratch->port = bpf_ntohs(header->port);
	scratch->request_ns = bpf_be64_to_cpu(header->request_ns);
	scratch->lease_ns = (__u64)bpf_ntohl(header->lease_us) * 1000;
	scratch->session = bpf_ntohl(header->session);
	scratch->shard = bpf_ntohs(header->shard);
	key_bytes = bpf_ntohs(header->key_bytes);
	value_bytes = bpf_ntohs(header->value_bytes);
	packet_bytes = bpf_ntohs(header->packet_bytes);
	udp_length = bpf_ntohs(outer->udp_length);
	if (key_bytes > SP_FLOW_KEY_MAX || (key_bytes == 0) == !!(reply & SP_FLOW_WITH_KEY) ||
	    value_bytes > SP_FLOW_VALUE_MAX ||
	    (value_bytes == 0) == !!(reply & SP_FLOW_WITH_VALUE) ||
	    packet_bytes > SP_FLOW_PACKET_MAX || (packet_bytes && !(reply & SP_FLOW_WITH_PACKET)) ||
	    scratch->shard >= settings->shards)
		return -1;
	if (udp_length != 8 + SP_FLOW_HEADER_BYTES + key_bytes + value_bytes + packet_bytes ||
	    bpf_ntohs(outer->total_length) != 20 + udp_length ||
	    bpf_xdp_get_buff_len(xdp) < 34 + (__u64)udp_length)
		return -1;
	scratch->key_bytes = key_bytes;
	scratch->value_bytes = value_bytes;
	return packet_bytes;
}

/* Key and value into the scratch. */
static __always_inline int sp_flow_load_key(struct xdp_md *xdp, struct sp_flow_scratch *scratch)
{
	__u64 key_bytes = scratch->key_bytes, value_bytes = scratch->value_bytes;

	asm volatile("" : "+r"(key_bytes), "+r"(value_bytes));
	/* No object of the program has them so long. */
	if (key_bytes > SP_FLOW_KEY_ROOM || value_bytes > SP_FLOW_VALUE_ROOM)
		return -1;
	for (__u32 i = 0; i < SP_FLOW_KEY_ROOM / 8; i++)
		((__u64 *)scratch->key)[i] = 0;
	for (__u32 i = 0; i < SP_FLOW_VALUE_ROOM / 8; i++)
		((__u64 *)scratch->value)[i] = 0;
	if (key_bytes && bpf_xdp_load_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES,
			     scratch->key, key_bytes))
		return -1;
	if (value_bytes && bpf_xdp_load_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + key_bytes,
					      scratch->value, value_bytes))
		return -1;
	return 0;
}

/* Rule 8: is the message from who knows a secret of this fabric? */
static __always_inline int sp_flow_is_genuine(
    struct xdp_md *xdp, struct sp_flow_scratch *scratch, __u32 body_bytes)
{
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_flow_header *header = (void *)(outer + 1);
	__u32 zero = 0, key_id;
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	__u64 tag = 0, claimed;

	if (!secrets || (void *)(header + 1) > (void *)(long)xdp->data_end)
		return 0;
	key_id = header->key_id;
	claimed = bpf_be64_to_cpu(header->tag);
	scratch->tag = claimed;
	if (key_id >= SP_SECRETS || !(secrets->present >> key_id & 1))
		return 0;
	return !sp_tag(xdp, key_id, body_bytes, &tag) && tag == claimed;
}

/* "Replays": the name by which the switch knows a reply again. A reply with a packet is named by
 * what it echoes of its request. Reason: when a chain changes, the old tail and the new one may
 * both answer. Their addresses differ, and so do their tags, but the packet must go on once. Any
 * other reply is named by its tag. No two tags are the same: each covers the time of the request,
 * and a recall's covers the clock of the head. */
static __always_inline __u64 sp_flow_reply_name(
    const struct sp_flow_scratch *scratch, __u32 packet_bytes)
{
	__u64 name;

	if (!packet_bytes || scratch->type == SP_SNAPSHOT_STATE)
		return scratch->tag;
	name = sp_key_hash(scratch->key, scratch->key_bytes, 0) ^ scratch->request_ns ^
	       (__u64)scratch->object_id << 48 ^ (__u64)scratch->port << 32 ^ packet_bytes;
	/* Two updates of a flow may be sent at one time. All tails that answer one name its `seq`. */
	if (scratch->type == SP_UPDATE_ACK)
		name += scratch->seq * 0xBF58476D1CE4E5B9ull;
	name *= 0x9E3779B97F4A7C15ull; /* the low bits select the set */
	return name ^ name >> 32;
}

/* Was a reply of this name taken before? */
static __always_inline int sp_flow_is_replayed(__u64 name)
{
	__u32 index = name & (SP_SEEN_SETS - 1), next;
	struct sp_seen_set *set = bpf_map_lookup_elem(&sp_seen_replies, &index);
	int known = 0;

	if (!set)
		return 1;
	/* Of two copies on two CPUs one is the second. And a copy takes no place: who sends one
	 * again and again makes nothing else forgotten. */
	bpf_spin_lock(&set->lock);
#pragma unroll
	for (int i = 0; i < SP_SEEN_IN_SET; i++)
		known |= set->names[i] == name;
	next = set->next;
	if (!known && next < SP_SEEN_IN_SET) {
		set->names[next] = name;
		set->next = next + 1 == SP_SEEN_IN_SET ? 0 : next + 1;
	}
	bpf_spin_unlock(&set->lock);
	return known;
}

/* Reads a message and checks all that makes it one to be taken: the length of its packet, or -1
 * with scratch->fault. */
static __always_inline int sp_flow_read_message(
    struct xdp_md *xdp, struct sp_flow_scratch *scratch, const struct sp_flow_settings *settings)
{
	int packet_bytes = sp_flow_decode(xdp, scratch, settings);
	__u64 now;

	scratch->fault = SP_STAT_MALFORMED;
	if (packet_bytes < 0)
		return -1;
	scratch->fault = SP_STAT_BAD_TAG;
	if (!sp_flow_is_genuine(xdp, scratch, scratch->key_bytes + scratch->value_bytes + packet_bytes))
		return -1;
	scratch->fault = SP_STAT_OTHER_INCARNATION;
	if (scratch->incarnation != settings->incarnation)
		return -1; /* an earlier life's lease is not ours */
	/* "Replays". A recall carries the newest request_ns that the head has of this switch. */
	now = sp_now_ns();
	scratch->received_ns = now;
	scratch->fault = SP_STAT_MALFORMED;
	if (scratch->request_ns > now)
		return -1; /* nobody answers a request before it was sent */
	scratch->fault = SP_STAT_LATE;
	if (now - scratch->request_ns > SP_FLOW_LATE_NS)
		return -1;
	scratch->fault = SP_STAT_UNKNOWN_OBJECT;
	if (sp_flow_load_key(xdp, scratch))
		return -1;
	scratch->fault = SP_STAT_REPLAYED;
	if (sp_flow_is_replayed(sp_flow_reply_name(scratch, packet_bytes)))
		return -1;
	scratch->fault = SP_STAT_UNKNOWN_OBJECT;
	return sp_flow_known(scratch) ? packet_bytes : -1;
}

/* ---- the packet in it ----------------------------------------------------------------------- */

/* Leaves only the packet in the message: also cuts off what Ethernet padded. */
static __always_inline int sp_flow_strip(
    struct xdp_md *xdp, __u32 message_bytes, __u32 packet_bytes)
{
	int padding = (int)bpf_xdp_get_buff_len(xdp) - (int)(message_bytes + packet_bytes);

	if (padding > 0 && bpf_xdp_adjust_tail(xdp, -padding))
		return -1;
	return bpf_xdp_adjust_head(xdp, message_bytes);
}

/* What becomes of the packet in the message: -1 when it shall now run through the program, else the
 * XDP verdict. */
static __always_inline int sp_flow_let_go(struct xdp_md *xdp, struct sp_flow_context *flow,
    struct sp_flow_scratch *scratch, int packet_bytes)
{
	__u32 zero = 0;
	struct sp_flow_resume *resume = bpf_map_lookup_elem(&sp_flow_resume, &zero);
	__u8 *outer = (void *)(long)xdp->data;

	if (packet_bytes < 14 || scratch->type == SP_SNAPSHOT_STATE)
		return XDP_DROP; /* nothing to let go */
	if (!resume || outer + 6 > (__u8 *)(long)xdp->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(resume->host_mac, outer, 6);
	if (sp_flow_strip(xdp,
			  SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + scratch->key_bytes + scratch->value_bytes,
			  packet_bytes))
		return XDP_ABORTED;
	if (scratch->type == SP_UPDATE_ACK) {
#ifdef SP_GATEWAY_KERNEL_PORT
		if ((scratch->port & 0x1ff) == SP_KERNEL_PORT) {
			__u32 port = 0;

			sp_ingress_port(xdp, &port);
			return sp_send_by_kernel(xdp, port, bpf_xdp_get_buff_len(xdp));
		}
#endif
		if (sp_test_mode)
			return sp_test_verdict(1, scratch->port & 0x1ff, bpf_xdp_get_buff_len(xdp));
		return bpf_redirect_map(&sp_ports, scratch->port & 0x1ff, 0);
	}
	if (scratch->type == SP_ABSENT) {
		sp_flow_count(SP_STAT_ABSENT);
		flow->absent_object = scratch->object_id;
		for (__u32 i = 0; i < SP_FLOW_KEY_ROOM / 8; i++)
			((__u64 *)scratch->absent_key)[i] = ((__u64 *)scratch->key)[i];
	}
	flow->ingress_port = scratch->port & 0x1ff;
	flow->attempts = scratch->port >> 9;
	return -1;
}

/* Does the reply tell how long the way is? A store may keep a LEASE_REQUEST until another switch
 * released the flow, and a READ_COMMIT until the update is there. */
static __always_inline int sp_flow_is_answered_at_once(const struct sp_flow_scratch *scratch)
{
	return scratch->type == SP_HEARTBEAT_ACK || scratch->type == SP_RELEASE_ACK ||
	       scratch->type == SP_SNAPSHOT_ACK ||
	       (scratch->type == SP_UPDATE_ACK && !(scratch->port & SP_FLOW_PORT_READ));
}

/* Does the reply answer its request? The grant of a binding's reverse comes before the answer. */
static __always_inline int sp_flow_answers(const struct sp_flow_scratch *scratch)
{
	return scratch->type != SP_LEASE_GRANT || !(scratch->flags & SP_FLAG_REVERSE);
}

/* A message from the store, to this switch. Its packet, if the P4 program shall see it, goes on in
 * sp_again. */
SEC("xdp.frags")
int sp_receive(struct xdp_md *xdp)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	struct sp_flow_context flow = {};
	__u32 port = 0, zero = 0;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	struct sp_session *session;
	__u8 *fabric;
	int packet_bytes, effect, verdict;

	if (!scratch || !settings || !sp_ingress_port(xdp, &port))
		return XDP_ABORTED;
	fabric = bpf_map_lookup_elem(&sp_fabric_port, &port);
	if (!fabric || !*fabric) { /* rule 8 */
		sp_flow_count(SP_STAT_NOT_FABRIC);
		return XDP_DROP;
	}
#ifdef SP_FLOW_HAS_COMMIT
	if (sp_commit_on && sp_flow_is_batch_ack(xdp)) {
		bpf_tail_call(xdp, &sp_programs, SP_PROGRAM_BATCH_ACK);
		return XDP_ABORTED;
	}
#endif
	packet_bytes = sp_flow_read_message(xdp, scratch, settings);
	if (packet_bytes < 0) {
		sp_flow_count(scratch->fault);
		return XDP_DROP;
	}
	session = sp_get_session(scratch->shard);
	/* Every reply does; a recall is none. */
	if (session && scratch->type != SP_RECALL)
		sp_session_take(session, scratch->session, scratch->request_ns, scratch->lease_ns,
		    settings->lease_margin_ns, scratch->received_ns,
		    sp_flow_answers(scratch), sp_flow_is_answered_at_once(scratch));
	effect = sp_flow_take_effect(xdp, scratch, packet_bytes);
	if (effect == SP_EFFECT_ANSWER)
		return sp_flow_send_by_tail_call(xdp, scratch, 0);
	if (effect < 0)
		return XDP_DROP; /* no room for the flow: its packet could only ask again */
	verdict = sp_flow_let_go(xdp, &flow, scratch, packet_bytes);
	return verdict == -1 ? sp_flow_run_again(xdp, &flow) : verdict;
}

#define SP_FLOW_REMOTE_PART(name, id, flows, kb, vb, consistency, allocator)                       \
	+(consistency != SP_FLOW_LOCAL)
#define SP_SNAPSHOT_REMOTE_PART(                                                                   \
    name, id, instances, kb, slots, width, slot_bytes, period_us, epsilon_us, overdue)             \
	+(period_us != 0)
#define SP_FLOW_ANY_REMOTE                                                                         \
	(0 SP_FLOW_OBJECTS(SP_FLOW_REMOTE_PART) SP_SNAPSHOT_OBJECTS(SP_SNAPSHOT_REMOTE_PART))

/* A UDP packet with IPv4 options. Nobody of a fabric sends messages so: one that looks like a
 * message to this switch is an attempt. */
static __always_inline int sp_flow_with_options(
    struct xdp_md *xdp, const struct sp_flow_outer *outer)
{
	__u32 zero = 0, header_bytes = (outer->version_ihl & 15) * 4;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	__be32 destination = outer->destination;
	__be16 port;

	if (outer->version_ihl >> 4 != 4 || header_bytes < 20 || !settings ||
	    !settings->protocol_address || destination != settings->protocol_address ||
	    bpf_xdp_load_bytes(xdp,
		__builtin_offsetof(struct sp_flow_outer, version_ihl) + header_bytes + 2, &port,
		sizeof(port)) ||
	    port != bpf_htons(SP_FLOW_PORT))
		return -1;
	sp_flow_count(SP_STAT_MALFORMED);
	return XDP_DROP;
}

/* Every packet comes by here first. -1: an ordinary packet; else the XDP verdict. */
static __always_inline int sp_flow_receive(struct xdp_md *xdp)
{
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_flow_settings *settings;
	__u32 zero = 0;

	if (!SP_FLOW_ANY_REMOTE)
		return -1;
	if ((void *)(outer + 1) > (void *)(long)xdp->data_end || outer->protocol != 17 ||
	    outer->ethertype != bpf_htons(0x0800))
		return -1;
	if (outer->version_ihl != 0x45)
		return sp_flow_with_options(xdp, outer);
	if (outer->destination_port != bpf_htons(SP_FLOW_PORT))
		return -1;
	settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	if (!settings || !settings->protocol_address || outer->destination != settings->protocol_address)
		return -1;
	bpf_tail_call(xdp, &sp_programs, SP_PROGRAM_RECEIVE);
	return XDP_ABORTED;
}

#endif
