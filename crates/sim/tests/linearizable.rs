//! The switch's runtime against the store, under faults, judged by the history checker. The program is real BPF in the kernel.

use manifest::{FlowState, Manifest, VERSION, WireField};
use sim::{Faults, World};
use std::path::PathBuf;
use std::process::Command;

fn compile(directory: &std::path::Path) -> PathBuf {
    let here = env!("CARGO_MANIFEST_DIR");
    let object = directory.join("counter.o");
    let machine = String::from_utf8(Command::new("uname").arg("-m").output().unwrap().stdout).unwrap();
    let output = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-Wall", "-Werror", "-c"])
        .arg(format!("-I/usr/include/{}-linux-gnu", machine.trim()))
        .arg(format!("-I{here}/../xdp-backend/include"))
        .arg(format!("{here}/tests/counter.c"))
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

fn counter_manifest() -> Manifest {
    let field = |name: &str, width, offset, bytes| WireField { name: name.to_owned(), width, offset, bytes };
    Manifest {
        version: VERSION,
        program: "counter".to_owned(),
        tables: vec![],
        actions: vec![],
        registers: vec![],
        counters: vec![],
        flow_states: vec![FlowState {
            name: "counts".to_owned(),
            object_id: 1,
            map: "counts".to_owned(),
            size: 1024,
            consistency: "linearizable".to_owned(),
            allocator: "zero".to_owned(),
            key: vec![field("tuple", 104, 0, 13)],
            value: vec![field("count", 64, 0, 8)],
            key_bytes: 13,
            value_bytes: 8,
            value_offset: 72,
        }],
        errors: vec![],
        max_ports: 512,
        drop_port: 511,
        headroom_bytes: 256,
    }
}

/// SIM_RUNS=N does N times as many seeds.
fn runs(seeds: std::ops::Range<u64>, faults: Faults) {
    let times = std::env::var("SIM_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seeds = seeds.start * 1_000_000..seeds.start * 1_000_000 + (seeds.end - seeds.start) * times;
    let directory = tempfile::tempdir().unwrap();
    let object = compile(directory.path());
    let manifest = counter_manifest();
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
    let object = compile(directory.path());
    let mut world = World::start(&object, &counter_manifest(), 1, CALM).unwrap();
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
