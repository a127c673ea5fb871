// Entries that the program starts with, beside those of the control plane: the larger priority
// wins.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<8> key; bit<8> found; bit<96> rest; }
struct headers_t { h_t h; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action found(bit<8> n) { hdr.h.found = n; }
    table t {
        key = { hdr.h.key: ternary; }
        actions = { found; NoAction; }
        entries = {
            priority = 6 : 0xe0 &&& 0xe0 : found(1);
            priority = 2 : 0x01 &&& 0x01 : found(2);
        }
    }
    apply {
        sm.egress_spec = 1;
        t.apply();
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
