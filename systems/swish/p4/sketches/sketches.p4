// sketches.p4: the sketches of ../include/sketches.p4. A packet brings an element and a value, is
// counted in all of them, and comes back with what it reads. Tests use it, and programs that need
// such a sketch can begin from it.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include "../include/sketches.p4"

#define ROW_CELLS 64
#define MINIMA 16

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

/// Ethernet type 0x88b5.
header ask_t {
    bit<32> element;
    bit<32> value;
    /// How often the element came.
    bit<32> times;
    /// Elements of its row, as bits.
    bit<32> bits;
    /// The element's cell of minimum values.
    bit<32> minimum;
    /// The value's bucket, and how many values it has.
    bit<32> bucket;
    bit<32> values;
}

struct headers {
    ethernet_t ethernet;
    ask_t ask;
}

struct metadata {}

parser Parse(packet_in packet, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.type) {
            0x88b5: ask;
            default: accept;
        }
    }
    state ask {
        packet.extract(h.ask);
        transition accept;
    }
}

control Verify(inout headers h, inout metadata m) {
    apply {}
}

control SketchesIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    SharedSketch(128, Sketch.COUNTERS, Shared.SDW, WhenFull.PASS) counts;
    SharedSketch(1, Sketch.BITS, Shared.SDW, WhenFull.PASS) seen;
    SharedSketch(MINIMA, Sketch.MAXIMA, Shared.SDW, WhenFull.PASS) minima;
    SharedSketch(240, Sketch.COUNTERS, Shared.SDW, WhenFull.PASS) buckets;

    apply {
        if (!h.ask.isValid()) {
            to_host();
            return;
        }
        bit<32> cell0 = count_min_cell(h.ask.element, 0, ROW_CELLS);
        bit<32> cell1 = count_min_cell(h.ask.element, 1, ROW_CELLS);
        h.ask.times = counts.get(cell0);
        bit<32> other = counts.get(cell1);
        if (other < h.ask.times) {
            h.ask.times = other;
        }
        counts.update(cell0, 1);
        counts.update(cell1, 1);

        h.ask.bits = seen.get(0);
        seen.update(0, set_bit(h.ask.element));

        bit<32> minimum = minimum_cell(h.ask.element, MINIMA);
        h.ask.minimum = minima.get(minimum);
        minima.update(minimum, minimum_value(h.ask.element));

        h.ask.bucket = quantile_bucket(h.ask.value);
        h.ask.values = buckets.get(h.ask.bucket);
        buckets.update(h.ask.bucket, 1);
        s.egress_spec = s.ingress_port;
    }
}

control SketchesEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control Compute(inout headers h, inout metadata m) {
    apply {}
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), SketchesIngress(), SketchesEgress(), Compute(), Deparse()) main;
