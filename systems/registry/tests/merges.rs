//! Merges of a program's own (`@merge`): what is refused, and what a manifest tells of them.

use manifest::Manifest;
use p4_check::{Outcome, check_file};
use p4_interpreter::Evaluator;
use swish_switch::group::{Group, own_merge, settings_of};

const SDW: &str = "SharedSketch(64, Sketch.OWN, Shared.SDW, WhenFull.PASS)";
const EWO: &str = "SharedSketch(64, Sketch.OWN, Shared.EWO)";

/// A program with this function, and an object with this declaration.
fn checked(function: &str, declaration: &str) -> Outcome {
    checked_with(function, declaration, "h.h.a = x.get(h.h.a);")
}

fn checked_with(function: &str, declaration: &str, call: &str) -> Outcome {
    let text = format!(
        "#include <core.p4>
#include <v1model.p4>
#include <stateplane.p4>
header h_t {{ bit<32> a; }}
struct headers {{ h_t h; }}
struct metadata {{}}
{function}
parser P(packet_in p, out headers h, inout metadata m, inout standard_metadata_t s) {{
    state start {{ p.extract(h.h); transition accept; }}
}}
control V(inout headers h, inout metadata m) {{ apply {{}} }}
control I(inout headers h, inout metadata m, inout standard_metadata_t s) {{
    {declaration} x;
    apply {{ {call} s.egress_spec = s.ingress_port; }}
}}
control E(inout headers h, inout metadata m, inout standard_metadata_t s) {{ apply {{}} }}
control C(inout headers h, inout metadata m) {{ apply {{}} }}
control D(packet_out p, in headers h) {{ apply {{ p.emit(h); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"
    );
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("merge.p4");
    std::fs::write(&path, text).expect("written");
    check_file(&path, &p4_syntax::Options::default())
}

/// What is said of it: messages and remedies.
fn said(function: &str, declaration: &str) -> String {
    said_by(&checked(function, declaration), |it| {
        format!("{}; {}", it.message, it.help.as_deref().unwrap_or_default())
    })
}

/// The same behind the line; with this call.
fn said_of(function: &str, declaration: &str, call: &str) -> String {
    said_by(&checked_with(function, declaration, call), |it| {
        let line = it.location.line;
        format!("{line}: {}; {}", it.message, it.help.as_deref().unwrap_or_default())
    })
}

fn said_by(outcome: &Outcome, text: impl Fn(&xdp_backend::BackendError) -> String) -> String {
    let Some(program) = &outcome.program else { return outcome.render(false) };
    let options = xdp_backend::Options::new(systems::compiler());
    let errors = xdp_backend::generate(program, &options).err().unwrap_or_default();
    errors.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn function(body: &str) -> String {
    format!("bit<32> m(in bit<32> a, in bit<32> b) {{ {body} }}")
}

#[test]
fn a_merge_that_breaks_a_law_is_refused() {
    let cases = [
        ("return a - b;", SDW, "m is not commutative: m(0, 1) = 0xffffffff, but m(1, 0) = 1"),
        // The average.
        ("return (a >> 1) + (b >> 1);", SDW, "m is not associative: m(m("),
        ("return a < b ? a : b;", SDW, "m does not have 0 as its identity: m(1, 0) = 0, not 1"),
        // Saturating, with another identity than 0.
        ("return (a |+| b) |-| 5;", SDW, "m is not associative"),
        (
            "bit<32> c = a < b ? b : a; return c < 5 ? 5 : c;",
            SDW,
            "m does not have 0 as its identity: m(0, 0) = 5, not 0",
        ),
        // The last writer.
        ("return b;", SDW, "m is not commutative: m(0, 1) = 1, but m(1, 0) = 0"),
        ("return b == 0 ? a : b;", SDW, "m is not commutative: m(1, 2) = 2, but m(2, 1) = 1"),
        ("return a |+| b;", EWO, "m is not idempotent: m(1, 1) = 2, not 1"),
        ("return a ^ b;", EWO, "use Shared.SDW, which merges each update once"),
        ("bit<32> c; if (a == b) { c = 1; } return c;", SDW, "m(0, 1): undefined"),
    ];
    for (body, sketch, message) in cases {
        let found = said(&function(body), &format!("@merge(\"m\") {sketch}"));
        assert!(found.contains(message), "{body}: {found:?}");
    }
    let fit = [("return a |+| b;", SDW), ("return a ^ b;", SDW), ("return a | b;", EWO)];
    for (body, sketch) in fit {
        let found = said(&function(body), &format!("@merge(\"m\") {sketch}"));
        assert!(found.is_empty(), "{body}: {found}");
    }
}

#[test]
fn a_declaration_that_does_not_fit_its_merge_is_refused() {
    let or = function("return a | b;");
    let cases = [
        (or.as_str(), format!("@merge(\"n\") {SDW}"), "names no function of the program"),
        (or.as_str(), SDW.to_owned(), "Sketch.OWN without @merge"),
        (
            or.as_str(),
            "@merge(\"m\") SharedSketch(64, Sketch.BITS, Shared.EWO)".to_owned(),
            "leave it out, or write Sketch.OWN",
        ),
        (
            or.as_str(),
            "@merge(\"m\") SharedCounter(64, Shared.EWO)".to_owned(),
            "leave it out, or write Sketch.OWN",
        ),
        (
            "bit<16> m(in bit<16> a, in bit<16> b) { return a | b; }",
            format!("@merge(\"m\") {SDW}"),
            "cells have 32 bits",
        ),
        (
            "bit<32> m(in bit<32> a) { return a; }",
            format!("@merge(\"m\") {SDW}"),
            "does not make one value of two",
        ),
        (
            "bit<32> m(in bit<32> a, inout bit<32> b) { return a | b; }",
            format!("@merge(\"m\") {SDW}"),
            "does not make one value of two",
        ),
        (
            "bit<32> m(in bit<32> a, in bit<32> b) { bit<32> c; random(c, a, b); return c; }",
            format!("@merge(\"m\") {SDW}"),
            "line 7 of the function does more than compute with numbers",
        ),
    ];
    for (function, declaration, message) in cases {
        let found = said(function, &declaration);
        assert!(found.contains(message), "{declaration}: {found:?}");
    }
}

/// Registers, tables and sets have no cells that could merge.
#[test]
fn a_merge_of_keys_is_refused() {
    let cases = [
        ("SharedTable<h_t, h_t>(64, Shared.SRO)", "x.remove(h.h)", "decided in one place"),
        ("SharedTable<h_t, h_t>(64, Shared.EWO)", "x.remove(h.h)", "the last writer wins"),
        ("SharedSet<h_t>(64, Shared.SRO)", "x.add(h.h)", "decided in one place"),
        ("SharedSet<h_t>(64, Shared.EWO)", "x.add(h.h)", "the last writer wins"),
        ("SharedRegister<h_t>(64, Shared.SRO)", "x.write(1, h.h)", "decided in one place"),
        ("SharedRegister<h_t>(64, Shared.EWO)", "x.write(1, h.h)", "the last writer wins"),
    ];
    let declares = |declaration: &str| declaration.replace("h_t", "k_t");
    let or = function("return a | b;") + " struct k_t { bit<32> a; }";
    for (declaration, call, why) in cases {
        let call = format!("k_t k = {{ h.h.a }}; {};", call.replace("h.h", "k"));
        let found = said_of(&or, &format!("@merge(\"m\") {}", declares(declaration)), &call);
        assert!(found.contains(why) && found.contains("leave it out"), "{declaration}: {found:?}");
        assert!(found.starts_with("13: "), "the declaration's line: {found:?}");
        let found = said_of(&or, &declares(declaration), &call);
        assert!(found.is_empty(), "{declaration}: {found}");
    }
}

/// A switch's agent merges, as the data plane does, what it hands in of several rotations.
#[test]
fn an_agent_merges_as_the_program_says() {
    let manifest = |text: &str| -> Manifest {
        let outcome = checked(text, &format!("@merge(\"m\") {SDW}"));
        let program = outcome.program.as_ref().expect("a program");
        let options = xdp_backend::Options::new(systems::compiler());
        let manifest = xdp_backend::generate(program, &options).expect("C").manifest;
        // As it is read again.
        let json = serde_json::to_string(&manifest).expect("JSON");
        serde_json::from_str(&json).expect("a manifest")
    };
    let sum = manifest(&function("return a |+| b;"));
    let group = Group::all(&sum).expect("groups").remove(0);
    assert!(!group.sums(), "what was merged cannot be taken out again");
    let mut cells = [1, u32::MAX, 0, 7];
    group.merge(0, &mut cells, &[2, 1, 0, 0]).expect("merged");
    assert_eq!(cells, [3, u32::MAX, 0, 7]);
    let settings = settings_of(&sum.state_objects[0]).expect("settings");
    let own: Evaluator = own_merge(&settings).expect("a function").expect("its own");
    assert_eq!(own.of_cells(5, 6), Ok(11));
    // Members that merge in another way do not understand each other; a line above changes nothing.
    let layout = |manifest: &Manifest| Group::all(manifest).expect("groups")[0].described.layout;
    let below = manifest(&format!("\n\n{}", function("return a |+| b;")));
    assert_eq!(layout(&sum), layout(&below));
    assert_ne!(layout(&sum), layout(&manifest(&function("return a ^ b;"))));
}
