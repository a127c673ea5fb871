//! The entries that the tail has not confirmed: what a server must keep to go on when a neighbour
//! is gone.

use std::collections::VecDeque;

const MOST_SPARE: usize = 4096;
const MOST_SPARE_BYTES: usize = 4096;

/// Entries `first` to `last`, encoded. Used buffers are used again.
pub(crate) struct Log {
    entries: VecDeque<Vec<u8>>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
    first: u64,
}

impl Log {
    /// No entry; the next is `first`.
    pub fn new(first: u64) -> Log {
        Log { entries: VecDeque::new(), bytes: 0, spare: Vec::new(), first }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Index of the oldest entry that is still here (of the next one, if there is none).
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Index of the newest entry.
    pub fn last(&self) -> u64 {
        self.first + self.entries.len() as u64 - 1
    }

    pub fn at(&self, index: u64) -> Option<&Vec<u8>> {
        self.entries.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    /// A buffer for the next entry.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub fn push(&mut self, entry: Vec<u8>) {
        self.bytes += entry.len();
        self.entries.push_back(entry);
    }

    /// Forgets all entries up to `index`.
    pub fn forget(&mut self, index: u64) {
        while self.first <= index {
            let Some(mut entry) = self.entries.pop_front() else { break };
            self.first += 1;
            self.bytes -= entry.len();
            if self.spare.len() < MOST_SPARE && entry.capacity() <= MOST_SPARE_BYTES {
                entry.clear();
                self.spare.push(entry);
            }
        }
        if self.entries.is_empty() {
            self.first = self.first.max(index + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_stay_when_entries_go() {
        let mut log = Log::new(5);
        assert_eq!((log.first(), log.last()), (5, 4));
        for byte in 5..10u8 {
            let mut entry = log.buffer();
            entry.push(byte);
            log.push(entry);
        }
        log.forget(6);
        assert_eq!((log.first(), log.last(), log.len(), log.bytes()), (7, 9, 3, 3));
        assert_eq!((log.at(6), log.at(7), log.at(10)), (None, Some(&vec![7]), None));
        log.forget(9);
        assert_eq!((log.first(), log.last(), log.bytes()), (10, 9, 0));
        assert!(log.buffer().is_empty());
    }
}
