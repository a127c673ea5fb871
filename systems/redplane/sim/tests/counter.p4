// counter.p4: every packet of a flow takes the flow's next number, and carries it out. The program
// that the simulator's histories are made with: a number given twice, or one that goes back, shows
// at once.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header ipv4_t {
    bit<72> rest; // version to TTL
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<32> length_and_checksum;
}

header payload_t {
    bit<32> packet;
    bit<64> count;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    udp_t      udp;
    payload_t  payload;
}

// -DASYNC: packets do not wait for the store.
#ifdef ASYNC
#define CONSISTENCY Consistency.ASYNCHRONOUS
#else
#define CONSISTENCY Consistency.LINEARIZABLE
#endif

// -DTWO_FLOWS: a packet may read two flows.

// -DTWO_SETS: a packet may set its flow twice, and look up another flow in between.

// -DSETS_AGAIN: a packet sets a wrong count first, which nobody may see, then looks up what it may
// have to wait for, and puts the count right.

// -DWIDE: keys and values have 256 bytes. A key has the same bytes behind what tells flows apart; a
// value repeats its count.
#ifdef WIDE
#define REST_OF_16 0xa5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5
#define REST_OF_80 REST_OF_16, REST_OF_16, REST_OF_16, REST_OF_16, REST_OF_16
#define REST , REST_OF_80, REST_OF_80, REST_OF_80, 0xa5a5a5
#else
#define REST
#endif

// -DGROUPED: the flows of a source have a total, which is set together with each count. The source
// picks the shard of both.
#ifdef GROUPED
#define SHARD , 1
#else
#define SHARD
#endif

// Flows on this switch.
#ifndef FLOWS
#define FLOWS 1024
#endif

struct flow_t {
    bit<32> source;
    bit<32> destination;
    bit<16> source_port;
    bit<16> destination_port;
    bit<8>  protocol;
#ifdef WIDE
    bit<128> rest0;
    bit<128> rest1;
    bit<128> rest2;
    bit<128> rest3;
    bit<128> rest4;
    bit<128> rest5;
    bit<128> rest6;
    bit<128> rest7;
    bit<128> rest8;
    bit<128> rest9;
    bit<128> rest10;
    bit<128> rest11;
    bit<128> rest12;
    bit<128> rest13;
    bit<128> rest14;
    bit<24> rest15;
#endif
}

struct source_t {
    bit<32> source;
}

struct count_t {
    bit<64> packets;
#ifdef WIDE
    bit<128> again0;
    bit<128> again1;
    bit<128> again2;
    bit<128> again3;
    bit<128> again4;
    bit<128> again5;
    bit<128> again6;
    bit<128> again7;
    bit<128> again8;
    bit<128> again9;
    bit<128> again10;
    bit<128> again11;
    bit<128> again12;
    bit<128> again13;
    bit<128> again14;
    bit<64> last;
#endif
}

struct metadata_t { }

parser CounterParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.payload);
        transition accept;
    }
}

control CounterVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control CounterIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    FlowState<flow_t, count_t>(FLOWS, CONSISTENCY, Allocator.ZERO SHARD) counts;
#ifdef GROUPED
    FlowState<source_t, count_t>(FLOWS, CONSISTENCY, Allocator.ZERO, 1) totals;
#endif
    // Packets that the program saw, and of whose flow there is no state.
    counter(1, CounterType.packets) missed;

    action repeat_count(inout count_t count) {
#ifdef WIDE
        count.again0 = (bit<128>)count.packets;
        count.again1 = (bit<128>)count.packets;
        count.again2 = (bit<128>)count.packets;
        count.again3 = (bit<128>)count.packets;
        count.again4 = (bit<128>)count.packets;
        count.again5 = (bit<128>)count.packets;
        count.again6 = (bit<128>)count.packets;
        count.again7 = (bit<128>)count.packets;
        count.again8 = (bit<128>)count.packets;
        count.again9 = (bit<128>)count.packets;
        count.again10 = (bit<128>)count.packets;
        count.again11 = (bit<128>)count.packets;
        count.again12 = (bit<128>)count.packets;
        count.again13 = (bit<128>)count.packets;
        count.again14 = (bit<128>)count.packets;
        count.last = count.packets;
#endif
    }

    // A value that is not whole shows as a count that nobody can have.
    action check_count(inout count_t count) {
#ifdef WIDE
        bit<128> others = (bit<128>)(count.last ^ count.packets);
        others = others | (count.again0 ^ (bit<128>)count.packets);
        others = others | (count.again1 ^ (bit<128>)count.packets);
        others = others | (count.again2 ^ (bit<128>)count.packets);
        others = others | (count.again3 ^ (bit<128>)count.packets);
        others = others | (count.again4 ^ (bit<128>)count.packets);
        others = others | (count.again5 ^ (bit<128>)count.packets);
        others = others | (count.again6 ^ (bit<128>)count.packets);
        others = others | (count.again7 ^ (bit<128>)count.packets);
        others = others | (count.again8 ^ (bit<128>)count.packets);
        others = others | (count.again9 ^ (bit<128>)count.packets);
        others = others | (count.again10 ^ (bit<128>)count.packets);
        others = others | (count.again11 ^ (bit<128>)count.packets);
        others = others | (count.again12 ^ (bit<128>)count.packets);
        others = others | (count.again13 ^ (bit<128>)count.packets);
        others = others | (count.again14 ^ (bit<128>)count.packets);
        if (others != 0) {
            count.packets = count.packets + 0x100000000;
        }
#endif
    }

    apply {
        if (!hdr.payload.isValid()) {
            mark_to_drop(standard_metadata);
            return;
        }
        flow_t key = { hdr.ipv4.source, hdr.ipv4.destination, hdr.udp.source_port, 80, hdr.ipv4.protocol REST };
        count_t count;
        StateResult found = counts.get_or_allocate(key, count);
        if (found == StateResult.MISS) {
            missed.count(0);
        }
        if (found != StateResult.HIT) {
            mark_to_drop(standard_metadata); // PENDING: the packet waits at the store
            return;
        }
        check_count(count);
        if (hdr.udp.destination_port == 83) {
            to_host();
            return;
        }
        if (hdr.udp.destination_port == 84) { // only reads
            hdr.payload.count = count.packets;
            standard_metadata.egress_spec = 3;
            return;
        }
#ifdef TWO_FLOWS
        if (hdr.udp.destination_port == 86) { // the sum of this flow's count and another one's
            flow_t other = {
                hdr.ipv4.source, hdr.payload.packet, hdr.udp.source_port, 80, hdr.ipv4.protocol REST
            };
            count_t more;
            if (counts.get(other, more) != StateResult.HIT) {
                mark_to_drop(standard_metadata);
                return;
            }
            hdr.payload.count = count.packets + more.packets;
            standard_metadata.egress_spec = 3;
            return;
        }
#endif
#ifdef TWO_SETS
        if (hdr.udp.destination_port > 86 && hdr.udp.destination_port < 90) { // takes two numbers
            count.packets = count.packets + 1;
            repeat_count(count);
            counts.set(key, count);
            flow_t other = {
                hdr.ipv4.source, hdr.payload.packet, hdr.udp.source_port, 80, hdr.ipv4.protocol REST
            };
            count_t more;
            if (counts.get_or_allocate(other, more) != StateResult.HIT) {
                mark_to_drop(standard_metadata);
                return;
            }
            if (counts.get(key, count) != StateResult.HIT) {
                mark_to_drop(standard_metadata);
                return;
            }
            check_count(count);
            count.packets = count.packets + 1;
            repeat_count(count);
            counts.set(key, count);
            counts.get(key, count);
            check_count(count);
            hdr.payload.count = count.packets;
            standard_metadata.egress_spec = 3;
            if (hdr.udp.destination_port == 88) {
                mark_to_drop(standard_metadata);
            } else if (hdr.udp.destination_port == 89) {
                to_host();
            }
            return;
        }
#endif
#ifdef SETS_AGAIN
        count.packets = count.packets + 1000000;
        repeat_count(count);
        counts.set(key, count);
        flow_t beside = { hdr.ipv4.source, hdr.ipv4.destination, hdr.udp.source_port, 79, hdr.ipv4.protocol REST };
        count_t none;
        if (counts.get_or_allocate(beside, none) != StateResult.HIT) {
            mark_to_drop(standard_metadata);
            return;
        }
        counts.get(key, count);
        check_count(count);
        count.packets = count.packets - 1000000;
#endif
#ifdef GROUPED
        source_t of_all = { hdr.ipv4.source };
        count_t total;
        if (totals.get_or_allocate(of_all, total) != StateResult.HIT) {
            mark_to_drop(standard_metadata);
            return;
        }
        check_count(total);
        total.packets = total.packets + 1;
        repeat_count(total);
        totals.set(of_all, total);
#endif
        count.packets = count.packets + 1;
        repeat_count(count);
        counts.set(key, count);
        // The destination port says how far the flow has come, for who tests that. (83, above: that
        // the packet is the host's.)
        if (hdr.udp.destination_port == 81) {
            counts.phase(key, FlowPhase.HALF_CLOSED);
        } else if (hdr.udp.destination_port == 82) {
            counts.phase(key, FlowPhase.CLOSED);
        } else if (hdr.udp.destination_port == 85) {
            counts.phase(key, FlowPhase.HALF_OPEN);
        }
        hdr.payload.count = count.packets;
        standard_metadata.egress_spec = 3;
    }
}

control CounterEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply { } }

control CounterCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control CounterDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(CounterParser(), CounterVerify(), CounterIngress(), CounterEgress(), CounterCompute(), CounterDeparser()) main;
