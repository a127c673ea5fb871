#include <core.p4>
#include <v1model.p4>
typedef bit<128> ipv6_addr_t;
header ethernet_h { bit<48> dst; bit<48> src; bit<16> type; }
header ipv6_h { bit<4> version; bit<8> tc; bit<20> flow; bit<16> len; bit<8> next_hdr; bit<8> hop; ipv6_addr_t src; ipv6_addr_t dst; }
header srh_h { bit<8> next_hdr; bit<8> ext_len; bit<8> routing_type; bit<8> segment_left; bit<8> last_entry; bit<8> flags; bit<16> tag; }
header seg_h { ipv6_addr_t sid; }
header ipv4_h { bit<160> all; }
struct headers_t { ethernet_h ethernet; ipv6_h ipv6; srh_h srh; seg_h[6] segs; ipv6_h inner_ipv6; ipv4_h inner_ipv4; }
struct meta_t { ipv6_addr_t next_sid; bit<8> left; bit<32> h; }
parser P(packet_in p, out headers_t hdr, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.ethernet); transition select(hdr.ethernet.type) { 0x86dd: ipv6; default: accept; } }
    state ipv6 { p.extract(hdr.ipv6); transition select(hdr.ipv6.next_hdr) { 43: srh; default: accept; } }
    state srh { p.extract(hdr.srh); m.left = hdr.srh.segment_left; transition select(hdr.srh.routing_type) { 4: segs; default: accept; } }
    state segs {
        p.extract(hdr.segs.next);
        bool here = (bit<8>)hdr.segs.lastIndex == m.left - 1;
        if (here) { m.next_sid = hdr.segs.last.sid; }
        bool done = (bit<32>)hdr.segs.lastIndex == (bit<32>)hdr.srh.last_entry;
        transition select(done) { true: inner; false: segs; }
    }
    state inner { transition select(hdr.srh.next_hdr) { 41: inner6; 4: inner4; default: accept; } }
    state inner6 { p.extract(hdr.inner_ipv6); transition accept; }
    state inner4 { p.extract(hdr.inner_ipv4); transition accept; }
}
control V(inout headers_t hdr, inout meta_t m) { apply { } }
control I(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) {
    action end() { hdr.ipv6.dst = m.next_sid; hdr.srh.segment_left = hdr.srh.segment_left - 1; }
    action end_psp() {
        hdr.ipv6.dst = m.next_sid;
        hdr.ipv6.next_hdr = hdr.srh.next_hdr;
        hdr.ipv6.len = hdr.ipv6.len - (((bit<16>)hdr.srh.ext_len << 3) + 8);
        hdr.srh.setInvalid();
        hdr.segs[0].setInvalid(); hdr.segs[1].setInvalid(); hdr.segs[2].setInvalid();
        hdr.segs[3].setInvalid(); hdr.segs[4].setInvalid(); hdr.segs[5].setInvalid();
    }
    action decap6() {
        hdr.ipv6 = hdr.inner_ipv6;
        hdr.inner_ipv6.setInvalid();
        hdr.srh.setInvalid();
        hdr.segs.pop_front(6);
    }
    action insert(ipv6_addr_t s1, ipv6_addr_t s2) {
        hdr.inner_ipv6 = hdr.ipv6;
        hdr.srh = { 41, 4, 4, 1, 1, 0, 0 };
        hdr.segs[0].setValid(); hdr.segs[0].sid = s2;
        hdr.segs[1].setValid(); hdr.segs[1].sid = s1;
        hdr.ipv6.dst = s1;
        hdr.ipv6.len = hdr.ipv6.len + 40 + 40;
        hdr.ipv6.next_hdr = 43;
    }
    table my_sid { key = { hdr.ipv6.dst: lpm; } actions = { end; end_psp; decap6; insert; NoAction; } size = 256; default_action = NoAction(); }
    action drop_() { mark_to_drop(s); }
    action fwd(bit<48> mac, bit<9> port) { hdr.ethernet.dst = mac; s.egress_spec = port; hdr.ipv6.hop = hdr.ipv6.hop - 1; }
    table route { key = { hdr.ipv6.dst: lpm; } actions = { fwd; @defaultonly drop_; } const default_action = drop_(); }
    apply {
        if (hdr.ipv6.isValid()) {
            if (my_sid.apply().miss) { m.h = 1; }
            route.apply();
        }
    }
}
control E(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) { apply { } }
control C(inout headers_t hdr, inout meta_t m) { apply { } }
control D(packet_out p, in headers_t hdr) { apply { p.emit(hdr.ethernet); p.emit(hdr.ipv6); p.emit(hdr.srh); p.emit(hdr.segs); p.emit(hdr.inner_ipv6); p.emit(hdr.inner_ipv4); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
