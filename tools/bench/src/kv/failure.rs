//! A machine dies under a steady load, and comes back: what is recorded, and what follows from it.

use crate::kv::workload::{Draw, Pace};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A request counts as answered in time within this, at its first try.
pub const IN_TIME: Duration = Duration::from_millis(10);
/// Width of a bin.
pub const BIN: Duration = Duration::from_millis(100);
/// What a machine that died had sent may arrive this much later.
const ON_THE_WAY: Duration = Duration::from_millis(3);
/// So soon after the kill each holder writes, one after the other for [`RENEWING`]: a lock that
/// nobody writes cannot be seen to be there again. (No failover is over before.)
const RENEW_AFTER: Duration = Duration::from_millis(30);
const RENEWING: Duration = Duration::from_millis(100);

/// What happens when, from the begin.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Requests a second.
    pub rate: f64,
    /// Of these are writes.
    pub writes_share: f64,
    /// Locks that are written and read.
    pub locks: usize,
    /// Place in a chain of the switch that dies (0: head, 1: middle, 2: tail); of servers the
    /// leader dies.
    pub place: usize,
    /// A machine is killed.
    pub kill: Duration,
    /// It is started again.
    pub restore: Duration,
    /// The load ends.
    pub end: Duration,
}

impl Plan {
    /// The requests, from `began` on.
    pub fn requests(&self, began: Instant) -> Requests {
        Requests {
            draw: Draw::new(self.writes_share, self.locks),
            pace: Pace::since(began, self.rate),
            renews: began + self.kill + RENEW_AFTER,
            locks: self.locks,
            renewed: 0,
        }
    }

    /// Bins of the run.
    pub fn bins(&self) -> usize {
        self.end.as_millis().div_ceil(BIN.as_millis()) as usize
    }
}

/// The requests of a plan, in the order in which they are due: at random, and soon after the kill a
/// write of each lock.
pub struct Requests {
    draw: Draw,
    pace: Pace,
    renews: Instant,
    locks: usize,
    renewed: usize,
}

impl Requests {
    /// When the next lock is written whatever is drawn.
    fn renewal(&self) -> Option<Instant> {
        let share = self.renewed as f64 / self.locks as f64;
        (self.renewed < self.locks).then(|| self.renews + RENEWING.mul_f64(share))
    }

    /// When the next request is due.
    pub fn next(&self) -> Instant {
        self.renewal().map_or(self.pace.next(), |at| at.min(self.pace.next()))
    }

    /// The next request, if it is due by `now`: when, whether it writes, and its lock.
    pub fn due(&mut self, now: Instant) -> Option<(Instant, bool, usize)> {
        if let Some(at) = self.renewal().filter(|at| *at <= now && *at <= self.pace.next()) {
            self.renewed += 1;
            return Some((at, true, self.renewed - 1));
        }
        let at = self.pace.due(now)?;
        let (write, lock) = self.draw.request();
        Some((at, write, lock))
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// When it was due, from the begin.
    pub at: Duration,
    /// When its answer came; None: none came, or it could not begin.
    pub answered: Option<Duration>,
    /// Whether that was at its first try, in time.
    pub in_time: bool,
    /// Whether it wrote.
    pub write: bool,
    /// The lock's number.
    pub lock: usize,
}

impl Record {
    /// An answer that came at a first try.
    pub fn first_try(at: Duration, answered: Duration, write: bool, lock: usize) -> Record {
        let in_time = answered.saturating_sub(at) <= IN_TIME;
        Record { at, answered: Some(answered), in_time, write, lock }
    }

    /// An answer that took several tries.
    pub fn later_try(at: Duration, answered: Duration, write: bool, lock: usize) -> Record {
        Record { at, answered: Some(answered), in_time: false, write, lock }
    }

    /// No answer.
    pub fn none(at: Duration, write: bool, lock: usize) -> Record {
        Record { at, answered: None, in_time: false, write, lock }
    }
}

/// What goes on, for who watches.
pub struct Live {
    bins: Vec<[AtomicU32; 2]>,
}

impl Live {
    /// Of a run.
    pub fn new(plan: &Plan) -> Live {
        Live { bins: (0..plan.bins()).map(|_| Default::default()).collect() }
    }

    /// A request is over.
    pub fn note(&self, record: &Record) {
        let bin = (record.at.as_millis() / BIN.as_millis()) as usize;
        if let Some([all, in_time]) = self.bins.get(bin) {
            all.fetch_add(1, Ordering::Relaxed);
            in_time.fetch_add(u32::from(record.in_time), Ordering::Relaxed);
        }
    }

    /// Shares that were answered in time, up to a moment.
    pub fn shares(&self, until: Duration) -> Vec<f64> {
        let count = (until.as_millis() / BIN.as_millis()) as usize;
        let share = |[all, in_time]: &[AtomicU32; 2]| {
            let all = all.load(Ordering::Relaxed);
            if all == 0 { 0.0 } else { f64::from(in_time.load(Ordering::Relaxed)) / f64::from(all) }
        };
        self.bins.iter().take(count).map(share).collect()
    }
}

/// What was recorded.
#[derive(Debug)]
pub struct Recorded {
    /// The begin.
    pub began: Instant,
    /// When the killing began, and when the machine's last link was down.
    pub killed: (Instant, Instant),
    /// When it was started again, and ready.
    pub restored: Option<(Instant, Instant)>,
    /// Who died.
    pub victim: String,
    /// By lock: whether the dead one had that place in its chain, or was the leader.
    pub led: Vec<bool>,
    /// All requests.
    pub records: Vec<Record>,
    /// Acknowledged writes that are there no more.
    pub lost: u64,
}

/// What follows.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Share of requests answered in time, by bin.
    pub shares: Vec<f64>,
    /// From the kill to the next acknowledged write of each lock whose head (or other place) died:
    /// the longest, in ms. (Each holder writes within 130 ms.) None: a lock was not written again.
    pub failover_ms: Option<f64>,
    /// The shortest.
    pub first_ms: Option<f64>,
    /// 1 less the lowest share after that, up to the end.
    pub dip: f64,
    /// 1 less the lowest share of all bins.
    pub deepest: f64,
    /// Acknowledged writes that are there no more.
    pub lost: u64,
}

impl Verdict {
    /// The shares in percent over time in seconds, as steps to draw.
    pub fn percent(&self) -> Vec<(f64, f64)> {
        let percent: Vec<f64> = self.shares.iter().map(|share| share * 100.0).collect();
        plot::steps(&percent, BIN.as_secs_f64())
    }
}

impl Recorded {
    /// A moment, from the begin.
    pub fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.began)
    }

    fn shares(&self, plan: &Plan) -> Vec<f64> {
        let mut bins = vec![(0u32, 0u32); plan.bins()];
        for record in &self.records {
            let bin = (record.at.as_millis() / BIN.as_millis()) as usize;
            if let Some((all, in_time)) = bins.get_mut(bin) {
                (*all, *in_time) = (*all + 1, *in_time + u32::from(record.in_time));
            }
        }
        bins.iter().map(|(all, good)| f64::from(*good) / f64::from(*all).max(1.0)).collect()
    }

    /// For each lock whose head died: its first write that was acknowledged afterwards.
    fn first_writes(&self) -> Vec<Option<Duration>> {
        let cut = self.at(self.killed.1) + ON_THE_WAY;
        let mut first: Vec<Option<Duration>> = vec![None; self.led.len()];
        for record in self.records.iter().filter(|it| it.write && self.led[it.lock]) {
            if let Some(at) = record.answered.filter(|at| *at > cut) {
                let known = &mut first[record.lock];
                *known = Some(known.map_or(at, |known| known.min(at)));
            }
        }
        let led = self.led.iter().zip(first);
        led.filter(|(led, _)| **led).map(|(_, first)| first).collect()
    }

    /// What follows.
    pub fn verdict(&self, plan: &Plan) -> Verdict {
        let shares = self.shares(plan);
        let first = self.first_writes();
        let killed = self.at(self.killed.0);
        let ms = |at: Duration| at.saturating_sub(killed).as_secs_f64() * 1e3;
        let longest = first.iter().copied().collect::<Option<Vec<_>>>();
        let longest = longest.and_then(|all| all.into_iter().max());
        // The bin after the one in which it was over.
        let over = longest.map(|at| (at.as_millis() / BIN.as_millis()) as usize + 1);
        let lowest = |from: usize| shares.iter().skip(from).copied().fold(1.0, f64::min);
        let warm = 5.min(shares.len());
        Verdict {
            failover_ms: longest.map(ms),
            first_ms: first.iter().flatten().min().copied().map(ms),
            dip: 1.0 - over.map_or(0.0, lowest),
            deepest: 1.0 - lowest(warm),
            lost: self.lost,
            shares,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            rate: 100.0,
            writes_share: 1.0,
            locks: 2,
            place: 0,
            kill: Duration::from_millis(500),
            restore: Duration::from_millis(1500),
            end: Duration::from_millis(2000),
        }
    }

    fn recorded(records: Vec<Record>) -> Recorded {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        Recorded {
            began,
            killed: (at(500), at(510)),
            restored: None,
            victim: "s1".into(),
            led: vec![true, false],
            records,
            lost: 0,
        }
    }

    /// With one draw in a second, most locks would be seen again when somebody happens to write.
    #[test]
    fn each_lock_is_written_soon_after_the_kill() {
        let plan = Plan { rate: 1.0, locks: 50, ..plan() };
        let began = Instant::now();
        let mut requests = plan.requests(began);
        let all: Vec<_> = std::iter::from_fn(|| requests.due(began + plan.end)).collect();
        assert!(all.is_sorted_by_key(|(at, ..)| *at), "{all:?}");
        let soon = plan.kill..plan.kill + Duration::from_millis(200);
        let mut renewed: Vec<usize> = all
            .iter()
            .filter(|(at, write, _)| *write && soon.contains(&at.saturating_duration_since(began)))
            .map(|(.., lock)| *lock)
            .collect();
        renewed.sort_unstable();
        assert_eq!(renewed, (0..50).collect::<Vec<_>>());
        assert_eq!(all.len(), 50 + 3, "and one a second, from 0 s on");
    }

    #[test]
    fn the_failover_ends_with_the_last_lock_that_is_written_again() {
        let ms = Duration::from_millis;
        let write = |at, answered, lock| Record::later_try(ms(at), ms(answered), true, lock);
        let all = vec![
            write(490, 512, 0), // on its way when the head died
            write(505, 700, 0),
            write(520, 705, 0),
            write(520, 530, 1), // of another head
        ];
        let verdict = recorded(all).verdict(&plan());
        assert_eq!((verdict.failover_ms, verdict.first_ms), (Some(200.0), Some(200.0)));
    }

    #[test]
    fn the_dip_is_what_the_recovery_costs() {
        let ms = Duration::from_millis;
        let mut all: Vec<Record> =
            (0..200).map(|at| Record::first_try(ms(at * 10), ms(at * 10 + 1), true, 0)).collect();
        // The failover; and one of ten in a later bin.
        for it in all.iter_mut().filter(|it| (500..720).contains(&it.at.as_millis())) {
            (it.in_time, it.answered) = (false, Some(ms(720)));
        }
        all[120].in_time = false;
        let verdict = recorded(all).verdict(&plan());
        assert_eq!(verdict.failover_ms, Some(220.0));
        assert!((verdict.dip - 0.1).abs() < 1e-9, "{verdict:?}");
        assert_eq!(verdict.deepest, 1.0);
    }

    #[test]
    fn a_lock_that_is_never_written_again_has_no_failover() {
        let verdict = recorded(vec![]).verdict(&plan());
        assert_eq!((verdict.failover_ms, verdict.dip), (None, 1.0));
    }
}
