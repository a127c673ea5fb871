//! The records of all objects and the sessions: the part of a server's state that all servers of a
//! chain share. Effects change them (`machine`).

use super::blob::Blob;
use super::fast::Changed;
use super::merge::{Merged, Merging};
use super::mutation::{self, Mutation};
use super::nat::NatKey;
use super::pool::Pool;
use super::sessions::Sessions;
use super::settings::{AllocatorSettings, ObjectSettings};
use super::snapshots::{Snapshot, Snapshots};
use chain::DoesNotApply;
use foldhash::fast::RandomState;
use state_protocol::{Effect, Flags, Owner, RecordWrite, SnapshotPart};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// One flow's state. The fields named so are the head's alone.
pub struct Record {
    /// Position of its object in the settings.
    pub object: usize,
    /// The flow's key.
    pub key: Blob,
    /// The recorded value.
    pub value: Blob,
    /// The current grant.
    pub epoch: u32,
    /// Sequence number of the recorded update.
    pub seq: u64,
    /// Who was granted it and has not released it. It is that switch's while `session` is the
    /// session that it has.
    pub owner: Option<Owner>,
    /// The owner's session when it was last granted or acknowledged; 0 without an owner.
    pub session: u32,
    /// `HALF_CLOSED`, `CLOSED`, `HALF_OPEN`: what the last release or update said of the
    /// connection.
    pub phase: Flags,
    /// The linked record: the other direction of a NAT binding.
    pub pair: Option<u32>,
    /// Of a pair, the one that was asked for.
    pub primary: bool,
    /// Head: when it was granted to another than before, in ns.
    pub granted_ns: u64,
    /// Head: the newest epoch of which the owner showed that it has it. Zero: none.
    pub held_epoch: u32,
    /// Head: the epoch that was released last, and the newest update that it brought. Epoch 0:
    /// none.
    pub released: (u32, u64),
    /// Head: since when, at the latest, it is nobody's and had no packet, in ns; 0: it is
    /// somebody's, or nobody looked yet.
    pub unused_since_ns: u64,
    /// Of a SnapshotState's record: its snapshots.
    pub snapshots: Option<Box<Snapshots>>,
    /// Head: under which grant and when the newest snapshot last went to a switch.
    pub snapshot_sent: (u32, u64),
    /// Tells the records that use one slot after another apart.
    pub generation: u32,
    live: bool,
}

impl Record {
    /// An effect writes the record. An update of the same grant may have overtaken it by the fast
    /// path, and stays.
    fn put(&mut self, write: &RecordWrite<'_>) {
        let overtaken = write.epoch == self.epoch && write.seq < self.seq;
        (self.owner, self.session) = (write.owner, write.session);
        let taken_back = mutation::planted(Mutation::EffectTakesBack)
            || mutation::planted(Mutation::OldUpdateOverwrites);
        if overtaken && !taken_back {
            return;
        }
        self.value.set(write.value);
        (self.epoch, self.seq, self.phase) = (write.epoch, write.seq, write.phase);
    }
}

pub(super) struct Table {
    /// Hosts choose the keys of their flows, so the hash has a random seed; it is one of the fast
    /// ones, as there are two look-ups an update and server.
    index: HashMap<Blob, u32, RandomState>,
    /// By messages' keys: what is merged of several records, where that is declared.
    merged: HashMap<Blob, Merged, RandomState>,
    pub(super) pool: Option<Pool>,
}

/// All records of a server.
pub struct Records {
    pub(super) objects: Vec<ObjectSettings>,
    pub(super) tables: Vec<Table>,
    slots: Vec<Record>,
    free: Vec<u32>,
    /// Who has a session.
    pub sessions: Sessions,
    /// No epoch of a removed record was higher, and no session's number: new records and sessions
    /// start above it, so that neither ever repeats.
    pub(super) floor: u32,
    /// What changed since the fast path's program was told; `None`: there is none.
    pub(super) changed: Option<Changed>,
}

impl Records {
    /// No records.
    pub fn new(objects: Vec<ObjectSettings>, epoch_base: u32) -> Records {
        let table = |object: &ObjectSettings| Table {
            index: HashMap::default(),
            merged: HashMap::default(),
            pool: Pool::new(&object.allocator),
        };
        let tables = objects.iter().map(table).collect();
        Records {
            objects,
            tables,
            slots: Vec::new(),
            free: Vec::new(),
            sessions: Sessions::default(),
            floor: epoch_base,
            changed: None,
        }
    }

    /// Notes from here on what changes, for the fast path.
    pub(super) fn watch_changes(&mut self) {
        self.changed = Some(Changed::Everything);
    }

    /// A slot's record changes: the fast path's program is to be told.
    #[inline]
    pub(super) fn note(&mut self, slot: u32) {
        if let Some(Changed::Slots(slots)) = &mut self.changed {
            slots.push(slot);
        }
    }

    /// What changed since the last call.
    pub(super) fn take_changed(&mut self) -> Changed {
        self.changed.replace(Changed::Slots(Vec::new())).unwrap_or(Changed::Slots(Vec::new()))
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The highest of all removed records' epochs and all sessions' numbers.
    pub fn floor(&self) -> u32 {
        self.floor
    }

    /// Whether the record is somebody's: its owner still has the session in which it was granted.
    pub fn is_owned(&self, record: &Record) -> bool {
        record.owner.is_some_and(|owner| self.sessions.is_current(&owner, record.session))
    }

    /// How many slots there are, used or not: those of `record_effect`.
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32 // slots are numbered in 32 bits
    }

    /// The slots that idle removal watches: of a pair only the primary one.
    pub fn watched(&self) -> impl Iterator<Item = (u32, &Record)> {
        (0..)
            .zip(&self.slots)
            .filter(|(_, record)| record.live && (record.primary || record.pair.is_none()))
    }

    /// Effects that describe the sessions and the newest lives of switches.
    pub fn session_effects(&self) -> impl Iterator<Item = Effect<'_>> {
        let nowhere = std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
        let past = self
            .sessions
            .lives()
            .filter(|(owner, session)| !self.sessions.is_current(owner, *session));
        let past = past.flat_map(move |(owner, session)| {
            [
                Effect::SessionBegin { session, owner, client: nowhere },
                Effect::SessionEnd { session },
            ]
        });
        let current = self.sessions.iter().map(|(owner, session)| Effect::SessionBegin {
            session: session.number,
            owner: *owner,
            client: session.client,
        });
        past.chain(current)
    }

    /// The effect that describes the record in a slot, with its pair; `None`: there is none, or its
    /// pair's effect describes it.
    pub fn record_effect(&self, slot: u32) -> Option<Effect<'_>> {
        let record = self.slots.get(slot as usize).filter(|record| record.live)?;
        match record.pair {
            None => Some(Effect::Write(self.describe(record))),
            Some(pair) if record.primary => Some(Effect::Pair {
                first: self.describe(record),
                second: self.describe(self.get(pair)),
            }),
            Some(_) => None,
        }
    }

    /// All replicated fields of a record.
    pub fn describe<'a>(&self, record: &'a Record) -> RecordWrite<'a> {
        RecordWrite {
            object_id: self.objects[record.object].id,
            epoch: record.epoch,
            seq: record.seq,
            owner: record.owner,
            session: record.session,
            phase: record.phase,
            key: record.key.as_slice(),
            value: record.value.as_slice(),
        }
    }

    /// The settings of an object, by position.
    pub fn settings(&self, object: usize) -> &ObjectSettings {
        &self.objects[object]
    }

    /// All objects' settings with their records and pools.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectSettings, usize, Option<&Pool>)> {
        self.objects
            .iter()
            .zip(&self.tables)
            .map(|(settings, table)| (settings, table.index.len(), table.pool.as_ref()))
    }

    /// Position of the object with that number.
    pub fn object(&self, id: u16) -> Option<usize> {
        self.objects.iter().position(|object| object.id == id)
    }

    /// Slot of the record with that key.
    pub fn find(&self, object: usize, key: &[u8]) -> Option<u32> {
        self.tables[object].index.get(key).copied()
    }

    /// The record in a slot, if there is one.
    pub fn at(&self, slot: u32) -> Option<&Record> {
        self.slots.get(slot as usize).filter(|record| record.live)
    }

    /// The record in a slot that `find` or `apply` gave.
    pub fn get(&self, slot: u32) -> &Record {
        &self.slots[slot as usize]
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, slot: u32) -> &mut Record {
        self.note(slot);
        &mut self.slots[slot as usize]
    }

    /// The same, for a change that the fast path's program made.
    pub(super) fn get_unnoted_mut(&mut self, slot: u32) -> &mut Record {
        &mut self.slots[slot as usize]
    }

    /// Forgets since when records have been unused, as a head that was none for a while must: only
    /// heads note it, and all may have been used since.
    pub fn forget_unused(&mut self) {
        self.slots.iter_mut().for_each(|record| record.unused_since_ns = 0);
    }

    /// The record in a slot, if it still is the one of that generation.
    pub fn current(&self, slot: u32, generation: u32) -> Option<&Record> {
        self.slots
            .get(slot as usize)
            .filter(|record| record.live && record.generation == generation)
    }

    /// The pool of an object, if it has one.
    pub fn pool(&self, object: usize) -> Option<&Pool> {
        self.tables[object].pool.as_ref()
    }

    /// The same, to change what the operator decides.
    pub fn pool_mut(&mut self, object: usize) -> Option<&mut Pool> {
        self.tables[object].pool.as_mut()
    }

    /// Whether a record is half of a conversation that is to be taken away, as its backend is gone.
    pub fn is_gone(&self, record: &Record) -> bool {
        let Some(Pool::Backends(pool)) = self.pool(record.object) else { return false };
        let Some(pair) = record.pair.filter(|_| pool.has_gone()) else { return false };
        let reverse = if record.primary { self.get(pair) } else { record };
        NatKey::from_bytes(reverse.key.as_slice()).is_some_and(|reverse| pool.is_gone(&reverse))
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.slots.iter().filter(|record| record.live)
    }

    pub(super) fn snapshot_part(&mut self, part: &SnapshotPart<'_>) -> Result<u32, DoesNotApply> {
        let object = self.checked_object(part.object_id, part.key, None)?;
        let AllocatorSettings::Snapshot { slots, slot_bytes, .. } = self.objects[object].allocator
        else {
            return Err(DoesNotApply);
        };
        let slot = self.find(object, part.key).ok_or(DoesNotApply)?;
        let record = &mut self.slots[slot as usize];
        let replaced = record.snapshots.get_or_insert_default().take(part, slots, slot_bytes);
        if replaced.is_some() {
            record.seq = record.seq.max(part.seq);
        }
        self.merge(slot, replaced, (part.epoch, part.seq));
        Ok(slot)
    }

    /// What several switches have counted for a key.
    pub fn merged(&self, object: usize, message_key: &[u8]) -> Option<&Merged> {
        self.tables[object].merged.get(message_key)
    }

    /// How an object's slots are merged, if they are.
    pub fn merging(&self, object: usize) -> Option<Merging> {
        match self.objects[object].allocator {
            AllocatorSettings::Snapshot { slot_bytes, merge: Some(settings), .. } => {
                Some(Merging { settings, slot_bytes })
            }
            _ => None,
        }
    }

    /// A part of a contribution came: if another snapshot of it was `replaced`, it is merged.
    fn merge(&mut self, slot: u32, replaced: Option<Option<Snapshot>>, part: (u32, u64)) {
        let record = &self.slots[slot as usize];
        let Some(by) = self.merging(record.object) else { return };
        let key = self.objects[record.object].message_key(record.key.as_slice());
        let whole = record.snapshots.as_ref().and_then(|it| it.whole.as_ref());
        let Some(whole) = whole else { return };
        let Some(merged) = self.tables[record.object].merged.get_mut(key) else { return };
        let again = mutation::planted(Mutation::SnapshotAddedTwice);
        match replaced {
            Some(before) => {
                let before = before.as_ref().map(|before| before.slots.as_slice());
                if !merged.replace(by, before, &whole.slots) {
                    self.merge_all(slot);
                }
            }
            None if again && part == (whole.epoch, whole.seq) => merged.add_again(by, &whole.slots),
            None => {}
        }
    }

    /// Merges all contributions to the key of which this record is one.
    fn merge_all(&mut self, slot: u32) {
        let record = &self.slots[slot as usize];
        let (object, settings) = (record.object, &self.objects[record.object]);
        let key = settings.message_key(record.key.as_slice());
        let (Some(by), Some(merged)) =
            (self.merging(object), self.tables[object].merged.get_mut(key))
        else {
            return;
        };
        let slots: Vec<u32> = merged.contributions.values().copied().collect();
        let wholes = slots.iter().filter_map(|slot| {
            let snapshots = self.slots[*slot as usize].snapshots.as_ref()?;
            Some(snapshots.whole.as_ref()?.slots.as_slice())
        });
        merged.make(by, wholes);
    }

    /// Does this contribution count in its key's merged slots?
    pub fn counts(&self, slot: u32) -> bool {
        let record = self.get(slot);
        let key = self.settings(record.object).message_key(record.key.as_slice());
        let whole = record.snapshots.as_ref().and_then(|it| it.whole.as_ref());
        match (self.merging(record.object), self.merged(record.object, key), whole) {
            (Some(by), Some(merged), Some(whole)) => {
                by.window(&whole.slots) == by.window(&merged.slots)
            }
            _ => false,
        }
    }

    /// The records of all contributions to the key of which this record is one; none, if it is
    /// none.
    pub fn contributions(&self, slot: u32) -> Vec<u32> {
        let record = self.get(slot);
        let key = self.settings(record.object).message_key(record.key.as_slice());
        let merged = self.merged(record.object, key);
        merged.map_or(vec![], |merged| merged.contributions.values().copied().collect())
    }

    /// A record was made or freed. If it is a contribution, its key's merged slots change.
    fn note_contribution(&mut self, slot: u32, is_there: bool) {
        let record = &self.slots[slot as usize];
        let (object, settings) = (record.object, &self.objects[record.object]);
        let Some(switch) = settings.contributor(record.key.as_slice()) else { return };
        let key = Blob::new(settings.message_key(record.key.as_slice()));
        let of_object = &mut self.tables[object].merged;
        if is_there {
            of_object.entry(key).or_default().contributions.insert(switch, slot);
            return;
        }
        let Some(merged) = of_object.get_mut(key.as_slice()) else { return };
        merged.contributions.remove(&switch);
        if merged.contributions.is_empty() {
            of_object.remove(key.as_slice());
        } else {
            self.merge_all(slot);
        }
    }

    /// The effects that describe the snapshots of the record in a slot; they come behind
    /// `record_effect`.
    pub fn snapshot_effects(&self, slot: u32) -> impl Iterator<Item = Effect<'_>> {
        let record = self.slots.get(slot as usize).filter(|record| record.live);
        record.into_iter().flat_map(|record| {
            let id = self.objects[record.object].id;
            record
                .snapshots
                .iter()
                .flat_map(move |snapshots| snapshots.effects(id, record.key.as_slice()))
        })
    }

    fn checked_object(
        &self,
        id: u16,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<usize, DoesNotApply> {
        let object = self.object(id).ok_or(DoesNotApply)?;
        let settings = &self.objects[object];
        let fits = key.len() == settings.record_key_bytes()
            && value.is_none_or(|value| value.len() == settings.value_bytes);
        if fits { Ok(object) } else { Err(DoesNotApply) }
    }

    pub(super) fn write(&mut self, write: &RecordWrite<'_>) -> Result<u32, DoesNotApply> {
        let object = self.checked_object(write.object_id, write.key, Some(write.value))?;
        Ok(self.put(object, write))
    }

    fn put(&mut self, object: usize, write: &RecordWrite<'_>) -> u32 {
        let Some(slot) = self.find(object, write.key) else {
            return self.insert(object, write);
        };
        self.get_mut(slot).put(write);
        slot
    }

    pub(super) fn pair(
        &mut self,
        first: &RecordWrite<'_>,
        second: &RecordWrite<'_>,
    ) -> Result<u32, DoesNotApply> {
        let object = self.checked_object(first.object_id, first.key, Some(first.value))?;
        if self.checked_object(second.object_id, second.key, Some(second.value))? != object {
            return Err(DoesNotApply);
        }
        let reverse = NatKey::from_bytes(second.key).ok_or(DoesNotApply)?;
        let slots = [self.find(object, first.key), self.find(object, second.key)];
        let pair_of = |slot: Option<u32>| slot.and_then(|slot| self.get(slot).pair);
        // Each is linked with the other, or with none.
        let linked = pair_of(slots[0]).is_some() || pair_of(slots[1]).is_some();
        let with_each_other = pair_of(slots[0]) == slots[1] && pair_of(slots[1]) == slots[0];
        if first.key == second.key
            || self.tables[object].pool.is_none()
            || (linked && !with_each_other)
        {
            return Err(DoesNotApply);
        }
        let (one, two) = (self.put(object, first), self.put(object, second));
        if !linked {
            (self.get_mut(one).pair, self.get_mut(one).primary) = (Some(two), true);
            self.get_mut(two).pair = Some(one);
            if let Some(pool) = &mut self.tables[object].pool {
                pool.insert(&reverse);
                if mutation::planted(Mutation::FreedTwice) {
                    pool.remove(&reverse);
                }
            }
        }
        Ok(one)
    }

    fn insert(&mut self, object: usize, write: &RecordWrite<'_>) -> u32 {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        let generation =
            self.slots.get(slot as usize).map_or(0, |old| old.generation.wrapping_add(1));
        let record = Record {
            object,
            key: Blob::new(write.key),
            value: Blob::new(write.value),
            epoch: write.epoch,
            seq: write.seq,
            owner: write.owner,
            session: write.session,
            phase: write.phase,
            pair: None,
            primary: false,
            granted_ns: 0,
            held_epoch: 0,
            released: (0, 0),
            unused_since_ns: 0,
            snapshots: None,
            snapshot_sent: (0, 0),
            generation,
            live: true,
        };
        self.tables[object].index.insert(record.key.clone(), slot);
        match self.slots.get_mut(slot as usize) {
            Some(old) => *old = record,
            None => self.slots.push(record),
        }
        self.note(slot);
        self.note_contribution(slot, true);
        slot
    }

    pub(super) fn remove_with_pair(
        &mut self,
        object_id: u16,
        key: &[u8],
        floor: u32,
    ) -> Result<(), DoesNotApply> {
        let object = self.checked_object(object_id, key, None)?;
        self.floor = self.floor.max(floor);
        let Some(slot) = self.find(object, key) else { return Ok(()) };
        if let Some(pair) = self.get(slot).pair {
            let reverse = if self.get(slot).primary { pair } else { slot };
            // A linked record's key was a NAT key when it was linked.
            if let Some(reverse) = NatKey::from_bytes(self.get(reverse).key.as_slice())
                && let Some(pool) = &mut self.tables[object].pool
                && !mutation::planted(Mutation::NeverFreed)
            {
                pool.remove(&reverse);
            }
            self.remove(pair);
        }
        self.remove(slot);
        Ok(())
    }

    fn remove(&mut self, slot: u32) {
        let record = self.get_mut(slot);
        record.live = false;
        let (object, key) = (record.object, record.key.clone());
        self.tables[object].index.remove(key.as_slice());
        self.free.push(slot);
        self.note_contribution(slot, false);
    }

    /// Digest of everything that all servers of a chain share; equal histories give equal digests.
    pub fn shared_digest(&self) -> u64 {
        self.digest(false)
    }

    /// Digest of the same and of the head's own fields.
    pub fn full_digest(&self) -> u64 {
        self.digest(true)
    }

    fn digest(&self, full: bool) -> u64 {
        let one = |record: &Record| {
            let mut hasher = DefaultHasher::new();
            (record.object, &record.key, &record.value, record.epoch, record.seq, record.owner)
                .hash(&mut hasher);
            (record.session, record.phase, record.primary).hash(&mut hasher);
            record.pair.map(|pair| &self.get(pair).key).hash(&mut hasher);
            record.snapshots.hash(&mut hasher);
            if full {
                (record.granted_ns, record.held_epoch, record.unused_since_ns).hash(&mut hasher);
                record.released.hash(&mut hasher);
            }
            hasher.finish()
        };
        // A sum does not depend on the order of the slots.
        let pools = self
            .tables
            .iter()
            .filter_map(|table| table.pool.as_ref())
            .map(|pool| pool.in_use() as u64);
        let others =
            [u64::from(self.floor).wrapping_mul(0x9e37_79b9_7f4a_7c15), self.sessions.digest(full)];
        self.iter().map(one).chain(pools).chain(others).fold(0, u64::wrapping_add)
    }
}
