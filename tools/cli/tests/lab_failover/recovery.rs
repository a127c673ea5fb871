//! How a failure and a recovery look to clients that ask at a fixed rate.

use crate::cluster::Cluster;
use netchain_client::{Key, Outcome, Pipeline, Request};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Keys that are asked for, over all groups.
const KEYS: usize = 2_000;
/// One of so many requests writes.
const WRITES: u64 = 100;
/// Requests under way while the most that is answered is measured.
const OUTSTANDING: usize = 64;
/// An answer within so long counts as one at the first try: a client asks again after 2, 4 and 8 ms
/// if it hears nothing.
const SOON: Duration = Duration::from_millis(10);
const BIN_MS: u64 = 100;

/// Asks, and notes how soon answers came.
pub struct Asker {
    pipeline: Pipeline,
    keys: Vec<Key>,
    asked: u64,
    began: Instant,
    /// Requests under way: when each was due.
    open: BTreeMap<u64, Instant>,
    /// By the time at which requests were due, in `BIN_MS`: how many, and how many were answered
    /// soon.
    bins: BTreeMap<u64, (u64, u64)>,
    bad: u64,
}

impl Asker {
    pub fn new(cluster: &Cluster) -> Asker {
        let name = |at: usize| Key::from_name(&format!("fig10-{at}")).expect("a short name");
        let mut asker = Asker {
            pipeline: cluster.pipeline(),
            keys: (0..KEYS).map(name).collect(),
            asked: 0,
            began: Instant::now(),
            open: BTreeMap::new(),
            bins: BTreeMap::new(),
            bad: 0,
        };
        for at in 0..KEYS {
            asker.submit(Request::put(&asker.keys[at], &[7; 64]), Instant::now());
            asker.take(Duration::ZERO, OUTSTANDING);
        }
        asker.take(Duration::from_secs(1), 0);
        asker
    }

    fn submit(&mut self, request: Request, due: Instant) {
        let ticket = self.pipeline.submit(request).expect("a request begins");
        self.open.insert(ticket.number(), due);
    }

    fn next(&mut self, due: Instant) {
        self.asked += 1;
        // (Steps of a prime go over all keys.)
        let key = &self.keys[(self.asked * 769) as usize % KEYS];
        let request = match self.asked.is_multiple_of(WRITES) {
            true => Request::put(key, &[8; 64]),
            false => Request::get(key),
        };
        self.submit(request, due);
    }

    /// Takes answers for so long, or until no more than so many requests are under way.
    fn take(&mut self, time: Duration, most: usize) {
        let until = Instant::now() + time;
        while self.open.len() > most || Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let wait = if self.open.len() > most { Duration::from_millis(5) } else { left };
            let Some((ticket, answer)) = self.pipeline.next(Some(wait)).expect("a socket") else {
                if self.open.is_empty() {
                    break;
                } else {
                    continue;
                };
            };
            let Some(due) = self.open.remove(&ticket.number()) else { continue };
            let bin = due.saturating_duration_since(self.began).as_millis() as u64 / BIN_MS;
            let (asked, soon) = self.bins.entry(bin).or_default();
            *asked += 1;
            *soon += u64::from(due.elapsed() <= SOON);
            self.bad += u64::from(!matches!(answer, Ok(Outcome::Done(_))));
        }
    }

    fn forget(&mut self) {
        (self.began, self.bad) = (Instant::now(), 0);
        self.bins.clear();
    }

    /// Requests a second with `OUTSTANDING` under way.
    pub fn most(&mut self, time: Duration) -> f64 {
        let (began, before) = (Instant::now(), self.asked);
        while began.elapsed() < time {
            self.next(Instant::now());
            self.take(Duration::ZERO, OUTSTANDING - 1);
        }
        let rate = (self.asked - before) as f64 / began.elapsed().as_secs_f64();
        self.take(Duration::ZERO, 0);
        rate
    }

    /// Asks at this rate while the work is under way; the lowest and the mean share of answers that
    /// came soon, over the bins.
    pub fn while_at(&mut self, rate: f64, work: impl FnOnce() + Send) -> String {
        self.forget();
        let shares: Vec<f64> = std::thread::scope(|scope| {
            let work = scope.spawn(work);
            let mut begun = 0u64;
            while !work.is_finished() {
                let due = self.began + Duration::from_secs_f64(begun as f64 / rate);
                let wait = due.saturating_duration_since(Instant::now());
                if wait.is_zero() && self.open.len() < 4_000 {
                    self.next(due);
                    begun += 1;
                } else {
                    self.take(wait.max(Duration::from_micros(200)), usize::MAX);
                }
            }
            self.take(Duration::ZERO, 0);
            self.bins.values().map(|(asked, soon)| *soon as f64 / *asked as f64).collect()
        });
        let mut sorted = shares.clone();
        sorted.sort_by(f64::total_cmp);
        let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        let below = sorted.iter().filter(|share| **share < 0.98).count();
        format!(
            "{} bins, lowest {:.4}, 5 % {:.4}, mean {mean:.4}, {below} below 0.98, {} not done",
            sorted.len(),
            sorted.first().copied().unwrap_or(0.0),
            sorted[sorted.len() / 20],
            self.bad
        )
    }
}
