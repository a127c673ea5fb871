// small_nat.p4: a NAT for UDP that fits a screen or two. nat.p4 is the one to deploy.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>
#include <checksum.p4>

#ifndef NAT_CONSISTENCY
#define NAT_CONSISTENCY Consistency.LINEARIZABLE // each binding outlives its switch
#endif

struct headers_t { ethernet_t ethernet; ipv4_t ipv4; udp_t udp; }
struct metadata_t { bool outbound; }
struct flow_key_t {
    bit<32> source; bit<32> destination; bit<16> source_port; bit<16> destination_port; bit<8> protocol;
}
struct binding_t { bit<32> address; bit<16> port; }

parser NatParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) { ETHERTYPE_IPV4: ipv4; default: accept; }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.ihl, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (5, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }
    state udp { packet.extract(hdr.udp); transition accept; }
}

control NatIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    FlowState<flow_key_t, binding_t>(65536, NAT_CONSISTENCY, Allocator.NAT_PORTS) bindings;
    action mark_inside() { meta.outbound = true; }
    table inside { key = { hdr.ipv4.source: lpm; } actions = { mark_inside; NoAction; } size = 64; }

    apply {
        // malformed, or a source that cannot be
        if (!gateway_check()) { mark_to_drop(std); return; }
        if (!hdr.udp.isValid() || hdr.ipv4.ttl <= 1) { to_host(); return; }
        inside.apply();
        flow_key_t key = { hdr.ipv4.source, hdr.ipv4.destination, hdr.udp.source_port,
            hdr.udp.destination_port, PROTOCOL_UDP };
        binding_t binding;
        StateResult result = meta.outbound ? bindings.get_or_allocate(key, binding)
            : bindings.get(key, binding);
        if (result != StateResult.HIT) { mark_to_drop(std); return; }
        bit<64> address; // what the new address and port add to the checksums
        bit<64> port;
        if (meta.outbound) {
            address = replaced_address(hdr.ipv4.source, binding.address);
            port = replaced_word(hdr.udp.source_port, binding.port);
            hdr.ipv4.source = binding.address;
            hdr.udp.source_port = binding.port;
        } else {
            address = replaced_address(hdr.ipv4.destination, binding.address);
            port = replaced_word(hdr.udp.destination_port, binding.port);
            hdr.ipv4.destination = binding.address;
            hdr.udp.destination_port = binding.port;
        }
        hdr.udp.checksum = adjusted_udp(hdr.udp.checksum, address + port);
        hdr.ipv4.checksum = adjusted(hdr.ipv4.checksum, address + TTL_DECREMENTED);
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
        FibResult way = fib_lookup_ipv4(hdr.ipv4.source, hdr.ipv4.destination, PROTOCOL_UDP,
            hdr.udp.source_port, hdr.udp.destination_port, hdr.ipv4.total_length, hdr.ipv4.tos,
            std.egress_spec, hdr.ethernet.source, hdr.ethernet.destination);
        // the kernel resolves, or fragments
        if (way != FibResult.FORWARD) { std.egress_spec = KERNEL_PORT; }
    }
}

control NatVerify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NatEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t std) { apply { } }
control NatCompute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control NatDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(NatParser(), NatVerify(), NatIngress(), NatEgress(), NatCompute(), NatDeparser()) main;
