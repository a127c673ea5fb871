//! Chains go back to the switches that the placement wants in them, one group after the other, when
//! nothing else is under way. README.md, rule 9, says why that loses nothing.

use crate::decide::{Event, Look};
use crate::mutation::{self, Mutation};
use crate::state::{Group, KEPT_SESSIONS, Stage, Standing};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A switch of whose slots more have keys, in percent, gets no group by a move: a member that has
/// no slot left never becomes a full one.
const MOST_USED_PERCENT: u8 = 90;
/// The longest rest between two moves.
const MOST_REST_MS: u64 = 60_000;
/// Between two looks for moves.
const LOOK_MS: u64 = 20;

/// A life of a switch that serves without a break.
#[derive(Clone, Copy, Debug)]
struct Serves {
    incarnation: u32,
    since_ms: u64,
    /// An operator wants no waiting for it.
    ordered: bool,
}

/// What a controller keeps in mind of moves. Another controller begins without it, and waits again;
/// which moves are to be made, and to be ended, is seen from the decision.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    serves: BTreeMap<Ipv4Addr, Serves>,
    look_at_ms: u64,
    /// Since then something is under way.
    busy_since_ms: Option<u64>,
    /// Then the next move may begin.
    rests_until_ms: u64,
}

impl Moves {
    /// An operator wants the moves that are possible now.
    pub(crate) fn order(&mut self) {
        self.serves.values_mut().for_each(|it| it.ordered = true);
        self.look_at_ms = 0;
    }

    /// The controller saw nothing for so long.
    pub(crate) fn stood_still(&mut self, still_ms: u64) {
        self.serves.values_mut().for_each(|it| it.since_ms += still_ms);
    }

    /// How long a switch still has to serve. None: it does not, or waits for an order.
    pub(crate) fn waits_ms(&self, it: &Ipv4Addr, now_ms: u64, after_ms: u64) -> Option<u64> {
        let serves = self.serves.get(it)?;
        if serves.ordered || mutation::planted(Mutation::MovesAtOnce) {
            return Some(0);
        }
        let served_ms = now_ms.saturating_sub(serves.since_ms);
        (after_ms > 0).then(|| after_ms.saturating_sub(served_ms))
    }
}

impl Look<'_> {
    /// Rule 9: a whole chain gets a better member, and then the one that is too many leaves. So
    /// each step makes the chain's members better ones, and moves come to an end.
    pub(crate) fn moves(&mut self, moves: &mut Moves) {
        if self.now_ms < moves.look_at_ms {
            return;
        }
        moves.look_at_ms = self.now_ms + LOOK_MS;
        self.sees_who_serves(moves);
        if !self.is_quiet() {
            moves.busy_since_ms.get_or_insert(self.now_ms);
            return;
        }
        if self.surplus_leaves() {
            return;
        }
        // As long as the last move took, or whatever else it was, all serve undisturbed.
        if let Some(since_ms) = moves.busy_since_ms.take() {
            let rest_ms = self.now_ms.saturating_sub(since_ms).min(MOST_REST_MS);
            moves.rests_until_ms = self.now_ms + rest_ms;
        }
        if self.now_ms >= moves.rests_until_ms {
            self.better_joins(moves);
        }
    }

    fn sees_who_serves(&self, moves: &mut Moves) {
        for (address, switch) in &self.state.switches {
            let serves = switch.standing == Standing::Serving
                && switch.incarnation != 0
                && !switch.draining
                && !self.is_missed(address);
            let incarnation = switch.incarnation;
            let known = moves.serves.get(address).is_some_and(|it| it.incarnation == incarnation);
            if !serves {
                moves.serves.remove(address);
            } else if !known {
                let since = Serves { incarnation, since_ms: self.now_ms, ordered: false };
                moves.serves.insert(*address, since);
            }
        }
    }

    /// Is nothing under way or to be done that is worth more than a move? A group that waits for a
    /// dead member, or for an operator, can wait for long: it keeps nobody from moving.
    fn is_quiet(&self) -> bool {
        let reports = |it: &Ipv4Addr| self.facts.get(it).is_some_and(|facts| facts.reports);
        let is_settled = |(at, group): (usize, &Group)| {
            group.stage == Stage::Lost
                || group.chain.iter().any(|it| !self.state.is_serving(it))
                || group.stage == Stage::Serving
                    && group.joining.is_none()
                    && !group.collecting
                    && group.chain.iter().all(reports)
                    && (self.stay(group) > self.settings.failures || self.candidate(at).is_none())
        };
        !self.changed
            && (mutation::planted(Mutation::MovesInUnrest)
                || self.state.groups.iter().enumerate().all(is_settled))
    }

    /// Have all these what is persistent? A group would wait for one that has not.
    fn are_up_to_date<'b>(&self, mut switches: impl Iterator<Item = &'b Ipv4Addr>) -> bool {
        switches.all(|it| self.has_applied(it, self.state.version.saturating_sub(1)))
    }

    /// The member that the placement wants least.
    fn worst(&self, at: usize) -> Option<Ipv4Addr> {
        let chain = &self.state.groups[at].chain;
        let candidates = self.placement.candidates(at as u16);
        candidates.iter().rev().find(|it| chain.contains(it)).copied()
    }

    /// A chain with more members than it should have loses the worst one. All of them have
    /// everything. (It comes from a move, or from a drain that was taken back.)
    fn surplus_leaves(&mut self) -> bool {
        for at in 0..self.state.groups.len() {
            let group = &self.state.groups[at];
            let settles = group.stage == Stage::Serving && group.joining.is_none();
            if !settles
                || self.stay(group) <= self.settings.failures + 1
                || group.session >= u16::MAX - KEPT_SESSIONS
                || !self.are_up_to_date(group.chain.iter())
            {
                continue;
            }
            let Some(leaves) = self.worst(at) else { continue };
            let full = group.full().filter(|it| *it != leaves).collect();
            self.state.groups[at].change(full, None, self.state.version);
            self.changed = true;
            self.events.push(Event::Left(at as u16, leaves));
            return true;
        }
        false
    }

    /// The first group that can have a better member gets it.
    fn better_joins(&mut self, moves: &Moves) {
        let after_ms = self.settings.rebalance_after_ms;
        let has_room = |it: &Ipv4Addr| {
            self.facts.get(it).is_some_and(|facts| facts.used_percent < MOST_USED_PERCENT)
        };
        let able = |it: &Ipv4Addr| {
            moves.waits_ms(it, self.now_ms, after_ms) == Some(0)
                && has_room(it)
                && self.are_up_to_date([it].into_iter())
        };
        let better = |at: usize| {
            let is_up_to_date = || self.are_up_to_date(self.state.groups[at].chain.iter());
            self.better(at, able).filter(|_| is_up_to_date())
        };
        let mut all = 0..self.state.groups.len();
        let Some((at, joins)) = all.find_map(|at| Some((at, better(at)?))) else { return };
        let mut full: Vec<Ipv4Addr> = self.state.groups[at].full().collect();
        if mutation::planted(Mutation::LeavesBeforeJoined) {
            full.retain(|it| Some(*it) != self.worst(at));
        }
        self.state.groups[at].change(full, Some(joins), self.state.version);
        self.changed = true;
        self.events.push(Event::Moves(at as u16, joins));
    }

    /// The switch that a whole chain should get, of those that are able: one of the f + 1 best, if
    /// it is no member yet.
    fn better(&self, at: usize, able: impl Fn(&Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
        let group = &self.state.groups[at];
        let whole = self.settings.failures + 1;
        if group.stage != Stage::Serving
            || group.joining.is_some()
            || group.chain.len() != whole
            || group.session >= u16::MAX - KEPT_SESSIONS
        {
            return None;
        }
        let is_member = |it: &Ipv4Addr| group.chain.contains(it);
        let candidates = self.placement.candidates(at as u16).iter();
        let best = candidates.filter(|it| is_member(it) || self.fits(it) && able(it)).take(whole);
        best.copied().find(|it| !is_member(it))
    }

    /// How many groups are to move, and when the first of them may begin: None if it waits for an
    /// order.
    pub(crate) fn outlook(&self, moves: &Moves) -> (usize, Option<u64>) {
        let after_ms = self.settings.rebalance_after_ms;
        let (mut groups, mut soonest) = (0, None::<u64>);
        for (at, group) in self.state.groups.iter().enumerate() {
            if group.full().count() > self.settings.failures + 1 {
                (groups, soonest) = (groups + 1, Some(0));
            } else if let Some(joins) = self.better(at, |_| true) {
                groups += 1;
                let waits_ms = moves.waits_ms(&joins, self.now_ms, after_ms);
                soonest = soonest.into_iter().chain(waits_ms).min();
            }
        }
        (groups, soonest)
    }
}
