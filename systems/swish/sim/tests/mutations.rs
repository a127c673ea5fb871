//! Can the checks fail? Each seeded bug must be caught within `MOST` runs, and the run that shows
//! it must show nothing without it. The table says by which check, after how many runs. Needs root.
//!
//! `cargo test -p swish-sim --test mutations -- --ignored --nocapture`; BUG=Name: only that one.
//! Without `--ignored`: those that are caught within a few runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use swish_sim::{Bench, Program, Scenario, SeededBug, seeded};
use swish_switch::mutation::{self, Mutation};

/// Runs that a bug may hide from.
const MOST: u64 = 400;
/// FIRST_SEED=N: from there on.
const FIRST_SEED: u64 = 50_000;
/// Caught within some runs.
const QUICK: [&str; 2] = ["RotatedOnAdvance", "NoBase"];
/// The same, of aggregation trees.
const QUICK_OF_TREES: [&str; 3] = ["ReadyBeforeSubtree", "CountedBeforeChildren", "UpToldToChild"];

/// The same, of windows of many messages.
const QUICK_OF_LARGE: [&str; 2] = ["BackHalfUnsent", "BitsOfOneWord"];
/// Mistakes of the packet generator's rules that only large windows show.
const MUTATIONS: [Mutation; 2] = [Mutation::OnOneCpu, Mutation::OnNoCpu];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn all_are_caught(bugs: &[&SeededBug], most: u64, of_seed: fn(u64) -> Scenario) {
    let plain = Program::compile(None).unwrap();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let first = number("FIRST_SEED").unwrap_or(FIRST_SEED);
    let work = || {
        let mut without = Bench::new(&plain);
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let program = Program::compile(Some(bug)).unwrap();
            let mut bench = Bench::new(&program);
            let found = (1..).zip(first..first + most).find_map(|(runs, seed)| {
                let outcome = bench.run(&of_seed(seed), false);
                Some((seed, runs, outcome.violation?))
            });
            let Some((seed, runs, found)) = found else {
                println!("| {} | not caught | {most} | |", bug.name);
                missed.lock().unwrap().push(bug.name);
                continue;
            };
            let detail = found.detail.lines().next().unwrap_or_default();
            println!("| {} | {} | {runs} | {detail} |", bug.name, found.check);
            assert_ne!(found.check, "harness", "{found}");
            let outcome = without.run(&of_seed(seed), false);
            assert_eq!(outcome.violation, None, "seed {seed} without {}", bug.name);
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(*missed.lock().unwrap(), Vec::<&str>::new());
}

#[test]
#[ignore = "a minute or two"]
fn every_seeded_bug_is_caught() {
    let only = std::env::var("BUG").ok();
    let wanted = |bug: &&SeededBug| only.as_ref().is_none_or(|only| *only == bug.name);
    let bugs: Vec<_> = seeded::ALL.iter().filter(wanted).collect();
    assert!(!bugs.is_empty(), "no bug is called {only:?}");
    all_are_caught(&bugs, number("MOST").unwrap_or(MOST), Scenario::of_seed);
}

/// Of an aggregation tree.
#[test]
#[ignore = "a minute or two"]
fn every_seeded_bug_of_trees_is_caught() {
    let only = std::env::var("BUG").ok();
    let wanted = |bug: &&SeededBug| only.as_ref().is_none_or(|only| *only == bug.name);
    let bugs: Vec<_> = seeded::TREE.iter().filter(wanted).collect();
    assert!(!bugs.is_empty(), "no bug is called {only:?}");
    all_are_caught(&bugs, number("MOST").unwrap_or(MOST), Scenario::of_tree);
}

/// Of windows of many messages: runs in which nothing fails show those of the halves and of CPUs.
#[test]
#[ignore = "a minute or two"]
fn every_seeded_bug_of_large_windows_is_caught() {
    let only = std::env::var("BUG").ok();
    let wanted = |bug: &&SeededBug| only.as_ref().is_none_or(|only| *only == bug.name);
    let bugs: Vec<_> = seeded::LARGE.iter().filter(wanted).collect();
    all_are_caught(&bugs, number("MOST").unwrap_or(40), Scenario::of_large_or_exact);
    let plain = Program::compile(None).unwrap();
    let named = |bug: &Mutation| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"));
    for bug in MUTATIONS.into_iter().filter(named) {
        is_caught(&plain, bug);
    }
}

/// A mistake of the packet generator's rules shows, and its run shows nothing without it.
fn is_caught(plain: &Program, bug: Mutation) {
    let mut bench = Bench::new(plain);
    let mut run = |seed, bug| {
        mutation::plant(bug);
        let outcome = bench.run(&Scenario::of_large_or_exact(seed), false);
        mutation::plant(None);
        outcome.violation
    };
    let first = number("FIRST_SEED").unwrap_or(FIRST_SEED);
    let mut found = (1..).zip(first..first + number("MOST").unwrap_or(40));
    let found = found.find_map(|(runs, seed)| Some((runs, seed, run(seed, Some(bug))?)));
    let (runs, seed, found) = found.unwrap_or_else(|| panic!("{bug:?} is not caught"));
    println!("| {bug:?} | {} | {runs} | {} |", found.check, found.detail.lines().next().unwrap());
    assert_ne!(found.check, "harness", "{found}");
    assert_eq!(run(seed, None), None, "seed {seed} without {bug:?}");
}

#[test]
fn the_plain_ones_are_caught_quickly() {
    let bugs: Vec<_> = seeded::ALL.iter().filter(|bug| QUICK.contains(&bug.name)).collect();
    assert_eq!(bugs.len(), QUICK.len());
    all_are_caught(&bugs, 40, Scenario::of_seed);
}

#[test]
fn plain_ones_of_large_windows_are_caught_quickly() {
    let of_large = seeded::LARGE.iter();
    let bugs: Vec<_> = of_large.filter(|it| QUICK_OF_LARGE.contains(&it.name)).collect();
    assert_eq!(bugs.len(), QUICK_OF_LARGE.len());
    all_are_caught(&bugs, 2, Scenario::of_large_or_exact);
}

#[test]
fn plain_ones_of_trees_are_caught_quickly() {
    let bugs: Vec<_> = seeded::TREE.iter().filter(|it| QUICK_OF_TREES.contains(&it.name)).collect();
    assert_eq!(bugs.len(), QUICK_OF_TREES.len());
    all_are_caught(&bugs, 40, Scenario::of_tree);
}
