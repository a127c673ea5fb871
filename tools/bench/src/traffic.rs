//! Packets a second: 64-byte UDP packets through veth links and a translator in a network
//! namespace, counted where they arrive.
//!
//! Each CPU does all of it: its generator (BPF_PROG_RUN with live frames) hands each batch to the
//! link, and the kernel polls the links on the CPU that filled them. So nothing is lost, a packet's
//! time is the sum of all its steps, and the figures contain the generator and the sink, the same
//! for every translator. (A second CPU would let the generator overrun the translator, and the two
//! would measure how they fight over a ring.)

use crate::flows::{FIRST_INSIDE, Flow, REMOTE, flow};
use crate::frame::{FRAME_BYTES, UDP};
use crate::kernel::{self, CObject};
use crate::network::Network;
use crate::statistics::{Summary, summary};
use crate::systems::System;
use anyhow::{Result, bail};
use dataplane::LiveReady;
use lab::netns::Netns;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What one system carried.
#[derive(Clone, Debug, Serialize)]
pub struct Carried {
    /// The system's name.
    pub system: String,
    /// Packets a second that arrived.
    pub packets_per_second: Summary,
    /// One sample a round.
    #[serde(skip)]
    pub samples: Vec<f64>,
}

/// Before counting: caches, rings, and connections that nftables makes.
const WARM_UP: Duration = Duration::from_millis(100);
/// Frames that one system call generates: short enough to notice the end.
const BURST: u32 = 8_192;

fn settings(network: &Network, flows: u32, parts: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [flows, u32::from(FIRST_INSIDE), u32::from(REMOTE), parts] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for mac in [network.macs.inside_port, network.macs.inside_hop] {
        bytes.extend_from_slice(&mac);
        bytes.extend_from_slice(&[0, 0]);
    }
    bytes
}

/// Sends on a CPU until told to stop, by an interface of a namespace. `program`: of
/// tools/bench/setups/traffic.c. The calling thread stays in the namespace, and on the CPU.
pub(crate) fn generate(
    object: &CObject,
    program: &str,
    (netns, ifindex): (&Netns, u32),
    cpu: usize,
    stop: &AtomicBool,
) -> Result<()> {
    kernel::pin_to_cpu(cpu)?;
    netns.enter_thread()?;
    let line = ifindex.to_ne_bytes();
    kernel::write(&object.map("generate_to")?, &0u32.to_ne_bytes(), &line)?;
    let _ready = object.with_program(program, |program| Ok(LiveReady::new(program)?))?;
    while !stop.load(Ordering::Relaxed) {
        object.with_program(program, |program| {
            kernel::run_live(program, &[0u8; FRAME_BYTES], 0, BURST)
        })?;
    }
    Ok(())
}

/// Packets a second that arrive.
fn count(sink: &CObject, window: Duration) -> Result<f64> {
    let map = sink.map("counted")?;
    std::thread::sleep(WARM_UP);
    let start = Instant::now();
    let before = kernel::sum_percpu(&map, 0)?;
    std::thread::sleep(window);
    let packets = kernel::sum_percpu(&map, 0)? - before;
    Ok(packets as f64 / start.elapsed().as_secs_f64())
}

/// CPUs that generate and forward, and the flows of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// CPU 0, 1, and so on. The links need so many queues.
    pub count: usize,
    /// Each CPU has flows of its own; otherwise all have all.
    pub own_flows: bool,
}

impl Cpus {
    /// CPU 0 alone.
    pub const ONE: Cpus = Cpus { count: 1, own_flows: false };

    fn parts(self) -> u32 {
        if self.own_flows { self.count as u32 } else { 1 }
    }
}

/// One system, once: packets a second.
fn carry(
    system: &mut System,
    generator: &CObject,
    sink: &CObject,
    network: &Network,
    window: Duration,
    cpus: Cpus,
) -> Result<f64> {
    let _attached = system.attach(network)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let line: (&Netns, u32) = (&network.generator, network.generator_line);
        let senders: Vec<_> = (0..cpus.count)
            .map(|cpu| scope.spawn(move || generate(generator, "generate", line, cpu, stop)))
            .collect();
        let counted = count(sink, window);
        stop.store(true, Ordering::Relaxed);
        for sender in senders {
            match sender.join() {
                Ok(result) => result?,
                Err(_) => bail!("the generator panicked"),
            }
        }
        let rate = counted?;
        if rate == 0.0 {
            bail!("{}: nothing arrived", system.name);
        }
        Ok(rate)
    })
}

/// What a measurement has on the line.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Conversations.
    pub flows: u32,
    /// Rounds; each runs every system once.
    pub rounds: u32,
    /// How long a system's packets are counted in a round.
    pub window: Duration,
    /// The CPUs that work. One after the other in each round, for each system.
    pub cpus: &'static [Cpus],
}

/// Measures systems (already loaded, in whose namespace the calling thread is): for each of
/// `offered.cpus`, what each system carried.
///
/// # Errors
/// Nothing arrives, or a program cannot be loaded.
pub fn measure(
    systems: &mut [System],
    traffic_object: &Path,
    network: &Network,
    offered: Offered,
    progress: impl Fn(u32),
) -> Result<Vec<Vec<Carried>>> {
    let Offered { flows: count, rounds, window, cpus } = offered;
    let flows: Vec<Flow> = (0..count).map(|number| flow(number, UDP)).collect();
    for system in systems.iter() {
        system.establish(&flows)?;
    }
    let generator = CObject::load(traffic_object, &[])?;
    let chosen = generator.map("settings")?;
    let mut sink = CObject::load(traffic_object, &[])?;
    let _sink_attached = network.sink.inside(|| sink.attach("sink", network.sink_line))??;
    let mut samples = vec![vec![Vec::new(); systems.len()]; cpus.len()];
    for round in 0..rounds {
        for position in 0..systems.len() {
            let index = (position + round as usize) % systems.len();
            for (cpus, samples) in cpus.iter().zip(&mut samples) {
                let settings = settings(network, count, cpus.parts());
                kernel::write(&chosen, &0u32.to_ne_bytes(), &settings)?;
                let system = &mut systems[index];
                samples[index].push(carry(system, &generator, &sink, network, window, *cpus)?);
            }
        }
        progress(round + 1);
    }
    let carried = |samples: Vec<Vec<f64>>| -> Vec<Carried> {
        let all = systems.iter().zip(samples);
        all.map(|(system, samples)| Carried {
            system: system.name.to_owned(),
            packets_per_second: summary(&samples),
            samples,
        })
        .collect()
    };
    Ok(samples.into_iter().map(carried).collect())
}

/// `above` over `below`, round by round.
pub fn ratio(above: &Carried, below: &Carried) -> Summary {
    let ratios: Vec<f64> =
        above.samples.iter().zip(&below.samples).map(|(above, below)| above / below).collect();
    summary(&ratios)
}
