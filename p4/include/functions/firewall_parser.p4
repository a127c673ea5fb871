// firewall_parser.p4: what firewall.p4 knows of a packet: its headers, the connection that it is
// part of, and how far a connection has come. Included by firewall.p4.

// Headers -----------------------------------------------------------------------------------------

struct headers_t {
    ethernet_t     ethernet;
    ipv4_t         ipv4;
    ipv4_options_t options;
    ipv6_t         ipv6;
    ipv6_fragment_t ipv6_fragment;
    tcp_t          tcp;
    udp_t          udp;
    icmp_t         icmp;
    icmp_echo_t    echo;
    icmp_error_t   icmp_error;
    // The packet that an ICMP error is about.
    ipv4_t         embedded_ipv4;
    ipv4_options_t embedded_options;
    ipv6_t         embedded_ipv6;
    ipv6_fragment_t embedded_fragment;
    ports_t        embedded_ports;
    icmp_t         embedded_icmp;
    icmp_echo_t    embedded_echo;
}

// State -------------------------------------------------------------------------------------------

// For ICMP echo the identifier stands in for the port of the side that asked, and the other side's
// port is 0.
struct connection_t {
    bit<128> inside;
    bit<128> outside;
    bit<16>  inside_port;
    bit<16>  outside_port;
    bit<8>   protocol;
}

enum bit<8> Phase {
    // TCP: nothing has happened yet. Others stay so.
    NEW = 0,
    // SYN from inside, or from outside; no answer yet.
    OPENED_INSIDE = 1,
    OPENED_OUTSIDE = 2,
    ESTABLISHED = 3,
    // FIN from one side.
    FIN_INSIDE = 4,
    FIN_OUTSIDE = 5,
    // FIN from both: last acknowledgements pass, and the next SYN opens it again.
    CLOSED = 6,
    RESET = 7
}

struct status_t {
    Phase phase;
}

enum bit<8> Kind {
    UNSUPPORTED = 0,
    TCP = 1,
    // UDP, echo request: any packet opens.
    OPENER = 2,
    // Echo reply.
    ANSWER = 3,
    // An ICMP error with enough of the packet that it is about.
    ICMP_ERROR = 4,
    // A fragment after the first, of a protocol with ports.
    FRAGMENT = 5
}

struct metadata_t {
    Kind     kind;
    // The packet's own ends.
    bit<128> source;
    bit<128> destination;
    // Whose connection it belongs to, as this packet goes; of an ICMP error, as an answer to the
    // packet that it is about would go.
    bit<128> key_source;
    bit<128> key_destination;
    bit<16>  source_port;
    bit<16>  destination_port;
    bit<8>   protocol;
}

bit<128> mapped(in bit<32> address) {
    return 0xffff00000000 | (bit<128>)address;
}

// Parser ------------------------------------------------------------------------------------------

parser FirewallParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    // What the IP header says that it carries. Behind its end Ethernet pads: no header may begin
    // there (RFC 1812, 5.2.2).
    bit<16> payload_bytes;
    // The same of the packet that an ICMP error is about, as far as it is there.
    bit<16> embedded_bytes;

    state start {
        meta.kind = Kind.UNSUPPORTED;
        meta.source = 0;
        meta.destination = 0;
        meta.key_source = 0;
        meta.key_destination = 0;
        meta.source_port = 0;
        meta.destination_port = 0;
        meta.protocol = 0;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        payload_bytes = hdr.ipv4.total_length |-| ((bit<16>)hdr.ipv4.ihl << 2);
        meta.source = mapped(hdr.ipv4.source);
        meta.destination = mapped(hdr.ipv4.destination);
        meta.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.ihl) {
            0 .. 4: reject; // (gateway_check() drops it)
            5: ipv4_transport;
            default: options;
        }
    }

    state options {
        packet.extract(hdr.options, ((bit<32>)hdr.ipv4.ihl - 5) * 32);
        transition ipv4_transport;
    }

    state ipv4_transport {
        meta.key_source = meta.source;
        meta.key_destination = meta.destination;
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

    state ipv6 {
        packet.extract(hdr.ipv6);
        payload_bytes = hdr.ipv6.payload_length;
        meta.source = hdr.ipv6.source;
        meta.destination = hdr.ipv6.destination;
        meta.key_source = hdr.ipv6.source;
        meta.key_destination = hdr.ipv6.destination;
        meta.protocol = hdr.ipv6.next_header;
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_TCP: tcp;
            PROTOCOL_UDP: udp;
            PROTOCOL_ICMP6: icmp6;
            PROTOCOL_IPV6_FRAGMENT: ipv6_fragment;
            default: accept;
        }
    }

    state ipv6_fragment {
        packet.extract(hdr.ipv6_fragment);
        payload_bytes = payload_bytes |-| 8;
        meta.protocol = hdr.ipv6_fragment.next_header;
        transition select(hdr.ipv6_fragment.fragment_offset, hdr.ipv6_fragment.next_header) {
            (0, PROTOCOL_TCP): tcp;
            (0, PROTOCOL_UDP): udp;
            (0, PROTOCOL_ICMP6): icmp6;
            (0, _): accept;
            (1, PROTOCOL_TCP): accept; // it would overwrite flags that were looked at (RFC 1858)
            (_, PROTOCOL_TCP): fragment;
            (_, PROTOCOL_UDP): fragment;
            (_, PROTOCOL_ICMP6): fragment;
            default: accept;
        }
    }

    state fragment {
        meta.kind = Kind.FRAGMENT;
        transition accept;
    }

    state tcp {
        packet.extract(hdr.tcp);
        meta.kind = payload_bytes >= 20 ? Kind.TCP : Kind.UNSUPPORTED;
        meta.source_port = hdr.tcp.source_port;
        meta.destination_port = hdr.tcp.destination_port;
        transition accept;
    }

    state udp {
        packet.extract(hdr.udp);
        meta.kind = payload_bytes >= 8 ? Kind.OPENER : Kind.UNSUPPORTED;
        meta.source_port = hdr.udp.source_port;
        meta.destination_port = hdr.udp.destination_port;
        transition accept;
    }

    state icmp {
        packet.extract(hdr.icmp);
        transition select(hdr.icmp.type) {
            ICMP_ECHO_REQUEST: echo_request;
            ICMP_ECHO_REPLY: echo_reply;
            ICMP_UNREACHABLE: ipv4_error;
            ICMP_TIME_EXCEEDED: ipv4_error;
            ICMP_PARAMETER_PROBLEM: ipv4_error;
            default: accept;
        }
    }

    state icmp6 {
        packet.extract(hdr.icmp);
        transition select(hdr.icmp.type) {
            ICMP6_ECHO_REQUEST: echo_request;
            ICMP6_ECHO_REPLY: echo_reply;
            ICMP6_UNREACHABLE .. ICMP6_PARAMETER_PROBLEM: ipv6_error;
            default: accept;
        }
    }

    state echo_request {
        packet.extract(hdr.echo);
        meta.kind = payload_bytes >= 8 ? Kind.OPENER : Kind.UNSUPPORTED;
        meta.source_port = hdr.echo.identifier;
        transition accept;
    }

    state echo_reply {
        packet.extract(hdr.echo);
        meta.kind = payload_bytes >= 8 ? Kind.ANSWER : Kind.UNSUPPORTED;
        meta.destination_port = hdr.echo.identifier;
        transition accept;
    }

    state ipv4_error {
        packet.extract(hdr.icmp_error);
        packet.extract(hdr.embedded_ipv4);
        meta.key_source = mapped(hdr.embedded_ipv4.destination);
        meta.key_destination = mapped(hdr.embedded_ipv4.source);
        meta.protocol = hdr.embedded_ipv4.protocol;
        transition select(hdr.embedded_ipv4.version, hdr.embedded_ipv4.ihl) {
            (4, 5): embedded_ipv4_transport;
            (4, 6 .. 15): embedded_options;
            default: accept;
        }
    }

    state embedded_options {
        packet.extract(hdr.embedded_options, ((bit<32>)hdr.embedded_ipv4.ihl - 5) * 32);
        transition embedded_ipv4_transport;
    }

    state embedded_ipv4_transport {
        embedded_bytes = payload_bytes |-| (8 + ((bit<16>)hdr.embedded_ipv4.ihl << 2));
        transition select(hdr.embedded_ipv4.fragment_offset, hdr.embedded_ipv4.protocol) {
            (0, PROTOCOL_TCP): embedded_ports;
            (0, PROTOCOL_UDP): embedded_ports;
            (0, PROTOCOL_ICMP): embedded_icmp;
            default: accept;
        }
    }

    state ipv6_error {
        packet.extract(hdr.icmp_error);
        packet.extract(hdr.embedded_ipv6);
        embedded_bytes = payload_bytes |-| 48;
        meta.key_source = hdr.embedded_ipv6.destination;
        meta.key_destination = hdr.embedded_ipv6.source;
        meta.protocol = hdr.embedded_ipv6.next_header;
        transition select(hdr.embedded_ipv6.version, hdr.embedded_ipv6.next_header) {
            (6, PROTOCOL_TCP): embedded_ports;
            (6, PROTOCOL_UDP): embedded_ports;
            (6, PROTOCOL_ICMP6): embedded_icmp;
            (6, PROTOCOL_IPV6_FRAGMENT): embedded_fragment;
            default: accept;
        }
    }

    // Who sends in fragments must hear that they are too big (RFC 8201, 4): IPv6 fragments nowhere
    // else. Of those after the first nobody knows the ports.
    state embedded_fragment {
        packet.extract(hdr.embedded_fragment);
        embedded_bytes = embedded_bytes |-| 8;
        meta.protocol = hdr.embedded_fragment.next_header;
        transition select(hdr.embedded_fragment.fragment_offset,
                          hdr.embedded_fragment.next_header) {
            (0, PROTOCOL_TCP): embedded_ports;
            (0, PROTOCOL_UDP): embedded_ports;
            (0, PROTOCOL_ICMP6): embedded_icmp;
            default: accept;
        }
    }

    state embedded_ports {
        packet.extract(hdr.embedded_ports);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.UNSUPPORTED;
        meta.source_port = hdr.embedded_ports.destination_port;
        meta.destination_port = hdr.embedded_ports.source_port;
        transition accept;
    }

    // (The types of one family mean nothing in the other, and are not sent there.)
    state embedded_icmp {
        packet.extract(hdr.embedded_icmp);
        transition select(hdr.embedded_icmp.type) {
            ICMP_ECHO_REQUEST: embedded_request;
            ICMP6_ECHO_REQUEST: embedded_request;
            ICMP_ECHO_REPLY: embedded_reply;
            ICMP6_ECHO_REPLY: embedded_reply;
            default: accept; // no error is sent about an error (RFC 1122, 3.2.2)
        }
    }

    state embedded_request {
        packet.extract(hdr.embedded_echo);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.UNSUPPORTED;
        meta.destination_port = hdr.embedded_echo.identifier;
        transition accept;
    }

    state embedded_reply {
        packet.extract(hdr.embedded_echo);
        meta.kind = embedded_bytes >= 8 ? Kind.ICMP_ERROR : Kind.UNSUPPORTED;
        meta.source_port = hdr.embedded_echo.identifier;
        transition accept;
    }
}
