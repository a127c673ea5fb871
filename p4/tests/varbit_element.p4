// Varbit fields of a stack's elements by index: copied with their lengths, empty beyond the stack.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> from; bit<8> to; bit<96> rest; }
header v_t { bit<8> n; varbit<64> o; }
struct headers_t { h_t h; v_t[3] s; v_t copy; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        pkt.extract(hdr.s.next, (bit<32>)pkt.lookahead<bit<8>>() * 8);
        pkt.extract(hdr.s.next, (bit<32>)pkt.lookahead<bit<8>>() * 8);
        pkt.extract(hdr.s.next, (bit<32>)pkt.lookahead<bit<8>>() * 8);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        varbit<64> o = hdr.s[hdr.h.from].o;
        hdr.copy.setValid();
        hdr.copy.n = 0xee;
        hdr.copy.o = o;
        hdr.s[hdr.h.to].o = hdr.s[hdr.h.from].o;
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
