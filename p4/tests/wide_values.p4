// Values of more than 128 bits: as constants in a header's list and in comparisons, and from a
// stack's element that is not known before.
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> index; bit<8> equal; bit<144> w; }
header e_t { bit<144> w; }
struct headers_t { h_t h; e_t made; e_t[2] st; }
struct meta_t { bit<144> w; }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); p.extract(h.st.next); p.extract(h.st.next); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        h.h.equal = (bit<8>)(bit<1>)(h.h.w == 144w0x0102030405060708090a0b0c0d0e0f101112);
        h.made = { 144w0xff };
        m.w = h.st[h.h.index].w;
        h.h.w = m.w;
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); p.emit(h.made); p.emit(h.st); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
