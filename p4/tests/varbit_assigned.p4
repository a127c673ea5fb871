// A varbit field that gets the value of another one, and with it its length: the packet's layout
// changes, though no header becomes valid or invalid.
#include <core.p4>
#include <v1model.p4>

header v_t { bit<8> n; varbit<64> o; }
struct headers_t { v_t v; v_t w; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.v, (bit<32>)pkt.lookahead<bit<8>>() * 8);
        pkt.extract(hdr.w, (bit<32>)pkt.lookahead<bit<8>>() * 8);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.v.o = hdr.w.o;
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
