// probe.p4: a packet adds to shared variables, and comes back with what it reads, and in which
// window. Tests and labs compare that with what all switches were sent.
//
//   -D PERIOD=N    one counter more, which begins anew every N windows
//   -D MEMBERS=N   room for N switches
//   -D NEWER=N     packets come back with this as the window's age: a newer version of the program
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#ifndef CELLS
#define CELLS 4096
#endif

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<8> version_and_length;
    bit<8> tos;
    bit<16> total_length;
    bit<32> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source;
    bit<16> destination;
    bit<16> length;
    bit<16> checksum;
}

/// UDP port 4000. `amount`: added to the counter, its bits to the set; 0: the packet only reads.
header probe_t {
    bit<32> index;
    bit<32> amount;
    bit<64> window;
    bit<32> counter;
    bit<32> bits;
    bit<32> largest;
    bit<32> age;
#ifdef PERIOD
    bit<32> recent;
#endif
}

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    probe_t probe;
}

struct metadata {}

parser Parse(packet_in packet, out headers h, inout metadata m, inout standard_metadata_t s) {
    state start {
        packet.extract(h.ethernet);
        transition select(h.ethernet.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(h.ipv4);
        transition select(h.ipv4.version_and_length, h.ipv4.protocol) {
            (0x45, 17): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(h.udp);
        transition select(h.udp.destination) {
            4000: probe;
            default: accept;
        }
    }
    state probe {
        packet.extract(h.probe);
        transition accept;
    }
}

control Verify(inout headers h, inout metadata m) {
    apply {}
}

#ifdef SATURATED
/// A sum that stays at its largest value: what counts twice shows, and nothing can be taken out.
bit<32> saturated(in bit<32> a, in bit<32> b) {
    return a |+| b;
}

#endif
control ProbeIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
#ifdef MEMBERS
    @members(MEMBERS)
#endif
    SharedCounter(CELLS, Shared.SDW, WhenFull.DROP) counters;
#ifdef APART
    @group("sets")
#endif
#ifdef SUMS
    // (All of the group merges by addition: what dead switches brought can be told apart.)
    SharedCounter(CELLS, Shared.SDW, WhenFull.PASS) sets;
#else
    SharedSketch(CELLS, Sketch.BITS, Shared.SDW, WhenFull.PASS) sets;
#endif
#ifdef SATURATED
    @group("other") @merge("saturated")
    SharedSketch(64, Sketch.OWN, Shared.SDW, WhenFull.PASS) largest;
#else
    @group("other") SharedSketch(64, Sketch.MAXIMA, Shared.SDW, WhenFull.PASS) largest;
#endif
#ifdef PERIOD
    SharedCounter(1024, Shared.SDW, WhenFull.PASS, PERIOD) recent;
#endif

    apply {
        if (!h.probe.isValid()) {
            to_host();
        } else {
            h.probe.window = counters.window();
#ifdef NEWER
            h.probe.age = NEWER;
#else
            h.probe.age = counters.age();
#endif
            h.probe.counter = counters.get(h.probe.index);
            h.probe.bits = sets.get(h.probe.index);
            h.probe.largest = largest.get(h.probe.index & 63);
#ifdef PERIOD
            h.probe.recent = recent.get(h.probe.index & 1023);
#endif
            if (h.probe.amount != 0) {
                counters.add(h.probe.index, h.probe.amount);
#ifdef SUMS
                sets.add(h.probe.index, h.probe.amount);
#else
                sets.update(h.probe.index, h.probe.amount);
#endif
                largest.update(h.probe.index & 63, h.probe.amount);
#ifdef PERIOD
                recent.add(h.probe.index & 1023, h.probe.amount);
#endif
            }
            // Back to the sender.
            s.egress_spec = s.ingress_port;
            bit<48> mac = h.ethernet.destination;
            h.ethernet.destination = h.ethernet.source;
            h.ethernet.source = mac;
            bit<32> address = h.ipv4.destination;
            h.ipv4.destination = h.ipv4.source;
            h.ipv4.source = address;
            bit<16> port = h.udp.destination;
            h.udp.destination = h.udp.source;
            h.udp.source = port;
            h.udp.checksum = 0;
        }
    }
}

control ProbeEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control ProbeCompute(inout headers h, inout metadata m) {
    apply {}
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), ProbeIngress(), ProbeEgress(), ProbeCompute(), Deparse()) main;
