//! Holds fragments whose first has not come: it says which conversation all of them belong to. A
//! state machine, without sockets.

use dataplane::slow_path::FragmentKey;
use std::collections::{BTreeMap, VecDeque};

/// It is looked this often whether a first fragment has come.
pub(crate) const LOOK_MS: u64 = 1;
/// The kernel runs no longer frames than fit into a page with all that goes with them.
pub(crate) const MOST_BYTES: usize = 3_400;

/// A fragment.
#[derive(Debug)]
struct Held {
    port: u32,
    key: FragmentKey,
    frame: Vec<u8>,
    until_ms: u64,
}

/// Fragments that wait.
#[derive(Debug)]
pub(crate) struct Holder {
    /// In the order in which they came.
    held: VecDeque<Held>,
    most: usize,
    hold_ms: u64,
}

/// Why one is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// As many as may be are held.
    Full,
    /// It could not be run again.
    TooLong,
}

impl Holder {
    /// At most so many, for at most so long.
    pub fn new(most: usize, hold_ms: u64) -> Holder {
        Holder { held: VecDeque::new(), most, hold_ms }
    }

    /// Takes a fragment that came in by a port.
    pub fn take(
        &mut self,
        now_ms: u64,
        port: u32,
        key: FragmentKey,
        frame: Vec<u8>,
    ) -> Result<(), Refused> {
        if frame.len() > MOST_BYTES {
            return Err(Refused::TooLong);
        }
        if self.held.len() >= self.most {
            return Err(Refused::Full);
        }
        self.held.push_back(Held { port, key, frame, until_ms: now_ms + self.hold_ms });
        Ok(())
    }

    /// Those whose first fragment has come by now, port and frame of each, and how many others have
    /// waited long enough and are dropped.
    pub fn look(
        &mut self,
        now_ms: u64,
        mut known: impl FnMut(&FragmentKey) -> bool,
    ) -> (Vec<(u32, Vec<u8>)>, u64) {
        let mut answers: BTreeMap<FragmentKey, bool> = BTreeMap::new();
        let (mut released, mut expired) = (vec![], 0);
        let mut waiting = VecDeque::with_capacity(self.held.len());
        for held in std::mem::take(&mut self.held) {
            if *answers.entry(held.key).or_insert_with_key(&mut known) {
                released.push((held.port, held.frame));
            } else if held.until_ms <= now_ms {
                expired += 1;
            } else {
                waiting.push_back(held);
            }
        }
        self.held = waiting;
        (released, expired)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> FragmentKey {
        [number; 40]
    }

    #[test]
    fn fragments_go_on_in_their_order_once_the_first_has_come() {
        let mut holder = Holder::new(9, 2_000);
        for (number, byte) in [(1, 10), (2, 20), (1, 11)] {
            assert_eq!(holder.take(0, 4, key(number), vec![byte]), Ok(()));
        }
        assert_eq!(holder.look(1, |_| false), (vec![], 0));
        let mut asked = 0;
        let released = holder.look(2, |it| {
            asked += 1;
            *it == key(1)
        });
        assert_eq!((released, asked), ((vec![(4, vec![10]), (4, vec![11])], 0), 2));
        assert_eq!(holder.len(), 1);
        assert_eq!(holder.look(3, |it| *it == key(2)).0, [(4, vec![20])]);
    }

    #[test]
    fn they_wait_so_long_and_no_longer() {
        let mut holder = Holder::new(9, 2_000);
        holder.take(0, 4, key(1), vec![1]).unwrap();
        holder.take(500, 4, key(2), vec![2]).unwrap();
        assert_eq!(holder.look(1_999, |_| false), (vec![], 0));
        assert_eq!(holder.look(2_000, |_| false), (vec![], 1));
        assert_eq!(holder.look(9_000, |_| true), (vec![(4, vec![2])], 0), "late, but it is known");
        assert_eq!(holder.len(), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut holder = Holder::new(2, 2_000);
        let long = vec![0; MOST_BYTES + 1];
        assert_eq!(holder.take(0, 4, key(1), long), Err(Refused::TooLong));
        holder.take(0, 4, key(1), vec![0; MOST_BYTES]).unwrap();
        holder.take(0, 4, key(1), vec![]).unwrap();
        assert_eq!(holder.take(0, 4, key(1), vec![]), Err(Refused::Full));
        assert_eq!(holder.look(0, |_| true).0.len(), 2);
        assert_eq!(holder.take(0, 4, key(1), vec![]), Ok(()), "there is room again");
    }
}
