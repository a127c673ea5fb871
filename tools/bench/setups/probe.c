/* probe.c: round-trip times, taken in the kernel at both ends of a switch. Belongs to no product.
 *
 * A probe is a UDP/IPv4 packet whose payload has MAGIC, a number, and the time it was sent
 * (CLOCK_MONOTONIC, as bpf_ktime_get_ns) at `offset` of the frame. `reflect`, beyond the switch,
 * sends it back; `collect`, before the switch, notes how long it was under way. Everything else
 * passes. */
#define FRAME_BYTES 128
#include "feed.h"

#define MAGIC 0x70726f62
#define SLOTS 131072 /* PROBE_SLOTS in probe.rs */

struct stamp {
	__u32 magic;
	__u32 number;
	__u64 sent_ns;
} __attribute__((packed));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, __u64); /* ns under way, 0: not back */
} times SEC(".maps");

/* Frames that came to `reflect`: all, and those whose source is in the external prefix, that is,
 * translated. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[2]);
} reflected SEC(".maps");

#define EXTERNAL_PREFIX 0xcb007100 /* 203.0.113.0/28: the pool of systems/redplane/lab/nat.toml */
#define EXTERNAL_MASK 0xfffffff0

/* Where the stamp is in frames that come to `reflect` and to `collect`: behind UDP's header, or
 * where -D says. */
#ifndef REFLECT_OFFSET
#define REFLECT_OFFSET 42
#endif
#ifndef COLLECT_OFFSET
#define COLLECT_OFFSET 42
#endif

static __always_inline struct stamp *stamp_at(void *data, void *data_end, __u32 offset)
{
	struct stamp *stamp = data + (offset);

	if ((void *)(stamp + 1) > data_end || stamp->magic != MAGIC)
		return 0;
	return stamp;
}

SEC("xdp.frags")
int reflect(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *data_end = (void *)(long)xdp->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	unsigned char mac[ETH_ALEN];
	__u32 zero = 0;
	__be32 address;
	__be16 port;
	__u64 *seen;

	if ((void *)(udp + 1) > data_end || ethernet->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 ||
	    ip->protocol != 17 || !stamp_at(data, data_end, REFLECT_OFFSET))
		return XDP_PASS;
	seen = bpf_map_lookup_elem(&reflected, &zero);
	if (seen) {
		seen[0]++;
		seen[1] += (ip->saddr & bpf_htonl(EXTERNAL_MASK)) == bpf_htonl(EXTERNAL_PREFIX);
	}
	/* Sums do not change when both sides swap. */
	__builtin_memcpy(mac, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, ethernet->h_source, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, mac, ETH_ALEN);
	address = ip->daddr;
	ip->daddr = ip->saddr;
	ip->saddr = address;
	port = udp->dest;
	udp->dest = udp->source;
	udp->source = port;
	return XDP_TX;
}

SEC("xdp.frags")
int collect(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *data_end = (void *)(long)xdp->data_end;
	struct stamp *stamp = stamp_at(data, data_end, COLLECT_OFFSET);
	__u64 now = bpf_ktime_get_ns(), *slot;
	__u32 number;

	if (!stamp)
		return XDP_PASS;
	number = stamp->number & (SLOTS - 1);
	slot = bpf_map_lookup_elem(&times, &number);
	if (slot)
		*slot = now - stamp->sent_ns;
	return XDP_DROP;
}

/* Throughput: `play` makes the packets of a list, `count` counts those that come out. */
#ifndef COUNT_PORT
#define COUNT_PORT 7
#endif

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} play_to SEC(".maps");

/* A frame comes with FRAME_BYTES, as the kernel makes it or as its last receiver left it; it leaves
 * as the list has it, as long as that says (the kernel zeroes what is added). */
SEC("xdp")
int play(struct xdp_md *xdp)
{
	struct frame *frame = next_frame();
	int bytes = (int)((long)xdp->data_end - (long)xdp->data);

	if (!frame || write_frame(xdp, frame) || bpf_xdp_adjust_tail(xdp, (int)frame->bytes - bytes))
		return XDP_ABORTED;
	return bpf_redirect_map(&play_to, 0, XDP_DROP);
}

SEC("xdp.frags")
int count(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *data_end = (void *)(long)xdp->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);

	if ((void *)(udp + 1) > data_end || ethernet->h_proto != bpf_htons(ETH_P_IP) ||
	    ip->ihl != 5 || ip->protocol != 17 ||
	    (udp->dest != bpf_htons(COUNT_PORT) && udp->source != bpf_htons(COUNT_PORT)))
		return XDP_PASS;
	count_packet(xdp);
	return XDP_DROP;
}
