/* stateplane_flow_tag.h: the keyed tags of messages, by SipHash-2-4
 * (systems/redplane/docs/state-protocol.md, "Tags"). Part of stateplane_flow.h.
 *
 * Of a message in a frame: source and destination address stand together in the IPv4 header, then
 * comes the datagram, with the tag as zero. Packets may lie
 * in several fragments, so all after the header is copied in chunks to the scratch. */
#ifndef STATEPLANE_FLOW_TAG_H
#define STATEPLANE_FLOW_TAG_H

#include "stateplane_siphash.h"

/* Source and destination address in a frame. */
#define SP_FLOW_ADDRESSES_AT 26
_Static_assert(__builtin_offsetof(struct sp_flow_outer, source) == SP_FLOW_ADDRESSES_AT,
    "IPv4 behind Ethernet");

/* What the chunks' loop works on. */
struct sp_tag_work {
	struct sp_sip sip;
	struct xdp_md *xdp;
	struct sp_flow_scratch *scratch;
	__u32 offset;
	__u32 left;
	__u64 failed;
};

/* One chunk of key, value and packet: whole words into the hash; what is left of the last one stays
 * in the scratch. */
static long sp_tag_chunk(__u32 index, void *context)
{
	struct sp_tag_work *work = context;
	struct sp_flow_scratch *scratch = work->scratch;
	struct sp_sip sip = work->sip;
	__u64 bytes = work->left;

	if (bytes > SP_FLOW_CHUNK_BYTES)
		bytes = SP_FLOW_CHUNK_BYTES;
	asm volatile("" : "+r"(bytes));
	if (bytes < 1 || bytes > SP_FLOW_CHUNK_BYTES)
		return 1;
	scratch->chunk[(bytes / 8) & 63] = 0;
	if (bpf_xdp_load_bytes(work->xdp, work->offset, scratch->chunk, bytes)) {
		work->failed = 1;
		return 1;
	}
	for (__u32 i = 0; i < SP_FLOW_CHUNK_BYTES / 8; i++) {
		if (i >= bytes / 8)
			break;
		sp_sip_word(&sip, scratch->chunk[i]);
	}
	work->sip = sip;
	work->offset += bytes;
	work->left -= bytes;
	return 0;
}

/* The tag of the message in the frame, into *tag; `body_bytes`: key, value and packet. -1: the
 * frame is not so long. */
static __noinline int sp_tag(struct xdp_md *xdp, __u32 key_id, __u32 body_bytes, __u64 *tag)
{
	void *data = (void *)(long)xdp->data;
	struct sp_flow_outer *outer = data;
	struct sp_flow_header *header = (void *)(outer + 1);
	struct sp_flow_scratch *scratch = sp_flow_get_scratch();
	__u32 zero = 0;
	struct sp_secret_set *secrets = bpf_map_lookup_elem(&sp_secrets, &zero);
	struct sp_tag_work work;
	__u64 last;

	if (!scratch || !secrets || !tag ||
	    body_bytes > SP_FLOW_KEY_MAX + SP_FLOW_VALUE_MAX + SP_FLOW_PACKET_MAX ||
	    (void *)(header + 1) > (void *)(long)xdp->data_end)
		return -1;
	key_id &= SP_SECRETS - 1;
	sp_sip_begin(&work.sip, secrets->secret[key_id][0], secrets->secret[key_id][1]);
	sp_sip_word(&work.sip, *(sp_u64a *)(data + SP_FLOW_ADDRESSES_AT));
	for (__u32 i = 0; i < SP_FLOW_HEADER_BYTES / 8 - 1; i++)
		sp_sip_word(&work.sip, ((sp_u64a *)header)[i]);
	sp_sip_word(&work.sip, 0); /* the tag */
	work.xdp = xdp;
	work.scratch = scratch;
	work.offset = SP_FLOW_OUTER_BYTES + SP_FLOW_HEADER_BYTES;
	work.left = body_bytes;
	work.failed = 0;
	if (body_bytes)
		bpf_loop((body_bytes + SP_FLOW_CHUNK_BYTES - 1) / SP_FLOW_CHUNK_BYTES, sp_tag_chunk, &work, 0);
	if (work.failed || work.left)
		return -1;
	last = (__u64)(8 + SP_FLOW_HEADER_BYTES + body_bytes) << 56;
	if (body_bytes & 7)
		last |= scratch->chunk[((body_bytes & (SP_FLOW_CHUNK_BYTES - 1)) / 8) & 31];
	*tag = sp_sip_end(&work.sip, last);
	return 0;
}

#endif
