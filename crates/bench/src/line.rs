//! Packets a second through one switch of a lab: made by the kernel on the router before it, counted by XDP on the routers around it.
//!
//! Generator and switch share CPU 0 (the kernel polls a veth on the CPU that fills it); stores and whatever else the application needs have the other.

use crate::build::Places;
use crate::kernel::{self, CObject};
use crate::labs::Running;
use crate::probe::{self, Path, mac_of};
use anyhow::{Context, Result, bail};
use libbpf_rs::Link;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// FRAME_BYTES of bench/probe.c.
const FRAME_BYTES: usize = 128;
/// Frames that one system call makes when the rate has no limit: short enough to notice the end.
const BURST: u32 = 4_096;
/// A paced generator makes what is due this often.
const TICK: Duration = Duration::from_millis(1);
/// Not counted: until queues and caches are as they stay.
const WARM_UP: Duration = Duration::from_millis(150);

/// What came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delivered {
    /// Packets a second that were made.
    pub offered: f64,
    /// Packets a second that came out.
    pub delivered: f64,
    /// Bytes a second that came out, whole frames.
    pub delivered_bytes: f64,
}

/// A line through a switch.
pub struct Line {
    player: CObject,
    counters: Vec<(CObject, Link, u32)>,
    near: lab::netns::Netns,
    /// Mean length of a frame that is sent.
    frame_bytes: f64,
}

fn list(player: &CObject, frames: &[Vec<u8>]) -> Result<()> {
    let map = player.map("list")?;
    for (index, frame) in frames.iter().enumerate() {
        if frame.len() > FRAME_BYTES {
            bail!("a frame of {} bytes is longer than {FRAME_BYTES}", frame.len());
        }
        let mut element = (frame.len() as u32).to_ne_bytes().to_vec();
        element.extend_from_slice(&[0; 4]);
        element.extend_from_slice(frame);
        element.resize(8 + FRAME_BYTES, 0);
        kernel::write(&map, &(index as u32).to_ne_bytes(), &element)?;
    }
    let mut position = (frames.len() as u32).to_ne_bytes().to_vec();
    position.extend_from_slice(&[0; 4]);
    kernel::write(&player.map("position")?, &0u32.to_ne_bytes(), &position)
}

impl Line {
    /// Prepares to send these frames (their Ethernet addresses are filled in), and to count packets with this UDP port that come out.
    ///
    /// # Errors
    /// A node is missing, or a frame is too long.
    pub fn new(places: &Places, lab: &Running, path: Path, frames: &[Vec<u8>], counted_port: u16) -> Result<Line> {
        let object = places.compile_c_as("probe", "line", &[format!("COUNT_PORT={counted_port}")])?;
        let counters = vec![
            probe::attach(&object, lab, path.far, path.switch, "count")?,
            probe::attach(&object, lab, path.near, path.switch, "count")?,
        ];
        let player = CObject::load(&object, &[("list", u32::try_from(frames.len())?)])?;
        let (near_mac, switch_mac) = (mac_of(lab, path.near, path.switch)?, mac_of(lab, path.switch, path.near)?);
        let mut frames = frames.to_vec();
        for frame in &mut frames {
            frame[..6].copy_from_slice(&switch_mac);
            frame[6..12].copy_from_slice(&near_mac);
        }
        list(&player, &frames)?;
        let ifindex = counters[1].2;
        // A device map finds a device in the namespace of who writes it.
        let near = lab.netns(path.near)?;
        let play_to = player.map("play_to")?;
        let (line, zero) = (ifindex.to_ne_bytes(), 0u32.to_ne_bytes());
        near.run(|| kernel::write(&play_to, &zero, &line).map_err(|e| std::io::Error::other(format!("{e:#}"))))
            .context("the line that packets are played to")?;
        let bytes: usize = frames.iter().map(Vec::len).sum();
        let frame_bytes = bytes as f64 / frames.len().max(1) as f64;
        Ok(Line { player, counters, near, frame_bytes })
    }

    /// Mean length of a frame that is sent, in bytes.
    pub fn frame_bytes(&self) -> f64 {
        self.frame_bytes
    }

    /// Packets and bytes that have come out so far.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn counted(&self) -> Result<(u64, u64)> {
        let (mut packets, mut bytes) = (0, 0);
        for (object, ..) in &self.counters {
            let map = object.map("counted")?;
            packets += kernel::sum_percpu(&map, 0)?;
            bytes += kernel::sum_percpu(&map, 8)?;
        }
        Ok((packets, bytes))
    }

    fn play(&self, frames: u32) -> Result<()> {
        self.player.with_program("play", |program| kernel::run_live(program, &[0u8; FRAME_BYTES], 0, frames))
    }

    /// Makes packets until told to stop, at a rate or without a limit.
    fn generate(&self, rate: Option<f64>, made: &AtomicU64, stop: &AtomicBool) -> Result<()> {
        kernel::pin_to_cpu(0)?;
        let start = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let due = match rate {
                None => BURST,
                Some(rate) => {
                    let due = (start.elapsed().as_secs_f64() * rate) as u64;
                    // What a busy machine kept from being sent is not made up for at once.
                    let most = (rate * 0.01) as u64 + 1;
                    due.saturating_sub(made.load(Ordering::Relaxed)).min(most) as u32
                }
            };
            if due > 0 {
                self.play(due)?;
                made.fetch_add(u64::from(due), Ordering::Relaxed);
            }
            if rate.is_some() {
                std::thread::sleep(TICK);
            }
        }
        Ok(())
    }

    /// Sends so many frames of the list, at a rate, and is done when they are sent.
    ///
    /// # Errors
    /// The kernel makes no frames.
    pub fn send(&self, frames: u64, rate: f64) -> Result<()> {
        let play = || -> Result<()> {
            let start = Instant::now();
            let mut made = 0;
            while made < frames {
                let due = ((start.elapsed().as_secs_f64() * rate) as u64).min(frames) - made;
                if due > 0 {
                    self.play(due as u32)?;
                    made += due;
                }
                std::thread::sleep(TICK);
            }
            Ok(())
        };
        self.near.run(|| play().map_err(|e| std::io::Error::other(format!("{e:#}")))).context("sending")
    }

    /// Offers packets at a rate (none: as many as can be made) and counts for a while what comes out.
    ///
    /// # Errors
    /// The kernel makes no frames.
    pub fn offer(&self, rate: Option<f64>, window: Duration) -> Result<Delivered> {
        let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (made, stop) = (&made, &stop);
            let generate = move || self.generate(rate, made, stop).map_err(|e| std::io::Error::other(format!("{e:#}")));
            let generator = scope.spawn(move || self.near.run(generate));
            std::thread::sleep(WARM_UP);
            let start = Instant::now();
            let before = (self.counted()?, made.load(Ordering::Relaxed));
            std::thread::sleep(window);
            let after = (self.counted()?, made.load(Ordering::Relaxed));
            let seconds = start.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            match generator.join() {
                Ok(result) => result.context("generator")?,
                Err(_) => bail!("the generator panicked"),
            }
            Ok(Delivered {
                offered: (after.1 - before.1) as f64 / seconds,
                delivered: (after.0.0 - before.0.0) as f64 / seconds,
                delivered_bytes: (after.0.1 - before.0.1) as f64 / seconds,
            })
        })
    }

    /// The most that comes through, over several offered rates: some systems deliver less when they are offered too much.
    ///
    /// # Errors
    /// As [`Line::offer`], or nothing comes through at all.
    pub fn most(&self, rates: &[Option<f64>], window: Duration) -> Result<(Delivered, Vec<Delivered>)> {
        let mut all = Vec::new();
        for rate in rates {
            all.push(self.offer(*rate, window)?);
        }
        let best = all.iter().copied().max_by(|a, b| a.delivered.total_cmp(&b.delivered)).unwrap_or_default();
        if best.delivered == 0.0 {
            bail!("nothing came through");
        }
        Ok((best, all))
    }
}
