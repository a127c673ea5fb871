/* stateplane_flow_apply.h: what a message does to its flow's entry. Part of stateplane_flow.h.
 * systems/redplane/docs/state-protocol.md has the rules. The message stands in the scratch, and its
 * tag was found right. */
#ifndef STATEPLANE_FLOW_APPLY_H
#define STATEPLANE_FLOW_APPLY_H

/* Rule 3. The grant's key, value, seq, epoch and session stand in the scratch. Returns one of
 * SP_EFFECT_. */
static __always_inline int sp_flow_install(
    void *map, struct sp_flow_scratch *scratch, __u32 key_bytes, __u32 value_bytes, __u64 now)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);
	int ignored = 1;
	void *entry_key;

	if (!entry) {
		/* First one that was never granted: what comes in between (a recall) then finds it.
		 * If another CPU is faster, it is as good. */
		bpf_map_update_elem(map, scratch->key,
				    sp_flow_new_entry(scratch, scratch->key, key_bytes, scratch->value, value_bytes),
				    BPF_NOEXIST);
		entry = bpf_map_lookup_elem(map, scratch->key);
		if (!entry) {
			sp_flow_count(SP_STAT_FLOWS_FULL);
			return SP_EFFECT_NO_ROOM;
		}
	}
	if (sp_flow_is_disowned(scratch, key_bytes)) {
		/* That RELEASE is under way, or was lost: it leaves again. */
		sp_flow_count(SP_STAT_IGNORED_GRANTS);
		if (!sp_flow_disown(scratch, key_bytes, 0, now))
			return SP_EFFECT_NO_ROOM;
		sp_flow_tell_unheld(scratch);
		return SP_EFFECT_ANSWER;
	}
	entry_key = (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal(entry_key, scratch->key, key_bytes) && !(entry->flags & SP_FLOW_DYING) &&
	    scratch->epoch) {
		if (scratch->epoch > entry->epoch) {
			entry->version++;
			sp_barrier();
			entry->epoch = scratch->epoch;
			entry->seq = scratch->seq;
			entry->acked_seq = scratch->seq;
			entry->name = 0;
			entry->session = scratch->session;
			entry->shard = scratch->shard;
			entry->used_ns = now;
			/* A new grant: neither released nor closed. */
			entry->flags = (entry->flags & SP_FLOW_QUEUED) |
				       (scratch->flags & SP_FLOW_HALF_OPEN);
			entry->resends = 0;
			if (SP_FLOW_IS_GROUPED(scratch->object_id))
				entry->sent_ns = now; /* since when it is kept */
			sp_flow_copy(entry_key + SP_ROUND8(key_bytes), scratch->value, value_bytes);
			sp_barrier();
			entry->version++;
			ignored = 0;
		} else if (scratch->epoch == entry->epoch && !(entry->flags & SP_FLOW_RELEASED)) {
			/* Same grant: what stands here is the newest. The head that gives it again
			 * recalls nothing. */
			entry->flags &= ~SP_FLOW_RECALLED;
			if (scratch->session > entry->session) {
				entry->version++;
				sp_barrier();
				entry->session = scratch->session;
				entry->shard = scratch->shard;
				sp_barrier();
				entry->version++;
			}
			ignored = 0;
		} else if (scratch->epoch == entry->epoch && !(entry->flags & SP_FLOW_RELEASE_ACKED)) {
			/* the store does not know of the release: it leaves again, as soon as the generator runs */
			entry->sent_ns = 0;
		}
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	sp_flow_count(ignored ? SP_STAT_IGNORED_GRANTS : SP_STAT_GRANTS);
	return SP_EFFECT_DONE;
}

/* An acknowledgement covers every update up to its seq, and says that the flow is owned in its
 * session. */
static __always_inline void sp_flow_acknowledge(
    void *map, struct sp_flow_scratch *scratch, __u32 key_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);

	if (!entry)
		return;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    scratch->epoch == entry->epoch) {
		entry->version++;
		sp_barrier();
		if (scratch->seq > entry->acked_seq && scratch->seq <= entry->seq) {
			entry->acked_seq = scratch->seq;
			entry->resends = 0;
		}
		if (scratch->session > entry->session && !(entry->flags & SP_FLOW_RELEASED)) {
			entry->session = scratch->session;
			entry->shard = scratch->shard;
		}
		sp_barrier();
		entry->version++;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
}

/* The store knows that the flow is released under the entry's epoch; or (REFUSED) that epoch is not
 * the current grant, or this switch not the owner, so it never will be this switch's again. Nothing
 * is to be sent any more, and the entry may go, once no late grant can come. */
static __always_inline void sp_flow_forget(
    void *map, struct sp_flow_scratch *scratch, __u32 key_bytes, __u64 now)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);

	if (!entry)
		return;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    scratch->epoch == entry->epoch &&
	    (entry->flags & SP_FLOW_RELEASED || scratch->type == SP_REFUSED)) {
		entry->version++;
		sp_barrier();
		if (scratch->type == SP_REFUSED)
			entry->flags |= SP_FLOW_UNKNOWN;
		entry->sent_ns = now; /* the two seconds count from here */
		entry->flags |= SP_FLOW_RELEASED | SP_FLOW_RELEASE_ACKED;
		entry->acked_seq = entry->seq;
		sp_barrier();
		entry->version++;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
}

#ifdef SP_FLOW_GROUPED
/* An update of the flow was not sent, as it may follow from what was refused. The head, which does
 * not know, hears that this switch does not have the flow. */
static __always_inline void sp_flow_disclaim(
    void *map, struct sp_flow_scratch *scratch, __u32 key_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);
	int queue = 0;

	if (!entry)
		return;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    scratch->epoch == entry->epoch && !(entry->flags & SP_FLOW_RELEASED)) {
		entry->version++;
		sp_barrier();
		queue = !(entry->flags & SP_FLOW_QUEUED);
		entry->flags |= SP_FLOW_RELEASED | SP_FLOW_UNKNOWN | SP_FLOW_QUEUED;
		entry->acked_seq = entry->seq;
		entry->sent_ns = 0;
		sp_barrier();
		entry->version++;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (queue)
		sp_flow_enqueue(scratch, entry, scratch->object_id, scratch->key, key_bytes);
}
#endif

/* Puts a released entry's RELEASE together in the scratch; under the entry's lock. */
static __always_inline void sp_flow_tell_release(struct sp_flow_scratch *scratch,
    struct sp_flow_entry_head *entry, __u32 key_bytes, __u32 value_bytes, __u64 now)
{
	__u64 idle_ns = now > entry->used_ns ? now - entry->used_ns : 0;

	scratch->type = SP_RELEASE;
	scratch->flags = entry->flags & (SP_FLOW_PHASES | SP_FLOW_UNKNOWN);
	scratch->port = SP_FLOW_DROP_PORT;
	scratch->epoch = entry->epoch;
	scratch->seq = entry->seq;
	scratch->idle_ms = idle_ns >> 52 ? 0xffffffffu : idle_ns / 1000000;
	scratch->value_bytes = entry->flags & SP_FLOW_UNKNOWN ? 0 : value_bytes;
	if (scratch->value_bytes)
		sp_flow_copy(scratch->value,
		    (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES + SP_ROUND8(key_bytes), value_bytes);
	entry->sent_ns = now;
}

#ifdef SP_FLOW_GROUPED
/* How long after its grant a flow stays here, if no packet has set it: until the others of its
 * group are here. Those of earlier objects stay longer, those of the last one do not: groups.md,
 * decision 7. */
static __always_inline __u64 sp_flow_kept_ns(__u32 object_id)
{
	__u32 id = object_id & 63;
	__u32 before = __builtin_popcountll(SP_FLOW_GROUPED & ((1ull << id) - 1));

	return SP_FLOW_GROUPED >> id >> 1 ? SP_FLOW_KEPT_NS >> before : 0;
}
#endif

/* Rule 6. Returns 1 when the answer stands in the scratch, 0 when there is nothing to say. */
static __always_inline int sp_flow_recall(
    void *map, struct sp_flow_scratch *scratch, __u32 key_bytes, __u32 value_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);
	__u64 now = sp_now_ns();
	int answer = 0, queue = 0, kept = 0;
#ifdef SP_FLOW_GROUPED
	__u64 name = 0, kept_ns = sp_flow_kept_ns(scratch->object_id);
	int settled = 1;
#endif

	if (!entry) {
		/* The grant is lost or late. Who has said that it released an epoch must never take
		 * it again, however late grant and RELEASE are: so the epoch is remembered, as of
		 * an entry that was never granted before, or beside the entries: where there is no
		 * room for one, and of a flow that nobody waits for. Without room there, too, there
		 * is no answer: a recall costs the session (Sessions 6), a probe comes again. */
		int beside = scratch->flags & SP_FLAG_PROBE && sp_flow_disown(scratch, key_bytes, 1, now);

		sp_flow_count(SP_STAT_RECALLED_UNKNOWN);
		if (!beside)
			bpf_map_update_elem(map, scratch->key,
					    sp_flow_new_entry(scratch, scratch->key, key_bytes, scratch->value, value_bytes),
					    BPF_NOEXIST);
		entry = bpf_map_lookup_elem(map, scratch->key);
		if (!entry && !beside) {
			beside = sp_flow_disown(scratch, key_bytes, 0, now);
			/* Another CPU that looked there before has made its entry by now. */
			entry = bpf_map_lookup_elem(map, scratch->key);
		}
		if (!entry && !beside)
			sp_flow_count(SP_STAT_FLOWS_FULL);
		if (!entry) {
			sp_flow_tell_unheld(scratch);
			return beside;
		}
	}
#ifdef SP_FLOW_GROUPED
	/* The release must not overtake the rest of a group: groups.md, decision 5. */
	if (SP_FLOW_IS_GROUPED(scratch->object_id)) {
		name = *(volatile __u64 *)&entry->name;
		settled = !name || sp_commit_is_durable(name, entry->shard);
	}
#endif
	bpf_spin_lock((struct bpf_spin_lock *)entry);
#ifdef SP_FLOW_GROUPED
	if (!(scratch->flags & SP_FLAG_PROBE) && scratch->epoch == entry->epoch &&
	    SP_FLOW_IS_GROUPED(scratch->object_id) &&
	    sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    !(entry->flags & (SP_FLOW_DYING | SP_FLOW_RELEASED))) {
		if (entry->seq > entry->acked_seq && !(settled && entry->name == name)) {
			entry->version++;
			sp_barrier();
			entry->flags |= SP_FLOW_RECALLED;
			sp_barrier();
			entry->version++;
			answer = -1;
		} else if (now < entry->sent_ns + kept_ns) {
			answer = -1;
		}
	}
	if (answer) {
		bpf_spin_unlock((struct bpf_spin_lock *)entry);
		return 0; /* the head asks again */
	}
#endif
	if (scratch->flags & SP_FLAG_PROBE && scratch->epoch == entry->epoch &&
	    sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    !(entry->flags & (SP_FLOW_DYING | SP_FLOW_RELEASED))) {
		kept = 1;
		scratch->seq = entry->acked_seq;
	} else if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
		   !(entry->flags & SP_FLOW_DYING) && scratch->epoch >= entry->epoch) {
		entry->version++;
		sp_barrier();
		if (scratch->epoch > entry->epoch) { /* the grant is lost or late: it is ignored when it comes */
			entry->epoch = scratch->epoch;
			entry->shard = scratch->shard;
			entry->acked_seq = entry->seq;
			entry->flags = (entry->flags & SP_FLOW_QUEUED) | SP_FLOW_UNKNOWN;
		}
		entry->flags |= SP_FLOW_RELEASED; /* from here on it is not this switch's */
		queue = !(entry->flags & (SP_FLOW_QUEUED | SP_FLOW_RELEASE_ACKED));
		if (queue)
			entry->flags |= SP_FLOW_QUEUED;
		sp_flow_tell_release(scratch, entry, key_bytes, value_bytes, now);
		sp_barrier();
		entry->version++;
		answer = 1;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (kept) { /* "I have it", in the words for that: the answer says no more than the grant did */
		scratch->type = SP_READ_COMMIT;
		scratch->flags = 0;
		scratch->port = SP_FLOW_DROP_PORT | SP_FLOW_PORT_READ;
		scratch->value_bytes = 0;
		return 1;
	}
	if (queue)
		sp_flow_enqueue(scratch, entry, scratch->object_id, scratch->key, key_bytes);
	sp_flow_count(SP_STAT_RECALLED);
	return answer;
}

static __always_inline int sp_flow_apply(
    void *map, struct sp_flow_scratch *scratch, __u32 key_bytes, __u32 value_bytes, __u64 now)
{
	switch (scratch->type) {
	case SP_LEASE_GRANT:
		return sp_flow_install(map, scratch, key_bytes, value_bytes, now);
	case SP_UPDATE_ACK:
		sp_flow_count(SP_STAT_ACKS);
		sp_flow_acknowledge(map, scratch, key_bytes);
		return SP_EFFECT_DONE;
	case SP_REFUSED:
		sp_flow_count(SP_STAT_REFUSED);
		sp_flow_forget(map, scratch, key_bytes, now);
		return SP_EFFECT_DONE;
	case SP_RELEASE_ACK:
		sp_flow_count(SP_STAT_RELEASE_ACKS);
		sp_flow_forget(map, scratch, key_bytes, now);
		return SP_EFFECT_DONE;
	case SP_RECALL:
		return sp_flow_recall(map, scratch, key_bytes, value_bytes);
	}
	return SP_EFFECT_DONE;
}

/* Only the sizes that the object has are taken. */
#define SP_FLOW_CASE_SIZES(name, id, flows, kb, vb, consistency, allocator)                        \
	case id:                                                                                   \
		known = consistency != SP_FLOW_LOCAL && scratch->key_bytes == kb &&                \
			scratch->type < SP_SNAPSHOT_ACK &&                                         \
			scratch->value_bytes == (scratch->type == SP_LEASE_GRANT ? vb : 0);        \
		break;
#define SP_FLOW_CASE_APPLY(name, id, flows, kb, vb, consistency, allocator)                        \
	case id:                                                                                   \
		if (consistency != SP_FLOW_LOCAL)                                                  \
			effect = sp_flow_apply(&name, scratch, kb, vb, now);                       \
		break;

/* Does the message in the scratch name an object, with its sizes? A heartbeat's answer names none.
 */
static __always_inline int sp_flow_known(const struct sp_flow_scratch *scratch)
{
	int known = 0;

	switch (scratch->object_id) {
	case 0:
		known = scratch->type == SP_HEARTBEAT_ACK;
		break;
		SP_FLOW_OBJECTS(SP_FLOW_CASE_SIZES)
		SP_SNAPSHOT_OBJECTS(SP_SNAPSHOT_CASE_SIZES)
	}
	return known;
}

/* Lets the message in the scratch take its effect on its flow's entry: one of the enum above. */
static __always_inline int sp_flow_take_effect(
    struct xdp_md *xdp, struct sp_flow_scratch *scratch, int packet_bytes)
{
	int effect = SP_EFFECT_DONE;
	__u64 now = sp_now_ns();

	switch (scratch->object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_APPLY)
		SP_SNAPSHOT_OBJECTS(SP_SNAPSHOT_CASE_APPLY)
	}
	return effect;
}

#endif
