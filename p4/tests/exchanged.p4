// Tables whose entries are exchanged as one: exact keys, and a prefix beside an exact key. A table
// without entries misses.
#include <core.p4>
#include <v1model.p4>

header h_t { bit<16> group; bit<32> address; bit<64> first; bit<64> second; }
struct headers_t { h_t h; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.h);
        transition accept;
    }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    action take_part(bit<64> first, bit<64> second) {
        hdr.h.first = first;
        hdr.h.second = second;
    }
    action no_part() { hdr.h.first = 0xffff; }
    action leave_by(bit<9> port) { sm.egress_spec = port; }
    action stay() { mark_to_drop(sm); }
    table roles {
        key = { hdr.h.group: exact; }
        actions = { take_part; no_part; }
        const default_action = no_part();
        stateplane_exchange = true;
        stateplane_per_incarnation = true;
        size = 8;
    }
    table routes {
        key = { hdr.h.group: exact; hdr.h.address: lpm; }
        actions = { leave_by; stay; }
        const default_action = stay();
        entries = { (1, 0x0a000000 &&& 0xff000000): leave_by(1); }
        stateplane_exchange = true;
    }
    table both {
        key = { hdr.h.group: exact; hdr.h.address: exact; }
        actions = { take_part; NoAction; }
        const default_action = NoAction();
        stateplane_exchange = true;
    }
    apply {
        roles.apply();
        if (!both.apply().hit) {
            hdr.h.second = hdr.h.second + 1;
        }
        routes.apply();
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
