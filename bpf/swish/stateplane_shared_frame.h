/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared_frame.h: messages between switches of a group. A frame that comes in is merged,
 * filled with what its sender lacks, and goes back: so windows are clocked by packets, and survive
 * the agent's death. Part of stateplane_shared.h.
 *
 * Owns: the frame's bytes, tags, what a frame becomes. Must not know: when a window turns.
 */
#ifndef STATEPLANE_SHARED_FRAME_H
#define STATEPLANE_SHARED_FRAME_H

/* Frames that begin a window: two for each member. */
#define SP_SHARED_DUE_FRAMES                                                                     \
	(2 * SP_SHARED_MEMBERS > SP_SHARED_DUE ? 2 * SP_SHARED_MEMBERS : SP_SHARED_DUE)

/* Frames that the packet generator is to make. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, SP_SHARED_DUE_FRAMES);
	__type(value, struct sp_shared_due);
} sp_shared_due SEC(".maps");

/* A message's header, in the machine's byte order. */
struct sp_shared_message {
	__u64 window;
	__u32 group;
	__u32 kind; /* SP_SHARED_KIND_ */
	__u32 hops; /* since it brought cells */
	__u32 sender;
	__u32 receiver;
	__u32 number; /* of the message in the window that the cells are of */
	__u32 block; /* whole block: which; single cells: how many */
	__u32 total; /* of messages in that window */
	__u32 want; /* the number of a message that the sender lacks */
	__u32 view;
	__u64 begun_ns; /* (not in the header) when this CPU began with the frame */
};

SP_INLINE void sp_shared_parse(const __u8 *header, struct sp_shared_message *message)
{
	message->kind = sp_get8(header);
	message->group = sp_get8(header + 1) & 15;
	message->hops = sp_get8(header + 1) >> 4;
	message->view = sp_get16(header + 2);
	message->sender = sp_get16(header + 4);
	message->receiver = sp_get16(header + 6);
	message->number = sp_get16(header + 8);
	message->block = sp_get16(header + 10);
	message->total = sp_get16(header + 12);
	message->want = sp_get16(header + 14);
	message->window = sp_get64(header + 16);
}

SP_INLINE void sp_shared_write(__u8 *header, const struct sp_shared_message *message)
{
	sp_put8(header, message->kind);
	sp_put8(header + 1, message->group | message->hops << 4);
	sp_put16(header + 2, message->view);
	sp_put16(header + 4, message->sender);
	sp_put16(header + 6, message->receiver);
	sp_put16(header + 8, message->number);
	sp_put16(header + 10, message->block);
	sp_put16(header + 12, message->total);
	sp_put16(header + 14, message->want);
	sp_put64(header + 16, message->window);
}

/* The window that the message's cells and total are of. */
SP_INLINE __u64 sp_shared_cells_window(const struct sp_shared_message *message)
{
	return message->window - !!(message->kind & SP_SHARED_KIND_PREVIOUS);
}

#include "stateplane_shared_tree.h"
#include "stateplane_shared_hops.h"

/* The cells in the frame go into the values. */
static __noinline int sp_shared_merge(struct xdp_md *xdp, const struct sp_shared_message *message,
				      struct sp_shared_node *node, __u64 window)
{
	if (message->kind & SP_SHARED_KIND_SINGLE) {
		struct sp_shared_entries entries = { .window = window, .xdp = xdp,
						     .first = node->first, .blocks = node->blocks };

		sp_shared_shape(&entries, message->block >> 8);
		bpf_loop(message->block & 0xff, sp_shared_merge_one, &entries, 0);
	} else {
		sp_shared_merge_block(xdp, node->first + message->block, window);
	}
	return 0;
}

/* Can a member send this number, and cells of this shape? A member of another layout cannot. */
SP_INLINE int sp_shared_is_right(const struct sp_shared_message *message,
				 const struct sp_shared_node *node)
{
	__u32 each = message->block >> 8, count = message->block & 0xff;

	if (message->number >= SP_SHARED_MESSAGES || message->number >= message->total)
		return 0;
	if (!(message->kind & SP_SHARED_KIND_SINGLE))
		return message->block < node->blocks;
	return (each == 32 || each == 16 || each == 8 || each == 4) && count <= each;
}

/* A message's cells go where this switch merges those of their sender. */
SP_INLINE void sp_shared_merge_from(struct xdp_md *xdp, const struct sp_shared_message *message,
				    struct sp_shared_node *node, __u64 window)
{
	__u32 up = sp_shared_is_parent(node, message->sender);

	if (!node->tree || up)
		sp_shared_merge(xdp, message, node, window);
	if (node->tree && (!up || sp_shared_has_children(node)))
		sp_shared_branch(xdp, message, node, window, up);
}

/* A member's message of this window: its cells are merged once, and its total noted. */
static __noinline int sp_shared_take(struct xdp_md *xdp, const struct sp_shared_message *message,
				     __u64 word)
{
	__u32 group = message->group & (SP_SHARED_GROUPS - 1);
	__u32 from = message->sender & (SP_SHARED_MEMBERS - 1);
	struct sp_shared_member *member = sp_shared_member(group, from);
	struct sp_shared_node *node = sp_shared_node(group);
	__u64 window = SP_SHARED_WINDOW(word);

	if (!member || !node || !sp_shared_takes(node, from, SP_SHARED_PHASE(word)))
		return 0;
	if (message->kind & SP_SHARED_KIND_CELLS) {
		if (!sp_shared_is_right(message, node)) {
			sp_shared_count(SP_SHARED_STAT_MALFORMED);
			return 0;
		}
		if (sp_shared_claim(group, from, message->number)) {
			sp_shared_count(SP_SHARED_STAT_RECEIVED);
			sp_shared_merge_from(xdp, message, node, window);
			__sync_fetch_and_add(&member->merged, 1);
		} else {
			sp_shared_count(SP_SHARED_STAT_REPEATED);
		}
	}
	if (message->total != SP_SHARED_NOTHING) {
		/* (A parent's messages go on to the children as they are.) */
		if (sp_shared_is_parent(node, from))
			SP_SHARED_STORE(node->totals[window & 1], message->total);
		SP_SHARED_STORE(member->total, message->total);
	}
	sp_shared_check_member(node, member);
	return 0;
}

/* Puts the cells of the message with this number into the frame, which is full. */
static __noinline int sp_shared_put_cells(struct xdp_md *xdp, struct sp_shared_message *message,
					  struct sp_shared_node *node, __u64 window)
{
	__u32 side = window & 1, zero = 0, each = node->message_blocks, count, *listed;
	__u32 at = 2 * node->first + side * node->blocks + message->number * each;
	struct sp_shared_block *block;

	message->kind |= SP_SHARED_KIND_CELLS;
	if (each == 1) {
		listed = bpf_map_lookup_elem(&sp_shared_dirty_blocks, &at);
		block = listed ? sp_shared_block(node->first + *listed) : 0;
		if (!block)
			return 0;
		message->block = *listed;
		/* (For the window before, it is done: and packets may claim its lines by now.) */
		if (window == SP_SHARED_WINDOW(SP_SHARED_LOAD(node->word)) && !node->filled)
			sp_shared_freshen(node->first + *listed, window);
		return !bpf_xdp_store_bytes(xdp, SP_SHARED_CELLS_AT, block->delta[side],
					    SP_SHARED_CELLS * 4);
	} else {
		struct sp_shared_scratch *scratch = bpf_map_lookup_elem(&sp_shared_scratch, &zero);
		struct sp_shared_entries entries = { .window = window, .first = node->first,
						     .list = at };

		if (!scratch)
			return 0;
		entries.flags = (node->filled ? SP_SHARED_FILL_FILLED : 0) |
				(sp_shared_is_below(node) ? SP_SHARED_FILL_BELOW : 0);
		count = node->dirty_blocks[side] - message->number * each;
		sp_shared_shape(&entries, each);
		count = count < each ? count : each;
		bpf_loop(count, sp_shared_fill_one, &entries, 0);
		message->block = each << 8 | count;
		message->kind |= SP_SHARED_KIND_SINGLE;
		return !bpf_xdp_store_bytes(xdp, SP_SHARED_CELLS_AT, scratch, SP_SHARED_CELLS * 4);
	}
}

/* Fills the frame with the message of this number, and merges it here, if that is not done yet. */
static __noinline int sp_shared_put(struct xdp_md *xdp, struct sp_shared_message *message,
				    __u64 window)
{
	__u32 group = message->group & (SP_SHARED_GROUPS - 1);
	struct sp_shared_node *node = sp_shared_node(group);
	struct sp_shared_member *own;

	if (!node)
		return 0;
	own = sp_shared_member(group, node->own & (SP_SHARED_MEMBERS - 1));
	if (message->number >= SP_SHARED_LOAD(node->totals[window & 1]))
		return 0;
	if (!own || !sp_shared_put_cells(xdp, message, node, window)) {
		sp_shared_count(SP_SHARED_STAT_FAULTS);
		return 0;
	}
	/* (With a parent, the total brings it: it is merged with that.) */
	if (sp_shared_is_below(node)) {
		sp_shared_count(SP_SHARED_STAT_SENT);
		return 1;
	}
	/* (One of the window before was merged then. Bits and counts are those of this window.) */
	if (window == SP_SHARED_WINDOW(SP_SHARED_LOAD(node->word)) &&
	    sp_shared_claim(group, node->own & (SP_SHARED_MEMBERS - 1), message->number)) {
		sp_shared_merge(xdp, message, node, window);
		__sync_fetch_and_add(&own->merged, 1);
		sp_shared_check_member(node, own);
	}
	sp_shared_count(SP_SHARED_STAT_SENT);
	return 1;
}

/*
 * The number of the message that the member is to have next; SP_SHARED_NOTHING: it has all. Half of
 * the CPUs begin with the last message. A frame stays on its CPU, in both switches, so a CPU merges
 * and sends its own half of the blocks, without waiting for another one's lock and cache lines.
 */
SP_INLINE __u32 sp_shared_next(struct sp_shared_member *peer, __u32 want, __u32 total,
			       __u32 side)
{
	__u32 backwards = sp_shared_this_cpu() & 1;
	__u64 taken;

	if (want != SP_SHARED_NOTHING)
		return want < total ? want : SP_SHARED_NOTHING;
	taken = SP_SHARED_LOAD(peer->next[side & 1]);
	if ((__u32)taken + (taken >> 32) >= total)
		return SP_SHARED_NOTHING;
	taken = __sync_fetch_and_add(&peer->next[side & 1], backwards ? 1ull << 32 : 1);
	if ((__u32)taken + (taken >> 32) >= total)
		return SP_SHARED_NOTHING;
	return backwards ? total - 1 - (taken >> 32) : taken;
}

/* A frame that came in goes back the way that it came. */
SP_INLINE void sp_shared_turn_round(__u8 *data)
{
	__u32 high = *(sp_u32a *)data, address = *(sp_u32a *)(data + 26);
	__u16 low = *(sp_u16a *)(data + 4);

	*(sp_u32a *)data = *(sp_u32a *)(data + 6);
	*(sp_u16a *)(data + 4) = *(sp_u16a *)(data + 10);
	*(sp_u32a *)(data + 6) = high;
	*(sp_u16a *)(data + 10) = low;
	*(sp_u32a *)(data + 26) = *(sp_u32a *)(data + 30);
	*(sp_u32a *)(data + 30) = address;
	sp_put8(data + 22, 64);
}

/*
 * Fills the frame for the member, which is in this window and phase (0: not known): what it lacks
 * of this switch's messages, in its window. `ask`: the number of a message that this switch lacks.
 * 0: the frame ends here.
 */
static __noinline int sp_shared_fill(struct xdp_md *xdp, struct sp_shared_message *message,
				     __u64 theirs, __u32 their_phase, __u32 ask)
{
	__u32 group = message->group & (SP_SHARED_GROUPS - 1), cpu = sp_shared_this_cpu();
	__u32 to = message->receiver & (SP_SHARED_MEMBERS - 1), want = message->want, bytes, which;
	__u32 sends = sp_shared_sends();
	struct sp_shared_member *peer = sp_shared_member(group, to);
	struct sp_shared_node *node = sp_shared_node(group);
	struct sp_shared_cpu *own = sp_shared_cpu(group, cpu);
	__u64 word = sp_shared_turn(group, cpu), window = SP_SHARED_WINDOW(word), served = 0, tag;
	__u8 *data;

	if (!node || !peer || !own || !word)
		return 0;
	message->kind = 0;
	message->number = SP_SHARED_NOTHING;
	message->want = ask;
	message->total = SP_SHARED_NOTHING;
	message->block = 0;
	served = sp_shared_served(node, peer, word, to, theirs, their_phase);
	if (served) {
		message->total = sp_shared_total_for(group, node, to, served);
		message->number = sp_shared_next(peer, want, message->total, served);
		if (message->number != SP_SHARED_NOTHING) {
			if (sp_length(xdp) != SP_SHARED_FULL_BYTES &&
			    bpf_xdp_adjust_tail(xdp, SP_SHARED_FULL_BYTES - (int)sp_length(xdp)))
				return 0;
			if (!sp_shared_put(xdp, message, served))
				return 0;
			message->hops = 0;
			word = sp_shared_turn(group, cpu);
		}
	}
	window = SP_SHARED_WINDOW(word);
	message->window = window;
	/* (Two windows later, the cells would be a repetition that no member lacks.) */
	if (served && served + 1 < window)
		return 0;
	if (served && served != window)
		message->kind |= SP_SHARED_KIND_PREVIOUS;
	message->kind |= sp_shared_told_phase(node, word, to) << SP_SHARED_KIND_PHASE_SHIFT |
			 sends << SP_SHARED_KIND_SECRET_SHIFT;
	if (!(message->kind & SP_SHARED_KIND_CELLS)) {
		/*
		 * A frame that brings nothing, again and again, ends: the generator makes others. (If it
		 * went on while windows turn, frames that come twice would become more and more.)
		 */
		if (message->hops >= SP_SHARED_HOPS ||
		    (!served && SP_SHARED_PHASE(word) == SP_SHARED_ADVANCED &&
		     node->next_ns > sp_now_ns()))
			return 0;
		if (sp_shared_is_spare(node, own, message, word))
			return 0;
		message->hops += sp_shared_hop(own, node, window, message->hops);
		if (sp_length(xdp) != SP_SHARED_CELLS_AT &&
		    bpf_xdp_adjust_tail(xdp, SP_SHARED_CELLS_AT - (int)sp_length(xdp)))
			return 0;
	}
	bytes = message->kind & SP_SHARED_KIND_CELLS ? SP_SHARED_FULL_BYTES : SP_SHARED_CELLS_AT;
	message->view = node->view & 0xffff;
	message->sender = node->own;
	data = (void *)(long)xdp->data;
	if (data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end)
		return 0;
	sp_shared_write(data + SP_SHARED_HEADER_AT, message);
	sp_shared_lengths(data, bytes);
	which = group * SP_SHARED_SECRETS + sends;
	tag = sp_shared_tag(xdp, which, bytes == SP_SHARED_FULL_BYTES);
	data = (void *)(long)xdp->data;
	if (!tag)
		sp_shared_count(SP_SHARED_STAT_NO_SECRET);
	if (!tag || data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end)
		return 0;
	*(sp_u64a *)(data + SP_SHARED_HEADER_AT + 24) = tag;
	return bytes;
}

#define SP_SHARED_UDP_AT 34

/* Is it a message of shared variables, to this switch? */
SP_INLINE int sp_shared_is_message(struct xdp_md *xdp)
{
	__u8 *data = (void *)(long)xdp->data;
	struct sp_shared_node *node;
	__u32 to;

	if (data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end ||
	    sp_get16(data + 12) != 0x0800 || data[14] != 0x45 || data[23] != 17 ||
	    sp_get16(data + SP_SHARED_UDP_AT + 2) != SP_SHARED_UDP_PORT)
		return 0;
	/* (Those of other switches, and of a group in which this switch is alone, are forwarded.) */
	to = *(sp_u32a *)(data + 30);
	node = sp_shared_node(sp_get8(data + SP_SHARED_HEADER_AT + 1) & 15);
	return node && node->count > 1 && node->address == to;
}

/*
 * A member was ready for this window: another CPU may note it, or a newer one, at this instant. One
 * CPU counts it.
 */
SP_INLINE void sp_shared_raise_ready(struct sp_shared_node *node, struct sp_shared_member *member,
				     __u32 from, __u64 window)
{
	for (int i = 0; i < SP_SHARED_TRIES; i++) {
		__u64 seen = SP_SHARED_LOAD(member->ready);

		if (seen >= window)
			break;
		if (__sync_val_compare_and_swap(&member->ready, seen, window) == seen) {
			/* (A parent says it of itself: what it waits for is this switch.) */
			if (!sp_shared_is_parent(node, from))
				sp_shared_count_ready(node, window);
			break;
		}
	}
}

/* What a frame cost (sp_shared_pace). The clock is read only if there is a cap on CPU time. */
SP_INLINE __u64 sp_shared_begun_ns(struct sp_shared_node *node)
{
	return node->cpu_percent ? sp_now_ns() : 0;
}

SP_INLINE void sp_shared_spend(struct sp_shared_node *node, struct sp_shared_cpu *cpu, __u32 bytes,
			       __u64 begun_ns)
{
	cpu->sent_bytes += bytes;
	/* (The object may have had no cap when the frame came.) */
	if (node->cpu_percent && begun_ns)
		cpu->busy_ns += sp_now_ns() - begun_ns;
}

/* Of a genuine message: the cells are merged, its sender's readiness noted. The frame goes back. */
static __noinline int sp_shared_handle(struct xdp_md *xdp, struct sp_shared_message *message,
				       __u32 port)
{
	__u32 group = message->group & (SP_SHARED_GROUPS - 1), cpu_index = sp_shared_this_cpu();
	__u32 from = message->sender & (SP_SHARED_MEMBERS - 1);
	struct sp_shared_member *member = sp_shared_member(group, from);
	struct sp_shared_cpu *cpu = sp_shared_cpu(group, cpu_index);
	struct sp_shared_node *node = sp_shared_node(group);
	__u32 phase = message->kind >> SP_SHARED_KIND_PHASE_SHIFT;
	__u64 word, window, theirs = message->window;
	__u8 *data = (void *)(long)xdp->data;
	int bytes;

	if (!node || !member || !cpu)
		return XDP_DROP;
	/* (No packet of this CPU is under way: a pin that a packet left behind ends here.) */
	SP_SHARED_STORE(cpu->packet, SP_SHARED_NO_PIN);
	__sync_lock_test_and_set(&cpu->frame, SP_SHARED_UNKNOWN_PIN);
	if (SP_SHARED_LOAD(node->sealed)) {
		SP_SHARED_STORE(cpu->frame, SP_SHARED_NO_PIN);
		return sp_shared_refuse(SP_SHARED_STAT_SEALED);
	}
	word = sp_shared_turn(group, cpu_index);
	window = SP_SHARED_WINDOW(word);
	member->frames++;
	member->full += message->kind & SP_SHARED_KIND_CELLS;
	/* (Of an older window it would count as one of the next.) */
	if (phase >= SP_SHARED_READY && theirs >= window)
		sp_shared_raise_ready(node, member, from, theirs);
	/* (A member goes on from READY when all are ready.) */
	if (phase >= SP_SHARED_ROTATED && theirs == window)
		SP_SHARED_STORE(node->all_ready, window);
	if (sp_shared_cells_window(message) == window && SP_SHARED_PHASE(word) >= SP_SHARED_READY)
		sp_shared_take(xdp, message, word);
	message->receiver = from;
	data = (void *)(long)xdp->data;
	if (data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end)
		return XDP_DROP;
	sp_shared_turn_round(data);
	bytes = sp_shared_fill(xdp, message, theirs, phase, SP_SHARED_NOTHING);
	sp_shared_spend(node, cpu, bytes, message->begun_ns);
	__sync_lock_test_and_set(&cpu->frame, SP_SHARED_NO_PIN);
	return bytes ? sp_forward(port, bytes) : sp_shared_end();
}

/* A message of shared variables, in a program of its own. */
SEC("xdp.frags")
int sp_shared_receive(struct xdp_md *xdp)
{
	__u8 *data = (void *)(long)xdp->data;
	struct sp_shared_message message = {};
	__u32 port = 0, bytes = sp_length(xdp), which, full;
	struct sp_shared_member *member;
	struct sp_shared_node *node;
	__u8 *fabric;
	__u64 tag;

	if (data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end)
		return sp_shared_refuse(SP_SHARED_STAT_MALFORMED);
	sp_shared_parse(data + SP_SHARED_HEADER_AT, &message);
	tag = *(sp_u64a *)(data + SP_SHARED_HEADER_AT + 24);
	fabric = sp_ingress_port(xdp, &port) ? bpf_map_lookup_elem(&sp_fabric_port, &port) : 0;
	if (!fabric || !*fabric)
		return sp_shared_refuse(SP_SHARED_STAT_NOT_FABRIC);
	full = !!(message.kind & SP_SHARED_KIND_CELLS);
	if (bytes < (full ? SP_SHARED_FULL_BYTES : SP_SHARED_CELLS_AT) ||
	    message.group >= SP_SHARED_GROUPS || message.sender >= SP_SHARED_MEMBERS)
		return sp_shared_refuse(SP_SHARED_STAT_MALFORMED);
	node = sp_shared_node(message.group);
	if (!node || !node->word || message.sender == node->own ||
	    message.receiver != node->own || message.view != (node->view & 0xffff))
		return sp_shared_refuse(SP_SHARED_STAT_FOREIGN);
	/* (A number that is no member of the view has no address.) */
	member = sp_shared_member(message.group, message.sender);
	if (!member || !member->address || *(sp_u32a *)(data + 26) != member->address)
		return sp_shared_refuse(SP_SHARED_STAT_FOREIGN);
	message.begun_ns = sp_shared_begun_ns(node);
	which = message.group * SP_SHARED_SECRETS +
		(message.kind >> SP_SHARED_KIND_SECRET_SHIFT & (SP_SHARED_SECRETS - 1));
	if (!tag || sp_shared_tag(xdp, which, full) != tag)
		return sp_shared_refuse(SP_SHARED_STAT_FORGED);
	return sp_shared_handle(xdp, &message, port);
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} sp_shared_programs SEC(".maps") = {
	.values = { [0] = (void *)&sp_shared_receive },
};

/* At the top of sp_main: a message of shared variables does not come back from here. */
SP_INLINE void sp_shared_claim_frame(struct xdp_md *xdp)
{
	if (sp_shared_is_message(xdp))
		bpf_tail_call(xdp, &sp_shared_programs, 0);
}

/* A generated frame becomes what the agent queued first. -1: it queued nothing. */
static __noinline int sp_shared_generated(struct xdp_md *xdp)
{
	__u32 cpu_index = sp_shared_this_cpu(), group, self;
	struct sp_shared_message message = {};
	struct sp_shared_due due = {};
	struct sp_shared_member *peer;
	struct sp_shared_node *node;
	struct sp_shared_cpu *cpu;
	int bytes = 0, port = 0;
	__u64 word;

	if (bpf_map_pop_elem(&sp_shared_due, &due))
		return -1;
	group = due.group & (SP_SHARED_GROUPS - 1);
	node = sp_shared_node(group);
	cpu = sp_shared_cpu(group, cpu_index);
	peer = sp_shared_member(group, due.member & (SP_SHARED_MEMBERS - 1));
	if (!node || !cpu || !peer || !node->word)
		return XDP_DROP;
	message.begun_ns = sp_shared_begun_ns(node);
	SP_SHARED_STORE(cpu->packet, SP_SHARED_NO_PIN);
	__sync_lock_test_and_set(&cpu->frame, SP_SHARED_UNKNOWN_PIN);
	if (SP_SHARED_LOAD(node->sealed))
		goto out;
	/* (It waited longer than the window: what it asks for is of no use.) */
	if (due.window != (__u32)SP_SHARED_WINDOW(SP_SHARED_LOAD(node->word)))
		due.want = SP_SHARED_NOTHING;
	message.group = group;
	message.receiver = due.member;
	message.want = SP_SHARED_NOTHING;
	/* (It was made as frames are too few: sp_shared_is_spare.) */
	message.hops = sp_shared_is_large(node) ? 2 : 0;
	self = node->own & (SP_SHARED_MEMBERS - 1);
	word = sp_shared_turn(group, cpu_index);
	if (due.member == self) {
		/* Alone in the group: the cells are sent to no member, and merged here. */
		message.number = due.want;
		if (SP_SHARED_PHASE(word) == SP_SHARED_SENDING &&
		    !bpf_xdp_adjust_tail(xdp, SP_SHARED_FULL_BYTES - (int)sp_length(xdp)) &&
		    due.want < SP_SHARED_MESSAGES)
			sp_shared_put(xdp, &message, SP_SHARED_WINDOW(word));
		sp_shared_turn(group, cpu_index);
		goto out;
	}
	port = sp_shared_headers(xdp, node->address, peer->address, due.flow,
				 SP_SHARED_UDP_PORT);
	if (port < 0) {
		sp_shared_count(SP_SHARED_STAT_NO_ROUTE);
		goto out;
	}
	bytes = sp_shared_fill(xdp, &message, 0, 0, due.want);
out:
	sp_shared_spend(node, cpu, bytes, message.begun_ns);
	__sync_lock_test_and_set(&cpu->frame, SP_SHARED_NO_PIN);
	return bytes ? sp_forward(port, bytes) : XDP_DROP;
}

#endif
