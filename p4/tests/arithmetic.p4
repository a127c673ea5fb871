// Every operator, on several widths; the results go out in a header that did not come in.
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header input_t {
    bit<16> a;
    bit<16> b;
    int<8>  sa;
    int<8>  sb;
    bit<64> wa;
    bit<64> wb;
}

header result_t {
    bit<16>  add;
    bit<16>  sub;
    bit<16>  mul;
    bit<16>  div;
    bit<16>  mod;
    bit<16>  sat_add;
    bit<16>  sat_sub;
    bit<16>  shl;
    bit<16>  shr;
    bit<16>  neg;
    bit<16>  not;
    int<8>   s_shr;
    int<8>   s_sat_add;
    int<8>   s_sat_sub;
    int<8>   s_neg;
    bit<8>   compare;
    bit<32>  cat;
    bit<8>   slice;
    bit<24>  zero_extend;
    int<16>  sign_extend;
    bit<128> big_mul;
    bit<128> big_shl;
    bit<128> big_sum;
    bit<16>  choose;
    bit<16>  set_slice;
    bit<16>  xor_or_and;
    bit<8>   div5;
}

struct headers_t {
    result_t result;
    input_t  input;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.input);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        bit<16> a = hdr.input.a;
        bit<16> b = hdr.input.b;
        int<8> sa = hdr.input.sa;
        int<8> sb = hdr.input.sb;
        hdr.result.setValid();
        hdr.result.add = a + b;
        hdr.result.sub = a - b;
        hdr.result.mul = a * b;
        hdr.result.div = a / 8;
        hdr.result.mod = a % 8;
        hdr.result.sat_add = a |+| b;
        hdr.result.sat_sub = a |-| b;
        hdr.result.shl = a << (bit<8>)b[4:0];
        hdr.result.shr = a >> (bit<8>)b[4:0];
        hdr.result.neg = -a;
        hdr.result.not = ~a;
        hdr.result.s_shr = sa >> 2;
        hdr.result.s_sat_add = sa |+| sb;
        hdr.result.s_sat_sub = sa |-| sb;
        hdr.result.s_neg = -sa;
        hdr.result.compare = (bit<1>)(a < b) ++ (bit<1>)(a <= b) ++ (bit<1>)(a > b)
            ++ (bit<1>)(a >= b)
            ++ (bit<1>)(sa < sb) ++ (bit<1>)(sa >= sb) ++ (bit<1>)(a == b) ++ (bit<1>)(a != b);
        hdr.result.cat = a ++ b;
        hdr.result.slice = a[11:4];
        hdr.result.zero_extend = (bit<24>)b;
        hdr.result.sign_extend = (int<16>)sa;
        hdr.result.big_mul = (bit<128>)hdr.input.wa * (bit<128>)hdr.input.wb;
        hdr.result.big_shl = (bit<128>)hdr.input.wa << (bit<8>)b[6:0];
        hdr.result.big_sum = (hdr.input.wa ++ hdr.input.wb) + 1;
        hdr.result.choose = a < b ? a : b;
        bit<16> s = a;
        s[11:4] = b[7:0];
        hdr.result.set_slice = s;
        hdr.result.xor_or_and = (a ^ b) | (a & b);
        hdr.result.div5 = a[7:0] / 5;
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
