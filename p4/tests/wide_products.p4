// What clang would make 128-bit products of, which BPF has not: the same value at two places of one
// that is wider than 64 bits.
#include <core.p4>
#include <v1model.p4>
header h_t { bit<7> pad; bit<1> x; bit<128> cat; bit<128> sum; bit<128> either; bit<128> slices; }
header two_t { bit<61> first; bit<7> middle; bit<60> last; }
struct headers_t { h_t h; two_t two; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.h.cat = h.h.x ++ (bit<127>)h.h.x;
        h.h.sum = ((bit<128>)h.h.x << 90) - ((bit<128>)h.h.x << 3) - (-((bit<128>)h.h.x << 100));
        h.h.either = ((bit<128>)h.h.x << 70) | ((bit<128>)h.h.x << 2) ^ ((bit<128>)h.h.x << 120);
        h.h.slices = 0;
        h.h.slices[127:127] = h.h.x;
        h.h.slices[66:66] = h.h.x;
        h.h.slices[0:0] = h.h.x;
        h.two.setValid();
        h.two.first = (bit<61>)h.h.x;
        h.two.middle = (bit<7>)h.h.x;
        h.two.last = (bit<60>)h.h.x;
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); p.emit(h.two); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
