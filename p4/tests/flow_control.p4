// exit, return, switch, drops in ingress and egress, registers and counters, reject.
#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

header data_t {
    bit<8>  op;
    bit<8>  trace;
    bit<16> value;
    bit<80> pad;
}

struct headers_t {
    data_t data;
}

struct metadata_t {
    bit<8> untouched;
}

error { BadOp }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.data);
        verify(hdr.data.op != 0xff, error.BadOp);
        transition select(hdr.data.op) {
            0xfe: reject;
            0xfd &&& 0xfd: accept;
            0 .. 0x7f: accept;
        }
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control Inner(inout data_t data) {
    apply {
        if (data.op == 3) {
            data.trace = data.trace | 4;
            return;
        }
        data.trace = data.trace | 8;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    register<bit<16>, bit<32>>(4) seen;
    counter<bit<32>>(4, CounterType.packets_and_bytes) packets;
    Inner() inner;
    action leave() {
        hdr.data.trace = hdr.data.trace | 1;
        exit;
    }
    apply {
        standard_metadata.egress_spec = 1;
        hdr.data.value = (bit<16>)meta.untouched;
        if (standard_metadata.parser_error == error.BadOp) {
            standard_metadata.egress_spec = 4;
            return;
        }
        if (standard_metadata.parser_error == error.NoMatch) {
            standard_metadata.egress_spec = 5;
            return;
        }
        packets.count((bit<32>)hdr.data.op);
        if (hdr.data.op == 1) {
            leave();
        }
        if (hdr.data.op == 2) {
            return;
        }
        inner.apply(hdr.data);
        switch (hdr.data.op) {
            4: { mark_to_drop(standard_metadata); }
            5:
            6: { hdr.data.trace = hdr.data.trace | 16; }
            default: { hdr.data.trace = hdr.data.trace | 32; }
        }
        if (hdr.data.op == 7) {
            bit<16> old;
            seen.read(old, 2);
            hdr.data.value = old;
            seen.write(2, old + 3);
        }
        if (hdr.data.op == 8) {
            bit<16> beyond;
            seen.write(9, 1);
            seen.read(beyond, 9);
            hdr.data.value = beyond;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.data.op == 9) {
            mark_to_drop(standard_metadata);
        }
        if (hdr.data.op == 10) {
            hdr.data.value = (bit<16>)standard_metadata.egress_port;
        }
        hdr.data.trace = hdr.data.trace | 128;
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
