//! Can the checks fail? Each seeded bug must be caught within `MOST` seeds, and the seed that shows
//! it must show nothing without it.
//!
//! `cargo test -p chain --test mutations -- --nocapture`

mod common;

use chain::{Mutation, plant};
use common::SECOND;
use common::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

const MOST: u64 = 200;
const FIRST_SEED: u64 = 1_000;

/// What a seed shows: the words of the check that failed.
fn violation(seed: u64, mutation: Option<Mutation>) -> Option<String> {
    static QUIET: Once = Once::new();
    // Every seed that shows a bug panics; what it says is printed below.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| ())));
    plant(mutation);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed, seed % 2 == 1);
        world.run(3 * SECOND);
        world.finish();
    }));
    plant(None);
    let panicked = result.err()?;
    let said = panicked.downcast_ref::<String>().cloned();
    Some(
        said.unwrap_or_else(|| panicked.downcast_ref::<&str>().map_or("?", |said| said).to_owned()),
    )
}

#[test]
fn every_seeded_bug_is_caught() {
    let mut missed = vec![];
    // What needs no entry is a system's, and so is the test that has that bug.
    for bug in Mutation::ALL.into_iter().filter(|bug| *bug != Mutation::SteadyWhileJoining) {
        let seeds = FIRST_SEED..FIRST_SEED + MOST;
        let Some((seed, said)) =
            seeds.into_iter().find_map(|seed| Some((seed, violation(seed, Some(bug))?)))
        else {
            missed.push(format!("{bug:?} is not caught by {MOST} seeds"));
            continue;
        };
        println!("{bug:?}: seed {}: {}", seed - FIRST_SEED + 1, said.lines().next().unwrap_or(""));
        if let Some(said) = violation(seed, None) {
            missed.push(format!("seed {seed} without {bug:?}: {said}"));
        }
    }
    // The hook above is quiet.
    missed.iter().for_each(|what| eprintln!("{what}"));
    assert!(missed.is_empty());
}
