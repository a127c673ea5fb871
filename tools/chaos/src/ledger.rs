//! The account of every counted packet: which number it was given, and where it was lost if it did
//! not get out.
//!
//! RedPlane's Definitions 2 to 4 let packets get lost, also after they were counted. What they do
//! not allow is a counter that differs from the packets that got out for any other reason. So each
//! number up to the counter's value must have been given to exactly one packet that got out or was
//! lost *where something was broken at that time*, and each packet has at most one number. The
//! evidence is what the routers' interfaces carried ([`crate::tap`]): a message of the state
//! protocol shows the packet, its number, and the grant (epoch) under which it was given.
//!
//! **Which numbers count.** A switch that has lost a flow without knowing it goes on giving
//! numbers, which the store refuses. A grant says from which value it goes on; so number *n* was
//! given under the last grant that goes on from less than *n*. What other grants say of *n* was
//! refused.
//!
//! **Packets that wait in a switch** are in no message. Their numbers are in the records of batches
//! ([`batches`]), and such a packet shows its own when it leaves.

mod batches;
mod explain;

pub use batches::{BatchId, Record};

use crate::plan::Fault;
use batches::{Answers, Sent};
use lab::topology::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How long a packet may be in a store, which holds requests for other switches' flows (`hold_ms`
/// is at most 900), and how old a reply may be that a switch takes: one second.
const HELD_NS: u64 = 1_000_000_000;
/// Requests of a switch to a shard that may be unanswered at a time (a switch's `window_packets` by
/// default); it drops what would be another one (systems/redplane/docs/state-protocol.md,
/// "Window").
const WINDOW: usize = 128;
/// The times of faults and those of packets are taken by different threads.
const SLACK_NS: u64 = 50_000_000;

/// A node of the lab, by its place in the list of nodes.
pub type Node = usize;

/// What was seen of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The packet itself; with this number, if a switch sent it.
    Plain(u64),
    /// In a `LEASE_REQUEST`.
    Asked {
        /// The flow's shard.
        shard: u16,
    },
    /// In a `LEASE_GRANT` or `ABSENT`.
    Returned,
    /// In an `UPDATE`, numbered.
    Update {
        /// The grant.
        epoch: u32,
        /// The number.
        number: u64,
        /// The flow's shard.
        shard: u16,
    },
    /// In an `UPDATE_ACK`.
    Acknowledged,
}

/// What a message or packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Something about a packet.
    Packet {
        /// Unique over all flows.
        packet: u32,
        /// What it was in.
        form: Form,
    },
    /// The store granted the flow.
    Granted {
        /// The grant.
        epoch: u32,
        /// The number to go on from.
        number: u64,
        /// The switch, by its `switch_id`.
        switch_id: u32,
    },
    /// A grant is over: a request under it was refused.
    Refused {
        /// The grant.
        epoch: u32,
    },
    /// A batch has a record of the flow.
    Recorded {
        /// Which batch.
        batch: BatchId,
        /// What it says.
        record: Record,
    },
    /// A batch was answered. (Of no flow.)
    Answered {
        /// Which batch.
        batch: BatchId,
        /// Bit n: its record n was refused.
        refused: u64,
    },
    /// A shard's chain is another one from now on. (Of no flow.)
    View {
        /// The shard.
        shard: u16,
        /// The new view's number.
        view: u64,
    },
}

/// A sighting at a router's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Nanoseconds since the recording began.
    pub ns: u64,
    /// The router.
    pub router: Node,
    /// Who is at the other end.
    pub peer: Node,
    /// The router sent it there, rather than received it.
    pub outgoing: bool,
    /// Whom it was addressed to, if that is a node.
    pub to: Option<Node>,
    /// The flow.
    pub flow: u32,
    /// What it was.
    pub what: What,
}

/// What was broken.
#[derive(Clone, Debug)]
pub enum Broken {
    /// A fault that was made.
    Fault(Fault),
    /// Routing between two nodes went down by itself: the machine is too busy for BFD.
    Routing(String, String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Routing(a, b) => write!(f, "routing between {a} and {b} went down by itself"),
        }
    }
}

impl Broken {
    fn touches(&self, name: &str) -> bool {
        match self {
            Self::Fault(fault) => fault.machine().is_some_and(|machine| machine == name),
            Self::Routing(a, b) => a == name || b == name,
        }
    }
}

/// Something broken, with the time in which its effects last.
#[derive(Clone, Debug)]
pub struct Outage {
    /// What was broken.
    pub broken: Broken,
    /// From when, in nanoseconds since the recording began.
    pub from_ns: u64,
    /// Until the lab was whole again.
    pub until_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Packet {
    last: Option<Sighting>,
    /// When its first request passed a router, for the age of replies.
    asked_ns: Option<u64>,
    /// (switch, when) it went there to be counted.
    entered: Vec<(Node, u64)>,
    /// (epoch, number): what switches made of it. Epoch 0: seen on its way out only.
    numbered: BTreeSet<(u32, u64)>,
    /// When a switch first sent it, as itself.
    left_ns: Option<u64>,
    out: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    number: u64,
    switch_id: u32,
    ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    packets: BTreeMap<u32, Packet>,
    grants: BTreeMap<u32, Grant>,
    refused: BTreeSet<u32>,
    shard: Option<u16>,
    /// The records about it.
    records: BTreeSet<(BatchId, u8)>,
}

/// A packet that did not get out.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Lost {
    /// Its flow.
    pub flow: u32,
    /// The packet.
    pub packet: u32,
    /// The number that it has in the counter.
    pub number: Option<u64>,
    /// Where it was lost.
    pub place: String,
    /// What was broken there.
    pub cause: String,
}

/// What has become of a flow's packets.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Packets that got out.
    pub out: u64,
    /// Those that did not, each with its place and cause.
    pub lost: Vec<Lost>,
    /// What nothing explains.
    pub problems: Vec<String>,
}

/// All accounts.
#[derive(Debug, Default)]
pub struct Ledger {
    nodes: Vec<(String, Role)>,
    /// By `switch_id`.
    switches: BTreeMap<u32, Node>,
    flows: BTreeMap<u32, Flow>,
    outages: Vec<Outage>,
    /// Routing that went down by itself: since when it was as before, and between whom.
    routing: BTreeMap<(u64, String, String), Outage>,
    /// When each shard's chain changed, and to which view.
    views: BTreeMap<u16, Vec<(u64, u64)>>,
    batches: BTreeMap<BatchId, Sent>,
}

impl Ledger {
    /// An empty one. Switches are told from their `switch_id`.
    pub fn new(nodes: Vec<(String, Role)>, switches: BTreeMap<u32, Node>) -> Self {
        Self { nodes, switches, ..Self::default() }
    }

    /// A packet is being sent.
    pub fn sent(&mut self, flow: u32, packet: u32) {
        self.flows.entry(flow).or_default().packets.entry(packet).or_default();
    }

    /// A packet got out. (A second time it is a doubled one.)
    pub fn got_out(&mut self, flow: u32, packet: u32, number: u64) {
        self.flows
            .entry(flow)
            .or_default()
            .packets
            .entry(packet)
            .or_default()
            .out
            .get_or_insert(number);
    }

    /// Something was broken. (Routing may be reported again, with a later end.)
    pub fn outage(&mut self, outage: Outage) {
        match &outage.broken {
            Broken::Fault(_) => self.outages.push(outage),
            Broken::Routing(a, b) => {
                self.routing.insert((outage.from_ns, a.clone(), b.clone()), outage);
            }
        }
    }

    /// A flow has ended.
    pub fn forget(&mut self, flow: u32) {
        self.flows.remove(&flow);
        if self.flows.is_empty() {
            self.outages.clear();
            self.routing.clear();
            self.views.clear();
            self.batches.clear();
        }
    }

    /// A router's interface carried it. Flows that have ended are nobody's.
    pub fn see(&mut self, sighting: Sighting) {
        let from_switch = !sighting.outgoing && self.role(sighting.peer) == Some(Role::Switch);
        let to_switch = sighting.outgoing && self.role(sighting.peer) == Some(Role::Switch);
        if let What::View { shard, view } = sighting.what {
            return self.views.entry(shard).or_default().push((sighting.ns, view));
        }
        if let What::Answered { batch, refused } = sighting.what {
            return self.batches.entry(batch).or_default().answered(refused, sighting.ns);
        }
        let Some(flow) = self.flows.get_mut(&sighting.flow) else { return };
        let (packet, form) = match sighting.what {
            What::Granted { epoch, number, switch_id } => {
                let grant = flow.grants.entry(epoch).or_insert(Grant {
                    number,
                    switch_id,
                    ns: sighting.ns,
                });
                // Repeated to the same owner, it tells what was recorded meanwhile.
                grant.number = grant.number.min(number);
                grant.ns = grant.ns.min(sighting.ns);
                return;
            }
            What::Refused { epoch } => {
                flow.refused.insert(epoch);
                return;
            }
            What::Recorded { batch, record } => {
                flow.shard = Some(batch.shard);
                flow.records.insert((batch, record.place));
                self.batches.entry(batch).or_default().has(record, sighting.ns);
                return;
            }
            What::Packet { packet, form } => (packet, form),
            What::View { .. } | What::Answered { .. } => return,
        };
        if let Form::Asked { shard } | Form::Update { shard, .. } = form {
            flow.shard = Some(shard);
        }
        let packet = flow.packets.entry(packet).or_default();
        match form {
            Form::Plain(_) if to_switch => packet.entered.push((sighting.peer, sighting.ns)),
            Form::Plain(number) if from_switch => {
                packet.numbered.insert((0, number));
                let left = packet.left_ns.get_or_insert(sighting.ns);
                *left = sighting.ns.min(*left);
            }
            Form::Returned if to_switch => packet.entered.push((sighting.peer, sighting.ns)),
            Form::Update { epoch, number, .. } => drop(packet.numbered.insert((epoch, number))),
            _ => {}
        }
        if matches!(form, Form::Asked { .. } | Form::Update { .. }) {
            packet.asked_ns = Some(sighting.ns);
        }
        if packet.last.is_none_or(|last| sighting.ns >= last.ns) {
            packet.last = Some(sighting);
        }
    }

    /// Is it a packet on its way into a switch?
    pub fn goes_in(&self, sighting: &Sighting) -> bool {
        let plain = matches!(sighting.what, What::Packet { form: Form::Plain(_), .. });
        plain && sighting.outgoing && self.role(sighting.peer) == Some(Role::Switch)
    }

    fn role(&self, node: Node) -> Option<Role> {
        self.nodes.get(node).map(|(_, role)| *role)
    }

    fn name(&self, node: Node) -> &str {
        self.nodes.get(node).map_or("?", |(name, _)| name)
    }

    /// A sighting for people.
    pub fn describe(&self, sighting: &Sighting) -> String {
        let Sighting { ns, router, peer, outgoing, flow, what, .. } = sighting;
        let (router, peer) = (self.name(*router), self.name(*peer));
        let way = if *outgoing { "to" } else { "from" };
        format!("{:.3} ms: {router} {way} {peer}: flow {flow}: {what:?}", *ns as f64 / 1e6)
    }

    /// What has become of a flow's packets, if its counter is at `counter`.
    pub fn account(&self, number: u32, counter: u64) -> Account {
        let mut account = Account::default();
        let Some(flow) = self.flows.get(&number) else { return account };
        let answers = self.answers(flow);
        let owners = self.owners(flow, &answers, counter, &mut account);
        let mut numbers: BTreeMap<u32, u64> = BTreeMap::new();
        for (given, packet) in &owners {
            if let Some(other) = numbers.insert(*packet, *given) {
                account
                    .problems
                    .push(format!("packet {packet} was counted twice, as {other} and as {given}"));
            }
        }
        for (packet, seen) in &flow.packets {
            match seen.out {
                Some(out) => {
                    account.out += 1;
                    if let Some(problem) = wrong_output(*packet, out, counter, &owners, flow) {
                        account.problems.push(problem);
                    }
                }
                None => match self.explain(flow, &answers, seen) {
                    Ok((place, cause)) => {
                        let given = numbers.get(packet).copied();
                        account.lost.push(Lost {
                            flow: number,
                            packet: *packet,
                            number: given,
                            place,
                            cause,
                        });
                    }
                    Err(place) => {
                        account.problems.push(format!("packet {packet} got lost {place}"))
                    }
                },
            }
        }
        let counted = account.lost.iter().filter(|lost| lost.number.is_some()).count() as u64;
        if account.problems.is_empty() && account.out + counted != counter {
            let out = account.out;
            account
                .problems
                .push(format!("its counter is {counter}, {out} packets got out and {counted} were counted and lost"));
        }
        account
            .problems
            .iter_mut()
            .for_each(|problem| *problem = format!("flow {number}: {problem}"));
        account
    }

    /// Who has each number up to the counter's value.
    fn owners(
        &self,
        flow: &Flow,
        answers: &Answers,
        counter: u64,
        account: &mut Account,
    ) -> BTreeMap<u64, u32> {
        let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
        for (packet, seen) in &flow.packets {
            for (epoch, number) in &seen.numbered {
                if *number > counter || !counts(flow, answers, seen, (*epoch, *number)) {
                    continue;
                }
                if let Some(other) = owners.insert(*number, *packet).filter(|other| other != packet)
                {
                    account.problems.push(format!(
                        "packets {other} and {packet} were both counted as {number} under one grant"
                    ));
                }
            }
        }
        let mut taken: BTreeSet<u32> = BTreeSet::new();
        for number in 1..=counter {
            if owners.contains_key(&number) {
                continue;
            }
            // The update with the packet went missing before any router; a repeated one, or a
            // release, brought the number.
            match self.unseen(flow, number, &taken) {
                Some(packet) => {
                    taken.insert(packet);
                    owners.insert(number, packet);
                }
                None => account.problems.push(format!("number {number} was given to no packet")),
            }
        }
        owners
    }
}

/// The grant under which a number was given.
fn grant_of(flow: &Flow, number: u64) -> Option<(u32, Grant)> {
    flow.grants
        .iter()
        .rev()
        .find(|(_, grant)| grant.number < number)
        .map(|(epoch, grant)| (*epoch, *grant))
}

/// Was the number given under the grant that counts? Without a store there are no grants. What
/// waited in a switch tells its number when it leaves, and must not leave before the answer.
fn counts(flow: &Flow, answers: &Answers, seen: &Packet, (epoch, number): (u32, u64)) -> bool {
    match epoch {
        0 if !flow.records.is_empty() => {
            let grant = grant_of(flow, number).map(|(epoch, _)| epoch);
            grant
                .zip(seen.left_ns)
                .is_some_and(|(epoch, left_ns)| answers.has_durable(epoch, number, left_ns))
        }
        0 => flow.grants.is_empty(),
        epoch => grant_of(flow, number).is_some_and(|(of, _)| of == epoch),
    }
}

fn wrong_output(
    packet: u32,
    out: u64,
    counter: u64,
    owners: &BTreeMap<u64, u32>,
    flow: &Flow,
) -> Option<String> {
    if out == 0 {
        return Some(format!("packet {packet} got out uncounted"));
    }
    if out > counter {
        return Some(format!("packet {packet} got out as {out}, and the counter is {counter}"));
    }
    match owners.get(&out) {
        Some(owner) if *owner == packet => None,
        Some(owner) => Some(format!(
            "packet {packet} got out as {out}, which is packet {owner}'s number: an acknowledged update was lost"
        )),
        None => {
            let grants: Vec<String> = flow
                .grants
                .iter()
                .map(|(epoch, grant)| format!("{epoch} from {}", grant.number))
                .collect();
            let answer = if flow.records.is_empty() { "" } else { ", or no answer had come for" };
            Some(format!(
                "packet {packet} got out as {out}, which no grant ({}) gave{answer}",
                grants.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests;
