#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>
// Unions, wide fields, fixed-offset varbits, deparser order, double emit, checksum with payload,
// egress changes.
header k_t { bit<8> kind; bit<8> n; }
header a_t { bit<16> x; }
header b_t { bit<256> wide; bit<8> y; }
header c_t { bit<3> p; bit<5> len; varbit<96> data; }
header_union u_t { a_t a; b_t b; c_t c; }
header u16_t { bit<16> sum; bit<16> v; }
struct H { k_t k; u_t u; u_t w; u16_t t; k_t extra; }
struct M { bit<16> s; @name("foo.bar") bit<32> q; bit<256> keep; }
parser P(packet_in pkt, out H hdr, inout M m, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.k);
        transition select(hdr.k.kind) { 1: a; 2: b; 3: c; 4 .. 6: both; 0x10 &&& 0xf0: tail; default: accept; }
    }
    state a { pkt.extract(hdr.u.a); transition tail; }
    state b { pkt.extract(hdr.u.b); m.keep = hdr.u.b.wide; transition tail; }
    state c {
        bit<8> l = pkt.lookahead<bit<8>>();
        pkt.extract(hdr.u.c, (bit<32>)l[4:0] * 8);
        transition tail;
    }
    state both { pkt.extract(hdr.u.a); pkt.extract(hdr.w.a); transition tail; }
    state tail { pkt.extract(hdr.t); transition accept; }
}
control V(inout H hdr, inout M m) { apply { } }
control I(inout H hdr, inout M m, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.parser_error != error.NoError) {
            switch (sm.parser_error) { error.PacketTooShort: { sm.egress_spec = 11; } error.HeaderTooShort: { sm.egress_spec = 12; } default: { sm.egress_spec = 13; } }
            return;
        }
        if (hdr.u.isValid()) { hdr.extra.setValid(); hdr.extra.kind = 0xee; hdr.extra.n = 0; }
        if (hdr.u.a.isValid()) { hdr.extra.n[0:0] = 1; }
        if (hdr.u.b.isValid()) { hdr.extra.n[1:1] = 1; }
        if (hdr.u.c.isValid()) { hdr.extra.n[2:2] = 1; }
        if (hdr.k.n == 1) { hdr.u.b.setValid(); hdr.u.b.wide = (bit<256>)0x1234; hdr.u.b.y = 9; }
        else if (hdr.k.n == 2) { hdr.w = hdr.u; }
        else if (hdr.k.n == 3) { hdr.u.a.setInvalid(); }
        else if (hdr.k.n == 4 && hdr.u.b.isValid()) { hdr.u.b.wide[15:0] = 0xbeef; if (m.keep != hdr.u.b.wide) { hdr.u.b.y = 0x55; } }
        else if (hdr.k.n == 5) { hdr.w.a = { 0xabcd }; if (hdr.w.a == hdr.u.a) { hdr.k.kind = 0x77; } }
        else if (hdr.k.n == 6) { hdr.k.setInvalid(); }
        else if (hdr.k.n == 8 && hdr.u.b.isValid()) { hdr.u.b.wide[203:98] = m.keep[254:149]; hdr.u.b.wide[13:9] = 5w9; hdr.u.b.wide[255:251] = 5w6; }
    }
}
control E(inout H hdr, inout M m, inout standard_metadata_t sm) { apply { if (sm.egress_port == 1) { hdr.t.v = hdr.t.v + 1; } } }
control C(inout H hdr, inout M m) { apply { update_checksum_with_payload(hdr.t.isValid(), { hdr.t.v }, hdr.t.sum, HashAlgorithm.csum16); } }
control D(packet_out pkt, in H hdr) { apply { pkt.emit(hdr.extra); pkt.emit(hdr.k); pkt.emit(hdr.u); pkt.emit(hdr.w); if (hdr.k.isValid() && hdr.k.n == 7) { pkt.emit(hdr.k); } pkt.emit(hdr.t); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
