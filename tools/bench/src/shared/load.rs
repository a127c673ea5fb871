//! As many packets as CPUs carry: on each, a generator of frames, a switch that is part of a lab,
//! and a sink behind it. (The kernel polls a link on the CPU that filled it, so nothing is lost.)

use crate::contention::process_cpu_ns;
use crate::frame::FRAME_BYTES;
use crate::kernel::{self, CObject};
use crate::traffic;
use anyhow::{Result, anyhow, ensure};
use lab::netns::Netns;
use libbpf_rs::Link;
use nix::net::if_::if_nametoindex;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Before counting: caches, rings, and state that packets make.
const WARM_UP: Duration = Duration::from_millis(200);

/// A CPU's way: the generator's end, and where what a switch sends on is counted.
pub struct Lane {
    from: (Netns, u32),
    generator: CObject,
    sink: CObject,
    cpu: usize,
    _attached: Link,
}

impl Lane {
    /// Frames, round and round, into an interface of a namespace, and out of an interface of the
    /// same name of another one. `object`: tools/bench/setups/traffic.c, compiled.
    ///
    /// # Errors
    /// There is no such interface, or a program cannot be loaded.
    pub fn new(
        object: &Path,
        cpu: usize,
        [from, to]: [Netns; 2],
        interface: &str,
        frames: &[Vec<u8>],
    ) -> Result<Lane> {
        let index = |netns: &Netns| netns.run(|| Ok(if_nametoindex(interface)?));
        let generator = CObject::load(object, &[("list", u32::try_from(frames.len())?)])?;
        kernel::write_frames(&generator, frames, FRAME_BYTES)?;
        let ifindex = index(&from)?;
        let mut sink = CObject::load(object, &[])?;
        let sink_index = index(&to)?;
        let attached = to.inside(|| sink.attach("sink", sink_index))??;
        Ok(Lane { from: (from, ifindex), generator, sink, cpu, _attached: attached })
    }

    fn generate(&self, stop: &AtomicBool) -> Result<()> {
        let (netns, ifindex) = &self.from;
        traffic::generate(&self.generator, "generate_listed", (netns, *ifindex), self.cpu, stop)
    }

    fn arrived(&self) -> Result<u64> {
        kernel::sum_percpu(&self.sink.map("counted")?, 0)
    }
}

/// What was carried.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// Packets a second that arrived, on all lanes.
    pub per_s: f64,
    /// The same for each second in which generators, switches and sinks had a CPU, or one of the
    /// processes that count with them.
    pub per_cpu_s: f64,
}

/// What all lanes carry while `meanwhile` works, and what that returns. `agents`: processes whose
/// CPU time counts, too.
///
/// # Errors
/// Nothing arrives, or `meanwhile` fails.
pub fn under_load<T>(
    lanes: &[Lane],
    agents: &[i32],
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<(T, Carried)> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let senders: Vec<_> =
            lanes.iter().map(|lane| scope.spawn(move || lane.generate(stop))).collect();
        let counted = count(lanes, agents, meanwhile);
        stop.store(true, Ordering::Relaxed);
        for sender in senders {
            sender.join().map_err(|_| anyhow!("a generator panicked"))??;
        }
        counted
    })
}

fn count<T>(
    lanes: &[Lane],
    agents: &[i32],
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<(T, Carried)> {
    thread::sleep(WARM_UP);
    let own = i32::try_from(std::process::id())?;
    let arrived = || lanes.iter().map(Lane::arrived).sum::<Result<u64>>();
    let cpu_ns = || {
        let all = std::iter::once(own).chain(agents.iter().copied());
        all.map(process_cpu_ns).sum::<Result<u64>>()
    };
    let (start, cpu_before, before) = (Instant::now(), cpu_ns()?, arrived()?);
    let result = meanwhile()?;
    let (packets, cpu_ns) = ((arrived()? - before) as f64, cpu_ns()? - cpu_before);
    ensure!(packets > 0.0 && cpu_ns > 0, "no packet arrived");
    let per_s = packets / start.elapsed().as_secs_f64();
    Ok((result, Carried { per_s, per_cpu_s: packets * 1e9 / cpu_ns as f64 }))
}
