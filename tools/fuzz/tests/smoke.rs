//! A few seconds of each kind of fuzzing, with one fixed and one fresh seed. `make soak` does the
//! full counts. Needs root.

use fuzz::fresh_seed;
use fuzz::programs::{self, Plan};

fn both(run: impl Fn(u64)) {
    run(0x5eed);
    run(fresh_seed());
}

#[test]
fn programs() {
    both(|seed| {
        let plan = Plan { seed, count: 300, preprocess_every: 60, binary: None };
        println!("{}", programs::run(&plan).unwrap());
    });
}

/// As written against as elaborated.
#[test]
fn elaborated_programs() {
    let seed = fresh_seed();
    let plan = fuzz::differential::Plan { seed, runs: 600, packets: 30, ..Default::default() };
    let compared = fuzz::differential::lowering(&plan).unwrap();
    println!("{compared}");
    assert!(compared.programs >= 400, "{compared}");
}

/// Compiled and run, against the reference interpreter.
#[test]
fn generated_programs() {
    both(|seed| {
        let plan = fuzz::differential::Plan {
            seed,
            runs: 38,
            packets: 40,
            batch: 6,
            ..Default::default()
        };
        println!("{}", fuzz::differential::campaign(&plan).unwrap());
    });
}
