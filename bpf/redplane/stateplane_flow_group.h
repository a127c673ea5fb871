/* stateplane_flow_group.h: packets that set flows of several LINEARIZABLE objects. All of it takes
 * effect, or nothing (systems/redplane/docs/groups.md; "decision N" below means its decisions).
 * Part of stateplane_flow.h; instead of stateplane_flow_staged.h.
 *
 * The compiler defines SP_FLOW_GROUPED for such programs: a bit for each LINEARIZABLE object that
 * is set. All sets go to the scratch, where the packet's look-ups find them. At the packet's end,
 * while the frame is as it came in, they become records of one batch. */
#ifndef STATEPLANE_FLOW_GROUP_H
#define STATEPLANE_FLOW_GROUP_H

/* What the flow of a first object is kept after its grant, for the others to come. Half of a lease
 * is the head's patience. */
#define SP_FLOW_KEPT_NS 16000000ull

/* The same objects, by position. */
#define SP_FLOW_GROUPED_PART(name, id, flows, kb, vb, consistency, allocator)                      \
	| (__u32)(SP_FLOW_GROUPED >> (id) & 1) << SP_FLOW_AT_##name
#define SP_FLOW_GROUPED_AT (0 SP_FLOW_OBJECTS(SP_FLOW_GROUPED_PART))

/* Has this packet set the key? Then the value that it has set. */
static __always_inline int sp_flow_get_staged(const struct sp_flow_context *flow, __u32 object_id,
    const __u8 *key, __u32 key_bytes, __u8 *value, __u32 value_bytes)
{
	__u32 at = sp_flow_at(object_id);
	struct sp_flow_scratch *scratch;

	if (!(flow->staged >> at & 1))
		return 0;
	scratch = sp_flow_get_scratch();
	if (!scratch || !sp_flow_equal(scratch->staged[at].key, key, key_bytes))
		return 0;
	sp_flow_copy(value, scratch->staged[at].value, value_bytes);
	return 1;
}

/* `set`: nothing changes but the scratch. */
static __always_inline void sp_flow_stage(struct sp_flow_context *flow, __u32 object_id,
    const __u8 *key, __u32 key_bytes, const __u8 *value, __u32 value_bytes)
{
	__u32 at = sp_flow_at(object_id), others = flow->staged & ~(1u << at);
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	struct sp_flow_staged *staged;

	if (flow->kind == SP_FLOW_PARK || !scratch)
		return;
	staged = &scratch->staged[at];
	/* What does not wait is not set beside others. */
	if (others && ((others | 1u << at) & ~SP_FLOW_GROUPED_AT)) {
		sp_flow_conflict(flow);
		return;
	}
	if (!(flow->staged >> at & 1)) {
		flow->staged |= 1u << at;
		staged->read = flow->read[at];
		sp_flow_copy(staged->key, key, key_bytes);
	} else if (!sp_flow_equal(staged->key, key, key_bytes)) {
		sp_flow_conflict(flow);
		return;
	}
	sp_flow_copy(staged->value, value, value_bytes);
}

/* What a group needs before anything changes. */
struct sp_flow_group {
	struct sp_commit_place place;
	struct sp_session *session;
	__u64 picks; /* of the key whose shard it is */
	__u64 now;
	__u64 unplaced; /* name of an update that is in no batch yet; without its seq */
	__u32 shard;
	__u32 members; /* looked at */
	__u32 records; /* that the open batch does not have yet */
	__u32 words; /* of those */
	__u32 all_words;
	__u32 written; /* by position */
};

/* One flow of the group. 0: it may be set, as far as can be seen without its lock. Else the packet
 * is parked. */
static __always_inline int sp_flow_group_look(struct sp_flow_context *flow,
    struct sp_flow_group *group, struct sp_flow_staged *staged, void *map, __u32 object_id,
    __u32 key_bytes, __u32 value_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, staged->key);
	__u32 words = SP_FLOW_RECORD_WORDS(key_bytes, value_bytes);
	__u64 seen_entry = (__u64)staged->read.entry;
	__u64 picks = sp_key_picks(object_id, staged->key, key_bytes);

	/* Compared as numbers, as in sp_flow_set. */
	asm volatile("" : "+r"(seen_entry));
	if (!entry) {
		flow->park = SP_PARK_RUN_AGAIN;
		flow->kind = SP_FLOW_PARK;
		return -1;
	}
	if (seen_entry != (__u64)entry ||
	    (group->members && (entry->shard != group->shard || picks != group->picks))) {
		sp_flow_conflict(flow); /* decision 1 */
		return -1;
	}
	group->picks = picks;
	group->shard = entry->shard;
	group->members++;
	staged->before = *(volatile __u64 *)&entry->name;
	if (sp_commit_find(&group->place, group->shard, staged->before)) {
		flow->park = SP_PARK_DROP;
		flow->kind = SP_FLOW_PARK;
		return -1;
	}
	group->all_words += words;
	if (!group->place.again) {
		group->words += words;
		group->records++;
	}
	return 0;
}

/* Is there room for all records, and a slot for the packet? It stays, as only this CPU fills them;
 * and if the open batch leaves, the next one is empty. */
static __always_inline int sp_flow_group_fits(const struct sp_flow_group *group)
{
	const struct sp_commit_place *place = &group->place;

	if (*(volatile __u16 *)&place->stream->open_records + group->records > SP_COMMIT_RECORDS ||
	    *(volatile __u16 *)&place->stream->open_words + group->words > sp_commit_words_max ||
	    group->all_words > sp_commit_words_max ||
	    *(volatile __u32 *)&place->stream->open.count >= SP_COMMIT_BATCH_SLOTS) {
		sp_commit_count(SP_COMMIT_BATCH_FULL, 1);
		return 0;
	}
	if (!sp_commit_has_slot(place->lot, place->stream)) {
		sp_commit_count(SP_COMMIT_LOT_FULL, 1);
		return 0;
	}
	return 1;
}

/* Writes one entry; 0: what get saw is no longer so. */
static __always_inline int sp_flow_group_write(const struct sp_flow_group *group,
    struct sp_flow_staged *staged, void *map, __u32 key_bytes, __u32 value_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, staged->key);
	struct sp_session *session = group->session;
	void *entry_key, *entry_value;
	int written = 0;

	if (!entry || !session)
		return 0;
	entry_key = (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES;
	entry_value = entry_key + SP_ROUND8(key_bytes);
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal(entry_key, staged->key, key_bytes) && entry->seq == staged->read.seq &&
	    entry->epoch == staged->read.epoch && entry->name == staged->before &&
	    !(entry->flags & (SP_FLOW_DYING | SP_FLOW_RELEASED | SP_FLOW_RECALLED)) &&
	    sp_session_lives_exactly(session, entry->session, group->now)) {
		entry->version++;
		sp_barrier();
		sp_flow_copy(staged->old, entry_value, value_bytes);
		sp_flow_copy(entry_value, staged->value, value_bytes);
		staged->phases = entry->flags & SP_FLOW_PHASES;
		staged->seq = ++entry->seq;
		entry->sent_ns = 0; /* it is kept no longer */
		entry->name = group->unplaced | (staged->seq & SP_COMMIT_NUMBER);
		sp_barrier();
		entry->version++;
		written = 1;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	return written;
}

/* The group does not take effect: an entry gets back what it had. (No other CPU's packet goes on
 * with an update that is in no batch: decision 4.) */
static __always_inline void sp_flow_group_undo(const struct sp_flow_group *group,
    struct sp_flow_staged *staged, void *map, __u32 key_bytes, __u32 value_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, staged->key);
	void *entry_key;

	if (!entry)
		return;
	entry_key = (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal(entry_key, staged->key, key_bytes) && entry->seq == staged->seq &&
	    entry->epoch == staged->read.epoch && !(entry->flags & SP_FLOW_RELEASED)) {
		entry->version++;
		sp_barrier();
		sp_flow_copy(entry_key + SP_ROUND8(key_bytes), staged->old, value_bytes);
		entry->seq--;
		entry->name = staged->before;
		sp_barrier();
		entry->version++;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
}

/* The update has its place in a batch, unless another one has been made since. */
static __always_inline void sp_flow_group_name(
    const struct sp_flow_group *group, const struct sp_flow_staged *staged, void *map)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, staged->key);

	if (entry)
		__sync_val_compare_and_swap(&entry->name,
		    group->unplaced | (staged->seq & SP_COMMIT_NUMBER), staged->name);
}

#define SP_FLOW_IS_MEMBER(name, id)                                                                \
	(SP_FLOW_GROUPED >> (id) & 1 && members >> SP_FLOW_AT_##name & 1)
#define SP_FLOW_GROUP_LOOK(name, id, flows, kb, vb, consistency, allocator)                        \
	if (SP_FLOW_IS_MEMBER(name, id) &&                                                         \
	    sp_flow_group_look(                                                                    \
		flow, &group, &scratch->staged[SP_FLOW_AT_##name], &name, id, kb, vb))             \
		return;
#define SP_FLOW_GROUP_WRITE(name, id, flows, kb, vb, consistency, allocator)                       \
	if (!failed && SP_FLOW_IS_MEMBER(name, id)) {                                              \
		if (sp_flow_group_write(&group, &scratch->staged[SP_FLOW_AT_##name], &name, kb, vb)) \
			group.written |= 1u << SP_FLOW_AT_##name;                                  \
		else                                                                               \
			failed = 1;                                                                \
	}
/* Under the stream's lock. */
#define SP_FLOW_GROUP_RECORD(name_, id, flows, kb, vb, consistency, allocator)                     \
	if (!failed && SP_FLOW_IS_MEMBER(name_, id)) {                                             \
		struct sp_flow_staged *staged = &scratch->staged[SP_FLOW_AT_##name_];              \
												   \
		staged->name = sp_flow_put_record(&group.place, staged->before, id, staged->key,   \
		    kb, staged->value, vb, staged->read.epoch, staged->seq, staged->phases);       \
	}
#define SP_FLOW_GROUP_UNDO(name, id, flows, kb, vb, consistency, allocator)                        \
	if (SP_FLOW_GROUPED >> (id) & 1 && group.written >> SP_FLOW_AT_##name & 1)                 \
		sp_flow_group_undo(&group, &scratch->staged[SP_FLOW_AT_##name], &name, kb, vb);
/* The packet waits for one of the records: they are refused all or none. */
#define SP_FLOW_GROUP_FINISH(name_, id, flows, kb, vb, consistency, allocator)                     \
	if (SP_FLOW_IS_MEMBER(name_, id)) {                                                        \
		struct sp_flow_staged *staged = &scratch->staged[SP_FLOW_AT_##name_];              \
												   \
		sp_flow_group_name(&group, staged, &name_);                                        \
		sp_flow_remember(scratch, id, SP_UPDATE, staged->phases, staged->key, kb,          \
		    staged->seq, staged->read.epoch);                                              \
		scratch->name = staged->name;                                                      \
	}

static __always_inline void sp_flow_set_group(
    struct sp_flow_context *flow, struct sp_flow_scratch *scratch, __u32 members)
{
	struct sp_flow_group group = {};
	int failed = 0;

	if (!sp_commit_on) { /* decision 2: the agent starts no such program */
		sp_flow_conflict(flow);
		return;
	}
	SP_FLOW_OBJECTS(SP_FLOW_GROUP_LOOK)
	if (!group.place.stream || !group.place.even || !group.place.odd)
		return;
	if (flow->kind == SP_FLOW_COMMIT && !sp_flow_depends_alike(scratch, group.shard) &&
	    !SP_FLOW_ONLY_LINES_UP(scratch->name)) {
		sp_flow_conflict(flow);
		return;
	}
	if (!sp_flow_group_fits(&group)) {
		flow->park = SP_PARK_DROP;
		flow->kind = SP_FLOW_PARK;
		return;
	}
	group.now = sp_now_ns();
	group.session = sp_get_session(group.shard);
	group.unplaced = sp_commit_name(group.place.cpu, SP_COMMIT_UNPLACED, 0);
	SP_FLOW_OBJECTS(SP_FLOW_GROUP_WRITE)
	if (!failed) {
		bpf_spin_lock(&group.place.stream->lock);
		/* Decision 6: the packet has read what was refused since. */
		failed = flow->oldest && group.place.stream->refused >= flow->oldest;
		SP_FLOW_OBJECTS(SP_FLOW_GROUP_RECORD)
		sp_commit_end(&group.place);
	}
	if (failed) {
		SP_FLOW_OBJECTS(SP_FLOW_GROUP_UNDO)
		sp_flow_count(SP_STAT_CONFLICTS);
		flow->park = SP_PARK_RUN_AGAIN;
		flow->kind = SP_FLOW_PARK;
		return;
	}
	SP_FLOW_OBJECTS(SP_FLOW_GROUP_FINISH)
	scratch->shard = group.shard;
	flow->kind = SP_FLOW_COMMIT;
}

#define SP_FLOW_CASE_ALONE(name, id, flows, kb, vb, consistency, allocator)                        \
	if (!(SP_FLOW_GROUPED >> (id) & 1) && SP_FLOW_STAGED >> (id) & 1 &&                        \
	    staged >> SP_FLOW_AT_##name & 1) {                                                     \
		flow->read[SP_FLOW_AT_##name] = scratch->staged[SP_FLOW_AT_##name].read;           \
		sp_flow_set(flow, &name, id, scratch->staged[SP_FLOW_AT_##name].key, kb,           \
		    scratch->staged[SP_FLOW_AT_##name].value, vb, consistency);                    \
	}

/* The packet's end, before its frame changes. -1: the sets cannot take effect, and nothing has
 * changed; the packet is to be parked. */
static __always_inline int sp_flow_set_staged(struct sp_flow_context *flow)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 staged = flow->staged;

	if (!staged || !scratch)
		return 0;
	flow->staged = 0;
	if (staged & SP_FLOW_GROUPED_AT) {
		sp_flow_set_group(flow, scratch, staged);
	} else {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_ALONE)
	}
	return flow->kind == SP_FLOW_PARK ? -1 : 0;
}

#endif
