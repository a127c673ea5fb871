// firewall.p4: a stateful firewall for TCP, UDP and ICMP echo over IPv4 and IPv6, without its
// state. A program includes it, and says where the connections are.
//
// Hosts with addresses in `inside_*` may open connections: TCP by SYN, UDP and echo by any packet.
// From outside comes in what belongs to a connection, and what opens one to a service that
// `services` allows. ICMP errors pass if they are about a connection's packet.
//
// One record per connection, of both families (IPv4 addresses as ::ffff:a.b.c.d, RFC 4291 2.5.5.2)
// and for both directions: the inside end comes first in the key. It changes at a connection's
// steps only (opened, answered, each FIN, reset): packets in between read it.
//
// A packet is checked and routed as by a gateway (RFC 1812, RFC 8200): gateway_check() drops what
// is malformed, not for this switch or from where its source cannot be. What is too big for its
// route is answered with ICMP if it must not be fragmented. Otherwise this host's kernel sends it
// (KERNEL_PORT), as it does what has an unresolved next hop. A packet without a way makes no
// record. Fragments have the ports of their first one, whichever comes first.
//
// What it does not do, on purpose, and what then happens:
// - Sequence numbers are not tracked. A forged RST of the right addresses and ports thus closes the
//   record, but the inside end's next packet opens it again: only that end knows whether the reset
//   counted (RFC 5961).
// - Other protocols, other ICMP types, IPv6 extension headers but a fragment's: dropped between
//   inside and outside (`unsupported`).
//
// -DFIREWALL_PICK_UP: an inside host's segment that only acknowledges opens a connection, too, as
// an established one: for connections whose records are lost.
//
// The program defines before:
//   FIREWALL_STATE                   declares `connections`, from connection_t to status_t
//   FIREWALL_FIND(OPENS, CONNECTION, STATUS, PASSES)
//                                    PASSES: there is a record. If OPENS, it may be a new one.
//   FIREWALL_STEP(CONNECTION, STATUS)
//                                    the record becomes STATUS
#ifndef FUNCTIONS_FIREWALL_P4
#define FUNCTIONS_FIREWALL_P4

#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>
#include <checksum.p4>
#include <functions/firewall_parser.p4>

control FirewallVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Ingress -----------------------------------------------------------------------------------------

control FirewallIngress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    FIREWALL_STATE

    // Passed between inside and outside.
    counter(1, CounterType.packets_and_bytes) passed_out;
    counter(1, CounterType.packets_and_bytes) passed_in;
    // Routed: not between inside and outside.
    counter(1, CounterType.packets) untracked;
    // Steps: how often a connection's record was written.
    counter(1, CounterType.packets) steps;
    // Dropped: part of no connection, and may not open one.
    counter(1, CounterType.packets) no_connection;
    // Dropped: the store (-DFIREWALL_LOCAL: this switch) has no room for another connection. (If
    // only this switch has none, the runtime drops the packet: `flows_full`.)
    counter(1, CounterType.packets) no_room;
    // Dropped: an inside address on an outside port (RFC 2827).
    counter(1, CounterType.packets) spoofed;
    // Dropped: an ICMP error that is not addressed to the sender of the packet that it is about.
    counter(1, CounterType.packets) forged_error;
    // Dropped: a fragment whose first one did not come, when no more could be held until it does.
    counter(1, CounterType.packets) fragments;
    counter(1, CounterType.packets) unsupported;
    // Dropped: what gateway_check() refuses; the runtime counts the reasons.
    counter(1, CounterType.packets) refused;
    // To the kernel: hop limit reached; not IP; passed, but there is no route.
    counter(1, CounterType.packets) ttl_expired;
    counter(1, CounterType.packets) not_ip;
    counter(1, CounterType.packets) no_route;

    action yes() { }

    // The same prefixes in both: who is inside.
    table inside_sources {
        key = { meta.source: lpm; }
        actions = { yes; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    table inside_destinations {
        key = { meta.destination: lpm; }
        actions = { yes; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // What may be opened from outside. (Echo: protocol 1 or 58, port 0.)
    table services {
        key = {
            meta.key_destination: lpm;
            meta.destination_port: exact;
            meta.protocol: exact;
        }
        actions = { yes; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    // Ports where no inside host can be.
    table outside_ports {
        key = { standard_metadata.ingress_port: exact; }
        actions = { yes; NoAction; }
        default_action = NoAction();
        size = 512;
    }

    apply {
        if (!gateway_check()) {
            refused.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        if (!hdr.ipv4.isValid() && !hdr.ipv6.isValid()) {
            not_ip.count(0);
            to_host();
            return;
        }
        if ((hdr.ipv4.isValid() && hdr.ipv4.ttl <= 1) || (hdr.ipv6.isValid()
                                                          && hdr.ipv6.hop_limit <= 1)) {
            ttl_expired.count(0);
            to_host();
            return;
        }

        // 1. Which way does it go?
        bool from_inside = inside_sources.apply().hit;
        bool to_inside = inside_destinations.apply().hit;
        bool tracked = from_inside != to_inside;
        if (from_inside && outside_ports.apply().hit) {
            spoofed.count(0);
            mark_to_drop(standard_metadata);
            return;
        }

        // 2. A fragment has its packet's ports.
        bool first = hdr.ipv4.isValid() ? hdr.ipv4.fragment_offset == 0
            : hdr.ipv6_fragment.fragment_offset == 0;
        bool fragmented = hdr.ipv4.isValid() ? hdr.ipv4.more_fragments == 1
            || !first : hdr.ipv6_fragment.isValid();
        if (tracked) {
            if (meta.kind == Kind.UNSUPPORTED) {
                unsupported.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (meta.kind == Kind.ICMP_ERROR && meta.destination != meta.key_destination) {
                forged_error.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (fragmented && meta.kind != Kind.ICMP_ERROR) {
                bit<32> identification = hdr.ipv4.isValid() ? (bit<32>)hdr.ipv4.identification
                    : hdr.ipv6_fragment.identification;
                FragmentResult ports = fragment_ports(meta.source, meta.destination, identification,
                                                      meta.protocol, first,
                                                      meta.source_port, meta.destination_port);
                if (ports == FragmentResult.HELD) {
                    return; // it comes back when its first one has come
                }
                if (ports == FragmentResult.FULL) {
                    fragments.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
            }
        }

        // 3. Where to? (Before the connection's step: a packet that cannot be sent on is none.)
        bit<16> source_port = 0;
        bit<16> destination_port = 0;
        if ((meta.protocol == PROTOCOL_TCP || meta.protocol == PROTOCOL_UDP)
            && meta.kind != Kind.ICMP_ERROR) {
            source_port = meta.source_port;
            destination_port = meta.destination_port;
        }
        FibResult way;
        bool stays_whole = true;
        if (hdr.ipv4.isValid()) {
            stays_whole = hdr.ipv4.dont_fragment == 1;
            way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                                  source_port, destination_port, hdr.ipv4.total_length,
                                  hdr.ipv4.tos, standard_metadata.egress_spec, hdr.ethernet.source,
                                  hdr.ethernet.destination);
        } else {
            way = fib_lookup_ipv6(hdr.ipv6.source, hdr.ipv6.destination, meta.protocol, source_port,
                                  destination_port,
                                  hdr.ipv6.payload_length, hdr.ipv6.flow_label,
                                  standard_metadata.egress_spec, hdr.ethernet.source,
                                  hdr.ethernet.destination);
        }
        // As Linux, before it asks whether the packet may pass.
        if (way == FibResult.LOCAL || way == FibResult.UNREACHABLE) {
            no_route.count(0);
            to_host(); // the kernel answers with an ICMP error
            return;
        }
        if (way == FibResult.TOO_BIG && stays_whole) {
            if (hdr.ipv4.isValid()) {
                reply_icmp_error(ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED, (bit<32>)fib_mtu());
            } else {
                reply_icmp_error(ICMP6_TOO_BIG, 0, (bit<32>)fib_mtu());
            }
            return;
        }
        if (way != FibResult.FORWARD) {
            standard_metadata.egress_spec = KERNEL_PORT; // not resolved, or to be fragmented
        }

        // 4. Is it part of a connection, or may it open one?
        bit<16> flags = hdr.tcp.isValid() ? hdr.tcp.offset_and_flags : 0;
        if (tracked) {
            bool begins = tcp_opens(flags);
            bool opens = meta.kind == Kind.OPENER || (meta.kind == Kind.TCP && begins);
            if (opens && to_inside) {
                opens = services.apply().hit;
            }
#ifdef FIREWALL_PICK_UP
            if (meta.kind == Kind.TCP && from_inside && tcp_only_acknowledges(flags)) {
                opens = true;
            }
#endif

            connection_t connection;
            connection.protocol = meta.protocol;
            if (from_inside) {
                connection.inside = meta.key_source;
                connection.outside = meta.key_destination;
                connection.inside_port = meta.source_port;
                connection.outside_port = meta.destination_port;
            } else {
                connection.inside = meta.key_destination;
                connection.outside = meta.key_source;
                connection.inside_port = meta.destination_port;
                connection.outside_port = meta.source_port;
            }
            status_t status;
            bool passes;
            FIREWALL_FIND(opens, connection, status, passes)
            if (passes && (meta.kind == Kind.ICMP_ERROR || meta.kind == Kind.FRAGMENT)) {
                passes = meta.protocol != PROTOCOL_TCP || status.phase != Phase.NEW;
            }

            // TCP's steps.
            if (passes && meta.kind == Kind.TCP) {
                Phase before = status.phase;
                if (before == Phase.NEW || before == Phase.CLOSED || before == Phase.RESET) {
                    if (opens && begins) {
                        status.phase = from_inside ? Phase.OPENED_INSIDE : Phase.OPENED_OUTSIDE;
#ifdef FIREWALL_PICK_UP
                    } else if (opens && before == Phase.NEW) {
                        status.phase = Phase.ESTABLISHED;
#endif
                    } else if (before == Phase.RESET && from_inside && flags & TCP_RST == 0
                               && flags & TCP_ACK != 0) {
                        // The inside end did not believe the reset (RFC 5961, 3.2).
                        status.phase = Phase.ESTABLISHED;
                    } else {
                        // What is still on its way after the last FIN, or a reset said again.
                        passes = before == Phase.CLOSED || (before == Phase.RESET
                                                            && flags & TCP_RST != 0);
                    }
                } else if (flags & TCP_RST != 0) {
                    status.phase = Phase.RESET;
                } else if (before == Phase.OPENED_INSIDE || before == Phase.OPENED_OUTSIDE) {
                    if (flags & TCP_SYN != 0 && flags & TCP_ACK != 0
                        && (before == Phase.OPENED_INSIDE) == to_inside) {
                        status.phase = Phase.ESTABLISHED;
                    }
                } else if (flags & TCP_FIN != 0) {
                    if (before == Phase.ESTABLISHED) {
                        status.phase = from_inside ? Phase.FIN_INSIDE : Phase.FIN_OUTSIDE;
                    } else if ((before == Phase.FIN_INSIDE) == to_inside) {
                        status.phase = Phase.CLOSED;
                    }
                }
                if (status.phase != before) {
                    FIREWALL_STEP(connection, status)
                    steps.count(0);
                }
            }
            if (!passes) {
                if (opens) {
                    no_room.count(0);
                } else {
                    no_connection.count(0);
                }
                mark_to_drop(standard_metadata);
                return;
            }
        }

        // 5. On its way.
        if (flags & TCP_SYN != 0) {
            clamp_tcp_mss();
        }
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, TTL_DECREMENTED);
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        } else {
            hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
        }
        if (!tracked) {
            untracked.count(0);
        } else if (from_inside) {
            passed_out.count(0);
        } else {
            passed_in.count(0);
        }
    }
}

control FirewallEgress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    apply { }
}

control FirewallComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control FirewallDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(FirewallParser(), FirewallVerifyChecksum(), FirewallIngress(), FirewallEgress(),
         FirewallComputeChecksum(), FirewallDeparser()) main;

#endif
