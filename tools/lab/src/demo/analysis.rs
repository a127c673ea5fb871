//! What a run's samples say: goodput per 100 ms, and how long a disruption lasted.
//!
//! Definitions (all in seconds; G is the median goodput of the 100 ms bins between the end of the
//! warm-up and the kill):
//! - A moment t is *good* if the mean goodput over [t, t + 100 ms] is at least 0.8 G, where no 20
//!   ms count for more than G: what a sender makes up for after a gap does not fill the gap.
//! - A disruption that begins at t0 *ends* at the first t ≥ t0 such that every moment in [t, t +
//!   500 ms] is good: a burst between two gaps does not count as the end.
//! - `recovery_fail_s`: t0 is the SIGKILL.
//! - `recovery_return_s`: the longest disruption between `restore` and the end of the run. One
//!   begins where the first 20 ms window with less than 0.8 G lies in a moment that is not good. 0
//!   if there is none.
//! - The routes have *moved back* when the returned switch is sent a tenth of the frames that
//!   switches were sent before the failure, in both directions together. The figure's mark is
//!   there, or where the disruption begins if there is one.

use crate::demo::sampler::Sample;

/// Width of a bin of the report, in seconds.
pub const BIN_S: f64 = 0.1;
/// Share of the goodput before the failure that counts as recovered.
pub const RECOVERED: f64 = 0.8;
/// How long goodput must stay good, in seconds.
const SUSTAINED_S: f64 = 0.5;
/// Share of the frames sent to switches from which on a switch counts as used.
const USED: f64 = 0.1;
/// Window in which that share is measured, in seconds.
const USED_WINDOW_S: f64 = 0.02;
/// Step at which moments are looked at, in seconds.
const STEP_S: f64 = 0.01;

/// Samples of a run, as functions of time.
pub struct Series<'a> {
    samples: &'a [Sample],
}

impl<'a> Series<'a> {
    /// Wraps samples in order of time.
    pub fn new(samples: &'a [Sample]) -> Self {
        Self { samples }
    }

    /// End of the series, in seconds.
    pub fn end(&self) -> f64 {
        self.samples.last().map_or(0.0, |s| s.t)
    }

    /// A counter at time `t`, between two readings by straight line.
    fn at(&self, t: f64, counter: impl Fn(&Sample) -> u64) -> f64 {
        let after = self.samples.partition_point(|s| s.t < t);
        let value = |i: usize| counter(&self.samples[i]) as f64;
        if self.samples.is_empty() {
            return 0.0;
        }
        if after == 0 {
            return value(0);
        }
        if after == self.samples.len() {
            return value(after - 1);
        }
        let (a, b) = (&self.samples[after - 1], &self.samples[after]);
        let share = if b.t > a.t { (t - a.t) / (b.t - a.t) } else { 0.0 };
        value(after - 1) + share * (value(after) - value(after - 1))
    }

    /// Mean goodput over [from, to], in Mbit/s.
    pub fn goodput(&self, from: f64, to: f64) -> f64 {
        self.rate(from, to, |s| s.payload)
    }

    /// Mean rate through one switch over [from, to], in Mbit/s.
    pub fn via(&self, switch: usize, from: f64, to: f64) -> f64 {
        self.rate(from, to, |s| s.via.get(switch).copied().unwrap_or(0))
    }

    fn rate(&self, from: f64, to: f64, counter: impl Fn(&Sample) -> u64) -> f64 {
        if to <= from {
            return 0.0;
        }
        // A short frame without payload can make the difference negative by a few bytes.
        (self.at(to, &counter) - self.at(from, &counter)).max(0.0) * 8.0 / 1e6 / (to - from)
    }

    /// Goodput of each 100 ms bin from 0 to `end`, in Mbit/s.
    pub fn bins(&self, end: f64) -> Vec<f64> {
        self.bins_of(BIN_S, end)
    }

    /// The same for one switch.
    pub fn bins_via(&self, switch: usize, end: f64) -> Vec<f64> {
        self.bins_via_of(switch, BIN_S, end)
    }

    /// Goodput of each bin of a width, in seconds, from 0 to `end`, in Mbit/s.
    pub fn bins_of(&self, width: f64, end: f64) -> Vec<f64> {
        let count = (end / width + 1e-9) as usize;
        (0..count).map(|i| self.goodput(i as f64 * width, (i + 1) as f64 * width)).collect()
    }

    /// The same for one switch.
    pub fn bins_via_of(&self, switch: usize, width: f64, end: f64) -> Vec<f64> {
        let count = (end / width + 1e-9) as usize;
        (0..count).map(|i| self.via(switch, i as f64 * width, (i + 1) as f64 * width)).collect()
    }

    /// Median goodput of the 100 ms bins inside [from, to], in Mbit/s.
    pub fn median(&self, from: f64, to: f64) -> f64 {
        let first = (from / BIN_S).ceil() as usize;
        let last = (to / BIN_S + 1e-9) as usize;
        let mut rates: Vec<f64> =
            (first..last).map(|i| self.goodput(i as f64 * BIN_S, (i + 1) as f64 * BIN_S)).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    }

    fn good(&self, t: f64, normal: f64) -> bool {
        let steps = (BIN_S / USED_WINDOW_S).round() as usize;
        let from = |i: usize| t + i as f64 * USED_WINDOW_S;
        let counted = |i: usize| self.goodput(from(i), from(i + 1)).min(normal);
        (0..steps).map(counted).sum::<f64>() >= RECOVERED * normal * steps as f64
    }

    /// Length of the disruption that begins at `start`; `None` if it does not end before `limit`.
    pub fn recovery(&self, start: f64, limit: f64, normal: f64) -> Option<f64> {
        let limit = limit.min(self.end()) - BIN_S;
        let mut since: Option<f64> = None;
        for t in moments(start, limit) {
            if !self.good(t, normal) {
                since = None;
                continue;
            }
            let begun = *since.get_or_insert(t);
            if t - begun >= SUSTAINED_S {
                return Some(begun - start);
            }
        }
        None
    }

    /// Begin and length of the longest disruption in [start, limit], in seconds: length 0 if there
    /// is none; `None` if one does not end.
    pub fn longest_disruption(&self, start: f64, limit: f64, normal: f64) -> Option<(f64, f64)> {
        let limit = limit.min(self.end());
        let mut longest = (start, 0.0_f64);
        let mut t = start;
        // What begins in the last moments cannot be seen to end: these only show that what began
        // before them is over.
        let last = limit - SUSTAINED_S - 3.0 * BIN_S;
        while let Some(bad) = moments(t, last).find(|&t| !self.good(t, normal)) {
            let low = |&t: &f64| self.goodput(t, t + USED_WINDOW_S) < RECOVERED * normal;
            let begun = moments(bad, bad + BIN_S - USED_WINDOW_S).find(low).unwrap_or(bad);
            let length = self.recovery(begun, limit, normal)?;
            if length > longest.1 {
                longest = (begun, length);
            }
            t = begun + length + SUSTAINED_S;
        }
        Some(longest)
    }

    /// Frames per second sent to all switches over [from, to].
    fn offered(&self, from: f64, to: f64) -> f64 {
        (self.at(to, |s| s.offered.iter().sum()) - self.at(from, |s| s.offered.iter().sum()))
            / (to - from)
    }

    /// When frames begin to be sent to `switch` again after `restore`, where `before` is a stretch
    /// of normal operation; `None` if they never are.
    pub fn return_start(&self, switch: usize, restore: f64, before: (f64, f64)) -> Option<f64> {
        let normal = self.offered(before.0, before.1);
        let sent = |s: &Sample| s.offered.get(switch).copied().unwrap_or(0);
        moments(restore, self.end() - USED_WINDOW_S).find(|&t| {
            let frames = self.at(t + USED_WINDOW_S, sent) - self.at(t, sent);
            frames / USED_WINDOW_S >= USED * normal
        })
    }
}

fn moments(from: f64, to: f64) -> impl Iterator<Item = f64> {
    (0..).map(move |i| from + f64::from(i) * STEP_S).take_while(move |t| *t <= to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 Mbit/s of payload, nothing in the given gaps; switch 0 is used until 2 s and from 6 s
    /// on.
    fn run(gaps: &[(f64, f64)]) -> Vec<Sample> {
        let mut samples = Vec::new();
        let (mut payload, mut via, mut offered) = (0_u64, [0_u64; 2], [0_u64; 2]);
        for i in 0..1000 {
            let t = f64::from(i) * 0.01;
            samples.push(Sample { t, payload, via: via.to_vec(), offered: offered.to_vec() });
            let used = usize::from((2.0..6.0).contains(&t));
            offered[used] += 100;
            if !gaps.iter().any(|(from, to)| t >= *from && t < *to) {
                payload += 125_000;
                via[used] += 125_000;
            }
        }
        samples
    }

    #[test]
    fn measures_both_disruptions() {
        let samples = run(&[(2.0, 2.6), (6.1, 6.35)]);
        let series = Series::new(&samples);
        let normal = series.median(1.0, 2.0);
        assert!((normal - 100.0).abs() < 1.0, "{normal}");
        let fail = series.recovery(2.0, 5.0, normal).expect("recovers");
        // The 100 ms window may begin 20 ms before the gap ends and still be 80 % full.
        assert!((fail - 0.6).abs() < 0.03, "{fail}");
        let start = series.return_start(0, 5.0, (1.0, 2.0)).expect("returns");
        assert!((start - 6.0).abs() < 0.03, "{start}");
        let (begun, back) = series.longest_disruption(5.0, 9.9, normal).expect("recovers");
        assert!((begun - 6.1).abs() < 0.03 && (back - 0.25).abs() < 0.03, "{back} from {begun}");
        assert_eq!(series.longest_disruption(3.0, 6.0, normal), Some((3.0, 0.0)));
    }

    #[test]
    fn a_burst_is_no_recovery_and_no_gap_is_zero() {
        let samples = run(&[(2.0, 2.5), (2.9, 4.0)]);
        let series = Series::new(&samples);
        let fail = series.recovery(2.0, 9.0, 100.0).expect("recovers");
        assert!((fail - 2.0).abs() < 0.03, "{fail}");
        assert_eq!(series.recovery(7.0, 9.0, 100.0), Some(0.0));
        assert_eq!(series.bins(9.9).len(), 99);
    }

    #[test]
    fn what_is_made_up_for_does_not_fill_the_gap() {
        // 300 ms and 60 ms without, and then five times the rate until nothing is missing.
        let mut samples = run(&[(2.0, 2.3), (6.0, 6.06)]);
        for (gap_s, end_s) in [(0.3, 2.3), (0.06, 6.06)] {
            for sample in samples.iter_mut().filter(|sample| sample.t > end_s) {
                sample.payload += (((sample.t - end_s) * 4.0).min(gap_s) * 12_500_000.0) as u64;
            }
        }
        let series = Series::new(&samples);
        let fail = series.recovery(2.0, 5.0, 100.0).expect("recovers");
        assert!((fail - 0.3).abs() < 0.03, "{fail}");
        let (begun, length) = series.longest_disruption(5.0, 9.9, 100.0).expect("recovers");
        assert!(
            (begun - 6.0).abs() < 0.03 && (length - 0.06).abs() < 0.03,
            "{length} from {begun}"
        );
    }

    #[test]
    fn broken_traffic_never_recovers() {
        let samples = run(&[(2.0, 10.0)]);
        let series = Series::new(&samples);
        assert_eq!(series.recovery(2.0, 9.9, 100.0), None);
        assert_eq!(series.longest_disruption(1.0, 9.9, 100.0), None);
        assert_eq!(series.return_start(0, 2.5, (1.0, 2.0)).map(|t| t.round()), Some(6.0));
        assert_eq!(series.return_start(1, 7.0, (1.0, 2.0)), None);
    }
}
