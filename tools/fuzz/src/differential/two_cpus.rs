//! Generated programs on two CPUs at once: registers and counters must be exact.

use super::Generated;
use super::plan::Summary;
use super::run::{Finding, Loaded, NOW_US, Pair, internal, wrong};
use super::shared;
use dataplane::Dataplane;
use fuzz_door::hex;
use p4_interpreter::Interpreter;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Barrier;

/// What marks the text of such a program.
const MARK: &str = "control s0_Sub(";
/// So often both CPUs begin at the same time; so many packets each CPU runs then.
const BURSTS: u32 = 8;
const PACKETS: u32 = 1200;
/// Bytes of a packet.
const BYTES: usize = 60;

/// Whether there are two CPUs.
pub(super) fn available() -> bool {
    std::thread::available_parallelism().is_ok_and(|count| count.get() > 1)
}

/// The program of this seed.
pub(super) fn generated(seed: u64) -> Generated {
    Generated { text: shared::generate(seed), programs: 1, on_two_cpus: true }
}

/// Whether a text is such a program's.
pub(super) fn is_one(text: &str) -> bool {
    text.contains(MARK)
}

/// Runs two packets on a CPU each, again and again at once, and compares what they leave with the
/// interpreter, for which they come one after the other.
pub(super) fn compare(
    loaded: &Loaded<'_>,
    seed: u64,
    summary: &mut Summary,
) -> Result<(), Finding> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x7ac_e75);
    let frames: [Vec<u8>; 2] =
        std::array::from_fn(|_| (0..BYTES).map(|_| random.random()).collect());
    let mut reference =
        Interpreter::new(loaded.program, systems::interpreter()).map_err(|stop| internal(&stop))?;
    let mut history = Vec::new();
    for frame in &frames {
        history.push(format!("{} times: packet 0 {}", BURSTS * PACKETS, hex(frame)));
        for _ in 0..BURSTS * PACKETS {
            if let Err(stop) = reference.run(frame, 0, NOW_US) {
                return wrong("interpreter", stop.to_string());
            }
        }
    }
    for _ in 0..BURSTS {
        burst(&loaded.dataplane, &frames)?;
    }
    let pair = Pair { loaded, written: None, reference, history, undefined: vec![false] };
    summary.elements += pair.state()?;
    summary.packets += u64::from(2 * BURSTS * PACKETS);
    summary.programs += 1;
    summary.shared += 1;
    Ok(())
}

fn burst(dataplane: &Dataplane, frames: &[Vec<u8>; 2]) -> Result<(), Finding> {
    let start = Barrier::new(frames.len());
    let run = |cpu: usize, frame: &[u8]| {
        let mut set = nix::sched::CpuSet::new();
        let pinned = set
            .set(cpu)
            .and_then(|()| nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set));
        // The other CPU waits: an error is told behind it.
        start.wait();
        pinned.map_err(|error| internal(&error))?;
        dataplane.time(frame, 0, PACKETS).map_err(|error| internal(&error))
    };
    std::thread::scope(|scope| {
        let run = &run;
        let frames = frames.iter().enumerate();
        let running: Vec<_> =
            frames.map(|(cpu, frame)| scope.spawn(move || run(cpu, frame))).collect();
        for thread in running {
            thread.join().map_err(|_| internal(&"a thread panicked"))??;
        }
        Ok(())
    })
}
