// flow_counter.p4: counts the packets of every flow, and stamps each packet with its number.
//
// The hardest kind of state for fault tolerance, as every packet changes it (RedPlane's
// Sync-Counter, §7): each packet's output depends on its own update, so it may leave only when the
// update is on every server of the chain. Two packets of a flow never carry the same number,
// whichever switch they went through: that is what linearizable means here, and what a test can
// check from outside.
//
// IPv4 without options; a flow is a 5-tuple (ports 0 for protocols other than TCP and UDP, and for
// fragments). The low 16 bits of the number go into the IPv4 identification field, which has no
// other meaning in packets that may not be fragmented (RFC 6864): "don't fragment" is set too.
//
// -DCOUNTER_ASYNC: packets do not wait for the store (RedPlane's Async-Counter): a count survives
// its switch but for the last few milliseconds, so after a failure numbers can be given again. A
// flow that moves while both switches live goes on exactly where it was. -DCOUNTER_LOCAL: the same
// without fault tolerance.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>

#ifdef COUNTER_LOCAL
#define COUNTER_CONSISTENCY Consistency.LOCAL
#elif defined(COUNTER_ASYNC)
#define COUNTER_CONSISTENCY Consistency.ASYNCHRONOUS
#else
#define COUNTER_CONSISTENCY Consistency.LINEARIZABLE
#endif

// Flows on this switch.
#ifndef COUNTER_FLOWS
#define COUNTER_FLOWS 65536
#endif

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ports_t    ports;
}

struct five_tuple_t {
    bit<32> source;
    bit<32> destination;
    bit<16> source_port;
    bit<16> destination_port;
    bit<8>  protocol;
}

struct count_t {
    bit<64> packets;
}

struct metadata_t {
    five_tuple_t flow;
}

parser CounterParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        meta.flow = { hdr.ipv4.source, hdr.ipv4.destination, 0, 0, hdr.ipv4.protocol };
        transition select(hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_TCP): ports;
            (0, 0, PROTOCOL_UDP): ports;
            default: accept;
        }
    }

    state ports {
        packet.extract(hdr.ports);
        meta.flow.source_port = hdr.ports.source_port;
        meta.flow.destination_port = hdr.ports.destination_port;
        transition accept;
    }
}

control CounterVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control CounterIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    FlowState<five_tuple_t, count_t>(COUNTER_FLOWS, COUNTER_CONSISTENCY, Allocator.ZERO) flows;

    // Packets numbered and sent on.
    counter(1, CounterType.packets) numbered;
    // Dropped: the store (-DCOUNTER_LOCAL: this switch) has no room for the flow. (If only this
    // switch has none, the runtime drops the packet: `flows_full`.)
    counter(1, CounterType.packets) no_room;
    // To the kernel: not IPv4 without options, hop limit reached, fragments, or no resolved next
    // hop.
    counter(1, CounterType.packets) to_kernel;

    apply {
        if (standard_metadata.parser_error != error.NoError || !hdr.ipv4.isValid()
            || hdr.ipv4.version != 4 || hdr.ipv4.ihl != 5
            || hdr.ipv4.ttl <= 1 || hdr.ipv4.more_fragments == 1 || hdr.ipv4.fragment_offset != 0) {
            to_kernel.count(0);
            to_host();
            return;
        }
        // The way first: what cannot be sent on is not counted.
        if (fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                            meta.flow.source_port, meta.flow.destination_port,
                            hdr.ipv4.total_length, hdr.ipv4.tos, standard_metadata.egress_spec,
                            hdr.ethernet.source,
                            hdr.ethernet.destination) != FibResult.FORWARD) {
            to_kernel.count(0);
            to_host();
            return;
        }
        count_t count;
        StateResult result = flows.get_or_allocate(meta.flow, count);
        if (result == StateResult.MISS) {
            no_room.count(0);
            mark_to_drop(standard_metadata);
            return;
        }
        count.packets = count.packets + 1;
        flows.set(meta.flow, count);

        hdr.ipv4.identification = count.packets[15:0];
        hdr.ipv4.dont_fragment = 1;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        numbered.count(0);
    }
}

control CounterEgress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    apply { }
}

control CounterComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
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

control CounterDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(CounterParser(), CounterVerifyChecksum(), CounterIngress(), CounterEgress(),
         CounterComputeChecksum(), CounterDeparser()) main;
