//! Packets that count in their flow and in a total of all flows (counter.p4, GROUPED): at every
//! member of the chain, at any time, the total is the sum, whatever fails. Needs root.

use sim::{Bench, Faults, Kind, Outcome, Program, Scenario, SeededBug, Workload};
use state_store::core::{Mutation, plant};

/// Of the data plane, and of the store.
const BUGS: [&str; 4] =
    ["RecordsStandAlone", "GroupInTwoBatches", "RecallTakesHalf", "OtherCpusHalf"];
const MUTATIONS: [Mutation; 1] = [Mutation::HalfOfGroup];
/// Seeds beyond those of the sound program in which a bug may show.
const MORE: u64 = 200;
const SEEDS: std::ops::Range<u64> = 92_000_000..92_000_016;
/// Of all kinds of faults.
const SWARM: std::ops::Range<u64> = 0..40;

/// Flows move between switches all the time, and servers and switches die.
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

fn bench(defines: &[&str], bug: Option<&SeededBug>) -> Bench {
    Bench::with(Program::compile(Kind::Grouped, defines, bug).unwrap())
}

fn goes_on(mut bench: Bench, scenarios: impl Iterator<Item = Scenario>) {
    let mut total = Outcome::default();
    for scenario in scenarios {
        let (outcome, _) = bench.run(&scenario, false).unwrap();
        assert!(outcome.violation.is_none(), "seed {}: {:?}", scenario.seed, outcome.violation);
        total.inputs += outcome.inputs;
        total.outputs += outcome.outputs;
    }
    println!("{} of {} packets went out", total.outputs, total.inputs);
    assert!(total.outputs * 2 > total.inputs, "too few got through");
}

/// `GROUP_SEEDS=FROM..TO`: these instead, of both kinds of scenario.
fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let wanted = std::env::var("GROUP_SEEDS").ok();
    let range = wanted.as_deref().and_then(|text| text.split_once(".."));
    range.map_or(usual, |(from, to)| from.parse().unwrap()..to.parse().unwrap())
}

fn swarm(seed: u64) -> Scenario {
    Scenario::of_seed(seed, Kind::Grouped)
}

#[test]
fn the_total_is_the_sum_of_the_counts() {
    goes_on(bench(&[], None), seeds(SEEDS).map(scenario).chain(seeds(SWARM).map(swarm)));
}

/// Keys and values of 256 bytes: a batch has room for one group.
#[test]
fn the_total_is_the_sum_of_long_counts() {
    let scenarios = SEEDS.take(4).map(scenario).chain(SWARM.take(4).map(swarm));
    goes_on(bench(&["WIDE"], None), scenarios);
}

/// What the switch does wrong, and the store: half of a group counts.
#[test]
fn halves_of_groups_are_found() {
    let mut plain = bench(&[], None);
    let scenarios = || SEEDS.chain(SEEDS.end..SEEDS.end + MORE).map(scenario);
    let mut missed = Vec::new();
    let mut hunt = |name: String, bench: &mut Bench| {
        let shows = scenarios().find_map(|it| bench.run(&it, false).unwrap().0.violation);
        match shows {
            Some(violation) => println!("{name}: {violation}"),
            None => missed.push(name),
        }
    };
    for name in BUGS {
        let bug = SeededBug::named(name).expect("a bug");
        hunt(name.to_owned(), &mut bench(&[], Some(bug)));
    }
    for mutation in MUTATIONS {
        plant(Some(mutation));
        hunt(format!("{mutation:?}"), &mut plain);
        plant(None);
    }
    assert_eq!(missed, Vec::<String>::new());
}

/// A flow stays for its group no longer than 16 ms (groups.md, decision 7). Else a switch that only
/// reads it keeps it until the session ends for it, and all of the switch's flows with it.
#[test]
fn a_flow_that_is_kept_for_good_is_found() {
    let bug = SeededBug::named("KeptForGood").expect("a bug");
    let mut bench = bench(&[], Some(bug));
    let found = SEEDS.map(scenario).find_map(|it| bench.run(&it, false).unwrap().0.violation);
    let violation = found.expect("the bug shows");
    println!("{violation}");
    assert_eq!(violation.check, "recall");
}
