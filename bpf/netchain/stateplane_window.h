/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_window.h: RequestWindow of stateplane/netchain.p4.
 *
 * Owns: which numbers of a client's newest requests came, and what became of each.
 * Must not know: what requests are, messages, chains.
 *
 * A client has a window of SP_WINDOW_CELLS cells; request number N uses cell N % SP_WINDOW_CELLS. A
 * cell holds the newest of these numbers that came, and its verdict, in one word that a CPU changes
 * by compare-and-swap. A client that begins a request N has no open one below
 * N - (SP_WINDOW_CELLS - 1), so an older number in a cell belongs to a request that is over.
 *
 * Invariants:
 * - The number in a cell never gets smaller, until the agent clears the window of a silent client.
 * - Of all packets with one number, one at a time has claimed it. A number with a verdict is not
 *   claimed again.
 */
#ifndef STATEPLANE_WINDOW_H
#define STATEPLANE_WINDOW_H

/* WindowState in stateplane/netchain.p4, by position. */
enum {
	SP_WINDOW_FRESH,
	SP_WINDOW_RUNNING,
	SP_WINDOW_REFUSED,
	SP_WINDOW_DONE,
	SP_WINDOW_OLD,
	SP_WINDOW_FULL,
};

/* How often a packet tries to change a cell that other CPUs change. */
#define SP_WINDOW_TRIES 4

/*
 * A cell: the number's round, one more than number / SP_WINDOW_CELLS, above three bits of verdict.
 */
#define SP_WINDOW_CELL(number, verdict) ((((number) / SP_WINDOW_CELLS + 1) << 3) | (verdict))

/* What the number's verdict is; FRESH: it had none, and is this packet's now. */
SP_INLINE __u32 sp_window_claim(struct sp_slots_context *slots, __u32 *cell, __u32 object)
{
	__u32 number = slots->number, seen;

	for (int look = 0; look < SP_WINDOW_TRIES; look++) {
		seen = *(volatile __u32 *)cell;
		if (seen >> 3 > SP_WINDOW_CELL(number, 0) >> 3)
			return SP_WINDOW_OLD;
		if (seen >> 3 == SP_WINDOW_CELL(number, 0) >> 3 && seen & 7)
			return seen & 7;
		if (__sync_val_compare_and_swap(
			    cell, seen, SP_WINDOW_CELL(number, SP_WINDOW_RUNNING)) == seen) {
			slots->window = object;
			return SP_WINDOW_FRESH;
		}
	}
	return SP_WINDOW_RUNNING;
}

/* Notes the verdict on a number that this packet has claimed; FRESH gives it back. */
SP_INLINE void sp_window_settle(__u32 *cell, __u32 number, __u32 outcome)
{
	/* A client that broke its promise has moved on meanwhile: then the newer number stays. */
	__sync_val_compare_and_swap(cell, SP_WINDOW_CELL(number, SP_WINDOW_RUNNING),
				    SP_WINDOW_CELL(number, outcome & 7));
}

/*
 * Maps and accesses of one object: the numbers of its clients, and NAME_windows. A client that was
 * silent for long loses its window to others (the agent clears it: systems/netchain/switch).
 */
#define SP_WINDOWS_DECLARE(name, id, size, key_bytes)                                            \
	struct name##_window {                                                                   \
		SP_WINDOW_HEAD                                                                   \
		__u8 key[SP_ROUND8(key_bytes)];                                                  \
		__u32 cells[SP_WINDOW_CELLS];                                                    \
	};                                                                                       \
	SP_SLOTS_INDEX(name, size, key_bytes)                                                    \
	struct {                                                                                 \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                \
		__uint(max_entries, size);                                                       \
		__type(key, __u32);                                                              \
		__type(value, struct name##_window);                                             \
	} name##_windows SEC(".maps");                                                           \
                                                                                                 \
	/* The number of a client's window, which it gets with its first request, or -1. */      \
	static __noinline int name##_client(const __u8 *key)                                     \
	{                                                                                        \
		__u32 *known, number;                                                            \
		struct name##_window *window;                                                    \
		int taken;                                                                       \
                                                                                                 \
		if (!key)                                                                        \
			return -1;                                                               \
		known = bpf_map_lookup_elem(&name, key);                                         \
		if (known)                                                                       \
			return *known;                                                           \
		taken = name##_take();                                                           \
		number = taken;                                                                  \
		window = taken < 0 ? 0 : bpf_map_lookup_elem(&name##_windows, &number);          \
		if (!window)                                                                     \
			return -1;                                                               \
		/* Its cells are zero: they never were in use, or the agent has cleared them. */ \
		sp_slots_copy(window->key, key, key_bytes);                                      \
		if (!bpf_map_update_elem(&name, key, &number, BPF_NOEXIST))                      \
			return number;                                                           \
		/* Another CPU was first, or the map was busy. */                                \
		__builtin_memset(window->key, 0, sizeof(window->key));                           \
		bpf_map_push_elem(&name##_free, &number, 0);                                     \
		known = bpf_map_lookup_elem(&name, key);                                         \
		return known ? (int)*known : -1;                                                 \
	}                                                                                        \
                                                                                                 \
	SP_INLINE __u32 name##_claim(struct sp_slots_context *slots, const __u8 *key,            \
				     __u32 number)                                               \
	{                                                                                        \
		struct name##_window *window;                                                    \
		int client;                                                                      \
                                                                                                 \
		/* The packet runs again, and has it already. */                                 \
		if (slots->window == (id))                                                       \
			return SP_WINDOW_FRESH;                                                  \
		client = name##_client(key);                                                     \
		slots->client = client;                                                          \
		window = client < 0 ? 0 : bpf_map_lookup_elem(&name##_windows, &slots->client);  \
		/* The agent may have given the window to another client at this instant. */     \
		if (!window || !sp_slots_equal(window->key, key, key_bytes)) {                   \
			sp_slots_count(SP_SLOTS_STAT_NO_WINDOW);                                   \
			return SP_WINDOW_FULL;                                                   \
		}                                                                                \
		/* Never 0: that is a window without a client. */                                \
		window->heard_ns = sp_coarse_ns() | 1;                                           \
		slots->number = number;                                                          \
		return sp_window_claim(slots, &window->cells[number % SP_WINDOW_CELLS], id);     \
	}                                                                                        \
                                                                                                 \
	SP_INLINE void name##_settle(struct sp_slots_context *slots, __u32 outcome)              \
	{                                                                                        \
		struct name##_window *window;                                                    \
                                                                                                 \
		if (slots->window != (id))                                                       \
			return;                                                                  \
		slots->window = 0;                                                               \
		window = bpf_map_lookup_elem(&name##_windows, &slots->client);                   \
		if (window)                                                                      \
			sp_window_settle(&window->cells[slots->number % SP_WINDOW_CELLS],        \
					 slots->number, outcome);                                \
	}

#ifdef SP_WINDOWS_OBJECTS
SP_WINDOWS_OBJECTS(SP_WINDOWS_DECLARE)
#define SP_WINDOWS_GIVE_BACK(name, id, size, key_bytes) name##_settle(slots, SP_WINDOW_FRESH);
#else
#define SP_WINDOWS_OBJECTS(X)
#endif

static __noinline void sp_window_give_back(struct sp_slots_context *slots)
{
	if (!slots)
		return;
	SP_WINDOWS_OBJECTS(SP_WINDOWS_GIVE_BACK)
}

#endif
