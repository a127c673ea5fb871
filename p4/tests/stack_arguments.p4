// `next` and `last` of a stack as arguments: which element they name is settled before the call
// (spec §6.8), and so is the error if there is none.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> a; bit<8> error_seen; bit<96> rest; }
header e_t { bit<8> v; }
struct headers_t { h_t h; e_t[4] s; }
struct meta_t { }

void push(inout e_t[4] s, inout bit<8> v) { s.push_front(1); v = 0x99; }
bit<8> pop(inout e_t[4] s) { s.pop_front(1); return 0x99; }
void make(out e_t e) { e = { 0x66 }; }

parser Sub(packet_in pkt, inout e_t[4] s, inout bit<8> v) {
    state start {
        pkt.extract(s.next);
        v = 0x99;
        transition accept;
    }
}
parser Taker(packet_in pkt, out e_t e) {
    state start {
        pkt.extract(e);
        transition accept;
    }
}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Sub() sub;
    Taker() taker;
    state start {
        pkt.extract(hdr.h);
        pkt.extract(hdr.s.next);
        pkt.extract(hdr.s.next);
        transition select(hdr.h.a) {
            1: last_of_sub;
            2: last_of_function;
            3: last_assigned;
            4: next_made;
            5: fill;
            default: accept;
        }
    }
    state last_of_sub {
        sub.apply(pkt, hdr.s, hdr.s.last.v);
        transition accept;
    }
    state last_of_function {
        push(hdr.s, hdr.s.last.v);
        transition accept;
    }
    state last_assigned {
        hdr.s.last.v = pop(hdr.s);
        transition accept;
    }
    state next_made {
        make(hdr.s.next);
        transition accept;
    }
    state fill {
        pkt.extract(hdr.s.next);
        pkt.extract(hdr.s.next);
        taker.apply(pkt, hdr.s.next);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.parser_error == error.StackOutOfBounds) {
            hdr.h.error_seen = 1;
        }
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
