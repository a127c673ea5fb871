/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_sweep.h: keys that have expired leave their tables. Part of
 * stateplane_strong.h.
 *
 * The head's generated frames look at some records at a time, and ask for removals as a packet
 * would, on the condition that the key was not written meanwhile. No packet waits for that.
 */
#ifndef STATEPLANE_STRONG_SWEEP_H
#define STATEPLANE_STRONG_SWEEP_H

/* Between two looks, at the least. */
#define SP_STRONG_SWEEP_NS 1000000ull
/* Records of each table that a look goes through. */
#define SP_STRONG_SWEEP_RECORDS 64
/* Members' clocks may differ by so much: what one of them still uses is not removed. */
#define SP_STRONG_SWEEP_GRACE_S 2

#define SP_STRONG_SWEEP(name, id, table, size, kb, vb, timed)                                     \
	static long name##_sweep_one(__u32 i, struct sp_strong_context *strong)                   \
	{                                                                                         \
		struct sp_strong_scratch *scratch = sp_strong_scratch();                          \
		__u32 number = table, place, generation;                                          \
		struct sp_strong_table *counts;                                                   \
		struct name##_record *record;                                                     \
		__u64 idle_s = 0, idle_for, *words;                                               \
                                                                                                  \
		counts = bpf_map_lookup_elem(&sp_strong_tables, &number);                         \
		if (!scratch || !counts || strong->records >= SP_STRONG_PACKET_RECORDS)           \
			return 1;                                                                 \
		place = counts->swept;                                                            \
		counts->swept = place + 1 < counts->used ? place + 1 : 0;                         \
		record = bpf_map_lookup_elem(&name##_records, &place);                            \
		if (!record || place >= counts->used)                                             \
			return 1;                                                                 \
		generation = SP_STRONG_LOAD(record->generation);                                  \
		idle_for = sp_strong_idle_for(                                                    \
			SP_STRONG_LOAD(*((__u64 *)(record->value + SP_ROUND8(vb)) - 1)), &idle_s); \
		if (!idle_s || idle_for <= idle_s + SP_STRONG_SWEEP_GRACE_S ||                    \
		    SP_STRONG_LOAD(record->removed))                                              \
			return 0;                                                                 \
		sp_strong_copy(scratch->key, record->key, kb);                                    \
		if (generation & 1 || generation != SP_STRONG_LOAD(record->generation))           \
			return 0;                                                                 \
		words = sp_strong_stage(strong, id, SP_STRONG_REMOVE | SP_STRONG_SINCE,           \
					SP_STRONG_RECORD_SIZE(kb, vb));                           \
		if (!words)                                                                       \
			return 1;                                                                 \
		for (int word = 0; word < SP_STRONG_RECORD_SIZE(kb, vb); word++)                  \
			words[word] = word < SP_STRONG_KW(kb) ? scratch->key[word] : 0;           \
		return 0;                                                                         \
	}

SP_STRONG_OBJECTS(SP_STRONG_SWEEP)

/* Each look begins with another table: one that is full of keys whose time is over leaves no room
 * for the others'. */
#define SP_STRONG_ONE(name, id, table, size, kb, vb, timed) +1
#define SP_STRONG_SWEEP_FROM_FIRST(name, id, table, size, kb, vb, timed)                          \
	if (timed && table >= first)                                                              \
		bpf_loop(SP_STRONG_SWEEP_RECORDS, name##_sweep_one, &strong, 0);
#define SP_STRONG_SWEEP_BEFORE_FIRST(name, id, table, size, kb, vb, timed)                        \
	if (timed && table < first)                                                               \
		bpf_loop(SP_STRONG_SWEEP_RECORDS, name##_sweep_one, &strong, 0);

/* 1: removals have joined this CPU's open batch. */
static __noinline int sp_strong_sweep(void)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_context strong = {};
	struct sp_commit_place place = {};
	__u64 now = sp_now_ns();
	__u32 first;

	if (!scratch || !view || !node || !(view->standing & SP_STRONG_HEAD) ||
	    node->view != view->number || now - node->swept_ns < SP_STRONG_SWEEP_NS)
		return 0;
	node->swept_ns = now;
	first = node->sweeps++ % (0 SP_STRONG_OBJECTS(SP_STRONG_ONE));
	strong.snapshot = SP_STRONG_LOAD(node->applied) + 1;
	SP_STRONG_OBJECTS(SP_STRONG_SWEEP_FROM_FIRST)
	SP_STRONG_OBJECTS(SP_STRONG_SWEEP_BEFORE_FIRST)
	if (!strong.records || sp_commit_find(&place, SP_STRONG_LINE, 0) ||
	    !sp_commit_fits_many(&place, strong.records, strong.words))
		return 0;
	sp_commit_append_many(&place, scratch->staged, scratch->starts, strong.records,
			      strong.words);
	sp_commit_end(&place);
	sp_count(&sp_strong_stats, SP_STRONG_STAT_EXPIRED, strong.records);
	return 1;
}

#endif
