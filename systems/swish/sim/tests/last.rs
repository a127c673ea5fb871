//! Registers, tables and sets with EWO: random runs with all kinds of faults, and bugs that they
//! must find. RUNS=N: so many; FIRST_SEED=N: from there on; SEED=N: only that one, with its log if
//! it fails; BUG=Name: with that bug. `--ignored`: many more. Needs root.

use swish_sim::last::{Bench, Scenario, fill_a_table, repeat_a_message, run_many};
use swish_sim::{Program, SeededBug, seeded};

/// Runs that a bug may hide from.
const MOST: u64 = 60;
const FIRST_SEED: u64 = 70_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn bug() -> Option<&'static SeededBug> {
    let name = std::env::var("BUG").ok()?;
    seeded::LAST.iter().find(|bug| bug.name == name)
}

/// One run; a failing one is made short, and its end shown.
fn replay(seed: u64) {
    let program = Program::compile_last(bug()).unwrap();
    let mut bench = Bench::new(&program);
    let whole = Scenario::of_seed(seed);
    let outcome = bench.run(&whole, false);
    println!("SEED={seed}: {:?}", outcome.counts);
    let Some(violation) = outcome.violation else { return };
    println!("{violation}");
    let short = bench.shrink(&whole, &violation);
    let outcome = bench.run(&short, true);
    for line in &outcome.log[outcome.log.len().saturating_sub(60)..] {
        println!("{line}");
    }
    println!("{} steps of {}: {short:?}", short.steps.len(), whole.steps.len());
    panic!("SEED={seed}: {violation}; short: {:?}", outcome.violation);
}

fn swarm(first: u64, runs: u64) {
    let began = std::time::Instant::now();
    let (found, counts) = run_many(first..first + runs, None).unwrap();
    println!("{:.1} s: seeds from {first}: {counts:?}", began.elapsed().as_secs_f64());
    if let Some((seed, violation)) = found {
        replay(seed);
        panic!("SEED={seed} fails, but not alone: {violation}");
    }
    assert!(counts.get("restarts").is_some_and(|it| *it > 0), "{counts:?}");
}

#[test]
fn random_runs() {
    match number("SEED") {
        Some(seed) => replay(seed),
        None => swarm(number("FIRST_SEED").unwrap_or(1), number("RUNS").unwrap_or(20)),
    }
}

#[test]
fn a_full_table_counts_what_finds_no_room() {
    let program = Program::compile_last(None).unwrap();
    fill_a_table(&program).unwrap();
}

#[test]
fn who_sends_a_recorded_message_again_is_not_heard() {
    let program = Program::compile_last(None).unwrap();
    repeat_a_message(&program).unwrap();
}

#[test]
#[ignore = "minutes"]
fn many_random_runs() {
    swarm(number("FIRST_SEED").unwrap_or(1_000), number("RUNS").unwrap_or(500));
}

/// The bug is caught within `most` runs, and the run that shows it shows nothing without it.
fn is_caught(bug: &SeededBug, most: u64, without: &mut Bench<'_>) {
    let (found, _) = run_many(FIRST_SEED..FIRST_SEED + most, Some(bug)).unwrap();
    let Some((seed, violation)) = found else { panic!("{} is not caught", bug.name) };
    assert_ne!(violation.check, "harness", "{}: {violation}", bug.name);
    println!("| {} | {} | {}, {} |", bug.name, bug.what, violation.check, seed + 1 - FIRST_SEED);
    let outcome = without.run(&Scenario::of_seed(seed), false);
    assert_eq!(outcome.violation, None, "seed {seed} without {}", bug.name);
}

#[test]
#[ignore = "a minute"]
fn every_seeded_bug_is_caught() {
    let plain = Program::compile_last(None).unwrap();
    let mut without = Bench::new(&plain);
    seeded::LAST.iter().for_each(|bug| is_caught(bug, MOST, &mut without));
}

#[test]
fn plain_bugs_are_caught() {
    let plain = Program::compile_last(None).unwrap();
    let mut without = Bench::new(&plain);
    let plain = ["ClockOfItsOwn", "ForgottenEarly", "Torn"];
    let found: Vec<_> = seeded::LAST.iter().filter(|it| plain.contains(&it.name)).collect();
    assert_eq!(found.len(), plain.len());
    found.into_iter().for_each(|bug| is_caught(bug, 20, &mut without));
}
