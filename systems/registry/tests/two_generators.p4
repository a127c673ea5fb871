// State of two systems that both need generated packets: a count that survives the switch, and
// leases of peers.
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
#include <headers.p4>

struct headers_t { ethernet_t ethernet; ipv4_t ipv4; }
struct metadata_t { }
struct key_t { bit<32> address; }
struct count_t { bit<32> packets; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t std) {
    state start { packet.extract(hdr.ethernet); packet.extract(hdr.ipv4); transition accept; }
}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) {
    FlowState<key_t, count_t>(64, Consistency.LINEARIZABLE, Allocator.ZERO) counts;
    PeerLeases() leases;
    apply {
        key_t key = { hdr.ipv4.source };
        count_t count;
        std.egress_spec = 1;
        if (!leases.hold(0xffffffff)) { mark_to_drop(std); return; }
        if (counts.get_or_allocate(key, count) != StateResult.HIT) { mark_to_drop(std); return; }
        count.packets = count.packets + 1;
        counts.set(key, count);
    }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t std) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
