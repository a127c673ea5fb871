//! What clients ask for, and what was measured meanwhile.

use crate::kv::cpu::Cpu;
use crate::statistics::quantile;
use anyhow::Result;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Seed of the choice of keys and operations: the same for all systems.
pub const SEED: u64 = 1;

/// How a value is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reading {
    /// Linearizable. (ZooKeeper: `sync` and a read.)
    Newest,
    /// ZooKeeper's plain read, which may be stale; for others the same as `Newest`.
    Plain,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Of all requests.
    pub writes_share: f64,
    /// How the others read.
    pub reading: Reading,
    /// Of a value.
    pub value_bytes: usize,
    /// Keys that are chosen from.
    pub keys: usize,
    /// Requests under way at a time.
    pub outstanding: usize,
    /// Requests a second, whatever comes of them (open loop); None: a new one when one is over.
    pub rate: Option<f64>,
    /// How long new requests begin.
    pub length: Duration,
}

impl Workload {
    /// Reads or writes alone, of 64-byte values, one at a time.
    pub fn one_at_a_time(writes: bool, keys: usize, length: Duration) -> Workload {
        Workload {
            writes_share: if writes { 1.0 } else { 0.0 },
            reading: Reading::Newest,
            value_bytes: 64,
            keys,
            outstanding: 1,
            rate: None,
            length,
        }
    }

    /// The next requests: writes or not, and of which key.
    pub fn draw(&self) -> Draw {
        Draw::new(self.writes_share, self.keys)
    }
}

/// Draws requests.
pub struct Draw {
    rng: SmallRng,
    writes_share: f64,
    keys: usize,
}

impl Draw {
    /// The same for all systems.
    pub fn new(writes_share: f64, keys: usize) -> Draw {
        Draw { rng: SmallRng::seed_from_u64(SEED), writes_share, keys }
    }

    /// Whether the next request writes, and the key's number.
    pub fn request(&mut self) -> (bool, usize) {
        (self.rng.random_bool(self.writes_share), self.rng.random_range(0..self.keys))
    }
}

/// A value of some length: first eight bytes of a number.
pub fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![b'v'; bytes.max(8)];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// The number in a value; 0: there is none.
pub fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.first_chunk()).map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// When requests of an open loop are due.
pub struct Pace {
    began: Instant,
    rate: f64,
    begun: u64,
}

impl Pace {
    /// From now on.
    pub fn new(rate: f64) -> Pace {
        Pace::since(Instant::now(), rate)
    }

    /// From a moment on.
    pub fn since(began: Instant, rate: f64) -> Pace {
        Pace { began, rate, begun: 0 }
    }

    /// When the next request should have begun, if that is over by `now`.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        let at = self.next();
        (at <= now).then(|| {
            self.begun += 1;
            at
        })
    }

    /// When the next request is due.
    pub fn next(&self) -> Instant {
        self.began + Duration::from_secs_f64(self.begun as f64 / self.rate)
    }
}

/// What a load came to.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Times of reads that were answered, in microseconds.
    pub reads_us: Vec<f32>,
    /// Of writes.
    pub writes_us: Vec<f32>,
    /// Requests that were not carried out.
    pub failed: u64,
    /// Requests that did not begin in their time, as too many were under way (open loop).
    pub late: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// CPU time meanwhile.
    pub cpu: Cpu,
}

/// Median and 99th percentile, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Spread {
    /// Of some times.
    pub fn of(us: &[f32]) -> Spread {
        let mut sorted: Vec<f64> = us.iter().map(|us| f64::from(*us)).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let rounded = |share| (quantile(&sorted, share) * 10.0).round() / 10.0;
        Spread { p50: rounded(0.5), p99: rounded(0.99) }
    }
}

impl Measured {
    /// Runs a load, and notes its time and that of CPUs; `lab`: the lab's processes.
    ///
    /// # Errors
    /// CPU times cannot be read, or the load fails.
    pub fn timed(lab: &[i32], load: impl FnOnce() -> Result<Measured>) -> Result<Measured> {
        let (before, began) = (Cpu::now(lab)?, Instant::now());
        let measured = load()?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(Measured { seconds, cpu: Cpu::now(lab)?.since(before), ..measured })
    }

    /// Notes an answer.
    pub fn answered(&mut self, write: bool, took: Duration) {
        let us = took.as_nanos() as f32 / 1000.0;
        if write { self.writes_us.push(us) } else { self.reads_us.push(us) }
    }

    /// Requests that were answered.
    pub fn answers(&self) -> f64 {
        (self.reads_us.len() + self.writes_us.len()) as f64
    }

    /// Of each second on the wall.
    pub fn per_second(&self) -> f64 {
        self.answers() / self.seconds.max(1e-9)
    }

    /// Of each busy CPU second of the whole machine.
    pub fn per_busy_second(&self) -> f64 {
        self.answers() / self.cpu.busy.max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_carries_its_number() {
        assert_eq!(value(7, 64).len(), 64);
        assert_eq!(number(Some(&value(7, 64))), 7);
        assert_eq!((number(None), number(Some(b"short"))), (0, 0));
    }

    #[test]
    fn a_pace_is_kept_by_its_clock() {
        let mut pace = Pace::new(1000.0);
        let end = Instant::now() + Duration::from_millis(100);
        let begun = std::iter::from_fn(|| pace.due(end)).count();
        assert!((100..=102).contains(&begun), "{begun}");
        assert!(pace.next() > end);
    }
}
