//! When slots of lives that are over go into the base (systems/swish/docs/slots.md).
//!
//! A life is over if its switch is a member with a later life. Its slots then grow no more, as its
//! messages are of an earlier view. They are folded once all members have the same values in them,
//! and no switch is away that may have more. If members' values stay different, as one member has
//! no column left for some life, one life after another is tried. A switch that has less at that
//! time (it was in no view, so the controller did not know it) folds what it has; as the sum of a
//! part is no more than the sum of all, gossip brings it the rest.

use super::Group;
use crate::controller::{Outputs, Settings};
use crate::mutation::{Mutation, planted};
use crate::state::Decided;
use std::net::Ipv4Addr;
use swish_protocol::base::Before;
use swish_protocol::control::{EventualReport, Member, Sum, Task};
use swish_protocol::eventual::incarnation_of;

/// Members are asked for sums this often, while there is need.
const ASKED_NS: u64 = 500_000_000;

/// Attempts with all lives together, before single lives are tried, too.
const TOGETHER: u32 = 4;

/// What members of a view were asked.
#[derive(Default)]
pub(super) struct Summed {
    view: u32,
    at_ns: u64,
    times: u32,
    asked: Before,
    /// Of all lives that are over: each member's oldest.
    oldest: Vec<(Ipv4Addr, u32)>,
}

/// Lives that are in the base of a decision.
pub(super) fn in_base_of(decided: &Decided) -> Before {
    decided.base.as_ref().map_or_else(Before::default, |it| it.before.clone())
}

impl Group {
    /// The lives that the next view is to have in its base.
    pub(super) fn in_base(
        &self,
        settings: &Settings,
        now_ns: u64,
        newest: Option<&Decided>,
        members: &[Member],
        away: &[Member],
    ) -> Before {
        let mut before = newest.map_or_else(Before::default, in_base_of);
        // (With a lost database, switches know what they have folded.)
        for member in members {
            let report = self.reports(settings, now_ns, member);
            let base = report.and_then(|it| it.eventual.as_ref()?.base.as_ref());
            base.into_iter().for_each(|base| before.join(&base.before));
        }
        let Some(newest) = newest else { return before };
        let all = newest.members == members;
        let nobody = away.is_empty() && newest.away.is_empty();
        if !all || !nobody && !planted(Mutation::FoldedWhileAway) {
            return before;
        }
        if self.summed.view != newest.number {
            return before;
        }
        let Some((_, reports)) = self.over(settings, now_ns, newest) else { return before };
        let asked = &self.summed.asked;
        let sums = reports.iter().map(|it| it.sum).collect::<Option<Vec<_>>>();
        let is_sum = |it: &Sum| it.view == newest.number && it.of == asked.number() && it.lives > 0;
        let same = sums.as_ref().and_then(|all| all.first()).is_some_and(|first| {
            let like = |it: &Sum| it.digest == first.digest || planted(Mutation::FoldedUnlike);
            sums.iter().flatten().all(|it| is_sum(it) && like(it))
        });
        if same {
            before.join(asked);
        }
        before
    }

    /// Lives that are over, once all members are in the newest view, and there is need to know.
    fn over(
        &self,
        settings: &Settings,
        now_ns: u64,
        newest: &Decided,
    ) -> Option<(Before, Vec<&EventualReport>)> {
        let mut over = in_base_of(newest);
        let mut reports = vec![];
        for member in &newest.members {
            let report = self.reports(settings, now_ns, member)?;
            let eventual = report.eventual.as_deref()?;
            if report.view != newest.number || report.asks || eventual.life == 0 {
                return None;
            }
            // (A switch whose agent is another one than that which began its life has that life.)
            let of_agent = planted(Mutation::LifeOfAgent).then_some(member.incarnation);
            over.add(member.address, of_agent.unwrap_or(incarnation_of(eventual.life)));
            reports.push(eventual);
        }
        // (Half of what members leave is for lives that begin meanwhile.)
        let members = newest.members.len() as u32;
        let need = |it: &&EventualReport| {
            let base = u32::from(it.base.is_some());
            let over = it.lives.saturating_sub(members + base);
            over > 0 && 2 * over > it.room.saturating_sub(members)
        };
        reports.iter().any(need).then_some((over, reports))
    }

    /// Members are asked what they have of lives that are over.
    pub(super) fn ask_for_sums(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
        out: &mut Outputs,
    ) {
        if self.summed.view != newest.number {
            self.summed = Summed { view: newest.number, ..Summed::default() };
        }
        let away = !newest.away.is_empty() && !planted(Mutation::FoldedWhileAway);
        let Summed { times, at_ns, .. } = self.summed;
        if away || times > 0 && now_ns < at_ns + ASKED_NS {
            return;
        }
        let Some((over, reports)) = self.over(settings, now_ns, newest) else { return };
        let of_all = |it: &Sum| it.view == newest.number && it.of == over.number();
        let sums = reports.iter().filter_map(|it| it.sum).filter(of_all);
        let oldest: Vec<_> = sums.filter_map(|it| it.oldest).collect();
        if !oldest.is_empty() {
            self.summed.oldest = oldest;
        }
        let oldest = &self.summed.oldest;
        let alone = oldest.get(times as usize / 2 % oldest.len().max(1));
        let before = match alone.filter(|_| times >= TOGETHER && times % 2 == 1) {
            None => over,
            Some((switch, incarnation)) => {
                let mut before = in_base_of(newest);
                before.add(*switch, incarnation.saturating_add(1));
                before
            }
        };
        (self.summed.at_ns, self.summed.times) = (now_ns, times + 1);
        self.summed.asked = before.clone();
        for member in &newest.members {
            let Some(seen) = self.seen.get(&member.address) else { continue };
            let task = Task::Sum { view: newest.number, before: before.clone() };
            out.messages.push((seen.from, self.order(member.incarnation, task)));
        }
    }
}
