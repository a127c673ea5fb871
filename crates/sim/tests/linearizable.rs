//! The switch's runtime against the store, under faults, judged by the history checker. The program is compiled from
//! P4, and runs in the kernel.

use manifest::Manifest;
use sim::{Faults, World};
use std::path::{Path, PathBuf};

/// The real compiler makes the object, from P4.
fn compile(directory: &Path) -> (PathBuf, Manifest) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/counter.p4");
    let outcome = p4_check::check_file(&source, &p4_syntax::Options::default());
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let object = directory.join("counter.o");
    let options = xdp_backend::Options { program_name: "counter.p4".to_owned(), ..Default::default() };
    let compiled = xdp_backend::compile(program, &options, &object).unwrap();
    (object, compiled.generated.manifest)
}

/// SIM_RUNS=N does N times as many seeds.
fn runs(seeds: std::ops::Range<u64>, faults: Faults) {
    let times = std::env::var("SIM_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seeds = seeds.start * 1_000_000..seeds.start * 1_000_000 + (seeds.end - seeds.start) * times;
    let directory = tempfile::tempdir().unwrap();
    let (object, manifest) = compile(directory.path());
    let (mut outputs, mut inputs) = (0, 0);
    for seed in seeds {
        let mut world = World::start(&object, &manifest, seed, faults).unwrap();
        world.run(4, 150).unwrap();
        assert_eq!(world.history.check(), Ok(()), "seed {seed}");
        assert!(world.check_alive(4).unwrap(), "seed {seed}: flows are stuck after the faults stopped");
        assert_eq!(world.history.check(), Ok(()), "seed {seed}, after the faults stopped");
        outputs += world.history.outputs();
        inputs += 154;
    }
    println!("{outputs} of {inputs} packets went out");
    assert!(outputs * 4 > inputs, "too few packets got through to say anything: {outputs} of {inputs}");
}

#[test]
fn idle_flows_leave_the_switch_and_come_back_with_their_state() {
    let directory = tempfile::tempdir().unwrap();
    let (object, manifest) = compile(directory.path());
    let mut world = World::start(&object, &manifest, 1, CALM).unwrap();
    world.run(4, 40).unwrap();
    // Leases are over by now, but not for long enough.
    assert_eq!(world.sweep(1).unwrap(), 0);
    assert_eq!(world.sweep(world.now_ns()).unwrap(), 4);
    assert_eq!(world.sweep(world.now_ns()).unwrap(), 0);
    assert!(world.check_alive(4).unwrap());
    // No count is given twice, so the flows went on where they had been.
    assert_eq!(world.history.check(), Ok(()));
    // In use again: with a live lease nothing goes.
    assert_eq!(world.sweep(world.now_ns() - 1_000_000_000).unwrap(), 0);
}

const CALM: Faults = Faults { loss: 0.0, duplication: 0.0, delay_max_ns: 300_000, moves: 0.0, crashes: 0.0 };

#[test]
fn a_calm_network() {
    runs(0..5, CALM);
}

#[test]
fn flows_that_move_between_living_switches() {
    runs(100..110, Faults { moves: 0.05, ..CALM });
}

#[test]
fn loss_duplication_and_reordering() {
    runs(200..220, Faults { loss: 0.1, duplication: 0.1, delay_max_ns: 5_000_000, moves: 0.02, ..CALM });
}

#[test]
fn switches_that_crash_and_come_back_empty() {
    runs(300..320, Faults { loss: 0.05, duplication: 0.05, delay_max_ns: 20_000_000, moves: 0.05, crashes: 0.02 });
}
