/* stateplane_snapshot_message.h: taking snapshots and sending their parts (in the packet
 * generator), and taking in what the store answers. Part of stateplane_flow.h;
 * systems/redplane/docs/snapshots.md has the messages and the switch's states. */
#ifndef STATEPLANE_SNAPSHOT_MESSAGE_H
#define STATEPLANE_SNAPSHOT_MESSAGE_H

/* ---- the generator ---- */

struct sp_snapshot_todo {
	__u64 push; /* parts that get a place in the ring */
	__u64 seq;
	__u64 flip_ns;
	__u64 used_ns;
	__u32 epoch;
	__u32 send; /* which message, 0: none */
	__u32 resent;
};

/* Under the lock: what the place of `part` in the ring stands for now. Part 0's place is the
 * instance's: it flips, and releases. A released instance (recalled, or idle) first hands over what
 * is unsaved, at once; then it says RELEASE until that is acknowledged. One whose packets go on
 * without a lease asks for it: by the parts of its snapshot, which the store acknowledges or
 * refuses; when there are none under way, by LEASE_REQUEST. */
static __always_inline void sp_snapshot_decide(struct sp_flow_entry_head *entry,
					       const struct sp_snapshot *object,
					       const struct sp_session *session, __u32 part,
					       __u64 now, __u64 resend_timeout_ns, __u64 early_ns,
					       struct sp_snapshot_todo *todo)
{
	struct sp_snapshot_book *book = SP_SNAPSHOT_BOOK(entry, object->key_bytes);
	__u64 *sent_ns = SP_SNAPSHOT_SENT(entry, object->key_bytes);
	__u64 all = SP_SNAPSHOT_ALL(SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes)),
	      bit = 1ull << part;
	int mine = entry->epoch &&
		   !(entry->flags & (SP_FLOW_DYING | SP_FLOW_UNKNOWN | SP_FLOW_RELEASE_ACKED));
	int released = entry->flags & SP_FLOW_RELEASED;

	if (mine && part == 0 && entry->seq == entry->acked_seq && book->since_flip_ns &&
	    (released || now + early_ns >= book->due_ns)) {
		/* RedPlane §5.4: to take a snapshot, flip. From here on updates have the next interval's tag. */
		entry->seq++;
		book->flip_ns = now;
		/* On time in the mean, however irregular the looks are: the next one is due a
		 * period after this one was due, unless that is too long ago. */
		book->due_ns = (now < book->due_ns + object->period_ns / 2 ? book->due_ns : now) +
			       object->period_ns;
		book->since_flip_ns = 0;
		book->in_flight_updates = book->since_flip_updates;
		book->since_flip_updates = 0;
		book->acked_parts = 0;
		todo->push = all & ~book->queued_parts;
		for (__u32 i = 0; i < SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes); i++)
			sent_ns[i] = 0;
	}
	book->queued_parts &= ~bit;
	if (mine && entry->seq > entry->acked_seq && !(book->acked_parts & bit)) {
		todo->push |= bit; /* again, until it is acknowledged */
		if (!sent_ns[part] || (now > sent_ns[part] && now - sent_ns[part] >= resend_timeout_ns)) {
			todo->send = SP_SNAPSHOT;
			todo->resent = sent_ns[part] != 0;
			sent_ns[part] = now;
			book->asked_ns = now;
		}
	} else if (mine && part == 0 && (entry->seq > entry->acked_seq || book->since_flip_ns)) {
		todo->push |= bit; /* other parts are under way, or the next snapshot waits for its time */
	} else if (part == 0 && released && !(entry->flags & (SP_FLOW_DYING | SP_FLOW_RELEASE_ACKED))) {
		todo->push |= bit;
		if (now > entry->sent_ns && now - entry->sent_ns >= resend_timeout_ns) {
			todo->send = SP_RELEASE;
			entry->sent_ns = now;
		}
	}
	if (mine && part == 0 && !released && object->overdue != SP_OVERDUE_DROP &&
	    entry->seq == entry->acked_seq && book->wanted_ns > book->asked_ns &&
	    !(session && sp_session_lives_exactly(session, entry->session, now))) {
		todo->push |= bit;
		if (now >= book->asked_ns + SP_SNAPSHOT_ASK_NS) {
			todo->send = SP_LEASE_REQUEST;
			book->asked_ns = now;
		}
	}
	book->queued_parts |= todo->push;
	if (book->queued_parts)
		entry->flags |= SP_FLOW_QUEUED;
	else
		entry->flags &= ~SP_FLOW_QUEUED;
	todo->seq = entry->seq;
	todo->epoch = entry->epoch;
	todo->flip_ns = book->flip_ns;
	todo->used_ns = entry->used_ns;
}

/* One slot of snapshot `seq`; see the invariants. The tag is brought up to date, as Algorithm 1
 * does, or 2^32 snapshots after an update it would look new. Without a branch, which the verifier
 * would follow both ways for each slot. */
#define SP_SLOT_OF_SNAPSHOT(slot, seq, value) \
	do { \
		__u64 sp_apart = (slot)->tag ^ ((__u32)(seq) + 1); \
		__u32 sp_updated = (sp_apart - 1) >> 63; /* since the flip */ \
		value = (slot)->copy[((slot)->tag ^ sp_updated) & 1]; \
		(slot)->copy[(seq) & 1] = value; \
		(slot)->tag = (__u32)(seq) + sp_updated; \
	} while (0)

/* Copies one part's slots out. Returns how many bytes, or 0 if the snapshot is no longer the one in
 * flight. */
static __always_inline __u32 sp_snapshot_read_part(struct sp_flow_entry_head *entry,
						   const struct sp_snapshot *object, __u32 part,
						   const struct sp_snapshot_todo *todo,
						   struct sp_snapshot_part *out)
{
	void *slots = sp_snapshot_slots(entry, object);
	__u32 per_part = SP_SNAPSHOT_PER_PART(object->slot_bytes), first = part * per_part, count = 0;

	for (__u32 segment = 0;
	     segment < (per_part + SP_SNAPSHOT_SEGMENT - 1) / SP_SNAPSHOT_SEGMENT; segment++) {
		int same;

		if (first + count >= object->slots || count >= per_part)
			break;
		bpf_spin_lock((struct bpf_spin_lock *)entry);
		same = entry->seq == todo->seq && entry->epoch == todo->epoch;
		for (__u32 i = 0; i < SP_SNAPSHOT_SEGMENT; i++) {
			__u32 at = segment * SP_SNAPSHOT_SEGMENT + i, index = first + at;

			asm volatile("" : "+r"(index)); /* so that the check below is of what is used */
			if (at >= per_part || index >= object->slots)
				break;
			if (object->slot_bytes == 4) {
				struct sp_slot4 *slot = (struct sp_slot4 *)slots + index;
				__u32 value;
				SP_SLOT_OF_SNAPSHOT(slot, todo->seq, value);
				((__be32 *)out->slot)[at] = bpf_htonl(value);
			} else {
				struct sp_slot8 *slot = (struct sp_slot8 *)slots + index;
				__u64 value;
				SP_SLOT_OF_SNAPSHOT(slot, todo->seq, value);
				((__be64 *)out->slot)[at] = bpf_cpu_to_be64(value);
			}
			count = at + 1;
		}
		bpf_spin_unlock((struct bpf_spin_lock *)entry);
		if (!same)
			return 0;
	}
	out->part = bpf_htons(part);
	out->parts = bpf_htons(SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes));
	out->slots = bpf_htonl(object->slots);
	out->flip_ns = bpf_cpu_to_be64(todo->flip_ns);
	return count * object->slot_bytes;
}

/* A snapshot's RELEASE has no value (UNKNOWN): the store has the state already. */
static __always_inline void sp_snapshot_tell_release(struct sp_flow_scratch *scratch, __u64 used_ns,
						     __u64 now)
{
	__u64 idle_ns = now > used_ns ? now - used_ns : 0;

	scratch->type = SP_RELEASE;
	scratch->flags = SP_FLAG_UNKNOWN;
	scratch->port = SP_FLOW_DROP_PORT;
	scratch->idle_ms = idle_ns >> 52 ? 0xffffffffu : idle_ns / 1000000;
	scratch->value_bytes = 0;
}

/* However slow the store, a part is sent so often within epsilon. */
#define SP_SNAPSHOT_RESENDS 16

/* A generated packet becomes the part that its place in the ring (key in the scratch) stands for.
 * Returns the XDP verdict. */
static __always_inline int sp_snapshot_generate(struct xdp_md *xdp,
						const struct sp_snapshot *object, __u32 part,
						__u64 now, const struct sp_flow_settings *settings)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0, parts = SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes);
	struct sp_snapshot_part *out = bpf_map_lookup_elem(&sp_snapshot_scratch, &zero);
	struct sp_flow_entry_head *entry;
	struct sp_snapshot_todo todo = {};
	struct sp_session *session;
	__u64 bytes, resend_timeout_ns, early_ns;

	if (!scratch || !out || part >= parts)
		return XDP_ABORTED;
	entry = bpf_map_lookup_elem(object->map, scratch->key);
	if (!entry)
		return XDP_DROP;
	session = sp_get_session(*(volatile __u16 *)&entry->shard); /* a key's never changes */
	/* No back-off: there is one snapshot of an instance at a time, so only so many parts in a
	 * time-out. And within epsilon several may get lost. */
	resend_timeout_ns = sp_resend_timeout(session, settings, 0);
	if (resend_timeout_ns > object->epsilon_ns / SP_SNAPSHOT_RESENDS &&
	    resend_timeout_ns > settings->resend_least_ns)
		resend_timeout_ns = object->epsilon_ns / SP_SNAPSHOT_RESENDS > settings->resend_least_ns ?
					    object->epsilon_ns / SP_SNAPSHOT_RESENDS :
					    settings->resend_least_ns;
	/* The look nearest to its time takes a snapshot: looks are a little irregular, and the next
	 * one may be much too late. */
	early_ns = settings->look_ns / 2 < object->period_ns / 4 ? settings->look_ns / 2
								 : object->period_ns / 4;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, object->key_bytes))
		sp_snapshot_decide(entry, object, session, part, now, resend_timeout_ns, early_ns, &todo);
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	for (__u32 i = 0; i < parts; i++)
		if (todo.push & (1ull << i))
			sp_flow_push_part((void *)scratch->entry, object->object_id, i, scratch->key, object->key_bytes);
	if (!todo.send)
		return XDP_DROP;
	scratch->object_id = object->object_id;
	scratch->type = todo.send;
	scratch->flags = 0;
	scratch->port = SP_FLOW_DROP_PORT;
	scratch->seq = todo.seq;
	scratch->epoch = todo.epoch;
	scratch->key_bytes = object->key_bytes;
	scratch->value_bytes = 0;
	if (todo.send == SP_RELEASE) {
		sp_snapshot_tell_release(scratch, todo.used_ns, now);
		sp_flow_count(SP_STAT_RELEASED);
		return sp_flow_send_by_tail_call(xdp, scratch, 0);
	}
	if (todo.send == SP_LEASE_REQUEST) { /* without a packet: those go on meanwhile */
		scratch->flags = SP_FLAG_ALLOCATE;
		scratch->seq = 0;
		scratch->epoch = 0;
		return sp_flow_send_by_tail_call(xdp, scratch, 0);
	}
	bytes = sp_snapshot_read_part(entry, object, part, &todo, out);
	if (!bytes)
		return XDP_DROP;
	bytes += SP_SNAPSHOT_PART_HEAD;
	asm volatile("" : "+r"(bytes));
	if (bytes <= SP_SNAPSHOT_PART_HEAD || bytes > sizeof(*out))
		return XDP_ABORTED;
	/* The frame becomes the part, and then the "packet" that the message goes around. */
	if (bpf_xdp_adjust_tail(xdp, (int)bytes - (int)bpf_xdp_get_buff_len(xdp)) ||
	    bpf_xdp_store_bytes(xdp, 0, out, bytes)) {
		sp_flow_count(SP_STAT_TOO_BIG);
		return XDP_DROP;
	}
	sp_flow_count(todo.resent ? SP_STAT_SNAPSHOT_PARTS_RESENT : SP_STAT_SNAPSHOT_PARTS);
	return sp_flow_send_by_tail_call(xdp, scratch, 1);
}

/* ---- the store's answers ---- */

/* SNAPSHOT_ACK: which parts of snapshot `seq` are on all servers stands in the value. */
static __always_inline void sp_snapshot_acknowledge(struct sp_flow_entry_head *entry,
						    const struct sp_snapshot *object,
						    struct sp_flow_scratch *scratch)
{
	struct sp_snapshot_book *book = SP_SNAPSHOT_BOOK(entry, object->key_bytes);
	__u64 parts = bpf_be64_to_cpu(*(__be64 *)scratch->value);
	__u64 all = SP_SNAPSHOT_ALL(SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes));
	int whole = 0;

	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key,
			  object->key_bytes) &&
	    scratch->epoch == entry->epoch && scratch->session > entry->session &&
	    !(entry->flags & SP_FLOW_RELEASED)) {
		entry->session = scratch->session; /* the flow is owned in it */
		entry->shard = scratch->shard;
	}
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key,
			  object->key_bytes) &&
	    scratch->epoch == entry->epoch && scratch->seq == entry->seq &&
	    entry->seq > entry->acked_seq) {
		book->acked_parts |= parts & all;
		if (book->acked_parts == all) {
			entry->acked_seq = entry->seq;
			book->unsaved_ns = book->since_flip_ns;
			book->in_flight_updates = 0;
			whole = 1;
		}
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (whole)
		sp_flow_count(SP_STAT_SNAPSHOTS);
}

/* SNAPSHOT_STATE: a part of what this switch shall go on from. It goes into the slots, both copies;
 * the grant makes them count if all parts of one snapshot, under one epoch, are there. Nothing
 * changes in an instance that was granted under that epoch already. */
static __always_inline void sp_snapshot_take_part(struct sp_flow_entry_head *entry,
						  const struct sp_snapshot *object,
						  struct sp_flow_scratch *scratch, __u32 part,
						  const struct sp_snapshot_part *in)
{
	struct sp_snapshot_book *book = SP_SNAPSHOT_BOOK(entry, object->key_bytes);
	__u32 per_part = SP_SNAPSHOT_PER_PART(object->slot_bytes), first = part * per_part;
	void *slots = sp_snapshot_slots(entry, object);
	__u64 lost = 0;

	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, object->key_bytes) &&
	    scratch->epoch > entry->epoch && !(entry->flags & SP_FLOW_DYING)) {
		if (book->seen_epoch != scratch->epoch || book->seen_seq != scratch->seq) {
			book->seen_epoch = scratch->epoch;
			book->seen_seq = scratch->seq;
			book->seen_parts = 0;
			/* What stood here is over, as the store has given the key out anew; what
			 * was unsaved of it is fenced. */
			entry->flags |= SP_FLOW_RELEASED | SP_FLOW_RELEASE_ACKED | SP_FLOW_UNKNOWN;
			lost = sp_snapshot_lose(entry, book);
		}
		for (__u32 i = 0; i < per_part; i++) {
			__u32 index = first + i;

			asm volatile("" : "+r"(index)); /* so that the check below is of what is used */
			if (index >= object->slots)
				break;
			if (object->slot_bytes == 4) {
				struct sp_slot4 *slot = (struct sp_slot4 *)slots + index;

				slot->copy[0] = slot->copy[1] = bpf_ntohl(((const __be32 *)in->slot)[i]) & object->mask;
				slot->tag = (__u32)scratch->seq;
			} else {
				struct sp_slot8 *slot = (struct sp_slot8 *)slots + index;

				slot->copy[0] = slot->copy[1] = bpf_be64_to_cpu(((const __be64 *)in->slot)[i]) & object->mask;
				slot->tag = (__u32)scratch->seq;
			}
		}
		book->seen_parts |= 1ull << part;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (lost)
		sp_flow_count_by(SP_STAT_SNAPSHOT_UPDATES_LOST, lost);
}

/* LEASE_GRANT (rule 3). If parts are missing the instance stays as it is: the grant's packet runs,
 * finds no session, and asks again. */
static __always_inline void sp_snapshot_install(struct sp_flow_entry_head *entry,
						const struct sp_snapshot *object,
						struct sp_flow_scratch *scratch, __u64 now)
{
	struct sp_snapshot_book *book = SP_SNAPSHOT_BOOK(entry, object->key_bytes);
	__u64 all = SP_SNAPSHOT_ALL(SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes));
	__u32 stat = SP_STAT_IGNORED_GRANTS;

	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, object->key_bytes) &&
	    !(entry->flags & SP_FLOW_DYING)) {
		if (scratch->epoch == entry->epoch && !(entry->flags & SP_FLOW_RELEASED)) {
			/* Same grant: what stands here is the newest. */
			if (scratch->session > entry->session) {
				entry->session = scratch->session;
				entry->shard = scratch->shard;
			}
			stat = SP_STAT_GRANTS;
		} else if (scratch->epoch > entry->epoch &&
			   (book->seen_epoch != scratch->epoch || book->seen_seq != scratch->seq ||
			    book->seen_parts != all)) {
			stat = SP_STAT_SNAPSHOT_PARTS_MISSING;
		} else if (scratch->epoch > entry->epoch) {
			entry->epoch = scratch->epoch;
			entry->seq = entry->acked_seq = scratch->seq;
			entry->session = scratch->session;
			entry->shard = scratch->shard;
			entry->used_ns = now;
			entry->flags &= SP_FLOW_QUEUED;
			book->since_flip_ns = book->unsaved_ns = 0;
			book->unleased_ns = 0;
			book->flip_ns = book->due_ns = 0;
			stat = SP_STAT_GRANTS;
		}
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	sp_flow_count(stat);
}

/* RELEASE_ACK and REFUSED: this epoch is over here (as sp_flow_forget). What is unsaved of a
 * refused one is lost, and counted. */
static __always_inline void sp_snapshot_forget(struct sp_flow_entry_head *entry,
					       const struct sp_snapshot *object,
					       struct sp_flow_scratch *scratch, __u64 now)
{
	struct sp_snapshot_book *book = SP_SNAPSHOT_BOOK(entry, object->key_bytes);
	__u64 lost = 0;

	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key,
			  object->key_bytes) &&
	    scratch->epoch == entry->epoch &&
	    (entry->flags & SP_FLOW_RELEASED || scratch->type == SP_REFUSED)) {
		if (scratch->type == SP_REFUSED)
			entry->sent_ns = now;
		entry->flags |= SP_FLOW_RELEASED | SP_FLOW_RELEASE_ACKED | SP_FLOW_UNKNOWN;
		lost = sp_snapshot_lose(entry, book);
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (lost)
		sp_flow_count_by(SP_STAT_SNAPSHOT_UPDATES_LOST, lost);
}

/* RECALL (rule 6). What is unsaved goes first, through the generator; an instance with nothing
 * unsaved answers at once. */
static __always_inline int sp_snapshot_recall(struct sp_flow_entry_head *entry,
					      const struct sp_snapshot *object,
					      struct sp_flow_scratch *scratch, __u64 now)
{
	struct sp_snapshot_book *book = SP_SNAPSHOT_BOOK(entry, object->key_bytes);
	int answer = SP_EFFECT_DONE, queue = 0;
	__u64 used_ns = 0, lost = 0;

	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, scratch->key, object->key_bytes) &&
	    !(entry->flags & SP_FLOW_DYING) && scratch->epoch >= entry->epoch) {
		if (scratch->epoch > entry->epoch) { /* the grant is lost or late: it is ignored when it comes */
			entry->epoch = scratch->epoch;
			entry->flags = (entry->flags & SP_FLOW_QUEUED) | SP_FLOW_UNKNOWN;
			lost = sp_snapshot_lose(entry, book);
		}
		entry->flags |= SP_FLOW_RELEASED;
		if (!(entry->flags & SP_FLOW_RELEASE_ACKED) && !(book->queued_parts & 1)) {
			queue = 1;
			book->queued_parts |= 1;
			entry->flags |= SP_FLOW_QUEUED;
		}
		if (entry->seq == entry->acked_seq && !book->since_flip_ns) {
			answer = SP_EFFECT_ANSWER;
			entry->sent_ns = now;
			used_ns = entry->used_ns;
			scratch->epoch = entry->epoch;
			scratch->seq = entry->seq;
		}
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (queue)
		sp_flow_push((void *)scratch->entry, object->object_id, scratch->key, object->key_bytes);
	if (lost)
		sp_flow_count_by(SP_STAT_SNAPSHOT_UPDATES_LOST, lost);
	sp_flow_count(SP_STAT_RECALLED);
	if (answer == SP_EFFECT_ANSWER)
		sp_snapshot_tell_release(scratch, used_ns, now);
	return answer;
}

/* Reads a part's bytes behind the message's key. Returns its number, or -1 if it does not fit the
 * object. */
static __always_inline int sp_snapshot_load_part(struct xdp_md *xdp,
						 const struct sp_snapshot *object,
						 const struct sp_flow_scratch *scratch,
						 __u32 packet_bytes, struct sp_snapshot_part *in)
{
	__u32 parts = SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes),
	      per_part = SP_SNAPSHOT_PER_PART(object->slot_bytes);
	__u64 bytes = packet_bytes;
	__u32 part, count;

	asm volatile("" : "+r"(bytes));
	if (bytes < SP_SNAPSHOT_PART_HEAD || bytes > sizeof(*in))
		return -1;
	if (bpf_xdp_load_bytes(xdp, SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES + scratch->key_bytes,
			       in, bytes))
		return -1;
	part = bpf_ntohs(in->part);
	if (part >= parts || in->parts != bpf_htons(parts) || in->slots != bpf_htonl(object->slots))
		return -1;
	count = part == parts - 1 ? object->slots - (parts - 1) * per_part : per_part;
	return bytes == SP_SNAPSHOT_PART_HEAD + count * object->slot_bytes ? (int)part : -1;
}

/* Lets a message of the store take its effect: one of SP_EFFECT_. */
static __always_inline int sp_snapshot_apply(struct xdp_md *xdp, const struct sp_snapshot *object,
					     struct sp_flow_scratch *scratch, int packet_bytes,
					     __u64 now)
{
	__u32 zero = 0;
	struct sp_snapshot_part *in = bpf_map_lookup_elem(&sp_snapshot_scratch, &zero);
	struct sp_flow_entry_head *entry;
	int part = 0;

	if (!object->period_ns || !in)
		return SP_EFFECT_UNKNOWN_OBJECT;
	if (scratch->type == SP_SNAPSHOT_STATE) {
		part = sp_snapshot_load_part(xdp, object, scratch, packet_bytes, in);
		if (part < 0 || part >= SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes)) {
			sp_flow_count(SP_STAT_MALFORMED);
			return SP_EFFECT_UNKNOWN_OBJECT;
		}
	}
	entry = bpf_map_lookup_elem(object->map, scratch->key);
	if (!entry && scratch->type == SP_RECALL)
		sp_flow_count(SP_STAT_RECALLED_UNKNOWN);
	if (!entry && (scratch->type == SP_SNAPSHOT_STATE || scratch->type == SP_RECALL)) {
		/* Who was recalled must remember that it never takes that epoch again (as sp_flow_recall). */
		entry = sp_snapshot_make(object, scratch->key);
		if (!entry && scratch->type == SP_RECALL && sp_flow_disown(scratch, object->key_bytes, 0, now)) {
			entry = bpf_map_lookup_elem(object->map, scratch->key);
			if (!entry) {
				sp_flow_tell_unheld(scratch);
				return SP_EFFECT_ANSWER;
			}
		}
		if (!entry)
			return SP_EFFECT_NO_ROOM;
	}
	if (!entry)
		return SP_EFFECT_DONE;
	switch (scratch->type) {
	case SP_LEASE_GRANT:
		sp_snapshot_install(entry, object, scratch, now);
		break;
	case SP_SNAPSHOT_STATE:
		if (scratch->epoch > entry->epoch && sp_flow_is_disowned(scratch, object->key_bytes))
			return SP_EFFECT_NO_ROOM; /* no part, no grant */
		sp_snapshot_take_part(entry, object, scratch, part, in);
		break;
	case SP_SNAPSHOT_ACK:
		sp_snapshot_acknowledge(entry, object, scratch);
		break;
	case SP_REFUSED:
		sp_flow_count(SP_STAT_REFUSED);
		sp_snapshot_forget(entry, object, scratch, now);
		break;
	case SP_RELEASE_ACK:
		sp_flow_count(SP_STAT_RELEASE_ACKS);
		sp_snapshot_forget(entry, object, scratch, now);
		break;
	case SP_RECALL:
		return sp_snapshot_recall(entry, object, scratch, now);
	}
	return SP_EFFECT_DONE;
}

/* Sizes of the values: of a grant (see systems/redplane/docs/snapshots.md) and of an
 * acknowledgement. */
#define SP_SNAPSHOT_CASE_SIZES(name, id, instances, kb, slots, width, slot_bytes, period_us, \
			       epsilon_us, overdue) \
	case id: \
		known = period_us && scratch->key_bytes == kb && scratch->type != SP_UPDATE_ACK && \
			scratch->value_bytes == (scratch->type == SP_LEASE_GRANT    ? 4 \
						 : scratch->type == SP_SNAPSHOT_ACK ? 8 \
										    : 0); \
		break;

/* The object with the compiler's constants. */
#define SP_SNAPSHOT_OBJECT(name, id, kb, slot_count, width, slot_size, period_us, epsilon_us, \
			   action) \
	{ .map = &name, \
	  .blank = &name##_blank, \
	  .object_id = id, \
	  .key_bytes = kb, \
	  .slots = slot_count, \
	  .slot_bytes = slot_size, \
	  .mask = (width) == 64 ? ~0ull : (1ull << ((width) & 63)) - 1, \
	  .period_ns = (period_us) * 1000ull, \
	  .epsilon_ns = (epsilon_us) * 1000ull, \
	  .overdue = action }

#define SP_SNAPSHOT_CASE_GENERATE(name, id, instances, kb, slots, width, slot_bytes, period_us, \
				  epsilon_us, overdue) \
	case id: { \
		const struct sp_snapshot object = SP_SNAPSHOT_OBJECT( \
			name, id, kb, slots, width, slot_bytes, period_us, epsilon_us, overdue); \
		return sp_snapshot_generate(xdp, &object, part, now, settings); \
	}

#define SP_SNAPSHOT_CASE_APPLY(name, id, instances, kb, slots, width, slot_bytes, period_us, \
			       epsilon_us, overdue) \
	case id: { \
		const struct sp_snapshot object = SP_SNAPSHOT_OBJECT( \
			name, id, kb, slots, width, slot_bytes, period_us, epsilon_us, overdue); \
		effect = sp_snapshot_apply(xdp, &object, scratch, packet_bytes, now); \
		break; \
	}

/* What the compiler calls. */
#define SP_SNAPSHOT_ACCESS(name, id, instances, kb, slots, width, slot_bytes, period_us, \
			   epsilon_us, overdue) \
	static __always_inline __u32 name##_access(struct sp_flow_context *flow, const __u8 *key, \
						   int what, const __u32 *index, __u32 count, \
						   __u64 operand, __u64 *result) \
	{ \
		const struct sp_snapshot object = SP_SNAPSHOT_OBJECT( \
			name, id, kb, slots, width, slot_bytes, period_us, epsilon_us, overdue); \
		return sp_snapshot_access(flow, &object, key, what, index, count, operand, \
					  result); \
	} \
	static __always_inline int name##_overdue(const __u8 *key) \
	{ \
		const struct sp_snapshot object = SP_SNAPSHOT_OBJECT( \
			name, id, kb, slots, width, slot_bytes, period_us, epsilon_us, overdue); \
		return sp_snapshot_overdue(&object, key); \
	}
SP_SNAPSHOT_OBJECTS(SP_SNAPSHOT_ACCESS)

#endif
