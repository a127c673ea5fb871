/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_eventual.h: variables with EWO of stateplane/swish.p4: updates and reads of a packet
 * (SwiSh §6.2, systems/swish/README.md).
 *
 * Owns: the maps, and the list of changed cells. Must not know: frames.
 *
 * A cell has a slot for each life of a switch (a switch between two restarts), and the sum of all
 * slots beside them, which is what a packet reads. A switch adds to its own slot, so slots only
 * grow, and the larger one is the newer one. Cells of other kinds merge as they are: a value that
 * comes again changes nothing, so they have no slots.
 *
 * The emitted program defines, before it includes this:
 *   SP_EVENTUAL_CELLS       cells of all groups
 *   SP_EVENTUAL_SLOTTED     those of them that have slots, which come first
 *   SP_EVENTUAL_COLUMNS     slots of a cell, and SP_EVENTUAL_BASES more
 *   SP_EVENTUAL_LISTED      changed cells of a group that can wait: a power of two
 *   SP_EVENTUAL_OBJECTS(X)  X(name, group, first cell, cells, lanes, how it merges)
 *   SP_EVENTUAL_UPDATES     updates of one packet at the most
 *   SP_LWW_RECORDS          registers, tables and sets have records: stateplane_lww.h
 * and what stateplane_shared_own.h wants.
 */
#ifndef STATEPLANE_EVENTUAL_H
#define STATEPLANE_EVENTUAL_H

#include "stateplane_shared_message.h"
#include "stateplane_shared_own.h"
#include "stateplane_eventual_layouts.h"

#define SP_EVENTUAL_IS_BASE(life) ((__u32)(life) == SP_EVENTUAL_BASE)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SP_EVENTUAL_CELLS);
	__type(key, __u32);
	__type(value, struct sp_eventual_cell);
} sp_eventual_cells SEC(".maps");

/* By column, then cell. Column 0 is this switch's own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SP_EVENTUAL_COLUMNS *SP_EVENTUAL_SLOTTED + 1);
	__type(key, __u32);
	__type(value, __u64);
} sp_eventual_slots SEC(".maps");

/* By group, then column: the life that has the slots; 0: none yet. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS *SP_EVENTUAL_COLUMNS);
	__type(key, __u32);
	__type(value, __u64);
} sp_eventual_columns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS);
	__type(key, __u32);
	__type(value, struct sp_eventual_node);
} sp_eventual_nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS);
	__type(key, __u32);
	__type(value, struct sp_eventual_ends);
} sp_eventual_ends SEC(".maps");

/* By group: changed cells, one after another. The upper half of a word says which place it is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS *SP_EVENTUAL_LISTED);
	__type(key, __u32);
	__type(value, __u64);
} sp_eventual_list SEC(".maps");

/* An update that takes effect at the packet's verdict: a packet that runs again counts once. */
struct sp_eventual_update {
	__u32 cell;
	__u32 by;
};

/* With a packet through the pipeline. */
struct sp_eventual_context {
	__u32 updates;
	__u32 writes; /* of records: stateplane_lww.h */
	struct sp_eventual_update update[SP_EVENTUAL_UPDATES];
};

SP_INLINE struct sp_eventual_cell *sp_eventual_cell(__u32 cell)
{
	return bpf_map_lookup_elem(&sp_eventual_cells, &cell);
}

SP_INLINE __u64 *sp_eventual_slot(__u32 column, __u32 cell)
{
	__u32 at = column * SP_EVENTUAL_SLOTTED + cell;

	return bpf_map_lookup_elem(&sp_eventual_slots, &at);
}

SP_INLINE struct sp_eventual_node *sp_eventual_node(__u32 group)
{
	return bpf_map_lookup_elem(&sp_eventual_nodes, &group);
}

SP_INLINE struct sp_eventual_ends *sp_eventual_ends_of(__u32 group)
{
	return bpf_map_lookup_elem(&sp_eventual_ends, &group);
}

SP_INLINE __u64 *sp_eventual_listed(__u32 group, __u64 place)
{
	__u32 at = group * SP_EVENTUAL_LISTED + (place & (SP_EVENTUAL_LISTED - 1));

	return bpf_map_lookup_elem(&sp_eventual_list, &at);
}

SP_INLINE __u64 sp_eventual_list_word(__u64 place, __u32 cell)
{
	return (place + 1) << 32 | cell;
}

#define SP_EVENTUAL_MERGE_OF(name, group, first, cells, lanes, merge)                            \
	if (cell >= (first) && cell < (first) + (cells) * (lanes))                               \
		return merge;
#define SP_EVENTUAL_GROUP_OF(name, group, first, cells, lanes, merge)                            \
	if (cell >= (first) && cell < (first) + (cells) * (lanes))                               \
		return group;

/* How a cell merges. */
SP_INLINE __u32 sp_eventual_merge_of(__u32 cell)
{
	SP_EVENTUAL_OBJECTS(SP_EVENTUAL_MERGE_OF)
	return SP_SHARED_SUM;
}

SP_INLINE __u32 sp_eventual_group_of(__u32 cell)
{
	SP_EVENTUAL_OBJECTS(SP_EVENTUAL_GROUP_OF)
	return 0;
}

struct sp_eventual_raise {
	__u64 value;
	__u32 cell;
	__u32 raised;
	__u32 merge;
};

/* One look at a cell that merges as a function of the program says. */
static long sp_eventual_join_once(__u64 i, struct sp_eventual_raise *raise)
{
	struct sp_eventual_cell *cell = sp_eventual_cell(raise->cell);
	__u64 seen, made;

	if (!cell)
		return 1;
	seen = SP_SHARED_LOAD(cell->value);
	made = sp_shared_own(raise->merge, seen, raise->value);
	if (made == seen)
		return 1;
	raise->raised = __sync_val_compare_and_swap(&cell->value, seen, made) == seen;
	return raise->raised;
}

/* One look at a cell that becomes the larger one. */
static long sp_eventual_raise_once(__u64 i, struct sp_eventual_raise *raise)
{
	struct sp_eventual_cell *cell = sp_eventual_cell(raise->cell);
	__u64 seen;

	if (!cell)
		return 1;
	seen = SP_SHARED_LOAD(cell->value);
	if (seen >= raise->value)
		return 1;
	raise->raised = __sync_val_compare_and_swap(&cell->value, seen, raise->value) == seen;
	return raise->raised;
}

/* Looks at a cell that other CPUs change, at the most. */
#define SP_EVENTUAL_LOOKS 10000

/* A cell without slots is merged with a value. 1: it is another one then. */
SP_SHARED_GLOBAL int sp_eventual_raise_cell(__u32 number, __u64 value)
{
	__u32 merge = sp_eventual_merge_of(number);
	struct sp_eventual_raise raise = { .value = value, .cell = number, .merge = merge };
	struct sp_eventual_cell *cell = sp_eventual_cell(number);

	if (!cell)
		return 0;
	if (sp_shared_is_own(merge)) {
		bpf_loop(SP_EVENTUAL_LOOKS, sp_eventual_join_once, &raise, 0);
		return raise.raised;
	}
	if (merge == SP_SHARED_OR) {
		if ((SP_SHARED_LOAD(cell->value) & value) == value)
			return 0;
		__sync_fetch_and_or(&cell->value, value);
		return 1;
	}
	bpf_loop(SP_EVENTUAL_LOOKS, sp_eventual_raise_once, &raise, 0);
	return raise.raised;
}

/*
 * A packet's update. A cell is on the list once until a member is sent it: then no message is sent
 * for a packet, and a cell that changes often takes one place.
 */
SP_SHARED_GLOBAL int sp_eventual_apply(__u32 number, __u32 by)
{
	struct sp_eventual_cell *cell = sp_eventual_cell(number);
	__u32 group = sp_eventual_group_of(number);
	struct sp_eventual_node *node = sp_eventual_node(group);
	struct sp_eventual_ends *ends = sp_eventual_ends_of(group);
	__u64 place, *slot;

	if (!cell || !node || !ends || !by)
		return 0;
	if (number < SP_EVENTUAL_SLOTTED) {
		slot = sp_eventual_slot(0, number);
		if (!slot)
			return 0;
		/* (The slot first: a frame that reads the sum reads the slot, too.) */
		__sync_fetch_and_add(slot, by);
		__sync_fetch_and_add(&cell->value, by);
	} else if (!sp_eventual_raise_cell(number, by)) {
		return 0;
	}
	/*
	 * A frame raises `taken` before it reads the cells, and this reads `taken` after the change: so
	 * the frame brings the change, or the cell is listed again.
	 */
	if (SP_SHARED_LOAD(cell->listed) > SP_SHARED_LOAD(ends->taken) || node->count < 2)
		return 0;
	place = __sync_fetch_and_add(&ends->listed, 1);
	slot = sp_eventual_listed(group, place);
	if (slot)
		SP_SHARED_STORE(*slot, sp_eventual_list_word(place, number));
	SP_SHARED_STORE(cell->listed, place + 1);
	return 0;
}

/* Notes an update for the packet's verdict. */
SP_INLINE void sp_eventual_note(struct sp_eventual_context *eventual, __u32 first, __u32 cells,
				__u32 index, __u32 by)
{
	struct sp_eventual_update *update;

	if (index >= cells || eventual->updates >= SP_EVENTUAL_UPDATES)
		return;
	update = sp_element(&eventual->update[0]) + sp_below(eventual->updates, SP_EVENTUAL_UPDATES);
	update->cell = first + index;
	update->by = by;
	eventual->updates++;
}

SP_INLINE __u64 sp_eventual_read(__u32 first, __u32 cells, __u32 index)
{
	struct sp_eventual_cell *cell;

	if (index >= cells)
		return 0;
	cell = sp_eventual_cell(first + index);
	return cell ? SP_SHARED_LOAD(cell->value) : 0;
}

#ifdef SP_LWW_RECORDS
#include "stateplane_lww.h"
#endif

/* The packet enters the program again: it has changed nothing. */
SP_INLINE void sp_eventual_forget(struct sp_eventual_context *eventual)
{
	eventual->updates = 0;
	eventual->writes = 0;
}

/* What the packet has noted is for when it leaves. (Writes of records: sp_lww_keep.) */
SP_INLINE void sp_eventual_keep(struct sp_eventual_context *kept,
				const struct sp_eventual_context *eventual)
{
	kept->updates = eventual->updates;
	kept->writes = eventual->writes;
	for (__u32 i = 0; i < SP_EVENTUAL_UPDATES; i++) {
		if (i >= eventual->updates)
			break;
		kept->update[i] = eventual->update[i];
	}
}

/* The packet's verdict: its updates take effect. */
SP_INLINE void sp_eventual_commit(struct sp_eventual_context *eventual)
{
#ifdef SP_LWW_RECORDS
	for (__u32 i = 0; i < SP_LWW_WRITES; i++) {
		if (i >= eventual->writes)
			break;
		sp_lww_commit(i);
	}
#endif
	for (__u32 i = 0; i < SP_EVENTUAL_UPDATES; i++) {
		if (i >= eventual->updates)
			break;
		sp_eventual_apply(eventual->update[i].cell, eventual->update[i].by);
	}
	sp_eventual_forget(eventual);
}

/* The functions of each object, as the program calls them. */
#define SP_EVENTUAL_FUNCTIONS(name, group, first, cells, lanes, merge)                           \
	SP_INLINE void name##_update(struct sp_eventual_context *eventual, __u32 index, __u32 by) \
	{                                                                                        \
		sp_eventual_note(eventual, first, cells, index, by);                             \
	}                                                                                        \
	SP_INLINE void name##_sub(struct sp_eventual_context *eventual, __u32 index, __u32 by)   \
	{                                                                                        \
		sp_eventual_note(eventual, (first) + (cells), cells, index, by);                 \
	}                                                                                        \
	SP_INLINE __u32 name##_get(__u32 index)                                                  \
	{                                                                                        \
		__u64 value = sp_eventual_read(first, cells, index);                             \
                                                                                                 \
		if ((lanes) == 2)                                                                \
			value -= sp_eventual_read((first) + (cells), cells, index);              \
		return value;                                                                    \
	}
SP_EVENTUAL_OBJECTS(SP_EVENTUAL_FUNCTIONS)

#include "stateplane_eventual_frame.h"

#endif
