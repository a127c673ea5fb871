//! Attackers that come one after the other, each through all switches at once, and what of each
//! one's packets gets through (SwiSh Figures 5a and 5b).

use crate::shared::SWITCHES;
use crate::shared::plan::{Plan, Planned, Source};
use crate::shared::sketch::Sketch;
use crate::shared::traffic::{Ledger, Sent};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Packets of an attacker, each to another destination. (The paper's send 10,000, ten times what
/// is allowed; here hosts cannot send so many.)
pub const PACKETS: u32 = 3_200;
/// How long it takes to send them.
const ATTACK: Duration = Duration::from_millis(800);

/// Traffic of `rate` new attackers a second for `time`. The same for the same seed.
pub fn plan(seed: u64, rate: u32, time: Duration) -> Plan {
    let mut random = StdRng::seed_from_u64(seed);
    let count = (f64::from(rate) * time.as_secs_f64()).round() as u32;
    let begins: Vec<Duration> =
        (0..count).map(|_| time.mul_f64(random.random_range(0.0..1.0))).collect();
    let each = PACKETS / SWITCHES as u32;
    let source = |number: u32| {
        let base = u32::from(Ipv4Addr::new(10, 128, 0, 0)) + (number << 12);
        let destinations = std::array::from_fn(|switch| {
            let first = base + switch as u32 * each;
            (first..first + each).collect()
        });
        let address = u32::from(Ipv4Addr::new(10, 66, 0, 1)) + number;
        Source { address, attacks: true, destinations }
    };
    let sources: Vec<Source> = (0..count).map(source).collect();
    let packets = std::array::from_fn(|switch| {
        let mut packets = vec![];
        for (number, (source, begin)) in sources.iter().zip(&begins).enumerate() {
            let late = random.random_range(0.0..1.0);
            for (at, destination) in source.destinations[switch].iter().enumerate() {
                let at = *begin + ATTACK.mul_f64((at as f64 + late) / f64::from(each));
                packets.push(Planned { at, source: number, destination: *destination });
            }
        }
        packets.sort_by_key(|packet| packet.at);
        packets
    });
    Plan { sources, packets, length: time + ATTACK }
}

/// Parts of its packets that got through, by attacker.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Leak {
    /// As the hosts saw it.
    pub part: Vec<f64>,
    /// As one switch that sees all packets would have it.
    pub one_switch: Vec<f64>,
}

/// What got through in a run.
pub fn leak(plan: &Plan, ledger: &Ledger) -> Leak {
    let mut all: Vec<&Sent> = ledger.iter().flatten().collect();
    all.sort_by_key(|sent| sent.at_ns);
    let mut sketch = Sketch::default();
    let count = plan.sources.len();
    let (mut through, mut would) = (vec![0u32; count], vec![0u32; count]);
    for sent in all {
        through[sent.source] += u32::from(sent.arrived);
        let address = plan.sources[sent.source].address;
        if !sketch.blocks(address) {
            would[sent.source] += 1;
            sketch.take(address, sent.destination);
        }
    }
    let parts = |counts: Vec<u32>| {
        counts.into_iter().map(|count| f64::from(count) / f64::from(PACKETS)).collect()
    };
    Leak { part: parts(through), one_switch: parts(would) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_switch_lets_a_third_pass() {
        let plan = plan(1, 10, Duration::from_secs(1));
        assert_eq!((plan.sources.len(), plan.count()), (10, 32_000));
        assert!(plan.packets.iter().all(|lane| lane.is_sorted_by_key(|packet| packet.at)));
        // As if everything passed.
        let ledger = plan.packets.each_ref().map(|lane| {
            let sent = |it: &Planned| Sent {
                at_ns: it.at.as_nanos() as u64,
                source: it.source,
                destination: it.destination,
                arrived: true,
            };
            lane.iter().map(sent).collect()
        });
        let leak = leak(&plan, &ledger);
        assert!(leak.part.iter().all(|part| *part == 1.0));
        // (About 1,065 of 3,200, give or take: it is a sketch.)
        assert!(leak.one_switch.iter().all(|part| (0.15..0.6).contains(part)), "{leak:?}");
    }
}
