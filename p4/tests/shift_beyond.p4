// Shifts by constants that leave nothing, and bits of what is left; signs that a shift makes,
// compared and added.
#include <core.p4>
#include <v1model.p4>
header h_t { bit<50> a; bit<14> b; bit<72> c; bit<8> d; int<128> e; bit<8> f; }
struct headers_t { h_t h; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.h.b = (((bit<52>)h.h.a) << 20w524288)[46:33];
        h.h.c = (bit<72>)((((bit<100>)h.h.a) >> 100)[80:9]);
        h.h.d = (bit<8>)((int<8>)h.h.d >> 9);
        bit<8> by = h.h.f;
        h.h.f = h.h.e >> by < 0 ? 8w1 : 8w0;
        h.h.e = (h.h.e >> by) + (h.h.e >> by);
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
