// More than 1 KiB of headers and metadata, which are zero at first.
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> kind; }
header wide_t { bit<128> f0; bit<128> f1; bit<128> f2; bit<128> f3; bit<128> f4; bit<128> f5; bit<128> f6; bit<128> f7; bit<128> f8; bit<128> f9; bit<128> f10; bit<128> f11; bit<128> f12; bit<128> f13; bit<128> f14; bit<128> f15; bit<128> f16; bit<128> f17; bit<128> f18; bit<128> f19; }
struct headers_t { h_t h; wide_t[4] wide; }
struct meta_t { bit<8> last; }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.h);
        transition select(h.h.kind) {
            1: fill;
            default: accept;
        }
    }
    state fill { h.wide[3].f19 = 77; m.last = 5; transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.h.kind = (bit<8>)h.wide[3].f19 + m.last + (bit<8>)h.wide[(bit<2>)h.h.kind].f3;
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
