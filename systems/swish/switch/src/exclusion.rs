//! What controllers say of switches that they keep out of a group, for operators.

use serde::{Deserialize, Serialize};
use swish_protocol::exclusion::{Excluded, Why};

/// What `stateplane status` is told of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExcludedLoad {
    /// This switch is kept out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<Why>,
    /// Others, as this member's newest view says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Excluded>,
}

impl ExcludedLoad {
    /// No switch is kept out.
    pub fn is_empty(&self) -> bool {
        self.own.is_none() && self.others.is_empty()
    }

    /// What there is to say of the others, for people.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let note =
            |it: &Excluded| format!("{}. Remedy: {}. It joins by itself", it.text(), it.remedy());
        self.others.iter().map(note)
    }
}

/// What a member of a group was told.
#[derive(Debug, Default)]
pub(crate) struct Exclusions {
    /// When, and why this switch is kept out.
    own: Option<(u64, Why)>,
    others: Vec<Excluded>,
    /// The newest view that the switch was a member of.
    view: u32,
}

impl Exclusions {
    /// From view `number` on the switch is no member of the group. If there is a reason, it is kept
    /// out. A message from before the switch's own view is late, and says nothing.
    pub fn removed(&mut self, now_ns: u64, group: &str, number: u32, why: Option<Why>) {
        if number <= self.view {
            return;
        }
        self.others.clear();
        let known = self.own.take().map(|(_, why)| why.excluded);
        if let Some(why) = why {
            if known.as_ref() != Some(&why.excluded) {
                tracing::warn!("the group {group} of shared variables: {}", why.text());
            }
            self.own = Some((now_ns, why));
        }
    }

    /// The switch is a member of this view, and `others` are kept out.
    pub fn taken(&mut self, view: u32, others: &[Excluded]) {
        *self = Exclusions { own: None, others: others.to_vec(), view };
    }

    /// For operators.
    pub fn load(&self, now_ns: u64) -> ExcludedLoad {
        let own = self.own.as_ref().map(|(at_ns, why)| {
            let ms = now_ns.saturating_sub(*at_ns) / 1_000_000;
            let (since_ms, left_ms) = (why.since_ms + ms, why.left_ms.saturating_sub(ms));
            Why { since_ms, left_ms, ..why.clone() }
        });
        ExcludedLoad { own, others: self.others.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_reason_holds_until_the_switch_is_a_member() {
        let [one, other] = [1, 2].map(|last| Ipv4Addr::new(10, 9, 0, last));
        let excluded = Excluded { switch: one, view: 7, pairs: vec![(one, other)] };
        let why = Why { excluded: excluded.clone(), since_ms: 10, left_ms: 3_000 };
        let mut told = Exclusions::default();
        assert!(told.load(0).is_empty());
        told.removed(1_000_000_000, "main", 7, Some(why.clone()));
        let own = told.load(2_500_000_000).own.expect("a reason");
        assert_eq!((own.since_ms, own.left_ms), (1_510, 1_500));
        assert_eq!(told.load(9_000_000_000).own.map(|it| it.left_ms), Some(0));
        told.taken(8, std::slice::from_ref(&excluded));
        let load = told.load(9_000_000_000);
        assert_eq!((load.own.clone(), load.others.clone()), (None, vec![excluded]));
        let note = load.notes().next().expect("a note");
        assert!(note.ends_with("mend the link between 10.9.0.1 and 10.9.0.2. It joins by itself"));
        told.removed(9_000_000_000, "main", 7, Some(why));
        assert_eq!(told.load(9_000_000_000), load, "a late message");
        told.removed(9_000_000_000, "main", 9, None);
        assert!(told.load(9_000_000_000).is_empty());
    }
}
