// gateway_router.p4: an IPv4 and IPv6 router that leaves to the kernel what the kernel must do,
// answers what is too big, and routes fragments by the ports of the first.
//
// What it found of a fragment's ports goes into the source MAC's lower half, so that tests see it.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<8> ICMP_UNREACHABLE = 3;
const bit<8> ICMP_CODE_FRAGMENTATION_NEEDED = 4;
const bit<8> ICMPV6_TOO_BIG = 2;

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> identification;
    bit<1>  reserved;
    bit<1>  dont_fragment;
    bit<1>  more_fragments;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header ipv6_t {
    bit<4>   version;
    bit<8>   traffic_class;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> source;
    bit<128> destination;
}

header ports_t {
    bit<16> source_port;
    bit<16> destination_port;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t     ipv4;
    ipv6_t     ipv6;
    ports_t    ports;
}

struct metadata_t { }

parser RouterParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.ihl) {
            (0, 5): ports;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        transition accept;
    }

    state ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control RouterVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control RouterIngress(inout headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets) full;

    apply {
        if (!gateway_check()) {
            mark_to_drop(standard_metadata);
            return;
        }
        FibResult way = FibResult.LOCAL;
        bit<16> source_port = 0;
        bit<16> destination_port = 0;
        if (hdr.ports.isValid()) {
            source_port = hdr.ports.source_port;
            destination_port = hdr.ports.destination_port;
        }
        if (hdr.ipv4.isValid()) {
            if (hdr.ipv4.more_fragments == 1 || hdr.ipv4.fragment_offset != 0) {
                FragmentResult known = fragment_ports(
                    (bit<128>)hdr.ipv4.source, (bit<128>)hdr.ipv4.destination,
                    (bit<32>)hdr.ipv4.identification, hdr.ipv4.protocol,
                    hdr.ipv4.fragment_offset == 0, source_port, destination_port);
                if (known != FragmentResult.PORTS) {
                    full.count(0);
                    mark_to_drop(standard_metadata);
                    return;
                }
            }
            way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, hdr.ipv4.protocol,
                                  source_port, destination_port, hdr.ipv4.total_length,
                                  hdr.ipv4.tos,
                                  standard_metadata.egress_spec, hdr.ethernet.source,
                                  hdr.ethernet.destination);
        } else if (hdr.ipv6.isValid()) {
            way = fib_lookup_ipv6(hdr.ipv6.source, hdr.ipv6.destination, hdr.ipv6.next_header,
                                  source_port, destination_port, hdr.ipv6.payload_length,
                                  hdr.ipv6.flow_label, standard_metadata.egress_spec,
                                  hdr.ethernet.source, hdr.ethernet.destination);
        }
        if (way == FibResult.LOCAL || way == FibResult.UNREACHABLE) {
            to_host();
            return;
        }
        if (way == FibResult.TOO_BIG && hdr.ipv6.isValid()) {
            reply_icmp_error(ICMPV6_TOO_BIG, 0, (bit<32>)fib_mtu());
            return;
        }
        if (way == FibResult.TOO_BIG && hdr.ipv4.dont_fragment == 1) {
            reply_icmp_error(ICMP_UNREACHABLE, ICMP_CODE_FRAGMENTATION_NEEDED, (bit<32>)fib_mtu());
            return;
        }
        if (way != FibResult.FORWARD) {
            standard_metadata.egress_spec = KERNEL_PORT;
        }
        if (hdr.ipv4.isValid()) {
            bit<17> sum = (bit<17>)hdr.ipv4.checksum + 0x0100;
            hdr.ipv4.checksum = sum[15:0] + (bit<16>)sum[16:16];
            hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            if (hdr.ipv4.more_fragments == 1 || hdr.ipv4.fragment_offset != 0) {
                hdr.ethernet.source[31:16] = source_port;
                hdr.ethernet.source[15:0] = destination_port;
            }
        } else {
            hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
        }
        clamp_tcp_mss();
    }
}

control RouterEgress(inout headers_t hdr, inout metadata_t meta,
                     inout standard_metadata_t standard_metadata) {
    apply { }
}

control RouterComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control RouterDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(RouterParser(), RouterVerifyChecksum(), RouterIngress(), RouterEgress(),
         RouterComputeChecksum(), RouterDeparser()) main;
