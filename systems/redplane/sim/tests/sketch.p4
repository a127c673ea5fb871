// sketch.p4: every packet adds one to four slots of its tenant's array, which it names itself, and
// carries out their sums. The program that snapshots are tested with: what the state was at any
// instant can be computed from the packets.
//
// -DASK_OVERDUE: marks what is overdue. -DREGISTERS: the same on plain registers. -DSLOTS=N,
// -DWIDTH=W, -DPERIOD_US=N (0: local), -DEPSILON_US=N, -DOVERDUE=DROP|MARK|CONTINUE -DWINDOW_US=N:
// all begins anew every N µs, and the packet carries out the number of its window. SLOTS are then
// those that count, and one more is the window's number. -DMERGE=SUM|MAX|OR: all switches count for
// a tenant at the same time.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

#ifndef SLOTS
#define SLOTS 192
#endif
#ifndef WIDTH
#define WIDTH 32
#endif
#ifndef PERIOD_US
#define PERIOD_US 1000
#endif
#ifndef EPSILON_US
#define EPSILON_US 50000
#endif
#ifndef OVERDUE
#define OVERDUE CONTINUE
#endif
#ifndef MERGE
#define MERGE NONE
#endif
#ifdef WINDOW_US
#define WINDOW_SLOTS 1
#else
#define WINDOW_SLOTS 0
#endif

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header ipv4_t {
    bit<96> rest; // version to checksum
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<64> ports_length_and_checksum;
}

header payload_t {
    bit<32> packet;
    bit<16> tenant;
    bit<16> overdue;
    bit<32> index0;
    bit<32> index1;
    bit<32> index2;
    bit<32> index3;
    bit<64> sum0;
    bit<64> sum1;
    bit<64> sum2;
    bit<64> sum3;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    payload_t  payload;
}

struct tenant_t {
    bit<16> tenant;
}

struct sums_t {
    bit<WIDTH> sum0;
    bit<WIDTH> sum1;
    bit<WIDTH> sum2;
    bit<WIDTH> sum3;
}

struct metadata_t { }

parser SketchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.payload);
        transition accept;
    }
}

control SketchVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control SketchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
#ifdef REGISTERS
    register<bit<WIDTH>>(64 * SLOTS) sketches;
#else
    SnapshotState<tenant_t, bit<WIDTH>>(64, SLOTS + WINDOW_SLOTS, PERIOD_US, EPSILON_US, Overdue.OVERDUE, Merge.MERGE) sketches;
#endif

    apply {
        if (!hdr.payload.isValid()) {
            mark_to_drop(standard_metadata);
            return;
        }
        tenant_t tenant = { hdr.payload.tenant };
        sums_t sums;
#ifdef WINDOW_US
        bit<32> window = (bit<32>)(wall_clock_ns() / (WINDOW_US * 1000));
        if (sketches.begin(tenant, (bit<WIDTH>)window) != StateResult.HIT) {
            mark_to_drop(standard_metadata);
            return;
        }
        hdr.payload.packet = window;
#endif
#ifdef REGISTERS
        bit<32> base = (bit<32>)tenant.tenant * SLOTS;
        sketches.read(sums.sum0, base + hdr.payload.index0);
        sums.sum0 = sums.sum0 + 1;
        sketches.write(base + hdr.payload.index0, sums.sum0);
        sketches.read(sums.sum1, base + hdr.payload.index1);
        sums.sum1 = sums.sum1 + 1;
        sketches.write(base + hdr.payload.index1, sums.sum1);
        sketches.read(sums.sum2, base + hdr.payload.index2);
        sums.sum2 = sums.sum2 + 1;
        sketches.write(base + hdr.payload.index2, sums.sum2);
        sketches.read(sums.sum3, base + hdr.payload.index3);
        sums.sum3 = sums.sum3 + 1;
        sketches.write(base + hdr.payload.index3, sums.sum3);
#else
        if (sketches.add_each(tenant, { hdr.payload.index0, hdr.payload.index1, hdr.payload.index2, hdr.payload.index3 }, 1, sums)
            != StateResult.HIT) {
            mark_to_drop(standard_metadata);
            return;
        }
#endif
        hdr.payload.sum0 = (bit<64>)sums.sum0;
        hdr.payload.sum1 = (bit<64>)sums.sum1;
        hdr.payload.sum2 = (bit<64>)sums.sum2;
        hdr.payload.sum3 = (bit<64>)sums.sum3;
#ifdef ASK_OVERDUE
        if (sketches.is_overdue(tenant)) {
            hdr.payload.overdue = 1;
        }
#endif
        standard_metadata.egress_spec = 3;
    }
}

control SketchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply { } }

control SketchCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control SketchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(SketchParser(), SketchVerify(), SketchIngress(), SketchEgress(), SketchCompute(), SketchDeparser()) main;
