/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_commit.h: output commit. Packets wait in the switch until the records that they depend
 * on are durable; records of many flows travel in one batch (docs/output-commit.md).
 *
 * Owns: lots, streams, batches, release, copies. Must not know: any system's messages or state.
 *
 * A system's header includes this after stateplane_messages.h, and calls:
 * - sp_commit_prepare before it changes state;
 * - sp_commit_find and sp_commit_fits instead, for a record for which no packet waits;
 * - sp_commit_put under the lock of the stream, which sp_commit_end lets go, to write a record;
 * - sp_commit_park when the packet is finished;
 * - sp_commit_acked when a batch is durable.
 * It defines SP_COMMIT_KEY_WORDS, words of the longest key; and SP_COMMIT_RUNS_AGAIN, if a packet
 * whose record was refused, or for which the batch had no room, goes through the program again, as
 * it came in (sp_commit_keep, sp_commit_defer); and SP_COMMIT_NOTES with `struct sp_commit_noted`,
 * if a packet that waits has noted what it changes when it leaves (sp_commit_notes,
 * sp_commit_leaves).
 * The system has a program that turns a frame into the message of the batch in sp_commit_work.
 *
 * Invariants:
 * - A packet leaves only when the batch that it depends on is acknowledged, and its record was not
 *   refused.
 * - What it has noted takes effect when it leaves, once; never if it runs again, or if the engine
 *   drops it.
 * - acked <= departed <= acked + 1: one batch of a stream is in flight at most. The open batch has
 *   the number departed + 1.
 * - A slot is free, linked to a batch, ready, or in the hands of one frame. Only the holder of the
 *   lock of its list links it: the stream's, or the lot's for ready ones.
 *   (Free ones in `own` are their CPU's alone.)
 * - Records in flight are not changed.
 * - At most one lock is held at a time, and no helper runs under it.
 */
#ifndef STATEPLANE_COMMIT_H
#define STATEPLANE_COMMIT_H

#include "stateplane_batch_layouts.h"

/* The loader sets it: packets wait here. 0: the system's own way. */
const volatile __u32 sp_commit_on = 0;
/* Packets that find no room here go the system's own way. 0: they are dropped. The loader may set
 * it. */
const volatile __u32 sp_commit_wraps = 0;
/* A packet that has waited longer is dropped when its turn comes. The loader may set it. */
const volatile __u32 sp_commit_hold_ms = 1000;
/* Words of records that a batch may have: the links to the line bound it. The loader may set it. */
const volatile __u32 sp_commit_words_max = SP_BATCH_RECORDS_BYTES_MAX / 8;

#define SP_CACHE_LINE 64
#define SP_COMMIT_LINES 256
#define SP_COMMIT_SLOTS 1024 /* of a CPU; a power of two */
#define SP_COMMIT_FRAME_BYTES 2048 /* that a slot has room for */
#define SP_COMMIT_HEAD_BYTES 104 /* of them, in sp_commit_slots; the rest in sp_commit_tails */
#define SP_COMMIT_WORDS (SP_BATCH_RECORDS_BYTES_MAX / 8)
#define SP_COMMIT_RECORDS 63 /* of a batch */
#define SP_COMMIT_BATCH_SLOTS 256 /* packets that wait for one batch */
#define SP_COMMIT_UNPLACED 63 /* "record": not yet in a batch */
/* A frame for the loop that did not come may be lost: another one goes. */
#define SP_COMMIT_TOKEN_LATE_NS 8000000ull
/* Arrivals send a batch again only after so long: sooner, the generator does if its agent lives. */
#define SP_COMMIT_OVERDUE_NS 200000000ull
/* Records without packets gather for so long, or until there are so many. */
#define SP_COMMIT_GATHER_NS 1000000ull
#define SP_COMMIT_GATHER_RECORDS 16
/* So many slots that other CPUs freed are worth the lock. */
#define SP_COMMIT_TAKEN_OVER 16
/* Packets that are fetched at once when they are ready. */
#define SP_COMMIT_FETCHED 64
/* "Copies under way" is a guess, and ends after so long. */
#define SP_COMMIT_COPIES_LATE_NS 100000ull

/* The name of an update's place: CPU 10 bits, record 6 bits, batch 48 bits; 0: none. */
#define SP_COMMIT_NUMBER_BITS 48
#define SP_COMMIT_NUMBER ((1ull << SP_COMMIT_NUMBER_BITS) - 1)

SP_INLINE __u64 sp_commit_name(__u32 cpu, __u32 record, __u64 number)
{
	return (__u64)cpu << 54 | (__u64)record << SP_COMMIT_NUMBER_BITS | (number & SP_COMMIT_NUMBER);
}
SP_INLINE __u32 sp_commit_cpu_of(__u64 name) { return name >> 54; }
SP_INLINE __u32 sp_commit_record_of(__u64 name) { return name >> SP_COMMIT_NUMBER_BITS & 63; }
SP_INLINE __u64 sp_commit_number_of(__u64 name) { return name & SP_COMMIT_NUMBER; }

/* Slots of one lot that wait for the same thing, oldest first. */
struct sp_commit_list {
	__u16 first;
	__u16 last;
	__u32 count;
};

/* A CPU's memory for waiting packets. What only this CPU touches has cache lines of its own: the
 * acknowledgement may come in on another CPU, whose frames then carry the packets out. */
struct sp_commit_lot {
	struct bpf_spin_lock lock;
	__u32 copies; /* under way to the loop: a guess */
	__u64 copies_ns;
	struct sp_commit_list ready;
	struct sp_commit_list free; /* by other CPUs; like a stack */
	__u64 apart[SP_CACHE_LINE / 8];
	struct sp_commit_list own; /* free, and this CPU's alone; like a stack */
	__u32 fresh; /* slots from here on were never used */
	__u32 turns; /* of the packet generator on this CPU */
	__u16 next[SP_COMMIT_SLOTS]; /* the slot behind this one in its list */
};

/* A packet that waits. What a short one needs lies in two lines of the cache, and 32 of them in a
 * page: with whole frames side by side the processor had to look up a page for each packet. */
struct sp_commit_slot {
	__u64 parked_ns; /* coarse */
	__u32 stream;
	__u16 port; /* P4 */
	__u16 bytes;
	__u8 record; /* on which it depends, in its batch */
	__u8 refused; /* it must not leave: 1, it is dropped; SP_COMMIT_RUN_AGAIN */
	__u16 reserved;
	__u32 reserved2;
	__u8 frame[SP_COMMIT_HEAD_BYTES];
};
_Static_assert(sizeof(struct sp_commit_slot) == 2 * SP_CACHE_LINE, "two lines");

/* What a slot has no room for. */
struct sp_commit_tail {
	__u8 frame[SP_COMMIT_FRAME_BYTES - SP_COMMIT_HEAD_BYTES];
};

/* The batches of one CPU to one line. */
struct sp_commit_stream {
	/* What each packet of this CPU looks at: a cache line. */
	struct bpf_spin_lock lock;
	__u32 queued; /* in sp_commit_due */
	__u64 departed; /* number of the last batch that left */
	__u64 acked; /* of the last one that is durable */
	__u64 sent_ns; /* of the batch in flight; 0: not sent yet */
	__u64 token_ns; /* coarse: a frame is on its way by the loop; 0: none */
	struct sp_commit_list open;
	__u16 open_records;
	__u16 open_words;
	__u32 ifindex; /* by which its last packet came: whose routes lead to the line */
	__u32 reserved[2];
	/* What acknowledgements and packets that leave change, often on another CPU. */
	struct sp_commit_list flying;
	__u16 flying_records;
	__u16 flying_words;
	__u32 reserved2;
	__u64 clear; /* no packet waits any more for this batch and those before it */
	__u64 refused; /* the last batch with refused records */
	__u64 refused_bits; /* which */
	__u32 ready; /* of its packets, acknowledged and still here; changed atomically */
	__u32 resends;
	__u64 gathers_ns; /* since when records without packets gather in the open batch */
	__u64 reserved3;
};
_Static_assert(sizeof(struct sp_commit_stream) == 2 * SP_CACHE_LINE, "two lines");

/* Of stateplane_batch_layouts.h, from the digest on. */
struct sp_commit_batch {
	__u64 digest; /* of the records, when they leave */
	/* More than leaves: a key at the end may be read in its greatest length. */
	__u64 words[SP_COMMIT_WORDS + SP_COMMIT_KEY_WORDS];
	__u8 at[SP_COMMIT_RECORDS + 1]; /* where each record begins in `words` */
};

#define SP_COMMIT_RUN_AGAIN 2 /* "refused": the packet goes through the program again */

#ifdef SP_COMMIT_RUNS_AGAIN
/* The packet of a slot as it came in. */
struct sp_commit_original {
	__u32 bytes;
	__u16 port;
	__u16 attempts;
	__u8 frame[SP_COMMIT_FRAME_BYTES];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_original);
} sp_commit_originals SEC(".maps");

/* Of the packet in the frame, which goes through the program again. */
struct sp_commit_resume {
	__u32 port;
	__u32 attempts;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_resume);
} sp_commit_resume SEC(".maps");
#endif

#ifdef SP_COMMIT_NOTES
/* What the packet of a slot has noted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_noted);
} sp_commit_noted SEC(".maps");

/*
 * The packet of the slot with this index leaves: what it has noted takes effect. `drops`: the
 * program drops it. Not 0: it must be dropped. The system has it.
 */
int sp_commit_leaves(__u32 index, __u32 drops);
#endif

/* The agent gives the maps their sizes: CPUs, and what follows from them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_lot);
} sp_commit_lots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_slot);
	__uint(map_flags, BPF_F_MMAPABLE); /* then it begins with a page, so slots begin with a line */
} sp_commit_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_tail);
} sp_commit_tails SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_stream);
	__uint(map_flags, BPF_F_MMAPABLE); /* as above */
} sp_commit_streams SEC(".maps");

/* Two a stream: the open one and the one in flight. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_batch);
} sp_commit_batches SEC(".maps");

/* Streams with something to look after: the generator takes them out. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} sp_commit_due SEC(".maps");

/* The loop, as often as copies are wanted: the agent fills them. */
#define SP_COMMIT_COPIES(copies) \
	struct { \
		__uint(type, BPF_MAP_TYPE_DEVMAP); \
		__uint(key_size, 4); \
		__uint(value_size, 4); \
		__uint(max_entries, copies); \
	} sp_commit_copies##copies SEC(".maps");
SP_COMMIT_COPIES(1)
SP_COMMIT_COPIES(2)
SP_COMMIT_COPIES(4)
SP_COMMIT_COPIES(8)
SP_COMMIT_COPIES(16)

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_COMMIT_STATS);
	__type(key, __u32);
	__type(value, __u64);
} sp_commit_stats SEC(".maps");

/* The batch that is to be sent. */
struct sp_commit_work {
	__u32 stream;
	__u16 records;
	__u16 words;
	__u64 number;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_commit_work);
} sp_commit_work SEC(".maps");

/* What stands at the beginning of a frame that goes by the loop. */
struct sp_commit_token {
	__u64 magic;
	__u32 stream; /* whose batch is to leave; or SP_COMMIT_NO_STREAM */
	__u16 cpu; /* whose packets are to be carried out */
} __attribute__((packed));
#define SP_COMMIT_MAGIC 0x535020434f4d4d49ull
#define SP_COMMIT_NO_STREAM 0xffffffffu
#define SP_COMMIT_TOKEN_BYTES 60

/* The CPU that this runs on; in test mode the test says which. */
SP_INLINE __u32 sp_cpu(void)
{
	__u32 zero = 0;
	struct sp_test_value *test;

	if (!sp_test_mode)
		return bpf_get_smp_processor_id();
	test = bpf_map_lookup_elem(&sp_test, &zero);
	return test ? test->cpu : 0;
}

SP_INLINE void sp_commit_count(__u32 stat, __u64 by) { sp_count(&sp_commit_stats, stat, by); }

/* What the caller does with a packet that cannot wait here. SP_COMMIT_LATER: it may wait for its
 * turn (sp_commit_defer). */
enum { SP_COMMIT_HAS_ROOM = 0, SP_COMMIT_DROP = -1, SP_COMMIT_WRAP = 1, SP_COMMIT_LATER = 2 };

/* There is no room: one of the two counters, and what becomes of the packet. */
SP_INLINE int sp_commit_full(__u32 dropped, __u32 wrapped)
{
	sp_commit_count(sp_commit_wraps ? wrapped : dropped, 1);
	return sp_commit_wraps ? SP_COMMIT_WRAP : SP_COMMIT_DROP;
}

SP_INLINE struct sp_commit_lot *sp_commit_lot_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&sp_commit_lots, &cpu);
}
/* The index of the stream from this CPU to this line. */
SP_INLINE __u32 sp_commit_index(__u32 cpu, __u32 line)
{
	return cpu * SP_COMMIT_LINES + (line & (SP_COMMIT_LINES - 1));
}
SP_INLINE struct sp_commit_stream *sp_commit_stream_at(__u32 stream)
{
	return bpf_map_lookup_elem(&sp_commit_streams, &stream);
}

#include "stateplane_commit_record.h"
#include "stateplane_commit_release.h"

#endif
