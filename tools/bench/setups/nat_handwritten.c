/* nat_handwritten.c: the yardstick. An XDP NAT written by hand, for speed, that does the work of systems/redplane/p4/nat with -DNAT_LOCAL: same parsing, same
 * checks, same translation of TCP, UDP, ICMP echo and ICMP errors, same counters, same use of the kernel's routes. It belongs to no product: only
 * stateplane-bench loads it, to say how close compiled P4 comes. What needs an agent it drops where
 * nat.p4 does not: packets that the kernel would send on, ICMP errors of its own, fragments after the
 * first. None of these is on the path that is compared, but the question whether a packet is one of
 * them is.
 *
 * Numbers stay in network byte order wherever nothing is computed with them; one's complement sums do not mind.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
/* linux/icmp.h wants headers of the C library. */
#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define MAX_PORTS 512
#define ALLOCATION_TRIES 32

/* The kernel gives bpf_fib_lookup only to programs that say they are compatible with its licence. */
char _license[] SEC("license") = "Dual BSD/GPL";

struct icmp {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be16 id; /* echo */
	__be16 sequence;
};

struct tuple {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 zero[3];
};

struct binding {
	__be32 address;
	__be16 port;
	__u16 zero;
	__u64 last_used_ns; /* coarse clock: for the control plane, which deletes idle bindings */
};

struct prefix {
	__u32 length;
	__be32 address;
};

struct pool {
	__u32 count;
	__u16 port_low;
	__u16 port_high;
	__be32 address[16];
};

struct port_stats {
	__u64 rx_packets, rx_bytes, tx_packets, tx_bytes;
};

enum event {
	TRANSLATED_OUT,
	TRANSLATED_IN,
	UNTRANSLATED,
	UNKNOWN_INBOUND,
	NO_BINDING,
	FRAGMENTS,
	UNSUPPORTED,
	REFUSED,
	NO_NEXT_HOP,
	TTL_EXPIRED,
	NOT_IPV4,
	EVENTS,
};

enum direction { NONE, OUTBOUND, INBOUND, HAIRPIN };
/* Also tells the verifier how much of the packet was checked: the protocol, read again from the packet, would not. */
enum kind {
	KIND_UNSUPPORTED,
	KIND_TCP, /* with SYN alone */
	KIND_TCP_OTHER,
	KIND_UDP,
	KIND_ECHO_REQUEST,
	KIND_ECHO_REPLY,
	KIND_ERROR_TCP,
	KIND_ERROR_TCP_CHECKSUM, /* the embedded packet reaches as far as that */
	KIND_ERROR_UDP,
	KIND_ERROR_ECHO,
	KIND_FRAGMENT,
};

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32); /* ifindex */
	__type(value, __u32);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32); /* ifindex */
	__type(value, struct port_stats);
} port_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __be32);
	__type(value, __u8);
} local_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32); /* 1: external, 0: route untranslated */
} external SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
} inside SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__type(key, struct tuple);
	__type(value, struct binding);
} bindings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pool);
} pool SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENTS);
	__type(key, __u32);
	__type(value, __u64[2]); /* packets, bytes */
} events SEC(".maps");

/* A port's MAC, as a frame's first eight bytes have it (its own in the upper 48 bits). 0: no port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32); /* ifindex */
	__type(value, __u64);
} gateway_ports SEC(".maps");

/*
 * Sources whose route leads back out of the port: the address, << 32 the port's ifindex, and bit 63
 * when the entry is in use.
 */
#define SOURCES_BITS 14
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SOURCES_BITS);
	__type(key, __u32);
	__type(value, __u64);
} sources SEC(".maps");

/* What the parser found; l4 is 0 where there is none. */
struct packet {
	struct ethhdr *ethernet;
	struct iphdr *ip;
	void *l4;
	struct iphdr *embedded;
	void *embedded_l4;
	struct tuple key;
	__u32 kind;
};

static __always_inline void count(__u32 event, __u64 bytes)
{
	__u64 *value = bpf_map_lookup_elem(&events, &event);
	if (value) {
		value[0] += 1;
		value[1] += bytes;
	}
}

/* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'); `change` sums the words' ~m + m', 32-bit words as they are. */
static __always_inline __sum16 adjusted(__sum16 checksum, __u64 change)
{
	change += (__u16)~checksum;
	change = (change & 0xffffffff) + (change >> 32);
	change = (change & 0xffff) + (change >> 16);
	change = (change & 0xffff) + (change >> 16);
	change = (change & 0xffff) + (change >> 16);
	return ~change;
}

static __always_inline __sum16 adjusted_udp(__sum16 checksum, __u64 change)
{
	if (!checksum)
		return 0;
	checksum = adjusted(checksum, change);
	return checksum ? checksum : 0xffff;
}

static __always_inline __u64 replaced32(__be32 before, __be32 after)
{
	return (__u64)(__u32)~before + after;
}

static __always_inline __u64 replaced16(__be16 before, __be16 after)
{
	return (__u64)(__u16)~before + after;
}

/*
 * Does the route to a packet's source leave by a port that it may come from (RFC 3704, strict)? Here
 * the ports share their routes.
 */
static __noinline int comes_from_there(struct xdp_md *xdp, __be32 source, __be32 destination)
{
	struct bpf_fib_lookup route = {};
	__u32 ifindex, index = ((source ^ xdp->ingress_ifindex << 23) * 2654435761u) >> (32 - SOURCES_BITS);
	__u64 *mac, *known;
	long way;

	if (bpf_map_lookup_elem(&local_addresses, &source))
		return 0;
	route.family = AF_INET;
	route.ifindex = xdp->ingress_ifindex;
	route.ipv4_src = destination;
	route.ipv4_dst = source;
	way = bpf_fib_lookup(xdp, &route, sizeof(route), 0);
	if (way < 0 || (way >= BPF_FIB_LKUP_RET_BLACKHOLE && way <= BPF_FIB_LKUP_RET_NOT_FWDED))
		return 0;
	ifindex = route.ifindex;
	mac = bpf_map_lookup_elem(&gateway_ports, &ifindex);
	if (!mac || !*mac)
		return 0;
	known = bpf_map_lookup_elem(&sources, &index);
	if (known)
		*known = source | (__u64)xdp->ingress_ifindex << 32 | 1ull << 63;
	return 1;
}

/*
 * Do the options behind the first 20 bytes of an IPv4 header have lengths that fit it (RFC 791, 3.1)?
 * A global function: the verifier checks it alone.
 */
__attribute__((noinline)) int are_options_right(struct xdp_md *xdp, __u32 bytes)
{
	__u8 *options = (void *)(long)xdp->data + ETH_HLEN + sizeof(struct iphdr);
	void *end = (void *)(long)xdp->data_end;
	__u32 at = 0;

	for (int i = 0; i < 40; i++) {
		__u8 *option;
		__u32 length;

		at &= 63;
		if (at >= bytes)
			return 1;
		option = options + at;
		if ((void *)(option + 2) > end)
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

/*
 * Must a gateway not forward the packet (RFC 1812, 4.2.2, 5.2.2, 5.3.7, 5.3.8)? The first 20 bytes
 * of its IPv4 header are there.
 */
static __always_inline int is_refused(struct xdp_md *xdp, const struct packet *packet,
				      void *data_end, __u64 bytes)
{
	const struct iphdr *ip = packet->ip;
	const __u32 *word = (const void *)ip;
	__u32 header_bytes = ip->ihl * 4, total = bpf_ntohs(ip->tot_len), source = bpf_ntohl(ip->saddr);
	__u32 destination = bpf_ntohl(ip->daddr), payload, port = xdp->ingress_ifindex, index;
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4], *mac, *known;

	mac = bpf_map_lookup_elem(&gateway_ports, &port);
	if (!mac)
		return 1;
	/* (Frames for other MACs are taken, too: those of both ports come in on one.) */
	if ((bpf_be64_to_cpu(*(__u64 *)packet->ethernet) ^ *mac) >> 16 &&
	    packet->ethernet->h_dest[0] & 1 && destination >> 28 != 0xe)
		return 1;
	if (ip->version != 4 || header_bytes < 20 || total < header_bytes || total + ETH_HLEN > bytes)
		return 1;
	for (__u32 i = 5; i < 15; i++) {
		if (i * 4 >= header_bytes)
			break;
		const __u32 *option = word + i;
		asm volatile("" : "+r"(option)); /* else clang computes with data_end, which the verifier forbids */
		if ((void *)(option + 1) > data_end)
			return 1;
		sum += *option;
	}
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	if (sum != 0xffff)
		return 1;
	if (source >> 24 == 0 || source >> 24 == 127 || source >> 24 >= 224 ||
	    destination >> 24 == 0 || destination >> 24 == 127 || destination == 0xffffffff)
		return 1;
	if (header_bytes > 20 && !are_options_right(xdp, header_bytes - 20))
		return 1;
	payload = total - header_bytes;
	if (ip->frag_off & bpf_htons(0x3fff)) { /* can a packet be made of it and others (RFC 791)? */
		if (ip->frag_off & bpf_htons(0x2000) && (payload & 7 || !payload))
			return 1;
		if (header_bytes + (bpf_ntohs(ip->frag_off) & 0x1fff) * 8 + payload > 0xffff)
			return 1;
	}
	if (!(ip->frag_off & bpf_htons(0x1fff))) {
		if (ip->protocol == IPPROTO_UDP) {
			const struct udphdr *udp = packet->l4;
			if (payload < sizeof(*udp) || (void *)(udp + 1) > data_end || bpf_ntohs(udp->len) < sizeof(*udp) ||
			    (bpf_ntohs(udp->len) > payload && !(ip->frag_off & bpf_htons(0x2000))))
				return 1;
		} else if (ip->protocol == IPPROTO_TCP) {
			const struct tcphdr *tcp = packet->l4;
			if (payload < sizeof(*tcp) || (void *)(tcp + 1) > data_end || tcp->doff < 5 || tcp->doff * 4 > payload)
				return 1;
		}
	}
	index = ((ip->saddr ^ port << 23) * 2654435761u) >> (32 - SOURCES_BITS);
	known = bpf_map_lookup_elem(&sources, &index);
	if (known && *known == (ip->saddr | (__u64)port << 32 | 1ull << 63))
		return 0;
	return !comes_from_there(xdp, ip->saddr, ip->daddr);
}

/* What the IPv4 header says that it carries: behind that, Ethernet pads. */
static __always_inline __u32 carried_bytes(const struct iphdr *ip)
{
	return bpf_ntohs(ip->tot_len) - ip->ihl * 4;
}

/* The packet that an ICMP error is about, turned round: the key of an answer to it. */
static __always_inline void parse_error(struct packet *packet, void *data_end)
{
	struct icmp *icmp = packet->l4;
	struct iphdr *embedded = (void *)(icmp + 1);
	__u16 *words;
	__u32 bytes;

	if ((void *)(embedded + 1) > data_end || embedded->version != 4 || embedded->ihl < 5)
		return;
	bytes = embedded->ihl * 4;
	words = (void *)embedded + bytes;
	if (embedded->frag_off & bpf_htons(0x1fff) || carried_bytes(packet->ip) < sizeof(struct icmp) + bytes + 8)
		return;
	packet->key.source = embedded->daddr;
	packet->key.destination = embedded->saddr;
	packet->key.protocol = embedded->protocol;
	switch (embedded->protocol) {
	case IPPROTO_TCP:
		if ((void *)(words + 2) > data_end)
			return;
		packet->kind = KIND_ERROR_TCP;
		if ((void *)(words + 9) <= data_end &&
		    bpf_ntohs(packet->ip->tot_len) >= packet->ip->ihl * 4 + sizeof(struct icmp) + bytes + 18)
			packet->kind = KIND_ERROR_TCP_CHECKSUM;
		packet->key.source_port = words[1];
		packet->key.destination_port = words[0];
		break;
	case IPPROTO_UDP:
		if ((void *)(words + 4) > data_end)
			return;
		packet->kind = KIND_ERROR_UDP;
		packet->key.source_port = words[1];
		packet->key.destination_port = words[0];
		break;
	case IPPROTO_ICMP:
		if ((void *)(words + 4) > data_end)
			return;
		if (*(__u8 *)words == ICMP_ECHO)
			packet->key.destination_port = words[2];
		else if (*(__u8 *)words == ICMP_ECHOREPLY)
			packet->key.source_port = words[2];
		else
			return;
		packet->kind = KIND_ERROR_ECHO;
	}
	packet->embedded = embedded;
	packet->embedded_l4 = words;
}

static __always_inline void parse_transport(struct packet *packet, void *data_end)
{
	struct iphdr *ip = packet->ip;

	if (ip->frag_off & bpf_htons(0x1fff)) {
		packet->kind = KIND_FRAGMENT;
		return;
	}
	switch (ip->protocol) {
	case IPPROTO_TCP: {
		struct tcphdr *tcp = packet->l4;
		if ((void *)(tcp + 1) > data_end || carried_bytes(ip) < sizeof(*tcp))
			return;
		packet->key.source_port = tcp->source;
		packet->key.destination_port = tcp->dest;
		packet->kind = tcp->syn && !tcp->ack && !tcp->rst && !tcp->fin ? KIND_TCP : KIND_TCP_OTHER;
		return;
	}
	case IPPROTO_UDP: {
		struct udphdr *udp = packet->l4;
		if ((void *)(udp + 1) > data_end || carried_bytes(ip) < sizeof(*udp))
			return;
		packet->key.source_port = udp->source;
		packet->key.destination_port = udp->dest;
		packet->kind = KIND_UDP;
		return;
	}
	case IPPROTO_ICMP: {
		struct icmp *icmp = packet->l4;
		if ((void *)(icmp + 1) > data_end || carried_bytes(ip) < sizeof(*icmp))
			return;
		switch (icmp->type) {
		case ICMP_ECHO:
			packet->key.source_port = icmp->id;
			packet->kind = KIND_ECHO_REQUEST;
			return;
		case ICMP_ECHOREPLY:
			packet->key.destination_port = icmp->id;
			packet->kind = KIND_ECHO_REPLY;
			return;
		case ICMP_DEST_UNREACH:
		case ICMP_TIME_EXCEEDED:
		case ICMP_PARAMETERPROB:
			parse_error(packet, data_end);
		}
	}
	}
}

/* A new binding and its reverse: the source port itself if it is free, else random ones. Seldom, so out of line. */
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
/* The pool is empty: who makes bindings is a controller outside (bench: external controller), which gets the packet and sends it again once there is one. */
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
static __always_inline void translate_embedded(struct packet *packet, __u32 direction, __be32 address, __be16 port,
					       __u64 address_change, __u64 port_change)
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
static __always_inline __u32 find_binding(const struct packet *packet, __u32 direction, struct binding *made)
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
	if ((packet->kind != KIND_TCP && packet->kind != KIND_UDP && packet->kind != KIND_ECHO_REQUEST) || allocate(key, made))
		return NO_BINDING + 1;
	return 0;
}

/* Rewrites the packet; returns what that adds to the IPv4 header's sum. */
static __always_inline __u64 translate(struct packet *packet, __u32 direction, __be32 address, __be16 port)
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
	__u64 bytes = bpf_xdp_get_buff_len(xdp), ip_change = bpf_htons(0xfeff); /* ~m + m - 0x0100: the TTL goes down by one */
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
		direction = bpf_map_lookup_elem(&inside, &prefix) ? found ? HAIRPIN : OUTBOUND : found ? INBOUND : NONE;
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
	count(direction == OUTBOUND ? TRANSLATED_OUT : direction == INBOUND ? TRANSLATED_IN : UNTRANSLATED, bytes);
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
