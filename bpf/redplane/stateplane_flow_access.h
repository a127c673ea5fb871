/* stateplane_flow_access.h: what a program does with a FlowState: get, get_or_allocate, set, phase.
 * Part of stateplane_flow.h. */
#ifndef STATEPLANE_FLOW_ACCESS_H
#define STATEPLANE_FLOW_ACCESS_H

/* This packet asks for what one message cannot carry, or a set that follows from nothing: it ends
 * here. */
static __always_inline void sp_flow_conflict(struct sp_flow_context *flow)
{
	sp_flow_count(SP_STAT_COMMIT_CONFLICTS);
	flow->park = SP_PARK_DROP;
	flow->kind = SP_FLOW_PARK;
}

/* Stands for an update's name: the packet depends on no batch, but must not overtake packets of its
 * CPU that did. */
#define SP_FLOW_LINES_UP(cpu) sp_commit_name(cpu, 0, 0)
#ifdef SP_FLOW_HAS_COMMIT
#define SP_FLOW_ONLY_LINES_UP(name) (sp_commit_on && !sp_commit_number_of(name))
#else
#define SP_FLOW_ONLY_LINES_UP(name) 0
#endif

#ifdef SP_FLOW_HAS_COMMIT
/* The update that was seen is durable, and nobody is to line up behind it: later packets see that
 * from the entry alone, until the next update. */
static __always_inline void sp_flow_settle(struct sp_flow_entry_head *entry, const void *key,
    __u32 key_bytes, const struct sp_flow_entry_head *seen)
{
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, key, key_bytes) &&
	    entry->seq == seen->seq && entry->epoch == seen->epoch && entry->name == seen->name &&
	    !(entry->flags & (SP_FLOW_RELEASED | SP_FLOW_DYING))) {
		entry->version++;
		sp_barrier();
		entry->acked_seq = entry->seq;
		sp_barrier();
		entry->version++;
	}
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
}
#endif

/* Does a packet that saw this entry wait: for an update that is not durable, or behind others that
 * did? `settles`: it may note that it does not, which writes to the entry. */
static __always_inline int sp_flow_waits(struct sp_flow_entry_head *entry, const void *key,
    __u32 key_bytes, struct sp_flow_entry_head *seen, int settles)
{
	if (seen->seq == seen->acked_seq)
		return 0;
#ifdef SP_FLOW_HAS_COMMIT
	if (sp_commit_on && !seen->name) {
		/* It went in a message of its own, so no batch says whether it is durable: this CPU's
		 * next one is to have its record too. */
		seen->name = sp_commit_name(sp_cpu(), SP_COMMIT_UNPLACED, seen->seq);
		return 1;
	}
	if (sp_commit_on) {
		if (!sp_commit_is_durable(seen->name, seen->shard))
			return 1;
		/* Refused meanwhile, on another CPU: the packet waits, and is dropped. */
		sp_barrier();
		if (*(volatile __u16 *)&entry->flags & (SP_FLOW_RELEASED | SP_FLOW_DYING) ||
		    *(volatile __u32 *)&entry->epoch != seen->epoch)
			return 1;
		if (!sp_commit_lines_up(seen->name, seen->shard)) {
			if (settles)
				sp_flow_settle(entry, key, key_bytes, seen);
			return 0;
		}
		seen->name = SP_FLOW_LINES_UP(sp_cpu());
	}
#endif
	return 1;
}

#ifdef SP_FLOW_GROUPED
/* Must the packet ask the head for a flow that is this switch's? It then runs again (groups.md,
 * decisions 4 and 5). */
static __always_inline int sp_flow_must_ask(const struct sp_flow_entry_head *seen)
{
	if (seen->flags & SP_FLOW_RECALLED)
		return 1;
	return seen->seq != seen->acked_seq && sp_commit_cpu_of(seen->name) != sp_cpu() &&
	       !sp_commit_is_durable(seen->name, seen->shard);
}

/* Does the packet wait for a batch of the stream that flows of this shard have? All their batches
 * are this CPU's: decision 4. */
static __always_inline int sp_flow_depends_alike(
    const struct sp_flow_scratch *scratch, __u32 shard)
{
	return scratch->type == SP_READ_COMMIT && SP_FLOW_IS_GROUPED(scratch->object_id) &&
	       scratch->shard == shard;
}

/* Notes that the packet has read of a batch. */
static __always_inline void sp_flow_note_oldest(struct sp_flow_context *flow, __u64 name)
{
	__u64 number = sp_commit_number_of(name);

	if (number && (!flow->oldest || number < flow->oldest))
		flow->oldest = number;
}
#endif

/* The output will depend on an update that is not acknowledged yet: it must leave inside
 * READ_COMMIT. Returns a state result. */
static __always_inline __u32 sp_flow_depend(struct sp_flow_context *flow, __u32 object_id,
    const void *key, __u32 key_bytes, const struct sp_flow_entry_head *seen)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u64 seq = seen->seq;

#ifdef SP_FLOW_GROUPED
	if (SP_FLOW_IS_GROUPED(object_id))
		sp_flow_note_oldest(flow, seen->name);
#endif
	if (!scratch)
		return SP_STATE_PENDING;
	if (flow->kind == SP_FLOW_COMMIT) {
		if (scratch->object_id == object_id && sp_flow_equal(scratch->key, key, key_bytes) &&
		    (scratch->seq >= seq || scratch->type == SP_READ_COMMIT)) {
			if (seq > scratch->seq) { /* another CPU has written since the first get */
				scratch->seq = seq;
				scratch->name = seen->name;
			}
			return SP_STATE_HIT;
		}
		/* What the packet waits for already leaves no earlier than what it lines up behind. */
		if (SP_FLOW_ONLY_LINES_UP(seen->name))
			return SP_STATE_HIT;
#ifdef SP_FLOW_GROUPED
		/* Who waits for a later batch of a stream waits for those before it. */
		if (SP_FLOW_IS_GROUPED(object_id) && sp_flow_depends_alike(scratch, seen->shard) &&
		    !SP_FLOW_ONLY_LINES_UP(scratch->name)) {
			if (sp_commit_number_of(seen->name) <= sp_commit_number_of(scratch->name))
				return SP_STATE_HIT;
		} else
#endif
		if (scratch->type != SP_READ_COMMIT || !SP_FLOW_ONLY_LINES_UP(scratch->name)) {
			/* One message carries one dependency. */
			sp_flow_conflict(flow);
			return SP_STATE_PENDING;
		}
	}
	sp_flow_remember(scratch, object_id, SP_READ_COMMIT, 0, key, key_bytes, seq, seen->epoch);
	scratch->name = seen->name;
	scratch->shard = seen->shard;
	flow->kind = SP_FLOW_COMMIT;
	return SP_STATE_HIT;
}

/* No live lease: ask the store, the packet waiting in the request (rule 1), unless the store has
 * just said that there is nothing. */
static __always_inline __u32 sp_flow_request(
    struct sp_flow_context *flow, __u32 object_id, const void *key, __u32 key_bytes, int allocate)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();

	if (!scratch)
		return SP_STATE_MISS;
	if (flow->absent_object == object_id && sp_flow_equal(scratch->absent_key, key, key_bytes))
		return SP_STATE_MISS;
	flow->park = SP_PARK_AT_STORE;
	if (flow->kind == SP_FLOW_COMMIT && scratch->type == SP_UPDATE) {
		/* A set came before this get: running the program a second time would set twice. */
		sp_flow_count(SP_STAT_COMMIT_CONFLICTS);
		flow->park = SP_PARK_DROP;
	}
	/* A binding's answers mostly come by this switch too: their record in the same round trip. */
	sp_flow_remember(scratch, object_id, SP_LEASE_REQUEST,
	    allocate ? SP_FLAG_ALLOCATE | SP_FLAG_REVERSE : 0, key, key_bytes, 0, 0);
	flow->kind = SP_FLOW_PARK;
	return SP_STATE_PENDING;
}

/* A fresh entry in the scratch, in no session. */
static __always_inline struct sp_flow_entry_head *sp_flow_new_entry(struct sp_flow_scratch *scratch,
    const void *key, __u32 key_bytes, const void *value, __u32 value_bytes)
{
	struct sp_flow_entry_head *entry = (void *)scratch->entry;

	__builtin_memset(entry, 0, sizeof(*entry));
	entry->used_ns = sp_coarse_ns();
	sp_flow_copy((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, key, key_bytes);
	sp_flow_copy((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES + SP_ROUND8(key_bytes), value, value_bytes);
	return entry;
}

/* Local pairs, first half: the entry of the other direction, if its key is new. Its value is the
 * address and port that packets of that direction get back. The key stands in scratch->reverse_key.
 */
static __always_inline int sp_flow_reserve(struct sp_flow_scratch *scratch, void *map,
    __u32 key_bytes, __be32 address, __be16 port, __u32 value_bytes)
{
	*(__u64 *)scratch->value = 0;
	*(__be32 *)scratch->value = address;
	*(__be16 *)(scratch->value + 4) = port;
	/* Until its first packet: with what the program says of the direction that was asked for,
	 * so the pair is half open. */
	sp_flow_new_entry(scratch, scratch->reverse_key, key_bytes, scratch->value, value_bytes)
	    ->flags = SP_FLOW_HALF_OPEN;
	return !bpf_map_update_elem(map, scratch->reverse_key, scratch->entry, BPF_NOEXIST);
}

/* Local pairs, second half: the entry that was asked for. The other direction came first, so that a
 * binding in use always has its way back. */
static __always_inline __u32 sp_flow_bind(struct sp_flow_scratch *scratch, void *map,
    const __u8 *key, __u32 key_bytes, __u8 *value, __u32 value_bytes)
{
	*(__u16 *)(value + 6) = 0;
	sp_flow_new_entry(scratch, key, key_bytes, value, value_bytes);
	if (bpf_map_update_elem(map, key, scratch->entry, BPF_NOEXIST)) {
		/* Another CPU made one for the same flow, or the map is full. */
		void *winner = bpf_map_lookup_elem(map, key);
		bpf_map_delete_elem(map, scratch->reverse_key);
		if (!winner) {
			sp_flow_count(SP_STAT_FLOWS_FULL);
			return SP_STATE_MISS;
		}
		sp_flow_copy(value, winner + SP_FLOW_ENTRY_HEAD_BYTES + SP_ROUND8(key_bytes), value_bytes);
	}
	return SP_STATE_HIT;
}

/* The local mode's NAT_PORTS: an external address and port such that the reverse key is new. Keys
 * are { source 4, destination 4, source port 2, destination port 2, protocol 1 }, values { address
 * 4, port 2 }. */
static __always_inline __u32 sp_flow_allocate_nat(
    void *map, const __u8 *key, __u32 key_bytes, __u8 *value, __u32 value_bytes)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0, source, port, hash, tries;
	struct sp_nat_pool *pool = bpf_map_lookup_elem(&sp_nat_pool, &zero);

	if (!scratch || !pool || !pool->count || pool->port_high < pool->port_low)
		goto exhausted;
	source = *(const __u32 *)key;
	hash = source * 0x9e3779b1u;
	/* RFC 4787 REQ-2: an inside address keeps its external one. */
	*(__be32 *)value = pool->address[((hash >> 16) % pool->count) & 15];
	port = bpf_ntohs(*(const __be16 *)(key + 8));
	hash = hash ^ *(const __u32 *)(key + 4) ^ (*(const __u32 *)(key + 8) * 0x85ebca6bu);
	for (tries = 0; tries < 32; tries++) {
		if (tries > 0 || port < pool->port_low || port > pool->port_high) {
			hash = hash * 1664525u + 1013904223u;
			port = pool->port_low + (hash >> 8) % ((__u32)pool->port_high - pool->port_low + 1);
		}
		*(__be16 *)(value + 4) = bpf_htons(port);
		/* As a returning packet looks. */
		sp_flow_copy(scratch->reverse_key, key, key_bytes);
		*(__be32 *)scratch->reverse_key = *(const __be32 *)(key + 4);
		*(__be32 *)(scratch->reverse_key + 4) = *(__be32 *)value;
		*(__be16 *)(scratch->reverse_key + 8) = *(const __be16 *)(key + 10);
		*(__be16 *)(scratch->reverse_key + 10) = bpf_htons(port);
		if (sp_flow_reserve(scratch, map, key_bytes, source, *(const __be16 *)(key + 8), value_bytes))
			return sp_flow_bind(scratch, map, key, key_bytes, value, value_bytes);
	}
exhausted:
	sp_flow_count(SP_STAT_PORTS_EXHAUSTED);
	return SP_STATE_MISS;
}

/* The local mode's BACKENDS: the backend of the key's hash, and on to the next place when its
 * reverse key is taken (a client that uses one port towards two virtual addresses). Keys are {
 * client 4, server 4, client port 2, server port 2, protocol 1 }, values as those of NAT_PORTS. */
static __always_inline __u32 sp_flow_allocate_backend(
    void *map, const __u8 *key, __u32 key_bytes, __u8 *value, __u32 value_bytes)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 hash, slot, tries;

	if (!scratch)
		return SP_STATE_MISS;
	hash = *(const __u32 *)key * 0x9e3779b1u;
	hash = (hash ^ *(const __u32 *)(key + 4)) * 0x85ebca6bu;
	hash = (hash ^ *(const __u32 *)(key + 8) ^ (hash >> 15)) * 0xc2b2ae35u;
	hash = (hash ^ *(const __u8 *)(key + 12) ^ (hash >> 13)) * 0x27d4eb2fu;
	for (tries = 0; tries < 32; tries++) {
		slot = hash >> (32 - SP_BACKEND_PLACE_BITS);
		hash = hash * 1664525u + 1013904223u;
		struct sp_backend *backend = bpf_map_lookup_elem(&sp_backends, &slot);
		if (!backend || !backend->address)
			continue;
		/* The virtual address itself: the packet would come back as it is. */
		if (backend->address == *(const __be32 *)(key + 4) &&
		    backend->port == *(const __be16 *)(key + 10))
			continue;
		*(__be32 *)value = backend->address;
		*(__be16 *)(value + 4) = backend->port;
		/* That of the backend's answers: the same client, another server. */
		sp_flow_copy(scratch->reverse_key, key, key_bytes);
		*(__be32 *)(scratch->reverse_key + 4) = backend->address;
		*(__be16 *)(scratch->reverse_key + 10) = backend->port;
		if (sp_flow_reserve(scratch, map, key_bytes, *(const __be32 *)(key + 4),
			*(const __be16 *)(key + 10), value_bytes))
			return sp_flow_bind(scratch, map, key, key_bytes, value, value_bytes);
	}
	sp_flow_count(SP_STAT_BACKENDS_EXHAUSTED);
	return SP_STATE_MISS;
}

/* The local mode's ZERO. */
static __always_inline __u32 sp_flow_allocate_zero(
    void *map, const __u8 *key, __u32 key_bytes, __u8 *value, __u32 value_bytes)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();

	for (__u32 i = 0; i < SP_ROUND8(value_bytes) / 8; i++)
		((__u64 *)value)[i] = 0;
	if (!scratch)
		return SP_STATE_MISS;
	sp_flow_new_entry(scratch, key, key_bytes, value, value_bytes);
	bpf_map_update_elem(map, key, scratch->entry, BPF_NOEXIST);
	/* If another CPU made it first and has written since, set sees that seq is not 0, and the
	 * program runs again. */
	if (bpf_map_lookup_elem(map, key))
		return SP_STATE_HIT;
	sp_flow_count(SP_STAT_FLOWS_FULL);
	return SP_STATE_MISS;
}

static __always_inline __u32 sp_flow_get(struct sp_flow_context *flow, void *map, __u32 object_id,
    const __u8 *key, __u32 key_bytes, __u8 *value, __u32 value_bytes, int consistency,
    int allocator, int allocate)
{
	struct sp_flow_entry_head *entry = bpf_map_lookup_elem(map, key);
	struct sp_flow_entry_head seen = {};
	__u64 now;

	if (flow->kind == SP_FLOW_PARK)
		return SP_STATE_PENDING;
#ifdef SP_FLOW_HAS_SET
	flow->read[sp_flow_at(object_id)].entry = entry;
	flow->read[sp_flow_at(object_id)].seq = 0;
	flow->read[sp_flow_at(object_id)].epoch = 0;
#endif
	if (entry) {
		const void *entry_key = (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES;
		const void *entry_value = entry_key + SP_ROUND8(key_bytes);
		int mine = sp_flow_read(entry, entry_key, entry_value, key, key_bytes, value, value_bytes, &seen);

		if (!mine) { /* a writer was at work: wait for it */
			bpf_spin_lock((struct bpf_spin_lock *)entry);
			mine = sp_flow_read(entry, entry_key, entry_value, key, key_bytes, value, value_bytes, &seen);
			bpf_spin_unlock((struct bpf_spin_lock *)entry);
		}
		now = sp_coarse_ns();
#ifdef SP_FLOW_HAS_SET
		flow->read[sp_flow_at(object_id)].seq = seen.seq;
		flow->read[sp_flow_at(object_id)].epoch = seen.epoch;
#endif
		if (mine)
			mine = consistency == SP_FLOW_LOCAL ? !(seen.flags & SP_FLOW_DYING) : sp_flow_owned(&seen, now);
		if (mine) {
			/* Once in a while: each write moves the entry's cache line between CPUs. */
			int notes = now - entry->used_ns > SP_FLOW_USE_GRAIN_NS;

			if (notes)
				entry->used_ns = now;
#ifdef SP_FLOW_GROUPED
			if (SP_FLOW_IS_GROUPED(object_id) && sp_flow_must_ask(&seen))
				return sp_flow_request(flow, object_id, key, key_bytes, 0);
#endif
#ifdef SP_FLOW_HAS_SET /* else no update is ever on its way */
			if (SP_FLOW_IN(consistency, SP_FLOW_READS_WAIT) &&
			    sp_flow_waits(entry, key, key_bytes, &seen, notes))
				return sp_flow_depend(flow, object_id, key, key_bytes, &seen);
#endif
			return SP_STATE_HIT;
		}
	}
	if (consistency != SP_FLOW_LOCAL)
		return sp_flow_request(flow, object_id, key, key_bytes, allocate);
	if (!allocate)
		return SP_STATE_MISS;
	__u32 made = allocator == SP_ALLOCATOR_NAT_PORTS ?
			     sp_flow_allocate_nat(map, key, key_bytes, value, value_bytes) :
		     allocator == SP_ALLOCATOR_BACKENDS ?
			     sp_flow_allocate_backend(map, key, key_bytes, value, value_bytes) :
			     sp_flow_allocate_zero(map, key, key_bytes, value, value_bytes);
#ifdef SP_FLOW_HAS_SET
	flow->read[sp_flow_at(object_id)].entry = bpf_map_lookup_elem(map, key);
#endif
	return made;
}

#ifdef SP_FLOW_HAS_SET

/* Rule 2. What get saw must still be so (another CPU may process a packet of the same flow): else
 * the program runs again. */
static __always_inline void sp_flow_set(struct sp_flow_context *flow, void *map, __u32 object_id,
    const __u8 *key, __u32 key_bytes, const __u8 *value, __u32 value_bytes, int consistency)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	struct sp_flow_entry_head *entry;
	struct sp_session *session = 0;
	int written = 0, queue = 0;
#ifdef SP_FLOW_HAS_COMMIT
	int batched = sp_commit_on && SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT);
	struct sp_commit_place place = {};
	__u64 before = 0, unplaced = 0;
#else
	const int batched = 0;
#endif
	__u32 zero = 0, phase = 0;
	__u64 now, seq = 0, seen_entry;

	if (flow->kind == SP_FLOW_PARK || !scratch)
		return;
	if (flow->kind == SP_FLOW_COMMIT &&
	    !(scratch->object_id == object_id && sp_flow_equal(scratch->key, key, key_bytes)) &&
	    !(scratch->type == SP_READ_COMMIT && SP_FLOW_ONLY_LINES_UP(scratch->name))) {
		sp_flow_conflict(flow);
		return;
	}
	entry = bpf_map_lookup_elem(map, key);
	/* The last get was of another flow: there is no value here that this one follows from. */
	seen_entry = (__u64)flow->read[sp_flow_at(object_id)].entry;
	/* Compared as numbers: clang would go on with the pointer that it finds equal, of which the
	 * verifier does not know that it is not null. */
	asm volatile("" : "+r"(seen_entry));
	if (entry && seen_entry != (__u64)entry) {
		sp_flow_conflict(flow);
		return;
	}
	/* The shard of a flow never changes, so it can be read without the lock. */
	if (entry && consistency != SP_FLOW_LOCAL)
		session = sp_get_session(entry->shard);
	/* Exact for a lease, which may end while the program runs; before the lock, as no helper
	 * may be called under it. */
	now = consistency == SP_FLOW_LOCAL ? sp_coarse_ns() :
	      batched			   ? sp_session_now(session) :
					     sp_now_ns();
	/* "Window": more than the store can follow is dropped here, before it costs anything. */
#ifdef SP_FLOW_HAS_COMMIT
	if (session && batched) {
		int room = sp_commit_prepare(&place, entry->shard,
			SP_FLOW_RECORD_WORDS(key_bytes, value_bytes), before = entry->name);

		if (room == SP_COMMIT_DROP) {
			flow->park = SP_PARK_DROP;
			flow->kind = SP_FLOW_PARK;
			return;
		}
		if (room == SP_COMMIT_WRAP) {
			batched = place.again = 0; /* in a message of its own */
			now = sp_now_ns();
		}
		unplaced = sp_commit_name(place.cpu, SP_COMMIT_UNPLACED, 0);
	}
#endif
	if (session && !batched && SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT)) {
		struct sp_flow_settings *settings = bpf_map_lookup_elem(&sp_flow_config, &zero);
		if (!settings || sp_session_full(session, settings)) {
			flow->park = SP_PARK_DROP;
			flow->kind = SP_FLOW_PARK;
			return;
		}
	}
	if (entry && (consistency == SP_FLOW_LOCAL || session)) {
		void *entry_key = (void *)entry + SP_FLOW_ENTRY_HEAD_BYTES;

		bpf_spin_lock((struct bpf_spin_lock *)entry);
		if (sp_flow_equal(entry_key, key, key_bytes) &&
		    entry->seq == flow->read[sp_flow_at(object_id)].seq &&
		    !(entry->flags & (SP_FLOW_DYING | SP_FLOW_RELEASED)) &&
#ifdef SP_FLOW_HAS_COMMIT
		    /* What made room for the record is still so (another CPU's packet that waits for
		     * this update takes the name over). */
		    (!place.again || entry->name == before) &&
#endif
		    (consistency == SP_FLOW_LOCAL ||
		     (entry->epoch == flow->read[sp_flow_at(object_id)].epoch &&
		      sp_session_lives_exactly(session, entry->session, now)))) {
			entry->version++;
			sp_barrier();
			sp_flow_copy(entry_key + SP_ROUND8(key_bytes), value, value_bytes);
			phase = entry->flags & SP_FLOW_PHASES;
			seq = ++entry->seq;
			if (consistency == SP_FLOW_LOCAL) {
				entry->acked_seq = seq;
			} else if (batched) {
#ifdef SP_FLOW_HAS_COMMIT
				before = entry->name;
				unplaced |= seq & SP_COMMIT_NUMBER;
				entry->name = unplaced;
#endif
			} else {
				if (SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT))
					entry->sent_ns = now; /* with this packet */
				if (SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT))
					entry->name = 0; /* batches under way have older updates only */
				queue = !(entry->flags & SP_FLOW_QUEUED);
				entry->flags |= SP_FLOW_QUEUED;
			}
			sp_barrier();
			entry->version++;
			written = 1;
		}
		bpf_spin_unlock((struct bpf_spin_lock *)entry);
	}
	if (!entry || !written) {
		sp_flow_count(SP_STAT_CONFLICTS);
		flow->park = SP_PARK_RUN_AGAIN;
		flow->kind = SP_FLOW_PARK;
		return;
	}
	flow->read[sp_flow_at(object_id)].seq = seq;
	if (consistency == SP_FLOW_LOCAL)
		return;
	if (queue)
		sp_flow_enqueue(scratch, entry, object_id, key, key_bytes);
	/* Rule 2: the packets of an asynchronous object leave at once; the generator sends the
	 * update. (RedPlane's draft, §5.4) */
	if (!SP_FLOW_IN(consistency, SP_FLOW_UPDATES_WAIT))
		return;
	sp_flow_remember(scratch, object_id, SP_UPDATE, phase, key, key_bytes, seq,
			 flow->read[sp_flow_at(object_id)].epoch);
	flow->kind = SP_FLOW_COMMIT;
#ifdef SP_FLOW_HAS_COMMIT
	if (batched) {
		scratch->shard = entry->shard;
		scratch->name = sp_flow_record(&place, before, object_id, key, key_bytes, value, value_bytes,
		    scratch->epoch, seq, phase);
		/* Unless another CPU has written since. */
		__sync_val_compare_and_swap(&entry->name, unplaced, scratch->name);
		return;
	}
	scratch->name = 0;
#endif
	scratch->value_bytes = value_bytes;
	sp_flow_copy(scratch->value, value, value_bytes);
}

#endif /* SP_FLOW_HAS_SET */

#ifdef SP_FLOW_HAS_PHASE

/* What the program says of the flow's life; an update of this packet tells the store, or else the
 * flow's release. Nothing is written unless it changes. */
static __always_inline void sp_flow_phase(
    struct sp_flow_context *flow, void *map, const __u8 *key, __u32 key_bytes, __u32 phase)
{
	struct sp_flow_entry_head *entry;
	__u16 wanted = phase == SP_PHASE_CLOSED	     ? SP_FLOW_CLOSED :
		       phase == SP_PHASE_HALF_CLOSED ? SP_FLOW_HALF_CLOSED :
		       phase == SP_PHASE_HALF_OPEN   ? SP_FLOW_HALF_OPEN :
						       0;
	__u16 known;

	if (flow->kind == SP_FLOW_PARK)
		return;
	entry = bpf_map_lookup_elem(map, key);
	if (!entry)
		return;
	known = entry->flags & SP_FLOW_PHASES;
	/* The stragglers of a closed flow leave it closed: only OPEN and HALF_OPEN open it again. */
	if (known == wanted || (known == SP_FLOW_CLOSED && wanted == SP_FLOW_HALF_CLOSED))
		return;
	bpf_spin_lock((struct bpf_spin_lock *)entry);
	if (sp_flow_equal((void *)entry + SP_FLOW_ENTRY_HEAD_BYTES, key, key_bytes) &&
	    !(entry->flags & (SP_FLOW_DYING | SP_FLOW_RELEASED)))
		entry->flags = (entry->flags & ~SP_FLOW_PHASES) | wanted;
	bpf_spin_unlock((struct bpf_spin_lock *)entry);
#ifdef SP_FLOW_HAS_SET
	struct sp_flow_scratch *scratch = flow->kind == SP_FLOW_COMMIT ? sp_flow_get_scratch() : 0;

	if (scratch && scratch->type == SP_UPDATE && sp_flow_equal(scratch->key, key, key_bytes)) {
		scratch->flags = wanted;
#ifdef SP_FLOW_HAS_COMMIT
		if (sp_commit_on && scratch->name)
			sp_flow_record_phase(scratch, wanted);
#endif
	}
#endif
}

#endif /* SP_FLOW_HAS_PHASE */

#endif
