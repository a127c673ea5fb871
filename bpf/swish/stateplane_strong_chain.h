/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_chain.h: a member of the chain: what it does with batches, and what it sends.
 * Part of stateplane_strong.h.
 *
 * Owns: the log, views, which member may send which message. Must not know: tables, parked packets.
 *
 * The head numbers batches, and decides each once: a batch that comes again has the same decision.
 * Members write batches in the order of their numbers. One that comes early waits in the log. Only
 * the tail answers.
 */
#ifndef STATEPLANE_STRONG_CHAIN_H
#define STATEPLANE_STRONG_CHAIN_H

/* Tries to take the lock of the node. */
#define SP_STRONG_TRIES 8192
/* Early batches that are written at once, when the one before them comes. */
#define SP_STRONG_CATCHES_UP 16

/* A batch as it was sent. */
struct sp_strong_entry {
	__u64 message[SP_STRONG_HEADER_WORDS + SP_STRONG_WORDS];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_STRONG_LOG);
	__type(key, __u32);
	__type(value, struct sp_strong_entry);
} sp_strong_log SEC(".maps");

/* By member, then CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_STRONG_MEMBERS *SP_STRONG_CPUS);
	__type(key, __u32);
	__type(value, struct sp_strong_stream);
} sp_strong_streams SEC(".maps");

/* ---- the log and the lock ------------------------------------------------------------------- */

struct sp_strong_try {
	struct sp_strong_node *node;
	__u32 got;
};

static long sp_strong_try_lock(__u32 i, struct sp_strong_try *try)
{
	try->got = !SP_STRONG_LOAD(try->node->lock) &&
		   !__sync_val_compare_and_swap(&try->node->lock, 0, 1);
	return try->got;
}

SP_INLINE int sp_strong_lock(struct sp_strong_node *node)
{
	struct sp_strong_try try = { .node = node };

	if (!__sync_val_compare_and_swap(&node->lock, 0, 1))
		return 1;
	bpf_loop(SP_STRONG_TRIES, sp_strong_try_lock, &try, 0);
	return try.got;
}

SP_INLINE void sp_strong_unlock(struct sp_strong_node *node)
{
	sp_strong_publish(&node->lock, 0);
}

SP_INLINE struct sp_strong_entry *sp_strong_entry(__u64 seq)
{
	__u32 at = seq % SP_STRONG_LOG;

	return bpf_map_lookup_elem(&sp_strong_log, &at);
}

/* The tail has all batches up to `seq`. (Other CPUs may note more.) */
SP_INLINE void sp_strong_raise(struct sp_strong_node *node, __u64 seq)
{
	for (int i = 0; i < 16; i++) {
		__u64 seen = SP_STRONG_LOAD(node->committed);

		if (seen >= seq || seq > SP_STRONG_LOAD(node->applied) ||
		    __sync_val_compare_and_swap(&node->committed, seen, seq) == seen)
			break;
	}
}

/* Under the lock. What was sent in an older view and waits early in the log is of no use any more:
 * its number may be another batch's by now. */
static __noinline int sp_strong_take_view(struct sp_strong_node *node,
					  const struct sp_strong_view *view)
{
	/* (Another CPU may have taken a newer one than this CPU has seen.) */
	if (node->view >= view->number)
		return 0;
	node->view = view->number;
	node->since_ns = sp_now_ns();
	node->round = node->round_done = node->round_ns = 0;
	node->passed_ns = node->before_ns = 0;
	node->part = node->cursor = node->part_ns = node->whole_at = 0;
	if (!(view->standing & SP_STRONG_JOINS))
		node->whole = node->begun = 1;
	if (!view->lease_ns)
		node->reads_ns = SP_STRONG_FOR_GOOD;
	return 0;
}

/* Whether this member answers: all of its view have what it has, and no other switch reads. */
SP_INLINE int sp_strong_commits(const struct sp_strong_node *node,
				const struct sp_strong_view *view)
{
	if (!view->wait_ns)
		return !!(view->standing & SP_STRONG_TAIL);
	/* A removed member may read until its lease is over: nothing is committed before. */
	return view->standing & SP_STRONG_TAIL && sp_now_ns() - node->since_ns >= view->wait_ns;
}

/* Keeps the message in the scratch, of whose records the frame has the words. */
static __noinline int sp_strong_keep(struct xdp_md *xdp, const struct sp_strong_scratch *scratch,
				     __u64 seq, __u64 words)
{
	struct sp_strong_entry *entry = sp_strong_entry(seq);
	__u64 bytes = words * 8;

	asm volatile("" : "+r"(bytes));
	if (!entry || bytes < 8 || bytes > SP_STRONG_WORDS * 8)
		return -1;
	for (int i = 0; i < SP_STRONG_HEADER_WORDS; i++)
		entry->message[i] = scratch->message[i];
	return bpf_xdp_load_bytes(xdp, SP_STRONG_AT + SP_STRONG_HEADER_BYTES,
				  entry->message + SP_STRONG_HEADER_WORDS, bytes);
}

SP_INLINE struct sp_strong_stream *sp_strong_stream_of(const struct sp_strong_header *header)
{
	__u32 at = header->origin * SP_STRONG_CPUS + (header->stream & (SP_STRONG_CPUS - 1));

	return bpf_map_lookup_elem(&sp_strong_streams, &at);
}

/* Notes what became of a batch, so that it is not decided again. */
SP_INLINE void sp_strong_note(const struct sp_strong_header *header)
{
	struct sp_strong_stream *stream = sp_strong_stream_of(header);

	if (!stream)
		return;
	stream->incarnation = header->incarnation;
	stream->batch = header->batch;
	stream->seq = header->seq;
	stream->refused = header->refused;
	stream->full = header->full;
}

/* ---- the head ------------------------------------------------------------------------------- */

/* Under the lock. 0: the batch is decided; else why it is not. */
static __noinline int sp_strong_decide(struct xdp_md *xdp, struct sp_strong_scratch *scratch,
				       struct sp_strong_node *node,
				       struct sp_strong_header *header)
{
	struct sp_strong_stream *stream = sp_strong_stream_of(header);
	struct sp_strong_walk walk = { .scratch = scratch, .end = header->count };

	if (!stream)
		return SP_STRONG_STAT_FAULTS;
	if (header->incarnation < stream->incarnation)
		return SP_STRONG_STAT_FOREIGN;
	if (header->incarnation == stream->incarnation && header->batch <= stream->batch) {
		if (header->batch != stream->batch)
			return SP_STRONG_STAT_REPEATED;
		/* It comes again: so does the decision. */
		header->seq = stream->seq;
		header->refused = stream->refused;
		header->full = stream->full;
		sp_strong_count(SP_STRONG_STAT_REPEATED);
		return 0;
	}
	if (node->applied - SP_STRONG_LOAD(node->committed) >= SP_STRONG_LOG - 1)
		return SP_STRONG_STAT_LOG_FULL;
	header->seq = scratch->seq = node->applied + 1;
	sp_strong_publish(&node->applying, header->seq);
	scratch->copies = SP_STRONG_NO_COPY;
	bpf_loop(2 * SP_STRONG_RECORDS, sp_strong_decide_one, &walk, 0);
	header->refused = walk.refused;
	header->full = walk.full;
	header->kind = SP_STRONG_BATCH;
	header->view = node->view;
	sp_strong_note(header);
	sp_strong_write(scratch->message, header);
	sp_strong_keep(xdp, scratch, header->seq, header->words);
	sp_strong_publish(&node->applied, header->seq);
	sp_strong_count(SP_STRONG_STAT_DECIDED);
	if (walk.refused & ~walk.full)
		sp_strong_count(SP_STRONG_STAT_CONFLICTS);
	return 0;
}

/* ---- the other members ---------------------------------------------------------------------- */

/* Writes the batch of the message in the scratch, whose records were found. */
static __noinline int sp_strong_apply(struct sp_strong_scratch *scratch,
				      struct sp_strong_node *node,
				      const struct sp_strong_header *header)
{
	struct sp_strong_walk walk = { .scratch = scratch, .refused = header->refused };
	__u32 count = header->count;

	scratch->seq = header->seq;
	scratch->copies = node->whole ? SP_STRONG_NO_COPY : SP_STRONG_COPY_LACKS;
	sp_strong_publish(&node->applying, header->seq);
	bpf_loop(count & 63, sp_strong_write_decided, &walk, 0);
	sp_strong_note(header);
	sp_strong_publish(&node->applied, header->seq);
	sp_strong_count(SP_STRONG_STAT_APPLIED);
	if (!node->whole && node->whole_at && header->seq >= node->whole_at)
		node->whole = 1;
	return 0;
}

struct sp_strong_early {
	struct sp_strong_scratch *scratch;
	struct sp_strong_node *node;
};

static long sp_strong_early_one(__u32 i, struct sp_strong_early *early)
{
	struct sp_strong_scratch *scratch = early->scratch;
	struct sp_strong_node *node = early->node;
	struct sp_strong_entry *entry = sp_strong_entry(node->applied + 1);
	struct sp_strong_header header;

	if (!entry)
		return 1;
	sp_strong_parse(entry->message, &header);
	if (header.seq != node->applied + 1 || header.view != (__u32)node->view)
		return 1;
	for (int word = 0; word < SP_STRONG_HEADER_WORDS + SP_STRONG_WORDS; word++)
		scratch->message[word] = entry->message[word];
	if (sp_strong_find(scratch, header.count, header.words))
		return 1;
	sp_strong_apply(scratch, node, &header);
	return 0;
}

/* Under the lock. 0: the batch is written; else why it is not. */
static __noinline int sp_strong_member(struct xdp_md *xdp, struct sp_strong_scratch *scratch,
				       struct sp_strong_node *node,
				       const struct sp_strong_header *header)
{
	struct sp_strong_early early = { .scratch = scratch, .node = node };
	struct sp_strong_entry *next;

	/* (From which batch on it is a member comes with the first part of the copy.) */
	if (!node->begun)
		return SP_STRONG_STAT_EARLY;
	if (header->seq <= node->applied) {
		sp_strong_count(SP_STRONG_STAT_REPEATED);
		return 0;
	}
	if (header->seq >= node->applied + SP_STRONG_LOG)
		return SP_STRONG_STAT_LOG_FULL;
	sp_strong_keep(xdp, scratch, header->seq, header->words);
	if (header->seq != node->applied + 1)
		return SP_STRONG_STAT_EARLY;
	sp_strong_apply(scratch, node, header);
	next = sp_strong_entry(node->applied + 1);
	if (next && bpf_be64_to_cpu(next->message[SP_STRONG_SEQ_WORD]) == node->applied + 1)
		bpf_loop(SP_STRONG_CATCHES_UP, sp_strong_early_one, &early, 0);
	return 0;
}

/* ---- a message comes in --------------------------------------------------------------------- */

/* The only possible sender of this message; 0: none. (Any member may answer what it knows.) */
SP_INLINE __u32 sp_strong_is_from(const struct sp_strong_view *view,
				  const struct sp_strong_header *header, __u32 from)
{
	int head = view->standing & SP_STRONG_HEAD;

	switch (header->kind) {
	case SP_STRONG_HELLO:
		return sp_strong_address(view, header->origin);
	case SP_STRONG_REQUEST:
		return head ? sp_strong_address(view, header->origin) : 0;
	case SP_STRONG_BATCH:
	case SP_STRONG_COPY:
		return head ? 0 : sp_strong_address(view, view->previous);
	case SP_STRONG_ROUND:
		return sp_strong_address(view, head ? view->last : view->previous);
	case SP_STRONG_COPIED:
		return sp_strong_address(view, view->next);
	}
	return from;
}

/* Whether the message is of the view that this member is in: 0, or a statistic. */
SP_INLINE __u32 sp_strong_other_view(const struct sp_strong_view *view,
				     const struct sp_strong_header *header)
{
	if (header->kind == SP_STRONG_HELLO)
		return view->standing & SP_STRONG_MEETS ? 0 : SP_STRONG_STAT_FOREIGN;
	/* (Others have heard before this member that all agree; or it restarted.) */
	if ((view->standing & (SP_STRONG_MEETS | SP_STRONG_ON)) == SP_STRONG_MEETS)
		return SP_STRONG_STAT_EARLY;
	return view->standing & SP_STRONG_ON && header->view == (__u32)view->number ?
		       0 :
		       SP_STRONG_STAT_FOREIGN;
}

/* Reads the message, and checks all that makes it one to be taken: 0, or a statistic. */
static __noinline int sp_strong_check(struct xdp_md *xdp, struct sp_strong_scratch *scratch,
				      const struct sp_strong_view *view,
				      struct sp_strong_header *header)
{
	__u64 bytes = sp_length(xdp) - SP_STRONG_AT;
	__u8 *data = (void *)(long)xdp->data;
	__u32 from, to, short_one, wrong;

	asm volatile("" : "+r"(bytes));
	if (data + SP_STRONG_AT > (__u8 *)(long)xdp->data_end || bytes < SP_STRONG_HEADER_BYTES ||
	    bytes > SP_STRONG_HEADER_BYTES + SP_STRONG_WORDS * 8)
		return SP_STRONG_STAT_MALFORMED;
	from = *(sp_u32a *)(data + 26);
	to = *(sp_u32a *)(data + 30);
	if (bpf_xdp_load_bytes(xdp, SP_STRONG_AT, scratch->message, bytes))
		return SP_STRONG_STAT_MALFORMED;
	sp_strong_parse(scratch->message, header);
	short_one = header->kind == SP_STRONG_ACK || header->kind == SP_STRONG_ROUND ||
		    header->kind == SP_STRONG_HELLO;
	if ((header->kind != SP_STRONG_REQUEST && header->kind != SP_STRONG_BATCH && !short_one &&
	     header->kind != SP_STRONG_COPY && header->kind != SP_STRONG_COPIED) ||
	    header->origin >= SP_STRONG_MEMBERS || header->stream >= SP_STRONG_CPUS ||
	    bytes != SP_STRONG_HEADER_BYTES + (short_one ? 0 : header->words * 8))
		return SP_STRONG_STAT_MALFORMED;
	if (to != sp_strong_address(view, view->own))
		return SP_STRONG_STAT_FOREIGN;
	wrong = sp_strong_other_view(view, header);
	if (wrong)
		return wrong;
	if (sp_strong_is_from(view, header, from) != from)
		return SP_STRONG_STAT_FOREIGN;
	if (sp_strong_tag(scratch->message, (__u64)from | (__u64)to << 32, view->layout) !=
	    scratch->message[SP_STRONG_TAG_WORD])
		return SP_STRONG_STAT_FORGED;
	if (short_one)
		return 0;
	if (sp_strong_digest(scratch->message + SP_STRONG_HEADER_WORDS, header->words,
			     header->key_id) != scratch->message[SP_STRONG_DIGEST_WORD])
		return SP_STRONG_STAT_FORGED;
	if (header->kind == SP_STRONG_COPIED)
		return 0;
	/* (A copy is as long as a frame may be, and says how much of that is used.) */
	if (header->kind == SP_STRONG_COPY && !header->uncommitted)
		return 0;
	return sp_strong_find(scratch, header->count, header->kind == SP_STRONG_COPY ?
							      header->uncommitted :
							      header->words) ?
		       SP_STRONG_STAT_MALFORMED :
		       0;
}

/* A genuine batch: it is decided or written here. 0, or a statistic. */
SP_INLINE int sp_strong_batch(struct xdp_md *xdp, struct sp_strong_scratch *scratch,
				      const struct sp_strong_view *view,
				      struct sp_strong_header *header)
{
	struct sp_strong_node *node = sp_strong_get_node();
	__u64 known = header->seq;
	int wrong;

	if (!node)
		return SP_STRONG_STAT_FAULTS;
	if (!sp_strong_lock(node))
		return SP_STRONG_STAT_BUSY;
	sp_strong_take_view(node, view);
	if (node->view != view->number) {
		sp_strong_unlock(node);
		return SP_STRONG_STAT_FOREIGN;
	}
	if (header->kind == SP_STRONG_REQUEST) {
		sp_strong_raise(node, known);
		wrong = sp_strong_decide(xdp, scratch, node, header);
	} else {
		wrong = sp_strong_member(xdp, scratch, node, header);
		if (known > header->uncommitted)
			sp_strong_raise(node, known - header->uncommitted);
	}
	if (sp_strong_commits(node, view))
		sp_strong_raise(node, node->applied);
	known = SP_STRONG_LOAD(node->committed);
	sp_strong_unlock(node);
	header->uncommitted = header->seq > known ? header->seq - known : 0;
	if (wrong)
		return wrong;
	return view->standing & SP_STRONG_TAIL && header->seq > known ? SP_STRONG_STAT_EARLY : 0;
}

/* A message of a member, in a program of its own. */
SEC("xdp.frags")
int sp_strong_receive(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_header header = {};
	__u32 to, bytes = sp_length(xdp);
	__u64 digest;
	int wrong;

	if (!scratch || !view || !node)
		return XDP_ABORTED;
	wrong = sp_strong_check(xdp, scratch, view, &header);
	if (wrong)
		return sp_strong_refuse(wrong);
	if (header.kind == SP_STRONG_ACK) {
		bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_ACKED);
		return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
	}
	if (header.kind == SP_STRONG_HELLO) {
		bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_HEAR);
		return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
	}
	if (header.kind == SP_STRONG_ROUND || header.kind == SP_STRONG_COPY ||
	    header.kind == SP_STRONG_COPIED) {
		bpf_tail_call(xdp, &sp_strong_programs,
			      header.kind == SP_STRONG_ROUND ? SP_STRONG_PASS : SP_STRONG_TAKE);
		return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
	}
	digest = scratch->message[SP_STRONG_DIGEST_WORD];
	wrong = sp_strong_batch(xdp, scratch, view, &header);
	/* (What comes early goes on: it is early there, too.) */
	if (wrong && (wrong != SP_STRONG_STAT_EARLY || view->standing & SP_STRONG_TAIL))
		return sp_strong_refuse(wrong);
	if (wrong)
		sp_strong_count(wrong);
	/* (The scratch may have another batch by now, one that came early.) */
	scratch->message[SP_STRONG_DIGEST_WORD] = digest;
	if (view->standing & SP_STRONG_TAIL) {
		header.kind = SP_STRONG_ACK;
		to = sp_strong_address(view, header.resender == SP_STRONG_NO_MEMBER ? header.origin :
										      header.resender);
		header.seq = SP_STRONG_LOAD(node->committed);
		scratch->message[SP_STRONG_DIGEST_WORD] = 0;
		bytes = SP_STRONG_AT + SP_STRONG_HEADER_BYTES;
		if (sp_commit_resize(xdp, bytes, SP_COMMIT_SENDS_BYTES))
			return XDP_ABORTED;
	} else {
		header.kind = SP_STRONG_BATCH;
		to = sp_strong_address(view, view->next);
	}
	sp_strong_write(scratch->message, &header);
	sp_strong_count(header.kind == SP_STRONG_ACK ? SP_STRONG_STAT_ANSWERED :
						       SP_STRONG_STAT_FORWARDED);
	return sp_strong_deliver(xdp, to, bytes, xdp->ingress_ifindex);
}

/* At the top of sp_main: a message of a member to this switch does not come back from here. */
SP_INLINE void sp_strong_claim(struct xdp_md *xdp)
{
	__u8 *data = (void *)(long)xdp->data, *fabric;
	struct sp_strong_view *view;
	__u32 port = 0;

	if (data + SP_STRONG_AT + SP_STRONG_HEADER_BYTES > (__u8 *)(long)xdp->data_end ||
	    sp_get16(data + 12) != 0x0800 || data[14] != 0x45 || data[23] != 17 ||
	    sp_get16(data + 36) != SP_STRONG_UDP_PORT)
		return;
	view = sp_strong_get_view();
	fabric = sp_ingress_port(xdp, &port) ? bpf_map_lookup_elem(&sp_fabric_port, &port) : 0;
	if (view && fabric && *fabric && *(sp_u32a *)(data + 30) == sp_strong_address(view, view->own))
		bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_RECEIVE);
}

#endif
