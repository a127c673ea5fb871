//! Packets a second through one switch of a lab: made by the kernel on the router before it,
//! counted by XDP on the routers around it.
//!
//! Generator and switch share CPU 0 (the kernel polls a veth on the CPU that fills it); stores and
//! whatever else the application needs have the other.

use crate::build::Places;
use crate::contention::{Stretch, taken_percent};
use crate::kernel::{self, CObject};
use crate::labs::Running;
use crate::probe::{self, Path, mac_of};
use anyhow::{Context, Result, bail};
use dataplane::LiveReady;
use libbpf_rs::Link;
use serde::Serialize;
use std::time::{Duration, Instant};

/// FRAME_BYTES of tools/bench/setups/probe.c: what it makes of a packet; the rest, if there is
/// more, is zero.
const FRAME_BYTES: usize = 128;
/// The longest frame that links of the labs take.
const LONGEST_BYTES: usize = 1_514;
/// Frames that one system call makes when the rate has no limit: short enough to notice the end.
const BURST: u32 = 1_024;
/// The same where what comes out is waited for: half of what a veth's ring holds, so that there is
/// always room for what routing daemons send.
const CLOCKED_BURST: u32 = 128;
/// Nothing more has come out for so long: what is missing was dropped on the way.
const LOST: Duration = Duration::from_micros(300);
/// A paced generator makes what is due this often: more often than the shortest snapshots come (1
/// ms), which are only taken of what has changed.
const TICK: Duration = Duration::from_micros(200);
/// Packets a second.
const REFRESH_RATE: f64 = 30_000.0;
/// Not counted: until queues and caches are as they stay.
const WARM_UP: Duration = Duration::from_millis(80);
/// The same without a limit, where nothing queues.
const WARM_UP_UNLIMITED: Duration = Duration::from_millis(30);

/// What came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Delivered {
    /// Packets a second that were made.
    pub offered: f64,
    /// Packets a second that came out.
    pub delivered: f64,
    /// Bytes a second that came out, whole frames.
    pub delivered_bytes: f64,
    /// Without a limit: packets that came out, per second in which generator and switch had their
    /// CPU. Other processes on the machine do not change it much.
    pub per_cpu_s: Option<f64>,
    /// Without a limit: share of the time, in percent, in which others had that CPU.
    pub taken_percent: Option<f64>,
}

/// A line through a switch.
pub struct Line {
    player: CObject,
    _ready: LiveReady,
    counters: Vec<(CObject, Link, u32)>,
    near: lab::netns::Netns,
    clocked: bool,
    /// How many there are, and their mean length.
    frames: u32,
    frame_bytes: f64,
}

impl Line {
    /// Prepares to send these frames (their Ethernet addresses are filled in), and to count packets
    /// with this UDP port that come out.
    ///
    /// # Errors
    /// A node is missing, or a frame is too long.
    pub fn new(
        places: &Places,
        lab: &Running,
        path: Path,
        frames: &[Vec<u8>],
        counted_port: u16,
    ) -> Result<Line> {
        if let Some(frame) = frames.iter().find(|frame| frame.len() > LONGEST_BYTES) {
            bail!("a frame of {} bytes is longer than {LONGEST_BYTES}", frame.len());
        }
        let object =
            places.compile_c_as("probe", "line", &[format!("COUNT_PORT={counted_port}")])?;
        let counters = vec![
            probe::attach(&object, lab, path.far, path.switch, "count")?,
            probe::attach(&object, lab, path.near, path.switch, "count")?,
        ];
        let player = CObject::load(&object, &[("list", u32::try_from(frames.len())?)])?;
        let (near_mac, switch_mac) =
            (mac_of(lab, path.near, path.switch)?, mac_of(lab, path.switch, path.near)?);
        let mut frames = frames.to_vec();
        for frame in &mut frames {
            frame[..6].copy_from_slice(&switch_mac);
            frame[6..12].copy_from_slice(&near_mac);
        }
        kernel::write_heads(&player, &frames, FRAME_BYTES)?;
        let ifindex = counters[1].2;
        // A device map finds a device in the namespace of who writes it.
        let near = lab.netns(path.near)?;
        let play_to = player.map("play_to")?;
        let (line, zero) = (ifindex.to_ne_bytes(), 0u32.to_ne_bytes());
        near.run(|| {
            kernel::write(&play_to, &zero, &line)
                .map_err(|e| std::io::Error::other(format!("{e:#}")))
        })
        .context("the line that packets are played to")?;
        let bytes: usize = frames.iter().map(Vec::len).sum();
        let frame_bytes = bytes as f64 / frames.len().max(1) as f64;
        let ready = player.with_program("play", |program| Ok(LiveReady::new(program)?))?;
        Ok(Line {
            player,
            _ready: ready,
            counters,
            near,
            clocked: false,
            frames: frames.len() as u32,
            frame_bytes,
        })
    }

    /// Without a limit, makes the next packets when the last have come out, as far as they do. For
    /// switches whose packets wait for nobody: more than they can take would be dropped before
    /// them, routing daemons' packets (BFD) with it, and the switch's packets would be handled on
    /// whichever CPU last had one that does not drain.
    pub fn clocked(self) -> Line {
        Line { clocked: true, ..self }
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
        self.player.with_program("play", |program| {
            kernel::run_live(program, &[0u8; FRAME_BYTES], 0, frames)
        })
    }

    fn packets_counted(&self) -> Result<u64> {
        self.counters
            .iter()
            .map(|(object, ..)| kernel::sum_percpu(&object.map("counted")?, 0))
            .sum()
    }

    /// Makes packets for a while, the next when the last have come out; how many.
    fn generate_clocked(&self, duration: Duration) -> Result<u64> {
        let start = Instant::now();
        let (mut made, mut lost, before) = (0, 0, self.packets_counted()?);
        while start.elapsed() < duration {
            self.play(CLOCKED_BURST)?;
            made += u64::from(CLOCKED_BURST);
            let (mut seen, mut progress) = (0, Instant::now());
            loop {
                let through = self.packets_counted()? - before;
                // Others' packets may be counted, too, and what was taken for lost may come late.
                if through + lost >= made {
                    break;
                }
                if through > seen {
                    (seen, progress) = (through, Instant::now());
                } else if progress.elapsed() > LOST {
                    lost = made - through;
                }
            }
        }
        Ok(made)
    }

    /// Makes packets for a while, at a rate or without a limit; how many.
    fn generate(&self, rate: Option<f64>, duration: Duration) -> Result<u64> {
        if self.clocked && rate.is_none() {
            return self.generate_clocked(duration);
        }
        let start = Instant::now();
        let mut made = 0;
        while start.elapsed() < duration {
            let due = match rate {
                None => BURST,
                // What a busy machine kept from being sent is not made up for at once.
                Some(rate) => ((start.elapsed().as_secs_f64() * rate) as u64)
                    .saturating_sub(made)
                    .min((rate * 0.01) as u64 + 1) as u32,
            };
            if due > 0 {
                self.play(due)?;
                made += u64::from(due);
            }
            if rate.is_some() {
                std::thread::sleep(TICK);
            }
        }
        Ok(made)
    }

    /// Offers packets and counts them, on a thread of its own.
    fn measure(&self, rate: Option<f64>, window: Duration) -> Result<Delivered> {
        kernel::pin_to_cpu(0)?;
        self.generate(rate, if rate.is_some() { WARM_UP } else { WARM_UP_UNLIMITED })?;
        let (stretch, before) = (Stretch::begin()?, self.counted()?);
        let made = self.generate(rate, window)?;
        let (after, (wall, cpu)) = (self.counted()?, stretch.end()?);
        let delivered = (after.0 - before.0) as f64;
        Ok(Delivered {
            offered: made as f64 / wall,
            delivered: delivered / wall,
            delivered_bytes: (after.1 - before.1) as f64 / wall,
            per_cpu_s: rate.is_none().then(|| delivered / cpu),
            taken_percent: rate.is_none().then(|| taken_percent(wall, cpu)),
        })
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
        self.near
            .run(|| play().map_err(|e| std::io::Error::other(format!("{e:#}"))))
            .context("sending")
    }

    /// Offers packets at a rate (none: as many as can be made) and counts for a while what comes
    /// out.
    ///
    /// # Errors
    /// The kernel makes no frames.
    pub fn offer(&self, rate: Option<f64>, window: Duration) -> Result<Delivered> {
        let work =
            || self.measure(rate, window).map_err(|e| std::io::Error::other(format!("{e:#}")));
        std::thread::scope(|scope| match scope.spawn(|| self.near.run(work)).join() {
            Ok(result) => result.context("generator"),
            Err(_) => bail!("the generator panicked"),
        })
    }

    /// Sends each frame of the list once, so slowly that stores can follow: flows whose leases
    /// ended have them again.
    ///
    /// # Errors
    /// As [`Line::send`].
    pub fn refresh(&self) -> Result<()> {
        self.send(u64::from(self.frames), REFRESH_RATE)
    }

    /// The most that comes through, over several offered rates: some systems deliver less when they
    /// are offered too much.
    ///
    /// # Errors
    /// As [`Line::offer`].
    pub fn most(
        &self,
        rates: &[Option<f64>],
        window: Duration,
    ) -> Result<(Delivered, Vec<Delivered>)> {
        let mut all = Vec::new();
        for rate in rates {
            // What the rate before did to the flows' leases is not this one's matter.
            self.refresh()?;
            all.push(self.offer(*rate, window)?);
        }
        let best = all
            .iter()
            .copied()
            .max_by(|a, b| a.delivered.total_cmp(&b.delivered))
            .unwrap_or_default();
        Ok((best, all))
    }
}
