//! Which writes there were, and what switches may have of them.

use crate::model::{Checked, violated};
use std::collections::{BTreeMap, BTreeSet};

/// An object of the program, by its place, and a key of it.
pub(super) type Key = (usize, u32);
/// Of a write: its time, and the life that wrote.
pub(super) type Stamp = (u64, u64);

/// What a write made of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) stamp: Stamp,
    /// `None`: the key is removed.
    pub(super) value: Option<Vec<u8>>,
}

/// All records of a switch.
pub(super) type Records = BTreeMap<Key, Write>;

/// All writes of all lives.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger(BTreeMap<Key, Vec<Write>>);

impl Ledger {
    pub(super) fn add(&mut self, key: Key, write: Write) {
        self.0.entry(key).or_default().push(write);
    }

    /// The last write of a key by some lives.
    fn last(&self, key: &Key, lives: &BTreeSet<u64>) -> Option<&Write> {
        let writes = self.0.get(key)?.iter().filter(|it| lives.contains(&it.stamp.1));
        writes.max_by_key(|it| it.stamp)
    }

    /// A switch has nothing that nobody wrote, and nothing older than it had before.
    pub(super) fn may_be(
        &self,
        switch: usize,
        records: &Records,
        before: &BTreeMap<Key, Stamp>,
    ) -> Checked {
        for (key, record) in records {
            let writes = self.0.get(key).map(Vec::as_slice).unwrap_or_default();
            if !writes.contains(record) {
                return violated("invented", format!("{switch}: {key:?} is {record:x?}"));
            }
            if before.get(key).is_some_and(|it| *it > record.stamp) {
                let detail = format!("{switch}: {key:?} is {record:x?}, after {:x?}", before[key]);
                return violated("lowered", detail);
            }
        }
        Ok(())
    }

    /// Nothing of a living switch is missing in what all have. (A tombstone may be forgotten.)
    pub(super) fn has_all(&self, records: &Records, lives: &BTreeSet<u64>) -> Checked {
        for key in self.0.keys() {
            let Some(last) = self.last(key, lives) else { continue };
            let is_right = match records.get(key) {
                Some(record) => record.stamp >= last.stamp,
                None => last.value.is_none(),
            };
            if !is_right {
                let found = records.get(key);
                return violated("last", format!("{key:?} is {found:x?}, after {last:x?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(time: u64, value: Option<u8>) -> Write {
        Write { stamp: (time, 64), value: value.map(|it| vec![it]) }
    }

    #[test]
    fn halves_older_writes_and_lost_ones_are_found() {
        let key = (0, 7);
        let mut ledger = Ledger::default();
        ledger.add(key, write(5, Some(1)));
        ledger.add(key, write(9, None));
        let may_be = |record: Write, before| {
            ledger.may_be(0, &Records::from([(key, record)]), &BTreeMap::from([(key, before)]))
        };
        assert_eq!(may_be(write(5, Some(1)), (5, 64)), Ok(()));
        assert_eq!(may_be(write(5, Some(2)), (0, 0)).unwrap_err().check, "invented");
        assert_eq!(may_be(write(5, Some(1)), (9, 64)).unwrap_err().check, "lowered");
        let lives = BTreeSet::from([64]);
        assert_eq!(ledger.has_all(&Records::new(), &lives), Ok(()));
        let older = Records::from([(key, write(5, Some(1)))]);
        assert_eq!(ledger.has_all(&older, &lives).unwrap_err().check, "last");
        assert_eq!(ledger.has_all(&older, &BTreeSet::new()), Ok(()));
    }
}
