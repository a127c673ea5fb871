//! Can the checks fail? Each seeded bug must be caught within `MOST` seeds of the swarm, of which
//! only those whose program (`kind_of_seed`) is the one in which it shows are run. The table says
//! by which check, after how many such runs, and how many seeds of the swarm that is. The run that
//! shows a bug must show nothing without it.
//! Needs root.
//!
//! `cargo test --release -p sim --test mutations -- --ignored --nocapture`
//! (minutes); MUTATION=Name: only that one. Without `--ignored`: those that are caught within a few
//! runs.

use sim::{Bench, Kind, Program, Scenario, SeededBug, Violation, kind_of_seed};
use state_store::core::{Mutation, plant};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds of the swarm that a bug may hide from.
const MOST: u64 = 10_000;
/// Where the quick test looks.
const MOST_QUICK: u64 = 400;
/// FIRST_SEED=N: from there on.
const FIRST_SEED: u64 = 77_000_000;

/// Bugs of the data plane (`sim::seeded`), and the program in which each shows.
const DATA_PLANE: [(&str, Kind); 27] = [
    ("LeaseFromReply", Kind::Linearizable),
    ("ReadBeforeAck", Kind::Linearizable),
    ("NeverSentAgain", Kind::Linearizable),
    ("GrantOverOwnState", Kind::Linearizable),
    ("ReleasedTakenAgain", Kind::Linearizable),
    ("RecallKeeps", Kind::Linearizable),
    ("ReplyToEarlierLife", Kind::Linearizable),
    ("LeaseNeverOver", Kind::Linearizable),
    ("AckedWhenSent", Kind::Linearizable),
    ("RingForgets", Kind::Linearizable),
    ("SnapshotOfActiveCopy", Kind::Snapshots),
    ("SwitchReplaysTaken", Kind::Linearizable),
    ("SecondAnswerTaken", Kind::Linearizable),
    ("ReleaseNotSentAgain", Kind::Linearizable),
    ("RemovedAtOnce", Kind::Linearizable),
    ("SavedWithOnePart", Kind::Snapshots),
    ("NeverOverdue", Kind::Snapshots),
    ("ReleasedByAnyAck", Kind::Batched),
    ("RecordChangedInFlight", Kind::Batched),
    ("DurableWhenSent", Kind::Batched),
    ("RefusedPacketsLeave", Kind::Batched),
    ("OtherCpusBatch", Kind::Batched),
    ("BatchNotSentAgain", Kind::Batched),
    ("WrappedReadLeaves", Kind::Overflowing),
    ("WrappedKeepsBatch", Kind::Overflowing),
    ("SettledUnheard", Kind::Batched),
    ("OldRecordIsNewest", Kind::Gathered),
];

/// Not a bug by itself: another rule stands behind it, so that nothing that can be seen changes
/// (systems/redplane/docs/correctness.md, "Can the checks fail?").
const COVERED: [Mutation; 2] = [Mutation::NoEpochCheck, Mutation::ReplaysTaken];

/// No switch sends groups yet: `systems/redplane/store/tests/batch_mutations.rs`.
const OF_GROUPS: [Mutation; 1] = [Mutation::HalfOfGroup];

/// Bugs of the chain that the store's flows show. (All of them: `core/chain/tests/mutations.rs`.)
const CHAIN: [chain::Mutation; 5] = [
    chain::Mutation::ReplyBeforeTail,
    chain::Mutation::GapInChain,
    chain::Mutation::EntriesAgain,
    chain::Mutation::AnyView,
    chain::Mutation::SteadyWhileJoining,
];

/// Caught within some twenty runs.
const QUICK: [&str; 11] = [
    "NoFence",
    "ReplyBeforeTail",
    "ReadCommitNotHeld",
    "GrantOverOwner",
    "EpochNotRaised",
    "OldUpdateOverwrites",
    "GapInChain",
    "SnapshotOfOnePart",
    "ReadBeforeAck",
    "AckedWhenSent",
    "SwitchReplaysTaken",
];

/// No object of the swarm is merged: `systems/redplane/sim/tests/merged.rs`.
const OF_MERGES: [Mutation; 2] = [Mutation::SnapshotAddedTwice, Mutation::MergedWithoutTakingOff];

#[derive(Clone, Copy)]
enum Seeded {
    Store(Mutation),
    Chain(chain::Mutation),
    FastPath(fast_chain::Mutation),
    DataPlane(&'static SeededBug),
}

struct Bug {
    name: String,
    seeded: Seeded,
    /// The program in which it shows.
    kind: Kind,
}

fn bugs() -> Vec<Bug> {
    let elsewhere = [&COVERED[..], &OF_GROUPS, &OF_MERGES].concat();
    let shows = |mutation: &&Mutation| !elsewhere.contains(mutation);
    let store = Mutation::ALL.iter().filter(shows).map(|mutation| {
        let snapshots = matches!(mutation, Mutation::SnapshotsMixed | Mutation::SnapshotOfOnePart);
        let kind = match mutation {
            _ if snapshots => Kind::Snapshots,
            // What is not acknowledged no packet of a linearizable object has shown.
            Mutation::ReleaseWithoutValue => Kind::Asynchronous,
            Mutation::FreedTwice | Mutation::OwnedFreed | Mutation::TakenPortsGiven => Kind::Nat,
            Mutation::NeverFreed | Mutation::NoProbe => Kind::Balancer,
            Mutation::BatchOfOldEpoch | Mutation::RefusedNotTold => Kind::Batched,
            Mutation::FastUpdateIsEverywhere | Mutation::EffectTakesBack => Kind::Batched,
            _ => Kind::Linearizable,
        };
        Bug { name: format!("{mutation:?}"), seeded: Seeded::Store(*mutation), kind }
    });
    let chain = CHAIN.iter().map(|mutation| Bug {
        name: format!("{mutation:?}"),
        seeded: Seeded::Chain(*mutation),
        kind: match mutation {
            chain::Mutation::SteadyWhileJoining => Kind::Batched,
            _ => Kind::Linearizable,
        },
    });
    let fast_path = fast_chain::Mutation::ALL.iter().map(|mutation| Bug {
        name: format!("{mutation:?}"),
        seeded: Seeded::FastPath(*mutation),
        kind: Kind::Batched,
    });
    let data_plane = DATA_PLANE.iter().map(|(name, kind)| {
        let bug = SeededBug::named(name).expect("sim::seeded has it");
        Bug { name: (*name).to_owned(), seeded: Seeded::DataPlane(bug), kind: *kind }
    });
    store.chain(chain).chain(fast_path).chain(data_plane).collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn first_seed() -> u64 {
    number("FIRST_SEED").unwrap_or(FIRST_SEED)
}

impl Bug {
    /// The program with the bug, if it is one of the data plane; else one for all.
    fn bench<'a>(&self, own: &'a mut Option<Bench>, plain: &'a mut Plain) -> &'a mut Bench {
        let Seeded::DataPlane(bug) = self.seeded else { return plain.bench(self.kind) };
        own.insert(Bench::with(
            Program::compile(self.kind, Bench::p4_defines(self.kind), Some(bug)).unwrap(),
        ))
    }

    /// From now on this thread's servers have the bug, if it is one of theirs.
    fn seed(&self) {
        plant(if let Seeded::Store(mutation) = self.seeded { Some(mutation) } else { None });
        chain::plant(match self.seeded {
            Seeded::Chain(mutation) => Some(mutation),
            _ => None,
        });
        fast_chain::plant(match self.seeded {
            Seeded::FastPath(mutation) => Some(mutation),
            _ => None,
        });
    }

    /// The first of the swarm's seeds that shows it, after how many runs of its program.
    fn hunt(&self, bench: &mut Bench, most: u64) -> Option<(u64, u64, Violation)> {
        self.seed();
        let first = first_seed();
        let seeds = (first..first + most).filter(|seed| kind_of_seed(*seed) == self.kind);
        let found = (1..).zip(seeds).find_map(|(runs, seed)| {
            let violation =
                bench.run(&Scenario::of_seed(seed, self.kind), false).unwrap().0.violation?;
            Some((seed, runs, violation))
        });
        sound();
        found
    }
}

/// From now on this thread's servers have no bug.
fn sound() {
    plant(None);
    chain::plant(None);
    fast_chain::plant(None);
}

/// The programs as they are: compiling one takes longer than many runs.
#[derive(Default)]
struct Plain(Vec<Bench>);

impl Plain {
    fn bench(&mut self, kind: Kind) -> &mut Bench {
        let known = self.0.iter().position(|bench| bench.program().kind == kind);
        let at = known.unwrap_or_else(|| {
            self.0.push(Bench::new(kind).unwrap());
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

/// All of these are caught within so many seeds, and by nothing else than the bug.
fn all_are_caught(bugs: &[Bug], most: u64) {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let mut plain = Plain::default();
        while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = &bug.name;
            match bug.hunt(bug.bench(&mut None, &mut plain), most) {
                Some((seed, runs, Violation { check, detail })) => {
                    println!(
                        "| {name} | {} | {check} | {runs} | {} | {detail}",
                        bug.kind.name(),
                        seed - first_seed() + 1
                    );
                    let scenario = Scenario::of_seed(seed, bug.kind);
                    let without = plain.bench(bug.kind).run(&scenario, false).unwrap().0;
                    assert_eq!(without.violation, None, "seed {seed} without {name}");
                }
                None => {
                    println!("| {name} | {} | not caught | | {most} |", bug.kind.name());
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

#[test]
#[ignore = "minutes: scripts/soak.sh BIN sim_mutations"]
fn every_seeded_bug_is_caught() {
    let only = std::env::var("MUTATION").ok();
    let wanted = |bug: &Bug| only.as_ref().is_none_or(|only| *only == bug.name);
    let bugs: Vec<Bug> = bugs().into_iter().filter(wanted).collect();
    assert!(!bugs.is_empty(), "no bug is called {only:?}");
    all_are_caught(&bugs, number("MOST").unwrap_or(MOST));
}

#[test]
fn the_plain_ones_are_caught_quickly() {
    let bugs: Vec<Bug> =
        bugs().into_iter().filter(|bug| QUICK.contains(&bug.name.as_str())).collect();
    assert_eq!(bugs.len(), QUICK.len());
    all_are_caught(&bugs, MOST_QUICK);
}

/// What `stateplane sim` does with a seed that fails.
#[test]
fn a_failing_run_becomes_short_is_drawn_and_fails_again() {
    let bug = bugs().into_iter().find(|bug| bug.name == "HeadForgetsLeases").unwrap();
    let mut plain = Plain::default();
    let bench = plain.bench(bug.kind);
    let (seed, _, violation) = bug.hunt(bench, MOST).expect("caught");
    let whole = Scenario::of_seed(seed, bug.kind);
    bug.seed();
    let (first, _) = bench.run(&whole, false).unwrap();
    let (shortest, replays) = bench.shrink(&whole, &violation, || false).unwrap();
    let (short, chart) = bench.run(&shortest, true).unwrap();
    // In newly loaded objects, in another order.
    let mut other = Plain::default();
    let (again, _) = other.bench(bug.kind).run(&shortest, false).unwrap();
    let (whole_again, _) = other.bench(bug.kind).run(&whole, true).unwrap();
    sound();
    let (steps, of) = (shortest.steps.len(), whole.steps.len());
    println!("seed {seed}: {steps} steps of {of}, {replays} replays: {:?}", shortest.steps);
    assert_eq!(first.violation, Some(violation.clone()));
    assert_eq!(short.violation.as_ref().map(|found| found.check), Some(violation.check));
    assert!(replays > 0 && steps <= of / 2, "{steps} steps of {of}");
    let drawn = chart.expect("a chart").render(usize::MAX);
    let says = |text: &str| drawn.lines().any(|line| line.contains(text));
    assert!(says("LeaseGrant flow 0") && says("DATA shard") && says("ACK shard"), "{drawn}");
    assert_eq!((again, whole_again), (short, first));
}
