/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stateplane_gateway_layouts.h: what the parts for gateways share with user space.
 *
 * Generated from switch/dataplane/src/layouts/net.rs. Edit that, then run
 * UPDATE=1 cargo test -p dataplane --lib layouts
 */
#ifndef STATEPLANE_GATEWAY_LAYOUTS_H
#define STATEPLANE_GATEWAY_LAYOUTS_H

#define SP_KERNEL_PORT 510 /* the P4 port by which the kernel sends */
#define SP_FRAGMENT_LIFE_NS 30000000000ull /* of what is remembered of a first fragment */
#define SP_RELEASED_META 8318274291689152883ull /* in front of a fragment that was held */

/* What is asked of a source. */
enum {
	SP_REVERSE_PATH_OFF = 0,
	SP_REVERSE_PATH_LOOSE = 1,
	SP_REVERSE_PATH_STRICT = 2,
};

/* What the agent is to do with a frame. */
enum {
	SP_SLOW_SEND = 1, /* send it without its Ethernet header */
	SP_SLOW_HOLD = 2, /* hold a fragment until its key is in sp_fragments */
};

/* Why gateway_check() said no. */
enum sp_gateway_drop {
	SP_DROP_OTHER_MAC,
	SP_DROP_BROADCAST_FRAME,
	SP_DROP_SHORT_HEADER,
	SP_DROP_LENGTH,
	SP_DROP_HEADER_CHECKSUM,
	SP_DROP_MARTIAN_SOURCE,
	SP_DROP_MARTIAN_DESTINATION,
	SP_DROP_REVERSE_PATH,
	SP_DROP_PRIORITY_TAG,
	SP_DROP_OPTIONS,
	SP_DROP_FRAGMENT,
	SP_DROP_REASONS, /* as a result: none */
};

/* What else is counted. */
enum sp_gateway_event {
	SP_EVENT_ICMP_SENT,
	SP_EVENT_ICMP_SUPPRESSED,
	SP_EVENT_ICMP_RATE_LIMITED,
	SP_EVENT_ICMP_NO_ADDRESS,
	SP_EVENT_SENT_BY_KERNEL,
	SP_EVENT_SLOW_PATH_FULL,
	SP_EVENT_FRAGMENTS_REMEMBERED,
	SP_EVENT_FRAGMENTS_HELD,
	SP_EVENT_FRAGMENTS_REFUSED,
	SP_EVENTS, /* how many */
};

/* What user space tells of a port. */
struct sp_gateway_port_value {
	__u64 mac; /* As the first eight bytes of a frame for it, the last two 0; 0: not known. */
	/* What of it a unicast frame must have; any MAC: only that it is unicast. */
	__u64 mac_mask;
	/* Of sp_gateway_sources_ipv4 the bits 32 to 61: port, route generation, reverse path. */
	__u64 source_tag;
	__u64 siblings; /* Bit p: port p below 64 shares a multipath route with this one. */
	__be32 ipv4; /* The source of ICMP errors; 0: none. */
	__be32 ipv6[4]; /* The same of ICMPv6. */
	__u32 ifindex; /* Its interface. */
	__u32 mtu; /* Bytes of an IP packet; 0: not known. */
	/*
	 * Grows with each change of routes, rules, addresses and links: what is known of sources
	 * is void then.
	 */
	__u32 route_generation;
	__u8 reverse_path; /* SP_REVERSE_PATH_ */
	__u8 zero[7]; /* Zero. */
};
_Static_assert(sizeof(struct sp_gateway_port_value) == 72, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_gateway_port_value, zero) == 65, "as in Rust");

/* The switch's settings. */
struct sp_gateway_settings_value {
	__u32 icmp_rate_per_s; /* ICMP errors a second; 0: none. */
	__u32 clamp_mss; /* 0: clamp_tcp_mss has no effect. */
	__u32 hold_fragments; /* 0: the agent takes no fragments. */
};
_Static_assert(sizeof(struct sp_gateway_settings_value) == 12, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_gateway_settings_value, hold_fragments) == 8, "as in Rust");

/* A key of an LPM trie of IPv4 prefixes. */
struct sp_gateway_prefix_ipv4 {
	__u32 bits; /* Its length. */
	__be32 address; /* What it begins with. */
};
_Static_assert(sizeof(struct sp_gateway_prefix_ipv4) == 8, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_gateway_prefix_ipv4, address) == 4, "as in Rust");

/*
 * Which fragments are parts of one packet. IPv4 addresses stand in the last four bytes of
 * sixteen.
 */
struct sp_fragment_key {
	__be32 source[4]; /* The packet's. */
	__be32 destination[4]; /* The packet's. */
	__u32 identification; /* The packet's. */
	__u8 protocol; /* The packet's. */
	__u8 zero[3]; /* Zero. */
};
_Static_assert(sizeof(struct sp_fragment_key) == 40, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_fragment_key, zero) == 37, "as in Rust");

/* What the program hands to the agent; `length` bytes of the frame follow. */
struct sp_slow_record {
	__u32 kind; /* SP_SLOW_ */
	__u32 port; /* The P4 port that it came in on. */
	__u32 length; /* Bytes of the frame. */
	__u32 zero; /* Zero. */
	struct sp_fragment_key key; /* Of SP_SLOW_HOLD. */
};
_Static_assert(sizeof(struct sp_slow_record) == 56, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_slow_record, key) == 16, "as in Rust");

/* What is known of a first fragment. */
struct sp_fragment_value {
	__u64 seen_ns; /* When it came (bpf_ktime_get_ns). */
	__u16 source_port; /* Its ports. */
	__u16 destination_port; /* Its ports. */
	__u32 zero; /* Zero. */
};
_Static_assert(sizeof(struct sp_fragment_value) == 16, "as in Rust");
_Static_assert(__builtin_offsetof(struct sp_fragment_value, zero) == 12, "as in Rust");

#endif
