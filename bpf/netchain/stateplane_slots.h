/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_slots.h: SlotState of stateplane/netchain.p4.
 *
 * Owns: slots, their maps, and the decision whether a packet's write still follows from its read.
 * Must not know: what the values mean, messages, chains.
 *
 * A key names a slot in a hash map; the slots are an array. Elements of a hash map are used again
 * while another CPU still holds a pointer to one; an element of an array stays what it is, and
 * user space can walk the array with a cursor.
 *
 * Invariants:
 * - `generation` is odd while a CPU writes the slot, and from its end to its next key. A reader
 *   whose two looks at it agree, and are even, has read one value, of a slot that has a key. (The
 *   cleared key of a free slot would be the key of zeros.)
 * - A write happens only if `generation` is what the packet's read saw.
 * - A slot is in the hash map under one key at most, and not before it is whole. Its generation is
 *   even only while it is there: a packet may still have the number of a slot that the same key had
 *   before, and must not write a slot that the hash map then refuses.
 *
 * - A key keeps its slot until the program or user space frees it. So a walk over the numbers of
 *   slots meets each key that was there all the time.
 * - `generation` has changed when a slot gets its next key. So a packet that still has the slot's
 *   number neither reads nor writes another key's value.
 *
 * Beside the slots lie short notes of them, which user space reads as memory: the part that the
 * slot's key belongs to, and in which view another switch has acknowledged a copy of it.
 *
 * - A walk gives the keys that packets can read. So a note says that a slot is used, or free, while
 *   its generation is odd.
 */
#ifndef STATEPLANE_SLOTS_H
#define STATEPLANE_SLOTS_H

#include "stateplane_slots_layouts.h"

/* SlotResult in stateplane/netchain.p4, by position. */
enum { SP_SLOT_FOUND, SP_SLOT_ABSENT, SP_SLOT_DONE, SP_SLOT_FULL };

/* What is between a packet's read and its write. */
enum { SP_SLOTS_IDLE, SP_SLOTS_READ, SP_SLOTS_MISSED };

/* What a note says of its slot (`used`). */
enum { SP_SLOT_FREE, SP_SLOT_ENTERED };

/* How often a packet runs again before it is dropped; the kernel allows 33 tail calls. */
#define SP_SLOTS_ATTEMPTS 24
/* How often a reader looks again at a slot that is being written. */
#define SP_SLOTS_LOOKS 16

/* Slots that one step of a walk looks at. */
#define SP_SLOTS_SCAN 128
/* In the place of a slot's number: the walk is over. */
#define SP_SLOTS_END 0xffffffffu

/* A packet's way through the program. */
struct sp_slots_context {
	__u32 ingress_port;
	__u32 attempts;
	__u32 state; /* SP_SLOTS_ */
	__u32 object; /* whose slot was read */
	__u32 slot;
	__u32 generation;
	__u32 again; /* another packet came in between: run once more */
	__u32 window; /* the object of the request that the packet has claimed, or 0 */
	__u32 client; /* its client's number in that object */
	__u32 number; /* the request's */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_SLOTS_STAT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} sp_slots_stats SEC(".maps");

SP_INLINE void sp_slots_count(__u32 what)
{
	sp_count(&sp_slots_stats, what, 1);
}

/* A value in its wire form on its way between slot and program. The stack is too small for it. */
struct sp_slots_scratch {
	__u8 value[SP_SLOTS_VALUE_MAX];
	struct sp_slots_context context; /* of the packet that runs again */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sp_slots_scratch);
} sp_slots_scratch SEC(".maps");

SP_INLINE struct sp_slots_scratch *sp_slots_get_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sp_slots_scratch, &zero);
}

SP_INLINE void sp_slots_copy(void *to, const void *from, __u32 bytes)
{
	for (__u32 i = 0; i < SP_ROUND8(bytes) / 8; i++)
		((volatile __u64 *)to)[i] = ((const volatile __u64 *)from)[i];
}

SP_INLINE int sp_slots_equal(const void *a, const void *b, __u32 bytes)
{
	__u64 difference = 0;

	for (__u32 i = 0; i < SP_ROUND8(bytes) / 8; i++)
		difference |= ((const volatile __u64 *)a)[i] ^ ((const __u64 *)b)[i];
	return difference == 0;
}

/* The P4 program on a packet that was here before; emitted by the compiler. */
int sp_slots_again(struct xdp_md *xdp);
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} sp_slots_programs SEC(".maps") = {
	.values = { [0] = (void *)&sp_slots_again },
};

/*
 * A packet that ends without a verdict leaves its request to the next copy (stateplane_window.h).
 */
static void sp_window_give_back(struct sp_slots_context *slots);

/* The program runs again on the packet, which is as it came in. */
SP_INLINE int sp_slots_run_again(struct xdp_md *xdp, const struct sp_slots_context *slots)
{
	struct sp_slots_scratch *scratch = sp_slots_get_scratch();

	if (!scratch)
		return XDP_ABORTED;
	if (slots->attempts < SP_SLOTS_ATTEMPTS) {
		sp_slots_count(SP_SLOTS_STAT_AGAIN);
		scratch->context.ingress_port = slots->ingress_port;
		scratch->context.attempts = slots->attempts + 1;
		scratch->context.window = slots->window;
		scratch->context.client = slots->client;
		scratch->context.number = slots->number;
		bpf_tail_call(xdp, &sp_slots_programs, 0);
	}
	sp_window_give_back(slots);
	sp_slots_count(SP_SLOTS_STAT_TOO_OFTEN);
	return XDP_DROP;
}

/* The other end of sp_slots_run_again, at the start of sp_slots_again. */
SP_INLINE int sp_slots_resumed(struct sp_slots_context *slots)
{
	struct sp_slots_scratch *scratch = sp_slots_get_scratch();

	if (!scratch)
		return -1;
	slots->ingress_port = scratch->context.ingress_port;
	slots->attempts = scratch->context.attempts;
	slots->window = scratch->context.window;
	slots->client = scratch->context.client;
	slots->number = scratch->context.number;
	return 0;
}

/*
 * The numbers of keys, in an object of `size` elements: NAME from keys to numbers, NAME_free
 * (numbers that were given back), NAME_used (numbers that were ever in use). User space finds the
 * maps by these names.
 */
#define SP_SLOTS_INDEX(name, size, key_bytes)                                                    \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_HASH);                                                 \
		__uint(max_entries, size);                                                       \
		__uint(key_size, SP_ROUND8(key_bytes));                                          \
		__type(value, __u32);                                                            \
	} name SEC(".maps");                                                                     \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_QUEUE);                                                \
		__uint(max_entries, size);                                                       \
		__type(value, __u32);                                                            \
	} name##_free SEC(".maps");                                                              \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                \
		__uint(max_entries, 1);                                                          \
		__type(key, __u32);                                                              \
		__type(value, __u32);                                                            \
	} name##_used SEC(".maps");                                                              \
                                                                                                 \
	/* A slot that no key has, or -1. Which other CPU gets it does not matter. */            \
	static __noinline int name##_take(void)                                                  \
	{                                                                                        \
		__u32 zero = 0, slot = 0, *used = bpf_map_lookup_elem(&name##_used, &zero);      \
                                                                                                 \
		if (!bpf_map_pop_elem(&name##_free, &slot))                                      \
			return slot;                                                             \
		if (!used || *(volatile __u32 *)used >= (size))                                  \
			return -1;                                                               \
		slot = __sync_fetch_and_add(used, 1);                                            \
		/* Two CPUs at the last slot: one of them is too late. */                        \
		return slot < (size) ? (int)slot : -1;                                           \
	}

/* A note of a slot that is not copied yet, as one word. */
SP_INLINE __u64 sp_slots_note(__u32 part, __u32 used)
{
	union {
		struct sp_slot_mark mark;
		__u64 word;
	} note = { .mark = { .part = part, .used = used } };

	return note.word;
}

/* What is noted of the slots of one object: NAME_marks. */
#define SP_SLOTS_MARKS(name, size)                                                               \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                \
		__uint(map_flags, BPF_F_MMAPABLE);                                               \
		__uint(max_entries, size);                                                       \
		__type(key, __u32);                                                              \
		__type(value, struct sp_slot_mark);                                              \
	} name##_marks SEC(".maps");                                                             \
                                                                                                 \
	/* The slot gets a key of this part, or is free (SP_SLOT_). A note changes at once. */   \
	static __noinline void name##_mark(__u32 number, __u32 part, __u32 used)                 \
	{                                                                                        \
		struct sp_slot_mark *mark = bpf_map_lookup_elem(&name##_marks, &number);         \
                                                                                                 \
		if (mark)                                                                        \
			*(volatile __u64 *)mark = sp_slots_note(part, used);                     \
	}                                                                                        \
                                                                                                 \
	/*                                                                                       \
	 * Another switch has acknowledged a message about the slot, in this view of its part.   \
	 * The number may have gone to a key of another part meanwhile, whose views are others.  \
	 */                                                                                      \
	static __noinline void name##_copied(__u32 number, __u32 part, __u32 view)               \
	{                                                                                        \
		struct sp_slot_mark *mark = bpf_map_lookup_elem(&name##_marks, &number);         \
		struct sp_slot_mark now;                                                         \
		__u64 before, after;                                                             \
                                                                                                 \
		if (!mark)                                                                       \
			return;                                                                  \
		before = *(volatile __u64 *)mark;                                                \
		__builtin_memcpy(&now, &before, sizeof(now));                                    \
		if (now.used != SP_SLOT_ENTERED || now.part != (__u16)part)                      \
			return;                                                                  \
		now.copied_view = view;                                                          \
		__builtin_memcpy(&after, &now, sizeof(after));                                   \
		__sync_val_compare_and_swap((__u64 *)mark, before, after);                       \
	}

/* Maps and accesses of one object: the numbers of its keys, NAME_slots, NAME_marks. */
#define SP_SLOTS_DECLARE(name, id, size, key_bytes, value_bytes)                                 \
	struct name##_slot {                                                                     \
		SP_SLOT_HEAD                                                                     \
		__u8 key[SP_ROUND8(key_bytes)];                                                  \
		__u8 value[SP_ROUND8(value_bytes)];                                              \
	};                                                                                       \
	SP_SLOTS_INDEX(name, size, key_bytes)                                                    \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                \
		__uint(max_entries, size);                                                       \
		__type(key, __u32);                                                              \
		__type(value, struct name##_slot);                                               \
	} name##_slots SEC(".maps");                                                             \
	SP_SLOTS_MARKS(name, size)                                                               \
                                                                                                 \
	SP_INLINE __u32 name##_read(struct sp_slots_context *slots, const __u8 *key)             \
	{                                                                                        \
		struct sp_slots_scratch *scratch = sp_slots_get_scratch();                       \
		__u32 *number = bpf_map_lookup_elem(&name, key);                                 \
		struct name##_slot *slot;                                                        \
                                                                                                 \
		if (!scratch)                                                                    \
			return SP_SLOT_ABSENT;                                                   \
		slots->object = (id);                                                            \
		slots->state = SP_SLOTS_MISSED;                                                  \
		if (number) {                                                                    \
			slots->slot = *number;                                                   \
			slot = bpf_map_lookup_elem(&name##_slots, &slots->slot);                 \
			for (int look = 0; slot && look < SP_SLOTS_LOOKS; look++) {              \
				__u32 before = *(volatile __u32 *)&slot->generation;             \
				int same = sp_slots_equal(slot->key, key, key_bytes);            \
                                                                                                 \
				sp_slots_copy(scratch->value, slot->value, value_bytes);         \
				if (before & 1 ||                                                \
				    before != *(volatile __u32 *)&slot->generation)              \
					continue;                                                \
				if (!same)                                                       \
					break; /* the slot went to another key */                \
				slots->generation = before;                                      \
				slots->state = SP_SLOTS_READ;                                    \
				return SP_SLOT_FOUND;                                            \
			}                                                                        \
			slots->again = 1;                                                        \
			return SP_SLOT_FOUND;                                                    \
		}                                                                                \
		__builtin_memset(scratch->value, 0, SP_ROUND8(value_bytes));                     \
		return SP_SLOT_ABSENT;                                                           \
	}                                                                                        \
                                                                                                 \
	/*                                                                               \
	 * A step of a walk: the next key of a part from slot `at` on, in at most SP_SLOTS_SCAN\
	 * slots. In the scratch are the key's bits that are wanted, then those that count;\
	 * afterwards the key. A key whose value ends with the byte `hidden` is passed by.\
	 * SP_SLOT_FOUND or SP_SLOT_ABSENT in the upper half, where to go on in the lower one.\
	 * A global function: the verifier checks it once.                               \
	 */                                                                              \
	__attribute__((noinline)) __u64 name##_next(__u32 at, __u32 part, __u32 hidden)  \
	{                                                                                \
		struct sp_slots_scratch *scratch = sp_slots_get_scratch();               \
		__u32 zero = 0, *used = bpf_map_lookup_elem(&name##_used, &zero);        \
		const __u64 nothing = (__u64)SP_SLOT_ABSENT << 32;                       \
		__u64 key[SP_ROUND8(key_bytes) / 8], *wanted, *counts, difference;       \
		__u32 end, before, used_as;                                              \
                                                                                         \
		if (!scratch || !used)                                                   \
			return nothing | SP_SLOTS_END;                                   \
		wanted = (void *)scratch->value;                                         \
		counts = wanted + SP_ROUND8(key_bytes) / 8;                              \
		end = *(volatile __u32 *)used;                                           \
		for (int i = 0; i < SP_SLOTS_SCAN; i++, at++) {                          \
			struct sp_slot_mark *mark;                                       \
			struct name##_slot *slot;                                        \
                                                                                         \
			if (at >= end)                                                   \
				return nothing | SP_SLOTS_END;                           \
			mark = bpf_map_lookup_elem(&name##_marks, &at);                  \
			if (!mark)                                                       \
				return nothing | SP_SLOTS_END;                           \
			if (!*(volatile __u16 *)&mark->used ||                           \
			    *(volatile __u16 *)&mark->part != (__u16)part)               \
				continue;                                                \
			slot = bpf_map_lookup_elem(&name##_slots, &at);                  \
			if (!slot)                                                       \
				return nothing | SP_SLOTS_END;                           \
			before = *(volatile __u32 *)&slot->generation;                   \
			difference = *(volatile __u8 *)&slot->value[(value_bytes) - 1] == hidden;\
			for (__u32 word = 0; word < SP_ROUND8(key_bytes) / 8; word++) {  \
				key[word] = ((volatile __u64 *)slot->key)[word];         \
				difference |= (key[word] ^ wanted[word]) & counts[word]; \
			}                                                                \
			/* Of the slot as it was read. */                                \
			used_as = *(volatile __u16 *)&mark->used;                        \
			difference |= *(volatile __u16 *)&mark->part != (__u16)part;     \
			/* It is being written: the next step looks again. */            \
			if (before & 1 || before != *(volatile __u32 *)&slot->generation)\
				return nothing | at;                                     \
			if (difference || used_as == SP_SLOT_FREE)                       \
				continue;                                                \
			sp_slots_copy(wanted, key, key_bytes);                           \
			return (__u64)SP_SLOT_FOUND << 32 | (at + 1);                    \
		}                                                                        \
		return nothing | at;                                                     \
	}                                                                                \
                                                                                                 \
	/*                                                                                       \
	 * The key of a slot, if the slot has one of this part; else 0. (The note changes only while\
	 * the slot's generation is odd: so key and note belong together.)                       \
	 */                                                                                      \
	SP_INLINE int name##_key(__u32 number, __u32 part, __u64 *key)                           \
	{                                                                                        \
		struct sp_slot_mark *mark = bpf_map_lookup_elem(&name##_marks, &number);         \
		struct name##_slot *slot = bpf_map_lookup_elem(&name##_slots, &number);          \
		__u32 before;                                                                    \
                                                                                                 \
		if (!mark || !slot)                                                              \
			return 0;                                                                \
		before = *(volatile __u32 *)&slot->generation;                                   \
		sp_slots_copy(key, slot->key, key_bytes);                                        \
		return !(before & 1) && *(volatile __u16 *)&mark->used &&                        \
		       *(volatile __u16 *)&mark->part == (__u16)part &&                          \
		       before == *(volatile __u32 *)&slot->generation;                           \
	}                                                                                        \
	/* A key without a slot gets one. */                                                     \
	static __noinline __u32 name##_insert(struct sp_slots_context *slots, const __u8 *key,   \
					      const __u8 *value, __u32 part)                     \
	{                                                                                        \
		int taken = name##_take();                                                       \
		__u32 number = taken;                                                            \
		struct name##_slot *slot;                                                        \
		long failed;                                                                     \
                                                                                                 \
		if (!slots || !key || !value)                                                    \
			return SP_SLOT_FULL;                                                     \
		slot = taken < 0 ? 0 : bpf_map_lookup_elem(&name##_slots, &number);              \
		if (!slot) {                                                                     \
			sp_slots_count(SP_SLOTS_STAT_FULL);                                      \
			return SP_SLOT_FULL;                                                     \
		}                                                                                \
		bpf_spin_lock(&slot->lock);                                                      \
		*(volatile __u32 *)&slot->generation |= 1;                                       \
		sp_slots_copy(slot->key, key, key_bytes);                                        \
		sp_slots_copy(slot->value, value, value_bytes);                                  \
		bpf_spin_unlock(&slot->lock);                                                    \
		failed = bpf_map_update_elem(&name, key, &number, BPF_NOEXIST);                  \
		if (!failed)                                                                     \
			name##_mark(number, part, SP_SLOT_ENTERED);                              \
		bpf_spin_lock(&slot->lock);                                                      \
		if (!failed) {                                                                   \
			*(volatile __u32 *)&slot->generation += 1;                               \
		} else {                                                                         \
			__builtin_memset(slot->key, 0, sizeof(slot->key));                       \
			__builtin_memset(slot->value, 0, sizeof(slot->value));                   \
		}                                                                                \
		bpf_spin_unlock(&slot->lock);                                                    \
		if (!failed)                                                                     \
			return SP_SLOT_DONE;                                                     \
		bpf_map_push_elem(&name##_free, &number, 0);                                     \
		slots->again = 1; /* another CPU inserted the key, or the map was busy */        \
		return SP_SLOT_ABSENT;                                                           \
	}                                                                                        \
	                                                                                         \
	SP_INLINE __u32 name##_write(struct sp_slots_context *slots, const __u8 *key,            \
				     const __u8 *value, __u32 part)                              \
	{                                                                                        \
		struct name##_slot *slot;                                                        \
		__u32 state = slots->object == (id) ? slots->state : SP_SLOTS_IDLE;              \
                                                                                                 \
		slots->state = SP_SLOTS_IDLE;                                                    \
		if (state == SP_SLOTS_MISSED)                                                    \
			return name##_insert(slots, key, value, part);                           \
		slot = state == SP_SLOTS_READ ?                                                  \
			bpf_map_lookup_elem(&name##_slots, &slots->slot) : 0;                    \
		if (!slot) {                                                                     \
			sp_slots_count(SP_SLOTS_STAT_NO_READ);                                   \
			return SP_SLOT_FULL;                                                     \
		}                                                                                \
		bpf_spin_lock(&slot->lock);                                                      \
		if (*(volatile __u32 *)&slot->generation != slots->generation) {                 \
			bpf_spin_unlock(&slot->lock);                                            \
			slots->again = 1;                                                        \
			return SP_SLOT_FOUND;                                                    \
		}                                                                                \
		*(volatile __u32 *)&slot->generation += 1;                                       \
		sp_slots_copy(slot->value, value, value_bytes);                                  \
		*(volatile __u32 *)&slot->generation += 1;                                       \
		bpf_spin_unlock(&slot->lock);                                                    \
		return SP_SLOT_DONE;                                                             \
	}                                                                                        \
                                                                                                 \
	/* The slot that this packet has read is free. Nobody writes it while it is odd. */      \
	static __noinline void name##_give_back(struct sp_slots_context *slots, const __u8 *key) \
	{                                                                                        \
		struct name##_slot *slot;                                                        \
		__u32 number;                                                                    \
		long busy;                                                                       \
                                                                                                 \
		if (!slots || !key || slots->object != (id) || slots->state != SP_SLOTS_READ)    \
			return;                                                                  \
		slots->state = SP_SLOTS_IDLE;                                                    \
		number = slots->slot;                                                            \
		slot = bpf_map_lookup_elem(&name##_slots, &number);                              \
		if (!slot)                                                                       \
			return;                                                                  \
		bpf_spin_lock(&slot->lock);                                                      \
		if (*(volatile __u32 *)&slot->generation != slots->generation) {                 \
			bpf_spin_unlock(&slot->lock);                                            \
			slots->again = 1;                                                        \
			return;                                                                  \
		}                                                                                \
		*(volatile __u32 *)&slot->generation += 1;                                       \
		bpf_spin_unlock(&slot->lock);                                                    \
		busy = bpf_map_delete_elem(&name, key);                                          \
		if (!busy)                                                                       \
			name##_mark(number, 0, SP_SLOT_FREE);                                    \
		bpf_spin_lock(&slot->lock);                                                      \
		if (!busy) {                                                                     \
			__builtin_memset(slot->key, 0, sizeof(slot->key));                       \
			__builtin_memset(slot->value, 0, sizeof(slot->value));                   \
		} else {                                                                         \
			*(volatile __u32 *)&slot->generation += 1;                               \
		}                                                                                \
		bpf_spin_unlock(&slot->lock);                                                    \
		if (busy) {                                                                      \
			slots->again = 1; /* the map was busy: the key still has its slot */     \
			return;                                                                  \
		}                                                                                \
		bpf_map_push_elem(&name##_free, &number, 0);                                     \
	}

#ifdef SP_SLOTS_OBJECTS
SP_SLOTS_OBJECTS(SP_SLOTS_DECLARE)
#endif

#endif
