//! Chains go back to the switches that the placement wants in them, one group after the other, when
//! nothing else is under way. README.md, rule 9, says why that loses nothing.

use crate::decide::{Event, Facts, Look};
use crate::mutation::{self, Mutation};
use crate::state::{Group, KEPT_SESSIONS, Stage, Standing};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// A switch with this share of used slots, in percent, gets no group by a move: a member without a
/// free slot never becomes a full one.
const MOST_USED_PERCENT: u8 = 90;
/// A switch that joins a whole chain gives up at this share of used slots, in percent.
const FULL_PERCENT: u8 = 95;
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
    /// each move makes the chain's members better ones, or moves the right one to the reader's
    /// place, and moves come to an end.
    pub(crate) fn moves(&mut self, moves: &mut Moves) {
        self.sees_who_serves(moves);
        if self.now_ms < moves.look_at_ms {
            return;
        }
        moves.look_at_ms = self.now_ms + LOOK_MS;
        if self.gives_up(moves) {
            return;
        }
        if !self.is_quiet() {
            moves.busy_since_ms.get_or_insert(self.now_ms);
            return;
        }
        if self.surplus_leaves(moves) {
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

    /// May a switch be moved now?
    fn is_able(&self, it: &Ipv4Addr, moves: &Moves) -> bool {
        let has_room = |facts: &Facts| facts.used_percent < MOST_USED_PERCENT;
        moves.waits_ms(it, self.now_ms, self.settings.rebalance_after_ms) == Some(0)
            && self.facts.get(it).is_some_and(has_room)
            && self.are_up_to_date([it].into_iter())
    }

    /// A switch that joins a whole chain, but had better not, leaves again: it drains, runs out of
    /// slots, or a member and it do not hear each other. The others have everything. It waits as
    /// long as one that has just returned.
    fn gives_up(&mut self, moves: &mut Moves) -> bool {
        for at in 0..self.state.groups.len() {
            let group = &self.state.groups[at];
            let whole = self.stay(group) > self.settings.failures;
            let Some(joins) = group.joining.filter(|_| whole && group.stage == Stage::Serving)
            else {
                continue;
            };
            let is_full =
                self.facts.get(&joins).is_some_and(|facts| facts.used_percent >= FULL_PERCENT);
            if !self.is_draining(&joins) && !is_full && self.hears(at, &joins) {
                continue;
            }
            let full = group.full().collect();
            self.state.groups[at].change(full, None, self.state.version);
            self.changed = true;
            self.events.push(Event::Left(at as u16, joins));
            if let Some(serves) = moves.serves.get_mut(&joins) {
                (serves.since_ms, serves.ordered) = (self.now_ms, false);
            }
            return true;
        }
        false
    }

    /// Of these switches, best first: of each rack the first one, then the others.
    fn by_rack<'b>(&self, switches: impl Iterator<Item = &'b Ipv4Addr>) -> Vec<&'b Ipv4Addr> {
        let mut racks = BTreeSet::new();
        let (mut first, others): (Vec<_>, Vec<_>) =
            switches.partition(|it| racks.insert(self.placement.rack(it)));
        first.extend(others);
        first
    }

    /// A chain with more members than it should have loses one. All of them have everything. (It
    /// comes from a move, or from a drain that was taken back.)
    fn surplus_leaves(&mut self, moves: &Moves) -> bool {
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
            let Some(leaves) = self.leaver(at, moves) else { continue };
            let full = group.full().filter(|it| *it != leaves).collect();
            self.state.groups[at].change(full, None, self.state.version);
            self.changed = true;
            self.events.push(Event::Left(at as u16, leaves));
            return true;
        }
        false
    }

    /// The member of a chain with too many that leaves: the one that the placement wants least. If
    /// another one is to be the reader, a member that stands in the way leaves first, and joins
    /// again: who joins stands before the last.
    fn leaver(&self, at: usize, moves: &Moves) -> Option<Ipv4Addr> {
        let chain = &self.state.groups[at].chain;
        let candidates = self.placement.candidates(at as u16);
        // (One that the placement does not know is the worst of all.)
        let unknown = chain.iter().find(|it| !candidates.contains(it));
        let members = self.by_rack(candidates.iter().filter(|it| chain.contains(it)));
        let worst = unknown.or(members.last().copied())?;
        let best = &candidates[..(self.settings.failures + 1).min(candidates.len())];
        let (Some(reader), [head, .., before, last]) = (best.last(), &chain[..]) else {
            return Some(*worst);
        };
        let is_last = last == reader || last == worst && before == reader;
        let leaves = if before == reader { last } else { reader };
        let again = !is_last
            && leaves != head
            && chain.len() == best.len() + 1
            && best.iter().all(|it| chain.contains(it))
            && self.is_able(leaves, moves);
        Some(if again { *leaves } else { *worst })
    }

    /// The first group that can have a better member, or reader, gets one more member.
    fn better_joins(&mut self, moves: &Moves) {
        let next = |at: usize| {
            let able = |it: &Ipv4Addr| self.is_able(it, moves) && self.hears(at, it);
            let (joins, _) = self.next(at, able)?;
            let chain = &self.state.groups[at].chain;
            self.are_up_to_date(chain.iter()).then_some((at, joins))
        };
        let Some((at, joins)) = (0..self.state.groups.len()).find_map(next) else { return };
        let mut full: Vec<Ipv4Addr> = self.state.groups[at].full().collect();
        if mutation::planted(Mutation::LeavesBeforeJoined) {
            full.remove(0);
        }
        self.state.groups[at].change(full, Some(joins), self.state.version);
        self.changed = true;
        self.events.push(Event::Moves(at as u16, joins));
    }

    /// The switch that a whole chain should get next, of those that are able: one of the f + 1
    /// best, if it is no member yet. Else any one, if no member stands in for another switch, but
    /// another one is to be the reader: then true.
    /// (A head stays: another one costs a session, and clients some verdicts.)
    fn next(&self, at: usize, able: impl Fn(&Ipv4Addr) -> bool) -> Option<(Ipv4Addr, bool)> {
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
        let candidates = self.placement.candidates(at as u16);
        let is_fit = |it: &&Ipv4Addr| is_member(it) || self.fits(it) && able(it);
        let mut ranked = self.by_rack(candidates.iter().filter(is_fit)).into_iter();
        let best: Vec<&Ipv4Addr> = ranked.by_ref().take(whole).collect();
        if let Some(joins) = best.iter().find(|it| !is_member(it)) {
            return Some((**joins, false));
        }
        let reader = best.last().copied();
        let stays = [group.chain.first(), group.chain.last()].contains(&reader)
            || !best.iter().copied().eq(candidates.iter().take(whole))
            || !best.iter().all(|it| able(it));
        Some((*ranked.next().filter(|_| !stays)?, true))
    }

    /// How many groups are to move, and when the first of them may begin: None if it waits for an
    /// order.
    pub(crate) fn outlook(&self, moves: &Moves) -> (usize, Option<u64>) {
        let after_ms = self.settings.rebalance_after_ms;
        let (mut groups, mut soonest) = (0, None::<u64>);
        for (at, group) in self.state.groups.iter().enumerate() {
            if group.full().count() > self.settings.failures + 1 {
                (groups, soonest) = (groups + 1, Some(0));
            } else if let Some((joins, all)) = self.next(at, |_| true) {
                groups += 1;
                let waits = |it: &Ipv4Addr| moves.waits_ms(it, self.now_ms, after_ms);
                let members = group.chain.iter().filter(|_| all).map(waits);
                let all_ms = members.chain([waits(&joins)]).map(|ms| ms.unwrap_or(u64::MAX)).max();
                let waits_ms = all_ms.filter(|ms| *ms < u64::MAX);
                soonest = soonest.into_iter().chain(waits_ms).min();
            }
        }
        (groups, soonest)
    }
}
