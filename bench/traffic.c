/* traffic.c: both ends of the line in the traffic measurement of stateplane-bench. Belongs to no product. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual BSD/GPL";

/* Set by the loader. Flow n goes from `source` + n / 32768 and port 16384 + n % 32768 to `destination` and port 7. */
const volatile __u32 flows = 1;
const volatile __u32 source;      /* host byte order */
const volatile __u32 destination; /* host byte order */
const volatile __u64 destination_mac;
const volatile __u64 source_mac;

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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64[2]); /* packets, bytes */
} sunk SEC(".maps");

/* Writes the whole packet: the kernel hands out used frames again as the last receiver left them. */
SEC("xdp")
int generate(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *data_end = (void *)(long)xdp->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u64 sum = 0, *number, flow;
	__u32 zero = 0;

	number = bpf_map_lookup_elem(&generated, &zero);
	if ((void *)(udp + 1) > data_end || !number)
		return XDP_DROP;
	flow = *number;
	*number = flow + 1 == flows ? 0 : flow + 1;

	for (int i = 0; i < 6; i++) {
		ethernet->h_dest[i] = destination_mac >> (8 * (5 - i));
		ethernet->h_source[i] = source_mac >> (8 * (5 - i));
	}
	ethernet->h_proto = bpf_htons(ETH_P_IP);
	*(__u16 *)ip = bpf_htons(0x4500);
	ip->tot_len = bpf_htons(data_end - (void *)ip);
	ip->id = 0;
	ip->frag_off = bpf_htons(0x4000);
	ip->ttl = 64;
	ip->protocol = 17;
	ip->check = 0;
	ip->saddr = bpf_htonl(source + (flow >> 15));
	ip->daddr = bpf_htonl(destination);
	for (int i = 0; i < 10; i++)
		sum += ((__u16 *)ip)[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~sum;
	udp->source = bpf_htons(16384 + (flow & 32767));
	udp->dest = bpf_htons(7);
	udp->len = bpf_htons(data_end - (void *)udp);
	udp->check = bpf_htons(0x1234); /* nobody looks, and the translators have to update it */
	return bpf_redirect_map(&generate_to, 0, XDP_DROP);
}

SEC("xdp.frags")
int sink(struct xdp_md *xdp)
{
	__u32 zero = 0;
	__u64 *value = bpf_map_lookup_elem(&sunk, &zero);

	if (value) {
		value[0] += 1;
		value[1] += xdp->data_end - xdp->data;
	}
	return XDP_DROP;
}

/* A veth takes redirected frames only when its peer runs a program. */
SEC("xdp.frags")
int pass(struct xdp_md *xdp __attribute__((unused)))
{
	return XDP_PASS;
}
