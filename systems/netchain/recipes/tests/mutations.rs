//! Can the checks of `simulation.rs` fail? Each bug must be caught within `MOST` seeds; the first
//! that shows it must show nothing without it.
//!
//! `cargo test -p netchain-recipes --test mutations`

mod world;

use netchain_recipes::{Mutation, plant};
use world::scenarios::{ALL, Scenario};

/// Seeds that a bug may hide from.
const MOST: u64 = 300;
const FIRST_SEED: u64 = 10_000;

/// In which scenario a bug must show.
fn scenario_of(bug: Mutation) -> &'static str {
    match bug {
        Mutation::JudgedEarly | Mutation::CountedFromReply => "lock",
        Mutation::ReaderBesideWriter => "rwlock",
        Mutation::OnePermitMore => "semaphore",
        Mutation::ElectedByPut => "election",
        Mutation::BarrierOpensEarly => "barrier",
        Mutation::MemberMissed => "membership",
        Mutation::AddedAgain => "counter",
        Mutation::ReadBeforeLocks => "transaction",
    }
}

/// What a seed shows: the words of the check that failed.
fn violation(scenario: Scenario, seed: u64, mutation: Option<Mutation>) -> Option<String> {
    plant(mutation);
    let result = std::panic::catch_unwind(|| drop(scenario(seed)));
    plant(None);
    let panicked = result.err()?;
    let said = panicked.downcast_ref::<String>();
    Some(said.map_or_else(String::new, |said| said.chars().take(160).collect()))
}

#[test]
fn seeded_bugs_are_caught() {
    std::panic::set_hook(Box::new(|_| ()));
    let mut wrong = vec![];
    for bug in Mutation::ALL {
        let (_, scenario) =
            ALL.iter().find(|(name, _)| *name == scenario_of(bug)).expect("a scenario");
        let found = (FIRST_SEED..FIRST_SEED + MOST)
            .find_map(|seed| Some((seed, violation(*scenario, seed, Some(bug))?)));
        match found {
            None => wrong.push(format!("{bug:?} was not caught by {MOST} seeds")),
            Some((seed, said)) => {
                println!("| {bug:?} | seed {seed} | {said} |");
                if let Some(said) = violation(*scenario, seed, None) {
                    wrong.push(format!("seed {seed} shows this without {bug:?}: {said}"));
                }
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
