// Header stacks: a parser loop, next and last, push and pop, a label added and removed, and what is
// too long.
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header label_t {
    bit<20> label;
    bit<3>  class;
    bit<1>  bottom;
    bit<8>  ttl;
}

struct headers_t {
    ethernet_t ethernet;
    label_t[4] labels;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x8847: labels;
            default: accept;
        }
    }
    state labels {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.bottom) {
            0: labels;
            1: accept;
        }
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error == error.StackOutOfBounds) {
            standard_metadata.egress_spec = 2;
        } else if (standard_metadata.parser_error == error.PacketTooShort) {
            standard_metadata.egress_spec = 3;
        } else if (hdr.labels[0].isValid()) {
            if (hdr.labels[0].label == 1) {
                hdr.labels.pop_front(1);
            } else if (hdr.labels[0].label == 2) {
                hdr.labels.push_front(1);
                hdr.labels[0].setValid();
                hdr.labels[0].label = 99;
                hdr.labels[0].class = 5;
                hdr.labels[0].bottom = 0;
                hdr.labels[0].ttl = 64;
            } else {
                hdr.labels[0].ttl = hdr.labels[0].ttl - 1;
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.labels);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
