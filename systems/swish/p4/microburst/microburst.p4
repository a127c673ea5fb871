// microburst.p4: finds flows that send much within a window, where each switch may see only a part
// of a flow's packets (SwiSh §4.3, after ConQuest). Packets go from port 0 to port 1 and back;
// flows from behind port 0 are watched.
//
// systems/swish/docs/microburst.md says how it counts, and what becomes of a burst's packets.
//
//   -D THRESHOLD=N   bytes of a flow in a window that are a burst
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#define ROWS 3
#define ROW_CELLS 4096
#define CELLS 12288
#define NOTED 256

// 1 Gbit/s, in windows of 1 ms.
#ifndef THRESHOLD
#define THRESHOLD 125000
#endif

// The two bits of IPv4's ECN field (RFC 3168).
const bit<8> ECN = 3;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> type;
}

header ipv4_t {
    bit<8> version_and_length;
    bit<8> tos;
    bit<16> total_length;
    bit<16> identification;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

/// The first four bytes of a UDP datagram or TCP segment.
header ports_t {
    bit<32> both;
}

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ports_t ports;
}

struct metadata {
    /// The packet says now that there is congestion.
    bool marked;
}

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
        // (Fragments of a datagram are one flow: the later ones have no ports.)
        transition select(h.ipv4.version_and_length, h.ipv4.protocol, h.ipv4.fragment & 0x3fff) {
            (0x45, 6, 0): ports;
            (0x45, 17, 0): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(h.ports);
        transition accept;
    }
}

control Verify(inout headers h, inout metadata m) {
    apply {
        verify_checksum(
            h.ipv4.isValid() && h.ipv4.version_and_length == 0x45,
            { h.ipv4.version_and_length, h.ipv4.tos, h.ipv4.total_length, h.ipv4.identification,
              h.ipv4.fragment, h.ipv4.ttl, h.ipv4.protocol, h.ipv4.source, h.ipv4.destination },
            h.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control MicroburstIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    /// Packets and bytes of flows that burst.
    counter(1, CounterType.packets_and_bytes) bursts;
    /// Bytes of the last window, by row and flow: a count-min sketch that begins anew with each
    /// window.
    SharedCounter(CELLS, Shared.SDW, WhenFull.PASS, 1) bytes;
    /// The flows that burst last: source and destination, by a hash of the flow.
    register<bit<64>>(NOTED) hosts;
    /// The same: the window, and both ports.
    register<bit<64>>(NOTED) windows;

    action cell_of(in bit<32> flow, in bit<32> row, out bit<32> cell) {
        cell = row * ROW_CELLS + (mixed(flow ^ (row + 1) * 0x3c6ef372) & (ROW_CELLS - 1));
    }

    apply {
        if (s.ingress_port > 1) {
            to_host();
            return;
        }
        s.egress_spec = s.ingress_port ^ 1;
        if (s.ingress_port != 0 || !h.ipv4.isValid() || h.ipv4.version_and_length != 0x45) {
            return;
        }
        // (A damaged header must not get a right checksum with its mark.)
        if (s.checksum_error != 0) {
            return;
        }
        bit<32> ports = 0;
        if (h.ports.isValid()) {
            ports = h.ports.both;
        }
        bit<32> hosts_hash = mixed(mixed(h.ipv4.source) + h.ipv4.destination);
        bit<32> flow = mixed((hosts_hash ^ ports) + (bit<32>)h.ipv4.protocol);
        bit<32> cell0; bit<32> cell1; bit<32> cell2;
        cell_of(flow, 0, cell0);
        cell_of(flow, 1, cell1);
        cell_of(flow, 2, cell2);
        // What others send is in one of the three cells too, as good as never in all of them.
        bit<32> sent = bytes.get(cell0);
        bit<32> other = bytes.get(cell1);
        if (other < sent) {
            sent = other;
        }
        other = bytes.get(cell2);
        if (other < sent) {
            sent = other;
        }
        bytes.add(cell0, s.packet_length);
        bytes.add(cell1, s.packet_length);
        bytes.add(cell2, s.packet_length);
        if (sent < THRESHOLD) {
            return;
        }
        // All switches read the same in a window, so all of them find the same bursts.
        bursts.count(0);
        bit<32> place = flow & (NOTED - 1);
        hosts.write(place, h.ipv4.source ++ h.ipv4.destination);
        windows.write(place, (bit<32>)bytes.window() ++ ports);
        if (h.ipv4.tos & ECN != 0) {
            h.ipv4.tos = h.ipv4.tos | ECN;
            m.marked = true;
        }
    }
}

control MicroburstEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    apply {}
}

control Compute(inout headers h, inout metadata m) {
    apply {
        update_checksum(
            m.marked,
            { h.ipv4.version_and_length, h.ipv4.tos, h.ipv4.total_length, h.ipv4.identification,
              h.ipv4.fragment, h.ipv4.ttl, h.ipv4.protocol, h.ipv4.source, h.ipv4.destination },
            h.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in headers h) {
    apply {
        packet.emit(h);
    }
}

V1Switch(Parse(), Verify(), MicroburstIngress(), MicroburstEgress(), Compute(), Deparse()) main;
