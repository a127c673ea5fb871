// Values of which clang knows more bits than the verifier, as bytes that a CRC reads its table at
// and as indices; indices of any width; and shifts of more than 64 bits, of two of which clang
// would make one by a variable.
#include <core.p4>
#include <v1model.p4>
header h_t { bit<7> pad; bit<1> n; bit<8> m; bit<64> far; bit<16> shifted; bit<16> rest; bit<8> at; bit<8> found; bit<72> cat; }
header e_t { bit<6> low; bit<2> high; }
struct headers_t { h_t h; e_t[2] st; }
struct meta_t { }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); p.extract(h.st.next); p.extract(h.st.next); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        hash(h.h.shifted, HashAlgorithm.crc16, 16w0, { 8w15 >> h.h.n, (22w901285 << h.h.m[4:0]),
                                                       2w0 }, 32w65536);
        hash(h.h.rest, HashAlgorithm.crc16, 16w0, { h.h.m, h.h.m % 8w107 }, 32w65536);
        h.h.at = h.h.m + (bit<8>)h.h.n;
        h.h.found = (bit<8>)h.st[h.h.at].low;
        h.st[h.h.far].high = 2w1;
        h.st[(bit<100>)h.h.far << 40].low = 6w1;
        if (h.h.n == 1) {
            h.h.cat[66:64] = h.h.m[2:0];
        } else {
            h.h.cat[55:11] = (bit<45>)h.h.m;
        }
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); p.emit(h.st); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
