// Fields of every alignment: extracted, changed, and written back in place.
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header odd_t {
    bit<3>   a;
    bit<13>  b;
    bit<4>   c;
    bit<20>  d;
    bit<48>  e;
    bit<128> f;
    bit<1>   g;
    bit<7>   h;
    bit<33>  i;
    bit<31>  j;
    bit<12>  k;
    bit<64>  l;
    bit<4>   m;
    bit<9>   n;
    bit<55>  o;
}

header wide_t {
    bit<160> p;
    bit<16>  q;
}

struct headers_t {
    odd_t  odd;
    wide_t wide;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.odd);
        packet.extract(hdr.wide);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        hdr.odd.a = hdr.odd.a + 1;
        hdr.odd.b = hdr.odd.b + 1;
        hdr.odd.c = hdr.odd.c + 1;
        hdr.odd.d = hdr.odd.d + 1;
        hdr.odd.e = hdr.odd.e + 1;
        hdr.odd.f = hdr.odd.f + 1;
        hdr.odd.g = hdr.odd.g + 1;
        hdr.odd.h = hdr.odd.h + 1;
        hdr.odd.i = hdr.odd.i + 1;
        hdr.odd.j = hdr.odd.j + 1;
        hdr.odd.k = hdr.odd.k + 1;
        hdr.odd.l = hdr.odd.l + 1;
        hdr.odd.m = hdr.odd.m + 1;
        hdr.odd.n = hdr.odd.n + 1;
        hdr.odd.o = hdr.odd.o + 1;
        hdr.wide.q = hdr.wide.p[31:16];
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
