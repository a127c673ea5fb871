//! Random runs in which switches, agents and the controller die. RUNS=N: so many; FIRST_SEED=N:
//! from there on; SEED=N: only that one, with its log if it fails. `--ignored`: many more. Needs
//! root.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use swish_controller::mutation::{self, Mutation};
use swish_sim::{FailureOutcome, FailureScenario, Program, run_failures};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn replay(seed: u64, program: &Program, of_seed: fn(u64) -> FailureScenario) {
    let mut switches = vec![];
    let whole = of_seed(seed);
    let outcome = run_failures(program, &mut switches, &whole, true);
    let FailureOutcome { decisions, handed, left, .. } = &outcome;
    println!("SEED={seed}: {decisions:?}, {handed} handed in, {left} left");
    let Some(violation) = outcome.violation else { return };
    let lines = number("LINES").unwrap_or(60) as usize;
    for line in &outcome.log[outcome.log.len().saturating_sub(lines)..] {
        println!("{line}");
    }
    panic!("SEED={seed}: {violation}");
}

fn swarm(seed: u64, runs: u64, program: &Program, of_seed: fn(u64) -> FailureScenario) -> u64 {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let all = Mutex::new((BTreeMap::<&str, u64>::new(), 0, 0, 0));
    let work = || {
        let mut switches = vec![];
        while failed.load(Ordering::Relaxed) == u64::MAX {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                return;
            }
            let scenario = of_seed(seed + run);
            let outcome = run_failures(program, &mut switches, &scenario, false);
            let mut all = all.lock().unwrap();
            for (what, count) in outcome.decisions {
                *all.0.entry(what).or_default() += count;
            }
            all.1 += outcome.handed;
            all.2 += outcome.left;
            all.3 += outcome.large;
            if outcome.violation.is_some() {
                failed.fetch_min(seed + run, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(work)));
    });
    let (decisions, handed, left, large) = all.into_inner().unwrap();
    println!("{runs} runs from seed {seed}: {decisions:?}, {handed} handed in, {left} times left");
    let failed = failed.into_inner();
    if failed != u64::MAX {
        replay(failed, program, of_seed);
        panic!("SEED={failed} fails, but not alone");
    }
    assert!(decisions.len() >= 3, "several kinds of decisions occur: {decisions:?}");
    large
}

/// Messages of large windows that there were.
fn random(program: &Program, runs: u64, of_seed: fn(u64) -> FailureScenario) -> u64 {
    if let Some(seed) = number("SEED") {
        replay(seed, program, of_seed);
        return 0;
    }
    let (first, runs) = (number("FIRST_SEED"), number("RUNS").unwrap_or(runs));
    swarm(first.unwrap_or(1), runs, program, of_seed)
}

#[test]
fn random_failures() {
    random(&Program::compile_apart(false).unwrap(), 12, FailureScenario::of_seed);
}

/// The small sketch merges by a function of the program that is neither idempotent nor can be
/// undone: what counts twice shows, and what a dead switch brought cannot be taken out.
#[test]
fn random_failures_with_an_own_merge() {
    random(&Program::compile_apart(true).unwrap(), 12, FailureScenario::of_seed);
}

/// Windows have many messages, also when a switch dies.
#[test]
fn random_failures_in_large_windows() {
    let large = random(&Program::compile_sums().unwrap(), 6, FailureScenario::of_large);
    assert!(large > 0 || number("SEED").is_some(), "no window was large");
}

#[test]
#[ignore = "minutes"]
fn many_random_failures() {
    for own_merge in [false, true] {
        let program = Program::compile_apart(own_merge).unwrap();
        let (first, runs) = (number("FIRST_SEED"), number("RUNS"));
        let (first, runs) = (first.unwrap_or(1_000), runs.unwrap_or(300));
        swarm(first, runs, &program, FailureScenario::of_seed);
    }
    let (first, runs) = (number("FIRST_SEED").unwrap_or(1_000), number("RUNS").unwrap_or(100));
    swarm(first, runs, &Program::compile_sums().unwrap(), FailureScenario::of_large);
}

/// Can the checks fail? Each mistake of the controller's rules must be caught within MOST runs, and
/// the run that shows it must show nothing without it. BUG=Name: only that one.
#[test]
#[ignore = "minutes"]
fn every_mistake_of_the_controller_is_caught() {
    let program = Program::compile_apart(false).unwrap();
    let only = std::env::var("BUG").ok();
    let mut missed = vec![];
    let mut switches = vec![];
    // (The controller's own tests catch these: one is of groups with EWO, two show in no run here.)
    let others = [
        Mutation::AwayForgotten,
        Mutation::KeptForgotten,
        Mutation::JoinsEarly,
        Mutation::FoldedWhileAway,
        Mutation::FoldedUnlike,
        Mutation::LifeOfAgent,
    ];
    for bug in Mutation::ALL.into_iter().filter(|it| !others.contains(it)) {
        if only.as_ref().is_some_and(|only| *only != format!("{bug:?}")) {
            continue;
        }
        let first = number("FIRST_SEED").unwrap_or(1);
        let most = number("MOST").unwrap_or(150);
        let mut run = |seed, bug| {
            mutation::plant(bug);
            let scenario = FailureScenario::of_seed(seed);
            let outcome = run_failures(&program, &mut switches, &scenario, false);
            mutation::plant(None);
            outcome.violation
        };
        let found = (1..).zip(first..first + most);
        let found =
            found.into_iter().find_map(|(runs, seed)| Some((runs, seed, run(seed, Some(bug))?)));
        let Some((runs, seed, violation)) = found else {
            println!("| {bug:?} | not caught | {most} | |");
            missed.push(bug);
            continue;
        };
        println!("| {bug:?} | {} | {runs} | {} |", violation.check, violation.detail);
        assert_ne!(violation.check, "harness", "{violation}");
        assert_eq!(run(seed, None), None, "seed {seed} without {bug:?}");
    }
    assert!(missed.is_empty(), "{missed:?}");
}
