//! How much RedPlane has to do on a switch, for metrics and `stateplane status`.

use crate::events::events;
use crate::held::{Held, pending};
use crate::runtime::FlowRuntime;
use crate::settings::consistency;
use crate::system::Switch;
use manifest::StateObject;
use serde::{Deserialize, Serialize};
use state_protocol::objects::objects;
use switch_agent::system::{Holds, ObjectLoad, now_ns};

/// What `stateplane status` shows of RedPlane, beside what it shows of any switch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Shards of the store.
    pub shards: u32,
    /// Sessions that the switch has or had with them.
    pub sessions: Vec<SessionLoad>,
    /// The shortest lease that the store gives, in microseconds, if `lease_margin_us` is no less:
    /// then no lease ever begins, and packets that need one are dropped.
    pub short_lease_us: Option<u64>,
    /// Entries of the pending ring: updates and releases that are not acknowledged.
    pub pending: u64,
    /// What the data plane did, by event.
    pub events: Vec<(String, u64)>,
}

/// A session with a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLoad {
    /// The shard.
    pub shard: u32,
    /// The session's number.
    pub number: u32,
    /// How long its lease goes on without another word from the store, in ms; 0: it is over.
    pub left_ms: u64,
    /// Smoothed round-trip time of updates and heartbeats, in microseconds; 0: nothing measured.
    #[serde(default)]
    pub round_trip_us: u64,
    /// What is not acknowledged for so long is sent again, in microseconds.
    #[serde(default)]
    pub resend_timeout_us: u64,
    /// Requests that the store has not answered; new packets are dropped while this is the window.
    #[serde(default)]
    pub outstanding: u64,
    /// The leases' length, as the store said last, in microseconds; 0: it has not.
    #[serde(default)]
    pub lease_us: u64,
}

fn shorter_than(margin_us: u64, sessions: &[SessionLoad]) -> Option<u64> {
    sessions
        .iter()
        .map(|session| session.lease_us)
        .filter(|lease_us| (1..=margin_us).contains(lease_us))
        .min()
}

impl Switch {
    /// How full the objects are.
    pub(crate) fn loads(&self) -> Vec<ObjectLoad> {
        let held = self.counted.held(&self.dataplane);
        let load = |(object, held): (&StateObject, Held)| ObjectLoad {
            name: object.name.clone(),
            consistency: consistency(object).to_owned(),
            flows: held.flows,
            owned: held.owned,
            holds: Holds::Flows,
            limit: object.capacity,
        };
        objects(self.dataplane.manifest()).zip(held).map(load).collect()
    }

    /// The sessions with the store's shards.
    pub(crate) fn sessions(&self) -> (u32, Vec<SessionLoad>) {
        let (shards, now_ns) = (self.dataplane.shards().unwrap_or(0), now_ns());
        let settings = self.settings();
        let session = |shard| {
            let session =
                self.dataplane.session(shard).ok().filter(|session| session.number != 0)?;
            let left_ms = session.lease_end_ns.saturating_sub(now_ns) / 1_000_000;
            let round_trips = self.dataplane.round_trips(shard).unwrap_or_default();
            Some(SessionLoad {
                shard,
                number: session.number,
                left_ms,
                round_trip_us: round_trips.smoothed_ns / 1_000,
                resend_timeout_us: round_trips.resend_timeout_ns(&settings) / 1_000,
                outstanding: round_trips.outstanding,
                lease_us: session.lease_ns / 1_000,
            })
        };
        (shards, (0..shards).filter_map(session).collect())
    }

    /// The shortest of the store's leases, in microseconds, if the configuration's margin leaves
    /// nothing of it.
    pub(crate) fn short_lease_us(&self, sessions: &[SessionLoad]) -> Option<u64> {
        shorter_than(self.own.lease_margin_us, sessions)
    }

    /// All that `status` shows.
    pub(crate) fn load(&self) -> Load {
        let events = events(&self.dataplane).unwrap_or_default();
        let (shards, sessions) = self.sessions();
        Load {
            shards,
            short_lease_us: self.short_lease_us(&sessions),
            sessions,
            pending: pending(&self.dataplane),
            events: events.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_which_the_margin_leaves_nothing_is_short() {
        let session = |lease_us| SessionLoad {
            shard: 0,
            number: 1,
            left_ms: 0,
            round_trip_us: 0,
            resend_timeout_us: 0,
            outstanding: 0,
            lease_us,
        };
        let short = |leases: &[u64]| {
            shorter_than(300, &leases.iter().copied().map(session).collect::<Vec<_>>())
        };
        assert_eq!(
            (short(&[301]), short(&[300]), short(&[]), short(&[0])),
            (None, Some(300), None, None)
        );
        assert_eq!(
            short(&[0, 400, 250, 299]),
            Some(250),
            "the shortest; a shard that has not answered says nothing"
        );
    }
}
