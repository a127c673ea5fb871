//! What `stateplane compile` refuses for what is written in a program, `stateplane check` refuses
//! with the same words. (Rules of a system's objects: the system's own tests.)

mod refusals;

use std::path::Path;

#[test]
fn what_compile_refuses_check_refuses_with_the_same_words() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/refused"));
    assert!(refusals::all_of(folder) > 0);
}
