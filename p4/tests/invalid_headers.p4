// What P4-16 leaves open about invalid headers is as in bmv2: their fields add no bits to hashes
// and checksums, setValid() clears them, and setInvalid() of a union's member says nothing of the
// others.
#include <core.p4>
#include <v1model.p4>

header base_t { bit<8> kind; bit<8> n; }
header x_t { bit<8> a; bit<16> b; }
header y_t { bit<4> c; bit<12> d; }
header v_t { varbit<32> v; }
header u1_t { bit<8> a; }
header u2_t { bit<16> a; }
header_union u_t { u1_t one; u2_t two; }
header sums_t {
    bit<32> crc32; bit<16> crc16; bit<16> xor16; bit<64> identity; bit<16> sum; bit<16> payload;
    bit<16> whole;
}
struct headers_t { sums_t sums; base_t base; x_t x; y_t y; v_t v; u_t u; }
struct meta_t { }

parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.base);
        transition select(hdr.base.kind[0:0]) { 1: x; default: after_x; }
    }
    state x { pkt.extract(hdr.x); transition after_x; }
    state after_x { transition select(hdr.base.kind[1:1]) { 1: y; default: after_y; } }
    state y { pkt.extract(hdr.y); transition after_y; }
    state after_y { transition select(hdr.base.kind[2:2]) { 1: v; default: after_v; } }
    state v { pkt.extract(hdr.v, (bit<32>)hdr.base.n << 3); transition after_v; }
    state after_v { transition select(hdr.base.kind[4:3]) { 1: one; 2: two; default: accept; } }
    state one { pkt.extract(hdr.u.one); transition accept; }
    state two { pkt.extract(hdr.u.two); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) {
    apply {
        // Outside a list the field is a value, also in an invalid header.
        verify_checksum(true, { hdr.base.kind }, hdr.x.b, HashAlgorithm.csum16);
    }
}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.sums.setValid();
        hash(hdr.sums.crc32, HashAlgorithm.crc32, 32w0,
             { hdr.x.a, hdr.y.c, hdr.base.n, hdr.x.b, hdr.v.v, hdr.y.d }, 34w0x200000000);
        hash(hdr.sums.crc16, HashAlgorithm.crc16, 16w0,
             { hdr.y, hdr.x.b, hdr.base.kind }, 32w0x10000);
        hash(hdr.sums.xor16, HashAlgorithm.xor16, 16w0,
             { hdr.x.a, hdr.base.kind, hdr.y.c, hdr.y.d }, 32w0x10000);
        hash(hdr.sums.identity, HashAlgorithm.identity, 64w0,
             { hdr.y.c, hdr.x.b, 4w5, hdr.y.d }, 64w0xffffffffffffffff);
        if (hdr.base.kind[5:5] == 1) {
            // Cleared, and not what the packet had in its place.
            hdr.x.setInvalid();
            hdr.x.setValid();
            hdr.x.a = hdr.x.a + 1;
        }
        if (hdr.base.kind[6:6] == 1) {
            hdr.u.one.setInvalid();
        }
    }
}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(true, { hdr.x.a, hdr.y.c, hdr.v.v, hdr.base.n, hdr.x.b, hdr.y.d },
                        hdr.sums.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(true, { hdr.x.a, hdr.y.c, hdr.base.n },
                                     hdr.sums.payload, HashAlgorithm.csum16);
        update_checksum(true, { hdr.base, hdr.y, hdr.x.b }, hdr.sums.whole, HashAlgorithm.csum16);
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
