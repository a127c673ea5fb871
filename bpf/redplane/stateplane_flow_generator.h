/* stateplane_flow_generator.h: the packet generator: what re-sends updates and releases, and sends
 * heartbeats. Part of stateplane_flow.h. The agent runs it with live frames (BPF_PROG_RUN) while
 * sp_generator_work says that flows stand in the ring, and for heartbeats. */
#ifndef STATEPLANE_FLOW_GENERATOR_H
#define STATEPLANE_FLOW_GENERATOR_H

/* What a flow taken from the ring needs: SP_GENERATE_ bits. The message is put together in the
 * scratch. (RedPlane §5.2: only the state is re-sent, not the packet.) */
static __always_inline int sp_flow_generate(void *map, struct sp_flow_scratch *scratch,
					    __u32 key_bytes, __u32 value_bytes, __u64 now,
					    const struct sp_flow_settings *settings,
					    int consistency)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);
	int todo = SP_GENERATE_DONE, released, waiting;
	struct sp_session *session;
	struct sp_shard_head *head;
	__u32 shard, resends;
	__u64 head_since_ns;

	if (!entry)
		return SP_GENERATE_DONE;
	shard = entry->shard; /* that of a flow never changes, so it can be read without the lock */
	session = sp_get_session(shard);
	head = bpf_map_lookup_elem(&sp_shards, &shard);
	head_since_ns = head ? head->since_ns : 0;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes)) {
		released = entry->flags & SP_FLOW_RELEASED;
		waiting = released ? !(entry->flags & SP_FLOW_RELEASE_ACKED) : entry->seq > entry->acked_seq;
#ifdef SP_FLOW_HAS_COMMIT
		if (sp_commit_on && !released && entry->name)
			waiting = 0; /* its update is in a batch */
#endif
		if (waiting)
			todo = SP_GENERATE_KEEP;
		else
			entry->flags &= ~SP_FLOW_QUEUED;
		/* The first UPDATE of an asynchronous object is the generator's, too: no re-sending. */
		resends = entry->resends;
		if (!SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT) && resends)
			resends--;
		/* A newer one may have been sent on another CPU after `now` was read. */
		if (waiting && now > entry->sent_ns &&
		    (now - entry->sent_ns >= sp_resend_timeout(session, settings, resends) ||
		     entry->sent_ns < head_since_ns)) {
			todo |= SP_GENERATE_SEND;
			entry->resends++;
			sp_flow_tell_release(scratch, entry, key_bytes, value_bytes, now);
			if (!released) {
				scratch->type = SP_UPDATE;
				scratch->flags = entry->flags & SP_FLOW_PHASES;
			}
		}
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	scratch->key_bytes = key_bytes;
	return todo;
}

/* There was no room in the ring: the next sweep tries again. The entry stays released: a recall may
 * have answered so in between. */
static __always_inline void sp_flow_unqueue(void *map, const void *key, __u32 key_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, key);

	if (!entry)
		return;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, key, key_bytes)) {
		entry->flags &= ~SP_FLOW_QUEUED;
#ifndef SP_FLOW_GROUPED /* there an update of a batch is in no message: it may be half of a group */
		entry->name = 0; /* no batch has its newest update */
#endif
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
}

/* An asynchronous object's updates share messages where others' do. -1: not here. */
#if defined(SP_FLOW_HAS_COMMIT) && !defined(SP_FLOW_GROUPED) /* there a batch is one group */
#define SP_FLOW_GATHER(name, id, kb, vb, consistency) \
	(sp_commit_on && !SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT) ? \
		    sp_flow_gather(&name, scratch, id, kb, vb, now, settings) : \
		    -1)
#else
#define SP_FLOW_GATHER(name, id, kb, vb, consistency) -1
#endif

#define SP_FLOW_CASE_GENERATE(name, id, flows, kb, vb, consistency, allocator) \
	case id: \
		if (consistency == SP_FLOW_LOCAL) \
			break; \
		todo = SP_FLOW_GATHER(name, id, kb, vb, consistency); \
		if (todo == -1) \
			todo = sp_flow_generate(&name, scratch, kb, vb, now, settings, consistency); \
		if (todo & SP_GENERATE_KEEP && \
		    sp_flow_push((void *)scratch->entry, id, scratch->key, kb)) \
			sp_flow_unqueue(&name, scratch->key, \
					kb); /* a sweep finds it (stateplane_flow_sweep.h) */ \
		break;

/* Rule 5 of sessions: a shard that is due gets its heartbeat, if there is a session with it. */
static __always_inline int sp_flow_heartbeat(struct xdp_md *xdp, struct sp_flow_scratch *scratch,
					     __u32 shard)
{
	struct sp_session *session = sp_get_session(shard);

	if (!session || !session->number)
		return XDP_DROP;
	scratch->object_id = 0;
	scratch->type = SP_HEARTBEAT;
	scratch->flags = 0;
	scratch->port = SP_FLOW_DROP_PORT;
	scratch->seq = 0;
	scratch->epoch = 0;
	scratch->shard = shard;
	scratch->key_bytes = 0;
	scratch->value_bytes = 0;
	sp_flow_count(SP_STAT_HEARTBEATS);
	return sp_flow_send_by_tail_call(xdp, scratch, 0);
}

/* Each generated packet becomes a heartbeat that is due, or takes one flow from the ring and
 * becomes its message. Heartbeats go first: however many flows wait, the session goes on. -1:
 * nothing is due. */
static __always_inline int sp_flow_generated(struct xdp_md *xdp)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0, shard = 0, part;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	__u64 *work = bpf_map_lookup_elem(&sp_generator_work, &zero);
	struct sp_flow_pending *pending;
	int todo = SP_GENERATE_DONE;
	__u64 now;

	if (!scratch || !settings || !work)
		return XDP_ABORTED;
	if (!bpf_map_pop_elem(&sp_heartbeats_due, &shard))
		return sp_flow_heartbeat(xdp, scratch, shard);
#ifdef SP_FLOW_HAS_COMMIT
	/* By turns: streams are in their queue as long as they have anything. */
	if (sp_commit_on && sp_commit_takes_turn()) {
		int verdict = sp_flow_look_after(xdp, settings);

		if (verdict != -1)
			return verdict;
	}
#endif
	pending = (void *)scratch->entry;
	if (bpf_map_pop_elem(&sp_flow_ring, pending)) {
#ifdef SP_FLOW_HAS_COMMIT
		if (sp_commit_on)
			return sp_flow_look_after(xdp, settings);
#endif
		return -1;
	}
	__sync_fetch_and_add(work, -1);
	scratch->object_id = pending->object_id;
	part = pending->part;
	for (__u32 i = 0; i < SP_FLOW_KEY_ROOM / 8; i++)
		((__u64 *)scratch->key)[i] = ((__u64 *)pending->key)[i];
	now = sp_now_ns();
	switch (scratch->object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_GENERATE)
		SP_SNAPSHOT_OBJECTS(SP_SNAPSHOT_CASE_GENERATE)
	}
#ifdef SP_FLOW_HAS_COMMIT
	if (todo == SP_GENERATE_RECORDED &&
	    sp_commit_gather(sp_commit_index(sp_cpu(), scratch->shard), scratch->name,
		bpf_map_peek_elem(&sp_flow_ring, pending)))
		return sp_flow_send_batch(xdp);
#endif
	if (!(todo & SP_GENERATE_SEND))
		return XDP_DROP;
	sp_flow_count(scratch->type == SP_UPDATE ? SP_STAT_RESENT : SP_STAT_RELEASED);
	return sp_flow_send_by_tail_call(xdp, scratch, 0);
}

#endif
