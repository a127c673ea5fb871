#include <core.p4>
#include <v1model.p4>
#ifndef __HEADERS__
#define __HEADERS__
#define ETHERTYPE_IPV4 0x0800
#define UDP_PORT_VXLAN 4789
#endif
typedef bit<48> mac_addr_t;
typedef bit<32> ipv4_addr_t;
@controller_header("packet_in") header packet_in_t { bit<9> ingress_port; bit<7> _pad; }
header ethernet_t { mac_addr_t dst_addr; mac_addr_t src_addr; bit<16> ether_type; }
header ipv4_t { bit<4> version; bit<4> ihl; bit<6> dscp; bit<2> ecn; bit<16> total_len; bit<16> identification; bit<3> flags; bit<13> frag_offset; bit<8> ttl; bit<8> protocol; bit<16> hdr_checksum; ipv4_addr_t src_addr; ipv4_addr_t dst_addr; }
header udp_t { bit<16> src_port; bit<16> dst_port; bit<16> length; bit<16> checksum; }
header tcp_t { bit<16> src_port; bit<16> dst_port; bit<32> seq_no; bit<32> ack_no; bit<4> data_offset; bit<4> res; bit<8> flags; bit<16> window; bit<16> checksum; bit<16> urgent_ptr; }
header icmp_t { bit<8> type; bit<8> code; bit<16> checksum; }
header vxlan_t { bit<8> flags; bit<24> reserved; bit<24> vni; bit<8> reserved2; }
header gre_t { bit<1> c; bit<1> r; bit<1> k; bit<13> rest; bit<16> proto; }
struct headers_t {
    ethernet_t ethernet; ipv4_t ipv4; udp_t udp; gre_t gre; vxlan_t vxlan;
    ethernet_t inner_ethernet; ipv4_t inner_ipv4; tcp_t inner_tcp; udp_t inner_udp; icmp_t inner_icmp; tcp_t tcp; icmp_t icmp; packet_in_t pin;
}
struct l4_t { bit<16> src_port; bit<16> dst_port; }
struct five_t { bit<32> src; bit<32> dst; bit<8> proto; l4_t l4; }
struct local_metadata_t { @field_list(1) bit<16> x; l4_t l4; bit<24> vni; bool is_tunnel; five_t five; bit<16> nexthop_group; bit<16> member; bit<2> color; }
parser parser_impl(packet_in packet, out headers_t hdr, inout local_metadata_t local_metadata,
                   inout standard_metadata_t standard_metadata) {
    state start { packet.extract(hdr.ethernet); transition select(hdr.ethernet.ether_type) { ETHERTYPE_IPV4: parse_ipv4; default: accept; } }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.frag_offset, hdr.ipv4.ihl, hdr.ipv4.protocol) {
            (0, 5, 6): parse_tcp; (0, 5, 17): parse_udp; (0, 5, 1): parse_icmp; (0, 5, 47): parse_gre;
            (0 &&& 0, 4w0 &&& 4w0, 8w4): parse_ipip;
            default: accept;
        }
    }
    state parse_tcp { packet.extract(hdr.tcp); local_metadata.l4 = { hdr.tcp.src_port, hdr.tcp.dst_port }; transition accept; }
    state parse_icmp { packet.extract(hdr.icmp); transition accept; }
    state parse_gre { packet.extract(hdr.gre); transition select(hdr.gre.proto) { 0x800: parse_inner_ipv4; 0x6558: parse_inner_ethernet; default: accept; } }
    state parse_ipip { transition parse_inner_ipv4; }
    state parse_udp {
        packet.extract(hdr.udp);
        local_metadata.l4.src_port = hdr.udp.src_port;
        local_metadata.l4.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.dst_port) { UDP_PORT_VXLAN: parse_vxlan; default: accept; }
    }
    state parse_vxlan { packet.extract(hdr.vxlan); local_metadata.vni = hdr.vxlan.vni; transition parse_inner_ethernet; }
    state parse_inner_ethernet { packet.extract(hdr.inner_ethernet); transition select(hdr.inner_ethernet.ether_type) { ETHERTYPE_IPV4: parse_inner_ipv4; default: accept; } }
    state parse_inner_ipv4 { packet.extract(hdr.inner_ipv4); transition select(hdr.inner_ipv4.protocol) { 6: parse_inner_tcp; 17: parse_inner_udp; 1: parse_inner_icmp; default: accept; } }
    state parse_inner_tcp { packet.extract(hdr.inner_tcp); transition accept; }
    state parse_inner_udp { packet.extract(hdr.inner_udp); transition accept; }
    state parse_inner_icmp { packet.extract(hdr.inner_icmp); transition accept; }
}
control verify_ipv4_checksum(inout headers_t hdr, inout local_metadata_t m) { apply { } }
control acl(in headers_t hdr, inout local_metadata_t m, inout standard_metadata_t sm) {
    direct_counter(CounterType.packets_and_bytes) acl_counter;
    action deny() { mark_to_drop(sm); acl_counter.count(); }
    action permit() { acl_counter.count(); }
    action mirror_to(bit<9> p) { sm.egress_spec = p; acl_counter.count(); }
    @id(0x0200) table acl_table {
        key = {
            sm.ingress_port: ternary;
            hdr.ethernet.src_addr: ternary;
            hdr.ipv4.src_addr: ternary;
            hdr.ipv4.dst_addr: ternary;
            hdr.ipv4.protocol: ternary;
            m.l4.src_port: ternary @name("l4_src");
            m.l4.dst_port: ternary @name("l4_dst");
        }
        actions = { deny; permit; mirror_to; @defaultonly NoAction; }
        const default_action = NoAction;
        counters = acl_counter;
        size = 128;
    }
    apply { acl_table.apply(); }
}
control ingress(inout headers_t hdr, inout local_metadata_t m, inout standard_metadata_t sm) {
    action decap_inner() {
        hdr.ethernet = hdr.inner_ethernet;
        hdr.ipv4 = hdr.inner_ipv4;
        hdr.udp = hdr.inner_udp;
        hdr.tcp = hdr.inner_tcp;
        hdr.icmp = hdr.inner_icmp;
        hdr.vxlan.setInvalid();
        hdr.inner_ethernet.setInvalid(); hdr.inner_ipv4.setInvalid(); hdr.inner_udp.setInvalid(); hdr.inner_tcp.setInvalid(); hdr.inner_icmp.setInvalid();
        m.is_tunnel = true;
    }
    action encap(bit<24> vni, bit<32> src, bit<32> dst, bit<48> dmac) {
        hdr.inner_ethernet = hdr.ethernet; hdr.inner_ipv4 = hdr.ipv4; hdr.inner_udp = hdr.udp; hdr.inner_tcp = hdr.tcp; hdr.inner_icmp = hdr.icmp;
        hdr.tcp.setInvalid(); hdr.icmp.setInvalid();
        hdr.ethernet.dst_addr = dmac;
        hdr.ipv4.src_addr = src; hdr.ipv4.dst_addr = dst; hdr.ipv4.protocol = 17; hdr.ipv4.ttl = 64;
        hdr.ipv4.total_len = hdr.inner_ipv4.total_len + 50;
        hdr.ipv4.identification = 0;
        hdr.udp.setValid();
        hdr.udp = { src_port = 0xc000 | (m.five.l4.src_port >> 2), dst_port = UDP_PORT_VXLAN,
                    length = hdr.inner_ipv4.total_len + 30, checksum = 0 };
        hdr.vxlan = { 8, 0, vni, 0 };
    }
    table tunnel { key = { m.vni: exact; hdr.ipv4.dst_addr: exact; } actions = { decap_inner; encap; NoAction; } default_action = NoAction(); size = 1024; }
    action set_group(bit<16> g) { m.nexthop_group = g; }
    table lpm { key = { hdr.ipv4.dst_addr: lpm; } actions = { set_group; NoAction; } default_action = NoAction; }
    action set_port(bit<9> p) { sm.egress_spec = p; }
    table member { key = { m.nexthop_group: exact; m.member: exact; } actions = { set_port; NoAction; } default_action = NoAction; }
    apply {
        m.five = { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, hdr.ipv4.protocol, m.l4 };
        if (hdr.ipv4.isValid()) {
            tunnel.apply();
            if (lpm.apply().hit) {
                hash(m.member, HashAlgorithm.crc32, 16w0,
                     { m.five.src, m.five.dst, m.five.proto, m.five.l4.src_port,
                       m.five.l4.dst_port }, 16w4);
                member.apply();
            } else { sm.egress_spec = 7; }
            acl.apply(hdr, m, sm);
        }
    }
}
control egress(inout headers_t hdr, inout local_metadata_t m, inout standard_metadata_t sm) {
    apply { if (sm.egress_port == 10) { hdr.pin.setValid(); hdr.pin.ingress_port = sm.ingress_port; hdr.pin._pad = 0; } }
}
control compute_ipv4_checksum(inout headers_t hdr, inout local_metadata_t m) {
    apply { update_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr }, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16); }
}
control deparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.pin); packet.emit(hdr.ethernet); packet.emit(hdr.ipv4); packet.emit(hdr.tcp); packet.emit(hdr.icmp); packet.emit(hdr.udp); packet.emit(hdr.gre); packet.emit(hdr.vxlan);
        packet.emit(hdr.inner_ethernet); packet.emit(hdr.inner_ipv4); packet.emit(hdr.inner_tcp); packet.emit(hdr.inner_udp); packet.emit(hdr.inner_icmp);
    }
}
V1Switch(parser_impl(), verify_ipv4_checksum(), ingress(), egress(), compute_ipv4_checksum(),
         deparser()) main;
