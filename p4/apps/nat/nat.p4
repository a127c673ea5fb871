// nat.p4: a network address and port translator (RFC 3022) for TCP, UDP and ICMP, that outlives its switch.
//
// Hosts with addresses in `inside` share the external addresses of the pool. Mapping and filtering are address and port dependent (RFC 4787,
// RFC 5382, RFC 5508): a binding belongs to one 5-tuple, and only packets of that very conversation come back in.
//
// The bindings are the only state. By default they are linearizable: they live in the replicated store, and another switch carries on with
// them when this one dies. With -DNAT_LOCAL they live in this switch only: the same NAT without fault tolerance.
//
// What it does not do, on purpose, and what then happens:
// - Fragments after the first have no ports: dropped where they would need translation, and counted (`fragments`).
// - Hairpinning (inside to inside by way of an external address): dropped as unknown inbound.
// - Protocols other than TCP, UDP, ICMP echo and ICMP errors: dropped where they would need translation (`unsupported`).
// - IPv4 header checksums are not verified: incremental updates (RFC 1624) keep a wrong checksum wrong, and the receiver sees it.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#ifdef NAT_LOCAL
#define NAT_CONSISTENCY Consistency.LOCAL
#else
#define NAT_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Entries of `bindings` on this switch; a conversation takes two, one for each direction.
#ifndef NAT_ENTRIES
#define NAT_ENTRIES 131072
#endif

const bit<16> ETHERTYPE_IPV4 = 0x0800;

const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

// In tcp_t.offset_and_flags.
const bit<16> TCP_FIN = 1;
const bit<16> TCP_SYN = 2;
const bit<16> TCP_RST = 4;
const bit<16> TCP_PHASES = TCP_FIN | TCP_SYN | TCP_RST;

const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_UNREACHABLE = 3;
const bit<8> ICMP_ECHO_REQUEST = 8;
const bit<8> ICMP_TIME_EXCEEDED = 11;
const bit<8> ICMP_PARAMETER_PROBLEM = 12;

error { BadIpv4Header }

// Headers ------------------------------------------------------------------------------------------------------------------------------

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  header_words;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv4_options_t {
    varbit<320> options;
}

header tcp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<16> offset_and_flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> length;
    bit<16> checksum;
}

header icmp_t {
    bit<8>  type;
    bit<8>  code;
    bit<16> checksum;
}

// The second word of ICMP echo messages.
header icmp_echo_t {
    bit<16> identifier;
    bit<16> sequence;
}

// The second word of ICMP errors: pointer or next-hop MTU, passed on as it is.
header icmp_error_t {
    bit<32> rest;
}

// The first four bytes of TCP and UDP: an ICMP error may carry no more than eight (RFC 792).
header ports_t {
    bit<16> source_port;
    bit<16> destination_port;
}

// The next four of UDP.
header udp_rest_t {
    bit<16> length;
    bit<16> checksum;
}

// The next fourteen of TCP, as far as the checksum: there when the error carries more than it must, as most do (RFC 1812, 4.3.2.3).
header tcp_rest_t {
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<16> offset_and_flags;
    bit<16> window;
    bit<16> checksum;
}

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         ipv4;
    ipv4_options_t options;
    tcp_t          tcp;
    udp_t          udp;
    icmp_t         icmp;
    icmp_echo_t    echo;
    icmp_error_t   icmp_error;
    // The packet that an ICMP error is about.
    ipv4_t         embedded_ipv4;
    ipv4_options_t embedded_options;
    ports_t        embedded_ports;
    udp_rest_t     embedded_udp;
    tcp_rest_t     embedded_tcp;
    icmp_t         embedded_icmp;
    icmp_echo_t    embedded_echo;
}

// State --------------------------------------------------------------------------------------------------------------------------------

// Who talks to whom. For ICMP echo the identifier stands in for the port of the side that asked, and the other side's port is 0.
struct five_tuple_t {
    bit<32> source;
    bit<32> destination;
    bit<16> source_port;
    bit<16> destination_port;
    bit<8>  protocol;
}

// What the source (outbound) or the destination (inbound) of a five-tuple becomes.
struct binding_t {
    bit<32> address;
    bit<16> port;
}

// What the translator can do with a packet.
enum bit<8> Kind {
    UNSUPPORTED = 0,
    // TCP or UDP with its ports, or an ICMP echo request: outbound, it may make a binding.
    CONVERSATION = 1,
    // An ICMP echo reply: it may use a binding.
    ECHO_REPLY = 2,
    // An ICMP error with enough of the packet that it is about.
    ICMP_ERROR = 3,
    // A fragment after the first.
    FRAGMENT = 4
}

enum bit<8> Direction {
    NONE = 0,
    OUTBOUND = 1,
    INBOUND = 2
}

struct metadata_t {
    Kind         kind;
    Direction    direction;
    // The packet's own five-tuple; of an ICMP error, the five-tuple of an answer to the packet that it is about.
    five_tuple_t key;
}

// Checksums (RFC 1624) -----------------------------------------------------------------------------------------------------------------
// One's complement sums are sums modulo 2^16 - 1, and 2^16 is 1 there: 32-bit words can be added as they are, and folded in the end.

// What replacing a word adds to a one's complement sum: ~m + m' (equation 3).
bit<64> replaced_address(in bit<32> before, in bit<32> after) {
    return (bit<64>)(~before) + (bit<64>)after;
}

bit<64> replaced_word(in bit<16> before, in bit<16> after) {
    return (bit<64>)(~before) + (bit<64>)after;
}

// HC' = ~(~HC + ~m + m'), for a difference of less than 2^36.
bit<16> adjusted(in bit<16> checksum, in bit<64> difference) {
    bit<64> sum = (bit<64>)(~checksum) + difference;
    sum = (sum & 0xffff) + (sum >> 16); // < 2^21
    sum = (sum & 0xffff) + (sum >> 16); // < 2^16 + 2^5
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum[15:0];
}

// The same for UDP, where 0 says that there is no checksum (RFC 768).
bit<16> adjusted_udp(in bit<16> checksum, in bit<64> difference) {
    if (checksum == 0) {
        return 0;
    }
    bit<16> result = adjusted(checksum, difference);
    return result == 0 ? 0xffff : result;
}

// One off the TTL takes 0x0100 from its word: ~m + (m - 0x0100) = 0xffff - 0x0100.
const bit<64> TTL_DECREMENTED = 0xfeff;

// Parser -------------------------------------------------------------------------------------------------------------------------------

parser NatParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // What the IPv4 header says that it carries. Behind its end Ethernet pads: no header may begin there (RFC 1812, 5.2.2).
    bit<16> payload_bytes;
    // The same of the packet that an ICMP error is about, as far as it is there.
    bit<16> embedded_bytes;

    state start {
        meta.kind = Kind.UNSUPPORTED;
        meta.direction = Direction.NONE;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        bit<16> header_bytes = (bit<16>)hdr.ipv4.header_words << 2;
        verify(hdr.ipv4.version == 4 && hdr.ipv4.header_words >= 5 && hdr.ipv4.total_length >= header_bytes, error.BadIpv4Header);
        payload_bytes = hdr.ipv4.total_length - header_bytes;
        meta.key.source = hdr.ipv4.source;
        meta.key.destination = hdr.ipv4.destination;
        meta.key.source_port = 0;
        meta.key.destination_port = 0;
        meta.key.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.header_words) {
            5: transport;
            default: options;
        }
    }

    state options {
        packet.extract(hdr.options, ((bit<32>)hdr.ipv4.header_words - 5) * 32);
        transition transport;
    }

    state transport {
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, PROTOCOL_TCP): tcp;
            (0, PROTOCOL_UDP): udp;
            (0, PROTOCOL_ICMP): icmp;
            (0, _): accept;
            default: fragment;
        }
    }

    state fragment {
        meta.kind = Kind.FRAGMENT;
        transition accept;
    }

    state tcp {
        packet.extract(hdr.tcp);
        meta.kind = payload_bytes >= 20 ? Kind.CONVERSATION : Kind.UNSUPPORTED;
        meta.key.source_port = hdr.tcp.source_port;
        meta.key.destination_port = hdr.tcp.destination_port;
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        meta.kind = payload_bytes >= 8 ? Kind.CONVERSATION : Kind.UNSUPPORTED;
        meta.key.source_port = hdr.udp.source_port;
        meta.key.destination_port = hdr.udp.destination_port;
        transition accept;
    }

    state icmp {
        packet.extract(hdr.icmp);
        transition select(hdr.icmp.type) {
            ICMP_ECHO_REQUEST: echo_request;
            ICMP_ECHO_REPLY: echo_reply;
            ICMP_UNREACHABLE: icmp_error;
            ICMP_TIME_EXCEEDED: icmp_error;
            ICMP_PARAMETER_PROBLEM: icmp_error;
            default: accept;
        }
    }

    state echo_request {
        packet.extract(hdr.echo);
        meta.kind = payload_bytes >= 8 ? Kind.CONVERSATION : Kind.UNSUPPORTED;
        meta.key.source_port = hdr.echo.identifier;
        transition accept;
    }

    state echo_reply {
        packet.extract(hdr.echo);
        meta.kind = payload_bytes >= 8 ? Kind.ECHO_REPLY : Kind.UNSUPPORTED;
        meta.key.destination_port = hdr.echo.identifier;
        transition accept;
    }

    // The key of an error is turned round: an error about a packet that went out finds the binding that its answers use, and one about a packet that
    // came in the binding that the inside host's answers use.
    state icmp_error {
        packet.extract(hdr.icmp_error);
        packet.extract(hdr.embedded_ipv4);
        meta.key.source = hdr.embedded_ipv4.destination;
        meta.key.destination = hdr.embedded_ipv4.source;
        meta.key.protocol = hdr.embedded_ipv4.protocol;
        transition select(hdr.embedded_ipv4.version, hdr.embedded_ipv4.header_words) {
            (4, 5): embedded_transport;
            (4, 6 .. 15): embedded_options;
            default: accept;
        }
    }

    state embedded_options {
        packet.extract(hdr.embedded_options, ((bit<32>)hdr.embedded_ipv4.header_words - 5) * 32);
        transition embedded_transport;
    }

    state embedded_transport {
        embedded_bytes = payload_bytes |-| (8 + ((bit<16>)hdr.embedded_ipv4.header_words << 2));
        transition select(hdr.embedded_ipv4.fragment_offset, hdr.embedded_ipv4.protocol) {
            (0, PROTOCOL_TCP): embedded_tcp;
            (0, PROTOCOL_UDP): embedded_udp;
            (0, PROTOCOL_ICMP): embedded_icmp;
            default: accept;
        }
    }

    // If the error carries too little, the last extract fails, and all before it stands.
    state embedded_tcp {
        packet.extract(hdr.embedded_ports);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.UNSUPPORTED;
        meta.key.source_port = hdr.embedded_ports.destination_port;
        meta.key.destination_port = hdr.embedded_ports.source_port;
        packet.extract(hdr.embedded_tcp);
        transition accept;
    }

    state embedded_udp {
        packet.extract(hdr.embedded_ports);
        packet.extract(hdr.embedded_udp);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.UNSUPPORTED;
        meta.key.source_port = hdr.embedded_ports.destination_port;
        meta.key.destination_port = hdr.embedded_ports.source_port;
        transition accept;
    }

    state embedded_icmp {
        packet.extract(hdr.embedded_icmp);
        transition select(hdr.embedded_icmp.type) {
            ICMP_ECHO_REQUEST: embedded_request;
            ICMP_ECHO_REPLY: embedded_reply;
            default: accept; // no error is sent about an error (RFC 1122, 3.2.2)
        }
    }

    state embedded_request {
        packet.extract(hdr.embedded_echo);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.UNSUPPORTED;
        meta.key.destination_port = hdr.embedded_echo.identifier;
        transition accept;
    }

    state embedded_reply {
        packet.extract(hdr.embedded_echo);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.UNSUPPORTED;
        meta.key.source_port = hdr.embedded_echo.identifier;
        transition accept;
    }
}

control NatVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Ingress ------------------------------------------------------------------------------------------------------------------------------

control NatIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    FlowState<five_tuple_t, binding_t>(NAT_ENTRIES, NAT_CONSISTENCY, Allocator.NAT_PORTS) bindings;

    // Packets that left with another address.
    counter(1, CounterType.packets_and_bytes) translated_out;
    counter(1, CounterType.packets_and_bytes) translated_in;
    // Packets routed as they are.
    counter(1, CounterType.packets) untranslated;
    // Dropped: sent to an external address, but part of no conversation.
    counter(1, CounterType.packets) unknown_inbound;
    // Dropped: the pool of external ports is used up, or the store (-DNAT_LOCAL: this switch) has no room, or an outbound packet that may not make a binding has none.
    // (If only this switch has no room, the runtime drops the packet: `flows_full`.)
    counter(1, CounterType.packets) no_binding;
    // Dropped: a fragment after the first, which has no ports.
    counter(1, CounterType.packets) fragments;
    // Dropped: a protocol or ICMP type that cannot be translated.
    counter(1, CounterType.packets) unsupported;
    // Dropped: IPv4 header cut short or wrong.
    counter(1, CounterType.packets) malformed;
    // Dropped: translated, but the kernel knows no resolved way on. (The kernel itself may not send it: it has the packet as it came in, with the
    // inside address, and would leak it. The switch agent keeps next hops resolved.)
    counter(1, CounterType.packets) no_next_hop;
    // To the kernel: hop limit reached; the kernel answers with time exceeded.
    counter(1, CounterType.packets) ttl_expired;
    // To the kernel: not IPv4.
    counter(1, CounterType.packets) not_ipv4;

    action mark_external() {
        meta.direction = Direction.INBOUND;
    }

    // A destination that inside hosts reach under their own addresses, such as another inside prefix.
    action route_untranslated() { }

    action mark_inside() {
        meta.direction = Direction.OUTBOUND;
    }

    // Destinations: the external addresses, and exceptions from translation.
    table external {
        key = { hdr.ipv4.destination: lpm; }
        actions = { mark_external; route_untranslated; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // Sources that are translated.
    table inside {
        key = { hdr.ipv4.source: lpm; }
        actions = { mark_inside; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // The packet that an ICMP error is about becomes the one that the receiver of the error knows, its checksums and the error's own with it (RFC 5508,
    // section 4). `address_change` and `port_change` are what the replacement adds to a checksum.
    action translate_embedded(in binding_t binding, in bit<64> address_change, in bit<64> port_change) {
        bit<64> icmp_change = address_change;
        bit<16> before = hdr.embedded_ipv4.checksum;
        hdr.embedded_ipv4.checksum = adjusted(before, address_change);
        icmp_change = icmp_change + replaced_word(before, hdr.embedded_ipv4.checksum);
        if (meta.direction == Direction.OUTBOUND) {
            hdr.embedded_ipv4.destination = binding.address;
        } else {
            hdr.embedded_ipv4.source = binding.address;
        }
        if (hdr.embedded_ports.isValid()) {
            if (meta.direction == Direction.OUTBOUND) {
                hdr.embedded_ports.destination_port = binding.port;
            } else {
                hdr.embedded_ports.source_port = binding.port;
            }
            icmp_change = icmp_change + port_change;
            if (hdr.embedded_udp.isValid()) {
                before = hdr.embedded_udp.checksum;
                hdr.embedded_udp.checksum = adjusted_udp(before, address_change + port_change);
                icmp_change = icmp_change + replaced_word(before, hdr.embedded_udp.checksum);
            } else if (hdr.embedded_tcp.isValid() && hdr.ipv4.total_length >= 26
                           + (((bit<16>)hdr.ipv4.header_words + (bit<16>)hdr.embedded_ipv4.header_words) << 2)) {
                // (Bytes past the IPv4 packet's end are no part of what the checksums cover.)
                before = hdr.embedded_tcp.checksum;
                hdr.embedded_tcp.checksum = adjusted(before, address_change + port_change);
                icmp_change = icmp_change + replaced_word(before, hdr.embedded_tcp.checksum);
            }
        } else {
            before = hdr.embedded_icmp.checksum;
            hdr.embedded_icmp.checksum = adjusted(before, port_change);
            hdr.embedded_echo.identifier = binding.port;
            icmp_change = icmp_change + port_change + replaced_word(before, hdr.embedded_icmp.checksum);
        }
        hdr.icmp.checksum = adjusted(hdr.icmp.checksum, icmp_change);
    }

    apply {
        // What is cut short only behind the IPv4 header is routed like any unsupported protocol.
        if (standard_metadata.parser_error != error.NoError
            && (standard_metadata.parser_error != error.PacketTooShort || !hdr.ipv4.isValid()
                || (hdr.ipv4.header_words > 5 && !hdr.options.isValid()))) {
            malformed.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        if (!hdr.ipv4.isValid()) {
            not_ipv4.count(0);
            to_host();
            return;
        }
        if (hdr.ipv4.ttl <= 1) {
            ttl_expired.count(0);
            to_host();
            return;
        }

        // 1. Which way does it go?
        if (!external.apply().hit) {
            inside.apply();
        }

        // 2. Translate. `change` is what the new address adds to the IPv4 header's sum.
        bit<64> change = TTL_DECREMENTED;
        bit<16> source_port = meta.key.source_port;
        bit<16> destination_port = meta.key.destination_port;
        if (meta.direction != Direction.NONE) {
            if (meta.kind == Kind.FRAGMENT) {
                fragments.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (meta.kind == Kind.UNSUPPORTED) {
                unsupported.count(0);
                mark_to_drop(standard_metadata);
                return;
            }

            binding_t binding;
            StateResult result = StateResult.MISS;
            if (meta.direction == Direction.OUTBOUND && meta.kind == Kind.CONVERSATION) {
                result = bindings.get_or_allocate(meta.key, binding);
            } else if (meta.kind != Kind.ICMP_ERROR || hdr.ipv4.destination == meta.key.destination) {
                // (An error goes to the source of the packet that it is about, or is forged.)
                result = bindings.get(meta.key, binding);
            }
            if (result == StateResult.PENDING) {
                return; // it comes back with the binding
            }
            if (result == StateResult.MISS) {
                if (meta.direction == Direction.OUTBOUND) {
                    no_binding.count(0);
                } else {
                    unknown_inbound.count(0);
                }
                mark_to_drop(standard_metadata);
                return;
            }

            // How far the connection has come: what is closed gives its external port back early. (The store waits its `closed_s`; a forged RST, if it has
            // the right addresses and ports, costs an idle connection its binding, which RFC 5382 leaves to the NAT.)
            if (hdr.tcp.isValid() && hdr.tcp.offset_and_flags & TCP_PHASES != 0) {
                if (hdr.tcp.offset_and_flags & TCP_RST != 0) {
                    bindings.phase(meta.key, FlowPhase.CLOSED);
                } else if (hdr.tcp.offset_and_flags & TCP_FIN != 0) {
                    bindings.phase(meta.key, FlowPhase.HALF_CLOSED);
                } else {
                    bindings.phase(meta.key, FlowPhase.OPEN);
                }
            }

            bit<64> address_change;
            bit<64> port_change;
            if (meta.direction == Direction.OUTBOUND) {
                address_change = replaced_address(meta.key.source, binding.address);
                port_change = replaced_word(meta.key.source_port, binding.port);
                // Not always address_change: an error may come from a router on the way, whose address must not be seen outside either.
                change = change + replaced_address(hdr.ipv4.source, binding.address);
                hdr.ipv4.source = binding.address;
                source_port = binding.port;
            } else {
                address_change = replaced_address(meta.key.destination, binding.address);
                port_change = replaced_word(meta.key.destination_port, binding.port);
                change = change + address_change;
                hdr.ipv4.destination = binding.address;
                destination_port = binding.port;
            }
            if (hdr.tcp.isValid()) {
                hdr.tcp.source_port = source_port;
                hdr.tcp.destination_port = destination_port;
                hdr.tcp.checksum = adjusted(hdr.tcp.checksum, address_change + port_change);
            } else if (hdr.udp.isValid()) {
                hdr.udp.source_port = source_port;
                hdr.udp.destination_port = destination_port;
                hdr.udp.checksum = adjusted_udp(hdr.udp.checksum, address_change + port_change);
            } else if (hdr.echo.isValid()) {
                hdr.echo.identifier = binding.port;
                hdr.icmp.checksum = adjusted(hdr.icmp.checksum, port_change);
            } else {
                translate_embedded(binding, address_change, port_change);
            }
        }

        // 3. Route what it is now.
        FibResult way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol, source_port, destination_port,
                                        hdr.ipv4.total_length, hdr.ipv4.tos, standard_metadata.egress_spec,
                                        hdr.ethernet.source, hdr.ethernet.destination);
        if (way != FibResult.FORWARD) {
            // The kernel gets the packet as it came in: to deliver it, resolve its next hop, or answer with an ICMP error. A translated packet only where the
            // kernel cannot send it on: outbound, to this host itself or (the kernel does not tell these two apart) without any route. It then answers
            // an inside host's packet with "network unreachable", and nothing of it gets outside.
            if (meta.direction == Direction.NONE || (meta.direction == Direction.OUTBOUND && way != FibResult.KERNEL && way != FibResult.TOO_BIG)) {
                to_host();
            } else {
                no_next_hop.count(0);
                mark_to_drop(standard_metadata);
            }
            return;
        }
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, change);
        if (meta.direction == Direction.OUTBOUND) {
            translated_out.count(0);
        } else if (meta.direction == Direction.INBOUND) {
            translated_in.count(0);
        } else {
            untranslated.count(0);
        }
    }
}

control NatEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply { }
}

control NatComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control NatDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(NatParser(), NatVerifyChecksum(), NatIngress(), NatEgress(), NatComputeChecksum(), NatDeparser()) main;
