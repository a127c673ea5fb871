//! A program with more ways through it than the kernel's verifier follows. Needs root.

use dataplane::{Dataplane, Error, Object, Settings, Verdict};
use xdp_backend::{CompileError, Compiled, Options, Placement, Systems};

/// Fields that the program looks at: two ways each, which differ in the sum that they lead to.
const FIELDS: usize = 18;
/// A sum from here on goes to the other port. The verifier follows sums because of that.
const MANY: u32 = 1000;

/// The sum in steps: each is a statement.
fn in_statements() -> String {
    let steps: String = (0..FIELDS)
        .map(|field| format!("if (hdr.h.f{field} == 9) {{ meta.sum = meta.sum + 1; }} meta.sum = meta.sum << 1;\n"))
        .collect();
    source(&format!(
        "{steps} hdr.h.sum = meta.sum; if (meta.sum >= {MANY}) {{ sm.egress_spec = 2; }}"
    ))
}

/// The sum as one expression.
fn in_an_expression() -> String {
    let choice = |sum, field| format!("(({sum} + (hdr.h.f{field} == 9 ? 32w1 : 0)) << 1)");
    let sum = (0..FIELDS).fold("32w0".to_string(), choice);
    source(&format!("hdr.h.sum = {sum}; if ({sum} >= {MANY}) {{ sm.egress_spec = 2; }}"))
}

/// A program whose ingress does this.
fn source(apply: &str) -> String {
    let fields: String = (0..FIELDS).map(|field| format!("bit<8> f{field}; ")).collect();
    format!(
        "#include <core.p4>
#include <v1model.p4>
header h_t {{ {fields} bit<32> sum; }}
struct headers_t {{ h_t h; }}
struct meta_t {{ bit<32> sum; }}
parser P(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
    state start {{ pkt.extract(hdr.h); transition accept; }}
}}
control V(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control C(inout headers_t hdr, inout meta_t meta) {{ apply {{ }} }}
control E(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{ apply {{ }} }}
control I(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {{
    apply {{
        sm.egress_spec = 1;
        {apply}
    }}
}}
control D(packet_out pkt, in headers_t hdr) {{ apply {{ pkt.emit(hdr); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"
    )
}

fn checked(source: &str) -> p4_check::Outcome {
    let outcome = p4_check::check_source("ways.p4", source, &Default::default());
    assert!(outcome.program.is_some(), "{}", outcome.render(false));
    outcome
}

/// Compiles for this kernel: what was tried, and whether the kernel refused it; what it loaded.
fn load(source: &str, placement: Placement) -> (Vec<(Placement, bool)>, Dataplane) {
    let outcome = checked(source);
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("ways.o");
    let options = Options { placement, ..Options::new(Systems::NONE) };
    let mut tried = Vec::new();
    let mut loaded = None;
    let mut try_on_kernel = |compiled: &Compiled| {
        let mut opened = Object::open(&object, compiled.generated.manifest.clone()).unwrap();
        opened
            .set(Settings { test_mode: true, virtual_clock: true, ..Settings::default() })
            .unwrap();
        let refused = match opened.load() {
            Ok(dataplane) => {
                loaded = Some(dataplane);
                None
            }
            Err(Error::Verifier { log, .. }) => Some(log),
            Err(other) => panic!("{other}"),
        };
        tried.push((compiled.placement, refused.is_some()));
        refused
    };
    let program = outcome.program.as_ref().unwrap();
    xdp_backend::compile_for_kernel(program, &options, &object, &mut try_on_kernel).unwrap();
    (tried, loaded.expect("loaded"))
}

fn check_sums(dataplane: &Dataplane) {
    for nines in [0u32, 0b1, 0b10, 0b1_1111_1001, 0b10_1010_1010_1010_1010, (1 << FIELDS) - 1] {
        let mut frame = [7; FIELDS + 4 + 40];
        (0..FIELDS)
            .filter(|field| nines >> (FIELDS - 1 - field) & 1 == 1)
            .for_each(|field| frame[field] = 9);
        let outcome = dataplane.run(&frame, 0, 0).unwrap();
        let sum = nines << 1;
        frame[FIELDS..FIELDS + 4].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(
            outcome.verdict,
            Verdict::Forward { port: if sum >= MANY { 2 } else { 1 } },
            "{nines:b}"
        );
        assert_eq!(outcome.frame, frame, "{nines:b}");
    }
}

#[test]
fn too_many_ways_are_one_with_forgotten_variables() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let (tried, dataplane) = load(&in_statements(), Placement::AllScratch);
    assert_eq!(tried, [(Placement::AllScratch, true), (Placement::Forgotten, false)]);
    check_sums(&dataplane);
    let (tried, dataplane) = load(&in_an_expression(), Placement::Forgotten);
    assert_eq!(tried, [(Placement::Forgotten, false)]);
    check_sums(&dataplane);
}

/// What the kernel refuses in every placement is told in its words; the object and its C are there.
#[test]
fn what_was_refused_is_told() {
    let outcome = checked(&in_statements());
    let program = outcome.program.as_ref().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("ways.o");
    let options = Options { placement: Placement::AllScratch, ..Options::new(Systems::NONE) };
    for (log, last) in [
        ("BPF program is too large. Processed 1000001 insn", Placement::Forgotten),
        ("combined stack size of 3 calls is 544. Too large", Placement::Forgotten),
        ("R1 invalid mem access 'scalar'", Placement::Forgotten),
    ] {
        let mut try_on_kernel = |_: &Compiled| Some(log.to_string());
        match xdp_backend::compile_for_kernel(program, &options, &object, &mut try_on_kernel) {
            Err(CompileError::Kernel { report, log: words, compiled, .. }) => {
                assert_eq!(
                    (report.reason.as_str(), words.as_str(), compiled.placement),
                    (log, log, last)
                );
                assert!(object.is_file() && compiled.generated.c_source.contains("sp_main"));
            }
            other => panic!("{log}: {:?}", other.map(|compiled| compiled.placement)),
        }
    }
}

/// clang knows more of a remainder than the verifier: it must not leave out what the verifier
/// needs.
#[test]
fn a_varbits_size_that_only_clang_knows() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    for size in ["(bit<32>)((hdr.h.a % 3) ++ 3w0)", "(hdr.h.w % 3) * 8", "(hdr.h.w % 3) << 3"] {
        let source = source("hdr.v.n = hdr.v.n + 1; hdr.w = hdr.v; hdr.v.setInvalid();")
            .replace(
                "header h_t {",
                "header v_t { bit<8> n; varbit<56> d; } header h_t { bit<8> a; bit<32> w;",
            )
            .replace("{ h_t h; }", "{ h_t h; v_t v; v_t w; }")
            .replace(
                "pkt.extract(hdr.h);",
                &format!("pkt.extract(hdr.h); pkt.extract(hdr.v, {size});"),
            );
        for placement in [Placement::Registers, Placement::AllScratch, Placement::Forgotten] {
            let (tried, dataplane) = load(&source, placement);
            assert!(tried.iter().all(|(_, refused)| !refused), "{size}, {placement:?}: {tried:?}");
            for bytes in 0..3u8 {
                let mut frame = [7; FIELDS + 60];
                frame[..5].copy_from_slice(&[bytes, 0, 0, 0, bytes]);
                let mut expected = frame;
                expected[FIELDS + 9] += 1;
                assert_eq!(
                    dataplane.run(&frame, 0, 0).unwrap().frame,
                    expected,
                    "{size}, {placement:?}"
                );
            }
        }
    }
}
