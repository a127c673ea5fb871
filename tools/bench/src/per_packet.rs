//! Nanoseconds a packet: one program at a time, by BPF_PROG_RUN.
//!
//! BPF_PROG_RUN repeats a program on one frame as the last run left it, so a translator would soon
//! see its own output. `replay` (tools/bench/setups/traffic.c) writes the next frame over it and
//! tail-calls the translator; the same with a program that does nothing, timed in the same round,
//! is subtracted. Rounds alternate between the systems, so that what disturbs the machine disturbs
//! all; the ratios are taken round by round.

use crate::flows::{Flow, Macs, Translation, flow};
use crate::frame::{FRAME_BYTES, TCP};
use crate::kernel::{self, CObject, XDP_REDIRECT};
use crate::network::Network;
use crate::statistics::{Summary, summary};
use crate::systems::System;
use anyhow::{Context, Result, bail};
use lab::netns::Netns;
use serde::Serialize;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds; each runs every system once.
    pub rounds: u32,
    /// Packets a round and system.
    pub packets: u32,
}

/// What one system took.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The system's name.
    pub system: String,
    /// CPU time of a packet in nanoseconds, without the replay.
    pub ns: Summary,
    /// One sample a round.
    #[serde(skip)]
    pub samples: Vec<f64>,
}

/// Packets of one turn: some milliseconds.
pub(crate) const SLICE_PACKETS: u32 = 25_000;

/// Checked that many frames of each system before timing it.
const CHECKED_FRAMES: usize = 512;

/// The feeder: replays frames into one program after another.
pub(crate) struct Replay {
    object: CObject,
    ingress_ifindex: u32,
    frames: u32,
}

impl Replay {
    fn load(object: &Path, translations: &[Translation], network: &Network) -> Result<Replay> {
        let came: Vec<Vec<u8>> =
            translations.iter().map(|(came, _)| came.frame().to_vec()).collect();
        Replay::of(object, &came, network.inside)
    }

    /// The same for frames of [`FRAME_BYTES`] that come in on an interface.
    pub(crate) fn of(object: &Path, came: &[Vec<u8>], ingress_ifindex: u32) -> Result<Replay> {
        let frames = u32::try_from(came.len())?;
        let object = CObject::load(object, &[("list", frames)])?;
        kernel::write_frames(&object, came, FRAME_BYTES)?;
        Ok(Replay { object, ingress_ifindex, frames })
    }

    /// Aims at the program that does nothing.
    pub(crate) fn aim_at_nothing(&self) -> Result<()> {
        self.object.with_program("nothing", |program| self.aim(program))
    }

    pub(crate) fn aim(&self, program: BorrowedFd<'_>) -> Result<()> {
        kernel::write(
            &self.object.map("target")?,
            &0u32.to_ne_bytes(),
            &program.as_raw_fd().to_ne_bytes(),
        )
    }

    pub(crate) fn start_at(&self, frame: u32) -> Result<()> {
        kernel::next_frame(&self.object, self.frames, frame % self.frames)
    }

    pub(crate) fn run(&self, repeat: u32) -> Result<kernel::Run> {
        self.object.with_program("replay", |program| {
            kernel::run(program, &[0u8; FRAME_BYTES], self.ingress_ifindex, repeat)
        })
    }

    /// The same in another namespace, whose interface the frames come in on, on a CPU.
    pub(crate) fn run_in(&self, netns: &Netns, cpu: usize, repeat: u32) -> Result<kernel::Run> {
        let ifindex = self.ingress_ifindex;
        self.object.with_program("replay", |program| {
            netns.inside(|| {
                kernel::pin_to_cpu(cpu)?;
                kernel::run(program, &[0u8; FRAME_BYTES], ifindex, repeat)
            })?
        })
    }
}

/// Does the system translate as it should? A measurement of wrong work says nothing.
fn check(replay: &Replay, system: &System, translations: &[Translation]) -> Result<()> {
    system.with_program(|program| replay.aim(program))?;
    let step = translations.len().div_ceil(CHECKED_FRAMES).max(1);
    // An odd step meets both directions.
    for index in (0..translations.len()).step_by(step | 1) {
        replay.start_at(index as u32)?;
        let run = replay.run(1)?;
        let expected = translations[index].1.frame();
        if run.verdict != XDP_REDIRECT || run.frame != expected {
            bail!(
                "{} does not translate frame {index} as it should: verdict {} (wanted {XDP_REDIRECT}), frame\n  {}\nwanted\n  {}\nfor {:?}",
                system.name,
                run.verdict,
                hex(&run.frame),
                hex(&expected),
                translations[index].0
            );
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The frames of these conversations, out and in by turns.
pub fn translations(flows: &[Flow], macs: &Macs) -> Vec<Translation> {
    flows.iter().flat_map(|flow| [flow.outbound(macs), flow.inbound(macs)]).collect()
}

/// One round: nanoseconds a packet, by system. The systems take turns by slices of a few
/// milliseconds, so that a disturbance of the machine meets all of them, and the median slice
/// counts.
fn run_round(replay: &Replay, systems: &[System], round: u32, packets: u32) -> Result<Vec<f64>> {
    let slices = packets.div_ceil(SLICE_PACKETS);
    let slice_packets = packets.min(SLICE_PACKETS);
    let mut times = vec![Vec::new(); systems.len()];
    for slice in 0..slices {
        let first_frame = slice.wrapping_mul(slice_packets);
        replay.aim_at_nothing()?;
        replay.start_at(first_frame)?;
        let feeding_ns = replay.run(slice_packets)?.cpu_ns as f64;
        for position in 0..systems.len() {
            // Another one is first each time.
            let index = (position + (round + slice) as usize) % systems.len();
            let system = &systems[index];
            system.with_program(|program| replay.aim(program))?;
            replay.start_at(first_frame)?;
            let run = replay.run(slice_packets)?;
            if run.verdict != XDP_REDIRECT {
                bail!("{}: verdict {} in a timed run", system.name, run.verdict);
            }
            times[index].push((run.cpu_ns as f64 - feeding_ns) / f64::from(slice_packets));
        }
    }
    Ok(times.iter().map(|times| summary(times).median).collect())
}

/// Measures systems (already loaded, in whose namespace the calling thread is) on `count`
/// established conversations.
pub fn measure(
    systems: &[System],
    traffic_object: &Path,
    network: &Network,
    count: u32,
    effort: Effort,
    progress: impl Fn(u32),
) -> Result<Vec<Measured>> {
    let flows: Vec<Flow> = (0..count).map(|number| flow(number, TCP)).collect();
    measure_flows(systems, traffic_object, network, &flows, effort, progress)
}

/// The same on these conversations.
pub fn measure_flows(
    systems: &[System],
    traffic_object: &Path,
    network: &Network,
    flows: &[Flow],
    effort: Effort,
    progress: impl Fn(u32),
) -> Result<Vec<Measured>> {
    let translations = translations(flows, &network.macs);
    let replay = Replay::load(traffic_object, &translations, network)?;
    for system in systems {
        system.establish(flows)?;
        check(&replay, system, &translations)?;
    }
    let mut samples = vec![Vec::new(); systems.len()];
    for round in 0..effort.rounds {
        for (samples, sample) in
            samples.iter_mut().zip(run_round(&replay, systems, round, effort.packets)?)
        {
            samples.push(sample);
        }
        progress(round + 1);
    }
    systems
        .iter()
        .zip(samples)
        .map(|(system, samples)| {
            let ns = summary(&samples);
            (ns.low > 0.0)
                .then_some(())
                .with_context(|| format!("{}: too noisy to measure", system.name))?;
            Ok(Measured { system: system.name.to_owned(), ns, samples })
        })
        .collect()
}

/// `above` over `below`, round by round.
pub fn ratio(above: &Measured, below: &Measured) -> Summary {
    let ratios: Vec<f64> =
        above.samples.iter().zip(&below.samples).map(|(above, below)| above / below).collect();
    summary(&ratios)
}
