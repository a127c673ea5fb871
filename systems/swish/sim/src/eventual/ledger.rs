//! What packets were sent, and what slots must be of it.

use crate::model::{Checked, violated};
use std::collections::BTreeMap;
use swish_protocol::base::Before;
use swish_protocol::eventual::{base_life, is_base};

/// A variable's updates, whatever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// Of all groups' cells.
    pub(crate) cell: u32,
    pub(crate) by: u32,
}

/// How a cell without slots grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grows {
    Bits,
    Maximum,
}

impl Grows {
    pub(crate) fn of(self, one: u64, other: u64) -> u64 {
        match self {
            Grows::Bits => one | other,
            Grows::Maximum => one.max(other),
        }
    }

    /// Whether all of `small` is in `large`.
    pub(crate) fn has(self, large: u64, small: u64) -> bool {
        self.of(large, small) == large
    }
}

/// What was done in each life of each switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// By life, then cell with slots: what its packets added.
    slots: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// By life, then cell without.
    direct: BTreeMap<u64, BTreeMap<u32, u64>>,
    /// Lives that are to be in the base.
    pub(crate) before: Before,
}

impl Ledger {
    pub(crate) fn add(&mut self, life: u64, Update { cell, by }: Update) {
        *self.slots.entry(life).or_default().entry(cell).or_default() += u64::from(by);
    }

    pub(crate) fn grow(&mut self, life: u64, Update { cell, by }: Update, grows: Grows) {
        let own = self.direct.entry(life).or_default().entry(cell).or_default();
        *own = grows.of(*own, by.into());
    }

    /// What the packets of a life added, or of all lives that are in the base.
    pub(crate) fn slot(&self, life: u64, cell: u32) -> u64 {
        let of = |cells: &BTreeMap<u32, u64>| cells.get(&cell).copied().unwrap_or_default();
        if is_base(life) {
            let over = self.slots.iter().filter(|(life, _)| self.before.has(**life));
            return over.map(|(_, cells)| of(cells)).sum();
        }
        self.slots.get(&life).map_or(0, of)
    }

    /// A switch's slots as if it had folded all that is over.
    pub(crate) fn folded(&self, slots: &Slots) -> Slots {
        let mut found = Slots::new();
        for (life, slots) in slots {
            let is_over = is_base(*life) || self.before.has(*life);
            let sum = found.entry(if is_over { base_life(0) } else { *life }).or_default();
            sum.resize(slots.len(), 0);
            sum.iter_mut().zip(slots).for_each(|(sum, slot)| *sum += slot);
        }
        found
    }

    /// What a cell without slots is, of the updates of some lives.
    pub(crate) fn direct(&self, cell: u32, grows: Grows, of: impl Fn(u64) -> bool) -> u64 {
        let lives = self.direct.iter().filter(|(life, _)| of(**life));
        let values = lives.filter_map(|(_, cells)| cells.get(&cell).copied());
        values.fold(0, |all, value| grows.of(all, value))
    }
}

/// A switch's slots of one life, at a look.
pub(crate) type Slots = BTreeMap<u64, Vec<u64>>;

/// No slot has become smaller, and none has more than its life added.
pub(crate) fn only_grow(
    switch: usize,
    before: &Slots,
    now: &Slots,
    ledger: &Ledger,
    cells: &[u32],
) -> Checked {
    for (life, slots) in before {
        let newer = now.get(life).cloned().unwrap_or_default();
        for (at, slot) in slots.iter().enumerate() {
            let later = newer.get(at).copied().unwrap_or(0);
            if later < *slot {
                let detail = format!("{switch}: cell {at} of life {life:#x}: {slot}, then {later}");
                return violated("lowered", detail);
            }
        }
    }
    for (life, slots) in now {
        for (cell, slot) in cells.iter().zip(slots) {
            let most = ledger.slot(*life, *cell);
            if *slot > most {
                return violated(
                    "invented",
                    format!("{switch}: cell {cell} of life {life:#x} is {slot}, of {most}"),
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn what_was_not_added_is_invented_and_less_is_lowered() {
        let mut ledger = Ledger::default();
        ledger.add(1 << 6, Update { cell: 4, by: 5 });
        let slots = |value| Slots::from([(1 << 6, vec![value])]);
        let check = |before, now| only_grow(0, &slots(before), &slots(now), &ledger, &[4]);
        assert_eq!(check(3, 5), Ok(()));
        assert_eq!(check(5, 3).unwrap_err().check, "lowered");
        assert_eq!(check(5, 6).unwrap_err().check, "invented");
        // All that is over counts together.
        ledger.before.add(Ipv4Addr::from(1 << 6), 1);
        let folded = ledger.folded(&Slots::from([(1 << 6, vec![2]), (base_life(7), vec![3])]));
        assert_eq!(folded, Slots::from([(base_life(0), vec![5])]));
        assert_eq!((ledger.slot(base_life(0), 4), ledger.slot(base_life(0), 5)), (5, 0));
        ledger.grow(1 << 6, Update { cell: 9, by: 5 }, Grows::Bits);
        ledger.grow(2 << 6, Update { cell: 9, by: 2 }, Grows::Bits);
        assert_eq!(ledger.direct(9, Grows::Bits, |_| true), 7);
        assert_eq!(ledger.direct(9, Grows::Bits, |life| life == 1 << 6), 5);
    }
}
