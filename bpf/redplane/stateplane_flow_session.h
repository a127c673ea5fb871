/* stateplane_flow_session.h: shards and the sessions with them. Part of stateplane_flow.h.
 *
 * One lease of a session stands for the leases of all flows of it
 * (systems/redplane/docs/state-protocol.md, "Sessions"), so a heartbeat per shard prolongs them
 * all. */
#ifndef STATEPLANE_FLOW_SESSION_H
#define STATEPLANE_FLOW_SESSION_H

/* "Shards". `key` is zero-padded to whole words. Of { client 4, server 4, client port 2, server
 * port 2, protocol 1 } the server can be left out. */
static __always_inline __u64 sp_key_hash(const void *key, __u32 key_bytes, int only_client)
{
	__u64 hash = 0;

	for (__u32 i = 0; i < SP_FLOW_KEY_ROOM / 8; i++) {
		if (i * 8 >= key_bytes)
			break;
		__u64 word = ((const __u64 *)key)[i];

#ifdef SP_FLOW_SHARD_BYTES
		/* Other fields stand behind those that pick the shard. */
		if (key_bytes - i * 8 < 8)
			word &= bpf_cpu_to_be64(~0ull << (64 - 8 * (key_bytes - i * 8)));
#endif
		if (only_client && i == 0)
			word &= bpf_cpu_to_be64(0xFFFFFFFF00000000ull);
		if (only_client && i == 1)
			word &= bpf_cpu_to_be64(0xFFFF0000FFFFFFFFull);
		hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
		hash ^= hash >> 29;
	}
	hash *= 0xBF58476D1CE4E5B9ull;
	hash ^= hash >> 32;
	return hash * 0x94D049BB133111EBull;
}

static __always_inline __u32 sp_hash_shard(__u64 hash, __u32 shards)
{
	return ((hash >> 32) * shards) >> 32;
}

#ifdef SP_FLOW_SHARD_BYTES
#define SP_FLOW_SHARD_BYTES_OF(id, key_bytes) SP_FLOW_SHARD_BYTES(id, key_bytes)
#else
#define SP_FLOW_SHARD_BYTES_OF(id, key_bytes) (key_bytes)
#endif

#define SP_FLOW_CASE_ONLY_CLIENT(name, id, flows, kb, vb, consistency, allocator)                  \
	case id:                                                                                   \
		only_client = allocator == SP_ALLOCATOR_BACKENDS;                                  \
		key_bytes = SP_FLOW_SHARD_BYTES_OF(id, key_bytes);                                 \
		break;

/* The shard of an object's key. The two keys of a balancer's conversation differ in the server, and
 * must be in one shard. */
static __always_inline __u32 sp_key_shard(
    __u32 object_id, const void *key, __u32 key_bytes, __u32 shards)
{
	int only_client = 0;

	switch (object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_ONLY_CLIENT)
	}
	return sp_hash_shard(sp_key_hash(key, key_bytes, only_client), shards);
}

/* What picks the shard of an object's key, as a number. */
static __always_inline __u64 sp_key_picks(__u32 object_id, const void *key, __u32 key_bytes)
{
	return sp_key_hash(key, SP_FLOW_SHARD_BYTES_OF(object_id, key_bytes), 0);
}

static __always_inline struct sp_session *sp_get_session(__u32 shard)
{
	return bpf_map_lookup_elem(&sp_sessions, &shard);
}

/* Is `number` the current session, with a live lease? Rule 4: number, end, number, so that an end
 * never counts for an older number. */
static __always_inline int sp_session_lives(
    const struct sp_session *session, __u32 number, __u64 now_ns)
{
	__u32 before = *(volatile const __u32 *)&session->number;
	__u64 end;

	sp_barrier();
	end = *(volatile const __u64 *)&session->lease_end_ns;
	sp_barrier();
	return number && before == number && *(volatile const __u32 *)&session->number == number &&
	       !sp_flow_is_over(end, now_ns);
}

/* The same where no helper may be called: `now_ns` is the exact clock's, or sp_session_now's. */
static __always_inline int sp_session_lives_exactly(
    const struct sp_session *session, __u32 number, __u64 now_ns)
{
	__u32 before = *(volatile const __u32 *)&session->number;
	__u64 end;

	sp_barrier();
	end = *(volatile const __u64 *)&session->lease_end_ns;
	sp_barrier();
	return number && before == number && *(volatile const __u32 *)&session->number == number &&
	       now_ns < end;
}

/* A time that is not before now, to be compared with the session's end where no helper may be
 * called. The coarse clock's is good enough, and cheaper, unless the end is near. */
static __always_inline __u64 sp_session_now(const struct sp_session *session)
{
	__u64 no_later = sp_coarse_ns() + SP_FLOW_EXACT_BEFORE_END_NS;

	return session && no_later < *(volatile const __u64 *)&session->lease_end_ns ? no_later :
										   sp_now_ns();
}

/* Is what was read of the entry this switch's to use? */
static __always_inline int sp_flow_owned(const struct sp_flow_entry_head *seen, __u64 now_ns)
{
	struct sp_session *session = sp_get_session(seen->shard);

	return session && !(seen->flags & (SP_FLOW_RELEASED | SP_FLOW_DYING)) &&
	       sp_session_lives(session, seen->session, now_ns);
}

/* ---- "Re-sending" and "Window" -------------------------------------------------------------- */

/* The back-off doubles so often at the most; the upper bound ends it sooner. */
#define SP_RESEND_MOST_DOUBLINGS 16

/* A message of the shard that is not acknowledged for so long is sent again: RFC 6298's (2.3) SRTT
 * + max(G, 4 RTTVAR), doubled for each time that this was done before (5.5), within the bounds of
 * the configuration. */
static __always_inline __u64 sp_resend_timeout(
    const struct sp_session *session, const struct sp_flow_settings *settings, __u32 resends)
{
	__u64 timeout = settings->resend_least_ns, variation;

	if (session && session->srtt_ns) {
		variation = 4 * session->rttvar_ns;
		if (variation < SP_RESEND_GRANULARITY_NS)
			variation = SP_RESEND_GRANULARITY_NS;
		if (session->srtt_ns + variation > timeout)
			timeout = session->srtt_ns + variation;
	}
	timeout <<= resends < SP_RESEND_MOST_DOUBLINGS ? resends : SP_RESEND_MOST_DOUBLINGS;
	return timeout < settings->resend_most_ns ? timeout : settings->resend_most_ns;
}

/* Under the session's lock: a request took so long. RFC 6298 (2.2, 2.3). Replies name the time of
 * the very request that they answer, so one to something that was sent again is as good as any:
 * what Karn's rule is for, timestamps settle (RFC 6298 section 3, RFC 7323). */
static __always_inline void sp_session_measure(struct sp_session *session, __u64 round_trip_ns)
{
	__u64 apart = session->srtt_ns > round_trip_ns ? session->srtt_ns - round_trip_ns
						       : round_trip_ns - session->srtt_ns;

	if (!session->srtt_ns) {
		session->srtt_ns = round_trip_ns + 1; /* never 0 */
		session->rttvar_ns = round_trip_ns / 2;
		return;
	}
	session->rttvar_ns += apart / 4 - session->rttvar_ns / 4;
	session->srtt_ns += round_trip_ns / 8 - session->srtt_ns / 8;
}

/* Under the session's lock: a reply came to a request of `request_ns`. Chains keep the order, so
 * what was sent before the mark and is not answered by now is lost. */
static __always_inline void sp_session_answered(
    struct sp_session *session, __u64 request_ns, __u64 now_ns)
{
	if (request_ns >= session->mark_ns) {
		if (session->done < session->mark_sent)
			session->done = session->mark_sent;
		session->mark_ns = now_ns;
		session->mark_sent = session->sent;
	}
	if (session->done < session->sent)
		session->done++;
	session->progress_ns = now_ns;
}

/* A request leaves. */
static __always_inline void sp_session_sent(struct sp_session *session)
{
	__u64 before = __sync_fetch_and_add(&session->sent, 1);

	if (before == *(volatile __u64 *)&session->done)
		session->progress_ns = sp_coarse_ns();
}

/* Has the shard as many requests to answer as it may? Then a packet that would make one more is to
 * be dropped (and is counted here). If nothing at all came back for a time-out, all are taken as
 * lost: the next ones find out. No lock may be held. */
static __always_inline int sp_session_full(
    struct sp_session *session, const struct sp_flow_settings *settings)
{
	__u64 now;

	if (!settings->window ||
	    *(volatile __u64 *)&session->sent - *(volatile __u64 *)&session->done <
		settings->window)
		return 0;
	now = sp_coarse_ns();
	if (now < session->progress_ns + sp_resend_timeout(session, settings, 0)) {
		sp_flow_count(SP_STAT_WINDOW_FULL);
		return 1;
	}
	bpf_spin_lock(&session->lock);
	session->done = session->sent;
	session->progress_ns = now;
	bpf_spin_unlock(&session->lock);
	sp_flow_count(SP_STAT_WINDOW_LOST);
	return 0;
}

/* ---- replies -------------------------------------------------------------------------------- */

/* A genuine reply of the session `number` to a request of `request_ns` ("Sessions" 1): never back,
 * and nothing of an older session. `answers`: the request has no other reply. `at_once`: the store
 * answers such a request without waiting for anything else, so it measures the way. */
static __always_inline void sp_session_take(struct sp_session *session, __u32 number,
    __u64 request_ns, __u64 lease_ns, __u64 margin_ns, __u64 now_ns, int answers, int at_once)
{
	/* From when the request left (the head counts from when it came, which is later), less the
	 * margin for drift and clock lag. */
	__u64 end = lease_ns > margin_ns ? request_ns + lease_ns - margin_ns : 0;

	bpf_spin_lock(&session->lock);
	if (answers)
		sp_session_answered(session, request_ns, now_ns);
	if (at_once)
		sp_session_measure(session, now_ns - request_ns);
	if (number > session->number) {
		*(volatile __u32 *)&session->number = number;
		sp_barrier();
		*(volatile __u64 *)&session->lease_end_ns = end;
	} else if (number && number == session->number && end > session->lease_end_ns) {
		*(volatile __u64 *)&session->lease_end_ns = end;
	}
	if (number && lease_ns)
		session->lease_ns = lease_ns;
	bpf_spin_unlock(&session->lock);
}

#endif
