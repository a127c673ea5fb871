// Constants of more than 128 bits, in variables that live in a map: what was stored beside them
// before stays.
#include <core.p4>
#include <v1model.p4>
header h_t { bit<56> f0; bit<2> f1; bit<30> f2; bit<144> w; }
header i_t { bit<8> i; }
struct headers_t { i_t i; h_t h; h_t[2] st; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.i); p.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        if (h.i.i == 1) {
            h.st[1] = { h.h.f0 + 1, h.h.f0[3:2], 30w5, 144w0x80000000000000000000000000000000 };
        } else {
            h.h.f0 = h.h.f0 + 1;
            h.h.w = 144w0x8000000000000000000000000000000001ff;
        }
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.i); p.emit(h.h); p.emit(h.st); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
