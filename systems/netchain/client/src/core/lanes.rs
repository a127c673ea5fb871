//! Identities, and the numbers of their requests.
//!
//! A head remembers 256 numbers of an identity, and only of writes. So reads go by an identity of
//! their own, without a limit, and writes go on by another identity while one that waits for its
//! chain holds the window of the first.

use super::WINDOW;
use std::collections::BTreeSet;

/// An identity for writes.
struct Lane {
    client: u64,
    /// The newest request's.
    number: u32,
    /// Numbers of requests that are not over.
    unfinished: BTreeSet<u32>,
}

impl Lane {
    fn begin(&mut self) -> Option<u32> {
        let number = self.number.checked_add(1)?;
        if self.unfinished.first().is_some_and(|first| number - first > WINDOW) {
            return None;
        }
        self.number = number;
        self.unfinished.insert(number);
        Some(number)
    }
}

/// All identities of a client.
pub(super) struct Lanes {
    /// At random; others are made of it.
    seed: u64,
    made: u64,
    /// The identity of reads, and the number of the newest one.
    reads: (u64, u32),
    writes: Vec<Lane>,
    most: usize,
}

impl Lanes {
    pub(super) fn new(seed: u64) -> Lanes {
        let mut lanes = Lanes { seed, made: 0, reads: (0, 0), writes: vec![], most: 1 };
        let first = lanes.identity();
        lanes.reads = (lanes.identity(), 0);
        lanes.writes.push(Lane { client: first, number: 0, unfinished: BTreeSet::new() });
        lanes
    }

    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most.max(1);
    }

    /// The next identity: the seed's own first. (The others by SplitMix64, whose outputs are all
    /// different.)
    fn identity(&mut self) -> u64 {
        let mut mixed = self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.made += 1;
        self.seed.wrapping_add(mixed ^ mixed >> 31)
    }

    /// Identity and number of a new request. None: all windows are full.
    pub(super) fn begin(&mut self, reads: bool) -> Option<(u64, u32)> {
        if reads {
            if self.reads.1 == u32::MAX {
                self.reads = (self.identity(), 0);
            }
            self.reads.1 += 1;
            return Some(self.reads);
        }
        // Numbers never come again: an identity that has used them all makes room for another.
        self.writes.retain(|lane| lane.number < u32::MAX || !lane.unfinished.is_empty());
        let free = self.writes.iter_mut().find_map(|lane| Some((lane.client, lane.begin()?)));
        if free.is_some() || self.writes.len() >= self.most {
            return free;
        }
        let client = self.identity();
        self.writes.push(Lane { client, number: 1, unfinished: [1].into() });
        Some((client, 1))
    }

    /// The request is over, or nobody waits for it any more.
    pub(super) fn over(&mut self, client: u64, number: u32) {
        if let Some(lane) = self.writes.iter_mut().find(|lane| lane.client == client) {
            lane.unfinished.remove(&number);
        }
    }

    /// No write is under way.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.writes.iter().all(|lane| lane.unfinished.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_take_no_numbers_of_writes() {
        let mut lanes = Lanes::new(7);
        let (writes, first) = lanes.begin(false).unwrap();
        for number in 1..=1000 {
            let (reads, read) = lanes.begin(true).unwrap();
            assert!(reads != writes && read == number);
        }
        assert_eq!((writes, first, lanes.begin(false)), (7, 1, Some((7, 2))));
    }

    #[test]
    fn a_full_window_opens_another_identity() {
        let mut lanes = Lanes::new(7);
        lanes.set_most(2);
        let mut begun = vec![];
        while let Some(one) = lanes.begin(false) {
            begun.push(one);
        }
        // (The oldest one and 255 behind it.)
        assert_eq!(begun.len(), 2 * 256);
        lanes.over(begun[300].0, begun[300].1);
        assert_eq!(lanes.begin(false), None, "the oldest one of each is still under way");
        lanes.over(begun[0].0, begun[0].1);
        assert_eq!(lanes.begin(false), Some((7, 257)));
    }

    #[test]
    fn an_identity_without_numbers_is_replaced() {
        let mut lanes = Lanes::new(7);
        lanes.writes[0].number = u32::MAX - 1;
        lanes.reads.1 = u32::MAX;
        let (old_reads, last) = (lanes.reads.0, lanes.begin(false).unwrap());
        assert_eq!((last, lanes.begin(false)), ((7, u32::MAX), None));
        lanes.over(last.0, last.1);
        let (client, number) = lanes.begin(false).unwrap();
        assert!(client != 7 && number == 1);
        let (reads, number) = lanes.begin(true).unwrap();
        assert!(reads != old_reads && number == 1);
    }
}
