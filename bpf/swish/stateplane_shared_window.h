/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared_window.h: when a window turns (SwiSh §7.2; systems/swish/README.md, "SDW: a
 * window"). Part of stateplane_shared.h.
 *
 * Owns: phases, members' records, which messages of a window are merged. Must not know: frames,
 * cells.
 *
 * ADVANCED: the window is the newest one; packets of the one before may still be under way.
 * RESETTING: a CPU empties the records of the window before.
 * READY: this switch says so, and waits until all members do.
 * TURNING: a CPU empties the lists of the delta that takes updates next.
 * ROTATED: updates go into the other delta; packets that write to the first one may be under way.
 * GATHERING: in an aggregation tree only: messages of the children go into what this switch sends
 * (stateplane_shared_tree.h). (Its number is the largest one: others had theirs before it.)
 * COUNTING: a CPU counts what this switch has to send.
 * SENDING: until all blocks of all members (with a parent: the total's) are merged. Then: ADVANCED,
 * in the next window.
 */
#ifndef STATEPLANE_SHARED_WINDOW_H
#define STATEPLANE_SHARED_WINDOW_H

/* By group, then member. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SP_SHARED_HELD_GROUPS *SP_SHARED_MEMBERS);
	__type(key, __u32);
	__type(value, struct sp_shared_member);
} sp_shared_members SEC(".maps");

#define SP_SHARED_GOT_WORDS ((SP_SHARED_MESSAGES + 63) / 64)

/* By group, member, and number of a message: a bit for each that is merged, or about to be. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SP_SHARED_HELD_GROUPS *SP_SHARED_MEMBERS *SP_SHARED_GOT_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} sp_shared_got SEC(".maps");

SP_INLINE struct sp_shared_member *sp_shared_member(__u32 group, __u32 member)
{
	__u32 at = group * SP_SHARED_MEMBERS + member;

	return bpf_map_lookup_elem(&sp_shared_members, &at);
}

SP_INLINE __u64 *sp_shared_got_word(__u32 group, __u32 member, __u32 word)
{
	__u32 at = (group * SP_SHARED_MEMBERS + member) * SP_SHARED_GOT_WORDS + word;

	return bpf_map_lookup_elem(&sp_shared_got, &at);
}

/* The message is this CPU's to merge: no other CPU has claimed it in this window. */
SP_INLINE int sp_shared_claim(__u32 group, __u32 member, __u32 number)
{
	__u64 *word, bit = 1ull << (number & 63);

	if (number >= SP_SHARED_MESSAGES)
		return 0;
	word = sp_shared_got_word(group, member, number / 64);
	return word && !(__sync_fetch_and_or(word, bit) & bit);
}

/* In an aggregation tree: has this switch a parent? */
SP_INLINE __u32 sp_shared_is_below(const struct sp_shared_node *node)
{
	return node->tree == SP_SHARED_BELOW;
}

struct sp_shared_drain {
	__u64 word;
	__u32 group;
	__u32 own;
	__u32 drained;
};

static long sp_shared_look_at_cpu(__u64 i, struct sp_shared_drain *drain)
{
	struct sp_shared_cpu *cpu = sp_shared_cpu(drain->group, i);
	__u64 packet, frame;

	/* (This CPU works on this frame, so it is in the middle of no packet.) */
	if (i == drain->own)
		return 0;
	if (!cpu) {
		drain->drained = 0;
		return 1;
	}
	packet = SP_SHARED_LOAD(cpu->packet);
	frame = SP_SHARED_LOAD(cpu->frame);
	if ((packet != SP_SHARED_NO_PIN && packet < drain->word) ||
	    (frame != SP_SHARED_NO_PIN && SP_SHARED_WINDOW(frame) < SP_SHARED_WINDOW(drain->word)))
		drain->drained = 0;
	return !drain->drained;
}

/* Has no CPU a packet with an older pin than this word, or works on a frame of an older window? */
SP_SHARED_GLOBAL int sp_shared_drained(__u32 group, __u64 word, __u32 cpus)
{
	struct sp_shared_drain drain = { .word = word, .group = group, .drained = 1,
					 .own = sp_shared_this_cpu() };

	bpf_loop(cpus, sp_shared_look_at_cpu, &drain, 0);
	return drain.drained;
}

/* How long windows took, by group: a bucket for each thirty-second of a power of two ns. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SP_SHARED_GROUPS *SP_SHARED_BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} sp_shared_window_ns SEC(".maps");

/* Notes how long the window that ends now took. */
static __noinline int sp_shared_time_window(__u32 group, struct sp_shared_node *node,
					     __u64 window)
{
	__u64 now_ns = sp_now_ns(), took_ns = now_ns - node->began_ns[window & 1], *count;
	__u32 power = 0, bucket;

	for (int step = 32; step; step /= 2) {
		if (took_ns >> (power + step))
			power += step;
	}
	/* (Below 32 ns each value has a bucket of its own.) */
	bucket = power < 5 ? took_ns : (power - 4) << 5 | (took_ns >> (power - 5) & 31);
	bucket += group * SP_SHARED_BUCKETS;
	if (power < 32) {
		count = bpf_map_lookup_elem(&sp_shared_window_ns, &bucket);
		if (count)
			__sync_fetch_and_add(count, 1);
	}
	return 0;
}

struct sp_shared_reset {
	__u32 group;
	__u32 member;
	__u32 side;
};

/* Words of a member's bits that a window with so many messages may have set. */
SP_INLINE __u32 sp_shared_used_words(__u32 total)
{
	return total < SP_SHARED_MESSAGES ? (total + 63) / 64 : SP_SHARED_GOT_WORDS;
}

static long sp_shared_reset_word(__u64 i, struct sp_shared_reset *reset)
{
	__u64 *word = sp_shared_got_word(reset->group, reset->member, i);

	if (word)
		*word = 0;
	return 0;
}

static long sp_shared_reset_member(__u64 i, struct sp_shared_reset *reset)
{
	struct sp_shared_member *member = sp_shared_member(reset->group, i);

	if (!member || !member->address)
		return 0;
	reset->member = i;
	bpf_loop(sp_shared_used_words(member->total), sp_shared_reset_word, reset, 0);
	member->total = SP_SHARED_NOT_KNOWN;
	member->merged = 0;
	member->complete = 0;
	/* (A member that lacked messages of two windows ago has them: it was ready since.) */
	member->next[reset->side & 1] = 0;
	return 0;
}

/*
 * A member is ready for this window, of which the node knew an older one. The count of each window
 * is set to 0 in RESETTING of the window before: no CPU works on a frame of an older window then,
 * and no member is ready for the next one, as this switch has sent nothing of its own window.
 */
SP_INLINE void sp_shared_count_ready(struct sp_shared_node *node, __u64 window)
{
	__sync_fetch_and_add(&node->ready[window & 1], 1);
}

/* If the member's last message of this window is merged: the group has one member less to do. */
SP_INLINE void sp_shared_check_member(struct sp_shared_node *node, struct sp_shared_member *member)
{
	if (SP_SHARED_LOAD(member->merged) != SP_SHARED_LOAD(member->total))
		return;
	if (!__sync_lock_test_and_set(&member->complete, 1))
		__sync_fetch_and_add(&node->complete, 1);
}

/* A message with single cells: as many blocks as have room for the cells of each. */
SP_INLINE __u32 sp_shared_message_blocks(__u32 most_cells)
{
	return most_cells <= 6	  ? 32 :
	       most_cells <= 14 ? 16 :
	       most_cells <= 29 ? 8 :
	       most_cells <= 59 ? 4 :
				  1;
}

/* What this switch sends in the window: whole blocks, or single cells of several. */
SP_INLINE void sp_shared_total(__u32 group, struct sp_shared_node *node, __u64 window)
{
	__u32 side = window & 1, each = sp_shared_message_blocks(node->most_cells[side]);
	struct sp_shared_member *member =
		sp_shared_member(group, node->own & (SP_SHARED_MEMBERS - 1));

	if (!member)
		return;
	node->message_blocks = each;
	/* (A member may still lack a message of this window when the next one has begun.) */
	node->totals[side] = (node->dirty_blocks[side] + each - 1) / each;
	SP_SHARED_STORE(member->total, node->totals[side]);
	/* (With a parent, it is the total of all that is merged here.) */
	if (!sp_shared_is_below(node))
		sp_shared_check_member(node, member);
}

/* One CPU counts what this switch has to send; then it is sent. */
SP_INLINE void sp_shared_begin_sending(__u32 group, struct sp_shared_node *node, __u64 word)
{
	__u64 window = SP_SHARED_WINDOW(word), next = SP_SHARED_WORD(window, SP_SHARED_COUNTING);

	if (__sync_val_compare_and_swap(&node->word, word, next) != word)
		return;
	sp_shared_total(group, node, window);
	next = SP_SHARED_WORD(window, SP_SHARED_SENDING);
	__sync_lock_test_and_set(&node->word, next);
}

struct sp_shared_sum {
	__u64 bytes;
	__u64 busy_ns;
	__u32 group;
};

static long sp_shared_add_cpu(__u64 i, struct sp_shared_sum *sum)
{
	struct sp_shared_cpu *cpu = sp_shared_cpu(sum->group, i);

	if (cpu) {
		sum->bytes += SP_SHARED_LOAD(cpu->sent_bytes);
		sum->busy_ns += SP_SHARED_LOAD(cpu->busy_ns);
	}
	return 0;
}

/*
 * When the window after this one may begin: a period after this one, and so late that what the
 * window before this one sent, and the time that it took of the CPUs, keep within the caps. (So one
 * CPU counts, and what a window costs is known.) This one's frames begin to move now.
 */
static __noinline int sp_shared_pace(__u32 group, struct sp_shared_node *node, __u64 window)
{
	__u64 now_ns = sp_now_ns(), due_ns = node->next_ns + node->period_ns, cost_ns = 0, least_ns;
	struct sp_shared_sum sum = { .group = group };

	if (due_ns < now_ns)
		due_ns = now_ns;
	if (node->byte_time || node->cpu_percent)
		bpf_loop(node->cpus, sp_shared_add_cpu, &sum, 0);
	if (node->cpu_percent)
		cost_ns = (sum.busy_ns - node->busy_ns) * 100 / node->cpu_percent;
	least_ns = (sum.bytes - node->sent_bytes) * node->byte_time >> 16;
	if (least_ns < cost_ns)
		least_ns = cost_ns;
	if (due_ns < now_ns + least_ns)
		due_ns = now_ns + least_ns;
	node->sent_bytes = sum.bytes;
	node->busy_ns = sum.busy_ns;
	SP_SHARED_STORE(node->moved_ns, now_ns);
	SP_SHARED_STORE(node->next_ns, due_ns);
	return 0;
}

/* Takes the steps that are due; returns window and phase. The caller works on a frame. */
SP_SHARED_GLOBAL __u64 sp_shared_turn(__u32 group, __u32 cpu_index)
{
	struct sp_shared_node *node = sp_shared_node(group);
	struct sp_shared_cpu *own = sp_shared_cpu(group & (SP_SHARED_GROUPS - 1),
						 cpu_index & (SP_SHARED_CPUS - 1));
	__u64 word = 0, window, next;

	if (!node || !own || group >= SP_SHARED_GROUPS)
		return 0;
	/* (A window has four steps, or five. The next frame goes on where this one stops.) */
	for (int step = 0; step < 6; step++) {
		word = SP_SHARED_LOAD(node->word);
		window = SP_SHARED_WINDOW(word);
		SP_SHARED_STORE(own->frame, word);
		if (SP_SHARED_LOAD(node->sealed))
			break;
		if (SP_SHARED_PHASE(word) == SP_SHARED_ADVANCED) {
			struct sp_shared_reset reset = { .group = group, .side = window & 1 };
			struct sp_shared_member *self;

			if (node->next_ns && sp_now_ns() < SP_SHARED_LOAD(node->next_ns))
				break;
			if (!sp_shared_drained(group, word, node->cpus))
				break;
			next = SP_SHARED_WORD(window, SP_SHARED_RESETTING);
			if (__sync_val_compare_and_swap(&node->word, word, next) != word)
				continue;
			self = sp_shared_member(group, node->own & (SP_SHARED_MEMBERS - 1));
			bpf_loop(node->limit, sp_shared_reset_member, &reset, 0);
			node->complete = 0;
			SP_SHARED_STORE(node->ready[(window + 1) & 1], 0);
			if (node->period_ns || node->byte_time || node->cpu_percent)
				sp_shared_pace(group, node, window);
			if (self) {
				self->ready = window;
				sp_shared_count_ready(node, window);
			}
			next = SP_SHARED_WORD(window, SP_SHARED_READY);
			__sync_lock_test_and_set(&node->word, next);
		} else if (SP_SHARED_PHASE(word) == SP_SHARED_READY) {
			if (SP_SHARED_LOAD(node->all_ready) < window &&
			    SP_SHARED_LOAD(node->ready[window & 1]) != node->count)
				break;
			next = SP_SHARED_WORD(window, SP_SHARED_TURNING);
			if (__sync_val_compare_and_swap(&node->word, word, next) != word)
				continue;
			if (!node->filled) {
				node->most_cells[(window + 1) & 1] = 0;
				node->dirty_blocks[(window + 1) & 1] = 0;
			}
			next = SP_SHARED_WORD(window, SP_SHARED_ROTATED);
			__sync_lock_test_and_set(&node->word, next);
		} else if (SP_SHARED_PHASE(word) == SP_SHARED_ROTATED) {
			if (!sp_shared_drained(group, word, node->cpus))
				break;
			next = SP_SHARED_WORD(window, SP_SHARED_GATHERING);
			if (node->tree)
				__sync_val_compare_and_swap(&node->word, word, next);
			else
				sp_shared_begin_sending(group, node, word);
		} else if (SP_SHARED_PHASE(word) == SP_SHARED_GATHERING) {
			/* (All neighbours but the parent: the children.) */
			if (SP_SHARED_LOAD(node->complete) + 1 + sp_shared_is_below(node) != node->count)
				break;
			sp_shared_begin_sending(group, node, word);
		} else if (SP_SHARED_PHASE(word) == SP_SHARED_SENDING) {
			/* (With a parent, this switch's own messages are in the parent's.) */
			if (SP_SHARED_LOAD(node->complete) != node->count - sp_shared_is_below(node))
				break;
			next = SP_SHARED_WORD(window + 1, SP_SHARED_ADVANCED);
			/* (Before the word: a CPU that sees the window sees when it began.) */
			SP_SHARED_STORE(node->began_ns[(window + 1) & 1], sp_now_ns());
			if (__sync_val_compare_and_swap(&node->word, word, next) != word)
				continue;
			sp_shared_count(SP_SHARED_STAT_WINDOWS);
			sp_shared_time_window(group, node, window);
		} else {
			break; /* another CPU is about to go on */
		}
	}
	word = SP_SHARED_LOAD(node->word);
	SP_SHARED_STORE(own->frame, word);
	return word;
}

#include "stateplane_shared_merge.h"
#include "stateplane_shared_frame.h"

#endif
