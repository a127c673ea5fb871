//! The records of all objects, and how effects change them: the part of a server's state that all servers of a chain share.

use super::blob::Blob;
use super::nat::{NatKey, PortPool};
use super::settings::{AllocatorSettings, ObjectSettings};
use state_protocol::{Effect, Owner, RecordWrite};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// One flow's state. The last four fields are the head's alone.
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
    /// Who holds, or last held, the lease.
    pub owner: Option<Owner>,
    /// The linked record: the other direction of a NAT binding.
    pub pair: Option<u32>,
    /// Of a pair, the one that was asked for.
    pub primary: bool,
    /// Head: the lease is over at this time, in ns.
    pub lease_until_ns: u64,
    /// Head: when the owner was last heard of, in ns.
    pub last_used_ns: u64,
    /// Tells the records that use one slot after another apart.
    pub generation: u32,
    live: bool,
}

struct Table {
    index: HashMap<Blob, u32>,
    pool: Option<PortPool>,
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
    /// No epoch of a removed record was higher: new records start above it, so that a key's epochs never repeat.
    epoch_floor: u32,
}

impl Records {
    /// No records.
    pub fn new(objects: Vec<ObjectSettings>, epoch_base: u32) -> Records {
        let table = |object: &ObjectSettings| {
            let pool = match &object.allocator {
                AllocatorSettings::Zero { .. } => None,
                AllocatorSettings::NatPorts(nat) => {
                    Some(PortPool::new(nat.external.iter().map(|a| a.to_bits()).collect(), nat.ports.clone()))
                }
            };
            Table { index: HashMap::new(), pool }
        };
        let tables = objects.iter().map(table).collect();
        Records { objects, tables, slots: Vec::new(), free: Vec::new(), epoch_floor: epoch_base }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The highest epoch of all removed records.
    pub fn epoch_floor(&self) -> u32 {
        self.epoch_floor
    }

    /// The settings of an object, by position.
    pub fn settings(&self, object: usize) -> &ObjectSettings {
        &self.objects[object]
    }

    /// All objects' settings with their records and external ports in use.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectSettings, usize, Option<usize>)> {
        self.objects
            .iter()
            .zip(&self.tables)
            .map(|(settings, table)| (settings, table.index.len(), table.pool.as_ref().map(PortPool::in_use)))
    }

    /// Position of the object with that number.
    pub fn object(&self, id: u16) -> Option<usize> {
        self.objects.iter().position(|object| object.id == id)
    }

    /// Slot of the record with that key.
    pub fn find(&self, object: usize, key: &[u8]) -> Option<u32> {
        self.tables[object].index.get(key).copied()
    }

    /// The record in a slot that `find` or `apply` gave.
    pub fn get(&self, slot: u32) -> &Record {
        &self.slots[slot as usize]
    }

    /// The same, to change the head's own fields.
    pub fn get_mut(&mut self, slot: u32) -> &mut Record {
        &mut self.slots[slot as usize]
    }

    /// The record in a slot, if it still is the one of that generation.
    pub fn current(&self, slot: u32, generation: u32) -> Option<&Record> {
        self.slots.get(slot as usize).filter(|record| record.live && record.generation == generation)
    }

    /// The pool of an object, if it has one.
    pub fn pool(&self, object: usize) -> Option<&PortPool> {
        self.tables[object].pool.as_ref()
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.slots.iter().filter(|record| record.live)
    }

    /// Carries out an effect; returns the slot of the record that it wrote. On error nothing has changed.
    pub fn apply(&mut self, effect: &Effect<'_>) -> Result<Option<u32>, DoesNotApply> {
        match effect {
            Effect::None => Ok(None),
            Effect::Write(write) => self.write(write).map(Some),
            Effect::Pair { first, second_key, second_value } => self.pair(first, second_key, second_value).map(Some),
            Effect::Free { object_id, key } => self.remove_with_pair(*object_id, key).map(|()| None),
        }
    }

    fn checked_object(&self, id: u16, key: &[u8], value: Option<&[u8]>) -> Result<usize, DoesNotApply> {
        let object = self.object(id).ok_or(DoesNotApply)?;
        let settings = &self.objects[object];
        let fits = key.len() == settings.key_bytes && value.is_none_or(|value| value.len() == settings.value_bytes);
        if fits { Ok(object) } else { Err(DoesNotApply) }
    }

    fn write(&mut self, write: &RecordWrite<'_>) -> Result<u32, DoesNotApply> {
        let object = self.checked_object(write.object_id, write.key, Some(write.value))?;
        let Some(slot) = self.find(object, write.key) else {
            return Ok(self.insert(object, write));
        };
        let record = &mut self.slots[slot as usize];
        record.value.set(write.value);
        (record.epoch, record.seq, record.owner) = (write.epoch, write.seq, write.owner);
        Ok(slot)
    }

    fn pair(&mut self, first: &RecordWrite<'_>, key: &[u8], value: &[u8]) -> Result<u32, DoesNotApply> {
        let object = self.checked_object(first.object_id, first.key, Some(first.value))?;
        self.checked_object(first.object_id, key, Some(value))?;
        let reverse = NatKey::from_bytes(key).ok_or(DoesNotApply)?;
        let exists = self.find(object, first.key).is_some() || self.find(object, key).is_some() || first.key == key;
        if exists || self.tables[object].pool.is_none() {
            return Err(DoesNotApply);
        }
        let second =
            RecordWrite { key, value, owner: None, epoch: first.epoch.checked_sub(1).ok_or(DoesNotApply)?, ..*first };
        let (one, two) = (self.insert(object, first), self.insert(object, &second));
        self.get_mut(one).pair = Some(two);
        self.get_mut(one).primary = true;
        self.get_mut(two).pair = Some(one);
        if let Some(pool) = &mut self.tables[object].pool {
            pool.insert(&reverse);
        }
        Ok(one)
    }

    fn insert(&mut self, object: usize, write: &RecordWrite<'_>) -> u32 {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        let generation = self.slots.get(slot as usize).map_or(0, |old| old.generation.wrapping_add(1));
        let record = Record {
            object,
            key: Blob::new(write.key),
            value: Blob::new(write.value),
            epoch: write.epoch,
            seq: write.seq,
            owner: write.owner,
            pair: None,
            primary: false,
            lease_until_ns: 0,
            last_used_ns: 0,
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

    fn remove_with_pair(&mut self, object_id: u16, key: &[u8]) -> Result<(), DoesNotApply> {
        let object = self.checked_object(object_id, key, None)?;
        let slot = self.find(object, key).ok_or(DoesNotApply)?;
        if let Some(pair) = self.get(slot).pair {
            let reverse = if self.get(slot).primary { pair } else { slot };
            let reverse = NatKey::from_bytes(self.get(reverse).key.as_slice()).ok_or(DoesNotApply)?;
            if let Some(pool) = &mut self.tables[object].pool {
                pool.remove(&reverse);
            }
            self.remove(pair);
        }
        self.remove(slot);
        Ok(())
    }

    fn remove(&mut self, slot: u32) {
        let record = &mut self.slots[slot as usize];
        self.epoch_floor = self.epoch_floor.max(record.epoch);
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
            (record.object, &record.key, &record.value, record.epoch, record.seq, record.owner).hash(&mut hasher);
            record.pair.map(|pair| &self.get(pair).key).hash(&mut hasher);
            if full {
                (record.lease_until_ns, record.last_used_ns).hash(&mut hasher);
            }
            hasher.finish()
        };
        // A sum does not depend on the order of the slots.
        let pools = self.tables.iter().filter_map(|table| table.pool.as_ref()).map(|pool| pool.in_use() as u64);
        self.iter().map(one).chain(pools).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::settings::{IdleNs, NatSettings};
    use std::net::Ipv4Addr;

    fn records() -> Records {
        let idle_ns = IdleNs { tcp: 1, udp: 1, icmp: 1, other: 1 };
        let nat = NatSettings { external: vec![Ipv4Addr::new(203, 0, 113, 1)], ports: 1024..=65535, idle_ns };
        let object = |id, key_bytes, value_bytes, allocator| ObjectSettings {
            name: "o".to_owned(),
            id,
            key_bytes,
            value_bytes,
            allocator,
        };
        let zero = AllocatorSettings::Zero { idle_ns: None };
        Records::new(vec![object(1, 2, 4, zero), object(2, 13, 6, AllocatorSettings::NatPorts(nat))], 100)
    }

    fn write<'a>(object_id: u16, key: &'a [u8], value: &'a [u8], epoch: u32) -> RecordWrite<'a> {
        RecordWrite { object_id, epoch, seq: 0, owner: None, key, value }
    }

    #[test]
    fn writes_create_and_replace() {
        let mut records = records();
        let slot = records.apply(&Effect::Write(write(1, b"ab", b"1234", 101))).unwrap().unwrap();
        assert_eq!(records.apply(&Effect::Write(write(1, b"ab", b"5678", 102))), Ok(Some(slot)));
        assert_eq!((records.get(slot).value.as_slice(), records.get(slot).epoch), (&b"5678"[..], 102));
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
            Effect::Free { object_id: 1, key: b"xx" },
            Effect::Pair { first: write(1, b"cd", b"1234", 1), second_key: b"ef", second_value: b"1234" },
        ] {
            assert_eq!(records.apply(&bad), Err(DoesNotApply));
            assert_eq!(records.full_digest(), before);
        }
    }

    #[test]
    fn a_pair_is_made_and_freed_together_and_epochs_never_repeat() {
        let mut records = records();
        let forward = NatKey { source: 1, destination: 2, source_port: 3, destination_port: 4, protocol: 6 };
        let reverse = forward.reverse(0xcb007101, 5000);
        let (forward, reverse) = (forward.to_bytes(), reverse.to_bytes());
        let effect =
            Effect::Pair { first: write(2, &forward, b"aaaabb", 101), second_key: &reverse, second_value: b"ccccdd" };
        let empty = records.shared_digest();
        let slot = records.apply(&effect).unwrap().unwrap();
        let other = records.get(slot).pair.unwrap();
        assert_eq!((records.get(slot).epoch, records.get(other).epoch), (101, 100));
        assert_eq!(records.pool(1).unwrap().in_use(), 1);
        assert_eq!(records.apply(&effect), Err(DoesNotApply));
        records.get_mut(other).epoch = 107;
        records.apply(&Effect::Free { object_id: 2, key: &reverse }).unwrap();
        assert_eq!((records.len(), records.pool(1).unwrap().in_use()), (0, 0));
        assert_eq!(records.epoch_floor(), 107);
        assert_eq!(records.shared_digest(), empty);
        assert!(records.current(slot, 0).is_none());
    }
}
