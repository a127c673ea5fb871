//! What tags cost at one switch: the time of a read and a write in several objects, by
//! BPF_PROG_RUN.
//!
//! ```
//! stateplane compile systems/netchain/p4/netchain.p4 -o with.o
//! tag_cost systems/netchain/p4/operations.stf with.o without.o     # as root
//! ```
//!
//! The case sets the switch up, and has the requests that are timed. An object of another version
//! of the program may have a case of its own, NAME.stf beside NAME.o. Objects take turns; each
//! round loads one anew. BPF_PROG_RUN would repeat a program on its own output, so each run is one
//! packet, with a request number of its own.

use dataplane::{Dataplane, Object, Settings};
use manifest::Manifest;
use netchain_protocol::ClientKey;
use netchain_tools::NetChain;
use packet_test::stf::Wrong;
use packet_test::{
    Arrival, Backing, Case, Command, Identity, Line, Outcome, System, Systems, run_case,
};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use wire::Secret;

const ROUNDS: usize = 10;
const RUNS: u32 = 3000;
/// Where a message begins in a frame, and the number in it.
const MESSAGE_AT: usize = 42;
const NUMBER_AT: usize = MESSAGE_AT + 28;
/// The key of the case.
const KEY: ClientKey =
    ClientKey { id: 3, secret: Secret([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]) };

/// Operation and room (message.p4) of the requests.
const REQUESTS: [(&str, u8, u8); 4] = [
    ("read, 16 bytes", 1, 1),
    ("read, 128 bytes", 1, 3),
    ("add, 16 bytes", 6, 1),
    ("put, 128 bytes", 2, 3),
];

/// The frames, and what was measured: nanoseconds by frame.
static FRAMES: Mutex<Vec<Vec<u8>>> = Mutex::new(vec![]);
static SAMPLES: Mutex<Vec<Vec<u64>>> = Mutex::new(vec![]);

struct Timer;

impl System for Timer {
    fn keywords(&self) -> &'static [&'static str] {
        &[]
    }

    fn check(&self, _: &Line, _: &[Line]) -> Result<(), Wrong> {
        Ok(())
    }

    fn begin(&self, _: &[Line], _: &Manifest) -> Outcome<Option<Box<dyn Backing>>> {
        Ok(Some(Box::new(Timing { ticks: 0 })))
    }
}

struct Timing {
    /// The first one comes before the case's entries.
    ticks: u32,
}

impl Backing for Timing {
    fn begin_switch(&mut self, _: &Dataplane, _: Identity, _: u64) -> Outcome<()> {
        Ok(())
    }

    fn departs(&mut self, _: u32, _: &[u8], _: u64) -> Option<Vec<Arrival>> {
        None
    }

    fn next_ns(&self, _: &Dataplane, now_ns: u64) -> Option<u64> {
        (self.ticks < 2).then_some(now_ns + 1_000_000)
    }

    fn tick(&mut self, switch: &Dataplane, now_ns: u64) -> Outcome<Vec<Arrival>> {
        self.ticks += 1;
        if self.ticks != 2 {
            return Ok(vec![]);
        }
        let frames = FRAMES.lock().expect("no panic elsewhere");
        let mut samples = SAMPLES.lock().expect("no panic elsewhere");
        samples.resize(frames.len(), vec![]);
        for number in 1000..1000 + RUNS {
            for (frame, samples) in frames.iter().zip(samples.iter_mut()) {
                let mut frame = frame.clone();
                frame[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&number.to_be_bytes());
                KEY.sign(&mut frame[MESSAGE_AT..]);
                let outcome = switch.run(&frame, 0, now_ns).map_err(packet_test::Fault::of_case)?;
                assert!(outcome.frame[MESSAGE_AT + 4] & 0x80 != 0, "no reply");
                samples.push(outcome.duration_ns.into());
            }
        }
        Ok(vec![])
    }
}

fn load(path: &Path) -> Result<Dataplane, String> {
    let manifest = Manifest::read(&path.with_extension("json")).map_err(|it| it.to_string())?;
    let mut object = Object::open(path, manifest).map_err(|error| error.to_string())?;
    let settings = Settings { test_mode: true, virtual_clock: true, host_traffic: false };
    object.set(settings).and_then(|()| object.load()).map_err(|error| error.to_string())
}

/// The case's first packet of each request.
fn requests(text: &str, systems: Systems) -> Vec<Vec<u8>> {
    let case = Case::parse("case", text, systems).expect("the case");
    let is = |frame: &[u8], (_, operation, room): &(&str, u8, u8)| {
        frame.get(MESSAGE_AT + 1) == Some(operation) && frame.get(MESSAGE_AT + 26) == Some(room)
    };
    let first = |request| {
        case.commands.iter().find_map(|(_, command)| match command {
            Command::Packet { bytes, .. } if is(bytes, request) => Some(bytes.clone()),
            _ => None,
        })
    };
    REQUESTS.iter().map(|request| first(request).expect("a request")).collect()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().expect("CASE OBJECT…");
    let objects: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let text = std::fs::read_to_string(&file).expect("the case");
    let systems = Systems(&[&NetChain, &Timer]);
    let mut medians = vec![vec![]; objects.len()];
    for _ in 0..ROUNDS {
        for (object, medians) in objects.iter().zip(&mut medians) {
            let keyed = std::fs::read_to_string(object.with_extension("json"))
                .is_ok_and(|text| text.contains("MessageTag"));
            let wanted = |line: &&str| {
                let setup = line.starts_with("# ") || line.starts_with("add ");
                setup && (keyed || !line.contains(": tags "))
            };
            let own = std::fs::read_to_string(object.with_extension("stf"));
            let text = own.as_ref().unwrap_or(&text);
            let setup: Vec<&str> = text.lines().filter(wanted).collect();
            let setup = setup.join("\n") + "\nclock 5ms\n";
            let case = Case::parse(&file, &setup, systems).expect("the case");
            let frames = requests(text, systems);
            *FRAMES.lock().expect("no panic elsewhere") = frames;
            SAMPLES.lock().expect("no panic elsewhere").clear();
            let report = run_case(&case, systems, || load(object));
            assert!(report.failures.is_empty(), "{:?}", report.failures);
            let mut samples = SAMPLES.lock().expect("no panic elsewhere");
            for samples in samples.iter_mut() {
                samples.sort_unstable();
            }
            medians.push(samples.iter().map(|it| it[it.len() / 2]).collect::<Vec<u64>>());
        }
    }
    for (object, medians) in objects.iter().zip(&medians) {
        for frame in 0..medians.first().map_or(0, Vec::len) {
            let mut of_frame: Vec<u64> = medians.iter().map(|it| it[frame]).collect();
            of_frame.sort_unstable();
            println!(
                "{} {}: {} ns (rounds {} to {})",
                object.display(),
                REQUESTS[frame].0,
                of_frame[of_frame.len() / 2],
                of_frame[0],
                of_frame[of_frame.len() - 1]
            );
        }
    }
}
