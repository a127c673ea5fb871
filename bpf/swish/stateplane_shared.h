/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared.h: variables with SDW of stateplane/swish.p4: updates and reads of a packet
 * (SwiSh §6.3, systems/swish/README.md).
 *
 * Owns: the maps, pins of packets, the delta that takes updates. Must not know: frames, when a
 * window turns (stateplane_shared_window.h).
 *
 * The emitted program defines, before it includes this:
 *   SP_SHARED_BLOCKS        blocks of all groups
 *   SP_SHARED_MESSAGES      messages that a switch may send in a window: the blocks of its largest
 *                           group
 *   SP_SHARED_MEMBERS       members that a group has room for: a power of two
 *   SP_SHARED_HELD_GROUPS   groups with variables with SDW have numbers below this
 *   SP_SHARED_OBJECTS(X)    X(name, group, first block, cells, how it merges, drops when full,
 *                           windows of its period or 0)
 *   SP_SHARED_UPDATES       updates of one packet at the most
 * and what stateplane_shared_own.h wants.
 */
#ifndef STATEPLANE_SHARED_H
#define STATEPLANE_SHARED_H

#include "stateplane_shared_message.h"
#include "stateplane_shared_own.h"

/* The window and the phase are one word, so that a switch of either is one compare-and-swap. */
#define SP_SHARED_WORD(window, phase) ((window) << 3 | (phase))
#define SP_SHARED_WINDOW(word) ((word) >> 3)
#define SP_SHARED_PHASE(word) ((word)&7)
/* Pins: no packet is under way; a packet is, and has not noted its window yet. */
#define SP_SHARED_NO_PIN 0
#define SP_SHARED_UNKNOWN_PIN 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SP_SHARED_BLOCKS);
	__type(key, __u32);
	__type(value, struct sp_shared_block);
} sp_shared_blocks SEC(".maps");

/* Blocks that packets changed in a rotation: two lists for each group. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * SP_SHARED_BLOCKS);
	__type(key, __u32);
	__type(value, __u32);
} sp_shared_dirty_blocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SP_SHARED_GROUPS);
	__type(key, __u32);
	__type(value, struct sp_shared_node);
} sp_shared_nodes SEC(".maps");

/* By group, then CPU: not a map by CPU, as other CPUs read the pins. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SP_SHARED_GROUPS *SP_SHARED_CPUS);
	__type(key, __u32);
	__type(value, struct sp_shared_cpu);
} sp_shared_cpus SEC(".maps");

/* An update that takes effect at the packet's verdict: a packet that runs again counts once. */
struct sp_shared_update {
	__u32 block;
	__u32 by;
	__u16 cell;
	__u16 group;
};

/* With a packet through the pipeline. */
struct sp_shared_context {
	/* By group: the window and the phase at the packet's first access; 0: there was none. */
	__u64 word[SP_SHARED_GROUPS];
	__u32 updates;
	__u32 refused; /* an object with WhenFull.DROP took no more */
	struct sp_shared_update update[SP_SHARED_UPDATES];
};

SP_INLINE struct sp_shared_cpu *sp_shared_cpu(__u32 group, __u32 cpu)
{
	__u32 at = group * SP_SHARED_CPUS + cpu;

	return bpf_map_lookup_elem(&sp_shared_cpus, &at);
}

SP_INLINE struct sp_shared_node *sp_shared_node(__u32 group)
{
	return bpf_map_lookup_elem(&sp_shared_nodes, &group);
}

SP_INLINE struct sp_shared_block *sp_shared_block(__u32 block)
{
	return bpf_map_lookup_elem(&sp_shared_blocks, &block);
}

/*
 * cell / SP_SHARED_CELLS and cell / SP_SHARED_LINE_CELLS by multiplication. The JIT compiler makes
 * a division of each "/", which costs as much as a look-up, and a packet has several of them.
 */
_Static_assert(SP_SHARED_CELLS == 360 && SP_SHARED_LINE_CELLS == 15, "other factors are needed");
/* Right below 2^40 / 344. */
SP_INLINE __u32 sp_shared_block_of(__u32 cell)
{
	return (cell * 3054198967ull) >> 40;
}
/* Right below 2^16 / 14: in a block. */
SP_INLINE __u32 sp_shared_line_of(__u32 cell)
{
	return (cell * 4370) >> 16;
}

/* Where in its block a cell of a group is. (The verifier knows no bound of it.) */
SP_INLINE __u64 sp_shared_within(__u32 cell)
{
	return sp_below(cell - sp_shared_block_of(cell) * SP_SHARED_CELLS, SP_SHARED_CELLS);
}

/*
 * The rotation that takes the updates of a packet with this pin. Each rotation is sent in the
 * window of its number, so r = 2NB (systems/swish/README.md, "Rotation at the last ready").
 */
SP_INLINE __u64 sp_shared_rotation(__u64 word)
{
	return SP_SHARED_WINDOW(word) + (SP_SHARED_PHASE(word) >= SP_SHARED_ROTATED);
}

/*
 * Pins the packet to the window. "Unknown" first: between a load of the window and the pin the
 * window could turn without waiting for this packet. Returns 0 before the group has begun, and
 * while this switch is to leave it.
 */
SP_INLINE __u64 sp_shared_pin(struct sp_shared_context *shared, __u32 group)
{
	struct sp_shared_cpu *cpu;
	struct sp_shared_node *node;
	__u64 word;

	if (shared->word[group])
		return shared->word[group];
	cpu = sp_shared_cpu(group, sp_shared_this_cpu());
	node = sp_shared_node(group);
	if (!cpu || !node)
		return 0;
	__sync_lock_test_and_set(&cpu->packet, SP_SHARED_UNKNOWN_PIN);
	word = SP_SHARED_LOAD(node->closed) ? 0 : SP_SHARED_LOAD(node->word);
	SP_SHARED_STORE(cpu->packet, word);
	shared->word[group] = word;
	return word;
}

/* The value that a packet of this window reads: the larger window below it. 0 is below all. */
SP_INLINE __u32 sp_shared_read_side(const struct sp_shared_block *block, __u64 window)
{
	__u64 first = SP_SHARED_LOAD(block->window[0]), second = SP_SHARED_LOAD(block->window[1]);

	if (first >= window)
		return 1;
	if (second >= window)
		return 0;
	return second > first;
}

/*
 * Is a value that includes nothing newer than this window of an earlier period than the rotation?
 * Windows' numbers decide, so all switches begin anew in the same window, and need no message for
 * it. (`newest` is not above the rotation.)
 */
SP_INLINE int sp_shared_is_over(__u32 period, __u64 newest, __u64 rotation)
{
	return period && newest < rotation - rotation % period;
}

/*
 * The same for a packet. A division takes as long as three look-ups, and many packets of a CPU see
 * the same window, so the CPU keeps the last quotient.
 */
SP_INLINE int sp_shared_is_over_now(__u32 group, __u32 period, __u64 newest, __u64 rotation)
{
	struct sp_shared_cpu *cpu;

	if (!period || newest >= rotation)
		return 0;
	cpu = sp_shared_cpu(group, sp_shared_this_cpu());
	if (!cpu)
		return 0;
	if (cpu->period_of != rotation || cpu->period != period) {
		cpu->period_first = rotation - rotation % period;
		cpu->period_of = rotation;
		cpu->period = period;
	}
	return newest < cpu->period_first;
}

SP_INLINE __u32 sp_shared_read(struct sp_shared_context *shared, __u32 group, __u32 first,
			       __u32 cells, __u32 period, __u32 index)
{
	__u64 word = sp_shared_pin(shared, group), window = SP_SHARED_WINDOW(word);
	struct sp_shared_block *block;
	__u32 side;

	if (index >= cells || !word)
		return 0;
	block = sp_shared_block(first + sp_shared_block_of(index));
	if (!block)
		return 0;
	side = sp_shared_read_side(block, window) & 1;
	/* (The newest rotation that a packet of the window can see is the one before it.) */
	if (sp_shared_is_over_now(group, period, SP_SHARED_LOAD(block->window[side]), window - 1))
		return 0;
	return SP_SHARED_LOAD(block->value[side][sp_shared_within(index)]);
}

/* Takes one from the CPU's share of B, the updates that a rotation may have (SwiSh §6.3). 0: none
 * is left (counted). */
SP_INLINE int sp_shared_charge(struct sp_shared_cpu *cpu, __u64 rotation, __u32 drops, int fits)
{
	if (cpu->rotation != rotation) {
		cpu->rotation = rotation;
		cpu->used = 0;
	}
	if (cpu->used >= cpu->share || !fits) {
		sp_shared_count(drops ? SP_SHARED_STAT_FULL_DROPPED : SP_SHARED_STAT_FULL_PASSED);
		return 0;
	}
	cpu->used++;
	return 1;
}

/* Notes an update for the packet's verdict. */
SP_INLINE void sp_shared_update(struct sp_shared_context *shared, __u32 group, __u32 first,
				__u32 cells, __u32 drops, __u32 index, __u32 by)
{
	__u64 word = sp_shared_pin(shared, group), rotation = sp_shared_rotation(word);
	struct sp_shared_cpu *cpu = sp_shared_cpu(group, sp_shared_this_cpu());
	struct sp_shared_update *update;

	if (index >= cells || !word || !cpu)
		return;
	if (!sp_shared_charge(cpu, rotation, drops, shared->updates < SP_SHARED_UPDATES)) {
		shared->refused |= drops;
		return;
	}
	update = sp_element(&shared->update[0]) + sp_below(shared->updates, SP_SHARED_UPDATES);
	update->block = first + sp_shared_block_of(index);
	update->cell = index - sp_shared_block_of(index) * SP_SHARED_CELLS;
	update->by = by;
	update->group = group;
	shared->updates++;
}

/* The first change of a block in a rotation puts it on the rotation's list. */
static __noinline int sp_shared_list_block(struct sp_shared_node *node, __u32 side, __u32 block)
{
	__u32 at = 2 * node->first + side * node->blocks +
		   __sync_fetch_and_add(&node->dirty_blocks[side & 1], 1);
	__u32 *place = bpf_map_lookup_elem(&sp_shared_dirty_blocks, &at);

	if (place)
		*place = block;
	return 0;
}

/* A block of the rotation has so many changed cells. */
SP_INLINE void sp_shared_raise_most(struct sp_shared_node *node, __u32 side, __u32 cells)
{
	int i;

	for (i = 0; i < SP_SHARED_TRIES; i++) {
		__u32 most = SP_SHARED_LOAD(node->most_cells[side & 1]);

		if (most >= cells ||
		    __sync_val_compare_and_swap(&node->most_cells[side & 1], most, cells) == most)
			break;
	}
	if (i == SP_SHARED_TRIES)
		__sync_lock_test_and_set(&node->most_cells[side & 1], SP_SHARED_CELLS);
}

/* Looks at a line that another CPU clears, at the most. Clearing takes as long as a few looks. */
#define SP_SHARED_SPINS 100000

struct sp_shared_spin {
	__u64 rotation;
	__u32 block;
	__u32 side;
	__u32 line;
	__u32 done;
	__u32 cell;
	__u32 by;
	__u32 merge;
};

static long sp_shared_line_ready(__u64 i, struct sp_shared_spin *spin)
{
	struct sp_shared_block *block = sp_shared_block(spin->block);
	__u64 line;

	if (!block)
		return 1;
	line = SP_SHARED_LOAD(block->line[spin->side & 1][sp_below(spin->line, SP_SHARED_LINES)]);
	spin->done = line >> 16 == spin->rotation && !(line & SP_SHARED_CLEARING);
	return spin->done;
}

/*
 * The line is of this rotation when it returns 1. A line that was last changed in an older one is
 * cleared first, by the CPU that claims it: there is no pass over the array.
 */
SP_SHARED_GLOBAL int sp_shared_claim_line(__u32 number, __u32 side, __u32 line, __u64 rotation)
{
	struct sp_shared_spin spin = { .rotation = rotation, .block = number, .side = side,
				       .line = line };
	struct sp_shared_block *block = sp_shared_block(number);
	__u64 *place, old, fresh = rotation << 16;
	__u32 *cells;

	if (side > 1 || line >= SP_SHARED_LINES || !block)
		return 0;
	place = &block->line[side][line];
	old = SP_SHARED_LOAD(*place);
	/* (One that is newer would be of a packet behind this one: the pins forbid it.) */
	if (old >> 16 != rotation &&
	    __sync_val_compare_and_swap(place, old, fresh | SP_SHARED_CLEARING) == old) {
		cells = &block->delta[side][line * SP_SHARED_LINE_CELLS];
		for (int i = 0; i < SP_SHARED_LINE_CELLS; i++)
			cells[i] = 0;
		/* A full barrier: the zeros are there before anybody adds. */
		__sync_lock_test_and_set(place, fresh);
		return 1;
	}
	bpf_loop(SP_SHARED_SPINS, sp_shared_line_ready, &spin, 0);
	return spin.done;
}

/* Is the block one of the object's? */
#define SP_SHARED_HAS(block, first, cells)                                                       \
	((block) >= (first) &&                                                                   \
	 (block) < (first) + ((cells) + SP_SHARED_CELLS - 1) / SP_SHARED_CELLS)
/* What the program says of an object. */
struct sp_shared_rules {
	__u32 merge;
	__u32 period; /* windows after which it begins anew; 0: it never does */
	__u32 drops; /* a packet is dropped whose update finds no room */
};
#define SP_SHARED_RULES_OF(name, group, first, cells, merge, drops, period)                      \
	if (SP_SHARED_HAS(block, first, cells))                                                  \
		return (struct sp_shared_rules){ merge, period, drops };

SP_INLINE struct sp_shared_rules sp_shared_rules_of(__u32 block)
{
	SP_SHARED_OBJECTS(SP_SHARED_RULES_OF)
	return (struct sp_shared_rules){ SP_SHARED_SUM, 0, 0 };
}

SP_INLINE __u32 sp_shared_merge_of(__u32 block)
{
	return sp_shared_rules_of(block).merge;
}

SP_INLINE __u32 sp_shared_period_of(__u32 block)
{
	return sp_shared_rules_of(block).period;
}

/* One look at a cell that becomes the larger one. */
static long sp_shared_raise(__u64 i, struct sp_shared_spin *spin)
{
	struct sp_shared_block *block = sp_shared_block(spin->block);
	__u32 *place, seen;

	if (!block)
		return 1;
	place = &block->delta[spin->side & 1][sp_below(spin->cell, SP_SHARED_CELLS)];
	seen = SP_SHARED_LOAD(*place);
	return seen >= spin->by || __sync_val_compare_and_swap(place, seen, spin->by) == seen;
}

/* One look at a cell that merges as a function of the program says. */
static long sp_shared_join(__u64 i, struct sp_shared_spin *spin)
{
	struct sp_shared_block *block = sp_shared_block(spin->block);
	__u32 *place, seen, made;

	if (!block)
		return 1;
	place = &block->delta[spin->side & 1][sp_below(spin->cell, SP_SHARED_CELLS)];
	seen = SP_SHARED_LOAD(*place);
	made = sp_shared_own(spin->merge, seen, spin->by);
	return made == seen || __sync_val_compare_and_swap(place, seen, made) == seen;
}

/* Puts an update into the delta that packets of this window and phase change. */
SP_SHARED_GLOBAL int sp_shared_apply(__u64 word, __u32 group, __u32 number, __u32 cell, __u32 by)
{
	struct sp_shared_block *block = sp_shared_block(number);
	struct sp_shared_node *node = sp_shared_node(group);
	__u64 rotation = sp_shared_rotation(word), line, old, fresh = 0, bit;
	__u32 side = rotation & 1, *place, merge;
	int i;

	if (!block || !node || cell >= SP_SHARED_CELLS)
		return 0;
	line = sp_below(sp_shared_line_of(cell), SP_SHARED_LINES);
	old = SP_SHARED_LOAD(block->line[side][line]);
	if ((old >> 16 != rotation || old & SP_SHARED_CLEARING) &&
	    !sp_shared_claim_line(number, side, line, rotation)) {
		sp_shared_count(SP_SHARED_STAT_LINE_STUCK);
		return 0;
	}
	place = &block->delta[side][cell];
	merge = sp_shared_merge_of(number);
	if (merge == SP_SHARED_SUM) {
		__sync_fetch_and_add(place, by);
	} else if (merge == SP_SHARED_OR) {
		if ((SP_SHARED_LOAD(*place) & by) != by)
			__sync_fetch_and_or(place, by);
	} else if (sp_shared_is_own(merge)) {
		struct sp_shared_spin spin = { .block = number, .side = side, .cell = cell, .by = by,
					       .merge = merge };

		bpf_loop(SP_SHARED_SPINS, sp_shared_join, &spin, 0);
	} else if (SP_SHARED_LOAD(*place) < by) {
		struct sp_shared_spin spin = { .block = number, .side = side, .cell = cell, .by = by };

		bpf_loop(SP_SHARED_SPINS, sp_shared_raise, &spin, 0);
	}
	bit = 1ull << (cell - sp_shared_line_of(cell) * SP_SHARED_LINE_CELLS);
	if (SP_SHARED_LOAD(block->line[side][line]) & bit)
		return 0;
	if (__sync_fetch_and_or(&block->line[side][line], bit) & bit)
		return 0;
	/* How many cells of the block changed decides how it is sent: in one word with the rotation. */
	for (i = 0; i < SP_SHARED_TRIES; i++) {
		old = SP_SHARED_LOAD(block->changed[side]);
		fresh = old >> 16 == rotation ? old + 1 : rotation << 16 | 1;
		if (__sync_val_compare_and_swap(&block->changed[side], old, fresh) == old)
			break;
	}
	if (old >> 16 != rotation)
		sp_shared_list_block(node, side, number - node->first);
	/* (So many CPUs at once that this one was never lucky: whole blocks need no count.) */
	if (i == SP_SHARED_TRIES)
		fresh = SP_SHARED_CELLS;
	sp_shared_raise_most(node, side, fresh & 0xffff);
	return 0;
}

/* An update that does not take effect leaves its place to another one. */
SP_INLINE void sp_shared_give_back(__u32 group)
{
	struct sp_shared_cpu *cpu =
		sp_shared_cpu(group & (SP_SHARED_GROUPS - 1), sp_shared_this_cpu());

	if (cpu && cpu->used)
		cpu->used--;
}

/*
 * The packet's verdict: its updates take effect, and its pins go. Not 0: it is dropped, as an
 * object with WhenFull.DROP took no more.
 */
SP_INLINE int sp_shared_commit(struct sp_shared_context *shared)
{
	for (__u32 i = 0; i < SP_SHARED_UPDATES; i++) {
		if (i >= shared->updates)
			break;
		if (shared->refused) {
			sp_shared_give_back(shared->update[i].group);
			continue;
		}
		sp_shared_apply(shared->word[shared->update[i].group & (SP_SHARED_GROUPS - 1)],
				shared->update[i].group, shared->update[i].block,
				shared->update[i].cell, shared->update[i].by);
	}
	shared->updates = 0;
	for (__u32 group = 0; group < SP_SHARED_GROUPS; group++) {
		struct sp_shared_cpu *cpu;

		if (!shared->word[group])
			continue;
		shared->word[group] = 0;
		cpu = sp_shared_cpu(group, sp_shared_this_cpu());
		if (!cpu)
			continue;
		/* After all that the packet did: an exchange, where a store could come before it. */
		if (sp_total_store_order)
			SP_SHARED_STORE(cpu->packet, SP_SHARED_NO_PIN);
		else
			__sync_lock_test_and_set(&cpu->packet, SP_SHARED_NO_PIN);
	}
	return shared->refused;
}

/* The packet enters the program again, from its beginning. */
SP_INLINE void sp_shared_forget(struct sp_shared_context *shared)
{
	shared->refused = 1;
	sp_shared_commit(shared);
	shared->refused = 0;
}

/*
 * The packet waited, and leaves now: its updates are of this window, and take from this CPU's
 * share. (What its CPU had given it was given back: sp_shared_forget.)
 */
SP_INLINE void sp_shared_renew(struct sp_shared_context *shared)
{
	__u32 kept = 0;

	for (__u32 i = 0; i < SP_SHARED_UPDATES; i++) {
		struct sp_shared_update update;
		struct sp_shared_cpu *cpu;
		__u32 group, drops;
		__u64 word;

		if (i >= shared->updates)
			break;
		update = shared->update[i];
		group = update.group & (SP_SHARED_GROUPS - 1);
		word = sp_shared_pin(shared, group);
		cpu = sp_shared_cpu(group, sp_shared_this_cpu());
		if (!word || !cpu)
			continue;
		drops = sp_shared_rules_of(update.block).drops;
		if (!sp_shared_charge(cpu, sp_shared_rotation(word), drops, 1)) {
			shared->refused |= drops;
			continue;
		}
		sp_element(&shared->update[0])[sp_below((__u64)kept, SP_SHARED_UPDATES)] = update;
		kept++;
	}
	shared->updates = kept;
}

/* What the packet has noted is for when it leaves: in a window of then, and without a pin now. */
SP_INLINE void sp_shared_keep(struct sp_shared_context *kept,
			      const struct sp_shared_context *shared)
{
	for (__u32 group = 0; group < SP_SHARED_GROUPS; group++)
		kept->word[group] = 0;
	kept->refused = 0;
	kept->updates = shared->refused ? 0 : shared->updates;
	for (__u32 i = 0; i < SP_SHARED_UPDATES; i++) {
		if (i >= shared->updates)
			break;
		kept->update[i] = shared->update[i];
	}
}

/* The window that the packet sees; 0: the group has not begun. */
SP_INLINE __u64 sp_shared_window(struct sp_shared_context *shared, __u32 group)
{
	return SP_SHARED_WINDOW(sp_shared_pin(shared, group));
}

/* Microseconds since this switch began it. */
SP_INLINE __u32 sp_shared_age(struct sp_shared_context *shared, __u32 group)
{
	struct sp_shared_node *node = sp_shared_node(group);
	__u64 window = SP_SHARED_WINDOW(sp_shared_pin(shared, group)), began_ns, now_ns = sp_now_ns();

	began_ns = node ? SP_SHARED_LOAD(node->began_ns[window & 1]) : now_ns;
	if (began_ns > now_ns)
		return 0;
	now_ns = (now_ns - began_ns) / 1000;
	return now_ns < 0xffffffff ? now_ns : 0xffffffff;
}

/* The functions of each object, as the program calls them. */
#define SP_SHARED_FUNCTIONS(name, group, first, cells, merge, drops, period)                     \
	SP_INLINE void name##_update(struct sp_shared_context *shared, __u32 index, __u32 by)    \
	{                                                                                        \
		sp_shared_update(shared, group, first, cells, drops, index, by);                 \
	}                                                                                        \
	SP_INLINE __u32 name##_get(struct sp_shared_context *shared, __u32 index)                \
	{                                                                                        \
		return sp_shared_read(shared, group, first, cells, period, index);               \
	}
SP_SHARED_OBJECTS(SP_SHARED_FUNCTIONS)

#include "stateplane_shared_window.h"

#endif
