// A sub-parser inside a block, an if and an else, with what it writes copied back.
#include <core.p4>
#include <v1model.p4>

header tag_t {
    bit<8> kind;
    bit<8> value;
}

struct headers_t {
    tag_t    first;
    tag_t[3] rest;
}

struct metadata_t {
    bit<8> sum;
}

error { BadKind }

parser Tag(packet_in packet, out tag_t tag, inout bit<8> sum)(bit<8> step) {
    state start {
        packet.extract(tag);
        transition select(tag.kind) {
            0xff: reject;
            0xfe: bad;
            default: done;
        }
    }
    state bad {
        verify(false, error.BadKind);
        transition accept;
    }
    state done {
        sum = sum + step;
        transition accept;
    }
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    Tag(1) one;
    Tag(16) sixteen;
    state start {
        {
            one.apply(packet, hdr.first, meta.sum);
        }
        meta.sum = meta.sum + 2;
        if (hdr.first.kind == 1) {
            one.apply(packet, hdr.rest[0], meta.sum);
            if (hdr.rest[0].kind == 1) {
                sixteen.apply(packet, hdr.rest[1], meta.sum);
            }
            meta.sum = meta.sum + 4;
        } else if (hdr.first.kind == 2) {
            meta.sum = 0x70;
        } else {
            sixteen.apply(packet, hdr.rest[2], meta.sum);
        }
        meta.sum = meta.sum + 8;
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = standard_metadata.parser_error == error.BadKind ? 9w2 : 1;
        hdr.first.value = meta.sum;
    }
}
control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.first);
        packet.emit(hdr.rest);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
