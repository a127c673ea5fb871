/* stateplane_flow_staged.h: sets that take effect at the packet's end. Part of stateplane_flow.h.
 *
 * A program that looks up or sets after a `set` may have to wait for a lease there, and then enters
 * the program again. So its sets only go to the scratch, where its look-ups find them. At the end,
 * while the frame is as it came in, the last value becomes the flow's: one update, whose packet
 * waits for it as any other.
 *
 * The compiler defines SP_FLOW_STAGED for such programs: a bit for each object that is set. */
#ifndef STATEPLANE_FLOW_STAGED_H
#define STATEPLANE_FLOW_STAGED_H

/* Has this packet set the key? Then the value that it has set. */
static __always_inline int sp_flow_get_staged(const struct sp_flow_context *flow, __u32 object_id,
    const __u8 *key, __u32 key_bytes, __u8 *value, __u32 value_bytes)
{
	struct sp_flow_scratch *scratch;

	if (flow->staged != object_id)
		return 0;
	scratch = sp_flow_get_scratch();
	if (!scratch || !sp_flow_equal(scratch->staged_key, key, key_bytes))
		return 0;
	sp_flow_copy(value, scratch->staged_value, value_bytes);
	return 1;
}

/* `set`: nothing changes but the scratch. */
static __always_inline void sp_flow_stage(struct sp_flow_context *flow, __u32 object_id,
    const __u8 *key, __u32 key_bytes, const __u8 *value, __u32 value_bytes)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();

	if (flow->kind == SP_FLOW_PARK || !scratch)
		return;
	if (!flow->staged) {
		flow->staged = object_id;
		scratch->staged_read = flow->read[sp_flow_at(object_id)];
		sp_flow_copy(scratch->staged_key, key, key_bytes);
	} else if (flow->staged != object_id || !sp_flow_equal(scratch->staged_key, key, key_bytes)) {
		sp_flow_conflict(flow);
		return;
	}
	sp_flow_copy(scratch->staged_value, value, value_bytes);
}

#define SP_FLOW_CASE_STAGED(name, id, flows, kb, vb, consistency, allocator)                       \
	case id:                                                                                   \
		if (!(SP_FLOW_STAGED >> id & 1))                                                   \
			break;                                                                     \
		flow->read[SP_FLOW_AT_##name] = scratch->staged_read;                                         \
		sp_flow_set(flow, &name, id, scratch->staged_key, kb, scratch->staged_value, vb,   \
		    consistency);                                                                  \
		break;

/* The packet's end, before its frame changes. -1: the set cannot take effect, and nothing has
 * changed; the packet is to be parked. */
static __always_inline int sp_flow_set_staged(struct sp_flow_context *flow)
{
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 object_id = flow->staged;

	if (!object_id || !scratch)
		return 0;
	flow->staged = 0;
	switch (object_id) {
		SP_FLOW_OBJECTS(SP_FLOW_CASE_STAGED)
	}
	return flow->kind == SP_FLOW_PARK ? -1 : 0;
}

#endif
