//! Packets that set a wrong count, wait for another flow's lease, and put the count right
//! (counter.p4, SETS_AGAIN): nobody sees the wrong one, whatever fails. Needs root.

use sim::{Bench, Faults, Kind, Outcome, Program, Scenario, SeededBug, Workload};

const DEFINES: [&str; 1] = ["SETS_AGAIN"];
const KINDS: [Kind; 2] = [Kind::Linearizable, Kind::Batched];
const SEEDS: std::ops::Range<u64> = 91_000_000..91_000_012;

/// Flows move between switches, so their leases are asked for over and over.
fn scenario(seed: u64) -> Scenario {
    let faults = Faults {
        loss: 0.05,
        duplication: 0.05,
        delay_max_ns: 3_000_000,
        moves: 0.1,
        store_crashes: 0.003,
        ..Faults::NONE
    };
    let workload = Workload { flows: 4, packets: 150, pause_max_ns: 3_000_000, reads_percent: 20 };
    Scenario::draw(seed, faults, workload)
}

#[test]
fn what_a_packet_sets_is_seen_whole() {
    for kind in KINDS {
        let mut bench = Bench::with(Program::compile(kind, &DEFINES, None).unwrap());
        let mut total = Outcome::default();
        for seed in SEEDS {
            let (outcome, _) = bench.run(&scenario(seed), false).unwrap();
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
fn sets_that_take_effect_at_once_are_found() {
    let bug = SeededBug::named("SetsAtOnce").expect("a bug");
    for kind in KINDS {
        let mut bench = Bench::with(Program::compile(kind, &DEFINES, Some(bug)).unwrap());
        let shows = |seed: u64| bench.run(&scenario(seed), false).unwrap().0.violation.is_some();
        assert!(SEEDS.into_iter().any(shows), "{}: {SEEDS:?} show nothing", kind.name());
    }
}
