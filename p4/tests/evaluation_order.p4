// The order of evaluation (spec §6.8, §8): what is written first is evaluated and saved first.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<8> b; bit<8> c; bit<8> d; }
header e_t { bit<8> v; }
struct headers_t { h_t h; e_t[3] s; }
struct meta_t { bit<8> i; }
struct pair_t { bit<8> a; bit<8> b; }

bit<8> g(inout bit<8> x) { x = x + 1; return x; }
bit<8> first(inout bit<8> x, in bit<8> y) { x = x + 16; return y; }
void out_of_order(out bit<8> x, inout bit<8> y) { x = 1; y = 2; }
bit<8> wipe(out e_t[3] s) { return 0; }
bit<8> both(in bit<8> x, in bit<8> y) { return x ++ y == 16w0x0102 ? 8w1 : 8w0; }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        pkt.extract(hdr.s.next);
        pkt.extract(hdr.s.next);
        // An index with an effect: the element itself is extracted.
        bit<8> two = 1;
        pkt.extract(hdr.s[g(two)]);
        meta.i = two;
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }

control Sub(inout bit<8> x, in bit<8> y) {
    action act() { x = x + 32; exit; }
    action nothing() { }
    table t {
        key = { y: exact; }
        actions = { act; nothing; }
        const entries = { 9: act(); }
        const default_action = nothing();
    }
    apply { t.apply(); x = x + y; }
}

control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Sub() sub;
    bit<8> hits = 0;
    action count(inout bit<8> x, in bit<8> y) { x = x + y; }
    action take(bit<8> n) { hits = n; }
    action none() { }
    // Of entries with priorities the largest wins.
    table largest {
        key = { hdr.h.d: ternary; }
        actions = { take; none; }
        default_action = none();
        entries = {
            priority = 10 : 0x10 &&& 0xf0 : take(1);
            priority = 20 : 0x12          : take(2);
            priority = 15 : _             : take(3);
        }
    }
    table smallest {
        key = { hdr.h.d: ternary; }
        actions = { take; none; }
        largest_priority_wins = false;
        default_action = none();
        entries = {
            priority = 10 : 0x10 &&& 0xf0 : take(1);
            priority = 20 : 0x12          : take(2);
            priority = 5  : 0x33          : take(3);
        }
    }
    apply {
        sm.egress_spec = 1;
        if (hdr.h.a == 1) {
            // x is copied in before g runs: 1 + 16, and g's 2 is lost.
            hdr.h.b = first(hdr.h.a, g(hdr.h.a));
        } else if (hdr.h.a == 2) {
            // Named: y's g first.
            bit<8> n = 0;
            hdr.h.b = both(y = g(n), x = g(n));
            hdr.h.c = both(x = g(hdr.h.c), y = g(hdr.h.c));
        } else if (hdr.h.a == 3) {
            bit<8> n = 0;
            pair_t p = { b = g(n), a = g(n) };
            hdr.h.b = p.a;
            hdr.h.c = p.b;
        } else if (hdr.h.a == 4) {
            bit<8> n = 0;
            hdr.s[g(n)].v = 0xee;
            hdr.s[g(n)].setInvalid();
        } else if (hdr.h.a == 5) {
            count(hdr.h.b, g(hdr.h.b));
        } else if (hdr.h.a == 6) {
            // The copy out comes before the exit.
            sub.apply(hdr.h.b, 9);
        } else if (hdr.h.a == 7) {
            sub.apply(hdr.h.b, g(hdr.h.b));
        } else if (hdr.h.a == 8) {
            largest.apply();
            hdr.h.b = hits;
            smallest.apply();
            hdr.h.c = hits;
        } else if (hdr.h.a == 9) {
            // One field of a list is read; the effects of the others stay.
            bit<8> n = 0;
            hdr.h.b = ((pair_t){ g(n), g(n) }).b;
            hdr.h.c = n;
        } else if (hdr.h.a == 11) {
            // The element is read when its index is known: wipe has made it invalid.
            hdr.h.b = hdr.s[wipe(hdr.s)].isValid() ? 8w1 : 8w2;
        }
        if (hdr.h.a == 10) {
            // Copied out as written: y's value first, then x's.
            out_of_order(y = hdr.h.b, x = hdr.h.b);
            out_of_order(hdr.h.c, hdr.h.c);
        }
        hdr.h.d = meta.i;
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
