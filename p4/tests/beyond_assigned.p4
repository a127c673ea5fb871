// Headers made of what the packet has next, for an element beyond a header stack: they are lost,
// and nothing beside the stack changes; the packet is looked at all the same.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> what; bit<8> at; bit<8> errors; bit<88> rest; }
header e_t { bit<8> v; bit<8> w; }
// So much that the stacks are in a map, where nothing else notices what is written beyond them.
header wide_t { bit<256> f0; bit<256> f1; bit<256> f2; bit<256> f3; }
struct headers_t { h_t h; e_t[3] s; e_t[3] t; wide_t[4] wide; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition select(hdr.h.what) { 1: header_of_type; 2: fields; 3: wide; default: accept; }
    }
    state header_of_type {
        hdr.s[hdr.h.at] = pkt.lookahead<e_t>();
        transition stack;
    }
    state fields {
        hdr.s[hdr.h.at] = { pkt.lookahead<bit<8>>(), 0x77 };
        transition stack;
    }
    state wide {
        pkt.extract(hdr.wide[hdr.h.at]);
        transition accept;
    }
    // Its next index and its elements are as they were.
    state stack {
        pkt.extract(hdr.t.next);
        pkt.extract(hdr.s.next);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.parser_error == error.PacketTooShort) {
            hdr.h.errors = 1;
        } else if (sm.parser_error != error.NoError) {
            hdr.h.errors = 2;
        }
        if (hdr.s[1].isValid()) {
            hdr.s[1].w = hdr.s[1].w + 1;
        }
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
