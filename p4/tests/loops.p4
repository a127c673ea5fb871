// A parser with loops in loops passes the verifier. A packet enters states on cycles 128 times at
// most, those of sub-parsers that a loop applies included; then comes error.ParserTimeout.
#include <core.p4>
#include <v1model.p4>

header k_t { bit<8> k; bit<8> v; }
header e_t { bit<8> a; bit<8> b; }
header f_t { bit<4> a; bit<12> b; bit<16> c; }
header v_t { bit<8> n; varbit<24> v; }
struct headers_t { k_t k; e_t[4] s; f_t[2] w; v_t v; k_t last; }
struct meta_t { bit<16> count; }

parser Skip(packet_in pkt, inout bit<16> count) {
    state start { pkt.advance(8); count = count + 1; transition accept; }
}
parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    bit<16> count = 0;
    Skip() skip;
    state start { pkt.extract(hdr.k); transition dispatch; }
    state dispatch {
        transition select(pkt.lookahead<bit<8>>()) {
            1: element; 2: wide; 3: variable; 4: skipped; 5: mixed; 6: written; 0xff: fin;
            default: accept;
        }
    }
    state element {
        pkt.extract(hdr.s.next);
        transition select(hdr.s.last.b) { 1: element; default: dispatch; }
    }
    state wide {
        pkt.extract(hdr.w.next);
        transition select(pkt.lookahead<bit<8>>()) { 2: wide; default: dispatch; }
    }
    state variable {
        pkt.extract(hdr.v, (bit<32>)(pkt.lookahead<bit<16>>()[1:0]) << 3);
        transition dispatch;
    }
    state skipped { skip.apply(pkt, count); transition dispatch; }
    state mixed {
        pkt.extract(hdr.last);
        if (pkt.lookahead<bit<8>>() == 1) { hdr.s.pop_front(1); pkt.extract(hdr.s.next); }
        transition dispatch;
    }
    state written {
        pkt.advance(8);
        hdr.s.next.setValid();
        hdr.s.next.a = 0xaa;
        transition select(count) { 0 .. 3: dispatch; default: wide; }
    }
    state fin { meta.count = count; transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.k.v = (bit<8>)meta.count;
        if (sm.parser_error == error.StackOutOfBounds) { sm.egress_spec = 2; }
        if (sm.parser_error == error.ParserTimeout) { sm.egress_spec = 3; }
        if (sm.parser_error == error.PacketTooShort) { sm.egress_spec = 4; }
        if (hdr.s[1].isValid()) { hdr.s[1].a = hdr.s[1].a + hdr.s[0].b; }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
