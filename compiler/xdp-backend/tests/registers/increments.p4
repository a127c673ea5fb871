// What is plain enough to become one atomic step: each packet changes each register once.
#include <core.p4>
#include <v1model.p4>

header step_t { bit<32> by; bit<32> bits; bit<8> index; bit<8> unused; bit<32> got; }
struct headers_t { step_t step; }
struct metadata_t { }

bit<32> more(in bit<32> value, in bit<32> by) { return value + by; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    state start { packet.extract(hdr.step); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<1>>(2) one_bit;
    register<bit<8>>(2) eight_bits;
    register<bit<12>>(2) twelve_bits;
    register<int<16>>(2) signed_bits;
    register<bit<32>>(2) plain;
    register<bit<32>>(2) inlined;
    register<bit<32>>(2) in_table;
    register<bit<32>>(2) passed_on;
    register<bit<48>>(2) down;
    register<bit<64>>(2) long_steps;
    register<bit<65>>(2) just_wider;
    register<bit<128>>(2) widest;
    register<bit<32>>(2) all_of;
    register<bit<32>>(2) some_of;
    // The number of each packet, by `plain`: none twice.
    register<bit<8>>(NUMBERS) numbers;

    bit<32> shared;
    action take() { inlined.read(shared, (bit<32>)hdr.step.index); }
    action put() { inlined.write((bit<32>)hdr.step.index, shared); }
    action count_entry() {
        bit<32> count;
        in_table.read(count, 1);
        in_table.write(1, 1 + count);
    }
    table t { actions = { count_entry; } default_action = count_entry(); }

    apply {
        standard_metadata.egress_spec = 1;
        bit<32> index = (bit<32>)hdr.step.index;

        bit<1> bit1;
        one_bit.read(bit1, index);
        bit1 = bit1 + 1;
        one_bit.write(index, bit1);

        bit<8> bit8;
        eight_bits.read(bit8, index);
        bit8 = bit8 + 3;
        eight_bits.write(index, bit8);

        bit<12> bit12;
        twelve_bits.read(bit12, index);
        twelve_bits.write(index, bit12 - 5);

        int<16> int16;
        signed_bits.read(int16, index);
        signed_bits.write(index, int16 + -1);

        bit<32> number;
        plain.read(number, index);
        bit<32> before = number;
        number = number + 1;
        plain.write(index, number);
        hdr.step.got = number;
        if (number == before + 1) { numbers.write(before, 1); }

        take();
        if (hdr.step.unused == 1) { hdr.step.got = 0; }
        shared = more(shared, hdr.step.by);
        shared = shared - 1;
        put();

        t.apply();

        // Through a field, and another register between.
        passed_on.read(hdr.step.bits, (bit<32>)hdr.step.index);
        bit<48> bit48;
        down.read(bit48, index);
        hdr.step.bits = hdr.step.bits + (bit<32>)hdr.step.index;
        down.write(index, bit48 - (bit<48>)hdr.step.by);
        passed_on.write((bit<32>)hdr.step.index, hdr.step.bits);

        bit<64> bit64;
        long_steps.read(bit64, index);
        long_steps.write(index, bit64 + 0x100000001);

        bit<65> bit65;
        just_wider.read(bit65, index);
        just_wider.write(index, bit65 + 0x10000000000000001);

        bit<128> bit128;
        widest.read(bit128, index);
        bit128 = bit128 - 1;
        widest.write(index, bit128);

        bit<32> word;
        all_of.read(word, index);
        all_of.write(index, word | (32w1 << (bit<8>)before[4:0]));
        some_of.read(word, index);
        some_of.write(index, word ^ (32w1 << (bit<8>)before[4:0]));
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
