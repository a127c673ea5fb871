// A small NAT: every part of the language that a real program leans on.
#include <core.p4>
#include <v1model.p4>

// State of a system: what the checker knows of it is what an extern says.
enum Found { HIT, MISS, WAITING }
enum Home { HERE, AFAR }
extern Bindings<K, V> {
    Bindings(bit<32> size, Home home);
    Found get_or_make(in K key, out V value);
}

typedef bit<48> mac_t;
typedef bit<32> ip4_t;
const bit<16> TYPE_IPV4 = 0x800;
enum bit<8> Protocol { TCP = 6, UDP = 17 }

header ethernet_t { mac_t dst; mac_t src; bit<16> ether_type; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> total_length;
    bit<16> id; bit<3> flags; bit<13> frag; bit<8> ttl; Protocol protocol;
    bit<16> checksum; ip4_t src; ip4_t dst;
}
header ports_t { bit<16> src; bit<16> dst; }
struct headers_t { ethernet_t ethernet; ipv4_t ipv4; ports_t ports; }
struct tuple_t { bit<32> src; bit<32> dst; bit<16> sport; bit<16> dport; bit<8> protocol; }
struct binding_t { bit<32> address; bit<16> port; }
struct meta_t { bit<16> tcp_length; bool outbound; }

parser NatParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            TYPE_IPV4: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.NoMatch);
        transition select(hdr.ipv4.frag, hdr.ipv4.protocol) {
            (0, Protocol.TCP): ports;
            (0, Protocol.UDP): ports;
            (_, _): accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}
control NatVerify(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
            hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.frag, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control NatIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    Bindings<tuple_t, binding_t>(65536, Home.AFAR) bindings;
    register<bit<32>>(1024) seen;
    counter(512, CounterType.packets_and_bytes) ports_counter;
    binding_t binding;
    action drop() { mark_to_drop(std); }
    action forward(bit<9> port, mac_t dst) {
        std.egress_spec = port;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = dst;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { forward; drop; NoAction; }
        size = 1024;
        default_action = drop();
    }
    table sides {
        key = { std.ingress_port: exact; hdr.ipv4.isValid(): exact; }
        actions = { NoAction; drop; }
        const entries = { (1, true): NoAction(); (9w2, false): drop(); }
    }
    apply {
        if (!hdr.ipv4.isValid() || hdr.ipv4.ttl <= 1) {
            drop();
            return;
        }
        bit<32> n;
        seen.read(n, (bit<32>)std.ingress_port);
        seen.write((bit<32>)std.ingress_port, n + 1);
        ports_counter.count((bit<32>)std.ingress_port);
        meta.outbound = sides.apply().hit;
        tuple_t key = { hdr.ipv4.src, hdr.ipv4.dst, hdr.ports.src, hdr.ports.dst, hdr.ipv4.protocol };
        Found result = bindings.get_or_make(key, binding);
        if (result == Found.WAITING) { return; }
        if (result != Found.HIT) { drop(); exit; }
        hdr.ipv4.src = binding.address;
        hdr.ports.src = binding.port;
        switch (routes.apply().action_run) {
            drop: { return; }
            forward: { meta.tcp_length = hdr.ipv4.total_length - ((bit<16>)hdr.ipv4.ihl << 2); }
            default: { }
        }
    }
}
control NatEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) { apply { } }
control NatCompute(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
            hdr.ipv4.id, hdr.ipv4.flags, hdr.ipv4.frag, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}
control NatDeparser(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr); }
}
V1Switch(NatParser(), NatVerify(), NatIngress(), NatEgress(), NatCompute(), NatDeparser()) main;
