/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_copy.h: a switch that joins is given what the others have. Part of
 * stateplane_strong.h.
 *
 * It joins as the last of the chain: it writes batches from some number on, and answers them. What
 * is older the one before it sends in parts, one after the other, while packets go on: keys with
 * the numbers of their batches. The larger number wins, so it does not matter in which order a
 * key's copy and its batches come. A removal of a key that is not here yet leaves a removed key
 * behind, which is newer than the copy.
 *
 * Decisions of streams are not copied: this member decides only once all before it are gone, and
 * those behind it began their streams after it had joined.
 *
 * The copy is of several moments. So the member is whole, and packets may read, only once it has
 * written the batch that the last part was made after.
 *
 * Invariants:
 * - One part is under way. Its acknowledgement says where the next one begins: a part that is made
 *   again may end elsewhere.
 * - A part that is older than what was forgotten here is not taken: its keys may be removed.
 */
#ifndef STATEPLANE_STRONG_COPY_H
#define STATEPLANE_STRONG_COPY_H

/* Places of a table that a part looks through. */
#define SP_STRONG_COPY_LOOKS 512
/* In `part` of one that gives: the other one has all. */
#define SP_STRONG_ALL_GIVEN (~0ull)
/* In `refused` of a part: it is the last one. */
#define SP_STRONG_LAST_PART 1ull

/* `cursor`: a table's number, then a place. */
SP_INLINE __u64 sp_strong_cursor(__u32 table, __u32 place) { return (__u64)table << 32 | place; }

struct sp_strong_giving {
	struct sp_strong_scratch *scratch;
	__u32 table;
	__u32 place;
	__u32 words; /* of the part so far */
	__u32 count;
	__u32 full; /* there is no room for the next record */
	__u32 end; /* there is nothing more of this table */
};

/* Room for a record in the part; 0: there is none. */
SP_INLINE __u64 *sp_strong_give_record(struct sp_strong_giving *it, __u32 object, __u32 words,
				       __u64 seq)
{
	__u32 size = SP_STRONG_RECORD_WORDS + words;
	__u64 at = it->words, *place;

	if (at + size > SP_STRONG_WORDS || it->count >= SP_STRONG_RECORDS) {
		it->full = 1;
		return 0;
	}
	place = it->scratch->message + SP_STRONG_HEADER_WORDS +
		sp_below(at, SP_STRONG_WORDS - size + 1);
	place[0] = bpf_cpu_to_be64((__u64)object << 48 | (__u64)words << 32);
	place[1] = bpf_cpu_to_be64(seq);
	it->words = at + size;
	it->count++;
	return place + SP_STRONG_RECORD_WORDS;
}

#define SP_STRONG_GIVE_TABLE(name, id, table, size, kb, vb, timed)                                \
	static long name##_give_one(__u32 i, struct sp_strong_giving *it)                         \
	{                                                                                         \
		__u32 number = table, place = it->place;                                          \
		struct sp_strong_table *counts;                                                   \
		struct name##_record *record;                                                     \
		__u64 *words;                                                                     \
                                                                                                  \
		counts = bpf_map_lookup_elem(&sp_strong_tables, &number);                         \
		record = bpf_map_lookup_elem(&name##_records, &place);                            \
		if (!counts || !record || place >= counts->used) {                                \
			it->end = 1;                                                              \
			return 1;                                                                 \
		}                                                                                 \
		if (!record->removed) {                                                           \
			words = sp_strong_give_record(it, id, SP_STRONG_RECORD_SIZE(kb, vb),      \
						      record->seq);                               \
			if (!words)                                                               \
				return 1;                                                         \
			sp_strong_copy(words, record->key, kb);                                   \
			sp_strong_copy(words + SP_STRONG_KW(kb), record->value, vb);              \
		}                                                                                 \
		it->place++;                                                                      \
		return 0;                                                                         \
	}

SP_STRONG_OBJECTS(SP_STRONG_GIVE_TABLE)

#define SP_STRONG_CASE_GIVE(name, id, table, size, kb, vb, timed) \
	case table: \
		bpf_loop(SP_STRONG_COPY_LOOKS, name##_give_one, it, 0); \
		return 0;

/* Goes through one table. -1: there is no such table. */
static __noinline int sp_strong_give_some(struct sp_strong_giving *it)
{
	switch (it->table) {
		SP_STRONG_OBJECTS(SP_STRONG_CASE_GIVE)
	}
	return -1;
}

static long sp_strong_give_step(__u32 i, struct sp_strong_giving *it)
{
	it->end = 0;
	if (sp_strong_give_some(it)) {
		it->end = 1;
		return 1;
	}
	if (it->full || !it->end)
		return 1;
	it->table++;
	it->place = 0;
	return 0;
}

/* Is it time to send the first part, or the one that is under way again? */
SP_INLINE int sp_strong_gives_now(void)
{
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();

	return view && node && view->standing & SP_STRONG_GIVES && node->view == view->number &&
	       SP_STRONG_LOAD(node->part) != SP_STRONG_ALL_GIVEN &&
	       sp_now_ns() - SP_STRONG_LOAD(node->part_ns) >= SP_STRONG_RESEND_NS;
}

/* The frame carries the part that begins at the cursor. */
SEC("xdp.frags")
int sp_strong_give(struct xdp_md *xdp)
{
	__u32 zero = 0, bytes = SP_STRONG_AT + SP_STRONG_HEADER_BYTES + SP_STRONG_WORDS * 8;
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_giving giving = { .scratch = scratch };
	struct sp_strong_header header = {
		.kind = SP_STRONG_COPY,
		.words = SP_STRONG_WORDS,
		.resender = SP_STRONG_NO_MEMBER,
	};

	if (!secrets || !scratch || !view || !node ||
	    sp_commit_resize(xdp, bytes, SP_COMMIT_SENDS_BYTES))
		return XDP_ABORTED;
	if (!sp_strong_lock(node))
		return sp_strong_refuse(SP_STRONG_STAT_BUSY);
	if (node->view != view->number || node->part == SP_STRONG_ALL_GIVEN || !node->whole) {
		sp_strong_unlock(node);
		return sp_strong_end();
	}
	if (!node->part)
		node->part = 1;
	for (int word = 0; word < SP_STRONG_HEADER_WORDS + SP_STRONG_WORDS; word++)
		SP_STRONG_STORE(scratch->message[word], 0);
	giving.table = node->cursor >> 32;
	giving.place = node->cursor;
	bpf_loop(SP_STRONG_TABLES + 2, sp_strong_give_step, &giving, 0);
	node->part_ns = sp_now_ns();
	header.batch = node->part;
	/* What is written now is in the part, or comes as a batch. */
	header.seq = node->applied;
	sp_strong_unlock(node);
	header.key_id = secrets->sends & (SP_SECRETS - 1);
	header.count = giving.count;
	header.uncommitted = giving.words;
	header.origin = view->own;
	header.view = view->number;
	header.refused = giving.end ? SP_STRONG_LAST_PART : 0;
	header.full = sp_strong_cursor(giving.table, giving.place);
	sp_strong_write(scratch->message, &header);
	scratch->message[SP_STRONG_DIGEST_WORD] = sp_strong_digest(
		scratch->message + SP_STRONG_HEADER_WORDS, SP_STRONG_WORDS, header.key_id);
	if (bpf_xdp_store_bytes(xdp, SP_STRONG_AT + SP_STRONG_HEADER_BYTES,
				scratch->message + SP_STRONG_HEADER_WORDS, SP_STRONG_WORDS * 8))
		return XDP_ABORTED;
	return sp_strong_emit(xdp, sp_strong_address(view, view->next), bytes,
			      xdp->ingress_ifindex);
}

/* A record of a copy: it is written if it is newer than what is here. */
static long sp_strong_take_record(__u32 record, struct sp_strong_walk *walk)
{
	struct sp_strong_scratch *scratch = walk->scratch;

	sp_strong_load(scratch, record);
	scratch->flags = 0;
	scratch->seq = scratch->since;
	return sp_strong_write_one(scratch);
}

/* Under the lock. 0: the part is here. */
static __noinline int sp_strong_take_part(struct sp_strong_scratch *scratch,
					  struct sp_strong_node *node,
					  const struct sp_strong_header *header)
{
	struct sp_strong_walk walk = { .scratch = scratch };
	__u32 count = header->count;

	/* (Whole already: the one before this member is another one now, and begins anew.) */
	if (node->whole)
		return 0;
	if (header->batch < node->part)
		return 0; /* it comes again */
	if (header->batch > node->part + 1 || node->forgotten > header->seq)
		return SP_STRONG_STAT_EARLY;
	if (!node->begun) {
		/* It is a member from here on: what is older is in the copy. */
		SP_STRONG_STORE(node->forgotten, header->seq);
		SP_STRONG_STORE(node->committed, header->seq);
		__sync_lock_test_and_set(&node->applying, header->seq);
		__sync_lock_test_and_set(&node->applied, header->seq);
		node->begun = 1;
	}
	scratch->copies = SP_STRONG_COPY_GIVEN;
	bpf_loop(count & 63, sp_strong_take_record, &walk, 0);
	node->part = header->batch;
	if (header->refused & SP_STRONG_LAST_PART) {
		node->whole_at = header->seq;
		node->whole = node->applied >= header->seq;
	}
	sp_strong_count(SP_STRONG_STAT_COPIED);
	return 0;
}

/* A part of a copy, which goes back as its acknowledgement; or that, which carries the next one. */
SEC("xdp.frags")
int sp_strong_take(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_header header;
	int wrong = 0;

	if (!scratch || !view || !node)
		return XDP_ABORTED;
	sp_strong_parse(scratch->message, &header);
	if (!sp_strong_lock(node))
		return sp_strong_refuse(SP_STRONG_STAT_BUSY);
	sp_strong_take_view(node, view);
	if (header.view != (__u32)node->view) {
		wrong = SP_STRONG_STAT_FOREIGN;
	} else if (header.kind == SP_STRONG_COPY) {
		wrong = sp_strong_take_part(scratch, node, &header);
	} else if (header.batch != node->part) {
		wrong = SP_STRONG_STAT_REPEATED;
	} else {
		node->part = header.refused & SP_STRONG_LAST_PART ? SP_STRONG_ALL_GIVEN :
								    node->part + 1;
		node->cursor = header.full;
	}
	sp_strong_unlock(node);
	if (wrong)
		return sp_strong_refuse(wrong);
	if (header.kind == SP_STRONG_COPIED) {
		if (header.refused & SP_STRONG_LAST_PART)
			return sp_strong_end();
		bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_GIVE);
		return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
	}
	header.kind = SP_STRONG_COPIED;
	sp_strong_write(scratch->message, &header);
	return sp_strong_emit(xdp, sp_strong_address(view, view->previous), sp_length(xdp),
			      xdp->ingress_ifindex);
}

#endif
