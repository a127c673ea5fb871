/* stateplane_flow_record.h: an update as a record of a batch (bpf/core/stateplane_commit.h). Part
 * of stateplane_flow.h. */
#ifndef STATEPLANE_FLOW_RECORD_H
#define STATEPLANE_FLOW_RECORD_H

#define SP_FLOW_RECORD_WORDS(kb, vb) (3 + SP_ROUND8(kb) / 8 + SP_ROUND8(vb) / 8)

/* Bits of an entry as a record has them. */
static __always_inline __u8 sp_flow_record_flags(__u32 phases)
{
	return (phases & (SP_FLOW_HALF_CLOSED | SP_FLOW_CLOSED)) |
	       (phases & SP_FLOW_HALF_OPEN ? SP_RECORD_HALF_OPEN : 0);
}

/* Under the stream's lock: writes an update's record into the open batch. Its name. */
static __always_inline __u64 sp_flow_put_record(struct sp_commit_place *place, __u64 before,
    __u32 object_id, const void *key, __u32 key_bytes, const void *value, __u32 value_bytes,
    __u32 epoch, __u64 seq, __u32 phases)
{
	__u32 words = SP_FLOW_RECORD_WORDS(key_bytes, value_bytes), flags;
	__u64 name = 0;
	__u64 *record = sp_commit_put(place, before, words, &name);

	flags = sp_flow_record_flags(phases);
#ifdef SP_FLOW_GROUPED
	if (sp_commit_joins(place, name)) /* groups.md, decision 3 */
		flags |= SP_RECORD_GROUP;
#endif
	/* As sp_record_header has it. */
	record[0] = bpf_cpu_to_be64((__u64)object_id << 48 |
	    (__u64)flags << 40 | (__u64)(words - 3) << 32 | epoch);
	record[1] = 0;
	record[2] = bpf_cpu_to_be64(seq);
	sp_flow_copy(record + 3, key, key_bytes);
	sp_flow_copy(record + 3 + SP_ROUND8(key_bytes) / 8, value, value_bytes);
	return name;
}

/* The same, with the lock. */
static __always_inline __u64 sp_flow_record(struct sp_commit_place *place, __u64 before,
    __u32 object_id, const void *key, __u32 key_bytes, const void *value, __u32 value_bytes,
    __u32 epoch, __u64 seq, __u32 phases)
{
	__u64 name;

	bpf_spin_lock(&place->stream->lock);
	name = sp_flow_put_record(place, before, object_id, key, key_bytes, value, value_bytes, epoch,
	    seq, phases);
	sp_commit_end(place);
	return name;
}

/* The record in the scratch, if it has not left, says what the program says by now. */
static __always_inline void sp_flow_record_phase(struct sp_flow_scratch *scratch, __u32 phases)
{
	__u32 index = sp_commit_index(sp_commit_cpu_of(scratch->name), scratch->shard);
	struct sp_commit_stream *stream = sp_commit_stream_at(index);
	__u64 number = sp_commit_number_of(scratch->name), at;
	__u32 batch_index = index * 2 + (number & 1);
	struct sp_commit_batch *batch = bpf_map_lookup_elem(&sp_commit_batches, &batch_index);

	if (!stream || !batch)
		return;
	bpf_spin_lock(&stream->lock);
	if (number == stream->departed + 1) {
		at = sp_below(batch->at[sp_commit_record_of(scratch->name) & SP_COMMIT_RECORDS], SP_COMMIT_WORDS);
		/* Byte 2 of the record's header. */
		((__u8 *)(batch->words + at))[2] = sp_flow_record_flags(phases);
	}
	bpf_spin_unlock(&stream->lock);
}

#endif
