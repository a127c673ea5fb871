/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared_hops.h: how often a frame without cells goes back. Part of stateplane_shared.h.
 *
 * Owns: when such a frame ends. Must not know: frames' bytes, when a window turns.
 */
#ifndef STATEPLANE_SHARED_HOPS_H
#define STATEPLANE_SHARED_HOPS_H

/* Does this switch send so much that all CPUs are to have frames? */
SP_INLINE int sp_shared_is_large(const struct sp_shared_node *node)
{
	return SP_SHARED_LOAD(node->totals[0]) >= SP_SHARED_MANY ||
	       SP_SHARED_LOAD(node->totals[1]) >= SP_SHARED_MANY;
}

/*
 * Does the frame end, which lost its cells here or in the switch that it comes from? All frames go
 * each way once without cells when a window turns: so a window has as many such frames as there are
 * frames. A few keep a CPU at work, and more wait for it. In READY this switch has sent all, and
 * has all: no message of the peer waits for a frame to come in, and a few bring the news. These
 * frames go on:
 * - those that only wait, or that the generator made: they are past two hops;
 * - of windows whose messages took long: more frames fill a slow way;
 * - in larger groups, as a CPU has frames of several members, and in trees, where neighbours wait
 *   for more than phases.
 */
SP_INLINE int sp_shared_is_spare(struct sp_shared_node *node, struct sp_shared_cpu *cpu,
				 const struct sp_shared_message *message, __u64 word)
{
	__u64 first = SP_SHARED_LOAD(node->began_ns[0]), second = SP_SHARED_LOAD(node->began_ns[1]);
	__u64 took_ns = first > second ? first - second : second - first, messages;

	if (SP_SHARED_PHASE(word) != SP_SHARED_READY || message->hops > 1 || node->count != 2 ||
	    node->tree || !sp_shared_is_large(node))
		return 0;
	/* (Of two windows, as the totals are.) */
	messages = SP_SHARED_LOAD(node->totals[0]) + (__u64)SP_SHARED_LOAD(node->totals[1]);
	if (2 * took_ns > messages * SP_SHARED_SHORT_NS)
		return 0;
	if (cpu->told != word) {
		cpu->told = word;
		cpu->emptied = 0;
	}
	return ++cpu->emptied > SP_SHARED_KEPT;
}

/*
 * What a hop of a frame that brings nothing counts. A frame stays on one CPU of a veth, so CPUs
 * have frames of their own. A CPU with few of them is through with a window's messages while others
 * still merge. If its frames ended then, the others would do all of the next windows. (A window
 * that takes long is held up by a member: then nobody merges.)
 */
SP_INLINE __u32 sp_shared_hop(struct sp_shared_cpu *cpu, struct sp_shared_node *node,
			      __u64 window, __u32 hops)
{
	__u64 since_ns = SP_SHARED_LOAD(node->began_ns[window & 1]);

	/* (The first hop, and the one after it, tell sp_shared_is_spare what they are.) */
	if (hops < 2 || !sp_shared_is_large(node))
		return 1;
	if (since_ns < node->next_ns)
		since_ns = node->next_ns;
	if (sp_now_ns() > since_ns + SP_SHARED_YOUNG_NS)
		return 1;
	cpu->bare++;
	return cpu->bare % SP_SHARED_LONGER == 0;
}

#endif
