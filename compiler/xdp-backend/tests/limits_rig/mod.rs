//! A small program with given objects and statements, and what the back end says of it.
#![allow(dead_code, reason = "each test uses its part")]

use p4_ir::Program;
use std::path::Path;
use xdp_backend::{BackendError, CompileError, Compiled, Options, Systems};

/// A program with `objects` in its ingress, which does `apply`.
fn program(objects: &str, apply: &str) -> Program {
    checked(&source(objects, apply))
}

/// Its source.
pub fn source(objects: &str, apply: &str) -> String {
    format!(
        "#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
header h_t {{ bit<8> a; }}
struct hs {{ h_t h; }}
struct m_t {{ }}
struct k_t {{ bit<8> k; }}
struct v_t {{ bit<32> v; }}
struct wide_t {{ bit<128> a; bit<128> b; bit<128> c; bit<56> d; }}
struct wider_t {{ bit<128> a; bit<128> b; bit<128> c; bit<64> d; }}
parser P(packet_in p, out hs hdr, inout m_t m, inout standard_metadata_t s) {{ state start {{ p.extract(hdr.h); transition accept; }} }}
control VC(inout hs hdr, inout m_t m) {{ apply {{ }} }}
control I(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{
{objects}
apply {{ v_t x = {{ 0 }}; v_t y = {{ 0 }}; wide_t w = {{ 0, 0, 0, 0 }}; wider_t ww = {{ 0, 0, 0, 0 }}; {apply} s.egress_spec = 1; }} }}
control E(inout hs hdr, inout m_t m, inout standard_metadata_t s) {{ apply {{ }} }}
control D(packet_out p, in hs hdr) {{ apply {{ p.emit(hdr.h); }} }}
V1Switch(P(), VC(), I(), E(), VC(), D()) main;
"
    )
}

/// The program of a source.
pub fn checked(text: &str) -> Program {
    let outcome = p4_check::check_source("limits.p4", text, &p4_syntax::Options::default());
    outcome.program.clone().unwrap_or_else(|| panic!("{}", outcome.render(false)))
}

/// Errors of such a program.
pub fn errors(systems: Systems, objects: &str, apply: &str) -> Vec<BackendError> {
    xdp_backend::generate(&program(objects, apply), &Options::new(systems))
        .err()
        .unwrap_or_default()
}

/// Compiles such a program to an object in a folder.
pub fn compile(
    folder: &Path,
    systems: Systems,
    objects: &str,
    apply: &str,
) -> Result<Compiled, CompileError> {
    xdp_backend::compile(&program(objects, apply), &Options::new(systems), &folder.join("x.o"))
}

/// Where `objects` are; `apply` is one line below their last.
pub const OBJECTS_LINE: u32 = 14;

#[track_caller]
pub fn one_error(systems: Systems, objects: &str, apply: &str, line: u32, part: &str) {
    let errors = errors(systems, objects, apply);
    assert!(
        errors.len() == 1 && errors[0].location.line == line && errors[0].message.contains(part),
        "{objects} {apply}: {errors:?}"
    );
}
