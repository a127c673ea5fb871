/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime that compiled P4 programs stand on: packet access, ports, host traffic, arithmetic of
 * P4 widths, checksums, hashes, routes.
 *
 * It owns: the maps that every object has. It must not know: any P4 program, or any
 * system's objects. Kernel >= 6.1, clang >= 14.
 */
#ifndef STATEPLANE_XDP_H
#define STATEPLANE_XDP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define SP_INLINE static __attribute__((always_inline)) inline
#define SP_ROUND8(n) (((n) + 7) & ~7)
/* The verifier accepts packet offsets below 64 KiB; headers end long before 16 KiB. */
#define SP_OFFSET_MASK 0x3fff
/* A header that was not extracted from the packet. */
#define SP_NO_OFFSET 0x7fff

/*
 * A constant array. clang would put one of 8, 16 or 32 bytes into a section that may be merged with
 * others, and describe it as if it were in .rodata: the kernel refuses such type information.
 */
#define SP_CONSTANT static const __attribute__((section(".rodata")))

typedef unsigned __int128 sp_u128;
typedef __int128 sp_s128;
#define SP_U128(high, low) (((sp_u128)(__u64)(high) << 64) | (__u64)(low))

/* Settings: the loader writes them before load, so that the verifier drops dead branches. */
const volatile __u32 sp_test_mode = 0;
const volatile __u32 sp_host_traffic = 0;
const volatile __u32 sp_virtual_clock = 0;
/* Loads and stores take effect in their order, but for a load that passes a store (x86). */
const volatile __u32 sp_total_store_order = 0;

#include "stateplane_layouts.h"

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(key_size, 4);
	__uint(value_size, 8); /* struct bpf_devmap_val */
	__uint(max_entries, SP_MAX_PORTS);
} sp_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32); /* P4 port + 1; 0: not ours */
	__uint(max_entries, SP_MAX_IFINDEX);
} sp_port_by_ifindex SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32); /* network order */
	__type(value, __u8);
	__uint(max_entries, 1024);
} sp_local_ipv4 SEC(".maps");

struct sp_ipv6_address {
	__u32 word[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct sp_ipv6_address);
	__type(value, __u8);
	__uint(max_entries, 1024);
} sp_local_ipv6 SEC(".maps");

/* A filter in front of the addresses above; user space keeps it (local_filter.rs). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_local_filter_value);
	__uint(max_entries, 1);
} sp_local_filter SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_port_stats_value);
	__uint(max_entries, SP_MAX_PORTS);
} sp_port_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_test_value);
	__uint(max_entries, 1);
} sp_test SEC(".maps");

/*
 * ---- Big-endian access. Packet memory may be unaligned (x86-64 and arm64 allow it). The stack may
 * not, so the compiler aligns there. ----
 */
typedef __u16 __attribute__((may_alias)) sp_u16a;
typedef __u32 __attribute__((may_alias)) sp_u32a;
typedef __u64 __attribute__((may_alias)) sp_u64a;

SP_INLINE __u8 sp_get8(const void *p) { return *(const __u8 *)p; }
SP_INLINE __u16 sp_get16(const void *p) { return bpf_ntohs(*(const sp_u16a *)p); }
SP_INLINE __u32 sp_get32(const void *p) { return bpf_ntohl(*(const sp_u32a *)p); }
SP_INLINE __u64 sp_get64(const void *p) { return bpf_be64_to_cpu(*(const sp_u64a *)p); }
SP_INLINE void sp_put8(void *p, __u8 v) { *(__u8 *)p = v; }
SP_INLINE void sp_put16(void *p, __u16 v) { *(sp_u16a *)p = bpf_htons(v); }
SP_INLINE void sp_put32(void *p, __u32 v) { *(sp_u32a *)p = bpf_htonl(v); }
SP_INLINE void sp_put64(void *p, __u64 v) { *(sp_u64a *)p = bpf_cpu_to_be64(v); }

/*
 * ---- What the verifier need not know ----
 * It follows every path with the exact values of that path: offsets and validity of a dozen headers
 * are thousands of paths. Adding a zero that it cannot know to be one leaves it with a range, the
 * same for all paths, and they are one again. Interfaces above 65535 are not ours
 * (sp_ingress_port), so the upper half of the index is that zero.
 */
SP_INLINE __u64 sp_unknown_zero(struct xdp_md *xdp) { return (__u64)xdp->ingress_ifindex >> 16; }

/*
 * The same, and any 64 bits to the verifier: it bounds no product that may overflow. What this is
 * added to has the same bounds on all ways, whatever its width.
 */
SP_INLINE __u64 sp_any_zero(struct xdp_md *xdp)
{
	__u64 zero = sp_unknown_zero(xdp);

	asm("%0 *= %0\n\t%0 *= %0\n\t%0 *= %0" : "+r"(zero));
	return zero;
}

/* value, below 2^14; the compiler must not see through it, or it makes branches again. */
SP_INLINE __u32 sp_blur(__u64 value, __u64 unknown_zero)
{
	asm("%0 += %1\n\t%0 &= 0x3fff" : "+r"(value) : "r"(unknown_zero));
	return (__u32)value;
}

/*
 * value: the caller masks to its width. With sp_unknown_zero the verifier forgets it up to 2^16,
 * with sp_any_zero in all its width.
 */
SP_INLINE __u64 sp_forget(__u64 value, __u64 unknown_zero)
{
	asm("%0 += %1" : "+r"(value) : "r"(unknown_zero));
	return value;
}

/*
 * index, or 0 if it is not below bound (a constant). clang sees no comparison that it could do
 * elsewhere, so the verifier knows the bound of what is used.
 */
#define sp_below(index, bound) \
	({ \
		__u64 sp_index_ = (index); \
		asm volatile("if %0 < %1 goto +1\n\t%0 = 0" : "+r"(sp_index_) : "i"(bound)); \
		sp_index_; \
	})

/* value, 0 or 1. */
SP_INLINE __u32 sp_blur_bit(__u64 value, __u64 unknown_zero)
{
	asm("%0 += %1\n\t%0 &= 1" : "+r"(value) : "r"(unknown_zero));
	return (__u32)value;
}

/*
 * The address of an element of an array on the stack. clang must not know how it is aligned: it
 * would join a member's offset by `|`, which the verifier does not let a pointer have.
 */
#define sp_element(pointer) ({ __typeof__(pointer) sp_pointer = (pointer); asm("" : "+r"(sp_pointer)); sp_pointer; })

/*
 * An index into an array on the stack, checked before. clang must not know how small it is: to the
 * address of an array it would then join the offset by `|`, which the verifier does not let a
 * pointer have.
 */
SP_INLINE __u64 sp_index(__u64 index)
{
	asm("" : "+r"(index));
	return index;
}

#include "stateplane_clock.h"

/* ---- Ports and verdicts ---- */
/* A call, not a load: once for each packet. */
SP_INLINE __u32 sp_length(struct xdp_md *xdp) { return (__u32)bpf_xdp_get_buff_len(xdp); }

/* The P4 port that the frame came in on; 0 if the interface is not ours. */
SP_INLINE int sp_ingress_port(struct xdp_md *xdp, __u32 *port)
{
	if (sp_test_mode) {
		__u32 zero = 0;
		struct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);

		if (!test)
			return 0;
		*port = test->ingress_port & (SP_MAX_PORTS - 1);
		return 1;
	}
	__u32 ifindex = xdp->ingress_ifindex;
	__u32 *found = bpf_map_lookup_elem(&sp_port_by_ifindex, &ifindex);

	if (!found || *found == 0)
		return 0;
	*port = *found - 1;
	return 1;
}

/* An event of a map with one __u64 for each kind of event. */
SP_INLINE void sp_count(void *map, __u32 event, __u64 by)
{
	__u64 *count = bpf_map_lookup_elem(map, &event);

	if (count)
		*count += by;
}

SP_INLINE void sp_count_rx(__u32 port, __u32 bytes)
{
	struct sp_port_stats_value *stats = bpf_map_lookup_elem(&sp_port_stats, &port);

	if (stats) {
		stats->rx_packets++;
		stats->rx_bytes += bytes;
	}
}

SP_INLINE int sp_test_verdict(__u32 verdict, __u32 port, __u32 bytes)
{
	__u32 zero = 0;
	struct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);

	if (test) {
		test->verdict = verdict;
		test->egress_port = port;
		test->egress_bytes = bytes;
	}
	return verdict ? XDP_PASS : XDP_DROP;
}

/* Bytes before the frame that the packet test put there; none outside of test mode. */
SP_INLINE __u32 sp_test_padding(void)
{
	__u32 zero = 0;
	struct sp_test_value *test;

	if (!sp_test_mode)
		return 0;
	test = bpf_map_lookup_elem(&sp_test, &zero);
	return test ? test->padding_bytes & 0xf : 0;
}

/* The kernel takes no frame shorter than an Ethernet header. */
#define SP_LEAST_BYTES 14

/*
 * Moves the head so that the frame of `bytes` bytes has `grow` more. One that would be too short
 * for the kernel gets zeros at its end first, as Ethernet puts them there on the wire.
 */
SP_INLINE int sp_move_head(struct xdp_md *xdp, __s32 grow, __u32 bytes, __u32 padding)
{
	__s32 lacking = SP_LEAST_BYTES - (__s32)(bytes + padding) - grow;

	if (lacking > 0 && bpf_xdp_adjust_tail(xdp, lacking))
		return -1;
	return bpf_xdp_adjust_head(xdp, -grow);
}

/*
 * Cuts the frame to `bytes` bytes. If it would be too short for the kernel, the bytes that should
 * go become zero.
 */
SP_INLINE int sp_cut(struct xdp_md *xdp, __u32 bytes, __u32 padding)
{
	__u32 now = bpf_xdp_get_buff_len(xdp), keep = bytes + padding;
	__u8 zeros[16] = {};
	__u64 cut;

	if (keep >= SP_LEAST_BYTES)
		return bpf_xdp_adjust_tail(xdp, (int)(keep - now));
	if (now != SP_LEAST_BYTES && bpf_xdp_adjust_tail(xdp, (int)(SP_LEAST_BYTES - now)))
		return -1;
	cut = SP_LEAST_BYTES - keep;
	if (cut < 1 || cut > SP_LEAST_BYTES)
		return -1;
	return bpf_xdp_store_bytes(xdp, keep, zeros, cut);
}

/* Verdict: the P4 program drops the packet. */
SP_INLINE int sp_drop(__u32 ingress_port)
{
	struct sp_port_stats_value *stats = bpf_map_lookup_elem(&sp_port_stats, &ingress_port);

	if (stats)
		stats->dropped++;
	return sp_test_mode ? sp_test_verdict(SP_VERDICT_DROP, SP_DROP_PORT, 0) : XDP_DROP;
}

/* Verdict: up to this host's kernel. */
SP_INLINE int sp_to_host(__u32 ingress_port)
{
	struct sp_port_stats_value *stats = bpf_map_lookup_elem(&sp_port_stats, &ingress_port);

	if (stats)
		stats->to_host++;
	return sp_test_mode ? sp_test_verdict(SP_VERDICT_TO_HOST, SP_DROP_PORT, 0) : XDP_PASS;
}

/* Verdict: out of a P4 port, so many bytes long. */
SP_INLINE int sp_forward(__u32 port, __u32 bytes)
{
	struct sp_port_stats_value *stats = bpf_map_lookup_elem(&sp_port_stats, &port);

	if (stats) {
		stats->tx_packets++;
		stats->tx_bytes += bytes;
	}
	if (sp_test_mode)
		return sp_test_verdict(SP_VERDICT_FORWARD, port, bytes);
	return bpf_redirect_map(&sp_ports, port, 0);
}

/* ---- The host's own addresses ---- */
/* `folded`: the address, or the exclusive or of its four words, in host order. */
SP_INLINE int sp_may_be_local(__u32 folded)
{
	__u32 zero = 0, bit = (folded * SP_LOCAL_FILTER_FACTOR) >> (32 - SP_LOCAL_FILTER_BITS);
	struct sp_local_filter_value *filter = bpf_map_lookup_elem(&sp_local_filter, &zero);

	return filter && filter->word[bit >> 6] >> (bit & 63) & 1;
}

/* `address` is in network order. */
SP_INLINE int sp_is_local_ipv4(__u32 address)
{
	return sp_may_be_local(bpf_ntohl(address)) && bpf_map_lookup_elem(&sp_local_ipv4, &address) != 0;
}

SP_INLINE int sp_is_local_ipv6(const struct sp_ipv6_address *address)
{
	__u32 folded = bpf_ntohl(address->word[0] ^ address->word[1] ^ address->word[2] ^ address->word[3]);

	return sp_may_be_local(folded) && bpf_map_lookup_elem(&sp_local_ipv6, address) != 0;
}

/*
 * ---- Traffic of the host itself: ARP, IPv6 neighbour discovery, local, multicast and link-local
 * destinations ----
 */
SP_INLINE int sp_is_host_traffic(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data;
	void *end = (void *)(long)xdp->data_end;

	if (data + 14 + 20 > end)
		return 0;
	__u16 type = sp_get16(data + 12);

	if (type == 0x0806)
		return 1;
	if (type == 0x0800) {
		__u32 destination = *(sp_u32a *)(data + 30);
		__u32 host = bpf_ntohl(destination);

		/* 224/4, 255.255.255.255. (240/4 and 169.254/16 are routed as Linux does.) */
		if ((host >> 28) == 0xe || host == 0xffffffff)
			return 1;
		return sp_is_local_ipv4(destination);
	}
	if (type == 0x86dd) {
		struct sp_ipv6_address destination;

		if (data + 54 > end)
			return 0;
		destination.word[0] = *(sp_u32a *)(data + 38);
		destination.word[1] = *(sp_u32a *)(data + 42);
		destination.word[2] = *(sp_u32a *)(data + 46);
		destination.word[3] = *(sp_u32a *)(data + 50);
		__u32 top = bpf_ntohl(destination.word[0]);

		/* ff00::/8, fe80::/10; neighbour discovery goes to one of them or to a local address. */
		if ((top >> 24) == 0xff || (top >> 22) == (0xfe80 >> 6))
			return 1;
		return sp_is_local_ipv6(&destination);
	}
	return 0;
}

/* ---- P4 arithmetic. Values of bit<W> and int<W> are kept as unsigned integers below 2^W. ---- */
#define sp_signed32(v, w) ((__s32)((__u32)(v) << (32 - (w))) >> (32 - (w)))
#define sp_signed64(v, w) ((__s64)((__u64)(v) << (64 - (w))) >> (64 - (w)))
#define sp_signed128(v, w) sp_extend128(v, w)

SP_INLINE __u64 sp_sat_add64(__u64 a, __u64 b, __u64 max)
{
	__u64 sum = a + b;

	return sum < a || sum > max ? max : sum;
}
/*
 * Zeroes memory that is aligned to 8 bytes. In pieces: clang makes stores of a memset up to 1 KiB,
 * else a call, which BPF does not have; and it joins pieces that touch.
 */
SP_INLINE void sp_clear(void *at, __u32 bytes)
{
	__u64 *words = at;
	__u32 done = 0;

	for (; done + 512 <= bytes; done += 512) {
		__builtin_memset(words + done / 8, 0, 512);
		asm volatile("" ::: "memory");
	}
	__builtin_memset(words + done / 8, 0, bytes - done);
}

/*
 * A value that clang knows nothing of. Of sums of shifted values, (x << 26) - (x << 7), it makes
 * products, x * C, as negative ones of shifted values are: and BPF has no 128-bit product.
 */
SP_INLINE sp_u128 sp_opaque128(sp_u128 v)
{
	__u64 low = (__u64)v;

	/* volatile: else two of one value would be one again */
	asm volatile("" : "+r"(low));
	return SP_U128((__u64)(v >> 64), low);
}

SP_INLINE sp_u128 sp_sat_add128(sp_u128 a, sp_u128 b, sp_u128 max)
{
	sp_u128 sum = a + sp_opaque128(b);

	return sum < a || sum > max ? max : sum;
}
#define sp_sat_sub(a, b) ((a) > (b) ? (a) - (b) : 0)
/*
 * 128 bits: BPF has no library functions, so shifts and products are made of 64-bit ones. Shifts by
 * constants too: of two of them, in the branches of an `if`, clang makes one by a variable. `by` <
 * 128.
 */
SP_INLINE __u64 sp_high64(sp_u128 v)
{
	__u64 high = (__u64)(v >> 64);

	/* else a shift of this would be joined with the one above */
	asm("" : "+r"(high));
	return high;
}
SP_INLINE sp_u128 sp_shl128(sp_u128 v, __u32 by)
{
	__u64 low = (__u64)v;

	if (by >= 64)
		return SP_U128(low << (by - 64), 0);
	if (by == 0)
		return v;
	return SP_U128(sp_high64(v) << by | low >> (64 - by), low << by);
}
SP_INLINE sp_u128 sp_shr128(sp_u128 v, __u32 by)
{
	__u64 high = sp_high64(v);

	if (by >= 64)
		return high >> (by - 64);
	if (by == 0)
		return v;
	return SP_U128(high >> by, (__u64)v >> by | high << (64 - by));
}
/*
 * Arithmetic: the top bits become copies of the sign. (Where that is all there is, it is a
 * widening: of two halves that are the same clang makes a product.)
 */
SP_INLINE sp_u128 sp_sar128(sp_s128 v, __u32 by)
{
	__s64 high = (__s64)sp_high64((sp_u128)v);

	if (by >= 64)
		return (sp_u128)(sp_s128)(high >> (by - 64));
	if (by == 0)
		return (sp_u128)v;
	return SP_U128(high >> by, (__u64)v >> by | (__u64)high << (64 - by));
}
/* int<W> as a signed integer; 64 < W <= 128. */
SP_INLINE sp_s128 sp_extend128(sp_u128 v, int width)
{
	__s64 high = (__s64)(sp_high64(v) << (128 - width)) >> (128 - width);

	return (sp_s128)SP_U128(high, (__u64)v);
}
SP_INLINE sp_u128 sp_mul128(sp_u128 a, sp_u128 b)
{
	__u64 a0 = (__u32)a, a1 = (__u64)a >> 32, b0 = (__u32)b, b1 = (__u64)b >> 32;
	__u64 middle = (a0 * b0 >> 32) + (__u32)(a0 * b1) + (__u32)(a1 * b0);
	__u64 low = middle << 32 | (__u32)(a0 * b0);
	__u64 high = a1 * b1 + (a0 * b1 >> 32) + (a1 * b0 >> 32) + (middle >> 32);

	return SP_U128(high + sp_high64(a) * (__u64)b + (__u64)a * sp_high64(b), low);
}
/* Signed, W <= 64: the exact result fits 128 bits. */
SP_INLINE __u64 sp_sat_signed(sp_s128 exact, int width)
{
	sp_s128 max = ((sp_s128)1 << (width - 1)) - 1;
	sp_s128 min = -max - 1;

	if (exact > max)
		exact = max;
	if (exact < min)
		exact = min;
	return (__u64)exact;
}

/* bit<65> to bit<128> in a map: low word first. */
struct sp_register128 {
	__u64 word[2];
};

/* ---- The Internet checksum (RFC 1071) ---- */
SP_INLINE __u16 sp_csum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)~sum;
}
/*
 * The sum of the bytes from `offset` on, zero-padded to whole words; -1: the frame lies in several
 * buffers, of which only the first can be read. Objects that need it define SP_PAYLOAD_SUM. A
 * global function: the verifier checks it once, not on every path to it.
 */
#ifdef SP_PAYLOAD_SUM
#define SP_MAX_PAYLOAD_BLOCKS 256
__attribute__((noinline)) long sp_payload_sum(struct xdp_md *xdp, __u32 offset)
{
	void *data = (void *)(long)xdp->data;
	void *data_end = (void *)(long)xdp->data_end;
	__u8 *at = data + (offset & SP_OFFSET_MASK);
	__u64 total = 0;

	if (sp_length(xdp) != (__u32)(data_end - data))
		return -1;
	for (int i = 0; i < SP_MAX_PAYLOAD_BLOCKS; i++) {
		if ((void *)(at + 16) > data_end)
			break;
		total += (__u64)sp_get32(at) + sp_get32(at + 4) + sp_get32(at + 8) + sp_get32(at + 12);
		at += 16;
	}
	for (int i = 0; i < 8; i++) {
		if ((void *)(at + 2) > data_end)
			break;
		total += sp_get16(at);
		at += 2;
	}
	if ((void *)(at + 1) <= data_end)
		total += (__u64)sp_get8(at) << 8;
	return (total & 0xffffffff) + (total >> 32);
}
#endif

#define sp_csum_part64(v) ((__u64)(__u32)(v) + (__u32)((v) >> 32))
#define sp_csum_part128(v) (sp_csum_part64((__u64)(v)) + sp_csum_part64(sp_high64(v)))

#include "stateplane_hash.h"

/* ---- Random ---- */
SP_INLINE __u64 sp_random64(void) { return ((__u64)bpf_get_prandom_u32() << 32) | bpf_get_prandom_u32(); }
/* From low to high, both included. */
SP_INLINE __u64 sp_random(__u64 low, __u64 high)
{
	__u64 span = high - low + 1;

	if (high < low)
		return low;
	return span ? low + sp_random64() % span : sp_random64();
}

#include "stateplane_fib.h"

/* For the far end of a veth pair: XDP redirect into a veth needs a program on its peer. */
SEC("xdp.frags")
int sp_pass(struct xdp_md *xdp)
{
	return XDP_PASS;
}

char sp_license[] SEC("license") = "GPL";

#endif
