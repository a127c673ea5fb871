//! Can the checks fail? Each seeded bug must be caught within `MOST` swarm seeds; the table says by which check, and after how many. The same seeds without a bug find nothing.
//!
//! `cargo test -p sim --features mutations --test mutations -- --nocapture`; MUTATION=Name: only that one.

use sim::{Bench, Kind, Program, Scenario};
use state_store::core::{Mutation, set_mutation};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds that a bug may hide from.
const MOST: u64 = 10_000;
const FIRST_SEED: u64 = 77_000_000;

/// `SP_BUG_...` of stateplane_flow.h, by number: name, and the program in which it shows.
const DATA_PLANE: [(&str, u32, Kind); 16] = [
    ("LeaseFromReply", 1, Kind::Linearizable),
    ("ReadBeforeAck", 2, Kind::Linearizable),
    ("NeverSentAgain", 3, Kind::Linearizable),
    ("GrantOverOwnState", 4, Kind::Linearizable),
    ("ReleasedTakenAgain", 5, Kind::Linearizable),
    ("RecallKeeps", 6, Kind::Linearizable),
    ("ReplyToEarlierLife", 8, Kind::Linearizable),
    ("LeaseNeverOver", 9, Kind::Linearizable),
    ("AckedWhenSent", 10, Kind::Linearizable),
    ("RingForgets", 11, Kind::Linearizable),
    ("SnapshotOfActiveCopy", 12, Kind::Snapshots),
    ("SwitchReplaysTaken", 13, Kind::Linearizable),
    ("ReleaseNotSentAgain", 14, Kind::Linearizable),
    ("RemovedAtOnce", 15, Kind::Linearizable),
    ("SavedWithOnePart", 17, Kind::Snapshots),
    ("NeverOverdue", 18, Kind::Snapshots),
];

/// Not a bug by itself: another rule stands behind it, so that nothing that can be seen changes. A switch's own updates of an earlier epoch are older than the request that its next session
/// began with, or carried by its release.
const COVERED: [Mutation; 1] = [Mutation::NoEpochCheck];

enum Bug {
    Store(Mutation),
    DataPlane(u32),
}

fn bugs() -> Vec<(String, Bug, Kind)> {
    let store = Mutation::ALL.iter().filter(|mutation| !COVERED.contains(mutation)).map(|mutation| {
        let snapshots = matches!(mutation, Mutation::SnapshotsMixed | Mutation::SnapshotOfOnePart);
        let kind = match mutation {
            _ if snapshots => Kind::Snapshots,
            // What is not acknowledged no packet of a linearizable object has shown.
            Mutation::ReleaseWithoutValue => Kind::Asynchronous,
            Mutation::FreedTwice | Mutation::OwnedFreed | Mutation::TakenPortsGiven => Kind::Nat,
            Mutation::NeverFreed => Kind::Balancer,
            _ => Kind::Linearizable,
        };
        (format!("{mutation:?}"), Bug::Store(*mutation), kind)
    });
    let data_plane = DATA_PLANE.iter().map(|(name, number, kind)| (name.to_string(), Bug::DataPlane(*number), *kind));
    let only = std::env::var("MUTATION").ok();
    store.chain(data_plane).filter(|(name, ..)| only.as_ref().is_none_or(|only| only == name)).collect()
}

fn bench(kind: Kind, number: u32) -> Bench {
    if number == 0 {
        return Bench::new(kind).unwrap();
    }
    let define = format!("SP_BUG={number}");
    let p4: &[&str] = if kind == Kind::Snapshots { &["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=400"] } else { &[] };
    Bench::with(Program::compile(kind, p4, &[&define]).unwrap())
}

/// After how many seeds, by which check.
fn hunt(bug: &Bug, kind: Kind, most: u64) -> Option<(u64, &'static str, String)> {
    let mut bench = bench(kind, if let Bug::DataPlane(number) = bug { *number } else { 0 });
    set_mutation(if let Bug::Store(mutation) = bug { Some(*mutation) } else { None });
    let found = (0..most).find_map(|number| {
        let scenario = Scenario::of_seed(FIRST_SEED + number, kind);
        let violation = bench.run(&scenario, false).unwrap().0.violation?;
        Some((number + 1, violation.check, violation.detail))
    });
    set_mutation(None);
    found
}

#[test]
fn every_seeded_bug_is_caught() {
    let most = std::env::var("MOST").ok().and_then(|text| text.parse().ok()).unwrap_or(MOST);
    let bugs = bugs();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, bug, kind)) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match hunt(bug, *kind, most) {
                Some((seeds, check, detail)) => println!("| {name} | {check} | {seeds} | {detail}"),
                None => {
                    println!("| {name} | not caught | {most} |");
                    missed.lock().unwrap().push(name.clone());
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(*missed.lock().unwrap(), Vec::<String>::new());
}
