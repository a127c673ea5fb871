// What cannot happen at once with accesses to registers.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>

header h_t {
    bit<32> a;
    bit<32> b;
}
struct headers_t {
    h_t    h;
    h_t[2] more;
}
struct metadata_t { }
struct key_t {
    bit<32> a;
}

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(8) parsed;
    @atomic state start {
        bit<32> x;
        packet.extract(hdr.h);
        parsed.read(x, 0);
        packet.extract(hdr.more.next); // refused: extract stands between
        verify(x == 0, error.NoMatch); // refused: verify stands between
        x = x + hdr.more.last.a; // refused: a stack's next or last
        parsed.write(1, x);
        transition accept;
    }
}
control Verify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control ThisIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<32>>(8) cells;
    register<bit<32>>(8) others;
    counter(1, CounterType.packets) packets;
    FlowState<key_t, key_t>(16, Consistency.LOCAL, Allocator.ZERO) flows;
    action none() { }
    table t {
        actions = { none; }
        default_action = none();
    }
    apply {
        bit<32> x;
        bit<32> y;
        key_t state;
        standard_metadata.egress_spec = 1;
        @atomic {
            t.apply(); // refused: table ThisIngress.t is applied in @atomic code
        }
        @atomic {
            if (hdr.h.a == 1) {
                flows.get({ hdr.h.a }, state); // refused: FlowState ThisIngress.flows is used
            }
            cells.read(x, 0);
            cells.write(0, 1);
        }
        @atomic {
            cells.read(x, 0);
            packets.count(0); // refused: ThisIngress.packets.count stands between
            hash(y, HashAlgorithm.crc32, 32w0, { x }, 32w8); // refused: hash stands between
            if (x == 0) {
                to_host(); // refused: to_host stands between
            }
            cells.write(1, x);
        }
        @atomic {
            cells.read(x, 0);
            others.read(y, x); // refused: the index of register ThisIngress.others
            y = 0;
            if (x == 1) {
                y = 1;
            }
            others.write(y, x); // refused: the index of register ThisIngress.others
        }
        // None of these stands between.
        @atomic {
            hash(y, HashAlgorithm.crc32, 32w0, { hdr.h.a }, 32w8);
            packets.count(0);
            cells.read(x, y);
            y = y + 1;
            cells.write(y, x);
            packets.count(0);
            to_host();
        }
        // Nothing happens under a lock here.
        @atomic {
            cells.read(x, 0);
            packets.count(0);
            x = x + 1;
            cells.write(0, x);
        }
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
