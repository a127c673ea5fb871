//! What a switch holds of a group's keys, a page at a time: `stateplane kv verify` compares the
//! members of chains. The data plane goes on meanwhile.

use crate::empties::{Empties, GENERATION_AT, SLOT_HEAD, Slots};
use crate::windows::used;
use dataplane::Result;
use manifest::StateObject;
use netchain_protocol::VALUE_MAX;
use netchain_protocol::layouts::SlotMark;
use netchain_protocol::message::NO_VALUE;
use serde::{Deserialize, Serialize};
use wire::{SECRET_BYTES, Secret, tag_of_words};

/// Keys of a page: each has up to 100 bytes in the answer.
const PAGE: usize = 128;
/// Slots that one page goes over at the most, in some hundred microseconds.
const SLOTS_A_PAGE: u32 = 1 << 18;
/// A slot that packets keep changing is read so often. (Each change takes a packet's time.)
const READS: u32 = 1000;

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
    /// Of the value and of the requests that wrote it: what is equal has equal digests, what is not
    /// has other ones but in one case of 2^64.
    pub digest: u64,
    /// It has no value: the slot is a tombstone.
    pub deleted: bool,
}

impl Empties {
    /// A page. None: a decision is being taken, or packets change a slot all the time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn held(&self, wanted: HeldWanted) -> Result<Option<Held>> {
        let HeldWanted { group, from } = wanted;
        let Some(view) = self.view_now(group) else { return Ok(None) };
        let Some(slots) = self.slots.first().filter(|_| view.is_some()) else {
            return Ok(Some(Held { view, keys: vec![], next: None }));
        };
        let Some((keys, next)) = slots.page(group, from)? else { return Ok(None) };
        // (The slots of a group that the switch has left meanwhile are free.)
        let same = self.view_now(group) == Some(view);
        Ok(same.then_some(Held { view, keys, next }))
    }
}

/// A slot, as it was read.
enum Seen {
    Key(HeldKey),
    /// It has no key of the group by now.
    Free,
    /// Packets change it all the time.
    Busy,
}

impl Slots {
    /// None: a slot is [`Seen::Busy`]. (Without its key the page would be a lie.)
    fn page(&self, group: u16, from: u32) -> Result<Option<(Vec<HeldKey>, Option<u32>)>> {
        let end = used(&self.dataplane, &self.object)?;
        let until = end.min(from.saturating_add(SLOTS_A_PAGE));
        let (mut keys, mut number) = (vec![], from);
        while number < until && keys.len() < PAGE {
            if self.is_of(number, group) {
                match self.key(number)? {
                    // (It may have been given back while it was read.)
                    Seen::Key(key) if self.is_of(number, group) => keys.push(key),
                    Seen::Key(_) | Seen::Free => {}
                    Seen::Busy => return Ok(None),
                }
            }
            number += 1;
        }
        Ok(Some((keys, (number < end).then_some(number))))
    }

    fn is_of(&self, number: u32, group: u16) -> bool {
        let mark = SlotMark::from_word(self.notes.get(number as usize));
        mark.used != 0 && mark.part == group
    }

    fn key(&self, number: u32) -> Result<Seen> {
        let Some(map) = &self.object.slots_map else { return Ok(Seen::Free) };
        let mut before = self.dataplane.read_array(map, number)?;
        for _ in 0..READS {
            let again = self.dataplane.read_array(map, number)?;
            // The kernel copies while packets write. Two equal copies with one even generation are
            // what the slot had in between.
            let is_even = again.get(GENERATION_AT).is_some_and(|low| low % 2 == 0);
            if is_even && before.get(GENERATION_AT..) == again.get(GENERATION_AT..) {
                return Ok(held_key(&self.object, &again).map_or(Seen::Free, Seen::Key));
            }
            before = again;
        }
        Ok(Seen::Busy)
    }
}

/// The key of a slot. None: it was never written.
fn held_key(object: &StateObject, slot: &[u8]) -> Option<HeldKey> {
    let key = slot.get(SLOT_HEAD..)?.get(..object.key_bytes as usize)?;
    let fields = object.value.fields();
    let bytes = fields.iter().map(|it| it.bytes as usize).sum();
    let mut value = slot.get(object.value.offset() as usize..)?.get(..bytes)?.to_vec();
    let offset = |name: &str, bytes| {
        let field = fields.iter().find(|it| it.name == name && it.bytes == bytes)?;
        Some(field.offset as usize)
    };
    let (version_at, words_at) = (offset("version", 8)?, offset("w0", 8)?);
    let version = u64::from_be_bytes(*value.get(version_at..)?.first_chunk()?);
    // Behind the value's end lies what longer values left there: not the same at a member that has
    // missed one of them.
    let length = *value.get(offset("length", 1)?)?;
    let deleted = length == NO_VALUE;
    let length = if deleted { 0 } else { usize::from(length).min(VALUE_MAX) };
    value.get_mut(words_at + length..words_at + VALUE_MAX)?.fill(0);
    (version != 0).then(|| HeldKey {
        key: key.iter().map(|byte| format!("{byte:02x}")).collect(),
        version,
        digest: tag_of_words(&Secret([0; SECRET_BYTES]), None, &value, version_at),
        deleted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::{Home, Layout, Settings, WireField};

    /// As the program has them, without the records.
    fn object() -> StateObject {
        let mut fields: Vec<WireField> = vec![];
        let words = (0..16).map(|word| (format!("w{word}"), 8));
        for (name, bytes) in
            [("version".into(), 8)].into_iter().chain(words).chain([("length".into(), 1)])
        {
            let offset = fields.iter().map(|it| it.bytes).sum();
            fields.push(WireField { name, width: bytes * 8, offset, bytes, enumeration: None });
        }
        let bytes = fields.iter().map(|it| it.bytes).sum();
        StateObject {
            id: 0,
            name: "slots".into(),
            system: "netchain".into(),
            kind: "SlotState".into(),
            map: "slots".into(),
            slots_map: Some("slots_slots".into()),
            capacity: 1,
            home: Home::Peers,
            key: vec![],
            key_bytes: 16,
            value: Layout::Fields { fields, bytes, offset: 24 },
            settings: Settings::new(),
        }
    }

    /// A slot with these 128 bytes, of which so many are the value.
    fn slot(version: u64, bytes: &[u8; VALUE_MAX], length: u8) -> Vec<u8> {
        [&[0; SLOT_HEAD], &[b'k'; 16][..], &version.to_be_bytes(), bytes, &[length]].concat()
    }

    #[test]
    fn what_longer_values_left_behind_the_end_does_not_count() {
        let digest = |bytes, length| held_key(&object(), &slot(5, bytes, length)).unwrap().digest;
        let (mut bytes, mut other) = ([b'o'; VALUE_MAX], [0; VALUE_MAX]);
        bytes[..9].copy_from_slice(b"the value");
        other[..9].copy_from_slice(b"the value");
        assert_eq!(digest(&bytes, 9), digest(&other, 9));
        assert_ne!(digest(&bytes, 10), digest(&other, 10));
        assert_eq!(digest(&bytes, NO_VALUE), digest(&other, NO_VALUE));
        assert_ne!(digest(&other, 9), digest(&other, NO_VALUE));
        assert_ne!(digest(&bytes, 128), digest(&bytes, 127));
    }

    #[test]
    fn a_slot_that_was_never_written_has_no_key() {
        assert_eq!(held_key(&object(), &slot(0, &[0; VALUE_MAX], 0)), None);
        let key = held_key(&object(), &slot(7, &[0; VALUE_MAX], 0)).unwrap();
        assert_eq!((key.key, key.version, key.deleted), ("6b".repeat(16), 7, false));
        assert!(held_key(&object(), &slot(7, &[0; VALUE_MAX], NO_VALUE)).unwrap().deleted);
        assert_eq!(held_key(&object(), &[0; 40]), None, "no slot of the object");
    }
}
