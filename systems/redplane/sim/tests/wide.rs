//! Keys and values of 256 bytes (counter.p4, WIDE), in every mode and wherever packets wait: a
//! value is whole or shows as a count that nobody can have. Needs root.

use sim::{Bench, Faults, Kind, Outcome, Program, Scenario, SeededBug, Workload};
use std::ops::Range;

const KINDS: [Kind; 5] =
    [Kind::Linearizable, Kind::Batched, Kind::Overflowing, Kind::Asynchronous, Kind::Gathered];
const SEEDS: Range<u64> = 92_000_000..92_000_010;

/// Flows move between switches, so their values travel.
const FAULTS: Faults = Faults {
    loss: 0.05,
    duplication: 0.05,
    delay_max_ns: 3_000_000,
    moves: 0.1,
    store_crashes: 0.003,
    ..Faults::NONE
};

fn scenario(seed: u64, faults: Faults) -> Scenario {
    let workload = Workload { flows: 4, packets: 150, pause_max_ns: 3_000_000, reads_percent: 20 };
    Scenario::draw(seed, faults, workload)
}

fn all_runs_hold(defines: &[&str], kinds: &[Kind], seeds: Range<u64>, faults: Faults) {
    for kind in kinds {
        let mut bench = Bench::with(Program::compile(*kind, defines, None).unwrap());
        let mut total = Outcome::default();
        for seed in seeds.clone() {
            let (outcome, _) = bench.run(&scenario(seed, faults), false).unwrap();
            let name = kind.name();
            assert!(outcome.violation.is_none(), "{name}, seed {seed}: {:?}", outcome.violation);
            total.inputs += outcome.inputs;
            total.outputs += outcome.outputs;
        }
        println!("{}: {} of {} packets went out", kind.name(), total.outputs, total.inputs);
        assert!(total.outputs * 4 > total.inputs, "{}: too few got through", kind.name());
    }
}

#[test]
fn wide_values_stay_whole() {
    all_runs_hold(&["WIDE"], &KINDS, SEEDS, FAULTS);
}

/// And those that a packet has set before its end. A packet then needs two leases, and each entry
/// of the chain fills a datagram. With the delays and losses above, two switches that want the same
/// flows all the time may take them from each other for longer than the simulator's bound.
#[test]
fn so_do_staged_ones() {
    let faults = Faults { loss: 0.01, duplication: 0.01, delay_max_ns: 300_000, ..FAULTS };
    all_runs_hold(&["WIDE", "SETS_AGAIN"], &KINDS[..2], SEEDS.start..SEEDS.start + 4, faults);
}

#[test]
fn a_value_that_is_cut_is_found() {
    let bug = SeededBug::named("GrantCutShort").expect("a bug");
    for kind in [Kind::Linearizable, Kind::Batched] {
        let mut bench = Bench::with(Program::compile(kind, &["WIDE"], Some(bug)).unwrap());
        let shows =
            |seed: u64| bench.run(&scenario(seed, FAULTS), false).unwrap().0.violation.is_some();
        assert!(SEEDS.into_iter().any(shows), "{}: {SEEDS:?} show nothing", kind.name());
    }
}
