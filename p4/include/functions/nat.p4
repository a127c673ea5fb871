// nat.p4: a network address and port translator (RFC 3022) for TCP, UDP and ICMP, without its
// state. A program includes it, and says where the bindings are.
//
// Hosts with addresses in `inside` share the external addresses of the pool. Mapping and filtering
// are address and port dependent (RFC 4787, RFC 5382, RFC 5508): a binding belongs to one 5-tuple,
// and only packets of that very conversation come back in. The bindings are the only state.
//
// A TCP connection begins with its SYN (RFC 5382): any other segment uses a binding and makes none.
// With -DNAT_PICK_UP one that only acknowledges makes a binding, too, so that connections whose
// bindings are lost go on, if their port is free.
//
// A packet is checked and routed as by a gateway (RFC 1812): gateway_check() drops what is
// malformed, not for this switch or from where its source cannot be; the kernel's routes say which
// way it goes. Outbound, they are asked before a binding is made, as Linux routes before it
// translates. What is too big for its route is answered with ICMP if it must not be fragmented.
// Otherwise this host's kernel sends it (KERNEL_PORT), as it does what has an unresolved next hop.
//
// Fragments have the ports of their first one, whichever comes first (RFC 4787, REQ-14). Inside
// hosts reach each other by their external addresses (REQ-9, hairpinning), if both have a binding
// to the other, as filtering is address and port dependent here, too.
//
// What it does not do, on purpose, and what then happens:
// - Protocols other than TCP, UDP, ICMP echo and ICMP errors are dropped where they would need
//   translation (`unsupported`).
// - An inside host cannot ping an external address: nobody would answer (`unknown_inbound`).
//
// The program defines before:
//   NAT_STATE                        declares what is below
//   NAT_FIND_OUTBOUND(OPENS, KEY, OUTER, FOUND)
//                                    OUTER: what the source becomes. If OPENS, the binding may be
//                                    a new one.
//   NAT_FIND_INBOUND(KEY, INNER, FOUND)
//                                    INNER: what the destination becomes
#ifndef FUNCTIONS_NAT_P4
#define FUNCTIONS_NAT_P4

#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>
#include <checksum.p4>
#include <functions/nat_parser.p4>

control NatVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

// Ingress -----------------------------------------------------------------------------------------

control NatIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    NAT_STATE

    // Packets that left with another address.
    counter(1, CounterType.packets_and_bytes) translated_out;
    counter(1, CounterType.packets_and_bytes) translated_in;
    // Packets routed as they are.
    counter(1, CounterType.packets) untranslated;
    // Dropped: sent to an external address, but part of no conversation.
    counter(1, CounterType.packets) unknown_inbound;
    // Dropped: the pool of external ports is used up, or the store (-DNAT_LOCAL: this switch) has
    // no room, or an outbound packet that may not make a binding has none. (If only this switch has
    // no room, the runtime drops the packet: `flows_full`.)
    counter(1, CounterType.packets) no_binding;
    // Dropped: a fragment whose first one did not come, when no more could be held until it does.
    counter(1, CounterType.packets) fragments;
    // Dropped: a protocol or ICMP type that cannot be translated.
    counter(1, CounterType.packets) unsupported;
    // Dropped: what gateway_check() refuses; the runtime counts the reasons.
    counter(1, CounterType.packets) refused;
    // Dropped: for an inside host to which there is no route.
    counter(1, CounterType.packets) no_route;
    // Answered with time exceeded: hop limit reached. (The kernel might have no route to the
    // external addresses, and then would not answer.)
    counter(1, CounterType.packets) ttl_expired;
    // To the kernel: not IPv4.
    counter(1, CounterType.packets) not_ipv4;

    // Ports that packets of inside hosts have come in on. The source of what comes in elsewhere, as
    // most of what is inbound does, need not be looked up to tell hairpin.
    register<bit<1>>(512) inside_ports;

    // Writes only what changes: a cache line that several CPUs write is slow to read.
    action learn_inside_port() {
        bit<1> known;
        inside_ports.read(known, (bit<32>)standard_metadata.ingress_port);
        if (known == 0) {
            inside_ports.write((bit<32>)standard_metadata.ingress_port, 1);
        }
    }

    @own_destination
    action mark_external() {
        meta.direction = Direction.INBOUND;
    }

    // A destination that inside hosts reach under their own addresses, such as another inside
    // prefix.
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

    // The packet that an ICMP error is about becomes the one that the receiver of the error knows,
    // its checksums and the error's own with it (RFC 5508, section 4). It went the other way, so
    // the error's new source is its destination. `address_change` and `port_change` are what the
    // replacement adds to a checksum.
    action translate_embedded(in bit<64> address_change, in bit<64> port_change) {
        bit<64> icmp_change = address_change;
        bit<16> before = hdr.embedded_ipv4.checksum;
        hdr.embedded_ipv4.checksum = adjusted(before, address_change);
        icmp_change = icmp_change + replaced_word(before, hdr.embedded_ipv4.checksum);
        hdr.embedded_ipv4.destination = meta.key.source;
        hdr.embedded_ipv4.source = meta.key.destination;
        if (hdr.embedded_ports.isValid()) {
            hdr.embedded_ports.destination_port = meta.key.source_port;
            hdr.embedded_ports.source_port = meta.key.destination_port;
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
        } else {
            before = hdr.embedded_icmp.checksum;
            hdr.embedded_icmp.checksum = adjusted(before, port_change);
            // One of the two is the identifier, and the other 0.
            hdr.embedded_echo.identifier = meta.key.source_port | meta.key.destination_port;
            icmp_change = icmp_change + port_change + replaced_word(before,
                                                                    hdr.embedded_icmp.checksum);
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

        // 1. Which way does it go?
        if (external.apply().hit) {
            if (meta.direction == Direction.INBOUND) {
                bit<1> known;
                inside_ports.read(known, (bit<32>)standard_metadata.ingress_port);
                if (known == 1 && inside.apply().hit) {
                    meta.direction = Direction.HAIRPIN;
                }
            }
        } else {
            inside.apply();
        }
        bool translates = meta.direction != Direction.NONE;

        // 2. What conversation is it part of?
        if (translates) {
            if (meta.kind == Kind.UNSUPPORTED) {
                unsupported.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (hdr.ipv4.more_fragments ++ hdr.ipv4.fragment_offset != 0
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
                if (ports == FragmentResult.FULL) {
                    fragments.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
            }
            // An error goes to the source of the packet that it is about, or is forged. Of ICMP
            // echo there is no conversation between two external addresses.
            if ((meta.kind == Kind.ICMP_ERROR && hdr.ipv4.destination != meta.key.destination)
                || (meta.direction == Direction.HAIRPIN && meta.key.protocol == PROTOCOL_ICMP)) {
                if (meta.direction == Direction.OUTBOUND) {
                    no_binding.count(0);
                } else {
                    unknown_inbound.count(0);
                }
                mark_to_drop(standard_metadata);
                return;
            }
        }

        // 3. Where does it go, if its destination stays? A packet without a way makes no binding.
        if (meta.direction == Direction.NONE || meta.direction == Direction.OUTBOUND) {
            FibResult way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination,
                                            hdr.ipv4.protocol, meta.key.source_port,
                                  meta.key.destination_port, hdr.ipv4.total_length, hdr.ipv4.tos,
                                  standard_metadata.egress_spec, hdr.ethernet.source,
                                  hdr.ethernet.destination);
            // Untranslated, the kernel does all that is not plain forwarding, with the packet as it
            // came in. Outbound, it delivers to this host itself, or (it does not tell these two
            // apart) answers that there is no route: it cannot send the packet on, with its inside
            // address.
            if (way != FibResult.FORWARD
                && (!translates || way == FibResult.LOCAL || way == FibResult.UNREACHABLE)) {
                to_host();
                return;
            }
            if (way == FibResult.TOO_BIG && hdr.ipv4.dont_fragment == 1) {
                reply_icmp_error(ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED, (bit<32>)fib_mtu());
                return;
            }
            if (way != FibResult.FORWARD) {
                standard_metadata.egress_spec = KERNEL_PORT; // not resolved, or to be fragmented
            }
        }

        // 4. Translate. `change` is what the new addresses add to the IPv4 header's sum.
        bit<64> change = TTL_DECREMENTED;
        bit<64> address_change = 0;
        bit<64> port_change = 0;
        if (meta.direction == Direction.OUTBOUND || meta.direction == Direction.HAIRPIN) {
            binding_t outer;
            bool found;
            if (meta.kind == Kind.OPENER) {
                learn_inside_port();
            }
            NAT_FIND_OUTBOUND(meta.kind == Kind.OPENER, meta.key, outer, found)
            if (!found) {
                no_binding.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            address_change = replaced_address(meta.key.source, outer.address);
            port_change = replaced_word(meta.key.source_port, outer.port);
            // Not always address_change: an error may come from a router on the way, whose address
            // must not be seen outside either.
            change = change + replaced_address(hdr.ipv4.source, outer.address);
            hdr.ipv4.source = outer.address;
            meta.key.source = outer.address;
            meta.key.source_port = outer.port;
        }
        if (meta.direction == Direction.INBOUND || meta.direction == Direction.HAIRPIN) {
            binding_t inner;
            bool found;
            NAT_FIND_INBOUND(meta.key, inner, found)
            if (!found) {
                if (meta.direction == Direction.INBOUND && inside.apply().hit) {
                    learn_inside_port(); // it was hairpin: its sender tries again
                }
                unknown_inbound.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            bit<64> inner_change = replaced_address(meta.key.destination, inner.address);
            address_change = address_change + inner_change;
            port_change = port_change + replaced_word(meta.key.destination_port, inner.port);
            change = change + inner_change;
            hdr.ipv4.destination = inner.address;
            meta.key.destination = inner.address;
            meta.key.destination_port = inner.port;
            FibResult way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination,
                                            hdr.ipv4.protocol, meta.key.source_port,
                                  meta.key.destination_port, hdr.ipv4.total_length, hdr.ipv4.tos,
                                  standard_metadata.egress_spec, hdr.ethernet.source,
                                  hdr.ethernet.destination);
            if (way == FibResult.TOO_BIG && hdr.ipv4.dont_fragment == 1) {
                reply_icmp_error(ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED, (bit<32>)fib_mtu());
                return;
            }
            if (way == FibResult.LOCAL || way == FibResult.UNREACHABLE) {
                if (meta.direction == Direction.INBOUND && inside.apply().hit) {
                    learn_inside_port(); // hairpin, and another switch has made its binding
                }
                no_route.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (way != FibResult.FORWARD) {
                standard_metadata.egress_spec = KERNEL_PORT;
            }
        }
        if (translates) {
            if (hdr.tcp.isValid()) {
                hdr.tcp.source_port = meta.key.source_port;
                hdr.tcp.destination_port = meta.key.destination_port;
                hdr.tcp.checksum = adjusted(hdr.tcp.checksum, address_change + port_change);
            } else if (hdr.udp.isValid()) {
                hdr.udp.source_port = meta.key.source_port;
                hdr.udp.destination_port = meta.key.destination_port;
                hdr.udp.checksum = adjusted_udp(hdr.udp.checksum, address_change + port_change);
            } else if (hdr.echo.isValid()) {
                // One of the two is the identifier, and the other 0.
                hdr.echo.identifier = meta.key.source_port | meta.key.destination_port;
                hdr.icmp.checksum = adjusted(hdr.icmp.checksum, port_change);
            } else if (meta.kind == Kind.ICMP_ERROR) {
                translate_embedded(address_change, port_change);
            }
        }

        // 5. On its way.
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, change);
        if (hdr.tcp.isValid() && hdr.tcp.offset_and_flags & TCP_SYN != 0) {
            clamp_tcp_mss();
        }
        if (meta.direction == Direction.NONE) {
            untranslated.count(0);
        } else if (meta.direction == Direction.OUTBOUND) {
            translated_out.count(0);
        } else {
            translated_in.count(0);
        }
    }
}

control NatEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
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

V1Switch(NatParser(), NatVerifyChecksum(), NatIngress(), NatEgress(), NatComputeChecksum(),
         NatDeparser()) main;

#endif
