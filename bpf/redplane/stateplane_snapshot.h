/* stateplane_snapshot.h: SnapshotState objects in the data plane: arrays of slots that packets
 * update at once, and of which whole snapshots go to the store every period (RedPlane §4.4, §5.4,
 * Algorithm 1). Part of stateplane_flow.h. systems/redplane/docs/snapshots.md has the rules and the
 * messages.
 *
 * Owns: instances (one entry a key), their slots' two copies, flips. Must not know: the P4 program.
 *
 * Invariants, all under the entry's spin lock:
 * - The interval that is now is seq + 1; a slot's tag is the interval of its last update (or an
 *   earlier one, if both copies are equal).
 * - The newest value of a slot is copy[tag & 1]. In snapshot `seq` it was copy[seq & 1] if tag is
 *   seq + 1 (updated since), else it is the newest. Algorithm 1 has one bit for the tag; with a
 *   number a part can be read again, for a re-send, at any time before the next flip.
 * - A snapshot is in flight while seq > acked_seq; there is no flip then, so what is read of it in
 *   several goes is of one instant: the flip.
 * - unsaved_ns: when the oldest update came that is in no acknowledged snapshot; 0: there is none.
 *   The state that a failure falls back to is the state of just before that moment, so this is what
 *   ε is held against.
 * - Without a lease, an object with MARK or CONTINUE goes on with its own copy, unless the store
 *   has said that it is another's (released): systems/redplane/docs/snapshots.md, "Without a
 *   lease". The store takes nothing of it if another switch was granted the key meanwhile (its
 *   epoch is over), and then the copy goes.
 * Two CPUs: every update and every read of a slot is under the lock, a packet's updates of several
 * slots in one go; so is the flip. Hence a
 * snapshot holds all of a packet's updates or none. */
#ifndef STATEPLANE_SNAPSHOT_H
#define STATEPLANE_SNAPSHOT_H

enum { SP_OVERDUE_DROP, SP_OVERDUE_MARK, SP_OVERDUE_CONTINUE };
enum { SP_SLOT_READ, SP_SLOT_WRITE, SP_SLOT_ADD, SP_SLOTS_BEGIN };

/* Without a lease: the generator asks for one at most this often; when it has not asked for so long
 * (its agent is dead), a packet does, and waits. */
#define SP_SNAPSHOT_ASK_NS 20000000ull
#define SP_SNAPSHOT_PATIENCE_NS 1000000000ull

/* What a part's message carries in the place of the packet; on the wire (big-endian). */
struct sp_snapshot_part {
	__be16 part;
	__be16 parts;
	__be32 slots; /* of the whole instance */
	__be64 flip_ns; /* the sender's clock when the snapshot was taken */
	__u8 slot[SP_SNAPSHOT_PART_BYTES];
};
#define SP_SNAPSHOT_PART_HEAD 16

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_snapshot_part);
} sp_snapshot_scratch SEC(".maps");

/* An entry begins as every entry does; name##_blank is what new ones are made from: all zero but
 * for used_ns. */
#define SP_SNAPSHOT_DECLARE(                                                                       \
    name, id, instances, kb, slot_count, width, slot_bytes, period_us, epsilon_us, overdue)        \
	struct name##_entry {                                                                      \
		SP_FLOW_ENTRY_HEAD                                                                 \
		__u8 key[SP_ROUND8(kb)];                                                           \
		struct sp_snapshot_book book;                                                      \
		__u64 part_sent_ns[SP_SNAPSHOT_PARTS(slot_count, slot_bytes)];                     \
		struct sp_slot##slot_bytes slot[slot_count];                                       \
	};                                                                                         \
	struct name##_key {                                                                        \
		__u8 bytes[SP_ROUND8(kb)];                                                         \
	};                                                                                         \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, instances);                                                    \
		__type(key, struct name##_key);                                                    \
		__type(value, struct name##_entry);                                                \
	} name SEC(".maps");                                                                       \
	struct name##_words {                                                                      \
		__u64 word[sizeof(struct name##_entry) / 8];                                       \
	};                                                                                         \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(max_entries, 1);                                                            \
		__type(key, __u32);                                                                \
		__type(value, struct name##_words);                                                \
	} name##_blank SEC(".maps");
SP_SNAPSHOT_OBJECTS(SP_SNAPSHOT_DECLARE)

#define SP_SNAPSHOT_BOOK(entry, kb)                                                                \
	((struct sp_snapshot_book *)((void *)(entry) + SP_FLOW_ENTRY_HEAD_BYTES + SP_ROUND8(kb)))
#define SP_SNAPSHOT_SENT(entry, kb) ((__u64 *)(SP_SNAPSHOT_BOOK(entry, kb) + 1))

/* One instance's place of one object; all but `entry` constants. */
struct sp_snapshot {
	void *map;
	void *blank;
	__u32 object_id;
	__u32 key_bytes;
	__u32 slots;
	__u32 slot_bytes;
	__u64 mask; /* of a slot's value */
	__u64 period_ns; /* 0: local */
	__u64 epsilon_ns;
	int overdue;
};

static __always_inline void *sp_snapshot_slots(void *entry, const struct sp_snapshot *object)
{
	return SP_SNAPSHOT_SENT(entry, object->key_bytes) +
	       SP_SNAPSHOT_PARTS(object->slots, object->slot_bytes);
}

/* Algorithm 1, lines "for a regular packet": the first update of an interval leaves the value of
 * before in the other copy. `interval` is seq + 1's low 32 bits. */
#define SP_SLOT_UPDATE(slot, interval, new_value)                                                  \
	do {                                                                                       \
		if ((slot)->tag != (interval)) {                                                   \
			(slot)->copy[~(interval) & 1] = (slot)->copy[(slot)->tag & 1];             \
			(slot)->tag = (interval);                                                  \
		}                                                                                  \
		(slot)->copy[(interval) & 1] = (new_value);                                        \
	} while (0)

static __always_inline __u64 sp_slot_access(
    void *slots, __u32 slot_bytes, __u32 index, __u32 interval, __u64 mask, int what, __u64 operand)
{
	__u64 value;

	if (slot_bytes == 4) {
		struct sp_slot4 *slot = (struct sp_slot4 *)slots + index;

		value = slot->copy[slot->tag & 1];
		if (what == SP_SLOT_READ)
			return value;
		value = what == SP_SLOT_ADD ? (value + operand) & mask : operand;
		SP_SLOT_UPDATE(slot, interval, value);
	} else {
		struct sp_slot8 *slot = (struct sp_slot8 *)slots + index;

		value = slot->copy[slot->tag & 1];
		if (what == SP_SLOT_READ)
			return value;
		value = what == SP_SLOT_ADD ? (value + operand) & mask : operand;
		SP_SLOT_UPDATE(slot, interval, value);
	}
	return value;
}

/* ---- windows: the last slot is the number of the window that the others are of; 0: none yet. A
 * packet of a newer one (RFC 1982's order) has all of them begin anew. The number is a slot, so it
 * is in every snapshot, and the counts that stand beside it are of that window and no other: also
 * where another switch goes on. */

/* Without the lock: has the window that the packet is of begun? What tag and copies tell together
 * may be of two instants, but each copy is a number that was there, and numbers only grow: equal to
 * the packet's means that the window is that one or a newer one. "No" is decided again under the
 * lock. */
static __always_inline int sp_window_is(void *slots, const struct sp_snapshot *object, __u64 window)
{
	__u32 last = object->slots - 1;

	if (object->slot_bytes == 4) {
		volatile struct sp_slot4 *slot = (struct sp_slot4 *)slots + last;

		return slot->copy[slot->tag & 1] == window;
	}
	volatile struct sp_slot8 *slot = (struct sp_slot8 *)slots + last;

	return slot->copy[slot->tag & 1] == window;
}

/* All slots are zero from here on: Algorithm 1's update of each, without a branch, which the
 * verifier would follow both ways for each slot. */
#define SP_SLOTS_BEGIN_ALL(type, slots, count, interval)                                           \
	_Pragma("clang loop unroll(disable)") for (__u32 i = 0; i < (count); i++)                  \
	{                                                                                          \
		struct type *slot = (struct type *)(slots) + i;                                    \
		__u64 sp_apart = slot->tag ^ (interval);                                           \
		__u32 sp_updated =                                                                 \
		    (sp_apart - 1) >>                                                              \
		    63; /* in this interval: the other copy is the flip's already */               \
                                                                                                   \
		slot->copy[~(interval) & 1] = slot->copy[(slot->tag ^ sp_updated) & 1];            \
		slot->copy[(interval) & 1] = 0;                                                    \
		slot->tag = (interval);                                                            \
	}

/* Under the lock. Returns 1 if the window began here. */
static __always_inline int sp_window_begin(
    void *slots, const struct sp_snapshot *object, __u32 interval, __u64 window)
{
	__u32 last = object->slots - 1;
	__u64 was = sp_slot_access(
	    slots, object->slot_bytes, last, interval, object->mask, SP_SLOT_READ, 0);
	__u64 ahead = (window - was) & object->mask;

	if (!ahead || (was && ahead > object->mask >> 1))
		return 0;
	if (object->slot_bytes == 4) {
		SP_SLOTS_BEGIN_ALL(sp_slot4, slots, object->slots, interval)
	} else {
		SP_SLOTS_BEGIN_ALL(sp_slot8, slots, object->slots, interval)
	}
	sp_slot_access(slots, object->slot_bytes, last, interval, object->mask, SP_SLOT_WRITE, window);
	return 1;
}

/* An instance of zeros, in no session; 0: no room. */
static __always_inline void *sp_snapshot_make(const struct sp_snapshot *object, const void *key)
{
	__u32 zero = 0;
	struct sp_flow_entry_head *blank = bpf_map_lookup_elem(object->blank, &zero);
	__u64 written = 0;
	void *entry;

	if (!blank)
		return 0;
	blank->used_ns = sp_coarse_ns();
	bpf_map_update_elem(object->map, key, blank, BPF_NOEXIST);
	entry = bpf_map_lookup_elem(object->map, key); /* maybe another CPU's */
	if (!entry) {
		sp_flow_count(SP_STAT_FLOWS_FULL);
		return 0;
	}
	/* The blank is shared, and an instance too large for one a CPU: so the key comes now. Until
	 * then it is nobody's, and packets run again. */
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	for (__u32 i = 0; i < SP_ROUND8(object->key_bytes) / 8; i++)
		written |= ((__u64 *)(entry + SP_FLOW_ENTRY_HEAD_BYTES))[i];
	if (!written)
		sp_flow_copy(entry + SP_FLOW_ENTRY_HEAD_BYTES, key, object->key_bytes);
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	return entry;
}

/* The instance gets its place (part 0's) in the ring, under the lock. Returns 1 if the caller must
 * put it there. */
static __always_inline int sp_snapshot_queue(
    struct sp_flow_entry_head *entry, struct sp_snapshot_book *book)
{
	int queue = !(book->queued_parts & 1);

	book->queued_parts |= 1;
	entry->flags |= SP_FLOW_QUEUED;
	return queue;
}

/* Notes under the lock that something has changed. Returns 1 if the instance needs a place in the
 * ring. */
static __always_inline int sp_snapshot_dirty(
    struct sp_flow_entry_head *entry, struct sp_snapshot_book *book, __u64 now)
{
	book->since_flip_updates++;
	if (book->since_flip_ns)
		return 0;
	book->since_flip_ns = now;
	if (!book->unsaved_ns)
		book->unsaved_ns = now;
	return sp_snapshot_queue(entry, book);
}

/* What is in no acknowledged snapshot goes, under the lock: another switch has the key. Returns how
 * many updates that is. */
static __always_inline __u64 sp_snapshot_lose(
    struct sp_flow_entry_head *entry, struct sp_snapshot_book *book)
{
	__u64 lost = book->since_flip_updates + book->in_flight_updates;

	entry->acked_seq = entry->seq;
	book->since_flip_ns = book->unsaved_ns = 0;
	book->since_flip_updates = book->in_flight_updates = 0;
	return lost;
}

/* May a packet go on with the switch's own copy although there is no lease? Not if no packet ever
 * had one under this grant (a grant that comes when its lease is over, and another switch may have
 * been granted the key since), and not what was given up or taken. */
static __always_inline int sp_snapshot_goes_on(
    const struct sp_snapshot *object, const void *entry, const struct sp_flow_entry_head *seen)
{
	return object->overdue != SP_OVERDUE_DROP && seen->epoch &&
	       !(seen->flags & (SP_FLOW_RELEASED | SP_FLOW_DYING)) &&
	       *(volatile __u32 *)&SP_SNAPSHOT_BOOK(entry, object->key_bytes)->held_epoch ==
		   seen->epoch;
}

/* A packet goes on without a lease, under the lock: the generator shall ask for one. Returns 1 if
 * it has not for so long that this packet must, if it can: with its agent dead, a switch would go
 * on for ever with what another one has had for long. */
static __always_inline int sp_snapshot_want(struct sp_snapshot_book *book, __u64 now)
{
	if (!book->unleased_ns)
		book->unleased_ns = now;
	book->wanted_ns = now;
	if (now <= book->unleased_ns + SP_SNAPSHOT_PATIENCE_NS ||
	    now <= book->asked_ns + SP_SNAPSHOT_PATIENCE_NS)
		return 0;
	book->asked_ns = now;
	return 1;
}

enum { SP_ACCESS_DONE, SP_ACCESS_GONE, SP_ACCESS_OVERDUE, SP_ACCESS_ASK };

/* Reads, writes or adds to `count` slots in one go, or begins the window `operand` (which may be
 * done twice: so the packet may run again). Returns a state result. */
static __always_inline __u32 sp_snapshot_access(struct sp_flow_context *flow,
    const struct sp_snapshot *object, const __u8 *key, int what, const __u32 *index, __u32 count,
    __u64 operand, __u64 *result)
{
	struct sp_flow_entry_head *entry, seen = {};
	struct sp_snapshot_book *book;
	int outcome = SP_ACCESS_GONE, queue = 0, overdue = 0, unleased = 0;
	__u64 now;
	void *slots;

	for (__u32 i = 0; i < count; i++)
		result[i] = 0;
	if (flow->kind == SP_FLOW_PARK)
		return SP_STATE_PENDING;
	entry = bpf_map_lookup_elem(object->map, key);
	now = sp_coarse_ns();
	if (object->period_ns) {
		if (entry) {
			seen.epoch = *(volatile __u32 *)&entry->epoch;
			seen.session = *(volatile __u32 *)&entry->session;
			seen.shard = *(volatile __u16 *)&entry->shard;
			seen.flags = *(volatile __u16 *)&entry->flags;
		}
		unleased = !entry || !sp_flow_owned(&seen, now);
		if (!entry || (unleased && !sp_snapshot_goes_on(object, entry, &seen)))
			return sp_flow_request(flow, object->object_id, key, object->key_bytes, 1);
	} else if (!entry) {
		entry = sp_snapshot_make(object, key);
		if (!entry)
			return SP_STATE_MISS;
	}
	book = SP_SNAPSHOT_BOOK(entry, object->key_bytes);
	slots = sp_snapshot_slots(entry, object);
	if (what == SP_SLOTS_BEGIN && sp_window_is(slots, object, operand))
		return SP_STATE_HIT;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, key, object->key_bytes) &&
	    !(entry->flags & (SP_FLOW_RELEASED | SP_FLOW_DYING)) &&
	    (!object->period_ns || (entry->epoch == seen.epoch && entry->session == seen.session))) {
		__u32 interval = (__u32)entry->seq + 1;

		if (now - entry->used_ns > SP_FLOW_USE_GRAIN_NS)
			entry->used_ns = now;
		overdue = object->period_ns && book->unsaved_ns && now > book->unsaved_ns + object->epsilon_ns;
		if (!unleased && (book->unleased_ns || book->held_epoch != entry->epoch)) {
			book->unleased_ns = 0;
			book->held_epoch = entry->epoch;
		}
		if (overdue && object->overdue == SP_OVERDUE_DROP) {
			outcome = SP_ACCESS_OVERDUE;
		} else if (what == SP_SLOTS_BEGIN) {
			/* Whether there is a lease, and who asks for it, is for the accesses that follow. */
			outcome = SP_ACCESS_DONE;
			if (sp_window_begin(slots, object, interval, operand) && object->period_ns)
				queue = sp_snapshot_dirty(entry, book, now);
		} else if (unleased && !flow->updated && sp_snapshot_want(book, now)) {
			outcome = SP_ACCESS_ASK;
		} else {
			outcome = SP_ACCESS_DONE;
			if (unleased)
				queue = sp_snapshot_queue(entry, book);
			for (__u32 i = 0; i < count; i++) {
				__u32 at = index[i];

				if (at < object->slots)
					result[i] = sp_slot_access(slots, object->slot_bytes, at, interval, object->mask, what,
								   operand);
			}
			if (object->period_ns && what != SP_SLOT_READ)
				queue |= sp_snapshot_dirty(entry, book, now);
		}
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
	if (overdue)
		sp_flow_count(SP_STAT_SNAPSHOT_OVERDUE);
	if (outcome == SP_ACCESS_ASK)
		return sp_flow_request(flow, object->object_id, key, object->key_bytes, 1);
	if (outcome != SP_ACCESS_DONE) {
		flow->park = outcome == SP_ACCESS_OVERDUE ? SP_PARK_DROP : SP_PARK_RUN_AGAIN;
		flow->kind = SP_FLOW_PARK;
		return SP_STATE_PENDING;
	}
	if (unleased && what != SP_SLOTS_BEGIN)
		sp_flow_count(SP_STAT_SNAPSHOT_WITHOUT_LEASE);
	if (object->period_ns && what != SP_SLOT_READ && what != SP_SLOTS_BEGIN)
		flow->updated = 1;
	if (queue) {
		struct sp_flow_scratch *scratch = sp_flow_get_scratch();

		if (!scratch || sp_flow_push((void *)scratch->entry, object->object_id, key, object->key_bytes)) {
			bpf_spin_lock((struct bpf_spin_lock *)entry);
			book->queued_parts &= ~1ull;
			book->since_flip_ns = 0; /* so that the next update tries again */
			bpf_spin_unlock((struct bpf_spin_lock *)entry);
		}
	}
	return SP_STATE_HIT;
}

/* Is something unsaved for longer than ε; or (MARK, CONTINUE) is there no lease, so that the copy
 * may be behind what another switch has? */
static __always_inline int sp_snapshot_overdue(const struct sp_snapshot *object, const __u8 *key)
{
	struct sp_flow_entry_head *entry, seen = {};
	__u64 unsaved_ns, now;

	if (!object->period_ns)
		return 0;
	entry = bpf_map_lookup_elem(object->map, key);
	if (!entry)
		return 0;
	now = sp_coarse_ns();
	if (object->overdue != SP_OVERDUE_DROP) {
		seen.session = *(volatile __u32 *)&entry->session;
		seen.shard = *(volatile __u16 *)&entry->shard;
		if (!sp_flow_owned(&seen, now))
			return 1;
	}
	unsaved_ns = *(volatile __u64 *)&SP_SNAPSHOT_BOOK(entry, object->key_bytes)->unsaved_ns;
	return unsaved_ns && now > unsaved_ns + object->epsilon_ns;
}

#endif
