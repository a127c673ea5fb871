//! What packets do with a key, and what one switch would answer.

use history::linearizable::Model;
use rand::Rng;
use rand::rngs::StdRng;

/// Keys from here on are indexes of the register, and keys of the set: less so much. (The lowest
/// bits are those of the index, by which `counted` counts.)
pub(super) const NUMBERS: u32 = 2048;
pub(super) const MARKS: u32 = 3072;
/// Keys of each that operators write, too.
pub(super) const ORDERED: u32 = 2;

/// An access of a key, as pairs.p4 has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// If the key is absent.
    Insert(u32),
    Set(u32),
    /// The same, until no packet has come for some seconds.
    Lend(u32),
    /// To what is there.
    Add(u32),
    Remove,
    /// Whether it is there, without keeping it.
    Ask,
}

/// An access and its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) access: Access,
    pub(super) key: u32,
}

impl Op {
    pub(super) fn draw(rng: &mut StdRng, keys: u32) -> Op {
        let value = rng.random_range(1..1 << 20);
        let access = match rng.random_range(0..10) {
            0..4 => Access::Read,
            4..6 => Access::Insert(value),
            6 if value & 1 == 0 => Access::Set(value),
            6 => Access::Lend(value),
            7..9 => Access::Add(value),
            _ => Access::Remove,
        };
        Op { access, key: rng.random_range(0..keys) }
    }

    /// Of a key that operators write, too: as a packet does it, or an operator. (A key of the set
    /// has the value 0; a number that is 0 counts as absent.)
    pub(super) fn draw_ordered(rng: &mut StdRng, by_operator: bool) -> Op {
        let value = rng.random_range(1..1 << 20);
        let is_number = rng.random_bool(0.5);
        let access = match (is_number, by_operator, rng.random_range(0..5)) {
            (true, _, 0..2) => Access::Read,
            (true, true, 2..4) => Access::Set(value),
            (true, true, _) => Access::Remove,
            (true, false, _) => Access::Add(value),
            (false, _, 0..2) => Access::Ask,
            (false, true, 2) => Access::Insert(0),
            (false, _, 2..4) => Access::Set(0),
            (false, ..) => Access::Remove,
        };
        let key = rng.random_range(0..ORDERED) + if is_number { NUMBERS } else { MARKS };
        Op { access, key }
    }

    /// The key of the packet.
    pub(super) fn index(self) -> u32 {
        match self.key {
            MARKS.. => self.key - MARKS,
            NUMBERS.. => self.key - NUMBERS,
            key => key,
        }
    }

    /// `op` and `value` of the packet.
    pub(super) fn numbers(self) -> (u8, u32) {
        match self.access {
            Access::Read if self.key >= NUMBERS => (5, 0),
            Access::Add(value) if self.key >= NUMBERS => (6, value),
            Access::Ask if self.key >= MARKS => (9, 0),
            Access::Set(_) if self.key >= MARKS => (10, 0),
            Access::Remove if self.key >= MARKS => (11, 0),
            Access::Read => (0, 0),
            Access::Insert(value) => (1, value),
            Access::Set(value) => (2, value),
            Access::Add(value) => (3, value),
            Access::Remove => (4, 0),
            Access::Lend(value) => (7, value),
            Access::Ask => (8, 0),
        }
    }
}

impl Access {
    /// The output of an access whose packet read this.
    pub(super) fn answer(self, found: Option<u32>) -> Option<u32> {
        match self {
            Access::Read | Access::Insert(_) | Access::Add(_) => found,
            Access::Ask => found.map(|_| 0),
            Access::Set(_) | Access::Lend(_) | Access::Remove => None,
        }
    }
}

impl Model for Access {
    type State = Option<u32>;
    type Output = Option<u32>;

    fn initial() -> Option<u32> {
        None
    }

    fn step(self, state: &Option<u32>) -> (Option<u32>, Option<u32>) {
        let next = match self {
            Access::Read | Access::Ask => *state,
            Access::Insert(value) => Some(state.unwrap_or(value)),
            // (A run is shorter than keys are kept.)
            Access::Set(value) | Access::Lend(value) => Some(value),
            Access::Add(value) => Some(state.unwrap_or(0).wrapping_add(value)),
            Access::Remove => None,
        };
        (next, self.answer(*state))
    }

    fn is_past(self, _: &Option<u32>, _: &Option<u32>) -> bool {
        false
    }

    fn only_reads(self) -> bool {
        self == Access::Read
    }
}
