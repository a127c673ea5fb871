//! Can the checks of the simulation fail? Each seeded bug of what the head does with batches, and
//! of the chain below it, must be caught within `MOST` seeds, and the seed that shows it must show
//! nothing without it.
//!
//! `cargo test -p state-store --features mutations --test batch_mutations -- --nocapture`

mod common;
mod simulated;

use simulated::simulate;
use state_store::core::{Mutation, plant};
use std::panic::catch_unwind;
use std::sync::Once;

/// Seeds that a bug may hide from.
const MOST: u64 = 100;
/// Of every four seeds three have switches that send batches: this is the first of them.
const FIRST_SEED: u64 = 4_001;

#[derive(Clone, Copy, Debug)]
enum Bug {
    Store(Mutation),
    Chain(chain::Mutation),
}

const BUGS: [Bug; 7] = [
    Bug::Store(Mutation::BatchOfOldEpoch),
    Bug::Store(Mutation::RefusedNotTold),
    Bug::Store(Mutation::HalfOfGroup),
    Bug::Store(Mutation::FastUpdateIsEverywhere),
    Bug::Store(Mutation::EffectTakesBack),
    Bug::Chain(chain::Mutation::ReplyBeforeTail),
    Bug::Chain(chain::Mutation::GapInChain),
];

/// What a seed shows: the words of the check that failed.
fn violation(seed: u64, bug: Option<Bug>) -> Option<String> {
    static QUIET: Once = Once::new();
    // Every seed that shows a bug panics; what it says is printed below.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| ())));
    match bug {
        Some(Bug::Store(mutation)) => plant(Some(mutation)),
        Some(Bug::Chain(mutation)) => chain::plant(Some(mutation)),
        None => {}
    }
    let result = catch_unwind(|| simulate(seed, false));
    plant(None);
    chain::plant(None);
    let panicked = result.err()?;
    let said = panicked.downcast_ref::<String>().cloned();
    Some(said.unwrap_or_else(|| panicked.downcast_ref::<&str>().map_or("?", |it| it).to_owned()))
}

#[test]
fn every_seeded_bug_is_caught() {
    let mut missed = vec![];
    for bug in BUGS {
        // Those without batches tell nothing of them.
        let seeds = (FIRST_SEED..).filter(|seed| seed % 4 != 0).take(MOST as usize);
        let found = (1..)
            .zip(seeds)
            .find_map(|(runs, seed)| violation(seed, Some(bug)).map(|said| (runs, seed, said)));
        let Some((runs, seed, said)) = found else {
            missed.push(format!("{bug:?} is not caught by {MOST} seeds"));
            continue;
        };
        println!("{bug:?}: run {runs}: {}", said.lines().next().unwrap_or(""));
        if let Some(said) = violation(seed, None) {
            missed.push(format!("seed {seed} without {bug:?}: {said}"));
        }
    }
    // The hook above is quiet.
    missed.iter().for_each(|what| eprintln!("{what}"));
    assert!(missed.is_empty());
}
