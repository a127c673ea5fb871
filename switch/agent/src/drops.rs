//! What a switch dropped, by reason: how many, how many a second, and the remedy. Counters are
//! defined beside their layouts, each drop with its remedy: `dataplane::GATEWAY_DROPS`,
//! `dataplane::GATEWAY_EVENTS`, `dataplane::COMMIT_COUNTERS`, `gateway::COUNTS`, and those of
//! systems (`Running::drops`).

use crate::agent::Agent;
use dataplane::{COMMIT_COUNTERS, gateway_counters};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A rate is that of at least this time.
const RATE_OVER: Duration = Duration::from_secs(1);
/// Earlier counts are of no interest.
const OLDEST: Duration = Duration::from_secs(10);

/// A reason to drop packets, messages or updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops {
    /// Its name.
    pub reason: &'static str,
    /// How many were dropped, since the maps were made.
    pub count: u64,
    /// What to do.
    pub remedy: &'static str,
}

/// The same for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DropLoad {
    /// Which part of the switch dropped: `gateway`, `commit`, `agent`, or a system.
    pub part: String,
    /// The reason's name.
    pub reason: String,
    /// Since the program was loaded; the agent's own: since the agent started.
    pub count: u64,
    /// Over the last seconds.
    pub rate_per_s: f64,
    /// What to do.
    pub remedy: String,
}

/// Counts of a few moments, from which rates are made.
#[derive(Default)]
pub(crate) struct Rates(Mutex<VecDeque<(Instant, Vec<u64>)>>);

impl Rates {
    /// Takes counts, always in the same order; how many a second are new. 0 before there is a
    /// sample that is old enough.
    fn take(&self, now: Instant, counts: Vec<u64>) -> Vec<f64> {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |at: Instant| now.saturating_duration_since(at);
        while samples.len() > 1 && age(samples[1].0) >= RATE_OVER {
            samples.pop_front();
        }
        samples.retain(|(at, _)| age(*at) <= OLDEST);
        let rates = match samples.front().filter(|(at, _)| age(*at) >= RATE_OVER) {
            Some((at, before)) => {
                let seconds = age(*at).as_secs_f64();
                let rate = |(now, then): (&u64, &u64)| now.saturating_sub(*then) as f64 / seconds;
                counts.iter().zip(before).map(rate).collect()
            }
            None => vec![0.0; counts.len()],
        };
        if samples.back().is_none_or(|(at, _)| age(*at) >= RATE_OVER / 2) {
            samples.push_back((now, counts));
        }
        rates
    }
}

impl Agent {
    /// Every reason that is counted, with the part of the switch that counts it.
    pub(crate) fn drop_counts(&self) -> Vec<(&'static str, Drops)> {
        let counted = |(reason, remedy): (&'static str, Option<&'static str>)| {
            let count = self.dataplane.gateway_count(reason).ok()??;
            Some(("gateway", Drops { reason, count, remedy: remedy? }))
        };
        let waiting = |(reason, remedy): (&'static str, Option<&'static str>)| {
            let count = self.dataplane.commit_count(reason).ok()??;
            Some(("commit", Drops { reason, count, remedy: remedy? }))
        };
        let commit = COMMIT_COUNTERS.into_iter().filter_map(waiting);
        let own = self.gateway.drops().map(|drops| ("agent", drops));
        gateway_counters()
            .filter_map(counted)
            .chain(commit)
            .chain(own)
            .chain(self.systems.drops())
            .collect()
    }

    /// The same, with rates.
    pub(crate) fn drops(&self) -> Vec<DropLoad> {
        let counts = self.drop_counts();
        let rates = self
            .drop_rates
            .take(Instant::now(), counts.iter().map(|(_, drops)| drops.count).collect());
        let load = |((part, drops), rate_per_s): ((&str, Drops), f64)| DropLoad {
            part: part.to_owned(),
            reason: drops.reason.to_owned(),
            count: drops.count,
            rate_per_s,
            remedy: drops.remedy.to_owned(),
        };
        counts.into_iter().zip(rates).map(load).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_seconds() {
        let (rates, start) = (Rates::default(), Instant::now());
        let at = |ms, count| rates.take(start + Duration::from_millis(ms), vec![count, 7])[0];
        assert_eq!((at(0, 10), at(900, 20)), (0.0, 0.0), "too early to tell");
        assert_eq!(at(2_000, 31), 11.0 / 1.1, "against the sample at 0.9 s");
        assert_eq!(at(4_000, 231), 100.0, "against the one at 2 s");
        assert_eq!(at(5_000, 231), 0.0);
        assert_eq!(at(60_000, 1_000), 0.0, "nobody looked for a long time");
        assert_eq!(at(61_000, 1_500), 500.0);
    }

    /// The table of `status` is of use only if each reason says what to do, in one line.
    #[test]
    fn each_reason_to_drop_has_a_remedy_of_one_line() {
        let own = crate::gateway::COUNTS.iter().map(|(_, name, remedy)| (*name, *remedy));
        let remedies: Vec<_> =
            gateway_counters().chain(own).filter_map(|(name, it)| Some((name, it?))).collect();
        assert!(remedies.len() > 20, "{remedies:?}");
        for (name, remedy) in remedies {
            assert!(
                (20..140).contains(&remedy.len()) && !remedy.contains('\n'),
                "{name}: {remedy}"
            );
        }
        // What only counts, and drops nothing.
        let without: Vec<_> = gateway_counters()
            .chain(crate::gateway::COUNTS.iter().map(|(_, name, remedy)| (*name, *remedy)))
            .filter_map(|(name, remedy)| remedy.is_none().then_some(name))
            .collect();
        assert_eq!(
            without,
            [
                "icmp_sent",
                "icmp_suppressed",
                "sent_by_kernel",
                "fragments_remembered",
                "fragments_held",
                "sent",
                "fragmented",
                "fragments_released",
                "unicast_requests",
                "broadcast_requests",
                "entries_changed",
                "entries_refused",
                "rereads",
            ]
        );
    }
}
