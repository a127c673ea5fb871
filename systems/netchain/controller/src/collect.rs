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

    /// A decision is persistent. A group that is wanted again while it is collected stays wanted:
    /// tombstones that are younger than its floor wait for the next collection.
    pub(crate) fn persisted(&mut self, before: &State, after: &State, now_ms: u64) {
        for (number, (old, new)) in (0..).zip(before.groups.iter().zip(&after.groups)) {
            if new.collects_in != old.collects_in {
                self.wanted.remove(&number);
                self.begun_ms.insert(number, now_ms);
            } else if old.collecting && new.view != old.view {
                self.wanted.insert(number); // its chain changed before it was done
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn wanted(collections: &Collections) -> Vec<u16> {
        collections.wanted.iter().copied().collect()
    }

    /// Else an operator's order of this moment is forgotten, and waits for ever.
    #[test]
    fn a_group_that_is_wanted_while_it_is_collected_is_collected_again() {
        let members = [1, 2, 3].map(|at| Ipv4Addr::new(10, 9, 0, at));
        let before = State::found(&members, vec![members.to_vec(); 2]);
        let mut collections = Collections::default();
        collections.want(0..2);
        let mut during = before.clone();
        during.groups[0].collect(2);
        collections.persisted(&before, &during, 10);
        assert_eq!(wanted(&collections), [1], "group 0 is collected now");
        collections.want(0..1);
        let mut later = during.clone();
        later.groups[0].stage = Stage::Serving;
        collections.persisted(&during, &later, 20);
        assert_eq!(wanted(&collections), [0, 1], "the order came later than the floor");
    }

    #[test]
    fn a_collection_that_a_death_ends_is_wanted_again() {
        let members = [1, 2, 3].map(|at| Ipv4Addr::new(10, 9, 0, at));
        let mut collections = Collections::default();
        let mut during = State::found(&members, vec![members.to_vec()]);
        during.groups[0].collect(2);
        let mut shorter = during.clone();
        shorter.groups[0].change(members[1..].to_vec(), None, 3);
        collections.persisted(&during, &shorter, 10);
        assert_eq!(wanted(&collections), [0]);
        let mut done = during.clone();
        done.groups[0].collecting = false;
        let mut collections = Collections::default();
        collections.persisted(&during, &done, 10);
        assert_eq!(wanted(&collections), [0; 0], "all are collected");
    }
}
