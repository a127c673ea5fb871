// An assignment evaluates its left side first: `last` of an empty stack is an error before the
// packet is too short for the right side.
#include <core.p4>
#include <v1model.p4>

header first_t { bit<8> a; bit<8> found; }
header element_t { bit<8> v; bit<8> w; }
struct headers_t { first_t first; element_t[2] stack; }
struct metadata_t { }

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta,
             inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.first);
        transition select(hdr.first.a) {
            0: whole;
            1: part;
            default: next;
        }
    }

    state whole {
        hdr.stack.last = packet.lookahead<element_t>();
        transition accept;
    }

    state part {
        hdr.stack.last.v = packet.lookahead<bit<16>>()[7:0];
        transition accept;
    }

    state next {
        hdr.stack.next = packet.lookahead<element_t>();
        transition accept;
    }
}
control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control MyIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        if (sm.parser_error == error.StackOutOfBounds) {
            hdr.first.found = 0xee;
        } else if (sm.parser_error == error.PacketTooShort) {
            hdr.first.found = 0xdd;
        }
    }
}
control MyEgress(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t sm) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.first); } }
V1Switch(Parse(), Verify(), MyIngress(), MyEgress(), Compute(), Deparse()) main;
