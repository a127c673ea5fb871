//! What entries touched while a copy is made.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// Pieces waiting to be copied again; more, and the joining replica does not keep up: the copy
/// ends, and the controller begins another.
const MOST_PIECES: usize = 1 << 20;

/// Pieces that were touched and are not in the copy's stream yet, each once, oldest first.
pub struct Touched<P> {
    queue: VecDeque<P>,
    queued: HashSet<P>,
    /// The next slot of the sweep.
    pub(crate) cursor: u32,
    pub(crate) abandoned: bool,
}

impl<P: Clone + Eq + Hash> Touched<P> {
    pub(crate) fn new() -> Touched<P> {
        Touched { queue: VecDeque::new(), queued: HashSet::new(), cursor: 0, abandoned: false }
    }

    /// Whether the sweep has passed a slot. What it has not passed, it will describe as it is then.
    pub fn is_swept(&self, slot: u32) -> bool {
        slot < self.cursor
    }

    /// Whether a piece is noted already.
    pub fn contains(&self, piece: &P) -> bool {
        self.queued.contains(piece)
    }

    /// Notes a piece, if it is not noted yet.
    pub fn insert(&mut self, piece: P) {
        if self.queue.len() >= MOST_PIECES {
            self.abandoned = true;
            (self.queue, self.queued) = (VecDeque::new(), HashSet::new());
        }
        if !self.abandoned && !self.queued.contains(&piece) {
            self.queued.insert(piece.clone());
            self.queue.push_back(piece);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<P> {
        let piece = self.queue.pop_front()?;
        self.queued.remove(&piece);
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_waits_once_and_too_many_end_the_copy() {
        let mut touched = Touched::new();
        [3, 1, 3].into_iter().for_each(|piece| touched.insert(piece));
        assert!(touched.contains(&3) && !touched.contains(&2));
        assert_eq!((touched.pop(), touched.pop(), touched.pop()), (Some(3), Some(1), None));
        assert!(!touched.contains(&3));
        (0..MOST_PIECES).for_each(|piece| touched.insert(piece));
        assert!(!touched.abandoned);
        touched.insert(MOST_PIECES);
        assert!(touched.abandoned && touched.pop().is_none());
        touched.insert(5);
        assert!(touched.pop().is_none());
    }
}
