//! Random runs in which switches, agents and the controller die. RUNS=N: so many; FIRST_SEED=N:
//! from there on; SEED=N: only that one, with its log if it fails. `--ignored`: many more. Needs
//! root.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use swish_controller::mutation::{self, Mutation};
use swish_sim::{FailureOutcome, FailureScenario, Program, Violation, run_failures, seeded};
use swish_switch::mutation::Mutation as Rule;

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
    random(&Program::compile_apart(false, None).unwrap(), 8, FailureScenario::of_seed);
}

/// The small sketch merges by a function of the program that is neither idempotent nor can be
/// undone: what counts twice shows, and what a dead switch brought cannot be taken out.
#[test]
fn random_failures_with_an_own_merge() {
    random(&Program::compile_apart(true, None).unwrap(), 12, FailureScenario::of_seed);
}

/// Windows have many messages, also when a switch dies.
#[test]
fn random_failures_in_large_windows() {
    let large = random(&Program::compile_sums().unwrap(), 4, FailureScenario::of_large);
    assert!(large > 0 || number("SEED").is_some(), "no window was large");
}

#[test]
#[ignore = "minutes"]
fn many_random_failures() {
    for own_merge in [false, true] {
        let program = Program::compile_apart(own_merge, None).unwrap();
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
    let program = Program::compile_apart(false, None).unwrap();
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
        let run = |seed, bug| {
            mutation::plant(bug);
            let scenario = FailureScenario::of_seed(seed);
            let outcome = run_failures(&program, &mut switches, &scenario, false);
            mutation::plant(None);
            outcome.violation
        };
        missed.extend(Some(bug).filter(|_| !is_caught(bug, run)));
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Whether a mistake shows in one of MOST runs, which shows nothing without it.
fn is_caught<B: Copy + std::fmt::Debug>(
    bug: B,
    mut run: impl FnMut(u64, Option<B>) -> Option<Violation>,
) -> bool {
    let first = number("FIRST_SEED").unwrap_or(1);
    let most = number("MOST").unwrap_or(150);
    let mut seeds = (1..).zip(first..first + most);
    let found = seeds.find_map(|(runs, seed)| Some((runs, seed, run(seed, Some(bug))?)));
    let Some((runs, seed, violation)) = found else {
        println!("| {bug:?} | not caught | {most} | |");
        return false;
    };
    println!("| {bug:?} | {} | {runs} | {} |", violation.check, violation.detail);
    assert_ne!(violation.check, "harness", "{violation}");
    assert_eq!(run(seed, None), None, "seed {seed} without {bug:?}");
    true
}

/// The same of the agents' rules, and of the data plane's seal.
#[test]
#[ignore = "minutes"]
fn every_mistake_of_members_is_caught() {
    let plain = Program::compile_apart(false, None).unwrap();
    let only = std::env::var("BUG").ok();
    let named = |name: &str| only.as_ref().is_none_or(|only| only == name);
    let (mut missed, mut switches) = (vec![], vec![]);
    for bug in [Rule::AttemptKept, Rule::CountedHandedIn] {
        let name = format!("{bug:?}");
        let run = |seed, bug| {
            swish_switch::mutation::plant(bug);
            let scenario = FailureScenario::of_seed(seed);
            let outcome = run_failures(&plain, &mut switches, &scenario, false);
            swish_switch::mutation::plant(None);
            outcome.violation
        };
        if named(&name) && !is_caught(bug, run) {
            missed.push(name);
        }
    }
    for bug in seeded::SEAL.iter().filter(|bug| named(bug.name)) {
        let wrong = Program::compile_apart(false, Some(bug)).unwrap();
        let mut with_bug = vec![];
        let run = |seed, bug: Option<&str>| {
            let (program, switches) =
                if bug.is_some() { (&wrong, &mut with_bug) } else { (&plain, &mut switches) };
            run_failures(program, switches, &FailureScenario::of_seed(seed), false).violation
        };
        if !is_caught(bug.name, run) {
            missed.push(bug.name.to_owned());
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
