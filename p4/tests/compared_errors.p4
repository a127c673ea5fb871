// A list with `last` of an empty stack raises its error, also if the lists differ in what stands
// before.
#include <core.p4>
#include <v1model.p4>

header first_t { bit<8> a; bit<8> found; }
header element_t { bit<8> v; }
struct headers_t { first_t first; element_t[2] stack; }
struct metadata_t { }
struct two_t { bit<8> x; bit<8> y; }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta,
             inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.first);
        if ((two_t){ x = 206, y = hdr.stack.last.isValid() ? 8w1 : 0 } == (two_t){ x = (bit<8>)hdr.first.a[0:0], y = 0 }) {
        }
        transition accept;
    }
}
control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.parser_error == error.StackOutOfBounds) {
            hdr.first.found = 0xee;
        }
    }
}
control MyEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t sm) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
