//! Orders that follow from the newest decision: members take it, strangers give up their state.

use super::Group;
use crate::controller::{Outputs, Settings};
use crate::mutation::{Mutation, planted};
use crate::state::Decided;
use swish_protocol::control::{Member, Task, View};

impl Group {
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
                told.push((seen.from, report.incarnation));
            }
        }
        for (from, incarnation) in told {
            let task = Task::Removed { number: newest.number };
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
            };
            out.messages.push((from, self.order(member.incarnation, Task::Take(view))));
            if let Some(seen) = self.seen.get_mut(&member.address) {
                seen.ordered_ns = now_ns;
            }
        }
    }
}
