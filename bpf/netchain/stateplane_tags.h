/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_tags.h: MessageTag of stateplane/netchain.p4: who a message is from, what that client
 * may do and how often, and the tags of messages that leave.
 *
 * Owns: clients' keys, their rates, counters by client. Must not know: operations, chains, slots.
 *
 * A message is the payload of a UDP datagram in IPv4 without options; its tag is SipHash-2-4 over
 * the payload, with the tag field zeroed. A member's tag also covers the packet's
 * addresses. Without them, a recorded message would be genuine at another member of the chain, and
 * its reply could be sent to another client.
 *
 * Invariants:
 * - A message takes from its client's rate only if its tag is genuine: nobody else can use it up.
 * - Nothing leaves with a tag of a key that is not known here.
 */
#ifndef STATEPLANE_TAGS_H
#define STATEPLANE_TAGS_H

#include "stateplane_messages.h"
#include "stateplane_siphash.h"
#include "stateplane_slots_layouts.h"

/* TagResult in stateplane/netchain.p4, by position. */
enum {
	SP_TAG_GENUINE,
	SP_TAG_FORGED,
	SP_TAG_UNKNOWN_KEY,
	SP_TAG_OVER_RATE,
	SP_TAG_DENIED, /* no result of verify(): what permits() counts */
	SP_TAG_COUNT,
};

/* Ethernet, IPv4, UDP. */
#define SP_TAGS_MESSAGE_AT 42
/* Source and destination address in the frame. */
#define SP_TAGS_ADDRESSES_AT 26
/* In a message, in words. */
#define SP_TAGS_TAG_AT 1
/* The longest message, in words. */
#define SP_TAGS_WORDS 40
/* How often a packet tries to take from a rate that other CPUs take from. */
#define SP_TAGS_TRIES 4

/*
 * All keys, exchanged as one: once the agent's exchange returns, no packet sees an old one. The
 * first set has none, so until then everything is dropped.
 */
struct sp_client_key_set {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_TAGS_KEYS);
	__type(key, __u32);
	__type(value, struct sp_client_key);
} sp_no_client_keys SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct sp_client_key_set);
} sp_client_keys SEC(".maps") = {
	.values = { [0] = &sp_no_client_keys },
};

/* By key: when what was taken from its rate so far is paid (CLOCK_MONOTONIC). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SP_TAGS_KEYS);
	__type(key, __u32);
	__type(value, __u64);
} sp_client_paid SEC(".maps");

/* By key: its messages that were dropped. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_TAGS_KEYS);
	__type(key, __u32);
	__type(value, struct sp_client_drops);
} sp_client_drops SEC(".maps");

/*
 * Messages that were dropped or refused, by reason (SP_TAG_). Place 0 counts forged messages of
 * members.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_TAG_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} sp_tags_drops SEC(".maps");

SP_INLINE void sp_tags_count(__u32 what)
{
	sp_count(&sp_tags_drops, what, 1);
}

/* A client's message is dropped, or what it asks for refused. */
static __noinline __u32 sp_tags_drop(__u32 id, __u32 why)
{
	struct sp_client_drops *drops = bpf_map_lookup_elem(&sp_client_drops, &id);

	sp_tags_count(why);
	if (drops && why == SP_TAG_FORGED)
		drops->forged++;
	if (drops && why == SP_TAG_DENIED)
		drops->denied++;
	if (drops && why == SP_TAG_OVER_RATE)
		drops->over_rate++;
	return why;
}

/* Where a message is: its length in bytes, a multiple of 4, and the packet test's padding. */
#define SP_TAGS_WHERE(bytes, padding) (((bytes) & 0x7fff) | (__u32)(padding) << 16)
/* In that: the tag covers the packet's addresses too. */
#define SP_TAGS_ADDRESSES 0x8000

SP_INLINE void *sp_tags_frame(struct xdp_md *xdp, __u32 where)
{
	return (void *)(long)xdp->data + (where >> 16 & 0xf);
}

/* The tag's place in the frame; 0: the frame ends before it. */
SP_INLINE void *sp_tags_place(struct xdp_md *xdp, __u32 where)
{
	void *place = sp_tags_frame(xdp, where) + SP_TAGS_MESSAGE_AT + 8 * SP_TAGS_TAG_AT;

	return place + 8 > (void *)(long)xdp->data_end ? 0 : place;
}

/*
 * The tag of a message under a key; 0: the message is not all there, or too long (a tag that is 0
 * by chance is taken for that). A global function: the verifier checks it once, not on every path
 * to it.
 */
__attribute__((noinline)) __u64 sp_tags_hash(struct xdp_md *xdp, __u32 where, __u64 key0, __u64 key1)
{
	void *end = (void *)(long)xdp->data_end, *at = sp_tags_frame(xdp, where);
	__u32 bytes = where & 0x7fff, words = bytes / 8;
	__u64 last = bytes;
	struct sp_sip sip;

	if (words < 2 || words > SP_TAGS_WORDS || bytes & 3 || at + SP_TAGS_MESSAGE_AT + 16 > end)
		return 0;
	sp_sip_begin(&sip, key0, key1);
	if (where & SP_TAGS_ADDRESSES) {
		sp_sip_word(&sip, *(sp_u64a *)(at + SP_TAGS_ADDRESSES_AT));
		last += 8;
	}
	last <<= 56;
	at += SP_TAGS_MESSAGE_AT;
	sp_sip_word(&sip, *(sp_u64a *)at);
	sp_sip_word(&sip, 0); /* the tag */
	at += 16;
	for (__u32 i = 2; i < SP_TAGS_WORDS; i++) {
		if (i >= words)
			break;
		/* clang must not find out how these move, or it computes with `end`. */
		asm volatile("" : "+r"(at), "+r"(end));
		if (at + 8 > end)
			return 0;
		sp_sip_word(&sip, *(sp_u64a *)at);
		at += 8;
	}
	if (bytes & 4) {
		asm volatile("" : "+r"(at), "+r"(end));
		if (at + 4 > end)
			return 0;
		last |= *(sp_u32a *)at; /* little-endian, as the words */
	}
	return sp_sip_end(&sip, last);
}

/* Takes one message from a client's rate; 0: it is ahead of it. */
SP_INLINE int sp_tags_pay(__u32 id, const struct sp_client_key *key)
{
	__u64 *paid = bpf_map_lookup_elem(&sp_client_paid, &id), now = sp_now_ns(), seen, from;

	if (!paid)
		return 0;
	for (int try = 0; try < SP_TAGS_TRIES; try++) {
		seen = *(volatile __u64 *)paid;
		from = seen > now ? seen : now;
		if (from - now > key->ahead_ns)
			return 0;
		if (__sync_val_compare_and_swap(paid, seen, from + key->interval_ns) == seen)
			return 1;
	}
	return 1; /* other CPUs took at this instant: one message more than its rate */
}

/* The key with a number; 0: there is none, and that is counted. */
SP_INLINE const struct sp_client_key *sp_tags_key(__u32 id)
{
	__u32 zero = 0;
	void *set = bpf_map_lookup_elem(&sp_client_keys, &zero);
	struct sp_client_key *key = set ? bpf_map_lookup_elem(set, &id) : 0;

	if (key && key->rights)
		return key;
	sp_tags_drop(id, SP_TAG_UNKNOWN_KEY);
	return 0;
}

/* A client's message: TagResult. */
static __noinline __u32 sp_tags_verify(struct xdp_md *xdp, __u32 where, __u32 id)
{
	const struct sp_client_key *key = sp_tags_key(id);
	sp_u64a *place = sp_tags_place(xdp, where);

	if (!key)
		return SP_TAG_UNKNOWN_KEY;
	if (id) {
		__u64 claimed = place ? bpf_be64_to_cpu(*place) : 0;

		if (!claimed || sp_tags_hash(xdp, where, key->secret[0], key->secret[1]) != claimed)
			return sp_tags_drop(id, SP_TAG_FORGED);
	}
	if (key->interval_ns && !sp_tags_pay(id, key))
		return sp_tags_drop(id, SP_TAG_OVER_RATE);
	return SP_TAG_GENUINE;
}

/* May the client do that (SP_TAGS_READ, SP_TAGS_WRITE) with this key of the store? */
static __noinline __u32 sp_tags_permits(__u32 id, __u32 right, __u64 high, __u64 low)
{
	const struct sp_client_key *key = sp_tags_key(id);

	if (!key)
		return 0;
	if (right & key->rights && !((high ^ key->prefix[0]) & key->mask[0]) &&
	    !((low ^ key->prefix[1]) & key->mask[1]))
		return 1;
	sp_tags_drop(id, SP_TAG_DENIED);
	return 0;
}

/*
 * A member's message: TagResult. It does not say which of the fabric's secrets it was tagged with:
 * the one that this switch sends with comes first, and others are there only while secrets rotate.
 */
static __noinline __u32 sp_tags_verify_member(struct xdp_md *xdp, __u32 where)
{
	__u32 zero = 0, number;
	struct sp_secret_set *set = bpf_map_lookup_elem(&sp_secrets, &zero);
	sp_u64a *place = sp_tags_place(xdp, where);
	__u64 claimed = place ? bpf_be64_to_cpu(*place) : 0;

	if (set && claimed) {
		for (__u32 i = 0; i < SP_SECRETS; i++) {
			number = (set->sends + i) & (SP_SECRETS - 1);
			if (set->present >> number & 1 &&
			    sp_tags_hash(xdp, where | SP_TAGS_ADDRESSES, set->secret[number][0],
					 set->secret[number][1]) == claimed)
				return SP_TAG_GENUINE;
		}
	}
	sp_tags_count(0);
	return SP_TAG_FORGED;
}

/* With whose key a packet leaves: a client's, by its number, or the members'. */
#define SP_TAGS_UNSIGNED 0x20000
#define SP_TAGS_MEMBER 0x10000

/* Tags the message in the frame, just before it leaves; -1: it may not leave. */
static __noinline int sp_tags_sign(struct xdp_md *xdp, __u32 where, __u32 signer)
{
	__u32 zero = 0, number;
	__u64 tag = 0;
	sp_u64a *place;

	if (signer == SP_TAGS_MEMBER) {
		struct sp_secret_set *set = bpf_map_lookup_elem(&sp_secrets, &zero);

		number = set ? set->sends & (SP_SECRETS - 1) : 0;
		if (!set || !(set->present >> number & 1)) {
			sp_tags_count(SP_TAG_UNKNOWN_KEY);
			return -1;
		}
		tag = sp_tags_hash(xdp, where | SP_TAGS_ADDRESSES, set->secret[number][0],
				   set->secret[number][1]);
	} else {
		const struct sp_client_key *key = sp_tags_key(signer);

		if (!key)
			return -1;
		if (signer)
			tag = sp_tags_hash(xdp, where, key->secret[0], key->secret[1]);
	}
	place = sp_tags_place(xdp, where);
	if (!place || (signer && !tag))
		return -1;
	*place = bpf_cpu_to_be64(tag);
	return 0;
}

#endif
