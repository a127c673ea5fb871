/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_eventual_frame.h: messages about variables with EWO between switches of a group
 * (SwiSh §8.2). Part of stateplane_eventual.h.
 *
 * Owns: the frame's bytes, merging. Must not know: when and where a frame is sent.
 *
 * A message brings slots of one life: single cells that changed, or a run of cells of any life
 * ("gossip"). Merging takes the larger value, so a message may be lost, come twice, or late.
 */
#ifndef STATEPLANE_EVENTUAL_FRAME_H
#define STATEPLANE_EVENTUAL_FRAME_H

/* By group, then member. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_SHARED_GROUPS *SP_EVENTUAL_MEMBERS);
	__type(key, __u32);
	__type(value, struct sp_eventual_member);
} sp_eventual_members SEC(".maps");

/* Frames that the packet generator is to make. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, SP_EVENTUAL_DUE);
	__type(value, struct sp_eventual_due);
} sp_eventual_due SEC(".maps");

/* A CPU's own copy of a message's cells. */
struct sp_eventual_scratch {
	__u32 word[SP_SHARED_CELLS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_eventual_scratch);
} sp_eventual_scratch SEC(".maps");

/* A message's header, in the machine's byte order. */
struct sp_eventual_message {
	__u64 life; /* whose slots; 0: all cells have none; with records, when it was sent (TAI) */
	__u32 kind; /* SP_EVENTUAL_KIND_ */
	__u32 group;
	__u32 view;
	__u32 sender;
	__u32 receiver;
	__u32 count; /* of cells */
	__u32 first; /* of a run; of a message with records, their form */
	__u32 hears; /* with records: the members that its sender hears */
	__u32 begins; /* (not in the header) the run is its group's first one */
};

SP_INLINE void sp_eventual_parse(const __u8 *header, struct sp_eventual_message *message)
{
	message->kind = sp_get8(header);
	message->group = sp_get8(header + 1) & 15;
	message->view = sp_get16(header + 2);
	message->sender = sp_get8(header + 4);
	message->receiver = sp_get8(header + 5);
	message->count = sp_get16(header + 6);
	message->first = sp_get32(header + 8);
	message->life = sp_get64(header + 12);
	message->hears = sp_get32(header + 20);
}

SP_INLINE void sp_eventual_write(__u8 *header, const struct sp_eventual_message *message)
{
	sp_put8(header, message->kind);
	sp_put8(header + 1, message->group);
	sp_put16(header + 2, message->view);
	sp_put8(header + 4, message->sender);
	sp_put8(header + 5, message->receiver);
	sp_put16(header + 6, message->count);
	sp_put32(header + 8, message->first);
	sp_put64(header + 12, message->life);
	sp_put32(header + 20, message->hears);
}

SP_INLINE struct sp_eventual_member *sp_eventual_member(__u32 group, __u32 member)
{
	__u32 at = group * SP_EVENTUAL_MEMBERS + member;

	return bpf_map_lookup_elem(&sp_eventual_members, &at);
}

/*
 * The view is this one. User space takes its members away, then changes the secret, then writes the
 * next view. So if this is asked after the secret was used, it was this view's secret.
 */
SP_INLINE int sp_eventual_is_in(struct sp_eventual_node *node, __u32 view)
{
	return SP_SHARED_LOAD(node->members) && !((SP_SHARED_LOAD(node->view) ^ view) & 0xffff);
}

struct sp_eventual_search {
	__u64 life;
	__u32 group;
	__u32 column; /* found; SP_EVENTUAL_NO_COLUMN: none is left */
};

/* Looks at a column, and takes it if it is free; the last ones only for a base. */
static long sp_eventual_look_at_column(__u64 i, struct sp_eventual_search *search)
{
	__u32 at = search->group * SP_EVENTUAL_COLUMNS + i;
	__u64 seen, *column = bpf_map_lookup_elem(&sp_eventual_columns, &at);

	if (!column)
		return 1;
	seen = SP_SHARED_LOAD(*column);
	if (!seen) {
		if (i + SP_EVENTUAL_BASES >= SP_EVENTUAL_COLUMNS && !SP_EVENTUAL_IS_BASE(search->life))
			return 1;
		seen = __sync_val_compare_and_swap(column, 0, search->life);
		if (!seen)
			seen = search->life;
	}
	if (seen != search->life)
		return 0;
	search->column = i;
	return 1;
}

/* Where the slots of this life are. */
SP_SHARED_GLOBAL __u32 sp_eventual_column(__u32 group, __u64 life)
{
	struct sp_eventual_search search = { .life = life, .group = group,
					     .column = SP_EVENTUAL_NO_COLUMN };

	bpf_loop(SP_EVENTUAL_COLUMNS, sp_eventual_look_at_column, &search, 0);
	return search.column;
}

/* ---- Merging ---- */
struct sp_eventual_cells_of {
	__u32 column;
	__u32 is_run;
	__u32 first; /* of a run */
	__u32 group;
	__u32 raised;
	__u32 own; /* the slots are this switch's */
};

/* A slot of another life becomes the larger one; the sum grows by as much. */
SP_SHARED_GLOBAL int sp_eventual_raise_slot(__u32 column, __u32 number, __u64 value)
{
	struct sp_eventual_cell *cell = sp_eventual_cell(number);
	__u64 seen, *slot = sp_eventual_slot(column, number);

	if (number >= SP_EVENTUAL_SLOTTED || !cell || !slot)
		return 0;
	for (int i = 0; i < SP_SHARED_TRIES; i++) {
		seen = SP_SHARED_LOAD(*slot);
		if (seen >= value)
			return 0;
		if (__sync_val_compare_and_swap(slot, seen, value) == seen) {
			__sync_fetch_and_add(&cell->value, value - seen);
			return 1;
		}
	}
	sp_shared_count(SP_SHARED_STAT_CELL_STUCK);
	return 0;
}

/* A cell of the message, which is in the scratch, is merged. */
static long sp_eventual_merge_one(__u64 i, struct sp_eventual_cells_of *cells)
{
	__u32 zero = 0, number, at, direct;
	struct sp_eventual_scratch *scratch = bpf_map_lookup_elem(&sp_eventual_scratch, &zero);
	struct sp_eventual_node *node = sp_eventual_node(cells->group);
	__u64 value;

	if (!scratch || !node)
		return 1;
	if (cells->is_run) {
		at = i * 2;
		number = cells->first + i;
		direct = cells->column == SP_EVENTUAL_NO_COLUMN;
	} else {
		at = i * 3 + 1;
		number = scratch->word[sp_below(i * 3, SP_SHARED_CELLS)];
		direct = !!(number & SP_EVENTUAL_DIRECT);
		number &= ~SP_EVENTUAL_DIRECT;
	}
	value = scratch->word[sp_below(at, SP_SHARED_CELLS)] |
		(__u64)scratch->word[sp_below(at + 1, SP_SHARED_CELLS)] << 32;
	/* (A member of another layout has another tag: such a cell is of no member.) */
	if (number >= (direct ? node->direct : node->slotted) ||
	    (!direct && cells->column == SP_EVENTUAL_NO_COLUMN)) {
		sp_shared_count(SP_SHARED_STAT_FAULTS);
		return 0;
	}
	if (direct) {
		cells->raised += sp_eventual_raise_cell(node->first_direct + number, value);
	} else if (!cells->own) {
		cells->raised +=
			sp_eventual_raise_slot(cells->column, node->first_slotted + number, value);
	} else {
		__u64 *slot = sp_eventual_slot(0, node->first_slotted + number);

		/* (No switch knows more of this life than this one.) */
		if (!slot || SP_SHARED_LOAD(*slot) < value)
			sp_shared_count(SP_SHARED_STAT_FAULTS);
	}
	return 0;
}

/* Of a genuine message: the cells are merged. */
static __noinline int sp_eventual_take(struct xdp_md *xdp,
				       const struct sp_eventual_message *message)
{
	__u32 zero = 0, group = message->group & (SP_SHARED_GROUPS - 1), count = message->count;
	struct sp_eventual_scratch *scratch = bpf_map_lookup_elem(&sp_eventual_scratch, &zero);
	struct sp_eventual_node *node = sp_eventual_node(group);
	struct sp_eventual_cells_of cells = { .is_run = message->kind & SP_EVENTUAL_KIND_RUN,
					      .first = message->first, .group = group,
					      .column = SP_EVENTUAL_NO_COLUMN };

	if (!scratch || !node ||
	    bpf_xdp_load_bytes(xdp, SP_SHARED_CELLS_AT, scratch, SP_SHARED_CELLS * 4))
		return sp_shared_refuse(SP_SHARED_STAT_FAULTS);
	if (message->life) {
		cells.own = message->life == node->life;
		cells.column = sp_eventual_column(group, message->life);
		if (cells.column == SP_EVENTUAL_NO_COLUMN)
			return sp_shared_refuse(SP_SHARED_STAT_NO_SLOT);
	}
	bpf_loop(count, sp_eventual_merge_one, &cells, 0);
	sp_shared_count(SP_SHARED_STAT_EVENTUAL_RECEIVED);
	sp_count(&sp_shared_stats, SP_SHARED_STAT_EVENTUAL_RAISED, cells.raised);
	return sp_shared_end();
}

/* ---- Filling ---- */
struct sp_eventual_fill {
	__u64 place; /* single cells: of the list, where the message begins */
	__u64 end; /* and where the list ends */
	__u32 group;
	__u32 column;
	__u32 first; /* a run: of all groups' cells */
	__u32 count;
	__u32 bits; /* not 0: the run has a cell that is not 0 */
};

SP_INLINE void sp_eventual_put(struct sp_eventual_scratch *scratch, __u32 at, __u64 value)
{
	scratch->word[sp_below(at, SP_SHARED_CELLS)] = value;
	scratch->word[sp_below(at + 1, SP_SHARED_CELLS)] = value >> 32;
}

/* The next place of the list: which cell it is. */
static long sp_eventual_list_one(__u64 i, struct sp_eventual_fill *fill)
{
	__u32 zero = 0;
	struct sp_eventual_scratch *scratch = bpf_map_lookup_elem(&sp_eventual_scratch, &zero);
	__u64 *listed = sp_eventual_listed(fill->group, fill->place + i), word;

	if (!scratch || !listed || fill->place + i >= fill->end)
		return 1;
	word = SP_SHARED_LOAD(*listed);
	/* (Another CPU is about to write it.) */
	if (word != sp_eventual_list_word(fill->place + i, (__u32)word))
		return 1;
	scratch->word[sp_below(i * 3, SP_SHARED_CELLS)] = word;
	fill->count = i + 1;
	return 0;
}

/* What that cell is now. */
static long sp_eventual_value_one(__u64 i, struct sp_eventual_fill *fill)
{
	__u32 zero = 0, number;
	struct sp_eventual_scratch *scratch = bpf_map_lookup_elem(&sp_eventual_scratch, &zero);
	struct sp_eventual_node *node = sp_eventual_node(fill->group);
	struct sp_eventual_cell *cell;
	__u64 *slot;

	if (!scratch || !node)
		return 1;
	number = scratch->word[sp_below(i * 3, SP_SHARED_CELLS)];
	if (number < SP_EVENTUAL_SLOTTED) {
		slot = sp_eventual_slot(0, number);
		number -= node->first_slotted;
		sp_eventual_put(scratch, i * 3 + 1, slot ? SP_SHARED_LOAD(*slot) : 0);
	} else {
		cell = sp_eventual_cell(number);
		number = (number - node->first_direct) | SP_EVENTUAL_DIRECT;
		sp_eventual_put(scratch, i * 3 + 1, cell ? SP_SHARED_LOAD(cell->value) : 0);
	}
	scratch->word[sp_below(i * 3, SP_SHARED_CELLS)] = number;
	return 0;
}

/* A cell of a run. */
static long sp_eventual_run_one(__u64 i, struct sp_eventual_fill *fill)
{
	__u32 zero = 0;
	struct sp_eventual_scratch *scratch = bpf_map_lookup_elem(&sp_eventual_scratch, &zero);
	__u64 value = 0;

	if (!scratch)
		return 1;
	if (fill->column == SP_EVENTUAL_NO_COLUMN) {
		value = sp_eventual_read(fill->first, 0xffffffff, i);
	} else {
		__u64 *slot = sp_eventual_slot(fill->column, fill->first + i);

		if (slot)
			value = SP_SHARED_LOAD(*slot);
	}
	sp_eventual_put(scratch, i * 2, value);
	fill->bits |= !!value;
	return 0;
}

/*
 * What packets changed since the member was last sent something, oldest first; how many cells. The
 * member's place moves on first: two CPUs never send the same.
 */
static __noinline int sp_eventual_fill_changed(struct sp_eventual_message *message)
{
	__u32 group = message->group & (SP_SHARED_GROUPS - 1);
	struct sp_eventual_member *peer =
		sp_eventual_member(group, message->receiver & (SP_EVENTUAL_MEMBERS - 1));
	struct sp_eventual_node *node = sp_eventual_node(group);
	struct sp_eventual_ends *ends = sp_eventual_ends_of(group);
	struct sp_eventual_fill fill = { .group = group };
	__u64 seen, next, taken;

	if (!node || !ends || !peer)
		return 0;
	seen = SP_SHARED_LOAD(peer->next);
	fill.place = seen;
	fill.end = SP_SHARED_LOAD(ends->listed);
	if (fill.end - fill.place > SP_EVENTUAL_LISTED) {
		/* (The member was sent too little: what is skipped comes with gossip.) */
		fill.place = fill.end - SP_EVENTUAL_LISTED;
		sp_shared_count(SP_SHARED_STAT_EVENTUAL_SKIPPED);
	}
	bpf_loop(SP_EVENTUAL_SINGLE, sp_eventual_list_one, &fill, 0);
	next = fill.place + fill.count;
	if (next == seen || __sync_val_compare_and_swap(&peer->next, seen, next) != seen)
		return 0;
	/* Before the cells are read: see sp_eventual_apply. */
	for (int i = 0; i < SP_SHARED_TRIES; i++) {
		taken = SP_SHARED_LOAD(ends->taken);
		if (taken >= next || __sync_val_compare_and_swap(&ends->taken, taken, next) == taken)
			break;
	}
	bpf_loop(fill.count, sp_eventual_value_one, &fill, 0);
	/* (A group without slots needs no columns.) */
	message->life = node->slotted ? node->life : 0;
	return fill.count;
}

/* A run of a column's cells; how many, or 0 if all are 0, which says nothing. */
static __noinline int sp_eventual_fill_run(struct sp_eventual_message *message, __u32 column)
{
	__u32 group = message->group & (SP_SHARED_GROUPS - 1), cells, count;
	__u32 at = group * SP_EVENTUAL_COLUMNS + column;
	struct sp_eventual_node *node = sp_eventual_node(group);
	struct sp_eventual_fill fill = { .group = group, .column = column };
	__u64 *life;

	if (!node)
		return 0;
	if (column == SP_EVENTUAL_NO_COLUMN) {
		fill.first = node->first_direct + message->first;
		cells = node->direct;
	} else {
		life = bpf_map_lookup_elem(&sp_eventual_columns, &at);
		if (column >= SP_EVENTUAL_COLUMNS || !life || !*life)
			return 0;
		message->life = *life;
		fill.first = node->first_slotted + message->first;
		cells = node->slotted;
	}
	if (message->first >= cells)
		return 0;
	count = cells - message->first;
	count = count < SP_EVENTUAL_RUN ? count : SP_EVENTUAL_RUN;
	bpf_loop(count, sp_eventual_run_one, &fill, 0);
	message->kind |= SP_EVENTUAL_KIND_RUN;
	return fill.bits ? count : 0;
}

#ifdef SP_LWW_RECORDS
/*
 * Records that changed, or a run of them. The first run of a group is sent also without any: then
 * members hear this switch. Not 0: there is nothing to say.
 */
static __noinline int sp_eventual_fill_records(struct xdp_md *xdp,
					       struct sp_eventual_message *message, __u32 column)
{
	__u32 group = message->group & (SP_SHARED_GROUPS - 1), first = message->first;
	struct sp_lww_cells *cells = sp_lww_the_cells();

	if (!cells)
		return -1;
	message->count = column == SP_EVENTUAL_RECORDS_CHANGED ?
				 sp_lww_fill_changed(group, message->receiver) :
				 sp_lww_fill_run(group, first);
	if (column == SP_EVENTUAL_RECORDS)
		message->kind |= SP_EVENTUAL_KIND_RUN;
	if (!message->count && (column == SP_EVENTUAL_RECORDS_CHANGED || !message->begins))
		return -1;
	message->kind |= SP_EVENTUAL_KIND_RECORDS;
	message->first = SP_LWW_SHAPE;
	message->hears = sp_lww_hears(group);
	message->life = sp_wall_clock_ns();
	return bpf_xdp_store_bytes(xdp, SP_SHARED_CELLS_AT, cells, sizeof(*cells));
}
#endif

/* The frame, with headers already, becomes the message; its bytes, or 0: nothing is to say. */
static __noinline int sp_eventual_fill_frame(struct xdp_md *xdp,
					     struct sp_eventual_message *message, __u32 column)
{
	__u32 zero = 0, sends = sp_shared_sends(), which;
	struct sp_eventual_scratch *scratch = bpf_map_lookup_elem(&sp_eventual_scratch, &zero);
	struct sp_eventual_node *node = sp_eventual_node(message->group & (SP_SHARED_GROUPS - 1));
	__u64 tag;
	__u8 *data;

	message->kind = SP_EVENTUAL_KIND | sends << SP_EVENTUAL_KIND_SECRET_SHIFT;
	if (bpf_xdp_adjust_tail(xdp, SP_SHARED_FULL_BYTES - (int)sp_length(xdp)) || !scratch)
		return 0;
#ifdef SP_LWW_RECORDS
	if (column == SP_EVENTUAL_RECORDS || column == SP_EVENTUAL_RECORDS_CHANGED) {
		if (sp_eventual_fill_records(xdp, message, column))
			return 0;
	} else
#endif
	{
		message->count = column == SP_EVENTUAL_CHANGED ?
					 sp_eventual_fill_changed(message) :
					 sp_eventual_fill_run(message, column);
		if (!message->count ||
		    bpf_xdp_store_bytes(xdp, SP_SHARED_CELLS_AT, scratch, SP_SHARED_CELLS * 4))
			return 0;
	}
	data = (void *)(long)xdp->data;
	if (data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end)
		return 0;
	sp_eventual_write(data + SP_SHARED_HEADER_AT, message);
	sp_shared_lengths(data, SP_SHARED_FULL_BYTES);
	which = (SP_SHARED_GROUPS + (message->group & (SP_SHARED_GROUPS - 1))) * SP_SHARED_SECRETS +
		sends;
	tag = sp_shared_tag(xdp, which, 1);
	data = (void *)(long)xdp->data;
	if (!tag)
		sp_shared_count(SP_SHARED_STAT_NO_SECRET);
	if (!tag || !node || !sp_eventual_is_in(node, message->view) ||
	    data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end)
		return 0;
	*(sp_u64a *)(data + SP_SHARED_HEADER_AT + 24) = tag;
	sp_shared_count(column == SP_EVENTUAL_CHANGED || column == SP_EVENTUAL_RECORDS_CHANGED ?
				SP_SHARED_STAT_EVENTUAL_SENT :
				SP_SHARED_STAT_EVENTUAL_GOSSIP);
	return SP_SHARED_FULL_BYTES;
}

/* ---- Frames ---- */
/* The header says what no message can have. */
SP_INLINE int sp_eventual_is_malformed(const struct sp_eventual_message *message)
{
	__u32 most = message->kind & SP_EVENTUAL_KIND_RUN ? SP_EVENTUAL_RUN : SP_EVENTUAL_SINGLE;

	if (message->kind & SP_EVENTUAL_KIND_RECORDS) {
#ifdef SP_LWW_RECORDS
		if (message->first != SP_LWW_SHAPE)
			return 1;
		most = SP_LWW_ENTRIES;
#else
		return 1;
#endif
	}
	return (message->kind & SP_EVENTUAL_KIND) != SP_EVENTUAL_KIND ||
	       message->group >= SP_SHARED_GROUPS || message->sender >= SP_EVENTUAL_MEMBERS ||
	       message->count > most;
}

/* Is it a message of variables with EWO, to this switch (even if it is no member any more)? */
SP_INLINE int sp_eventual_is_message(struct xdp_md *xdp)
{
	__u8 *data = (void *)(long)xdp->data;
	struct sp_eventual_node *node;
	__u32 to;

	if (data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end ||
	    sp_get16(data + 12) != 0x0800 || data[14] != 0x45 || data[23] != 17 ||
	    sp_get16(data + 36) != SP_EVENTUAL_UDP_PORT)
		return 0;
	to = *(sp_u32a *)(data + 30);
	node = sp_eventual_node(sp_get8(data + SP_SHARED_HEADER_AT + 1) & 15);
	return node && node->life && node->address == to;
}

/* A message, in a program of its own. */
SEC("xdp.frags")
int sp_eventual_receive(struct xdp_md *xdp)
{
	__u8 *data = (void *)(long)xdp->data;
	struct sp_eventual_message message = {};
	struct sp_eventual_member *member;
	struct sp_eventual_node *node;
	__u32 port = 0, which;
	__u8 *fabric;
	__u64 tag;

	if (data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end)
		return sp_shared_refuse(SP_SHARED_STAT_MALFORMED);
	sp_eventual_parse(data + SP_SHARED_HEADER_AT, &message);
	tag = *(sp_u64a *)(data + SP_SHARED_HEADER_AT + 24);
	fabric = sp_ingress_port(xdp, &port) ? bpf_map_lookup_elem(&sp_fabric_port, &port) : 0;
	if (!fabric || !*fabric)
		return sp_shared_refuse(SP_SHARED_STAT_NOT_FABRIC);
	if (sp_length(xdp) < SP_SHARED_FULL_BYTES || sp_eventual_is_malformed(&message))
		return sp_shared_refuse(SP_SHARED_STAT_MALFORMED);
	node = sp_eventual_node(message.group);
	if (!node || !node->life || !(node->members >> (message.sender & 63) & 1) ||
	    message.sender == node->own || message.receiver != node->own ||
	    message.view != (node->view & 0xffff))
		return sp_shared_refuse(SP_SHARED_STAT_FOREIGN);
	member = sp_eventual_member(message.group, message.sender);
	if (!member || *(sp_u32a *)(data + 26) != member->address)
		return sp_shared_refuse(SP_SHARED_STAT_FOREIGN);
	which = (SP_SHARED_GROUPS + message.group) * SP_SHARED_SECRETS +
		(message.kind >> SP_EVENTUAL_KIND_SECRET_SHIFT & (SP_SHARED_SECRETS - 1));
	if (!tag || sp_shared_tag(xdp, which, 1) != tag)
		return sp_shared_refuse(sp_eventual_is_in(node, message.view) ?
						SP_SHARED_STAT_FORGED :
						SP_SHARED_STAT_FOREIGN);
	__sync_fetch_and_add(&member->frames, 1);
#ifdef SP_LWW_RECORDS
	if (message.kind & SP_EVENTUAL_KIND_RECORDS) {
		sp_lww_take(xdp, message.group * SP_EVENTUAL_MEMBERS + message.sender, message.count,
			    message.hears, message.life);
		return sp_shared_end();
	}
#endif
	return sp_eventual_take(xdp, &message);
}

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} sp_eventual_programs SEC(".maps") = {
	.values = { [0] = (void *)&sp_eventual_receive },
};

/* At the top of sp_main: a message does not come back from here. */
SP_INLINE void sp_eventual_claim_frame(struct xdp_md *xdp)
{
	if (sp_eventual_is_message(xdp))
		bpf_tail_call(xdp, &sp_eventual_programs, 0);
}

/* A generated frame becomes what the agent queued first. -1: it queued nothing. */
static __noinline int sp_eventual_generated(struct xdp_md *xdp)
{
	struct sp_eventual_message message = {};
	struct sp_eventual_due due = {};
	struct sp_eventual_member *peer;
	struct sp_eventual_node *node;
	int bytes, port;

	if (bpf_map_pop_elem(&sp_eventual_due, &due))
		return -1;
	message.group = due.group & (SP_SHARED_GROUPS - 1);
	node = sp_eventual_node(message.group);
	peer = sp_eventual_member(message.group, due.member & (SP_EVENTUAL_MEMBERS - 1));
	if (!node || !peer || !node->life || !node->members)
		return XDP_DROP;
	if (due.member == node->own) {
#ifdef SP_LWW_RECORDS
		/* A switch alone: nobody is sent the run, but tombstones end. */
		if (due.column == SP_EVENTUAL_RECORDS)
			sp_lww_fill_run(message.group, due.first);
#endif
		return XDP_DROP;
	}
	message.view = node->view;
	message.sender = node->own;
	message.receiver = due.member;
	message.first = due.first;
	message.begins = due.begins;
	port = sp_shared_headers(xdp, node->address, peer->address, due.flow, SP_EVENTUAL_UDP_PORT);
	if (port < 0) {
		sp_shared_count(SP_SHARED_STAT_NO_ROUTE);
		return XDP_DROP;
	}
	bytes = sp_eventual_fill_frame(xdp, &message, due.column);
	return bytes ? sp_forward(port, bytes) : XDP_DROP;
}

#endif
