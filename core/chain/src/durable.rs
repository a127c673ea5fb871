//! A replica's side of durability: what it writes down, and what waits until that is durable.
//! The README names the page with the rules.
//!
//! An entry goes to the successor, and its answer to the client, only when it is durable here. So
//! whatever a successor has is durable at all servers before it, and an answer is durable on all.

use crate::copy::CopyIn;
use crate::journal::{Item, RestoredReplica, effect_bytes};
use crate::log::Log;
use crate::{BrokenReason, Entries, Outputs, Replica, StateMachine};
use std::collections::VecDeque;

/// What a replica that keeps a journal knows of it.
#[derive(Default)]
pub(crate) struct Durability {
    /// Items since the last `drain`.
    bytes: Vec<u8>,
    scratch: Vec<u8>,
    /// The last entry that is durable here.
    durable: u64,
    /// With which ticket which entry becomes durable.
    pending: VecDeque<(u64, u64)>,
    /// It was read from the journal, and nothing came from the predecessor since: that one may
    /// believe that more is here.
    pub resumed: bool,
    /// It was read from the journal, and is in no view yet.
    pub restored: bool,
    since: u64,
    /// Something may leave only when it is durable.
    barrier: bool,
}

impl<S: StateMachine> Replica<S> {
    /// Writes down what happens from here on.
    pub fn keep_journal(&mut self) {
        self.durability = Some(Durability::default());
    }

    /// Whether it does.
    pub fn keeps_journal(&self) -> bool {
        self.durability.is_some()
    }

    /// Goes on with what was written down. Must be in no view yet.
    pub fn restore(&mut self, replica: RestoredReplica<S>) {
        let RestoredReplica { since, synced, index, committed, state, kept, .. } = replica;
        self.log = Log::new(kept.front().map_or(index + 1, |(first, _)| *first));
        for (_, entry) in kept {
            self.log.push(entry);
        }
        self.state = state;
        (self.index, self.committed, self.synced) = (index, committed, synced);
        // Its copy, if it joined, is done.
        self.copy_in = (since > 0).then(|| CopyIn { next: u64::MAX, ..CopyIn::new(since) });
        self.durability = Some(Durability {
            durable: index,
            resumed: true,
            restored: true,
            since,
            ..Durability::default()
        });
    }

    /// The last entry that may leave this server, or be answered.
    pub(crate) fn durable(&self) -> u64 {
        self.durability.as_ref().map_or(self.index, |durability| durability.durable)
    }

    /// A replica begins: without state, or, if `since` is not 0, to join.
    pub(crate) fn journal_begin(&mut self, founded: u64, since: u64) {
        let shard = self.settings.shard;
        let Some(durability) = &mut self.durability else { return };
        (durability.since, durability.durable, durability.barrier) = (since, 0, true);
        durability.pending.clear();
        Item::Begin { shard, founded, since }.append_to(&mut durability.bytes);
    }

    /// The newest entry, whose effect that is.
    pub(crate) fn journal_entry(&mut self, effect: S::Effect<'_>) {
        let (shard, index, committed) = (self.settings.shard, self.index, self.committed);
        let Some(durability) = &mut self.durability else { return };
        effect_bytes::<S>(effect, &mut durability.scratch);
        Item::Entry { shard, index, committed, entry: &durability.scratch }
            .append_to(&mut durability.bytes);
    }

    /// Part of a copy.
    pub(crate) fn journal_copied(&mut self, entry: &[u8]) {
        let shard = self.settings.shard;
        if let Some(durability) = &mut self.durability {
            Item::Copied { shard, entry }.append_to(&mut durability.bytes);
        }
    }

    /// The replica is synced: nobody hears of it before it is durable.
    pub(crate) fn journal_synced(&mut self) {
        let (shard, index) = (self.settings.shard, self.index);
        if let Some(durability) = &mut self.durability {
            durability.barrier = true;
            Item::Whole { shard, index }.append_to(&mut durability.bytes);
        }
    }

    /// Describes the replica anew, so that what was written of it before can go.
    pub fn checkpoint(&mut self) {
        let (shard, founded, synced, index) =
            (self.settings.shard, self.view.founded, self.synced, self.index);
        let Some(durability) = &mut self.durability else { return };
        let Durability { bytes, scratch, since, .. } = durability;
        Item::Checkpoint { shard, founded, since: *since, synced, index }.append_to(bytes);
        for effect in self.state.effects() {
            effect_bytes::<S>(effect, scratch);
            Item::Copied { shard, entry: scratch }.append_to(bytes);
        }
        for index in self.log.first()..=self.log.last() {
            let Some(entry) = self.log.at(index).and_then(|bytes| Entries::<S>::one(bytes).ok())
            else {
                continue;
            };
            effect_bytes::<S>(entry.effect, scratch);
            Item::Kept { shard, index, entry: scratch }.append_to(bytes);
        }
        Item::Checkpointed { shard }.append_to(bytes);
    }

    /// Moves what is to be written to `out`; it becomes durable with `ticket`. Whether there was
    /// anything.
    pub fn drain_journal(&mut self, ticket: u64, out: &mut Outputs) -> bool {
        let Some(durability) =
            self.durability.as_mut().filter(|durability| !durability.bytes.is_empty())
        else {
            return false;
        };
        out.journal.append(&mut durability.bytes);
        out.barrier |= std::mem::take(&mut durability.barrier);
        durability.pending.push_back((ticket, self.index));
        true
    }

    /// Everything up to `ticket` is durable: what waited for it goes on. Whether anything did.
    pub fn became_durable(&mut self, ticket: u64, out: &mut Outputs) -> bool {
        let Some(durability) = &mut self.durability else { return false };
        let before = durability.pending.len();
        while let Some((_, index)) = durability.pending.front().filter(|(at, _)| *at <= ticket) {
            durability.durable = *index;
            durability.pending.pop_front();
        }
        if durability.pending.len() == before {
            return false;
        }
        if self.broken.is_none() {
            self.answer_what_nobody_follows(out);
        }
        true
    }

    /// A replica that was joining when it lost power lacks what it was not sent again: another
    /// attempt has to be made.
    pub fn give_up_joining(&mut self) {
        // Nothing that an operator has to know of.
        self.broken = Some(BrokenReason::CopyCutShort);
    }
}
