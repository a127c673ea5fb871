//! What packets do with a key, and what one switch would answer.

use history::linearizable::Model;
use rand::Rng;
use rand::rngs::StdRng;

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

    /// `op` and `value` of the packet.
    pub(super) fn numbers(self) -> (u8, u32) {
        match self.access {
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
