// Tables of every kind: each writes what it found into the packet.
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<32> k32;
    bit<16> k16;
    bit<8>  k8;
    bit<8>  exact_hit;
    bit<8>  lpm_result;
    bit<8>  ternary_result;
    bit<8>  mixed_result;
    bit<8>  const_exact;
    bit<8>  const_lpm;
    bit<8>  const_ternary;
    bit<8>  keyless;
    bit<8>  run;
    bit<16> wide_result;
}

struct headers_t {
    data_t data;
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
    action set_lpm(bit<8> v) { hdr.data.lpm_result = v; }
    action set_ternary(bit<8> v) { hdr.data.ternary_result = v; }
    action set_mixed(bit<8> v) { hdr.data.mixed_result = v; }
    action set_const_exact(bit<8> v) { hdr.data.const_exact = v; }
    action set_const_lpm(bit<8> v) { hdr.data.const_lpm = v; }
    action set_const_ternary(bit<8> v) { hdr.data.const_ternary = v; }
    action set_keyless(bit<8> v) { hdr.data.keyless = v; }
    action set_wide(bit<128> v, bit<16> low) { hdr.data.wide_result = v[127:112] + low; }
    action one() { }
    action two() { }
    direct_counter(CounterType.packets) lpm_counter;

    table exact_table {
        key = { hdr.data.k32: exact; hdr.data.k8: exact; }
        actions = { one; two; NoAction; }
        default_action = NoAction();
        size = 16;
    }
    table lpm_table {
        key = { hdr.data.k32: lpm; hdr.data.k16: exact; }
        actions = { set_lpm; }
        default_action = set_lpm(0xee);
        counters = lpm_counter;
    }
    table ternary_table {
        key = { hdr.data.k32: ternary; hdr.data.k16: ternary; }
        actions = { set_ternary; NoAction; }
        const default_action = NoAction();
    }
    table mixed_table {
        key = { hdr.data.k8: exact; hdr.data.k16: ternary; hdr.data.k32: lpm; }
        actions = { set_mixed; @defaultonly NoAction; }
    }
    table const_exact_table {
        key = { hdr.data.k8: exact; }
        actions = { set_const_exact; }
        default_action = set_const_exact(0xdd);
        const entries = {
            1: set_const_exact(11);
            2: set_const_exact(22);
        }
    }
    table const_lpm_table {
        key = { hdr.data.k32: lpm; }
        actions = { set_const_lpm; NoAction; }
        const default_action = NoAction();
        const entries = {
            0x0a000000 &&& 0xff000000: set_const_lpm(8);
            0x0a010000 &&& 0xffff0000: set_const_lpm(16);
            _: set_const_lpm(1);
        }
    }
    table const_ternary_table {
        key = { hdr.data.k16: ternary; hdr.data.k8: range; }
        actions = { set_const_ternary; NoAction; }
        const default_action = NoAction();
        const entries = {
            (0x1200 &&& 0xff00, 10 .. 20): set_const_ternary(1);
            (0x1234, _): set_const_ternary(2);
            (_, 200 .. 255): set_const_ternary(3);
        }
    }
    table keyless_table {
        actions = { set_keyless; }
        default_action = set_keyless(7);
    }
    table wide_table {
        key = { hdr.data.k8: exact; }
        actions = { set_wide; NoAction; }
        size = 4;
    }
    apply {
        standard_metadata.egress_spec = 1;
        hdr.data.exact_hit = 0;
        if (exact_table.apply().hit) {
            hdr.data.exact_hit = 1;
        }
        lpm_table.apply();
        ternary_table.apply();
        mixed_table.apply();
        const_exact_table.apply();
        const_lpm_table.apply();
        const_ternary_table.apply();
        keyless_table.apply();
        wide_table.apply();
        switch (exact_table.apply().action_run) {
            one: { hdr.data.run = 1; }
            two: { hdr.data.run = 2; }
            default: { hdr.data.run = 3; }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
