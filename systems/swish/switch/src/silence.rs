//! Of which members of a group with EWO nothing comes any more: rules without IO, for operators.
//!
//! Gossip brings a message of each member from time to time (`gossip`), unless all cells are zero:
//! then there is nothing to say, and silence means nothing.

use crate::load::Traffic;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use swish_protocol::eventual::FRAME_BYTES;

/// From one look to the next.
const LOOK_NS: u64 = 50_000_000;
/// A member with a single run of cells sends it to each other one in turn, in random order: nothing
/// comes of it in one round less than two for each. With one more, a frame may be lost.
const ROUNDS: u64 = 3;
/// Silence that is still nothing, however short rounds are: agents may lack CPUs for a while.
const LEAST_NS: u64 = 1_000_000_000;

/// A member, at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub member: u32,
    /// Its address.
    pub address: Ipv4Addr,
    /// Messages that came from it in this view.
    pub frames: u32,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    address: Ipv4Addr,
    frames: u32,
    at_ns: u64,
}

/// What was seen at the looks before.
#[derive(Clone, Debug, Default)]
pub struct Silences {
    /// By number.
    heard: BTreeMap<u32, Heard>,
    /// How long a round of gossip takes.
    round_ns: u64,
    next_ns: u64,
    traffic: Traffic,
}

impl Silences {
    /// Whether it is time to look.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// A look at all other members. `speaks`: some cell is not zero, or there are records.
    pub fn look(&mut self, others: &[Seen], speaks: bool, round_ns: u64, now_ns: u64) {
        (self.round_ns, self.next_ns) = (round_ns, now_ns + LOOK_NS);
        let before = std::mem::take(&mut self.heard);
        for Seen { member, address, frames } in others.iter().copied() {
            // (In a new view it counts from zero.)
            let known = before.get(&member).filter(|it| it.address == address);
            let silent = known.filter(|it| speaks && frames <= it.frames);
            let at_ns = silent.map_or(now_ns, |it| it.at_ns);
            self.heard.insert(member, Heard { address, frames, at_ns });
        }
        if self.traffic.is_due(now_ns) {
            let frames = others.iter().map(|it| u64::from(it.frames)).sum::<u64>();
            self.traffic.update(now_ns, frames * FRAME_BYTES);
        }
    }

    /// Since the member that is silent for longest was heard; 0: there is none.
    pub fn age_ms(&self, now_ns: u64) -> u64 {
        let ages = self.heard.values().map(|it| now_ns.saturating_sub(it.at_ns));
        ages.max().unwrap_or(0) / 1_000_000
    }

    /// Members of which nothing came for longer than gossip takes.
    pub fn silent(&self, now_ns: u64) -> Vec<(u32, Ipv4Addr)> {
        let rounds = ROUNDS * self.heard.len() as u64;
        let most_ns = rounds.saturating_mul(self.round_ns).max(LEAST_NS);
        let silent = self.heard.iter().filter(|(_, it)| now_ns.saturating_sub(it.at_ns) > most_ns);
        silent.map(|(member, it)| (*member, it.address)).collect()
    }

    /// Of messages that came, in the last second.
    pub fn bytes_per_s(&self) -> u64 {
        self.traffic.per_s()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(member: u32, frames: u32) -> Seen {
        Seen { member, address: Ipv4Addr::from_bits(0x0a09_0001 + member), frames }
    }

    #[test]
    fn a_member_of_which_nothing_comes_is_named() {
        let mut silences = Silences::default();
        for second in 1..=4 {
            let frames = second as u32;
            let others = [seen(1, 10 * frames), seen(2, frames.min(2))];
            silences.look(&others, true, 300 * MS, 1000 * second * MS);
        }
        assert_eq!(silences.age_ms(4100 * MS), 2100);
        // Three rounds for each of two members.
        assert_eq!(silences.silent(3800 * MS), []);
        assert_eq!(silences.silent(4100 * MS), [(2, Ipv4Addr::new(10, 9, 0, 3))]);
        assert_eq!(silences.bytes_per_s(), 10 * FRAME_BYTES);
        // A new view counts from zero: that is no sign of life.
        silences.look(&[seen(1, 0), seen(2, 0)], true, 300 * MS, 4200 * MS);
        assert_eq!(silences.silent(4200 * MS), [(2, Ipv4Addr::new(10, 9, 0, 3))]);
        silences.look(&[seen(1, 1), seen(2, 1)], true, 300 * MS, 4300 * MS);
        assert_eq!(silences.silent(4300 * MS), []);
    }

    #[test]
    fn silence_means_nothing_while_all_is_zero() {
        let mut silences = Silences::default();
        silences.look(&[seen(1, 0)], false, 100 * MS, MS);
        silences.look(&[seen(1, 0)], false, 100 * MS, 9000 * MS);
        assert_eq!((silences.silent(9000 * MS), silences.age_ms(9000 * MS)), (vec![], 0));
        silences.look(&[seen(1, 0)], true, 100 * MS, 9900 * MS);
        assert_eq!(silences.silent(10_000 * MS), [], "rounds are short, agents may be slow");
        silences.look(&[seen(1, 0)], true, 100 * MS, 10_100 * MS);
        assert_eq!(silences.silent(10_100 * MS), [(1, Ipv4Addr::new(10, 9, 0, 2))]);
    }
}
