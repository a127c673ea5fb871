//! Registers that two CPUs change at once: nothing is lost. Needs root.

use dataplane::{Dataplane, Object, Settings};
use std::path::Path;
use xdp_backend::{Options, Placement, Systems};

/// Packets that each CPU runs.
const EACH: u32 = 1_000_000;
const ALL: u128 = 2 * EACH as u128;

/// The program of this name, loaded.
fn load(name: &str, defines: &[String], placement: Placement) -> Dataplane {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/registers").join(name);
    let outcome = p4_check::check_file(
        &source,
        &p4_syntax::Options { defines: defines.to_vec(), ..Default::default() },
    );
    let program = outcome.program.as_ref().unwrap_or_else(|| panic!("{}", outcome.render(false)));
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("registers.o");
    let options =
        Options { program_name: name.to_owned(), placement, ..Options::new(Systems::NONE) };
    let manifest = xdp_backend::compile(program, &options, &object).unwrap().generated.manifest;
    let mut opened = Object::open(&object, manifest).unwrap();
    opened.set(Settings { test_mode: true, host_traffic: false, virtual_clock: true }).unwrap();
    opened.load().unwrap()
}

/// Runs two frames [`EACH`] times, each on a CPU of its own, at once.
fn run_on_two_cpus(dataplane: &Dataplane, frames: [&[u8]; 2]) {
    let start = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for (cpu, frame) in frames.into_iter().enumerate() {
            let start = &start;
            scope.spawn(move || {
                let mut set = nix::sched::CpuSet::new();
                set.set(cpu).unwrap();
                nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
                    .expect("two CPUs");
                start.wait();
                dataplane.time(frame, 1, EACH).unwrap();
            });
        }
    });
}

fn value(dataplane: &Dataplane, name: &str, index: u32) -> u128 {
    let register = dataplane.register(name).unwrap();
    dataplane.read_register(register, index).unwrap()
}

#[test]
fn two_cpus_lose_no_increment() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    [Placement::Registers, Placement::AllScratch].into_iter().for_each(increments);
}

fn increments(placement: Placement) {
    let dataplane = load("increments.p4", &[format!("NUMBERS={ALL}")], placement);
    let mut frame = [0; 60];
    frame[..4].copy_from_slice(&7u32.to_be_bytes());
    frame[8] = 1;
    run_on_two_cpus(&dataplane, [&frame, &frame]);

    let expected = [
        ("one_bit", 1, ALL),
        ("eight_bits", 8, 3 * ALL),
        ("twelve_bits", 12, (5 * ALL).wrapping_neg()),
        ("signed_bits", 16, ALL.wrapping_neg()),
        ("plain", 32, ALL),
        ("inlined", 32, 6 * ALL),
        ("in_table", 32, ALL),
        ("passed_on", 32, ALL),
        ("down", 48, (7 * ALL).wrapping_neg()),
        ("long_steps", 64, 0x1_0000_0001 * ALL),
        ("just_wider", 65, 0x1_0000_0000_0000_0001 * ALL),
        ("widest", 128, ALL.wrapping_neg()),
        ("all_of", 32, 0xffff_ffff),
        // Each bit 62,500 times.
        ("some_of", 32, 0),
    ];
    for (name, width, sum) in expected {
        assert_eq!(value(&dataplane, name, 1), sum & (u128::MAX >> (128 - width)), "{name}");
    }
    // Controllers read registers of 64 bits as memory.
    let words = dataplane.map_words(&dataplane.register("long_steps").unwrap().map).unwrap();
    assert_eq!(u128::from(words.get(1)), (0x1_0000_0001 * ALL) & u128::from(u64::MAX));
    let numbers = dataplane.register("numbers").unwrap();
    let missing = (0..ALL as u32)
        .filter(|number| dataplane.read_register(numbers, *number).unwrap() == 0)
        .count();
    assert_eq!(missing, 0, "numbers that no packet got");
}

#[test]
fn what_is_atomic_happens_at_once() {
    if dataplane::check_permitted().is_err() {
        eprintln!("skipped: BPF needs root");
        return;
    }
    [Placement::Registers, Placement::AllScratch].into_iter().for_each(blocks);
}

fn blocks(placement: Placement) {
    let dataplane = load("atomic.p4", &[], placement);
    let frame = |way| {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&[0, 0, 0, 5, 1, way]);
        frame
    };
    run_on_two_cpus(&dataplane, [&frame(0), &frame(1)]);

    let get = |name, index| value(&dataplane, name, index);
    assert_eq!(get("parsed", 1), ALL % 0xffff, "an @atomic state");
    assert_eq!(get("unequal", 0), 0, "packets that saw one register changed and not the other");
    assert_eq!(get("debit", 1), (5 * ALL).wrapping_neg() & 0xffff_ffff);
    assert_eq!(get("credit", 1), (5 * ALL) & 0xff_ffff);
    assert_eq!(get("taken", 0) + get("little", 0), ALL, "read and reset");
    assert_eq!((get("bounded", 0), get("above", 0)), (300_000, ALL - 300_000));
    assert_eq!(get("digits", 1) * 1000 + get("digits", 0), ALL, "an @atomic control");
    assert_eq!(
        (get("wide", 2), get("wide", 3)),
        (u128::from(EACH), u128::from(EACH)),
        "an @atomic action"
    );
    assert_eq!(get("seen", 0), 2 * ALL, "in a block, and by itself");
    let packets = dataplane.read_counter(dataplane.counter("packets").unwrap(), 0).unwrap();
    assert_eq!(u128::from(packets.packets), 2 * ALL);
}
