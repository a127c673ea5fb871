//! Who sends to whom, when, and through which switch.

use crate::shared::SWITCHES;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Attackers that send at a time.
const AT_ONCE: usize = 4;
/// How long each of them sends.
const ATTACK: Duration = Duration::from_millis(1200);
/// The part of that in which it comes to new destinations.
const SPREADS: f64 = 0.8;
/// Of an attacker, from packet to packet at each switch.
const GAP: Duration = Duration::from_millis(1);
/// Destinations of an attacker. (By the sketch, 2000 are blocked in 99.7 % of all cases.)
const MANY: std::ops::RangeInclusive<u32> = 2400..=3600;
/// Destinations of a benign source.
const FEW: std::ops::RangeInclusive<u32> = 500..=950;
/// Destinations of an attacker at one switch, at the most: none sees too many alone.
const ALONE: u32 = 950;
/// After the traffic: windows turn and controllers look.
const SETTLE: Duration = Duration::from_millis(300);
/// Packets of each source at each switch at the end, which show whether it is blocked there.
pub const LAST: usize = 8;
/// From one of these packets to the next one.
const LAST_GAP: Duration = Duration::from_micros(200);

/// A source.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its address.
    pub address: u32,
    /// More than 1000 destinations.
    pub attacks: bool,
    /// What it sends to through each switch.
    pub destinations: [Vec<u32>; SWITCHES],
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// After the beginning.
    pub at: Duration,
    /// Number of the source.
    pub source: usize,
    /// To whom.
    pub destination: u32,
}

/// All traffic.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Attackers first.
    pub sources: Vec<Source>,
    /// Of each switch, in the order of their times.
    pub packets: [Vec<Planned>; SWITCHES],
    /// How long it takes.
    pub length: Duration,
}

/// Shares of the switches: even, as uneven as may be, or by chance.
fn shares(random: &mut StdRng, number: usize, count: u32) -> [f64; SWITCHES] {
    match number % 3 {
        0 => [0.25; SWITCHES],
        1 => {
            let most = (f64::from(ALONE) / f64::from(count)).min(0.6);
            [most, (1.0 - most) * 0.4, (1.0 - most) * 0.35, (1.0 - most) * 0.25]
        }
        _ => {
            let parts: [f64; SWITCHES] = std::array::from_fn(|_| random.random_range(0.1..1.0));
            let sum: f64 = parts.iter().sum();
            parts.map(|part| part / sum)
        }
    }
}

/// So many destinations, split over the switches.
fn split(random: &mut StdRng, number: usize, count: u32) -> [u32; SWITCHES] {
    for _ in 0..100 {
        let mut shares = shares(random, number, count);
        shares.shuffle(random);
        let counts = shares.map(|share| (share * f64::from(count)) as u32);
        if counts.iter().all(|it| *it <= ALONE) {
            return counts;
        }
    }
    [count / SWITCHES as u32; SWITCHES]
}

impl Plan {
    /// The same traffic for the same seed.
    pub fn new(seed: u64, attackers: usize, benign: usize) -> Plan {
        let mut random = StdRng::seed_from_u64(seed);
        let sources: Vec<Source> = (0..attackers + benign)
            .map(|number| {
                let attacks = number < attackers;
                let count = random.random_range(if attacks { MANY } else { FEW });
                let counts = split(&mut random, number, count);
                let base = u32::from(Ipv4Addr::new(10, 128, 0, 0)) + ((number as u32) << 12);
                let mut next = base;
                let destinations = counts.map(|count| {
                    next += count;
                    (next - count..next).collect()
                });
                let address = u32::from(Ipv4Addr::new(10, 66, 0, 1)) + number as u32;
                Source { address, attacks, destinations }
            })
            .collect();
        let rounds = attackers.div_ceil(AT_ONCE).max(1) as u32;
        let busy = ATTACK * rounds;
        let packets = std::array::from_fn(|switch| {
            let mut packets = vec![];
            for (number, source) in sources.iter().enumerate() {
                let own = &source.destinations[switch];
                if source.attacks {
                    let begin = ATTACK * (number / AT_ONCE) as u32;
                    attack(&mut random, number, own, begin, &mut packets);
                } else {
                    speak(&mut random, number, own, busy, &mut packets);
                }
            }
            for round in 0..LAST {
                for (number, source) in sources.iter().enumerate() {
                    let own = &source.destinations[switch];
                    let Some(destination) = own.get(round % own.len().max(1)) else { continue };
                    let at = busy + SETTLE + LAST_GAP * (round * sources.len() + number) as u32;
                    packets.push(Planned { at, source: number, destination: *destination });
                }
            }
            packets.sort_by_key(|packet| packet.at);
            packets
        });
        let length = busy + SETTLE + LAST_GAP * (LAST * sources.len()) as u32;
        Plan { sources, packets, length }
    }

    /// How many packets there are.
    pub fn count(&self) -> usize {
        self.packets.iter().map(Vec::len).sum()
    }
}

/// An attacker comes to its destinations one after the other, then begins again.
fn attack(random: &mut StdRng, source: usize, own: &[u32], begin: Duration, to: &mut Vec<Planned>) {
    let count = (ATTACK.as_nanos() / GAP.as_nanos()) as usize;
    let spread = (count as f64 * SPREADS) as usize;
    let begin = begin + GAP.mul_f64(random.random_range(0.0..1.0));
    for number in 0..count {
        let Some(destination) = own.get(number * own.len() / spread % own.len().max(1)) else {
            continue;
        };
        to.push(Planned { at: begin + GAP * number as u32, source, destination: *destination });
    }
}

/// A benign source sends to each destination at some time, and to some of them again.
fn speak(random: &mut StdRng, source: usize, own: &[u32], until: Duration, to: &mut Vec<Planned>) {
    for destination in own {
        for _ in 0..1 + usize::from(random.random_bool(0.3)) {
            let at = until.mul_f64(random.random_range(0.0..1.0));
            to.push(Planned { at, source, destination: *destination });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_switch_sees_too_many_alone() {
        let plan = Plan::new(1, 9, 9);
        for source in &plan.sources {
            let all: BTreeSet<u32> = source.destinations.iter().flatten().copied().collect();
            let counts = source.destinations.each_ref().map(Vec::len);
            assert_eq!(all.len(), counts.iter().sum::<usize>(), "a destination at two switches");
            assert_eq!(all.len() > 1000, source.attacks, "{counts:?}");
            assert!(counts.iter().all(|it| *it <= ALONE as usize), "{counts:?}");
        }
        for packets in &plan.packets {
            assert!(packets.is_sorted_by_key(|it| it.at));
            let sent = |source: usize| {
                let sent = packets.iter().filter(|it| it.source == source);
                sent.map(|it| it.destination).collect::<BTreeSet<u32>>().len()
            };
            let switch = plan.packets.iter().position(|it| it == packets).expect("a switch");
            for (number, source) in plan.sources.iter().enumerate() {
                assert_eq!(sent(number), source.destinations[switch].len(), "source {number}");
            }
        }
    }

    #[test]
    fn a_seed_gives_the_same() {
        assert_eq!(Plan::new(7, 4, 4).packets, Plan::new(7, 4, 4).packets);
        assert_ne!(Plan::new(7, 4, 4).packets, Plan::new(8, 4, 4).packets);
    }
}
