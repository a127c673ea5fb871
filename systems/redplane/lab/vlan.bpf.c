// The tenants' VLAN tags, for kernels without VLAN devices: pushed to what leaves for a switch,
// popped from what comes from one. heavy_hitter.toml attaches it.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Tenant T has the addresses 10.20.T.0/24.
#define TENANTS_PREFIX 0x0a140000
#define TENANTS_MASK 0xffff0000

SEC("tc/push")
int push(struct __sk_buff *skb)
{
	__u32 source;

	if (skb->protocol != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, saddr), &source,
			       sizeof(source)))
		return TC_ACT_OK;
	source = bpf_ntohl(source);
	if ((source & TENANTS_MASK) != TENANTS_PREFIX)
		return TC_ACT_OK;
	return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), source >> 8 & 0xff) ? TC_ACT_SHOT
										  : TC_ACT_OK;
}

SEC("tc/pop")
int pop(struct __sk_buff *skb)
{
	return skb->vlan_present && bpf_skb_vlan_pop(skb) ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "GPL";
