//! Several switches that count for a key at the same time: what every server has merged of them, at
//! every instant, is what their newest whole snapshots are together, computed from the packets that
//! came out. SIM_RUNS=N does N times as many seeds. Needs root.

use sim::{Bench, Faults, Kind, Outcome, Program, Scenario, Violation, Workload};
use state_store::core::{Mutation, plant};

/// Packets of a tenant come to one switch and to the other: both count.
const BOTH: f64 = 0.4;

fn scenario(seed: u64, faults: Faults) -> Scenario {
    let workload = Workload { flows: 3, packets: 300, pause_max_ns: 1_000_000, reads_percent: 0 };
    Scenario::draw(seed, faults, workload)
}

fn runs(defines: &[&str], seeds: std::ops::Range<u64>, faults: Faults) -> Outcome {
    let times = std::env::var("SIM_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let first = seeds.start * 1_000_000;
    let mut bench = Bench::with(Program::compile(Kind::Snapshots, defines, None).unwrap());
    let mut total = Outcome::default();
    for seed in first..first + (seeds.end - seeds.start) * times {
        let (outcome, _) = bench.run(&scenario(seed, faults), false).unwrap();
        assert_eq!(outcome.violation, None, "seed {seed}");
        total.outputs += outcome.outputs;
        total.windows += outcome.windows;
        total.snapshots.iter_mut().zip(outcome.snapshots).for_each(|(sum, part)| *sum += part);
    }
    let (updates, [snapshots, ..]) = (total.outputs, total.snapshots);
    println!("{updates} updates, {snapshots} snapshots");
    assert!(updates > 100 && snapshots > 20, "{updates} updates, {snapshots} snapshots: too few");
    total
}

#[test]
fn two_switches_count_in_a_calm_network() {
    let calm = Faults { moves: BOTH, ..Faults::NONE };
    for merge in ["MERGE=SUM", "MERGE=MAX", "MERGE=OR"] {
        let total = runs(&["OVERDUE=DROP", merge], 800..802, calm);
        // A switch may give an idle tenant back, and goes on from its own slots.
        assert_eq!(total.snapshots[2], 0, "counts taken back");
    }
}

const LOSS: Faults =
    Faults { loss: 0.1, duplication: 0.2, delay_max_ns: 5_000_000, moves: BOTH, ..Faults::NONE };

#[test]
fn loss_duplication_and_reordering_add_nothing_twice() {
    runs(&["OVERDUE=DROP", "SLOTS=700", "MERGE=SUM"], 810..814, LOSS);
    runs(&["OVERDUE=DROP", "SLOTS=400", "MERGE=MAX"], 820..822, LOSS);
}

/// A dead switch's last snapshot counts; when it is back, in another life, it goes on from that.
#[test]
fn switches_that_die_and_come_back_count_once() {
    let faults = Faults { crashes: 0.01, freezes: 0.01, ..LOSS };
    runs(&["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=400", "MERGE=SUM"], 830..836, faults);
}

#[test]
fn servers_that_die_and_join_have_it_merged() {
    let faults = Faults { store_crashes: 0.01, moves: BOTH, loss: 0.02, ..Faults::NONE };
    runs(&["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=400", "MERGE=SUM"], 840..846, faults);
}

/// Only counts of one time window are merged, by switches' clocks that run apart; also of switches
/// that are cut off from the stores for several leases, and go on.
#[test]
fn windows_are_not_mixed() {
    let faults = Faults {
        cuts: 0.03,
        crashes: 0.005,
        store_crashes: 0.005,
        drift_ppm: 300,
        loss: 0.03,
        moves: BOTH,
        ..Faults::NONE
    };
    let defines =
        ["OVERDUE=CONTINUE", "EPSILON_US=150000", "SLOTS=400", "WINDOW_US=20000", "MERGE=SUM"];
    let total = runs(&defines, 850..856, faults);
    assert!(total.windows > 20, "{} windows", total.windows);
}

/// Can the checks fail? Each of these is found, and the run that shows it shows nothing without it.
#[test]
fn what_is_merged_wrongly_is_found() {
    let program = Program::compile(Kind::Snapshots, &["OVERDUE=DROP", "MERGE=SUM"], None).unwrap();
    let mut bench = Bench::with(program);
    for bug in [Mutation::SnapshotAddedTwice, Mutation::MergedWithoutTakingOff] {
        let mut violation = |seed, bug: Option<Mutation>| -> Option<Violation> {
            plant(bug);
            let outcome = bench.run(&scenario(seed, LOSS), false).unwrap().0;
            plant(None);
            outcome.violation
        };
        let found = (860_000_000..860_000_100).find_map(|seed| {
            let it = violation(seed, Some(bug))?;
            println!("{bug:?}: seed {seed}: {}", it.check);
            Some((seed, it.check))
        });
        let Some((seed, check)) = found else { panic!("{bug:?} is not found") };
        assert_eq!((check, violation(seed, None)), ("snapshots", None), "{bug:?}, seed {seed}");
    }
}
