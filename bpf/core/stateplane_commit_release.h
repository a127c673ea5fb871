/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_commit_release.h: batches leave, are acknowledged, and their packets leave. Part of
 * stateplane_commit.h.
 *
 * A frame that nobody needs any more carries out the oldest ready packet of a CPU. If there are
 * more packets than frames, a frame is sent to the loop (a veth pair of the switch) in copies: each
 * comes in again as a frame of its own.
 */
#ifndef STATEPLANE_COMMIT_RELEASE_H
#define STATEPLANE_COMMIT_RELEASE_H

/* SP_COMMIT_AGAIN: the frame is a packet that goes through the program again. */
enum { SP_COMMIT_NOTHING = -1, SP_COMMIT_NO_ROOM = -2, SP_COMMIT_AGAIN = -3 };

/* Under the stream's lock: takes the open batch into flight, if none is. Its number, or 0. */
SP_INLINE __u64 sp_commit_depart_locked(struct sp_commit_stream *stream)
{
	if (stream->acked != stream->departed || !stream->open_records)
		return 0;
	stream->departed++;
	stream->flying = stream->open;
	stream->flying_records = stream->open_records;
	stream->flying_words = stream->open_words;
	stream->open_records = stream->open_words = 0;
	stream->open.count = 0;
	stream->sent_ns = 0;
	stream->token_ns = 0;
	stream->resends = 0;
	return stream->departed;
}

/*
 * Says in sp_commit_work which batch is to be sent: the open one, or the one in flight if it was
 * never sent or `again` is set. 0: none.
 */
SP_INLINE int sp_commit_choose(__u32 at, int again)
{
	struct sp_commit_stream *stream = sp_commit_stream_at(at);
	__u64 now = sp_now_ns(), number;
	struct sp_commit_work *work;
	__u32 zero = 0, records, words, fresh = 0;

	work = bpf_map_lookup_elem(&sp_commit_work, &zero);
	if (!stream || !work)
		return 0;
	bpf_spin_lock(&stream->lock);
	number = sp_commit_depart_locked(stream);
	if (number)
		fresh = 1;
	else if (stream->acked != stream->departed && (again || !stream->sent_ns))
		number = stream->departed;
	records = stream->flying_records;
	words = stream->flying_words;
	if (number) {
		if (again && !fresh)
			stream->resends++;
		stream->sent_ns = now;
	}
	bpf_spin_unlock(&stream->lock);
	if (!number)
		return 0;
	work->stream = at;
	work->number = number;
	work->records = records;
	work->words = words;
	if (fresh)
		sp_commit_count(SP_COMMIT_RECORDED, records);
	else if (again)
		sp_commit_count(SP_COMMIT_BATCHES_RESENT, 1);
	return 1;
}

/* Out of the port that the program chose. */
SP_INLINE int sp_commit_forward(struct xdp_md *xdp, __u32 port, __u32 bytes)
{
#ifdef SP_GATEWAY_KERNEL_PORT
	if (port == SP_KERNEL_PORT) {
		__u32 ingress = 0;

		sp_ingress_port(xdp, &ingress);
		return sp_send_by_kernel(xdp, ingress, bytes);
	}
#endif
	return sp_forward(port, bytes);
}

/* Bytes that stay free before a frame that grew there. Drivers put a header before a message
 * (virtio-net: 20 bytes at the most). Programs of other switches put more before a packet. */
#define SP_COMMIT_SENDS_BYTES 32
#define SP_COMMIT_LEAVES_BYTES 128

/*
 * Makes the frame so long; the caller then writes all of it. Not 0: there is no room. It grows
 * behind its last byte, or else before its first one, where `keeps` bytes stay free: behind a short
 * packet on a veth pair there is next to no room, before it there are about 200 bytes. It becomes
 * shorter at its first byte, so what it took there comes back.
 */
SP_INLINE int sp_commit_resize(struct xdp_md *xdp, __u32 bytes, int keeps)
{
	int more = (int)bytes - (int)sp_length(xdp);

	if (!more)
		return 0;
	if (more < 0)
		return bpf_xdp_adjust_head(xdp, -more) && bpf_xdp_adjust_tail(xdp, more);
	if (!bpf_xdp_adjust_tail(xdp, more))
		return 0;
	if (bpf_xdp_adjust_head(xdp, -more - keeps))
		return -1;
	return bpf_xdp_adjust_head(xdp, keeps);
}

/* Takes the oldest ready slot, if it is still this one. 1: it is the caller's now. */
SP_INLINE int sp_commit_pop(struct sp_commit_lot *lot, __u32 first)
{
	int got = 0;

	bpf_spin_lock(&lot->lock);
	if (lot->ready.count && lot->ready.first == first) {
		lot->ready.first = lot->next[first & (SP_COMMIT_SLOTS - 1)];
		lot->ready.count--;
		got = 1;
	}
	bpf_spin_unlock(&lot->lock);
	return got;
}

/* Why the packet in this slot must not leave: a counter; 0: it may. */
SP_INLINE __u32 sp_commit_held_back(const struct sp_commit_slot *slot)
{
	if (slot->refused && slot->refused != SP_COMMIT_RUN_AGAIN)
		return SP_COMMIT_COMMIT_REFUSED;
	return sp_coarse_ns() - slot->parked_ns > sp_commit_hold_ms * 1000000ull ? SP_COMMIT_EXPIRED : 0;
}

/* The packet in this slot, which is the caller's, leaves in the frame. */
SP_INLINE int sp_commit_leave(
    struct xdp_md *xdp, struct sp_commit_slot *slot, __u32 index, __u32 counter)
{
	__u64 bytes = slot->bytes;
	__u32 dropped = sp_commit_held_back(slot);
	/* (Its records have travelled; the program drops it.) */
	__u32 drops = slot->port == SP_DROP_PORT;

	if (dropped) {
		sp_commit_count(dropped, 1);
		return XDP_DROP;
	}
#ifdef SP_COMMIT_RUNS_AGAIN
	if (slot->refused) {
		if (!sp_commit_restore(xdp, index))
			return SP_COMMIT_AGAIN;
		sp_commit_count(SP_COMMIT_COMMIT_FAULTS, 1);
		return XDP_DROP;
	}
#endif
	/* (It is as long as it was when it was looked at, unless another CPU was faster.) */
	if (!drops &&
	    (sp_commit_resize(xdp, bytes, SP_COMMIT_LEAVES_BYTES) ||
	     sp_commit_copy(xdp, slot, index, bytes, 1))) {
		sp_commit_count(SP_COMMIT_COMMIT_FAULTS, 1);
		return XDP_DROP;
	}
#ifdef SP_COMMIT_NOTES
	drops |= sp_commit_leaves(index, drops);
#endif
	if (drops)
		return XDP_DROP;
	sp_commit_count(counter, 1);
	return sp_commit_forward(xdp, slot->port, bytes);
}

/* Makes the frame as long as what it is to carry. (That need not be if it is dropped.) */
SP_INLINE int sp_commit_fit(struct xdp_md *xdp, const struct sp_commit_slot *slot, __u32 index)
{
#ifdef SP_COMMIT_RUNS_AGAIN
	struct sp_commit_original *original;

	if (slot->refused == SP_COMMIT_RUN_AGAIN) {
		original = bpf_map_lookup_elem(&sp_commit_originals, &index);
		return original ? sp_commit_resize(xdp, *(volatile __u32 *)&original->bytes,
						   SP_COMMIT_LEAVES_BYTES) :
				  0;
	}
#endif
	return slot->refused ? 0 :
			       sp_commit_resize(xdp, *(volatile __u16 *)&slot->bytes,
						SP_COMMIT_LEAVES_BYTES);
}

/* Tries to take the oldest ready packet, where another CPU may do the same. */
#define SP_COMMIT_TRIES 4

/*
 * The frame carries out the oldest ready packet of a CPU: the verdict; SP_COMMIT_NOTHING: there is
 * none, SP_COMMIT_NO_ROOM: the frame cannot grow so long. `counter`: how it leaves.
 */
static __noinline int sp_commit_carry(struct xdp_md *xdp, __u32 cpu, __u32 counter)
{
	struct sp_commit_lot *lot = sp_commit_lot_of(cpu);
	struct sp_commit_stream *stream;
	struct sp_commit_slot *slot;
	__u32 index, first;
	int verdict;

	if (!lot)
		return SP_COMMIT_NOTHING;
	for (int i = 0; i < SP_COMMIT_TRIES; i++) {
		if (!*(volatile __u32 *)&lot->ready.count)
			return SP_COMMIT_NOTHING;
		first = *(volatile __u16 *)&lot->ready.first & (SP_COMMIT_SLOTS - 1);
		index = cpu * SP_COMMIT_SLOTS + first;
		slot = bpf_map_lookup_elem(&sp_commit_slots, &index);
		if (!slot)
			return SP_COMMIT_NOTHING;
		if (sp_commit_fit(xdp, slot, index))
			return SP_COMMIT_NO_ROOM;
		if (!sp_commit_pop(lot, first))
			continue;
		verdict = sp_commit_leave(xdp, slot, index, counter);
		stream = sp_commit_stream_at(slot->stream);
		if (stream)
			__sync_fetch_and_add(&stream->ready, -1);
		sp_commit_free(lot, cpu, first);
		return verdict;
	}
	return SP_COMMIT_NOTHING;
}

/* The frame goes to the loop, in so many copies, as a token. */
static __noinline int sp_commit_loop(struct xdp_md *xdp, __u32 cpu, __u32 stream, __u32 copies)
{
	struct sp_commit_token *token;

	/* The kernel does not copy all of a frame in fragments (CVE-2026-64355). */
	if (xdp->data_end - xdp->data != sp_length(xdp))
		return XDP_DROP;
	/* Short, as each copy copies it all; and not shorter than Ethernet's least. */
	if (sp_length(xdp) > SP_COMMIT_TOKEN_BYTES &&
	    sp_commit_resize(xdp, SP_COMMIT_TOKEN_BYTES, SP_COMMIT_LEAVES_BYTES))
		return XDP_ABORTED;
	token = (void *)(long)xdp->data;
	if ((void *)(token + 1) > (void *)(long)xdp->data_end)
		return XDP_DROP;
	token->magic = SP_COMMIT_MAGIC;
	token->stream = stream;
	token->cpu = cpu;
	if (sp_test_mode)
		return sp_test_verdict(SP_VERDICT_FORWARD, SP_LOOP_PORT + copies, sp_length(xdp));
	if (copies == 1)
		return bpf_redirect_map(&sp_commit_copies1, 0, 0);
	if (copies == 2)
		return bpf_redirect_map(&sp_commit_copies2, 0, BPF_F_BROADCAST);
	if (copies == 4)
		return bpf_redirect_map(&sp_commit_copies4, 0, BPF_F_BROADCAST);
	if (copies == 8)
		return bpf_redirect_map(&sp_commit_copies8, 0, BPF_F_BROADCAST);
	return bpf_redirect_map(&sp_commit_copies16, 0, BPF_F_BROADCAST);
}

/*
 * The frame carries out a ready packet of the CPU; if there are more of them than copies under way,
 * it becomes copies, which carry them out. `copy`: it is one, so copies come in, and the clock need
 * not say whether they do.
 */
SP_INLINE int sp_commit_drain(struct xdp_md *xdp, __u32 cpu, int copy)
{
	struct sp_commit_lot *lot = sp_commit_lot_of(cpu);
	__u32 waiting, copies;
	int verdict;
	__u64 now;

	if (!lot)
		return XDP_ABORTED;
	waiting = *(volatile __u32 *)&lot->ready.count;
	if (waiting > 1 && !(copy && waiting < lot->copies + 2)) {
		now = sp_now_ns();
		copies = now - lot->copies_ns < SP_COMMIT_COPIES_LATE_NS ? lot->copies : 0;
		copies = waiting > copies ? waiting - copies : 0;
		copies = copies >= 16 ? 16 : copies >= 8 ? 8 : copies >= 4 ? 4 : copies >= 2 ? 2 : 0;
		if (copies) {
			if (now - lot->copies_ns >= SP_COMMIT_COPIES_LATE_NS)
				lot->copies = 0;
			lot->copies += copies;
			lot->copies_ns = now;
			return sp_commit_loop(xdp, cpu, SP_COMMIT_NO_STREAM, copies);
		}
	}
	verdict = sp_commit_carry(xdp, cpu, SP_COMMIT_COPIED);
	if (verdict == SP_COMMIT_NO_ROOM) {
		/* The kernel makes the first of two copies a page of its own, with room. */
		sp_commit_count(SP_COMMIT_SHORT_FRAMES, 1);
		return sp_commit_loop(xdp, cpu, SP_COMMIT_NO_STREAM, 2);
	}
	return verdict == SP_COMMIT_NOTHING ? XDP_DROP : verdict;
}

/* Is the batch in flight without an answer for so long that arrivals send it again? */
SP_INLINE int sp_commit_is_overdue(const struct sp_commit_stream *stream, __u64 now)
{
	__u64 sent_ns = *(volatile __u64 *)&stream->sent_ns;

	/* (0: it has not left yet. Its frame is in the loop, or the generator sends it.) */
	return sent_ns && now > sent_ns && now - sent_ns > SP_COMMIT_OVERDUE_NS;
}

/* A record without a packet was written, as `name`. Its batch leaves in this frame if it is `last`
 * of those at hand or one of many, and none is in flight. 1: it is in sp_commit_work. */
SP_INLINE int sp_commit_gather(__u32 at, __u64 name, int last)
{
	struct sp_commit_stream *stream = sp_commit_stream_at(at);

	if (!stream)
		return 0;
	if (!sp_commit_record_of(name))
		stream->gathers_ns = sp_now_ns();
	return (last || *(volatile __u16 *)&stream->open_records >= SP_COMMIT_GATHER_RECORDS) &&
	       sp_commit_choose(at, 0);
}

/* Do records without packets still gather in the open batch? */
SP_INLINE int sp_commit_gathers(const struct sp_commit_stream *stream, __u64 now)
{
	return now - *(volatile __u64 *)&stream->gathers_ns < SP_COMMIT_GATHER_NS;
}

/* The frame cannot grow to the message of this stream's batch: one of two copies can. */
SP_INLINE int sp_commit_grow(struct xdp_md *xdp, __u32 at)
{
	struct sp_commit_stream *stream = sp_commit_stream_at(at);

	if (!stream)
		return XDP_ABORTED;
	stream->sent_ns = 0;
	sp_commit_count(SP_COMMIT_SHORT_FRAMES, 1);
	return sp_commit_loop(xdp, at / SP_COMMIT_LINES, at, 2);
}

/* The frame of a packet that was copied to a slot goes to the loop and becomes the next request
 * there, if none is in flight. SP_COMMIT_NOTHING: one is. */
SP_INLINE int sp_commit_request(struct xdp_md *xdp, __u32 line)
{
	__u32 cpu = sp_cpu(), at = sp_commit_index(cpu, line);
	struct sp_commit_stream *stream = sp_commit_stream_at(at);
	__u64 now = sp_coarse_ns();

	if (!stream)
		return XDP_ABORTED;
	/* The first request takes the loop, so that it has the records of all packets of this
	 * poll. */
	if ((*(volatile __u64 *)&stream->acked == *(volatile __u64 *)&stream->departed ?
		    *(volatile __u16 *)&stream->open_records :
		    sp_commit_is_overdue(stream, now)) &&
	    now - *(volatile __u64 *)&stream->token_ns > SP_COMMIT_TOKEN_LATE_NS) {
		stream->token_ns = now;
		return sp_commit_loop(xdp, cpu, at, 1);
	}
	return SP_COMMIT_NOTHING;
}

/* Uses the frame of a packet that was copied to a slot: for the next request, or to carry out a
 * ready packet. */
SP_INLINE int sp_commit_spare(struct xdp_md *xdp, __u32 line)
{
	int verdict = sp_commit_request(xdp, line);
	__u32 cpu = sp_cpu();

	if (verdict != SP_COMMIT_NOTHING)
		return verdict;
	verdict = sp_commit_carry(xdp, cpu, SP_COMMIT_EXCHANGED);
	if (verdict == SP_COMMIT_NO_ROOM)
		return sp_commit_drain(xdp, cpu, 0);
	return verdict == SP_COMMIT_NOTHING ? XDP_DROP : verdict;
}

#ifdef SP_COMMIT_RUNS_AGAIN
/* As sp_commit_spare, for a packet that ran again: if the frame is not used, it comes in by the
 * loop and carries out the next packet. (Else one that runs again would begin the next one in its
 * own tail calls, of which the kernel allows 33.) */
SP_INLINE int sp_commit_spare_by_loop(struct xdp_md *xdp, __u32 line)
{
	int verdict = sp_commit_request(xdp, line);
	__u32 cpu = sp_cpu();
	struct sp_commit_lot *lot = sp_commit_lot_of(cpu);

	if (verdict != SP_COMMIT_NOTHING)
		return verdict;
	if (!lot || !*(volatile __u32 *)&lot->ready.count)
		return XDP_DROP;
	lot->copies++;
	lot->copies_ns = sp_now_ns();
	return sp_commit_loop(xdp, cpu, SP_COMMIT_NO_STREAM, 1);
}
#endif

struct sp_commit_walk {
	struct sp_commit_lot *lot;
	__u64 bits;
	__u64 again;
	__u32 cpu;
	__u32 slot;
};

static long sp_commit_refuse_one(__u32 index, void *context)
{
	struct sp_commit_walk *walk = context;
	struct sp_commit_lot *lot = walk->lot;
	__u32 first = walk->slot & (SP_COMMIT_SLOTS - 1), at = walk->cpu * SP_COMMIT_SLOTS + first;
	struct sp_commit_slot *slot = bpf_map_lookup_elem(&sp_commit_slots, &at);

	if (!slot || !lot)
		return 1;
	if (walk->bits >> (slot->record & 63) & 1)
		slot->refused = walk->again >> (slot->record & 63) & 1 ? SP_COMMIT_RUN_AGAIN : 1;
	walk->slot = lot->next[first];
	return 0;
}

/* Marks the packets of a list, which nobody else has, if their record is one of `bits`. */
SP_INLINE void sp_commit_refuse_list(__u32 cpu, const struct sp_commit_list *list, __u64 bits)
{
	struct sp_commit_walk walk = { .lot = sp_commit_lot_of(cpu), .bits = bits, .cpu = cpu };

	walk.slot = list->first;
	if (list->count)
		bpf_loop(list->count, sp_commit_refuse_one, &walk, 0);
}

/*
 * Marks the packets of the refused records (`bits`) of the batch in flight. The caller does so
 * before sp_commit_acked, so no such packet becomes ready unmarked. `again`: those of them that go
 * through the program again. 0: another CPU has begun to
 * mark them, for a copy of the same acknowledgement.
 */
SP_INLINE int sp_commit_refuse(
    __u32 cpu, struct sp_commit_stream *stream, __u64 number, __u64 bits, __u64 again)
{
	struct sp_commit_walk walk = { .lot = sp_commit_lot_of(cpu), .bits = bits, .again = again,
				       .cpu = cpu };
	__u32 count = 0;
	int claimed = 0;

	bpf_spin_lock(&stream->lock);
	if (stream->departed == number && stream->acked != number && stream->refused != number) {
		claimed = 1;
		stream->refused = number;
		stream->refused_bits = bits;
		walk.slot = stream->flying.first;
		count = stream->flying.count;
	}
	bpf_spin_unlock(&stream->lock);
	if (count)
		bpf_loop(count, sp_commit_refuse_one, &walk, 0);
	return claimed;
}

/*
 * The batch is durable. 1: it was the one in flight, whose packets are in `list`, to be given to
 * sp_commit_release. 0: it was not (late, or a replay). If it `spoils` the open batch, that one is
 * over too, with all of its records refused: its packets are in `spoilt`, and to be marked.
 */
SP_INLINE int sp_commit_acked_with(struct sp_commit_stream *stream, __u64 number,
    struct sp_commit_list *list, __u32 *records, int spoils, struct sp_commit_list *spoilt,
    __u32 *spoilt_records)
{
	int taken = 0;

	bpf_spin_lock(&stream->lock);
	if (stream->departed == number && stream->acked != number) {
		*list = stream->flying;
		*records = stream->flying_records;
		stream->flying.count = 0;
		if (!*(volatile __u32 *)&stream->ready)
			stream->clear = list->count ? number - 1 : number;
		__sync_fetch_and_add(&stream->ready, list->count);
		stream->acked = number;
		taken = 1;
		if (spoils && sp_commit_depart_locked(stream)) {
			*spoilt = stream->flying;
			*spoilt_records = stream->flying_records;
			stream->flying.count = 0;
			__sync_fetch_and_add(&stream->ready, spoilt->count);
			stream->refused = number + 1;
			stream->refused_bits = ~0ull;
			stream->acked = number + 1;
		}
	}
	bpf_spin_unlock(&stream->lock);
	sp_commit_count(taken ? SP_COMMIT_BATCHES_ACKED : SP_COMMIT_STALE_ACKS, 1);
	return taken;
}

SP_INLINE int sp_commit_acked(
    struct sp_commit_stream *stream, __u64 number, struct sp_commit_list *list, __u32 *records)
{
	struct sp_commit_list spoilt = {};
	__u32 spoilt_records = 0;

	return sp_commit_acked_with(stream, number, list, records, 0, &spoilt, &spoilt_records);
}

/*
 * Has the processor fetch packets that another CPU wrote, all at once: each would be waited for by
 * itself when it is carried out. (0: BPF's functions return something.)
 */
static __noinline int sp_commit_fetch(__u32 cpu, __u32 first, __u32 count)
{
	struct sp_commit_lot *lot = sp_commit_lot_of(cpu);
	struct sp_commit_slot *slot;
	__u32 index;

	if (!lot)
		return 0;
	for (__u32 i = 0; i < SP_COMMIT_FETCHED && i < count; i++) {
		first &= SP_COMMIT_SLOTS - 1;
		index = cpu * SP_COMMIT_SLOTS + first;
		slot = bpf_map_lookup_elem(&sp_commit_slots, &index);
		if (!slot)
			return 0;
		(void)*(volatile __u16 *)&slot->bytes;
		(void)*(volatile __u8 *)&slot->frame[SP_CACHE_LINE];
		first = *(volatile __u16 *)&lot->next[first];
	}
	return 0;
}

SP_INLINE void sp_commit_release(__u32 cpu, const struct sp_commit_list *list)
{
	struct sp_commit_lot *lot = sp_commit_lot_of(cpu);

	if (!lot || !list->count)
		return;
	if (cpu != sp_cpu())
		sp_commit_fetch(cpu, list->first, list->count);
	sp_commit_append_ready(lot, list);
}

/* Is this generated frame the streams'? Each second one is. (In test mode the real CPU does not
 * matter: runs repeat exactly.) */
SP_INLINE int sp_commit_takes_turn(void)
{
	struct sp_commit_lot *lot = sp_commit_lot_of(sp_cpu());

	return lot && ++lot->turns & 1;
}

/* A frame from the loop. SP_COMMIT_NOTHING: the batch in sp_commit_work is to be sent in it. */
SP_INLINE int sp_commit_looped(struct xdp_md *xdp)
{
	struct sp_commit_token *token = (void *)(long)xdp->data;
	struct sp_commit_lot *lot;
	__u32 stream, cpu;

	if ((void *)(token + 1) > (void *)(long)xdp->data_end || token->magic != SP_COMMIT_MAGIC)
		return XDP_DROP; /* the kernel's own: neighbour discovery of the veth pair */
	stream = token->stream;
	cpu = token->cpu;
	if (stream != SP_COMMIT_NO_STREAM) {
		struct sp_commit_stream *chosen = sp_commit_stream_at(stream);

		if (!chosen)
			return XDP_DROP;
		if (sp_commit_choose(stream, sp_commit_is_overdue(chosen, sp_coarse_ns())))
			return SP_COMMIT_NOTHING;
		chosen->token_ns = 0;
	}
	lot = sp_commit_lot_of(cpu);
	if (!lot)
		return XDP_DROP;
	if (stream == SP_COMMIT_NO_STREAM && lot->copies)
		lot->copies--;
	if (!*(volatile __u32 *)&lot->ready.count) {
		sp_commit_count(SP_COMMIT_IDLE_COPIES, 1);
		return XDP_DROP;
	}
	return sp_commit_drain(xdp, cpu, stream == SP_COMMIT_NO_STREAM);
}

#endif
