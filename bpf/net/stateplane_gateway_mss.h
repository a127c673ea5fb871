/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_gateway_mss.h: clamp_tcp_mss() of stateplane.p4. Part of stateplane_gateway.h.
 */
#ifndef STATEPLANE_GATEWAY_MSS_H
#define STATEPLANE_GATEWAY_MSS_H

/* In what sp_gateway_clamp() returns: the route has an MTU that is not known yet. */
#define SP_CLAMP_ASK 0x10000

/*
 * The MTU that the finished packet's MSS shall fit; 0: the switch is not configured so. A route
 * whose next hop is not resolved says no MTU: sp_gateway_clamp_mss() asks it.
 */
SP_INLINE __u32 sp_gateway_clamp(__u32 ingress_port, __u32 route_mtu)
{
	struct sp_gateway_settings_value *settings = sp_gateway_get_settings();
	struct sp_gateway_port_value *port;
	__u32 mtu;

	if (!settings || !settings->clamp_mss)
		return 0;
	port = bpf_map_lookup_elem(&sp_gateway_port, &ingress_port);
	mtu = port ? port->mtu & 0xffff : 0;
	if (!route_mtu)
		return mtu | SP_CLAMP_ASK;
	return !mtu || route_mtu < mtu ? route_mtu : mtu;
}

/*
 * The MTU of the route of a finished packet that came in on `ifindex`; 0: there is none. The
 * look-up compares lengths before it looks for the next hop's MAC, so a packet that is too long for
 * every route tells the MTU without one.
 */
SP_INLINE __u32 sp_gateway_route_mtu(struct xdp_md *xdp, __u32 ifindex, const __u8 *frame,
				     const __u8 *transport)
{
	__u32 zero = 0;
	struct bpf_fib_lookup *route = bpf_map_lookup_elem(&sp_gateway_route, &zero);

	if (!route)
		return 0;
	__builtin_memset(route, 0, sizeof(*route));
	route->l4_protocol = 6;
	route->sport = *(sp_u16a *)transport;
	route->dport = *(sp_u16a *)(transport + 2);
	route->tot_len = 0xffff;
	route->ifindex = ifindex;
	if (frame[14] >> 4 == 4) {
		route->family = 2; /* AF_INET */
		route->tos = frame[15];
		route->ipv4_src = *(sp_u32a *)(frame + 26);
		route->ipv4_dst = *(sp_u32a *)(frame + 30);
	} else {
		route->family = 10; /* AF_INET6 */
		route->flowinfo = *(sp_u32a *)(frame + 14) & bpf_htonl(0xfffff);
		for (int i = 0; i < 4; i++) {
			route->ipv6_src[i] = ((sp_u32a *)(frame + 22))[i];
			route->ipv6_dst[i] = ((sp_u32a *)(frame + 38))[i];
		}
	}
	if (bpf_fib_lookup(xdp, route, sizeof(*route), 0) != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return 0;
	return route->mtu_result;
}

/*
 * Changes one byte pair of a checksummed segment, `odd` bytes behind a word's beginning (RFC 1624,
 * equation 3).
 */
SP_INLINE __u16 sp_gateway_adjusted(__u16 checksum, __u16 before, __u16 after, __u32 odd)
{
	__u32 sum;

	if (odd) {
		before = __builtin_bswap16(before);
		after = __builtin_bswap16(after);
	}
	sum = (__u16)~checksum + (__u32)(__u16)~before + after;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/*
 * Lowers the MSS option of a TCP segment with SYN to what `mtu`, of sp_gateway_clamp(), leaves.
 * `ifindex`: the interface that it came in on.
 */
__attribute__((noinline)) int sp_gateway_clamp_mss(struct xdp_md *xdp, __u32 mtu, __u32 padding,
						   __u32 ifindex)
{
	__u8 *frame = (void *)(long)xdp->data + (padding & 0xf), *end = (void *)(long)xdp->data_end;
	__u64 hidden_zero = sp_unknown_zero(xdp);
	__u32 offset, headers, options, at = 0, most;
	__u8 *tcp;

	if (frame + 54 > end)
		return 0;
	if (sp_get16(frame + 12) == 0x0800) {
		if (frame[14] >> 4 != 4 || frame[23] != 6 || sp_get16(frame + 20) & 0x1fff)
			return 0;
		offset = 14 + (frame[14] & 15) * 4;
		headers = 40;
	} else if (sp_get16(frame + 12) == 0x86dd) {
		if (frame[14] >> 4 != 6 || frame[20] != 6)
			return 0;
		offset = 54;
		headers = 60;
	} else {
		return 0;
	}
	tcp = frame + offset;
	if (tcp + 20 > end || !(tcp[13] & 2))
		return 0;
	if (mtu & SP_CLAMP_ASK) {
		__u32 asked = sp_gateway_route_mtu(xdp, ifindex, frame, tcp);

		mtu &= 0xffff;
		if (asked && (!mtu || asked < mtu))
			mtu = asked;
	}
	if (mtu <= headers)
		return 0;
	most = mtu - headers;
	options = (tcp[12] >> 4) * 4;
	options = options > 20 ? options - 20 : 0;
	for (int i = 0; i < 40; i++) {
		__u8 *option;
		__u32 length;

		/* Each round looks the same to the verifier, which then checks one. */
		at = sp_blur(at, hidden_zero) & 0x3f;
		if (at >= options)
			break;
		option = tcp + 20 + at;
		if (option + 4 > end || option[0] == 0)
			break;
		length = option[0] == 1 ? 1 : option[1];
		if (length == 0 || at + length > options)
			break;
		if (option[0] == 2 && length == 4) {
			__u16 before = sp_get16(option + 2);

			if (before > most) {
				sp_put16(tcp + 16, sp_gateway_adjusted(sp_get16(tcp + 16),
								       before, most, at & 1));
				sp_put16(option + 2, most);
			}
			break;
		}
		at += length;
	}
	return 0;
}

#endif
