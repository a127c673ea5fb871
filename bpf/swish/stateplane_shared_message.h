/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_shared_message.h: what messages of shared variables have in common, whatever their
 * consistency: the frame's headers, tags, what is counted.
 *
 * Owns: secrets, counters. Must not know: what a message brings.
 */
#ifndef STATEPLANE_SHARED_MESSAGE_H
#define STATEPLANE_SHARED_MESSAGE_H

#include "stateplane_messages.h"
#include "stateplane_shared_layouts.h"
#include "stateplane_siphash.h"

/* The verifier checks such a function once, and not for each way to it. */
#define SP_SHARED_GLOBAL __attribute__((noinline))

/* Ethernet, IPv4 without options, UDP; then the header, and the cells of whole messages. */
#define SP_SHARED_HEADER_AT 42
#define SP_SHARED_CELLS_AT (SP_SHARED_HEADER_AT + SP_SHARED_HEADER_BYTES)
#define SP_SHARED_FULL_BYTES (SP_SHARED_CELLS_AT + SP_SHARED_CELLS * 4)

#define SP_SHARED_LOAD(place) (*(volatile __typeof__(place) *)&(place))
#define SP_SHARED_STORE(place, value) (*(volatile __typeof__(place) *)&(place) = (value))

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SP_SHARED_STAT_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} sp_shared_stats SEC(".maps");

SP_INLINE void sp_shared_count(__u32 what)
{
	sp_count(&sp_shared_stats, what, 1);
}

SP_INLINE __u32 sp_shared_this_cpu(void)
{
	__u32 zero = 0;

	if (sp_test_mode) {
		struct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);

		return test ? test->cpu & (SP_SHARED_CPUS - 1) : 0;
	}
	return bpf_get_smp_processor_id() & (SP_SHARED_CPUS - 1);
}

/*
 * With what messages of a group are tagged: of each of the fabric's secrets; first those of SDW,
 * then those of EWO.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * SP_SHARED_GROUPS *SP_SHARED_SECRETS);
	__type(key, __u32);
	__type(value, struct sp_shared_secret);
} sp_shared_secrets SEC(".maps");

/* NH over the cells (Black et al., "UMAC", 1999): 2^-32 for each pair of payloads. */
SP_INLINE __u64 sp_shared_nh(const sp_u32a *cells, const __u32 *secret)
{
	__u64 sum = 0;

#pragma clang loop unroll_count(6)
	for (int i = 0; i < SP_SHARED_CELLS; i += 2)
		sum += (__u64)(__u32)(cells[i] + secret[i]) * (__u32)(cells[i + 1] + secret[i + 1]);
	return sum;
}

/*
 * The tag of a message: SipHash over the whole header and the cells' hash. The agent derives the
 * secret from the fabric's, with view, group, members and layout.
 */
SP_SHARED_GLOBAL __u64 sp_shared_tag(struct xdp_md *xdp, __u32 which, __u32 full)
{
	__u8 *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct sp_shared_secret *secret = bpf_map_lookup_elem(&sp_shared_secrets, &which);
	struct sp_sip sip;
	__u64 hash = 0;
	sp_u64a *words;

	if (!secret || !secret->present)
		return 0;
	if (full) {
		if (data + SP_SHARED_FULL_BYTES > end)
			return 0;
		hash = sp_shared_nh((const sp_u32a *)(data + SP_SHARED_CELLS_AT), secret->hash);
	}
	if (data + SP_SHARED_CELLS_AT > end)
		return 0;
	words = (sp_u64a *)(data + SP_SHARED_HEADER_AT);
	sp_sip_begin(&sip, secret->sip[0], secret->sip[1]);
	sp_sip_word(&sip, words[0]);
	sp_sip_word(&sip, words[1]);
	sp_sip_word(&sip, words[2]);
	sp_sip_word(&sip, hash);
	return sp_sip_end(&sip, 32ull << 56);
}

/* The number of the fabric's secret that tags what is sent. */
SP_INLINE __u32 sp_shared_sends(void)
{
	__u32 zero = 0;
	struct sp_secret_set *set = bpf_map_lookup_elem(&sp_secrets, &zero);

	return set ? set->sends & (SP_SHARED_SECRETS - 1) : 0;
}

/* The frame's lengths, and the IPv4 header's checksum. */
SP_INLINE void sp_shared_lengths(__u8 *data, __u32 bytes)
{
	__u32 sum = 0;

	sp_put16(data + 16, bytes - 14);
	sp_put16(data + 38, bytes - 34);
	sp_put16(data + 24, 0);
	for (int i = 14; i < 34; i += 2)
		sum += sp_get16(data + i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sp_put16(data + 24, ~sum);
}

/* A generated frame: all headers. The port is the route's; -1: there is none. */
static __noinline int sp_shared_headers(struct xdp_md *xdp, __u32 own, __u32 address, __u32 flow,
					__u32 to_port)
{
	__u32 port = SP_DROP_PORT, mtu = 0;
	__u64 source_mac = 0, destination_mac = 0;
	__u8 *data;

	if (sp_fib_lookup_ipv4(xdp, xdp->ingress_ifindex, bpf_ntohl(own), bpf_ntohl(address), 17, flow,
			       to_port, SP_SHARED_FULL_BYTES - 14, 0, &port, &source_mac,
			       &destination_mac, &mtu) != SP_FIB_FORWARD)
		return -1;
	data = (void *)(long)xdp->data;
	if (data + SP_SHARED_CELLS_AT > (__u8 *)(long)xdp->data_end)
		return -1;
	sp_put16(data, destination_mac >> 32);
	sp_put32(data + 2, destination_mac);
	sp_put16(data + 6, source_mac >> 32);
	sp_put32(data + 8, source_mac);
	sp_put16(data + 12, 0x0800);
	sp_put16(data + 14, 0x4500);
	sp_put16(data + 18, 0);
	sp_put16(data + 20, 0x4000); /* not to be fragmented */
	sp_put16(data + 22, 64 << 8 | 17);
	*(sp_u32a *)(data + 26) = own;
	*(sp_u32a *)(data + 30) = address;
	sp_put16(data + 34, flow);
	sp_put16(data + 36, to_port);
	sp_put16(data + 40, 0);
	return port;
}

/* A frame that is not needed any more. */
SP_INLINE int sp_shared_end(void)
{
	return sp_test_mode ? sp_test_verdict(SP_VERDICT_DROP, SP_DROP_PORT, 0) : XDP_DROP;
}

SP_INLINE int sp_shared_refuse(__u32 why)
{
	sp_shared_count(why);
	return sp_shared_end();
}

#endif
