// What only `@atomic` makes whole. Each CPU has a frame of its own: `way` is 0 or 1.
#include <core.p4>
#include <v1model.p4>

header step_t { bit<32> by; bit<8> index; bit<8> way; bit<64> unused; }
struct headers_t { step_t step; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<16>>(2) parsed;
    state start {
        packet.extract(hdr.step);
        transition count;
    }
    @atomic state count {
        bit<16> x;
        parsed.read(x, 1);
        x = x == 0xfffe ? 0 : x + 1;
        parsed.write(1, x);
        transition accept;
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

// Two words of one number, the lower to 999.
@atomic control Carry(in headers_t hdr) {
    register<bit<64>>(2) digits;
    apply {
        bit<64> x;
        digits.read(x, 0);
        if (x == 999) {
            digits.write(0, 0);
            bit<64> high;
            digits.read(high, 1);
            digits.write(1, high + 1);
            return;
        }
        digits.write(0, x + 1);
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // What leaves one comes into the other; a packet that sees between counts itself.
    register<bit<32>>(2) debit;
    register<bit<24>>(2) credit;
    register<bit<32>>(1) unequal;
    // Read and reset by one CPU, counted by both; what was read is in `taken`.
    register<bit<8>>(1) little;
    register<bit<64>>(1) taken;
    // Up to a bound; how many packets found it reached.
    register<bit<32>>(1) bounded;
    register<bit<32>>(1) above;
    // Used with `seen` in an action; changed by itself elsewhere, which must wait for the block,
    // too.
    register<bit<100>>(4) wide;
    register<bit<32>>(1) seen;
    counter(1, CounterType.packets) packets;
    Carry() carry;

    @atomic action with_exits(bit<8> which) {
        bit<100> w;
        bit<32> s;
        seen.read(s, 0);
        wide.read(w, (bit<32>)which);
        if (s[0:0] == 0) {
            wide.write((bit<32>)which, w + 1);
            seen.write(0, s + 1);
            exit;
        }
        wide.write((bit<32>)which, w + 1);
        seen.write(0, s + 1);
    }
    table t {
        key = { hdr.step.way: exact; }
        actions = { with_exits; NoAction; }
        const entries = { 0: with_exits(2); 1: with_exits(3); }
        default_action = NoAction();
    }

    apply {
        standard_metadata.egress_spec = 1;
        @atomic {
            // Before the lock, and behind it.
            bit<32> index = (bit<32>)hdr.step.index;
            packets.count(0);
            bit<32> d;
            bit<24> c;
            debit.read(d, index);
            credit.read(c, index);
            if (d[23:0] + c != 0) {
                bit<32> n;
                unequal.read(n, 0);
                unequal.write(0, n + 1);
            }
            d = d - hdr.step.by;
            debit.write(index, d);
            credit.write(index, c + hdr.step.by[23:0]);
            packets.count(0);
        }
        if (hdr.step.way == 0) @atomic {
            bit<8> x;
            bit<64> sum;
            little.read(x, 0);
            taken.read(sum, 0);
            taken.write(0, sum + (bit<64>)x + 1);
            little.write(0, 0);
        } else @atomic {
            bit<8> x;
            bit<64> sum;
            little.read(x, 0);
            if (x == 255) {
                taken.read(sum, 0);
                taken.write(0, sum + 256);
                little.write(0, 0);
            } else {
                little.write(0, x + 1);
            }
        }
        bool reached = false;
        @atomic {
            if (hdr.step.by != 0) {
                bit<32> x;
                bounded.read(x, 0);
                if (x == 300000) {
                    reached = true;
                } else {
                    bounded.write(0, x + 1);
                }
            }
        }
        if (reached) {
            bit<32> x;
            above.read(x, 0);
            above.write(0, x + 1);
        }
        carry.apply(hdr);
        bit<32> s;
        seen.read(s, 0);
        seen.write(0, s + 1);
        t.apply();
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
