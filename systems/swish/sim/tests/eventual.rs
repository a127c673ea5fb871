//! Variables with EWO: random runs with all kinds of faults, and bugs that they must find. RUNS=N:
//! so many; FIRST_SEED=N: from there on; SEED=N: only that one, with its log if it fails; BUG=Name:
//! with that bug. `--ignored`: many more. Needs root.

use swish_sim::eventual::{Bench, Counts, Scenario, run_many};
use swish_sim::{Program, SeededBug, seeded};
use swish_switch::mutation::{self, Mutation};

/// Runs that a bug may hide from.
const MOST: u64 = 60;
const FIRST_SEED: u64 = 70_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn bug() -> Option<&'static SeededBug> {
    let name = std::env::var("BUG").ok()?;
    seeded::EVENTUAL.iter().find(|bug| bug.name == name)
}

/// One run; a failing one is made short, and its end shown.
fn replay(seed: u64, scenario: fn(u64) -> Scenario) {
    let program = Program::compile_eventual(bug()).unwrap();
    let mut bench = Bench::new(&program);
    let whole = scenario(seed);
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

fn swarm(first: u64, runs: u64, scenario: fn(u64) -> Scenario) -> Counts {
    let began = std::time::Instant::now();
    let (found, counts) = run_many(first..first + runs, None, scenario).unwrap();
    println!("{:.1} s: seeds from {first}: {counts:?}", began.elapsed().as_secs_f64());
    if let Some((seed, violation)) = found {
        replay(seed, scenario);
        panic!("SEED={seed} fails, but not alone: {violation}");
    }
    assert!(counts.get("restarts").is_some_and(|it| *it > 0), "{counts:?}");
    counts
}

#[test]
fn random_runs() {
    match number("SEED") {
        Some(seed) => replay(seed, Scenario::of_seed),
        None => drop(swarm(
            number("FIRST_SEED").unwrap_or(1),
            number("RUNS").unwrap_or(20),
            Scenario::of_seed,
        )),
    }
}

/// Far more lives than a cell has slots: none finds no slot, and nothing counts twice. LIVES=N:
/// only that seed.
#[test]
fn slots_are_given_back() {
    if let Some(seed) = number("LIVES") {
        return replay(seed, Scenario::of_lives);
    }
    let (first, runs) = (number("FIRST_SEED").unwrap_or(1), number("RUNS").unwrap_or(3));
    let counts = swarm(first, runs, Scenario::of_lives);
    for what in ["folds", "agents"] {
        assert!(counts.get(what).is_some_and(|it| *it >= runs), "{what}: {counts:?}");
    }
}

/// A switch that takes a view without folding sends slots that are in the base already.
#[test]
fn a_switch_that_does_not_fold_is_caught() {
    mutation::plant(Some(Mutation::Unfolded));
    let found = run_many(FIRST_SEED..FIRST_SEED + 5, None, Scenario::of_lives);
    mutation::plant(None);
    let (found, _) = found.unwrap();
    let (_, violation) = found.expect("it is not caught");
    assert_ne!(violation.check, "harness", "{violation}");
    println!("{violation}");
}

#[test]
#[ignore = "minutes"]
fn many_random_runs() {
    let (first, runs) = (number("FIRST_SEED").unwrap_or(1_000), number("RUNS").unwrap_or(500));
    swarm(first, runs, Scenario::of_seed);
    swarm(first, runs / 10, Scenario::of_lives);
}

/// The bug is caught within `most` runs, and the run that shows it shows nothing without it.
fn is_caught(bug: &SeededBug, most: u64, without: &mut Bench<'_>) {
    let (found, _) = run_many(FIRST_SEED..FIRST_SEED + most, Some(bug), Scenario::of_seed).unwrap();
    let Some((seed, violation)) = found else { panic!("{} is not caught", bug.name) };
    assert_ne!(violation.check, "harness", "{}: {violation}", bug.name);
    println!("| {} | {} | {}, {} |", bug.name, bug.what, violation.check, seed + 1 - FIRST_SEED);
    let outcome = without.run(&Scenario::of_seed(seed), false);
    assert_eq!(outcome.violation, None, "seed {seed} without {}", bug.name);
}

#[test]
#[ignore = "a minute"]
fn every_seeded_bug_is_caught() {
    let plain = Program::compile_eventual(None).unwrap();
    let mut without = Bench::new(&plain);
    seeded::EVENTUAL.iter().for_each(|bug| is_caught(bug, MOST, &mut without));
}

#[test]
fn plain_bugs_are_caught() {
    let plain = Program::compile_eventual(None).unwrap();
    let mut without = Bench::new(&plain);
    let plain = ["SlotBySwitch", "Added"];
    let found: Vec<_> = seeded::EVENTUAL.iter().filter(|it| plain.contains(&it.name)).collect();
    assert_eq!(found.len(), plain.len());
    found.into_iter().for_each(|bug| is_caught(bug, 20, &mut without));
}
