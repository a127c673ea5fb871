// A header with a varbit field, as a whole in a checksum, in a hash, or copied: the packet's layout
// stays, and nothing names the field.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> op; bit<8> a; bit<16> sum; bit<16> hash; bit<64> rest; }
header v_t { bit<8> n; varbit<64> o; }
struct headers_t { h_t h; v_t v; v_t w; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        pkt.extract(hdr.v, (bit<32>)pkt.lookahead<bit<8>>() * 8);
        pkt.extract(hdr.w, (bit<32>)pkt.lookahead<bit<8>>() * 8);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (hdr.h.op == 1) {
            hash(hdr.h.hash, HashAlgorithm.xor16, 16w0, { hdr.v }, 17w0x10000);
        } else {
            v_t copy = hdr.w;
            hash(hdr.h.hash, HashAlgorithm.xor16, 16w0, { copy.o }, 17w0x10000);
        }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum_with_payload(hdr.h.op == 1, { hdr.h.op, hdr.h.a, hdr.v }, hdr.h.sum,
                                     HashAlgorithm.csum16);
        update_checksum(hdr.h.op == 2, { hdr.v, hdr.h.a }, hdr.h.sum, HashAlgorithm.csum16);
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
