//! What a switch holds of a group's keys, a page at a time: `stateplane kv verify` compares the
//! members of chains. The data plane goes on meanwhile.

use crate::empties::{Empties, Slots};
use crate::windows::used;
use dataplane::Result;
use netchain_protocol::layouts::SlotMark;
use serde::{Deserialize, Serialize};
use wire::{SECRET_BYTES, Secret, tag_of_words};

/// Keys of a page: each has up to 100 bytes in the answer.
const PAGE: usize = 128;
/// Slots that one page goes over at the most, in some hundred microseconds.
const SLOTS_A_PAGE: u32 = 1 << 18;
/// A slot that packets keep changing is read so often. (Each change takes a packet's time.)
const READS: u32 = 1000;
/// Of a slot's head: its lock.
const LOCK_BYTES: usize = 4;

/// The question: keys of a group, from a slot on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldWanted {
    /// The group.
    pub group: u16,
    /// The first slot.
    pub from: u32,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The view in which this switch is a member of the group's chain; none: it is not.
    pub view: Option<u32>,
    /// In the order of their slots.
    pub keys: Vec<HeldKey>,
    /// The slot where the next page begins; none: this is the last.
    pub next: Option<u32>,
}

/// A key with a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldKey {
    /// Its bytes, as hexadecimal digits.
    pub key: String,
    /// Of the last write.
    pub version: u64,
    /// Of all that the slot has behind the version: equal ones are equal but for one case in 2^64.
    pub digest: u64,
}

impl Empties {
    /// A page. None: a decision is being taken.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn held(&self, wanted: HeldWanted) -> Result<Option<Held>> {
        let HeldWanted { group, from } = wanted;
        let Some(view) = self.view_now(group) else { return Ok(None) };
        let Some(slots) = self.slots.first().filter(|_| view.is_some()) else {
            return Ok(Some(Held { view, keys: vec![], next: None }));
        };
        let (keys, next) = slots.page(group, from)?;
        // (The slots of a group that the switch has left meanwhile are free.)
        let same = self.view_now(group) == Some(view);
        Ok(same.then_some(Held { view, keys, next }))
    }
}

impl Slots {
    fn page(&self, group: u16, from: u32) -> Result<(Vec<HeldKey>, Option<u32>)> {
        let end = used(&self.dataplane, &self.object)?;
        let until = end.min(from.saturating_add(SLOTS_A_PAGE));
        let (mut keys, mut number) = (vec![], from);
        while number < until && keys.len() < PAGE {
            let mark = SlotMark::from_word(self.notes.get(number as usize));
            if mark.used != 0 && mark.part == group {
                keys.extend(self.key(number)?);
            }
            number += 1;
        }
        Ok((keys, (number < end).then_some(number)))
    }

    /// None: the slot is free by now, or packets change it all the time.
    fn key(&self, number: u32) -> Result<Option<HeldKey>> {
        let Some(map) = &self.object.slots_map else { return Ok(None) };
        let mut before = self.dataplane.read_array(map, number)?;
        for _ in 0..READS {
            let again = self.dataplane.read_array(map, number)?;
            // The kernel copies while packets write. Two equal copies with one even generation are
            // what the slot had in between.
            let is_even = again.get(LOCK_BYTES).is_some_and(|low| low % 2 == 0);
            if is_even && before.get(LOCK_BYTES..) == again.get(LOCK_BYTES..) {
                return Ok(self.read(&again));
            }
            before = again;
        }
        Ok(None)
    }

    fn read(&self, slot: &[u8]) -> Option<HeldKey> {
        let value_at = self.object.value.offset() as usize;
        let key = slot.get(crate::empties::SLOT_HEAD..)?.get(..self.object.key_bytes as usize)?;
        let fields = self.object.value.fields();
        let value = slot.get(value_at..)?.get(..fields.iter().map(|it| it.bytes as usize).sum())?;
        let version = fields.iter().find(|it| it.name == "version" && it.bytes == 8)?;
        let at = version.offset as usize;
        let version = u64::from_be_bytes(value.get(at..at + 8)?.try_into().ok()?);
        Some(HeldKey {
            key: key.iter().map(|byte| format!("{byte:02x}")).collect(),
            version,
            digest: tag_of_words(&Secret([0; SECRET_BYTES]), None, value, at),
        })
    }
}
