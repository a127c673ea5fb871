//! A state machine: counters by name, which count up and can be removed. No count of a name is ever
//! given twice: a removed counter leaves a floor for all that come.

use chain::{DoesNotApply, StateMachine, Touched};
use std::collections::BTreeMap;
use wire::{EncodeError, Reader, Writer};

/// What an entry does. The name is borrowed from the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// Nothing: the entry orders its answer behind all before it.
    Nothing,
    /// The counter is there, and shows that.
    Set { name: &'a [u8], count: u64 },
    /// The counter is not there; new ones begin above `floor`.
    Remove { name: &'a [u8], floor: u64 },
    /// New counters begin above that.
    Floor(u64),
}

impl<'a> wire::Effect<'a> for Change<'a> {
    const MOST_REPLY_BYTES: usize = 64;

    fn number(&self) -> u8 {
        match self {
            Change::Nothing => 0,
            Change::Set { .. } => 1,
            Change::Remove { .. } => 2,
            Change::Floor(_) => 3,
        }
    }

    fn encoded_bytes(&self) -> usize {
        match self {
            Change::Nothing => 0,
            Change::Set { name, .. } | Change::Remove { name, .. } => 8 + name.len(),
            Change::Floor(_) => 8,
        }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        let (number, name): (u64, &[u8]) = match *self {
            Change::Nothing => return Ok(()),
            Change::Set { name, count: number } | Change::Remove { name, floor: number } => {
                (number, name)
            }
            Change::Floor(number) => (number, &[]),
        };
        w.u64(number)?;
        w.put(name)
    }

    fn decode(number: u8, bytes: &'a [u8]) -> Option<Change<'a>> {
        let mut r = Reader::new(bytes);
        match number {
            0 => bytes.is_empty().then_some(Change::Nothing),
            1 => Some(Change::Set { count: r.u64()?, name: r.take(r.remaining())? }),
            2 => Some(Change::Remove { floor: r.u64()?, name: r.take(r.remaining())? }),
            3 => {
                let floor = r.u64()?;
                (r.remaining() == 0).then_some(Change::Floor(floor))
            }
            _ => None,
        }
    }
}

/// A counter's name, which need not be there.
pub type Name = Vec<u8>;

/// All counters.
#[derive(Default)]
pub struct Counters {
    places: BTreeMap<Name, u32>,
    slots: Vec<Option<(Name, u64)>>,
    free: Vec<u32>,
    floor: u64,
}

impl Counters {
    /// What it shows; `None`: there is none.
    pub fn count(&self, name: &[u8]) -> Option<u64> {
        let slot = self.places.get(name)?;
        self.slots[*slot as usize].as_ref().map(|(_, count)| *count)
    }

    /// No count that was given for this name is higher. It never goes back.
    pub fn reached(&self, name: &[u8]) -> u64 {
        self.count(name).unwrap_or(self.floor)
    }
}

impl StateMachine for Counters {
    type Effect<'a> = Change<'a>;
    type Written = ();
    type Piece = Name;

    fn empty(&self) -> Counters {
        Counters::default()
    }

    fn apply(&mut self, change: &Change<'_>) -> Result<(), DoesNotApply> {
        match *change {
            Change::Nothing => {}
            Change::Set { name: [], .. } => return Err(DoesNotApply),
            Change::Set { name, count } => {
                let slot = self.places.get(name).copied().or_else(|| self.free.pop());
                let slot = slot.unwrap_or_else(|| {
                    self.slots.push(None);
                    self.slots.len() as u32 - 1
                });
                self.places.insert(name.to_vec(), slot);
                self.slots[slot as usize] = Some((name.to_vec(), count));
            }
            Change::Remove { name, floor } => {
                self.floor = self.floor.max(floor);
                if let Some(slot) = self.places.remove(name) {
                    self.slots[slot as usize] = None;
                    self.free.push(slot);
                }
            }
            Change::Floor(floor) => self.floor = self.floor.max(floor),
        }
        Ok(())
    }

    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn slot_effects(&self, slot: u32) -> impl Iterator<Item = Change<'_>> {
        let used = self.slots.get(slot as usize).and_then(Option::as_ref);
        used.map(|(name, count)| Change::Set { name, count: *count }).into_iter()
    }

    fn note_touched(&self, change: &Change<'_>, touched: &mut Touched<Name>) {
        match *change {
            // What the sweep has yet to reach it brings as it is then. (A new counter may get a
            // slot that the sweep has passed.)
            Change::Set { name, .. } => {
                if self.places.get(name).is_none_or(|slot| touched.is_swept(*slot)) {
                    touched.insert(name.to_vec());
                }
            }
            // The copy may have it from when it was touched before.
            Change::Remove { name, .. } => touched.insert(name.to_vec()),
            Change::Nothing | Change::Floor(_) => {}
        }
    }

    fn piece_effects<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = Change<'a>> {
        let change = match self.count(name) {
            Some(count) => Change::Set { name, count },
            None => Change::Remove { name, floor: 0 },
        };
        std::iter::once(change)
    }

    fn rest_effects(&self) -> impl Iterator<Item = Change<'_>> {
        std::iter::once(Change::Floor(self.floor))
    }

    fn records(&self) -> u64 {
        self.places.len() as u64
    }

    fn digest(&self) -> u64 {
        let mix =
            |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let one = |(name, count): &(Name, u64)| {
            name.iter().chain(&count.to_be_bytes()).fold(0xcbf2_9ce4_8422_2325, mix)
        };
        // A sum does not depend on the slots.
        self.slots.iter().flatten().map(one).fold(self.floor, u64::wrapping_add)
    }
}
