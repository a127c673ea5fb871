//! Variables beyond what fits: an error for each, however large they are.

use swish_sim::Program;

/// Two cells each, as the program subtracts: together over 32 bits.
#[test]
fn counters_beyond_32_bits_are_an_error() {
    let text = include_str!("../../p4/eventual/eventual.p4");
    let defines = vec!["CELLS=4000000000".to_owned()];
    let refused = Program::compile_without_ready("eventual.p4", text, defines);
    let said = refused.err().expect("it does not fit");
    // (The sum of what diagnostics say with their lines.)
    assert!(said.contains("that the XDP target does not have"), "{said}");
}
