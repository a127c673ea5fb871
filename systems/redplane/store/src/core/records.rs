//! The records of all objects and the sessions, and how effects change them: the part of a server's
//! state that all servers of a chain share.
//!
//! Effects describe what is to be, completely, so one that is applied again changes nothing, and
//! `Records::effects` describes a whole shard.

use super::blob::Blob;
use super::mutation::{self, Mutation};
use super::nat::NatKey;
use super::pool::Pool;
use super::sessions::Sessions;
use super::settings::{AllocatorSettings, ObjectSettings};
use super::snapshots::Snapshots;
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

struct Table {
    /// Hosts choose the keys of their flows, so the hash has a random seed; it is one of the fast
    /// ones, as there are two look-ups an update and server.
    index: HashMap<Blob, u32, RandomState>,
    pool: Option<Pool>,
}

/// An effect that does not fit the records: it did not come from a head with the same history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoesNotApply;

/// All records of a server.
pub struct Records {
    objects: Vec<ObjectSettings>,
    tables: Vec<Table>,
    slots: Vec<Record>,
    free: Vec<u32>,
    /// Who has a session.
    pub sessions: Sessions,
    /// No epoch of a removed record was higher, and no session's number: new records and sessions
    /// start above it, so that neither ever repeats.
    floor: u32,
}

impl Records {
    /// No records.
    pub fn new(objects: Vec<ObjectSettings>, epoch_base: u32) -> Records {
        let table = |object: &ObjectSettings| Table {
            index: HashMap::default(),
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
        }
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

    /// Effects that describe the whole shard, to be applied to empty records.
    pub fn effects(&self) -> impl Iterator<Item = Effect<'_>> {
        let floor = std::iter::once(Effect::Floor { floor: self.floor });
        let records = (0..self.slots()).flat_map(|slot| {
            self.record_effect(slot).into_iter().chain(self.snapshot_effects(slot))
        });
        floor.chain(self.session_effects()).chain(records)
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

    /// The same, to change the head's own fields.
    pub fn get_mut(&mut self, slot: u32) -> &mut Record {
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

    /// Carries out an effect; returns the slot of the record that it wrote. On error nothing has
    /// changed.
    pub fn apply(&mut self, effect: &Effect<'_>) -> Result<Option<u32>, DoesNotApply> {
        match effect {
            Effect::None => Ok(None),
            Effect::Write(write) => self.write(write).map(Some),
            Effect::Pair { first, second } => self.pair(first, second).map(Some),
            Effect::Free { object_id, key, floor } => {
                self.remove_with_pair(*object_id, key, *floor).map(|()| None)
            }
            Effect::SessionBegin { session, owner, client } => {
                self.floor = self.floor.max(*session);
                self.sessions.begin(*session, *owner, *client);
                Ok(None)
            }
            Effect::SessionEnd { session } => {
                self.sessions.end(*session);
                Ok(None)
            }
            Effect::Snapshot(part) => self.snapshot_part(part).map(Some),
            Effect::Floor { floor } => {
                self.floor = self.floor.max(*floor);
                Ok(None)
            }
        }
    }

    fn snapshot_part(&mut self, part: &SnapshotPart<'_>) -> Result<u32, DoesNotApply> {
        let object = self.checked_object(part.object_id, part.key, None)?;
        let AllocatorSettings::Snapshot { slots, slot_bytes, .. } = self.objects[object].allocator
        else {
            return Err(DoesNotApply);
        };
        let slot = self.find(object, part.key).ok_or(DoesNotApply)?;
        let record = &mut self.slots[slot as usize];
        if record.snapshots.get_or_insert_default().take(part, slots, slot_bytes) {
            record.seq = record.seq.max(part.seq);
        }
        Ok(slot)
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
        let fits = key.len() == settings.key_bytes
            && value.is_none_or(|value| value.len() == settings.value_bytes);
        if fits { Ok(object) } else { Err(DoesNotApply) }
    }

    fn write(&mut self, write: &RecordWrite<'_>) -> Result<u32, DoesNotApply> {
        let object = self.checked_object(write.object_id, write.key, Some(write.value))?;
        Ok(self.put(object, write))
    }

    fn put(&mut self, object: usize, write: &RecordWrite<'_>) -> u32 {
        let Some(slot) = self.find(object, write.key) else {
            return self.insert(object, write);
        };
        let record = &mut self.slots[slot as usize];
        record.value.set(write.value);
        (record.epoch, record.seq, record.phase) = (write.epoch, write.seq, write.phase);
        (record.owner, record.session) = (write.owner, write.session);
        slot
    }

    fn pair(
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
                if mutation::is(Mutation::FreedTwice) {
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
        slot
    }

    fn remove_with_pair(
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
                && !mutation::is(Mutation::NeverFreed)
            {
                pool.remove(&reverse);
            }
            self.remove(pair);
        }
        self.remove(slot);
        Ok(())
    }

    fn remove(&mut self, slot: u32) {
        let record = &mut self.slots[slot as usize];
        record.live = false;
        self.tables[record.object].index.remove(record.key.as_slice());
        self.free.push(slot);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::settings::{AllocatorSettings, IdleNs, NatSettings};
    use std::net::Ipv4Addr;

    fn object(
        id: u16,
        key_bytes: usize,
        value_bytes: usize,
        allocator: AllocatorSettings,
    ) -> ObjectSettings {
        let name = "o".to_owned();
        ObjectSettings {
            name,
            id,
            key_bytes,
            value_bytes,
            allocator,
            closed_ns: 1,
            half_open_ns: 1,
        }
    }

    fn records() -> Records {
        let idle_ns = IdleNs { tcp: 1, udp: 1, icmp: 1, other: 1 };
        let nat = NatSettings {
            external: vec![Ipv4Addr::new(203, 0, 113, 1)],
            ports: 1024..=65535,
            idle_ns,
        };
        let zero = AllocatorSettings::Zero { idle_ns: None };
        Records::new(
            vec![object(1, 2, 4, zero), object(2, 13, 6, AllocatorSettings::NatPorts(nat))],
            100,
        )
    }

    fn write<'a>(object_id: u16, key: &'a [u8], value: &'a [u8], epoch: u32) -> RecordWrite<'a> {
        RecordWrite {
            object_id,
            epoch,
            seq: 0,
            owner: None,
            session: 0,
            phase: Flags::NONE,
            key,
            value,
        }
    }

    #[test]
    fn writes_create_and_replace() {
        let mut records = records();
        let slot = records.apply(&Effect::Write(write(1, b"ab", b"1234", 101))).unwrap().unwrap();
        assert_eq!(records.apply(&Effect::Write(write(1, b"ab", b"5678", 102))), Ok(Some(slot)));
        assert_eq!(
            (records.get(slot).value.as_slice(), records.get(slot).epoch),
            (&b"5678"[..], 102)
        );
        assert_eq!(records.len(), 1);
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut records = records();
        records.apply(&Effect::Write(write(1, b"ab", b"1234", 101))).unwrap();
        let before = records.full_digest();
        for bad in [
            Effect::Write(write(9, b"ab", b"1234", 1)),
            Effect::Write(write(1, b"abc", b"1234", 1)),
            Effect::Write(write(1, b"ab", b"123", 1)),
            Effect::Free { object_id: 1, key: b"xxx", floor: 900 },
            Effect::Pair {
                first: write(1, b"cd", b"1234", 1),
                second: write(1, b"ef", b"1234", 1),
            },
        ] {
            assert_eq!(records.apply(&bad), Err(DoesNotApply));
            assert_eq!(records.full_digest(), before);
        }
    }

    #[test]
    fn a_pair_is_made_and_freed_together_and_epochs_never_repeat() {
        let mut records = records();
        let forward =
            NatKey { source: 1, destination: 2, source_port: 3, destination_port: 4, protocol: 6 };
        let reverse = forward.reverse(0xcb007101, 5000);
        let (forward, reverse) = (forward.to_bytes(), reverse.to_bytes());
        let (first, second) =
            (write(2, &forward, b"aaaabb", 101), write(2, &reverse, b"ccccdd", 100));
        let effect = Effect::Pair { first, second };
        let slot = records.apply(&effect).unwrap().unwrap();
        let other = records.get(slot).pair.unwrap();
        assert_eq!((records.get(slot).epoch, records.get(other).epoch), (101, 100));
        let once = records.shared_digest();
        assert_eq!(records.apply(&effect), Ok(Some(slot)), "once more is the same");
        assert_eq!(
            (records.shared_digest(), records.pool(1).unwrap().in_use(), records.len()),
            (once, 1, 2)
        );
        let third = write(2, &[7; 13], b"ccccdd", 1);
        assert_eq!(
            records.apply(&Effect::Pair { first, second: third }),
            Err(DoesNotApply),
            "linked with another"
        );
        records.apply(&Effect::Write(RecordWrite { epoch: 107, ..second })).unwrap();
        assert_eq!(records.get(slot).pair, Some(other), "a write keeps the link");
        for _ in 0..2 {
            records.apply(&Effect::Free { object_id: 2, key: &reverse, floor: 107 }).unwrap();
            assert_eq!(
                (records.len(), records.pool(1).unwrap().in_use(), records.floor()),
                (0, 0, 107)
            );
        }
        assert!(records.current(slot, 0).is_none());
    }

    #[test]
    fn a_record_that_a_copy_gives_again_leaves_the_floor() {
        let mut records = records();
        records.apply(&Effect::Write(write(1, b"ab", b"1234", 107))).unwrap();
        let before = records.shared_digest();
        records.apply(&Effect::Free { object_id: 1, key: b"ab", floor: 0 }).unwrap();
        records.apply(&Effect::Write(write(1, b"ab", b"1234", 107))).unwrap();
        assert_eq!((records.floor(), records.shared_digest()), (100, before));
    }

    #[test]
    fn a_records_description_makes_the_same_records() {
        let mut original = records();
        let owner = |incarnation| Owner { switch_id: 1, incarnation };
        let client = std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5407);
        let forward =
            NatKey { source: 1, destination: 2, source_port: 3, destination_port: 4, protocol: 6 };
        let reverse = forward.reverse(0xcb007101, 5000);
        let (forward, reverse) = (forward.to_bytes(), reverse.to_bytes());
        for effect in [
            Effect::SessionBegin { session: 103, owner: owner(4), client },
            Effect::SessionBegin { session: 105, owner: owner(5), client },
            Effect::SessionEnd { session: 103 },
            Effect::SessionBegin {
                session: 106,
                owner: Owner { switch_id: 2, incarnation: 9 },
                client,
            },
            Effect::SessionEnd { session: 106 },
            Effect::Write(RecordWrite {
                owner: Some(owner(5)),
                session: 105,
                ..write(1, b"ab", b"1234", 101)
            }),
            Effect::Write(RecordWrite {
                phase: Flags::CLOSED,
                seq: 9,
                ..write(1, b"ef", b"5678", 101)
            }),
            Effect::Write(write(1, b"cd", b"1234", 101)),
            Effect::Free { object_id: 1, key: b"cd", floor: 101 },
            Effect::Pair {
                first: write(2, &forward, b"aaaabb", 107),
                second: write(2, &reverse, b"ccccdd", 107),
            },
        ] {
            original.apply(&effect).unwrap();
        }
        let mut copy = records();
        // Half of it early: what is copied twice, or changes between, does no harm.
        for effect in original.effects().take(4).chain(original.effects()) {
            copy.apply(&effect).unwrap();
        }
        assert_eq!(copy.shared_digest(), original.shared_digest());
        assert_eq!((copy.floor(), copy.len(), copy.pool(1).unwrap().in_use()), (106, 4, 1));
        assert!(copy.sessions.may_begin(&owner(4), 1).is_err());
    }

    #[test]
    fn backends_conversations_are_counted_from_the_records() {
        use crate::core::backends::{Backend, Backends};
        use crate::core::pool::Pool;
        use crate::core::{BackendPolicy, BackendSettings};
        let idle_ns = IdleNs { tcp: 1, udp: 1, icmp: 1, other: 1 };
        let allocator = AllocatorSettings::Backends(BackendSettings {
            policy: BackendPolicy::LeastConnections,
            idle_ns,
        });
        let object = object(1, 13, 6, allocator);
        let fresh = || {
            let mut records = Records::new(vec![object.clone()], 100);
            let Some(Pool::Backends(pool)) = records.pool_mut(0) else { panic!("no backends") };
            let backend = |last: u8| Backend {
                address: std::net::SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), 80),
                weight: 1,
                drained: false,
                health: crate::core::backends::Health::Up,
            };
            let list = Backends::new(BackendPolicy::LeastConnections, vec![backend(1), backend(2)]);
            pool.set_backends(list.into());
            records
        };
        let counts = |records: &Records| -> Vec<usize> {
            let Some(Pool::Backends(pool)) = records.pool(0) else { panic!("no backends") };
            pool.status().iter().map(|backend| backend.conversations).collect()
        };
        let mut records = fresh();
        let mut rng = crate::core::SplitMix64::new(1);
        let mut keys = Vec::new();
        for source_port in 0..10 {
            let key = NatKey {
                source: 1,
                destination: 2,
                source_port,
                destination_port: 80,
                protocol: 6,
            };
            let binding = records.pool(0).unwrap().choose(&key, &mut rng, |_| false).unwrap();
            let key = key.to_bytes();
            let first = write(1, &key, &binding.value, 101);
            let second = write(1, &binding.reverse_key, &binding.reverse_value, 100);
            assert_eq!(binding.reverse_value, [0, 0, 0, 2, 0, 80], "what the client asked");
            // Twice: an effect that comes again counts once.
            for _ in 0..2 {
                records.apply(&Effect::Pair { first, second }).unwrap();
            }
            keys.push((key, binding.reverse_key));
        }
        assert_eq!(counts(&records), [5, 5]);
        // By either of its keys.
        for (at, (key, reverse)) in keys.iter().take(4).enumerate() {
            let key = if at % 2 == 0 { key } else { reverse };
            records.apply(&Effect::Free { object_id: 1, key, floor: 0 }).unwrap();
        }
        assert_eq!(counts(&records).iter().sum::<usize>(), 6);
        // A server that takes over from a copy counts the same.
        let mut copy = fresh();
        for effect in records.effects() {
            copy.apply(&effect).unwrap();
        }
        assert_eq!(counts(&copy), counts(&records));
        assert_eq!(copy.shared_digest(), records.shared_digest());
    }
}
