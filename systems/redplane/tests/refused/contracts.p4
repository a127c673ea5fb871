// What stateplane/redplane.p4 demands of the order of calls, and of allocators' types.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

header h_t {
    bit<8> a;
    bit<8> b;
}
struct headers_t {
    h_t h;
}
struct metadata_t { }
struct key_t {
    bit<8> k;
}
struct value_t {
    bit<32> v;
}
struct short_t {
    bit<32> source;
    bit<32> destination;
}
parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition accept;
    }
}
control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

FlowState<key_t, value_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) flows;
FlowState<key_t, value_t>(16, Consistency.LOCAL, Allocator.ZERO) here;
SnapshotState<key_t, bit<32>>(16, 64, 1000, 10000, Overdue.DROP) counts;
control ThisIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    FlowState<short_t, value_t>(16, Consistency.LOCAL, Allocator.NAT_PORTS) nat; // refused: Allocator.NAT_PORTS with a key
    FlowState<short_t, value_t>(16, Consistency.LOCAL, Allocator.BACKENDS) backends; // refused: Allocator.BACKENDS with a key
    value_t value = { 0 };
    action change() {
        here.set({ hdr.h.a }, value); // refused: a second `set` on one path // refused: after an access to a SnapshotState
    }
    table changes {
        key = { hdr.h.b: exact; }
        actions = { change; NoAction; }
    }
    apply {
        bit<32> sum;
        here.phase({ hdr.h.a }, FlowPhase.OPEN); // refused: `phase` of a key that was not looked up
        here.get({ hdr.h.a }, value);
        flows.get({ 1 }, value);
        flows.set({ 2 }, value); // refused: not the last one looked up
        counts.add({ 1 }, 0, 1, sum);
        counts.add({ 2 }, 0, 1, sum); // refused: with a second key
        changes.apply();
        standard_metadata.egress_spec = 1;
    }
}
control ThisEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        value_t value;
        flows.get({ 1 }, value); // refused: after an access to a SnapshotState
    }
}
control Compute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}
control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.h);
    }
}
V1Switch(Parse(), Verify(), ThisIngress(), ThisEgress(), Compute(), Deparse()) main;
