// What simple_switch sets in standard_metadata after the parser and before egress, whatever the
// program has written there.
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<8> op; bit<8> error_seen; bit<8> checksum_seen; bit<8> length_before; bit<8> length;
    bit<8> type; bit<8> queue; bit<8> kept; bit<48> rest;
}
struct headers_t { h_t h; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        sm.parser_error = error.StackOutOfBounds;
        sm.checksum_error = 1;
        transition select(hdr.h.op) { 1: accept; 2: reject; 3: too_long; }
    }
    state too_long {
        pkt.advance(8000);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) {
    apply { verify_checksum(hdr.h.op == 3, { hdr.h.op }, 16w0, HashAlgorithm.csum16); }
}
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.parser_error == error.NoError) {
            hdr.h.error_seen = 1;
        } else if (sm.parser_error == error.PacketTooShort) {
            hdr.h.error_seen = 2;
        } else if (sm.parser_error == error.NoMatch) {
            hdr.h.error_seen = 3;
        }
        hdr.h.checksum_seen = (bit<8>)sm.checksum_error;
        sm.packet_length = 5;
        hdr.h.length_before = sm.packet_length[7:0];
        sm.instance_type = 6;
        sm.enq_qdepth = 7;
        sm.priority = 3;
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        hdr.h.length = sm.packet_length[7:0];
        hdr.h.type = sm.instance_type[7:0];
        hdr.h.queue = sm.enq_qdepth[7:0];
        hdr.h.kept = (bit<8>)sm.priority;
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
