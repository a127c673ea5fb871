#include <core.p4>
#define V1MODEL_VERSION 20180101
#include <v1model.p4>
// VLAN push/pop, QinQ, MPLS, IPv6, header copy, verify, all in one.
typedef bit<48> mac_t;
type bit<12> vid_t;
enum bit<16> EtherType { VLAN = 0x8100, QINQ = 0x88a8, MPLS = 0x8847, IPV4 = 0x0800, IPV6 = 0x86dd,
                         ARP = 0x0806 }
enum Mode { ACCESS, TRUNK, ROUTED }
error { BadTtl, BadVersion }
header eth_h { mac_t dst; mac_t src; EtherType type; }
header vlan_h { bit<3> pcp; bit<1> dei; bit<12> vid; EtherType type; }
header mpls_h { bit<20> label; bit<3> tc; bit<1> bos; bit<8> ttl; }
header ipv4_h { bit<4> version; bit<4> ihl; bit<8> tos; bit<16> len; bit<16> id; bit<3> flags; bit<13> frag; bit<8> ttl; bit<8> proto; bit<16> csum; bit<32> src; bit<32> dst; }
header ipv4_opt_h { varbit<320> options; }
header ipv6_h { bit<4> version; bit<8> tc; bit<20> flow; bit<16> len; bit<8> next; bit<8> hop; bit<128> src; bit<128> dst; }
struct headers_t { eth_h eth; vlan_h[2] vlan; mpls_h[3] mpls; ipv4_h ip4; ipv4_opt_h opt; ipv6_h ip6; }
struct l2_t { bit<12> vid; Mode mode; bool tagged; }
struct meta_t { l2_t l2; bit<1> flag; bit<4> nib; }
parser IpParser(packet_in p, inout headers_t h, in EtherType t)(bit<4> ver4) {
    state start {
        transition select(t) {
            EtherType.IPV4: ip4;
            EtherType.IPV6: ip6;
            default: accept;
        }
    }
    state ip4 {
        p.extract(h.ip4);
        verify(h.ip4.version == ver4, error.BadVersion);
        transition select(h.ip4.ihl) { 5: accept; 6..15: options; default: reject; }
    }
    state options { p.extract(h.opt, ((bit<32>)h.ip4.ihl - 5) * 32); transition accept; }
    state ip6 { p.extract(h.ip6); transition accept; }
}
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    IpParser(4) ip;
    state start {
        p.extract(h.eth);
        transition select(h.eth.type) {
            EtherType.VLAN: vlan;
            EtherType.QINQ: vlan;
            EtherType.MPLS: mpls;
            _: l3;
        }
    }
    state vlan {
        p.extract(h.vlan.next);
        m.l2.tagged = true;
        transition select(h.vlan.last.type) { EtherType.VLAN: vlan; EtherType.MPLS: mpls; default: l3v; }
    }
    state mpls {
        p.extract(h.mpls.next);
        transition select(h.mpls.last.bos, p.lookahead<bit<4>>()) {
            (0, _): mpls;
            (1, 4): m4;
            (1, 6): m6;
            default: accept;
        }
    }
    state m4 { ip.apply(p, h, EtherType.IPV4); transition accept; }
    state m6 { ip.apply(p, h, EtherType.IPV6); transition accept; }
    state l3 { ip.apply(p, h, h.eth.type); transition accept; }
    state l3v { ip.apply(p, h, h.vlan.last.type); transition accept; }
}
control V(inout headers_t h, inout meta_t m) { apply {
   verify_checksum(h.ip4.isValid() && !h.opt.isValid(),
                   {h.ip4.version,h.ip4.ihl,h.ip4.tos,h.ip4.len,h.ip4.id,h.ip4.flags,h.ip4.frag,h.ip4.ttl,h.ip4.proto,h.ip4.src,h.ip4.dst}, h.ip4.csum, HashAlgorithm.csum16);
} }
control Push(inout headers_t h, in bit<12> vid) {
    apply {
        if (!h.vlan[0].isValid()) {
            h.vlan.push_front(1);
            h.vlan[0] = { 0, 0, vid, h.eth.type };
            h.eth.type = EtherType.VLAN;
        } else {
            h.vlan.push_front(1);
            h.vlan[0] = h.vlan[1];
            h.vlan[0].vid = vid;
            h.vlan[0].type = EtherType.VLAN;
            h.eth.type = EtherType.QINQ;
        }
    }
}
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    Push() push;
    action set(bit<9> port, Mode mode) { s.egress_spec = port; m.l2.mode = mode; }
    action pop() {
        h.eth.type = h.vlan[0].type;
        h.vlan.pop_front(1);
        s.egress_spec = 2;
    }
    action pop_mpls() {
        bit<8> ttl = h.mpls[0].ttl;
        h.mpls.pop_front(1);
        if (h.mpls[0].isValid()) { h.mpls[0].ttl = ttl - 1; }
        else {
            h.eth.type = h.ip4.isValid() ? EtherType.IPV4 : EtherType.IPV6;
            if (h.ip4.isValid()) h.ip4.ttl = ttl - 1; else if (h.ip6.isValid()) h.ip6.hop = ttl - 1;
        }
        s.egress_spec = 3;
    }
    action drop() { mark_to_drop(s); }
    action pushit(bit<12> vid) { m.l2.vid = vid; s.egress_spec = 4; m.l2.mode = Mode.TRUNK; }
    table l2 {
        key = { s.ingress_port: exact; h.vlan[0].isValid(): exact @name("tagged"); h.vlan[0].vid: ternary @name("vid"); h.mpls[0].isValid() : exact @name("mpls"); }
        actions = { pop; pop_mpls; pushit; drop; @defaultonly NoAction; }
        const entries = {
            (1, false, _, false): pushit(100);
            (2, true, 12w7, false): pop();
            (2, true, 12w8 &&& 12w0xff8, false): pushit(200);
            (3, false, _, true): pop_mpls();
        }
        default_action = drop;
    }
    apply {
        if (s.parser_error != error.NoError) { s.egress_spec = s.parser_error == error.BadVersion ? 9w8 : 9; return; }
        if (s.checksum_error == 1) { drop(); exit; }
        switch (l2.apply().action_run) {
            pushit: { push.apply(h, m.l2.vid); }
            drop: { return; }
            default: { }
        }
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        switch (m.l2.mode) {
            Mode.TRUNK: { h.vlan[0].pcp = 5; }
            default: {}
        }
        if (m.l2.tagged && h.ip6.isValid()) { h.ip6.src[15:0] = h.ip6.dst[127:112]; h.ip6.flow = h.ip6.flow |+| 20w0xfff00; }
    }
}
control C(inout headers_t h, inout meta_t m) { apply {
   update_checksum(h.ip4.isValid(),
                   {h.ip4.version,h.ip4.ihl,h.ip4.tos,h.ip4.len,h.ip4.id,h.ip4.flags,h.ip4.frag,h.ip4.ttl,h.ip4.proto,h.ip4.src,h.ip4.dst,h.opt.options}, h.ip4.csum, HashAlgorithm.csum16);
} }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
