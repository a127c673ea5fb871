//! A switch as a member of a group with EWO that controllers decide on (README, "EWO: members that
//! die, return and join"): report, take views. Rules over a loaded object, without sockets and
//! clocks: `controlled` gives them both.
//!
//! There are no seals, and no state is given up: packets read and update all the time, with or
//! without a view. A view only says which members' messages are merged, and to which they are sent.

use crate::controlled::lock;
use crate::eventual::EventualGroup;
use crate::fold::Digest;
use crate::gossip::Pace;
use crate::group;
use crate::membership::{self, Outgoing};
use dataplane::{Dataplane, Error, Result};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use swish_protocol::base::{Base, Before};
use swish_protocol::control::{
    EventualReport, Load, Member, Message, Order, Report, Sum, Task, View, rounds_of_all,
};
use swish_protocol::eventual::{NodeValue, incarnation_of, life_of};
use wire::KeyRing;

/// What does not change while the switch runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What reports call the group's variables with EWO.
    pub name: String,
    /// This switch's address.
    pub own: Ipv4Addr,
    /// Of its life.
    pub incarnation: u32,
    /// See there.
    pub pace: membership::Pace,
}

/// See the module.
pub struct EventualMember {
    group: EventualGroup,
    settings: Settings,
    gossip: Arc<Mutex<Pace>>,
    /// What messages are tagged with; none: the agent has not read it yet.
    ring: Option<KeyRing>,
    /// Of the newest view, if this agent knows them.
    members: Option<Vec<Member>>,
    known: u32,
    /// Members of which no message of this view has come.
    silent: Vec<u32>,
    report_ns: u64,
    /// It is to leave, once its gossip has come to this round.
    leaves: Option<u64>,
    /// What was folded, if this agent knows it.
    base: Option<Base>,
    sum: Option<Summing>,
}

/// A controller asks what this switch has of some lives.
struct Summing {
    view: u32,
    before: Before,
    /// It is forgotten if it is not asked again.
    until_ns: u64,
    /// It is looked again then.
    next_ns: u64,
    found: Option<Sum>,
}

/// Slots are summed up this often, as long as a controller asks.
const SUMMED_NS: u64 = 500_000_000;
/// It asks more often than this.
const ASKED_NS: u64 = 2_000_000_000;

impl EventualMember {
    /// With what an earlier agent left in the object.
    pub fn new(
        group: EventualGroup,
        settings: Settings,
        gossip: Arc<Mutex<Pace>>,
    ) -> EventualMember {
        // (Until a view says that no other switch may have older writes.)
        lock(&gossip).away = true;
        EventualMember {
            group,
            settings,
            gossip,
            ring: None,
            members: None,
            known: 0,
            silent: vec![],
            report_ns: 0,
            leaves: None,
            base: None,
            sum: None,
        }
    }

    /// Members of the newest view, if this agent knows them.
    pub fn members(&self) -> Option<&[Member]> {
        self.members.as_deref()
    }

    /// Whether it is to leave.
    pub fn leaves(&self) -> bool {
        self.leaves.is_some()
    }

    /// The fabric's secrets are these. A switch that begins has its life from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn secrets(&mut self, dataplane: &Dataplane, ring: &KeyRing) -> Result<()> {
        let node = self.group.node(dataplane)?;
        if node.life == 0 {
            let Settings { own, incarnation, .. } = self.settings;
            self.group.begin_alone(dataplane, life_of(own, incarnation), own)?;
        } else if let (Some(members), true) = (&self.members, node.view != 0) {
            let view = as_view(node.view, node.own, members.clone());
            self.group.secrets(dataplane, &view, ring)?;
        }
        self.ring = Some(ring.clone());
        Ok(())
    }

    /// The switch is to leave the group, or to come back.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn leave(&mut self, dataplane: &Dataplane, leaves: bool) -> Result<()> {
        self.report_ns = 0;
        self.leaves = None;
        if leaves {
            self.leaves = Some(self.sent_at(&self.group.node(dataplane)?));
        }
        Ok(())
    }

    /// The round of gossip by which each other member was sent all that the switch has now.
    fn sent_at(&self, node: &NodeValue) -> u64 {
        lock(&self.gossip).round() + rounds_of_all(node.count)
    }

    /// When [`EventualMember::tick`] is wanted.
    pub fn next_ns(&self) -> u64 {
        self.report_ns
    }

    /// A message of a controller came. What there is to say.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn message(
        &mut self,
        dataplane: &Dataplane,
        now_ns: u64,
        message: Message,
    ) -> Result<Vec<Outgoing>> {
        if let Message::Order(Order { incarnation, task, .. }) = message
            && incarnation == self.settings.incarnation
        {
            match task {
                Task::Take(view) => self.take(dataplane, view)?,
                Task::Removed { number, .. } => self.removed(dataplane, number)?,
                Task::Sum { view, before } => self.asked(now_ns, view, before),
                Task::Heard | Task::Seal { .. } => {}
            }
        }
        self.tick(dataplane, now_ns)
    }

    /// Time has passed. What there is to say.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tick(&mut self, dataplane: &Dataplane, now_ns: u64) -> Result<Vec<Outgoing>> {
        if now_ns < self.report_ns {
            return Ok(vec![]);
        }
        self.report_ns = now_ns + self.settings.pace.report_ns;
        self.hear(dataplane)?;
        self.add_up(dataplane, now_ns)?;
        let report = self.report(dataplane, now_ns)?;
        Ok(vec![(None, Message::Report(report))])
    }

    /// A member that sends messages of this view has taken it. It refused what it was sent before:
    /// that is sent again.
    fn hear(&mut self, dataplane: &Dataplane) -> Result<()> {
        let mut silent = vec![];
        for member in std::mem::take(&mut self.silent) {
            if self.group.member(dataplane, member)?.frames == 0 {
                silent.push(member);
            } else {
                self.group.send_again(dataplane, member)?;
            }
        }
        self.silent = silent;
        Ok(())
    }

    fn report(&self, dataplane: &Dataplane, now_ns: u64) -> Result<Report> {
        let node = self.group.node(dataplane)?;
        let look = self.group.look(dataplane)?;
        let pace = lock(&self.gossip);
        let (rounds, silences) = (pace.round(), &pace.silences);
        let load = Load {
            memory_bytes: self.group.memory_bytes,
            bytes_per_s: silences.bytes_per_s(),
            age_ms: silences.age_ms(now_ns),
            ..Load::default()
        };
        let silent = silences.silent(now_ns).into_iter().fold(0, |bits, it| bits | 1 << it.0);
        drop(pace);
        let sent = self.leaves.is_some_and(|sent_at| rounds >= sent_at);
        Ok(Report {
            group: self.settings.name.clone(),
            switch: self.settings.own,
            incarnation: self.settings.incarnation,
            sent_ns: now_ns,
            layout: self.group.described.layout,
            sums: false,
            view: node.view,
            window: 0,
            phase: 0,
            sealed: 0,
            known: self.known.max(node.view),
            asks: node.view != 0 && self.members.is_none(),
            whole: 0,
            lacks: silent,
            still_ms: 0,
            leaves: self.leaves.is_some(),
            empty: sent || self.leaves.is_some() && node.view == 0,
            load,
            chain: None,
            eventual: Some(Box::new(EventualReport {
                rounds,
                waiting: look.waiting(),
                lives: look.columns,
                life: node.life,
                room: self.group.room(),
                base: self.base.clone(),
                sum: self.sum.as_ref().and_then(|it| it.found),
            })),
        })
    }

    fn asked(&mut self, now_ns: u64, view: u32, before: Before) {
        let until_ns = now_ns + ASKED_NS;
        match &mut self.sum {
            Some(sum) if sum.view == view && sum.before == before => sum.until_ns = until_ns,
            _ => self.sum = Some(Summing { view, before, until_ns, next_ns: 0, found: None }),
        }
    }

    /// Looks what the switch has, while it is asked that.
    fn add_up(&mut self, dataplane: &Dataplane, now_ns: u64) -> Result<()> {
        let view = self.group.node(dataplane)?.view;
        let Some(sum) = self.sum.as_mut().filter(|it| it.view == view && now_ns < it.until_ns)
        else {
            self.sum = None;
            return Ok(());
        };
        if now_ns >= sum.next_ns {
            sum.next_ns = now_ns + SUMMED_NS;
            let Digest { lives, digest, oldest } = self.group.digest(dataplane, &sum.before)?;
            let oldest = oldest.map(|life| (Ipv4Addr::from(life as u32), incarnation_of(life)));
            sum.found = Some(Sum { view, of: sum.before.number(), lives, digest, oldest });
        }
        Ok(())
    }

    fn take(&mut self, dataplane: &Dataplane, view: View) -> Result<()> {
        let Settings { own, incarnation, .. } = self.settings;
        let own = view.members.iter().find(|it| it.address == own && it.incarnation == incarnation);
        let (Some(own), Some(ring)) = (own, &self.ring) else { return Ok(()) };
        let node = self.group.node(dataplane)?;
        if view.number < node.view.max(self.known) {
            return Ok(());
        }
        let taken = as_view(view.number, own.number, view.members.clone());
        if view.number == node.view {
            // (An earlier agent took it, maybe with older secrets.)
            self.group.secrets(dataplane, &taken, ring)?;
        } else {
            self.is_not_over(&node, view.base.as_ref())?;
            self.group.take(dataplane, &taken, view.base.as_ref(), ring)?;
            let others = view.members.iter().filter(|it| it.number != taken.own);
            self.silent = others.map(|it| it.number).collect();
            self.report_ns = 0;
        }
        lock(&self.gossip).begin_view(view.away);
        self.known = view.number;
        self.base = view.base;
        self.members = Some(view.members);
        if self.leaves.is_some() {
            self.leave(dataplane, true)?;
        }
        Ok(())
    }

    /// Others have folded only lives before this switch's own one. (If its clock was set back, and
    /// its state is gone, they may have.)
    fn is_not_over(&self, node: &NodeValue, base: Option<&Base>) -> Result<()> {
        if !base.is_some_and(|base| base.before.has(node.life)) {
            return Ok(());
        }
        Err(Error::Value {
            what: format!("group {}", self.group.described.name),
            text: format!("incarnation {}", node.life >> 32),
            reason: "the other switches know a later life of this one: set the clock, and start \
                     this switch again with --fresh (state_directory keeps incarnations rising)"
                .into(),
        })
    }

    /// It is no member any more: it goes on alone.
    fn removed(&mut self, dataplane: &Dataplane, number: u32) -> Result<()> {
        self.known = self.known.max(number);
        if self.group.node(dataplane)?.view < number {
            self.group.alone(dataplane)?;
            lock(&self.gossip).begin_view(true);
            self.members = None;
            self.silent.clear();
            self.report_ns = 0;
        }
        Ok(())
    }
}

/// As the data plane has it: there are no windows.
fn as_view(number: u32, own: u32, members: Vec<Member>) -> group::View {
    group::View {
        number,
        own,
        members,
        period_ns: 0,
        caps: group::Caps::default(),
        bound: 1,
        window: 1,
        begins_ns: 0,
        turns_ns: 0,
        fan_out: 0,
    }
}
