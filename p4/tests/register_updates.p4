// Reads, changes and writes of a register's element: those that look like one step and are none.
#include <core.p4>
#include <v1model.p4>

header data_t { bit<8> op; bit<8> index; bit<16> a; bit<16> b; bit<16> got; bit<48> padding; }
header extra_t { bit<16> v; }
struct headers_t { data_t data; extra_t extra; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start { packet.extract(hdr.data); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<16>>(8) cells;
    register<bit<12>>(8) narrow;
    register<bit<16>>(8) others;

    // May leave before it reads.
    action skip_read(inout bit<16> x) {
        if (hdr.data.a == 0) { return; }
        cells.read(x, (bit<32>)hdr.data.index);
    }
    action leave() { exit; }

    apply {
        standard_metadata.egress_spec = 1;
        bit<32> i = (bit<32>)hdr.data.index;
        bit<16> x = 7;
        bit<16> y = hdr.data.b;
        bit<12> n;
        switch (hdr.data.op) {
            // One step; what is added is what it was at the read.
            1: {
                cells.read(x, i);
                bit<16> by = y;
                y = 1000;
                hdr.data.b = x;
                x = x + by - 1;
                cells.write(i, x);
            }
            // Another index.
            2: {
                cells.read(x, i);
                i = i + 1;
                cells.write(i, x + 1);
            }
            // Changed on one way only.
            3: {
                cells.read(x, i);
                if (hdr.data.a == 1) { x = 100; }
                cells.write(i, x + 1);
            }
            // Taken from something.
            4: {
                cells.read(x, i);
                cells.write(i, y - x);
            }
            // The read can be left out.
            5: {
                skip_read(x);
                cells.write(i, x + 1);
            }
            // Another element is read between, maybe the same.
            6: {
                cells.read(x, i);
                cells.read(y, (bit<32>)hdr.data.b);
                cells.write(i, x + 1);
                x = y;
            }
            // The packet may end between.
            7: {
                cells.read(x, i);
                hdr.data.got = x;
                if (hdr.data.a == 1) { leave(); }
                cells.write(i, x + 1);
            }
            // What is added was read since.
            8: {
                others.read(y, 1);
                cells.read(x, i);
                others.read(y, i);
                cells.write(i, x + y);
            }
            // A field of a header that is assigned since.
            9: {
                hdr.extra = { 5 };
                cells.read(hdr.extra.v, i);
                hdr.extra = { 9 };
                cells.write(i, hdr.extra.v + 1);
                hdr.extra.setInvalid();
            }
            // Added twice to itself; part of it.
            10: {
                cells.read(x, i);
                x = x + x;
                cells.write(i, x);
            }
            11: {
                cells.read(x, i);
                x[7:0] = 1;
                cells.write(i, x + 1);
            }
            // Unchanged; several steps, all above the width lost.
            12: {
                cells.read(x, i);
                cells.write(i, x);
                narrow.read(n, i);
                n = n - (bit<12>)hdr.data.a;
                n = n + (bit<12>)hdr.data.b;
                narrow.write(i, n);
                narrow.read(n, i);
                narrow.write(i, n & 0xff0);
                narrow.read(n, i);
                x = (bit<16>)n;
            }
            // Out of range: read as 0.
            13: {
                cells.read(x, 8);
                x = x + 1;
                cells.write(8, x);
            }
            // Read into what the index is made of, and written there.
            14: {
                cells.read(hdr.data.a, (bit<32>)hdr.data.a);
                cells.write((bit<32>)hdr.data.a, hdr.data.a + 1);
                x = hdr.data.a;
            }
            // Set, not changed.
            15: { cells.write(i, hdr.data.a); }
            16: { others.write(i, hdr.data.a); }
        }
        hdr.data.got = x;
    }
}
control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
