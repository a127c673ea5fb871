// Fields between byte boundaries that are more than 128 bits apart, in the packet and in hashes.
#include <core.p4>
#include <v1model.p4>

header tag_t { bit<8> what; bit<8> left; }
header long_t { bit<4> a; bit<128> b; bit<130> w; bit<2> c; bit<3> d; int<128> e; bit<5> f; }
header sum_t { bit<16> sum; bit<32> crc; }
struct headers_t { tag_t tag; tag_t more; long_t long; sum_t sum; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.tag);
        transition select(hdr.tag.what) { 4: peek; 5: more; _: long; }
    }
    state more { pkt.extract(hdr.more); transition long; }
    state peek { hdr.long = pkt.lookahead<long_t>(); transition accept; }
    state long { pkt.extract(hdr.long); pkt.extract(hdr.sum); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        long_t l = hdr.long;
        switch (hdr.tag.what) {
            0: { hdr.long.a = hdr.long.a + 1; hdr.long.f = hdr.long.f - 1; }
            1: { hdr.long.b = hdr.long.b ^ 0x8000000000000000000000000000000f; }
            2: { hdr.long.w[7:0] = l.b[7:0]; hdr.long.w[129:122] = l.e[127:120]; }
            3: { hdr.long.e = -hdr.long.e; hdr.long.c = l.d[2:1]; }
            5: { hdr.more.setInvalid(); hdr.long.d = 5; }
            6: { hdr.long = { 15, l.b, l.w, 1, l.d, l.e, 16 }; }
            default: { }
        }
        hash(hdr.sum.sum, HashAlgorithm.csum16, 16w0, { l.a, l.b, l.w, l.e, l.f, 9w1 },
            32w0x10000);
        hash(hdr.sum.crc, HashAlgorithm.crc32, 32w0, { l.a, l.b, l.w, l.c, l.d, l.e, l.f },
            64w0x100000000);
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
