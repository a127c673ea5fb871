// Rules on SnapshotState objects.
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
struct wider_t {
    bit<128> a;
    bit<128> b;
    bit<128> c;
    bit<128> d;
    bit<8>   e;
}
struct wide_t {
    bit<128> a;
    bit<128> b;
    bit<128> c;
    bit<128> d;
}
struct two_t {
    bit<32> a;
    bit<32> b;
}
struct narrow_t {
    bit<32> a;
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
    SnapshotState<key_t, bit<32>>(16, 64, 1000, 10000, Overdue.MARK) never_asked; // refused: the program never asks is_overdue
    SnapshotState<key_t, bit<32>>(16, 64, 1000, 10000, Overdue.MARK) asked;
    SnapshotState<key_t, bit<32>>(16, 64, 0, 0, Overdue.MARK) not_saved;
    SnapshotState<wider_t, bit<32>>(16, 64, 1000, 10000, Overdue.DROP) key; // refused: the key has 65 bytes, not 1 to 64
    SnapshotState<key_t, bit<65>>(16, 64, 1000, 10000, Overdue.DROP) slot; // refused: slots must be bit<W>
    SnapshotState<key_t, bit<32>>(0, 64, 1000, 10000, Overdue.DROP) none; // refused: needs room for at least one key
    SnapshotState<key_t, bit<64>>(16, 8193, 1000, 10000, Overdue.DROP) slots; // refused: 8193 slots of 8 bytes; possible are 1 to 8192
    SnapshotState<key_t, bit<32>>(16, 64, 99, 10000, Overdue.DROP) period; // refused: a period of 99
    SnapshotState<key_t, bit<32>>(16, 64, 1000, 1000, Overdue.DROP) epsilon; // refused: not more than the period of 1000
    SnapshotState<wide_t, bit<32>>(16, 64, 1000, 10000, Overdue.DROP, Merge.NONE) wide;
    SnapshotState<wide_t, bit<32>>(16, 64, 1000, 10000, Overdue.DROP, Merge.SUM) merged_key; // refused: the key has 64 bytes, more than the 60 of an object that is merged
    SnapshotState<key_t, bit<32>>(16, 64, 0, 0, Overdue.DROP, Merge.MAX) merged_local; // refused: Merge, but no snapshots
    SnapshotState<key_t, bit<16>>(16, 64, 1000, 10000, Overdue.DROP, Merge.SUM) merged_windows;
    apply {
        bit<32> sum;
        two_t sums;
        narrow_t one;
        never_asked.add({ 1 }, 0, 1, sum);
        asked.add_each({ 1 }, { 32w0, 32w1 }, 1, sums);
        if (asked.is_overdue({ 1 })) {
            hdr.h.a = 1;
        }
        asked.add_each({ 1 }, { 32w0, 32w1 }, 1, one); // refused: the results of this add_each must be a struct of 2 bit<32>
        merged_windows.begin({ 1 }, 7); // refused: a merged object's windows need numbers of 32 bits, not 16
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
