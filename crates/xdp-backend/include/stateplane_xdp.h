/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime that compiled P4 programs stand on: packet access, ports, host traffic, arithmetic of P4 widths, checksums, hashes, routes.
 *
 * It owns: the maps that every object has. It must not know: any P4 program, or FlowState (stateplane_flow.h).
 * Kernel >= 6.1, clang >= 14.
 */
#ifndef STATEPLANE_XDP_H
#define STATEPLANE_XDP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define SP_INLINE static __attribute__((always_inline)) inline
#define SP_DROP_PORT 511
#define SP_MAX_PORTS 512
#define SP_MAX_IFINDEX 65536
/* The verifier accepts packet offsets below 64 KiB; headers end long before 16 KiB. */
#define SP_OFFSET_MASK 0x3fff
/* A header that was not extracted from the packet. */
#define SP_NO_OFFSET 0x7fff

typedef unsigned __int128 sp_u128;
typedef __int128 sp_s128;
#define SP_U128(high, low) (((sp_u128)(__u64)(high) << 64) | (__u64)(low))

/* Settings: the loader writes them before load, so that the verifier drops dead branches. */
const volatile __u32 sp_test_mode = 0;
const volatile __u32 sp_host_traffic = 0;
const volatile __u32 sp_virtual_clock = 0;

struct sp_port_stats_value {
	__u64 rx_packets;
	__u64 rx_bytes;
	__u64 tx_packets;
	__u64 tx_bytes;
	__u64 dropped;
	__u64 to_host;
};

struct sp_test_value {
	__u32 ingress_port;
	__u32 egress_port;
	__u32 verdict; /* 0 drop, 1 forward, 2 to host */
	__u32 padding_bytes; /* in front of the frame: the kernel runs none under 14 bytes */
	__u64 clock_ns;
};

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

/* ---- Big-endian access. Packet memory may be unaligned (x86-64 and arm64 allow it); the stack may not, so the compiler aligns there. ---- */
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
 * It follows every path with the exact values of that path: offsets and validity of a dozen headers are thousands of paths. Adding a zero that
 * it cannot know to be one leaves it with a range, the same for all paths, and they are one again. Interfaces above 65535 are not ours
 * (sp_ingress_port), so the upper half of the index is that zero.
 */
SP_INLINE __u64 sp_unknown_zero(struct xdp_md *xdp) { return (__u64)xdp->ingress_ifindex >> 16; }

/* value, below 2^14; the compiler must not see through it, or it makes branches again. */
SP_INLINE __u32 sp_blur(__u64 value, __u64 unknown_zero)
{
	asm("%0 += %1\n\t%0 &= 0x3fff" : "+r"(value) : "r"(unknown_zero));
	return (__u32)value;
}

/* value, below 2^16: the caller masks to its width. */
SP_INLINE __u64 sp_forget(__u64 value, __u64 unknown_zero)
{
	asm("%0 += %1" : "+r"(value) : "r"(unknown_zero));
	return value;
}

/* value, 0 or 1. */
SP_INLINE __u32 sp_blur_bit(__u64 value, __u64 unknown_zero)
{
	asm("%0 += %1\n\t%0 &= 1" : "+r"(value) : "r"(unknown_zero));
	return (__u32)value;
}

/*
 * An index into an array on the stack, checked before. clang must not know how small it is: to the address of an array it would then join the
 * offset by `|`, which the verifier does not let a pointer have.
 */
SP_INLINE __u64 sp_index(__u64 index)
{
	asm("" : "+r"(index));
	return index;
}

/* ---- Time ---- */
SP_INLINE __u64 sp_now_ns(void)
{
	if (sp_virtual_clock) {
		__u32 zero = 0;
		struct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);

		return test ? test->clock_ns : 0;
	}
	return bpf_ktime_get_ns();
}

/* What all machines call now, as far as their clocks are set: unlike the clock above, which each begins at its own boot. */
SP_INLINE __u64 sp_wall_clock_ns(void)
{
	return sp_virtual_clock ? sp_now_ns() : bpf_ktime_get_tai_ns();
}

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

SP_INLINE void sp_count_rx(__u32 port, __u32 bytes)
{
	struct sp_port_stats_value *stats = bpf_map_lookup_elem(&sp_port_stats, &port);

	if (stats) {
		stats->rx_packets++;
		stats->rx_bytes += bytes;
	}
}

SP_INLINE int sp_test_verdict(__u32 verdict, __u32 port)
{
	__u32 zero = 0;
	struct sp_test_value *test = bpf_map_lookup_elem(&sp_test, &zero);

	if (test) {
		test->verdict = verdict;
		test->egress_port = port;
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

/* Verdict: the P4 program drops the packet. */
SP_INLINE int sp_drop(__u32 ingress_port)
{
	struct sp_port_stats_value *stats = bpf_map_lookup_elem(&sp_port_stats, &ingress_port);

	if (stats)
		stats->dropped++;
	return sp_test_mode ? sp_test_verdict(0, SP_DROP_PORT) : XDP_DROP;
}

/* Verdict: up to this host's kernel. */
SP_INLINE int sp_to_host(__u32 ingress_port)
{
	struct sp_port_stats_value *stats = bpf_map_lookup_elem(&sp_port_stats, &ingress_port);

	if (stats)
		stats->to_host++;
	return sp_test_mode ? sp_test_verdict(2, SP_DROP_PORT) : XDP_PASS;
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
		return sp_test_verdict(1, port);
	return bpf_redirect_map(&sp_ports, port, 0);
}

/* ---- Traffic of the host itself: ARP, IPv6 neighbour discovery, local, multicast and link-local destinations ---- */
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

		if ((host >> 28) >= 0xe || (host >> 16) == 0xa9fe)
			return 1;
		return bpf_map_lookup_elem(&sp_local_ipv4, &destination) != 0;
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
		return bpf_map_lookup_elem(&sp_local_ipv6, &destination) != 0;
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
/* Zeroes memory that is aligned to 8 bytes. In pieces: clang makes stores of memset up to 1 KiB, else a call, which BPF has not; and joins what touches. */
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
 * A value that clang knows nothing of. Of sums of shifted values, (x << 26) - (x << 7), it makes products, x * C, as negative ones of shifted values are: and
 * BPF has no 128-bit product.
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
 * 128 bits: BPF has no library functions, so shifts and products are made of 64-bit ones. Shifts by constants too: of two of them, in the branches of an `if`,
 * clang makes one by a variable. `by` < 128.
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
/* Arithmetic: the top bits become copies of the sign. (Where that is all there is, it is a widening: of two halves that are the same clang makes a product.) */
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

struct sp_counter_value {
	__u64 packets;
	__u64 bytes;
};

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
 * The sum of the bytes from `offset` on, zero-padded to whole words; -1: the frame lies in several buffers, of which only the first can be read.
 * Objects that need it define SP_PAYLOAD_SUM. A global function: the verifier checks it once, not on every path to it.
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

/* ---- Hashes over byte strings on the stack; n is a constant ---- */
static const __u32 sp_crc32_table[256] = {
	0x00000000, 0x77073096, 0xee0e612c, 0x990951ba, 0x076dc419, 0x706af48f, 0xe963a535, 0x9e6495a3,
	0x0edb8832, 0x79dcb8a4, 0xe0d5e91e, 0x97d2d988, 0x09b64c2b, 0x7eb17cbd, 0xe7b82d07, 0x90bf1d91,
	0x1db71064, 0x6ab020f2, 0xf3b97148, 0x84be41de, 0x1adad47d, 0x6ddde4eb, 0xf4d4b551, 0x83d385c7,
	0x136c9856, 0x646ba8c0, 0xfd62f97a, 0x8a65c9ec, 0x14015c4f, 0x63066cd9, 0xfa0f3d63, 0x8d080df5,
	0x3b6e20c8, 0x4c69105e, 0xd56041e4, 0xa2677172, 0x3c03e4d1, 0x4b04d447, 0xd20d85fd, 0xa50ab56b,
	0x35b5a8fa, 0x42b2986c, 0xdbbbc9d6, 0xacbcf940, 0x32d86ce3, 0x45df5c75, 0xdcd60dcf, 0xabd13d59,
	0x26d930ac, 0x51de003a, 0xc8d75180, 0xbfd06116, 0x21b4f4b5, 0x56b3c423, 0xcfba9599, 0xb8bda50f,
	0x2802b89e, 0x5f058808, 0xc60cd9b2, 0xb10be924, 0x2f6f7c87, 0x58684c11, 0xc1611dab, 0xb6662d3d,
	0x76dc4190, 0x01db7106, 0x98d220bc, 0xefd5102a, 0x71b18589, 0x06b6b51f, 0x9fbfe4a5, 0xe8b8d433,
	0x7807c9a2, 0x0f00f934, 0x9609a88e, 0xe10e9818, 0x7f6a0dbb, 0x086d3d2d, 0x91646c97, 0xe6635c01,
	0x6b6b51f4, 0x1c6c6162, 0x856530d8, 0xf262004e, 0x6c0695ed, 0x1b01a57b, 0x8208f4c1, 0xf50fc457,
	0x65b0d9c6, 0x12b7e950, 0x8bbeb8ea, 0xfcb9887c, 0x62dd1ddf, 0x15da2d49, 0x8cd37cf3, 0xfbd44c65,
	0x4db26158, 0x3ab551ce, 0xa3bc0074, 0xd4bb30e2, 0x4adfa541, 0x3dd895d7, 0xa4d1c46d, 0xd3d6f4fb,
	0x4369e96a, 0x346ed9fc, 0xad678846, 0xda60b8d0, 0x44042d73, 0x33031de5, 0xaa0a4c5f, 0xdd0d7cc9,
	0x5005713c, 0x270241aa, 0xbe0b1010, 0xc90c2086, 0x5768b525, 0x206f85b3, 0xb966d409, 0xce61e49f,
	0x5edef90e, 0x29d9c998, 0xb0d09822, 0xc7d7a8b4, 0x59b33d17, 0x2eb40d81, 0xb7bd5c3b, 0xc0ba6cad,
	0xedb88320, 0x9abfb3b6, 0x03b6e20c, 0x74b1d29a, 0xead54739, 0x9dd277af, 0x04db2615, 0x73dc1683,
	0xe3630b12, 0x94643b84, 0x0d6d6a3e, 0x7a6a5aa8, 0xe40ecf0b, 0x9309ff9d, 0x0a00ae27, 0x7d079eb1,
	0xf00f9344, 0x8708a3d2, 0x1e01f268, 0x6906c2fe, 0xf762575d, 0x806567cb, 0x196c3671, 0x6e6b06e7,
	0xfed41b76, 0x89d32be0, 0x10da7a5a, 0x67dd4acc, 0xf9b9df6f, 0x8ebeeff9, 0x17b7be43, 0x60b08ed5,
	0xd6d6a3e8, 0xa1d1937e, 0x38d8c2c4, 0x4fdff252, 0xd1bb67f1, 0xa6bc5767, 0x3fb506dd, 0x48b2364b,
	0xd80d2bda, 0xaf0a1b4c, 0x36034af6, 0x41047a60, 0xdf60efc3, 0xa867df55, 0x316e8eef, 0x4669be79,
	0xcb61b38c, 0xbc66831a, 0x256fd2a0, 0x5268e236, 0xcc0c7795, 0xbb0b4703, 0x220216b9, 0x5505262f,
	0xc5ba3bbe, 0xb2bd0b28, 0x2bb45a92, 0x5cb36a04, 0xc2d7ffa7, 0xb5d0cf31, 0x2cd99e8b, 0x5bdeae1d,
	0x9b64c2b0, 0xec63f226, 0x756aa39c, 0x026d930a, 0x9c0906a9, 0xeb0e363f, 0x72076785, 0x05005713,
	0x95bf4a82, 0xe2b87a14, 0x7bb12bae, 0x0cb61b38, 0x92d28e9b, 0xe5d5be0d, 0x7cdcefb7, 0x0bdbdf21,
	0x86d3d2d4, 0xf1d4e242, 0x68ddb3f8, 0x1fda836e, 0x81be16cd, 0xf6b9265b, 0x6fb077e1, 0x18b74777,
	0x88085ae6, 0xff0f6a70, 0x66063bca, 0x11010b5c, 0x8f659eff, 0xf862ae69, 0x616bffd3, 0x166ccf45,
	0xa00ae278, 0xd70dd2ee, 0x4e048354, 0x3903b3c2, 0xa7672661, 0xd06016f7, 0x4969474d, 0x3e6e77db,
	0xaed16a4a, 0xd9d65adc, 0x40df0b66, 0x37d83bf0, 0xa9bcae53, 0xdebb9ec5, 0x47b2cf7f, 0x30b5ffe9,
	0xbdbdf21c, 0xcabac28a, 0x53b39330, 0x24b4a3a6, 0xbad03605, 0xcdd70693, 0x54de5729, 0x23d967bf,
	0xb3667a2e, 0xc4614ab8, 0x5d681b02, 0x2a6f2b94, 0xb40bbe37, 0xc30c8ea1, 0x5a05df1b, 0x2d02ef8d,
};
static const __u16 sp_crc16_table[256] = {
	0x0000, 0xc0c1, 0xc181, 0x0140, 0xc301, 0x03c0, 0x0280, 0xc241, 0xc601, 0x06c0, 0x0780, 0xc741,
	0x0500, 0xc5c1, 0xc481, 0x0440, 0xcc01, 0x0cc0, 0x0d80, 0xcd41, 0x0f00, 0xcfc1, 0xce81, 0x0e40,
	0x0a00, 0xcac1, 0xcb81, 0x0b40, 0xc901, 0x09c0, 0x0880, 0xc841, 0xd801, 0x18c0, 0x1980, 0xd941,
	0x1b00, 0xdbc1, 0xda81, 0x1a40, 0x1e00, 0xdec1, 0xdf81, 0x1f40, 0xdd01, 0x1dc0, 0x1c80, 0xdc41,
	0x1400, 0xd4c1, 0xd581, 0x1540, 0xd701, 0x17c0, 0x1680, 0xd641, 0xd201, 0x12c0, 0x1380, 0xd341,
	0x1100, 0xd1c1, 0xd081, 0x1040, 0xf001, 0x30c0, 0x3180, 0xf141, 0x3300, 0xf3c1, 0xf281, 0x3240,
	0x3600, 0xf6c1, 0xf781, 0x3740, 0xf501, 0x35c0, 0x3480, 0xf441, 0x3c00, 0xfcc1, 0xfd81, 0x3d40,
	0xff01, 0x3fc0, 0x3e80, 0xfe41, 0xfa01, 0x3ac0, 0x3b80, 0xfb41, 0x3900, 0xf9c1, 0xf881, 0x3840,
	0x2800, 0xe8c1, 0xe981, 0x2940, 0xeb01, 0x2bc0, 0x2a80, 0xea41, 0xee01, 0x2ec0, 0x2f80, 0xef41,
	0x2d00, 0xedc1, 0xec81, 0x2c40, 0xe401, 0x24c0, 0x2580, 0xe541, 0x2700, 0xe7c1, 0xe681, 0x2640,
	0x2200, 0xe2c1, 0xe381, 0x2340, 0xe101, 0x21c0, 0x2080, 0xe041, 0xa001, 0x60c0, 0x6180, 0xa141,
	0x6300, 0xa3c1, 0xa281, 0x6240, 0x6600, 0xa6c1, 0xa781, 0x6740, 0xa501, 0x65c0, 0x6480, 0xa441,
	0x6c00, 0xacc1, 0xad81, 0x6d40, 0xaf01, 0x6fc0, 0x6e80, 0xae41, 0xaa01, 0x6ac0, 0x6b80, 0xab41,
	0x6900, 0xa9c1, 0xa881, 0x6840, 0x7800, 0xb8c1, 0xb981, 0x7940, 0xbb01, 0x7bc0, 0x7a80, 0xba41,
	0xbe01, 0x7ec0, 0x7f80, 0xbf41, 0x7d00, 0xbdc1, 0xbc81, 0x7c40, 0xb401, 0x74c0, 0x7580, 0xb541,
	0x7700, 0xb7c1, 0xb681, 0x7640, 0x7200, 0xb2c1, 0xb381, 0x7340, 0xb101, 0x71c0, 0x7080, 0xb041,
	0x5000, 0x90c1, 0x9181, 0x5140, 0x9301, 0x53c0, 0x5280, 0x9241, 0x9601, 0x56c0, 0x5780, 0x9741,
	0x5500, 0x95c1, 0x9481, 0x5440, 0x9c01, 0x5cc0, 0x5d80, 0x9d41, 0x5f00, 0x9fc1, 0x9e81, 0x5e40,
	0x5a00, 0x9ac1, 0x9b81, 0x5b40, 0x9901, 0x59c0, 0x5880, 0x9841, 0x8801, 0x48c0, 0x4980, 0x8941,
	0x4b00, 0x8bc1, 0x8a81, 0x4a40, 0x4e00, 0x8ec1, 0x8f81, 0x4f40, 0x8d01, 0x4dc0, 0x4c80, 0x8c41,
	0x4400, 0x84c1, 0x8581, 0x4540, 0x8701, 0x47c0, 0x4680, 0x8641, 0x8201, 0x42c0, 0x4380, 0x8341,
	0x4100, 0x81c1, 0x8081, 0x4040,
};

/*
 * A byte that a table is read at. clang must not know what it is made of: where it sees bits that are always 0 it leaves the mask out, for reasons that the
 * verifier does not see.
 */
SP_INLINE __u64 sp_table_index(__u64 value)
{
	asm("" : "+r"(value));
	return value & 0xff;
}

/* CRC-32 as Ethernet has it (reflected 0x04c11db7). */
SP_INLINE __u32 sp_crc32(const __u8 *bytes, int n)
{
	__u32 crc = 0xffffffff;

	for (int i = 0; i < n; i++)
		crc = (crc >> 8) ^ sp_crc32_table[sp_table_index(crc ^ bytes[i])];
	return ~crc;
}

/* CRC-16/ARC (reflected 0x8005, initial value 0). */
SP_INLINE __u16 sp_crc16(const __u8 *bytes, int n)
{
	__u16 crc = 0;

	for (int i = 0; i < n; i++)
		crc = (crc >> 8) ^ sp_crc16_table[sp_table_index(crc ^ bytes[i])];
	return crc;
}

/* n is even: the compiler pads with a zero byte. */
SP_INLINE __u16 sp_csum16(const __u8 *bytes, int n)
{
	__u64 sum = 0;

	for (int i = 0; i < n; i += 2)
		sum += sp_get16(bytes + i);
	return sp_csum_fold(sum);
}
SP_INLINE __u16 sp_xor16(const __u8 *bytes, int n)
{
	__u16 mix = 0;

	for (int i = 0; i < n; i += 2)
		mix ^= sp_get16(bytes + i);
	return mix;
}

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

/* ---- Routes: bpf_fib_lookup. Results are the ordinals of FibResult in stateplane.p4 ---- */
#define SP_FIB_FORWARD 0
#define SP_FIB_LOCAL 1
#define SP_FIB_KERNEL 2
#define SP_FIB_UNREACHABLE 3

SP_INLINE __u32 sp_fib_result(struct xdp_md *xdp, struct bpf_fib_lookup *fib, __u32 *port)
{
	long found = bpf_fib_lookup(xdp, fib, sizeof(*fib), 0);

	*port = SP_DROP_PORT;
	if (found == BPF_FIB_LKUP_RET_SUCCESS) {
		__u32 ifindex = fib->ifindex;
		__u32 *out = bpf_map_lookup_elem(&sp_port_by_ifindex, &ifindex);

		/* A route out of an interface that is not a port of this program: the kernel's affair. */
		if (!out || *out == 0)
			return SP_FIB_KERNEL;
		*port = *out - 1;
		return SP_FIB_FORWARD;
	}
	if (found == BPF_FIB_LKUP_RET_NOT_FWDED)
		return SP_FIB_LOCAL;
	if (found == BPF_FIB_LKUP_RET_BLACKHOLE || found == BPF_FIB_LKUP_RET_UNREACHABLE ||
	    found == BPF_FIB_LKUP_RET_PROHIBIT)
		return SP_FIB_UNREACHABLE;
	return SP_FIB_KERNEL;
}

/* smac lies at 52, dmac at 58: the stack must be read at aligned addresses. */
_Static_assert(__builtin_offsetof(struct bpf_fib_lookup, smac) % 4 == 0 && __builtin_offsetof(struct bpf_fib_lookup, dmac) % 4 == 2, "alignment");
SP_INLINE __u64 sp_fib_source_mac(const struct bpf_fib_lookup *fib) { return ((__u64)sp_get32(fib->smac) << 16) | sp_get16(fib->smac + 4); }
SP_INLINE __u64 sp_fib_destination_mac(const struct bpf_fib_lookup *fib) { return ((__u64)sp_get16(fib->dmac) << 32) | sp_get32(fib->dmac + 2); }

SP_INLINE __u32 sp_fib_lookup_ipv4(struct xdp_md *xdp, __u32 source, __u32 destination, __u8 protocol, __u16 source_port,
				   __u16 destination_port, __u16 total_length, __u8 tos, __u32 *port, __u64 *source_mac,
				   __u64 *destination_mac)
{
	struct bpf_fib_lookup fib = {};

	fib.family = 2; /* AF_INET */
	fib.l4_protocol = protocol;
	fib.sport = bpf_htons(source_port);
	fib.dport = bpf_htons(destination_port);
	fib.tot_len = total_length;
	fib.ifindex = xdp->ingress_ifindex;
	fib.tos = tos;
	fib.ipv4_src = bpf_htonl(source);
	fib.ipv4_dst = bpf_htonl(destination);
	__u32 result = sp_fib_result(xdp, &fib, port);

	*source_mac = sp_fib_source_mac(&fib);
	*destination_mac = sp_fib_destination_mac(&fib);
	return result;
}

SP_INLINE __u32 sp_fib_lookup_ipv6(struct xdp_md *xdp, sp_u128 source, sp_u128 destination, __u8 next_header,
				   __u16 source_port, __u16 destination_port, __u16 payload_length, __u32 flow_label,
				   __u32 *port, __u64 *source_mac, __u64 *destination_mac)
{
	struct bpf_fib_lookup fib = {};

	fib.family = 10; /* AF_INET6 */
	fib.l4_protocol = next_header;
	fib.sport = bpf_htons(source_port);
	fib.dport = bpf_htons(destination_port);
	fib.tot_len = payload_length + 40;
	fib.ifindex = xdp->ingress_ifindex;
	fib.flowinfo = bpf_htonl(flow_label);
	for (int i = 0; i < 4; i++) {
		int right = i % 2 ? 0 : 32;

		fib.ipv6_src[i] = bpf_htonl((__u32)((i < 2 ? sp_high64(source) : (__u64)source) >> right));
		fib.ipv6_dst[i] = bpf_htonl((__u32)((i < 2 ? sp_high64(destination) : (__u64)destination) >> right));
	}
	__u32 result = sp_fib_result(xdp, &fib, port);

	*source_mac = sp_fib_source_mac(&fib);
	*destination_mac = sp_fib_destination_mac(&fib);
	return result;
}

/* For the far end of a veth pair: XDP redirect into a veth needs a program on its peer. */
SEC("xdp.frags")
int sp_pass(struct xdp_md *xdp)
{
	return XDP_PASS;
}

char sp_license[] SEC("license") = "GPL";

#endif
