//! Random numbers by a seed: repeatable, and the same in both interpreters.

use p4_interpreter::object::Objects;
use p4_interpreter::tree::Tree;
use p4_interpreter::{Interpreter, Stop, Verdict};

const SOURCE: &str = "#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> low; bit<8> high; bit<8> one; bit<8> other; }
struct hs { h_t h; }
struct m_t { }
parser P(packet_in p, out hs hdr, inout m_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.h); transition accept; }
}
control V(inout hs hdr, inout m_t m) { apply { } }
control I(inout hs hdr, inout m_t m, inout standard_metadata_t s) {
    apply {
        s.egress_spec = 1;
        random(hdr.h.one, hdr.h.low, hdr.h.high);
        hash(hdr.h.other, HashAlgorithm.random, 8w3, { hdr.h.one }, 8w4);
    }
}
control E(inout hs hdr, inout m_t m, inout standard_metadata_t s) { apply { } }
control D(packet_out p, in hs hdr) { apply { p.emit(hdr.h); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
";

#[test]
fn numbers_follow_the_seed() {
    let outcome = p4_check::check_source("random.p4", SOURCE, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let run = |seed: u64| {
        let mut lowered = Interpreter::new(program, Objects::NONE).unwrap();
        let mut written = Tree::new(outcome.checked.as_ref().unwrap(), Objects::NONE).unwrap();
        lowered.set_seed(seed);
        written.set_seed(seed);
        let packet = |_| {
            let verdict = lowered.run(&[10, 14, 0, 0], 0, 0).unwrap();
            assert_eq!(written.run(&[10, 14, 0, 0], 0, 0), Ok(verdict.clone()));
            match verdict {
                Verdict::Forward { port: 1, frame } => [frame[2], frame[3]],
                other => panic!("{other:?}"),
            }
        };
        (0..200).map(packet).collect::<Vec<[u8; 2]>>()
    };
    let numbers = run(1);
    assert!((10..15).all(|number| numbers.iter().any(|[one, _]| *one == number)));
    assert!((3..7).all(|number| numbers.iter().any(|[_, other]| *other == number)));
    assert!(numbers.iter().all(|[one, other]| (10..15).contains(one) && (3..7).contains(other)));
    assert_eq!(numbers, run(1));
    assert_ne!(numbers, run(2));
}

#[test]
fn without_a_seed_there_is_none_but_where_there_is_no_choice() {
    let source = SOURCE.replace("hash(", "// hash(");
    let outcome = p4_check::check_source("random.p4", &source, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let mut lowered = Interpreter::new(program, Objects::NONE).unwrap();
    let mut written = Tree::new(outcome.checked.as_ref().unwrap(), Objects::NONE).unwrap();
    let one = Ok(Verdict::Forward { port: 1, frame: vec![9, 9, 9, 0] });
    assert_eq!(
        (lowered.run(&[9, 9, 0, 0], 0, 0), written.run(&[9, 9, 0, 0], 0, 0)),
        (one.clone(), one)
    );
    assert!(matches!(lowered.run(&[9, 10, 0, 0], 0, 0), Err(Stop::Unsupported(_))));
    assert!(matches!(written.run(&[9, 10, 0, 0], 0, 0), Err(Stop::Unsupported(_))));
}
