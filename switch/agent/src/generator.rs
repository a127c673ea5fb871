//! The packet generator: the counterpart of a switching chip's, by BPF_PROG_RUN with live frames. It runs while the program has queued work, and for the
//! heartbeats of sessions.

use crate::flow_state::snapshot_periods_us;
use crate::sweep::now_ns;
use dataplane::Dataplane;
use dataplane::flow::{FlowSettings, MOST_SHARDS};
use metrics::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The program that handles generated frames.
const PROGRAM: &str = "sp_generator";
/// Array of one u64: how much work is queued.
pub(crate) const WORK: &str = "sp_generator_work";
/// Frames in one go at most.
const BURST: u64 = 1024;
/// So many places of the ring are looked at in any case.
const LEAST_LOOKED_AT: u64 = 64;
/// Frames that are made one by one, at about 10 µs each, if the program cannot be kept ready.
const MOST_SINGLE: u32 = 256;
/// The program makes of it what it needs; long enough for a protocol message, so that it need only shrink.
const FRAME_BYTES: usize = 256;

/// Upper ends of the histogram of a run's time, in seconds.
const RUN_SECONDS: [f64; 8] = [0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1];
/// Upper ends of the histogram of a run's frames.
const BATCH_FRAMES: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
/// How often the time-outs are looked at.
const MEASURED_FOR: Duration = Duration::from_millis(20);
/// However often snapshots are to be taken, no look at the work sooner than this.
const LEAST_SNAPSHOT_US: u64 = 100;

/// What the generator has done, and how to stop it.
pub(crate) struct Generator {
    /// How long runs took, in ns.
    pub run_ns: Histogram<8>,
    /// Frames of a run.
    pub batch: Histogram<6>,
    /// How much later than the interval the last look at the ring was, in microseconds.
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

/// Time between two looks at the work: as configured, but twice in the shortest period of the program's snapshots, so that each begins about when it is due
/// (the look nearest to its time takes it: stateplane_snapshot_message.h).
pub(crate) fn interval(dataplane: &Dataplane, configured_us: u64) -> Duration {
    let shortest = snapshot_periods_us(dataplane)
        .min()
        .map_or(configured_us, |period_us| u64::from(period_us / 2).max(LEAST_SNAPSHOT_US));
    Duration::from_micros(shortest.min(configured_us))
}

/// In how many looks all of the ring is gone through: within the time after which updates are sent again, as looking at more only costs CPU.
fn looks(interval: Duration, resend_timeout: Duration) -> u64 {
    (resend_timeout.as_nanos() / interval.as_nanos().max(1)).clamp(1, 1_000) as u64
}

/// The shortest time after which something is sent again: the round trips are measured for each shard.
fn resend_timeout(dataplane: &Dataplane, settings: &FlowSettings) -> Duration {
    let shards = dataplane.shards().unwrap_or(0);
    let timeouts = (0..shards).filter_map(|shard| dataplane.round_trips(shard).ok());
    let shortest = timeouts.map(|round_trips| round_trips.resend_timeout_ns(settings)).min();
    Duration::from_nanos(shortest.unwrap_or(settings.resend_least_ns))
}

/// Of what is queued, the places to look at now.
fn places(queued: u64, looks: u64) -> u64 {
    queued.div_ceil(looks).max(queued.min(LEAST_LOOKED_AT))
}

/// Starts the generator's thread, if the object has a generator.
pub(crate) fn start(
    dataplane: Arc<Dataplane>,
    interval: Duration,
    settings: FlowSettings,
    generator: Arc<Generator>,
) -> Option<std::thread::JoinHandle<()>> {
    if dataplane.program(PROGRAM).is_none() || !dataplane.has_map(WORK) {
        return None;
    }
    let run = move || {
        // The kernel's default lets a sleep end 50 µs late, in each look; without it, only the figures are a little worse.
        let _ = nix::sys::prctl::set_timerslack(1);
        let ready = dataplane.keep_ready(PROGRAM);
        if let Err(error) = &ready {
            tracing::info!(
                "{error}; generated packets are made one by one, which costs more CPU; a network namespace takes CAP_SYS_ADMIN"
            );
        }
        // Snapshots begin when their place is looked at: all of the ring in each look.
        let snapshots = snapshot_periods_us(&dataplane).next().is_some();
        let (mut looks_now, mut measured_at) = (1, None);
        let mut heartbeats = Heartbeats::default();
        let mut next_look = Instant::now();
        while !generator.stop.load(Ordering::Relaxed) {
            let look = Instant::now();
            let due = heartbeats.queue_due(&dataplane, now_ns());
            if !snapshots && measured_at.is_none_or(|at: Instant| look - at >= MEASURED_FOR) {
                (looks_now, measured_at) = (looks(interval, resend_timeout(&dataplane, &settings)), Some(look));
            }
            tick(&dataplane, &generator, due, looks_now, ready.is_ok());
            // One that was late does not make the next ones late; and however long it took, others get the CPU in between.
            next_look = (next_look + interval).max(Instant::now() + interval / 2);
            std::thread::sleep(next_look.saturating_duration_since(Instant::now()));
            let late = look.elapsed().saturating_sub(interval);
            generator.lag_us.store(u64::try_from(late.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
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

/// A shard without a session is looked at this often.
const LOOK_NS: u64 = 20_000_000;
/// However short the lease, no more often than this.
const LEAST_INTERVAL_NS: u64 = 1_000_000;

/// When each shard's next heartbeat is due (systems/redplane/docs/state-protocol.md, "Sessions" 5).
#[derive(Default)]
struct Heartbeats {
    due_ns: Vec<u64>,
}

impl Heartbeats {
    /// Queues the heartbeats that are due; how many.
    fn queue_due(&mut self, dataplane: &Dataplane, now_ns: u64) -> u64 {
        // Which of them exist can change while this runs; reading costs one system call for each look.
        self.due_ns.resize(MOST_SHARDS, 0);
        let mut shards = None;
        let mut queued = 0;
        for shard in 0..MOST_SHARDS {
            if self.due_ns[shard] > now_ns {
                continue;
            }
            let known = *shards.get_or_insert_with(|| dataplane.shards().unwrap_or(0) as usize);
            let session = match shard < known {
                true => dataplane.session(shard as u32).unwrap_or_default(),
                false => Default::default(),
            };
            self.due_ns[shard] = now_ns + LOOK_NS;
            // A full queue means that the generator cannot run now: these are still in it.
            if session.number != 0 && dataplane.push_heartbeat(shard as u32).is_ok() {
                self.due_ns[shard] = now_ns + (session.lease_ns / 3).max(LEAST_INTERVAL_NS);
                queued += 1;
            }
        }
        queued
    }
}

/// Makes frames. A program that is not kept ready waits tens of milliseconds for the kernel if it is run for several frames, but not for single ones.
fn run(dataplane: &Dataplane, ifindex: u32, frames: u32, ready: bool) -> dataplane::Result<()> {
    let frame = [0; FRAME_BYTES];
    if ready || frames > MOST_SINGLE {
        return dataplane.run_live(PROGRAM, &frame, ifindex, frames);
    }
    (0..frames).try_for_each(|_| dataplane.run_live(PROGRAM, &frame, ifindex, 1))
}

fn tick(dataplane: &Dataplane, generator: &Generator, heartbeats: u64, looks: u64, ready: bool) {
    let ifindex = generator.ifindex.load(Ordering::Relaxed);
    let queued = match dataplane.read_array(WORK, 0) {
        Ok(bytes) => bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, i64::from_ne_bytes),
        Err(_) => 0,
    };
    // Packets pop and push while this reads: a moment below zero is possible.
    // Heartbeats go first, whatever is queued.
    let frames = (places(queued.max(0).unsigned_abs(), looks) + heartbeats).min(BURST);
    if ifindex == 0 || frames == 0 {
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

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn all_of_the_ring_is_gone_through_in_so_many_looks() {
        assert_eq!((places(0, 2), places(5, 2), places(64, 2)), (0, 5, 64), "few: all at once");
        assert_eq!((places(1024, 2), places(1025, 2), places(1000, 1)), (512, 513, 1000));
    }
}
