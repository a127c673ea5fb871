//! What was acknowledged, and whether it is still there.
//!
//! Each lock has one holder, who writes growing numbers, one at a time. A read that began after
//! number n was acknowledged must show n or a later number.

use crate::kv::failure::IN_TIME;
use crate::kv::workload::number;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default)]
struct Lock {
    tried: u64,
    acknowledged: u64,
    /// When the write under way was due.
    busy: Option<Duration>,
}

/// Why a write does not begin: the lock's last one is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// It is still in its time: the holder just has nothing to write yet. No request.
    InTime,
    /// It should be over: the holder is kept from writing. A request without an answer.
    Late,
}

/// See the module.
#[derive(Debug)]
pub struct Ledger {
    locks: Vec<Lock>,
    lost: u64,
}

impl Ledger {
    /// Of so many locks, with number 0.
    pub fn new(locks: usize) -> Ledger {
        Ledger { locks: vec![Lock::default(); locks], lost: 0 }
    }

    /// Locks.
    pub fn locks(&self) -> usize {
        self.locks.len()
    }

    /// The number to write, at a time since the begin.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn begin_write(&mut self, lock: usize, at: Duration) -> Result<u64, Busy> {
        let lock = &mut self.locks[lock];
        match lock.busy {
            Some(since) if at.saturating_sub(since) > IN_TIME => return Err(Busy::Late),
            Some(_) => return Err(Busy::InTime),
            None => {}
        }
        (lock.busy, lock.tried) = (Some(at), lock.tried + 1);
        Ok(lock.tried)
    }

    /// A write is over.
    pub fn end_write(&mut self, lock: usize, acknowledged: bool) {
        let lock = &mut self.locks[lock];
        lock.busy = None;
        if acknowledged {
            lock.acknowledged = lock.tried;
        }
    }

    /// What a read that begins now must show at least.
    pub fn begin_read(&self, lock: usize) -> u64 {
        self.locks[lock].acknowledged
    }

    /// What a read showed.
    pub fn end_read(&mut self, least: u64, value: Option<&[u8]>) {
        self.lost += u64::from(number(value) < least);
    }

    /// Reads that missed an acknowledged write.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::workload::value;

    #[test]
    fn a_read_that_misses_an_acknowledged_write_counts() {
        let mut ledger = Ledger::new(2);
        let ms = Duration::from_millis;
        assert_eq!(ledger.begin_write(0, ms(5)), Ok(1));
        assert_eq!(ledger.begin_write(0, ms(15)), Err(Busy::InTime), "one at a time");
        assert_eq!(ledger.begin_write(0, ms(16)), Err(Busy::Late));
        let before = ledger.begin_read(0);
        ledger.end_write(0, true);
        ledger.end_read(before, None);
        assert_eq!(ledger.lost(), 0, "it began before");
        let after = ledger.begin_read(0);
        ledger.end_read(after, Some(&value(1, 64)));
        assert_eq!(ledger.lost(), 0);
        ledger.end_read(after, None);
        assert_eq!(ledger.lost(), 1);
    }

    #[test]
    fn an_unknown_write_may_be_there_or_not() {
        let mut ledger = Ledger::new(1);
        ledger.begin_write(0, Duration::ZERO).unwrap();
        ledger.end_write(0, false);
        let least = ledger.begin_read(0);
        ledger.end_read(least, None);
        ledger.end_read(least, Some(&value(1, 64)));
        assert_eq!((ledger.lost(), ledger.begin_write(0, Duration::ZERO)), (0, Ok(2)));
    }
}
