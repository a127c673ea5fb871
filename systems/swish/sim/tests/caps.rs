//! The cap on CPU time: the time that frames take is virtual, so a run's seed decides it, and not
//! this machine. RUNS=N: so many; FIRST_SEED=N: from there on. Needs root.

use swish_sim::{Bench, Program, Scenario, SeededBug, Violation, seeded};

/// Runs that a bug may hide from.
const MOST: u64 = 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The first run that shows something, and its seed.
fn found(bug: Option<&SeededBug>, runs: u64) -> Option<(u64, Violation)> {
    let program = Program::compile_busy(bug).unwrap();
    let mut bench = Bench::new(&program);
    let first = number("FIRST_SEED").unwrap_or(1);
    (first..first + runs).find_map(|seed| {
        let outcome = bench.run(&Scenario::of_cpu_cap(seed), false);
        Some((seed, outcome.violation?))
    })
}

/// A window is no earlier than what the one before took of the CPUs lets it, and all that frames
/// took counts.
#[test]
fn windows_keep_within_the_cap_on_cpu_time() {
    assert_eq!(found(None, number("RUNS").unwrap_or(8)), None);
}

#[test]
fn a_cap_that_has_no_effect_is_found() {
    for bug in seeded::CPU {
        let (seed, violation) = found(Some(bug), MOST).expect(bug.name);
        println!("| {} | {} | seed {seed} | {} |", bug.name, violation.check, violation.detail);
        assert_eq!(violation.check, "cpu", "{}: {violation}", bug.name);
    }
}
