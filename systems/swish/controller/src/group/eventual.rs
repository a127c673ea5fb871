//! Views of a group with EWO (README, "EWO: members that die, return and join").
//!
//! No member is sealed, and none hands in rotations: a switch that is no member goes on alone, and
//! its updates count when it is a member again. So each switch that reports is a member, unless it
//! is to leave. A decision has the members, and the absent lives that may still bring updates that
//! the members do not have.

use super::Group;
use super::fold::in_base_of;
use crate::attempt::Attempt;
use crate::controller::{Event, Outputs, Settings};
use crate::mutation::{Mutation, planted};
use crate::state::Decided;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use swish_protocol::base::{Base, Before};
use swish_protocol::control::{Member, Report, Task, Turn, rounds_of_all};
use swish_protocol::eventual::incarnation_of;

/// What the next view is to say.
struct Wanted {
    members: Vec<Member>,
    /// Members that have not been sent everything that the others have.
    joins: Vec<u32>,
    /// Members that leave now, as an operator wants.
    leaves: Vec<Member>,
    away: Vec<Member>,
    /// No member has the group's values, and no absent switch can have them.
    lost: bool,
    /// Lives that are in the base.
    before: Before,
}

/// Which switches have been sent all that the others have. A switch that has is no joiner in the
/// next view. The rounds are in memory: a controller that begins counts them again.
#[derive(Default)]
pub(super) struct Sent {
    /// Those that have.
    whole: BTreeSet<(Ipv4Addr, u32)>,
    /// Of each other one, by which round of each member it will have been.
    until: BTreeMap<(Ipv4Addr, u32), BTreeMap<(Ipv4Addr, u32), u64>>,
}

impl Group {
    /// The group's switches say that its variables have EWO: those with members do, if any has.
    pub(crate) fn is_eventual(&self, settings: &Settings, now_ns: u64) -> bool {
        let alive = |it: &&super::Seen| now_ns.saturating_sub(it.heard_ns) < settings.dead_ns;
        let first = self.seen.values().filter(alive).min_by_key(|it| it.report.view == 0);
        first.is_some_and(|it| it.report.eventual.is_some())
    }

    /// Whether a member was sent all that the others have; not so of a switch that joins.
    pub(super) fn was_sent_all(&self, address: Ipv4Addr, report: Option<&Report>) -> bool {
        report.is_none_or(|it| {
            it.eventual.is_none() || self.sent.whole.contains(&(address, it.incarnation))
        })
    }

    /// Switches that report, and have the same variables.
    fn reporting(
        &self,
        settings: &Settings,
        now_ns: u64,
        newest: Option<&Decided>,
    ) -> Vec<(Member, &Report)> {
        let layout = self.layout(settings, now_ns, newest);
        let of = |(number, address): (u32, &Ipv4Addr)| {
            let incarnation = self.seen.get(address)?.report.incarnation;
            let member = Member { number, address: *address, incarnation };
            let report = self.reports(settings, now_ns, &member)?;
            (report.eventual.is_some() && Some(report.layout) == layout).then_some((member, report))
        };
        (0..).zip(&self.switches).filter_map(of).collect()
    }

    /// The members and lives of the next view.
    fn wanted(&self, settings: &Settings, now_ns: u64, newest: Option<&Decided>) -> Wanted {
        let before: &[Member] = newest.map_or(&[], |it| &it.members);
        let all = self.reporting(settings, now_ns, newest);
        let left = |report: &Report| report.leaves && report.empty;
        let stays = |(member, report): &&(Member, &Report)| {
            !report.leaves || before.contains(member) && !left(report)
        };
        let mut members: Vec<Member> = all.iter().filter(stays).map(|(it, _)| *it).collect();
        if members.is_empty() {
            // (The last one stays.)
            members = all.iter().map(|(it, _)| *it).filter(|it| before.contains(it)).collect();
            members.truncate(1);
        }
        let goes = |(member, report): &&(Member, &Report)| {
            left(report) && before.contains(member) && !members.contains(member)
        };
        let leaves = all.iter().filter(goes).map(|(it, _)| *it).collect();
        let joins = |(member, report): &&(Member, &Report)| {
            members.contains(member) && self.begins(newest, member, report)
        };
        let mut joins: Vec<u32> = all.iter().filter(joins).map(|(it, _)| it.number).collect();
        let away = self.away(newest, &members);
        // (No member had all values, and no absent switch can: what the members have is all.)
        let lost = newest.is_some() && away.is_empty() && joins.len() == members.len();
        if lost {
            joins.clear();
        }
        let before = self.in_base(settings, now_ns, newest, &members, &away);
        Wanted { members, joins, leaves, away, lost, before }
    }

    /// The next view, if there is need for one.
    pub(super) fn eventual_step(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: Option<&Decided>,
        out: &mut Outputs,
    ) -> Option<(Decided, u32)> {
        let wanted = self.wanted(settings, now_ns, newest);
        if wanted.members.is_empty() || !self.is_time(now_ns, settings, newest, &wanted) {
            return self.go_on_with(now_ns, settings, newest, out);
        }
        let before: &[Member] = newest.map_or(&[], |it| &it.members);
        self.tell_deaths(now_ns, settings, before, out);
        if wanted.lost {
            out.events.push(Event::Lost(self.name.clone()));
        }
        self.decide_eventual(now_ns, newest, wanted)
    }

    /// It has not been sent what the others have.
    fn begins(&self, newest: Option<&Decided>, member: &Member, report: &Report) -> bool {
        let Some(newest) = newest else { return false };
        let was_member = newest.members.iter().any(|it| it.address == member.address);
        let joins = newest.joins.contains(&member.number)
            && !self.sent.whole.contains(&(member.address, member.incarnation));
        !was_member || report.view == 0 || joins
    }

    /// Members are to be others now: at once if one is gone, after a while if some join.
    fn is_time(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: Option<&Decided>,
        wanted: &Wanted,
    ) -> bool {
        let members = &wanted.members;
        let all = members.len() >= self.switches.len();
        let Some(newest) = newest else {
            let began_ns = self.began_ns.unwrap_or(now_ns);
            return all || now_ns >= began_ns + settings.begin_ns;
        };
        if newest.members.iter().any(|it| !members.contains(it)) {
            return true;
        }
        let more = members.len() > newest.members.len();
        let since_ns = more.then(|| *self.joins_since_ns.get_or_insert(now_ns));
        self.joins_since_ns = since_ns;
        // (That a life has been sent everything is noted for good.)
        since_ns.is_some_and(|since_ns| all || now_ns >= since_ns + settings.join_ns)
            || wanted.joins.len() < newest.joins.len()
            || wanted.away != newest.away
            || wanted.before != in_base_of(newest)
    }

    /// Lives that were members, and may still bring what they have: they are not known to be over.
    fn away(&self, newest: Option<&Decided>, members: &[Member]) -> Vec<Member> {
        let Some(newest) = newest.filter(|_| !planted(Mutation::AwayForgotten)) else {
            return vec![];
        };
        // (An agent that begins anew has another incarnation, and the switch's life goes on.)
        let life = |report: &Report| {
            report.eventual.as_ref().map_or(report.incarnation, |it| incarnation_of(it.life))
        };
        let may_return = |it: &&Member| {
            let seen = self.seen.get(&it.address);
            let over = seen.is_some_and(|seen| life(&seen.report) > it.incarnation);
            let is_member = members.iter().any(|of| of.address == it.address);
            !over && !is_member && self.switches.contains(&it.address)
        };
        newest.members.iter().chain(&newest.away).filter(may_return).copied().collect()
    }

    fn tell_deaths(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        before: &[Member],
        out: &mut Outputs,
    ) {
        for member in before {
            if self.reports(settings, now_ns, member).is_none() {
                self.tell_death(member, out);
            }
        }
    }

    fn decide_eventual(
        &mut self,
        now_ns: u64,
        newest: Option<&Decided>,
        Wanted { members, joins, leaves, away, before, .. }: Wanted,
    ) -> Option<(Decided, u32)> {
        let number = self.next_number(newest);
        let stays = members.clone();
        let known = newest.and_then(|it| it.base.clone());
        let in_known = newest.map_or_else(Before::default, in_base_of);
        let base = if before == in_known { known } else { Some(Base { number, before }) };
        self.attempt = Some(Attempt { stays, leaves, ..Attempt::begun(number, now_ns) });
        let decided = Decided {
            number,
            members,
            joins,
            lacks: vec![],
            turn: Turn::Go,
            window: 0,
            extra: vec![],
            counted: BTreeMap::new(),
            lease: None,
            away,
            base,
        };
        Some((decided, number))
    }

    /// The view stands: members are told of it, and those that have left that they have.
    fn go_on_with(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: Option<&Decided>,
        out: &mut Outputs,
    ) -> Option<(Decided, u32)> {
        let newest = newest?;
        self.note_sent(now_ns, settings, newest);
        self.ask_for_sums(now_ns, settings, newest, out);
        let mut left = vec![];
        for (address, seen) in &mut self.seen {
            let report = &seen.report;
            let due = now_ns >= seen.ordered_ns + settings.again_ns;
            let stranger = report.view != 0 && !newest.has(*address, report.incarnation);
            if report.leaves && stranger && due {
                seen.ordered_ns = now_ns;
                left.push((seen.from, report.incarnation));
            }
        }
        for (from, incarnation) in left {
            let task = Task::Removed { number: newest.number, why: None };
            out.messages.push((from, self.order(incarnation, task)));
        }
        self.tell(now_ns, settings, newest, out);
        None
    }

    /// Notes which members have been sent all that the others have, since they took the view.
    fn note_sent(&mut self, now_ns: u64, settings: &Settings, newest: &Decided) {
        let rounds = |it: &Member| {
            let report = self.reports(settings, now_ns, it)?;
            (report.view == newest.number).then_some(report.eventual.as_ref()?.rounds)
        };
        let rounds: BTreeMap<(Ipv4Addr, u32), u64> = (newest.members.iter())
            .filter_map(|it| Some(((it.address, it.incarnation), rounds(it)?)))
            .collect();
        let takes = rounds_of_all(newest.members.len() as u32);
        for member in &newest.members {
            let own = (member.address, member.incarnation);
            if !newest.joins.contains(&member.number) {
                self.sent.whole.insert(own);
            }
            // (If all members join, those that had the values are away.)
            let founded = newest.joins.len() < newest.members.len();
            if self.sent.whole.contains(&own) || !rounds.contains_key(&own) || !founded {
                continue;
            }
            let until = self.sent.until.entry(own).or_default();
            for (other, round) in rounds.iter().filter(|(other, _)| **other != own) {
                until.entry(*other).or_insert(round + takes);
            }
            // (No member waits for a switch that is no member any more.)
            let is_member = |it: &Member| until.contains_key(&(it.address, it.incarnation));
            let others = newest.members.iter().filter(|it| *it != member);
            let all = others.clone().all(is_member)
                && others.clone().all(|it| {
                    let of = (it.address, it.incarnation);
                    rounds.get(&of).zip(until.get(&of)).is_some_and(|(round, until)| round >= until)
                });
            if all {
                self.sent.until.remove(&own);
                self.sent.whole.insert(own);
            }
        }
        let is_member =
            |(address, incarnation): &(Ipv4Addr, u32)| newest.has(*address, *incarnation);
        self.sent.whole.retain(is_member);
        self.sent.until.retain(|it, _| is_member(it));
    }
}
