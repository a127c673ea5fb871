// ips.p4: intrusion prevention by signatures, on several switches together (SwiSh §3.2). Packets
// go from port 0 to port 1 and back; those that come in at port 0 are inspected.
//
// systems/swish/docs/ips.md says what a signature is, and how operators write them.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#ifndef SIGNATURES
#define SIGNATURES 1024
#endif
#ifndef BLOCKS
#define BLOCKS 65536
#endif
// Cells of matches by source: a power of two.
#define MATCHES 65536

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

/// The first bytes behind the UDP header.
header payload_t {
    bit<64> first;
}

/// What a packet is told by: the service, and what it says first.
struct signature_t {
    bit<16> port;
    bit<64> payload;
}

/// What is to be done with it.
struct rule_t {
    /// For people.
    bit<32> id;
    /// As many packets of a source with signatures of this weight block the source as 256 divided
    /// by it; 0: none does, and the packet is only dropped.
    bit<16> weight;
}

struct source_t {
    bit<32> source;
}

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
    udp_t udp;
    payload_t payload;
}

struct metadata {}

/// A number that depends on all bits of `x`.
bit<32> mixed(in bit<32> x) {
    bit<32> y = (x ^ x >> 16) * 0x45d9f3b;
    y = (y ^ y >> 15) * 0x2c1b3c6d;
    return y ^ y >> 16;
}

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
        // (A later fragment has no UDP header.)
        transition select(h.ipv4.version_and_length, h.ipv4.protocol, h.ipv4.fragment & 0x1fff) {
            (0x45, 17, 0): udp;
            default: accept;
        }
    }
    state udp {
        packet.extract(h.udp);
        transition select(h.udp.length) {
            0 &&& 0xfff0: accept;
            default: payload;
        }
    }
    state payload {
        packet.extract(h.payload);
        transition accept;
    }
}

control Verify(inout headers h, inout metadata m) {
    apply {}
}

control IpsIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    /// Packets with a signature, and packets of blocked sources, which were dropped.
    counter(1, CounterType.packets) matched;
    counter(1, CounterType.packets) blocked;

    /// Operators write them, on any switch: `stateplane shared set signatures`.
    SharedTable<signature_t, rule_t>(SIGNATURES, Shared.EWO) signatures;
    /// Sources that may send nothing. Switches add them, and operators remove them.
    SharedSet<source_t>(BLOCKS, Shared.EWO) blocks;
    /// Weights of the matches of a source, at all switches together.
    SharedCounter(MATCHES, Shared.EWO) matches;

    apply {
        if (s.ingress_port > 1) {
            to_host();
            return;
        }
        s.egress_spec = s.ingress_port ^ 1;
        if (s.ingress_port != 0 || !h.ipv4.isValid()) {
            return;
        }
        source_t source = { h.ipv4.source };
        if (blocks.has(source)) {
            blocked.count(0);
            mark_to_drop(s);
            return;
        }
        if (!h.payload.isValid()) {
            return;
        }
        signature_t signature = { h.udp.destination, h.payload.first };
        rule_t rule;
        if (!signatures.get(signature, rule)) {
            return;
        }
        matched.count(0);
        mark_to_drop(s);
        if (rule.weight == 0) {
            return;
        }
        bit<32> cell = mixed(h.ipv4.source) & (MATCHES - 1);
        bit<32> weight = (bit<32>) rule.weight;
        matches.add(cell, weight);
        // (A packet does not read its own updates. In each 256 of a cell one packet blocks: a
        // source that an operator lets in again begins anew.)
        bit<32> before = matches.get(cell);
        if ((before & 255) + weight >= 256) {
            blocks.add(source);
        }
    }
}

control IpsEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control IpsCompute(inout headers h, inout metadata m) {
    apply {}
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), IpsIngress(), IpsEgress(), IpsCompute(), Deparse()) main;
