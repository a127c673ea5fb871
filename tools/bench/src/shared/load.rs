//! As many packets as CPUs carry: on each, a generator of frames, a switch that is part of a lab,
//! and a sink behind it. (The kernel polls a link on the CPU that filled it, so nothing is lost.)

use crate::frame::FRAME_BYTES;
use crate::kernel::{self, CObject};
use anyhow::{Result, anyhow, ensure};
use dataplane::LiveReady;
use lab::netns::Netns;
use libbpf_rs::Link;
use nix::net::if_::if_nametoindex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Frames that one system call generates: short enough to notice the end.
const BURST: u32 = 8_192;
/// Before counting: caches, rings, and state that packets make.
const WARM_UP: Duration = Duration::from_millis(200);

/// A CPU's way: the generator's end, and where what a switch sends on is counted.
pub struct Lane {
    from: Netns,
    generator: CObject,
    sink: CObject,
    cpu: usize,
    _attached: Link,
}

impl Lane {
    /// Frames, round and round, into an interface of a namespace, and out of an interface of the
    /// same name of another one. `traffic`: tools/bench/setups/traffic.c, compiled.
    ///
    /// # Errors
    /// There is no such interface, or a program cannot be loaded.
    pub fn new(
        traffic: &Path,
        cpu: usize,
        [from, to]: [Netns; 2],
        interface: &str,
        frames: &[Vec<u8>],
    ) -> Result<Lane> {
        let index = |netns: &Netns| netns.run(|| Ok(if_nametoindex(interface)?));
        let generator = CObject::load(traffic, &[("list", u32::try_from(frames.len())?)])?;
        kernel::write_frames(&generator, frames, FRAME_BYTES)?;
        let ifindex = index(&from)?;
        let zero = 0u32.to_ne_bytes();
        from.inside(|| {
            kernel::write(&generator.map("generate_to")?, &zero, &ifindex.to_ne_bytes())
        })??;
        let mut sink = CObject::load(traffic, &[])?;
        let sink_index = index(&to)?;
        let attached = to.inside(|| sink.attach("sink", sink_index))??;
        Ok(Lane { from, generator, sink, cpu, _attached: attached })
    }

    fn generate(&self, stop: &AtomicBool) -> Result<()> {
        kernel::pin_to_cpu(self.cpu)?;
        self.from.enter_thread()?;
        let name = "generate_listed";
        let _ready = self.generator.with_program(name, |program| Ok(LiveReady::new(program)?))?;
        while !stop.load(Ordering::Relaxed) {
            self.generator.with_program(name, |program| {
                kernel::run_live(program, &[0u8; FRAME_BYTES], 0, BURST)
            })?;
        }
        Ok(())
    }

    fn arrived(&self) -> Result<u64> {
        kernel::sum_percpu(&self.sink.map("counted")?, 0)
    }
}

/// Packets a second that arrived on all lanes while `meanwhile` worked, and what that returns.
///
/// # Errors
/// Nothing arrives, or `meanwhile` fails.
pub fn under_load<T>(lanes: &[Lane], meanwhile: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let senders: Vec<_> =
            lanes.iter().map(|lane| scope.spawn(move || lane.generate(stop))).collect();
        let counted = count(lanes, meanwhile);
        stop.store(true, Ordering::Relaxed);
        for sender in senders {
            sender.join().map_err(|_| anyhow!("a generator panicked"))??;
        }
        counted
    })
}

fn count<T>(lanes: &[Lane], meanwhile: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    thread::sleep(WARM_UP);
    let sum = || lanes.iter().map(Lane::arrived).sum::<Result<u64>>();
    let (start, before) = (Instant::now(), sum()?);
    let result = meanwhile()?;
    let arrived = sum()? - before;
    ensure!(arrived > 0, "no packet arrived");
    Ok((result, arrived as f64 / start.elapsed().as_secs_f64()))
}
