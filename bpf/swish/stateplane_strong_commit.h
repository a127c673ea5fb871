/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_commit.h: a packet that writes, or reads what is under way, waits until the
 * tail has it. Part of stateplane_strong.h.
 *
 * Owns: the end of a packet, requests, answers, what the packet generator does. Must not know: how
 * batches are decided. The engine is bpf/core/stateplane_commit.h; the group is its one line.
 *
 * A packet waits with its finished frame. Beside it stands the frame as it came in: if a condition
 * of its writes did not hold, the program runs again on that, and reads what the winner wrote.
 */
#ifndef STATEPLANE_STRONG_COMMIT_H
#define STATEPLANE_STRONG_COMMIT_H

/* A batch is sent again after twice the time each time, up to 64 times of it. */
#define SP_STRONG_RESEND_MOST 6

/* ---- the end of a packet -------------------------------------------------------------------- */

/* The program runs again on the frame, which is as it came in. */
SP_INLINE int sp_strong_enter_again(struct xdp_md *xdp, __u32 port, __u32 attempts)
{
	struct sp_commit_resume *resume;
	__u32 zero = 0;

	resume = bpf_map_lookup_elem(&sp_commit_resume, &zero);
	if (!resume)
		return XDP_ABORTED;
	resume->port = port;
	resume->attempts = attempts;
	bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_AGAIN);
	return sp_strong_refuse(SP_STRONG_STAT_TOO_OFTEN);
}

/* The verdict of a frame that may have become a packet that runs again. */
SP_INLINE int sp_strong_verdict(struct xdp_md *xdp, int verdict)
{
	if (verdict != SP_COMMIT_AGAIN)
		return verdict;
	bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_AGAIN);
	return sp_strong_refuse(SP_STRONG_STAT_TOO_OFTEN);
}

/* At the start of sp_strong_again. */
SP_INLINE int sp_strong_resumed(struct sp_strong_context *strong)
{
	struct sp_commit_resume *resume;
	__u32 zero = 0;

	resume = bpf_map_lookup_elem(&sp_commit_resume, &zero);
	if (!resume)
		return -1;
	strong->ingress_port = resume->port;
	strong->attempts = resume->attempts + 1;
	sp_strong_count(SP_STRONG_STAT_RAN_AGAIN);
	return 0;
}

/* A packet without writes that read what is under way: a record that writes nothing takes the way
 * of the others, so its answer says that all before it is at the tail. */
SP_INLINE int sp_strong_stage_read(struct sp_strong_context *strong, struct sp_strong_scratch *scratch)
{
#define SP_STRONG_FIRST(name, id, table, size, kb, vb, timed)                                     \
	if (!strong->records) {                                                                   \
		scratch->starts[0] = 0;                                                           \
		scratch->staged[0] = bpf_cpu_to_be64((__u64)(id) << 48 |                          \
						     (__u64)SP_STRONG_READ << 40 |                \
						     (__u64)SP_STRONG_RECORD_SIZE(kb, vb) << 32); \
		for (int i = 1; i < SP_STRONG_RECORD_WORDS + SP_STRONG_RECORD_SIZE(kb, vb); i++)  \
			scratch->staged[i] = 0;                                                   \
		strong->words = SP_STRONG_RECORD_WORDS + SP_STRONG_RECORD_SIZE(kb, vb);           \
		strong->records = 1;                                                              \
	}
	SP_STRONG_OBJECTS(SP_STRONG_FIRST)
	return 0;
}

/*
 * The packet has left the program; its frame is as it came in. Its records join the open batch.
 * 0: it goes on; what it waits for, if it waits, is in `strong->name`. Else the statistic that says
 * why it is dropped, or -1: the engine counted it, or -2: it runs again, or -3: later.
 */
static __noinline int sp_strong_finish(struct xdp_md *xdp, struct sp_strong_context *strong)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_commit_place place = {};
	int writes = strong->records != 0, room;
	struct sp_commit_stream *stream;

	if (strong->refused)
		return strong->refused;
	if (!strong->again && !strong->waits && !writes)
		return 0;
	if (strong->attempts >= SP_STRONG_ATTEMPTS)
		return SP_STRONG_STAT_TOO_OFTEN;
	if (strong->again)
		return -2;
	if (!scratch)
		return SP_STRONG_STAT_FAULTS;
	if (!writes)
		sp_strong_stage_read(strong, scratch);
	room = sp_commit_prepare_many(&place, SP_STRONG_LINE, strong->records, strong->words);
	if (room)
		return room == SP_COMMIT_LATER ? -3 : -1;
	if (writes && sp_commit_keep(xdp, place.lot, strong->ingress_port, strong->attempts))
		return SP_STRONG_STAT_FAULTS;
	/* All but the last one say that the next is the same packet's. */
	for (__u32 i = 0; i + 1 < SP_STRONG_PACKET_RECORDS; i++) {
		if (i + 1 >= strong->records)
			break;
		scratch->staged[sp_below((__u64)scratch->starts[i], SP_STRONG_PACKET_WORDS)] |=
			bpf_cpu_to_be64((__u64)SP_STRONG_GROUP << 40);
	}
	stream = place.stream;
	if (stream->ifindex != xdp->ingress_ifindex)
		stream->ifindex = xdp->ingress_ifindex;
	strong->name = sp_commit_append_many(&place, scratch->staged, scratch->starts,
					     strong->records, strong->words);
	sp_commit_end(&place);
	sp_strong_count(writes ? SP_STRONG_STAT_WRITES : SP_STRONG_STAT_READS_WAITED);
	return 0;
}

/* Of a packet that cannot wait: 0, it goes on; else why it does not, as sp_strong_finish. */
SP_INLINE int sp_strong_cannot_wait(const struct sp_strong_context *strong)
{
	if (strong->refused)
		return strong->refused;
	if (strong->again)
		return strong->attempts < SP_STRONG_ATTEMPTS ? -2 : SP_STRONG_STAT_TOO_OFTEN;
	return strong->records || strong->waits ? SP_STRONG_STAT_TO_HOST : 0;
}

/* The finished packet waits. SP_DROP_PORT: it is dropped then, but for a condition that fails. One
 * that waits for no update (`strong->name` is 0) is as it came in, from `port`, and runs again. */
SP_INLINE int sp_strong_park(struct xdp_md *xdp, const struct sp_strong_context *strong,
			     __u32 port)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();

	if (!scratch)
		return XDP_ABORTED;
	scratch->name = strong->name;
	scratch->port = port;
	scratch->attempts = strong->attempts;
	bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_COMMIT);
	return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
}

/* The packet ends here. */
SP_INLINE int sp_strong_stop(struct xdp_md *xdp, const struct sp_strong_context *strong, int why,
			     __u32 ingress_port)
{
	if (why == -2 && strong->attempts % SP_STRONG_AT_ONCE != SP_STRONG_AT_ONCE - 1)
		return sp_strong_enter_again(xdp, strong->ingress_port, strong->attempts);
	if (why == -2 || why == -3)
		return sp_strong_park(xdp, strong, strong->ingress_port);
	if (why > 0)
		sp_strong_count(why);
	return sp_drop(ingress_port);
}

/* The packet in the frame is finished, and waits for the update in the scratch; or for its turn. */
SEC("xdp.frags")
int sp_strong_commit(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	int room;

	if (!scratch)
		return XDP_ABORTED;
	if (scratch->name)
		room = sp_commit_park(xdp, SP_STRONG_LINE, scratch->name, scratch->port);
	else
		room = sp_commit_defer(xdp, SP_STRONG_LINE, scratch->port, scratch->attempts);
	/* (It is longer than a slot, or was counted.) */
	if (room < 0 || (room && scratch->name))
		return sp_strong_end();
	/* In the end the generator's frames carry it out: that takes up to a millisecond. */
	if (room && scratch->attempts >= SP_STRONG_ATTEMPTS / 2)
		return sp_strong_end();
	if (scratch->attempts)
		return sp_commit_spare_by_loop(xdp, SP_STRONG_LINE);
	return sp_strong_verdict(xdp, sp_commit_spare(xdp, SP_STRONG_LINE));
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Makes the frame the message of the batch in sp_commit_work, and sends it to the head. */
SEC("xdp.frags")
int sp_strong_send(struct xdp_md *xdp)
{
	__u32 zero = 0, at;
	struct sp_commit_work *work = bpf_map_lookup_elem(&sp_commit_work, &zero);
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_header header = { .kind = SP_STRONG_REQUEST,
					   .resender = SP_STRONG_NO_MEMBER };
	struct sp_commit_stream *stream;
	struct sp_commit_batch *batch;
	__u64 bytes;
	__u32 total;

	if (!work || !secrets || !scratch || !view || !node)
		return XDP_ABORTED;
	at = work->stream * 2 + (work->number & 1);
	batch = bpf_map_lookup_elem(&sp_commit_batches, &at);
	stream = sp_commit_stream_at(work->stream);
	bytes = work->words * 8;
	asm volatile("" : "+r"(bytes));
	if (!batch || !stream || bytes < 8 || bytes > SP_STRONG_WORDS * 8)
		return XDP_ABORTED;
	if (!(view->standing & SP_STRONG_ON))
		return sp_strong_end(); /* (It goes once the view has a head.) */
	total = SP_STRONG_AT + SP_STRONG_HEADER_BYTES + bytes;
	if (sp_commit_resize(xdp, total, SP_COMMIT_SENDS_BYTES))
		return sp_commit_grow(xdp, work->stream);
	header.key_id = secrets->sends & (SP_SECRETS - 1);
	header.count = work->records;
	header.words = work->words;
	header.origin = view->own;
	header.stream = work->stream / SP_COMMIT_LINES;
	header.incarnation = view->incarnation;
	header.view = view->number;
	header.batch = work->number;
	header.seq = SP_STRONG_LOAD(node->committed);
	sp_strong_write(scratch->message, &header);
	scratch->message[SP_STRONG_DIGEST_WORD] =
		sp_strong_digest(batch->words, work->words, header.key_id);
	if (bpf_xdp_store_bytes(xdp, SP_STRONG_AT + SP_STRONG_HEADER_BYTES, batch->words, bytes))
		return XDP_ABORTED;
	/* Acknowledged meanwhile: then the buffer is the next but one's, and may be written to. */
	if (__sync_fetch_and_add(&stream->acked, 0) >= work->number)
		return sp_strong_end();
	sp_commit_count(SP_COMMIT_BATCHES, 1);
	return sp_strong_deliver(xdp, sp_strong_address(view, view->head), total,
				 stream->ifindex ? stream->ifindex : xdp->ingress_ifindex);
}

SP_INLINE int sp_strong_send_batch(struct xdp_md *xdp)
{
	bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_SEND);
	return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
}

/* A frame from the loop: on the switch's own veth pair this program runs in sp_main's place. */
SEC("xdp.frags")
int sp_loop(struct xdp_md *xdp)
{
	int verdict = sp_commit_looped(xdp);

	return verdict == SP_COMMIT_NOTHING ? sp_strong_send_batch(xdp) :
					      sp_strong_verdict(xdp, verdict);
}

/* ---- answers -------------------------------------------------------------------------------- */

/* The tail has the batch of the message in the scratch, which was checked: its packets are ready,
 * and the next batch leaves in this frame. */
SEC("xdp.frags")
int sp_strong_acked(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_commit_list list = {};
	struct sp_strong_header header;
	struct sp_commit_stream *stream;
	__u32 records = 0, at;

	if (!scratch || !view || !node)
		return XDP_ABORTED;
	sp_strong_parse(scratch->message, &header);
	sp_strong_raise(node, header.seq);
	if (header.resender != SP_STRONG_NO_MEMBER)
		return sp_strong_end();
	if (header.origin != view->own || header.incarnation != view->incarnation)
		return sp_strong_refuse(SP_STRONG_STAT_FOREIGN);
	at = sp_commit_index(header.stream, SP_STRONG_LINE);
	stream = sp_commit_stream_at(at);
	if (!stream)
		return sp_strong_refuse(SP_STRONG_STAT_FOREIGN);
	if (header.refused && *(volatile __u64 *)&stream->departed == header.batch &&
	    *(volatile __u64 *)&stream->acked != header.batch) {
		if (!sp_commit_refuse(header.stream, stream, header.batch, header.refused,
				      header.refused & ~header.full))
			return sp_strong_end();
		sp_strong_order_refused(&header);
		if (header.full)
			sp_strong_count(SP_STRONG_STAT_TABLE_FULL);
	}
	if (!sp_commit_acked(stream, header.batch, &list, &records))
		return sp_strong_end();
	sp_commit_release(header.stream, &list);
	/* Fewer packets came than wait: arrivals alone would not carry them out. */
	if (list.count > *(volatile __u32 *)&stream->open.count &&
	    *(volatile __u16 *)&stream->open_records)
		return sp_commit_loop(xdp, header.stream, at, 2);
	/* (A record that comes now finds no batch in flight, and its packet's frame sends it.) */
	if (*(volatile __u16 *)&stream->open_records && sp_commit_choose(at, 0))
		return sp_strong_send_batch(xdp);
	return sp_strong_verdict(xdp, sp_commit_drain(xdp, header.stream, 0));
}

/* ---- the generator -------------------------------------------------------------------------- */

/*
 * A member that does not know for long that the tail has a batch sends it to the next one again:
 * nothing rests on a living origin. The answer comes here. -1: there is nothing to do.
 */
static __noinline int sp_strong_push(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_header header;
	struct sp_strong_entry *entry;
	__u64 now = sp_now_ns(), committed, bytes;
	__u32 total;

	if (!scratch || !view || !node || !(view->standing & SP_STRONG_ON))
		return -1;
	committed = SP_STRONG_LOAD(node->committed);
	if (node->view != view->number || view->standing & SP_STRONG_TAIL) {
		/* A new view: perhaps this member is the tail now, and all waits for it. */
		if ((node->view == view->number && committed == SP_STRONG_LOAD(node->applied)) ||
		    !sp_strong_lock(node))
			return -1;
		sp_strong_take_view(node, view);
		if (sp_strong_commits(node, view))
			sp_strong_raise(node, node->applied);
		sp_strong_unlock(node);
		return -1;
	}
	if (committed >= SP_STRONG_LOAD(node->applied) ||
	    (now - node->resent_ns < SP_STRONG_RESEND_NS && node->resent_ns > node->since_ns))
		return -1;
	entry = sp_strong_entry(committed + 1);
	if (!entry)
		return -1;
	for (int word = 0; word < SP_STRONG_HEADER_WORDS; word++)
		scratch->message[word] = entry->message[word];
	sp_strong_parse(scratch->message, &header);
	if (header.seq != committed + 1)
		return -1;
	node->resent_ns = now;
	bytes = header.words * 8;
	asm volatile("" : "+r"(bytes));
	if (bytes < 8 || bytes > SP_STRONG_WORDS * 8)
		return -1;
	total = SP_STRONG_AT + SP_STRONG_HEADER_BYTES + bytes;
	if (sp_commit_resize(xdp, total, SP_COMMIT_SENDS_BYTES) ||
	    bpf_xdp_store_bytes(xdp, SP_STRONG_AT + SP_STRONG_HEADER_BYTES,
				entry->message + SP_STRONG_HEADER_WORDS, bytes))
		return XDP_ABORTED;
	header.view = view->number;
	header.resender = view->own;
	header.uncommitted = 1;
	sp_strong_write(scratch->message, &header);
	sp_strong_count(SP_STRONG_STAT_SENT_AGAIN);
	return sp_strong_emit(xdp, sp_strong_address(view, view->next), total, xdp->ingress_ifindex);
}

/* After how long without an answer a batch is sent again, for the n-th time. */
SP_INLINE __u64 sp_strong_patience(__u32 resends)
{
	return SP_STRONG_RESEND_NS << (resends < SP_STRONG_RESEND_MOST ? resends :
									  SP_STRONG_RESEND_MOST);
}

/* What a generated frame does for a stream: -1, nothing, and the frame is free. */
enum { SP_STRONG_SENDS = -20, SP_STRONG_CARRIES };

/* The frame carries out a ready packet of the CPU in the scratch. (A program of its own: the kernel
 * gives one 64 maps, and what a packet changes when it leaves needs many.) */
SEC("xdp.frags")
int sp_strong_carry(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();

	if (!scratch)
		return XDP_ABORTED;
	return sp_strong_verdict(xdp, sp_commit_drain(xdp, scratch->port, 0));
}

/* A generated frame looks after one stream. */
static __noinline int sp_strong_look_after(void)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_node *node = sp_strong_get_node();
	__u64 now = sp_now_ns(), sent_ns, *work;
	__u32 at = 0, zero = 0, idle, again;
	struct sp_commit_stream *stream;

	if (bpf_map_pop_elem(&sp_commit_due, &at))
		return -1;
	stream = sp_commit_stream_at(at);
	work = bpf_map_lookup_elem(&sp_generator_work, &zero);
	if (!stream || !work || !node || !scratch)
		return XDP_ABORTED;
	bpf_spin_lock(&stream->lock);
	idle = stream->acked == stream->departed && !stream->open_records && !stream->ready;
	if (idle)
		stream->queued = 0;
	bpf_spin_unlock(&stream->lock);
	if (idle) {
		__sync_fetch_and_add(work, -1);
		return -1;
	}
	if (bpf_map_push_elem(&sp_commit_due, &at, 0)) {
		stream->queued = 0;
		__sync_fetch_and_add(work, -1);
	}
	sent_ns = *(volatile __u64 *)&stream->sent_ns;
	again = 1; /* nothing is in flight: what is open leaves */
	if (*(volatile __u64 *)&stream->acked != *(volatile __u64 *)&stream->departed)
		again = now > sent_ns &&
			(now - sent_ns >= sp_strong_patience(*(volatile __u32 *)&stream->resends) ||
			 sent_ns < node->since_ns);
	if (again && sp_commit_choose(at, 1))
		return SP_STRONG_SENDS;
	scratch->port = at / SP_COMMIT_LINES;
	return *(volatile __u32 *)&stream->ready ? SP_STRONG_CARRIES : -1;
}

/* A generated frame: its verdict; -1: there was nothing to do. */
SP_INLINE int sp_strong_generated(struct xdp_md *xdp)
{
	int verdict = -1;

	if (sp_commit_takes_turn())
		verdict = sp_strong_look_after();
	if (verdict == SP_STRONG_SENDS)
		return sp_strong_send_batch(xdp);
	if (verdict == SP_STRONG_CARRIES) {
		bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_CARRY);
		return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
	}
	if (verdict == -1 && sp_strong_sweep() &&
	    sp_commit_choose(sp_commit_index(sp_cpu(), SP_STRONG_LINE), 0))
		return sp_strong_send_batch(xdp);
	if (verdict == -1)
		verdict = sp_strong_begin_round(xdp);
	if (verdict == -1 && sp_strong_gives_now()) {
		bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_GIVE);
		return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
	}
	if (verdict == -1 && sp_strong_tells_now()) {
		bpf_tail_call(xdp, &sp_strong_programs, SP_STRONG_TELL);
		return sp_strong_refuse(SP_STRONG_STAT_FAULTS);
	}
	if (verdict == -1)
		verdict = sp_strong_push(xdp);
	return verdict;
}

#endif
