// Negative numbers wherever a match or an argument can have one; entries that match the same; sums
// of shifted 128-bit values.
#include <core.p4>
#include <v1model.p4>
header h_t { int<8> a; bit<8> b; bit<128> w; bit<8> r0; bit<8> r1; bit<8> r2; bit<8> r3; }
struct headers_t { h_t h; }
struct meta_t { bit<8> near; }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start {
        p.extract(h.h);
        transition select(h.h.a) {
            -8s5 .. 8s5: near;
            default: accept;
        }
    }
    state near { m.near = 1; transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    action one(bit<8> v) { h.h.r1 = v; }
    action two(int<8> v) { h.h.r2 = (bit<8>)v; }
    action three(bit<8> v) { h.h.r3 = v; }
    table ranges {
        key = { h.h.a: range; }
        actions = { one; NoAction; }
        const entries = { (-8s100) .. (-8s50): one(1); 8s50 .. 8s100: one(2); (-8s20) .. 8s20: one(3); }
    }
    table same {
        key = { h.h.b: ternary; }
        actions = { two; }
        entries = { 8w1: two(-8s7); _: two(-8s2); 8w0 &&& 8w0: two(8s3); }
        default_action = two(-8s1);
    }
    table exact_negative {
        key = { h.h.a: exact; }
        actions = { three; NoAction; }
        entries = { (-8s7): three(9); 8s7: three(8); }
    }
    apply {
        s.egress_spec = 1;
        h.h.r0 = m.near;
        ranges.apply();
        same.apply();
        exact_negative.apply();
        h.h.w = (h.h.w << 26) - (h.h.w << 7);
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
