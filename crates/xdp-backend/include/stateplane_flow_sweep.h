/* stateplane_flow_sweep.h: removing flows that this switch no longer needs. Part of stateplane_flow.h.
 *
 * The agent looks for candidates and gives each to this program as a frame; only here, under the entry's lock, can it be told whether the flow
 * is really idle and a packet on another CPU kept from using it. */
#ifndef STATEPLANE_FLOW_SWEEP_H
#define STATEPLANE_FLOW_SWEEP_H

/* What the agent sends, in host order. */
struct sp_flow_sweep_request {
	__u32 object_id;
	__u32 reserved;
	__u64 idle_before_ns; /* CLOCK_MONOTONIC: neither used nor leased since then */
	__u8 key[SP_FLOW_KEY_MAX];
};

/* Claims an idle entry: from then on no CPU gives it a lease or a value. Returns 1 if it may be deleted. */
static __always_inline int sp_flow_claim(void *map, const void *key, __u32 key_bytes, __u64 idle_before_ns, int consistency)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, key);
	int idle = 0;

	if (!entry)
		return 0;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, key, key_bytes)) {
		if (consistency == SP_FLOW_LOCAL)
			idle = entry->last_used_ns < idle_before_ns;
		else /* an update that is not acknowledged, or a place in the ring, keeps the entry */
			idle = entry->lease_end_ns < idle_before_ns && entry->seq == entry->acked_seq &&
			       !(entry->flags & SP_FLOW_QUEUED);
		if (idle) {
			entry->version++;
			sp_barrier();
			entry->flags |= SP_FLOW_DYING;
			entry->lease_end_ns = 0;
			sp_barrier();
			entry->version++;
		}
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	return idle;
}

#define SP_FLOW_CASE_SWEEP(name, id, flows, kb, vb, consistency, allocator)                                            \
	case id:                                                                                                       \
		if (sp_flow_claim(&name, key, kb, idle_before_ns, consistency)) {                             \
			bpf_map_delete_elem(&name, key);                                                      \
			return XDP_DROP;                                                                               \
		}                                                                                                      \
		break;

/* XDP_DROP: the flow is gone; XDP_PASS: it is in use, or was gone before. */
SEC("xdp.frags")
int sp_sweep(struct xdp_md *xdp)
{
	struct sp_flow_sweep_request *request = (void *)(long)xdp->data;
	/* Not in the scratch: before Linux 6.2 a packet may come in between while this runs. */
	__u64 key[SP_FLOW_KEY_MAX / 8];
	__u64 idle_before_ns;

	if ((void *)(request + 1) > (void *)(long)xdp->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(key, request->key, SP_FLOW_KEY_MAX);
	idle_before_ns = request->idle_before_ns;
	switch (request->object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_SWEEP)
	}
	return XDP_PASS;
}

#endif
