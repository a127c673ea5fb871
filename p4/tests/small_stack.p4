// Stacks so small that clang would join an element's offset to the stack's address by `|`, which
// the verifier does not let a pointer have.
#include <core.p4>
#include <v1model.p4>

header item_t { bit<8> v; }
header label_t { bit<16> a; bit<16> b; }
struct headers_t {
    label_t    first;
    item_t[4]  items;
    label_t[2] labels;
}
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.first);
        transition select(hdr.first.a) {
            0: accept;
            1: one_item;
            2: one_label;
            _: two_items;
        }
    }
    state two_items {
        packet.extract(hdr.items.next);
        transition one_item;
    }
    state one_item {
        packet.extract(hdr.items.next);
        transition select(hdr.items.last.v) { 1: one_label; 2: two_items; default: accept; }
    }
    state one_label {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.b) { 1: one_label; default: accept; }
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        hdr.items[hdr.first.b[1:0]].v = 0xee;
        hdr.labels[hdr.first.b[8:8]].a = 0xabcd;
    }
}
control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
