//! Which lives of a group with EWO are over, and in its base (systems/swish/docs/slots.md).

use crate::eventual::{folds_into, incarnation_of, is_base};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Lives of switches: of each switch those with a lower incarnation. It only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before(BTreeMap<Ipv4Addr, u32>);

/// The base: one column of slots, in the place of those of many lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// That of the view that made it.
    pub number: u32,
    /// The lives that are in it.
    pub before: Before,
}

impl Before {
    /// The switch's lives with a lower incarnation, too.
    pub fn add(&mut self, switch: Ipv4Addr, incarnation: u32) {
        let known = self.0.entry(switch).or_default();
        *known = (*known).max(incarnation);
    }

    /// The lives that the other one has, too.
    pub fn join(&mut self, other: &Before) {
        other.0.iter().for_each(|(switch, incarnation)| self.add(*switch, *incarnation));
    }

    /// Whether this life (`eventual::life_of`) is one of them.
    pub fn has(&self, life: u64) -> bool {
        let before = self.0.get(&Ipv4Addr::from(life as u32));
        !is_base(life)
            && folds_into(life).is_none()
            && before.is_some_and(|before| incarnation_of(life) < *before)
    }

    /// A number for them: others have another one.
    pub fn number(&self) -> u32 {
        crate::control::name_hash(&self.text())
    }

    /// Eight digits for an address, and eight for an incarnation.
    fn text(&self) -> String {
        let mut text = String::with_capacity(16 * self.0.len());
        for (switch, incarnation) in &self.0 {
            // (Writing to a text does not fail.)
            let _ = write!(text, "{:08x}{incarnation:08x}", u32::from(*switch));
        }
        text
    }

    fn of(text: &str) -> Option<Before> {
        let pair = |at: usize| {
            let number = |from: usize| u32::from_str_radix(text.get(from..from + 8)?, 16).ok();
            Some((Ipv4Addr::from(number(at)?), number(at + 8)?))
        };
        (0..text.len()).step_by(16).map(pair).collect::<Option<_>>().map(Before)
    }
}

impl FromIterator<(Ipv4Addr, u32)> for Before {
    fn from_iter<I: IntoIterator<Item = (Ipv4Addr, u32)>>(all: I) -> Before {
        Before(all.into_iter().collect())
    }
}

impl Serialize for Before {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Before {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Before, D::Error> {
        let text = String::deserialize(deserializer)?;
        Before::of(&text).ok_or_else(|| de::Error::custom("no addresses and incarnations"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventual::{base_life, folding_life, life_of};

    #[test]
    fn earlier_lives_of_a_switch_are_over_and_no_others() {
        let (one, other) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
        let mut before = Before::default();
        before.add(one, 7);
        before.add(one, 5);
        assert!(before.has(life_of(one, 6)) && !before.has(life_of(one, 7)));
        assert!(!before.has(life_of(other, 6)), "another switch");
        before.add(Ipv4Addr::BROADCAST, 9);
        assert!(!before.has(base_life(3)) && !before.has(folding_life(3)), "no switch");
        let mut more = Before::from_iter([(other, 3), (one, 6)]);
        more.join(&before);
        assert!(more.has(life_of(one, 6)) && more.has(life_of(other, 2)));
        assert_ne!(more.number(), before.number());
        let text = serde_json::to_string(&more).expect("JSON");
        assert_eq!(serde_json::from_str::<Before>(&text).expect("they"), more);
        assert!(serde_json::from_str::<Before>(&text.replace("00000003", "0003")).is_err());
    }
}
