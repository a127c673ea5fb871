/* stateplane_flow_sweep.h: releasing and removing flows that this switch no longer needs. Part of
 * stateplane_flow.h.
 *
 * The agent looks for candidates and gives each to this program as a frame; only here, under the
 * entry's lock, can it be told whether the flow
 * is really idle and a packet on another CPU kept from using it. */
#ifndef STATEPLANE_FLOW_SWEEP_H
#define STATEPLANE_FLOW_SWEEP_H

enum { SP_SWEEP_NOTHING, SP_SWEEP_REMOVE, SP_SWEEP_RELEASE, SP_SWEEP_QUEUE };

/* Is an entry whose state lives in the store to be released (rule 7)? An update that is not
 * acknowledged keeps it. */
static __always_inline int sp_flow_is_done(const struct sp_flow_entry_head *entry,
    const struct sp_flow_sweep_request *request, int durable)
{
	__u64 before_ns = request->idle_before_ns;

	if (entry->flags & SP_FLOW_HALF_CLOSED)
		before_ns = request->half_closed_before_ns;
	if (entry->flags & SP_FLOW_CLOSED)
		before_ns = request->closed_before_ns;
	return entry->used_ns < before_ns && (entry->seq == entry->acked_seq || durable) &&
	       !(entry->flags & SP_FLOW_QUEUED);
}

/* What is to become of the entry; claims it: from then on no CPU uses it. */
static __always_inline int sp_flow_claim(
    void *map, const struct sp_flow_sweep_request *request, __u32 key_bytes, int consistency)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, request->key);
	int what = SP_SWEEP_NOTHING, durable = 0;
	__u64 name = 0;

	if (!entry)
		return SP_SWEEP_NOTHING;
#ifdef SP_FLOW_HAS_COMMIT
	name = entry->name;
	durable = name && sp_commit_is_durable(name, entry->shard);
#endif
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, request->key, key_bytes)) {
		if (consistency == SP_FLOW_LOCAL) {
			if (entry->used_ns < request->idle_before_ns)
				what = SP_SWEEP_REMOVE;
		} else if (entry->flags & SP_FLOW_RELEASED) {
			if (entry->flags & SP_FLOW_RELEASE_ACKED && !(entry->flags & SP_FLOW_QUEUED) &&
			    entry->sent_ns < request->released_before_ns)
				what = SP_SWEEP_REMOVE;
			else if (!(entry->flags & (SP_FLOW_RELEASE_ACKED | SP_FLOW_QUEUED)))
				what = SP_SWEEP_RELEASE; /* there was no room in the ring */
		} else if (!entry->epoch) { /* never granted */
			if (entry->used_ns < request->released_before_ns)
				what = SP_SWEEP_REMOVE;
		} else if (sp_flow_is_done(entry, request, durable && entry->name == name)) {
			what = SP_SWEEP_RELEASE;
		} else if (entry->seq > entry->acked_seq && !entry->name &&
			   !(entry->flags & SP_FLOW_QUEUED)) {
			what = SP_SWEEP_QUEUE; /* an update for which there was no room */
		}
		if (what != SP_SWEEP_NOTHING) {
			entry->version++;
			sp_barrier();
			entry->flags |= what == SP_SWEEP_REMOVE ? SP_FLOW_DYING :
					what == SP_SWEEP_QUEUE	? SP_FLOW_QUEUED :
								  SP_FLOW_RELEASED | SP_FLOW_QUEUED;
			sp_barrier();
			entry->version++;
		}
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	return what;
}

#define SP_FLOW_CASE_SWEEP(name, id, flows, kb, vb, consistency, allocator)                        \
	case id:                                                                                   \
		what = sp_flow_claim(&name, request, kb, consistency);                     \
		if (what == SP_SWEEP_REMOVE)                                                       \
			bpf_map_delete_elem(&name, request->key);                          \
		else if (what != SP_SWEEP_NOTHING && sp_flow_push(&pending, id, request->key, kb)) \
			sp_flow_unqueue(&name, request->key, kb);                          \
		break;

#define SP_SNAPSHOT_CASE_SWEEP(                                                                    \
    name, id, instances, kb, slots, width, slot_bytes, period_us, epsilon_us, overdue)             \
	SP_FLOW_CASE_SWEEP(                                                                        \
	    name, id, instances, kb, 0, (period_us ? SP_FLOW_LINEARIZABLE : SP_FLOW_LOCAL), 0)

/* XDP_DROP: the flow is gone; XDP_TX: its release is on its way; XDP_PASS: it is in use, or was
 * gone before. */
SEC("xdp.frags")
int sp_sweep(struct xdp_md *xdp)
{
	/* It stays in the frame, as it may be too long for the stack. */
	struct sp_flow_sweep_request *request = (void *)(long)xdp->data;
	/* Not in the scratch: before Linux 6.2 a packet may come in between while this runs. */
	struct sp_flow_pending pending;
	int what = SP_SWEEP_NOTHING;

	if ((void *)(request + 1) > (void *)(long)xdp->data_end)
		return XDP_ABORTED;
	switch (request->object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_SWEEP)
		SP_SNAPSHOT_OBJECTS(SP_SNAPSHOT_CASE_SWEEP)
	}
	return what == SP_SWEEP_REMOVE ? XDP_DROP : what == SP_SWEEP_RELEASE ? XDP_TX : XDP_PASS;
}

#endif
