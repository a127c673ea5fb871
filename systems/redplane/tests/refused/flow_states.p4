// Rules on FlowState objects.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

header h_t {
    bit<8> a;
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
struct wide_t {
    bit<128> a0;
    bit<128> a1;
    bit<128> a2;
    bit<128> a3;
    bit<128> a4;
    bit<128> a5;
    bit<128> a6;
    bit<128> a7;
    bit<128> a8;
    bit<128> a9;
    bit<128> a10;
    bit<128> a11;
    bit<128> a12;
    bit<128> a13;
    bit<128> a14;
    bit<128> a15;
}
struct wider_t {
    bit<128> a0;
    bit<128> a1;
    bit<128> a2;
    bit<128> a3;
    bit<128> a4;
    bit<128> a5;
    bit<128> a6;
    bit<128> a7;
    bit<128> a8;
    bit<128> a9;
    bit<128> a10;
    bit<128> a11;
    bit<128> a12;
    bit<128> a13;
    bit<128> a14;
    bit<128> a15;
    bit<1>   b;
}
struct widest_t {
    wide_t wide;
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

control ThisIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    FlowState<key_t, value_t>(100000000, Consistency.LOCAL, Allocator.ZERO) many; // refused: 100000000 elements
    FlowState<wide_t, wide_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) wide;
    FlowState<wider_t, wide_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) wide_key; // refused: the key has 257 bytes, not 1 to 256
    FlowState<wide_t, wider_t>(16, Consistency.LOCAL, Allocator.ZERO) wide_value; // refused: the value has 257 bytes, not 1 to 256
    FlowState<key_t, widest_t>(16, Consistency.LOCAL, Allocator.ZERO) nested; // refused: field wide is not a scalar // refused: the value has 0 bytes
    FlowState<bit<8>, value_t>(16, Consistency.LOCAL, Allocator.ZERO) scalar; // refused: FlowState needs structs as key and value
    FlowState<key_t, value_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) first;
    FlowState<key_t, value_t>(16, Consistency.LINEARIZABLE, Allocator.ZERO) second;
    FlowState<key_t, value_t>(16, Consistency.LOCAL, Allocator.ZERO) unread;
    apply {
        value_t value = { 0 };
        many.get({ 1 }, value);
        first.get_or_allocate({ 1 }, value);
        second.get_or_allocate({ 1 }, value);
        first.set({ 1 }, value);
        second.set({ 1 }, value); // refused: the two do not declare the same shard
        unread.set({ 1 }, value); // refused: FlowState ThisIngress.unread is set, but the program never gets it // refused: a second `set` on one path
        standard_metadata.egress_spec = 1;
    }
}
control ThisEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply { }
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
