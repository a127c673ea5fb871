/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_lww_frame.h: messages about registers, tables and sets with EWO. Part of
 * stateplane_lww.h.
 *
 * Owns: how records are put into a message, merged, and forgotten. Must not know: the rest of the
 * frame (stateplane_eventual_frame.h), when and where one is sent.
 *
 * A message has whole writes, with their stamps: records that this switch changed, or a run of all
 * its records ("gossip"), also those that others wrote. A switch with a later write keeps it, so a
 * message may be lost, come twice, or late.
 */
#ifndef STATEPLANE_LWW_FRAME_H
#define STATEPLANE_LWW_FRAME_H

/* A message's cells as 64-bit words; how many writes it has room for; their form. */
#define SP_LWW_CELL_WORDS (SP_SHARED_CELLS / 2)
#define SP_LWW_ENTRIES (SP_LWW_CELL_WORDS / SP_LWW_ENTRY_WORDS)
#define SP_LWW_SHAPE (SP_LWW_KEY_WORDS << 8 | SP_LWW_VALUE_WORDS)

struct sp_lww_cells {
	__u64 word[SP_LWW_CELL_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_lww_cells);
} sp_lww_cells SEC(".maps");

/* A CPU's own: records that the message is to have. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_LWW_ENTRIES);
	__type(key, __u32);
	__type(value, __u32);
} sp_lww_numbers SEC(".maps");

/* By group, then member. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS *SP_EVENTUAL_MEMBERS);
	__type(key, __u32);
	__type(value, struct sp_lww_member);
} sp_lww_members SEC(".maps");

SP_INLINE struct sp_lww_member *sp_lww_member(__u32 group, __u32 member)
{
	__u32 at = group * SP_EVENTUAL_MEMBERS + member;

	return bpf_map_lookup_elem(&sp_lww_members, &at);
}

SP_INLINE struct sp_lww_cells *sp_lww_the_cells(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sp_lww_cells, &zero);
}

/* A write of the message, by its number. */
SP_INLINE __u64 *sp_lww_in_cells(struct sp_lww_cells *cells, __u64 number)
{
	return cells->word + sp_below(number * SP_LWW_ENTRY_WORDS,
				      SP_LWW_CELL_WORDS - SP_LWW_ENTRY_WORDS + 1);
}

/* ---- Merging ---- */
struct sp_lww_merge {
	__u32 group;
	__u32 won;
};

static long sp_lww_merge_one(__u64 i, struct sp_lww_merge *merge)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	struct sp_lww_cells *cells = sp_lww_the_cells();

	if (!scratch || !cells)
		return 1;
	sp_lww_copy((__u64 *)&scratch->hand, sp_lww_in_cells(cells, i), SP_LWW_ENTRY_WORDS);
	/* (A member of another layout has another tag: such a write is of no member.) */
	if (scratch->hand.object >= SP_LWW_COUNT || !scratch->hand.time ||
	    sp_lww_object(scratch->hand.object).group != merge->group ||
	    scratch->hand.flags & ~(__u64)SP_LWW_REMOVED) {
		sp_shared_count(SP_SHARED_STAT_FAULTS);
		return 0;
	}
	merge->won += sp_lww_apply(0) == SP_LWW_WON;
	return 0;
}

/*
 * Notes that the message's sender is heard, and which members it hears: only if the message was
 * sent after all that came before. A recorded one, sent again, would let tombstones end while its
 * sender is away.
 */
SP_INLINE void sp_lww_hear(struct sp_lww_member *member, __u32 hears, __u64 sent_ns)
{
	__u64 seen = SP_SHARED_LOAD(member->sent_ns);

	/* (Of two at once, one counts.) */
	if (sent_ns <= seen ||
	    __sync_val_compare_and_swap(&member->sent_ns, seen, sent_ns) != seen)
		return;
	SP_SHARED_STORE(member->hears, (__u64)hears);
	__sync_fetch_and_add(&member->newer, 1);
}

/*
 * Of a genuine message: its writes are made here. `hears`: the members that its sender hears;
 * `sent_ns`: when it was sent.
 */
SP_SHARED_GLOBAL int sp_lww_take(struct xdp_md *xdp, __u32 from, __u32 count, __u32 hears,
				 __u64 sent_ns)
{
	struct sp_lww_merge merge = { .group = from / SP_EVENTUAL_MEMBERS & (SP_SHARED_GROUPS - 1) };
	struct sp_lww_member *member = sp_lww_member(merge.group, from & (SP_EVENTUAL_MEMBERS - 1));
	struct sp_lww_cells *cells = sp_lww_the_cells();

	if (!cells || !member || bpf_xdp_load_bytes(xdp, SP_SHARED_CELLS_AT, cells, sizeof(*cells))) {
		sp_shared_count(SP_SHARED_STAT_FAULTS);
		return 0;
	}
	sp_lww_hear(member, hears, sent_ns);
	bpf_loop(count, sp_lww_merge_one, &merge, 0);
	sp_shared_count(SP_SHARED_STAT_EVENTUAL_RECEIVED);
	sp_count(&sp_shared_stats, SP_SHARED_STAT_EVENTUAL_RAISED, merge.won);
	return 0;
}

/* ---- Filling ---- */
struct sp_lww_fill {
	__u64 place; /* of the list, where the message begins */
	__u64 end; /* and where the list ends */
	__u64 forget_before;
	__u32 group;
	__u32 first; /* record of a run */
	__u32 listed; /* places of the list that are done */
	__u32 count; /* writes in the message */
};

/*
 * The record becomes the message's next write. A tombstone that has ended is forgotten: user space
 * says when (systems/swish/README.md, "EWO").
 */
static __noinline int sp_lww_put(struct sp_lww_fill *fill, __u32 number)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	struct sp_lww_cells *cells = sp_lww_the_cells();
	struct sp_lww_record *record = sp_lww_record(number);
	struct sp_lww_counts *counts;
	struct sp_lww_node *node;
	__u32 flags, ours, forgotten;

	if (!scratch || !cells || !record)
		return 0;
	bpf_spin_lock(&record->lock);
	scratch->hand.time = record->head.time;
	scratch->hand.writer = record->head.writer;
	flags = record->head.flags;
	scratch->hand.flags = flags & SP_LWW_REMOVED;
	scratch->hand.object = record->head.object;
	sp_lww_copy(scratch->hand.key, record->key, SP_LWW_KEY_WORDS);
	sp_lww_copy(scratch->hand.value, record->value, SP_LWW_VALUE_WORDS);
	/* (A run may go on beyond the group's last record.) */
	ours = sp_lww_object(record->head.object).group == fill->group;
	forgotten = ours && flags & SP_LWW_REMOVED && record->head.since < fill->forget_before;
	if (forgotten) {
		record->head.time = 0;
		record->head.writer = 0;
		record->head.flags = 0;
	}
	bpf_spin_unlock(&record->lock);
	if (!scratch->hand.time || !ours)
		return 0;
	if (forgotten) {
		counts = sp_lww_count_of(scratch->hand.object);
		if (counts)
			__sync_fetch_and_add(&counts->removed, -1);
		node = sp_lww_node(fill->group);
		if (node)
			sp_lww_raise(&node->forgotten, scratch->hand.time);
		bpf_map_delete_elem(&sp_lww_index, &scratch->hand.object);
		sp_lww_push(scratch->hand.object, &number);
		return 0;
	}
	sp_lww_copy(sp_lww_in_cells(cells, fill->count), (const __u64 *)&scratch->hand,
		    SP_LWW_ENTRY_WORDS);
	fill->count++;
	return 0;
}

/* The next place of the list. */
static long sp_lww_list_one(__u64 i, struct sp_lww_fill *fill)
{
	__u64 *listed = sp_lww_listed(fill->group, fill->place + i), word;
	__u32 zero = 0, *number;

	if (!listed || fill->place + i >= fill->end)
		return 1;
	word = SP_SHARED_LOAD(*listed);
	/* (Another CPU is about to write it.) */
	if (word != sp_eventual_list_word(fill->place + i, (__u32)word))
		return 1;
	number = bpf_map_lookup_elem(&sp_lww_numbers, &(__u32){ i });
	if (!number)
		return 1;
	*number = word;
	fill->listed = i + 1;
	return 0;
}

static long sp_lww_listed_one(__u64 i, struct sp_lww_fill *fill)
{
	__u32 *number = bpf_map_lookup_elem(&sp_lww_numbers, &(__u32){ i });

	if (number)
		sp_lww_put(fill, *number);
	return 0;
}

static long sp_lww_run_one(__u64 i, struct sp_lww_fill *fill)
{
	sp_lww_put(fill, fill->first + i);
	return 0;
}

/* What this switch changed since the member was sent something: as sp_eventual_fill_changed. */
static __noinline int sp_lww_fill_changed(__u32 group, __u32 receiver)
{
	struct sp_lww_member *peer = sp_lww_member(group, receiver & (SP_EVENTUAL_MEMBERS - 1));
	struct sp_lww_node *node = sp_lww_node(group);
	struct sp_lww_fill fill = { .group = group };
	__u64 seen, next, taken;

	if (!node || !peer)
		return 0;
	seen = SP_SHARED_LOAD(peer->next);
	fill.place = seen;
	fill.end = SP_SHARED_LOAD(node->listed);
	if (fill.end - fill.place > SP_LWW_LISTED) {
		fill.place = fill.end - SP_LWW_LISTED;
		sp_shared_count(SP_SHARED_STAT_EVENTUAL_SKIPPED);
	}
	bpf_loop(SP_LWW_ENTRIES, sp_lww_list_one, &fill, 0);
	next = fill.place + fill.listed;
	if (next == seen || __sync_val_compare_and_swap(&peer->next, seen, next) != seen)
		return 0;
	/* Before the records are read: see sp_eventual_apply. */
	for (int i = 0; i < SP_SHARED_TRIES; i++) {
		taken = SP_SHARED_LOAD(node->taken);
		if (taken >= next || __sync_val_compare_and_swap(&node->taken, taken, next) == taken)
			break;
	}
	bpf_loop(fill.listed, sp_lww_listed_one, &fill, 0);
	return fill.count;
}

/* A run of records; how many of them are written. */
static __noinline int sp_lww_fill_run(__u32 group, __u32 first)
{
	struct sp_lww_terms *terms = sp_lww_terms_of(group);
	struct sp_lww_fill fill = { .group = group, .first = first };

	if (terms)
		fill.forget_before = SP_SHARED_LOAD(terms->forget_before);
	bpf_loop(SP_LWW_ENTRIES, sp_lww_run_one, &fill, 0);
	return fill.count;
}

/* The members that this switch hears. */
SP_INLINE __u32 sp_lww_hears(__u32 group)
{
	struct sp_lww_terms *terms = sp_lww_terms_of(group);

	return terms ? SP_SHARED_LOAD(terms->hears) : 0;
}

#endif
