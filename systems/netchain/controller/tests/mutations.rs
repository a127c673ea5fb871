//! Can the checks of `cluster.rs` fail? Each bug of the controller's must be caught within `MOST`
//! seeds; the first that shows it must show nothing without it.
//!
//! `cargo test -p netchain-controller --test mutations`

mod world;

use netchain_controller::{Mutation, plant};
use world::World;

/// Seeds that a bug may hide from.
const MOST: u64 = 200;
const FIRST_SEED: u64 = 1_000;

/// What a seed shows: the words of the check that failed.
fn violation(seed: u64, mutation: Option<Mutation>) -> Option<String> {
    plant(mutation);
    let result = std::panic::catch_unwind(|| {
        let mut world = World::new(seed);
        world.run(6_000, true);
        world.finish();
    });
    plant(None);
    let panicked = result.err()?;
    Some(
        panicked
            .downcast_ref::<String>()
            .map_or_else(String::new, |said| said.chars().take(160).collect()),
    )
}

#[test]
fn seeded_bugs_are_caught() {
    std::panic::set_hook(Box::new(|_| ()));
    let mut wrong = vec![];
    for bug in Mutation::ALL {
        let found = (FIRST_SEED..FIRST_SEED + MOST)
            .find_map(|seed| Some((seed, violation(seed, Some(bug))?)));
        match found {
            None => wrong.push(format!("{bug:?} was not caught by {MOST} seeds")),
            Some((seed, said)) => {
                println!("| {bug:?} | seed {seed} | {said} |");
                if let Some(said) = violation(seed, None) {
                    wrong.push(format!("seed {seed} shows this without {bug:?}: {said}"));
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
