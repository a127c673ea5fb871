/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_order.h: what operators read and write. Part of stateplane_strong.h.
 *
 * User space runs a program on a frame that is an order. It reads as a packet does, and what it
 * writes joins this CPU's open batch, as a packet's records do: the head decides, and the tail
 * answers. No packet waits for that, so user space asks whether the answer has come.
 */
#ifndef STATEPLANE_STRONG_ORDER_H
#define STATEPLANE_STRONG_ORDER_H

/* The newest order that may be refused. Which records of a batch were refused is forgotten with the
 * next batch, and user space may ask later than that. */
struct sp_strong_ordered {
	__u64 name; /* sp_commit_name */
	__u64 refused; /* the name of one that was refused */
	__u64 why;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_strong_ordered);
} sp_strong_ordered SEC(".maps");

SP_INLINE struct sp_strong_ordered *sp_strong_get_ordered(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sp_strong_ordered, &zero);
}

/* Records of a batch of this switch were refused. The batch does not count as answered yet. */
SP_INLINE void sp_strong_order_refused(const struct sp_strong_header *header)
{
	struct sp_strong_ordered *ordered = sp_strong_get_ordered();
	__u64 name, bit;

	if (!ordered)
		return;
	name = SP_STRONG_LOAD(ordered->name);
	bit = 1ull << sp_commit_record_of(name);
	if (sp_commit_cpu_of(name) != header->stream ||
	    sp_commit_number_of(name) != header->batch || !(header->refused & bit))
		return;
	ordered->why = header->full & bit ? SP_STRONG_ORDER_FULL : SP_STRONG_ORDER_REFUSED;
	SP_STRONG_STORE(ordered->refused, name);
}

/* Removals and records that write nothing are never refused, and give a key no time. */
#define SP_STRONG_NEVER_REFUSED (SP_STRONG_REMOVE | SP_STRONG_READ)

#define SP_STRONG_ORDER_FUNCTIONS(name, id, table, size, kb, vb, timed)                           \
	/* Key and value are in the scratch. 1: the key is there. */                              \
	static __noinline int name##_look(struct sp_strong_context *strong)                       \
	{                                                                                         \
		struct sp_strong_scratch *scratch = sp_strong_scratch();                          \
                                                                                                  \
		if (!scratch)                                                                     \
			return 0;                                                                 \
		return name##_get(strong, (__u8 *)scratch->key, (__u8 *)scratch->value, 0);       \
	}                                                                                         \
                                                                                                  \
	static __noinline int name##_order(struct sp_strong_context *strong, __u32 flags,         \
					   __u64 idle_s)                                          \
	{                                                                                         \
		struct sp_strong_scratch *scratch = sp_strong_scratch();                          \
		__u64 *words;                                                                     \
                                                                                                  \
		if (!scratch)                                                                     \
			return 0;                                                                 \
		words = sp_strong_stage(strong, id, flags, SP_STRONG_RECORD_SIZE(kb, vb));        \
		if (!words)                                                                       \
			return 0;                                                                 \
		sp_strong_copy(words, scratch->key, kb);                                          \
		sp_strong_copy(words + SP_STRONG_KW(kb), scratch->value, vb);                     \
		if (timed)                                                                        \
			words[SP_STRONG_RECORD_SIZE(kb, vb) - 1] =                                \
				flags & SP_STRONG_NEVER_REFUSED ? 0 : sp_strong_time(idle_s);     \
		return 1;                                                                         \
	}

SP_STRONG_OBJECTS(SP_STRONG_ORDER_FUNCTIONS)

#define SP_STRONG_CASE_LOOK(name, id, table, size, kb, vb, timed) \
	case id: \
		head->found = name##_look(&strong); \
		break;
#define SP_STRONG_CASE_ORDER(name, id, table, size, kb, vb, timed) \
	case id: \
		name##_order(&strong, head->flags, head->idle_s); \
		break;

/* What became of a read. */
SP_INLINE __u32 sp_strong_order_looks(struct sp_strong_order_head *head)
{
	struct sp_strong_context strong = {};

	switch (head->object) {
		SP_STRONG_OBJECTS(SP_STRONG_CASE_LOOK)
	}
	if (strong.refused)
		return SP_STRONG_ORDER_NO_LEASE;
	if (strong.again)
		return SP_STRONG_ORDER_BUSY;
	return strong.waits ? SP_STRONG_ORDER_WAITS : SP_STRONG_ORDER_DONE;
}

/* A record joins the open batch. */
SP_INLINE __u32 sp_strong_order_writes(struct sp_strong_order_head *head)
{
	struct sp_strong_ordered *ordered = sp_strong_get_ordered();
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_context strong = {};
	struct sp_commit_place place = {};

	if (!ordered || !scratch || !view || !node)
		return SP_STRONG_ORDER_FAULT;
	sp_strong_begin(&strong, node);
	if (strong.refused)
		return SP_STRONG_ORDER_NO_LEASE;
	switch (head->object) {
		SP_STRONG_OBJECTS(SP_STRONG_CASE_ORDER)
	}
	if (!strong.records || sp_commit_find(&place, SP_STRONG_LINE, 0))
		return SP_STRONG_ORDER_FAULT;
	if (!sp_commit_fits_many(&place, strong.records, strong.words))
		return SP_STRONG_ORDER_BUSY;
	head->incarnation = view->incarnation;
	head->name = sp_commit_append_many(&place, scratch->staged, scratch->starts,
					   strong.records, strong.words);
	if (!(head->flags & SP_STRONG_NEVER_REFUSED)) {
		ordered->refused = 0;
		ordered->name = head->name;
	}
	sp_commit_end(&place);
	sp_strong_count(SP_STRONG_STAT_ORDERS);
	return SP_STRONG_ORDER_WAITS;
}

/* Has the tail answered the record of this name? */
SP_INLINE __u32 sp_strong_order_asks(const struct sp_strong_order_head *head)
{
	__u32 at = sp_commit_index(sp_commit_cpu_of(head->name), SP_STRONG_LINE);
	struct sp_commit_stream *stream = sp_commit_stream_at(at);
	struct sp_strong_ordered *ordered = sp_strong_get_ordered();
	struct sp_strong_view *view = sp_strong_get_view();

	if (!stream || !ordered || !view)
		return SP_STRONG_ORDER_FAULT;
	/* The switch was removed from the group, and has forgotten what waited. */
	if (view->incarnation != head->incarnation)
		return SP_STRONG_ORDER_FORGOTTEN;
	if (SP_STRONG_LOAD(stream->acked) < sp_commit_number_of(head->name))
		return SP_STRONG_ORDER_WAITS;
	if (!(head->flags & SP_STRONG_NEVER_REFUSED) &&
	    SP_STRONG_LOAD(ordered->refused) == head->name)
		return ordered->why;
	return SP_STRONG_ORDER_DONE;
}

/* A frame from user space, an order; the answer comes back in it. */
SEC("xdp.frags")
int sp_strong_order(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_order_head head;
	__u32 at = sizeof(head);

	if (!scratch || bpf_xdp_load_bytes(xdp, 0, &head, sizeof(head)) ||
	    bpf_xdp_load_bytes(xdp, at, scratch->key, SP_STRONG_KEY_WORDS * 8))
		return XDP_ABORTED;
	at += SP_STRONG_KEY_WORDS * 8;
	if (bpf_xdp_load_bytes(xdp, at, scratch->value, SP_STRONG_VALUE_WORDS * 8) ||
	    !sp_strong_size_of(head.object))
		return XDP_ABORTED;
	if (head.what == SP_STRONG_ORDER_LOOK)
		head.status = sp_strong_order_looks(&head);
	else if (head.what == SP_STRONG_ORDER_WRITE)
		head.status = sp_strong_order_writes(&head);
	else
		head.status = sp_strong_order_asks(&head);
	if (bpf_xdp_store_bytes(xdp, 0, &head, sizeof(head)) ||
	    bpf_xdp_store_bytes(xdp, at, scratch->value, SP_STRONG_VALUE_WORDS * 8))
		return XDP_ABORTED;
	return XDP_PASS;
}

#endif
