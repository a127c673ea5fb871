//! What a switch holds: entries, sessions, the pending ring.

use crate::runtime::{FlowRuntime, entry_flags};
use c_layout::CStruct;
use dataplane::Dataplane;
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Layout, StateObject};
use state_protocol::layouts::EntryHead;
use state_protocol::objects::objects;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use switch_agent::system::now_ns;

/// Counting a million flows takes some tenths of a second: not more often than this, whoever asks.
/// (A sweep, which looks at all of them anyway, counts them, too.)
const COUNTED_FOR: Duration = Duration::from_secs(5);

/// Entries of an object: all, and those that are this switch's to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub flows: u64,
    pub owned: u64,
}

impl Held {
    /// One more. `live`: [`live_sessions`]; `local`: of an object that lives in this switch alone.
    pub(crate) fn count(&mut self, entry: &[u8], live: &[u32], local: bool) {
        self.flows += 1;
        self.owned += u64::from(local || is_owned(entry, live));
    }

    /// Those of an object.
    fn of(dataplane: &Dataplane, object: &StateObject, live: &[u32]) -> Held {
        let (mut held, local) = (Held::default(), object.is_local());
        let Some(map) = dataplane.map(&object.map) else { return held };
        match object.value {
            Layout::Fields { .. } => {
                let counted = dataplane::for_each_entry(map, |_, value| {
                    held.count(value, live, local);
                    true
                });
                counted.unwrap_or_else(|error| tracing::warn!("counting flows: {error}"));
            }
            // Few and large: one at a time.
            Layout::Slots { .. } => map
                .keys()
                .filter_map(|key| map.lookup(&key, MapFlags::ANY).ok().flatten())
                .for_each(|value| held.count(&value, live, local)),
        }
        held
    }
}

/// Each shard's session, or 0 where there is none whose lease lives.
pub(crate) fn live_sessions(dataplane: &Dataplane, now_ns: u64) -> Vec<u32> {
    let number = |shard| {
        dataplane
            .session(shard)
            .ok()
            .filter(|it| it.lease_end_ns > now_ns)
            .map_or(0, |it| it.number)
    };
    (0..dataplane.shards().unwrap_or(0)).map(number).collect()
}

/// Entries per object, as last counted.
#[derive(Default)]
pub(crate) struct Counted {
    last: Mutex<Option<(Instant, Vec<Held>)>>,
}

impl Counted {
    /// Takes a count that somebody else made, in that order.
    pub(crate) fn put(&self, counts: Vec<Held>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), counts));
    }

    /// What was counted last, all objects together; without counting.
    pub(crate) fn last_owned(&self) -> u64 {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map_or(0, |(_, counts)| counts.iter().map(|held| held.owned).sum())
    }

    /// In the order of the manifest. Whoever comes while another counts waits for the result.
    pub(crate) fn held(&self, dataplane: &Dataplane) -> Vec<Held> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, counts)) = &*last
            && when.elapsed() < COUNTED_FOR
        {
            return counts.clone();
        }
        let live = live_sessions(dataplane, now_ns());
        let objects = objects(dataplane.manifest());
        let counts: Vec<Held> = objects.map(|object| Held::of(dataplane, object, &live)).collect();
        *last = Some((Instant::now(), counts.clone()));
        counts
    }
}

/// Is the entry this switch's to use? `live`: each shard's session, or 0 without a lease.
fn is_owned(entry: &[u8], live: &[u32]) -> bool {
    let EntryHead { session, shard, flags, .. } = EntryHead::from_bytes(entry);
    let gone = flags & (entry_flags::RELEASED | entry_flags::DYING) != 0;
    session != 0 && !gone && live.get(usize::from(shard)) == Some(&session)
}

/// Entries that wait in the pending ring.
pub(crate) fn pending(dataplane: &Dataplane) -> u64 {
    dataplane.generator_work().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_owned_in_a_session_that_lives() {
        let entry = |shard: u16, session: u32, flags: u16| {
            EntryHead { shard, session, flags, ..EntryHead::default() }.to_bytes()
        };
        let owned = |shard, session, flags| is_owned(&entry(shard, session, flags), &[5, 0]);
        assert!(owned(0, 5, entry_flags::CLOSED));
        assert!(!owned(0, 4, 0), "of an earlier session");
        assert!(!owned(1, 5, 0) && !owned(2, 5, 0), "its shard has no lease");
        assert!(!owned(1, 0, 0), "never granted");
        assert!(!owned(0, 5, entry_flags::RELEASED) && !is_owned(&[], &[5]));
    }
}
