// nat_parser.p4: what nat.p4 knows of a packet: its headers, the conversation that it is part of,
// and what the translator can do with it. Included by nat.p4.

// Headers -----------------------------------------------------------------------------------------

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

// State -------------------------------------------------------------------------------------------

// Who talks to whom. For ICMP echo the identifier stands in for the port of the side that asked,
// and the other side's port is 0.
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
    // What opens a conversation (outbound, it may make a binding): a TCP SYN, UDP, an ICMP echo
    // request.
    OPENER = 1,
    // What goes on with one: other TCP, an ICMP echo reply.
    FOLLOWER = 2,
    // An ICMP error with enough of the packet that it is about.
    ICMP_ERROR = 3,
    // A fragment after the first, of a protocol with ports.
    FRAGMENT = 4
}

enum bit<8> Direction {
    NONE = 0,
    OUTBOUND = 1,
    INBOUND = 2,
    // From an inside host to an external address: outbound, then inbound.
    HAIRPIN = 3
}

struct metadata_t {
    Kind         kind;
    Direction    direction;
    // The packet's own five-tuple; of an ICMP error, the five-tuple of an answer to the packet that
    // it is about. Once translated, what it is then.
    five_tuple_t key;
}

// May a TCP segment make a binding?
bool opens(in bit<16> offset_and_flags) {
#ifdef NAT_PICK_UP
    return tcp_opens(offset_and_flags) || tcp_only_acknowledges(offset_and_flags);
#else
    return tcp_opens(offset_and_flags);
#endif
}

// Parser ------------------------------------------------------------------------------------------

parser NatParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    // Bytes of ICMP by the IPv4 header. Behind its end Ethernet pads: no header may begin there
    // (RFC 1812, 5.2.2). gateway_check() sees to TCP's and UDP's.
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
            (_, PROTOCOL_ICMP): fragment;
            default: accept;
        }
    }

    state fragment {
        meta.kind = Kind.FRAGMENT;
        transition accept;
    }

    state tcp {
        packet.extract(hdr.tcp);
        meta.kind = opens(hdr.tcp.offset_and_flags) ? Kind.OPENER : Kind.FOLLOWER;
        meta.key.source_port = hdr.tcp.source_port;
        meta.key.destination_port = hdr.tcp.destination_port;
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        meta.kind = Kind.OPENER;
        meta.key.source_port = hdr.udp.source_port;
        meta.key.destination_port = hdr.udp.destination_port;
        transition accept;
    }

    state icmp {
        packet.extract(hdr.icmp);
        payload_bytes = hdr.ipv4.total_length |-| ((bit<16>)hdr.ipv4.ihl << 2);
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
        meta.kind = payload_bytes >= 8 ? Kind.OPENER : Kind.UNSUPPORTED;
        meta.key.source_port = hdr.echo.identifier;
        transition accept;
    }

    state echo_reply {
        packet.extract(hdr.echo);
        meta.kind = payload_bytes >= 8 ? Kind.FOLLOWER : Kind.UNSUPPORTED;
        meta.key.destination_port = hdr.echo.identifier;
        transition accept;
    }

    // The key of an error is turned round: an error about a packet that went out finds the binding
    // that its answers use, and one about a packet that came in the binding that the inside host's
    // answers use.
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
