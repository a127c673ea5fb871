// What was emitted leaves as it was then, whatever the deparser does afterwards.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<8> b; bit<96> rest; }
header e_t { bit<8> v; }
struct headers_t { h_t h; e_t e; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        pkt.extract(hdr.e);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.h.b = 7;
    }
}
control D(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.h);
        if (hdr.h.a == 1) {
            exit;
        } else if (hdr.h.a == 2) {
            return;
        } else if (hdr.h.a == 3) {
            e_t copy = hdr.e;
            pkt.emit(copy);
            copy.v = copy.v + 1;
            pkt.emit(copy);
            copy.setInvalid();
            pkt.emit((e_t){ 9 });
        }
        pkt.emit(hdr.e);
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
