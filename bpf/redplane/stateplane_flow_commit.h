/* stateplane_flow_commit.h: RedPlane's updates in batches: what a record is, how a batch reaches
 * the head of its shard, and what its acknowledgement says. Part of stateplane_flow.h. The engine
 * is bpf/core/stateplane_commit.h; a line is a shard (docs/output-commit.md). */
#ifndef STATEPLANE_FLOW_COMMIT_H
#define STATEPLANE_FLOW_COMMIT_H

/* ---- reads ---------------------------------------------------------------------------------- */

/* The packet depends on an update of another CPU, or on one that went in a message of its own. The
 * batch of this CPU gets its record, as it stands in the entry by now: records are complete, so
 * that changes nothing. The record's name is in the scratch then. Else: what becomes of the
 * packet. */
static __always_inline int sp_flow_record_again(
    void *map, struct sp_flow_scratch *scratch, __u32 object_id, __u32 key_bytes, __u32 value_bytes)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);
	__u32 words = SP_FLOW_RECORD_WORDS(key_bytes, value_bytes), epoch = 0, phases = 0;
	struct sp_commit_place place = {};
	__u64 seq = 0, name;
	int room;

	if (!entry)
		return SP_COMMIT_DROP;
	room = sp_commit_prepare(&place, entry->shard, words, 0);
	if (room)
		return room;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    entry->seq >= scratch->seq && entry->epoch == scratch->epoch &&
	    !(entry->flags & (SP_FLOW_RELEASED | SP_FLOW_DYING))) {
		seq = entry->seq;
		epoch = entry->epoch;
		phases = entry->flags & SP_FLOW_PHASES;
		sp_flow_copy(scratch->value,
		    (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES + SP_ROUND8(key_bytes), value_bytes);
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (!seq) { /* no longer this switch's */
		sp_commit_count(SP_COMMIT_COMMIT_REFUSED, 1);
		return SP_COMMIT_DROP;
	}
	name = sp_flow_record(&place, 0, object_id, scratch->key, key_bytes, scratch->value, value_bytes,
	    epoch, seq, phases);
	/* The next packets of this CPU wait for this record, unless another CPU has written since. The
	 * name alone does not tell: a record that is written over keeps it. */
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    entry->seq == seq && entry->epoch == epoch && (!entry->name || entry->name == scratch->name))
		entry->name = name;
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	scratch->name = name;
	return SP_COMMIT_HAS_ROOM;
}

#define SP_FLOW_CASE_RECORD(name_, id, flows, kb, vb, consistency, allocator) \
	case id: \
		if (SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT)) \
			room = sp_flow_record_again(&name_, scratch, id, kb, vb); \
		break;

/* ---- the end of a packet -------------------------------------------------------------------- */

/* The packet waits in the network, for the record that is on its way or in a batch. */
static __always_inline int sp_flow_wrap_read(
    struct xdp_md *xdp, struct sp_flow_scratch *scratch, __u32 port)
{
	scratch->type = SP_READ_COMMIT;
	scratch->flags = 0;
	scratch->value_bytes = 0;
	scratch->port = port | SP_FLOW_PORT_READ;
	return sp_flow_send_by_tail_call(xdp, scratch, 1);
}

/* The packet in the frame is finished, and waits for the update in the scratch. */
SEC("xdp.frags")
int sp_commit(struct xdp_md *xdp)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 line, port, cpu = sp_cpu();
	struct sp_commit_stream *stream;
	int room = SP_COMMIT_HAS_ROOM;
	__u64 name;

	if (!scratch)
		return XDP_ABORTED;
	name = scratch->name;
	line = scratch->shard;
	port = scratch->port;
	stream = sp_commit_stream_at(sp_commit_index(cpu, line));
	if (stream && stream->ifindex != xdp->ingress_ifindex)
		stream->ifindex = xdp->ingress_ifindex;
	if (sp_commit_cpu_of(name) != cpu || sp_commit_record_of(name) == SP_COMMIT_UNPLACED) {
		room = SP_COMMIT_DROP;
		switch (scratch->object_id) {
			SP_FLOW_OBJECTS(SP_FLOW_CASE_RECORD)
		}
		name = scratch->name;
	}
	if (port != SP_FLOW_DROP_PORT) {
		if (!room)
			room = sp_commit_park(xdp, line, name, port);
		if (room == SP_COMMIT_WRAP)
			return sp_flow_wrap_read(xdp, scratch, port);
	}
	if (room)
		return XDP_DROP; /* counted */
	return sp_commit_spare(xdp, line);
}

/* ---- batches leave -------------------------------------------------------------------------- */

/* The digest of a batch's records; the length is known to fit. */
static __noinline __u64 sp_flow_digest(struct sp_commit_batch *batch, __u32 words, __u32 key_id)
{
	__u32 zero = 0;
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_sip sip;

	if (!batch || !secrets)
		return 0;
	key_id &= SP_SECRETS - 1;
	sp_sip_begin(&sip, secrets->secret[key_id][0], secrets->secret[key_id][1]);
	for (__u32 i = 0; i < SP_COMMIT_WORDS; i++) {
		if (i >= words)
			break;
		sp_sip_word(&sip, batch->words[i]);
	}
	return sp_sip_end(&sip, (__u64)words << 59);
}

/* Writes all but digest, records and tag. */
static __always_inline int sp_flow_fill_batch(struct xdp_md *xdp,
    const struct sp_flow_settings *settings, const struct sp_shard_head *head,
    const struct sp_commit_work *work, __u32 session, __u32 key_id)
{
	__u32 line = work->stream & (SP_COMMIT_LINES - 1);
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_batch_header *header = (void *)(outer + 1);
	__u32 bytes = SP_FLOW_OUTER_BYTES + SP_BATCH_SIGNED_BYTES + work->words * 8;

	if ((void *)(header + 1) > (void *)(long)xdp->data_end)
		return -1;
	sp_flow_fill_outer(outer, settings, head, bytes);
	header->magic = bpf_htons(SP_BATCH_MAGIC);
	header->version = SP_BATCH_VERSION;
	header->message_type = SP_BATCH;
	header->flags = 0;
	header->count = bpf_htons(work->records);
	header->switch_id = bpf_htonl(settings->switch_id);
	header->incarnation = bpf_htonl(settings->incarnation);
	header->request_ns = bpf_cpu_to_be64(sp_now_ns());
	header->batch = bpf_cpu_to_be64(work->number);
	header->view = 0;
	header->session = bpf_htonl(session);
	header->body_bytes = bpf_htons(work->words * 8);
	header->stream = bpf_htons(work->stream / SP_COMMIT_LINES);
	header->client = settings->protocol_address;
	header->shard = bpf_htons(line);
	header->key_id = key_id;
	header->body_key_id = key_id;
	header->tag = 0;
	return 0;
}

/* Makes the frame the message of the batch in sp_commit_work, and sends it to the shard's head. */
SEC("xdp.frags")
int sp_batch(struct xdp_md *xdp)
{
	__u32 zero = 0, line, at, key_id, total;
	struct sp_commit_work *work = bpf_map_lookup_elem(&sp_commit_work, &zero);
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	struct sp_commit_stream *stream;
	struct sp_commit_batch *batch;
	struct sp_session *session;
	struct sp_shard_head *head;
	__u64 bytes;

	if (!work || !settings || !secrets || !scratch)
		return XDP_ABORTED;
	line = work->stream & (SP_COMMIT_LINES - 1);
	at = work->stream * 2 + (work->number & 1);
	batch = bpf_map_lookup_elem(&sp_commit_batches, &at);
	stream = sp_commit_stream_at(work->stream);
	head = bpf_map_lookup_elem(&sp_shards, &line);
	session = sp_get_session(line);
	key_id = secrets->sends & (SP_SECRETS - 1);
	bytes = SP_BATCH_DIGEST_BYTES + work->words * 8;
	asm volatile("" : "+r"(bytes));
	if (!batch || !stream || bytes < 16 || bytes > SP_BATCH_DIGEST_BYTES + SP_BATCH_RECORDS_BYTES_MAX)
		return XDP_ABORTED;
	if (!(secrets->present >> key_id & 1)) {
		sp_flow_count(SP_STAT_NO_SECRET);
		return XDP_DROP;
	}
	if (!head || !session || !head->address) {
		sp_flow_count(SP_STAT_NO_HEAD);
		return XDP_DROP;
	}
	total = SP_FLOW_OUTER_BYTES + SP_BATCH_HEADER_BYTES + bytes;
	if (sp_commit_resize(xdp, total, SP_COMMIT_LEAVES_BYTES))
		return sp_commit_grow(xdp, work->stream);
	batch->digest = bpf_cpu_to_be64(sp_flow_digest(batch, work->words, key_id));
	if (sp_flow_fill_batch(xdp, settings, head, work, session->number, key_id) ||
	    bpf_xdp_store_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_BATCH_HEADER_BYTES, batch, bytes) ||
	    sp_flow_sign(xdp, key_id, SP_BATCH_DIGEST_BYTES))
		return XDP_ABORTED;
	/* Acknowledged meanwhile: then the buffer is the next but one's, and may be written to. */
	if (__sync_fetch_and_add(&stream->acked, 0) >= work->number)
		return XDP_DROP;
	sp_commit_count(SP_COMMIT_BATCHES, 1);
	return sp_flow_route(xdp, &scratch->route, settings, head, total - 14,
	    stream->ifindex ? stream->ifindex : xdp->ingress_ifindex);
}

static __always_inline int sp_flow_send_batch(struct xdp_md *xdp)
{
	bpf_tail_call(xdp, &sp_programs, SP_PROGRAM_BATCH);
	sp_flow_count(SP_STAT_TOO_MANY_ATTEMPTS);
	return XDP_DROP;
}

/* A frame from the loop: on the switch's own veth pair this program runs in sp_main's place. */
SEC("xdp.frags")
int sp_loop(struct xdp_md *xdp)
{
	int verdict = sp_commit_looped(xdp);

	return verdict == SP_COMMIT_NOTHING ? sp_flow_send_batch(xdp) : verdict;
}

/* ---- acknowledgements ----------------------------------------------------------------------- */

static __always_inline int sp_flow_is_batch_ack(struct xdp_md *xdp)
{
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_batch_header *header = (void *)(outer + 1);

	return (void *)(header + 1) <= (void *)(long)xdp->data_end &&
	       header->message_type == SP_BATCH_ACK;
}

/* Reads an acknowledgement and checks all that makes it one to be taken: 0, or a statistic. */
static __always_inline __u32 sp_flow_check_ack(struct xdp_md *xdp,
    const struct sp_flow_settings *settings, const struct sp_flow_outer *outer)
{
	const struct sp_batch_header *header = (const void *)(outer + 1);
	__u32 zero = 0, key_id = header->key_id;
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	__u64 claimed = header->tag, tag = 0;

	if (header->magic != bpf_htons(SP_BATCH_MAGIC) || header->version != SP_BATCH_VERSION ||
	    header->switch_id != bpf_htonl(settings->switch_id) ||
	    outer->fragment & bpf_htons(0x3fff) ||
	    outer->udp_length != bpf_htons(8 + SP_BATCH_ACK_BYTES) ||
	    bpf_ntohs(header->shard) >= settings->shards)
		return SP_STAT_MALFORMED;
	if (!secrets || key_id >= SP_SECRETS || !(secrets->present >> key_id & 1) ||
	    sp_tag(xdp, key_id, SP_BATCH_DIGEST_BYTES, &tag) || bpf_cpu_to_be64(tag) != claimed)
		return SP_STAT_BAD_TAG;
	return 0;
}

/* A refused record: the flow's entry learns it, as of REFUSED. */
#define SP_FLOW_CASE_REFUSED(name, id, flows, kb, vb, consistency, allocator) \
	case id: \
		sp_flow_forget(&name, scratch, kb, now); \
		break;

#ifdef SP_FLOW_GROUPED
#define SP_FLOW_CASE_SPOILT(name, id, flows, kb, vb, consistency, allocator) \
	case id: \
		sp_flow_disclaim(&name, scratch, kb); \
		break;
#endif

struct sp_refused_work {
	struct sp_commit_batch *batch;
	__u64 bits;
	__u64 now;
	__u32 spoilt; /* the head does not know this batch */
};

static long sp_flow_refuse_one(__u32 record, void *context)
{
	struct sp_refused_work *work = context;
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	struct sp_commit_batch *batch = work->batch;
	__u64 at, head, now = work->now;

	if (!scratch || !batch || record >= SP_COMMIT_RECORDS || !(work->bits >> record & 1))
		return 0;
	at = sp_below(batch->at[record & SP_COMMIT_RECORDS], SP_COMMIT_WORDS - 3);
	head = bpf_be64_to_cpu(batch->words[at]);
	scratch->object_id = head >> 48;
	scratch->epoch = (__u32)head;
	scratch->type = SP_REFUSED;
	for (__u32 i = 0; i < SP_FLOW_KEY_ROOM / 8; i++)
		((__u64 *)scratch->key)[i] = batch->words[at + 3 + i];
#ifdef SP_FLOW_GROUPED
	if (work->spoilt) {
		switch (scratch->object_id) {
			SP_FLOW_OBJECTS(SP_FLOW_CASE_SPOILT)
		}
	} else
#endif
	switch (scratch->object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_REFUSED)
	}
	sp_flow_count(SP_STAT_REFUSED);
	sp_commit_count(SP_COMMIT_RECORDS_REFUSED, 1);
	return 0;
}

#ifdef SP_FLOW_GROUPED
/* The batch that was open when the one before was refused is refused as well: groups.md,
 * decision 6. */
static __always_inline void sp_flow_spoil(
    __u32 cpu, __u32 at, __u64 number, __u32 records, const struct sp_commit_list *list)
{
	__u32 batch_at = at * 2 + (number & 1);
	struct sp_refused_work spoilt = { .now = sp_now_ns(), .spoilt = 1 };

	spoilt.bits = records < 64 ? (1ull << records) - 1 : ~0ull;
	spoilt.batch = bpf_map_lookup_elem(&sp_commit_batches, &batch_at);
	if (!spoilt.batch)
		return;
	sp_commit_refuse_list(cpu, list, ~0ull);
	bpf_loop(SP_COMMIT_RECORDS, sp_flow_refuse_one, &spoilt, 0);
	sp_commit_release(cpu, list);
}
#endif

/* A batch is durable: its packets are ready, and the next one leaves in this frame. */
SEC("xdp.frags")
int sp_batch_ack(struct xdp_md *xdp)
{
	struct sp_flow_outer *outer = (void *)(long)xdp->data;
	struct sp_batch_header *header = (void *)(outer + 1);
	__u32 zero = 0, fault, cpu, at, line, batch_at;
	struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
	struct sp_commit_list list = {};
	struct sp_refused_work refused = { .now = sp_now_ns() };
	struct sp_commit_stream *stream;
	struct sp_session *session;
	__u64 number, request_ns;
	__u32 records = 0;

	if (!settings)
		return XDP_DROP;
	if ((void *)(header + 1) + SP_BATCH_DIGEST_BYTES > (void *)(long)xdp->data_end) {
		sp_flow_count(SP_STAT_MALFORMED);
		return XDP_DROP;
	}
	fault = sp_flow_check_ack(xdp, settings, outer);
	if (fault) {
		sp_flow_count(fault);
		return XDP_DROP;
	}
	outer = (void *)(long)xdp->data;
	header = (void *)(outer + 1);
	if ((void *)(header + 1) + SP_BATCH_DIGEST_BYTES > (void *)(long)xdp->data_end)
		return XDP_DROP;
	if (header->incarnation != bpf_htonl(settings->incarnation)) {
		sp_flow_count(SP_STAT_OTHER_INCARNATION);
		return XDP_DROP;
	}
	cpu = bpf_ntohs(header->stream);
	line = bpf_ntohs(header->shard) & (SP_COMMIT_LINES - 1);
	at = sp_commit_index(cpu, line);
	number = bpf_be64_to_cpu(header->batch);
	request_ns = bpf_be64_to_cpu(header->request_ns);
	refused.bits = bpf_be64_to_cpu(*(sp_u64a *)(header + 1));
	stream = sp_commit_stream_at(at);
	batch_at = at * 2 + (number & 1);
	refused.batch = bpf_map_lookup_elem(&sp_commit_batches, &batch_at);
	if (!stream || !refused.batch)
		return XDP_DROP;
	if (refused.bits && *(volatile __u64 *)&stream->departed == number &&
	    *(volatile __u64 *)&stream->acked != number) {
		if (!sp_commit_refuse(cpu, stream, number, refused.bits, 0))
			return XDP_DROP;
		bpf_loop(SP_COMMIT_RECORDS, sp_flow_refuse_one, &refused, 0);
	}
#ifdef SP_FLOW_GROUPED
	struct sp_commit_list spoilt = {};
	__u32 spoilt_records = 0;

	if (!sp_commit_acked_with(stream, number, &list, &records, refused.bits != 0, &spoilt,
		&spoilt_records))
		return XDP_DROP;
	if (spoilt_records)
		sp_flow_spoil(cpu, at, number + 1, spoilt_records, &spoilt);
#else
	if (!sp_commit_acked(stream, number, &list, &records))
		return XDP_DROP;
#endif
	sp_flow_count_by(SP_STAT_ACKS, records);
	session = sp_get_session(line);
	if (session && request_ns <= refused.now) {
		bpf_spin_lock(&session->lock);
		sp_session_measure(session, refused.now - request_ns);
		bpf_spin_unlock(&session->lock);
	}
	sp_commit_release(cpu, &list);
	/* Fewer packets came than wait: arrivals alone would not carry them out. One copy becomes the
	 * next request, the other one begins to carry out what is ready. */
	if (list.count > *(volatile __u32 *)&stream->open.count &&
	    *(volatile __u16 *)&stream->open_records)
		return sp_commit_loop(xdp, cpu, at, 2);
	if (sp_commit_choose(at, 0))
		return sp_flow_send_batch(xdp);
	return sp_commit_drain(xdp, cpu, 0);
}

/* ---- records without packets ----------------------------------------------------------------- */

/* Has the program an object whose packets wait for its updates? */
#define SP_FLOW_ONE_WAITS(name, id, flows, kb, vb, consistency, allocator)                         \
	| SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT)
#define SP_FLOW_ANY_WAITS (0 SP_FLOW_OBJECTS(SP_FLOW_ONE_WAITS))

/* Has the open batch room for a record without a packet? Packets that must wait need some of it,
 * too, and are dropped without. */
static __always_inline int sp_flow_gather_fits(const struct sp_commit_place *place, __u32 words)
{
	__u32 records = *(volatile __u16 *)&place->stream->open_records;
	__u32 after = *(volatile __u16 *)&place->stream->open_words + words;

	if (!sp_commit_fits(place, words))
		return 0;
	return !SP_FLOW_ANY_WAITS || place->again || !records ||
	       (records < SP_COMMIT_GATHER_RECORDS && 2 * after <= sp_commit_words_max);
}

/* An asynchronous object's flow, taken from the ring: its newest value becomes a record of this
 * CPU's open batch, if it is time and there is room. Standing in the ring says that the entry is
 * newer than the record which it names. Bits of stateplane_flow_generator.h's enum; -1: the flow is
 * released, which is no record's matter. */
static __always_inline int sp_flow_gather(void *map, struct sp_flow_scratch *scratch,
    __u32 object_id, __u32 key_bytes, __u32 value_bytes, __u64 now,
    const struct sp_flow_settings *settings)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, scratch->key);
	__u32 words = SP_FLOW_RECORD_WORDS(key_bytes, value_bytes), epoch = 0, phases = 0;
	int todo = SP_GENERATE_DONE, room;
	struct sp_commit_place place = {};
	__u64 timeout, before, seq = 0;
	struct sp_session *session;

	if (!entry)
		return SP_GENERATE_DONE;
	session = sp_get_session(entry->shard);
	timeout = sp_resend_timeout(session, settings, 0);
	before = entry->name;
	room = !sp_commit_find(&place, entry->shard, before) && sp_flow_gather_fits(&place, words);
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (!sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes)) {
		todo = SP_GENERATE_DONE;
	} else if (entry->flags & SP_FLOW_RELEASED) {
		todo = -1;
	} else if (entry->seq == entry->acked_seq) { /* a new grant */
		entry->flags &= ~SP_FLOW_QUEUED;
	} else if (!room || now < entry->sent_ns + timeout) {
		todo = SP_GENERATE_KEEP;
	} else {
		entry->flags &= ~SP_FLOW_QUEUED;
		entry->sent_ns = now;
		seq = entry->seq;
		epoch = entry->epoch;
		phases = entry->flags & SP_FLOW_PHASES;
		sp_flow_copy(scratch->value,
		    (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES + SP_ROUND8(key_bytes), value_bytes);
		todo = SP_GENERATE_RECORDED;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (todo != SP_GENERATE_RECORDED)
		return todo;
	scratch->shard = entry->shard;
	scratch->name = sp_flow_record(&place, before, object_id, scratch->key, key_bytes,
	    scratch->value, value_bytes, epoch, seq, phases);
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	/* A newer update stands in the ring; or it found no room there, and names none. */
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, key_bytes) &&
	    entry->epoch == epoch && (entry->seq == seq || entry->flags & SP_FLOW_QUEUED))
		entry->name = scratch->name;
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	return todo;
}

/* ---- the generator -------------------------------------------------------------------------- */

/* A generated frame looks after one stream: a batch that is overdue, or one that waits for a frame
 * from the loop that got lost; packets that are ready and that no arrival carries out. -1: there is
 * nothing to do, and the frame is free. */
static __always_inline int sp_flow_look_after(
    struct xdp_md *xdp, const struct sp_flow_settings *settings)
{
	__u32 at = 0, line, zero = 0, idle = 0, again = 0;
	__u64 now = sp_now_ns(), sent_ns, head_since_ns, *work;
	struct sp_commit_stream *stream;
	struct sp_shard_head *head;

	if (bpf_map_pop_elem(&sp_commit_due, &at))
		return -1;
	stream = sp_commit_stream_at(at);
	work = bpf_map_lookup_elem(&sp_generator_work, &zero);
	if (!stream || !work)
		return XDP_ABORTED;
	line = at & (SP_COMMIT_LINES - 1);
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
	head = bpf_map_lookup_elem(&sp_shards, &line);
	head_since_ns = head ? head->since_ns : 0;
	sent_ns = *(volatile __u64 *)&stream->sent_ns;
	if (*(volatile __u64 *)&stream->acked != *(volatile __u64 *)&stream->departed)
		again = now > sent_ns &&
			(now - sent_ns >= sp_resend_timeout(sp_get_session(line), settings,
				*(volatile __u32 *)&stream->resends) ||
			    sent_ns < head_since_ns);
	else
		again = !sp_commit_gathers(stream, now); /* nothing is in flight: what is open leaves */
	if (again && sp_commit_choose(at, 1))
		return sp_flow_send_batch(xdp);
	if (*(volatile __u32 *)&stream->ready)
		return sp_commit_drain(xdp, at / SP_COMMIT_LINES, 0);
	return -1;
}

#endif
