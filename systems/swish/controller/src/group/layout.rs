//! Where a group's variables lie in messages: who has them in another way may not join.

use super::{Group, Seen};
use crate::controller::{Event, Outputs, Settings};
use crate::state::Decided;
use swish_protocol::control::Member;

impl Group {
    /// As members of the newest view have it; if none reports, as the first switch does that is not
    /// set aside.
    pub(super) fn layout(
        &self,
        settings: &Settings,
        now_ns: u64,
        newest: Option<&Decided>,
    ) -> Option<u64> {
        let report = |it: &Member| self.reports(settings, now_ns, it);
        let members = newest.map_or(&[][..], |it| &it.members);
        if let Some(report) = members.iter().filter_map(report).find(|it| it.view != 0) {
            return Some(report.layout);
        }
        let counts = |it: &&Seen| it.is_alive(settings, now_ns) && !self.is_unknown(&it.report);
        let first = self.seen.values().filter(counts).min_by_key(|it| it.report.view == 0);
        first.map(|seen| seen.report.layout)
    }

    /// Operators are told of each switch with another layout: once, and again if it has yet another
    /// one.
    pub(super) fn tell_misfits(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: Option<&Decided>,
        out: &mut Outputs,
    ) {
        let Some(layout) = self.layout(settings, now_ns, newest) else { return };
        let known = newest.map_or(0, |it| it.number);
        for (address, seen) in &self.seen {
            // (Those in a view that is not known have another fault first.)
            if !seen.is_alive(settings, now_ns) || seen.report.view > known {
                continue;
            }
            let found = seen.report.layout;
            if found == layout {
                self.misfits.remove(address);
            } else if self.misfits.insert(*address, found) != Some(found) {
                out.events.push(Event::Layout(self.name.clone(), *address));
            }
        }
    }
}
