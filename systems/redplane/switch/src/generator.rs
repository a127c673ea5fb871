//! What generated frames are to do: heartbeats of sessions, updates and releases once more, parts
//! of snapshots.

use crate::held::pending;
use crate::runtime::{FlowRuntime, FlowSettings, MOST_SHARDS};
use crate::settings::snapshot_periods_us;
use dataplane::Dataplane;
use manifest::Manifest;
use std::time::Duration;

/// So many places of the ring are looked at in any case.
const LEAST_LOOKED_AT: u64 = 64;
/// How often the time-outs are looked at.
const MEASURED_FOR_NS: u64 = 20_000_000;
/// However often snapshots are to be taken, no look at the work sooner than this.
const LEAST_SNAPSHOT_US: u64 = 100;

/// The longest time between two looks: half of the shortest period of the program's snapshots, so
/// that each begins about when it is due (the look nearest to its time takes it:
/// stateplane_snapshot_message.h).
pub(crate) fn interval(manifest: &Manifest) -> Option<Duration> {
    let shortest = snapshot_periods_us(manifest).min()?;
    Some(Duration::from_micros(u64::from(shortest / 2).max(LEAST_SNAPSHOT_US)))
}

/// What is queued, and when.
pub struct Work {
    heartbeats: Heartbeats,
    /// The program has objects of which snapshots are taken.
    snapshots: bool,
    /// In how many looks all of the ring is gone through, and since when.
    looks: Option<(u64, u64)>,
}

impl Work {
    /// Of a program.
    pub fn of(manifest: &Manifest) -> Work {
        let snapshots = snapshot_periods_us(manifest).next().is_some();
        Work { heartbeats: Heartbeats::default(), snapshots, looks: None }
    }

    /// Queues the heartbeats that are due; how many frames they and the ring need in this look.
    pub fn due(&mut self, dataplane: &Dataplane, settings: &FlowSettings, now_ns: u64) -> u64 {
        // Heartbeats go first, whatever is in the ring.
        let heartbeats = self.heartbeats.queue_due(dataplane, now_ns);
        heartbeats + places(pending(dataplane), self.looks(dataplane, settings, now_ns))
    }

    fn looks(&mut self, dataplane: &Dataplane, settings: &FlowSettings, now_ns: u64) -> u64 {
        // Snapshots begin when their place is looked at: all of the ring in each look.
        if self.snapshots {
            return 1;
        }
        match self.looks {
            Some((looks, since_ns)) if now_ns.saturating_sub(since_ns) < MEASURED_FOR_NS => looks,
            _ => {
                let looks = looks(
                    Duration::from_nanos(settings.look_ns),
                    resend_timeout(dataplane, settings),
                );
                self.looks = Some((looks, now_ns));
                looks
            }
        }
    }
}

/// In how many looks all of the ring is gone through: within the time after which updates are sent
/// again, as looking at more only costs CPU.
fn looks(interval: Duration, resend_timeout: Duration) -> u64 {
    (resend_timeout.as_nanos() / interval.as_nanos().max(1)).clamp(1, 1_000) as u64
}

/// The shortest time after which something is sent again: the round trips are measured for each
/// shard.
fn resend_timeout(dataplane: &Dataplane, settings: &FlowSettings) -> Duration {
    let shards = dataplane.shards().unwrap_or(0);
    let timeouts = (0..shards).filter_map(|shard| dataplane.round_trips(shard).ok());
    let shortest = timeouts.map(|round_trips| round_trips.resend_timeout_ns(settings)).min();
    Duration::from_nanos(shortest.unwrap_or(settings.resend_least_ns))
}

/// Of what is queued, the places to look at now.
fn places(queued: u64, looks: u64) -> u64 {
    queued.div_ceil(looks).max(queued.min(LEAST_LOOKED_AT))
}

/// A shard without a session is looked at this often.
const LOOK_NS: u64 = 20_000_000;
/// However short the lease, no more often than this.
const LEAST_INTERVAL_NS: u64 = 1_000_000;

/// When each shard's next heartbeat is due (systems/redplane/docs/state-protocol.md, "Sessions" 5).
#[derive(Default)]
struct Heartbeats {
    due_ns: Vec<u64>,
}

impl Heartbeats {
    /// Queues the heartbeats that are due; how many.
    fn queue_due(&mut self, dataplane: &Dataplane, now_ns: u64) -> u64 {
        // Which of them exist can change while this runs; reading costs one system call for each
        // look.
        self.due_ns.resize(MOST_SHARDS, 0);
        let mut shards = None;
        let mut queued = 0;
        for shard in 0..MOST_SHARDS {
            if self.due_ns[shard] > now_ns {
                continue;
            }
            let known = *shards.get_or_insert_with(|| dataplane.shards().unwrap_or(0) as usize);
            let session = match shard < known {
                true => dataplane.session(shard as u32).unwrap_or_default(),
                false => Default::default(),
            };
            self.due_ns[shard] = now_ns + LOOK_NS;
            // A full queue means that the generator cannot run now: these are still in it.
            if session.number != 0 && dataplane.push_heartbeat(shard as u32).is_ok() {
                self.due_ns[shard] = now_ns + (session.lease_ns / 3).max(LEAST_INTERVAL_NS);
                queued += 1;
            }
        }
        queued
    }
}

#[cfg(test)]
mod tests {
    use super::places;

    #[test]
    fn all_of_the_ring_is_gone_through_in_so_many_looks() {
        assert_eq!((places(0, 2), places(5, 2), places(64, 2)), (0, 5, 64), "few: all at once");
        assert_eq!((places(1024, 2), places(1025, 2), places(1000, 1)), (512, 513, 1000));
    }
}
