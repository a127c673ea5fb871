// several_objects.p4: a packet counts in its connection and in its user's total. Both are set by
// one packet, so both take effect or none does. It carries out what it counted.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header request_t {
    bit<32> user;
    bit<32> connection;
    bit<16> bytes; // 0: only reads
    bit<32> packets;
    bit<64> total;
}

struct headers_t {
    ethernet_t ethernet;
    request_t  request;
}

struct connection_t {
    bit<32> user;
    bit<32> connection;
}

struct user_t {
    bit<32> user;
}

struct packets_t {
    bit<32> packets;
}

struct total_t {
    bit<64> bytes;
}

struct metadata_t { }

parser SeveralParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.request);
        transition accept;
    }
}

control SeveralVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }

control SeveralIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    // The user picks the shard of both.
    FlowState<connection_t, packets_t>(1024, Consistency.LINEARIZABLE, Allocator.ZERO, 1)
        connections;
    FlowState<user_t, total_t>(1024, Consistency.LINEARIZABLE, Allocator.ZERO, 1) totals;

    apply {
        user_t user = { hdr.request.user };
        connection_t connection = { hdr.request.user, hdr.request.connection };
        total_t total;
        packets_t packets;
        standard_metadata.egress_spec = 1;
        if (totals.get_or_allocate(user, total) != StateResult.HIT) {
            mark_to_drop(standard_metadata);
            return;
        }
        if (hdr.request.bytes != 0) {
            total.bytes = total.bytes + (bit<64>)hdr.request.bytes;
            totals.set(user, total);
        }
        // The packet may have to wait for this one, though it has set the other.
        if (connections.get_or_allocate(connection, packets) != StateResult.HIT) {
            mark_to_drop(standard_metadata);
            return;
        }
        if (hdr.request.bytes != 0) {
            packets.packets = packets.packets + 1;
            connections.set(connection, packets);
        }
        hdr.request.packets = packets.packets;
        hdr.request.total = total.bytes;
    }
}

control SeveralEgress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    apply { }
}

control SeveralCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control SeveralDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(SeveralParser(), SeveralVerify(), SeveralIngress(), SeveralEgress(), SeveralCompute(),
         SeveralDeparser()) main;
