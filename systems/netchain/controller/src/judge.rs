//! What must hold of decisions, for simulators that follow them.

use crate::Settings;
use crate::state::{Group, Standing, State};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A decision takes some milliseconds until it is persistent, and clocks differ by 1 % at most.
const SLACK_MS: u64 = 20;
/// An order is taken within this time.
const ORDER_MS: u64 = 100;

/// Follows the decisions of a cluster's controllers.
#[derive(Clone, Debug)]
pub struct Judge {
    settings: Settings,
    /// Since when each switch serves in this life, and is not drained.
    serves: BTreeMap<Ipv4Addr, (u32, u64)>,
    /// Who serves before then need not wait.
    ordered_until_ms: u64,
}

impl Judge {
    /// Of controllers with these settings.
    pub fn new(settings: Settings) -> Judge {
        Judge { settings, serves: BTreeMap::new(), ordered_until_ms: 0 }
    }

    /// An operator has ordered that chains move now.
    pub fn ordered(&mut self, now_ms: u64) {
        // (It is taken when the decision that is being written is persistent.)
        self.ordered_until_ms = now_ms + ORDER_MS;
        self.serves.values_mut().for_each(|(_, since_ms)| *since_ms = 0);
    }

    /// A decision has become persistent.
    ///
    /// # Errors
    /// What does not hold.
    pub fn decided(&mut self, now_ms: u64, old: &State, new: &State) -> Result<(), String> {
        let whole = self.settings.failures + 1;
        for (number, (before, after)) in old.groups.iter().zip(&new.groups).enumerate() {
            let goes = |it: &Ipv4Addr| is_gone(it, old, new) || new.switches[it].draining;
            let lost = before.full().filter(|it| !after.full().any(|other| other == *it));
            let willingly = lost.filter(|it| !goes(it)).count();
            if willingly > 0 && after.full().count() < whole {
                return Err(format!("group {number} gives a member away: {before:?}, {after:?}"));
            }
            let stays = |it: &Ipv4Addr| !new.switches[it].draining;
            let was_whole = before.full().filter(stays).count() >= whole;
            let Some(joins) = after.joining.filter(|_| was_whole && before.joining.is_none())
            else {
                continue;
            };
            let busy = |group: &Group| group.joining.is_some() || group.collecting;
            if old.groups.iter().any(busy) {
                return Err(format!("group {number} moves beside others: {old:?}"));
            }
            self.may_move(now_ms, joins)?;
        }
        self.serves(now_ms, new);
        Ok(())
    }

    /// A switch that comes and goes must not get chains by moves.
    fn may_move(&self, now_ms: u64, joins: Ipv4Addr) -> Result<(), String> {
        let since_ms = self.serves.get(&joins).map_or(now_ms, |(_, since_ms)| *since_ms);
        let served_ms = now_ms - since_ms;
        let least_ms = self.settings.rebalance_after_ms;
        match since_ms == 0 || least_ms > 0 && served_ms + served_ms / 50 + SLACK_MS >= least_ms {
            true => Ok(()),
            false => Err(format!("{joins} gets a group after {served_ms} ms")),
        }
    }

    fn serves(&mut self, now_ms: u64, state: &State) {
        for (address, switch) in &state.switches {
            let incarnation = switch.incarnation;
            if switch.standing != Standing::Serving || incarnation == 0 || switch.draining {
                self.serves.remove(address);
            } else if self.serves.get(address).is_none_or(|(life, _)| *life != incarnation) {
                let waits = now_ms >= self.ordered_until_ms;
                let since_ms = if waits { now_ms } else { 0 };
                self.serves.insert(*address, (incarnation, since_ms));
            }
        }
    }
}

/// Has this decision found a switch dead, or in another life?
fn is_gone(switch: &Ipv4Addr, old: &State, new: &State) -> bool {
    let (before, after) = (&old.switches[switch], &new.switches[switch]);
    after.standing != Standing::Serving || before.incarnation != after.incarnation
}
