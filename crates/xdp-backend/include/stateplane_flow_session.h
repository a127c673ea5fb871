/* stateplane_flow_session.h: shards and the sessions with them. Part of stateplane_flow.h.
 *
 * One lease of a session stands for the leases of all flows of it (docs/state-protocol.md, "Sessions"), so a heartbeat per shard prolongs them all. */
#ifndef STATEPLANE_FLOW_SESSION_H
#define STATEPLANE_FLOW_SESSION_H

/* "Shards". `key` is zero-padded to whole words. */
static __always_inline __u64 sp_key_hash(const void *key, __u32 key_bytes)
{
	__u64 hash = 0;

	for (__u32 i = 0; i < SP_FLOW_KEY_MAX / 8; i++) {
		if (i * 8 >= key_bytes)
			break;
		hash = (hash ^ ((const __u64 *)key)[i]) * 0x9E3779B97F4A7C15ull;
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

static __always_inline struct sp_session *sp_get_session(__u32 shard)
{
	return bpf_map_lookup_elem(&sp_sessions, &shard);
}

/* Is `number` the current session, with a live lease? Rule 4: number, end, number, so that an end never counts for an older number. */
static __always_inline int sp_session_lives(const struct sp_session *session, __u32 number, __u64 now_ns)
{
	__u32 before = *(volatile const __u32 *)&session->number;
	__u64 end;

	sp_barrier();
	end = *(volatile const __u64 *)&session->lease_end_ns;
	sp_barrier();
	return number && before == number && *(volatile const __u32 *)&session->number == number &&
	       !sp_flow_is_over(end, now_ns);
}

/* The same where no helper may be called: `now_ns` is the exact clock's. */
static __always_inline int sp_session_lives_exactly(const struct sp_session *session, __u32 number, __u64 now_ns)
{
	__u32 before = *(volatile const __u32 *)&session->number;
	__u64 end;

	sp_barrier();
	end = *(volatile const __u64 *)&session->lease_end_ns;
	sp_barrier();
	return number && before == number && *(volatile const __u32 *)&session->number == number && now_ns < end;
}

/* Is what was read of the entry this switch's to use? */
static __always_inline int sp_flow_owned(const struct sp_flow_entry_head *seen, __u64 now_ns)
{
	struct sp_session *session = sp_get_session(seen->shard);

	return session && !(seen->flags & (SP_FLOW_RELEASED | SP_FLOW_DYING)) &&
	       (sp_session_lives(session, seen->session, now_ns) || (SP_BUG == SP_BUG_LEASE_NEVER_OVER && session->number));
}

/* A genuine reply of the session `number` to a request of `request_ns` ("Sessions" 1): never back, and nothing of an older session. */
static __always_inline void sp_session_prolong(struct sp_session *session, __u32 number, __u64 request_ns,
					       __u64 lease_ns, __u64 margin_ns)
{
	/* From when the request left (the head counts from when it came, which is later), less the margin for drift and clock lag. */
	__u64 end = lease_ns > margin_ns ? request_ns + lease_ns - margin_ns : 0;

	if (SP_BUG == SP_BUG_LEASE_FROM_REPLY)
		end = sp_flow_exact_clock() + lease_ns - margin_ns;
	if (!number)
		return;
	bpf_spin_lock(&session->lock);
	if (number > session->number) {
		*(volatile __u32 *)&session->number = number;
		sp_barrier();
		*(volatile __u64 *)&session->lease_end_ns = end;
	} else if (number == session->number && end > session->lease_end_ns) {
		*(volatile __u64 *)&session->lease_end_ns = end;
	}
	if (lease_ns)
		session->lease_ns = lease_ns;
	bpf_spin_unlock(&session->lock);
}

#endif
