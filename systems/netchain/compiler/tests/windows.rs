//! RequestWindow through the kernel: as its meaning says, on two CPUs at once, and after a client's
//! silence. Needs root.

use dataplane::{Dataplane, Object, Settings};
use netchain_compiler::{Meaning, NetChain};
use netchain_switch::windows::Windows;
use p4_interpreter::object::Objects;
use p4_interpreter::{Interpreter, Verdict};
use std::path::Path;
use std::time::{Duration, Instant};
use xdp_backend::{Options, Systems};

const SYSTEMS: Systems = Systems(&[&NetChain]);
const OBJECTS: Objects = Objects(&[&Meaning]);

/// WindowState, as the program writes it into `found`.
const FRESH: u8 = 0;
const DONE: u8 = 3;
const FULL: u8 = 5;
/// Of a frame.
const FOUND: usize = 13;

/// systems/netchain/p4/tests/window.p4: `then` says what becomes of the claim.
fn frame(client: u64, number: u32, then: u8) -> Vec<u8> {
    [&client.to_be_bytes()[..], &number.to_be_bytes(), &[then, 0xff, 0, 0]].concat()
}

fn program() -> p4_ir::Program {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/tests/window.p4");
    let outcome = p4_check::check_file(&file, &p4_syntax::Options::default());
    let said = outcome.render(false);
    outcome.program.unwrap_or_else(|| panic!("{said}"))
}

fn load(program: &p4_ir::Program) -> Dataplane {
    let folder = tempfile::tempdir().expect("folder");
    let object = folder.path().join("window.o");
    let made = xdp_backend::compile(program, &Options::new(SYSTEMS), &object);
    let made = made.unwrap_or_else(|error| panic!("{error}"));
    let mut opened = Object::open(&object, made.generated.manifest).expect("object");
    opened
        .set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })
        .expect("settings");
    opened.load().expect("the verifier takes it")
}

fn skip() -> bool {
    let skip = dataplane::check_permitted().is_err();
    if skip {
        eprintln!("skipped: BPF needs root");
    }
    skip
}

fn found(dataplane: &Dataplane, frame: &[u8], clock_ns: u64) -> u8 {
    dataplane.run(frame, 1, clock_ns).expect("it runs").frame[FOUND]
}

#[test]
fn the_kernel_does_what_the_meaning_says() {
    if skip() {
        return;
    }
    let program = program();
    let (dataplane, mut meaning) = (load(&program), Interpreter::new(&program, OBJECTS).unwrap());
    let seed: u64 = std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(20);
    println!("SEED={seed}");
    let mut random = seed;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % limit
    };
    let (mut newest, mut seen) = ([0_u32; 3], [0_u32; 6]);
    for at in 0..20_000 {
        let client = below(3) as usize;
        newest[client] += [0, 1, 1, 12][below(4) as usize];
        let number =
            newest[client].saturating_sub([below(16), below(320)][below(2) as usize] as u32);
        let frame = frame(client as u64, number, below(4) as u8);
        let came = dataplane.run(&frame, 1, 0).expect("it runs").frame;
        seen[usize::from(came[FOUND])] += 1;
        let expected = meaning.run(&frame, 1, 0).expect("it is interpreted");
        assert_eq!(Verdict::Forward { port: 2, frame: came }, expected, "{at}: {frame:02x?}");
    }
    assert!(seen.iter().all(|count| *count > 50), "each state is seen: {seen:?}");
}

#[test]
fn of_two_cpus_one_claims_a_number() {
    if skip() {
        return;
    }
    let dataplane = load(&program());
    // Two packets that read the same next number claim it at the same time. A busy machine runs the
    // two threads one after the other: then again, until many have met.
    const PACKETS: u32 = 500_000;
    let ask = || assert!(dataplane.time(&frame(7, 0, 4), 1, PACKETS).is_ok());
    for round in 1..=20 {
        std::thread::scope(|scope| {
            scope.spawn(ask);
            ask();
        });
        let claims = dataplane.counter("TheIngress.claims").expect("it counts");
        let claims = dataplane.read_counter(claims, 0).expect("it is read").packets;
        let next = dataplane.register("TheIngress.next").expect("it is there");
        let next = dataplane.read_register(next, 0).expect("it is read");
        assert_eq!(u128::from(claims), next, "claims, and numbers that were claimed");
        let met = round * 2 * u64::from(PACKETS) - claims;
        println!("round {round}: {claims} claims, {met} packets came too late");
        if met > 100_000 {
            break;
        }
    }
}

#[test]
fn a_silent_client_gives_its_window_up() {
    if skip() {
        return;
    }
    const SECOND: u64 = 1_000_000_000;
    let dataplane = load(&program());
    let windows = Windows::new(dataplane.manifest().state_objects[0].clone());
    let sweep = |clock_s: u64| {
        let until = Instant::now() + Duration::from_secs(60);
        windows.sweep(&dataplane, clock_s * SECOND, until).expect("it sweeps");
        windows.clients()
    };
    // The program has room for two.
    assert_eq!(found(&dataplane, &frame(1, 5, 1), SECOND), FRESH);
    assert_eq!(found(&dataplane, &frame(2, 5, 1), 50 * SECOND), FRESH);
    assert_eq!(found(&dataplane, &frame(3, 5, 1), 50 * SECOND), FULL);
    assert_eq!(sweep(60), 2);
    assert_eq!(found(&dataplane, &frame(1, 5, 1), 60 * SECOND), DONE);
    // Client 2 is silent. Its first round takes it out of the hash map, its second frees the
    // window.
    assert_eq!(sweep(111), 2);
    assert_eq!(found(&dataplane, &frame(3, 5, 1), 111 * SECOND), FULL);
    assert_eq!(sweep(112), 1);
    assert_eq!(found(&dataplane, &frame(3, 5, 1), 112 * SECOND), FRESH);
    assert_eq!(found(&dataplane, &frame(3, 5, 1), 112 * SECOND), DONE);
    assert_eq!(found(&dataplane, &frame(1, 5, 1), 112 * SECOND), DONE);
    assert_eq!(found(&dataplane, &frame(2, 6, 1), 112 * SECOND), FULL);
    assert_eq!(sweep(113), 2);
}
