/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_gateway_check.h: gateway_check() of stateplane.p4. Part of stateplane_gateway.h.
 *
 * What an IPv4 packet usually is, is told in line: without branches, which the verifier would
 * follow into the rest of the program one by one, and without helper calls. All else is checked in
 * functions of their own, which the verifier checks once.
 */
#ifndef STATEPLANE_GATEWAY_CHECK_H
#define STATEPLANE_GATEWAY_CHECK_H

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, SP_DROP_REASONS);
} sp_gateway_drops SEC(".maps");

/*
 * What routes said of IPv4 sources: direct-mapped, a word each, so that all CPUs can share them.
 * Bits 0 to 31 are the source as it lies in the packet, 32 to 40 the port, 41 to 59 the route
 * generation, 60 to 61 what the port asks (together its source_tag), 62 to 63 the verdict.
 */
#define SP_SOURCES_BITS 14
enum { SP_SOURCE_UNKNOWN, SP_SOURCE_GOOD, SP_SOURCE_MARTIAN, SP_SOURCE_REVERSE_PATH };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1 << SP_SOURCES_BITS);
} sp_gateway_sources_ipv4 SEC(".maps");

/* The same of IPv6. Larger than what is written at once, so each CPU has its own. */
#define SP_SOURCES_IPV6_BITS 12
struct sp_gateway_source_ipv6 {
	__u32 source[4];
	__u32 generation;
	__u16 port;
	__u8 asked;
	__u8 verdict;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct sp_gateway_source_ipv6);
	__uint(max_entries, 1 << SP_SOURCES_IPV6_BITS);
} sp_gateway_sources_ipv6 SEC(".maps");

/*
 * Destinations that the network has and no host (@own_destination): 1, and 0 for what is taken out
 * of them. Nothing comes from there. User space writes it: switch/dataplane/src/own.rs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct sp_gateway_prefix_ipv4);
	__type(value, __u32);
	__uint(max_entries, 65536);
} sp_gateway_own_ipv4 SEC(".maps");

SP_INLINE int sp_gateway_is_own_ipv4(__be32 address)
{
	struct sp_gateway_prefix_ipv4 prefix = { .bits = 32, .address = address };
	__u32 *found;

	if (sp_is_local_ipv4(address))
		return 1;
	found = bpf_map_lookup_elem(&sp_gateway_own_ipv4, &prefix);
	return found && *found;
}

SP_INLINE __u32 sp_gateway_reason(__u32 verdict)
{
	if (verdict == SP_SOURCE_MARTIAN)
		return SP_DROP_MARTIAN_SOURCE;
	return verdict == SP_SOURCE_REVERSE_PATH ? SP_DROP_REVERSE_PATH : SP_DROP_REASONS;
}

/* LOOPBACK_IFINDEX */
#define SP_LOOPBACK_IFINDEX 1

/*
 * Where the kernel would send an answer to the source. As its own rp_filter does, this asks as if
 * for a packet of this host's: rules that choose routes by the interface that a packet comes in on
 * (`ip rule add iif`) are for the other direction. An interface that has tables of its own (VRF),
 * or forwards where `lo` may not, is asked itself.
 */
SP_INLINE long sp_gateway_look_up(struct xdp_md *xdp, struct bpf_fib_lookup *route, __u32 ifindex)
{
	long result;

	route->ifindex = SP_LOOPBACK_IFINDEX;
	result = bpf_fib_lookup(xdp, route, sizeof(*route), 0);
	if (result != BPF_FIB_LKUP_RET_FWD_DISABLED && result != BPF_FIB_LKUP_RET_NOT_FWDED && result >= 0)
		return result;
	/* (Addresses and lengths are as they were: the look-up changes them only with a route.) */
	route->ifindex = ifindex;
	return bpf_fib_lookup(xdp, route, sizeof(*route), 0);
}

/*
 * Is a source where it may be? *sure says whether the answer holds until routes change. The route's
 * addresses are set.
 */
SP_INLINE __u32 sp_gateway_ask(struct xdp_md *xdp, struct bpf_fib_lookup *route,
			       const struct sp_gateway_port_value *port, int is_local, int *sure)
{
	__u32 ifindex = port->ifindex, *found;
	long result;

	*sure = 1;
	if (is_local)
		return SP_SOURCE_MARTIAN;
	if (port->reverse_path == SP_REVERSE_PATH_OFF)
		return SP_SOURCE_GOOD;
	result = sp_gateway_look_up(xdp, route, ifindex);
	if (result == BPF_FIB_LKUP_RET_FWD_DISABLED) {
		*sure = 0;
		return SP_SOURCE_GOOD; /* this host forwards nothing: its own checks apply */
	}
	if (result < 0) {
		*sure = 0;
		return SP_SOURCE_REVERSE_PATH;
	}
	if (result == BPF_FIB_LKUP_RET_NOT_FWDED || result == BPF_FIB_LKUP_RET_BLACKHOLE ||
	    result == BPF_FIB_LKUP_RET_UNREACHABLE || result == BPF_FIB_LKUP_RET_PROHIBIT)
		return SP_SOURCE_REVERSE_PATH;
	if (port->reverse_path == SP_REVERSE_PATH_LOOSE)
		return SP_SOURCE_GOOD;
	/* Written by the look-up also where the next hop is not resolved. */
	if (route->ifindex == ifindex)
		return result == BPF_FIB_LKUP_RET_UNSUPP_LWT ? SP_SOURCE_REVERSE_PATH : SP_SOURCE_GOOD;
	ifindex = route->ifindex;
	found = bpf_map_lookup_elem(&sp_port_by_ifindex, &ifindex);
	if (found && *found && *found <= 64 && port->siblings >> (*found - 1) & 1)
		return SP_SOURCE_GOOD;
	return SP_SOURCE_REVERSE_PATH;
}

SP_INLINE __u32 sp_gateway_source_index(__be32 source, __u32 port_number)
{
	return (source * 2654435761u) >> (32 - SP_SOURCES_BITS) ^ port_number;
}

/* Asks the routes about an IPv4 source: an sp_gateway_drop. */
SP_INLINE int sp_gateway_source_ipv4(struct xdp_md *xdp, __u32 port_number, const __u8 *frame,
				     const struct sp_gateway_port_value *port)
{
	__u32 zero = 0, source = *(sp_u32a *)(frame + 26), index, verdict;
	struct bpf_fib_lookup *route = bpf_map_lookup_elem(&sp_gateway_route, &zero);
	__u64 *entry, want = port->source_tag | source;
	int sure = 1;

	if (!route)
		return SP_DROP_REASONS;
	index = sp_gateway_source_index(source, port_number);
	entry = bpf_map_lookup_elem(&sp_gateway_sources_ipv4, &index);
	if (entry && (*entry & ~(3ull << 62)) == want && *entry >> 62)
		return sp_gateway_reason(*entry >> 62);
	__builtin_memset(route, 0, sizeof(*route));
	route->family = 2; /* AF_INET */
	route->ipv4_src = *(sp_u32a *)(frame + 30);
	route->ipv4_dst = source;
	verdict = sp_gateway_ask(xdp, route, port, sp_gateway_is_own_ipv4(source), &sure);
	if (entry && sure)
		*entry = want | (__u64)verdict << 62;
	return sp_gateway_reason(verdict);
}

/* Asks the routes about an IPv6 source: an sp_gateway_drop. */
SP_INLINE int sp_gateway_source_ipv6(struct xdp_md *xdp, __u32 port_number, const __u8 *frame,
				     const struct sp_gateway_port_value *port)
{
	__u32 zero = 0, index, verdict, folded, generation = port->route_generation;
	struct bpf_fib_lookup *route = bpf_map_lookup_elem(&sp_gateway_route, &zero);
	const sp_u32a *source = (const void *)(frame + 22), *destination = (const void *)(frame + 38);
	struct sp_gateway_source_ipv6 *entry;
	int sure = 1;

	if (!route)
		return SP_DROP_REASONS;
	__builtin_memset(route, 0, sizeof(*route));
	route->family = 10; /* AF_INET6 */
	for (int i = 0; i < 4; i++) {
		route->ipv6_src[i] = destination[i];
		route->ipv6_dst[i] = source[i];
	}
	folded = (source[0] * 31 ^ source[1]) * 31 + source[2] * 7 + source[3];
	index = ((folded ^ port_number << 23) * 2654435761u) >> (32 - SP_SOURCES_IPV6_BITS);
	entry = bpf_map_lookup_elem(&sp_gateway_sources_ipv6, &index);
	if (!entry)
		return SP_DROP_REASONS;
	if (entry->source[0] == route->ipv6_dst[0] && entry->source[1] == route->ipv6_dst[1] &&
	    entry->source[2] == route->ipv6_dst[2] && entry->source[3] == route->ipv6_dst[3] &&
	    entry->generation == generation && entry->port == port_number &&
	    entry->asked == port->reverse_path && entry->verdict)
		return sp_gateway_reason(entry->verdict);
	for (int i = 0; i < 4; i++)
		entry->source[i] = route->ipv6_dst[i];
	entry->generation = generation;
	entry->port = port_number;
	entry->asked = port->reverse_path;
	entry->verdict = SP_SOURCE_UNKNOWN;
	verdict = sp_gateway_ask(xdp, route, port,
				 sp_is_local_ipv6((struct sp_ipv6_address *)entry->source),
				 &sure);
	if (sure)
		entry->verdict = verdict;
	return sp_gateway_reason(verdict);
}

/* Is the frame for this port? `first` are its first eight bytes, as they lie there. */
SP_INLINE __u32 sp_gateway_frame(const struct sp_gateway_port_value *port, __u64 first,
				 int is_for_many)
{
	if (!((first ^ port->mac) & port->mac_mask))
		return SP_DROP_REASONS;
	if (first & bpf_cpu_to_be64(1ull << 56))
		return is_for_many ? SP_DROP_REASONS : SP_DROP_BROADCAST_FRAME;
	return SP_DROP_OTHER_MAC;
}

/* Lengths of UDP and TCP headers at `transport`, of a packet with `payload` bytes from there on. */
SP_INLINE __u32 sp_gateway_transport(const __u8 *transport, const void *end, __u32 protocol,
				     __u32 payload,
				     int has_more)
{
	__u32 length;

	if (protocol == 17) {
		if (payload < 8 || (void *)(transport + 8) > end)
			return SP_DROP_LENGTH;
		length = sp_get16(transport + 4);
		/* That of a packet in fragments is the whole packet's. */
		if (length < 8 || (length > payload && !has_more))
			return SP_DROP_LENGTH;
		return SP_DROP_REASONS;
	}
	if (protocol == 6) {
		if (payload < 20 || (void *)(transport + 20) > end)
			return SP_DROP_LENGTH;
		length = (transport[12] >> 4) * 4;
		return length < 20 || length > payload ? SP_DROP_LENGTH : SP_DROP_REASONS;
	}
	return SP_DROP_REASONS;
}

/*
 * Can a packet be made of this fragment and others (RFC 791, RFC 8200 section 4.5)? `before`: bytes
 * that the whole packet has in front of its payload, and that its length counts.
 */
SP_INLINE int sp_gateway_fragment_is_right(__u32 offset, __u32 has_more, __u32 payload,
					   __u32 before)
{
	return !(has_more && (payload & 7 || !payload)) && before + offset + payload <= 0xffff;
}

/* Do the options of an IPv4 header have lengths that fit it (RFC 791, 3.1)? */
__attribute__((noinline)) int sp_gateway_options_are_right(struct xdp_md *xdp, __u32 bytes,
							   __u32 padding)
{
	__u8 *options = (void *)(long)xdp->data + (padding & 0xf) + 34;
	__u8 *end = (void *)(long)xdp->data_end;
	__u64 hidden_zero = sp_unknown_zero(xdp);
	__u32 at = 0;

	for (int i = 0; i < 40; i++) {
		__u8 *option;
		__u32 length;

		/* Each round looks the same to the verifier, which then checks one. */
		at = sp_blur(at, hidden_zero) & 0x3f;
		if (at >= bytes)
			return 1;
		option = options + at;
		if (option + 2 > end)
			return 0;
		if (option[0] == 0)
			return 1;
		length = option[0] == 1 ? 1 : option[1];
		if ((option[0] != 1 && length < 2) || at + length > bytes)
			return 0;
		at += length;
	}
	return 1;
}

SP_INLINE int sp_gateway_is_martian_ipv6(const sp_u32a *address)
{
	__u32 last = bpf_ntohl(address[3]);

	if (address[0] | address[1])
		return 0;
	if (address[2])
		return address[2] == bpf_htonl(0xffff); /* an IPv4 address */
	return last <= 1; /* unspecified, loopback */
}

/* An sp_gateway_drop. */
__attribute__((noinline)) int sp_gateway_check_ipv6(struct xdp_md *xdp, __u32 port_number,
						    __u32 padding)
{
	__u8 *frame = (void *)(long)xdp->data + (padding & 0xf), *end = (void *)(long)xdp->data_end;
	struct sp_gateway_port_value *port = bpf_map_lookup_elem(&sp_gateway_port, &port_number);
	__u32 payload, fragment, reason, bytes = sp_length(xdp) - (padding & 0xf);
	const sp_u32a *source, *destination;

	if (frame + 54 > end)
		return SP_DROP_SHORT_HEADER;
	if (port) {
		reason = sp_gateway_frame(port, *(sp_u64a *)frame, frame[38] == 0xff);
		if (reason != SP_DROP_REASONS)
			return reason;
	}
	if (frame[14] >> 4 != 6)
		return SP_DROP_SHORT_HEADER;
	payload = sp_get16(frame + 18);
	if (payload + 54 > bytes)
		return SP_DROP_LENGTH;
	source = (void *)(frame + 22);
	destination = (void *)(frame + 38);
	if (frame[22] == 0xff || sp_gateway_is_martian_ipv6(source))
		return SP_DROP_MARTIAN_SOURCE;
	if (sp_gateway_is_martian_ipv6(destination))
		return SP_DROP_MARTIAN_DESTINATION;
	if (frame[20] == 44) {
		if (payload < 8 || frame + 62 > end)
			return SP_DROP_LENGTH;
		fragment = sp_get16(frame + 56);
		if (!sp_gateway_fragment_is_right(fragment & 0xfff8, fragment & 1, payload - 8, 0))
			return SP_DROP_FRAGMENT;
		reason = fragment & 0xfff8 ? SP_DROP_REASONS :
			 sp_gateway_transport(frame + 62, end, frame[54], payload - 8, fragment & 1);
	} else {
		reason = sp_gateway_transport(frame + 54, end, frame[20], payload, 0);
	}
	if (reason != SP_DROP_REASONS)
		return reason;
	return port ? sp_gateway_source_ipv6(xdp, port_number, frame, port) : SP_DROP_REASONS;
}

/* An sp_gateway_drop. */
__attribute__((noinline)) int sp_gateway_check_ipv4(struct xdp_md *xdp, __u32 port_number,
						    __u32 padding)
{
	__u8 *frame = (void *)(long)xdp->data + (padding & 0xf), *end = (void *)(long)xdp->data_end;
	__u32 header_bytes, total, source, destination, fragment, reason, bytes = sp_length(xdp) - (padding & 0xf);
	const sp_u32a *word = (const void *)(frame + 14);
	struct sp_gateway_port_value *port;
	__u64 sum;

	if (frame + 34 > end)
		return SP_DROP_SHORT_HEADER;
	destination = sp_get32(frame + 30);
	port = bpf_map_lookup_elem(&sp_gateway_port, &port_number);
	if (port) {
		/* A broadcast of a network is an address of this host; the kernel forwards none. */
		reason = sp_gateway_frame(port, *(sp_u64a *)frame,
					  destination >> 28 == 0xe ||
					  sp_is_local_ipv4(*(sp_u32a *)(frame + 30)));
		if (reason != SP_DROP_REASONS)
			return reason;
	}
	header_bytes = (frame[14] & 15) * 4;
	total = sp_get16(frame + 16);
	if (frame[14] >> 4 != 4 || header_bytes < 20 || total < header_bytes)
		return SP_DROP_SHORT_HEADER;
	if (total + 14 > bytes)
		return SP_DROP_LENGTH;
	sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	if (header_bytes > 20) {
		for (__u32 i = 5; i < 15; i++) {
			if (i * 4 >= header_bytes)
				break;
			if (frame + 18 + i * 4 > end)
				return SP_DROP_SHORT_HEADER;
			sum += word[i];
		}
	}
	if (sp_csum_fold(sum)) /* in whichever byte order: RFC 1071 */
		return SP_DROP_HEADER_CHECKSUM;
	if (header_bytes > 20 && !sp_gateway_options_are_right(xdp, header_bytes - 20, padding))
		return SP_DROP_OPTIONS;
	source = sp_get32(frame + 26);
	if (source >> 24 == 0 || source >> 24 == 127 || source >> 24 >= 224)
		return SP_DROP_MARTIAN_SOURCE;
	if (destination >> 24 == 0 || destination >> 24 == 127 || destination == 0xffffffff)
		return SP_DROP_MARTIAN_DESTINATION;
	fragment = sp_get16(frame + 20);
	if (fragment & 0x3fff &&
	    !sp_gateway_fragment_is_right((fragment & 0x1fff) * 8, fragment & 0x2000,
					  total - header_bytes, header_bytes))
		return SP_DROP_FRAGMENT;
	if (!(fragment & 0x1fff)) {
		reason = sp_gateway_transport(frame + 14 + header_bytes, end, frame[23],
					      total - header_bytes,
					      fragment & 0x2000);
		if (reason != SP_DROP_REASONS)
			return reason;
	}
	return port ? sp_gateway_source_ipv4(xdp, port_number, frame, port) : SP_DROP_REASONS;
}

/*
 * Is this an IPv4 packet without options, no fragment, of which all is right, from a source that
 * the routes were asked about (and that is thus no martian)? 0 says nothing.
 */
SP_INLINE int sp_gateway_is_usual(const __u8 *frame, const void *end, __u32 port_number,
				  __u32 bytes)
{
	const sp_u32a *word = (const void *)(frame + 14);
	struct sp_gateway_port_value *port = bpf_map_lookup_elem(&sp_gateway_port, &port_number);
	/* Not 0, and below 0: what is wrong. */
	__u64 differs, negative, *known, total, to, length, sum;
	__u32 index;

	if (!port || (void *)(frame + 54) > end)
		return 0;
	index = sp_gateway_source_index(word[3], port_number);
	known = bpf_map_lookup_elem(&sp_gateway_sources_ipv4, &index);
	if (!known)
		return 0;
	differs = *known ^ ((__u64)SP_SOURCE_GOOD << 62 | port->source_tag | word[3]);
	differs |= (*(sp_u64a *)frame ^ port->mac) & port->mac_mask;
	differs |= frame[14] ^ 0x45;
	differs |= word[1] & bpf_htonl(0x3fff); /* a fragment */
	/*
	 * The header's sum is a multiple of 0xffff (RFC 1071), and below 2^35. Times the inverse of
	 * 0xffff modulo 2^64 a multiple is its quotient, thus below 2^20, and all else is above
	 * 2^48.
	 */
	sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	differs |= sum * 0xfffefffefffeffffull >> 20;
	total = sp_get16(frame + 16);
	negative = (__u64)bytes - 14 - total;
	to = frame[30]; /* not 0/8, 127/8, 224/3 */
	negative |= (to - 1) | (223 - to) | ((to ^ 127) - 1);
	if (frame[23] == 6) {
		length = frame[46] >> 2 & 60;
		negative |= (length - 20) | (total - 20 - length);
	} else if (frame[23] == 17) {
		length = sp_get16(frame + 38);
		negative |= (length - 8) | (total - 20 - length);
	} else {
		negative |= total - 20;
	}
	return !(differs | negative >> 63);
}

/*
 * Is this a frame with a tag of VLAN 0 (802.1Q, 6.9: a priority and nothing else)? The kernel takes
 * it for one without a tag, so whoever hands it what is tagged would have it forwarded past the
 * program. ARP is the kernel's in any case. `type` is the frame's.
 */
SP_INLINE int sp_gateway_has_priority_tag(const __u8 *frame, const void *end, __u32 type)
{
	if ((type != 0x8100 && type != 0x88a8) || (void *)(frame + 18) > end)
		return 0;
	return !(sp_get16(frame + 14) & 0xfff) && sp_get16(frame + 16) != 0x0806;
}

/* What gateway_check() is compiled to. `data` is where the frame begins, behind `padding`. */
SP_INLINE int sp_gateway_check(struct xdp_md *xdp, const void *data, const void *end,
			       __u32 port_number,
			       __u32 bytes, __u32 padding)
{
	const __u8 *frame = data;
	__u32 reason;
	__u64 *count;

	if ((void *)(frame + 14) > end)
		return 1;
	if (sp_get16(frame + 12) == 0x0800) {
		if (sp_gateway_is_usual(frame, end, port_number, bytes))
			return 1;
		reason = sp_gateway_check_ipv4(xdp, port_number, padding);
	} else if (sp_get16(frame + 12) == 0x86dd) {
		reason = sp_gateway_check_ipv6(xdp, port_number, padding);
	} else if (sp_gateway_has_priority_tag(frame, end, sp_get16(frame + 12))) {
		reason = SP_DROP_PRIORITY_TAG;
	} else {
		return 1;
	}
	if (reason == SP_DROP_REASONS)
		return 1;
	count = bpf_map_lookup_elem(&sp_gateway_drops, &reason);
	if (count)
		*count += 1;
	return 0;
}

#endif
