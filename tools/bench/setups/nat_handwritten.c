/* nat_handwritten.c: the yardstick. An XDP NAT written by hand, for speed, that does the work of
 * systems/redplane/p4/nat with -DNAT_LOCAL: same parsing, same checks, same translation of TCP,
 * UDP, ICMP echo and ICMP errors, same counters, same use of the kernel's routes. It belongs to no
 * product: only stateplane-bench loads it, to say how close compiled P4 comes. What needs an agent
 * it drops where nat.p4 does not: packets that the kernel would send on, ICMP errors of its own,
 * fragments after the first. None of these is on the path that is compared, but the question
 * whether a packet is one of them is.
 *
 * Numbers stay in network byte order wherever nothing is computed with them; one's complement sums
 * do not mind.
 */
#include "nat_handwritten_maps.h"
#include "nat_handwritten_parse.h"

/* The kernel gives bpf_fib_lookup only to programs that say they are compatible with its
 * licence. */
char _license[] SEC("license") = "Dual BSD/GPL";

/* A new binding and its reverse: the source port itself if it is free, else random ones. Seldom, so
 * out of line. */
static __noinline int allocate(const struct tuple *key, struct binding *made)
{
	struct tuple reverse = {};
	struct binding back = {};
	struct pool *from;
	__u32 zero = 0, port, range;

	if (!key || !made)
		return -1;
	from = bpf_map_lookup_elem(&pool, &zero);
	if (!from || !from->count || from->port_high < from->port_low)
		return -1;
	range = from->port_high - from->port_low + 1;
	made->address = from->address[(bpf_ntohl(key->source) % from->count) & 15];
	made->zero = 0;
	made->last_used_ns = bpf_ktime_get_coarse_ns();
	reverse.source = key->destination;
	reverse.destination = made->address;
	reverse.source_port = key->destination_port;
	reverse.protocol = key->protocol;
	back.address = key->source;
	back.port = key->source_port;
	back.last_used_ns = made->last_used_ns;
	port = bpf_ntohs(key->source_port);
	for (int i = 0; i < ALLOCATION_TRIES; i++) {
		__be16 candidate = bpf_htons(port);

		if (port >= from->port_low && port <= from->port_high) {
			reverse.destination_port = candidate;
			if (!bpf_map_update_elem(&bindings, &reverse, &back, BPF_NOEXIST)) {
				made->port = candidate;
				if (!bpf_map_update_elem(&bindings, key, made, BPF_NOEXIST))
					return 0;
				bpf_map_delete_elem(&bindings, &reverse);
				return -1;
			}
		}
		port = from->port_low + bpf_get_prandom_u32() % range;
	}
	return -1;
}

#ifdef WITH_CONTROLLER
/* The pool is empty: who makes bindings is a controller outside (bench: external controller), which
 * gets the packet and sends it again once there is one. */
#define MISS_BYTES 1536
struct miss {
	__u32 bytes;
	__u8 frame[MISS_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} misses SEC(".maps");

static __always_inline void tell_controller(struct xdp_md *xdp, __u64 bytes)
{
	struct miss *miss = bpf_ringbuf_reserve(&misses, sizeof(*miss), 0);

	if (!miss)
		return;
	miss->bytes = 0;
	if (bytes && bytes <= MISS_BYTES && !bpf_xdp_load_bytes(xdp, 0, miss->frame, bytes))
		miss->bytes = bytes;
	bpf_ringbuf_submit(miss, 0);
}
#endif

static __always_inline int is_error(const struct packet *packet)
{
	return packet->kind >= KIND_ERROR_TCP && packet->kind <= KIND_ERROR_ECHO;
}

/* RFC 5508, section 4: the embedded packet becomes the one that the receiver knows. */
static __always_inline void translate_embedded(struct packet *packet, __u32 direction,
					       __be32 address, __be16 port, __u64 address_change,
					       __u64 port_change)
{
	struct icmp *icmp = packet->l4;
	struct iphdr *embedded = packet->embedded;
	__u16 *words = packet->embedded_l4;
	__u64 change = address_change + port_change;
	__u16 before = embedded->check;

	embedded->check = adjusted(before, address_change);
	change += replaced16(before, embedded->check);
	if (direction == OUTBOUND)
		embedded->daddr = address;
	else
		embedded->saddr = address;
	if (packet->kind == KIND_ERROR_ECHO) {
		before = words[1];
		words[1] = adjusted(before, port_change);
		words[2] = port;
		change += replaced16(before, words[1]);
	} else {
		if (direction == OUTBOUND)
			words[1] = port;
		else
			words[0] = port;
		if (packet->kind == KIND_ERROR_UDP) {
			before = words[3];
			words[3] = adjusted_udp(before, address_change + port_change);
			change += replaced16(before, words[3]);
		} else if (packet->kind == KIND_ERROR_TCP_CHECKSUM) {
			before = words[8];
			words[8] = adjusted(before, address_change + port_change);
			change += replaced16(before, words[8]);
		}
	}
	icmp->checksum = adjusted(icmp->checksum, change);
}

/* 0: the binding is in `made`; otherwise the event of the packet's drop, plus 1. */
static __always_inline __u32 find_binding(const struct packet *packet, __u32 direction,
					  struct binding *made)
{
	const struct tuple *key = &packet->key;
	struct binding *binding;

	if (packet->kind == KIND_FRAGMENT)
		return FRAGMENTS + 1;
	if (packet->kind == KIND_UNSUPPORTED)
		return UNSUPPORTED + 1;
	if (is_error(packet) && packet->ip->daddr != key->destination)
		return direction == OUTBOUND ? NO_BINDING + 1 : UNKNOWN_INBOUND + 1;
	binding = bpf_map_lookup_elem(&bindings, key);
	if (binding) {
		__u64 now = bpf_ktime_get_coarse_ns();
		/* Dirties the cache line seldom: bindings live for minutes. */
		if (now - binding->last_used_ns > 100000000)
			binding->last_used_ns = now;
		made->address = binding->address;
		made->port = binding->port;
		return 0;
	}
	if (direction == INBOUND)
		return UNKNOWN_INBOUND + 1;
	/* Outbound, and from one inside host to another's external address. */
	if ((packet->kind != KIND_TCP && packet->kind != KIND_UDP &&
	     packet->kind != KIND_ECHO_REQUEST) ||
	    allocate(key, made))
		return NO_BINDING + 1;
	return 0;
}

/* Rewrites the packet; returns what that adds to the IPv4 header's sum. */
static __always_inline __u64 translate(struct packet *packet, __u32 direction, __be32 address,
				       __be16 port)
{
	const struct tuple *key = &packet->key;
	struct iphdr *ip = packet->ip;
	__u64 address_change, port_change, ip_change;

	if (direction == OUTBOUND) {
		address_change = replaced32(key->source, address);
		port_change = replaced16(key->source_port, port);
		ip_change = replaced32(ip->saddr, address);
		ip->saddr = address;
	} else {
		address_change = replaced32(key->destination, address);
		port_change = replaced16(key->destination_port, port);
		ip_change = address_change;
		ip->daddr = address;
	}
	if (is_error(packet)) {
		translate_embedded(packet, direction, address, port, address_change, port_change);
	} else if (packet->kind == KIND_TCP || packet->kind == KIND_TCP_OTHER) {
		struct tcphdr *tcp = packet->l4;
		tcp->check = adjusted(tcp->check, address_change + port_change);
		if (direction == OUTBOUND)
			tcp->source = port;
		else
			tcp->dest = port;
	} else if (packet->kind == KIND_UDP) {
		struct udphdr *udp = packet->l4;
		udp->check = adjusted_udp(udp->check, address_change + port_change);
		if (direction == OUTBOUND)
			udp->source = port;
		else
			udp->dest = port;
	} else {
		struct icmp *icmp = packet->l4;
		icmp->checksum = adjusted(icmp->checksum, port_change);
		icmp->id = port;
	}
	return ip_change;
}

SEC("xdp.frags")
int nat(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *data_end = (void *)(long)xdp->data_end;
	__u64 bytes = bpf_xdp_get_buff_len(xdp),
	      ip_change = bpf_htons(0xfeff); /* ~m + m - 0x0100: the TTL goes down by one */
	struct bpf_fib_lookup route = {};
	struct port_stats *stats;
	struct binding binding = {};
	struct packet packet = {};
	struct prefix prefix;
	__u32 direction = NONE, port = xdp->ingress_ifindex, drop, *found;
	struct iphdr *ip;
	long way;

	stats = bpf_map_lookup_elem(&port_stats, &port);
	if (stats) {
		stats->rx_packets += 1;
		stats->rx_bytes += bytes;
	}
	packet.ethernet = data;
	if ((void *)(packet.ethernet + 1) > data_end)
		return XDP_DROP;
	if (packet.ethernet->h_proto != bpf_htons(ETH_P_IP)) {
		count(NOT_IPV4, bytes);
		return XDP_PASS;
	}
	ip = packet.ip = (void *)(packet.ethernet + 1);
	if ((void *)(ip + 1) > data_end)
		goto refused;
	/* The host's own, multicast and broadcast destinations. */
	if (bpf_map_lookup_elem(&local_addresses, &ip->daddr) ||
	    (ip->daddr & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || ip->daddr == 0xffffffff)
		return XDP_PASS;
	packet.l4 = (void *)ip + ip->ihl * 4;
	if (packet.l4 > data_end || is_refused(xdp, &packet, data_end, bytes))
		goto refused;
	if (ip->ttl <= 1) {
		/* nat.p4 answers with time exceeded, which no packet that is measured needs. */
		count(TTL_EXPIRED, bytes);
		return XDP_DROP;
	}
	packet.key.source = ip->saddr;
	packet.key.destination = ip->daddr;
	packet.key.protocol = ip->protocol;
	parse_transport(&packet, data_end);

	prefix.length = 32;
	prefix.address = ip->daddr;
	found = bpf_map_lookup_elem(&external, &prefix);
	if (!found || *found) {
		prefix.address = ip->saddr;
		direction = bpf_map_lookup_elem(&inside, &prefix) ? found ? HAIRPIN : OUTBOUND
			    : found				  ? INBOUND
								  : NONE;
	}
	if (direction == HAIRPIN && packet.key.protocol == IPPROTO_ICMP) {
		count(UNKNOWN_INBOUND, bytes);
		return XDP_DROP;
	}
	route.ipv4_src = ip->saddr;
	route.ipv4_dst = ip->daddr;
	route.sport = packet.key.source_port;
	route.dport = packet.key.destination_port;
	route.family = AF_INET;
	route.tos = ip->tos;
	route.l4_protocol = ip->protocol;
	route.tot_len = bpf_ntohs(ip->tot_len);
	route.ifindex = xdp->ingress_ifindex;
	/* Outbound the way comes first: without one there is no binding. */
	if (direction == NONE || direction == OUTBOUND) {
		if (direction == OUTBOUND && (packet.kind == KIND_FRAGMENT || packet.kind == KIND_UNSUPPORTED)) {
			count(packet.kind == KIND_FRAGMENT ? FRAGMENTS : UNSUPPORTED, bytes);
			return XDP_DROP;
		}
		if (direction == OUTBOUND && is_error(&packet) && ip->daddr != packet.key.destination) {
			count(NO_BINDING, bytes);
			return XDP_DROP;
		}
		way = bpf_fib_lookup(xdp, &route, sizeof(route), 0);
		if (way != BPF_FIB_LKUP_RET_SUCCESS) {
			if (direction == NONE || way == BPF_FIB_LKUP_RET_NOT_FWDED || way <= BPF_FIB_LKUP_RET_PROHIBIT)
				return XDP_PASS;
			count(NO_NEXT_HOP, bytes);
			return XDP_DROP;
		}
	}
	if (direction != NONE) {
		drop = find_binding(&packet, direction, &binding);
		if (drop) {
#ifdef WITH_CONTROLLER
			if (drop == NO_BINDING + 1)
				tell_controller(xdp, bytes);
#endif
			count(drop - 1, bytes);
			return XDP_DROP;
		}
	}
	if (direction == HAIRPIN) {
		/* As it would come back from outside. */
		ip_change += translate(&packet, OUTBOUND, binding.address, binding.port);
		packet.key.source = binding.address;
		packet.key.source_port = binding.port;
		direction = INBOUND;
		drop = find_binding(&packet, direction, &binding);
		if (drop) {
			count(drop - 1, bytes);
			return XDP_DROP;
		}
		route.ipv4_src = packet.key.source;
		route.sport = packet.key.source_port;
	}
	if (direction == INBOUND) {
		route.ipv4_dst = binding.address;
		route.dport = binding.port;
		if (bpf_fib_lookup(xdp, &route, sizeof(route), 0) != BPF_FIB_LKUP_RET_SUCCESS) {
			count(NO_NEXT_HOP, bytes);
			return XDP_DROP;
		}
	}
	if (direction != NONE)
		ip_change += translate(&packet, direction, binding.address, binding.port);
	__builtin_memcpy(packet.ethernet->h_dest, route.dmac, ETH_ALEN);
	__builtin_memcpy(packet.ethernet->h_source, route.smac, ETH_ALEN);
	ip->ttl -= 1;
	ip->check = adjusted(ip->check, ip_change);
	count(direction == OUTBOUND  ? TRANSLATED_OUT
	      : direction == INBOUND ? TRANSLATED_IN
				     : UNTRANSLATED,
	      bytes);
	port = route.ifindex;
	stats = bpf_map_lookup_elem(&port_stats, &port);
	if (stats) {
		stats->tx_packets += 1;
		stats->tx_bytes += bytes;
	}
	return bpf_redirect_map(&ports, port, XDP_DROP);

refused:
	count(REFUSED, bytes);
	return XDP_DROP;
}
