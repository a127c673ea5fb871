//! Throughput while a run lasts, from the interface counters, every 10 ms.
//!
//! Goodput is the TCP payload that reaches the receiving host: bytes of its interface less the
//! headers of each frame. Which switch carries it is read from the core router's interfaces.

use crate::error::{Error, Result};
use crate::instance::Lab;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between two readings.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// Ethernet, IPv4 and TCP with timestamps: what a full frame carries besides payload, in bytes.
const HEADER_BYTES: u64 = 14 + 20 + 32;

/// Counters at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the run began.
    pub t: f64,
    /// Payload bytes that have reached the receiver.
    pub payload: u64,
    /// Payload bytes that have come through each switch.
    pub via: Vec<u64>,
    /// Frames that have been sent to each switch, from both sides.
    pub offered: Vec<u64>,
}

/// Reads counters in a thread of its own until it is stopped.
pub struct Sampler {
    samples: Arc<Mutex<Vec<Sample>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// `/proc/net/dev` of a namespace: it stays that namespace's while the file is open.
fn open_counters(lab: &Lab, node: &str) -> Result<File> {
    lab.netns(node)?
        .run(|| File::open("/proc/thread-self/net/dev"))
        .map_err(Error::system(format!("opening the interface counters of {node}")))
}

/// Counters of one interface.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Counters {
    /// Received bytes less the headers of each frame.
    received_payload: u64,
    /// Frames sent.
    sent_frames: u64,
}

impl Counters {
    /// Counters of an interface, from the text of `/proc/net/dev`.
    fn parse(text: &str, interface: &str) -> Option<Self> {
        let line =
            text.lines().find_map(|l| l.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
        let columns: Vec<u64> = line.split_whitespace().map_while(|c| c.parse().ok()).collect();
        // Receive: bytes packets errs drop fifo frame compressed multicast; transmit: bytes packets
        // ...
        let (bytes, frames) = (*columns.first()?, *columns.get(1)?);
        Some(Self {
            received_payload: bytes.saturating_sub(frames * HEADER_BYTES),
            sent_frames: *columns.get(9)?,
        })
    }
}

/// What is read: where the traffic ends, and what goes into and comes out of the switches.
pub struct Points<'a> {
    /// The host that receives.
    pub receiver: &'a str,
    /// The router between it and the switches.
    pub router: &'a str,
    /// The router at the other side of the switches.
    pub far_router: &'a str,
    /// The switches.
    pub switches: &'a [String],
}

/// The open counter files.
struct Reader {
    receiver: File,
    routers: [File; 2],
    /// The receiver's interface: named after its router.
    interface: String,
    switches: Vec<String>,
    buffer: Vec<u8>,
}

impl Reader {
    fn text(&mut self, file: usize) -> String {
        let file = match file {
            0 => &self.receiver,
            n => &self.routers[n - 1],
        };
        let n = file.read_at(&mut self.buffer, 0).unwrap_or(0);
        String::from_utf8_lossy(&self.buffer[..n]).into_owned()
    }

    fn sample(&mut self, zero: Instant) -> Sample {
        let at_receiver = self.text(0);
        let t = zero.elapsed().as_secs_f64();
        let (near, far) = (self.text(1), self.text(2));
        let of = |text: &str, switch: &str| Counters::parse(text, switch).unwrap_or_default();
        Sample {
            t,
            payload: of(&at_receiver, &self.interface).received_payload,
            via: self.switches.iter().map(|s| of(&near, s).received_payload).collect(),
            offered: self
                .switches
                .iter()
                .map(|s| of(&near, s).sent_frames + of(&far, s).sent_frames)
                .collect(),
        }
    }
}

/// `now` counted from `base` on.
fn since(now: Sample, base: &Sample) -> Sample {
    let less = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a.saturating_sub(*b)).collect();
    Sample {
        t: now.t,
        payload: now.payload.saturating_sub(base.payload),
        via: less(&now.via, &base.via),
        offered: less(&now.offered, &base.offered),
    }
}

impl Sampler {
    /// Starts reading; times count from `zero`.
    ///
    /// # Errors
    /// A namespace is gone.
    pub fn start(lab: &Lab, points: &Points, zero: Instant) -> Result<Self> {
        let mut reader = Reader {
            receiver: open_counters(lab, points.receiver)?,
            routers: [open_counters(lab, points.router)?, open_counters(lab, points.far_router)?],
            interface: points.router.to_string(),
            switches: points.switches.to_vec(),
            buffer: vec![0; 16 * 1024],
        };
        let samples = Arc::new(Mutex::new(Vec::with_capacity(4096)));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&samples), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let base = reader.sample(zero);
            let mut next = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                let sample = since(reader.sample(zero), &base);
                lock(&shared).push(sample);
                next += INTERVAL;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        Ok(Self { samples, stop, thread: Some(thread) })
    }

    /// A copy of the samples so far.
    pub fn samples(&self) -> Vec<Sample> {
        lock(&self.samples).clone()
    }

    /// Ends the reading and returns all samples.
    pub fn finish(mut self) -> Vec<Sample> {
        self.join();
        std::mem::take(&mut *lock(&self.samples))
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot panic: it only reads and pushes.
            let _ = thread.join();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.join();
    }
}

fn lock(samples: &Mutex<Vec<Sample>>) -> MutexGuard<'_, Vec<Sample>> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Counters;

    #[test]
    fn takes_headers_off_and_does_not_mix_up_names() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes    packets errs\n    lo:  10 1 0\n   \
                    s10: 9999 9 0 0 0 0 0 0 5 5\n    s1: 1514 1 0 0 0 0 0 0 700 7 0\n";
        let counters = Counters::parse(text, "s1").expect("s1 is there");
        assert_eq!(counters, Counters { received_payload: 1448, sent_frames: 7 });
        assert_eq!(Counters::parse(text, "s2"), None);
    }
}
