//! The switch's runtime against the store, under one kind of fault each; `tests/swarm.rs` mixes
//! them. SIM_RUNS=N does N times as many seeds; SIM_SEED=S only that one. Needs root.

use sim::{
    Action, Bench, Faults, Kind, Outcome, Program, Scenario, SeededBug, Step, Workload, World,
};

fn runs(seeds: std::ops::Range<u64>, faults: Faults) {
    runs_of(Kind::Linearizable, seeds, faults);
}

fn runs_of(kind: Kind, seeds: std::ops::Range<u64>, faults: Faults) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let times = number("SIM_RUNS").unwrap_or(1);
    let mut seeds =
        seeds.start * 1_000_000..seeds.start * 1_000_000 + (seeds.end - seeds.start) * times;
    if let Some(seed) = number("SIM_SEED") {
        seeds = seed..seed + 1;
    }
    let mut bench = Bench::new(kind).unwrap();
    let mut total = Outcome::default();
    for seed in seeds {
        let reads_percent = if seed % 2 == 0 { 0 } else { 30 };
        let workload = Workload { flows: 4, packets: 150, pause_max_ns: 3_000_000, reads_percent };
        let scenario = Scenario::draw(seed, faults, workload);
        let (outcome, _) = bench.run(&scenario, false).unwrap();
        if let Some(violation) = &outcome.violation {
            let (shortest, _) = bench.shrink(&scenario, violation, || false).unwrap();
            let (_, chart) = bench.run(&shortest, true).unwrap();
            println!("{}", chart.unwrap().render(200));
            panic!("seed {seed}: {violation}\n{:?}", shortest.steps);
        }
        total.inputs += outcome.inputs;
        total.outputs += outcome.outputs;
        total.events += outcome.events;
    }
    println!("{} of {} packets went out, {} events", total.outputs, total.inputs, total.events);
    assert!(
        total.outputs * 4 > total.inputs,
        "too few packets got through to say anything: {total:?}"
    );
}

#[test]
fn idle_flows_leave_the_switch_and_come_back_with_their_state() {
    let program = Program::compile(Kind::Linearizable, &[], None).unwrap();
    let packet = |number: u32| {
        let action = Action::Packet { switch: 0, flow: number % 4, read: false };
        Step { pause_ns: 1_000_000, action }
    };
    let scenario =
        Scenario { seed: 1, faults: Faults::NONE, flows: 4, steps: (0..40).map(packet).collect() };
    let mut world = World::start(&program, Vec::new(), &scenario, false).unwrap();
    world.run(&scenario.steps).unwrap();
    // Released by then, but not for long enough.
    world.wait(400_000_000).unwrap();
    assert_eq!(world.flows(), [4, 0]);
    world.wait(2_500_000_000).unwrap();
    assert_eq!(world.flows(), [0, 0]);
    world.check_alive(4, &[0; 4]).unwrap();
    assert_eq!(world.violation, None);
    // No count is given twice, so the flows went on where they had been.
    assert_eq!(world.operations.check(true), Ok(()));
    assert!(world.operations.counts().1 >= 40 + 5 * 4);
}

/// Four flows and room for two: grants find none, what is recalled or asked for has no entry, and
/// what a switch said that it does not have it never takes. (That all get through in bounded time
/// nobody promises here.)
#[test]
fn tables_that_are_too_small_cost_packets_only() {
    let program = Program::compile(Kind::Linearizable, &["FLOWS=2"], None).unwrap();
    let times = std::env::var("SIM_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let faults = Faults {
        loss: 0.05,
        duplication: 0.05,
        delay_max_ns: 5_000_000,
        moves: 0.1,
        store_crashes: 0.003,
        ..CALM
    };
    let (mut sent, mut out) = (0, 0);
    for seed in 900_000_000..900_000_000 + 12 * times {
        let workload =
            Workload { flows: 4, packets: 200, pause_max_ns: 30_000_000, reads_percent: 20 };
        let scenario = Scenario::draw(seed, faults, workload);
        let mut world = World::start(&program, Vec::new(), &scenario, false).unwrap();
        world.run(&scenario.steps).unwrap();
        assert_eq!(world.violation, None, "seed {seed}");
        assert_eq!(world.operations.check(true), Ok(()), "seed {seed}");
        let counts = world.operations.counts();
        (sent, out) = (sent + counts.0, out + counts.1);
    }
    println!("{out} of {sent} packets went out");
    assert!(out * 10 > sent && out < sent, "{out} of {sent}");
}

const CALM: Faults = Faults::NONE;

#[test]
fn a_calm_network() {
    runs(0..5, CALM);
}

#[test]
fn flows_that_move_between_living_switches() {
    runs(100..110, Faults { moves: 0.05, ..CALM });
}

#[test]
fn an_asynchronous_count_moves_with_its_flow() {
    let faults = Faults { moves: 0.05, delay_max_ns: 2_000_000, ..CALM };
    runs_of(Kind::Asynchronous, 150..160, faults);
    runs_of(Kind::Gathered, 150..160, faults);
}

#[test]
fn loss_duplication_and_reordering() {
    runs(
        200..210,
        Faults { loss: 0.1, duplication: 0.1, delay_max_ns: 5_000_000, moves: 0.02, ..CALM },
    );
}

#[test]
fn switches_that_crash_and_come_back_empty() {
    let faults = Faults {
        loss: 0.05,
        duplication: 0.05,
        delay_max_ns: 20_000_000,
        moves: 0.05,
        crashes: 0.02,
        ..CALM
    };
    runs(300..310, faults);
}

#[test]
fn recalls_and_releases_that_are_lost_late_and_doubled() {
    let hand_over = Faults { hand_over_loss: 0.4, hand_over_delay_ns: 40_000_000, ..CALM };
    runs(400..405, Faults { moves: 0.1, duplication: 0.3, ..hand_over });
    runs(
        410..415,
        Faults { moves: 0.1, duplication: 0.2, loss: 0.05, delay_max_ns: 10_000_000, ..hand_over },
    );
}

#[test]
fn switches_that_stand_still_past_their_lease() {
    runs(
        500..510,
        Faults { freezes: 0.03, moves: 0.05, duplication: 0.05, delay_max_ns: 3_000_000, ..CALM },
    );
}

#[test]
fn clocks_that_drift_within_the_bound() {
    runs(
        600..605,
        Faults {
            drift_ppm: 450,
            freezes: 0.01,
            moves: 0.05,
            loss: 0.02,
            delay_max_ns: 10_000_000,
            ..CALM
        },
    );
}

#[test]
fn clocks_that_drift_beyond_the_bound() {
    runs(650..655, Faults { drift_ppm: 300_000, freezes: 0.01, moves: 0.05, ..CALM });
}

#[test]
fn agents_that_die_and_come_back() {
    runs(700..710, Faults { agent_deaths: 0.05, moves: 0.05, delay_max_ns: 1_000_000, ..CALM });
}

#[test]
fn secrets_that_change_in_the_middle() {
    let faults = Faults { rotation: true, moves: 0.05, ..CALM };
    runs(800..805, faults);
    runs(810..815, Faults { loss: 0.05, duplication: 0.1, delay_max_ns: 3_000_000, ..faults });
}

#[test]
fn servers_that_die_stand_still_and_are_slow() {
    runs(900..905, Faults { store_crashes: 0.02, moves: 0.05, ..CALM });
    runs(
        910..915,
        Faults { store_freezes: 0.02, store_slowness: 0.02, moves: 0.05, duplication: 0.1, ..CALM },
    );
}

#[test]
fn links_that_are_cut_in_one_direction_or_both() {
    runs(920..925, Faults { cuts: 0.05, moves: 0.05, ..CALM });
}

#[test]
fn a_controller_that_dies_while_servers_do() {
    runs(
        930..935,
        Faults { controller_crashes: 0.03, store_crashes: 0.02, moves: 0.05, loss: 0.02, ..CALM },
    );
}

#[test]
fn everything_at_once() {
    runs(950..960, Faults::EVERYTHING);
}

/// The pending ring of updates refuses every fourth millisecond (a full ring, or the kernel's lock
/// of it): what found no room is sent again all the same.
#[test]
fn a_ring_that_takes_nothing_now_and_then() {
    for kind in [Kind::Linearizable, Kind::Asynchronous, Kind::Gathered] {
        let mut bench =
            Bench::with(Program::compile(kind, &[], SeededBug::named("RingFull")).unwrap());
        for seed in 970_000_000..970_000_010 {
            let faults = Faults { loss: 0.1, moves: 0.05, ..CALM };
            let workload =
                Workload { flows: 4, packets: 150, pause_max_ns: 3_000_000, reads_percent: 30 };
            let (outcome, _) = bench.run(&Scenario::draw(seed, faults, workload), false).unwrap();
            assert_eq!(outcome.violation, None, "{kind:?}, seed {seed}");
        }
    }
}
