//! Orders that follow from the newest decision: members take it, strangers give up their state.

use super::Group;
use crate::controller::{Outputs, Settings};
use crate::mutation::{Mutation, planted};
use crate::state::Decided;
use std::net::Ipv4Addr;
use swish_protocol::control::{Member, Report, Task, View};
use swish_protocol::exclusion::{Excluded, MOST_TOLD, Why, pairs_of};

impl Group {
    /// What tells a switch that its reports come. If it is kept out, it is told so again and again:
    /// its agent may be another one.
    pub(super) fn heard(&self, now_ns: u64, report: &Report) -> Task {
        let why = self.why(now_ns, report.switch).filter(|why| why.excluded.view != 0);
        match why.filter(|_| report.view == 0) {
            Some(why) => Task::Removed { number: why.excluded.view, why: Some(why) },
            None => Task::Heard,
        }
    }

    /// Why a switch is kept out, if it is.
    pub(super) fn why(&self, now_ns: u64, switch: Ipv4Addr) -> Option<Why> {
        let it = self.excluded.get(&switch)?;
        let ms = |ns: u64| ns / 1_000_000;
        Some(Why {
            excluded: Excluded { switch, view: it.view, pairs: pairs_of(switch, &it.pairs) },
            since_ms: ms(now_ns.saturating_sub(it.since_ns)),
            left_ms: ms(it.until_ns.saturating_sub(now_ns)),
        })
    }

    /// Switches that are kept out, as members of the newest view are told.
    fn told_of(&self, newest: &Decided) -> Vec<Excluded> {
        let is_member = |switch| newest.members.iter().any(|it| it.address == switch);
        let out = self.excluded.iter().filter(|(switch, it)| it.view != 0 && !is_member(**switch));
        let told = out.map(|(switch, it)| Excluded {
            switch: *switch,
            view: it.view,
            pairs: pairs_of(*switch, &it.pairs),
        });
        told.take(MOST_TOLD).collect()
    }

    /// Switches with state of an earlier time give it up.
    pub(super) fn remove_strangers(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
        out: &mut Outputs,
    ) {
        let mut told = vec![];
        for (address, seen) in &mut self.seen {
            let report = &seen.report;
            if self.unknown.contains(&(*address, report.incarnation)) {
                continue;
            }
            let due = now_ns >= seen.ordered_ns + settings.again_ns;
            if report.view != 0 && !newest.has(*address, report.incarnation) && due {
                seen.ordered_ns = now_ns;
                told.push((seen.from, *address, report.incarnation));
            }
        }
        for (from, address, incarnation) in told {
            let why = self.why(now_ns, address);
            let task = Task::Removed { number: newest.number, why };
            out.messages.push((from, self.order(incarnation, task)));
        }
    }

    /// Members that do not have the newest decision are told of it; those that join, when all
    /// others have it.
    pub(super) fn tell(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
        out: &mut Outputs,
    ) {
        let joins = |it: &Member| newest.joins.contains(&it.number);
        let has = |it: &Member| {
            self.reports(settings, now_ns, it).is_none_or(|report| report.view == newest.number)
        };
        let others = newest.members.iter().filter(|it| !joins(it)).all(has);
        let others = others || planted(Mutation::JoinsEarly);
        let mut told = vec![];
        for member in newest.members.iter().filter(|it| others || !joins(it)) {
            let Some(report) = self.reports(settings, now_ns, member) else { continue };
            let Some(seen) = self.seen.get(&member.address) else { continue };
            let knows = report.view == newest.number && !report.asks;
            if !knows && now_ns >= seen.ordered_ns + settings.again_ns {
                told.push((seen.from, *member));
            }
        }
        let excluded = self.told_of(newest);
        // (Those that begin a group have nothing to give each other.)
        let founded = newest.joins.len() == newest.members.len();
        let all = newest.members.iter().all(has);
        if all {
            self.value = None;
        }
        for (from, member) in told {
            let counted = newest.counted.get(&member.address).into_iter().flatten();
            let counted = counted.filter(|it| it.incarnation == member.incarnation);
            let view = View {
                number: newest.number,
                members: newest.members.clone(),
                turn: newest.turn,
                window: newest.window,
                value: newest.lacks.contains(&member.address),
                extra: !newest.extra.is_empty(),
                counted: counted.map(|it| (it.view, it.rotation)).collect(),
                lease: newest.lease,
                joins: if newest.lease.is_none() || founded {
                    vec![]
                } else {
                    newest.joins.clone()
                },
                away: !newest.away.is_empty(),
                base: newest.base.clone(),
                excluded: excluded.clone(),
            };
            out.messages.push((from, self.order(member.incarnation, Task::Take(view))));
            if let Some(seen) = self.seen.get_mut(&member.address) {
                seen.ordered_ns = now_ns;
            }
        }
    }
}
