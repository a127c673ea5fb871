/* nat_handwritten_parse.h: reads a packet and refuses what a gateway refuses. Part of
 * nat_handwritten.c. */
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

/* RFC 1624, equation 3: HC' = ~(~HC + ~m + m'); `change` sums the words' ~m + m', 32-bit words as
 * they are. */
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
 * Does the route to a packet's source leave by a port that it may come from (RFC 3704, strict)?
 * Here the ports share their routes.
 */
static __noinline int comes_from_there(struct xdp_md *xdp, __be32 source, __be32 destination)
{
	struct bpf_fib_lookup route = {};
	__u32 ifindex, index = ((source ^ xdp->ingress_ifindex << 23) * 2654435761u) >>
			       (32 - SOURCES_BITS);
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
 * Do the options behind the first 20 bytes of an IPv4 header have lengths that fit it (RFC
 * 791, 3.1)? A global function: the verifier checks it alone.
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
		asm volatile(""
			     : "+r"(option)); /* else clang computes with data_end, which the
						 verifier forbids */
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
			if (payload < sizeof(*udp) || (void *)(udp + 1) > data_end ||
			    bpf_ntohs(udp->len) < sizeof(*udp) ||
			    (bpf_ntohs(udp->len) > payload && !(ip->frag_off & bpf_htons(0x2000))))
				return 1;
		} else if (ip->protocol == IPPROTO_TCP) {
			const struct tcphdr *tcp = packet->l4;
			if (payload < sizeof(*tcp) || (void *)(tcp + 1) > data_end ||
			    tcp->doff < 5 || tcp->doff * 4 > payload)
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
	if (embedded->frag_off & bpf_htons(0x1fff) ||
	    carried_bytes(packet->ip) < sizeof(struct icmp) + bytes + 8)
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
