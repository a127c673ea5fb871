/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared_merge.h: merging a message into the values, and filling one from the delta that
 * is sent. Part of stateplane_shared.h.
 *
 * Owns: cells of blocks, under the block's lock. Must not know: frames, when a window turns.
 *
 * The first merge of a window into a block begins from the value that packets read, so that nothing
 * has to pass over the array (SwiSh §7.2, where each window forgot what was older: systems/swish/
 * README.md, "Deltas and a base"). The first merge of a period begins from nothing.
 */
#ifndef STATEPLANE_SHARED_MERGE_H
#define STATEPLANE_SHARED_MERGE_H

struct sp_shared_lock {
	struct bpf_spin_lock lock;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_BLOCKS);
	__type(key, __u32);
	__type(value, struct sp_shared_lock);
} sp_shared_locks SEC(".maps");

#define SP_SHARED_WORDS (SP_SHARED_CELLS / 2)

SP_INLINE __u32 sp_shared_larger(__u32 a, __u32 b)
{
	return a > b ? a : b;
}

/* One cell merged with one of a message. */
SP_INLINE __u32 sp_shared_joined(__u32 merge, __u32 cell, __u32 by)
{
	return merge == SP_SHARED_SUM	   ? cell + by :
	       merge == SP_SHARED_OR	   ? cell | by :
	       sp_shared_is_own(merge) ? sp_shared_own(merge, cell, by) :
					     sp_shared_larger(cell, by);
}

/*
 * to[i] = base[i] merged with from[i], for a whole block. (The loops are unrolled in part: what
 * counts the rounds would be half of them.)
 */
SP_INLINE void sp_shared_merge_cells(__u32 merge, __u32 *to, const __u32 *base,
				     const sp_u32a *from)
{
	if (merge == SP_SHARED_SUM) {
#pragma clang loop unroll_count(12)
		for (int i = 0; i < SP_SHARED_CELLS; i++)
			to[i] = base[i] + from[i];
	} else if (merge == SP_SHARED_OR) {
		sp_u64a *to2 = (sp_u64a *)to;
		const sp_u64a *base2 = (const sp_u64a *)base, *from2 = (const sp_u64a *)from;

#pragma clang loop unroll_count(12)
		for (int i = 0; i < SP_SHARED_WORDS; i++)
			to2[i] = base2[i] | from2[i];
	} else if (sp_shared_is_own(merge)) {
		for (int i = 0; i < SP_SHARED_CELLS; i++)
			to[i] = sp_shared_own(merge, base[i], from[i]);
	} else {
#pragma clang loop unroll_count(4)
		for (int i = 0; i < SP_SHARED_CELLS; i++)
			to[i] = sp_shared_larger(base[i], from[i]);
	}
}

/*
 * Where the window's merge into this block goes, and where it begins from: `to` is the value that
 * no packet reads. Under the block's lock.
 */
struct sp_shared_sides {
	__u32 to;
	__u32 base;
	__u32 anew; /* the base is of an earlier period: it counts as zeros */
};

SP_INLINE struct sp_shared_sides sp_shared_sides(struct sp_shared_block *block, __u64 window,
						 __u32 period)
{
	struct sp_shared_sides sides;
	__u32 read = sp_shared_read_side(block, window);

	sides.to = !read;
	if (block->window[sides.to & 1] == window) {
		sides.base = sides.to;
		sides.anew = 0;
	} else {
		sides.base = read;
		sides.anew = sp_shared_is_over(period, block->window[read & 1], window);
		/* Before the first cell: packets of this window read the other value. */
		SP_SHARED_STORE(block->window[sides.to & 1], window);
	}
	return sides;
}

/* A member's whole block, which is in the frame, is merged. */
SP_SHARED_GLOBAL int sp_shared_merge_block(struct xdp_md *xdp, __u32 number, __u64 window)
{
	__u8 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	const sp_u32a *from = (const sp_u32a *)(data + SP_SHARED_CELLS_AT);
	struct sp_shared_block *block = sp_shared_block(number);
	struct sp_shared_lock *lock = bpf_map_lookup_elem(&sp_shared_locks, &number);
	__u32 merge = sp_shared_merge_of(number), period = sp_shared_period_of(number);
	struct sp_shared_sides sides;
	__u32 *to;

	if (!block || !lock || data + SP_SHARED_FULL_BYTES > end)
		return 0;
	bpf_spin_lock(&lock->lock);
	sides = sp_shared_sides(block, window, period);
	to = block->value[sides.to & 1];
	if (sides.anew) {
		/* (Zero is the identity of all merges.) */
		for (int i = 0; i < SP_SHARED_CELLS; i++)
			to[i] = from[i];
	} else {
		sp_shared_merge_cells(merge, to, block->value[sides.base & 1], from);
	}
	bpf_spin_unlock(&lock->lock);
	return 1;
}

/* The lines of this switch's block that no packet changed in the rotation become zero. */
SP_SHARED_GLOBAL int sp_shared_freshen(__u32 number, __u64 rotation)
{
	struct sp_shared_block *block = sp_shared_block(number);
	struct sp_shared_lock *lock = bpf_map_lookup_elem(&sp_shared_locks, &number);
	__u32 side = rotation & 1;

	if (!block || !lock)
		return 0;
	bpf_spin_lock(&lock->lock);
	for (int line = 0; line < SP_SHARED_LINES; line++) {
		__u32 *cells = &block->delta[side][line * SP_SHARED_LINE_CELLS];

		if (block->line[side][line] >> 16 == rotation)
			continue;
		block->line[side][line] = rotation << 16;
		for (int i = 0; i < SP_SHARED_LINE_CELLS; i++)
			cells[i] = 0;
	}
	bpf_spin_unlock(&lock->lock);
	return 0;
}

/*
 * ---- Single cells. A message has 4 to 32 entries, each in as many words: the block's number in
 * the upper half of a word and in the lower one how many cells, the cells, then their places. ----
 */
#define SP_SHARED_ENTRY_CELLS_MAX 59
#define SP_SHARED_ENTRIES_MAX 32
/* Of a line's word: the bits of its cells. */
#define SP_SHARED_CHANGED ((1u << SP_SHARED_LINE_CELLS) - 1)

/* Measurements filled the deltas. */
#define SP_SHARED_FILL_FILLED 1
/* With a parent: its total may come into the delta meanwhile. Then the message is ignored. */
#define SP_SHARED_FILL_BELOW 2

struct sp_shared_entries {
	__u64 window;
	struct xdp_md *xdp;
	__u32 first; /* of the group */
	__u32 blocks; /* of the group */
	__u32 each; /* entries of a message */
	__u32 room; /* cells of an entry at the most */
	__u32 words; /* of an entry */
	__u32 list; /* fill: where in the map the message's blocks are listed */
	__u32 flags; /* fill: SP_SHARED_FILL_ */
};

SP_INLINE void sp_shared_shape(struct sp_shared_entries *entries, __u32 each)
{
	entries->each = each;
	entries->room = each == 32 ? 6 : each == 16 ? 14 : each == 8 ? 29 : 59;
	entries->words = each == 32 ? 11 : each == 16 ? 22 : each == 8 ? 45 : 90;
}

/* An entry in the frame is merged. `at`: the word of the frame's cells where it begins. */
SP_SHARED_GLOBAL int sp_shared_merge_entry(struct xdp_md *xdp, __u32 at, __u32 room, __u32 first,
					   __u64 window)
{
	__u8 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct sp_shared_block *block;
	struct sp_shared_lock *lock;
	struct sp_shared_sides sides;
	const sp_u32a *cells;
	const sp_u16a *places;
	__u32 head, number, count, merge, period;

	data += SP_SHARED_CELLS_AT;
	cells = (const sp_u32a *)(data + sp_below(at * 4, SP_SHARED_CELLS * 4));
	places = (const sp_u16a *)(data + sp_below((at + 1 + room) * 4, SP_SHARED_CELLS * 4));
	if ((const __u8 *)(cells + 1) > end)
		return 0;
	head = *cells++;
	count = head & 0xffff;
	number = first + (head >> 16);
	block = sp_shared_block(number);
	lock = bpf_map_lookup_elem(&sp_shared_locks, &number);
	merge = sp_shared_merge_of(number);
	period = sp_shared_period_of(number);
	if (!block || !lock)
		return 0;
	bpf_spin_lock(&lock->lock);
	sides = sp_shared_sides(block, window, period);
	if (sides.base != sides.to) {
		sp_u64a *to = (sp_u64a *)block->value[sides.to & 1];
		const sp_u64a *base = (const sp_u64a *)block->value[sides.base & 1];

		for (int i = 0; i < SP_SHARED_WORDS; i++)
			to[i] = sides.anew ? 0 : base[i];
	}
	for (__u32 i = 0; i < SP_SHARED_ENTRY_CELLS_MAX && i < count; i++, cells++, places++) {
		__u32 *place;

		if ((const __u8 *)(places + 1) > end || (const __u8 *)(cells + 1) > end)
			break;
		place = &block->value[sides.to & 1][sp_below(*places, SP_SHARED_CELLS)];
		*place = sp_shared_joined(merge, *place, *cells);
	}
	bpf_spin_unlock(&lock->lock);
	return 0;
}

/* Is the entry of a block of the group? */
SP_INLINE int sp_shared_has_block(struct sp_shared_entries *entries, __u32 at)
{
	__u32 head = 0;

	return !bpf_xdp_load_bytes(entries->xdp,
				   SP_SHARED_CELLS_AT + sp_below(at * 4, SP_SHARED_CELLS * 4), &head,
				   sizeof(head)) &&
	       head >> 16 < entries->blocks;
}

static long sp_shared_merge_one(__u64 i, struct sp_shared_entries *entries)
{
	__u32 at = i * entries->words;

	if (i >= entries->each)
		return 1;
	if (!sp_shared_has_block(entries, at)) {
		sp_shared_count(SP_SHARED_STAT_FAULTS);
		return 0;
	}
	sp_shared_merge_entry(entries->xdp, at, entries->room, entries->first, entries->window);
	return 0;
}

/* A CPU's own copy of a message's cells, as they are put together. */
struct sp_shared_scratch {
	__u32 word[SP_SHARED_CELLS];
	__u32 count; /* cells of the entry so far */
	__u32 at; /* where the entry begins */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_shared_scratch);
} sp_shared_scratch SEC(".maps");

/* The changed cells of a line go into the entry. */
SP_SHARED_GLOBAL int sp_shared_fill_line(__u32 number, __u32 line, __u64 rotation, __u32 room,
					 __u32 flags)
{
	struct sp_shared_block *block = sp_shared_block(number);
	__u32 zero = 0, at, side = rotation & 1;
	struct sp_shared_scratch *scratch = bpf_map_lookup_elem(&sp_shared_scratch, &zero);
	__u64 word;

	if (!block || !scratch || line >= SP_SHARED_LINES)
		return 0;
	word = block->line[side][line];
	if (word >> 16 != rotation && !(flags & SP_SHARED_FILL_FILLED))
		return 0;
	for (__u32 i = 0; i < SP_SHARED_LINE_CELLS; i++) {
		if (!(word >> i & 1))
			continue;
		if (scratch->count >= room) {
			if (!(flags & SP_SHARED_FILL_BELOW))
				sp_shared_count(SP_SHARED_STAT_FAULTS);
			break;
		}
		at = scratch->at + 1 + scratch->count;
		scratch->word[sp_below(at, SP_SHARED_CELLS)] =
			block->delta[side][line * SP_SHARED_LINE_CELLS + i];
		at = (scratch->at + 1 + room) * 2 + scratch->count;
		((sp_u16a *)scratch->word)[sp_below(at, 2 * SP_SHARED_CELLS)] =
			line * SP_SHARED_LINE_CELLS + i;
		scratch->count++;
	}
	return 0;
}

/* The next block of the rotation's list becomes an entry. */
static long sp_shared_fill_one(__u64 i, struct sp_shared_entries *entries)
{
	__u32 zero = 0, place = entries->list + i, *listed;
	struct sp_shared_scratch *scratch = bpf_map_lookup_elem(&sp_shared_scratch, &zero);
	__u64 rotation = entries->window;
	struct sp_shared_block *block;

	listed = bpf_map_lookup_elem(&sp_shared_dirty_blocks, &place);
	block = listed ? sp_shared_block(entries->first + *listed) : 0;
	if (!scratch || !block || i >= entries->each)
		return 1;
	scratch->at = i * entries->words;
	scratch->count = 0;
	/* (Few lines of a block have changed cells.) */
	for (__u32 line = 0; line < SP_SHARED_LINES; line++) {
		if (block->line[rotation & 1][line] & SP_SHARED_CHANGED)
			sp_shared_fill_line(entries->first + *listed, line, rotation, entries->room,
					    entries->flags);
	}
	scratch->word[sp_below(scratch->at, SP_SHARED_CELLS)] = *listed << 16 | scratch->count;
	return 0;
}

#endif
