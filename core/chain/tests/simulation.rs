//! Counters replicated by chains of three on a network that loses, repeats, delays, reorders and
//! cuts, while servers die or lose power, join, and change places. Everything follows from one
//! seed, which a failure prints; `CHAIN_SEED=n` replays it.

mod common;

use common::world::World;
use common::{Checks, SECOND};
use std::panic::{AssertUnwindSafe, catch_unwind};

const SEEDS: u64 = 25;
const RUN: u64 = 3 * SECOND;

fn run(seed: u64, journals: bool) -> (Checks, u64) {
    let mut world = World::new(seed, journals);
    world.run(RUN);
    world.finish();
    let replicas = world.servers.iter().filter_map(|server| server.replica());
    let overtaken = replicas.map(|replica| replica.counters().chain_gaps).sum();
    (world.checks, overtaken)
}

fn all(journals: bool) -> (Checks, u64) {
    let given = std::env::var("CHAIN_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = given.map_or(1..SEEDS + 1, |seed: u64| seed..seed + 1);
    let (mut sum, mut gaps) = (Checks::default(), 0);
    for seed in seeds {
        let (checks, overtaken) = catch_unwind(AssertUnwindSafe(|| run(seed, journals)))
            .unwrap_or_else(|_| panic!("CHAIN_SEED={seed}, journals: {journals}"));
        sum.answers += checks.answers;
        sum.joined += checks.joined;
        sum.deaths += checks.deaths;
        sum.reordered += checks.reordered;
        sum.power_cuts += checks.power_cuts;
        gaps += overtaken;
    }
    println!(
        "answers {}, joined {}, deaths {}, power cuts {}, reordered {}, gaps {gaps}",
        sum.answers, sum.joined, sum.deaths, sum.power_cuts, sum.reordered
    );
    (sum, gaps)
}

#[test]
fn replicas_that_die_and_join_keep_one_order() {
    let (sum, gaps) = all(false);
    assert!(sum.answers > SEEDS * 100 && sum.joined > SEEDS && sum.deaths > SEEDS && gaps > SEEDS);
    assert!(sum.reordered > SEEDS / 4);
}

#[test]
fn replicas_that_lose_power_go_on_with_what_is_durable() {
    let (sum, _) = all(true);
    assert!(sum.answers > SEEDS * 100 && sum.power_cuts > SEEDS && sum.joined > SEEDS / 4);
}

#[test]
fn a_seed_gives_the_same_run() {
    let end = |world: &World| (world.view.clone(), world.checks.answers);
    let run = || {
        let mut world = World::new(5, true);
        world.run(SECOND);
        end(&world)
    };
    assert_eq!(run(), run());
}
