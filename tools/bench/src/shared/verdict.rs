//! What came of a run, by the hosts' ledger.

use crate::shared::SWITCHES;
use crate::shared::plan::{LAST, Plan};
use crate::shared::sketch::Sketch;
use crate::shared::traffic::{Ledger, Sent};

/// What became of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// More than 1000 destinations.
    pub attacks: bool,
    /// Its destinations at each switch.
    pub destinations: [usize; SWITCHES],
    /// When an omniscient switch would have blocked it: at the packet that fills its cells.
    pub omniscient_ns: Option<u64>,
    /// From when on each switch let none of its packets pass, as its next packet there showed.
    pub blocked_ns: [Option<u64>; SWITCHES],
}

impl Outcome {
    /// Whether all switches block it.
    pub fn everywhere(&self) -> bool {
        self.blocked_ns.iter().all(Option::is_some)
    }

    /// Whether some switch blocks it.
    pub fn somewhere(&self) -> bool {
        self.blocked_ns.iter().any(Option::is_some)
    }

    /// From the packet at which an omniscient switch would block, to the block on all switches.
    pub fn detect_ms(&self) -> Option<f64> {
        let last = self.blocked_ns.iter().copied().collect::<Option<Vec<u64>>>()?;
        let last = last.into_iter().max()?;
        Some(last.saturating_sub(self.omniscient_ns?) as f64 / 1e6)
    }
}

/// When each source's cells would be full on a switch that sees all packets.
fn omniscient(plan: &Plan, ledger: &Ledger) -> Vec<Option<u64>> {
    let mut all: Vec<&Sent> = ledger.iter().flatten().collect();
    all.sort_by_key(|sent| sent.at_ns);
    let mut sketch = Sketch::default();
    let mut at = vec![None; plan.sources.len()];
    for sent in all {
        if sketch.take(plan.sources[sent.source].address, sent.destination) {
            at[sent.source] = Some(sent.at_ns);
        }
    }
    at
}

/// From when on none of a source's packets passes a switch; none: the last ones do not all show it.
fn blocked(lane: &[Sent], source: usize) -> Option<u64> {
    let mut dropped = lane.iter().rev().filter(|sent| sent.source == source);
    let (mut first, mut count) = (None, 0);
    while let Some(sent) = dropped.next().filter(|sent| !sent.arrived) {
        first = Some(sent.at_ns);
        count += 1;
    }
    first.filter(|_| count >= LAST)
}

/// All sources, in the plan's order.
pub fn outcomes(plan: &Plan, ledger: &Ledger) -> Vec<Outcome> {
    let omniscient = omniscient(plan, ledger);
    let outcome = |(number, omniscient_ns): (usize, Option<u64>)| Outcome {
        attacks: plan.sources[number].attacks,
        destinations: plan.sources[number].destinations.each_ref().map(Vec::len),
        omniscient_ns,
        blocked_ns: ledger.each_ref().map(|lane| blocked(lane, number)),
    };
    omniscient.into_iter().enumerate().map(outcome).collect()
}

/// Packets that the ledger misses without a block: lost on the way.
pub fn lost(ledger: &Ledger, blocked_packets: u64) -> u64 {
    let missing = ledger.iter().flatten().filter(|sent| !sent.arrived).count() as u64;
    missing.saturating_sub(blocked_packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three sources, as if the first were blocked everywhere from its packet 300 on, the second
    /// at one switch only.
    fn made_up(plan: &Plan) -> Ledger {
        let mut seen = vec![0; plan.sources.len()];
        let mut numbers: Vec<(usize, usize)> = vec![];
        for (switch, lane) in plan.packets.iter().enumerate() {
            numbers.extend((0..lane.len()).map(|at| (switch, at)));
        }
        numbers.sort_by_key(|(switch, at)| (plan.packets[*switch][*at].at, *switch));
        let mut ledger = Ledger::default();
        for (switch, at) in numbers {
            let packet = plan.packets[switch][at];
            seen[packet.source] += 1;
            let arrived = match packet.source {
                0 => seen[0] <= 3000,
                1 => switch != 2 || seen[1] <= 3000,
                _ => true,
            };
            let at_ns = packet.at.as_nanos() as u64;
            let (source, destination) = (packet.source, packet.destination);
            ledger[switch].push(Sent { at_ns, source, destination, arrived });
        }
        ledger
    }

    #[test]
    fn a_source_is_blocked_where_nothing_passes_any_more() {
        let plan = Plan::new(3, 2, 1);
        let mut ledger = made_up(&plan);
        let found = outcomes(&plan, &ledger);
        assert!(found[0].everywhere() && found[0].omniscient_ns.is_some());
        assert!(found[0].detect_ms().is_some_and(|ms| ms > 0.0));
        assert!(found[1].somewhere() && !found[1].everywhere());
        assert_eq!(found[1].detect_ms(), None);
        assert_eq!((found[2].somewhere(), found[2].omniscient_ns), (false, None));

        // One late packet that passes is no block.
        let last = ledger[0].iter_mut().rfind(|sent| sent.source == 0).expect("a packet");
        last.arrived = true;
        assert!(!outcomes(&plan, &ledger)[0].everywhere());
    }

    #[test]
    fn what_no_block_explains_is_lost() {
        let plan = Plan::new(3, 2, 1);
        let ledger = made_up(&plan);
        let missing = ledger.iter().flatten().filter(|sent| !sent.arrived).count() as u64;
        assert_eq!((lost(&ledger, missing), lost(&ledger, missing - 5)), (0, 5));
    }
}
