//! Names of enums' members in keys and values of flows.

use manifest::{Enumeration, WireField};
use redplane_compiler::ALONE;
use xdp_backend::Options;

const SOURCE: &str = "
#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
enum bit<8> Protocol { TCP = 6, UDP = 17 }
enum Phase { OPEN, OVER }
struct key_t { bit<32> source; Protocol protocol; }
struct value_t { Phase phase; bit<32> count; }
header h_t { bit<32> source; Protocol protocol; }
struct headers_t { h_t h; }
struct meta_t { }
parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.h); transition accept; }
}
control V(inout headers_t hdr, inout meta_t meta) { apply { } }
control C(inout headers_t hdr, inout meta_t meta) { apply { } }
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) { apply { } }
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    FlowState<key_t, value_t>(16, Consistency.LOCAL, Allocator.ZERO) flows;
    apply {
        key_t key = { hdr.h.source, hdr.h.protocol };
        value_t value;
        flows.get_or_allocate(key, value);
        value.phase = Phase.OVER;
        flows.set(key, value);
    }
}
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
";

#[test]
fn a_flows_fields_have_their_enums() {
    let outcome = p4_check::check_source("enums.p4", SOURCE, &Default::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let manifest = xdp_backend::generate(program, &Options::new(ALONE)).unwrap().manifest;
    let flows = &manifest.state_objects[0];
    let names = |fields: &[WireField]| {
        let member = |it: &Enumeration| {
            it.member(if it.name == "Phase" { 1 } else { 17 }).map(str::to_owned)
        };
        fields.iter().map(|field| field.enumeration.as_ref().and_then(member)).collect::<Vec<_>>()
    };
    assert_eq!(names(&flows.key), [None, Some("UDP".to_owned())]);
    assert_eq!(names(flows.value.fields()), [Some("OVER".to_owned()), None]);
}
