// heavy_hitter.p4: finds the flows that send most, tenant by tenant, and marks or drops what they
// send beyond their threshold.
//
// Each tenant (VLAN ID; untagged packets are tenant 0) has count-min sketches of its own, three
// rows of 64 32-bit slots (RedPlane §6): a packet adds one to a slot of each row, chosen by a hash
// of its five-tuple, and the smallest of the three is never less than the flow's packets. The table
// `tenants` says what happens to packets of flows whose estimate is over the tenant's threshold.
//
// Every HEAVY_HITTER_WINDOW_S seconds a tenant's sketches begin anew, so a threshold is a number of
// packets in that time. 60 by default, and not "never": sketches that only grow have every flow of
// a tenant over its threshold in the end. The window's number (the host's clock in seconds since
// 1970, divided by that) is the object's last slot, and in every snapshot: a switch that takes over
// goes on in the same window. -DHEAVY_HITTER_WINDOW_S=0: they only grow.
//
// A sketch is approximate, so it need not be saved packet by packet: every SKETCH_PERIOD_US whole
// snapshots go to the store, and a switch that takes over goes on from the newest (RedPlane §4.4).
// When the store lacks updates older than SKETCH_EPSILON_US, SKETCH_OVERDUE applies; with
// -DOVERDUE_DSCP=N and Overdue.MARK such packets get that DSCP.
//
// A tenant's sketches are one switch's at a time. With -DSKETCH_MERGE=Merge.SUM each switch has
// sketches of its own of each tenant, of the packets that came to it, thresholds are held against
// these, and the store has their sum: for tenants whose packets take several switches at once
// (ECMP). All have one hash, so the sum is the sketch of all the tenant's packets (`stateplane
// state snapshot vlan=N`). -DHEAVY_HITTER_PER_SWITCH is the same without a sum in the store:
// whoever asks makes it (`--merge sum`).
//
// -DHEAVY_HITTER_LOCAL: the same without fault tolerance. -DHEAVY_HITTER_REGISTERS: on plain
// v1model registers, which two CPUs may write at once (for comparing speed); they only grow.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>

#ifndef SKETCH_PERIOD_US
#define SKETCH_PERIOD_US 1000
#endif
#ifndef SKETCH_EPSILON_US
#define SKETCH_EPSILON_US 100000
#endif
#ifndef SKETCH_MERGE
#define SKETCH_MERGE Merge.NONE
#endif
#ifndef SKETCH_OVERDUE
#define SKETCH_OVERDUE Overdue.CONTINUE
#endif
#ifdef HEAVY_HITTER_LOCAL
#undef SKETCH_PERIOD_US
#define SKETCH_PERIOD_US 0
#endif

#ifndef HEAVY_HITTER_WINDOW_S
#define HEAVY_HITTER_WINDOW_S 60
#endif
#ifdef HEAVY_HITTER_REGISTERS
#undef HEAVY_HITTER_WINDOW_S
#define HEAVY_HITTER_WINDOW_S 0
#endif

// Tenants on this switch at a time.
#ifndef TENANTS
#define TENANTS 4096
#endif

#define ROWS 3
#define COLUMNS 64
// One slot more, behind the rows, is the window's number.
#if HEAVY_HITTER_WINDOW_S > 0
#define WINDOW_SLOTS 1
#else
#define WINDOW_SLOTS 0
#endif

struct headers_t {
    ethernet_t ethernet;
    vlan_t     vlan;
    ipv4_t     ipv4;
    ports_t    ports;
}

struct tenant_t {
    bit<12> vlan;
#ifdef HEAVY_HITTER_PER_SWITCH
    bit<32> switch_id;
#endif
}

struct estimates_t {
    bit<32> row0;
    bit<32> row1;
    bit<32> row2;
}

struct metadata_t {
    tenant_t tenant;
    bit<16>  source_port;
    bit<16>  destination_port;
}

parser HeavyHitterParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard_metadata) {
    state start {
        meta.tenant.vlan = 0;
#ifdef HEAVY_HITTER_PER_SWITCH
        meta.tenant.switch_id = switch_id();
#endif
        meta.source_port = 0;
        meta.destination_port = 0;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_VLAN: vlan;
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state vlan {
        packet.extract(hdr.vlan);
        meta.tenant.vlan = hdr.vlan.id;
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset,
                          hdr.ipv4.protocol) {
            (5, 0, 0, PROTOCOL_TCP): ports;
            (5, 0, 0, PROTOCOL_UDP): ports;
            default: accept;
        }
    }

    state ports {
        packet.extract(hdr.ports);
        meta.source_port = hdr.ports.source_port;
        meta.destination_port = hdr.ports.destination_port;
        transition accept;
    }
}

control HeavyHitterVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control HeavyHitterIngress(inout headers_t hdr, inout metadata_t meta,
                           inout standard_metadata_t standard_metadata) {
#ifdef HEAVY_HITTER_REGISTERS
    register<bit<32>>(4096 * ROWS * COLUMNS) sketches;
#else
    SnapshotState<tenant_t, bit<32>>(TENANTS, ROWS * COLUMNS + WINDOW_SLOTS, SKETCH_PERIOD_US,
                                     SKETCH_EPSILON_US, SKETCH_OVERDUE, SKETCH_MERGE) sketches;
#endif

    // Packets sent on that were within their tenant's threshold, or of a tenant that is not
    // watched.
    counter(1, CounterType.packets) within;
    // Packets over the threshold: marked (0), dropped (1).
    counter(2, CounterType.packets) over;
    // To the kernel: not IPv4 without options, hop limit reached, or no resolved next hop.
    counter(1, CounterType.packets) to_kernel;
#ifdef OVERDUE_DSCP
    // Packets whose tenant's updates the store lacks for longer than SKETCH_EPSILON_US, by
    // OVERDUE_DSCP.
    counter(1, CounterType.packets) overdue;
#endif
    // Dropped: the store (-DHEAVY_HITTER_LOCAL: this switch) has no room for another tenant. (If
    // only this switch has none, the runtime drops the packet: `flows_full`.)
    counter(1, CounterType.packets) no_room;

    estimates_t estimates;
    bit<32> estimate;
    bit<32> flow_hash;

    action count_only() {
        within.count(0);
    }

    action mark(bit<32> threshold, bit<6> dscp) {
        if (estimate > threshold) {
            hdr.ipv4.tos[7:2] = dscp;
            over.count(0);
        } else {
            within.count(0);
        }
    }

    action drop_over(bit<32> threshold) {
        if (estimate > threshold) {
            mark_to_drop(standard_metadata);
            over.count(1);
        } else {
            within.count(0);
        }
    }

    table tenants {
        key = { meta.tenant.vlan: exact; }
        actions = { count_only; mark; drop_over; }
        default_action = count_only();
        size = TENANTS;
    }

    apply {
        if (standard_metadata.parser_error != error.NoError || !hdr.ipv4.isValid()
            || hdr.ipv4.version != 4 || hdr.ipv4.ihl != 5
            || hdr.ipv4.ttl <= 1) {
            to_kernel.count(0);
            to_host();
            return;
        }
        // The way first: what cannot be sent on is not counted.
        if (fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                            meta.source_port, meta.destination_port,
                            hdr.ipv4.total_length, hdr.ipv4.tos, standard_metadata.egress_spec,
                            hdr.ethernet.source,
                            hdr.ethernet.destination) != FibResult.FORWARD) {
            to_kernel.count(0);
            to_host();
            return;
        }
        // One hash, three places in it: CRC is linear, so the same CRC with three seeds would give
        // three rows with the same collisions.
        hash(flow_hash, HashAlgorithm.crc32, 32w0,
             { hdr.ipv4.source, hdr.ipv4.destination, meta.source_port, meta.destination_port,
               hdr.ipv4.protocol }, 64w0x100000000);
#ifdef HEAVY_HITTER_REGISTERS
        bit<32> base = (bit<32>)meta.tenant.vlan * (ROWS * COLUMNS);
        sketches.read(estimates.row0, base + (bit<32>)flow_hash[5:0]);
        sketches.read(estimates.row1, base + COLUMNS + (bit<32>)flow_hash[15:10]);
        sketches.read(estimates.row2, base + 2 * COLUMNS + (bit<32>)flow_hash[25:20]);
        estimates.row0 = estimates.row0 + 1;
        estimates.row1 = estimates.row1 + 1;
        estimates.row2 = estimates.row2 + 1;
        sketches.write(base + (bit<32>)flow_hash[5:0], estimates.row0);
        sketches.write(base + COLUMNS + (bit<32>)flow_hash[15:10], estimates.row1);
        sketches.write(base + 2 * COLUMNS + (bit<32>)flow_hash[25:20], estimates.row2);
#else
#if HEAVY_HITTER_WINDOW_S > 0
        StateResult begun = sketches.begin(meta.tenant,
                                           (bit<32>)(wall_clock_ns() / (HEAVY_HITTER_WINDOW_S * 64w1000000000)));
        if (begun == StateResult.MISS) {
            no_room.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
#endif
        StateResult result = sketches.add_each(meta.tenant,
            { (bit<32>)flow_hash[5:0], COLUMNS + (bit<32>)flow_hash[15:10], 2 * COLUMNS
              + (bit<32>)flow_hash[25:20] },
            1, estimates);
        if (result == StateResult.MISS) {
            no_room.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
#endif
        estimate = estimates.row0;
        if (estimates.row1 < estimate) {
            estimate = estimates.row1;
        }
        if (estimates.row2 < estimate) {
            estimate = estimates.row2;
        }
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        tenants.apply();
#ifdef OVERDUE_DSCP
        // Before the mark of the tenant's table, as this says that the estimate itself may be taken
        // back.
        if (sketches.is_overdue(meta.tenant)) {
            hdr.ipv4.tos[7:2] = OVERDUE_DSCP;
            overdue.count(0);
        }
#endif
    }
}

control HeavyHitterEgress(inout headers_t hdr, inout metadata_t meta,
                          inout standard_metadata_t standard_metadata) {
    apply { }
}

control HeavyHitterComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
                        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
                          hdr.ipv4.identification,
                          hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset, hdr.ipv4.ttl,
                          hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control HeavyHitterDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(HeavyHitterParser(), HeavyHitterVerifyChecksum(), HeavyHitterIngress(),
         HeavyHitterEgress(), HeavyHitterComputeChecksum(),
         HeavyHitterDeparser()) main;
