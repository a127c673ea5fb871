// The specification's sections, a byte of the result each (P4-16 1.2.5; expectations worked out by
// hand).
#include <core.p4>
#include <v1model.p4>

header in_t { bit<8> a; bit<8> b; int<8> s; bit<8> k; }
header e_t { bit<8> v; }
header f_t { bit<16> w; }
header_union u_t { e_t e; f_t f; }
header out_t {
    bit<8> r0; bit<8> r1; bit<8> r2; bit<8> r3; bit<8> r4; bit<8> r5; bit<8> r6; bit<8> r7;
    bit<8> r8; bit<8> r9; bit<8> r10; bit<8> r11; bit<8> r12; bit<8> r13; bit<8> r14; bit<8> r15;
}
struct headers_t { in_t i; out_t o; e_t[3] st; u_t u; }
struct meta_t { bit<8> seen; bit<8> last; }
struct pair_t { bit<8> x; bit<8> y; }

// 6.8: defaults; named arguments.
bit<8> add(in bit<8> x, in bit<8> y = 5) { return x + (y << 1); }
// 14.2.3: the key's expressions, each saved before the next.
bit<8> change(in bit<8> x, inout bit<8> y) { y = x + 5; return x >> 1; }
bit<8> next(inout bit<8> n) { n = n + 1; return n; }
void both(inout bit<8> x, inout bit<8> y) { x = x + 1; y = y + 2; return; }
// 12.7: a label without a block falls through, a block does not.
bit<8> label(in bit<8> x) {
    bit<8> n = 1;
    switch (x) { 0x12: 0x13: { n = 2; } 0x14: { n = 3; } default: { n = 4; } }
    return n;
}

parser Two(packet_in pkt, out e_t[3] st, inout bit<8> seen) {
    // 13.10: local at each application.
    bit<8> count = 1;
    state start { pkt.extract(st.next); count = count + 1; transition more; }
    state more { pkt.extract(st.next); seen = seen + (bit<8>)st.lastIndex + count; transition accept; }
}
parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Two() two;
    state start {
        pkt.extract(hdr.i);
        pkt.extract(hdr.o);
        two.apply(pkt, hdr.st, meta.seen);
        two.apply(pkt, hdr.st, meta.seen);
        meta.last = hdr.st.last.v;
        // 13.6: the first set that has the key; 8.15.4: an empty range has nothing.
        transition select(hdr.i.a, hdr.i.s) {
            (0x13..0x12, _): first;
            (0x12 &&& 0x1f, -4..-2): second;
            default: first;
        }
    }
    state first { pkt.extract(hdr.u.f); transition accept; }
    state second { pkt.extract(hdr.u.e); transition accept; }
}
control Inner(inout bit<8> x, out bit<8> y) {
    action leave(inout bit<8> z) { z = 0x77; exit; }
    table t { actions = { leave(x); } default_action = leave(x); }
    apply { y = 0x66; if (t.apply().hit) { x = 1; } x = 2; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Inner() inner;
    bit<8> x = 6;
    bit<8> y = 0x0f;
    action set(bit<8> v) { hdr.o.r8 = v; }
    table t {
        key = { y & 0x7: exact @name("a"); change(x, y): exact @name("b"); y: exact @name("c"); }
        actions = { set; }
        default_action = set(1);
        const entries = { (7, 3, 11): set(2); (3, 3, 11): set(3); (7, 3, 15): set(4); }
    }
    apply {
        sm.egress_spec = 1;
        hdr.o.r0 = add(hdr.i.a) ^ add(y = 1, x = 0);
        // 8.9, 8.7: the sign is the left operand's; >> keeps it.
        hdr.o.r1 = ((bit<12>)((hdr.i.s ++ 4w0xf) >> 2))[7:0];
        hdr.o.r2 = (bit<8>)(hdr.i.s >> 8w200) ^ (hdr.i.b >> 9) ^ (hdr.i.b << 8w8);
        hdr.o.r3 = hdr.i.b |+| 0x20;
        hdr.o.r4 = (bit<8>)(hdr.i.s |-| 127);
        hdr.o.r5 = hdr.i.s[7:4] ++ 4w3;
        // 8.12, 8.16, 8.17, 8.19: equality.
        tuple<bit<8>, bit<8>> pair = { hdr.i.a, hdr.i.b };
        e_t one; e_t two;
        bit<1> q0 = pair == { hdr.i.a, hdr.i.b } ? 1w1 : 0;
        bit<1> q1 = (pair_t){ y = hdr.i.b, x = hdr.i.a } == (pair_t){ hdr.i.a, hdr.i.b } ? 1w1 : 0;
        bit<1> q2 = one == two ? 1w1 : 0;
        one.setValid();
        bit<1> q3 = one != two ? 1w1 : 0;
        u_t union;
        bit<1> q4 = union == hdr.u ? 1w1 : 0;
        union = hdr.u;
        bit<1> q5 = union == hdr.u && union.e.isValid() && !union.f.isValid() ? 1w1 : 0;
        union.f.setValid();
        bit<1> q6 = union.isValid() && !union.e.isValid() ? 1w1 : 0;
        hdr.o.r6 = q0 ++ q1 ++ q2 ++ q3 ++ q4 ++ q5 ++ q6 ++ 1w1;
        hdr.o.r7 = meta.seen;
        t.apply();
        // 6.8, 12.1: l-values are saved, with their indices, before what comes after.
        bit<8> n = 0;
        hdr.st[next(n) & 1].v = next(n);
        hdr.o.r9 = hdr.st[1].v;
        hdr.o.r10 = n;
        both(hdr.o.r11, hdr.o.r11);
        hdr.o.r12 = (label(0x12) ++ label(0x14)) == 16w0x0203 ? label(0x55) : 0;
        // 8.18: what is beyond is lost, what comes in is invalid.
        hdr.st.push_front(2);
        hdr.o.r13 = (hdr.st[0].isValid() ? 8w1 : 2) + (hdr.st[1].isValid() ? 8w4 : 8) + hdr.st[2].v;
        hdr.st.pop_front(3);
        hdr.o.r14 = meta.last;
        // 12.5: copied out on the way, nothing else is done.
        inner.apply(hdr.o.r15, hdr.o.r14);
        hdr.o.r15 = 0;
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
