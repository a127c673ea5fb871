//! Whether a group needs another view, and may have it: members that are dead, have not taken the
//! decision or hold up all others; switches that are to join.

use super::chain::chain_pair;
use super::{Group, Seen};
use crate::controller::{Event, Outputs, Settings};
use crate::exclusion::Stands;
use crate::mutation::{Mutation, planted};
use crate::state::{Decided, GroupState};
use std::net::Ipv4Addr;
use swish_protocol::control::{Member, Report};
use swish_protocol::exclusion::Pair;

impl Group {
    /// With SDW and SRO: switches are in a newer view than all that are known, so the database is
    /// an old or another one. A decision would go without what they have, or take it from them.
    /// They go on as they are. One that is silent counts until it is lost: packets need no agent.
    pub(super) fn is_behind(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        state: &GroupState,
        out: &mut Outputs,
    ) -> bool {
        let known = state.newest().map_or(0, |it| it.number);
        self.set_aside(now_ns, settings, state, out);
        let ahead = self.ahead_of(now_ns, settings, known).map(|it| (it.view, it.switch)).max();
        let Some((view, switch)) = ahead else {
            self.behind = false;
            return false;
        };
        if !std::mem::replace(&mut self.behind, true) {
            out.events.push(Event::Behind(self.name.clone(), switch, view, known));
        }
        if self.attempt.as_ref().is_some_and(|it| !it.deciding) {
            self.attempt = None;
            self.asks_nobody();
        }
        true
    }

    /// Reports of views that are newer than this one, but for those that are set aside.
    fn ahead_of(
        &self,
        now_ns: u64,
        settings: &Settings,
        known: u32,
    ) -> impl Iterator<Item = &Report> {
        let is_here = move |it: &&Seen| now_ns < it.heard_ns + settings.lost_ns;
        let reports = self.seen.values().filter(is_here).map(|it| &it.report);
        reports.filter(move |it| it.view > known && !self.is_unknown(it))
    }

    /// A switch with a view of another database, that was out of reach when the group began anew:
    /// members go on in a view that is known, and the switch is none of them. They need nothing of
    /// it, so it holds none of them up. It is not told to give up its state, which an operator may
    /// want.
    fn set_aside(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        state: &GroupState,
        out: &mut Outputs,
    ) {
        let seen = &self.seen;
        self.unknown.retain(|(address, incarnation)| {
            let report = seen.get(address).map(|seen| &seen.report);
            report.is_some_and(|it| it.incarnation == *incarnation && it.view != 0)
        });
        let Some(newest) = state.newest() else { return };
        let goes_on = |it: &Member| {
            let report = self.reports(settings, now_ns, it);
            report.is_some_and(|it| state.numbered(it.view).is_some())
        };
        let is_member = |address: Ipv4Addr| newest.members.iter().any(|it| it.address == address);
        let ahead = self.ahead_of(now_ns, settings, newest.number);
        let ahead: Vec<_> = ahead.map(|it| (it.switch, it.incarnation, it.view)).collect();
        // (Members that were not heard yet may be ahead, too.)
        let early = now_ns < self.began_ns.unwrap_or(now_ns) + settings.begin_ns;
        if early
            || ahead.iter().any(|(switch, ..)| is_member(*switch))
            || !newest.members.iter().any(goes_on)
        {
            return;
        }
        for (switch, incarnation, view) in ahead {
            self.unknown.insert((switch, incarnation));
            out.events.push(Event::Unknown(self.name.clone(), switch, view, newest.number));
        }
    }

    /// It is set aside.
    pub(super) fn is_unknown(&self, report: &Report) -> bool {
        self.unknown.contains(&(report.switch, report.incarnation))
    }

    /// See `MemberStatus::unknown`; `known` is the newest view that is known.
    pub(super) fn has_unknown_view(&self, known: u32, report: &Report) -> bool {
        report.view > known && self.behind || self.is_unknown(report)
    }

    pub(super) fn needs_attempt(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
        living: &[Member],
        out: &mut Outputs,
    ) -> bool {
        let mut needed = false;
        let leaves = self.leaving(settings, now_ns, living);
        for member in &newest.members {
            let alive = self.reports(settings, now_ns, member);
            let joining = newest.joins.contains(&member.number);
            if alive.is_some_and(|it| it.view != 0 || joining) && !leaves.contains(member) {
                continue;
            }
            needed = true;
            if alive.is_none() {
                self.tell_death(member, out);
            }
        }
        // A member that has not taken the decision takes it under its seal, with the state that it
        // lacks, or not at all.
        let taken = |member: &Member| {
            let report = self.reports(settings, now_ns, member);
            report.is_none_or(|it| {
                it.view == newest.number
                    || it.sealed == newest.number && self.can_take(newest, member)
            })
        };
        let late = now_ns >= self.sealed_ns + settings.seal_ns;
        let joined = |member: &Member| {
            let report = self.reports(settings, now_ns, member);
            report.is_none_or(|it| it.view != 0 || !late && self.can_take(newest, member))
        };
        if !living.iter().all(taken) || !newest.members.iter().all(joined) {
            out.events.push(Event::NotTaken(self.name.clone(), newest.number));
            needed = true;
        }
        let others: Vec<Member> = self.fresh(settings, now_ns, Some(newest));
        let joins = others.iter().any(|it| !newest.members.contains(it));
        let since_ns = joins.then(|| *self.joins_since_ns.get_or_insert(now_ns));
        self.joins_since_ns = since_ns;
        let all = others.len() + living.len() >= self.switches.len();
        needed |= since_ns.is_some_and(|since| all || now_ns >= since + settings.join_ns);
        needed | self.waits_for.is_some()
    }

    /// Living members that leave now: nothing of them is left to count. The last one stays.
    pub(super) fn leaving(
        &self,
        settings: &Settings,
        now_ns: u64,
        living: &[Member],
    ) -> Vec<Member> {
        let leaves = |it: &&Member| {
            let report = self.reports(settings, now_ns, it);
            let empty = |it: &Report| it.empty || planted(Mutation::LeavesAtOnce);
            report.is_some_and(|report| report.leaves && empty(report))
        };
        let leaving: Vec<Member> = living.iter().filter(leaves).copied().collect();
        if leaving.len() == living.len() { vec![] } else { leaving }
    }

    /// What the member needs for the decision is here.
    pub(super) fn can_take(&self, newest: &Decided, member: &Member) -> bool {
        !newest.lacks.contains(&member.address)
            || self.value.as_ref().is_some_and(|(number, _)| *number == newest.number)
    }

    /// How long nothing has moved at the members of the newest view, and who lacks messages of
    /// whom. None: members have not taken it, or do not all report, or a decision is under way.
    pub(crate) fn stands(
        &self,
        now_ns: u64,
        settings: &Settings,
        state: &GroupState,
    ) -> Option<Stands> {
        let newest = state.newest()?;
        let attempt = self.attempt.as_ref();
        if attempt.is_some_and(|it| it.deciding || !newest.is_chain())
            || self.is_eventual(settings, now_ns)
            || self.ahead_of(now_ns, settings, newest.number).next().is_some()
        {
            return None;
        }
        let report =
            |it: &Member| self.reports(settings, now_ns, it).filter(|it| it.view == newest.number);
        let reports: Vec<&Report> = newest.members.iter().map(report).collect::<Option<_>>()?;
        let still_ms = reports.iter().map(|it| it.still_ms).min().filter(|_| reports.len() > 1)?;
        let pairs =
            if newest.is_chain() { vec![chain_pair(&reports)] } else { lacking(newest, &reports) };
        Some(Stands { still_ns: still_ms.saturating_mul(1_000_000), pairs })
    }

    /// The switch's number; those that are no switches of the group have none.
    pub(crate) fn number_of(&self, switch: Ipv4Addr) -> Option<usize> {
        self.switches.iter().position(|it| *it == switch)
    }
}

/// Pairs of members: windows wait for messages of the second one to the first.
fn lacking(newest: &Decided, reports: &[&Report]) -> Vec<Pair> {
    let of = |report: &&Report| {
        let (switch, lacks) = (report.switch, report.lacks);
        let others = newest.members.iter().filter(move |it| lacks >> it.number & 1 == 1);
        others.map(|it| it.address).filter(move |it| *it != switch).map(move |it| (switch, it))
    };
    reports.iter().flat_map(of).collect()
}
