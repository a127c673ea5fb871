/* traffic.c: what stateplane-bench feeds programs with: both ends of the line for real traffic, and
 * frames for single programs. Belongs to no product. */
#define FRAME_BYTES 64
#include "feed.h"

/* Flow n goes from `source` + n / 16 and port 20000 + n % 16 to `destination` and port 7. */
struct settings {
	__u32 flows;
	__u32 source; /* host byte order */
	__u32 destination; /* host byte order */
	__u32 parts; /* CPU n has the n-th part of the flows; 0, 1: each CPU has all */
	__u8 destination_mac[8];
	__u8 source_mac[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} generate_to SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} generated SEC(".maps");

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Writes the whole header: the kernel hands out used frames again as the last receiver left them.
 * The payload stays zero. */
SEC("xdp")
int generate(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *data_end = (void *)(long)xdp->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u32 zero = 0;
	struct settings *chosen = bpf_map_lookup_elem(&settings, &zero);
	__u64 *number = bpf_map_lookup_elem(&generated, &zero), sum, flow, flows;

	if ((void *)(udp + 1) > data_end || !number || !chosen)
		return XDP_DROP;
	flow = *number;
	flows = chosen->flows;
	if (chosen->parts > 1)
		flows /= chosen->parts;
	*number = flow + 1 >= flows ? 0 : flow + 1;
	if (chosen->parts > 1)
		flow += bpf_get_smp_processor_id() * flows;

	__builtin_memcpy(ethernet->h_dest, chosen->destination_mac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, chosen->source_mac, ETH_ALEN);
	ethernet->h_proto = bpf_htons(ETH_P_IP);
	*(__u16 *)ip = bpf_htons(0x4500);
	ip->tot_len = bpf_htons(data_end - (void *)ip);
	ip->id = 0;
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = 64;
	ip->protocol = 17;
	ip->saddr = bpf_htonl(chosen->source + (flow >> 4));
	ip->daddr = bpf_htonl(chosen->destination);
	sum = (ip->saddr & 0xffff) + (ip->saddr >> 16) + (ip->daddr & 0xffff) + (ip->daddr >> 16);
	ip->check = folded(sum + bpf_htons(0x4500) + ip->tot_len + bpf_htons(0x4000) +
			   bpf_htons(64 << 8 | 17));
	udp->source = bpf_htons(20000 + (flow & 15));
	udp->dest = bpf_htons(7);
	udp->len = bpf_htons(data_end - (void *)udp);
	udp->check = folded(sum + bpf_htons(17) + 2 * (__u64)udp->len + udp->source + udp->dest);
	return bpf_redirect_map(&generate_to, 0, XDP_DROP);
}

/* The same with frames of the list, as they are. */
SEC("xdp")
int generate_listed(struct xdp_md *xdp)
{
	struct frame *frame = next_frame();

	if (!frame || write_frame(xdp, frame))
		return XDP_DROP;
	return bpf_redirect_map(&generate_to, 0, XDP_DROP);
}

SEC("xdp.frags")
int sink(struct xdp_md *xdp)
{
	count_packet(xdp);
	return XDP_DROP;
}

/* What BPF_PROG_RUN alone cannot do: it runs a program over and over on one frame, as the last run
 * left it. `replay` writes the next frame of a list over it, then runs the program that is
 * measured; `nothing` in that one's place measures `replay` itself. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} target SEC(".maps");

SEC("xdp.frags")
int replay(struct xdp_md *xdp)
{
	struct frame *frame = next_frame();

	if (!frame || write_frame(xdp, frame))
		return XDP_ABORTED;
	bpf_tail_call(xdp, &target, 0);
	return XDP_ABORTED;
}

SEC("xdp.frags")
int nothing(struct xdp_md *xdp __attribute__((unused)))
{
	return XDP_REDIRECT;
}
