// standard_metadata as a whole: copied, and given to a control that is applied twice. Its length
// and time are in the copies.
#include <core.p4>
#include <v1model.p4>
header h_t { bit<32> copied; bit<32> given; bit<48> time; bit<8> sum; }
struct headers_t { h_t h; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control Sub(inout headers_t h, inout standard_metadata_t s, in bit<8> add) {
    apply {
        h.h.given = s.packet_length;
        h.h.time = s.ingress_global_timestamp;
        h.h.sum = h.h.sum + (s.ingress_global_timestamp != 0 ? add : 0);
        s.egress_spec = s.egress_spec + 1;
    }
}
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    Sub() sub;
    apply {
        standard_metadata_t copy = s;
        h.h.copied = copy.packet_length;
        sub.apply(h, s, 3);
        sub.apply(h, s, 4);
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
