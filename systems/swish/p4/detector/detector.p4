// detector.p4: blocks sources that send to too many destinations (super-spreaders), of which each
// switch may see only a part (SwiSh §8.1, after OpenSketch). Packets go from port 0 to port 1 and
// back; sources behind port 0 are watched.
//
// systems/swish/docs/detector.md says how it counts, and why these numbers.
//
//   -D DETECTOR_LOCAL   each switch counts alone, in registers; a controller adds up and blocks
//   -D DETECTOR_EWO     a sketch that converges; without windows nothing begins anew, so a source
//                       stays blocked (to compare with)
//   -D THRESHOLD=N      bits of a cell that mean too many destinations
//   -D BLOCKED_FOR=N    how many windows a block lasts at the least; up to 127 more
//   -D PERIOD=N         of how many windows destinations are counted together
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#define ROWS 3
#define ROW_CELLS 32768
#define CELLS 98304

// 28 of 32 bits: by linear counting 66.5 destinations that were sampled, of 1065.
#ifndef THRESHOLD
#define THRESHOLD 28
#endif

#ifndef BLOCKED_FOR
#define BLOCKED_FOR 6000
#endif

#ifndef PERIOD
#define PERIOD 60000
#endif

// Ends of blocks are in units of 128 windows: 32 bits last for 8 years of 486 us windows.
#define UNIT_BITS 7

#if !defined(DETECTOR_LOCAL) && !defined(DETECTOR_EWO)
#define DETECTOR_SHARED_BLOCKS
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

struct headers {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata {}

/// Every bit of the result depends on every bit of x.
bit<32> mixed(in bit<32> x) {
    bit<32> y = (x ^ x >> 16) * 0x45d9f3b;
    y = (y ^ y >> 15) * 0x2c1b3c6d;
    return y ^ y >> 16;
}

/// How many bits are set.
bit<32> set_bits(in bit<32> x) {
    bit<32> y = x - (x >> 1 & 0x55555555);
    y = (y & 0x33333333) + (y >> 2 & 0x33333333);
    return (y + (y >> 4) & 0x0f0f0f0f) * 0x01010101 >> 24;
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

control DetectorIngress(inout headers h, inout metadata m, inout standard_metadata_t s) {
    /// Packets of blocked sources.
    counter(1, CounterType.packets) blocked_packets;
#ifdef DETECTOR_LOCAL
    /// The low 32 bits of a cell are in use. (Eight bytes: a controller maps them as memory.)
    register<bit<64>>(CELLS) sketch;
    /// For each cell that all switches together have filled: until when that blocks.
    register<bit<64>>(CELLS) filled;
#else
#ifdef DETECTOR_EWO
    SharedSketch(CELLS, Sketch.BITS, Shared.EWO) sketch;
#else
    SharedSketch(CELLS, Sketch.BITS, Shared.SDW, WhenFull.PASS, PERIOD) sketch;
    /// Two rows; when a block ends, in units of windows.
    SharedSketch(65536, Sketch.MAXIMA, Shared.SDW, WhenFull.PASS) blocks;
#endif
#endif

    /// The cell of a row that counts this source's destinations. `salt`: other cells after a block.
    action cell_of(in bit<32> row, in bit<32> salt, out bit<32> cell) {
        bit<32> hash = mixed(h.ipv4.source + salt * 0x9e3779b9 ^ row * 0x7f4a7c15);
        cell = row * ROW_CELLS + (hash & (ROW_CELLS - 1));
    }

    /// The bit of this destination; 0: the row does not sample it. (One in 16 pairs of source and
    /// destination is sampled, by each row others, so that rows err on their own.)
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
        bit<32> salt = 0;
#ifdef DETECTOR_SHARED_BLOCKS
        bit<64> window = blocks.window();
        bit<32> now = (bit<32>)(window >> UNIT_BITS);
        bit<32> first = mixed(h.ipv4.source) & 32767;
        bit<32> second = 32768 + (mixed(h.ipv4.source ^ 0x5bd1e995) & 32767);
        // The smaller one: another source's block is in one of the two at most, as good as always.
        bit<32> until = blocks.get(first);
        bit<32> other = blocks.get(second);
        if (other < until) {
            until = other;
        }
        if (now < until) {
            blocked_packets.count(0);
            mark_to_drop(s);
            return;
        }
        // After a block its source is counted anew, in cells that are new to it.
        salt = until;
#endif
        bit<32> cell0; bit<32> cell1; bit<32> cell2;
        cell_of(0, salt, cell0);
        cell_of(1, salt, cell1);
        cell_of(2, salt, cell2);
#ifdef DETECTOR_LOCAL
        bit<64> now = (bit<64>)(s.ingress_global_timestamp >> 10);
        bit<64> until0; bit<64> until1; bit<64> until2;
        filled.read(until0, cell0);
        filled.read(until1, cell1);
        filled.read(until2, cell2);
        if (now < until0 && now < until1 && now < until2) {
            blocked_packets.count(0);
            mark_to_drop(s);
            return;
        }
        bit<64> has0; bit<64> has1; bit<64> has2;
        sketch.read(has0, cell0);
        sketch.read(has1, cell1);
        sketch.read(has2, cell2);
#else
        bit<32> has0 = sketch.get(cell0);
        bit<32> has1 = sketch.get(cell1);
        bit<32> has2 = sketch.get(cell2);
        // All switches read the same in a window, so all of them block in the same one.
        if (set_bits(has0) >= THRESHOLD && set_bits(has1) >= THRESHOLD
            && set_bits(has2) >= THRESHOLD) {
#ifdef DETECTOR_SHARED_BLOCKS
            bit<64> last = window + (BLOCKED_FOR - 1);
            bit<32> end = (bit<32>)(last >> UNIT_BITS) + 1;
            blocks.update(first, end);
            blocks.update(second, end);
#endif
            blocked_packets.count(0);
            mark_to_drop(s);
            return;
        }
#endif
        bit<32> set0; bit<32> set1; bit<32> set2;
        bit_of(0, set0);
        bit_of(1, set1);
        bit_of(2, set2);
        // Only a bit that is new: destinations that are known cost no update.
#ifdef DETECTOR_LOCAL
        if ((bit<32>)has0 & set0 != set0) {
            @atomic {
                sketch.read(has0, cell0);
                sketch.write(cell0, has0 | (bit<64>)set0);
            }
        }
        if ((bit<32>)has1 & set1 != set1) {
            @atomic {
                sketch.read(has1, cell1);
                sketch.write(cell1, has1 | (bit<64>)set1);
            }
        }
        if ((bit<32>)has2 & set2 != set2) {
            @atomic {
                sketch.read(has2, cell2);
                sketch.write(cell2, has2 | (bit<64>)set2);
            }
        }
#else
        if (has0 & set0 != set0) {
            sketch.update(cell0, set0);
        }
        if (has1 & set1 != set1) {
            sketch.update(cell1, set1);
        }
        if (has2 & set2 != set2) {
            sketch.update(cell2, set2);
        }
#endif
    }
}

control DetectorEgress(inout headers h, inout metadata m, inout standard_metadata_t s) {
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

V1Switch(Parse(), Verify(), DetectorIngress(), DetectorEgress(), Compute(), Deparse()) main;
