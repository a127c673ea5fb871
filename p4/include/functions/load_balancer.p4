// load_balancer.p4: a layer-4 load balancer for TCP and UDP, without its state. A program
// includes it, and says where the bindings are.
//
// Clients send to a virtual address and port; each conversation gets a backend, and keeps it,
// whatever becomes of the list of backends meanwhile. The destination is rewritten towards the
// backend, and the source of its answers back. A conversation is two bindings, one for each
// direction. The bindings are the only state.
//
// What it does not do, on purpose, and what then happens:
// - TCP without a binding that does not begin with a SYN is dropped and counted (`no_binding`): no
//   backend would know it. With -DLOAD_BALANCER_PICK_UP a segment that only acknowledges gets a
//   backend, too: for connections whose bindings are lost.
// - A backend's packets that belong to no conversation, such as answers to health checks of its own
//   address, are routed as they are.
// - Health checks: whoever makes them drains the backend.
//
// A packet is checked and routed as by a gateway (RFC 1812): gateway_check() drops what is
// malformed, not for this switch or from where its source cannot be. What is too big for its route
// is answered with ICMP if it must not be fragmented. Otherwise this host's kernel sends it
// (KERNEL_PORT), as it does what has an unresolved next hop. Fragments have the ports of their
// first one, whichever comes first.
//
// The program defines before:
//   LOAD_BALANCER_STATE              declares what is below
//   LOAD_BALANCER_FIND(OPENS, CONVERSATION, BINDING, FOUND)
//                                    BINDING: what the server becomes. If OPENS, it may be a new
//                                    one, towards a backend.
#ifndef FUNCTIONS_LOAD_BALANCER_P4
#define FUNCTIONS_LOAD_BALANCER_P4

#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>
#include <checksum.p4>

// Headers -----------------------------------------------------------------------------------------

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         ipv4;
    ipv4_options_t options;
    tcp_t          tcp;
    udp_t          udp;
    icmp_t         icmp;
    icmp_error_t   icmp_error;
    // The packet that an ICMP error is about.
    ipv4_t         embedded_ipv4;
    ipv4_options_t embedded_options;
    ports_t        embedded_ports;
    udp_rest_t     embedded_udp;
    tcp_rest_t     embedded_tcp;
}

// State -------------------------------------------------------------------------------------------

// A packet's.
struct five_tuple_t {
    bit<32> source;
    bit<32> destination;
    bit<16> source_port;
    bit<16> destination_port;
    bit<8>  protocol;
}

// Who talks to whom. The client stands first in both directions: a conversation's two keys differ
// in the server alone (the virtual address, or the backend), which has no say in where they are
// kept, so any backend may be picked.
struct conversation_t {
    bit<32> client;
    bit<32> server;
    bit<16> client_port;
    bit<16> server_port;
    bit<8>  protocol;
}

// What the destination of a client's packet (the backend) or the source of a backend's packet (the
// virtual address) becomes.
struct binding_t {
    bit<32> address;
    bit<16> port;
}

// What the balancer can do with a packet.
enum bit<8> Kind {
    OTHER = 0,
    // UDP, or a SYN: towards a virtual address it may make a binding.
    OPENER = 1,
    // Other TCP.
    CONVERSATION = 2,
    // An ICMP error with enough of the packet that it is about.
    ICMP_ERROR = 3,
    // TCP or UDP: a fragment after the first.
    FRAGMENT = 4
}

enum bit<8> Direction {
    NONE = 0,
    TO_BACKEND = 1,
    TO_CLIENT = 2
}

struct metadata_t {
    Kind         kind;
    Direction    direction;
    // The packet's own five-tuple; of an ICMP error, the five-tuple of an answer to the packet that
    // it is about.
    five_tuple_t   key;
    // Once the direction is known.
    conversation_t conversation;
}

// May a TCP segment towards a virtual address get a backend?
bool opens(in bit<16> offset_and_flags) {
#ifdef LOAD_BALANCER_PICK_UP
    return tcp_opens(offset_and_flags) || tcp_only_acknowledges(offset_and_flags);
#else
    return tcp_opens(offset_and_flags);
#endif
}

// Parser ------------------------------------------------------------------------------------------

parser BalancerParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    // What the IPv4 header says that it carries. Behind its end Ethernet pads: no header may begin
    // there (RFC 1812, 5.2.2).
    bit<16> payload_bytes;
    // The same of the packet that an ICMP error is about, as far as it is there.
    bit<16> embedded_bytes;

    state start {
        meta.kind = Kind.OTHER;
        meta.direction = Direction.NONE;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        payload_bytes = hdr.ipv4.total_length |-| ((bit<16>)hdr.ipv4.ihl << 2);
        meta.key.source = hdr.ipv4.source;
        meta.key.destination = hdr.ipv4.destination;
        meta.key.source_port = 0;
        meta.key.destination_port = 0;
        meta.key.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.ihl) {
            0 .. 4: reject; // (gateway_check() drops it)
            5: transport;
            default: options;
        }
    }

    state options {
        packet.extract(hdr.options, ((bit<32>)hdr.ipv4.ihl - 5) * 32);
        transition transport;
    }

    state transport {
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, PROTOCOL_TCP): tcp;
            (0, PROTOCOL_UDP): udp;
            (0, PROTOCOL_ICMP): icmp;
            (0, _): accept;
            (1, PROTOCOL_TCP): accept; // it would overwrite flags that were looked at (RFC 1858)
            (_, PROTOCOL_TCP): fragment;
            (_, PROTOCOL_UDP): fragment;
            default: accept;
        }
    }

    state fragment {
        meta.kind = Kind.FRAGMENT;
        transition accept;
    }

    state tcp {
        packet.extract(hdr.tcp);
        if (payload_bytes >= 20) {
            meta.kind = opens(hdr.tcp.offset_and_flags) ? Kind.OPENER : Kind.CONVERSATION;
        }
        meta.key.source_port = hdr.tcp.source_port;
        meta.key.destination_port = hdr.tcp.destination_port;
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        meta.kind = payload_bytes >= 8 ? Kind.OPENER : Kind.OTHER;
        meta.key.source_port = hdr.udp.source_port;
        meta.key.destination_port = hdr.udp.destination_port;
        transition accept;
    }

    state icmp {
        packet.extract(hdr.icmp);
        transition select(hdr.icmp.type) {
            ICMP_UNREACHABLE: icmp_error;
            ICMP_TIME_EXCEEDED: icmp_error;
            ICMP_PARAMETER_PROBLEM: icmp_error;
            default: accept;
        }
    }

    // The key of an error is turned round: an error about a packet to a client finds the binding
    // that the client's packets use, and one about a packet to a backend the binding that the
    // backend's answers use.
    state icmp_error {
        packet.extract(hdr.icmp_error);
        packet.extract(hdr.embedded_ipv4);
        meta.key.source = hdr.embedded_ipv4.destination;
        meta.key.destination = hdr.embedded_ipv4.source;
        meta.key.protocol = hdr.embedded_ipv4.protocol;
        transition select(hdr.embedded_ipv4.version, hdr.embedded_ipv4.ihl) {
            (4, 5): embedded_transport;
            (4, 6 .. 15): embedded_options;
            default: accept;
        }
    }

    state embedded_options {
        packet.extract(hdr.embedded_options, ((bit<32>)hdr.embedded_ipv4.ihl - 5) * 32);
        transition embedded_transport;
    }

    state embedded_transport {
        embedded_bytes = payload_bytes |-| (8 + ((bit<16>)hdr.embedded_ipv4.ihl << 2));
        transition select(hdr.embedded_ipv4.fragment_offset, hdr.embedded_ipv4.protocol) {
            (0, PROTOCOL_TCP): embedded_tcp;
            (0, PROTOCOL_UDP): embedded_udp;
            default: accept;
        }
    }

    // If the error carries too little, the last extract fails, and all before it stands.
    state embedded_tcp {
        packet.extract(hdr.embedded_ports);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.OTHER;
        meta.key.source_port = hdr.embedded_ports.destination_port;
        meta.key.destination_port = hdr.embedded_ports.source_port;
        packet.extract(hdr.embedded_tcp);
        transition accept;
    }

    state embedded_udp {
        packet.extract(hdr.embedded_ports);
        packet.extract(hdr.embedded_udp);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.OTHER;
        meta.key.source_port = hdr.embedded_ports.destination_port;
        meta.key.destination_port = hdr.embedded_ports.source_port;
        transition accept;
    }
}

control BalancerVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Ingress -----------------------------------------------------------------------------------------

control BalancerIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    LOAD_BALANCER_STATE

    // Packets that left with another address.
    counter(1, CounterType.packets_and_bytes) to_backend;
    counter(1, CounterType.packets_and_bytes) to_client;
    // Packets routed as they are.
    counter(1, CounterType.packets) untranslated;
    // Dropped: for a virtual address and port, but part of no conversation, and not the beginning
    // of one.
    counter(1, CounterType.packets) no_binding;
    // Dropped: no backend takes new conversations, or the store (-DLOAD_BALANCER_LOCAL: this
    // switch) has no room. (If only this switch has none, the runtime drops the packet:
    // `flows_full`.)
    counter(1, CounterType.packets) no_backend;
    // Dropped: an ICMP error that is not addressed to the sender of the packet that it is about.
    counter(1, CounterType.packets) forged_error;
    // Dropped: what gateway_check() refuses; the runtime counts the reasons.
    counter(1, CounterType.packets) refused;
    // Dropped: translated, but there is no route.
    counter(1, CounterType.packets) no_route;
    // Answered with time exceeded: hop limit reached. (The kernel might have no route to the
    // virtual addresses, and then would not answer.)
    counter(1, CounterType.packets) ttl_expired;
    // To the kernel: not IPv4.
    counter(1, CounterType.packets) not_ipv4;

    @own_destination
    action mark_virtual() {
        meta.direction = Direction.TO_BACKEND;
        meta.conversation = { meta.key.source, meta.key.destination, meta.key.source_port,
                              meta.key.destination_port, meta.key.protocol };
    }

    action mark_backend() {
        meta.direction = Direction.TO_CLIENT;
        meta.conversation = { meta.key.destination, meta.key.source, meta.key.destination_port,
                              meta.key.source_port, meta.key.protocol };
    }

    // Virtual addresses and ports.
    table services {
        key = {
            meta.key.destination: exact;
            meta.key.destination_port: exact;
            meta.key.protocol: exact;
        }
        actions = { mark_virtual; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // Backends' ports: only what they send from there can belong to a conversation.
    table servers {
        key = {
            meta.key.source: lpm;
            meta.key.source_port: exact;
            meta.key.protocol: exact;
        }
        actions = { mark_backend; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // The packet that an ICMP error is about becomes the one that the receiver of the error knows,
    // its checksums and the error's own with it (as RFC 5508, section 4, has it for NAT).
    // `address_change` and `port_change` are what the replacement adds to a checksum.
    action translate_embedded(in binding_t binding, in bit<64> address_change,
                              in bit<64> port_change) {
        bit<64> icmp_change = address_change;
        bit<16> before = hdr.embedded_ipv4.checksum;
        hdr.embedded_ipv4.checksum = adjusted(before, address_change);
        icmp_change = icmp_change + replaced_word(before, hdr.embedded_ipv4.checksum);
        if (meta.direction == Direction.TO_CLIENT) {
            hdr.embedded_ipv4.destination = binding.address;
        } else {
            hdr.embedded_ipv4.source = binding.address;
        }
        if (meta.direction == Direction.TO_CLIENT) {
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
                       + (((bit<16>)hdr.ipv4.ihl + (bit<16>)hdr.embedded_ipv4.ihl) << 2)) {
            // (Bytes past the IPv4 packet's end are no part of what the checksums cover.)
            before = hdr.embedded_tcp.checksum;
            hdr.embedded_tcp.checksum = adjusted(before, address_change + port_change);
            icmp_change = icmp_change + replaced_word(before, hdr.embedded_tcp.checksum);
        }
        hdr.icmp.checksum = adjusted(hdr.icmp.checksum, icmp_change);
    }

    apply {
        if (!gateway_check()) {
            refused.count(0);
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
            reply_icmp_error(ICMP_TIME_EXCEEDED, 0, 0);
            return;
        }

        // 1. Which way does it go? (A fragment has its packet's ports. Without them it is routed as
        // it is.)
        if (hdr.ipv4.more_fragments ++ hdr.ipv4.fragment_offset != 0 && meta.kind != Kind.OTHER
            && meta.kind != Kind.ICMP_ERROR) {
            FragmentResult ports = fragment_ports((bit<128>)hdr.ipv4.source,
                                                  (bit<128>)hdr.ipv4.destination,
                                                  (bit<32>)hdr.ipv4.identification,
                                                  hdr.ipv4.protocol,
                                                  hdr.ipv4.fragment_offset == 0,
                                                  meta.key.source_port,
                                                  meta.key.destination_port);
            if (ports == FragmentResult.HELD) {
                return; // it comes back when its first one has come
            }
        }
        if (meta.kind != Kind.OTHER) {
            if (!services.apply().hit) {
                servers.apply();
            }
        }

        // 2. Translate. `change` is what the new address adds to the IPv4 header's sum.
        bit<64> change = TTL_DECREMENTED;
        bit<16> source_port = meta.key.source_port;
        bit<16> destination_port = meta.key.destination_port;
        if (meta.direction != Direction.NONE) {
            // (An error goes to the source of the packet that it is about, or is forged.)
            if (meta.kind == Kind.ICMP_ERROR && hdr.ipv4.destination != meta.key.destination) {
                forged_error.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            binding_t binding;
            bool found;
            LOAD_BALANCER_FIND(meta.direction == Direction.TO_BACKEND && meta.kind == Kind.OPENER,
                               meta.conversation, binding, found)
            if (!found && meta.direction == Direction.TO_BACKEND) {
                if (meta.kind == Kind.OPENER) {
                    no_backend.count(0);
                } else {
                    no_binding.count(0);
                }
                mark_to_drop(standard_metadata);
                return;
            }
            if (!found) {
                meta.direction = Direction.NONE; // between the backend itself and somebody else
            } else {
                bit<64> address_change;
                bit<64> port_change;
                if (meta.direction == Direction.TO_CLIENT) {
                    address_change = replaced_address(meta.key.source, binding.address);
                    port_change = replaced_word(meta.key.source_port, binding.port);
                    // Not always address_change: an error may come from a router on the way, which
                    // the client must not see either.
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
                } else if (meta.kind == Kind.ICMP_ERROR) {
                    translate_embedded(binding, address_change, port_change);
                }
            }
        }

        // 3. Route what it is now.
        FibResult way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                                        source_port, destination_port,
                                        hdr.ipv4.total_length, hdr.ipv4.tos,
                                        standard_metadata.egress_spec,
                                        hdr.ethernet.source, hdr.ethernet.destination);
        if (way != FibResult.FORWARD) {
            // Untranslated, the kernel does all that is not plain forwarding, with the packet as it
            // came in.
            if (meta.direction == Direction.NONE) {
                to_host();
                return;
            }
            if (way == FibResult.LOCAL || way == FibResult.UNREACHABLE) {
                no_route.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (way == FibResult.TOO_BIG && hdr.ipv4.dont_fragment == 1) {
                reply_icmp_error(ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED, (bit<32>)fib_mtu());
                return;
            }
            standard_metadata.egress_spec = KERNEL_PORT; // not resolved, or to be fragmented
        }
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, change);
        if (hdr.tcp.isValid() && (hdr.tcp.offset_and_flags & TCP_SYN) != 0) {
            clamp_tcp_mss();
        }
        if (meta.direction == Direction.TO_CLIENT) {
            to_client.count(0);
        } else if (meta.direction == Direction.TO_BACKEND) {
            to_backend.count(0);
        } else {
            untranslated.count(0);
        }
    }
}

control BalancerEgress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    apply { }
}

control BalancerComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control BalancerDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(BalancerParser(), BalancerVerifyChecksum(), BalancerIngress(), BalancerEgress(),
         BalancerComputeChecksum(), BalancerDeparser()) main;

#endif
