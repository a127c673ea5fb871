/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared_tree.h: the aggregation tree of a group, whose neighbours only are this
 * switch's members (systems/swish/docs/tree.md). Part of stateplane_shared.h.
 *
 * Owns: what is merged into the delta that is sent, which neighbour is sent what. Must not know:
 * frames' bytes, when a window turns.
 *
 * Up: a switch merges its children's messages into its own delta, whose packets have left, and
 * sends that to its parent. Down: the root's delta is the rotation of all, the total. Others merge
 * the parent's messages into their values. They also put them into their delta, with the parent's
 * numbers and shapes, so that their children can be sent the same.
 */
#ifndef STATEPLANE_SHARED_TREE_H
#define STATEPLANE_SHARED_TREE_H

/* In a tree, the parent is the neighbour with the smaller number. */
SP_INLINE __u32 sp_shared_is_parent(const struct sp_shared_node *node, __u32 member)
{
	return node->tree && member < node->own;
}

/* Has it neighbours below it? */
SP_INLINE __u32 sp_shared_has_children(const struct sp_shared_node *node)
{
	return node->count > 1 + sp_shared_is_below(node);
}

/* A parent hears "ready" when all below it are: so the root's "all are ready" is true of all. */
SP_INLINE __u32 sp_shared_told_phase(const struct sp_shared_node *node, __u64 word, __u32 to)
{
	__u64 window = SP_SHARED_WINDOW(word);

	if (SP_SHARED_PHASE(word) == SP_SHARED_READY && sp_shared_is_parent(node, to) &&
	    SP_SHARED_LOAD(node->ready[window & 1]) + 1 != node->count)
		return SP_SHARED_RESETTING;
	return SP_SHARED_PHASE(word);
}

/*
 * The window whose messages the neighbour is served, which is in this window and phase (0: not
 * known); 0: none. Without a tree: this window, once they are counted, and the one before until all
 * are ready. In a tree a child is served what comes down: the root has it when it sends, others
 * when the window is over. A parent is served what goes up when it says that it gathers. (Before,
 * packets may change what it would go into.)
 */
SP_INLINE __u64 sp_shared_served(const struct sp_shared_node *node,
				 const struct sp_shared_member *peer, __u64 word, __u32 to,
				 __u64 theirs, __u32 their_phase)
{
	__u64 window = SP_SHARED_WINDOW(word);
	__u32 sends = SP_SHARED_PHASE(word) == SP_SHARED_SENDING;

	if (sp_shared_is_parent(node, to))
		return sends && theirs == window && their_phase == SP_SHARED_GATHERING ? window : 0;
	if (sends && (theirs == window || !theirs))
		return sp_shared_is_below(node) ? 0 : window;
	if (SP_SHARED_PHASE(word) >= SP_SHARED_ROTATED)
		return 0;
	/* What it lacks is still there, as it is not ready for this window. */
	if (theirs == window - 1 ||
	    (node->tree && !theirs && SP_SHARED_LOAD(peer->ready) < window))
		return window - 1;
	return 0;
}

/* How many messages of the window the member is to have. */
SP_INLINE __u32 sp_shared_total_for(__u32 group, const struct sp_shared_node *node, __u32 to,
				    __u64 window)
{
	/* (With a parent, the node's own count becomes that of the total.) */
	struct sp_shared_member *own =
		sp_shared_is_parent(node, to) ?
			sp_shared_member(group, node->own & (SP_SHARED_MEMBERS - 1)) :
			0;

	return own ? SP_SHARED_LOAD(own->total) : SP_SHARED_LOAD(node->totals[window & 1]);
}

/* May a neighbour's message of this window be one that is not merged yet? */
SP_INLINE int sp_shared_takes(const struct sp_shared_node *node, __u32 from, __u64 phase)
{
	if (!node->tree)
		return 1;
	return phase == (sp_shared_is_parent(node, from) ? SP_SHARED_SENDING : SP_SHARED_GATHERING);
}

/* The cells of a block of the group that changed are more, by some of a child's. */
SP_INLINE void sp_shared_gathered(struct sp_shared_node *node, __u32 at, __u64 changed,
				  __u64 window, __u32 cells)
{
	/* (In measurements, all list the same blocks.) */
	if (changed >> 16 != window && !node->filled)
		sp_shared_list_block(node, window & 1, at);
	sp_shared_raise_most(node, window & 1, cells);
}

/* A whole block, which is in the frame. `at`: its number in the group. */
SP_SHARED_GLOBAL int sp_shared_branch_block(struct xdp_md *xdp, __u32 group, __u32 at,
					    __u64 window, __u32 replaces)
{
	__u8 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	const sp_u32a *from = (const sp_u32a *)(data + SP_SHARED_CELLS_AT);
	struct sp_shared_node *node = sp_shared_node(group);
	__u32 side = window & 1, number = node ? node->first + at : 0, merge;
	struct sp_shared_block *block = sp_shared_block(number);
	struct sp_shared_lock *lock = bpf_map_lookup_elem(&sp_shared_locks, &number);
	__u64 changed;

	if (!node || !block || !lock || at >= node->blocks || data + SP_SHARED_FULL_BYTES > end)
		return 0;
	merge = sp_shared_merge_of(number);
	if (!node->filled)
		sp_shared_freshen(number, window);
	bpf_spin_lock(&lock->lock);
	changed = block->changed[side];
	block->changed[side] = window << 16 | SP_SHARED_CELLS;
	if (replaces) {
		for (int i = 0; i < SP_SHARED_CELLS; i++)
			block->delta[side][i] = from[i];
	} else {
		sp_shared_merge_cells(merge, block->delta[side], block->delta[side], from);
	}
	bpf_spin_unlock(&lock->lock);
	if (!replaces)
		sp_shared_gathered(node, at, changed, window, SP_SHARED_CELLS);
	return 0;
}

/* An entry in the frame. `word`: where it begins; `what`: the group, and whether it replaces. */
SP_SHARED_GLOBAL int sp_shared_branch_entry(struct xdp_md *xdp, __u32 word, __u32 room,
					    __u32 what, __u64 window)
{
	__u32 group = what & (SP_SHARED_GROUPS - 1), replaces = what >> 8;
	__u8 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct sp_shared_node *node = sp_shared_node(group);
	__u32 head, number, count, merge, side = window & 1, cells_changed;
	struct sp_shared_block *block;
	struct sp_shared_lock *lock;
	const sp_u32a *cells;
	const sp_u16a *places;
	__u64 changed;

	data += SP_SHARED_CELLS_AT;
	cells = (const sp_u32a *)(data + sp_below(word * 4, SP_SHARED_CELLS * 4));
	places = (const sp_u16a *)(data + sp_below((word + 1 + room) * 4, SP_SHARED_CELLS * 4));
	if (!node || (const __u8 *)(cells + 1) > end)
		return 0;
	head = *cells++;
	count = head & 0xffff;
	number = node->first + (head >> 16);
	block = sp_shared_block(number);
	lock = bpf_map_lookup_elem(&sp_shared_locks, &number);
	merge = sp_shared_merge_of(number);
	if (!block || !lock)
		return 0;
	if (!node->filled)
		sp_shared_freshen(number, window);
	bpf_spin_lock(&lock->lock);
	changed = block->changed[side];
	cells_changed = changed >> 16 == window ? changed & 0xffff : 0;
	for (__u32 i = 0; i < SP_SHARED_ENTRY_CELLS_MAX && i < count; i++, cells++, places++) {
		__u64 *line, bit;
		__u32 at, *cell;

		if ((const __u8 *)(places + 1) > end || (const __u8 *)(cells + 1) > end)
			break;
		at = sp_below(*places, SP_SHARED_CELLS);
		cell = &block->delta[side][at];
		*cell = replaces ? *cells : sp_shared_joined(merge, *cell, *cells);
		line = &block->line[side][sp_below(sp_shared_line_of(at), SP_SHARED_LINES)];
		bit = 1ull << (at - sp_shared_line_of(at) * SP_SHARED_LINE_CELLS);
		cells_changed += !(*line & bit);
		*line |= bit;
	}
	block->changed[side] = window << 16 | cells_changed;
	bpf_spin_unlock(&lock->lock);
	if (!replaces)
		sp_shared_gathered(node, head >> 16, changed, window, cells_changed);
	return 0;
}

/* A block has this place in the window's list: so a message's number gives its blocks. */
SP_INLINE void sp_shared_list_at(const struct sp_shared_node *node, __u64 window, __u32 position,
				 __u32 block)
{
	__u32 place = 2 * node->first + (window & 1) * node->blocks + position, *listed;

	if (position >= node->blocks)
		return;
	listed = bpf_map_lookup_elem(&sp_shared_dirty_blocks, &place);
	if (listed)
		*listed = block;
}

/*
 * The message's cells go into the delta of this window's rotation, as a child's or as the total.
 * (A loop of the program's: bpf_loop's arguments would be too much for the stack, with a merge of
 * the program's own below it.)
 */
static __noinline int sp_shared_branch(struct xdp_md *xdp, const struct sp_shared_message *message,
				       struct sp_shared_node *node, __u64 window, __u32 replaces)
{
	__u32 single = message->kind & SP_SHARED_KIND_SINGLE, each = single ? message->block >> 8 : 1;
	__u32 position = message->number * each, count = single ? message->block & 0xff : 1;
	__u32 what = message->group & (SP_SHARED_GROUPS - 1);
	struct sp_shared_entries shape = {};

	if (replaces) {
		node->message_blocks = each;
		if (message->number + 1 == message->total)
			SP_SHARED_STORE(node->dirty_blocks[window & 1], position + count);
	}
	if (!single) {
		if (replaces)
			sp_shared_list_at(node, window, position, message->block);
		return sp_shared_branch_block(xdp, what, message->block, window, replaces);
	}
	sp_shared_shape(&shape, each);
	for (__u32 i = 0; i < SP_SHARED_ENTRIES_MAX && i < count; i++) {
		__u32 at = SP_SHARED_CELLS_AT + sp_below(i * shape.words * 4, SP_SHARED_CELLS * 4);
		__u32 head = 0;

		if (bpf_xdp_load_bytes(xdp, at, &head, sizeof(head)) || head >> 16 >= node->blocks) {
			sp_shared_count(SP_SHARED_STAT_FAULTS);
			continue;
		}
		if (replaces)
			sp_shared_list_at(node, window, position + i, head >> 16);
		sp_shared_branch_entry(xdp, i * shape.words, shape.room, what | replaces << 8, window);
	}
	return 0;
}

#endif
