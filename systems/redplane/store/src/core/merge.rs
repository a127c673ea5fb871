//! Keys for which several switches count at the same time: the newest whole snapshots of their
//! slots, merged slot by slot. `systems/redplane/docs/snapshots.md`, "Several switches at once".
//!
//! "The state store merges updates for each slot in the sketches" (RedPlane's draft, §6,
//! "Heavy-hitter (HH) detector"). The draft's updates are increments, of which one that comes twice
//! would count twice. Here a switch sends what its slots are, and that takes the place of what they
//! were: so a contribution counts once however often, and in whatever order, it comes.

use super::settings::MergeSettings;
use super::{Mutation, mutation};
use state_protocol::objects::Merge;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// How a key's slots are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merging {
    /// What the object declares.
    pub settings: MergeSettings,
    /// 4 or 8.
    pub slot_bytes: usize,
}

/// What several switches have counted for one key. It follows from their contributions, so a copy
/// of a shard has these only.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The slots of all contributions of the newest time window, in wire form; empty: no switch's
    /// snapshot is whole.
    pub slots: Vec<u8>,
    /// The slot of each contribution's record, by its switch.
    pub contributions: BTreeMap<u32, u32>,
}

fn number(slot: &[u8]) -> u64 {
    slot.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Merging {
    /// The time window of whole slots; 0: none has begun, or there are none.
    pub fn window(&self, slots: &[u8]) -> u64 {
        let last = slots.len().saturating_sub(self.slot_bytes);
        self.settings.window_bits.map_or(0, |_| number(&slots[last..]))
    }

    /// By RFC 1982's order, as the switches'. It orders windows that are less than half of the
    /// range apart, and a contribution of a switch that died may be as old as the key: so numbers
    /// have 32 bits at least (`LEAST_WINDOW_BITS`).
    fn compare(&self, one: u64, other: u64) -> Ordering {
        let mask = u64::MAX >> (64 - self.settings.window_bits.unwrap_or(64).clamp(1, 64));
        let ahead = one.wrapping_sub(other) & mask;
        match (one, other) {
            _ if ahead == 0 => Ordering::Equal,
            (0, _) => Ordering::Less,
            (_, 0) => Ordering::Greater,
            _ if ahead <= mask >> 1 => Ordering::Greater,
            _ => Ordering::Less,
        }
    }

    /// Slot by slot: what `change` makes of the slot, of the one that was before, and of the new
    /// one. False: it cannot tell from these, and nothing can be said of the slots.
    fn each(
        &self,
        slots: &mut [u8],
        before: Option<&[u8]>,
        new: &[u8],
        change: impl Fn(u64, u64, u64) -> Option<u64>,
    ) -> bool {
        let counting =
            slots.len().min(new.len()) - self.settings.window_bits.map_or(0, |_| self.slot_bytes);
        for at in (0..counting).step_by(self.slot_bytes) {
            let place = at..at + self.slot_bytes;
            let was = before.and_then(|before| before.get(place.clone())).map_or(0, number);
            let Some(value) =
                change(number(&slots[place.clone()]), was, number(&new[place.clone()]))
            else {
                return false;
            };
            let bytes = value.to_be_bytes();
            slots[place].copy_from_slice(&bytes[bytes.len() - self.slot_bytes..]);
        }
        true
    }

    fn change(&self, merged: u64, was: u64, new: u64) -> Option<u64> {
        let takes_off = !mutation::planted(Mutation::MergedWithoutTakingOff);
        match self.settings.how {
            // Modulo the slot's size.
            Merge::Sum if !takes_off => Some(merged.wrapping_add(new)),
            Merge::Sum => Some(merged.wrapping_add(new).wrapping_sub(was)),
            // What has become less may have been what stood there.
            Merge::Max => (new >= was).then_some(merged.max(new)),
            Merge::Or => (new & was == was).then_some(merged | new),
        }
    }
}

impl Merged {
    /// A switch's newest whole snapshot is `new`, in the place of `before`. False: what is merged
    /// does not follow from these, and must be made anew of all contributions.
    pub fn replace(&mut self, by: Merging, before: Option<&[u8]>, new: &[u8]) -> bool {
        if self.slots.is_empty() {
            self.slots = new.to_vec();
            return true;
        }
        let window = by.window(&self.slots);
        let before = before.filter(|before| by.compare(by.window(before), window).is_eq());
        match by.compare(by.window(new), window) {
            Ordering::Greater => self.slots = new.to_vec(),
            Ordering::Equal => {
                return by.each(&mut self.slots, before, new, |merged, was, new| {
                    by.change(merged, was, new)
                });
            }
            // Of an older window: nothing of it counts, and nothing of it did.
            Ordering::Less => return before.is_none(),
        }
        true
    }

    /// Makes the merged slots anew of all contributions' newest whole snapshots.
    pub fn make<'a>(&mut self, by: Merging, contributions: impl Iterator<Item = &'a [u8]>) {
        self.slots.clear();
        for new in contributions {
            // Without one before it, no slot can have become less.
            self.replace(by, None, new);
        }
    }

    /// A seeded bug: the snapshot is taken for a new one.
    pub(super) fn add_again(&mut self, by: Merging, again: &[u8]) {
        self.replace(by, None, again);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rng::SplitMix64;
    use super::*;

    const SWITCHES: u64 = 5;
    const SLOTS: usize = 7;

    fn bytes(slots: &[u64], slot_bytes: usize) -> Vec<u8> {
        slots.iter().flat_map(|slot| slot.to_be_bytes()[8 - slot_bytes..].to_vec()).collect()
    }

    /// What is to come out, from all contributions at once and in numbers.
    fn reference(by: Merging, contributions: &BTreeMap<u64, Vec<u64>>) -> Vec<u64> {
        let windows = by.settings.window_bits.is_some();
        let window = |slots: &[u64]| if windows { *slots.last().unwrap() } else { 0 };
        let newest = contributions.values().map(|it| window(it)).max().unwrap();
        let counted: Vec<_> = contributions.values().filter(|it| window(it) == newest).collect();
        let mask = u64::MAX >> (64 - 8 * by.slot_bytes);
        let mut merged: Vec<u64> = (0..SLOTS)
            .map(|at| {
                let slots = counted.iter().map(|it| it[at]);
                match by.settings.how {
                    Merge::Sum => slots.fold(0, u64::wrapping_add) & mask,
                    Merge::Max => slots.max().unwrap(),
                    Merge::Or => slots.fold(0, |all, slot| all | slot),
                }
            })
            .collect();
        if windows {
            merged[SLOTS - 1] = newest;
        }
        merged
    }

    /// Switches' slots grow, fall, begin new windows, and come back from what they were.
    #[test]
    fn it_is_what_the_contributions_are_together() {
        let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(21);
        println!("seed {seed} (SEED=)");
        let mut rng = SplitMix64::new(seed);
        let (mut remade, mut replaced) = (0, 0);
        for round in 0..600 {
            let how = Merge::ALL[round % 3];
            let slot_bytes = [4, 8][round / 3 % 2];
            let window_bits = [None, Some(8 * slot_bytes as u32)][round / 6 % 2];
            let by = Merging { settings: MergeSettings { how, window_bits }, slot_bytes };
            let mask = u64::MAX >> (64 - 8 * slot_bytes);
            let (mut merged, mut contributions) = (Merged::default(), BTreeMap::new());
            for _ in 0..60 {
                let switch = rng.draw() % SWITCHES;
                let before: Option<Vec<u64>> = contributions.get(&switch).cloned();
                let mut new = before.clone().unwrap_or_else(|| vec![0; SLOTS]);
                for slot in &mut new[..SLOTS - 1] {
                    *slot = match rng.draw() % 4 {
                        0 => rng.draw() & mask,
                        1 => slot.wrapping_add(rng.draw() % 9) & mask,
                        _ => *slot,
                    };
                }
                new[SLOTS - 1] += u64::from(rng.draw().is_multiple_of(5));
                contributions.insert(switch, new.clone());
                let before = before.map(|before| bytes(&before, slot_bytes));
                if merged.replace(by, before.as_deref(), &bytes(&new, slot_bytes)) {
                    replaced += 1;
                } else {
                    remade += 1;
                    let all: Vec<_> =
                        contributions.values().map(|it| bytes(it, slot_bytes)).collect();
                    merged.make(by, all.iter().map(Vec::as_slice));
                }
                let expected = bytes(&reference(by, &contributions), slot_bytes);
                assert_eq!(merged.slots, expected, "{by:?} of {contributions:?}");
            }
        }
        assert!(remade > 1_000 && replaced > 1_000, "{remade} remade, {replaced} replaced");
    }

    #[test]
    fn windows_are_in_rfc_1982s_order() {
        let settings = MergeSettings { how: Merge::Sum, window_bits: Some(8) };
        let by = Merging { settings, slot_bytes: 4 };
        let mut merged = Merged::default();
        let mut counts = |before: Option<[u64; 2]>, new: [u64; 2]| {
            let before = before.map(|it| bytes(&it, 4));
            assert!(merged.replace(by, before.as_deref(), &bytes(&new, 4)));
            let slots: Vec<u64> = merged.slots.chunks(4).map(number).collect();
            slots
        };
        assert_eq!(counts(None, [3, 255]), [3, 255]);
        assert_eq!(counts(None, [5, 1]), [5, 1], "1 is newer than 255");
        assert_eq!(counts(Some([3, 255]), [4, 255]), [5, 1], "and 255 is older");
        assert_eq!(counts(Some([4, 255]), [2, 1]), [7, 1]);
        assert_eq!(counts(None, [0, 0]), [7, 1], "no window yet");
    }
}
