/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_siphash.h: SipHash-2-4, word by word (Aumasson and Bernstein, "SipHash: a fast
 * short-input PRF", 2012): the keyed tags of messages.
 *
 * Must not know: which bytes a tag covers, whose the key is.
 */
#ifndef STATEPLANE_SIPHASH_H
#define STATEPLANE_SIPHASH_H

struct sp_sip {
	__u64 v0, v1, v2, v3;
};

#define SP_ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

static __always_inline void sp_sip_round(struct sp_sip *s)
{
	s->v0 += s->v1;
	s->v1 = SP_ROTATE(s->v1, 13) ^ s->v0;
	s->v0 = SP_ROTATE(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = SP_ROTATE(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = SP_ROTATE(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = SP_ROTATE(s->v1, 17) ^ s->v2;
	s->v2 = SP_ROTATE(s->v2, 32);
}

/* The key as two little-endian words. */
static __always_inline void sp_sip_begin(struct sp_sip *s, __u64 key0, __u64 key1)
{
	s->v0 = key0 ^ 0x736f6d6570736575ull;
	s->v1 = key1 ^ 0x646f72616e646f6dull;
	s->v2 = key0 ^ 0x6c7967656e657261ull;
	s->v3 = key1 ^ 0x7465646279746573ull;
}

static __always_inline void sp_sip_word(struct sp_sip *s, __u64 word)
{
	s->v3 ^= word;
	sp_sip_round(s);
	sp_sip_round(s);
	s->v0 ^= word;
}

/* `last`: what is left of the input, less than a word, and the input's length in the top byte. */
static __always_inline __u64 sp_sip_end(struct sp_sip *s, __u64 last)
{
	sp_sip_word(s, last);
	s->v2 ^= 0xff;
	for (int i = 0; i < 4; i++)
		sp_sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
