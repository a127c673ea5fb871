//! The chain's fast path, as this replica takes part in it: which records the program on this host
//! may update, what it changed, and batches that it left to user space.
//! `docs/output-commit.md`, "The chain's fast path".

use super::records::Records;
use super::settings::{AllocatorSettings, Settings};
use super::waiting::Waiting;
use super::{Outputs, Replica, Role};
use chain::{Event, Steady};
use fast_chain::{Change, Entry, Memory, ObjectShape, Shape, ShardMirror, Standing};
use state_protocol::{phase_of, record_flags_of};
use std::net::SocketAddrV4;
use std::sync::Arc;
use wire::{Batch, BatchAck, BatchHead, BatchRecord, PORT, RecordFlags};

/// What the program has of a slot's record.
#[derive(Clone, Copy)]
struct Place {
    place: u32,
    generation: u32,
}

/// A replica's records as the program on this host finds them.
pub(super) struct Fast {
    mirror: ShardMirror,
    /// By slot.
    places: Vec<Option<Place>>,
}

impl Fast {
    pub(super) fn new(memory: &Arc<Memory>, shard: u16) -> Fast {
        let mirror = ShardMirror::new(Arc::clone(memory), shard);
        Fast { mirror, places: Vec::new() }
    }

    /// Takes the shard from the program, with all that it changed.
    pub(super) fn enter(&mut self, records: &mut Records, is_head: bool) {
        self.mirror.enter(|change| records.take_change(&change, is_head));
    }

    /// Gives the shard to the program, with all that changed here.
    pub(super) fn leave(
        &mut self,
        records: &mut Records,
        waiting: &Waiting,
        steady: Option<Steady>,
    ) {
        if !self.mirror.is_entered() {
            return;
        }
        let changed = match records.take_changed() {
            Changed::Slots(mut slots) => {
                slots.sort_unstable();
                slots.dedup();
                slots
            }
            Changed::Everything => {
                self.mirror.clear();
                self.places.clear();
                (0..records.slots()).collect()
            }
        };
        for slot in changed {
            self.publish(records, waiting, slot);
        }
        let standing =
            steady.map(|Steady { view, previous, next }| Standing { view, previous, next });
        self.mirror.leave(standing.as_ref());
    }

    fn publish(&mut self, records: &Records, waiting: &Waiting, slot: u32) {
        let at = slot as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, None);
        }
        let record = records.at(slot);
        let mut place = self.places[at];
        if let Some(old) = place
            && record.is_none_or(|record| record.generation != old.generation)
        {
            self.mirror.remove(old.place);
            place = None;
        }
        self.places[at] = None;
        let Some(record) = record else { return };
        // Who waits for an update is told by user space.
        let waited_for = waiting.len_of(slot) > 0;
        let owner = record.owner.map_or((0, 0), |owner| (owner.switch_id, owner.incarnation));
        let entry = Entry {
            slot,
            object_id: records.settings(record.object).id,
            epoch: record.epoch,
            seq: record.seq,
            owner,
            // (That session may be over: nobody else was given the flow.)
            session: if waited_for { 0 } else { record.session },
            flags: record_flags_of(record.phase).0,
            key: record.key.as_slice(),
            value: record.value.as_slice(),
        };
        let place = self.mirror.put(place.map(|it| it.place), &entry);
        self.places[at] = place.map(|place| Place { place, generation: record.generation });
    }
}

/// What changed in the records since the program was told.
pub(super) enum Changed {
    /// These, which may come twice.
    Slots(Vec<u32>),
    /// All of them: those before are of no use.
    Everything,
}

impl Settings {
    /// The memory of a server's fast path: for so many records, at that address.
    pub fn fast_path(&self, records: u32, address: SocketAddrV4, seed: u64) -> Shape {
        let flows = self
            .objects
            .iter()
            .filter(|object| !matches!(object.allocator, AllocatorSettings::Snapshot { .. }));
        let objects = flows.map(|object| ObjectShape {
            id: object.id,
            key_bytes: object.key_bytes,
            value_bytes: object.value_bytes,
        });
        Shape { shards: self.shards, records, address, objects: objects.collect(), seed }
    }
}

impl Records {
    fn take_change(&mut self, change: &Change<'_>, is_head: bool) {
        let record = self.get_unnoted_mut(change.slot);
        let bytes = record.value.as_slice().len();
        record.value.set(&change.value[..bytes]);
        (record.seq, record.phase) = (change.seq, phase_of(RecordFlags(change.flags)));
        if is_head {
            (record.held_epoch, record.unused_since_ns) = (record.epoch, 0);
        }
    }

    /// An update that came by the fast path, at another member than the head. `false`: the record's
    /// grant is not here yet.
    fn may_take(&self, object: usize, key: &[u8], update: &BatchRecord<'_>) -> bool {
        self.find(object, key).is_none_or(|slot| update.epoch <= self.get(slot).epoch)
    }

    /// Takes it, if it is newer. What is not here any more was removed since.
    fn take_update(&mut self, object: usize, key: &[u8], value: &[u8], update: &BatchRecord<'_>) {
        let Some(slot) = self.find(object, key) else { return };
        let known = self.get(slot);
        if update.epoch != known.epoch || update.seq <= known.seq {
            return;
        }
        let record = self.get_mut(slot);
        record.value.set(value);
        (record.seq, record.phase) = (update.seq, phase_of(update.flags));
    }
}

impl Replica {
    /// A batch from the member before this one, which the program here did not take. It does what
    /// the program would have done.
    pub(super) fn passed_batch(
        &mut self,
        from: SocketAddrV4,
        batch: &Batch<'_>,
        datagram: &[u8],
        out: &mut Outputs,
    ) {
        let Some(steady) = self.chain.steady() else {
            if self.chain.keeps_journal() {
                // The members before have a fast path, and this one a log, which must have each
                // update first.
                out.events.push(Event::ConfigMismatch(from));
            }
            self.counters.passed_batches_dropped += 1;
            return;
        };
        let expected = steady.previous.is_some_and(|previous| previous.ip() == from.ip())
            && self.role() != Role::Head
            && steady.view == batch.head.view;
        if !expected || batch.head.shard != self.settings.shard {
            self.counters.passed_batches_dropped += 1;
            return;
        }
        if !self.take_passed(batch) {
            self.counters.passed_batches_dropped += 1;
            return;
        }
        self.counters.passed_batches += 1;
        match steady.next {
            Some(next) => out.push(next, datagram),
            None => {
                let head = BatchHead { view: 0, ..batch.head };
                // At most 64.
                let count = batch.records().count_left() as u16;
                self.reply.clear();
                BatchAck { head, count, refused: 0 }.append_to(&mut self.reply);
                out.push(SocketAddrV4::new(batch.head.client, PORT), &self.reply);
            }
        }
    }

    /// All of it, or nothing.
    fn take_passed(&mut self, batch: &Batch<'_>) -> bool {
        let records = self.chain.state_mut();
        let mut parts = Vec::with_capacity(batch.records().count_left());
        for update in batch.records() {
            let Some(object) = records.object(update.object_id) else { return false };
            let Some((key, value)) = records.key_and_value(object, &update) else { return false };
            if !records.may_take(object, key, &update) {
                return false;
            }
            parts.push((object, key, value, update));
        }
        for (object, key, value, update) in parts {
            records.take_update(object, key, value, &update);
        }
        true
    }
}
