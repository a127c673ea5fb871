//! Bounded inconsistency: the switch's lazy snapshots against the real store, under faults, judged from the packet log. SIM_RUNS=N does N times as many seeds.

use manifest::Manifest;
use sim::{Faults, World};
use std::path::{Path, PathBuf};

fn compile(directory: &Path, defines: &[&str]) -> (PathBuf, Manifest) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sketch.p4");
    let defines = defines.iter().map(ToString::to_string).collect();
    let outcome = p4_check::check_file(&source, &p4_syntax::Options { defines, ..Default::default() });
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let object = directory.join("sketch.o");
    let options = xdp_backend::Options { program_name: "sketch.p4".to_owned(), ..Default::default() };
    let compiled = xdp_backend::compile(program, &options, &object).unwrap();
    (object, compiled.generated.manifest)
}

fn runs(defines: &[&str], seeds: std::ops::Range<u64>, faults: Faults) {
    let times = std::env::var("SIM_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seeds = seeds.start * 1_000_000..seeds.start * 1_000_000 + (seeds.end - seeds.start) * times;
    let directory = tempfile::tempdir().unwrap();
    let (object, manifest) = compile(directory.path(), defines);
    let (mut updates, mut snapshots, mut handed_over, mut lost) = (0, 0, 0, 0);
    for seed in seeds {
        let mut world = World::start(&object, &manifest, seed, faults).unwrap();
        assert_eq!(world.run_sketch(3, 300).unwrap(), Ok(()), "seed {seed}");
        assert_eq!(world.check_sketch_alive(3).unwrap(), Ok(()), "seed {seed}, after the faults stopped");
        let sketch = world.sketch.as_ref().unwrap();
        updates += sketch.updates;
        snapshots += sketch.snapshots;
        handed_over += sketch.handed_over;
        lost += sketch.lost;
    }
    println!(
        "{updates} updates, {snapshots} snapshots, {handed_over} take-overs from living switches, {lost} slots' counts taken back"
    );
    assert!(updates > 100 && snapshots > 20, "{updates} updates, {snapshots} snapshots: too few to say anything");
    if faults.moves == 0.0 {
        return;
    }
    assert!(handed_over > 0);
    // A living switch hands over what is unsaved: only a crash, or a lease that ran out, takes something back.
    if faults.loss == 0.0 && faults.crashes == 0.0 {
        assert_eq!(lost, 0);
    }
}

#[test]
fn a_calm_network() {
    runs(&["OVERDUE=DROP"], 0..2, Faults::NONE);
}

#[test]
fn tenants_that_move_between_living_switches() {
    runs(&["OVERDUE=DROP"], 100..103, Faults { moves: 0.05, ..Faults::NONE });
}

#[test]
fn loss_duplication_and_reordering() {
    let faults = Faults { loss: 0.1, duplication: 0.1, delay_max_ns: 5_000_000, moves: 0.02, ..Faults::NONE };
    runs(&["OVERDUE=DROP", "SLOTS=700"], 200..204, faults);
}

#[test]
fn switches_that_crash_and_come_back_empty() {
    let faults = Faults {
        loss: 0.05,
        duplication: 0.05,
        delay_max_ns: 3_000_000,
        moves: 0.03,
        crashes: 0.01,
        freezes: 0.01,
        ..Faults::NONE
    };
    runs(&["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=400"], 300..305, faults);
}
