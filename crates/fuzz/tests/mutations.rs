//! Bugs planted in the elaboration: generated programs alone must find each.
#![cfg(feature = "mutations")]

use fuzz::differential::{Plan, lowering};
use p4_check::mutations::{Mutation, plant};

/// Programs within which each bug must be found.
const MOST: u64 = 20_000;

fn plan(seed: u64, runs: u64) -> Plan {
    Plan { seed, first: 0, runs, packets: 20, batch: 1, keep_going: false, save: None }
}

#[test]
fn each_bug_is_found() {
    let seed = fuzz::fresh_seed();
    let mut missed = Vec::new();
    for bug in Mutation::ALL {
        plant(Some(bug));
        let found = lowering(&plan(seed, MOST)).err().map(|story| story.to_string());
        plant(None);
        match found.as_deref().and_then(|story| story.split(", program ").nth(1)?.split(':').next()?.parse().ok()) {
            Some(number) => {
                println!("{bug:?}: found by program {number}");
                // The same program without the bug.
                let clean = lowering(&Plan { first: number, ..plan(seed, 1) });
                assert!(clean.is_ok(), "{bug:?}: program {number} fails without it: {clean:?}");
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {MOST} programs of seed {seed}: {missed:?}");
}
