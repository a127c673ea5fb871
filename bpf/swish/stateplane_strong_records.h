/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_records.h: how a batch's records are decided and written. Part of
 * stateplane_strong.h.
 *
 * Owns: conditions, tables' places, removed keys. Must not know: frames, the chain.
 *
 * All members write the same batches in the same order, so they keep and forget the same keys.
 */
#ifndef STATEPLANE_STRONG_RECORDS_H
#define STATEPLANE_STRONG_RECORDS_H

/* Why a record is refused. */
enum { SP_STRONG_HOLDS, SP_STRONG_CONFLICT, SP_STRONG_FULL };

/* A removed key. */
struct sp_strong_tomb {
	__u32 object;
	__u32 place;
	__u64 seq;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_STRONG_TOMBS);
	__type(key, __u32);
	__type(value, struct sp_strong_tomb);
} sp_strong_tomb_list SEC(".maps");

/* Of the record in the scratch, for one table. Global functions: the verifier checks them once. */
#define SP_STRONG_WRITE(name, id, table, size, kb, vb, timed)                                     \
	/* Does the record's condition hold? */                                                   \
	__attribute__((noinline)) int name##_check(void)                                          \
	{                                                                                         \
		struct sp_strong_scratch *scratch = sp_strong_scratch();                          \
		struct sp_strong_node *node = sp_strong_get_node();                               \
		struct sp_strong_table *counts;                                                   \
		struct name##_record *record = 0;                                                 \
		__u32 *place, number = table, live = 0;                                           \
                                                                                                  \
		counts = bpf_map_lookup_elem(&sp_strong_tables, &number);                         \
		if (!scratch || !node || !counts)                                                 \
			return SP_STRONG_CONFLICT;                                                \
		if (scratch->flags & SP_STRONG_READ)                                              \
			return SP_STRONG_HOLDS;                                                   \
		place = bpf_map_lookup_elem(&name, scratch->key);                                 \
		if (place)                                                                        \
			record = bpf_map_lookup_elem(&name##_records, place);                     \
		if (record)                                                                       \
			live = !record->removed;                                                  \
		if (scratch->flags & SP_STRONG_ABSENT && live)                                    \
			return SP_STRONG_CONFLICT;                                                \
		/* (When a forgotten key was removed is not known.) */                            \
		if (scratch->flags & SP_STRONG_SINCE &&                                           \
		    (record ? record->seq : node->forgotten) > scratch->since)                    \
			return SP_STRONG_CONFLICT;                                                \
		if (live || scratch->flags & SP_STRONG_REMOVE)                                    \
			return SP_STRONG_HOLDS;                                                   \
		live = counts->live + scratch->inserts[table]++;                                          \
		return live < (size) ? SP_STRONG_HOLDS : SP_STRONG_FULL;                                  \
	}                                                                                         \
                                                                                                  \
	/* A removed key is forgotten, if it was not written since. */                            \
	__attribute__((noinline)) int name##_forget(__u32 place, __u64 seq)                       \
	{                                                                                         \
		struct name##_record *record = bpf_map_lookup_elem(&name##_records, &place);      \
		struct sp_strong_node *node = sp_strong_get_node();                               \
                                                                                                  \
		if (!record || !node || !record->removed || record->seq != seq)                   \
			return 0;                                                                 \
		SP_STRONG_STORE(node->forgotten, seq);                                            \
		/* Readers that still have the place see that it changed. */                      \
		sp_strong_advance(&record->generation);                                           \
		bpf_map_delete_elem(&name, record->key);                                          \
		for (__u32 i = 0; i < SP_ROUND8(kb) / 8; i++)                                     \
			((__u64 *)record->key)[i] = 0;                                            \
		sp_strong_advance(&record->generation);                                           \
		if (bpf_map_push_elem(&name##_free, &place, 0))                                   \
			sp_strong_count(SP_STRONG_STAT_FAULTS);                                   \
		return 0;                                                                         \
	}                                                                                         \
                                                                                                  \
	/* The record is written. Its place if the key is removed by it; else -1. */              \
	__attribute__((noinline)) long name##_write(void)                                         \
	{                                                                                         \
		struct sp_strong_scratch *scratch = sp_strong_scratch();                          \
		struct sp_strong_table *counts;                                                   \
		__u32 *found, number = table, place, removes, fresh, live;                        \
		struct name##_record *record;                                                     \
                                                                                                  \
		counts = bpf_map_lookup_elem(&sp_strong_tables, &number);                         \
		if (!scratch || !counts || scratch->flags & SP_STRONG_READ)                       \
			return -1;                                                                \
		removes = !!(scratch->flags & SP_STRONG_REMOVE);                                  \
		found = bpf_map_lookup_elem(&name, scratch->key);                                 \
		fresh = !found;                                                                   \
		if (found) {                                                                      \
			place = *found;                                                           \
		} else {                                                                          \
			/* (A copy of the key may be on its way here: it is older.) */            \
			if (removes && scratch->copies != SP_STRONG_COPY_LACKS)                   \
				return -1;                                                        \
			if (bpf_map_pop_elem(&name##_free, &place))                               \
				place = counts->used++;                                           \
		}                                                                                 \
		record = bpf_map_lookup_elem(&name##_records, &place);                            \
		if (!record) {                                                                    \
			sp_strong_count(SP_STRONG_STAT_FAULTS);                                   \
			return -1;                                                                \
		}                                                                                 \
		if (scratch->copies == SP_STRONG_COPY_GIVEN && !fresh &&                          \
		    record->seq >= scratch->seq)                                                  \
			return -1;                                                                \
		live = !fresh && !record->removed;                                                \
		if (removes && !live && !fresh)                                                   \
			return -1;                                                                \
		counts->live += (__u32)!removes - live;                                           \
		sp_strong_advance(&record->generation);                                           \
		sp_strong_copy(record->key, scratch->key, kb);                                    \
		sp_strong_copy(record->value, scratch->value, vb);                                \
		SP_STRONG_STORE(record->seq, scratch->seq);                                       \
		SP_STRONG_STORE(record->removed, removes);                                        \
		sp_strong_advance(&record->generation);                                           \
		if (fresh && bpf_map_update_elem(&name, scratch->key, &place, BPF_NOEXIST))       \
			sp_strong_count(SP_STRONG_STAT_FAULTS);                                   \
		return removes ? (long)place : -1;                                                \
	}

SP_STRONG_OBJECTS(SP_STRONG_WRITE)

#define SP_STRONG_CASE_CHECK(name, id, table, size, kb, vb, timed) \
	case id: \
		return name##_check();
#define SP_STRONG_CASE_WRITE(name, id, table, size, kb, vb, timed) \
	case id: \
		removed = name##_write(); \
		break;
#define SP_STRONG_CASE_FORGET(name, id, table, size, kb, vb, timed) \
	case id: \
		name##_forget(tomb->place, tomb->seq); \
		break;
#define SP_STRONG_CASE_SIZE(name, id, table, size, kb, vb, timed) \
	case id: \
		return SP_STRONG_RECORD_SIZE(kb, vb);
#define SP_STRONG_CASE_KEY(name, id, table, size, kb, vb, timed) \
	case id: \
		return SP_STRONG_KW(kb);

/* Words of an object's key and value; 0: there is no such object. */
SP_INLINE __u32 sp_strong_size_of(__u32 object)
{
	switch (object) {
		SP_STRONG_OBJECTS(SP_STRONG_CASE_SIZE)
	}
	return 0;
}

SP_INLINE __u32 sp_strong_key_of(__u32 object)
{
	switch (object) {
		SP_STRONG_OBJECTS(SP_STRONG_CASE_KEY)
	}
	return 0;
}

static __noinline int sp_strong_check_one(const struct sp_strong_scratch *scratch)
{
	switch (scratch->object) {
		SP_STRONG_OBJECTS(SP_STRONG_CASE_CHECK)
	}
	return SP_STRONG_CONFLICT;
}

/* The key is remembered for a while, and the one that was removed longest ago is not any more. */
static __noinline int sp_strong_bury(const struct sp_strong_scratch *scratch, __u32 place)
{
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_tomb *tomb;
	__u32 at;

	if (!node)
		return 0;
	at = node->tombs % SP_STRONG_TOMBS;
	tomb = bpf_map_lookup_elem(&sp_strong_tomb_list, &at);
	if (!tomb)
		return 0;
	if (tomb->seq) {
		switch (tomb->object) {
			SP_STRONG_OBJECTS(SP_STRONG_CASE_FORGET)
		}
	}
	tomb->object = scratch->object;
	tomb->place = place;
	tomb->seq = scratch->seq;
	node->tombs++;
	return 0;
}

SP_INLINE int sp_strong_write_one(const struct sp_strong_scratch *scratch)
{
	long removed = -1;

	switch (scratch->object) {
		SP_STRONG_OBJECTS(SP_STRONG_CASE_WRITE)
	}
	if (removed >= 0)
		sp_strong_bury(scratch, removed);
	return 0;
}

/* Puts a record of the message in the scratch at hand. */
static __noinline int sp_strong_load(struct sp_strong_scratch *scratch, __u32 record)
{
	__u64 at = sp_below((__u64)scratch->at[record & SP_STRONG_RECORDS], SP_STRONG_WORDS - 2);
	const __u64 *words = scratch->message + SP_STRONG_HEADER_WORDS + at;
	__u64 head = bpf_be64_to_cpu(words[0]);
	__u64 key_words;
	__u32 i;

	scratch->object = head >> 48;
	scratch->flags = head >> 40 & 0xff;
	scratch->since = bpf_be64_to_cpu(words[1]);
	key_words = sp_strong_key_of(scratch->object);
	for (i = 0; i < SP_STRONG_KEY_WORDS; i++)
		scratch->key[i] = i < key_words ? words[SP_STRONG_RECORD_WORDS + i] : 0;
	words += SP_STRONG_RECORD_WORDS + sp_below(key_words, SP_STRONG_KEY_WORDS + 1);
	for (i = 0; i < SP_STRONG_VALUE_WORDS; i++)
		scratch->value[i] = words[i];
	return 0;
}

struct sp_strong_walk {
	struct sp_strong_scratch *scratch;
	__u32 at; /* words, or the record */
	__u32 end;
	__u32 from; /* the first record of the group at hand */
	__u32 wrong; /* why the group is refused */
	__u32 writes; /* the group is being written */
	__u64 refused;
	__u64 full;
};

static long sp_strong_find_one(__u32 record, struct sp_strong_walk *walk)
{
	struct sp_strong_scratch *scratch = walk->scratch;
	__u64 head;
	__u32 words;

	if (walk->at >= walk->end)
		return 1;
	head = bpf_be64_to_cpu(scratch->message[SP_STRONG_HEADER_WORDS +
						sp_below((__u64)walk->at, SP_STRONG_WORDS)]);
	words = head >> 32 & 0xff;
	if (!words || words != sp_strong_size_of(head >> 48))
		return 1;
	scratch->at[record & SP_STRONG_RECORDS] = walk->at;
	walk->at += SP_STRONG_RECORD_WORDS + words;
	walk->wrong++; /* (here: records that are found) */
	return 0;
}

/* Finds where the records of the message in the scratch begin. 0: they are as they must be. */
static __noinline int sp_strong_find(struct sp_strong_scratch *scratch, __u32 count, __u32 words)
{
	struct sp_strong_walk walk = { .scratch = scratch, .end = words };

	if (!count || count > SP_STRONG_RECORDS || words > SP_STRONG_WORDS)
		return -1;
	bpf_loop(count, sp_strong_find_one, &walk, 0);
	return walk.wrong == count && walk.at == words ? 0 : -1;
}

/*
 * One step of the decision: a record is checked, or, once its group is known to hold, written. A
 * group takes effect whole or not at all.
 */
static long sp_strong_decide_one(__u32 step, struct sp_strong_walk *walk)
{
	struct sp_strong_scratch *scratch = walk->scratch;
	__u32 last, record = walk->at;
	__u64 bit = 1ull << (record & 63);
	int wrong;

	if (record >= walk->end)
		return 1;
	sp_strong_load(scratch, record);
	last = record + 1 == walk->end || !(scratch->flags & SP_STRONG_GROUP);
	if (walk->writes) {
		sp_strong_write_one(scratch);
	} else {
		if (record == walk->from)
			__builtin_memset(scratch->inserts, 0, sizeof(scratch->inserts));
		wrong = sp_strong_check_one(scratch);
		if (wrong && !walk->wrong)
			walk->wrong = wrong;
	}
	walk->at = record + 1;
	if (!last)
		return 0;
	if (!walk->writes && !walk->wrong) {
		walk->writes = 1;
		walk->at = walk->from;
		return 0;
	}
	if (walk->wrong) {
		/* All records of the group: from its first to this one. */
		bit = (bit << 1) - (1ull << (walk->from & 63));
		walk->refused |= bit;
		if (walk->wrong == SP_STRONG_FULL)
			walk->full |= bit;
	}
	walk->writes = walk->wrong = 0;
	walk->from = walk->at;
	return 0;
}

/* Writes a record of a decided batch. */
static long sp_strong_write_decided(__u32 record, struct sp_strong_walk *walk)
{
	if (walk->refused >> (record & 63) & 1)
		return 0;
	sp_strong_load(walk->scratch, record);
	sp_strong_write_one(walk->scratch);
	return 0;
}

#endif
