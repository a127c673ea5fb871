/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_strong.h: tables with SRO of stateplane/swish.p4: what a packet reads and writes
 * (SwiSh §6.1, systems/swish/README.md).
 *
 * Owns: the maps, reads, the writes of a packet until its end. Must not know: frames, decisions.
 *
 * The members of a group are a chain, and write the same batches in the same order. A batch is
 * *committed* when the tail has written it: then all members have. A packet that reads what is not
 * known to be committed waits at its end (stateplane_strong_commit.h).
 *
 * The emitted program defines, before it includes this:
 *   SP_STRONG_OBJECTS(X)    X(name, object id, table number, size, key bytes, value bytes, timed)
 *
 * A `timed` table's values end with a word: after how many seconds without a packet the key's time
 * is over (16 bits; 0: never), and when it last had one (TAI, seconds; 48 bits). It travels with
 * the value, so all members judge alike, as far as their clocks agree.
 *
 * Invariants:
 * - Only the CPU that has the node's lock writes records, and `applying` before it does.
 * - A record's `generation` is odd while it is written. A reader whose two looks at it agree, and
 *   are even, has read one value.
 * - A record keeps its place in the array while the index has its key.
 */
#ifndef STATEPLANE_STRONG_H
#define STATEPLANE_STRONG_H

#include "stateplane_messages.h"
#include "stateplane_strong_layouts.h"

#define SP_COMMIT_KEY_WORDS 16
#define SP_COMMIT_RUNS_AGAIN
#include "stateplane_commit.h"

/* Looks at a record that is being written, at the most. */
#define SP_STRONG_LOOKS 16
/* So often a packet runs again; of each four times it waits its turn before the last one. (The head
 * may be writing all the while that three runs take; and the kernel allows 33 tail calls.) */
#define SP_STRONG_ATTEMPTS 64
#define SP_STRONG_AT_ONCE 4

/* In the place of a time: without end. */
#define SP_STRONG_FOR_GOOD (~0ull)
/* What a record is of: a batch; a batch, at a member that is being given what it lacks; a copy. */
enum { SP_STRONG_NO_COPY, SP_STRONG_COPY_LACKS, SP_STRONG_COPY_GIVEN };

#define SP_STRONG_LOAD(place) (*(volatile __typeof__(place) *)&(place))
#define SP_STRONG_STORE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))

/* Stores a word that other CPUs read without the lock. They see earlier stores before it, and later
 * ones after it. (Only processors that reorder stores need a barrier for that.) */
SP_INLINE void sp_strong_publish(__u64 *place, __u64 value)
{
	asm volatile("" ::: "memory");
	if (sp_total_store_order)
		SP_STRONG_STORE(*place, value);
	else
		__sync_lock_test_and_set(place, value);
	asm volatile("" ::: "memory");
}

/* Adds one to a record's generation, with the same order of stores. */
SP_INLINE void sp_strong_advance(__u32 *generation)
{
	asm volatile("" ::: "memory");
	if (sp_total_store_order)
		SP_STRONG_STORE(*generation, *generation + 1);
	else
		__sync_lock_test_and_set(generation, *generation + 1);
	asm volatile("" ::: "memory");
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* then it begins with a page, so fields with a line */
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_strong_node);
} sp_strong_node SEC(".maps");

/* The two newest views: user space writes the older one's place anew, then sp_strong_words. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct sp_strong_view);
} sp_strong_views SEC(".maps");

/* How many views there were: the lowest bit is the newest one's place. What TAI is ahead of
 * CLOCK_MONOTONIC, in ns: reading it for each packet costs 25 ns. */
enum { SP_STRONG_VIEWS, SP_STRONG_TAI_AHEAD, SP_STRONG_WORD_COUNT };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_STRONG_WORD_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} sp_strong_words SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_STRONG_TABLES);
	__type(key, __u32);
	__type(value, struct sp_strong_table);
} sp_strong_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_STRONG_STAT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} sp_strong_stats SEC(".maps");

SP_INLINE void sp_strong_count(__u32 what) { sp_count(&sp_strong_stats, what, 1); }

/* A packet's way through the program. */
struct sp_strong_context {
	__u32 ingress_port;
	__u16 attempts;
	__u8 records; /* that the packet writes */
	__u8 words; /* of them */
	__u64 snapshot; /* batches that were written here at its first access, and 1; 0: none yet */
	__u64 name; /* what it waits for: sp_commit_name */
	__u8 waits; /* it read what is not known to be committed */
	__u8 again; /* what it read is of two moments: it runs again */
	__u8 refused; /* a statistic: it is dropped */
	__u8 has_read;
};

/* What has no room on the stack: of the packet or message that this CPU works on. */
struct sp_strong_scratch {
	/* a message; a key or value at the end may be read in its greatest length */
	__u64 message[SP_STRONG_HEADER_WORDS + SP_STRONG_WORDS + SP_STRONG_KEY_WORDS +
		      SP_STRONG_VALUE_WORDS];
	__u8 at[SP_STRONG_RECORDS + 1]; /* where each record begins, from the first one on */
	/* the record at hand */
	__u64 key[SP_STRONG_KEY_WORDS];
	__u64 value[SP_STRONG_VALUE_WORDS];
	__u64 since; /* its condition's number */
	__u64 seq; /* of the batch that it is in */
	__u32 object;
	__u32 flags;
	__u32 copies; /* what the record is of: SP_STRONG_NO_COPY and the like */
	__u8 inserts[SP_STRONG_TABLES]; /* new keys of the group so far, by table */
	/* the packet's writes */
	__u64 staged[SP_STRONG_PACKET_WORDS];
	__u8 starts[SP_STRONG_PACKET_RECORDS];
	/* the finished packet */
	__u64 name; /* 0: it is as it came in, and runs again later */
	__u32 port;
	__u32 attempts;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_strong_scratch);
} sp_strong_scratches SEC(".maps");

SP_INLINE struct sp_strong_scratch *sp_strong_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sp_strong_scratches, &zero);
}

SP_INLINE struct sp_strong_node *sp_strong_get_node(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sp_strong_node, &zero);
}

SP_INLINE __u64 sp_strong_word(__u32 which)
{
	__u64 *word = bpf_map_lookup_elem(&sp_strong_words, &which);

	return word ? SP_STRONG_LOAD(*word) : 0;
}

SP_INLINE void sp_strong_copy(void *to, const void *from, __u32 bytes)
{
	for (__u32 i = 0; i < SP_ROUND8(bytes) / 8; i++)
		((volatile __u64 *)to)[i] = ((const volatile __u64 *)from)[i];
}

/*
 * The packet's first access. From then on it sees the batches that are written now: a later read
 * that sees more makes it run again, so a packet sees all of a group or nothing.
 */
SP_INLINE void sp_strong_begin(struct sp_strong_context *strong, struct sp_strong_node *node)
{
	__u64 until;

	if (strong->snapshot)
		return;
	strong->snapshot = SP_STRONG_LOAD(node->applied) + 1;
	/* A removed member reads until its lease is over, and no new batch is committed before. */
	until = SP_STRONG_LOAD(node->reads_ns);
	if (until != SP_STRONG_FOR_GOOD && sp_coarse_ns() >= until)
		strong->refused = SP_STRONG_STAT_NO_LEASE;
}

/* Behind a read. (Of one record alone no two moments can be seen.) */
SP_INLINE void sp_strong_read_done(struct sp_strong_context *strong, struct sp_strong_node *node)
{
	if (strong->has_read && SP_STRONG_LOAD(node->applying) + 1 != strong->snapshot)
		strong->again = 1;
	strong->has_read = 1;
}

/*
 * Notes a write for the packet's end. The key is in the record only once the caller has copied it
 * there: the place, or 0 (there are too many).
 */
SP_INLINE __u64 *sp_strong_stage(struct sp_strong_context *strong, __u32 object, __u32 flags,
				 __u32 words)
{
	struct sp_strong_scratch *scratch = sp_strong_scratch();
	__u64 at = strong->words, *place;
	__u32 size = SP_STRONG_RECORD_WORDS + words;

	if (!scratch || strong->records >= SP_STRONG_PACKET_RECORDS ||
	    at + size > SP_STRONG_PACKET_WORDS) {
		strong->refused = SP_STRONG_STAT_TOO_MANY;
		return 0;
	}
	scratch->starts[sp_below((__u64)strong->records, SP_STRONG_PACKET_RECORDS)] = at;
	place = scratch->staged + sp_below(at, SP_STRONG_PACKET_WORDS - size + 1);
	place[0] = bpf_cpu_to_be64((__u64)object << 48 | (__u64)flags << 40 | (__u64)words << 32);
	place[1] = bpf_cpu_to_be64(strong->snapshot - 1);
	strong->records++;
	strong->words = at + size;
	return place + SP_STRONG_RECORD_WORDS;
}

/* ---- time ----------------------------------------------------------------------------------- */

#define SP_STRONG_STAMP ((1ull << 48) - 1)

#define SP_STRONG_SECOND_NS 1000000000ull

/* TAI. */
SP_INLINE __u64 sp_strong_now_ns(void)
{
	return sp_coarse_ns() + sp_strong_word(SP_STRONG_TAI_AHEAD);
}

SP_INLINE __u64 sp_strong_now_s(void)
{
	return sp_strong_now_ns() / SP_STRONG_SECOND_NS;
}

SP_INLINE __u64 sp_strong_time(__u64 idle_s)
{
	return bpf_cpu_to_be64(idle_s << 48 | sp_strong_now_s());
}

/* How long the key of this word had no packet, in seconds; 0, if its time is never over. */
SP_INLINE __u64 sp_strong_idle_for(__u64 word, __u64 *idle_s)
{
	__u64 now = sp_strong_now_s(), stamp;

	word = bpf_be64_to_cpu(word);
	*idle_s = word >> 48;
	stamp = word & SP_STRONG_STAMP;
	return *idle_s && now > stamp ? now - stamp : 0;
}

/* Had the key of this stamp no packet for more than so many seconds? (A multiplication, where a
 * packet that reads would pay for a division.) */
SP_INLINE int sp_strong_idle_longer(__u64 now_ns, __u64 stamp, __u64 seconds)
{
	return now_ns >= (stamp + seconds + 1) * SP_STRONG_SECOND_NS;
}

/* ---- accesses ------------------------------------------------------------------------------- */

#define SP_STRONG_KW(kb) (SP_ROUND8(kb) / 8)
#define SP_STRONG_RECORD_SIZE(kb, vb) (SP_STRONG_KW(kb) + SP_STRONG_KW(vb))

/*
 * Maps and accesses of one table: NAME from keys to places, NAME_records, NAME_free (places that
 * were given back). User space finds the maps by these names.
 */
#define SP_STRONG_DECLARE(name, id, table, size, kb, vb, timed)                                   \
	struct name##_record {                                                                    \
		__u32 generation;                                                                 \
		__u32 removed;                                                                    \
		__u64 seq; /* the batch that wrote it */                                          \
		__u8 key[SP_ROUND8(kb)];                                                          \
		__u8 value[SP_ROUND8(vb)];                                                        \
	};                                                                                        \
	struct {                                                                                  \
		__uint(type, BPF_MAP_TYPE_HASH);                                                  \
		__uint(max_entries, (size) + SP_STRONG_TOMBS);                                    \
		__uint(key_size, SP_ROUND8(kb));                                                  \
		__type(value, __u32);                                                             \
	} name SEC(".maps");                                                                      \
	struct {                                                                                  \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                 \
		__uint(max_entries, (size) + SP_STRONG_TOMBS);                                    \
		__type(key, __u32);                                                               \
		__type(value, struct name##_record);                                              \
	} name##_records SEC(".maps");                                                            \
	struct {                                                                                  \
		__uint(type, BPF_MAP_TYPE_QUEUE);                                                 \
		__uint(max_entries, (size) + SP_STRONG_TOMBS);                                    \
		__type(value, __u32);                                                             \
	} name##_free SEC(".maps");                                                               \
                                                                                                  \
	/* The packet writes, if `flags` holds. What it has read must still be so then. (A key whose  \
	 * time is over counts as absent, and the head still has it.) */                          \
	SP_INLINE void name##_put(struct sp_strong_context *strong, const __u8 *key,              \
				  const __u8 *value, __u32 flags, __u64 idle_s)                   \
	{                                                                                         \
		struct sp_strong_node *node = sp_strong_get_node();                               \
		__u64 *words;                                                                     \
                                                                                                  \
		if (!node)                                                                        \
			return;                                                                   \
		sp_strong_begin(strong, node);                                                    \
		if (timed)                                                                        \
			flags &= ~SP_STRONG_ABSENT;                                               \
		words = sp_strong_stage(strong, id, flags | (strong->has_read ? SP_STRONG_SINCE : 0), \
					SP_STRONG_RECORD_SIZE(kb, vb));                           \
		if (!words)                                                                       \
			return;                                                                   \
		sp_strong_copy(words, key, kb);                                                   \
		sp_strong_copy(words + SP_STRONG_KW(kb), value, vb);                              \
		if (timed)                                                                        \
			words[SP_STRONG_RECORD_SIZE(kb, vb) - 1] = sp_strong_time(idle_s);        \
	}                                                                                         \
                                                                                                  \
	/* The key's value goes to `value`. 1: the key is there. `uses`: its time begins anew. */ \
	SP_INLINE __u32 name##_get(struct sp_strong_context *strong, const __u8 *key,             \
				   __u8 *value, int uses)                                         \
	{                                                                                         \
		struct sp_strong_node *node = sp_strong_get_node();                               \
		struct name##_record *record = 0;                                                 \
		__u64 seq = 0, committed;                                                         \
		__u32 *place, found = 0, before, same;                                            \
                                                                                                  \
		__builtin_memset(value, 0, SP_ROUND8(vb));                                        \
		if (!node)                                                                        \
			return 0;                                                                 \
		sp_strong_begin(strong, node);                                                    \
		place = bpf_map_lookup_elem(&name, key);                                          \
		if (place)                                                                        \
			record = bpf_map_lookup_elem(&name##_records, place);                     \
		if (!record) {                                                                    \
			/* Its removal may be forgotten here, and not at the tail. */             \
			strong->waits |= SP_STRONG_LOAD(node->forgotten) >                        \
					 SP_STRONG_LOAD(node->committed);                         \
			sp_strong_read_done(strong, node);                                        \
			return 0;                                                                 \
		}                                                                                 \
		same = 0;                                                                         \
		for (int look = 0; look < SP_STRONG_LOOKS; look++) {                              \
			before = SP_STRONG_LOAD(record->generation);                              \
			seq = SP_STRONG_LOAD(record->seq);                                        \
			found = !SP_STRONG_LOAD(record->removed);                                 \
			same = sp_strong_equal(record->key, key, kb);                             \
			sp_strong_copy(value, record->value, vb);                                 \
			if (!(before & 1) && before == SP_STRONG_LOAD(record->generation))        \
				break;                                                            \
			same = 0;                                                                 \
		}                                                                                 \
		/* (The place went to another key meanwhile, or is written all the time.) */      \
		strong->again |= !same;                                                           \
		committed = SP_STRONG_LOAD(node->committed);                                      \
		strong->waits |= seq > committed;                                                 \
		sp_strong_read_done(strong, node);                                                \
		if (timed && found && same) {                                                     \
			__u64 word = bpf_be64_to_cpu(*((__u64 *)(value + SP_ROUND8(vb)) - 1));    \
			__u64 idle_s = word >> 48, stamp = word & SP_STRONG_STAMP;                \
			__u64 now_ns = idle_s ? sp_strong_now_ns() : 0;                           \
                                                                                                  \
			if (sp_strong_idle_longer(now_ns, stamp, idle_s))                         \
				found = 0; /* its time is over: the head removes it soon */       \
			else if (uses && sp_strong_idle_longer(now_ns, stamp, idle_s / 4))        \
				name##_put(strong, key, value, 0, idle_s);                        \
		}                                                                                 \
		if (!found)                                                                       \
			__builtin_memset(value, 0, SP_ROUND8(vb));                                \
		return found;                                                                     \
	}

SP_INLINE int sp_strong_equal(const void *a, const void *b, __u32 bytes)
{
	__u64 difference = 0;

	for (__u32 i = 0; i < SP_ROUND8(bytes) / 8; i++)
		difference |= ((const volatile __u64 *)a)[i] ^ ((const volatile __u64 *)b)[i];
	return difference == 0;
}

SP_STRONG_OBJECTS(SP_STRONG_DECLARE)

/* The group is the engine's one line. */
#define SP_STRONG_LINE 0

#include "stateplane_strong_records.h"
#include "stateplane_strong_message.h"
#include "stateplane_strong_chain.h"
#include "stateplane_strong_round.h"
#include "stateplane_strong_copy.h"
#include "stateplane_strong_lives.h"
#include "stateplane_strong_sweep.h"
#include "stateplane_strong_order.h"
#include "stateplane_strong_commit.h"

#endif
