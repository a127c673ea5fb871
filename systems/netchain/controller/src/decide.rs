//! The rules: from what is decided and what is seen to the next decision. README.md says why each
//! loses nothing.

use crate::collect::Collections;
use crate::moves::Moves;
use crate::mutation::{self, Mutation};
use crate::state::{Group, Stage, Standing, State, Switch};
use crate::{Placement, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// What is seen of a switch.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Of its newest report.
    pub incarnation: u32,
    /// The newest configuration that all its CPUs have.
    pub applied: u64,
    /// When a report first said so of each of its newest versions.
    pub applied_at_ms: BTreeMap<u64, u64>,
    /// It has reported within `dead_ms`.
    pub reports: bool,
    /// Its newest report came so long ago.
    pub quiet_ms: u64,
    /// Switches that its data plane has not heard a moment ago, or never.
    pub silent: BTreeSet<Ipv4Addr>,
    /// Switches that its data plane has not heard for `dead_ms` or more.
    pub misses: BTreeSet<Ipv4Addr>,
    /// Groups, and the view in which it has copied all slots, or collected all tombstones.
    pub copied: BTreeMap<u16, u32>,
    /// How many of its slots have a key, in percent.
    pub used_percent: u8,
}

/// What an operator should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Most others do not hear the switch: it is out of its chains.
    Died(Ipv4Addr),
    /// Others hear the switch, but it has not reported for long: it is out of its chains.
    Mute(Ipv4Addr),
    /// The switch has lost its slots: it is out of its chains.
    Emptied(Ipv4Addr),
    /// A dead switch is there again, and has taken the new views.
    Returned(Ipv4Addr),
    /// A switch begins to join a group's chain.
    Joins(u16, Ipv4Addr),
    /// It has everything.
    Joined(u16, Ipv4Addr),
    /// A better switch begins to join a whole chain.
    Moves(u16, Ipv4Addr),
    /// A switch has left a group's chain: it drains, a better one has come, or it could not join.
    Left(u16, Ipv4Addr),
    /// No member of the group is left that has its keys.
    Lost(u16),
    /// The group's tombstones are being collected.
    Collects(u16),
    /// All are that were there when it began.
    Collected(u16),
}

/// One look at everything.
pub(crate) struct Look<'a> {
    pub(crate) now_ms: u64,
    /// Since when there is this controller.
    pub(crate) began_ms: u64,
    pub(crate) settings: &'a Settings,
    pub(crate) placement: &'a dyn Placement,
    pub(crate) facts: &'a BTreeMap<Ipv4Addr, Facts>,
    /// As it will be; its version is the next one.
    pub(crate) state: State,
    pub(crate) events: Vec<Event>,
    pub(crate) changed: bool,
    /// Groups go on from this decision on.
    pub(crate) resumed: bool,
}

impl Look<'_> {
    /// All rules, in this order.
    pub(crate) fn all(&mut self, collections: &Collections, moves: &mut Moves) {
        self.lives();
        self.meets();
        self.deaths();
        self.returns();
        self.confirmed();
        self.copied();
        self.drains();
        self.joins();
        self.collects(collections);
        self.moves(moves);
    }

    /// Has this life of the switch, in all its CPUs, a version that is not older?
    pub(crate) fn has_applied(&self, switch: &Ipv4Addr, version: u64) -> bool {
        let decided = self.state.switches.get(switch).map(|it| it.incarnation);
        self.facts
            .get(switch)
            .is_some_and(|facts| facts.applied >= version && Some(facts.incarnation) == decided)
    }

    /// Rule 1: a switch that has lost its slots is out of its chains. It has no roles, so nobody
    /// else must know first.
    fn lives(&mut self) {
        for (address, facts) in self.facts {
            let Some(switch) = self.state.switches.get_mut(address) else { continue };
            if facts.incarnation == 0 || switch.incarnation == facts.incarnation {
                continue;
            }
            let first = switch.incarnation == 0;
            (switch.incarnation, switch.met) = (facts.incarnation, false);
            self.changed = true;
            if !first && !mutation::planted(Mutation::AnyLife) {
                self.events.push(Event::Emptied(*address));
                self.remove(*address, true);
            }
        }
    }

    /// A switch can be missed when most others, those that do not report included, have heard it.
    /// (A switch that has just begun to report does not miss it yet, but may not have heard it.)
    fn meets(&mut self) {
        let met = |(address, switch): (&Ipv4Addr, &Switch)| {
            let hears = self.others(address).filter(|facts| !facts.silent.contains(address));
            let heard = self.are_most(hears.count(), address);
            let reports = self.facts.get(address).is_some_and(|facts| facts.reports);
            (!switch.met && heard && reports).then_some(*address)
        };
        let met: Vec<Ipv4Addr> = self.state.switches.iter().filter_map(met).collect();
        for address in met {
            if let Some(switch) = self.state.switches.get_mut(&address) {
                switch.met = true;
                self.changed = true;
            }
        }
    }

    /// Rule 2: a switch that most others do not hear is dead, and out of its chains. One that
    /// reports and has no chain to leave does no harm: it only gets into none.
    fn deaths(&mut self) {
        let addresses: Vec<Ipv4Addr> = self.state.switches.keys().copied().collect();
        // First those that do not report either: of two that do not hear each other, one dies.
        let (quiet, reporting): (Vec<_>, Vec<_>) = addresses
            .into_iter()
            .partition(|it| !self.facts.get(it).is_some_and(|facts| facts.reports));
        let patient = self.now_ms.saturating_sub(self.began_ms) < self.settings.begin_ms;
        for address in quiet.into_iter().chain(reporting) {
            let met = self.state.switches.get(&address).is_some_and(|it| it.met);
            let reports = self.facts.get(&address).is_some_and(|facts| facts.reports);
            let leaves = |group: &Group| {
                group.chain.contains(&address) && group.full().any(|it| it != address)
            };
            let matters = !reports || self.state.groups.iter().any(leaves);
            let missed = self.is_missed(&address);
            if self.state.is_serving(&address)
                && (met || !patient)
                && matters
                && (missed || self.is_mute(&address))
            {
                let since = self.state.version;
                if let Some(switch) = self.state.switches.get_mut(&address) {
                    switch.standing = Standing::Dead { since };
                }
                self.changed = true;
                self.events.push(if missed { Event::Died(address) } else { Event::Mute(address) });
                self.remove(address, false);
            }
        }
    }

    /// What others see that report.
    fn others(&self, switch: &Ipv4Addr) -> impl Iterator<Item = &Facts> {
        let others = self.facts.iter().filter(move |(address, facts)| {
            *address != switch && facts.reports && self.state.is_serving(address)
        });
        others.map(|(_, facts)| facts)
    }

    /// Are so many switches most of those that serve beside this one?
    fn are_most(&self, count: usize, switch: &Ipv4Addr) -> bool {
        let serving = self.state.switches.keys().filter(|it| self.state.is_serving(it));
        count * 2 > serving.filter(|it| *it != switch).count()
    }

    /// Has it not reported for `agent_ms`, while most others do? Its data plane may go on; but
    /// nobody renews its leases, and a chain with it cannot change.
    fn is_mute(&self, switch: &Ipv4Addr) -> bool {
        let began_ms = self.now_ms.saturating_sub(self.began_ms);
        let quiet_ms = self.facts.get(switch).map_or(began_ms, |facts| facts.quiet_ms);
        quiet_ms >= self.settings.agent_ms && self.are_most(self.others(switch).count(), switch)
    }

    /// How many others report, and how many of them miss it.
    fn opinions(&self, switch: &Ipv4Addr) -> (usize, usize) {
        let (mut all, mut miss) = (0, 0);
        for facts in self.others(switch) {
            all += 1;
            miss += usize::from(facts.misses.contains(switch));
        }
        (all, miss)
    }

    /// Do most of the others miss it? A controller that hears nobody believes nothing.
    pub(crate) fn is_missed(&self, switch: &Ipv4Addr) -> bool {
        let (all, miss) = self.opinions(switch);
        let reports = self.facts.get(switch).is_some_and(|facts| facts.reports);
        miss * 2 > all || (miss > 0 && miss * 2 == all && !reports)
    }

    /// Takes a switch out of all chains. `emptied`: it has lost its slots.
    fn remove(&mut self, switch: Ipv4Addr, emptied: bool) {
        let version = self.state.version;
        for (number, group) in (0..).zip(&mut self.state.groups) {
            if !group.chain.contains(&switch) {
                continue;
            }
            let full: Vec<Ipv4Addr> = group.full().filter(|member| *member != switch).collect();
            let joining = group.joining.filter(|member| *member != switch);
            if !full.is_empty() {
                group.change(full, joining, version);
            } else if emptied {
                group.lose();
                self.events.push(Event::Lost(number));
            }
            // Else it is the last that has the keys: the group waits for it.
        }
    }

    /// Rule 3: a dead switch that has taken the version of its death, in this life or another one,
    /// has no old role: others may talk to it again.
    fn returns(&mut self) {
        let addresses: Vec<Ipv4Addr> = self.state.switches.keys().copied().collect();
        for address in addresses {
            let Some(switch) = self.state.switches.get(&address) else { continue };
            let Standing::Dead { since } = switch.standing else { continue };
            if !self.has_applied(&address, since) {
                continue;
            }
            if let Some(switch) = self.state.switches.get_mut(&address) {
                switch.standing = Standing::Serving;
            }
            self.changed = true;
            self.events.push(Event::Returned(address));
        }
    }

    /// Rule 4: a paused group goes on when all its members have its new view, and the reader of the
    /// old one answers no more: it has the new view too, or its lease is over. (A copy for a member
    /// that joins is read after all members refuse the old view: else a write on its way to the
    /// reader passes the new member by, which the model's bug `serves_unconfirmed` shows.) A lease
    /// is renewed by a message that every member of the old view has passed on; a member that has
    /// confirmed the new view passes none.
    fn confirmed(&mut self) {
        let mut go_on = vec![];
        for (at, group) in self.state.groups.iter().enumerate() {
            let Stage::Paused { since, old_reader } = group.stage else { continue };
            if !group.chain.iter().all(|it| self.has_applied(it, since)) {
                continue;
            }
            let confirmed_ms = group.full().filter_map(|it| self.applied_for_ms(&it, since)).max();
            let over = confirmed_ms.is_some_and(|ms| ms > self.settings.lease_ms)
                || mutation::planted(Mutation::BeforeLeaseEnds);
            if over || old_reader.is_none_or(|it| self.has_applied(&it, since)) {
                go_on.push(at);
            }
        }
        for at in go_on {
            self.state.groups[at].stage = Stage::Serving;
            (self.changed, self.resumed) = (true, true);
        }
    }

    /// For how long this is known: that a switch has a version that is not older.
    fn applied_for_ms(&self, switch: &Ipv4Addr, version: u64) -> Option<u64> {
        let facts = self.facts.get(switch)?;
        let known = facts.applied_at_ms.range(version..).map(|(_, at_ms)| *at_ms).min()?;
        Some(self.now_ms.saturating_sub(known))
    }

    /// Rule 5: a member that joins has everything when the reader has copied all slots in this
    /// view: what was written since the view began went through the member.
    fn copied(&mut self) {
        let version = self.state.version;
        for (number, group) in (0..).zip(&mut self.state.groups) {
            let (Some(join), Some(reader)) = (group.joining, group.reader()) else {
                continue;
            };
            if group.stage != Stage::Serving {
                continue;
            }
            let view = self.facts.get(&reader).and_then(|facts| facts.copied.get(&number));
            let done = view == Some(&group.view)
                || (mutation::planted(Mutation::OldCopies) && view.is_some())
                || mutation::planted(Mutation::JoinedAtOnce);
            if !done {
                continue;
            }
            self.changed = true;
            self.events.push(Event::Joined(number, join));
            if group.chain.last() == Some(&join) {
                // Reads move to it, and no two members may answer them at once.
                group.change(group.chain.clone(), None, version);
            } else {
                group.joining = None;
            }
        }
    }

    /// Is a switch drained?
    pub(crate) fn is_draining(&self, it: &Ipv4Addr) -> bool {
        self.state.switches.get(it).is_some_and(|it| it.draining)
    }

    /// Members that will stay. (All members are switches of the cluster.)
    pub(crate) fn stay(&self, group: &Group) -> usize {
        group.full().filter(|it| !self.is_draining(it)).count()
    }

    /// Rule 6: a draining member leaves when others have everything.
    fn drains(&mut self) {
        let version = self.state.version;
        for at in 0..self.state.groups.len() {
            let group = &self.state.groups[at];
            if group.stage != Stage::Serving || group.joining.is_some() {
                continue;
            }
            let Some(leaves) = group.full().find(|it| self.is_draining(it)) else { continue };
            if self.stay(group) <= self.settings.failures && self.candidate(at).is_some() {
                continue; // (rule 7 finds a member in its place first)
            }
            if group.chain.len() < 2 {
                continue;
            }
            let full: Vec<Ipv4Addr> = group.full().filter(|it| *it != leaves).collect();
            self.state.groups[at].change(full, None, version);
            self.changed = true;
            self.events.push(Event::Left(at as u16, leaves));
        }
    }

    /// The switch that should join a group's chain next: one that the members hear, in a rack of
    /// its own, if there is one.
    pub(crate) fn candidate(&self, at: usize) -> Option<Ipv4Addr> {
        let chain = &self.state.groups[at].chain;
        let stay = chain.iter().filter(|it| !self.is_draining(it));
        let racks: BTreeSet<u32> = stay.map(|it| self.placement.rack(it)).collect();
        let candidates = self.placement.candidates(at as u16).iter().copied();
        let fit = candidates.filter(|it| !chain.contains(it) && self.fits(it));
        // (false comes before true, and the first of equals is taken.)
        fit.min_by_key(|it| (!self.hears(at, it), racks.contains(&self.placement.rack(it))))
    }

    /// Do a group's members and this switch hear each other?
    pub(crate) fn hears(&self, at: usize, it: &Ipv4Addr) -> bool {
        let misses = |one: &Ipv4Addr, other: &Ipv4Addr| {
            self.facts.get(one).is_some_and(|facts| facts.misses.contains(other))
        };
        self.state.groups[at].chain.iter().all(|member| !misses(member, it) && !misses(it, member))
    }

    /// May a switch become a member?
    pub(crate) fn fits(&self, it: &Ipv4Addr) -> bool {
        let known = self.state.switches.get(it);
        known.is_some_and(|it| !it.draining && it.incarnation != 0)
            && self.state.is_serving(it)
            && self.facts.get(it).is_some_and(|facts| facts.reports)
            && !self.is_missed(it)
    }

    /// Is a group paused that will go on soon: all its members report?
    pub(crate) fn is_resuming(&self) -> bool {
        let reports = |it: &Ipv4Addr| {
            self.state.is_serving(it) && self.facts.get(it).is_some_and(|facts| facts.reports)
        };
        let resumes = |group: &Group| {
            matches!(group.stage, Stage::Paused { .. }) && group.chain.iter().all(reports)
        };
        self.state.groups.iter().any(resumes)
    }

    /// Rule 7: a chain with too few members gets one more, a few groups at a time. That pauses the
    /// group, so only one begins at a time, and after all groups that wait for something else: a
    /// request should find them serving in between.
    fn joins(&mut self) {
        if self.resumed || self.is_resuming() {
            return;
        }
        let version = self.state.version;
        // (One that joins a whole chain does not count: nobody waits for a move.)
        let joining =
            |group: &&Group| group.joining.is_some() && self.stay(group) <= self.settings.failures;
        let under_way = self.state.groups.iter().filter(joining).count();
        if under_way >= self.settings.most_joins {
            return;
        }
        for at in 0..self.state.groups.len() {
            let group = &self.state.groups[at];
            if group.stage != Stage::Serving
                || group.joining.is_some()
                || self.stay(group) > self.settings.failures
            {
                continue;
            }
            let Some(candidate) = self.candidate(at) else { continue };
            let full = group.full().collect();
            self.state.groups[at].change(full, Some(candidate), version);
            self.changed = true;
            self.events.push(Event::Joins(at as u16, candidate));
            break;
        }
    }
}
