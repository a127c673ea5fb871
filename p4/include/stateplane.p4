// stateplane.p4: what a P4-16 program for stateplane can use beside v1model.
//
// Include it after v1model.p4; it includes the files of all systems. Everything here is an ordinary
// extern: a program stays plain P4-16.
#ifndef STATEPLANE_P4
#define STATEPLANE_P4

// State that survives failures: the systems, one line each. An object that a program does not
// declare adds nothing to it.
#include <stateplane/netchain.p4>
#include <stateplane/redplane.p4>
#include <stateplane/swish.p4>

/// What the kernel's routing table says of a destination.
enum FibResult {
    /// Next hop known: port and addresses are filled in.
    FORWARD,
    /// The destination is this host, or there is no route (the kernel does not tell them apart), or
    /// this host does not forward (`ip_forward`): hand the packet to the kernel.
    LOCAL,
    /// Next hop not resolved yet, a route out of an interface that is no port, or another case that
    /// the kernel must see to: hand it to the kernel, by to_host() or by KERNEL_PORT.
    KERNEL,
    /// A route that says so: unreachable, blackhole or prohibit.
    UNREACHABLE,
    /// The packet is longer than the route's MTU, which is fib_mtu(). It must be fragmented
    /// (KERNEL_PORT), or answered with an ICMP error (reply_icmp_error).
    TOO_BIG
}

/// Looks up the kernel's routes (those that BIRD or FRR install) and neighbours for an IPv4 packet:
/// bpf_fib_lookup. ECMP picks the path by the addresses, protocol and ports given here.
extern FibResult fib_lookup_ipv4(in bit<32> source, in bit<32> destination, in bit<8> protocol,
                                 in bit<16> source_port, in bit<16> destination_port,
                                 in bit<16> total_length, in bit<8> tos,
                                 out bit<9> port, out bit<48> source_mac,
                                 out bit<48> destination_mac);

/// The same for IPv6.
extern FibResult fib_lookup_ipv6(in bit<128> source, in bit<128> destination, in bit<8> next_header,
                                 in bit<16> source_port, in bit<16> destination_port,
                                 in bit<16> payload_length, in bit<20> flow_label,
                                 out bit<9> port, out bit<48> source_mac,
                                 out bit<48> destination_mac);

/// The MTU in bytes of the route that this packet's last fib_lookup found; 0 if it found none, or
/// one whose next hop is not resolved.
extern bit<16> fib_mtu();

/// A packet whose egress_spec is this constant is sent as the program made it, by this host's
/// kernel and by the kernel's own routes: the kernel resolves the next hop and holds the packet
/// meanwhile, fragments it (IPv4 without DF), and uses interfaces that are no ports. The program
/// has decremented the TTL already. The packet must be IPv4 or IPv6 behind an Ethernet header. The
/// runtime drops it, and counts it as `slow_path_full`, if the switch agent does not take it.
const bit<9> KERNEL_PORT = 510;

/// The port that packets of the switch's own packet generator come in on. No interface has it, so
/// no other packet does.
const bit<9> GENERATOR_PORT = 509;

/// What a gateway checks of a packet before it forwards it (RFC 1812, 4.2.2, 5.2.2, 5.3.7, 5.3.8;
/// RFC 8200; RFC 4291): the frame's destination address, the lengths of the IP header, the packet
/// and its UDP or TCP header, the IPv4 header's checksum, martian addresses, and whether the
/// source's own route goes out of the port that the packet came in on (RFC 3704). It looks at the
/// packet as it came in, whatever the program has changed. False: the program drops the packet, and
/// the runtime has counted the reason. Frames with an 802.1Q tag, and those that are neither IPv4
/// nor IPv6, pass. A tag of VLAN 0 does not pass, as it carries a priority only: the kernel would
/// forward such a packet as if it had no tag. UDP and TCP behind IPv6 extension headers are not
/// checked.
extern bool gateway_check();

/// Ends processing: the packet, as it came in, is answered with an ICMP error (of an IPv6 packet
/// ICMPv6) and is dropped. `rest` is the second word of the ICMP header, such as the MTU. The
/// answer leaves by the ingress port, from the port's own address, to the frame's source, and
/// quotes the packet as far as 576 bytes (IPv6: 1280) go. None is sent, and the runtime counts why,
/// about ICMP errors, fragments after the first, multicast and broadcast, and sources that are no
/// single host (RFC 1812, 4.3.2.7; RFC 4443, 2.4), nor beyond the switch's rate
/// (`icmp_rate_per_s`). Of a packet that waits in the network for an update, only the update is
/// sent.
extern void reply_icmp_error(in bit<8> type, in bit<8> code, in bit<32> rest);

/// What is known of a fragment's ports.
enum FragmentResult {
    /// The ports are those of the whole packet.
    PORTS,
    /// The first fragment has not come yet: the agent holds this one, as it came in, and runs it
    /// through the program again when the first has come. Processing ends here.
    HELD,
    /// The first fragment has not come, and the agent holds no more: the program drops this one.
    FULL
}

/// The ports of a fragment of an IP packet (virtual reassembly: RFC 4787, REQ-14; RFC 6146, 3.4).
/// `first`: this is the first fragment, and source_port and destination_port are its ports. They
/// are remembered for 30 seconds, of the newest 16,384 packets. The ports of other fragments become
/// those of the first fragment with the same source, destination, identification and protocol. IPv4
/// addresses are zero-extended. Call it with the packet's own fields, before any translation.
extern FragmentResult fragment_ports(in bit<128> source, in bit<128> destination,
                                     in bit<32> identification, in bit<8> protocol, in bool first,
                                     inout bit<16> source_port, inout bit<16> destination_port);

/// If the switch is configured so (`clamp_mss`): should this packet leave as a TCP segment with
/// SYN, the maximum segment size that it names is at most the smaller of the MTUs of the ingress
/// port and of the route that the last fib_lookup found, less 40 bytes (IPv6: 60). Its checksum
/// follows. The packet must leave as TCP in IPv4 or IPv6 behind an Ethernet header without a tag.
extern void clamp_tcp_mss();

/// Nanoseconds since 1970 by this host's clock (CLOCK_TAI; UTC where nothing tells the kernel of
/// leap seconds). Other switches' clocks may differ from it, and the clock steps when it is set.
/// (standard_metadata's time stamps begin at the host's boot, and never step.)
extern bit<64> wall_clock_ns();

/// This switch's number in the state protocol (`switch_id` of its configuration: no other switch
/// has it); 0 without one. In a key it makes the state this switch's own.
extern bit<32> switch_id();

/// Ends processing: the packet, as it came in, goes up to the kernel of this host.
extern void to_host();

#endif
