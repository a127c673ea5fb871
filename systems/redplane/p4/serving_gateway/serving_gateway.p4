// serving_gateway.p4: the user plane of a serving gateway of a mobile core (EPC), with the state of
// its users (RedPlane §6, EPC-SGW).
//
// Between base stations (eNodeB) and the gateway, users' packets travel in GTP-U tunnels (TS
// 29.281); beyond it, as they are:
//
//   user ── eNodeB ══ GTP-U ══ gateway ── packet network
//
// A user is known by the IPv4 address that it was given. Its record says which tunnels are its: the
// TEID and address of the base station, for packets to the user, and the TEID that the base station
// must use, for packets from it. Signalling packets (UDP 2123) from a mobility manager create,
// modify (handover to another base station) and delete it; their form is our own, modelled on
// GTPv2-C (TS 29.274): systems/redplane/docs/apps/serving_gateway.md. The switch itself carries
// them out and turns the packet round as the answer, which leaves only when the update is on every
// server of the chain. Users' packets read the record.
//
// What it does not do, on purpose, and what then happens:
// - Users' IPv6: not known to any record; dropped in tunnels (`unknown_user`), routed outside of
//   them to the kernel.
// - Error Indication and End Marker (TS 29.281, 7.3): none are sent; received ones are dropped and
//   counted (`unsupported`).
// - Fragmented tunnel packets, and those with IPv4 options: dropped (`unsupported`), as is all UDP
//   to the gateway that is so: only whole ones can be taken out of their tunnels, and nothing
//   reassembles here. (The other way round, fragments are users' packets like others, and tunnel
//   packets may be sent in fragments.)
// - Charging, quality of service, paging, the S5/S8 tunnel to another gateway: no part of it.
//
// A packet is checked and routed as by a gateway (RFC 1812): gateway_check() drops what is
// malformed, not for this switch or from where its source cannot be; it looks at the outer header.
// A user's packet that is too big for the tunnel and must not be fragmented is answered with ICMP;
// other tunnel packets are then sent in fragments by this host's kernel (KERNEL_PORT), which also
// sends what has an unresolved next hop. One from a tunnel that is too big for its route is
// answered to the base station, whose tunnel then has a smaller MTU (as RFC 4459, 3.2, has it), or
// fragmented. systems/redplane/docs/apps/packets.md has each kind of packet.
//
// -DSERVING_GATEWAY_LOCAL: the same without fault tolerance.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>
#include <checksum.p4>

#ifdef SERVING_GATEWAY_LOCAL
#define USERS_CONSISTENCY Consistency.LOCAL
#else
#define USERS_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Users on this switch.
#ifndef SERVING_GATEWAY_USERS
#define SERVING_GATEWAY_USERS 65536
#endif

#include "include/gateway_parser.p4"
#include "include/gateway_checksums.p4"

// Ingress -----------------------------------------------------------------------------------------

control GatewayIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    FlowState<user_t, session_t>(SERVING_GATEWAY_USERS, USERS_CONSISTENCY, Allocator.ZERO) users;

    // Users' packets taken out of tunnels, and put into them.
    counter(1, CounterType.packets_and_bytes) uplink;
    counter(1, CounterType.packets_and_bytes) downlink;
    // Signalling packets that changed a record, that came once more, and that were answered with
    // another cause than "accepted".
    counter(1, CounterType.packets) sessions_changed;
    counter(1, CounterType.packets) repeated;
    counter(1, CounterType.packets) rejected;
    // GTP-U echo requests answered.
    counter(1, CounterType.packets) echoes;
    // Dropped: no session of this user.
    counter(1, CounterType.packets) unknown_user;
    // Dropped: the user's session has another tunnel or base station.
    counter(1, CounterType.packets) wrong_tunnel;
    // Dropped: tunnel packets and echo requests to the gateway from a port behind which no base
    // stations are.
    counter(1, CounterType.packets) wrong_port;
    // Dropped: signalling packets from who may not send them (an address, or a port behind which it
    // is not), with wrong checksums, or of the wrong form.
    counter(1, CounterType.packets) bad_signalling;
    // Dropped: older than the signalling packet that was carried out last.
    counter(1, CounterType.packets) late_signalling;
    // Dropped: fragments to the gateway and tunnel packets with IPv4 options, other GTP-U messages,
    // users' packets that are not IPv4; GTP-U with extension headers to a user.
    counter(1, CounterType.packets) unsupported;
    // Dropped: a user's packet in a tunnel with a wrong header checksum.
    counter(1, CounterType.packets) bad_checksum;
    // Dropped: a user's packet to a multicast or broadcast address, or to one that no host has.
    counter(1, CounterType.packets) bad_destination;
    // Dropped: what gateway_check() refuses; the runtime counts the reasons.
    counter(1, CounterType.packets) refused;
    // Dropped: for a tunnel, out of one or an answer, but no route, or a hop limit that ends in the
    // tunnel.
    counter(1, CounterType.packets) no_route;
    // Routed as they are.
    counter(1, CounterType.packets) routed;
    // Answered with time exceeded: hop limit reached, outside of tunnels.
    counter(1, CounterType.packets) ttl_expired;
    // To the kernel: not IPv4, a tunnel's hop limit reached; what is routed as it is, and is not
    // plainly forwarded.
    counter(1, CounterType.packets) to_kernel;

    bit<32> gateway = 0;

    @own_destination
    action at_gateway() { }

    // Of the first IPv4 header.
    bit<32> sent_to = 0;

    // The gateway's own addresses, to which base stations and mobility managers send.
    table gateways {
        key = { sent_to: exact @name("hdr.outer_ipv4.destination"); }
        actions = { at_gateway; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    action allow() { }

    // Who may send signalling packets, and behind which port each is: an address alone could be
    // written by any host.
    table managers {
        key = {
            standard_metadata.ingress_port: exact;
            hdr.outer_ipv4.source: exact;
        }
        actions = { allow; NoAction; }
        default_action = NoAction();
        size = 64;
    }

    // Behind which ports base stations are. (Which of them a tunnel is from, its address says: the
    // record has it.)
    table radio_ports {
        key = { standard_metadata.ingress_port: exact; }
        actions = { allow; NoAction; }
        default_action = NoAction();
        size = 512;
    }

    // Tunnels start from this address of the gateway.
    action to_users(bit<32> gateway_address) {
        gateway = gateway_address;
    }

    // Addresses that users are given.
    table user_prefixes {
        key = { sent_to: lpm @name("hdr.ipv4.destination"); }
        actions = { to_users; NoAction; }
        default_action = NoAction();
        size = 1024;
    }

    action drop_without_way() {
        no_route.count(0);
        mark_to_drop(standard_metadata);
    }

    // Back to where it came from.
    action turn_round() {
        bit<32> sender = hdr.outer_ipv4.source;
        hdr.outer_ipv4.source = hdr.outer_ipv4.destination;
        hdr.outer_ipv4.destination = sender;
        hdr.outer_ipv4.ttl = 64;
        bit<16> port = hdr.udp.source_port;
        hdr.udp.source_port = hdr.udp.destination_port;
        hdr.udp.destination_port = port;
        meta.outer_changed = true;
    }

    // One off the hop limit (RFC 1624, equation 3: ~m + m' = 0xfeff).
    action hop(inout ipv4_t header_) {
        bit<32> sum = (bit<32>)(~header_.checksum) + 0xfeff;
        sum = (sum & 0xffff) + (sum >> 16);
        header_.checksum = ~(sum[15:0] + sum[31:16]);
        header_.ttl = header_.ttl - 1;
    }

    apply {
        if (!gateway_check()) {
            refused.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        if (standard_metadata.parser_error != error.NoError && meta.kind != Kind.UNSUPPORTED
            && meta.kind != Kind.SIGNALLING) {
            to_kernel.count(0);
            to_host();
            return;
        }
        sent_to = hdr.ipv4.destination;
        if (hdr.outer_ipv4.isValid()) {
            sent_to = hdr.outer_ipv4.destination;
        }
        bool ours = (hdr.outer_ipv4.isValid() || meta.ports_unknown) && gateways.apply().hit;
        if (ours && meta.ports_unknown) {
            unsupported.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        if (!hdr.outer_ipv4.isValid() && (!hdr.ipv4.isValid() || hdr.ipv4.version != 4
                                          || hdr.ipv4.ihl < 5)) {
            to_kernel.count(0);
            to_host();
            return;
        }
        if (!hdr.outer_ipv4.isValid() && hdr.ipv4.ttl <= 1) {
            // (The kernel might have no route to users, and then would not answer.)
            ttl_expired.count(0);
            reply_icmp_error(ICMP_TIME_EXCEEDED, 0, 0);
            return;
        }
        bool to_user = !ours && user_prefixes.apply().hit;
        if (hdr.outer_ipv4.isValid() && to_user) {
            // Tunnels end at the gateway: a user's port may have the same number as theirs.
            if (meta.extension_bytes != 0) {
                unsupported.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (hdr.outer_ipv4.ttl <= 1) {
                ttl_expired.count(0);
                reply_icmp_error(ICMP_TIME_EXCEEDED, 0, 0);
                return;
            }
            meta.kind = Kind.PLAIN;
        } else if (hdr.outer_ipv4.isValid() && !ours) {
            // What goes by in tunnels of others is routed like anything else. (Extension headers
            // are not kept.)
            if (hdr.outer_ipv4.ttl <= 1 || meta.extension_bytes != 0
                || fib_lookup_ipv4(hdr.outer_ipv4.source, hdr.outer_ipv4.destination,
                                   hdr.outer_ipv4.protocol, hdr.udp.source_port,
                                   hdr.udp.destination_port, hdr.outer_ipv4.total_length,
                                   hdr.outer_ipv4.tos,
                                   standard_metadata.egress_spec, hdr.ethernet.source,
                                   hdr.ethernet.destination) != FibResult.FORWARD) {
                to_kernel.count(0);
                to_host();
                return;
            }
            hop(hdr.outer_ipv4);
            routed.count(0);
            return;
        }

        // 1. Whose record?
        user_t user = { 0 };
        bool creates = false;
        bool needs_session = true;
        if (ours) {
            if (meta.kind == Kind.SIGNALLING) {
                if (!hdr.signalling.isValid() || standard_metadata.checksum_error != 0
                    || hdr.signalling.flags != 0x48
                    || hdr.signalling.length != SIGNALLING_BYTES - 4
                    || hdr.signalling.cause != Cause.NONE
                    || (hdr.signalling.type != Request.CREATE_SESSION
                        && hdr.signalling.type != Request.MODIFY_BEARER
                        && hdr.signalling.type != Request.DELETE_SESSION)
                    || !managers.apply().hit) {
                    bad_signalling.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
                user.address = hdr.signalling.user;
                creates = hdr.signalling.type == Request.CREATE_SESSION;
            } else if ((meta.kind == Kind.UPLINK || meta.kind == Kind.ECHO)
                       && !radio_ports.apply().hit) {
                wrong_port.count(0);
                mark_to_drop(standard_metadata);
                return;
            } else if (meta.kind == Kind.UPLINK) {
                // (The user's packet must be all there, and nothing else: what follows it would
                // leave with it.)
                if (hdr.ipv4.version != 4 || hdr.ipv4.ihl < 5
                    || hdr.ipv4.total_length + (hdr.gtp_optional.isValid() ? 16w4 : 0)
                    + meta.extension_bytes != hdr.gtp.length
                    || hdr.gtp.length + 36 != hdr.outer_ipv4.total_length) {
                    unsupported.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
                if (standard_metadata.checksum_error != 0) {
                    bad_checksum.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
                // (gateway_check() saw the tunnel's own addresses. Routes would send these on like
                // any other, and routing protocols of the next router listen to some.)
                if (hdr.ipv4.destination[31:28] == 0xe || hdr.ipv4.destination == 0xffffffff
                    || hdr.ipv4.destination[31:24] == 127 || hdr.ipv4.destination[31:24] == 0) {
                    bad_destination.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
                user.address = hdr.ipv4.source;
            } else if (meta.kind == Kind.ECHO) {
                needs_session = false;
            } else {
                unsupported.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
        } else {
            user.address = sent_to;
            needs_session = to_user;
        }

        session_t session = { 0, 0, 0, 0, 0 };
        StateResult found = StateResult.MISS;
        if (creates) {
            found = users.get_or_allocate(user, session);
        } else if (needs_session) {
            found = users.get(user, session);
        }
        if (found == StateResult.MISS) {
            session = { 0, 0, 0, 0, 0 };
        }

        // 2. What becomes of the packet?
        bit<1> kept_whole = 0; // the user's packet must not be fragmented
        if (meta.kind == Kind.SIGNALLING) {
            bit<24> behind = session.sequence - hdr.signalling.sequence;
            Cause cause = Cause.ACCEPTED;
            if (found == StateResult.HIT && session.sequence == hdr.signalling.sequence
                && (session.active == ACTIVE || (session.active == DELETED
                                                 && hdr.signalling.type == Request.DELETE_SESSION))) {
                repeated.count(0);
            } else if (found == StateResult.HIT && session.active != 0 && behind < 256) {
                // A late copy of a request that others have overtaken: of a Create behind a Delete,
                // too. (A manager that starts again begins somewhere else, most probably.)
                late_signalling.count(0);
                mark_to_drop(standard_metadata);
                return;
            } else if (found == StateResult.MISS && creates) {
                cause = Cause.NO_RESOURCES;
            } else if (session.active != ACTIVE && !creates) {
                cause = Cause.CONTEXT_NOT_FOUND;
            } else {
                if (hdr.signalling.type == Request.DELETE_SESSION) {
                    session = { DELETED, hdr.signalling.sequence, 0, 0, 0 };
                } else if (creates) {
                    session = { ACTIVE, hdr.signalling.sequence, hdr.signalling.uplink_teid,
                                hdr.signalling.downlink_teid, hdr.signalling.station };
                } else {
                    session.sequence = hdr.signalling.sequence;
                    session.downlink_teid = hdr.signalling.downlink_teid;
                    session.station = hdr.signalling.station;
                }
                users.set(user, session);
                if (session.active != ACTIVE) {
                    // (the sequence number is kept for a while, against late copies)
                    users.phase(user, FlowPhase.CLOSED);
                } else if (creates) {
                    users.phase(user, FlowPhase.OPEN);
                }
                sessions_changed.count(0);
            }
            if (cause != Cause.ACCEPTED) {
                rejected.count(0);
            }
            hdr.signalling.cause = cause;
            hdr.signalling.type = (Request)((bit<8>)hdr.signalling.type + 1);
            hdr.signalling.uplink_teid = session.uplink_teid;
            hdr.signalling.downlink_teid = session.downlink_teid;
            hdr.signalling.station = session.station;
            turn_round();
            meta.signalling_changed = true;
        } else if (meta.kind == Kind.ECHO) {
            // TS 29.281, 7.2.2: the sequence number comes back, and a restart counter that means
            // nothing (8.2).
            turn_round();
            hdr.gtp.type = GTP_ECHO_RESPONSE;
            hdr.gtp.has_n_pdu = 0;
            hdr.gtp.length = 6;
            hdr.gtp_recovery.setValid();
            hdr.gtp_recovery.type = GTP_RECOVERY;
            hdr.gtp_recovery.restart_counter = 0;
            hdr.udp.length = 22;
            hdr.udp.checksum = 0;
            hdr.outer_ipv4.total_length = 42;
            truncate(56);
            echoes.count(0);
        } else if (needs_session) {
            if (session.active != ACTIVE) {
                unknown_user.count(0);
                mark_to_drop(standard_metadata);
                return;
            }
            if (meta.kind == Kind.UPLINK) {
                if (session.uplink_teid != hdr.gtp.teid
                    || session.station != hdr.outer_ipv4.source) {
                    wrong_tunnel.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
                if (hdr.ipv4.ttl <= 1) {
                    // (The kernel would see the tunnel, not what expired in it.)
                    drop_without_way();
                    return;
                }
                hop(hdr.ipv4);
                kept_whole = hdr.ipv4.dont_fragment;
                hdr.outer_ipv4.setInvalid();
                hdr.udp.setInvalid();
                hdr.gtp.setInvalid();
                hdr.gtp_optional.setInvalid();
            } else {
                bit<8> user_tos = hdr.ipv4.tos;
                bit<16> user_length = hdr.ipv4.total_length;
                kept_whole = hdr.ipv4.dont_fragment;
                if (hdr.outer_ipv4.isValid()) {
                    hop(hdr.outer_ipv4);
                    user_tos = hdr.outer_ipv4.tos;
                    user_length = hdr.outer_ipv4.total_length;
                    kept_whole = hdr.outer_ipv4.dont_fragment;
                } else {
                    hop(hdr.ipv4);
                }
                hdr.tunnel_ipv4.setValid();
                hdr.tunnel_ipv4 = { 4, 5, user_tos, user_length + 36, 0, 0, 1, 0, 0, 64,
                                    PROTOCOL_UDP, 0, gateway, session.station };
                hdr.tunnel_udp.setValid();
                // (TS 29.281, 4.4.2.0: the source port may be any. One for each user, so that
                // routers' ECMP can tell them apart. RFC 768: 0, no checksum.)
                hdr.tunnel_udp = { 0xc000 | (sent_to[15:0] & 0x3fff), PORT_GTP_U, user_length + 16,
                                   0 };
                hdr.tunnel_gtp.setValid();
                hdr.tunnel_gtp = { 1, 1, 0, 0, 0, 0, GTP_G_PDU, user_length,
                                   session.downlink_teid };
            }
        } else {
            hop(hdr.ipv4);
        }

        // 3. Route what it is now.
        bit<32> source = hdr.ipv4.source;
        bit<32> destination = hdr.ipv4.destination;
        bit<8> protocol = hdr.ipv4.protocol;
        bit<16> source_port = 0;
        bit<16> destination_port = 0;
        bit<16> length = hdr.ipv4.total_length;
        bit<8> tos = hdr.ipv4.tos;
        if (hdr.tunnel_ipv4.isValid()) {
            source = hdr.tunnel_ipv4.source;
            destination = hdr.tunnel_ipv4.destination;
            protocol = hdr.tunnel_ipv4.protocol;
            source_port = hdr.tunnel_udp.source_port;
            destination_port = hdr.tunnel_udp.destination_port;
            length = hdr.tunnel_ipv4.total_length;
            tos = hdr.tunnel_ipv4.tos;
        } else if (hdr.outer_ipv4.isValid()) {
            source = hdr.outer_ipv4.source;
            destination = hdr.outer_ipv4.destination;
            protocol = hdr.outer_ipv4.protocol;
            source_port = hdr.udp.source_port;
            destination_port = hdr.udp.destination_port;
            length = hdr.outer_ipv4.total_length;
            tos = hdr.outer_ipv4.tos;
        }
        FibResult way = fib_lookup_ipv4(source, destination, protocol, source_port,
                                        destination_port, length, tos,
                                        standard_metadata.egress_spec, hdr.ethernet.source,
                                        hdr.ethernet.destination);
        if (way != FibResult.FORWARD) {
            if (!ours && !needs_session) {
                to_kernel.count(0);
                to_host();
                return;
            }
            // The kernel gets packets as they came in: it would see a tunnel where there is none
            // any more.
            if (way == FibResult.LOCAL || way == FibResult.UNREACHABLE) {
                drop_without_way();
                return;
            }
            if (way == FibResult.TOO_BIG) {
                if (kept_whole == 1) {
                    // Into a tunnel, users' packets have room for 36 bytes less; out of one, what
                    // came in had 36 more.
                    bit<16> most = meta.kind == Kind.UPLINK ? fib_mtu() + 36 : fib_mtu() - 36;
                    reply_icmp_error(ICMP_UNREACHABLE, ICMP_FRAGMENTATION_NEEDED, (bit<32>)most);
                    return;
                }
                if (hdr.tunnel_ipv4.isValid()) {
                    hdr.tunnel_ipv4.dont_fragment = 0;
                }
            }
            standard_metadata.egress_spec = KERNEL_PORT; // not resolved, or to be fragmented
        }
        if (meta.kind == Kind.UPLINK) {
            uplink.count(0);
        } else if (meta.kind == Kind.PLAIN) {
            if (needs_session) {
                downlink.count(0);
            } else {
                routed.count(0);
            }
        }
    }
}

control GatewayEgress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    apply { }
}

control GatewayDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(GatewayParser(), GatewayVerifyChecksum(), GatewayIngress(), GatewayEgress(),
         GatewayComputeChecksum(), GatewayDeparser()) main;
