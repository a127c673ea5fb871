//! Bugs planted in the compiler: generated programs alone must find each. Needs root.

use fuzz::differential::{Plan, campaign, lowering};
use xdp_backend::mutations::Mutation as BackEnd;

/// Programs within which each bug of the elaboration must be found.
const MOST_LOWERED: u64 = 20_000;
/// Programs within which each bug of the back end must be found; these take a run of clang each.
const MOST_COMPILED: u64 = 2_000;
/// Bugs of a register between two CPUs: programs within which they must be found.
const MOST_SHARED: u64 = 100;

/// Tells which program found a bug, or notes that none did. The same program must be right
/// without the bug.
fn judge(
    bug: &str,
    found: Option<String>,
    missed: &mut Vec<String>,
    clean: impl Fn(u64) -> Option<String>,
) {
    let number =
        |story: &str| story.split(", program ").nth(1)?.split(&[':', ' '][..]).next()?.parse().ok();
    match found.as_deref().and_then(number) {
        Some(number) => {
            println!("{bug}: found by program {number}");
            let clean = clean(number);
            assert!(clean.is_none(), "{bug}: program {number} fails without it: {clean:?}");
        }
        None => missed.push(format!("{bug} ({found:?})")),
    }
}

#[test]
fn each_bug_of_the_elaboration_is_found() {
    use p4_check::mutations::{Mutation, plant};
    let seed = fuzz::fresh_seed();
    let plan =
        |first, runs| Plan { seed, first, runs, packets: 20, shrink: false, ..Default::default() };
    let run = |plan: &Plan| lowering(plan).err().map(|story| story.to_string());
    let mut missed = Vec::new();
    for bug in Mutation::ALL {
        plant(Some(bug));
        let found = run(&plan(0, MOST_LOWERED));
        plant(None);
        judge(&format!("{bug:?}"), found, &mut missed, |number| run(&plan(number, 1)));
    }
    assert!(missed.is_empty(), "not found in {MOST_LOWERED} programs of seed {seed}: {missed:?}");
}

fn back_end(bugs: &[BackEnd], most: u64, two_cpus_every: u64) {
    use xdp_backend::mutations::plant;
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    let seed = fuzz::fresh_seed();
    let plan = |first, runs| Plan {
        seed,
        first,
        runs,
        shrink: false,
        two_cpus_every,
        ..Default::default()
    };
    let run = |plan: &Plan| campaign(plan).err().map(|story| story.to_string());
    let mut missed = Vec::new();
    for bug in bugs {
        plant(Some(*bug));
        let found = run(&plan(0, most));
        plant(None);
        judge(&format!("{bug:?}"), found, &mut missed, |number| run(&plan(number, 1)));
    }
    assert!(missed.is_empty(), "not found in {most} programs of seed {seed}: {missed:?}");
}

#[test]
fn each_race_is_found() {
    back_end(&[BackEnd::SplitUpdates, BackEnd::UnlockedBlocks], MOST_SHARED, 1);
}

#[test]
fn each_lost_short_packet_is_found() {
    back_end(&[BackEnd::ShortPacketLost, BackEnd::ShortCutLost], MOST_COMPILED, 0);
}

/// Takes minutes: a part of `make soak`.
#[test]
#[ignore = "takes minutes"]
fn each_bug_of_the_back_end_is_found() {
    let races = [
        BackEnd::SplitUpdates,
        BackEnd::UnlockedBlocks,
        BackEnd::ShortPacketLost,
        BackEnd::ShortCutLost,
    ];
    // BUGS=one,another looks for these only.
    let chosen = std::env::var("BUGS").ok();
    let named = |bug: &BackEnd| {
        chosen.as_ref().is_none_or(|list| list.split(',').any(|name| name == format!("{bug:?}")))
    };
    let others: Vec<BackEnd> =
        BackEnd::ALL.into_iter().filter(|bug| !races.contains(bug) && named(bug)).collect();
    assert!(!others.is_empty(), "BUGS names none of the back end's bugs");
    back_end(&others, MOST_COMPILED, 0);
}
