//! Datagrams of a chain link that overtook others: they wait for their turn, as in TCP's
//! out-of-order queue. To the chain it is as if the network had brought them later.

use crate::link::{WINDOW_BYTES, WINDOW_ENTRIES};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Datagrams by the index of their first entry.
#[derive(Default)]
pub(crate) struct OutOfOrder {
    datagrams: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl OutOfOrder {
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Keeps a datagram whose first entry is `index`, if there is room (as much as a predecessor
    /// has under way; what is beyond is sent again). Of two with the same first entry the longer
    /// one.
    pub fn keep(&mut self, index: u64, datagram: &[u8]) {
        if self.datagrams.len() as u64 >= WINDOW_ENTRIES
            || self.bytes + datagram.len() > WINDOW_BYTES
        {
            return;
        }
        match self.datagrams.entry(index) {
            Entry::Occupied(known) if known.get().len() >= datagram.len() => {}
            Entry::Occupied(mut known) => {
                self.bytes += datagram.len() - known.get().len();
                known.insert(datagram.to_vec());
            }
            Entry::Vacant(place) => {
                self.bytes += datagram.len();
                place.insert(datagram.to_vec());
            }
        }
    }

    /// Takes the first datagram, if the entry with which it begins, `next`, is due, or here
    /// already.
    pub fn take(&mut self, next: u64) -> Option<Vec<u8>> {
        let first = self.datagrams.first_entry().filter(|first| *first.key() <= next)?;
        let datagram = first.remove();
        self.bytes -= datagram.len();
        Some(datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_kept_until_their_turn_and_within_bounds() {
        let mut early = OutOfOrder::default();
        early.keep(5, b"five");
        early.keep(3, b"three, four");
        early.keep(3, b"three");
        early.keep(5, b"five, six");
        assert_eq!(early.take(2), None);
        assert_eq!(early.take(3).as_deref(), Some(&b"three, four"[..]));
        assert_eq!((early.take(4), early.bytes), (None, 9));
        assert_eq!(
            early.take(7).as_deref(),
            Some(&b"five, six"[..]),
            "whatever of it is here already"
        );
        assert_eq!((early.is_empty(), early.bytes), (true, 0));
        (0..5_000).for_each(|at| early.keep(at, b"many"));
        assert_eq!(early.datagrams.len() as u64, WINDOW_ENTRIES);
        while early.take(u64::MAX).is_some() {}
        (0..5_000).for_each(|at| early.keep(at, &[0; 9_000]));
        assert!(early.bytes <= WINDOW_BYTES && early.bytes > WINDOW_BYTES - 9_000);
    }
}
