// Copies of standard_metadata are like other structs: what is written to them counts when they are
// copied out. egress_port is read-only in simple_switch.md: writing it sends no packet elsewhere.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<8> b; bit<96> rest; }
struct headers_t { h_t h; }
struct meta_t { }

void drop_and(inout bit<9> port, inout standard_metadata_t s) { mark_to_drop(s); port = 7; }

// Applied in two places: its parameter is a copy.
control Drop(inout standard_metadata_t s) {
    apply { mark_to_drop(s); }
}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Drop() drop;
    apply {
        sm.egress_spec = 1;
        if (hdr.h.a == 1) {
            drop.apply(sm);
        } else if (hdr.h.a == 2) {
            standard_metadata_t copy = sm;
            mark_to_drop(copy);
            hdr.h.b = copy.egress_spec == 511 ? 8w1 : 2;
        } else if (hdr.h.a == 3) {
            drop.apply(sm);
            sm.egress_spec = 2;
        } else if (hdr.h.a == 4) {
            drop_and(sm.egress_spec, sm);
        }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.h.a == 5) {
            sm.egress_port = 9;
            hdr.h.b = (bit<8>)sm.egress_port;
        }
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
