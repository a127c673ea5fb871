//! What the head takes away: records that nobody owns and nobody uses, sessions of switches that
//! are gone. `systems/redplane/docs/state-protocol.md`, "Rules of the store", 8, and "Sessions", 3.

use super::mutation::{self, Mutation};
use super::records::{Record, Records};
use super::{Outputs, Replica};
use chain::NOBODY;
use state_protocol::{Effect, Flags};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most records looked at in one go, so that a wave of them does not hold up requests.
const BATCH: usize = 256;
const RETRY_NS: u64 = 10_000_000;
/// A new record is looked at after this time, or sooner, in ns: whether its owner has it.
const FIRST_LOOK_NS: u64 = 10_000_000_000;
/// A probe that got no answer is sent again after this time, in ns.
const PROBE_AGAIN_NS: u64 = 5_000_000_000;
/// Before everything else that is due.
const AT_ONCE_NS: u64 = 0;
/// A session is ended when its lease was over for this long, in ns: its switch is gone, and its
/// flows are to be anybody's, and in the end to go too.
pub const SESSION_FORGOTTEN_NS: u64 = 10_000_000_000;

/// When the head looks at what next. Each record (of a pair, the primary one) has one entry, moved
/// on whenever it turns out to be in use, and to the front when its backend is gone. On other
/// servers it has no meaning: a new head begins anew.
#[derive(Default)]
pub(super) struct Idle {
    /// Time in ns, slot, generation.
    pub(super) records: BinaryHeap<Reverse<(u64, u32, u32)>>,
    sessions_ns: Option<u64>,
}

impl Idle {
    /// When `remove_idle` must be called next, in ns.
    pub fn next_deadline(&self) -> Option<u64> {
        let record = self.records.peek().map(|Reverse((at, ..))| *at);
        [record, self.sessions_ns].into_iter().flatten().min()
    }

    fn pop(&mut self, now_ns: u64) -> Option<(u32, u32)> {
        if self.records.peek().is_none_or(|Reverse((at, ..))| *at > now_ns) {
            return None;
        }
        let Reverse((_, slot, generation)) = self.records.pop()?;
        Some((slot, generation))
    }
}

/// How long a record, with its pair, must be unused to be removed, in ns; `None`: it never is.
fn unused_limit_ns(records: &Records, record: &Record) -> Option<u64> {
    if records.is_gone(record) {
        return Some(0);
    }
    let settings = records.settings(record.object);
    let pair = record.pair.map_or(Flags::NONE, |pair| records.get(pair).phase);
    // What both directions say goes for the binding; that one is closed does, too.
    let (either, both) = match record.pair {
        None => (record.phase, record.phase.and(Flags::HALF_OPEN)),
        Some(_) => (record.phase.with(pair), record.phase.and(pair)),
    };
    let idle_ns = settings.idle_ns(record.key.as_slice());
    if either.contains(Flags::CLOSED) || both.contains(Flags::HALF_CLOSED) {
        Some(settings.closed_ns)
    } else if both.contains(Flags::HALF_OPEN) {
        Some(idle_ns.unwrap_or(u64::MAX).min(settings.half_open_ns))
    } else {
        idle_ns
    }
}

impl Replica {
    /// Watches a new record (of a pair, the primary one) from now on.
    pub(super) fn watch_idle(&mut self, now_ns: u64, slot: u32) {
        let record = self.chain.state().get(slot);
        let (at, generation) =
            (now_ns + self.look_every_ns(record).min(FIRST_LOOK_NS), record.generation);
        self.idle.records.push(Reverse((at, slot, generation)));
    }

    /// Watches all records, and all sessions: this server has become the head.
    pub(super) fn watch_everything(&mut self, now_ns: u64) {
        self.idle = Idle::default();
        let slots: Vec<u32> = self.chain.state().watched().map(|(slot, _)| slot).collect();
        let all = slots.len().max(1) as u64;
        for (slot, at) in slots.into_iter().zip(1..) {
            // One after the other, as it knows of none whether its owner has it: all at once would
            // be a wave of questions.
            let record = self.chain.state().get(slot);
            let first_ns = now_ns.saturating_add(self.look_every_ns(record) / all * at);
            self.idle.records.push(Reverse((first_ns, slot, record.generation)));
        }
        self.watch_gone();
        self.watch_sessions(now_ns);
    }

    /// Looks at all conversations whose backend is gone, now and until they are taken away.
    pub(super) fn watch_gone(&mut self) {
        // Their entries are moved: one more for each would stay for as long as its conversation.
        let mut entries = std::mem::take(&mut self.idle.records).into_vec();
        for Reverse((at, slot, generation)) in &mut entries {
            let record = self.chain.state().current(*slot, *generation);
            if record.is_some_and(|record| self.chain.state().is_gone(record)) {
                *at = AT_ONCE_NS;
            }
        }
        self.idle.records = entries.into();
    }

    /// So often that no record is looked at later than it is due: a release, or the end of a
    /// session, begins a time that is at least this long.
    fn look_every_ns(&self, record: &Record) -> u64 {
        let settings = self.chain.state().settings(record.object);
        let idle_ns = settings.idle_ns(record.key.as_slice()).unwrap_or(u64::MAX);
        idle_ns.min(settings.closed_ns).min(settings.half_open_ns)
    }

    /// Looks at the sessions when the first of them can be forgotten.
    pub(super) fn watch_sessions(&mut self, now_ns: u64) {
        let ends = self.chain.state().sessions.iter().map(|(_, session)| session.lease_until_ns);
        self.idle.sessions_ns =
            ends.min().map(|end| (end + SESSION_FORGOTTEN_NS).max(now_ns + RETRY_NS));
    }

    /// Removes what is due.
    pub(super) fn remove_idle(&mut self, now_ns: u64, out: &mut Outputs) {
        if self.idle.sessions_ns.is_some_and(|at| at <= now_ns) {
            self.forget_sessions(now_ns, out);
        }
        for _ in 0..BATCH {
            let Some((slot, generation)) = self.idle.pop(now_ns) else { return };
            if let Some(again_ns) = self.look_whether_idle(now_ns, slot, generation, out) {
                self.idle.records.push(Reverse((again_ns, slot, generation)));
            }
        }
    }

    /// Removes a record if it is idle; otherwise says when to look again, in ns.
    fn look_whether_idle(
        &mut self,
        now_ns: u64,
        slot: u32,
        generation: u32,
        out: &mut Outputs,
    ) -> Option<u64> {
        let record = self.chain.state().current(slot, generation)?;
        let (every_ns, pair) = (self.look_every_ns(record), record.pair);
        let later_ns = now_ns.saturating_add(every_ns);
        let limit_ns = unused_limit_ns(self.chain.state(), record);
        let gone = self.chain.state().is_gone(record);
        let mut unused_since_ns = 0;
        let mut recalled = false;
        // What was counted for a key goes together, or a query would find some of it for long. What
        // does not count, being of an older window, is a record like any other.
        let mut contributions = self.chain.state().contributions(slot);
        contributions
            .retain(|other| self.chain.state().counts(slot) && self.chain.state().counts(*other));
        let others = contributions.iter().copied().filter(|other| *other != slot);
        for part in [Some(slot), pair].into_iter().flatten().chain(others) {
            if self.chain.state().is_owned(self.chain.state().get(part))
                && !mutation::planted(Mutation::OwnedFreed)
            {
                if !gone {
                    return Some(self.look_whether_held(now_ns, slot, later_ns, out));
                }
                if !self.is_serving(now_ns) {
                    return Some(now_ns + RETRY_NS);
                }
                self.recall_for_removal(now_ns, part, out);
                recalled = true;
                continue;
            }
            let record = self.chain.state_mut().get_mut(part);
            if record.unused_since_ns == 0 {
                record.unused_since_ns = now_ns;
            }
            unused_since_ns = unused_since_ns.max(record.unused_since_ns);
        }
        if recalled {
            return Some(now_ns + RETRY_NS);
        }
        let Some(limit_ns) = limit_ns else { return Some(later_ns) };
        let due_ns = unused_since_ns.saturating_add(limit_ns);
        if due_ns > now_ns {
            return Some(due_ns.min(later_ns));
        }
        let mut parts = [Some(slot), pair].into_iter().flatten().chain(contributions.clone());
        let concerned = parts.any(|part| self.waiting.concerns(part));
        if concerned || self.chain.is_backed_up() || !self.is_serving(now_ns) {
            return Some(now_ns + RETRY_NS);
        }
        contributions.into_iter().filter(|other| *other != slot).for_each(|other| {
            self.free(other, out);
        });
        self.free(slot, out);
        if gone {
            self.counters.conversations_dropped += 1;
        }
        None
    }

    /// Of a record that is somebody's, or its pair is: asks whether they have it, where that is in
    /// doubt. Says when to look again, in ns.
    fn look_whether_held(
        &mut self,
        now_ns: u64,
        slot: u32,
        later_ns: u64,
        out: &mut Outputs,
    ) -> u64 {
        let pair = self.chain.state().get(slot).pair;
        let mut again_ns = later_ns;
        for part in [Some(slot), pair].into_iter().flatten() {
            if self.is_doubtful(now_ns, part) && self.is_serving(now_ns) {
                self.probe(now_ns, part, out);
                again_ns = again_ns.min(now_ns + PROBE_AGAIN_NS);
            }
        }
        again_ns
    }

    /// Removes a record and its pair, which are nobody's.
    pub(super) fn free(&mut self, slot: u32, out: &mut Outputs) {
        let record = self.chain.state().get(slot);
        let pair = record.pair;
        let floor = record.epoch.max(pair.map_or(0, |pair| self.chain.state().get(pair).epoch));
        let (object_id, key) = (self.chain.state().settings(record.object).id, record.key.clone());
        self.counters.freed += 1 + u64::from(pair.is_some());
        self.reply.clear();
        self.commit(&Effect::Free { object_id, key: key.as_slice(), floor }, NOBODY, out);
    }

    fn forget_sessions(&mut self, now_ns: u64, out: &mut Outputs) {
        if !self.chain.is_backed_up() && self.is_serving(now_ns) {
            let over = |lease_until_ns: u64| lease_until_ns + SESSION_FORGOTTEN_NS <= now_ns;
            let sessions = self
                .chain
                .state()
                .sessions
                .iter()
                .filter(|(_, session)| over(session.lease_until_ns));
            let mut gone: Vec<u32> = sessions.map(|(_, session)| session.number).collect();
            gone.sort_unstable(); // a map's order is not the seed's
            for number in gone.into_iter().take(BATCH) {
                self.end_session(number, out);
            }
        }
        self.watch_sessions(now_ns);
    }
}
