//! Can the checks fail? Each seeded bug must be caught within `MOST` seeds, and the run that shows
//! it must show nothing without it. The table says by which check, and after how many seeds.
//!
//! `cargo test --release -p netchain-sim --test mutations -- --ignored
//! --nocapture`; BUG=Name: only that one. Without `--ignored`: those that are caught within a few
//! runs.

use netchain_controller::Mutation;
use netchain_sim::{AgentBug, Bench, ClientBug, Scenario, SeededBug, Violation, seeded};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds that a bug may hide from.
const MOST: u64 = 4_000;
/// FIRST_SEED=N: from there on.
const FIRST_SEED: u64 = 50_000;

/// Caught within some runs.
const QUICK: [&str; 7] = [
    "RefusedByHead",
    "VersionsAnew",
    "NoWindow",
    "SentBeforePersisted",
    "TombstonesListed",
    "CursorTooFar",
    "ToldAgain",
];

#[derive(Clone, Copy)]
enum Seeded {
    Program(&'static SeededBug),
    Controller(Mutation),
    Agent(AgentBug),
    Client(ClientBug),
}

fn bugs() -> Vec<(String, Seeded)> {
    let program = seeded::ALL.iter().map(|bug| (bug.name.to_owned(), Seeded::Program(bug)));
    let controller = Mutation::ALL.map(|bug| (format!("{bug:?}"), Seeded::Controller(bug)));
    let agent = AgentBug::ALL.map(|bug| (format!("{bug:?}"), Seeded::Agent(bug)));
    let client = ClientBug::ALL.map(|bug| (format!("{bug:?}"), Seeded::Client(bug)));
    program.chain(controller).chain(agent).chain(client).collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// From now on this thread has that bug, or none.
fn plant(bug: Option<Seeded>) {
    netchain_controller::plant(match bug {
        Some(Seeded::Controller(bug)) => Some(bug),
        _ => None,
    });
    seeded::plant(match bug {
        Some(Seeded::Agent(bug)) => Some(bug),
        _ => None,
    });
    seeded::clients::plant(match bug {
        Some(Seeded::Client(bug)) => Some(bug),
        _ => None,
    });
}

/// The first seed that shows a bug, after how many runs.
fn hunt(bench: &Bench, bug: Seeded, most: u64) -> Option<(u64, u64, Violation)> {
    plant(Some(bug));
    let first = number("FIRST_SEED").unwrap_or(FIRST_SEED);
    let found = (1..).zip(first..first + most).find_map(|(runs, seed)| {
        let (outcome, _) = bench.run(&Scenario::of_seed(seed), false);
        Some((seed, runs, outcome.violation?))
    });
    plant(None);
    found
}

fn all_are_caught(bugs: &[(String, Seeded)], most: u64) {
    let plain = Bench::new(None).unwrap();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, bug)) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let own = match bug {
                Seeded::Program(bug) => Some(Bench::new(Some(bug)).unwrap()),
                _ => None,
            };
            let Some((seed, runs, found)) = hunt(own.as_ref().unwrap_or(&plain), *bug, most) else {
                println!("| {name} | not caught | {most} | |");
                missed.lock().unwrap().push(name.clone());
                continue;
            };
            println!("| {name} | {} | {runs} | {} |", found.check, found.detail);
            let (without, _) = plain.run(&Scenario::of_seed(seed), false);
            assert_eq!(without.violation, None, "seed {seed} without {name}");
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(*missed.lock().unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "minutes: scripts/soak.sh BIN netchain_sim_mutations"]
fn every_seeded_bug_is_caught() {
    let only = std::env::var("BUG").ok();
    let wanted = |(name, _): &(String, Seeded)| only.as_ref().is_none_or(|only| only == name);
    let bugs: Vec<_> = bugs().into_iter().filter(wanted).collect();
    assert!(!bugs.is_empty(), "no bug is called {only:?}");
    all_are_caught(&bugs, number("MOST").unwrap_or(MOST));
}

#[test]
fn the_plain_ones_are_caught_quickly() {
    let bugs: Vec<_> =
        bugs().into_iter().filter(|(name, _)| QUICK.contains(&name.as_str())).collect();
    assert_eq!(bugs.len(), QUICK.len());
    all_are_caught(&bugs, 400);
}
