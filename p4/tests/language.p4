#include <core.p4>
#include <v1model.p4>
header in_h { bit<8> op; bit<8> a8; bit<8> b8; bit<16> a16; bit<16> b16; bit<32> a32; bit<32> b32; int<8> sa; int<8> sb; bit<1> f1; bool fb; bit<6> f6; bit<64> a64; bit<48> a48; }
header out_h { bit<8> tag; bit<8> r8; bit<16> r16; bit<32> r32; bit<64> r64; bit<48> r48; int<8> rs; bit<128> r128; int<16> rs16; }
struct pair_t { bit<16> x; bit<16> y; }
struct nest_t { pair_t p; bool ok; bit<8> z; }
struct headers_t { in_h i; out_h o; in_h j; }
struct meta_t { nest_t n; nest_t k; }
typedef tuple<bit<16>, bit<8>> tup_t;
enum bit<8> Op { ADD = 0, SUB = 1, MUL = 2, SLICE = 3, CMP = 4, FUNC = 5, SIGNED = 6, CAT = 7,
                 SHIFT = 8, STRUCT = 9, EXIT = 10, SAT = 11, COPY = 12, TERN = 13, NESTED = 14,
                 WIDE = 15, LOG = 16, INVALID = 17 }
const bit<16> MAGIC = 16w0xbeef ^ (1 << 3);
const pair_t INIT = { x = 7, y = 0x1_00 };
const int BIG = 1 << 100;
const bool DEBUG = false;
#define DOUBLE(x) ((x) + (x))
bit<16> max16(in bit<16> a, in bit<16> b) { if (a > b) { return a; } return b; }
T ident<T>(in T v) { return v; }
void swap(inout bit<16> a, inout bit<16> b) { bit<16> t = a; a = b; b = t; }
bit<8> popcount4(in bit<4> v) { bit<8> r = 0; r = r + (bit<8>)v[0:0]; r = r + (bit<8>)v[1:1]; r = r + (bit<8>)v[2:2]; r = r + (bit<8>)v[3:3]; return r; }
action top(inout bit<8> x, bit<8> inc) { if (inc == 9) { return; } x = x + inc; }
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.i); h.o.setValid(); m.n = { { 1, 2 }, true, 3 }; transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply { } }
control Inner(inout bit<16> v, in bit<8> c)(bit<16> K) {
    bit<16> local = K;
    action addk() { v = v + local; }
    table t { key = { c: exact; } actions = { addk; NoAction; } const entries = { 1: addk(); } const default_action = NoAction; }
    apply { if (c == 0xff) return; t.apply(); if (c == 0xfe) { exit; } v = v + 1; }
}
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    Inner(100) one;
    Inner(1000) two;
    action bump(inout bit<8> x) { x = x + 1; }
    action nothing() {}
    apply {
        s.egress_spec = 1;
        h.o.tag = 0xaa;
        switch ((Op)h.i.op) {
            Op.ADD: { h.o.r8 = h.i.a8 + h.i.b8; h.o.r16 = h.i.a16 - h.i.b16; h.o.r32 = h.i.a32 * h.i.b32; h.o.r64 = h.i.a64 + 1; h.o.r48 = -h.i.a48; }
            Op.SUB: { h.o.r8 = ~h.i.a8; h.o.r16 = h.i.a16 & ~h.i.b16; h.o.r32 = h.i.a32 ^ h.i.b32; h.o.r64 = h.i.a64 & 0xffff; h.o.rs = -h.i.sa; }
            Op.MUL: { h.o.r8 = h.i.a8 / 3; h.o.r16 = h.i.a16 % 8; h.o.r32 = (bit<32>)(h.i.a16 / 2); h.o.r64 = (bit<64>)h.i.a16 * (bit<64>)h.i.b16; }
            Op.SLICE: { h.o.r16[11:4] = h.i.a8; h.o.r8 = h.i.a64[35:28]; h.o.r32[31:31] = 1; h.o.r32[7:0] = h.i.a16[15:8]; h.o.r48[47:40] = h.i.a48[7:0]; h.o.r128[127:64] = h.i.a64; h.o.r128[3:0] = h.i.a8[7:4]; }
            Op.CMP: {
                h.o.r8 = 0;
                if (h.i.sa < h.i.sb) { h.o.r8 = h.o.r8 | 1; }
                if (h.i.a8 < h.i.b8) { h.o.r8 = h.o.r8 | 2; }
                if (h.i.fb && h.i.f1 == 1) { h.o.r8 = h.o.r8 | 4; }
                if (!(h.i.fb || h.i.f1 == 1w1)) { h.o.r8 = h.o.r8 | 8; }
                if (h.i.sa <= 8s5) { h.o.r8 = h.o.r8 | 16; }
                if (h.i.f1 == (bit<1>)h.i.fb) { h.o.r8 = h.o.r8 | 32; }
                if ((bool)h.i.f1) { h.o.r8 = h.o.r8 | 64; }
                h.o.r16 = (h.i.a16 >= h.i.b16 ? 16w1 : 0) ++ 0[0:0] == 0 ? 16w5 : 6;
            }
            Op.FUNC: { h.o.r16 = max16(h.i.a16, h.i.b16); h.o.r8 = popcount4(h.i.a8[3:0]); h.o.r32 = ident<bit<32>>(h.i.a32); swap(h.i.a16, h.i.b16); top(h.i.b8, 7); top(h.i.b8, 9); bump(h.i.a8); h.o.r48 = ident(h.i.a48); }
            Op.SIGNED: { h.o.rs = h.i.sa >> 1; h.o.rs16 = (int<16>)h.i.sa * (int<16>)h.i.sb; h.o.r16 = (bit<16>)(int<16>)h.i.sa; h.o.r8 = (bit<8>)(h.i.sa |+| h.i.sb); h.o.r32 = (bit<32>)(int<32>)h.i.sb; h.o.r64 = (bit<64>)(bit<8>)h.i.sa; }
            Op.CAT: { h.o.r16 = h.i.a8 ++ h.i.b8; h.o.r32 = 4w0xf ++ h.i.a16 ++ h.i.b8 ++ h.i.a8[3:0]; h.o.r64 = h.i.a16 ++ h.i.a48; h.o.r128 = h.i.a64 ++ 16w0 ++ h.i.a48; }
            Op.SHIFT: { h.o.r8 = h.i.a8 << h.i.b8; h.o.r16 = h.i.a16 >> h.i.b8; h.o.r32 = h.i.a32 << h.i.b8; h.o.r64 = h.i.a64 >> h.i.b8; h.o.rs = h.i.sa >> h.i.b8; h.o.r48 = h.i.a48 << 12; h.o.r128 = (bit<128>)h.i.a64 << h.i.b8; }
            Op.STRUCT: {
                m.k = m.n;
                bool same = m.k == m.n;
                m.k.p.x = h.i.a16;
                bool still = m.k == m.n;
                pair_t q = { x = h.i.a16, y = h.i.b16 };
                h.o.r16 = q.x ^ q.y; h.o.r8 = (same ? 8w1 : 0) | (still ? 8w2 : 0); if (q == { h.i.a16, 5 }) { h.o.r32 = 1; } m.k.p = q; if (m.k.p == q) { h.o.r64 = 9; }
            }
            Op.EXIT: { h.o.r8 = 1; if (h.i.a8 == 1) exit; h.o.r8 = 2; if (h.i.a8 == 2) return; h.o.r8 = 3; }
            Op.SAT: { h.o.r8 = h.i.a8 |+| h.i.b8; h.o.r16 = h.i.a16 |-| h.i.b16; h.o.r32 = h.i.a32 |+| h.i.b32; h.o.rs = h.i.sa |-| h.i.sb; h.o.r48 = h.i.a48 |+| 48w0xffff_ffff_0000; }
            Op.COPY: { h.j = h.i; h.j.a8 = 0x99; h.o.r8 = h.j == h.i ? 8w1 : 2; h.j.a8 = h.i.a8; h.o.r16 = h.j == h.i ? 16w1 : 2; }
            Op.TERN: { h.o.r8 = h.i.a8 > h.i.b8 ? h.i.a8 : h.i.b8; h.o.r16 = MAGIC; h.o.r32 = INIT.x ++ INIT.y; h.o.r64 = (bit<64>)(BIG >> 60); h.o.rs = h.i.fb ? 8s1 : -1; h.o.r128 = (bit<128>)BIG; }
            Op.NESTED: { h.o.r16 = h.i.a16; one.apply(h.o.r16, h.i.a8); two.apply(h.o.r16, h.i.b8); h.o.r8 = 0x77; }
            Op.WIDE: { bit<128> w = (bit<128>)h.i.a64; w = w * w; h.o.r128 = w - 1; h.o.r8 = w > 128w5 ? 8w1 : 0; h.o.r64 = w[127:64]; }
            Op.LOG: { log_msg("a8 = {} b16 = {}", { h.i.a8, h.i.b16 }); log_msg("plain"); assert(h.i.isValid()); assume(h.i.a8 != 77); bit<32> r; random(r, 5, 5); h.o.r32 = r; h.o.r8 = 1; truncate(20); }
            Op.INVALID: { h.j.a8 = 5; h.o.r8 = h.j.isValid() ? 8w1 : 0; h.i.setInvalid(); h.o.r16 = h.i.isValid() ? 16w1 : 0; h.o.r32 = DOUBLE(3); }
            default: { s.egress_spec = 5; }
        }
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t h, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t h) { apply { p.emit(h.o); p.emit(h.i); p.emit(h.j); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
