/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong_round.h: members give each other the right to read. Part of
 * stateplane_strong.h.
 *
 * A removed member must stop reading before anything is committed without it, even if no message
 * reaches it. So a frame goes round the chain. A member that sees round k knows that all members
 * were in this view after the head began round k - 1, which was after round k - 2 had come by here:
 * it reads until `lease_ns` after that. The tail of the next view lets no round of this view pass
 * any more, and answers nothing for `wait_ns`, which is no shorter. (SwiSh §6.1 leaves this out;
 * README, "SRO", 9.)
 *
 * Nothing rests on controllers: while they are dead, rounds go on.
 */
#ifndef STATEPLANE_STRONG_ROUND_H
#define STATEPLANE_STRONG_ROUND_H

/* Rounds in the time of a lease. */
#define SP_STRONG_ROUNDS 8

/* Under the lock, in this view. Round `round` comes by: packets may read longer. */
static __noinline int sp_strong_round_comes(struct sp_strong_node *node,
					    const struct sp_strong_view *view, __u64 round)
{
	__u64 until = node->before_ns + view->lease_ns;

	if (round <= node->round)
		return 0;
	if (node->before_ns && node->whole && view->lease_ns && node->reads_ns < until &&
	    !(view->standing & SP_STRONG_QUIET))
		SP_STRONG_STORE(node->reads_ns, until);
	node->before_ns = node->passed_ns;
	node->passed_ns = sp_now_ns();
	node->round = round;
	return 0;
}

/* Sends a round on; `to`: a member. */
static __noinline int sp_strong_send_round(struct xdp_md *xdp, const struct sp_strong_view *view,
					   struct sp_strong_scratch *scratch, __u64 round)
{
	__u32 zero = 0, bytes = SP_STRONG_AT + SP_STRONG_HEADER_BYTES, to;
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_header header = {
		.kind = SP_STRONG_ROUND,
		.origin = view->own,
		.resender = SP_STRONG_NO_MEMBER,
		.view = view->number,
		.batch = round,
	};

	if (!secrets || !node || sp_commit_resize(xdp, bytes, SP_COMMIT_SENDS_BYTES))
		return XDP_ABORTED;
	header.key_id = secrets->sends & (SP_SECRETS - 1);
	/* (So that members hear of the tail also while there are no writes.) */
	header.seq = SP_STRONG_LOAD(node->committed);
	sp_strong_write(scratch->message, &header);
	scratch->message[SP_STRONG_DIGEST_WORD] = 0;
	to = view->standing & SP_STRONG_TAIL ? view->head : view->next;
	return sp_strong_emit(xdp, sp_strong_address(view, to), bytes, xdp->ingress_ifindex);
}

/* A generated frame at the head: the next round, or the same one again. -1: it is not time. */
static __noinline int sp_strong_begin_round(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	__u64 now = sp_now_ns(), since, round;

	if (!scratch || !view || !node || !view->lease_ns ||
	    (view->standing & (SP_STRONG_ON | SP_STRONG_HEAD)) != (SP_STRONG_ON | SP_STRONG_HEAD))
		return -1;
	if (!sp_strong_lock(node))
		return -1;
	sp_strong_take_view(node, view);
	since = now - node->round_ns;
	round = node->round;
	if (round != node->round_done) {
		/* It is lost, or under way. */
		if (since < SP_STRONG_RESEND_NS)
			round = 0;
	} else if (round < 3 || since >= view->lease_ns / SP_STRONG_ROUNDS) {
		sp_strong_round_comes(node, view, ++round);
		if (view->standing & SP_STRONG_TAIL)
			node->round_done = round;
	} else {
		round = 0;
	}
	if (round)
		node->round_ns = now;
	sp_strong_unlock(node);
	if (!round || view->standing & SP_STRONG_TAIL)
		return -1;
	sp_strong_count(SP_STRONG_STAT_ROUNDS);
	return sp_strong_send_round(xdp, view, scratch, round);
}

/* The round of the message in the scratch comes by, or comes back. */
SEC("xdp.frags")
int sp_strong_pass(struct xdp_md *xdp)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	struct sp_strong_view *view = sp_strong_get_view();
	struct sp_strong_node *node = sp_strong_get_node();
	struct sp_strong_header header;
	int ours;

	if (!scratch || !view || !node)
		return XDP_ABORTED;
	sp_strong_parse(scratch->message, &header);
	if (!sp_strong_lock(node))
		return sp_strong_refuse(SP_STRONG_STAT_BUSY);
	sp_strong_take_view(node, view);
	/* (The view may be newer than the one that the message was checked in.) */
	ours = header.view == (__u32)node->view;
	if (ours && view->standing & SP_STRONG_HEAD) {
		if (header.batch == node->round)
			node->round_done = header.batch;
	} else if (ours) {
		sp_strong_round_comes(node, view, header.batch);
	}
	sp_strong_unlock(node);
	if (!ours)
		return sp_strong_refuse(SP_STRONG_STAT_FOREIGN);
	sp_strong_raise(node, header.seq);
	if (view->standing & SP_STRONG_HEAD)
		return sp_strong_end();
	return sp_strong_send_round(xdp, view, scratch, header.batch);
}

#endif
