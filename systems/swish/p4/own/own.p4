// own.p4: sketches whose cells merge as functions of this program say. A packet brings a number for
// a cell, and comes back with what it reads. Tests use it.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#ifndef CELLS
#define CELLS 400
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

/// UDP port 4000.
header probe_t {
    bit<32> index;
    bit<32> amount;
    /// A sum that stays at its largest value.
    bit<32> total;
    /// In the upper half the largest one, in the lower half all bits.
    bit<32> joined;
    /// The smallest number; 0: there was none.
    bit<32> smallest;
    /// As `joined`, at once.
    bit<32> soon;
#ifdef LAB
    /// Of `total` and of `joined`; 0: the switch is no member, and counts nothing there.
    bit<64> window;
    bit<64> joined_window;
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

/// Both merge to the largest value beyond it.
bit<32> saturated(in bit<32> a, in bit<32> b) {
    return a |+| b;
}

/// The smaller one. 0 stands for "none".
bit<32> smaller(in bit<32> a, in bit<32> b) {
    if (a == 0) {
        return b;
    }
    if (b == 0 || a < b) {
        return a;
    }
    return b;
}

bit<16> larger(in bit<16> a, in bit<16> b) {
    return a > b ? a : b;
}

/// Two sketches in one: a maximum above, a set of bits below.
bit<32> halves(in bit<32> a, in bit<32> b) {
    bit<16> most = larger(a[31:16], b[31:16]);
    bit<32> both = a | b;
    both[31:16] = most;
    return both;
}

control OwnIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    @merge("saturated") SharedSketch(CELLS, Sketch.OWN, Shared.SDW, WhenFull.PASS) total;
    @group("halves") @merge("halves")
    SharedSketch(CELLS, Sketch.OWN, Shared.SDW, WhenFull.PASS) joined;
    @merge("smaller") SharedSketch(CELLS, Sketch.OWN, Shared.EWO) smallest;
    @merge("halves") SharedSketch(CELLS, Sketch.OWN, Shared.EWO) soon;

    apply {
        if (!h.probe.isValid()) {
            to_host();
        } else {
            h.probe.total = total.get(h.probe.index);
            h.probe.joined = joined.get(h.probe.index);
            h.probe.smallest = smallest.get(h.probe.index);
            h.probe.soon = soon.get(h.probe.index);
#ifdef LAB
            h.probe.window = total.window();
            h.probe.joined_window = joined.window();
#endif
            if (h.probe.amount != 0) {
                total.update(h.probe.index, h.probe.amount);
                joined.update(h.probe.index, h.probe.amount);
                smallest.update(h.probe.index, h.probe.amount);
                soon.update(h.probe.index, h.probe.amount);
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

control OwnEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control OwnCompute(inout headers h, inout metadata m) {
    apply {}
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), OwnIngress(), OwnEgress(), OwnCompute(), Deparse()) main;
