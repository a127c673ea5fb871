//! Which groups get a view in which tombstones are collected, and when it ends.
//! (systems/netchain/docs/tombstones.md)

use crate::decide::{Event, Look};
use crate::mutation::{self, Mutation};
use crate::state::{KEPT_SESSIONS, Stage, State};
use std::collections::{BTreeMap, BTreeSet};

/// What a controller keeps in mind of collections. Another controller begins without it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collections {
    /// Groups that wait, in the order of their numbers.
    wanted: BTreeSet<u16>,
    /// When a group's last one began.
    begun_ms: BTreeMap<u16, u64>,
}

impl Collections {
    /// An operator wants it.
    pub(crate) fn want(&mut self, groups: impl Iterator<Item = u16>) {
        self.wanted.extend(groups);
    }

    pub(crate) fn forget(&mut self) {
        self.wanted.clear();
    }

    /// This decision is persistent.
    pub(crate) fn began(&mut self, state: &State, now_ms: u64) {
        for (number, _) in (0..).zip(&state.groups).filter(|(_, group)| group.collecting) {
            self.wanted.remove(&number);
            self.begun_ms.insert(number, now_ms);
        }
    }

    fn is_due(&self, group: u16, now_ms: u64, gap_ms: u64) -> bool {
        self.begun_ms.get(&group).is_none_or(|begun| now_ms.saturating_sub(*begun) >= gap_ms)
    }
}

impl Look<'_> {
    /// Rule 8: the tombstones of one group at a time are collected, in a view of its own, if an
    /// operator wants it or a member runs out of slots. Nobody may join in that view: a late copy
    /// for a member that joins would bring a key back.
    pub(crate) fn collects(&mut self, collections: &Collections) {
        self.collected();
        if self.resumed || self.is_resuming() || self.state.groups.iter().any(|it| it.collecting) {
            return;
        }
        let mut groups = 0..self.state.groups.len() as u16;
        let Some(number) = groups.find(|it| self.wants(*it, collections)) else { return };
        let version = self.state.version;
        let group = &mut self.state.groups[usize::from(number)];
        group.collect(version);
        if mutation::planted(Mutation::CollectsInOldSession) {
            group.session -= 1;
        }
        self.changed = true;
        self.events.push(Event::Collects(number));
    }

    fn wants(&self, number: u16, collections: &Collections) -> bool {
        let group = &self.state.groups[usize::from(number)];
        let settles = group.stage == Stage::Serving
            && (group.joining.is_none() || mutation::planted(Mutation::CollectsWhileOneJoins));
        if !settles || group.session >= u16::MAX - KEPT_SESSIONS {
            return false;
        }
        let percent = self.settings.collect_percent;
        let is_full = |it| self.facts.get(it).is_some_and(|it| it.used_percent >= percent);
        collections.wanted.contains(&number)
            || (percent > 0
                && collections.is_due(number, self.now_ms, self.settings.collect_gap_ms)
                && group.chain.iter().any(is_full))
    }

    /// The head has sent all tombstones down its chain, and has their acknowledgements.
    fn collected(&mut self) {
        for (number, group) in (0..).zip(&mut self.state.groups) {
            let Some(head) = group.head().filter(|_| group.collecting) else { continue };
            let view = self.facts.get(&head).and_then(|facts| facts.copied.get(&number));
            if group.stage == Stage::Serving && view == Some(&group.view) {
                group.collecting = false;
                self.changed = true;
                self.events.push(Event::Collected(number));
            }
        }
    }
}
