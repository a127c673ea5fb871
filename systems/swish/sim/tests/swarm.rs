//! Random runs with all kinds of faults. RUNS=N: so many; FIRST_SEED=N: from there on; SEED=N: only
//! that one, with its log if it fails, SHRINK=0: as long as it is. `--ignored`: many more.
//! Needs root.

use std::collections::BTreeMap;
use swish_sim::{Bench, Outcome, Plan, Program, Scenario, run_many};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// One run; a failing one is made short, and its end shown.
fn replay(bench: &mut Bench<'_>, whole: &Scenario) {
    let seed = whole.seed;
    let outcome = bench.run(whole, false);
    let Outcome { probes, shapes, large, .. } = &outcome;
    println!("SEED={seed}: {probes} packets, {shapes:?}, {large} of large windows");
    let Some(violation) = outcome.violation else { return };
    println!("{violation}");
    let short =
        if number("SHRINK") == Some(0) { whole.clone() } else { bench.shrink(whole, &violation) };
    let outcome = bench.run(&short, true);
    let lines = number("LINES").unwrap_or(60) as usize;
    for line in &outcome.log[outcome.log.len().saturating_sub(lines)..] {
        println!("{line}");
    }
    println!("{} steps of {}: {short:?}", short.steps.len(), whole.steps.len());
    panic!("SEED={seed}: {violation}; short: {:?}", outcome.violation);
}

fn one(seed: u64) {
    let program = Program::compile(None).unwrap();
    replay(&mut Bench::new(&program), &Scenario::of_seed(seed));
}

fn swarm(seed: u64, runs: u64) {
    let began = std::time::Instant::now();
    let summary = run_many(Plan { seed, runs, time: None, threads: 2 }, None).unwrap();
    println!("{:.1} s: {summary:?}", began.elapsed().as_secs_f64());
    if let Some(seed) = summary.failures.keys().next() {
        one(*seed);
        panic!("SEED={seed} fails, but not alone: {summary:?}");
    }
    assert_eq!(summary.shapes.len(), 6, "each shape of message occurs: {:?}", summary.shapes);
}

#[test]
fn random_runs() {
    match number("SEED") {
        Some(seed) => one(seed),
        None => swarm(number("FIRST_SEED").unwrap_or(1), number("RUNS").unwrap_or(20)),
    }
}

/// The small sketch merges by a function of the program that is neither idempotent nor can be
/// undone.
#[test]
fn random_runs_with_an_own_merge() {
    let program = Program::compile_own().unwrap();
    let mut bench = Bench::new(&program);
    let first = number("FIRST_SEED").unwrap_or(1);
    for seed in first..first + number("RUNS").unwrap_or(10) {
        let outcome = bench.run(&Scenario::of_seed(seed), false);
        assert_eq!(outcome.violation, None, "SEED={seed}");
        assert!(outcome.probes > 0, "SEED={seed}: nothing was read");
    }
}

/// With an aggregation tree, of each depth that there is among up to 8 switches.
#[test]
fn random_runs_with_a_tree() {
    trees(number("RUNS").unwrap_or(8));
}

#[test]
#[ignore = "minutes"]
fn many_random_runs_with_a_tree() {
    trees(number("RUNS").unwrap_or(500));
}

fn trees(runs: u64) {
    let program = Program::compile(None).unwrap();
    let mut bench = Bench::new(&program);
    if let Some(seed) = number("SEED") {
        return replay(&mut bench, &Scenario::of_tree(seed));
    }
    let (mut shapes, first) = (BTreeMap::<u32, u64>::new(), number("FIRST_SEED").unwrap_or(1));
    for seed in first..first + runs {
        let scenario = Scenario::of_tree(seed);
        let outcome = bench.run(&scenario, false);
        if outcome.violation.is_some() {
            replay(&mut bench, &scenario);
        }
        assert!(outcome.probes > 0, "SEED={seed}: nothing was read");
        for (shape, count) in outcome.shapes {
            *shapes.entry(shape).or_default() += count;
        }
    }
    assert_eq!(shapes.len(), 6, "each shape of message occurs: {shapes:?}");
}

/// With windows of many messages: frames begin on all CPUs, and last longer.
#[test]
fn random_runs_with_large_windows() {
    large(Scenario::of_large, number("RUNS").unwrap_or(4));
}

/// The same without faults: each message is sent once, and all CPUs send some.
#[test]
fn exact_runs_with_large_windows() {
    large(Scenario::of_exact, number("RUNS").unwrap_or(2));
}

#[test]
#[ignore = "minutes"]
fn many_random_runs_with_large_windows() {
    for of_seed in [Scenario::of_large, Scenario::of_exact] {
        large(of_seed, number("RUNS").unwrap_or(200));
    }
}

fn large(of_seed: fn(u64) -> Scenario, runs: u64) {
    let program = Program::compile(None).unwrap();
    let mut bench = Bench::new(&program);
    if let Some(seed) = number("SEED") {
        return replay(&mut bench, &of_seed(seed));
    }
    let first = number("FIRST_SEED").unwrap_or(1);
    for seed in first..first + runs {
        let scenario = of_seed(seed);
        let outcome = bench.run(&scenario, false);
        if outcome.violation.is_some() {
            replay(&mut bench, &scenario);
        }
        assert!(outcome.large > 0, "SEED={seed}: no window was large");
    }
}

fn many(switches: usize) {
    let program = Program::compile_room(128).unwrap();
    let began = std::time::Instant::now();
    let scenario = Scenario::of_many(number("SEED").unwrap_or(1), switches);
    let outcome = Bench::new(&program).run(&scenario, false);
    let took = began.elapsed().as_secs_f64();
    println!("{took:.1} s: {} packets, {:?}", outcome.probes, outcome.shapes);
    assert_eq!(outcome.violation, None);
    assert!(outcome.probes > 0, "nothing was read");
}

/// Members' numbers are up to 46: the program has room for 128.
#[test]
fn a_run_of_sixteen_switches() {
    many(16);
}

#[test]
#[ignore = "a minute or two"]
fn a_run_of_forty_switches() {
    many(40);
}

#[test]
#[ignore = "minutes"]
fn many_random_runs() {
    swarm(number("FIRST_SEED").unwrap_or(1_000), number("RUNS").unwrap_or(500));
}
