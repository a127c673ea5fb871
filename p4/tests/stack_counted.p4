// `last` of a stack right behind two extracts: its index must be checked in the form that the
// address is made of, or the kernel's verifier refuses the program.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<8> x; bit<8> y; bit<88> rest; }
header e_t { bit<8> v; }
struct headers_t { h_t h; e_t[5] s; e_t[5] t; }
struct meta_t { }

parser Sub(packet_in pkt, inout bit<8> sum) {
    e_t[3] e;
    state start {
        pkt.extract(e.next);
        pkt.extract(e.next);
        sum = (bit<8>)e.lastIndex + e[0].v + e.last.v;
        transition accept;
    }
}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Sub() sub;
    state start {
        pkt.extract(hdr.h);
        transition select(hdr.h.a) {
            1: twice;
            2: loop;
            3: other_loop;
            default: accept;
        }
    }
    state twice {
        sub.apply(pkt, hdr.h.x);
        sub.apply(pkt, hdr.h.y);
        transition accept;
    }
    state loop {
        pkt.extract(hdr.s.next);
        transition select(hdr.s.last.v) {
            0x80 &&& 0x80: loop;
            default: accept;
        }
    }
    state other_loop {
        pkt.extract(hdr.t.next);
        transition select(hdr.t.last.v) {
            0x80 &&& 0x80: other_loop;
            default: accept;
        }
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply { sm.egress_spec = 1; }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
