// gateway_parser.p4: what serving_gateway.p4 knows of a packet: tunnels (GTP-U), signalling, and
// the user whose packet it is. Included by serving_gateway.p4.

const bit<16> PORT_GTP_C = 2123;
const bit<16> PORT_GTP_U = 2152;

// TS 29.281, table 6.1-1
const bit<8> GTP_ECHO_REQUEST = 1;
const bit<8> GTP_ECHO_RESPONSE = 2;
const bit<8> GTP_G_PDU = 255;
// TS 29.281, 8.2
const bit<8> GTP_RECOVERY = 14;

// TS 29.274, table 6.1-1: what the signalling packets are modelled on. A response is its request
// plus 1.
enum bit<8> Request {
    CREATE_SESSION = 32,
    MODIFY_BEARER = 34,
    DELETE_SESSION = 36
}

// TS 29.274, table 8.4-1
enum bit<8> Cause {
    NONE = 0,
    ACCEPTED = 16,
    CONTEXT_NOT_FOUND = 64,
    NO_RESOURCES = 73
}

// Headers -----------------------------------------------------------------------------------------

// The same with what comes before it, to look ahead.
header ipv4_and_ports_t {
    bit<96> before;
    bit<32> source;
    bit<32> destination;
    bit<16> source_port;
    bit<16> destination_port;
}

// TS 29.281, 5.1
header gtp_t {
    bit<3>  version;
    bit<1>  protocol_type;
    bit<1>  reserved;
    bit<1>  has_extension;
    bit<1>  has_sequence;
    bit<1>  has_n_pdu;
    bit<8>  type;
    bit<16> length;
    bit<32> teid;
}

// There when any of the three flags is set.
header gtp_optional_t {
    bit<16> sequence;
    bit<8>  n_pdu;
    bit<8>  next_extension;
}

// Of an echo response.
header gtp_recovery_t {
    bit<8> type;
    bit<8> restart_counter;
}

// A signalling packet, both ways; the length counts from after itself.
header signalling_t {
    bit<8>  flags; // 0x48: version 2, with a TEID
    Request type;
    bit<16> length;
    bit<32> teid;
    bit<24> sequence;
    bit<8>  spare;
    bit<32> user;
    bit<32> uplink_teid;
    bit<32> downlink_teid;
    bit<32> station;
    Cause   cause;
    bit<24> spare2;
}

const bit<16> SIGNALLING_BYTES = 32;

struct headers_t {
    ethernet_t     ethernet;
    // The tunnel that a packet is put into here.
    ipv4_t         tunnel_ipv4;
    udp_t          tunnel_udp;
    gtp_t          tunnel_gtp;
    // What came in a tunnel, or in what looks like one by its port.
    ipv4_t         outer_ipv4;
    udp_t          udp;
    gtp_t          gtp;
    gtp_optional_t gtp_optional;
    gtp_recovery_t gtp_recovery;
    signalling_t   signalling;
    // The user's packet; of packets that came without a tunnel it is the only one.
    ipv4_t         ipv4;
    ipv4_options_t options;
}

// State -------------------------------------------------------------------------------------------

struct user_t {
    bit<32> address;
}

// Of a session: there never was one, there is one, there was one. (0 is what a new record has.)
const bit<8> ACTIVE = 1;
const bit<8> DELETED = 2;

struct session_t {
    bit<8>  active;
    // Of the signalling packet that made it so: one that comes twice is carried out once.
    bit<24> sequence;
    // What the base station writes into packets from the user.
    bit<32> uplink_teid;
    // What it wants to see in packets to the user.
    bit<32> downlink_teid;
    // Its address.
    bit<32> station;
}

enum bit<8> Kind {
    // Nothing that the gateway knows: routed, if it can be.
    OTHER = 0,
    // A user's packet in its tunnel.
    UPLINK = 1,
    // A packet without a tunnel.
    PLAIN = 2,
    SIGNALLING = 3,
    ECHO = 4,
    // In GTP-U, or to its port, but nothing that is done here.
    UNSUPPORTED = 5
}

struct metadata_t {
    Kind    kind;
    // Bytes of extension headers that stand between the GTP-U header and the user's packet.
    bit<16> extension_bytes;
    // The outer IPv4 header was made or changed here.
    bool    outer_changed;
    bool    signalling_changed;
    // UDP of which is not known whether it is in a tunnel: a fragment, or behind IPv4 options.
    bool    ports_unknown;
}

// Parser ------------------------------------------------------------------------------------------

parser GatewayParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        meta.kind = Kind.OTHER;
        meta.extension_bytes = 0;
        meta.outer_changed = false;
        meta.signalling_changed = false;
        meta.ports_unknown = false;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    // Whether the first IPv4 header is a tunnel's shows only further on.
    state ipv4 {
        ipv4_t first = packet.lookahead<ipv4_t>();
        transition select(first.version, first.ihl, first.more_fragments, first.fragment_offset,
                          first.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): ports;
            (4, _, _, _, PROTOCOL_UDP): ports_unknown;
            default: plain;
        }
    }

    // Only a first fragment has ports, and what is for the gateway must not be told apart by that.
    state ports_unknown {
        meta.ports_unknown = true;
        transition plain;
    }

    state plain {
        packet.extract(hdr.ipv4);
        meta.kind = Kind.PLAIN;
        transition accept;
    }

    state ports {
        transition select(packet.lookahead<ipv4_and_ports_t>().destination_port) {
            PORT_GTP_U: tunnel;
            PORT_GTP_C: signalling;
            default: plain;
        }
    }

    state signalling {
        packet.extract(hdr.outer_ipv4);
        packet.extract(hdr.udp);
        transition select(hdr.udp.length, hdr.outer_ipv4.total_length) {
            (8 + SIGNALLING_BYTES, 28 + SIGNALLING_BYTES): signalling_body;
            default: accept;
        }
    }

    state signalling_body {
        meta.kind = Kind.SIGNALLING;
        packet.extract(hdr.signalling);
        transition accept;
    }

    state tunnel {
        packet.extract(hdr.outer_ipv4);
        packet.extract(hdr.udp);
        meta.kind = Kind.UNSUPPORTED;
        packet.extract(hdr.gtp);
        transition select(hdr.gtp.version, hdr.gtp.protocol_type, hdr.gtp.type,
                          hdr.gtp.has_extension, hdr.gtp.has_sequence, hdr.gtp.has_n_pdu) {
            (1, 1, GTP_G_PDU, 0, 0, 0): user_packet;
            (1, 1, GTP_G_PDU, _, _, _): optional;
            (1, 1, GTP_ECHO_REQUEST, 0, 1, _): echo;
            default: accept;
        }
    }

    state echo {
        packet.extract(hdr.gtp_optional);
        meta.kind = Kind.ECHO;
        transition accept;
    }

    state optional {
        packet.extract(hdr.gtp_optional);
        transition select(hdr.gtp.has_extension, hdr.gtp_optional.next_extension) {
            (0, _): user_packet;
            (_, 0): user_packet;
            (_, 0x80 &&& 0x80): accept;
            default: extension;
        }
    }

    // TS 29.281, 5.2.1: length in words, content, type of the next. Those with the type's high bit
    // must be understood: none of them is here.
    state extension {
        bit<8> words = packet.lookahead<bit<8>>();
        verify(words != 0, error.HeaderTooShort);
        packet.advance(((bit<32>)words << 5) - 8);
        meta.extension_bytes = meta.extension_bytes + ((bit<16>)words << 2);
        bit<8> next = packet.lookahead<bit<8>>();
        packet.advance(8);
        transition select(next) {
            0: user_packet;
            0x80 &&& 0x80: accept;
            default: extension;
        }
    }

    state user_packet {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl) {
            6 .. 15: user_options;
            default: uplink;
        }
    }

    // The header's checksum covers them.
    state user_options {
        packet.extract(hdr.options, ((bit<32>)hdr.ipv4.ihl - 5) * 32);
        transition uplink;
    }

    state uplink {
        meta.kind = Kind.UPLINK;
        transition accept;
    }
}
