//! User space's side: a shard's records as the program finds them.

use crate::layouts::{
    FastRecord, FastShard, MOST_CONTENT_WORDS, STANDING_HEAD, STANDING_ON, STANDING_TAIL,
};
use crate::memory::{Memory, entry_of};
use c_layout::{Be16, Member};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const WORD_BYTES: usize = size_of::<u64>();

/// This member's place in the shard's chain, while the program may take batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Number of the view.
    pub view: u64,
    /// The member before this one; `None`: this is the head.
    pub previous: Option<SocketAddrV4>,
    /// The member behind this one; `None`: this is the tail.
    pub next: Option<SocketAddrV4>,
}

/// A record as the store has it.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The store's own number of the record.
    pub slot: u32,
    /// The object's number in the manifest.
    pub object_id: u16,
    /// The newest grant.
    pub epoch: u32,
    /// Of the newest update.
    pub seq: u64,
    /// Number and life of the owner; zeros: nobody.
    pub owner: (u32, u32),
    /// The owner's session; 0: the head's program takes no update.
    pub session: u32,
    /// The system's own bits of the flags.
    pub flags: u8,
    /// The flow's key.
    pub key: &'a [u8],
    /// The newest value.
    pub value: &'a [u8],
}

/// What the program changed in a record since user space had the shard.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The store's own number of the record.
    pub slot: u32,
    /// Of the newest update.
    pub seq: u64,
    /// The system's own bits of its flags.
    pub flags: u8,
    /// Its value, filled up with zeros to whole words.
    pub value: &'a [u8],
}

/// One shard's part of the memory. Between [`ShardMirror::enter`] and [`ShardMirror::leave`] it is
/// user space's; else the program's.
pub struct ShardMirror {
    memory: Arc<Memory>,
    shard: u16,
    /// Places without a record.
    free: Vec<u32>,
    entered: bool,
}

impl ShardMirror {
    /// The shard's part, without a record and off.
    pub fn new(memory: Arc<Memory>, shard: u16) -> ShardMirror {
        let mut mirror = ShardMirror { memory, shard, free: Vec::new(), entered: false };
        mirror.take_lock();
        mirror.clear();
        mirror.leave(None);
        mirror
    }

    /// How many records are here.
    pub fn len(&self) -> usize {
        self.memory.shape().records_of_shard() as usize - self.free.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this is user space's now.
    pub fn is_entered(&self) -> bool {
        self.entered
    }

    fn take_lock(&mut self) {
        self.memory.lock(self.shard);
        self.entered = true;
    }

    /// Takes the shard from the program, and gives what that changed. Nothing, if it is taken.
    pub fn enter(&mut self, mut changed: impl FnMut(Change<'_>)) {
        if self.entered {
            return;
        }
        self.take_lock();
        let mut shard = self.memory.shard(self.shard);
        while let Some(place) = shard.changed.checked_sub(1) {
            let mut record = self.memory.record(self.shard, place);
            shard.changed = record.next_changed;
            (record.changed, record.next_changed) = (0, 0);
            self.memory.set_record(self.shard, place, &record);
            let mut value = [0; MOST_CONTENT_WORDS * WORD_BYTES];
            let words = record.content.iter().skip(record.key_words.into());
            for (word, place) in words.zip(value.chunks_exact_mut(WORD_BYTES)) {
                place.copy_from_slice(&word.to_ne_bytes());
            }
            let value = &value[..usize::from(record.value_words) * WORD_BYTES];
            changed(Change { slot: record.slot, seq: record.seq, flags: record.flags, value });
        }
        self.memory.set_shard(self.shard, &shard);
    }

    /// Gives the shard to the program, which takes batches if this member has a standing.
    pub fn leave(&mut self, standing: Option<&Standing>) {
        debug_assert!(self.entered, "what was not taken cannot be given");
        let mut shard = FastShard::read(&[]);
        if let Some(standing) = standing {
            shard.view = standing.view;
            shard.standing = STANDING_ON;
            shard.standing |= standing.previous.map_or(STANDING_HEAD, |_| 0);
            shard.standing |= standing.next.map_or(STANDING_TAIL, |_| 0);
            shard.previous = standing.previous.map_or(Ipv4Addr::UNSPECIFIED, |it| *it.ip());
            shard.next = standing.next.map_or(Ipv4Addr::UNSPECIFIED, |it| *it.ip());
            shard.next_port = Be16(standing.next.map_or(0, |it| it.port()));
        }
        self.memory.set_shard(self.shard, &shard);
        self.entered = false;
        self.memory.unlock(self.shard);
    }

    /// Writes a record: where it was, or, without a place, where there is room. Its place; `None`:
    /// it does not fit, and stays with user space.
    pub fn put(&mut self, place: Option<u32>, entry: &Entry<'_>) -> Option<u32> {
        debug_assert!(self.entered, "only the holder of the lock writes");
        let shape = self.memory.shape();
        let object = shape.objects.iter().find(|object| object.id == entry.object_id)?;
        if !object.fits()
            || (object.key_bytes, object.value_bytes) != (entry.key.len(), entry.value.len())
        {
            return None;
        }
        let mut record = FastRecord::read(&[]);
        record.object_id = entry.object_id;
        let mut at = 0;
        for part in [entry.key, entry.value] {
            for bytes in part.chunks(WORD_BYTES) {
                let mut word = [0; WORD_BYTES];
                word[..bytes.len()].copy_from_slice(bytes);
                record.content[at] = u64::from_ne_bytes(word);
                at += 1;
            }
        }
        let key_words = entry.key.len().div_ceil(WORD_BYTES);
        // Both are at most `MOST_CONTENT_WORDS`, as the object fits.
        (record.key_words, record.value_words) = (key_words as u8, (at - key_words) as u8);
        (record.epoch, record.seq, record.flags) = (entry.epoch, entry.seq, entry.flags);
        (record.switch_id, record.incarnation) = entry.owner;
        (record.session, record.slot) = (entry.session, entry.slot);
        let place = match place {
            Some(place) => place,
            None => self.add(entry.object_id, &record.content[..key_words])?,
        };
        self.memory.set_record(self.shard, place, &record);
        Some(place)
    }

    /// A place for a new key, which its index line names from now on.
    fn add(&mut self, object_id: u16, key: &[u64]) -> Option<u32> {
        let (line, fingerprint) = self.memory.line(self.shard, object_id, key);
        let entry = line.iter().find(|entry| entry.load(Ordering::Relaxed) == 0)?;
        let place = self.free.pop()?;
        entry.store(entry_of(place, fingerprint), Ordering::Relaxed);
        Some(place)
    }

    /// Removes the record at a place that `put` gave.
    pub fn remove(&mut self, place: u32) {
        debug_assert!(self.entered, "only the holder of the lock writes");
        let record = self.memory.record(self.shard, place);
        let key = &record.content[..usize::from(record.key_words)];
        let (line, fingerprint) = self.memory.line(self.shard, record.object_id, key);
        let named = entry_of(place, fingerprint);
        for entry in line.iter().filter(|entry| entry.load(Ordering::Relaxed) == named) {
            entry.store(0, Ordering::Relaxed);
        }
        self.memory.set_record(self.shard, place, &FastRecord::read(&[]));
        self.free.push(place);
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        debug_assert!(self.entered, "only the holder of the lock writes");
        self.memory.clear_lines(self.shard);
        let nothing = FastRecord::read(&[]);
        let records = self.memory.shape().records_of_shard();
        for place in 0..records {
            self.memory.set_record(self.shard, place, &nothing);
        }
        self.free = (0..records).rev().collect();
    }
}

impl Drop for ShardMirror {
    fn drop(&mut self) {
        self.enter(|_| {});
        self.leave(None);
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
