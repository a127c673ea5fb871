//! One group: reports, when a new view is needed, the steps to it.

mod chain;
mod eventual;
mod fold;
mod layout;
mod need;
mod seen;
mod tell;

use crate::attempt::{Attempt, Gather};
use crate::controller::{Event, Outputs, Settings};
use crate::decide::plan;
use crate::exclusion::Excluded;
use crate::mutation::{Mutation, planted};
use crate::state::{Decided, GroupState};
use seen::Seen;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_protocol::bulk;
use swish_protocol::control::{
    Lease, Member, Message, Order, Part, Report, Task, Turn, What, Which, name_hash,
};
use swish_protocol::exclusion::Why;

/// Switches are told that they are heard every so often.
const HEARD_NS: u64 = 500_000_000;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No decision is there yet.
    None,
    /// All have the newest view.
    Settled,
    /// Members are being sealed, and asked for state.
    Sealing,
    /// A decision is being taken.
    Taking,
    /// Switches are in a view that is newer than all that are known: nothing is decided.
    Behind,
}

/// A switch of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its number.
    pub number: u32,
    /// Its address.
    pub address: Ipv4Addr,
    /// Whether the newest view has it.
    pub member: bool,
    /// With EWO: the others have sent it all that they have.
    pub sent_all: bool,
    /// It reports, and is no member, as windows or a chain waited for it.
    pub excluded: Option<Why>,
    /// It is in a view of another database: a newer one than all that are known.
    pub unknown: bool,
    /// Its variables lie in another way than the members' do.
    pub misfit: bool,
    /// Time since its last report; none: there was none.
    pub heard_ns: Option<u64>,
    /// The last one.
    pub report: Option<Report>,
}

/// See the module.
pub(crate) struct Group {
    name: String,
    switches: Vec<Ipv4Addr>,
    seen: BTreeMap<Ipv4Addr, Seen>,
    attempt: Option<Attempt>,
    /// The value that joiners and laggards of the decision with this number take.
    value: Option<(u32, Vec<u8>)>,
    /// A switch may join.
    joins_since_ns: Option<u64>,
    /// Members that were not sealed in time, and are left out until then.
    out: BTreeMap<Ipv4Addr, u64>,
    /// Switches that are kept out, as windows or the chain of the group waited for them.
    pub excluded: BTreeMap<Ipv4Addr, Excluded>,
    /// One of them, which this step is to remove.
    pub waits_for: Option<Ipv4Addr>,
    began_ns: Option<u64>,
    sealed_ns: u64,
    /// Members whose death was told.
    told: BTreeSet<(Ipv4Addr, u32)>,
    /// See `Stage::Behind`.
    behind: bool,
    /// Lives in a view that is newer than all that are known, beside members that go on without
    /// them.
    unknown: BTreeSet<(Ipv4Addr, u32)>,
    /// Switches whose variables lie in another way than the members' do, and in which.
    misfits: BTreeMap<Ipv4Addr, u64>,
    /// With SRO: since when all members have had everything, in the view with this number.
    settled: Option<(u32, u64)>,
    sent: eventual::Sent,
    summed: fold::Summed,
}

impl Group {
    pub fn new(name: String, switches: Vec<Ipv4Addr>) -> Group {
        Group {
            name,
            switches,
            seen: BTreeMap::new(),
            attempt: None,
            value: None,
            joins_since_ns: None,
            out: BTreeMap::new(),
            excluded: BTreeMap::new(),
            waits_for: None,
            began_ns: None,
            sealed_ns: 0,
            told: BTreeSet::new(),
            behind: false,
            unknown: BTreeSet::new(),
            misfits: BTreeMap::new(),
            settled: None,
            sent: eventual::Sent::default(),
            summed: fold::Summed::default(),
        }
    }

    /// Operators are told once that a life has ended.
    fn tell_death(&mut self, member: &Member, out: &mut Outputs) {
        if self.told.insert((member.address, member.incarnation)) {
            out.events.push(Event::Died(self.name.clone(), member.address));
        }
    }

    /// This controller leads from now on, or does not any more.
    pub fn begin(&mut self, now_ns: u64) {
        (self.attempt, self.value, self.settled) = (None, None, None);
        self.behind = false;
        self.unknown.clear();
        self.misfits.clear();
        self.excluded.clear();
        self.asks_nobody();
        self.sent = eventual::Sent::default();
        self.summed = fold::Summed::default();
        self.began_ns = Some(now_ns);
    }

    pub fn address_of(&self, switch: Ipv4Addr) -> Option<SocketAddrV4> {
        self.seen.get(&switch).map(|seen| seen.from)
    }

    pub fn report(
        &mut self,
        now_ns: u64,
        dead_ns: u64,
        from: SocketAddrV4,
        report: Report,
        out: &mut Outputs,
    ) {
        if !self.switches.contains(&report.switch) {
            return;
        }
        let old = self.seen.get(&report.switch).is_some_and(|seen| {
            let (now, before) = (&report, &seen.report);
            if before.incarnation == now.incarnation {
                before.sent_ns >= now.sent_ns
            } else {
                // (A late one of an earlier life, as long as this one reports.)
                now_ns.saturating_sub(seen.heard_ns) < dead_ns
                    && before.incarnation > now.incarnation
            }
        });
        if old {
            return;
        }
        let before = self.seen.get(&report.switch);
        let mut told_ns = before.map_or(0, |seen| seen.told_ns);
        let ordered_ns = before.map_or(0, |seen| seen.ordered_ns);
        if told_ns == 0 || now_ns >= told_ns + HEARD_NS {
            told_ns = now_ns;
            let task = self.heard(now_ns, &report);
            out.messages.push((from, self.order(report.incarnation, task)));
        }
        let asked_ns = None;
        let seen = Seen { from, heard_ns: now_ns, told_ns, ordered_ns, asked_ns, report };
        self.seen.insert(seen.report.switch, seen);
    }

    fn order(&self, incarnation: u32, task: Task) -> Message {
        Message::Order(Order { group: self.name.clone(), incarnation, task })
    }

    pub fn part(&mut self, from: SocketAddrV4, which: Which, part: Part) {
        let Some(attempt) = self.attempt.as_mut().filter(|it| it.number == which.number) else {
            return;
        };
        let Some(switch) = self.seen.values().find(|seen| seen.from == from) else { return };
        if let Some(pull) =
            attempt.gather.as_mut().and_then(|gather| gather.pull(switch.report.switch, which.what))
        {
            pull.take(part);
        }
    }

    /// A part of what a member needs for the newest decision.
    pub fn ask(
        &self,
        from: SocketAddrV4,
        which: Which,
        offset: u32,
        newest: Option<&Decided>,
    ) -> Option<(SocketAddrV4, Message)> {
        let newest = newest.filter(|it| it.number == which.number)?;
        let bytes = match which.what {
            What::Value => {
                let (number, bytes) = self.value.as_ref()?;
                (*number == which.number).then_some(bytes)?
            }
            What::Extra => &newest.extra,
            _ => return None,
        };
        Some((from, Message::Part(which, bulk::part(bytes, offset))))
    }

    /// The decision of the attempt is persistent.
    pub fn persisted(&mut self, now_ns: u64, decided: &Decided, out: &mut Outputs) {
        let Some(attempt) = self.attempt.take() else { return };
        if attempt.number != decided.number {
            return;
        }
        let value = attempt.gather.and_then(|gather| {
            let bytes = gather.value.as_ref().and_then(|pull| pull.whole())?.to_vec();
            Some((decided.number, bytes))
        });
        self.value = value;
        self.joins_since_ns = None;
        self.asks_nobody();
        for seen in self.seen.values_mut() {
            seen.ordered_ns = 0;
        }
        for (address, excluded) in &mut self.excluded {
            let is_member = decided.members.iter().any(|it| it.address == *address);
            if excluded.view == 0 && !is_member {
                excluded.view = decided.number;
            }
        }
        for member in attempt.leaves.iter().filter(|it| !decided.members.contains(it)) {
            out.events.push(Event::Left(self.name.clone(), member.address));
        }
        let ms = now_ns.saturating_sub(attempt.began_ns) / 1_000_000;
        out.events.push(Event::Decided(self.name.clone(), Box::new(decided.clone()), ms));
        self.sealed_ns = now_ns;
    }

    pub fn not_persisted(&mut self) {
        self.attempt = None;
        self.asks_nobody();
    }

    /// No attempt waits for an answer to a seal.
    fn asks_nobody(&mut self) {
        self.seen.values_mut().for_each(|seen| seen.asked_ns = None);
    }

    pub fn deciding(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.deciding = true;
        }
    }

    pub fn stage(&self) -> Stage {
        match (&self.attempt, &self.value) {
            _ if self.behind => Stage::Behind,
            (Some(_), _) => Stage::Sealing,
            (None, Some(_)) => Stage::Taking,
            (None, None) => Stage::Settled,
        }
    }

    pub fn members(
        &self,
        _settings: &Settings,
        state: &GroupState,
        now_ns: u64,
    ) -> Vec<MemberStatus> {
        let known = state.newest().map_or(0, |it| it.number);
        let of = |(number, address): (u32, &Ipv4Addr)| {
            let seen = self.seen.get(address);
            let incarnation = seen.map_or(0, |seen| seen.report.incarnation);
            let member = state.newest().is_some_and(|it| it.has(*address, incarnation));
            MemberStatus {
                number,
                address: *address,
                member,
                excluded: self.why(now_ns, *address).filter(|_| !member),
                heard_ns: seen.map(|seen| now_ns.saturating_sub(seen.heard_ns)),
                unknown: seen.is_some_and(|seen| self.has_unknown_view(known, &seen.report)),
                misfit: self.misfits.contains_key(address),
                sent_all: self.was_sent_all(*address, seen.map(|seen| &seen.report)),
                report: seen.map(|seen| seen.report.clone()),
            }
        };
        (0..).zip(&self.switches).map(of).collect()
    }

    fn reports(&self, settings: &Settings, now_ns: u64, member: &Member) -> Option<&Report> {
        let seen = self.seen.get(&member.address)?;
        let alive = seen.is_alive(settings, now_ns);
        (alive && seen.report.incarnation == member.incarnation).then_some(&seen.report)
    }

    /// Its state is lost, as far as one can know.
    fn is_gone(&self, settings: &Settings, now_ns: u64, member: &Member) -> bool {
        let Some(seen) = self.seen.get(&member.address) else {
            return now_ns >= self.began_ns.unwrap_or(now_ns) + settings.lost_ns;
        };
        seen.report.view == 0
            || seen.report.incarnation > member.incarnation
            || now_ns >= seen.heard_ns + settings.lost_ns
    }

    /// This controller got no CPU for so long.
    pub fn stood_still(&mut self, now_ns: u64, still_ns: u64) {
        for seen in self.seen.values_mut() {
            seen.stood_still(now_ns, still_ns);
        }
    }

    /// Members of the newest view that have state of the group and report.
    fn living(&self, settings: &Settings, now_ns: u64, newest: &Decided) -> Vec<Member> {
        let lives = |it: &&Member| {
            self.reports(settings, now_ns, it).is_some_and(|report| report.view != 0)
        };
        newest.members.iter().filter(lives).copied().collect()
    }

    /// It was not sealed in time.
    fn is_out(&self, now_ns: u64, switch: Ipv4Addr) -> bool {
        self.out.get(&switch).is_some_and(|until_ns| now_ns < *until_ns)
    }

    /// The group goes on without this member: a switch that only the other consistency waited for
    /// stays a member of this one.
    fn goes(&self, now_ns: u64, switch: Ipv4Addr) -> bool {
        self.is_out(now_ns, switch) || self.excluded.get(&switch).is_some_and(|it| it.waited_for)
    }

    /// Switches without state that report, and may be members.
    fn fresh(&self, settings: &Settings, now_ns: u64, newest: Option<&Decided>) -> Vec<Member> {
        let layout = self.layout(settings, now_ns, newest);
        let of = |(number, address): (u32, &Ipv4Addr)| {
            let seen = self.seen.get(address)?;
            let incarnation = seen.report.incarnation;
            let member = Member { number, address: *address, incarnation };
            let report = self.reports(settings, now_ns, &member)?;
            let may = !self.is_out(now_ns, *address) && !self.excluded.contains_key(address);
            (report.view == 0 && may && !report.leaves && Some(report.layout) == layout)
                .then_some(member)
        };
        (0..).zip(&self.switches).filter_map(of).collect()
    }

    /// Takes the steps that are due. A decision that is to be made persistent, and the oldest view
    /// that a member is in.
    pub fn step(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        state: &GroupState,
        out: &mut Outputs,
    ) -> Option<(Decided, u32)> {
        let began_ns = *self.began_ns.get_or_insert(now_ns);
        if now_ns >= began_ns + settings.begin_ns {
            self.tell_misfits(now_ns, settings, state.newest(), out);
        }
        if self.is_eventual(settings, now_ns) {
            let heard = |it: &Member| self.seen.contains_key(&it.address);
            let newest = state.newest();
            let early = now_ns < began_ns + settings.begin_ns;
            let all = newest.is_none_or(|it| it.members.iter().all(heard));
            let waits = self.attempt.as_ref().is_some_and(|it| it.deciding);
            if waits || early && !all {
                return None;
            }
            return self.eventual_step(now_ns, settings, newest, out);
        }
        if self.is_behind(now_ns, settings, state, out) {
            return None;
        }
        let Some(newest) = state.newest() else { return self.found(now_ns, settings, None) };
        self.remove_strangers(now_ns, settings, newest, out);
        if newest.lease.is_some() {
            let early = now_ns < began_ns + settings.begin_ns;
            let heard = |it: &Member| self.seen.contains_key(&it.address);
            let waits = self.attempt.as_ref().is_some_and(|it| it.deciding);
            if waits || early && !newest.members.iter().all(heard) {
                return None;
            }
            return self.chain_step(now_ns, settings, newest, out);
        }
        let living = self.living(settings, now_ns, newest);
        if let Some(attempt) = &self.attempt {
            if attempt.deciding {
                return None;
            }
            let stays = |it: &Member| living.contains(it);
            if attempt.stays.iter().all(stays) {
                return self.go_on(now_ns, settings, state, out);
            }
            self.attempt = None;
        }
        // (No switch is dead before there was time for its reports.)
        let early = now_ns < began_ns + settings.begin_ns;
        let heard = |it: &Member| self.seen.contains_key(&it.address);
        if early && !newest.members.iter().all(heard) {
            return None;
        }
        if living.is_empty() {
            let joins = |it: &Member| {
                newest.joins.contains(&it.number)
                    && self.can_take(newest, it)
                    && self.reports(settings, now_ns, it).is_some()
            };
            // (They are told of it just now.)
            if now_ns < self.sealed_ns.max(began_ns) + settings.seal_ns
                && newest.members.iter().any(joins)
            {
                self.tell(now_ns, settings, newest, out);
                return None;
            }
            let gone = |it: &Member| self.is_gone(settings, now_ns, it);
            if !newest.members.iter().all(gone) {
                return None;
            }
            let found = self.found(now_ns, settings, Some(newest));
            if found.is_some() {
                out.events.push(Event::Lost(self.name.clone()));
            }
            return found;
        }
        if self.needs_attempt(now_ns, settings, newest, &living, out) {
            self.begin_attempt(now_ns, settings, newest, living);
            return self.go_on(now_ns, settings, state, out);
        }
        self.tell(now_ns, settings, newest, out);
        None
    }

    /// The first view, or the first after all members died.
    fn found(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: Option<&Decided>,
    ) -> Option<(Decided, u32)> {
        if self.attempt.as_ref().is_some_and(|it| it.deciding) {
            return None;
        }
        let fresh = self.fresh(settings, now_ns, newest);
        let late = now_ns >= self.began_ns.unwrap_or(now_ns) + settings.begin_ns;
        if fresh.is_empty() || (fresh.len() < self.switches.len() && !late) {
            return None;
        }
        let number = self.next_number(newest);
        let window = self.seen.values().map(|it| it.report.window).max().unwrap_or(0) + 1;
        let joins = fresh.clone();
        self.attempt = Some(Attempt { joins, ..Attempt::begun(number, now_ns) });
        let counted = newest.map(|it| it.counted.clone()).unwrap_or_default();
        let joins = fresh.iter().map(|it| it.number).collect();
        let turn = Turn::Go;
        // (A member that is lost, as the configuration does not name it any more, may still read.)
        let wait_ms = newest.and_then(|it| it.lease).map_or(0, |it| it.lease_ms);
        let chain = fresh.first().and_then(|it| self.seen.get(&it.address)?.report.chain);
        let lease = chain.map(|_| Lease { lease_ms: settings.lease_ns / 1_000_000, wait_ms });
        let decided = Decided {
            number,
            members: fresh,
            joins,
            lacks: vec![],
            turn,
            window,
            extra: vec![],
            counted,
            lease,
            away: vec![],
            base: None,
        };
        Some((decided, number))
    }

    fn next_number(&self, newest: Option<&Decided>) -> u32 {
        let reports = self.seen.values().map(|seen| &seen.report);
        let reports = reports.filter(|report| !self.is_unknown(report));
        let known = reports.map(|report| report.known.max(report.view));
        known.chain(newest.map(|it| it.number)).max().unwrap_or(0) + 1
    }

    fn begin_attempt(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        newest: &Decided,
        living: Vec<Member>,
    ) {
        let leaving = self.leaving(settings, now_ns, &living);
        let leaves = |it: &Member| leaving.contains(it) || self.goes(now_ns, it.address);
        let mut stays: Vec<Member> = living.iter().filter(|it| !leaves(it)).copied().collect();
        if stays.is_empty() {
            stays = living;
        }
        // (A living switch that is not sealed again owes no answer to an earlier seal.)
        for (address, seen) in &mut self.seen {
            let is_asked = stays.iter().any(|it| it.address == *address);
            if !is_asked && seen.is_alive(settings, now_ns) {
                seen.asked_ns = None;
            }
        }
        let number = self.next_number(Some(newest));
        let joins = self.fresh(settings, now_ns, Some(newest));
        self.value = None;
        let begun = Attempt::begun(number, now_ns);
        let mut attempt = Attempt { stays, joins, leaves: leaving, ..begun };
        attempt.without_some = newest.members.iter().any(|it| !attempt.has(it));
        self.attempt = Some(attempt);
    }

    /// Seals, hears, gathers.
    fn go_on(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        state: &GroupState,
        out: &mut Outputs,
    ) -> Option<(Decided, u32)> {
        let mut attempt = self.attempt.take()?;
        let number = attempt.number;
        if now_ns >= attempt.told_ns + settings.again_ns {
            attempt.told_ns = now_ns;
            for member in &attempt.stays {
                let Some(seen) = self.seen.get_mut(&member.address) else { continue };
                // (One that is sealed packs state, and may be silent meanwhile.)
                if attempt.without_some && seen.report.sealed != number {
                    seen.asked_ns.get_or_insert(now_ns);
                }
                let from = seen.from;
                out.messages.push((from, self.order(member.incarnation, Task::Seal { number })));
            }
        }
        let reports = attempt.stays.iter().filter_map(|it| {
            let report = self.reports(settings, now_ns, it)?;
            let sealed = report.sealed == number || planted(Mutation::DecidedWithoutSeal);
            sealed.then(|| (it.address, report.clone()))
        });
        let reports: BTreeMap<Ipv4Addr, Report> = reports.collect();
        let oldest = reports.values().map(|report| report.view).min().unwrap_or(0);
        if reports.len() < attempt.stays.len() {
            if now_ns >= attempt.began_ns + settings.seal_ns {
                for member in attempt.stays.iter().filter(|it| !reports.contains_key(&it.address)) {
                    self.out.insert(member.address, now_ns + settings.seal_ns);
                }
                return None; // the next input begins anew
            }
            if attempt.gather.is_some() {
                return None; // a seal has ended meanwhile
            }
            self.attempt = Some(attempt);
            return None;
        }
        if attempt.gather.is_none() {
            let plan = plan(state, &attempt.stays, &attempt.joins, &reports)?;
            attempt.gather = Some(Gather::new(plan, &attempt.stays));
        }
        if let Some(gather) = &mut attempt.gather {
            let group = name_hash(&self.name);
            let since = |it: &Gather| if attempt.joins.is_empty() { it.plan.window - 1 } else { 1 };
            let since = since(gather);
            for (switch, what, offset) in gather.asks(now_ns) {
                let Some(seen) = self.seen.get(&switch) else { continue };
                let which = Which { group, number, what };
                out.messages.push((seen.from, Message::Ask(which, offset, since)));
            }
        }
        let decided = attempt.decided();
        self.attempt = Some(attempt);
        decided.map(|decided| (decided, oldest))
    }
}
