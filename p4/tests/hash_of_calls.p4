// A field list with a call: what the call changes is evaluated in its turn, and a field of an
// invalid header that stands before it adds nothing to the hash all the same. A parameter that is
// given such a field is a value, and is counted.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> kind; bit<8> n; bit<16> sum; bit<16> folded; bit<16> given; }
header x_t { bit<8> a; }
struct headers_t { base_t base; x_t x; }
struct meta_t { }

bit<8> step(inout bit<8> n) { n = n + 1; return n; }
bit<8> drop(inout headers_t hdr) { hdr.x.setInvalid(); return 3; }

control Given(in bit<8> a, out bit<8> b, inout bit<16> sum) {
    apply {
        b = 6;
        hash(sum, HashAlgorithm.csum16, 16w0, { b, a, 8w7 }, 32w0x10000);
    }
}

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.base);
        transition select(hdr.base.kind[0:0]) { 1: x; default: accept; }
    }
    state x { pkt.extract(hdr.x); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    Given() given;
    apply {
        sm.egress_spec = 1;
        hash(hdr.base.sum, HashAlgorithm.csum16, 16w0,
             { hdr.base.n, hdr.x.a, step(hdr.base.n) }, 32w0x10000);
        // Valid when its turn comes.
        hash(hdr.base.folded, HashAlgorithm.csum16, 16w0, { hdr.x.a, drop(hdr), 8w7 }, 32w0x10000);
        // Invalid by now.
        given.apply(hdr.base.n, hdr.x.a, hdr.base.given);
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
