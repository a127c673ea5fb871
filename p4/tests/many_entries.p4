// Thousands of const entries, of all kinds that a map holds: matches and priorities as in the code.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<16> a; bit<16> b; int<16> c; bit<8> r; bit<8> s; bit<8> t; bit<8> u; }
struct headers_t { h_t h; }
struct meta_t { }

#define TWO(ROW, i) ROW(i) ROW(i + 1)
#define FOUR(ROW, i) TWO(ROW, i) TWO(ROW, i + 2)
#define EIGHT(ROW, i) FOUR(ROW, i) FOUR(ROW, i + 4)
#define TO_32(ROW, i) EIGHT(ROW, i) EIGHT(ROW, i + 8) EIGHT(ROW, i + 16) EIGHT(ROW, i + 24)
#define TO_128(ROW, i) TO_32(ROW, i) TO_32(ROW, i + 32) TO_32(ROW, i + 64) TO_32(ROW, i + 96)
#define TO_512(ROW, i) TO_128(ROW, i) TO_128(ROW, i + 128) TO_128(ROW, i + 256) TO_128(ROW, i + 384)
#define TO_3072(ROW) TO_512(ROW, 0) TO_512(ROW, 512) TO_512(ROW, 1024) TO_512(ROW, 1536) \
    TO_512(ROW, 2048) TO_512(ROW, 2560)

#define EXACT(i) (i, (i) ^ 0x5aa5) : r((bit<8>)((i) >> 4));
#define PREFIX(i) ((i) << 8 &&& 0xff80, -5) : s((bit<8>)(i));
#define MASKED(i) ((i) &&& 0x0fff, (i) + 1) : t((bit<8>)(i));

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action r(bit<8> value) { hdr.h.r = value; }
    action s(bit<8> value) { hdr.h.s = value; }
    action t(bit<8> value) { hdr.h.t = value; }
    action miss() { hdr.h.u = hdr.h.u + 1; }
    table exact_pairs {
        key = { hdr.h.a: exact; hdr.h.b: exact; }
        actions = { r; miss; }
        const default_action = miss;
        const entries = { TO_3072(EXACT) }
    }
    table prefixes {
        key = { hdr.h.a: lpm; hdr.h.c: exact; }
        actions = { s; miss; }
        default_action = miss;
        const entries = {
            TO_128(PREFIX, 0)
            (0 &&& 0x8000, -5) : s(0xee);
        }
    }
    table masked {
        key = { hdr.h.a: ternary; hdr.h.b: optional; }
        actions = { t; miss; NoAction; }
        const default_action = miss;
        const entries = {
            (0x1007, 8) : t(0xaa);
            TO_128(MASKED, 0)
            (0x2000 &&& 0xf000, _) : t(0xbb);
            (0x2001, 7) : t(0xcc);
        }
    }
    apply {
        sm.egress_spec = 1;
        exact_pairs.apply();
        switch (prefixes.apply().action_run) {
            s: { hdr.h.u = hdr.h.u + 16; }
            default: { }
        }
        if (masked.apply().hit) { hdr.h.u = hdr.h.u + 32; }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
