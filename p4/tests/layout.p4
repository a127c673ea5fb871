// Packets that leave with another layout than they came with: encapsulation, a header removed
// before options of variable length, header unions, truncate; and random, and frames shorter than
// an Ethernet header.
#include <core.p4>
#include <v1model.p4>

header outer_t {
    bit<16> magic;
    bit<32> length;
}

header op_t {
    bit<8> op;
}

header removed_t {
    bit<24> anything;
    bit<8>  option_bytes;
}

header options_t {
    bit<8>      first;
    varbit<320> rest;
}

header argument_t {
    bit<16> value;
}

header range_t {
    bit<8> low;
    bit<8> high;
    bit<8> result;
}

header narrow_t {
    bit<8> value;
}

header wide_t {
    bit<32> value;
}

header_union number_t {
    narrow_t narrow;
    wide_t   wide;
}

struct headers_t {
    outer_t    outer;
    op_t       op;
    removed_t  removed;
    options_t  options;
    argument_t argument;
    range_t    range;
    number_t   number;
}

struct metadata_t { }

const bit<8> ENCAPSULATE = 1;
const bit<8> REMOVE = 2;
const bit<8> TRUNCATE = 3;
const bit<8> RANDOM = 4;
const bit<8> WIDEN = 5;
const bit<8> NARROW = 6;

parser LayoutParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.op);
        transition select(hdr.op.op) {
            REMOVE: remove;
            TRUNCATE: argument;
            RANDOM: range;
            WIDEN: narrow;
            NARROW: wide;
            default: accept;
        }
    }

    state remove {
        packet.extract(hdr.removed);
        packet.extract(hdr.options, (bit<32>)hdr.removed.option_bytes * 8);
        transition accept;
    }

    state argument {
        packet.extract(hdr.argument);
        transition accept;
    }

    state range {
        packet.extract(hdr.range);
        transition accept;
    }

    state narrow {
        packet.extract(hdr.number.narrow);
        transition accept;
    }

    state wide {
        packet.extract(hdr.number.wide);
        transition accept;
    }
}

control LayoutVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control LayoutIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error != error.NoError) {
            standard_metadata.egress_spec = 2;
            return;
        }
        if (hdr.op.op == ENCAPSULATE) {
            hdr.outer.setValid();
            hdr.outer.magic = 0xcafe;
            hdr.outer.length = standard_metadata.packet_length;
        } else if (hdr.removed.isValid()) {
            hdr.removed.setInvalid();
            hdr.options.first = hdr.options.first + 1;
        } else if (hdr.argument.isValid()) {
            truncate((bit<32>)hdr.argument.value);
        } else if (hdr.range.isValid()) {
            bit<8> number;
            random<bit<8>>(number, hdr.range.low, hdr.range.high);
            hdr.range.result = number >= hdr.range.low && number <= hdr.range.high ? 8w1 : 0;
        } else if (hdr.number.narrow.isValid()) {
            bit<8> value = hdr.number.narrow.value;
            hdr.number.wide.setValid();
            hdr.number.wide.value = (bit<32>)value;
        } else if (hdr.number.wide.isValid()) {
            bit<8> value = hdr.number.wide.value[7:0];
            hdr.number.narrow.setValid();
            hdr.number.narrow.value = value;
        }
    }
}

control LayoutEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    apply { }
}

control LayoutComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control LayoutDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(LayoutParser(), LayoutVerifyChecksum(), LayoutIngress(), LayoutEgress(),
         LayoutComputeChecksum(), LayoutDeparser()) main;
