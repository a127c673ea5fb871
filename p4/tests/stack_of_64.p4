// A stack of 64 headers, swapped by indices of the packet, or pushed and popped: more values at
// once than BPF's stack holds.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> op; bit<8> i; bit<8> j; bit<104> rest; }
header e_t { bit<8> v; }
struct headers_t { h_t h; e_t[64] s; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        pkt.extract(hdr.s.next);
        pkt.extract(hdr.s.next);
        pkt.extract(hdr.s.next);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (hdr.h.op == 1) {
            e_t x = hdr.s[hdr.h.i];
            hdr.s[hdr.h.i] = hdr.s[hdr.h.j];
            hdr.s[hdr.h.j] = x;
        } else {
            hdr.s.pop_front(1);
            hdr.s.push_front(62);
            hdr.s.pop_front(62);
        }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
