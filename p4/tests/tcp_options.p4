// Walks TCP options by lookahead and advance; what it saw leaves in the sequence number. The
// options themselves are skipped, so they are gone.
#include <core.p4>
#include <v1model.p4>

error { BadOption }

header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<3> flags; bit<13> frag;
    bit<8> ttl; bit<8> proto; bit<16> csum; bit<32> src; bit<32> dst;
}
header tcp_t {
    bit<16> sport; bit<16> dport; bit<32> seq; bit<32> ack; bit<4> offset; bit<4> res; bit<8> ctrl;
    bit<16> window; bit<16> csum; bit<16> urgent;
}
header option_t { bit<8> kind; bit<8> length; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; tcp_t tcp; }
struct metadata_t { bit<8> left; bit<16> mss; bit<8> nops; bit<8> options; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) { 0x0800: ipv4; default: accept; }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.proto, hdr.ipv4.ihl) { (6, 5): tcp; default: accept; }
    }
    state tcp {
        packet.extract(hdr.tcp);
        verify(hdr.tcp.offset >= 5, error.BadOption);
        meta.left = ((bit<8>)hdr.tcp.offset - 5) << 2;
        transition next;
    }
    state next {
        transition select(meta.left) { 0: accept; default: option; }
    }
    state option {
        transition select(packet.lookahead<bit<8>>()) {
            0: accept;
            1: nop;
            2: mss;
            default: other;
        }
    }
    state nop {
        packet.advance(8);
        meta.left = meta.left - 1;
        meta.nops = meta.nops + 1;
        transition next;
    }
    state mss {
        verify(meta.left >= 4, error.BadOption);
        meta.mss = packet.lookahead<bit<32>>()[15:0];
        packet.advance(32);
        meta.left = meta.left - 4;
        transition next;
    }
    state other {
        option_t o = packet.lookahead<option_t>();
        verify(o.length >= 2 && o.length <= meta.left, error.BadOption);
        packet.advance((bit<32>)o.length * 8);
        meta.left = meta.left - o.length;
        meta.options = meta.options + 1;
        transition next;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error != error.NoError) {
            standard_metadata.egress_spec = standard_metadata.parser_error == error.BadOption ? 9w2 : 3;
        }
        if (hdr.tcp.isValid()) {
            hdr.tcp.seq = 8w0 ++ meta.options ++ meta.mss;
            hdr.tcp.res = meta.nops[3:0];
        }
    }
}
control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.tcp);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
