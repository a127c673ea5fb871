/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fast_chain.c: a member of a chain in XDP on a store's host. It takes batches whose records are
 * all here, and passes everything else to user space, untouched (docs/output-commit.md, "The
 * chain's fast path"). core/fast-chain loads it.
 *
 * Owns: tags, the lock of a shard, the order of the steps. Must not know: any system's state.
 * Kernel >= 6.1, clang >= 14.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "stateplane_siphash.h"
#include "stateplane_batch_layouts.h"
#include "stateplane_fast_layouts.h"
#include "stateplane_fast_frame.h"
#include "stateplane_fast_records.h"

#define SP_FAST_TRIES 256 /* of a lock that another CPU has for some microseconds */
#define SP_FAST_TAG_WORD 7
#define SP_FAST_FRONT_BYTES (SP_FAST_FRONT_WORDS * 8)
#define SP_FAST_PASSED SP_FAST_COUNTS /* no reason: the batch was taken */

_Static_assert(SP_FAST_FRONT_BYTES == SP_BATCH_SIGNED_BYTES, "tags cover what is in front");
_Static_assert(SP_FAST_FRONT_BYTES == SP_BATCH_ACK_BYTES, "an answer is as long");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_FAST_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} sp_fast_counts SEC(".maps");

static __always_inline void sp_fast_count(__u32 what, __u32 number)
{
	__u64 *count = bpf_map_lookup_elem(&sp_fast_counts, &what);

	if (count)
		*count += number;
}

/* Copies the message, and finds its records. 0: it is malformed. */
static __always_inline __u32 sp_fast_read(struct xdp_md *xdp, struct sp_fast_work *work,
					  __u64 bytes)
{
	const struct sp_batch_header *header = (const void *)work->scratch->message;
	__u32 body, count;

	if (bytes < SP_FAST_FRONT_BYTES)
		return 0;
	/* The verifier must see both bounds. */
	asm volatile("" : "+r"(bytes));
	if (bytes == 0 || bytes > SP_FAST_FRONT_BYTES + SP_BATCH_RECORDS_BYTES_MAX)
		return 0;
	if (bpf_xdp_load_bytes(xdp, SP_FAST_HEADERS_BYTES, work->scratch->message, bytes))
		return 0;
	body = bpf_ntohs(header->body_bytes);
	count = bpf_ntohs(header->count);
	if (body % 8 || body + SP_FAST_FRONT_BYTES != bytes || count == 0 ||
	    count > SP_BATCH_RECORDS_MAX)
		return 0;
	work->end = SP_FAST_FRONT_WORDS + body / 8;
	return sp_fast_walk(work->scratch, count, work->end) ? count : 0;
}

static __always_inline const __u64 *sp_fast_secret(const struct sp_fast_config *config, __u8 id)
{
	if (id >= SP_FAST_SECRETS || !(config->known_secrets >> id & 1))
		return 0;
	return config->secrets[id & (SP_FAST_SECRETS - 1)];
}

/* Of the records, which end before word `end`. */
static __noinline __u64 sp_fast_digest(const struct sp_fast_scratch *scratch, __u64 key0,
				       __u64 key1, __u32 end)
{
	struct sp_sip sip;

	sp_sip_begin(&sip, key0, key1);
	for (__u32 i = SP_FAST_FRONT_WORDS; i < SP_FAST_MESSAGE_WORDS; i++) {
		if (i >= end)
			break;
		sp_sip_word(&sip, scratch->message[i]);
	}
	return bpf_cpu_to_be64(
		sp_sip_end(&sip, (__u64)((end - SP_FAST_FRONT_WORDS) * 8 & 0xff) << 56));
}

/* Of addresses and front, with the tag as zero. */
static __noinline __u64 sp_fast_tag(const struct sp_fast_scratch *scratch, const __u64 *secret,
				    __u64 addresses)
{
	struct sp_sip sip;

	sp_sip_begin(&sip, secret[0], secret[1]);
	sp_sip_word(&sip, addresses);
	for (int i = 0; i < SP_FAST_FRONT_WORDS; i++)
		sp_sip_word(&sip, i == SP_FAST_TAG_WORD ? 0 : scratch->message[i]);
	return bpf_cpu_to_be64(sp_sip_end(&sip, (__u64)(8 + SP_FAST_FRONT_BYTES) << 56));
}

static __always_inline __u64 sp_fast_addresses(__be32 from, __be32 to)
{
	return (__u64)from | (__u64)to << 32;
}

/* Whether tag and digest are right: the tag first, so a forged batch costs a hash of 80 bytes. */
static __always_inline int sp_fast_is_genuine(const struct sp_fast_work *work, __be32 from)
{
	const struct sp_batch_header *header = (const void *)work->scratch->message;
	const struct sp_fast_config *config = work->config;
	const __u64 *secret = sp_fast_secret(config, header->key_id);

	/* Without a secret to sign with nothing can go on. */
	if (!secret || !sp_fast_secret(config, config->send))
		return 0;
	if (sp_fast_tag(work->scratch, secret, sp_fast_addresses(from, config->address)) !=
	    header->tag)
		return 0;
	secret = sp_fast_secret(config, header->body_key_id);
	if (!secret)
		return 0;
	return sp_fast_digest(work->scratch, secret[0], secret[1], work->end) ==
	       work->scratch->message[SP_FAST_FRONT_WORDS - 1];
}

/* Once more. User space keeps the lock for longer than one waits. */
static long sp_fast_try(__u32 index, void *context)
{
	struct sp_fast_work *work = context;
	__u64 holder = __sync_val_compare_and_swap(&work->shard->lock, SP_FAST_LOCK_FREE,
						   SP_FAST_LOCK_PROGRAM);

	work->has_lock = holder == SP_FAST_LOCK_FREE;
	return work->has_lock || holder == SP_FAST_LOCK_STORE;
}

/* Whether the batch comes from where this member's place in the chain says. */
static __always_inline int sp_fast_comes_right(const struct sp_fast_work *work,
					       const struct sp_fast_origin *origin)
{
	const struct sp_batch_header *header = (const void *)work->scratch->message;
	const struct sp_fast_shard *shard = work->shard;

	if (!(shard->standing & SP_FAST_STANDING_ON))
		return 0;
	/* The answer goes to the protocol's port. */
	if (work->is_head)
		return header->view == 0 && origin->address == header->client &&
		       origin->port == bpf_htons(SP_FAST_PORT);
	return bpf_be64_to_cpu(header->view) == shard->view && origin->address == shard->previous;
}

/* Where a batch goes: the member behind this one, or, with `is_answer`, the switch. */
struct sp_fast_way {
	__u64 view;
	__be32 to;
	__be16 to_port;
	__u8 is_answer;
};

/* Takes the batch's records while the lock is held; SP_FAST_PASSED, or why it did not. */
static __always_inline __u32 sp_fast_take(struct sp_fast_work *work, __u32 count,
					  const struct sp_fast_origin *origin,
					  struct sp_fast_way *way)
{
	const struct sp_batch_header *header = (const void *)work->scratch->message;
	const struct sp_fast_shard *shard = work->shard;

	work->is_head = shard->standing & SP_FAST_STANDING_HEAD;
	if (!sp_fast_comes_right(work, origin))
		return SP_FAST_OFF;
	bpf_loop(count, sp_fast_look, work, 0);
	if (work->reason != SP_FAST_RECORDS)
		return work->reason;
	/* Taken before, and lost behind: an entry of user space does not get lost. */
	if (work->is_head && !work->newer)
		return SP_FAST_KNOWN;
	bpf_loop(count, sp_fast_write, work, 0);
	way->is_answer = (shard->standing & SP_FAST_STANDING_TAIL) != 0;
	way->view = shard->view;
	way->to = way->is_answer ? header->client : shard->next;
	way->to_port = way->is_answer ? bpf_htons(SP_FAST_PORT) : shard->next_port;
	return SP_FAST_PASSED;
}

/* The front of what is sent, signed. */
static __always_inline void sp_fast_sign(struct sp_fast_work *work, const struct sp_fast_way *way)
{
	const struct sp_fast_config *config = work->config;
	struct sp_fast_scratch *scratch = work->scratch;
	struct sp_batch_header *header = (void *)scratch->message;
	const __u64 *secret = config->secrets[config->send & (SP_FAST_SECRETS - 1)];

	if (way->is_answer) {
		header->message_type = SP_BATCH_ACK;
		header->view = 0;
		header->body_bytes = 0;
		header->body_key_id = 0;
		scratch->message[SP_FAST_FRONT_WORDS - 1] = 0; /* no record is refused */
	} else {
		header->view = bpf_cpu_to_be64(way->view);
		/* Under the same secret the digest stays the switch's. */
		if (header->body_key_id != config->send) {
			header->body_key_id = config->send;
			scratch->message[SP_FAST_FRONT_WORDS - 1] =
				sp_fast_digest(scratch, secret[0], secret[1], work->end);
		}
	}
	header->key_id = config->send;
	header->tag = sp_fast_tag(scratch, secret, sp_fast_addresses(config->address, way->to));
}

/* Sends the batch on, or answers it. Never by XDP_TX, which a veth may leave lying. */
static __always_inline int sp_fast_send(struct xdp_md *xdp, struct sp_fast_work *work,
					const struct sp_fast_origin *origin,
					const struct sp_fast_way *way)
{
	__u32 bytes = way->is_answer ? SP_FAST_FRONT_BYTES : origin->bytes;
	struct bpf_fib_lookup route;

	if (!sp_fast_find_route(xdp, work->config, &route, way->to, way->to_port, bytes,
				origin->tos))
		return 0;
	if (way->is_answer &&
	    bpf_xdp_adjust_tail(xdp, SP_FAST_HEADERS_BYTES + SP_FAST_FRONT_BYTES -
					     (int)origin->frame_bytes))
		return 0;
	sp_fast_sign(work, way);
	if (!sp_fast_write_headers(xdp, work->config, &route, way->to, way->to_port, bytes))
		return 0;
	if (bpf_xdp_store_bytes(xdp, SP_FAST_HEADERS_BYTES, work->scratch->message,
				SP_FAST_FRONT_BYTES))
		return 0;
	return bpf_redirect(route.ifindex, 0);
}

/* SP_FAST_PASSED: the batch was taken, and goes `way`. Else why user space gets it. */
static __always_inline __u32 sp_fast_batch(struct xdp_md *xdp, struct sp_fast_work *work,
					   const struct sp_fast_origin *origin, __u32 *count,
					   struct sp_fast_way *way)
{
	const struct sp_batch_header *header = (const void *)work->scratch->message;
	__u32 reason;

	*count = sp_fast_read(xdp, work, origin->bytes);
	if (!*count)
		return SP_FAST_MALFORMED;
	work->shard_number = bpf_ntohs(header->shard);
	if (work->shard_number >= work->config->shards)
		return SP_FAST_OFF;
	if (!sp_fast_is_genuine(work, origin->address))
		return SP_FAST_FORGED;
	work->shard = bpf_map_lookup_elem(&sp_fast_shards, &work->shard_number);
	if (!work->shard)
		return SP_FAST_OFF;
	bpf_loop(SP_FAST_TRIES, sp_fast_try, work, 0);
	if (!work->has_lock)
		return SP_FAST_BUSY;
	reason = sp_fast_take(work, *count, origin, way);
	__sync_lock_test_and_set(&work->shard->lock, SP_FAST_LOCK_FREE);
	return reason;
}

SEC("xdp.frags")
int sp_fast_chain(struct xdp_md *xdp)
{
	struct sp_fast_work work = {};
	struct sp_fast_origin origin = {};
	struct sp_fast_way way = {};
	__u32 zero = 0, count = 0, reason;
	int verdict;

	work.config = bpf_map_lookup_elem(&sp_fast_config, &zero);
	work.scratch = bpf_map_lookup_elem(&sp_fast_scratches, &zero);
	if (!work.config || !work.scratch)
		return XDP_PASS;
	if (!sp_fast_is_batch(xdp, work.config, &origin))
		return XDP_PASS;
	reason = sp_fast_batch(xdp, &work, &origin, &count, &way);
	if (reason != SP_FAST_PASSED) {
		sp_fast_count(reason, 1);
		return XDP_PASS;
	}
	verdict = sp_fast_send(xdp, &work, &origin, &way);
	if (!verdict) {
		sp_fast_count(SP_FAST_NO_ROUTE, 1);
		return XDP_PASS;
	}
	sp_fast_count(way.is_answer ? SP_FAST_ANSWERED : SP_FAST_FORWARDED, 1);
	sp_fast_count(SP_FAST_RECORDS, count);
	return verdict;
}

char LICENSE[] SEC("license") = "GPL";
