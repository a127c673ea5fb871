/* stateplane_flow_generator.h: the packet generator: what re-sends updates and renews leases. Part of stateplane_flow.h.
 * The agent runs it with live frames (BPF_PROG_RUN) while sp_generator_work says that flows stand in the ring. */
#ifndef STATEPLANE_FLOW_GENERATOR_H
#define STATEPLANE_FLOW_GENERATOR_H

enum { SP_GENERATE_DONE, SP_GENERATE_KEEP = 1, SP_GENERATE_SEND = 2 };

/* What a flow taken from the ring needs: bits of the enum above. The message is put together in the scratch. (RedPlane
 * §5.2: only the state is re-sent, not the packet.) */
static __always_inline int sp_flow_generate(void *map, struct sp_flow_scratch *scratch, __u32 object_id,
					    __u32 key_bytes, __u32 value_bytes, __u64 now, __u64 resend_timeout_ns)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);
	int todo = SP_GENERATE_DONE;
	__u32 type = 0, epoch = 0;
	__u64 seq = 0;

	if (!entry)
		return SP_GENERATE_DONE;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes)) {
		int unacknowledged = entry->seq > entry->acked_seq;

		epoch = entry->epoch;
		seq = entry->seq;
		if (unacknowledged)
			todo = SP_GENERATE_KEEP;
		if (unacknowledged && now - entry->last_used_ns >= resend_timeout_ns) {
			type = SP_UPDATE;
			sp_flow_copy(scratch->value, (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES + SP_ROUND8(key_bytes),
				     value_bytes);
			entry->last_used_ns = now;
		} else if ((entry->flags & SP_FLOW_RENEW) && now < entry->lease_end_ns) {
			type = SP_LEASE_RENEW;
		}
		entry->flags &= ~SP_FLOW_RENEW;
		if (!unacknowledged)
			entry->flags &= ~SP_FLOW_QUEUED;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (!type)
		return todo;
	scratch->object_id = object_id;
	scratch->type = type;
	scratch->flags = 0;
	scratch->port = SP_FLOW_DROP_PORT;
	scratch->seq = seq;
	scratch->epoch = epoch;
	scratch->key_bytes = key_bytes;
	scratch->value_bytes = type == SP_UPDATE ? value_bytes : 0;
	return todo | SP_GENERATE_SEND;
}

#define SP_FLOW_CASE_GENERATE(name, id, flows, kb, vb, consistency, allocator)                                         \
	case id:                                                                                                       \
		todo = sp_flow_generate(&name, scratch, id, kb, vb, now, settings->resend_timeout_ns);                 \
		if (todo & SP_GENERATE_KEEP)                                                                           \
			sp_flow_enqueue(scratch, id, scratch->key, kb);                                                \
		break;

/* Each generated packet takes one flow from the ring, and becomes its message. */
SEC("xdp.frags")
int sp_generator(struct xdp_md *xdp)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0, object_id;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	__u64 *work = bpf_map_lookup_elem(&sp_generator_work, &zero);
	struct sp_flow_pending *pending;
	int todo = SP_GENERATE_DONE;
	__u64 now;

	if (!scratch || !settings || !work)
		return XDP_ABORTED;
	pending = (void *)scratch->entry;
	if (bpf_map_pop_elem(&sp_flow_ring, pending))
		return XDP_DROP;
	__sync_fetch_and_add(work, -1);
	object_id = pending->object_id;
	for (__u32 i = 0; i < SP_FLOW_KEY_MAX / 8; i++)
		((__u64 *)scratch->key)[i] = ((__u64 *)pending->key)[i];
	now = sp_flow_coarse_clock();
	switch (object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_GENERATE)
	}
	if (!(todo & SP_GENERATE_SEND))
		return XDP_DROP;
	sp_flow_count(scratch->type == SP_UPDATE ? SP_STAT_RESENT : SP_STAT_RENEWALS);
	return sp_flow_send(xdp, 0);
}

#endif
