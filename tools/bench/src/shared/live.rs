//! CPU time of a packet in switches of labs that are up, so with the windows and the gossip of what
//! they share: their programs on frames of a list, by BPF_PROG_RUN.

use crate::frame::{Packet, UDP};
use crate::kernel::XDP_REDIRECT;
use crate::per_packet::{Effort, Measured, Replay, SLICE_PACKETS};
use crate::shared::network::Network;
use crate::shared::shares::{self, Limit};
use crate::statistics::summary;
use anyhow::{Context, Result, anyhow, ensure};
use dataplane::Dataplane;
use lab::netns::Netns;
use nix::net::if_::if_nametoindex;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use swish_sim::Program;

/// Sources, or users.
const SOURCES: u32 = 64;
/// Of each source: too few for the detector.
const DESTINATIONS: u32 = 4;
/// Of the limiter: more than one CPU's packets.
const LIMIT: Limit = Limit { rate: 1_000_000, burst: 100_000_000 };

/// A program in the first switch of a lab.
pub struct Live {
    name: &'static str,
    netns: Netns,
    dataplane: Dataplane,
    /// Of the first CPU, and of the second.
    replays: [Replay; 2],
    _network: Network,
}

/// A function of systems/swish/p4, compiled for a lab.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// For the report.
    pub name: &'static str,
    /// Its folder.
    pub program: &'static str,
    /// Its macro.
    pub define: &'static str,
    /// The lab's mode: `shared` or `alone`.
    pub mode: &'static str,
    /// From one window to the next.
    pub period_us: u32,
}

impl Function {
    /// The lab's variables.
    fn vars(&self) -> [(&'static str, String); 3] {
        [
            ("program", self.program.to_owned()),
            ("define", self.define.to_owned()),
            ("period_us", self.period_us.to_string()),
        ]
    }
}

/// Packets of 64 sources, to four destinations each.
pub fn frames() -> Vec<Vec<u8>> {
    let at = |network: [u8; 4], number: u32| Ipv4Addr::from(u32::from_be_bytes(network) + number);
    let frame = |number: u32| {
        let packet = Packet {
            destination_mac: [2, 0, 0, 0, 0, 1],
            source_mac: [2, 0, 0, 0, 0, 2],
            source: (at([10, 66, 0, 1], number % SOURCES), 1000),
            destination: (at([10, 128, 0, 1], number / SOURCES), 1000),
            protocol: UDP,
            ttl: 64,
        };
        packet.frame().to_vec()
    };
    (0..SOURCES * DESTINATIONS).map(frame).collect()
}

/// Each user has a limit that it does not reach.
///
/// # Errors
/// The program has no such table.
pub fn set_limits(dataplane: &Dataplane) -> Result<()> {
    (0..SOURCES).try_for_each(|user| shares::set(dataplane, user, LIMIT))
}

impl Live {
    /// Brings the lab up. `traffic`: tools/bench/setups/traffic.c, compiled.
    ///
    /// # Errors
    /// It does not come up, or the program does not let the frames pass.
    pub fn up(stateplane: &Path, traffic: &Path, function: Function) -> Result<Live> {
        let network = Network::up(stateplane, function.mode, &function.vars())?;
        Live::begin(network, traffic, function)
    }

    /// The same with the function as a program that is compiled already.
    ///
    /// # Errors
    /// As [`Live::up`].
    pub fn up_compiled(
        stateplane: &Path,
        traffic: &Path,
        function: Function,
        program: &Program,
    ) -> Result<Live> {
        let network = Network::up_compiled(stateplane, &function.vars(), program)?;
        Live::begin(network, traffic, function)
    }

    fn begin(network: Network, traffic: &Path, function: Function) -> Result<Live> {
        let (netns, dataplane) = (network.netns('s', 0)?, network.dataplane(0)?);
        if function.program == "limiter" {
            set_limits(&dataplane)?;
        }
        let ifindex = netns.run(|| Ok(if_nametoindex("a1")?))?;
        let replay = || Replay::of(traffic, &frames(), ifindex);
        let replays = [replay()?, replay()?];
        let live = Live { name: function.name, netns, dataplane, replays, _network: network };
        // (All state that the frames need is there then.)
        live.run(0, frames().len() as u32)?;
        Ok(live)
    }

    /// Nanoseconds a packet: what is left of a run when the replay's own part is taken off.
    fn run(&self, first: u32, packets: u32) -> Result<f64> {
        let program = self.dataplane.program("sp_main").context("no program sp_main")?;
        let [replay, _] = &self.replays;
        replay.aim_at_nothing()?;
        replay.start_at(first)?;
        let nothing_ns = replay.run_in(&self.netns, 0, packets)?.cpu_ns as f64;
        replay.aim(program)?;
        replay.start_at(first)?;
        let run = replay.run_in(&self.netns, 0, packets)?;
        let name = self.name;
        ensure!(run.verdict == XDP_REDIRECT, "{name}: verdict {} of a run", run.verdict);
        Ok((run.cpu_ns as f64 - nothing_ns) / f64::from(packets))
    }

    /// The same while the second CPU handles the same packets.
    fn run_beside(&self, first: u32, packets: u32) -> Result<f64> {
        let program = self.dataplane.program("sp_main").context("no program sp_main")?;
        let [_, other] = &self.replays;
        other.aim(program)?;
        let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let beside = scope.spawn(|| -> Result<()> {
                while !over.load(Ordering::Relaxed) {
                    other.run_in(&self.netns, 1, SLICE_PACKETS)?;
                    begun.store(true, Ordering::Relaxed);
                }
                Ok(())
            });
            while !begun.load(Ordering::Relaxed) && !beside.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            let ns = self.run(first, packets);
            over.store(true, Ordering::Relaxed);
            beside.join().map_err(|_| anyhow!("the second CPU's packets panicked"))??;
            ns
        })
    }
}

/// Measures them by turns.
///
/// # Errors
/// A run fails.
pub fn measure(all: &[Live], effort: Effort, progress: impl Fn(u32)) -> Result<Vec<Measured>> {
    measure_by(all, effort, Live::run, progress)
}

/// The same on one of two CPUs that both handle the same packets.
///
/// # Errors
/// A run fails.
pub fn measure_beside(
    all: &[Live],
    effort: Effort,
    progress: impl Fn(u32),
) -> Result<Vec<Measured>> {
    measure_by(all, effort, Live::run_beside, progress)
}

fn measure_by(
    all: &[Live],
    effort: Effort,
    run: fn(&Live, u32, u32) -> Result<f64>,
    progress: impl Fn(u32),
) -> Result<Vec<Measured>> {
    let mut samples = vec![vec![]; all.len()];
    let slices = effort.packets.div_ceil(SLICE_PACKETS);
    for round in 0..effort.rounds {
        let mut slices_ns = vec![vec![]; all.len()];
        for slice in 0..slices {
            for position in 0..all.len() {
                // Another one is first each time.
                let index = (position + (round + slice) as usize) % all.len();
                let ns = run(&all[index], slice * SLICE_PACKETS, SLICE_PACKETS)?;
                slices_ns[index].push(ns);
            }
        }
        for (samples, ns) in samples.iter_mut().zip(&slices_ns) {
            samples.push(summary(ns).median);
        }
        progress(round + 1);
    }
    let measured = |(live, samples): (&Live, Vec<f64>)| Measured {
        system: live.name.to_owned(),
        ns: summary(&samples),
        samples,
    };
    Ok(all.iter().zip(samples).map(measured).collect())
}
