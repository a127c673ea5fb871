// headers.p4: Internet headers and their constants. Field names follow the RFCs. Not part of any
// standard.
//
// Include it after core.p4.
#ifndef HEADERS_P4
#define HEADERS_P4

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;

const bit<8> PROTOCOL_ICMP = 1;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_IPV6_FRAGMENT = 44;
const bit<8> PROTOCOL_ICMP6 = 58;

// In tcp_t.offset_and_flags.
const bit<16> TCP_FIN = 1;
const bit<16> TCP_SYN = 2;
const bit<16> TCP_RST = 4;
const bit<16> TCP_ACK = 16;
// The flags at which a connection takes a step.
const bit<16> TCP_PHASES = TCP_FIN | TCP_SYN | TCP_RST;

const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_UNREACHABLE = 3;
const bit<8> ICMP_ECHO_REQUEST = 8;
const bit<8> ICMP_TIME_EXCEEDED = 11;
const bit<8> ICMP_PARAMETER_PROBLEM = 12;
// A code of ICMP_UNREACHABLE.
const bit<8> ICMP_FRAGMENTATION_NEEDED = 4;
// RFC 4443: errors are 1 to 4 (127 at the most, of which no others are known).
const bit<8> ICMP6_UNREACHABLE = 1;
const bit<8> ICMP6_TOO_BIG = 2;
const bit<8> ICMP6_PARAMETER_PROBLEM = 4;
const bit<8> ICMP6_ECHO_REQUEST = 128;
const bit<8> ICMP6_ECHO_REPLY = 129;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

// IEEE 802.1Q
header vlan_t {
    bit<3>  priority;
    bit<1>  drop_eligible;
    bit<12> id;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> identification;
    bit<1>  reserved;
    bit<1>  dont_fragment;
    bit<1>  more_fragments;
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

header ipv6_t {
    bit<4>   version;
    bit<8>   traffic_class;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> source;
    bit<128> destination;
}

// RFC 8200, 4.5
header ipv6_fragment_t {
    bit<8>  next_header;
    bit<8>  reserved;
    bit<13> fragment_offset;
    bit<2>  reserved2;
    bit<1>  more_fragments;
    bit<32> identification;
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

// The next fourteen of TCP, as far as the checksum: there when the error carries more than it must,
// as most do (RFC 1812, 4.3.2.3).
header tcp_rest_t {
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<16> offset_and_flags;
    bit<16> window;
    bit<16> checksum;
}

// TCP --------------------------------------------------------------------------------------------

// Does a segment open a connection? Only a SYN that is nothing else: RFC 5382 knows no other
// beginning, and no host answers SYN+FIN or SYN+RST by a connection.
bool tcp_opens(in bit<16> offset_and_flags) {
    return (offset_and_flags & (TCP_PHASES | TCP_ACK)) == TCP_SYN;
}

// Does a segment only acknowledge, as all do between a connection's first and last ones?
bool tcp_only_acknowledges(in bit<16> offset_and_flags) {
    return (offset_and_flags & (TCP_PHASES | TCP_ACK)) == TCP_ACK;
}

#endif
