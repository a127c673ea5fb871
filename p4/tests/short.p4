// Packets that leave with fewer bytes than the kernel takes.
#include <core.p4>
#include <v1model.p4>

header big_t { bit<96> rest; bit<8> what; bit<8> keep; }
header small_t { bit<8> keep; }
struct headers_t { big_t big; small_t small; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.big); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (hdr.big.what == 1) {
            hdr.small.setValid();
            hdr.small.keep = hdr.big.keep;
            hdr.big.setInvalid();
        } else if (hdr.big.what == 2) {
            hdr.big.setInvalid();
        } else if (hdr.big.what == 3) {
            truncate(5);
        } else if (hdr.big.what == 4) {
            hdr.small.setValid();
            hdr.small.keep = hdr.big.keep;
            hdr.big.setInvalid();
            truncate(3);
        } else if (hdr.big.what == 5) {
            truncate((bit<32>)hdr.big.keep);
        }
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
