/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_lww.h: registers, tables and sets with EWO of stateplane/swish.p4: the last writer
 * wins (SwiSh §6.2, systems/swish/README.md). Part of stateplane_eventual.h.
 *
 * Owns: records, their places, the clock of writes, what packets read and write. Must not know:
 * frames.
 *
 * A record has a key, a value, and the stamp of the write that made it: its time, and the life that
 * wrote. The write with the larger stamp wins. A removed key keeps its record, as a *tombstone*, or
 * an older write that comes late would bring the key back.
 *
 * The emitted program defines, before it includes this:
 *   SP_LWW_RECORDS          records of all objects
 *   SP_LWW_COUNT            objects
 *   SP_LWW_KEY_WORDS        64-bit words of the longest key
 *   SP_LWW_VALUE_WORDS      and of the longest value
 *   SP_LWW_LISTED           changed records of a group that can wait: a power of two
 *   SP_LWW_WRITES           writes of one packet at the most
 *   SP_LWW_OBJECTS(X)       X(name, group, number, first record, records, is it a register, bytes
 *                           of a key, bytes of a value)
 *
 * Invariants:
 * - A record's fields change under its lock, together, so no read is torn.
 * - A record that the index names has that key, or is just being given back: then it is not HELD.
 * - No write of this switch has a smaller stamp than one that it has seen.
 */
#ifndef STATEPLANE_LWW_H
#define STATEPLANE_LWW_H

#include "stateplane_lww_layouts.h"

#define SP_LWW_NO_PLACE 0xffffffff
/* Looks at a record that is being given back, at the most. */
#define SP_LWW_LOOKS 8

struct sp_lww_record {
	struct sp_lww_head head;
	struct bpf_spin_lock lock;
	__u32 reserved;
	__u64 key[SP_LWW_KEY_WORDS];
	__u64 value[SP_LWW_VALUE_WORDS];
};

/* A write: of a packet, of a message, of an operator. Messages have it in this form. */
struct sp_lww_entry {
	__u64 time;
	__u64 writer;
	__u64 flags; /* SP_LWW_REMOVED; of a packet's also a condition */
	__u64 object; /* with the key behind it: what the index is asked for */
	__u64 key[SP_LWW_KEY_WORDS];
	__u64 value[SP_LWW_VALUE_WORDS];
};
#define SP_LWW_ENTRY_WORDS (sizeof(struct sp_lww_entry) / 8)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_LWW_RECORDS);
	__type(key, __u32);
	__type(value, struct sp_lww_record);
} sp_lww_records SEC(".maps");

/* From object and key to the record's place. (More than fit: CPUs keep free ones of their own.) */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SP_LWW_RECORDS + SP_LWW_SPARE);
	__uint(key_size, 8 + 8 * SP_LWW_KEY_WORDS);
	__type(value, __u32);
} sp_lww_index SEC(".maps");

/* By object. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_LWW_COUNT);
	__type(key, __u32);
	__type(value, struct sp_lww_counts);
} sp_lww_counts SEC(".maps");

/* By group. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS);
	__type(key, __u32);
	__type(value, struct sp_lww_node);
} sp_lww_nodes SEC(".maps");

/* By group: what user space says. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS);
	__type(key, __u32);
	__type(value, struct sp_lww_terms);
} sp_lww_terms SEC(".maps");

/* By group: changed records, as sp_eventual_list. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS *SP_LWW_LISTED);
	__type(key, __u32);
	__type(value, __u64);
} sp_lww_list SEC(".maps");

/* What has no room on the stack: of the packet or message that this CPU works on. */
struct sp_lww_scratch {
	struct sp_lww_entry hand; /* the key that is looked for, the write that is made */
	__u64 value[SP_LWW_VALUE_WORDS]; /* what was read */
	struct sp_lww_entry noted[SP_LWW_WRITES]; /* the packet's writes */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_lww_scratch);
} sp_lww_scratches SEC(".maps");

SP_INLINE struct sp_lww_scratch *sp_lww_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sp_lww_scratches, &zero);
}

SP_INLINE struct sp_lww_record *sp_lww_record(__u32 place)
{
	return bpf_map_lookup_elem(&sp_lww_records, &place);
}

SP_INLINE struct sp_lww_node *sp_lww_node(__u32 group)
{
	return bpf_map_lookup_elem(&sp_lww_nodes, &group);
}

SP_INLINE struct sp_lww_terms *sp_lww_terms_of(__u32 group)
{
	return bpf_map_lookup_elem(&sp_lww_terms, &group);
}

SP_INLINE __u64 *sp_lww_listed(__u32 group, __u64 place)
{
	__u32 at = group * SP_LWW_LISTED + (place & (SP_LWW_LISTED - 1));

	return bpf_map_lookup_elem(&sp_lww_list, &at);
}

/* (Inlined, without a call: also under a record's lock.) */
SP_INLINE void sp_lww_copy(__u64 *to, const __u64 *from, __u32 words)
{
	for (__u32 i = 0; i < words; i++)
		((volatile __u64 *)to)[i] = ((const volatile __u64 *)from)[i];
}

SP_INLINE int sp_lww_same_key(const __u64 *one, const __u64 *other)
{
	__u64 difference = 0;

	for (__u32 i = 0; i < SP_LWW_KEY_WORDS; i++)
		difference |= ((const volatile __u64 *)one)[i] ^ ((const volatile __u64 *)other)[i];
	return !difference;
}

/* ---- Objects ---- */
struct sp_lww_object {
	__u32 group;
	__u32 first; /* record */
	__u32 size;
	__u32 is_register; /* keys are numbers of records */
};

/* Places that were given back: a queue for each object. */
#define SP_LWW_QUEUE(name, in_group, number, at, records, register, kb, vb)                      \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_QUEUE);                                                \
		__uint(max_entries, (register) ? 1 : (records));                                 \
		__type(value, __u32);                                                            \
	} name##_free SEC(".maps");
SP_LWW_OBJECTS(SP_LWW_QUEUE)

#define SP_LWW_DESCRIBED(name, in_group, number, at, records, register, kb, vb)                  \
	if (object == (number))                                                                  \
		return (struct sp_lww_object){ in_group, at, records, register };
#define SP_LWW_POPPED(name, in_group, number, at, records, register, kb, vb)                     \
	if (object == (number))                                                                  \
		return bpf_map_pop_elem(&name##_free, place);
#define SP_LWW_PUSHED(name, in_group, number, at, records, register, kb, vb)                     \
	if (object == (number))                                                                  \
		return bpf_map_push_elem(&name##_free, place, BPF_ANY);

SP_INLINE struct sp_lww_object sp_lww_object(__u32 object)
{
	SP_LWW_OBJECTS(SP_LWW_DESCRIBED)
	return (struct sp_lww_object){};
}

SP_INLINE long sp_lww_pop(__u32 object, __u32 *place)
{
	SP_LWW_OBJECTS(SP_LWW_POPPED)
	return -1;
}

SP_INLINE long sp_lww_push(__u32 object, const __u32 *place)
{
	SP_LWW_OBJECTS(SP_LWW_PUSHED)
	return -1;
}

SP_INLINE struct sp_lww_counts *sp_lww_count_of(__u32 object)
{
	return bpf_map_lookup_elem(&sp_lww_counts, &object);
}

/* ---- The clock ---- */
/*
 * The time of a write: TAI, and larger than all times that this switch has seen (a hybrid clock:
 * Kulkarni et al., "Logical Physical Clocks", 2014). So a write wins over what its switch had seen.
 */
SP_INLINE __u64 sp_lww_tick(struct sp_lww_node *node)
{
	__u64 now = sp_wall_clock_ns(), seen, next = 0;

	for (int i = 0; i < SP_SHARED_TRIES; i++) {
		seen = SP_SHARED_LOAD(node->clock);
		next = now > seen ? now : seen + 1;
		if (__sync_val_compare_and_swap(&node->clock, seen, next) == seen)
			return next;
	}
	sp_shared_count(SP_SHARED_STAT_CELL_STUCK);
	return next;
}

SP_INLINE void sp_lww_raise(__u64 *word, __u64 time)
{
	__u64 seen;

	for (int i = 0; i < SP_SHARED_TRIES; i++) {
		seen = SP_SHARED_LOAD(*word);
		if (seen >= time || __sync_val_compare_and_swap(word, seen, time) == seen)
			return;
	}
	sp_shared_count(SP_SHARED_STAT_CELL_STUCK);
}

/* ---- Places ---- */
/* A new record for the key at hand, which the index does not have. */
SP_SHARED_GLOBAL __u32 sp_lww_new_place(void)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	struct sp_lww_object object;
	struct sp_lww_record *record;
	struct sp_lww_counts *counts;
	__u32 fresh = 0, number, *place;
	__u64 used;

	if (!scratch)
		return SP_LWW_NO_PLACE;
	number = scratch->hand.object;
	object = sp_lww_object(number);
	counts = sp_lww_count_of(number);
	if (!counts)
		return SP_LWW_NO_PLACE;
	if (sp_lww_pop(number, &fresh)) {
		if (SP_SHARED_LOAD(counts->used) >= object.size)
			return SP_LWW_NO_PLACE;
		used = __sync_fetch_and_add(&counts->used, 1);
		if (used >= object.size) {
			__sync_fetch_and_add(&counts->used, -1);
			return SP_LWW_NO_PLACE;
		}
		fresh = object.first + used;
	}
	record = sp_lww_record(fresh);
	if (!record)
		return SP_LWW_NO_PLACE;
	bpf_spin_lock(&record->lock);
	record->head.time = 0;
	record->head.writer = 0;
	record->head.flags = SP_LWW_HELD;
	record->head.object = number;
	sp_lww_copy(record->key, scratch->hand.key, SP_LWW_KEY_WORDS);
	bpf_spin_unlock(&record->lock);
	if (!bpf_map_update_elem(&sp_lww_index, &scratch->hand.object, &fresh, BPF_NOEXIST))
		return fresh;
	/* (Another CPU was first.) */
	bpf_spin_lock(&record->lock);
	record->head.flags = 0;
	bpf_spin_unlock(&record->lock);
	sp_lww_push(number, &fresh);
	place = bpf_map_lookup_elem(&sp_lww_index, &scratch->hand.object);
	return place ? *place : SP_LWW_NO_PLACE;
}

/* Where the key at hand is. */
SP_INLINE __u32 sp_lww_place(struct sp_lww_scratch *scratch)
{
	struct sp_lww_object object = sp_lww_object(scratch->hand.object);
	__u32 *place, index;

	if (object.is_register) {
		index = sp_get32((const __u8 *)scratch->hand.key);
		return index < object.size ? object.first + index : SP_LWW_NO_PLACE;
	}
	place = bpf_map_lookup_elem(&sp_lww_index, &scratch->hand.object);
	return place ? *place : SP_LWW_NO_PLACE;
}

/* Under the lock: has the record the key at hand? (Else its place went to another one.) */
SP_INLINE int sp_lww_is_at(const struct sp_lww_record *record, const struct sp_lww_entry *hand,
			   __u32 is_register)
{
	return is_register || (record->head.flags & SP_LWW_HELD &&
			       record->head.object == (__u32)hand->object &&
			       sp_lww_same_key(record->key, hand->key));
}

/* ---- Reads ---- */
/* The value of the key at hand goes to the scratch; 1: it is there. */
SP_SHARED_GLOBAL int sp_lww_find(void)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	struct sp_lww_record *record;
	__u32 found = 0, is_register, same;

	if (!scratch)
		return 0;
	is_register = sp_lww_object(scratch->hand.object).is_register;
	for (int look = 0; look < SP_LWW_LOOKS; look++) {
		record = sp_lww_record(sp_lww_place(scratch));
		if (!record)
			break;
		bpf_spin_lock(&record->lock);
		same = sp_lww_is_at(record, &scratch->hand, is_register);
		found = same && record->head.time && !(record->head.flags & SP_LWW_REMOVED);
		if (found)
			sp_lww_copy(scratch->value, record->value, SP_LWW_VALUE_WORDS);
		bpf_spin_unlock(&record->lock);
		if (same)
			break;
	}
	if (!found)
		for (__u32 i = 0; i < SP_LWW_VALUE_WORDS; i++)
			scratch->value[i] = 0;
	return found;
}

/* ---- Writes ---- */
enum { SP_LWW_OLDER, SP_LWW_WON, SP_LWW_AGAIN };

/* The write at hand is made in this record, if it is the last one. */
SP_SHARED_GLOBAL int sp_lww_set(__u32 place)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	struct sp_lww_record *record = sp_lww_record(place);
	struct sp_lww_counts *counts;
	struct sp_lww_entry *hand;
	__u32 is_register, same, newer, was_live, was_removed, removes;
	__u64 now;

	if (!scratch || !record)
		return SP_LWW_OLDER;
	hand = &scratch->hand;
	is_register = sp_lww_object(hand->object).is_register;
	removes = hand->flags & SP_LWW_REMOVED;
	now = sp_now_ns();
	bpf_spin_lock(&record->lock);
	same = sp_lww_is_at(record, hand, is_register);
	was_removed = record->head.time && record->head.flags & SP_LWW_REMOVED;
	was_live = record->head.time && !(record->head.flags & SP_LWW_REMOVED);
	newer = hand->time > record->head.time ||
		(hand->time == record->head.time && hand->writer > record->head.writer);
	if ((hand->flags & SP_LWW_ABSENT && was_live) || (hand->flags & SP_LWW_PRESENT && !was_live))
		newer = 0;
	if (same && newer) {
		record->head.time = hand->time;
		record->head.writer = hand->writer;
		record->head.flags = SP_LWW_HELD | removes;
		record->head.since = now;
		record->head.object = hand->object;
		if (is_register)
			sp_lww_copy(record->key, hand->key, SP_LWW_KEY_WORDS);
		sp_lww_copy(record->value, hand->value, SP_LWW_VALUE_WORDS);
	}
	bpf_spin_unlock(&record->lock);
	if (!same)
		return SP_LWW_AGAIN;
	if (!newer)
		return SP_LWW_OLDER;
	counts = sp_lww_count_of(hand->object);
	if (counts) {
		__sync_fetch_and_add(&counts->live, (__u64)!removes - was_live);
		__sync_fetch_and_add(&counts->removed, (__u64)!!removes - was_removed);
	}
	return SP_LWW_WON;
}

/* This switch changed the record: members are to be sent it. As sp_eventual_apply has it. */
SP_INLINE void sp_lww_list_it(__u32 group, __u32 number)
{
	struct sp_eventual_node *members = sp_eventual_node(group);
	struct sp_lww_record *record = sp_lww_record(number);
	struct sp_lww_node *node = sp_lww_node(group);
	__u64 place, *word;

	if (!members || !record || !node || members->count < 2 ||
	    SP_SHARED_LOAD(record->head.listed) > SP_SHARED_LOAD(node->taken))
		return;
	place = __sync_fetch_and_add(&node->listed, 1);
	word = sp_lww_listed(group, place);
	if (word)
		SP_SHARED_STORE(*word, sp_eventual_list_word(place, number));
	SP_SHARED_STORE(record->head.listed, place + 1);
}

/*
 * The write at hand is made, of this switch (`own`) or of another one. SP_LWW_WON, or
 * SP_LWW_OLDER; -1: there is no room for its key.
 */
SP_SHARED_GLOBAL int sp_lww_apply(__u32 own)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	struct sp_lww_object object;
	struct sp_eventual_node *members;
	struct sp_lww_counts *counts;
	struct sp_lww_node *node;
	__u32 place = SP_LWW_NO_PLACE;
	int done = SP_LWW_AGAIN;

	if (!scratch)
		return 0;
	object = sp_lww_object(scratch->hand.object);
	members = sp_eventual_node(object.group);
	node = sp_lww_node(object.group);
	counts = sp_lww_count_of(scratch->hand.object);
	if (!members || !node || !counts)
		return 0;
	if (own) {
		scratch->hand.time = sp_lww_tick(node);
		scratch->hand.writer = members->life;
	} else {
		sp_lww_raise(&node->clock, scratch->hand.time);
	}
	for (int look = 0; look < SP_LWW_LOOKS && done == SP_LWW_AGAIN; look++) {
		place = sp_lww_place(scratch);
		if (place == SP_LWW_NO_PLACE) {
			/*
			 * A switch removes what it has. A tombstone that may have ended here already is
			 * no news, or two switches would go on telling each other.
			 */
			if (object.is_register || scratch->hand.flags & SP_LWW_PRESENT ||
			    (scratch->hand.flags & SP_LWW_REMOVED &&
			     scratch->hand.time <= SP_SHARED_LOAD(node->forgotten)))
				return SP_LWW_OLDER;
			place = sp_lww_new_place();
			if (place == SP_LWW_NO_PLACE) {
				__sync_fetch_and_add(own ? &counts->full : &counts->full_of_others, 1);
				sp_shared_count(SP_SHARED_STAT_TABLE_FULL);
				return -1;
			}
		}
		done = sp_lww_set(place);
	}
	if (done == SP_LWW_AGAIN)
		sp_shared_count(SP_SHARED_STAT_CELL_STUCK);
	if (own && done == SP_LWW_WON)
		sp_lww_list_it(object.group, place);
	return done == SP_LWW_WON ? SP_LWW_WON : SP_LWW_OLDER;
}

/* Notes a write for the packet's verdict. */
SP_INLINE struct sp_lww_entry *sp_lww_note(__u32 *writes)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	struct sp_lww_entry *entry;

	if (!scratch || *writes >= SP_LWW_WRITES)
		return 0;
	entry = sp_element(&scratch->noted[0]) + sp_below((__u64)*writes, SP_LWW_WRITES);
	++*writes;
	return entry;
}

/* The packet's verdict: the write with this number takes effect. */
SP_SHARED_GLOBAL int sp_lww_commit(__u32 number)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	struct sp_lww_entry *entry;

	if (!scratch)
		return 0;
	entry = sp_element(&scratch->noted[0]) + sp_below((__u64)number, SP_LWW_WRITES);
	sp_lww_copy((__u64 *)&scratch->hand, (const __u64 *)entry, SP_LWW_ENTRY_WORDS);
	return sp_lww_apply(1);
}

/* A key or value in whole words, zero behind its end. */
SP_INLINE void sp_lww_words(__u64 *to, const void *from, __u32 bytes, __u32 words)
{
	for (__u32 i = 0; i < words; i++)
		to[i] = i * 8 < bytes ? ((const __u64 *)from)[i] : 0;
}

/* The functions of each object, as the program calls them. */
#define SP_LWW_FUNCTIONS(name, in_group, number, at, records, register, kb, vb)                  \
	SP_INLINE __u32 name##_get(const __u8 *key)                                              \
	{                                                                                        \
		struct sp_lww_scratch *scratch = sp_lww_scratch();                               \
                                                                                                 \
		if (!scratch)                                                                    \
			return 0;                                                                \
		scratch->hand.object = number;                                                   \
		sp_lww_words(scratch->hand.key, key, kb, SP_LWW_KEY_WORDS);                      \
		return sp_lww_find();                                                            \
	}                                                                                        \
	SP_INLINE void name##_put(__u32 *writes, const __u8 *key, const __u8 *value,             \
				  __u32 flags)                                                   \
	{                                                                                        \
		struct sp_lww_entry *entry = sp_lww_note(writes);                                \
                                                                                                 \
		if (!entry)                                                                      \
			return;                                                                  \
		entry->object = number;                                                          \
		entry->flags = flags;                                                            \
		sp_lww_words(entry->key, key, kb, SP_LWW_KEY_WORDS);                             \
		sp_lww_words(entry->value, value, vb, SP_LWW_VALUE_WORDS);                       \
	}
SP_LWW_OBJECTS(SP_LWW_FUNCTIONS)

SP_INLINE void sp_lww_copy_entries(struct sp_lww_entry *to, const struct sp_lww_entry *from,
				   __u32 count)
{
	for (__u32 i = 0; i < SP_LWW_WRITES; i++) {
		if (i >= count)
			break;
		sp_lww_copy((__u64 *)&to[i], (const __u64 *)&from[i], SP_LWW_ENTRY_WORDS);
	}
}

/* What the packet writes is for when it leaves. -1: there is no memory for it. */
SP_INLINE int sp_lww_keep(struct sp_lww_entry *kept, __u32 writes)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();

	if (!scratch)
		return -1;
	sp_lww_copy_entries(kept, scratch->noted, writes);
	return 0;
}

/* A packet that waited leaves: sp_eventual_commit writes this. -1: it cannot. */
SP_INLINE int sp_lww_take_up(const struct sp_lww_entry *kept, __u32 writes)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();

	if (!scratch)
		return -1;
	sp_lww_copy_entries(scratch->noted, kept, writes);
	return 0;
}

/* ---- Operators ---- */
/* A frame from user space: what it asks for, key, value. XDP_PASS: it is done. */
SEC("xdp.frags")
int sp_lww_order(struct xdp_md *xdp)
{
	struct sp_lww_scratch *scratch = sp_lww_scratch();
	__u8 *data = (void *)(long)xdp->data;
	struct sp_lww_order *order = (void *)data;
	__u32 bytes = sizeof(*order) + 8 * (SP_LWW_KEY_WORDS + SP_LWW_VALUE_WORDS);
	const __u64 *words = (void *)(order + 1);

	if (!scratch || data + bytes > (__u8 *)(long)xdp->data_end || order->object >= SP_LWW_COUNT)
		return XDP_ABORTED;
	scratch->hand.object = order->object;
	scratch->hand.flags = order->flags;
	sp_lww_copy(scratch->hand.key, words, SP_LWW_KEY_WORDS);
	sp_lww_copy(scratch->hand.value, words + SP_LWW_KEY_WORDS, SP_LWW_VALUE_WORDS);
	return sp_lww_apply(1) < 0 ? XDP_DROP : XDP_PASS;
}

#include "stateplane_lww_frame.h"

#endif
