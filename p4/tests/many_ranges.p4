// Hundreds of const entries with ranges and with more than 64 masks, which no kind of map holds.
#include <core.p4>
#include <v1model.p4>

header h_t {
    bit<16> port; int<8> level; bit<128> address; bit<32> net; bit<8> kind; bit<96> pattern;
    bit<16> a; bit<16> b; bit<96> c; bit<8> hits;
}
struct headers_t { h_t h; }
struct meta_t { }

#define TWO(ROW, i) ROW(i) ROW(i + 1)
#define FOUR(ROW, i) TWO(ROW, i) TWO(ROW, i + 2)
#define EIGHT(ROW, i) FOUR(ROW, i) FOUR(ROW, i + 4)
#define TO_32(ROW, i) EIGHT(ROW, i) EIGHT(ROW, i + 8) EIGHT(ROW, i + 16) EIGHT(ROW, i + 24)
#define TO_128(ROW, i) TO_32(ROW, i) TO_32(ROW, i + 32) TO_32(ROW, i + 64) TO_32(ROW, i + 96)
#define TO_512(ROW, i) TO_128(ROW, i) TO_128(ROW, i + 128) TO_128(ROW, i + 256) TO_128(ROW, i + 384)
#define TO_1024(ROW) TO_512(ROW, 0) TO_512(ROW, 512)

// Each range within all that follow: the first, not the narrowest or the last, must win.
#define NESTED(i) (30000 - (i) .. 30000 + 2 * (i)) : a(i);
// Overlapping in both keys, of 128 bits and signed.
#define SQUARE(i) (((i) << 60) + 5 .. ((i) << 60) + (3 << 61), (i) / 4 - 16 .. (i) / 4 - 10) : b(i);
// Beside keys of all other kinds.
#define MIXED(i) ((i) << 12 &&& 0xfffff000, 7, (i) << 4 .. (i) << 5, _) : c(0xabcd00000000000000000000 + (i));
// More than 64 masks.
#define MASKED(i) ((1 << (i) % 95) + (i) / 95 &&& (3 << (i) % 95) | (i) / 95) : a(i);
#define EMPTY(i) (i) : miss(0xff);

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action a(bit<16> value) { hdr.h.a = value; }
    action b(bit<16> value) { hdr.h.b = value; }
    action c(bit<96> value) { hdr.h.c = value; }
    action miss(bit<8> bits) { hdr.h.hits = hdr.h.hits | bits; }
    table nested {
        key = { hdr.h.port: range; }
        actions = { a; miss; }
        const default_action = miss(0x10);
        const entries = { TO_1024(NESTED) }
    }
    table squares {
        key = { hdr.h.address: range; hdr.h.level: range; }
        actions = { b; miss; }
        default_action = miss(0x20);
        const entries = { TO_128(SQUARE, 0) (_, 100) : b(1000); (_, -128 .. -120) : b(2000); }
    }
    table mixed {
        key = { hdr.h.net: lpm; hdr.h.kind: exact; hdr.h.port: range; hdr.h.level: optional; }
        actions = { c; miss; }
        const default_action = miss(0x40);
        const entries = { TO_128(MIXED, 0) (0, 7, 0 .. 9, 5) : c(3000); }
    }
    table masked {
        key = { hdr.h.pattern: ternary; }
        actions = { a; miss; NoAction; }
        const default_action = miss(0x80);
        const entries = { TO_128(MASKED, 0) }
    }
    // Nothing is left of all entries but the first.
    table covered {
        key = { hdr.h.port: range; }
        actions = { miss; NoAction; }
        const default_action = miss(0xff);
        const entries = { _ : NoAction(); TO_128(EMPTY, 0) }
    }
    apply {
        sm.egress_spec = 1;
        covered.apply();
        if (nested.apply().hit) { hdr.h.hits = hdr.h.hits + 1; }
        squares.apply();
        switch (mixed.apply().action_run) {
            c: { hdr.h.hits = hdr.h.hits + 2; }
            default: { }
        }
        if (hdr.h.pattern != 0) { masked.apply(); }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
