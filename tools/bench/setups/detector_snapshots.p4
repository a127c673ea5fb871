// detector_snapshots.p4: systems/swish/p4/detector on RedPlane's snapshots, as a baseline. Each
// switch counts for itself; the store merges what all have; whoever reads the store blocks. Packets
// go from port 0 to port 1 and back; sources behind port 0 are watched. Other ports are the fabric.
//
// The sketch is the detector's: 3 rows of 32,768 cells, each a set of 32 bits, for which the merge
// of the store is OR: the union. A packet may access one key of a SnapshotState only. So a key is a
// block of the sketch: 32 cells of each row, and the source gives the block. Only blocks that
// change are sent.
//
//   -D SNAPSHOT_PERIOD_US=N   between two snapshots of a block
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#define BLOCKS 1024
#define ROW_CELLS 32
// Of a block.
#define SLOTS 96
#define CELLS 98304
#define THRESHOLD 28

#ifndef SNAPSHOT_PERIOD_US
#define SNAPSHOT_PERIOD_US 10000
#endif
// A switch that fails takes back no more than this.
#define EPSILON_US 100000

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

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata {}

struct block_t {
    bit<16> number;
}

/// Every bit of the result depends on every bit of x.
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
        transition accept;
    }
}

control Verify(inout headers h, inout metadata m) {
    apply {}
}

control SnapshotsIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    /// Packets of blocked sources.
    counter(1, CounterType.packets) blocked_packets;
    /// Packets that were not counted: the store has no room.
    counter(1, CounterType.packets) no_room;
    SnapshotState<block_t, bit<32>>(BLOCKS, SLOTS, SNAPSHOT_PERIOD_US, EPSILON_US,
                                    Overdue.CONTINUE, Merge.OR) sketch;
    /// For each cell that all switches together have filled: until when that blocks.
    register<bit<64>>(CELLS) filled;

    /// The slot of a row that counts this source's destinations.
    action slot_of(in bit<32> row, out bit<32> slot) {
        slot = row * ROW_CELLS + (mixed(h.ipv4.source ^ row * 0x7f4a7c15) & (ROW_CELLS - 1));
    }

    /// The bit of this destination; 0: the row does not sample it. (As the detector's.)
    action bit_of(in bit<32> row, out bit<32> set) {
        bit<32> hash = mixed(h.ipv4.destination + mixed(h.ipv4.source) ^ (row + 1) * 0x3c6ef372);
        set = 0;
        if (hash >> 28 == 0) {
            set = 32w1 << (bit<8>)(hash & 31);
        }
    }

    apply {
        if (s.ingress_port > 1) {
            to_host();
            return;
        }
        s.egress_spec = s.ingress_port ^ 1;
        if (s.ingress_port != 0 || !h.ipv4.isValid()) {
            return;
        }
        // (The high bits: the low ones are row 0's.)
        bit<32> number = mixed(h.ipv4.source) >> 22;
        bit<32> slot0; bit<32> slot1; bit<32> slot2;
        slot_of(0, slot0);
        slot_of(1, slot1);
        slot_of(2, slot2);
        bit<64> now = (bit<64>)(s.ingress_global_timestamp >> 10);
        bit<64> until0; bit<64> until1; bit<64> until2;
        filled.read(until0, number * SLOTS + slot0);
        filled.read(until1, number * SLOTS + slot1);
        filled.read(until2, number * SLOTS + slot2);
        if (now < until0 && now < until1 && now < until2) {
            blocked_packets.count(0);
            mark_to_drop(s);
            return;
        }
        block_t block;
        block.number = (bit<16>)number;
        bit<32> has0; bit<32> has1; bit<32> has2;
        StateResult found = sketch.read(block, slot0, has0);
        if (found == StateResult.MISS) {
            no_room.count(0);
            return;
        }
        sketch.read(block, slot1, has1);
        sketch.read(block, slot2, has2);
        bit<32> set0; bit<32> set1; bit<32> set2;
        bit_of(0, set0);
        bit_of(1, set1);
        bit_of(2, set2);
        // Only a bit that is new. (Of two CPUs that write one cell at once, one may lose its bit:
        // no SnapshotState in `@atomic`. The cell then fills a destination later.)
        if (has0 & set0 != set0) {
            sketch.write(block, slot0, has0 | set0);
        }
        if (has1 & set1 != set1) {
            sketch.write(block, slot1, has1 | set1);
        }
        if (has2 & set2 != set2) {
            sketch.write(block, slot2, has2 | set2);
        }
    }
}

control SnapshotsEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
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

V1Switch(Parse(), Verify(), SnapshotsIngress(), SnapshotsEgress(), Compute(), Deparse()) main;
