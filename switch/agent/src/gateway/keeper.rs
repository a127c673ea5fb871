//! Keeps next hops resolved: which entries of the neighbour table to make, and whom to ask whether
//! they are still right. A state machine: `(now, news) → actions`, without sockets.
//!
//! XDP uses what the neighbour table says, and nothing that XDP forwards makes the kernel resolve a
//! next hop or look whether an entry is still right. So this does, in three ways:
//!
//! 1. Each router that a route names gets an entry that the kernel keeps resolved
//!    (NTF_EXT_MANAGED), also while no agent runs. One that is flushed, or goes with the link, is
//!    made again.
//! 2. The kernel looks at an entry only when it is stale, after half a minute; a router whose
//!    address has moved to another MAC without a word would get nothing meanwhile. So each is asked
//!    some times a second: by unicast, which disturbs nobody, and if that is not answered by
//!    broadcast, which finds the new MAC without making the old one invalid.
//! 3. Other neighbours on ports (hosts) are asked when they go stale, some at a time.

use super::message::{Change, Hop, Neighbour};
use std::collections::{BTreeMap, BTreeSet};

/// A router that answers is asked this often.
const PERIOD_MS: u64 = 400;
/// One that does not answer for so long is asked by broadcast.
const ANSWER_MS: u64 = 100;
/// One that has not answered so often is asked less often, and so is one that is not resolved: the
/// kernel asks by itself then.
const PATIENCE: u32 = 4;
const SLOW_PERIOD_MS: u64 = 1_000;
/// An entry that somebody has set for good is looked at this often.
const PERMANENT_MS: u64 = 30_000;
/// However often an entry is removed, it is not made sooner again.
const LEAST_CREATE_MS: u64 = 10;
/// Next hops that are kept; more are counted, and left to the kernel.
pub(crate) const MOST_HOPS: usize = 1_024;
/// Next hops that are seen to in one go.
const MOST_AT_ONCE: usize = 128;
/// Stale neighbours that wait to be asked; those beyond it are found by the next look at the table.
const MOST_STALE: usize = 4_096;
/// Stale neighbours are asked so many at a time, this often: 160 a second.
const STALE_AT_ONCE: usize = 16;
const STALE_MS: u64 = 100;

/// States in which an entry's MAC is used.
const VALID: u16 = libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_REACHABLE
    | libc::NUD_PROBE
    | libc::NUD_STALE
    | libc::NUD_DELAY;
/// States that somebody has set, and the kernel never changes.
const FIXED: u16 = libc::NUD_PERMANENT | libc::NUD_NOARP;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Read the entry, and say what it is: [`Keeper::entry`].
    Read(Hop),
    /// Change the entry.
    Change(Hop, Change),
    /// Ask the router itself, at this MAC or, without one, by broadcast.
    Solicit(Hop, Option<[u8; 6]>),
}

/// What is known of a next hop.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    /// When it is looked at next.
    due_ms: u64,
    /// It is being looked at.
    reading: bool,
    /// It has been asked so often since it was last confirmed.
    unanswered: u32,
    /// When its entry was last made.
    created_ms: Option<u64>,
    resolved: bool,
}

/// Keeps next hops resolved.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    hops: BTreeMap<Hop, Kept>,
    /// Next hops beyond [`MOST_HOPS`].
    beyond: usize,
    stale: BTreeSet<Hop>,
    stale_due_ms: u64,
    actions: Vec<Action>,
}

impl Keeper {
    /// The next hops that routes name now.
    pub fn want(&mut self, now_ms: u64, wanted: &BTreeSet<Hop>) {
        let gone: Vec<Hop> =
            self.hops.keys().filter(|hop| !wanted.contains(hop)).copied().collect();
        for hop in gone {
            self.hops.remove(&hop);
            self.actions.push(Action::Change(hop, Change::Release));
        }
        for hop in wanted {
            if self.hops.len() >= MOST_HOPS {
                break;
            }
            // Its entry may be there already, and somebody's own.
            self.hops.entry(*hop).or_insert(Kept { due_ms: now_ms, ..Kept::default() });
        }
        self.beyond = wanted.len() - self.hops.len();
    }

    /// What the neighbour table says of an address, by itself or as it was asked. Only of addresses
    /// that XDP sends to.
    pub fn entry(&mut self, now_ms: u64, entry: &Neighbour) {
        let hop = entry.hop;
        let Some(kept) = self.hops.get_mut(&hop) else {
            self.other(entry);
            return;
        };
        let read = std::mem::take(&mut kept.reading);
        kept.resolved = entry.state & VALID != 0;
        if entry.state & FIXED != 0 {
            // Not ours to change.
            (kept.unanswered, kept.due_ms) = (0, now_ms + PERMANENT_MS);
        } else if !entry.managed || entry.state & (VALID | libc::NUD_INCOMPLETE) == 0 {
            // The kernel begins to ask at once; one that failed is tried again for ever.
            kept.due_ms = now_ms + ANSWER_MS;
            self.actions.push(Action::Change(hop, Change::Manage));
        } else if !kept.resolved {
            kept.due_ms = now_ms + SLOW_PERIOD_MS;
        } else if entry.confirmed_ms < PERIOD_MS {
            (kept.unanswered, kept.due_ms) = (0, now_ms + PERIOD_MS - entry.confirmed_ms);
        } else if read {
            let first = kept.unanswered == 0;
            let wait_ms = match kept.unanswered {
                0 => ANSWER_MS,
                1..PATIENCE => PERIOD_MS,
                _ => SLOW_PERIOD_MS,
            };
            kept.due_ms = now_ms + wait_ms;
            kept.unanswered = kept.unanswered.saturating_add(1);
            self.actions.push(Action::Solicit(hop, entry.mac.filter(|_| first)));
        }
    }

    /// A neighbour that no route names.
    fn other(&mut self, entry: &Neighbour) {
        if entry.ours && entry.managed {
            // An earlier agent's, for a route that went while no agent ran.
            self.actions.push(Action::Change(entry.hop, Change::Release));
        } else if entry.state == libc::NUD_STALE && !entry.managed && self.stale.len() < MOST_STALE
        {
            self.stale.insert(entry.hop);
        }
    }

    /// The neighbour table has no entry of that address.
    pub fn no_entry(&mut self, now_ms: u64, hop: Hop) {
        self.stale.remove(&hop);
        let Some(kept) = self.hops.get_mut(&hop) else { return };
        (kept.resolved, kept.reading, kept.unanswered) = (false, false, 0);
        if let Some(next_ms) = kept.created_ms.map(|created_ms| created_ms + LEAST_CREATE_MS)
            && next_ms > now_ms
        {
            kept.due_ms = next_ms;
            return;
        }
        (kept.created_ms, kept.due_ms) = (Some(now_ms), now_ms + ANSWER_MS);
        self.actions.push(Action::Change(hop, Change::Create));
    }

    /// What is to be done now.
    pub fn actions(&mut self, now_ms: u64) -> Vec<Action> {
        let due = self.hops.iter_mut().filter(|(_, kept)| kept.due_ms <= now_ms);
        for (hop, kept) in due.take(MOST_AT_ONCE) {
            self.actions.push(Action::Read(*hop));
            // In case that nothing comes of it.
            (kept.reading, kept.due_ms) = (true, now_ms + ANSWER_MS);
        }
        if self.stale_due_ms <= now_ms && !self.stale.is_empty() {
            self.stale_due_ms = now_ms + STALE_MS;
            let some = (0..STALE_AT_ONCE).map_while(|_| self.stale.pop_first());
            self.actions.extend(some.map(|hop| Action::Change(hop, Change::Use)));
        }
        std::mem::take(&mut self.actions)
    }

    /// When [`Keeper::actions`] has something next, if nothing happens before.
    pub fn next_ms(&self) -> Option<u64> {
        let hops = self.hops.values().map(|kept| kept.due_ms).min();
        let stale = (!self.stale.is_empty()).then_some(self.stale_due_ms);
        hops.into_iter().chain(stale).min()
    }

    /// How many next hops there are, and those that are not resolved.
    pub fn summary(&self) -> (usize, Vec<Hop>) {
        let unresolved = self.hops.iter().filter(|(_, kept)| !kept.resolved);
        (self.hops.len() + self.beyond, unresolved.map(|(hop, _)| *hop).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const OLD: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn hop(last: u8) -> Hop {
        Hop { ifindex: 3, address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)) }
    }

    fn entry(hop: Hop, state: u16, confirmed_ms: u64) -> Neighbour {
        Neighbour { hop, state, mac: Some(OLD), confirmed_ms, managed: true, ours: true }
    }

    fn keeper(now_ms: u64, hops: &[Hop]) -> Keeper {
        let mut keeper = Keeper::default();
        keeper.want(now_ms, &hops.iter().copied().collect());
        keeper
    }

    #[test]
    fn a_next_hop_without_an_entry_gets_one_at_start_and_after_a_flush() {
        let mut keeper = keeper(0, &[hop(1)]);
        assert_eq!(keeper.actions(0), [Action::Read(hop(1))]);
        keeper.no_entry(0, hop(1));
        assert_eq!(keeper.actions(0), [Action::Change(hop(1), Change::Create)]);
        assert_eq!(keeper.summary(), (1, vec![hop(1)]));
        keeper.entry(1, &entry(hop(1), libc::NUD_REACHABLE, 0));
        assert_eq!((keeper.actions(1), keeper.summary()), (vec![], (1, vec![])));

        keeper.no_entry(100, hop(1));
        assert_eq!(keeper.actions(100), [Action::Change(hop(1), Change::Create)]);
        // Somebody who removes it again and again gets no busy loop.
        keeper.no_entry(101, hop(1));
        assert_eq!(keeper.actions(101), []);
        assert_eq!(keeper.next_ms(), Some(110));
        assert_eq!(keeper.actions(110), [Action::Read(hop(1))]);
    }

    #[test]
    fn a_router_is_asked_every_second_and_one_that_does_not_answer_by_broadcast() {
        let mut keeper = keeper(0, &[hop(1)]);
        let read = |keeper: &mut Keeper, now_ms, confirmed_ms| {
            assert_eq!(keeper.actions(now_ms), [Action::Read(hop(1))], "at {now_ms}");
            keeper.entry(now_ms, &entry(hop(1), libc::NUD_REACHABLE, confirmed_ms));
            keeper.actions(now_ms)
        };
        assert_eq!(read(&mut keeper, 0, 100), []);
        assert_eq!(keeper.next_ms(), Some(300));
        assert_eq!(read(&mut keeper, 300, 400), [Action::Solicit(hop(1), Some(OLD))]);
        assert_eq!(read(&mut keeper, 400, 100), [], "it answered");
        assert_eq!(read(&mut keeper, 700, 400), [Action::Solicit(hop(1), Some(OLD))]);
        for now_ms in [800, 1_200, 1_600, 2_000, 3_000, 4_000] {
            let asked = read(&mut keeper, now_ms, now_ms - 300);
            assert_eq!(asked, [Action::Solicit(hop(1), None)], "at {now_ms}");
        }
        assert_eq!(read(&mut keeper, 5_000, 10), [], "found");
        // News in between ask nobody.
        keeper.entry(5_100, &entry(hop(1), libc::NUD_STALE, 5_000));
        assert_eq!(keeper.actions(5_100), []);
    }

    #[test]
    fn one_that_failed_is_tried_again_and_what_somebody_set_is_left_alone() {
        let mut keeper = keeper(0, &[hop(1), hop(2), hop(3)]);
        assert_eq!(keeper.actions(0).len(), 3);
        keeper.entry(0, &entry(hop(1), libc::NUD_FAILED, 9_000));
        keeper.entry(0, &Neighbour { managed: false, ..entry(hop(2), libc::NUD_STALE, 9_000) });
        keeper.entry(0, &Neighbour { managed: false, ..entry(hop(3), libc::NUD_PERMANENT, 0) });
        let changes = [hop(1), hop(2)].map(|hop| Action::Change(hop, Change::Manage));
        assert_eq!(keeper.actions(0), changes);
        assert_eq!(keeper.summary(), (3, vec![hop(1)]));
    }

    #[test]
    fn next_hops_that_no_route_names_are_released_also_an_earlier_agents() {
        let mut keeper = keeper(0, &[hop(1), hop(2)]);
        keeper.actions(0);
        keeper.want(1, &BTreeSet::from([hop(2)]));
        assert_eq!(keeper.actions(1), [Action::Change(hop(1), Change::Release)]);
        keeper.entry(2, &entry(hop(3), libc::NUD_REACHABLE, 0));
        assert_eq!(keeper.actions(2), [Action::Change(hop(3), Change::Release)]);
        keeper.entry(2, &Neighbour { ours: false, ..entry(hop(4), libc::NUD_STALE, 0) });
        assert_eq!(keeper.actions(2), [], "somebody else has it managed");
    }

    #[test]
    fn stale_neighbours_are_asked_some_at_a_time_each_once() {
        let mut keeper = keeper(0, &[]);
        for last in (0..40).chain(0..40) {
            let stale = entry(hop(last), libc::NUD_STALE, 60_000);
            keeper.entry(0, &Neighbour { managed: false, ours: false, ..stale });
        }
        let counts: Vec<usize> = [0, 50, 100, 200, 300].map(|at| keeper.actions(at).len()).into();
        assert_eq!(counts, [16, 0, 16, 8, 0]);
        assert_eq!(keeper.next_ms(), None);
    }

    #[test]
    fn next_hops_beyond_the_limit_are_counted() {
        let wanted = (0..MOST_HOPS as u32 + 5).map(|ifindex| Hop { ifindex, ..hop(1) }).collect();
        let mut keeper = Keeper::default();
        keeper.want(0, &wanted);
        assert_eq!(keeper.summary().0, MOST_HOPS + 5);
        let at_once = keeper.actions(0).len();
        assert_eq!(at_once, MOST_AT_ONCE);
    }
}
