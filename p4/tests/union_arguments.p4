// Members of a header union as arguments: each parameter is a copy of its own, so one that becomes
// valid ousts the others when it is copied out, not before (spec §6.8, §8.20).
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<8> seen; bit<8> x; bit<8> y; bit<88> rest; }
header one_t { bit<8> v; }
header two_t { bit<16> v; }
header_union u_t { one_t x; two_t y; }
struct headers_t { h_t h; u_t u; u_t w; }
struct meta_t { }

void both(inout one_t x, inout two_t y, out bit<8> seen) {
    x.setValid();
    x.v = 3;
    seen = y.isValid() ? 8w1 : 2;
}
void fleeting(inout one_t x) { x.setValid(); x.setInvalid(); }

control Ousts(inout one_t x, in two_t y, out bit<8> seen) {
    apply {
        x.setValid();
        x.v = 4;
        seen = y.isValid() ? 8w1 : 2;
    }
}
parser Sub(packet_in pkt, inout one_t x, in two_t y, out bit<8> seen) {
    state start {
        x.setValid();
        x.v = 5;
        seen = y.isValid() ? 8w1 : 2;
        transition accept;
    }
}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Sub() sub;
    state start {
        pkt.extract(hdr.h);
        pkt.extract(hdr.u.y);
        pkt.extract(hdr.w.y);
        transition select(hdr.h.a) {
            5: with_sub;
            default: accept;
        }
    }
    state with_sub {
        sub.apply(pkt, hdr.u.x, hdr.u.y, hdr.h.seen);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Ousts() ousts;
    apply {
        sm.egress_spec = 1;
        if (hdr.h.a == 1) {
            both(hdr.u.x, hdr.u.y, hdr.h.seen);
        } else if (hdr.h.a == 2) {
            fleeting(hdr.u.x);
        } else if (hdr.h.a == 3) {
            ousts.apply(hdr.u.x, hdr.u.y, hdr.h.seen);
        } else if (hdr.h.a == 4) {
            hdr.w.x.setValid();
        }
        hdr.h.x = hdr.u.x.isValid() ? 8w1 : 2;
        hdr.h.y = hdr.u.y.isValid() ? 8w1 : 2;
    }
}
control D(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.h);
        pkt.emit(hdr.u);
        // One member alone: it is gone, too, when another became valid.
        pkt.emit(hdr.w.y);
    }
}
V1Switch(P(), V(), I(), E(), C(), D()) main;
