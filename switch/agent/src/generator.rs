//! The packet generator: the counterpart of a switching chip's, by BPF_PROG_RUN with live frames.
//! It makes as many as the systems have work for (`Running::due`).

use crate::system::{Systems, now_ns};
use daemon::metrics::Histogram;
use dataplane::Dataplane;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The program that handles generated frames.
const PROGRAM: &str = "sp_generator";
/// Frames in one go at most.
const BURST: u64 = 1024;
/// Frames that are made one by one, at about 10 µs each, if the program cannot be kept ready.
const MOST_SINGLE: u32 = 256;
/// The program makes of it what it needs; long enough for a protocol message, so that it need only
/// shrink.
const FRAME_BYTES: usize = 256;

/// Upper ends of the histogram of a run's time, in seconds.
const RUN_SECONDS: [f64; 8] = [0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1];
/// Upper ends of the histogram of a run's frames.
const BATCH_FRAMES: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// What the generator has done, and how to stop it.
pub(crate) struct Generator {
    /// How long runs took, in ns.
    pub run_ns: Histogram<8>,
    /// Frames of a run.
    pub batch: Histogram<6>,
    /// How much later than the interval the last look at the work was, in microseconds.
    pub lag_us: AtomicU64,
    /// Frames made.
    pub frames: AtomicU64,
    /// Runs that the kernel refused.
    pub errors: AtomicU64,
    /// The interface that the frames seem to come from; 0: none yet.
    pub ifindex: AtomicU32,
    /// Set to end the thread.
    pub stop: AtomicBool,
}

impl Default for Generator {
    fn default() -> Generator {
        Generator {
            run_ns: Histogram::new(RUN_SECONDS, 1e-9),
            batch: Histogram::new(BATCH_FRAMES, 1.0),
            lag_us: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            ifindex: AtomicU32::new(0),
            stop: AtomicBool::new(false),
        }
    }
}

/// Whether the object has a generator.
pub(crate) fn exists(dataplane: &Dataplane) -> bool {
    dataplane.program(PROGRAM).is_some()
}

/// Starts the generator's thread, if the object has a generator.
pub(crate) fn start(
    dataplane: Arc<Dataplane>,
    interval: Duration,
    systems: Arc<Systems>,
    generator: Arc<Generator>,
) -> Option<std::thread::JoinHandle<()>> {
    if !exists(&dataplane) {
        return None;
    }
    let run = move || {
        // What it sends tells others that this switch lives, and keeps leases: both end within tens
        // of milliseconds, which is how long other threads may keep the CPUs of a busy machine.
        if !dataplane::before_others() {
            tracing::warn!(
                "no real-time policy for the packet generator: on a busy machine this switch may \
                 look dead; give the agent CAP_SYS_NICE, and no RestrictRealtime= in its unit"
            );
        }
        // The kernel's default lets a sleep end 50 µs late, in each look; without it, only the
        // figures are a little worse.
        let _ = nix::sys::prctl::set_timerslack(1);
        let ready = dataplane.keep_ready(PROGRAM);
        if let Err(error) = &ready {
            tracing::info!(
                "{error}; the packet generator makes packets one by one, which costs more CPU \
                 time; give the agent CAP_SYS_ADMIN (for a network namespace) to make many at once"
            );
        }
        let cpus = allowed();
        let mut next_look = Instant::now();
        while !generator.stop.load(Ordering::Relaxed) {
            let look = Instant::now();
            // (Without a port nobody would make what the systems queue.)
            let ifindex = generator.ifindex.load(Ordering::Relaxed);
            if ifindex != 0 {
                let make = |due| tick(&dataplane, &generator, ifindex, due, ready.is_ok());
                make(systems.due(now_ns()));
                for &cpu in &cpus {
                    let due = systems.due_on(cpu, now_ns());
                    if due > 0 {
                        on_cpu(cpu, || make(due));
                    }
                }
            }
            // One that was late does not make the next ones late; and however long it took, others
            // get the CPU in between.
            next_look = (next_look + interval).max(Instant::now() + interval / 2);
            std::thread::sleep(next_look.saturating_duration_since(Instant::now()));
            let late = look.elapsed().saturating_sub(interval);
            generator
                .lag_us
                .store(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    };
    match std::thread::Builder::new().name("generator".into()).spawn(run) {
        Ok(thread) => Some(thread),
        Err(error) => {
            tracing::error!("packet generator: no thread: {error}");
            None
        }
    }
}

/// The CPUs that this thread may run on.
fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// Runs on this CPU; where it may not go, here.
fn on_cpu(cpu: usize, run: impl FnOnce()) {
    let this_thread = Pid::from_raw(0);
    // (Read again: it may have been changed from outside.)
    let before = sched_getaffinity(this_thread);
    let mut one = CpuSet::new();
    let goes =
        before.is_ok() && one.set(cpu).is_ok() && sched_setaffinity(this_thread, &one).is_ok();
    run();
    if let (true, Ok(before)) = (goes, before)
        && let Err(error) = sched_setaffinity(this_thread, &before)
    {
        tracing::warn!("the packet generator stays on CPU {cpu}: {error}");
    }
}

/// Makes frames. A program that is not kept ready waits tens of milliseconds for the kernel if it
/// is run for several frames, but not for single ones.
fn run(dataplane: &Dataplane, ifindex: u32, frames: u32, ready: bool) -> dataplane::Result<()> {
    let frame = [0; FRAME_BYTES];
    if ready || frames > MOST_SINGLE {
        return dataplane.run_live(PROGRAM, &frame, ifindex, frames);
    }
    (0..frames).try_for_each(|_| dataplane.run_live(PROGRAM, &frame, ifindex, 1))
}

fn tick(dataplane: &Dataplane, generator: &Generator, ifindex: u32, due: u64, ready: bool) {
    let frames = due.min(BURST);
    if frames == 0 {
        return;
    }
    let start = Instant::now();
    match run(dataplane, ifindex, frames as u32, ready) {
        Ok(()) => {
            generator.frames.fetch_add(frames, Ordering::Relaxed);
            generator.run_ns.observe(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
            generator.batch.observe(frames);
        }
        Err(error) => {
            // Once in a while is enough: it happens every tick while a port is away.
            if generator.errors.fetch_add(1, Ordering::Relaxed).is_multiple_of(1_000) {
                tracing::warn!("{error}");
            }
        }
    }
}
