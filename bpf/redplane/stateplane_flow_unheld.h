/* stateplane_flow_unheld.h: grants that this switch does not have, and has no room to remember as
 * such in an entry (rule 6). Part of stateplane_flow.h. */
#ifndef STATEPLANE_FLOW_UNHELD_H
#define STATEPLANE_FLOW_UNHELD_H

/* Epochs of flows that this switch told the store it does not have. Each flow has two places, by
 * its key's hash: one for the answer to a recall, and one for that to a probe, so that probes, for
 * which nobody waits, leave recalls theirs. What it says counts until nothing that contradicts it
 * can be under way: the store takes no RELEASE that is a second older than what it heard last, and
 * this switch no reply to a request that is a second old, so two seconds would do. */
#define SP_UNHELD_PLACES 4096
#define SP_UNHELD_NS 4000000000ull
struct sp_unheld_flow {
	struct bpf_spin_lock lock;
	__u32 epoch;
	__u64 told_ns;
	__u32 object_id;
	__u32 reserved;
	__u8 key[SP_FLOW_KEY_ROOM];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_UNHELD_PLACES);
	__type(key, __u32);
	__type(value, struct sp_unheld_flow);
} sp_unheld SEC(".maps");

static __always_inline struct sp_unheld_flow *sp_flow_unheld_place(
	const struct sp_flow_scratch *scratch, __u32 key_bytes, int probe)
{
	__u64 hash = sp_key_hash(scratch->key, key_bytes, 0) + scratch->object_id * 0x9E3779B97F4A7C15ull;
	__u32 place = (hash >> 32) % (SP_UNHELD_PLACES / 2) + (probe ? SP_UNHELD_PLACES / 2 : 0);

	return bpf_map_lookup_elem(&sp_unheld, &place);
}

/* The epoch in the scratch is over here, and no entry can say so. Returns 1 when that is
 * remembered, 0 when other flows have the place. */
static __always_inline int sp_flow_disown(const struct sp_flow_scratch *scratch, __u32 key_bytes,
					  int probe, __u64 now)
{
	struct sp_unheld_flow *place = sp_flow_unheld_place(scratch, key_bytes, probe);
	int same, done;

	if (!place)
		return 0;
	bpf_spin_lock(&place->lock);
	same = place->object_id == scratch->object_id &&
	       sp_flow_equal(place->key, scratch->key, key_bytes);
	done = same ? scratch->epoch >= place->epoch : place->told_ns + SP_UNHELD_NS < now;
	if (done) {
		place->object_id = scratch->object_id;
		place->epoch = scratch->epoch;
		place->told_ns = now;
		sp_flow_copy(place->key, scratch->key, key_bytes);
	}
	bpf_spin_unlock(&place->lock);
	return done;
}

static __always_inline int sp_flow_is_disowned_at(const struct sp_flow_scratch *scratch,
						  __u32 key_bytes, int probe)
{
	struct sp_unheld_flow *place = sp_flow_unheld_place(scratch, key_bytes, probe);
	int disowned;

	if (!place)
		return 0;
	bpf_spin_lock(&place->lock);
	disowned = scratch->epoch <= place->epoch && place->object_id == scratch->object_id &&
		   sp_flow_equal(place->key, scratch->key, key_bytes);
	bpf_spin_unlock(&place->lock);
	return disowned;
}

/* Was that said of the epoch in the scratch, or of a later one? To be asked when there is an entry
 * to install it in: then either this finds what sp_flow_disown wrote, or who wrote it finds the
 * entry. */
static __always_inline int sp_flow_is_disowned(const struct sp_flow_scratch *scratch,
					       __u32 key_bytes)
{
	return sp_flow_is_disowned_at(scratch, key_bytes, 0) ||
	       sp_flow_is_disowned_at(scratch, key_bytes, 1);
}

/* A RELEASE without a value: this switch does not have the epoch that the store named. */
static __always_inline void sp_flow_tell_unheld(struct sp_flow_scratch *scratch)
{
	scratch->type = SP_RELEASE;
	scratch->flags = SP_FLAG_UNKNOWN;
	scratch->port = SP_FLOW_DROP_PORT;
	scratch->seq = 0;
	scratch->idle_ms = 0;
	scratch->value_bytes = 0;
}

#endif
