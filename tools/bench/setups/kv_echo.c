/* kv_echo.c: an echo with tags, over the hops of a read or a write. Belongs to no product.
 *
 * A datagram to PORT has the way that it takes: addresses that are still to come, the last one the
 * client's. Each switch checks its tag, takes the next address, makes a new tag and sends it there
 * by the kernel's routes: what a switch that serves keys does but for the keys. Everything else
 * passes. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "stateplane_siphash.h"

#define PORT 5499
#define AF_INET 2
#define HOPS 4
#define TAG_WORD 1
/* Bytes of the message of a read and a write (systems/netchain/docs/design.md), in words. */
#define READ_WORDS 19
#define WRITE_WORDS 30

struct message {
	__u64 magic;
	__u64 tag;
	__u32 left; /* addresses that are still to come; in network order, as all */
	__u32 port; /* the client's */
	__u32 hops[HOPS];
};

static __always_inline __u64 tag_of(const __u64 *words, __u32 count)
{
	struct sp_sip sip;

	sp_sip_begin(&sip, 0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull);
	for (__u32 i = 0; i < count; i++)
		sp_sip_word(&sip, i == TAG_WORD ? 0 : words[i]);
	return sp_sip_end(&sip, (__u64)(count * 8) << 56);
}

/* Whether the message is genuine; then it has the tag of its next hop. */
static __always_inline int pass_on(struct message *message, void *end, __u32 count,
				   struct iphdr *ip, struct udphdr *udp)
{
	__u64 *words = (__u64 *)message;
	__u32 left;

	if ((void *)(words + count) > end)
		return 0;
	if (bpf_be64_to_cpu(message->tag) != tag_of(words, count))
		return 0;
	left = bpf_ntohl(message->left);
	if (left == 0 || left > HOPS)
		return 0;
	ip->saddr = ip->daddr;
	ip->daddr = message->hops[0];
	for (int i = 0; i + 1 < HOPS; i++)
		message->hops[i] = message->hops[i + 1];
	message->left = bpf_htonl(left - 1);
	if (left == 1) {
		udp->source = bpf_htons(PORT);
		udp->dest = bpf_htons((__u16)bpf_ntohl(message->port));
	}
	message->tag = bpf_cpu_to_be64(tag_of(words, count));
	return 1;
}

static __always_inline void ip_checksum(struct iphdr *ip)
{
	__u32 sum = 0;
	__u16 *half = (__u16 *)ip;

	ip->check = 0;
	for (int i = 0; i < 10; i++)
		sum += half[i];
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~((sum & 0xffff) + (sum >> 16));
}

SEC("xdp.frags")
int kv_echo(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct message *message = (void *)(udp + 1);
	struct bpf_fib_lookup fib = {};
	int good;

	if ((void *)(message + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 ||
	    ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(PORT))
		return XDP_PASS;
	if (bpf_ntohs(udp->len) == sizeof(*udp) + READ_WORDS * 8)
		good = pass_on(message, end, READ_WORDS, ip, udp);
	else
		good = pass_on(message, end, WRITE_WORDS, ip, udp);
	if (!good)
		return XDP_DROP;
	udp->check = 0;
	ip_checksum(ip);
	fib.family = AF_INET;
	fib.ifindex = xdp->ingress_ifindex;
	fib.ipv4_src = ip->saddr;
	fib.ipv4_dst = ip->daddr;
	fib.l4_protocol = IPPROTO_UDP;
	fib.tot_len = bpf_ntohs(ip->tot_len);
	if (bpf_fib_lookup(xdp, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return XDP_PASS;
	__builtin_memcpy(eth->h_source, fib.smac, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, fib.dmac, ETH_ALEN);
	return bpf_redirect(fib.ifindex, 0);
}

char _license[] SEC("license") = "GPL";
