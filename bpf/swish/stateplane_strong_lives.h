/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_lives.h: without controllers, members tell each other which life they are in.
 * Part of stateplane_strong.h.
 *
 * A member that lost its state is empty, and nobody removes it from the group. So the number of the
 * group's view is made of all members' lives, and a member is on only once all of them have agreed
 * to the same ones. It agrees to no others after that. A member in a new life then finds nobody who
 * agrees: it does not read, decide or answer, and the others refuse what it sends (README, "SRO",
 * 13). The agent judges what was heard; this file sends and hears.
 *
 * Invariants:
 * - Before a member is on, the life that it knows of another one only rises.
 * - A hello says what its sender agrees to now: an old one of the same life agrees to lower lives.
 */
#ifndef STATEPLANE_STRONG_LIVES_H
#define STATEPLANE_STRONG_LIVES_H

/* From one hello to the next, which goes to the next member: while members meet, and later. */
#define SP_STRONG_MEET_NS 1500000ull
#define SP_STRONG_TELL_NS 15000000ull
/* What was heard of another life counts for so long, if it was a lower one. */
#define SP_STRONG_OTHER_NS 2000000000ull

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_STRONG_MEMBERS);
	__type(key, __u32);
	__type(value, struct sp_strong_life);
} sp_strong_lives SEC(".maps");

SP_INLINE struct sp_strong_life *sp_strong_life_of(__u32 member)
{
	return bpf_map_lookup_elem(&sp_strong_lives, &member);
}

/* Is it time for a hello? */
SP_INLINE int sp_strong_tells_now(void)
{
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_life *own;
	__u64 pause_ns;

	if (!view || !(view->standing & SP_STRONG_MEETS))
		return 0;
	own = sp_strong_life_of(view->own);
	pause_ns = view->standing & SP_STRONG_ON ? SP_STRONG_TELL_NS : SP_STRONG_MEET_NS;
	return own && sp_now_ns() - own->heard_ns >= pause_ns;
}

/* A bit for each member of which another life was heard of than the one that all agreed to. */
static __noinline __u32 sp_strong_refuses(const struct sp_strong_view *view)
{
	__u64 now = sp_now_ns();
	__u32 refuses = 0;

	if (!(view->standing & SP_STRONG_ON))
		return 0;
	for (__u32 member = 0; member < SP_STRONG_MEMBERS; member++) {
		struct sp_strong_life *life = sp_strong_life_of(member);

		if (life && life->other && (life->other > view->life[member] ||
					    now - life->other_ns < SP_STRONG_OTHER_NS))
			refuses |= 1u << member;
	}
	return refuses;
}

/* The frame becomes a hello to the next member. */
SEC("xdp.frags")
int sp_strong_tell(struct xdp_md *xdp)
{
	__u32 zero = 0, bytes = SP_STRONG_AT + SP_STRONG_HEADER_BYTES, to = 0;
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_life *own;
	struct sp_strong_header header = {
		.kind = SP_STRONG_HELLO,
		.resender = SP_STRONG_NO_MEMBER,
	};

	if (!secrets || !scratch || !view || !node)
		return XDP_ABORTED;
	own = sp_strong_life_of(view->own);
	if (!own || sp_commit_resize(xdp, bytes, SP_COMMIT_SENDS_BYTES))
		return XDP_ABORTED;
	own->heard_ns = sp_now_ns();
	for (int i = 0; i < SP_STRONG_MEMBERS && !to; i++) {
		own->turn = (own->turn + 1) & (SP_STRONG_MEMBERS - 1);
		if (own->turn != view->own)
			to = sp_strong_address(view, own->turn);
	}
	if (!to)
		return sp_strong_end();
	header.key_id = secrets->sends & (SP_SECRETS - 1);
	header.origin = view->own;
	header.incarnation = view->incarnation;
	header.seq = SP_STRONG_LOAD(node->applied);
	header.refused = sp_strong_refuses(view);
	header.full = view->offer;
	sp_strong_write(scratch->message, &header);
	scratch->message[SP_STRONG_DIGEST_WORD] = 0;
	return sp_strong_emit(xdp, to, bytes, xdp->ingress_ifindex);
}

/* A hello comes in. */
SEC("xdp.frags")
int sp_strong_hear(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_header header;
	struct sp_strong_life *life;
	__u32 known, refused;

	if (!scratch || !view)
		return XDP_ABORTED;
	sp_strong_parse(scratch->message, &header);
	life = sp_strong_life_of(header.origin);
	if (!life)
		return sp_strong_refuse(SP_STRONG_STAT_MALFORMED);
	known = SP_STRONG_LOAD(life->life);
	if (view->standing & SP_STRONG_ON)
		refused = header.incarnation != view->life[header.origin & (SP_STRONG_MEMBERS - 1)];
	else
		refused = header.incarnation < known;
	if (refused) {
		life->other = header.incarnation;
		life->other_ns = sp_now_ns();
		return sp_strong_refuse(SP_STRONG_STAT_RESTARTED);
	}
	/* (Another CPU hears of yet another life: the next hello tells.) */
	if (known != header.incarnation &&
	    __sync_val_compare_and_swap(&life->life, known, header.incarnation) != known)
		return sp_strong_end();
	life->offer = header.full;
	life->applied = header.seq;
	life->refuses = header.refused;
	life->heard_ns = sp_now_ns();
	return sp_strong_end();
}

#endif
