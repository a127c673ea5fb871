// Every hash algorithm over nine bytes; the check value of a CRC is that of "123456789".
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8>  a;
    bit<32> b;
    bit<20> c;
    bit<12> d;
}

header result_t {
    bit<32> crc32;
    bit<16> crc16;
    bit<16> csum16;
    bit<16> xor16;
    bit<64> identity;
    bit<16> based;
    bit<16> no_range;
    bit<32> custom;
}

struct headers_t {
    data_t   data;
    result_t result;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.data);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        hdr.result.setValid();
        hash(hdr.result.crc32, HashAlgorithm.crc32, 32w0,
             { hdr.data.a, hdr.data.b, hdr.data.c, hdr.data.d }, 64w0x100000000);
        hash(hdr.result.crc16, HashAlgorithm.crc16, 16w0,
             { hdr.data.a, hdr.data.b, hdr.data.c, hdr.data.d }, 32w0x10000);
        hash(hdr.result.csum16, HashAlgorithm.csum16, 16w0,
             { hdr.data.a, hdr.data.b, hdr.data.c, hdr.data.d }, 32w0x10000);
        hash(hdr.result.xor16, HashAlgorithm.xor16, 16w0,
             { hdr.data.a, hdr.data.b, hdr.data.c, hdr.data.d }, 32w0x10000);
        hash(hdr.result.identity, HashAlgorithm.identity, 64w0,
             { hdr.data.a, hdr.data.b, hdr.data.c, hdr.data.d }, 128w0x10000000000000000);
        hash(hdr.result.based, HashAlgorithm.crc32, 16w1000,
             { hdr.data.a, hdr.data.b, hdr.data.c, hdr.data.d }, 16w100);
        hash(hdr.result.no_range, HashAlgorithm.crc32, 16w77, { hdr.data.a }, 16w0);
        hash(hdr.result.custom, HashAlgorithm.crc32_custom, 32w0, { hdr.data.a, hdr.data.b },
             64w0x100000000);
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
