/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_fast_records.h: records of a batch in the memory that a store shares with its program.
 * Part of fast_chain.c. core/fast-chain/src/member.rs says the same in Rust, and is compared with
 * this.
 *
 * Owns: maps, keys' index, owners, order. Must not know: frames, secrets.
 */
#ifndef STATEPLANE_FAST_RECORDS_H
#define STATEPLANE_FAST_RECORDS_H

#define SP_FAST_FRONT_WORDS 9 /* header and digest */
#define SP_FAST_RECORD_HEADER_WORDS 3
/* Room for a message, in words: a power of 2. */
#define SP_FAST_MESSAGE_WORDS 256

/* The loader sets how many values the maps have. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_fast_config);
} sp_fast_config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_fast_shard);
} sp_fast_shards SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_fast_record);
} sp_fast_records SEC(".maps");

/* Each entry: the record's place plus one, above the fingerprint of its key; 0: none. */
struct sp_fast_line {
	__u64 entries[SP_FAST_LINE_ENTRIES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_fast_line);
} sp_fast_lines SEC(".maps");

/*
 * A CPU's message: offsets in a frame are dear to check, in a map they are masks. What is behind
 * `message` gives room to a record that begins at its end, as far as the verifier knows.
 */
struct sp_fast_scratch {
	__u64 message[SP_FAST_MESSAGE_WORDS];
	__u32 begins[SP_BATCH_RECORDS_MAX]; /* word of the message */
	__u32 places[SP_BATCH_RECORDS_MAX]; /* in sp_fast_records, plus one; 0: not to be written */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_fast_scratch);
} sp_fast_scratches SEC(".maps");

/* What the callbacks below work on. */
struct sp_fast_work {
	struct sp_fast_scratch *scratch;
	const struct sp_fast_config *config;
	struct sp_fast_shard *shard;
	__u32 shard_number;
	__u32 is_head;
	__u32 reason; /* why the batch is user space's */
	__u32 newer; /* a record is newer than what is here */
	__u32 has_lock;
	__u32 end; /* of the message, in words */
};

static __always_inline struct sp_record_header *sp_fast_record_at(struct sp_fast_scratch *scratch,
								   __u32 word)
{
	return (void *)&scratch->message[word & (SP_FAST_MESSAGE_WORDS - 1)];
}

/*
 * Notes where each record begins. 0: they are not `count`, do not end where the message does, or
 * the last one is of a group that goes on.
 */
static __always_inline int sp_fast_walk(struct sp_fast_scratch *scratch, __u32 count, __u32 end)
{
	__u32 at = SP_FAST_FRONT_WORDS, group = 1;

	for (__u32 i = 0; i < SP_BATCH_RECORDS_MAX; i++) {
		const struct sp_record_header *record = sp_fast_record_at(scratch, at);

		if (i >= count)
			break;
		if (at + SP_FAST_RECORD_HEADER_WORDS >= end || record->words == 0 ||
		    record->words > SP_RECORD_WORDS_MAX)
			return 0;
		group = record->flags & SP_RECORD_GROUP;
		scratch->begins[i] = at;
		at += SP_FAST_RECORD_HEADER_WORDS + record->words;
	}
	return at == end && !group;
}

static __always_inline __u64 sp_fast_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ (hash >> 32);
}

/* As in core/fast-chain/src/memory.rs. */
static __always_inline __u64 sp_fast_hash(__u64 seed, __u16 object, const __u64 *key, __u32 words)
{
	__u64 hash = sp_fast_mix(seed, object);

	for (__u32 i = 0; i < SP_FAST_CONTENT_WORDS; i++) {
		if (i >= words)
			break;
		hash = sp_fast_mix(hash, key[i]);
	}
	hash *= 0xff51afd7ed558ccdull;
	return hash ^ (hash >> 29);
}

static __always_inline int sp_fast_is_key(const struct sp_fast_record *record, __u16 object,
					  const __u64 *key, __u32 words)
{
	__u64 difference = 0;

	if (record->object_id != object || record->key_words != words)
		return 0;
	for (__u32 i = 0; i < SP_FAST_CONTENT_WORDS; i++) {
		if (i >= words)
			break;
		difference |= record->content[i] ^ key[i];
	}
	return difference == 0;
}

/*
 * A key's record, and its place plus one. Of two keys of one line with the same fingerprint only
 * the first is found: the other one stays with user space.
 */
static __always_inline struct sp_fast_record *sp_fast_find(const struct sp_fast_work *work,
							    __u16 object, const __u64 *key,
							    __u32 words, __u32 *place)
{
	const struct sp_fast_config *config = work->config;
	__u64 hash = sp_fast_hash(config->seed, object, key, words);
	__u32 at = work->shard_number * (config->line_mask + 1) + ((__u32)hash & config->line_mask);
	struct sp_fast_line *line = bpf_map_lookup_elem(&sp_fast_lines, &at);
	struct sp_fast_record *record;
	__u32 found = 0;

	if (!line)
		return 0;
	for (int i = 0; i < SP_FAST_LINE_ENTRIES; i++) {
		__u64 entry = line->entries[i];

		found = entry >> 32;
		if ((__u32)entry == (__u32)(hash >> 32) && found)
			break;
		found = 0;
	}
	if (!found)
		return 0;
	*place = work->shard_number * config->records + found;
	at = *place - 1;
	record = bpf_map_lookup_elem(&sp_fast_records, &at);
	return record && sp_fast_is_key(record, object, key, words) ? record : 0;
}

/* Whether the record of the batch may change this one; else why not. */
static __always_inline int sp_fast_may(const struct sp_fast_work *work,
				       const struct sp_fast_record *known, __u32 epoch,
				       __u32 *reason)
{
	const struct sp_batch_header *header = (const void *)work->scratch->message;

	if (!work->is_head) {
		*reason = SP_FAST_EARLY;
		return epoch <= known->epoch;
	}
	*reason = SP_FAST_NOT_HELD;
	return known->switch_id == bpf_ntohl(header->switch_id) &&
	       known->incarnation == bpf_ntohl(header->incarnation) && known->epoch == epoch &&
	       known->session == bpf_ntohl(header->session) && known->session != 0;
}

/* Looks at a record. All are looked at before one is written. */
static long sp_fast_look(__u32 index, void *context)
{
	struct sp_fast_work *work = context;
	struct sp_fast_scratch *scratch = work->scratch;
	__u32 nth = index & (SP_BATCH_RECORDS_MAX - 1);
	struct sp_record_header *record = sp_fast_record_at(scratch, scratch->begins[nth]);
	const __u64 *content = (const void *)(record + 1);
	__u32 object_id = bpf_ntohs(record->object_id), epoch = bpf_ntohl(record->epoch);
	const struct sp_fast_object *object;
	struct sp_fast_record *known;
	__u32 key_words, words = record->words, place = 0;

	/* What only the head has is told to the others record by record: half of a group. */
	work->reason = SP_FAST_GROUP;
	if (record->flags & SP_RECORD_GROUP)
		return 1;
	work->reason = SP_FAST_ABSENT;
	if (object_id >= SP_FAST_OBJECTS)
		return 1;
	object = &work->config->objects[object_id & (SP_FAST_OBJECTS - 1)];
	key_words = object->key_words;
	if (key_words == 0)
		return 1;
	if (words != key_words + object->value_words) {
		work->reason = SP_FAST_MALFORMED;
		return 1;
	}
	if (object->value_rest_bits) {
		/* Words are fewer than 32: those of an object. */
		__u64 last = content[(words - 1) & 31];

		if (last >> ((64 - object->value_rest_bits) & 63)) {
			work->reason = SP_FAST_MALFORMED;
			return 1;
		}
	}
	known = sp_fast_find(work, object_id, content, key_words, &place);
	if (!known)
		return 1;
	if (!sp_fast_may(work, known, epoch, &work->reason))
		return 1;
	scratch->places[nth] = epoch == known->epoch ? place : 0;
	work->newer |= epoch == known->epoch && bpf_be64_to_cpu(record->seq) > known->seq;
	work->reason = SP_FAST_RECORDS;
	return 0;
}

/* Writes a record, if it is newer: so of two of a key in the batch the newer one stays. */
static long sp_fast_write(__u32 index, void *context)
{
	struct sp_fast_work *work = context;
	struct sp_fast_scratch *scratch = work->scratch;
	__u32 nth = index & (SP_BATCH_RECORDS_MAX - 1);
	struct sp_record_header *record = sp_fast_record_at(scratch, scratch->begins[nth]);
	const __u64 *content = (const void *)(record + 1);
	__u32 place = scratch->places[nth] - 1, words = record->words;
	__u64 seq = bpf_be64_to_cpu(record->seq);
	struct sp_fast_record *known;

	if (!scratch->places[nth])
		return 0;
	known = bpf_map_lookup_elem(&sp_fast_records, &place);
	if (!known || seq <= known->seq)
		return 0;
	for (__u64 i = known->key_words; i < SP_FAST_CONTENT_WORDS && i < words; i++) {
		/* clang must not count in pointers: the verifier has bounds for the number only. */
		asm volatile("" : "+r"(i));
		if (i >= SP_FAST_CONTENT_WORDS)
			break;
		known->content[i] = content[i];
	}
	known->seq = seq;
	known->flags = record->flags;
	if (!known->changed) {
		known->changed = 1;
		known->next_changed = work->shard->changed;
		work->shard->changed = place - work->shard_number * work->config->records + 1;
	}
	return 0;
}

#endif
