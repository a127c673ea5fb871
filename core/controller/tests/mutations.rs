//! Can the checks of `cluster.rs` fail? Each bug of the controller's must be caught within `MOST`
//! seeds of the simulated chains, the first that shows it must show nothing without it.
//!
//! `cargo test --release -p controller --test mutations -- --ignored
//! --nocapture` (minutes); MUTATION=Name: only that one. Without `--ignored`: those that are caught
//! within a few seeds.

mod store;
mod world;

use controller::core::{Mutation, plant};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use world::{SECOND, World};

/// Seeds that a bug may hide from.
const MOST: u64 = 200;
/// Where the quick test looks.
const MOST_QUICK: u64 = 4;
const FIRST_SEED: u64 = 31_000_000;
const RUN: u64 = 20 * SECOND;

/// Caught within a few seeds.
const QUICK: [Mutation; 4] = [
    Mutation::MemberBeforeSynced,
    Mutation::SentBeforePersisted,
    Mutation::ReorderedUndrained,
    Mutation::AnyLife,
];

/// What a seed shows: the words of the check that failed.
fn violation(seed: u64, mutation: Option<Mutation>) -> Option<String> {
    static QUIET: Once = Once::new();
    // Every seed that shows a bug panics; what it says is in the table.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| ())));
    plant(mutation);
    let result = std::panic::catch_unwind(|| {
        let mut world = World::new(seed);
        world.run(RUN);
        world.finish(RUN + 20 * SECOND);
    });
    plant(None);
    let panicked = result.err()?;
    let said = panicked.downcast_ref::<String>().cloned();
    let said = said
        .or_else(|| panicked.downcast_ref::<&str>().map(|said| (*said).to_owned()))
        .unwrap_or_default();
    Some(said.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(160).collect())
}

fn all_are_caught(bugs: &[Mutation], most: u64) {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found =
                (0..most).find_map(|at| Some((at, violation(FIRST_SEED + at, Some(*bug))?)));
            let Some((at, said)) = found else {
                println!("| {bug:?} | not caught | {most} |");
                wrong.lock().unwrap().push(format!("{bug:?} was not caught by {most} seeds"));
                continue;
            };
            println!("| {bug:?} | {said} | {} |", at + 1);
            if let Some(without) = violation(FIRST_SEED + at, None) {
                wrong
                    .lock()
                    .unwrap()
                    .push(format!("seed {} without {bug:?}: {without}", FIRST_SEED + at));
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.lock().unwrap();
    // The hook above is quiet.
    wrong.iter().for_each(|what| eprintln!("{what}"));
    assert!(wrong.is_empty());
}

#[test]
#[ignore = "minutes: scripts/soak.sh BIN mutations"]
fn every_seeded_bug_is_caught() {
    let only = std::env::var("MUTATION").ok();
    let wanted = |bug: &Mutation| only.as_ref().is_none_or(|only| *only == format!("{bug:?}"));
    let bugs: Vec<_> = Mutation::ALL.into_iter().filter(wanted).collect();
    assert!(!bugs.is_empty(), "no bug is called {only:?}");
    all_are_caught(&bugs, MOST);
}

#[test]
fn the_plain_ones_are_caught_quickly() {
    all_are_caught(&QUICK, MOST_QUICK);
}
