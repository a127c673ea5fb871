//! The packet generator: the counterpart of a switching chip's, by BPF_PROG_RUN with live frames. It runs only while the program has queued work.

use dataplane::Dataplane;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The program that handles generated frames.
const PROGRAM: &str = "sp_generator";
/// Array of one u64: how much work is queued.
const WORK: &str = "sp_generator_work";
/// Frames in one go at most.
const BURST: u64 = 1024;
/// The program makes of it what it needs; long enough for a protocol message, so that it need only shrink.
const FRAME_BYTES: usize = 256;

/// What the generator has done, and how to stop it.
#[derive(Default)]
pub(crate) struct Generator {
    /// Frames made.
    pub frames: AtomicU64,
    /// Runs that the kernel refused.
    pub errors: AtomicU64,
    /// The interface that the frames seem to come from; 0: none yet.
    pub ifindex: AtomicU32,
    /// Set to end the thread.
    pub stop: AtomicBool,
}

/// Starts the generator's thread, if the object has a generator.
pub(crate) fn start(
    dataplane: Arc<Dataplane>,
    interval: Duration,
    generator: Arc<Generator>,
) -> Option<std::thread::JoinHandle<()>> {
    if dataplane.program(PROGRAM).is_none() || !dataplane.has_map(WORK) {
        return None;
    }
    let run = move || {
        while !generator.stop.load(Ordering::Relaxed) {
            tick(&dataplane, &generator);
            std::thread::sleep(interval);
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

fn tick(dataplane: &Dataplane, generator: &Generator) {
    let ifindex = generator.ifindex.load(Ordering::Relaxed);
    let queued = match dataplane.read_array(WORK, 0) {
        Ok(bytes) => bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, i64::from_ne_bytes),
        Err(_) => 0,
    };
    // Packets pop and push while this reads: a moment below zero is possible.
    if ifindex == 0 || queued <= 0 {
        return;
    }
    let frames = queued.unsigned_abs().min(BURST);
    match dataplane.run_live(PROGRAM, &[0; FRAME_BYTES], ifindex, frames as u32) {
        Ok(()) => {
            generator.frames.fetch_add(frames, Ordering::Relaxed);
        }
        Err(error) => {
            // Once in a while is enough: it happens every tick while a port is away.
            if generator.errors.fetch_add(1, Ordering::Relaxed).is_multiple_of(1_000) {
                tracing::warn!("{error}");
            }
        }
    }
}
