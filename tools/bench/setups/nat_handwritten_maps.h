/* nat_handwritten_maps.h: what nat_handwritten.c keeps in maps: bindings, prefixes, the pool,
 * ports, counters. Part of nat_handwritten.c. */
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
/* Also tells the verifier how much of the packet was checked: the protocol, read again from the
 * packet, would not. */
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

/* A port's MAC, as a frame's first eight bytes have it (its own in the upper 48 bits). 0: no port.
 */
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
