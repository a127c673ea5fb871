//! How a failure and a recovery look to clients that ask at a fixed rate.

use crate::cluster::Cluster;
use netchain_client::{Answer, Key, Outcome, Pipeline, Request, Ticket};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Keys that are asked for, over all groups.
const KEYS: usize = 2_000;
/// One of so many requests writes.
const WRITES: u64 = 100;
/// Requests under way while the most that is answered is measured.
const OUTSTANDING: usize = 64;
/// Requests under way at the most, at a fixed rate.
const MOST_OUTSTANDING: usize = 4_000;
/// An answer within this time counts as a first try: a client that hears nothing asks again
/// after as long. (One that hears that its group waits asks again sooner.)
const SOON: Duration = Duration::from_millis(10);
/// Answers are looked for as often.
const LOOK: Duration = Duration::from_micros(200);
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
            pipeline: cluster.pipeline(SOON),
            keys: (0..KEYS).map(name).collect(),
            asked: 0,
            began: Instant::now(),
            open: BTreeMap::new(),
            bins: BTreeMap::new(),
            bad: 0,
        };
        for at in 0..KEYS {
            asker.submit(Request::put(&asker.keys[at], &[7; 64]), Instant::now());
            asker.take(OUTSTANDING);
        }
        asker.take(0);
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

    /// Waits until no more than so many requests are under way.
    fn take(&mut self, most: usize) {
        while self.open.len() > most {
            let next = self.pipeline.next(Some(Duration::from_millis(5))).expect("a socket");
            next.into_iter().for_each(|(ticket, answer)| self.over(ticket, answer));
            self.take_all();
        }
    }

    /// Takes the answers that are there.
    fn take_all(&mut self) {
        while let Some((ticket, answer)) = self.pipeline.answer() {
            self.over(ticket, answer);
        }
    }

    fn over(&mut self, ticket: Ticket, answer: Answer) {
        let Some(due) = self.open.remove(&ticket.number()) else { return };
        let bin = due.saturating_duration_since(self.began).as_millis() as u64 / BIN_MS;
        let (asked, soon) = self.bins.entry(bin).or_default();
        *asked += 1;
        *soon += u64::from(due.elapsed() <= SOON);
        self.bad += u64::from(!matches!(answer, Ok(Outcome::Done(_))));
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
            self.take(OUTSTANDING - 1);
        }
        let rate = (self.asked - before) as f64 / began.elapsed().as_secs_f64();
        self.take(0);
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
                let due = |begun: u64| Duration::from_secs_f64(begun as f64 / rate);
                while due(begun) <= self.began.elapsed() && self.open.len() < MOST_OUTSTANDING {
                    self.next(self.began + due(begun));
                    begun += 1;
                }
                self.pipeline.turn().expect("a socket");
                self.take_all();
                std::thread::sleep(due(begun).saturating_sub(self.began.elapsed()).min(LOOK));
            }
            self.take(0);
            self.bins.values().map(|(asked, soon)| *soon as f64 / *asked as f64).collect()
        });
        let mut sorted = shares.clone();
        sorted.sort_by(f64::total_cmp);
        let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        let below: Vec<String> = shares
            .iter()
            .enumerate()
            .filter(|(_, share)| **share < 0.98)
            .map(|(bin, share)| format!("{share:.3} at {:.1} s", bin as f64 * BIN_MS as f64 / 1e3))
            .collect();
        format!(
            "{} bins, lowest {:.4}, 5 % {:.4}, mean {mean:.4}, below 0.98: {below:?}, {} not done",
            sorted.len(),
            sorted.first().copied().unwrap_or(0.0),
            sorted[sorted.len() / 20],
            self.bad
        )
    }
}
