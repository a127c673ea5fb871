//! A switch as a member of a chain that controllers decide on (README, "SRO", 9): report, take
//! views, give up what it has. Rules over a loaded object, without sockets and clocks: `controlled`
//! gives them both.

use crate::exclusion::{ExcludedLoad, Exclusions};
use crate::membership::{Outgoing, Pace};
use crate::strong::{Chain, ChainView};
use dataplane::{Dataplane, Result};
use std::net::Ipv4Addr;
use swish_protocol::control::{self, ChainReport, Lease, Load, Message, Order, Report, Task, View};
use swish_protocol::strong::{NodeValue, ViewValue, standing};

/// Packets read on a clock that is late by so much at the most (CONFIG_HZ is at least 100).
const LATE_CLOCK_NS: u64 = 10_000_000;
/// Packets that had begun when the right to read ended have left by then.
const PACKET_NS: u64 = 100_000_000;
const MS_NS: u64 = 1_000_000;

/// What does not change while the switch runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What reports call the group's variables with SRO.
    pub name: String,
    /// This switch's address.
    pub own: Ipv4Addr,
    /// Of its life.
    pub incarnation: u32,
    /// Of its tables, for operators.
    pub memory_bytes: u64,
    /// See there.
    pub pace: Pace,
}

/// See the module.
pub struct ChainMember {
    chain: Chain,
    settings: Settings,
    /// The data plane has secrets, so views may be taken.
    ready: bool,
    /// Members of the newest view, if this agent knows them.
    members: Option<Vec<control::Member>>,
    known: u32,
    /// The round that came last, and when.
    moved: (u64, u64),
    report_ns: u64,
    leaves: bool,
    exclusions: Exclusions,
}

impl ChainMember {
    /// With what an earlier agent left in the object.
    pub fn new(chain: Chain, settings: Settings) -> ChainMember {
        ChainMember {
            chain,
            settings,
            ready: false,
            members: None,
            known: 0,
            moved: (0, 0),
            report_ns: 0,
            leaves: false,
            exclusions: Exclusions::default(),
        }
    }

    /// Members of the newest view, from head to tail, if this agent knows them.
    pub fn members(&self) -> Option<&[control::Member]> {
        self.members.as_deref()
    }

    /// Switches that controllers keep out.
    pub fn excluded(&self, now_ns: u64) -> ExcludedLoad {
        self.exclusions.load(now_ns)
    }

    /// The data plane has the fabric's secrets.
    pub fn begin(&mut self) {
        self.ready = true;
    }

    /// Whether it is to leave.
    pub fn leaves(&self) -> bool {
        self.leaves
    }

    /// The switch is to leave the group, or to come back: rounds lend it no time to read any more,
    /// or do again.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn leave(&mut self, dataplane: &Dataplane, leaves: bool) -> Result<()> {
        self.leaves = leaves;
        self.report_ns = 0;
        if let Some(mut view) = self.chain.wanted(dataplane)?.filter(is_on) {
            view.standing &= !standing::QUIET;
            view.standing |= if leaves { standing::QUIET } else { 0 };
            self.chain.write(dataplane, &view)?;
        }
        Ok(())
    }

    /// When [`ChainMember::tick`] is wanted.
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
                Task::Take(view) => self.take(dataplane, now_ns, view)?,
                Task::Removed { number, why } => {
                    self.exclusions.removed(now_ns, &self.settings.name, number, why);
                    self.removed(dataplane, number)?;
                }
                Task::Heard | Task::Seal { .. } | Task::Sum { .. } => {}
            }
        }
        self.tick(dataplane, now_ns)
    }

    /// Time has passed. What there is to say.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tick(&mut self, dataplane: &Dataplane, now_ns: u64) -> Result<Vec<Outgoing>> {
        let node = self.chain.node(dataplane)?;
        let mut view = self.chain.wanted(dataplane)?;
        if self.moved.0 != node.round {
            self.moved = (node.round, now_ns);
        }
        let given_up = view.as_ref().is_some_and(|view| !is_on(view));
        if given_up && now_ns >= node.reads_ns.saturating_add(LATE_CLOCK_NS + PACKET_NS) {
            self.chain.empty(dataplane)?;
            (view, self.members, self.report_ns) = (None, None, now_ns);
        }
        if now_ns < self.report_ns {
            return Ok(vec![]);
        }
        self.report_ns = now_ns + self.settings.pace.report_ns;
        Ok(vec![(None, Message::Report(self.report(&node, view.as_ref(), now_ns)))])
    }

    fn report(&self, node: &NodeValue, view: Option<&ViewValue>, now_ns: u64) -> Report {
        let stands = view.map_or(0, |view| view.standing);
        let number = view.map_or(0, |view| view.number as u32);
        let head = stands & standing::HEAD != 0;
        Report {
            group: self.settings.name.clone(),
            switch: self.settings.own,
            incarnation: self.settings.incarnation,
            sent_ns: now_ns,
            layout: self.chain.layout(),
            sums: false,
            view: number,
            window: node.round,
            phase: 0,
            sealed: 0,
            known: self.known.max(number),
            asks: number != 0 && self.members.is_none(),
            whole: 0,
            lacks: 0,
            still_ms: now_ns.saturating_sub(self.moved.1) / MS_NS,
            leaves: self.leaves,
            empty: self.leaves && now_ns >= node.reads_ns.saturating_add(PACKET_NS),
            load: Load { memory_bytes: self.settings.memory_bytes, ..Load::default() },
            chain: Some(ChainReport {
                copying: stands & standing::JOINS != 0 && node.whole == 0,
                waits: head && node.round != node.round_done,
                applied: node.applied,
                committed: node.committed,
            }),
            eventual: None,
        }
    }

    fn take(&mut self, dataplane: &Dataplane, now_ns: u64, view: View) -> Result<()> {
        let own = view.members.iter().find(|it| {
            it.address == self.settings.own && it.incarnation == self.settings.incarnation
        });
        let (Some(own), Some(lease), true) = (own, view.lease, self.ready) else { return Ok(()) };
        let before = self.chain.wanted(dataplane)?;
        let number = u64::from(view.number);
        if before.as_ref().is_some_and(|it| it.number == number && is_on(it)) {
            self.exclusions.taken(view.number, &view.excluded);
            self.members = Some(view.members);
            return Ok(());
        }
        // (One that gives up what it had is asked again when it has done so.)
        if before.as_ref().is_some_and(|it| it.number > number || !is_on(it))
            || view.number < self.known
        {
            return Ok(());
        }
        let Lease { lease_ms, wait_ms } = lease;
        let taken = ChainView {
            number,
            own: own.number,
            // A member that begins empty has a new life, also if its switch goes on: batches of the
            // earlier life are forgotten here.
            incarnation: before.map_or(view.number, |it| it.incarnation),
            members: view.members.iter().map(|it| (it.number, it.address)).collect(),
            joins: view.joins,
            lease_ns: Some((lease_ms * MS_NS).saturating_sub(LATE_CLOCK_NS).max(1)),
            // (Clocks of two machines run apart by less than a thousandth.)
            wait_ns: wait_ms * MS_NS + wait_ms * MS_NS / 1000,
        };
        self.chain.take_as(dataplane, &taken, self.leaves)?;
        self.known = self.known.max(view.number);
        self.exclusions.taken(view.number, &view.excluded);
        self.members = Some(view.members);
        self.moved = (self.moved.0, now_ns);
        self.report_ns = 0;
        Ok(())
    }

    /// It takes no message from now on. When it may not read any more, it gives up what it has.
    fn removed(&mut self, dataplane: &Dataplane, number: u32) -> Result<()> {
        self.known = self.known.max(number);
        let before = self.chain.wanted(dataplane)?;
        if let Some(view) = before.filter(|it| is_on(it) && u64::from(number) > it.number) {
            self.chain.write(dataplane, &ViewValue { standing: 0, ..view })?;
            self.members = None;
        }
        Ok(())
    }
}

fn is_on(view: &ViewValue) -> bool {
    view.standing & standing::ON != 0
}
