// What the XDP target does not do.
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

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    value_set<bit<8>>(4) known; // refused: extern value_set is not supported
    state start {
        packet.extract(hdr.h);
        transition select(hdr.h.a) {
            known: accept; // refused: parser value sets are not supported
            default: accept;
        }
    }
}
control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control ThisIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<8>>(2000000000) large; // refused: 2000000000 elements
    register<bit<16>>(1) groups;
    apply {
        bit<8> read;
        bit<96> random_number;
        large.read(read, 0);
        random(random_number, 96w0, 96w1); // refused: random() makes at most 64 bits
        groups.read(standard_metadata.mcast_grp, 0); // refused: multicast
        groups.write(0, standard_metadata.mcast_grp + 1);
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
