// A parser that extracts both members of a header union: the second ousts the first, so the packet
// that leaves is shorter.
#include <core.p4>
#include <v1model.p4>
header a_t { bit<8> kind; bit<8> x; }
header b_t { bit<16> y; bit<16> z; }
header_union u_t { a_t a; b_t b; }
struct headers_t { u_t u; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.u.a);
        transition select(h.u.a.kind) {
            1: more;
            default: accept;
        }
    }
    state more { p.extract(h.u.b); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { s.egress_spec = 1; } }
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.u); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
