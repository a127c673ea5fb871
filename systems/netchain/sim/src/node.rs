//! A simulated switch: the real program by the reference interpreter, the agent's real rules, and a
//! clock of its own.

use crate::frames::{destination, frame, payload, switch_address};
use netchain_compiler::supply;
use netchain_controller::{Config, Report};
use netchain_protocol::message::{REPLY, STAMPED};
use netchain_protocol::tag::{member_tag, put_tag};
use netchain_protocol::{Key, Message, Operation, Ring, Room, Status};
use netchain_switch::follow::{Entry, Follower, Table, Tables};
use netchain_switch::peers::Pace;
use num_bigint::BigInt;
use p4_interpreter::network::{Network, Port, Way};
use p4_interpreter::object::{Answer, Call, Datum, ObjectKinds, Objects};
use p4_interpreter::{Interpreter, KeyMatch, RuntimeEntry, Stop, Verdict};
use p4_ir::{ActionCall, Program, TableId};
use simnet::Clock;
use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;
use wire::Secret;

/// The only port, and what the packet generator's packets come in on.
const PORT: u32 = 1;
const GENERATOR_PORT: u32 = 509;
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Of the members.
const FABRIC: Secret = Secret(*b"members' secret.");
const ALONE: &[&dyn ObjectKinds] = &[&netchain_compiler::Meaning];

/// How often peers are probed, and how long a lease holds. (Slower than by default: a probe costs
/// as much as a request.)
pub(crate) const PACE: Pace = Pace { probe_ms: 25, lease_ms: 120 };

/// What a switch's data plane did with a frame.
pub(crate) enum Became {
    /// Dropped, or taken up.
    Nothing,
    /// It sends this one.
    Sends(Vec<u8>),
}

/// The interpreter's tables, as the agent writes them.
struct Written<'a, 'p> {
    program: &'p Program,
    interpreter: &'a mut Interpreter<'p>,
}

fn table_name(table: Table) -> &'static str {
    match table {
        Table::Roles => ".roles",
        Table::DeadSources => ".dead_sources",
        Table::Destinations => ".destinations",
    }
}

impl Tables for Written<'_, '_> {
    type Error = String;

    fn exchange(&mut self, table: Table, entries: Vec<Entry>) -> Result<(), String> {
        let name = table_name(table);
        let found = self.program.tables.iter().position(|it| it.name.ends_with(name));
        let Some(at) = found else { return Err(format!("no table {name}")) };
        let described = &self.program.tables[at];
        let action = |wanted: &str| {
            let named = |name: &str| name == wanted || name.ends_with(&format!(".{wanted}"));
            let mut listed = described.actions.iter();
            listed.position(|it| named(&self.program.actions[it.action.index()].name))
        };
        let width = if table == Table::Roles { 16 } else { 32 };
        let mut written = Vec::with_capacity(entries.len());
        for entry in entries {
            let Some(number) = action(entry.action) else {
                return Err(format!("{name} has no action {}", entry.action));
            };
            let mask = (BigInt::from(1) << width) - 1;
            let matches = vec![KeyMatch { value: entry.key.into(), mask }];
            let arguments = entry.arguments.into_iter().map(BigInt::from).collect();
            let call = ActionCall { action: number as u32, arguments };
            written.push(RuntimeEntry::new(matches, 0, call));
        }
        self.interpreter.replace_entries(TableId(at as u32), written);
        Ok(())
    }
}

/// A switch as it is when its program has been loaded: each life begins with a copy.
pub(crate) struct Template<'p> {
    program: &'p Program,
    interpreter: Interpreter<'p>,
}

impl<'p> Template<'p> {
    pub(crate) fn new(program: &'p Program) -> Result<Template<'p>, Stop> {
        let mut interpreter = Interpreter::new(program, Objects(ALONE))?;
        let mut network = Network::default();
        network.ports.insert(PORT, Port { mac: 2, ..Port::default() });
        let way = Way::Via { gateway: GATEWAY.into(), port: PORT };
        network.routes.push((Ipv4Addr::UNSPECIFIED.into(), 0, way));
        network.neighbors.insert((PORT, GATEWAY.into()), 3);
        interpreter.set_network(network);
        // (Clients without a key may read and write: nobody forges here.)
        let client = supply::ClientKey {
            id: 0,
            secret: FABRIC,
            prefix: (0, 0),
            rights: 3,
            interval_ns: 0,
            ahead_ns: 0,
        };
        interpreter.supply("tags", supply::CLIENT_KEY, &client.numbers())?;
        interpreter.supply("tags", supply::SECRET, &FABRIC.words())?;
        Ok(Template { program, interpreter })
    }
}

/// A switch, from when it got its slots until it loses them.
pub(crate) struct Node<'p> {
    program: &'p Program,
    interpreter: Interpreter<'p>,
    ring: u32,
    address: Ipv4Addr,
    pub(crate) clock: Clock,
    pub(crate) incarnation: u32,
    pub(crate) follower: Follower,
    /// A number of this life of the agent's, as the probes carry it.
    agent: u64,
    /// By the peer's number: the newest own clock that came back, in ns.
    heard_ns: Vec<u64>,
    /// A configuration that is being written, and what is left to write.
    taking: Option<(Config, VecDeque<(Table, Vec<Entry>)>)>,
    pub(crate) copier: Copier,
}

/// What a reader copies to a member that joins.
#[derive(Default)]
pub(crate) struct Copier {
    /// By group: the view, and the version that the member has of each key.
    under_way: BTreeMap<u16, (u32, BTreeMap<Key, u64>)>,
    /// Groups that are copied, and the view in which they are.
    done: BTreeMap<u16, u32>,
}

impl<'p> Node<'p> {
    /// A switch begins, with empty slots.
    pub(crate) fn begin(
        template: &Template<'p>,
        at: usize,
        ring: &Ring,
        clock: Clock,
        incarnation: u32,
        now_ns: u64,
    ) -> Result<Node<'p>, String> {
        let address = switch_address(at);
        let switches: Vec<Ipv4Addr> = ring.members().iter().map(|it| it.address).collect();
        let follower = Follower::new(address, ring.fingerprint(), incarnation, &switches);
        let mut node = Node {
            program: template.program,
            interpreter: template.interpreter.clone(),
            ring: ring.fingerprint(),
            address,
            clock,
            incarnation,
            heard_ns: vec![0; follower.peers().len()],
            follower,
            agent: 0,
            taking: None,
            copier: Copier::default(),
        };
        let mut written =
            Written { program: node.program, interpreter: &mut node.interpreter };
        node.follower.begin(&mut written)?;
        node.begin_agent(incarnation.into(), now_ns)?;
        Ok(node)
    }

    /// The agent begins, with the data plane as it is. It asks for the decision again.
    pub(crate) fn begin_agent(&mut self, life: u64, now_ns: u64) -> Result<(), String> {
        let now_ns = self.clock.local(now_ns);
        let text = |stop: Stop| stop.to_string();
        let leases = [PACE.lease_ns(), life];
        self.interpreter.supply("leases", supply::LEASES, &leases).map_err(text)?;
        let peers = self.follower.peers().to_vec();
        for (number, peer) in (0..).zip(&peers) {
            let peer = [number, u64::from(peer.to_bits()), now_ns];
            self.interpreter.supply("leases", supply::PEER, &peer).map_err(text)?;
        }
        self.agent = life;
        self.heard_ns.fill(now_ns);
        self.taking = None;
        self.copier = Copier::default();
        let own = [peers, vec![self.address]].concat();
        self.follower = Follower::new(self.address, self.ring, self.incarnation, &own);
        Ok(())
    }

    /// A frame comes in.
    pub(crate) fn receive(&mut self, frame: &[u8], now_ns: u64) -> Result<Became, String> {
        if let Ok(message) = Message::decode(payload(frame))
            && message.flags & STAMPED != 0
            && destination(frame) == self.address
        {
            match message.operation {
                Operation::Probe if message.flags & REPLY != 0 => self.hear(&message),
                Operation::CopyAck => self.copier.acknowledged(&message),
                _ => {}
            }
        }
        self.run(frame, PORT, now_ns)
    }

    fn run(&mut self, frame: &[u8], port: u32, now_ns: u64) -> Result<Became, String> {
        let now_us = self.clock.local(now_ns) / 1000;
        match self.interpreter.run(frame, port, now_us) {
            Ok(Verdict::Forward { port: PORT, frame }) => Ok(Became::Sends(frame)),
            Ok(_) => Ok(Became::Nothing),
            Err(stop) => Err(stop.to_string()),
        }
    }

    /// A peer has returned a clock. (The data plane notes it; the agent reads it there.)
    fn hear(&mut self, message: &Message) {
        if let Some(heard) = self.heard_ns.get_mut(message.number as usize)
            && message.client == self.agent
        {
            *heard = (*heard).max(message.operand);
        }
    }

    /// The packet generator's probes, one for each peer.
    pub(crate) fn probes(&mut self, now_ns: u64) -> Result<Vec<Vec<u8>>, String> {
        let clock = self.clock.local(now_ns) / 1000 * 1000;
        let peers = self.follower.peers().to_vec();
        let mut sent = vec![];
        for (number, peer) in (0..).zip(peers) {
            let message = Message {
                client: self.agent,
                number,
                operand: clock,
                ..self.between_switches(Operation::Probe)
            };
            sent.extend(self.generate(peer, &message, now_ns)?);
        }
        Ok(sent)
    }

    fn between_switches(&self, operation: Operation) -> Message {
        Message {
            operation,
            status: Status::Request,
            flags: STAMPED,
            key_id: 0,
            tag: 0,
            ring: self.ring,
            view: 0,
            group: 0,
            client: 0,
            number: 0,
            version: 0,
            operand: 0,
            key: Key([0; 16]),
            chain: vec![],
            records: Default::default(),
            room: Room::None,
            value: None,
        }
    }

    /// A generated packet goes through the program.
    fn generate(
        &mut self,
        to: Ipv4Addr,
        message: &Message,
        now_ns: u64,
    ) -> Result<Option<Vec<u8>>, String> {
        let mut payload = message.encode().map_err(|error| error.to_string())?;
        let tag = member_tag(&FABRIC, &payload, self.address, to);
        put_tag(&mut payload, tag);
        match self.run(&frame(self.address, to, &payload), GENERATOR_PORT, now_ns)? {
            Became::Sends(frame) => Ok(Some(frame)),
            Became::Nothing => Ok(None),
        }
    }

    /// Slots that go to members that join.
    pub(crate) fn copies(
        &mut self,
        keys: &[Key],
        ring: &Ring,
        now_ns: u64,
    ) -> Result<Vec<Vec<u8>>, String> {
        let _ = (keys, ring, now_ns);
        Ok(vec![])
    }

    /// A configuration comes. True: its parts are to be written, one after the other.
    pub(crate) fn take(&mut self, config: Config) -> bool {
        if self.taking.is_some() {
            return false;
        }
        let Some(writes) = self.follower.writes(&config) else { return false };
        self.taking = Some((config, writes.into()));
        true
    }

    /// Writes the next table of a configuration. True: there is more to write.
    pub(crate) fn write(&mut self) -> Result<bool, String> {
        let Some((config, mut left)) = self.taking.take() else { return Ok(false) };
        if let Some((table, entries)) = left.pop_front() {
            let mut written =
                Written { program: self.program, interpreter: &mut self.interpreter };
            written.exchange(table, entries)?;
            self.taking = Some((config, left));
            return Ok(true);
        }
        self.follower.confirm(config);
        Ok(false)
    }

    /// What the agent tells the controller.
    pub(crate) fn report(&self, now_ns: u64) -> Report {
        let now_ns = self.clock.local(now_ns);
        let peers = self.follower.peers().iter().zip(&self.heard_ns);
        let silent = peers.map(|(peer, heard)| (*peer, now_ns.saturating_sub(*heard) / 1_000_000));
        Report {
            switch: self.address,
            incarnation: self.incarnation,
            applied: self.follower.applied(),
            silent_ms: silent.collect(),
            copied: self.copier.done.iter().map(|(group, view)| (*group, *view)).collect(),
        }
    }

    /// Does it answer for this dead switch?
    pub(crate) fn stands_in_for(&self, address: Ipv4Addr) -> bool {
        self.follower.config().is_some_and(|config| config.dead.contains(&address))
    }

    /// The version of a key; 0: none.
    pub(crate) fn version(&mut self, key: &Key) -> u64 {
        self.slot(key).and_then(|fields| number(fields.first()?)).unwrap_or_default() as u64
    }

    /// The fields of a key's slot, in the program's order.
    fn slot(&mut self, key: &Key) -> Option<Vec<Datum>> {
        let bits = BigInt::from(u128::from_be_bytes(key.0));
        let mut arguments =
            [Datum::Struct(vec![Datum::Number(bits)]), Datum::Undefined];
        let slots = self.interpreter.object("slots")?;
        let call = Call { method: "read", arguments: &mut arguments };
        let Ok(Answer::Value(_)) = slots.call(call) else { return None };
        let [_, Datum::Struct(fields)] = arguments else { return None };
        Some(fields)
    }
}

fn number(datum: &Datum) -> Option<u128> {
    match datum {
        Datum::Number(number) => u128::try_from(number).ok(),
        _ => None,
    }
}

impl Copier {
    /// A member that joins has this version of a key.
    fn acknowledged(&mut self, message: &Message) {
        if let Some((view, has)) = self.under_way.get_mut(&message.group)
            && *view == message.view
        {
            let version = has.entry(message.key).or_default();
            *version = (*version).max(message.version);
        }
    }
}
