// A RequestWindow alone: what a claim finds, and what settling leaves.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <stateplane/netchain.p4>

header command_t {
    bit<64> client;
    bit<32> number;
    // What the packet does with its claim: 1 done, 2 refused, 3 gives it back, 0 nothing. 4: it
    // claims the number that is next, and if it gets it, raises that.
    bit<8>  then;
    // Out: WindowState.
    bit<8>  found;
    bit<16> padding;
}

struct headers_t {
    command_t command;
}

struct client_t {
    bit<64> client;
}

struct metadata_t { }

parser TheParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.command);
        transition accept;
    }
}

control None(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control TheIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    RequestWindow<client_t>(2) window;
    register<bit<32>>(1) next;
    // Claims of numbers that were next.
    counter(1, CounterType.packets) claims;

    apply {
        bit<32> number = hdr.command.number;
        if (hdr.command.then == 4) {
            next.read(number, 0);
        }
        WindowState found = window.claim({ hdr.command.client }, number);
        if (found == WindowState.FRESH) {
            hdr.command.found = 0;
            if (hdr.command.then == 1) {
                window.settle(WindowState.DONE);
            } else if (hdr.command.then == 2) {
                window.settle(WindowState.REFUSED);
            } else if (hdr.command.then == 3) {
                window.settle(WindowState.FRESH);
            } else if (hdr.command.then == 4) {
                window.settle(WindowState.DONE);
                claims.count(0);
                next.write(0, number + 1);
            }
        } else if (found == WindowState.RUNNING) {
            hdr.command.found = 1;
        } else if (found == WindowState.REFUSED) {
            hdr.command.found = 2;
        } else if (found == WindowState.DONE) {
            hdr.command.found = 3;
        } else if (found == WindowState.OLD) {
            hdr.command.found = 4;
        } else {
            hdr.command.found = 5;
        }
        standard_metadata.egress_spec = 2;
    }
}

control TheEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    apply { }
}

control TheDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.command);
    }
}

V1Switch(TheParser(), None(), TheIngress(), TheEgress(), None(), TheDeparser()) main;
