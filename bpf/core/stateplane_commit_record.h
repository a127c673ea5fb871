/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_commit_record.h: records of updates, and the packets that wait for them. Part of
 * stateplane_commit.h.
 */
#ifndef STATEPLANE_COMMIT_RECORD_H
#define STATEPLANE_COMMIT_RECORD_H

/* Records of one packet at the most, and their words. */
#define SP_COMMIT_MANY 8
#define SP_COMMIT_MANY_WORDS 64

/* What an update needs, looked up before any lock. */
struct sp_commit_place {
	struct sp_commit_lot *lot;
	struct sp_commit_stream *stream;
	struct sp_commit_batch *even; /* the batch with an even number */
	struct sp_commit_batch *odd;
	__u32 cpu;
	__u32 at; /* the stream's index */
	__u32 again; /* there is room because the flow's record stands in the open batch */
};

/*
 * May one more packet wait for this stream? A stream gets no more slots than are left for all
 * others (dynamic thresholds: Choudhury and Hahne, 1998), so one line without answers does not take
 * the whole lot.
 */
SP_INLINE int sp_commit_has_slot(
    const struct sp_commit_lot *lot, const struct sp_commit_stream *stream)
{
	__u32 held = *(volatile __u32 *)&stream->open.count + *(volatile __u32 *)&stream->flying.count;
	__u32 left = lot->own.count + SP_COMMIT_SLOTS - lot->fresh;

	return held < left || held < left + *(volatile __u32 *)&lot->free.count;
}

/* Looks up what a record for this line needs. `before`: the name of the flow's last update, whose
 * record may be written over. Not 0: it is not there (counted). */
SP_INLINE int sp_commit_find(struct sp_commit_place *place, __u32 line, __u64 before)
{
	__u32 at, even, odd;

	place->cpu = sp_cpu();
	place->at = at = sp_commit_index(place->cpu, line);
	even = at * 2;
	odd = even + 1;
	place->lot = sp_commit_lot_of(place->cpu);
	place->stream = sp_commit_stream_at(at);
	place->even = bpf_map_lookup_elem(&sp_commit_batches, &even);
	place->odd = bpf_map_lookup_elem(&sp_commit_batches, &odd);
	if (!place->lot || !place->stream || !place->even || !place->odd) {
		sp_commit_count(SP_COMMIT_COMMIT_FAULTS, 1);
		return -1;
	}
	/* (If that batch leaves now, the next one is empty.) */
	place->again = sp_commit_cpu_of(before) == place->cpu &&
		sp_commit_record_of(before) != SP_COMMIT_UNPLACED &&
		sp_commit_number_of(before) == *(volatile __u64 *)&place->stream->departed + 1;
	return 0;
}

/* Has the open batch room for a record of `words` words? It stays, as only this CPU fills it. */
SP_INLINE int sp_commit_fits(const struct sp_commit_place *place, __u32 words)
{
	return place->again ||
	       (*(volatile __u16 *)&place->stream->open_records < SP_COMMIT_RECORDS &&
		   *(volatile __u16 *)&place->stream->open_words + words <= sp_commit_words_max);
}

/*
 * Looks for room for a record of `words` words and for its packet. SP_COMMIT_HAS_ROOM: it stays, as
 * only this CPU fills its lot and its streams. Else there is none (counted): the caller drops the
 * packet before it has changed anything, or wraps it. `before`: the name of the flow's last update,
 * whose record may be written over.
 */
SP_INLINE int sp_commit_prepare(
    struct sp_commit_place *place, __u32 line, __u32 words, __u64 before)
{
	if (sp_commit_find(place, line, before))
		return SP_COMMIT_DROP;
	if (!sp_commit_fits(place, words) ||
	    *(volatile __u32 *)&place->stream->open.count >= SP_COMMIT_BATCH_SLOTS)
		return sp_commit_full(SP_COMMIT_BATCH_FULL, SP_COMMIT_BATCH_FULL_WRAPPED);
	if (!sp_commit_has_slot(place->lot, place->stream))
		return sp_commit_full(SP_COMMIT_LOT_FULL, SP_COMMIT_LOT_FULL_WRAPPED);
	return SP_COMMIT_HAS_ROOM;
}

/* Has the open batch room for several records? As sp_commit_fits. */
SP_INLINE int sp_commit_fits_many(const struct sp_commit_place *place, __u32 records, __u32 words)
{
	return *(volatile __u16 *)&place->stream->open_records + records <= SP_COMMIT_RECORDS &&
	       *(volatile __u16 *)&place->stream->open_words + words <= sp_commit_words_max &&
	       /* (The copy under the lock needs room for the longest group.) */
	       *(volatile __u16 *)&place->stream->open_words <= SP_COMMIT_WORDS - SP_COMMIT_MANY_WORDS;
}

/* As sp_commit_prepare, for several records of one packet, which are a group. A packet that can run
 * again need not be dropped if the batch is full: SP_COMMIT_LATER. */
SP_INLINE int sp_commit_prepare_many(
    struct sp_commit_place *place, __u32 line, __u32 records, __u32 words)
{
	int fits;

	if (sp_commit_find(place, line, 0))
		return SP_COMMIT_DROP;
	fits = sp_commit_fits_many(place, records, words) &&
	       *(volatile __u32 *)&place->stream->open.count < SP_COMMIT_BATCH_SLOTS;
#ifdef SP_COMMIT_RUNS_AGAIN
	if (!fits)
		return SP_COMMIT_LATER;
#endif
	if (!fits)
		return sp_commit_full(SP_COMMIT_BATCH_FULL, SP_COMMIT_BATCH_FULL_WRAPPED);
	if (!sp_commit_has_slot(place->lot, place->stream))
		return sp_commit_full(SP_COMMIT_LOT_FULL, SP_COMMIT_LOT_FULL_WRAPPED);
	return SP_COMMIT_HAS_ROOM;
}

/*
 * Under the stream's lock: where a record is to be written, and its name. `before`: the name of the
 * flow's last update; if that is in the open batch, its record is written over.
 */
SP_INLINE __u64 *sp_commit_put(
    struct sp_commit_place *place, __u64 before, __u32 words, __u64 *name)
{
	struct sp_commit_stream *stream = place->stream;
	struct sp_commit_batch *batch;
	__u64 number, record, at;

	number = stream->departed + 1;
	batch = number & 1 ? place->odd : place->even;
	record = sp_commit_record_of(before);
	if (sp_commit_cpu_of(before) == place->cpu && sp_commit_number_of(before) == number &&
	    record < stream->open_records) {
		at = batch->at[record & SP_COMMIT_RECORDS];
	} else {
		record = stream->open_records;
		at = stream->open_words;
		batch->at[record & SP_COMMIT_RECORDS] = at;
		stream->open_records = record + 1;
		stream->open_words = at + words;
	}
	*name = sp_commit_name(place->cpu, record, number);
	at = sp_below(at, SP_COMMIT_WORDS - words + 1);
	return batch->words + at;
}

/* Under the stream's lock: all records of the open batch are one group. `name`: of one that was
 * just put. Is it to have the flag? */
SP_INLINE int sp_commit_joins(struct sp_commit_place *place, __u64 name)
{
	struct sp_commit_batch *batch =
		sp_commit_number_of(name) & 1 ? place->odd : place->even;
	__u32 record = sp_commit_record_of(name);
	__u64 at;

	if (record) {
		at = sp_below(batch->at[(record - 1) & SP_COMMIT_RECORDS], SP_COMMIT_WORDS);
		/* As sp_record_header has it. */
		((__u8 *)(batch->words + at))[2] |= SP_RECORD_GROUP;
	}
	return record + 1 < place->stream->open_records;
}

/*
 * Appends several records as one group: they are in one batch, whoever sends it meanwhile. There is
 * room (sp_commit_prepare_many). `from`: their words; `starts`: where each begins. Returns the name
 * of the first one. The caller lets the lock go by sp_commit_end.
 */
SP_INLINE __u64 sp_commit_append_many(struct sp_commit_place *place, const __u64 *from,
    const __u8 *starts, __u32 records, __u32 words)
{
	struct sp_commit_stream *stream = place->stream;
	struct sp_commit_batch *batch;
	__u64 number, first, at;
	__u32 i;

	bpf_spin_lock(&stream->lock);
	number = stream->departed + 1;
	batch = number & 1 ? place->odd : place->even;
	first = stream->open_records;
	at = sp_below((__u64)stream->open_words, SP_COMMIT_WORDS - SP_COMMIT_MANY_WORDS + 1);
	for (i = 0; i < SP_COMMIT_MANY; i++) {
		if (i >= records)
			break;
		batch->at[(first + i) & SP_COMMIT_RECORDS] = at + starts[i];
	}
	for (i = 0; i < SP_COMMIT_MANY_WORDS; i++) {
		if (i >= words)
			break;
		batch->words[at + i] = from[i];
	}
	stream->open_records = first + records;
	stream->open_words = at + words;
	return sp_commit_name(place->cpu, first, number);
}

/* Lets the lock go. */
SP_INLINE void sp_commit_end(struct sp_commit_place *place)
{
	struct sp_commit_stream *stream = place->stream;
	int queue = !stream->queued;
	__u32 at = place->at, zero = 0;
	__u64 *work;

	stream->queued = 1;
	bpf_spin_unlock(&stream->lock);
	if (!queue)
		return;
	if (bpf_map_push_elem(&sp_commit_due, &at, 0)) { /* (it has a place for each stream) */
		stream->queued = 0;
		return;
	}
	work = bpf_map_lookup_elem(&sp_generator_work, &zero);
	if (work)
		__sync_fetch_and_add(work, 1);
}

/* Under the stream's lock, or after `acked` was read: was this record refused? */
SP_INLINE int sp_commit_is_refused(const struct sp_commit_stream *stream, __u64 name)
{
	return *(volatile __u64 *)&stream->refused == sp_commit_number_of(name) &&
	       *(volatile __u64 *)&stream->refused_bits >> sp_commit_record_of(name) & 1;
}

/* Is the update with this name durable? `line` is its flow's. */
SP_INLINE int sp_commit_is_durable(__u64 name, __u32 line)
{
	struct sp_commit_stream *stream;
	__u32 at = sp_commit_index(sp_commit_cpu_of(name), line);

	if (sp_commit_record_of(name) == SP_COMMIT_UNPLACED)
		return 0;
	stream = sp_commit_stream_at(at);
	return stream && *(volatile __u64 *)&stream->acked >= sp_commit_number_of(name) &&
	       !sp_commit_is_refused(stream, name);
}

/* A durable update of this CPU: are packets that waited for its batch still here? Then the flow's
 * next ones line up behind them. */
SP_INLINE int sp_commit_lines_up(__u64 name, __u32 line)
{
	__u32 cpu = sp_cpu(), at = sp_commit_index(cpu, line);
	struct sp_commit_stream *stream = sp_commit_stream_at(at);

	return sp_commit_cpu_of(name) == cpu && stream &&
	       sp_commit_number_of(name) > *(volatile __u64 *)&stream->clear &&
	       *(volatile __u32 *)&stream->ready;
}

/* Under the lock of the list's owner. */
SP_INLINE void sp_commit_append(
    struct sp_commit_lot *lot, struct sp_commit_list *list, const struct sp_commit_list *more)
{
	if (list->count)
		lot->next[list->last & (SP_COMMIT_SLOTS - 1)] = more->first;
	else
		list->first = more->first;
	list->last = more->last;
	list->count += more->count;
}

/* What these slots wait for is durable. */
SP_INLINE void sp_commit_append_ready(struct sp_commit_lot *lot, const struct sp_commit_list *more)
{
	bpf_spin_lock(&lot->lock);
	sp_commit_append(lot, &lot->ready, more);
	bpf_spin_unlock(&lot->lock);
}

SP_INLINE void sp_commit_push(
    struct sp_commit_lot *lot, struct sp_commit_list *stack, __u32 slot)
{
	lot->next[slot & (SP_COMMIT_SLOTS - 1)] = stack->first;
	stack->first = slot;
	stack->count++;
}

/* A slot of the lot of `cpu` is free again. */
SP_INLINE void sp_commit_free(struct sp_commit_lot *lot, __u32 cpu, __u32 slot)
{
	if (cpu == sp_cpu()) {
		sp_commit_push(lot, &lot->own, slot);
		return;
	}
	bpf_spin_lock(&lot->lock);
	sp_commit_push(lot, &lot->free, slot);
	bpf_spin_unlock(&lot->lock);
}

/* A free slot of this CPU's lot, or -1. (Programs on a CPU do not interrupt each other.) */
SP_INLINE int sp_commit_take(struct sp_commit_lot *lot)
{
	__u32 others = *(volatile __u32 *)&lot->free.count, slot;

	/* Used slots first: they may still be in the cache. */
	if (!lot->own.count &&
	    others >= (lot->fresh < SP_COMMIT_SLOTS ? SP_COMMIT_TAKEN_OVER : 1)) {
		bpf_spin_lock(&lot->lock);
		lot->own = lot->free;
		lot->free.count = 0;
		bpf_spin_unlock(&lot->lock);
	}
	if (!lot->own.count)
		return lot->fresh < SP_COMMIT_SLOTS ? (int)lot->fresh++ : -1;
	slot = lot->own.first & (SP_COMMIT_SLOTS - 1);
	lot->own.first = lot->next[slot];
	lot->own.count--;
	return slot;
}

/*
 * The slot of this CPU's lot that sp_commit_take gives next, or -1. (Nothing else takes one in
 * between: programs on a CPU do not interrupt each other.)
 */
SP_INLINE int sp_commit_peek(struct sp_commit_lot *lot)
{
	int slot;

	if (!lot->own.count) {
		slot = sp_commit_take(lot);
		if (slot < 0)
			return slot;
		sp_commit_push(lot, &lot->own, slot);
	}
	return lot->own.first & (SP_COMMIT_SLOTS - 1);
}

#ifdef SP_COMMIT_NOTES
/* Where the packet notes, for the slot that sp_commit_park takes next. 0: none is free
 * (counted). */
SP_INLINE struct sp_commit_noted *sp_commit_notes(void)
{
	__u32 cpu = sp_cpu(), index;
	struct sp_commit_lot *lot = sp_commit_lot_of(cpu);
	int slot = lot ? sp_commit_peek(lot) : -1;

	if (slot < 0) {
		sp_commit_count(SP_COMMIT_LOT_FULL, 1);
		return 0;
	}
	index = cpu * SP_COMMIT_SLOTS + (slot & (SP_COMMIT_SLOTS - 1));
	return bpf_map_lookup_elem(&sp_commit_noted, &index);
}
#endif

#ifdef SP_COMMIT_RUNS_AGAIN
/* Keeps the frame, which is as it came in, for the slot that sp_commit_park takes next. */
SP_INLINE int sp_commit_keep(
    struct xdp_md *xdp, struct sp_commit_lot *lot, __u32 port, __u32 attempts)
{
	int slot = sp_commit_peek(lot);
	__u64 bytes = sp_length(xdp);
	__u32 index = sp_cpu() * SP_COMMIT_SLOTS + (slot & (SP_COMMIT_SLOTS - 1));
	struct sp_commit_original *original = bpf_map_lookup_elem(&sp_commit_originals, &index);

	asm volatile("" : "+r"(bytes));
	if (slot < 0 || !original || bytes < SP_LEAST_BYTES || bytes > SP_COMMIT_FRAME_BYTES)
		return -1;
	original->bytes = bytes;
	original->port = port;
	original->attempts = attempts;
	return bpf_xdp_load_bytes(xdp, 0, original->frame, bytes);
}

/* The frame becomes what came in once. It is as long already. */
SP_INLINE int sp_commit_restore(struct xdp_md *xdp, __u32 index)
{
	struct sp_commit_original *original = bpf_map_lookup_elem(&sp_commit_originals, &index);
	struct sp_commit_resume *resume;
	__u32 zero = 0;
	__u64 bytes;

	resume = bpf_map_lookup_elem(&sp_commit_resume, &zero);
	if (!original || !resume)
		return -1;
	bytes = original->bytes;
	asm volatile("" : "+r"(bytes));
	if (bytes < SP_LEAST_BYTES || bytes > SP_COMMIT_FRAME_BYTES)
		return -1;
	resume->port = original->port;
	resume->attempts = original->attempts;
	return bpf_xdp_store_bytes(xdp, 0, original->frame, bytes);
}
#endif

/* Copies a frame of `bytes` bytes into the slot with this index, or out of it (`out`). 0: done. */
SP_INLINE int sp_commit_copy(
    struct xdp_md *xdp, struct sp_commit_slot *slot, __u32 index, __u64 bytes, int out)
{
	__u64 head = bytes, rest = bytes - SP_COMMIT_HEAD_BYTES;
	struct sp_commit_tail *tail;

	if (bytes > SP_COMMIT_HEAD_BYTES)
		head = SP_COMMIT_HEAD_BYTES;
	asm volatile("" : "+r"(head), "+r"(rest)); /* one register each, so that the bounds stick */
	if (head < SP_LEAST_BYTES || head > SP_COMMIT_HEAD_BYTES)
		return -1;
	if (out ? bpf_xdp_store_bytes(xdp, 0, slot->frame, head) :
		  bpf_xdp_load_bytes(xdp, 0, slot->frame, head))
		return -1;
	if (bytes <= SP_COMMIT_HEAD_BYTES)
		return 0;
	tail = bpf_map_lookup_elem(&sp_commit_tails, &index);
	if (!tail || rest < 1 || rest > sizeof(tail->frame))
		return -1;
	return out ? bpf_xdp_store_bytes(xdp, SP_COMMIT_HEAD_BYTES, tail->frame, rest) :
		     bpf_xdp_load_bytes(xdp, SP_COMMIT_HEAD_BYTES, tail->frame, rest);
}

/*
 * Copies the finished frame into a slot, which waits for the batch in `name`, one of this CPU's.
 * SP_COMMIT_HAS_ROOM: done, the frame is free. SP_COMMIT_WRAP: it is too long, or there is no slot.
 */
SP_INLINE int sp_commit_park(struct xdp_md *xdp, __u32 line, __u64 name, __u32 port)
{
	__u32 cpu = sp_cpu(), index;
	__u32 at = sp_commit_index(cpu, line);
	struct sp_commit_lot *lot = sp_commit_lot_of(cpu);
	struct sp_commit_stream *stream = sp_commit_stream_at(at);
	__u64 bytes = sp_length(xdp), number = sp_commit_number_of(name);
	struct sp_commit_list one = { .count = 1 };
	struct sp_commit_slot *slot;
	int ready = 0, taken;

	asm volatile("" : "+r"(bytes));
	if (!lot || !stream || bytes < SP_LEAST_BYTES)
		return SP_COMMIT_DROP;
	if (bytes > SP_COMMIT_FRAME_BYTES)
		return SP_COMMIT_WRAP;
	taken = sp_commit_has_slot(lot, stream) ? sp_commit_take(lot) : -1;
	if (taken < 0)
		return sp_commit_full(SP_COMMIT_LOT_FULL, SP_COMMIT_LOT_FULL_WRAPPED);
	index = cpu * SP_COMMIT_SLOTS + (taken & (SP_COMMIT_SLOTS - 1));
	slot = bpf_map_lookup_elem(&sp_commit_slots, &index);
	if (!slot || sp_commit_copy(xdp, slot, index, bytes, 0)) {
		sp_commit_free(lot, cpu, taken);
		sp_commit_count(SP_COMMIT_COMMIT_FAULTS, 1);
		return SP_COMMIT_DROP;
	}
	slot->bytes = bytes;
	slot->port = port;
	slot->stream = at;
	slot->record = sp_commit_record_of(name);
	slot->parked_ns = sp_coarse_ns();
	one.first = one.last = taken;
	bpf_spin_lock(&stream->lock);
	/* Which records of earlier batches were refused is forgotten: then the packet is too late. */
	slot->refused = number <= stream->departed && (sp_commit_is_refused(stream, name) ||
			(number && number < stream->acked && number <= stream->refused));
	if (number <= stream->acked) {
		__sync_fetch_and_add(&stream->ready, 1);
		if (number && stream->clear >= number)
			stream->clear = number - 1;
		ready = 1;
	} else if (number == stream->departed) {
		sp_commit_append(lot, &stream->flying, &one);
	} else {
		sp_commit_append(lot, &stream->open, &one);
	}
	bpf_spin_unlock(&stream->lock);
	if (ready)
		sp_commit_append_ready(lot, &one);
	sp_commit_count(SP_COMMIT_PARKED, 1);
	return SP_COMMIT_HAS_ROOM;
}

#ifdef SP_COMMIT_RUNS_AGAIN
/*
 * The frame, which is as it came in, waits, and goes through the program again: once the batch in
 * flight is acknowledged, or the open one if none is in flight. 1: there is neither, so it is
 * ready. SP_COMMIT_DROP: no slot is free (counted).
 */
static __noinline int sp_commit_defer(struct xdp_md *xdp, __u32 line, __u32 port, __u32 attempts)
{
	__u32 cpu = sp_cpu(), at = sp_commit_index(cpu, line), index;
	struct sp_commit_lot *lot = sp_commit_lot_of(cpu);
	struct sp_commit_stream *stream = sp_commit_stream_at(at);
	struct sp_commit_place place = { .stream = stream, .at = at };
	struct sp_commit_list one = { .count = 1 };
	struct sp_commit_slot *slot;
	int ready = 0, taken = -1;

	if (!lot || !stream)
		return SP_COMMIT_DROP;
	if (sp_length(xdp) > SP_COMMIT_FRAME_BYTES) {
		sp_commit_count(SP_COMMIT_COMMIT_FAULTS, 1);
		return SP_COMMIT_DROP;
	}
	if (sp_commit_has_slot(lot, stream) && !sp_commit_keep(xdp, lot, port, attempts))
		taken = sp_commit_take(lot);
	index = cpu * SP_COMMIT_SLOTS + (taken & (SP_COMMIT_SLOTS - 1));
	slot = bpf_map_lookup_elem(&sp_commit_slots, &index);
	if (taken < 0 || !slot) {
		sp_commit_count(SP_COMMIT_LOT_FULL, 1);
		return SP_COMMIT_DROP;
	}
	slot->bytes = sp_length(xdp);
	slot->port = port;
	slot->stream = at;
	slot->record = SP_COMMIT_UNPLACED;
	slot->refused = SP_COMMIT_RUN_AGAIN;
	slot->parked_ns = sp_coarse_ns();
	one.first = one.last = taken;
	bpf_spin_lock(&stream->lock);
	if (stream->acked != stream->departed) {
		sp_commit_append(lot, &stream->flying, &one);
	} else if (stream->open_records) {
		sp_commit_append(lot, &stream->open, &one);
	} else {
		__sync_fetch_and_add(&stream->ready, 1);
		ready = 1;
	}
	sp_commit_end(&place);
	if (ready)
		sp_commit_append_ready(lot, &one);
	sp_commit_count(SP_COMMIT_DEFERRED, 1);
	return ready;
}
#endif

#endif
