//! The switch's runtime against the store, under faults, judged by the history checker. The program is compiled from
//! P4, and runs in the kernel.

use manifest::Manifest;
use sim::{Faults, World};
use std::path::{Path, PathBuf};

/// The real compiler makes the object, from P4.
fn compile(directory: &Path, defines: &[&str]) -> (PathBuf, Manifest) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/counter.p4");
    let defines = defines.iter().map(ToString::to_string).collect();
    let outcome = p4_check::check_file(&source, &p4_syntax::Options { defines, ..Default::default() });
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let object = directory.join("counter.o");
    let options = xdp_backend::Options { program_name: "counter.p4".to_owned(), ..Default::default() };
    let compiled = xdp_backend::compile(program, &options, &object).unwrap();
    (object, compiled.generated.manifest)
}

fn runs(seeds: std::ops::Range<u64>, faults: Faults) {
    runs_of(&[], seeds, faults);
}

/// SIM_RUNS=N does N times as many seeds; SIM_SEED=S does only that one.
fn runs_of(defines: &[&str], seeds: std::ops::Range<u64>, faults: Faults) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let times = number("SIM_RUNS").unwrap_or(1);
    let mut seeds = seeds.start * 1_000_000..seeds.start * 1_000_000 + (seeds.end - seeds.start) * times;
    if let Some(seed) = number("SIM_SEED") {
        seeds = seed..seed + 1;
    }
    let directory = tempfile::tempdir().unwrap();
    let (object, manifest) = compile(directory.path(), defines);
    let (mut outputs, mut inputs) = (0, 0);
    for seed in seeds {
        let mut world = World::start(&object, &manifest, seed, faults).unwrap();
        world.run(4, 150).unwrap();
        assert_eq!(world.history.check(), Ok(()), "seed {seed}");
        assert_eq!(world.check_alive(4).unwrap(), Ok(()), "seed {seed}: after the faults stopped");
        assert_eq!(world.history.check(), Ok(()), "seed {seed}, after the faults stopped");
        outputs += world.history.outputs();
        inputs += 162;
    }
    println!("{outputs} of {inputs} packets went out");
    assert!(outputs * 4 > inputs, "too few packets got through to say anything: {outputs} of {inputs}");
}

#[test]
fn idle_flows_leave_the_switch_and_come_back_with_their_state() {
    let directory = tempfile::tempdir().unwrap();
    let (object, manifest) = compile(directory.path(), &[]);
    let mut world = World::start(&object, &manifest, 1, Faults::NONE).unwrap();
    world.run(4, 40).unwrap();
    // Released by now, but not for long enough.
    assert_eq!(world.flows(), [4, 0]);
    world.wait(2_500_000_000).unwrap();
    assert_eq!(world.flows(), [0, 0]);
    assert_eq!(world.check_alive(4).unwrap(), Ok(()));
    // No count is given twice, so the flows went on where they had been.
    assert_eq!(world.history.check(), Ok(()));
    assert_eq!(world.history.outputs(), 40 + 3 * 4);
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
    runs_of(&["ASYNC"], 150..160, Faults { moves: 0.05, delay_max_ns: 2_000_000, ..CALM });
}

#[test]
fn loss_duplication_and_reordering() {
    runs(200..220, Faults { loss: 0.1, duplication: 0.1, delay_max_ns: 5_000_000, moves: 0.02, ..CALM });
}

#[test]
fn switches_that_crash_and_come_back_empty() {
    let faults = Faults { loss: 0.05, duplication: 0.05, delay_max_ns: 20_000_000, moves: 0.05, crashes: 0.02, ..CALM };
    runs(300..320, faults);
}

#[test]
fn recalls_and_releases_that_are_lost_late_and_doubled() {
    let hand_over = Faults { hand_over_loss: 0.4, hand_over_delay_ns: 40_000_000, ..CALM };
    runs(400..410, Faults { moves: 0.1, duplication: 0.3, ..hand_over });
    runs(410..420, Faults { moves: 0.1, duplication: 0.2, loss: 0.05, delay_max_ns: 10_000_000, ..hand_over });
}

#[test]
fn switches_that_stand_still_past_their_lease() {
    runs(500..520, Faults { freezes: 0.03, moves: 0.05, duplication: 0.05, delay_max_ns: 3_000_000, ..CALM });
}

#[test]
fn clocks_that_drift_within_the_bound() {
    runs(600..610, Faults { drift_ppm: 450, freezes: 0.01, moves: 0.05, loss: 0.02, delay_max_ns: 10_000_000, ..CALM });
}

#[test]
fn agents_that_die_and_come_back() {
    runs(700..720, Faults { agent_deaths: 0.05, moves: 0.05, delay_max_ns: 1_000_000, ..CALM });
}

#[test]
fn secrets_that_change_in_the_middle() {
    let faults = Faults { rotation: true, moves: 0.05, ..CALM };
    runs(800..810, faults);
    runs(810..820, Faults { loss: 0.05, duplication: 0.1, delay_max_ns: 3_000_000, ..faults });
}

#[test]
fn everything_at_once() {
    let faults = Faults {
        loss: 0.03,
        duplication: 0.05,
        delay_max_ns: 10_000_000,
        hand_over_loss: 0.1,
        hand_over_delay_ns: 20_000_000,
        moves: 0.05,
        crashes: 0.01,
        freezes: 0.01,
        agent_deaths: 0.01,
        drift_ppm: 450,
        rotation: true,
    };
    runs(900..920, faults);
}
