//! Views of a group with SRO: a chain of switches (README, "SRO", 9).
//!
//! No member is sealed: each takes a view by itself, and members of other views refuse its messages
//! (`Chain.tla`). Members that stay keep their order, and one that joins is the last. Only one
//! joins at a time, once no switch reads in a view before the newest one; it is told last.

use super::Group;
use crate::attempt::Attempt;
use crate::controller::{Event, Outputs, Settings};
use crate::mutation::{Mutation, planted};
use crate::state::Decided;
use std::net::Ipv4Addr;
use swish_protocol::control::{ChainReport, Lease, Member, Report, Turn};
use swish_protocol::exclusion::Pair;

impl Group {
    /// All that the others have is there.
    fn is_whole(&self, settings: &Settings, now_ns: u64, member: &Member) -> bool {
        let whole = |it: &Report| it.view != 0 && it.chain.is_some_and(|chain| !chain.copying);
        self.reports(settings, now_ns, member).is_some_and(whole)
    }

    /// The switch that alone has all: without it the chain's values are lost.
    pub fn only_whole(
        &self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
    ) -> Option<Ipv4Addr> {
        let mut whole = newest.members.iter().filter(|it| self.is_whole(settings, now_ns, it));
        whole.next().filter(|_| whole.next().is_none()).map(|it| it.address)
    }

    /// It reports, and has or is to be given what the others have.
    fn stays(&self, settings: &Settings, now_ns: u64, newest: &Decided, member: &Member) -> bool {
        let joins = newest.joins.contains(&member.number);
        // (A member that has not taken the view in time holds up all writes, perhaps for ever.)
        let late = now_ns >= self.sealed_ns + settings.seal_ns;
        self.reports(settings, now_ns, member)
            .is_some_and(|report| report.view != 0 || joins && !late)
    }

    /// The next view, if there is need for one.
    pub(super) fn chain_step(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
        out: &mut Outputs,
    ) -> Option<(Decided, u32)> {
        let whole = |group: &Group, it: &Member| group.is_whole(settings, now_ns, it);
        if !newest.members.iter().any(|it| whole(self, it)) {
            return self.chain_of_none(now_ns, settings, newest, out);
        }
        let reports = |it: &Member| self.reports(settings, now_ns, it);
        let left = |it: &Member| reports(it).is_some_and(|it| it.leaves && it.empty);
        let stays = |it: &&Member| self.stays(settings, now_ns, newest, it) && !left(it);
        let mut stays: Vec<Member> = newest.members.iter().filter(stays).copied().collect();
        stays.retain(|it| Some(it.address) != self.waits_for);
        // (The last one that has the values stays in any case.)
        if stays.len() < newest.members.len() && stays.iter().any(|it| whole(self, it)) {
            return self.remove_from_chain(now_ns, settings, newest, stays, out);
        }
        if let Some(joiner) = self.joins_chain(now_ns, settings, newest) {
            let mut members = newest.members.clone();
            members.push(joiner);
            let lease = Lease { lease_ms: settings.lease_ns / 1_000_000, wait_ms: 0 };
            return self.decide_chain(
                now_ns,
                newest,
                (members, vec![joiner.number]),
                vec![],
                lease,
            );
        }
        self.tell(now_ns, settings, newest, out);
        None
    }

    fn remove_from_chain(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
        stays: Vec<Member>,
        out: &mut Outputs,
    ) -> Option<(Decided, u32)> {
        let gone: Vec<Member> =
            newest.members.iter().filter(|it| !stays.contains(it)).copied().collect();
        let (mut leaves, mut reads) = (vec![], false);
        for member in gone {
            match self.reports(settings, now_ns, &member) {
                Some(report) if report.leaves && report.empty => leaves.push(member),
                Some(report) => reads |= report.view != 0,
                None => {
                    reads = true;
                    self.tell_death(&member, out);
                }
            }
        }
        let copies = |it: &&Member| {
            newest.joins.contains(&it.number) && !self.is_whole(settings, now_ns, it)
        };
        let joins = stays.iter().filter(copies).map(|it| it.number).collect();
        // (A switch that was removed just before may still read, too.)
        let (before, waits) = newest.lease.map_or((0, 0), |it| (it.lease_ms, it.wait_ms));
        let wait_ms = if reads || waits > 0 { before.max(waits) } else { 0 };
        let lease = Lease { lease_ms: settings.lease_ns / 1_000_000, wait_ms };
        self.decide_chain(now_ns, newest, (stays, joins), leaves, lease)
    }

    fn decide_chain(
        &mut self,
        now_ns: u64,
        newest: &Decided,
        (members, joins): (Vec<Member>, Vec<u32>),
        leaves: Vec<Member>,
        lease: Lease,
    ) -> Option<(Decided, u32)> {
        let number = self.next_number(Some(newest));
        let stays = members.clone();
        self.attempt = Some(Attempt { stays, leaves, ..Attempt::begun(number, now_ns) });
        let lease = Some(lease);
        let decided = Decided { number, members, joins, turn: Turn::Go, lease, ..newest.clone() };
        Some((decided, number))
    }

    /// The switch that joins now. None: there is none, or somebody may still read in an older view.
    fn joins_chain(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
    ) -> Option<Member> {
        let has = |it: &Member| {
            let report = self.reports(settings, now_ns, it);
            report.is_some_and(|it| it.view == newest.number) && self.is_whole(settings, now_ns, it)
        };
        if !newest.members.iter().all(has) {
            self.settled = None;
            return None;
        }
        let (number, since_ns) = *self.settled.get_or_insert((newest.number, now_ns));
        let wait_ns = 2 * newest.lease.map_or(0, |it| it.wait_ms) * 1_000_000;
        if number != newest.number {
            self.settled = None;
            return None;
        }
        if now_ns < since_ns + wait_ns && !planted(Mutation::JoinsEarly) {
            return None;
        }
        // (A switch that was a member in this life has given up what it had, and joins anew.)
        let fresh = self.fresh(settings, now_ns, Some(newest));
        fresh.into_iter().find(|it| newest.members.iter().all(|of| of.address != it.address))
    }

    /// No member that reports has the values. They are lost once all members have begun anew: until
    /// then a silent member may have them.
    fn chain_of_none(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
        out: &mut Outputs,
    ) -> Option<(Decided, u32)> {
        let joins = |it: &Member| {
            newest.joins.contains(&it.number) && self.reports(settings, now_ns, it).is_some()
        };
        let founded = newest.joins.len() == newest.members.len();
        if founded
            && now_ns < self.sealed_ns.max(self.began_ns.unwrap_or(0)) + settings.seal_ns
            && newest.members.iter().any(joins)
        {
            self.tell(now_ns, settings, newest, out);
            return None;
        }
        let gone = |it: &Member| {
            let Some(seen) = self.seen.get(&it.address) else {
                return !self.switches.contains(&it.address);
            };
            let copying = |it: &Report| it.chain.is_some_and(|chain| chain.copying);
            seen.report.incarnation > it.incarnation
                || seen.report.view == 0
                || copying(&seen.report)
        };
        if !newest.members.iter().all(gone) {
            return None;
        }
        let found = self.found(now_ns, settings, Some(newest));
        if found.is_some() {
            out.events.push(Event::Lost(self.name.clone()));
        }
        found
    }
}

/// Rounds have stopped: the first member that has not seen the newest one lacks it of the member
/// before it. If all have, and the head has not heard so, it is the head that lacks it, of the
/// tail. If the head is to begin a round, it is alone.
pub(super) fn chain_pair(reports: &[&Report]) -> Pair {
    let waits = |it: &Report| it.chain.is_some_and(|ChainReport { waits, .. }| waits);
    let (head, tail) = (reports[0], reports[reports.len() - 1]);
    match reports.windows(2).find(|two| two[0].window > two[1].window) {
        Some(two) => (two[1].switch, two[0].switch),
        None if waits(head) => (head.switch, tail.switch),
        None => (head.switch, head.switch),
    }
}
