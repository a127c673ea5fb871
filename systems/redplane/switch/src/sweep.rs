//! Releases idle and closed flows and removes them from the FlowState maps, so that these hold the
//! flows in use.
//!
//! It finds candidates by reading the maps; whether one really goes is decided by the object's
//! `sp_sweep`, under the entry's lock (stateplane_flow_sweep.h), so a packet never loses a flow
//! that it is using.

use crate::config::Idle;
use crate::held::{Held, live_sessions, pending};
use crate::runtime::{FlowRuntime, SweepBefore, Swept, entry_flags};
use crate::settings::allocator;
use c_layout::CStruct;
use dataplane::Dataplane;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use manifest::{Layout, StateObject};
use state_protocol::layouts::EntryHead;
use state_protocol::objects::objects;
use std::time::{Duration, Instant};
use switch_agent::Result;

const PROGRAM: &str = "sp_sweep";
/// So many flows of an object are released in one look at the most, and as many removed.
const MOST_AT_ONCE: usize = 20_000;
/// While so many releases wait for their acknowledgements, no more flows are released, so that a
/// million that fall idle together do not bury the store in releases: what is not acknowledged is
/// sent again every few milliseconds.
const MOST_RELEASES: u64 = 1_024;
/// Between two looks at what waits.
const PAUSE: Duration = Duration::from_millis(5);
const SECOND_NS: u64 = 1_000_000_000;
/// Rule 7 of systems/redplane/docs/state-protocol.md: a closed flow without packets for so long
/// goes back to the store.
const CLOSED_AFTER_NS: u64 = SECOND_NS;
/// One that is closed in one direction: longer, because coming back would cost it its mark.
const HALF_CLOSED_AFTER_NS: u64 = 5 * SECOND_NS;
/// Rule 7: no late grant can be taken any more.
const REMOVED_AFTER_NS: u64 = 2 * SECOND_NS;

/// Whether the object's flows are swept at all.
pub(crate) fn exists(dataplane: &Dataplane) -> bool {
    dataplane.program(PROGRAM).is_some()
}

/// Releases and removes the flows that are idle at `now_ns`; how many were removed, and, if it came
/// through all of them, what each object had before. A look at a million flows takes some tenths of
/// a second of one core. Nothing is released after `until`.
pub(crate) fn sweep(
    dataplane: &Dataplane,
    idle: Idle,
    now_ns: u64,
    until: Instant,
) -> Result<(u64, Option<Vec<Held>>)> {
    let sweep = Sweep { dataplane, idle, now_ns, until, live: live_sessions(dataplane, now_ns) };
    let (mut removed, mut held, mut all) = (0, Vec::new(), true);
    for object in objects(dataplane.manifest()) {
        let swept = match (dataplane.map(&object.map), &object.value) {
            (None, _) => SweptObject { all: true, ..SweptObject::default() },
            (Some(map), Layout::Fields { .. }) => sweep.flows(object, map)?,
            (Some(map), Layout::Slots { .. }) => sweep.snapshots(object, map)?,
        };
        removed += swept.removed;
        held.push(swept.held);
        all &= swept.all;
    }
    Ok((removed, all.then_some(held)))
}

/// One sweep over all objects.
struct Sweep<'a> {
    dataplane: &'a Dataplane,
    idle: Idle,
    now_ns: u64,
    /// No more is released after this.
    until: Instant,
    live: Vec<u32>,
}

/// What a sweep did to one object.
#[derive(Default)]
struct SweptObject {
    removed: u64,
    held: Held,
    /// It came through all entries.
    all: bool,
}

impl Sweep<'_> {
    fn ago(&self, seconds: u64) -> u64 {
        self.now_ns.saturating_sub(seconds.saturating_mul(SECOND_NS))
    }

    /// Entries without packets since then are idle.
    fn idle_ns(&self, object: &StateObject) -> u64 {
        self.ago(if object.is_local() { self.idle.local_s } else { self.idle.release_after_s })
    }

    fn flows(&self, object: &StateObject, map: &MapHandle) -> Result<SweptObject> {
        let (dataplane, idle) = (self.dataplane, self.idle);
        let before = SweepBefore {
            idle_ns: self.idle_ns(object),
            half_closed_ns: self.now_ns.saturating_sub(HALF_CLOSED_AFTER_NS),
            closed_ns: self.now_ns.saturating_sub(CLOSED_AFTER_NS),
            released_ns: self.now_ns.saturating_sub(REMOVED_AFTER_NS),
        };
        let local = LocalBefore {
            open_ns: before.idle_ns,
            half_open_ns: self.ago(idle.local_half_open_s.min(idle.local_s)),
            closed_ns: self.ago(idle.local_closed_s),
        };
        let found = look(map, object, before, local, &self.live)?;
        let all = found.removals.len() < MOST_AT_ONCE;
        let mut removed = 0;
        for (key, idle_ns) in &found.removals {
            let before = SweepBefore { idle_ns: *idle_ns, ..before };
            removed += u64::from(dataplane.sweep(object.id, key, before)? == Swept::Removed);
        }
        // In the ring are updates, too, and those of asynchronous flows may never be few: they are
        // no reason not to release.
        let updates = pending(dataplane).saturating_sub(found.waiting);
        for some in found.releases.chunks(MOST_RELEASES as usize / 4) {
            while pending(dataplane) >= updates + MOST_RELEASES {
                if Instant::now() >= self.until {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
            if Instant::now() >= self.until {
                break;
            }
            for key in some {
                removed += u64::from(dataplane.sweep(object.id, key, before)? == Swept::Removed);
            }
        }
        Ok(SweptObject { removed, held: found.held, all })
    }

    fn snapshots(&self, object: &StateObject, map: &MapHandle) -> Result<SweptObject> {
        let idle_ns = self.idle_ns(object);
        let released_ns = self.now_ns.saturating_sub(REMOVED_AFTER_NS);
        let before =
            SweepBefore { idle_ns, half_closed_ns: idle_ns, closed_ns: idle_ns, released_ns };
        let mut swept = SweptObject { all: true, ..SweptObject::default() };
        for key in map.keys() {
            let Ok(Some(value)) = map.lookup(&key, MapFlags::ANY) else { continue };
            swept.held.count(&value, &self.live, object.is_local());
            let is_due = due(&value, before) != Due::Nothing;
            if is_due && self.dataplane.sweep(object.id, &key, before)? == Swept::Removed {
                swept.removed += 1;
            }
        }
        Ok(swept)
    }
}

/// What a look at an object's flows has found.
#[derive(Default)]
struct Found {
    /// With the time since when a local flow must be without packets.
    removals: Vec<(Vec<u8>, u64)>,
    releases: Vec<Vec<u8>>,
    /// Releases that are not acknowledged yet.
    waiting: u64,
    held: Held,
}

fn look(
    map: &MapHandle,
    object: &StateObject,
    before: SweepBefore,
    local_before: LocalBefore,
    live: &[u32],
) -> Result<Found> {
    let local = object.is_local();
    let mut found = Found::default();
    dataplane::for_each_entry(map, |key, value| {
        let mut idle_ns = before.idle_ns;
        let due = match local {
            // What was used a moment ago stays, whatever is said of it; most do.
            true if EntryHead::from_bytes(value).used_ns >= local_before.latest_ns() => {
                Due::Nothing
            }
            true => {
                let other = other_direction(map, object, key, value);
                idle_ns = local_before.of(value, &other);
                match other.used_ns(value) < idle_ns {
                    true => Due::Removal,
                    false => Due::Nothing,
                }
            }
            false => due(value, before),
        };
        found.held.count(value, live, local);
        let flags = EntryHead::from_bytes(value).flags;
        found.waiting += u64::from(
            flags & (entry_flags::RELEASED | entry_flags::QUEUED)
                == entry_flags::RELEASED | entry_flags::QUEUED,
        );
        match due {
            Due::Nothing => return true,
            Due::Removal if found.removals.len() < MOST_AT_ONCE => {
                found.removals.push((key.to_vec(), idle_ns))
            }
            Due::Release if found.releases.len() < MOST_AT_ONCE => {
                found.releases.push(key.to_vec())
            }
            Due::Removal | Due::Release => {}
        }
        // The rest comes next time, and until then nobody waits.
        found.removals.len() < MOST_AT_ONCE
    })?;
    Ok(found)
}

/// What may be to do about a flow whose state lives in the store. The runtime looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    Removal,
    /// Or a place in the pending ring, which had none when it was to be.
    Release,
}

fn due(value: &[u8], before: SweepBefore) -> Due {
    let head = EntryHead::from_bytes(value);
    let EntryHead { flags, used_ns, .. } = head;
    if flags & entry_flags::RELEASED != 0 {
        return match head.sent_ns < before.released_ns {
            true if flags & entry_flags::RELEASE_ACKED != 0 => Due::Removal,
            true if flags & entry_flags::QUEUED == 0 => Due::Release,
            _ => Due::Nothing,
        };
    }
    // An update for which there was no room in the ring. (One in a batch needs none.)
    if head.seq > head.acked_seq && flags & entry_flags::QUEUED == 0 && head.name == 0 {
        return Due::Release;
    }
    if head.epoch == 0 {
        return if used_ns < before.released_ns { Due::Removal } else { Due::Nothing };
    }
    let over = used_ns < before.idle_ns
        || (flags & entry_flags::CLOSED != 0 && used_ns < before.closed_ns)
        || (flags & entry_flags::HALF_CLOSED != 0 && used_ns < before.half_closed_ns);
    if over { Due::Release } else { Due::Nothing }
}

/// Since when a local flow must be without packets to be removed (CLOCK_MONOTONIC), by how far its
/// life has come.
#[derive(Clone, Copy, Debug)]
struct LocalBefore {
    open_ns: u64,
    half_open_ns: u64,
    closed_ns: u64,
}

impl LocalBefore {
    /// What was used since then stays in any case.
    fn latest_ns(&self) -> u64 {
        self.open_ns.max(self.half_open_ns).max(self.closed_ns)
    }

    /// As the store has it (systems/redplane/docs/state-protocol.md, "Rules of the store", 8).
    fn of(&self, value: &[u8], other: &Other) -> u64 {
        let own = EntryHead::from_bytes(value).flags;
        let (either, both) = match other {
            Other::None => (own, own & entry_flags::HALF_OPEN),
            // The binding is of no use any more.
            Other::Gone => return self.closed_ns,
            Other::Entry { flags, .. } => (own | flags, own & flags),
        };
        if either & entry_flags::CLOSED != 0 || both & entry_flags::HALF_CLOSED != 0 {
            self.closed_ns
        } else if both & entry_flags::HALF_OPEN != 0 {
            self.half_open_ns
        } else {
            self.open_ns
        }
    }
}

/// The other direction of a binding of a NAT or of a load balancer: the two go together, so neither
/// may be in use.
#[derive(Clone, Copy, Debug)]
enum Other {
    /// Flows of this object have none.
    None,
    /// It was removed.
    Gone,
    Entry {
        flags: u16,
        used_ns: u64,
    },
}

impl Other {
    /// When the flow itself or this was last used.
    fn used_ns(&self, value: &[u8]) -> u64 {
        let own_ns = EntryHead::from_bytes(value).used_ns;
        match self {
            Other::Entry { used_ns, .. } => own_ns.max(*used_ns),
            Other::None | Other::Gone => own_ns,
        }
    }
}

fn other_direction(map: &MapHandle, object: &StateObject, key: &[u8], value: &[u8]) -> Other {
    let allocator = allocator(object);
    if !matches!(allocator, "nat_ports" | "backends") {
        return Other::None;
    }
    let binding = value.get(object.value.offset() as usize..);
    let Some(partners) = binding.and_then(|binding| partners(allocator, key, binding)) else {
        return Other::None;
    };
    let entries =
        partners.iter().filter_map(|partner| map.lookup(partner, MapFlags::ANY).ok().flatten());
    let heads = entries.map(|entry| EntryHead::from_bytes(&entry));
    heads
        .max_by_key(|head| head.used_ns)
        .map_or(Other::Gone, |head| Other::Entry { flags: head.flags, used_ns: head.used_ns })
}

/// The keys that the other direction of a binding can have, as this one may be the forward or the
/// reverse. Bindings are { address 4, port 2 }. A load balancer's keys, { client 4, server 4,
/// client port 2, server port 2, protocol 1 }, differ in the server alone, which the binding gives.
/// A NAT's are { source 4, destination 4, source port 2, destination port 2, protocol 1 }: its
/// forward binding replaces the source and its reverse one the destination, so forward to reverse
/// is the first way round, back is the second.
fn partners(allocator: &str, key: &[u8], binding: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (source, destination) = (key.get(0..4)?, key.get(4..8)?);
    let (source_port, destination_port) = (key.get(8..10)?, key.get(10..12)?);
    let (address, port, rest) = (binding.get(0..4)?, binding.get(4..6)?, key.get(12..)?);
    Some(match allocator {
        "backends" => vec![[source, address, source_port, port, rest].concat()],
        _ => vec![
            [destination, address, destination_port, port, rest].concat(),
            [address, source, port, source_port, rest].concat(),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_told_apart() {
        let before =
            SweepBefore { idle_ns: 100, half_closed_ns: 200, closed_ns: 300, released_ns: 400 };
        let told = |flags: u16, used_ns: u64, sent_ns: u64, epoch: u32, unacked: u64| {
            let (seq, acked_seq) = (7 + unacked, 7);
            let rest = EntryHead::default();
            let entry =
                EntryHead { seq, acked_seq, used_ns, sent_ns, epoch, flags, ..rest }.to_bytes();
            due(&entry, before)
        };
        use entry_flags::{CLOSED, HALF_CLOSED, QUEUED, RELEASE_ACKED, RELEASED};
        assert_eq!(told(0, 99, 0, 1, 0), Due::Release);
        assert_eq!(told(0, 100, 0, 1, 0), Due::Nothing);
        assert_eq!(
            (told(HALF_CLOSED, 199, 0, 1, 0), told(HALF_CLOSED, 200, 0, 1, 0)),
            (Due::Release, Due::Nothing)
        );
        assert_eq!(
            (told(CLOSED, 299, 0, 1, 0), told(CLOSED, 300, 0, 1, 0)),
            (Due::Release, Due::Nothing)
        );
        assert_eq!(
            (told(0, 399, 0, 0, 0), told(0, 400, 0, 0, 0)),
            (Due::Removal, Due::Nothing),
            "never granted"
        );
        let released = RELEASED | RELEASE_ACKED;
        assert_eq!(
            (told(released, 0, 399, 1, 0), told(released, 0, 400, 1, 0)),
            (Due::Removal, Due::Nothing)
        );
        assert_eq!(
            (told(RELEASED | QUEUED, 0, 0, 1, 0), told(RELEASED, 0, 0, 1, 0)),
            (Due::Nothing, Due::Release)
        );
        assert_eq!(
            (told(0, 999, 0, 1, 1), told(QUEUED, 999, 0, 1, 1)),
            (Due::Release, Due::Nothing),
            "no room in the ring"
        );
    }

    #[test]
    fn a_local_flow_goes_by_what_both_directions_say() {
        use entry_flags::{CLOSED, HALF_CLOSED, HALF_OPEN};
        let before = LocalBefore { open_ns: 100, half_open_ns: 200, closed_ns: 300 };
        let entry = |flags: u16| EntryHead { flags, ..EntryHead::default() }.to_bytes();
        let pair =
            |own: u16, flags: u16| before.of(&entry(own), &Other::Entry { flags, used_ns: 0 });
        assert_eq!((pair(0, 0), pair(0, HALF_OPEN), pair(HALF_OPEN, 0)), (100, 100, 100));
        assert_eq!(pair(HALF_OPEN, HALF_OPEN), 200, "no packet of the other direction was seen");
        assert_eq!((pair(CLOSED, 0), pair(HALF_OPEN, CLOSED)), (300, 300));
        assert_eq!((pair(HALF_CLOSED, HALF_CLOSED), pair(HALF_CLOSED, 0)), (300, 100));
        let single = |flags| before.of(&entry(flags), &Other::None);
        assert_eq!(
            (single(0), single(HALF_OPEN), single(CLOSED), single(HALF_CLOSED)),
            (100, 200, 300, 100)
        );
        assert_eq!(before.of(&entry(0), &Other::Gone), 300);
        assert_eq!(before.latest_ns(), 300);
    }

    #[test]
    fn each_direction_names_the_other() {
        // 10.0.0.5:1000 → 198.51.100.80:53 as 203.0.113.1:2000
        let forward = [10, 0, 0, 5, 198, 51, 100, 80, 3, 232, 0, 53, 17, 0, 0, 0];
        let reverse = [198, 51, 100, 80, 203, 0, 113, 1, 0, 53, 7, 208, 17, 0, 0, 0];
        assert_eq!(partners("nat_ports", &forward, &[203, 0, 113, 1, 7, 208]).unwrap()[0], reverse);
        assert_eq!(partners("nat_ports", &reverse, &[10, 0, 0, 5, 3, 232]).unwrap()[1], forward);
        // 198.51.100.80:53 → 203.0.113.1:80, sent on to 10.0.0.5:8080
        let forward = [198, 51, 100, 80, 203, 0, 113, 1, 0, 53, 0, 80, 6, 0, 0, 0];
        let reverse = [198, 51, 100, 80, 10, 0, 0, 5, 0, 53, 31, 144, 6, 0, 0, 0];
        assert_eq!(partners("backends", &forward, &[10, 0, 0, 5, 31, 144]).unwrap(), [reverse]);
        assert_eq!(partners("backends", &reverse, &[203, 0, 113, 1, 0, 80]).unwrap(), [forward]);
    }
}
