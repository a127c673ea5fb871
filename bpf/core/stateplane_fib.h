/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: bpf_fib_lookup. Part of stateplane_xdp.h.
 * Results are the ordinals of FibResult in stateplane.p4.
 */
#ifndef STATEPLANE_FIB_H
#define STATEPLANE_FIB_H

#define SP_FIB_FORWARD 0
#define SP_FIB_LOCAL 1
#define SP_FIB_KERNEL 2
#define SP_FIB_UNREACHABLE 3
#define SP_FIB_TOO_BIG 4

/*
 * The interface that a packet came in on, by which rules choose routes. One that was elsewhere
 * since (`again`, a constant), as at a store, came back by another one. A generated packet has the
 * one that the generator has.
 */
SP_INLINE __u32 sp_ingress_ifindex(struct xdp_md *xdp, __u32 ingress_port, int again)
{
	__u32 own = xdp->ingress_ifindex;
	struct bpf_devmap_val *port;

	/* clang must not join this load with the one below: the verifier knows only their places. */
	asm volatile("" : "+r"(own));
	if (!again || ingress_port == SP_GENERATOR_PORT)
		return own;
	port = bpf_map_lookup_elem(&sp_ports, &ingress_port);
	return port ? port->ifindex : 0; /* a port that is gone: no interface, no route */
}

/* *mtu: that of the route; 0 if there is none, or its next hop is not resolved. */
SP_INLINE __u32 sp_fib_result(struct xdp_md *xdp, struct bpf_fib_lookup *fib, __u32 *port,
			      __u32 *mtu)
{
	long found = bpf_fib_lookup(xdp, fib, sizeof(*fib), 0);

	*port = SP_DROP_PORT;
	*mtu = 0;
	if (found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		*mtu = fib->mtu_result;
	if (found == BPF_FIB_LKUP_RET_SUCCESS) {
		__u32 ifindex = fib->ifindex;
		__u32 *out = bpf_map_lookup_elem(&sp_port_by_ifindex, &ifindex);

		/*
		 * A route out of an interface that is not a port of this program: the kernel's
		 * affair.
		 */
		if (!out || *out == 0)
			return SP_FIB_KERNEL;
		*port = *out - 1;
		return SP_FIB_FORWARD;
	}
	/* Forwarding is off on this interface: the kernel would drop the packet. */
	if (found == BPF_FIB_LKUP_RET_NOT_FWDED || found == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return SP_FIB_LOCAL;
	if (found == BPF_FIB_LKUP_RET_BLACKHOLE || found == BPF_FIB_LKUP_RET_UNREACHABLE ||
	    found == BPF_FIB_LKUP_RET_PROHIBIT)
		return SP_FIB_UNREACHABLE;
	if (found == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return SP_FIB_TOO_BIG;
	return SP_FIB_KERNEL;
}

/* smac lies at 52, dmac at 58: the stack must be read at aligned addresses. */
_Static_assert(__builtin_offsetof(struct bpf_fib_lookup, smac) % 4 == 0 &&
	       __builtin_offsetof(struct bpf_fib_lookup, dmac) % 4 == 2, "alignment");
SP_INLINE __u64 sp_fib_source_mac(const struct bpf_fib_lookup *fib)
{
	return ((__u64)sp_get32(fib->smac) << 16) | sp_get16(fib->smac + 4);
}
SP_INLINE __u64 sp_fib_destination_mac(const struct bpf_fib_lookup *fib)
{
	return ((__u64)sp_get16(fib->dmac) << 32) | sp_get32(fib->dmac + 2);
}

SP_INLINE __u32 sp_fib_lookup_ipv4(struct xdp_md *xdp, __u32 ifindex, __u32 source,
				   __u32 destination, __u8 protocol, __u16 source_port,
				   __u16 destination_port, __u16 total_length, __u8 tos,
				   __u32 *port, __u64 *source_mac, __u64 *destination_mac,
				   __u32 *mtu)
{
	struct bpf_fib_lookup fib = {};

	fib.family = 2; /* AF_INET */
	fib.l4_protocol = protocol;
	fib.sport = bpf_htons(source_port);
	fib.dport = bpf_htons(destination_port);
	fib.tot_len = total_length;
	fib.ifindex = ifindex;
	fib.tos = tos;
	fib.ipv4_src = bpf_htonl(source);
	fib.ipv4_dst = bpf_htonl(destination);
	__u32 result = sp_fib_result(xdp, &fib, port, mtu);

	*source_mac = sp_fib_source_mac(&fib);
	*destination_mac = sp_fib_destination_mac(&fib);
	return result;
}

SP_INLINE __u32 sp_fib_lookup_ipv6(struct xdp_md *xdp, __u32 ifindex, sp_u128 source,
				   sp_u128 destination,
				   __u8 next_header,
				   __u16 source_port, __u16 destination_port, __u16 payload_length, __u32 flow_label,
				   __u32 *port, __u64 *source_mac, __u64 *destination_mac, __u32 *mtu)
{
	struct bpf_fib_lookup fib = {};

	fib.family = 10; /* AF_INET6 */
	fib.l4_protocol = next_header;
	fib.sport = bpf_htons(source_port);
	fib.dport = bpf_htons(destination_port);
	fib.tot_len = payload_length + 40;
	fib.ifindex = ifindex;
	fib.flowinfo = bpf_htonl(flow_label);
	for (int i = 0; i < 4; i++) {
		int right = i % 2 ? 0 : 32;

		fib.ipv6_src[i] = bpf_htonl((__u32)((i < 2 ? sp_high64(source) : (__u64)source) >> right));
		fib.ipv6_dst[i] = bpf_htonl(
			(__u32)((i < 2 ? sp_high64(destination) : (__u64)destination) >> right));
	}
	__u32 result = sp_fib_result(xdp, &fib, port, mtu);

	*source_mac = sp_fib_source_mac(&fib);
	*destination_mac = sp_fib_destination_mac(&fib);
	return result;
}

#endif
