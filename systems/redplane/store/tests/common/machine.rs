//! What a simulated machine has: a clock of its own, and a disk that loses what was not synchronised. (The controller's simulation has it too, by its path.)

use state_store::core::SplitMix64;
use std::collections::VecDeque;

/// A machine's clock: starts anywhere, runs up to 450 ppm fast or slow (any two differ by less than the store's 1000 ppm).
#[derive(Clone, Copy)]
pub struct Clock {
    offset: u64,
    ppm: i64,
}

impl Clock {
    /// One that shows `least_ns` at least.
    pub fn draw(rng: &mut SplitMix64, least_ns: u64) -> Clock {
        Clock { offset: least_ns + rng.draw() % 100_000_000_000, ppm: (rng.draw() % 901) as i64 - 450 }
    }

    pub fn local(&self, time: u64) -> u64 {
        self.offset + (time as i128 + time as i128 * self.ppm as i128 / 1_000_000) as u64
    }

    /// The first true time at which the clock shows `local` or more.
    pub fn time(&self, local: u64) -> u64 {
        let mut time = (local.saturating_sub(self.offset) as i128 * 1_000_000 / (1_000_000 + self.ppm as i128)) as u64;
        while self.local(time) < local {
            time += 1;
        }
        time
    }
}

/// A disk: what is on it, and what was written and may get lost.
#[derive(Default)]
pub struct Disk {
    pub durable: Vec<u8>,
    /// By ticket, in order.
    pub written: VecDeque<(u64, Vec<u8>)>,
    /// Power cuts so far.
    pub lives: u64,
}

impl Disk {
    /// Everything up to this ticket is on the disk.
    pub fn sync(&mut self, ticket: u64) {
        while self.written.front().is_some_and(|(written, _)| *written <= ticket) {
            self.durable.extend(self.written.pop_front().unwrap().1);
        }
    }

    /// Of what was not durable the first `survive` writes are on the disk nevertheless.
    pub fn lose_power(&mut self, survive: usize) {
        self.lives += 1;
        let written = std::mem::take(&mut self.written);
        self.durable.extend(written.into_iter().take(survive).flat_map(|(_, bytes)| bytes));
    }
}
