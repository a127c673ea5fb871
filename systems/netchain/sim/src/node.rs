//! A simulated switch: the real program by the reference interpreter, the agent's real rules, and a
//! clock of its own.

use crate::follow::{Entry, Follower, Table};
use crate::frames::{frame, switch_address};
use crate::seeded::{AgentBug, planted};
use netchain_compiler::supply;
use netchain_protocol::control::{Config, Part, Report, Role};
use netchain_protocol::layouts::LEASE_CLOCK_MARGIN_MS;
use netchain_protocol::message::STAMPED;
use netchain_protocol::tag::{member_tag, put_tag};
use netchain_protocol::{Key, Message, Operation, Ring, Room, Status};
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

/// Peers are probed so often, in ms. (Less often than by default: a probe costs as much as a
/// request.)
pub(crate) const PROBE_MS: u64 = 25;
/// Shorter silences are not told.
const LEAST_SILENT_MS: u64 = 2 * PROBE_MS;
/// So long the controller waits for leases to end.
pub(crate) const LEASE_MS: u64 = 120;

/// Of a lease in the data plane (`Pace::lease_ns` in `systems/netchain/switch/src/peers.rs`).
const LEASE_NS: u64 = LEASE_MS * 990_000 - LEASE_CLOCK_MARGIN_MS * 1_000_000;

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

impl Written<'_, '_> {
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
        network.ports.insert(PORT, Port { mac: 2, mtu: 1500, ..Port::default() });
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

/// A table, and the entries that it gets.
type TableWrite = (Table, Vec<Entry>);

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
    /// When this life of it began, in ns of the own clock.
    began_ns: u64,
    /// A configuration that is being written, and what is left to write.
    taking: Option<(Config, VecDeque<TableWrite>)>,
    /// Groups that are copied to a member that joins, and the view in which they are.
    copied: BTreeMap<u16, u32>,
    /// Groups that this switch joins, and the view in which it does.
    joining_in: BTreeMap<u16, u32>,
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
            began_ns: 0,
            follower,
            agent: 0,
            taking: None,
            copied: BTreeMap::new(),
            joining_in: BTreeMap::new(),
        };
        for (table, entries) in node.follower.begin() {
            node.exchange(table, entries)?;
        }
        node.begin_agent(incarnation.into(), now_ns)?;
        Ok(node)
    }

    /// The agent begins, with the data plane as it is. It asks for the decision again.
    pub(crate) fn begin_agent(&mut self, life: u64, now_ns: u64) -> Result<(), String> {
        let now_ns = self.clock.local(now_ns);
        let text = |stop: Stop| stop.to_string();
        let leases = [LEASE_NS, life];
        self.interpreter.supply("leases", supply::LEASES, &leases).map_err(text)?;
        let peers = self.follower.peers().to_vec();
        for (number, peer) in (0..).zip(&peers) {
            let peer = [number, u64::from(peer.to_bits()), now_ns];
            self.interpreter.supply("leases", supply::PEER, &peer).map_err(text)?;
        }
        self.agent = life;
        self.began_ns = now_ns;
        self.taking = None;
        self.copied.clear();
        self.follower.begin_again();
        Ok(())
    }

    fn exchange(&mut self, table: Table, entries: Vec<Entry>) -> Result<(), String> {
        Written { program: self.program, interpreter: &mut self.interpreter }
            .exchange(table, entries)
    }

    /// A frame comes in.
    pub(crate) fn receive(&mut self, frame: &[u8], now_ns: u64) -> Result<Became, String> {
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

    /// A round of messages about slots that are not acknowledged: copies for members that join, and
    /// tombstones that are collected. (`systems/netchain/switch/src/copies.rs`.)
    pub(crate) fn copies(
        &mut self,
        keys: &[Key],
        ring: &Ring,
        now_ns: u64,
    ) -> Result<Vec<Vec<u8>>, String> {
        let roles = self.follower.config().map(|config| config.roles.clone()).unwrap_or_default();
        let mut sent = vec![];
        let jobs = (0..).zip(&roles).filter_map(job);
        let before = std::mem::take(&mut self.copied);
        for (group, view, operation, to) in jobs {
            if before.get(&group) == Some(&view) {
                self.copied.insert(group, view);
                continue;
            }
            let mut left = 0;
            for (number, key) in (0..).zip(keys) {
                let used = ring.group_of(key) == group && self.slot(key).is_some();
                if !used || self.asked("slots", "copied_view", number) == u64::from(view) {
                    continue;
                }
                left += 1;
                let message = Message {
                    number,
                    group,
                    key: *key,
                    room: Room::Large,
                    ..self.between_switches(operation)
                };
                sent.extend(self.generate(to, &message, now_ns)?);
            }
            if left == 0 {
                self.copied.insert(group, view);
            }
        }
        Ok(sent)
    }

    /// What an object tells who asks from outside.
    fn asked(&mut self, object: &str, method: &str, number: u32) -> u64 {
        let mut arguments = [Datum::Number(number.into())];
        let call = Call { method, arguments: &mut arguments };
        match self.interpreter.object(object).map(|it| it.call(call)) {
            Some(Ok(Answer::Value(Datum::Number(value)))) => u64::try_from(value).unwrap_or(0),
            _ => 0,
        }
    }

    /// A configuration comes. True: its parts are to be written, one after the other.
    pub(crate) fn take(&mut self, config: Config) -> bool {
        if self.taking.is_some() {
            return false;
        }
        let Some(writes) = self.follower.writes(&config) else { return false };
        let mut writes = VecDeque::from(writes);
        if planted(AgentBug::VersionFirst) {
            writes.rotate_right(1);
        }
        self.taking = Some((config, writes));
        true
    }

    /// Writes the next table of a configuration. True: there is more to write.
    pub(crate) fn write(&mut self, keys: &[Key], ring: &Ring) -> Result<bool, String> {
        let Some((config, mut left)) = self.taking.take() else { return Ok(false) };
        if let Some((table, entries)) = left.pop_front() {
            if table == Table::Roles {
                self.empty(&config, keys, ring);
            }
            self.exchange(table, entries)?;
            self.taking = Some((config, left));
            return Ok(true);
        }
        self.follower.confirm(config);
        Ok(false)
    }

    /// A switch that is no member of a group, or begins to join, has no slots of it. (design.md,
    /// "Joining": what it decided alone may have been lost.)
    fn empty(&mut self, config: &Config, keys: &[Key], ring: &Ring) {
        if planted(AgentBug::KeepsSlots) {
            return;
        }
        for (group, role) in (0..).zip(&config.roles) {
            let begins = match role.part {
                Part::Member { joining, .. } => {
                    let before = self.joining_in.insert(group, role.view);
                    joining && before != Some(role.view)
                }
                // (What becomes of a member that pauses, the next view says.)
                Part::Paused => false,
                Part::None | Part::Lost => true,
            };
            if !begins {
                continue;
            }
            for key in keys.iter().filter(|key| ring.group_of(key) == group) {
                let bits = BigInt::from(u128::from_be_bytes(key.0));
                let mut arguments = [Datum::Struct(vec![Datum::Number(bits)])];
                let call = Call { method: "empty", arguments: &mut arguments };
                if let Some(slots) = self.interpreter.object("slots") {
                    // (A slot that is not there is empty.)
                    let _ = slots.call(call);
                }
            }
        }
    }

    /// What the agent tells the controller.
    pub(crate) fn report(&mut self, now_ns: u64) -> Report {
        let now_ns = self.clock.local(now_ns);
        let peers = self.follower.peers().to_vec();
        let mut silent_ms = vec![];
        for (number, peer) in (0..).zip(peers) {
            let heard_ns = self.asked("leases", "heard", number);
            let ms = now_ns.saturating_sub(heard_ns.max(self.began_ns)) / 1_000_000;
            if ms >= LEAST_SILENT_MS || heard_ns == 0 {
                silent_ms.push((peer, ms));
            }
        }
        Report {
            switch: self.address,
            incarnation: self.incarnation,
            applied: self.follower.applied(),
            asks: self.follower.asks(),
            silent_ms,
            copied: self.copied.iter().map(|(group, view)| (*group, *view)).collect(),
            used_percent: 0,
        }
    }

    /// Does it answer for this dead switch?
    pub(crate) fn stands_in_for(&self, address: Ipv4Addr) -> bool {
        self.follower.config().is_some_and(|config| config.dead.contains(&address))
    }

    /// The version of a key, 0 if it has no slot, and whether it has a value.
    pub(crate) fn state(&mut self, key: &Key) -> (u64, bool) {
        let Some(fields) = self.slot(key) else { return (0, false) };
        let of = |field: Option<&Datum>| field.and_then(number).unwrap_or_default();
        (of(fields.first()) as u64, of(fields.last()) != NO_VALUE)
    }

    /// The fields of a key's slot, in the program's order.
    fn slot(&mut self, key: &Key) -> Option<Vec<Datum>> {
        let bits = BigInt::from(u128::from_be_bytes(key.0));
        let mut arguments = [Datum::Struct(vec![Datum::Number(bits)]), Datum::Undefined];
        let slots = self.interpreter.object("slots")?;
        let call = Call { method: "read", arguments: &mut arguments };
        let Ok(Answer::Value(found)) = slots.call(call) else { return None };
        // (SlotResult: FOUND is the first.)
        if found != Datum::Number(0.into()) {
            return None;
        }
        let [_, Datum::Struct(fields)] = arguments else { return None };
        Some(fields)
    }
}

/// As the length of a value: there is none.
const NO_VALUE: u128 = 255;

/// What a switch does with the slots of a group in which it has this role, and where to.
fn job((group, role): (u16, &Role)) -> Option<(u16, u32, Operation, Ipv4Addr)> {
    let to = role.copies_to?;
    if matches!(role.part, Part::Member { head: true, collecting: true, .. }) {
        let to = role.next.unwrap_or(Ipv4Addr::UNSPECIFIED);
        return Some((group, role.view, Operation::Collect, to));
    }
    Some((group, role.view, Operation::Copy, to))
}

fn number(datum: &Datum) -> Option<u128> {
    match datum {
        Datum::Number(number) => u128::try_from(number).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netchain_protocol::{Founding, Member};

    fn ring() -> Ring {
        let member =
            (0..3).map(|at| Member { address: switch_address(at), rack: format!("r{at}") });
        Ring::found(Founding {
            cluster: "0123456789abcdef".to_owned(),
            groups: 1,
            virtual_nodes: 5,
            failures: 1,
            member: member.collect(),
        })
        .unwrap()
    }

    #[test]
    fn peers_answer_probes_and_are_heard() {
        let program = crate::program::compile(None).unwrap();
        let template = Template::new(&program).unwrap();
        let (ring, clock) = (ring(), Clock::new(0, 0));
        let begin = |at| Node::begin(&template, at, &ring, clock, 7, 0).unwrap();
        let (mut one, mut other) = (begin(0), begin(1));
        let now_ns = 300_000_000;
        assert_eq!(one.report(now_ns).silent_ms[0], (switch_address(1), 300));
        let probe = one.probes(now_ns).unwrap().remove(0);
        let Ok(Became::Sends(answer)) = other.receive(&probe, now_ns) else { panic!("no answer") };
        assert!(matches!(one.receive(&answer, now_ns), Ok(Became::Nothing)));
        assert!(one.report(now_ns).silent_ms.iter().all(|(peer, _)| *peer != switch_address(1)));
    }
}
