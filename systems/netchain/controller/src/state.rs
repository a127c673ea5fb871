//! The controller's decision, as it is persistent.

use crate::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Sessions that are left for heads that die: no collection or move takes one of them.
pub(crate) const KEPT_SESSIONS: u16 = 4096;

/// All that the controller has decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Grows by one with each decision.
    pub version: u64,
    /// By NetChain address.
    pub switches: BTreeMap<Ipv4Addr, Switch>,
    /// By number.
    pub groups: Vec<Group>,
}

/// A switch of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Of the life that the decision is for; 0: it was never heard of.
    pub incarnation: u32,
    /// Whether others talk to it.
    pub standing: Standing,
    /// It leaves its chains, and gets into no other.
    pub draining: bool,
    /// Most others have heard this life.
    pub met: bool,
}

/// Whether others talk to a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// They do.
    Serving,
    /// It is dead since this version: who has its packets tells their senders the new chains.
    Dead {
        /// When the switch itself has taken this version, others talk to it again.
        since: u64,
    },
}

/// A group of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Grows with each change of the chain.
    pub view: u32,
    /// Grows with each head, and with each collection.
    pub session: u16,
    /// The view since which the head is this one: it has the verdicts of all requests since.
    #[serde(default = "unknown")]
    pub head_since: u32,
    /// Tombstones of earlier sessions may have been collected; 0: none have. It never falls.
    #[serde(default)]
    pub floor: u16,
    /// Members free tombstones below the floor in this view, in which nobody joins, and store none
    /// if they have no slot for the key: until the view ends, also when all are collected.
    #[serde(default)]
    pub collects_in: u32,
    /// The head is still to send some down the chain.
    #[serde(default)]
    pub collecting: bool,
    /// Head first. Without the member that joins, all have everything that was acknowledged.
    pub chain: Vec<Ipv4Addr>,
    /// The member that the others' slots are copied to.
    pub joining: Option<Ipv4Addr>,
    /// What its members do.
    pub stage: Stage,
}

/// The view since which a head is the same, in a decision from before it was told.
fn unknown() -> u32 {
    u32::MAX
}

/// What a group's members do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// They refuse all views, until all of them have taken this version, and no other switch
    /// answers reads.
    Paused {
        /// The version.
        since: u64,
        /// It may answer reads in an older view, as long as it has a lease.
        old_reader: Option<Ipv4Addr>,
    },
    /// They answer.
    Serving,
    /// No member is left that has the group's keys.
    Lost,
}

impl Group {
    /// Members that have everything.
    pub fn full(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let joining = self.joining;
        self.chain.iter().copied().filter(move |member| Some(*member) != joining)
    }

    /// The member that decides.
    pub fn head(&self) -> Option<Ipv4Addr> {
        self.full().next()
    }

    /// The member that answers reads, and copies its slots: the last that has everything.
    pub fn reader(&self) -> Option<Ipv4Addr> {
        self.full().last()
    }

    /// The chain is to be this one, in a new view, from this version on. `joining` stands before
    /// the last full member, so that this one goes on as the tail; behind it if it is the only one,
    /// which must stay the head.
    pub(crate) fn change(&mut self, full: Vec<Ipv4Addr>, joining: Option<Ipv4Addr>, version: u64) {
        let (head, reader) = (self.head(), self.reader());
        if full.first().copied() != head && self.session == u16::MAX {
            return self.lose(); // (after 65,535 heads no version would be above all earlier ones)
        }
        self.chain = full;
        if let Some(joining) = joining {
            let last = self.chain.len().saturating_sub(1);
            self.chain.insert(last.max(1).min(self.chain.len()), joining);
        }
        self.joining = joining;
        self.collecting = false;
        self.view = self.view.saturating_add(1);
        // A head never goes on with the session of another one (notes: two heads, one version).
        if self.head() != head {
            self.session = self.session.saturating_add(1);
            if !mutation::planted(Mutation::SameHead) {
                self.head_since = self.view;
            }
        }
        self.pause(reader, version);
    }

    /// The same chain goes on with a session of its own, in a view in which tombstones of earlier
    /// sessions are collected. (systems/netchain/docs/tombstones.md)
    pub(crate) fn collect(&mut self, version: u64) {
        let reader = self.reader();
        self.session = self.session.saturating_add(1);
        (self.floor, self.collecting) = (self.session, true);
        self.view = self.view.saturating_add(1);
        self.collects_in = self.view;
        self.pause(reader, version);
    }

    fn pause(&mut self, reader: Option<Ipv4Addr>, version: u64) {
        let old_reader = match self.stage {
            Stage::Paused { old_reader, .. } => old_reader,
            Stage::Serving => reader,
            Stage::Lost => None,
        };
        self.stage = Stage::Paused { since: version, old_reader };
    }

    /// No member has its keys.
    pub(crate) fn lose(&mut self) {
        self.chain.clear();
        self.joining = None;
        self.collecting = false;
        self.view = self.view.saturating_add(1);
        self.stage = Stage::Lost;
    }
}

impl State {
    /// A cluster as it is founded: the chain of each group, and all switches.
    pub fn found(switches: &[Ipv4Addr], chains: Vec<Vec<Ipv4Addr>>) -> State {
        let switch =
            || Switch { incarnation: 0, standing: Standing::Serving, draining: false, met: false };
        let group = |chain| Group {
            view: 1,
            session: 1,
            head_since: 1,
            floor: 0,
            collects_in: 0,
            collecting: false,
            chain,
            joining: None,
            stage: Stage::Paused { since: 1, old_reader: None },
        };
        State {
            version: 1,
            switches: switches.iter().map(|address| (*address, switch())).collect(),
            groups: chains.into_iter().map(group).collect(),
        }
    }

    /// Whether others talk to this switch.
    pub fn is_serving(&self, switch: &Ipv4Addr) -> bool {
        self.switches.get(switch).is_some_and(|it| it.standing == Standing::Serving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else two heads would give one version to two writes.
    #[test]
    fn a_group_without_a_session_for_another_head_is_lost() {
        let switch = |at| Ipv4Addr::new(10, 9, 0, at);
        let mut group = Group {
            view: 7,
            session: u16::MAX - 1,
            head_since: 1,
            floor: 0,
            collects_in: 0,
            collecting: false,
            chain: vec![switch(1), switch(2), switch(3)],
            joining: None,
            stage: Stage::Serving,
        };
        group.change(vec![switch(2), switch(3)], None, 8);
        assert_eq!((group.session, group.head()), (u16::MAX, Some(switch(2))), "the last one");
        group.change(vec![switch(2)], Some(switch(1)), 9);
        assert_eq!((group.session, group.view), (u16::MAX, 9), "its head stays");
        group.change(vec![switch(1)], None, 10);
        assert_eq!((group.stage, group.view), (Stage::Lost, 10));
        group.change(vec![switch(1)], None, 11);
        assert_eq!(group.stage, Stage::Lost, "it is not founded again");
    }
}
