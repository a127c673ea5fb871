// What goes into an element beyond a header stack is lost; the packet's bytes are taken all the
// same.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> what; bit<8> at; }
header e_t { bit<16> v; }
header v_t { bit<8> n; varbit<32> v; }
struct headers_t { h_t h; e_t[2] s; v_t[2] w; h_t last; }
struct meta_t { }

// An index that is known once calls are inlined is like any other.
bit<16> element(inout e_t[2] s, in bit<8> i) {
    s[i].setValid();
    s[i].v = 0xffff;
    s[i] = { 0xffff };
    return s[i].v;
}
parser Sub(packet_in pkt, inout e_t[2] s, in bit<8> i) {
    state start { pkt.extract(s[i]); transition select(s[i].isValid()) { true: reject; false: accept; } }
}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Sub() sub;
    state start {
        pkt.extract(hdr.h);
        transition select(hdr.h.what) { 1: fixed; 2: variable; 3: odd; 4: inlined; default: accept; }
    }
    state fixed { pkt.extract(hdr.s[hdr.h.at]); transition rest; }
    state variable { pkt.extract(hdr.w[hdr.h.at], (bit<32>)pkt.lookahead<bit<8>>()); transition rest; }
    state inlined { sub.apply(pkt, hdr.s, 2); transition rest; }
    // Not whole bytes: error.ParserInvalidArgument.
    state odd { pkt.advance(4); transition rest; }
    state rest { pkt.extract(hdr.last); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (hdr.last.isValid()) { hdr.last.what = 0xee; }
        if (hdr.h.what == 4 && element(hdr.s, 7) == 0) { hdr.h.at = 0xdd; }
        if (sm.parser_error == error.PacketTooShort) { sm.egress_spec = 2; }
        if (sm.parser_error == error.HeaderTooShort) { sm.egress_spec = 3; }
        if (sm.parser_error == error.ParserInvalidArgument) { sm.egress_spec = 4; }
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
