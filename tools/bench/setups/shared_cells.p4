// shared_cells.p4: one variable that switches share, for measurements of its windows. CELLS: how
// many cells it has. KIND: what they are, COUNTERS or BITS. A packet goes back, with the value of a
// cell if it adds nothing.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#ifndef CELLS
#define CELLS 1
#endif
#ifndef KIND
#define KIND COUNTERS
#endif

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header update_t {
    bit<32> index;
    bit<32> value;
}

struct headers {
    ethernet_t ethernet;
    update_t update;
}

struct metadata {}

parser Parse(packet_in packet, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.type) {
            0x88b5: update; // IEEE 802: for experiments
            default: accept;
        }
    }
    state update {
        packet.extract(h.update);
        transition accept;
    }
}

control Verify(inout headers h, inout metadata m) {
    apply {}
}

control CellsIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    SharedSketch(CELLS, Sketch.KIND, Shared.SDW, WhenFull.PASS) cells;

    apply {
        if (h.update.isValid()) {
            if (h.update.value == 0) {
                h.update.value = cells.get(h.update.index);
            } else {
                cells.update(h.update.index, h.update.value);
            }
            s.egress_spec = s.ingress_port;
        } else {
            to_host();
        }
    }
}

control CellsEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control CellsCompute(inout headers h, inout metadata m) {
    apply {}
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), CellsIngress(), CellsEgress(), CellsCompute(), Deparse()) main;
