//! Switches, store servers and the network between them, in virtual time.

use crate::history::{Event, History};
use crate::sketch::{SketchChecker, sketch_frame, tenant_of};
use crate::switch::{Became, Switch};
use manifest::Manifest;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use state_protocol::{KeyRing, MessageType, SNAPSHOT_VALUE_BYTES, Secret, ShardView, Views};
use state_store::core::{AllocatorSettings, Input, Limits, Node, ObjectSettings, Outputs, Settings, Start};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// How bad the network and the machines are. Probabilities are per message or per packet.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A message is lost.
    pub loss: f64,
    /// A message comes twice.
    pub duplication: f64,
    /// Longest delay of a message, in ns (drawn evenly from 10 µs up: they overtake each other).
    pub delay_max_ns: u64,
    /// A RECALL, RELEASE or RELEASE_ACK is lost, beside the others.
    pub hand_over_loss: f64,
    /// Longest extra delay of one of these, in ns.
    pub hand_over_delay_ns: u64,
    /// Per packet sent: a flow's packets take the other switch from now on.
    pub moves: f64,
    /// Per packet sent: a switch loses its state and comes back empty.
    pub crashes: f64,
    /// Per packet sent: a switch stands still, for up to five leases; what arrives waits.
    pub freezes: f64,
    /// Per packet sent: a switch's agent dies, or comes back.
    pub agent_deaths: f64,
    /// By how many parts per million the switches' clocks run fast or slow at most.
    pub drift_ppm: i64,
    /// The secrets change in the middle of the run, one machine after the other.
    pub rotation: bool,
}

impl Faults {
    /// A network with short delays, on which nothing goes wrong.
    pub const NONE: Faults = Faults {
        loss: 0.0,
        duplication: 0.0,
        delay_max_ns: 300_000,
        hand_over_loss: 0.0,
        hand_over_delay_ns: 0,
        moves: 0.0,
        crashes: 0.0,
        freezes: 0.0,
        agent_deaths: 0.0,
        drift_ppm: 0,
        rotation: false,
    };
}

enum Arrives {
    AtStore(SocketAddrV4, SocketAddrV4, Vec<u8>),
    AtSwitch(usize, Ipv4Addr, Vec<u8>),
    /// A packet that waits for a switch that stands still.
    Packet(usize, Vec<u8>),
}

/// A data center of two switches and two chains of three servers.
pub struct World {
    object: PathBuf,
    manifest: Manifest,
    rng: StdRng,
    faults: Faults,
    now_ns: u64,
    next: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    in_flight: BTreeMap<u64, Arrives>,
    switches: Vec<Switch>,
    /// Per switch: until when it stands still; whether its agent lives; its secrets.
    frozen_until_ns: Vec<u64>,
    agents: Vec<bool>,
    rings: Vec<KeyRing>,
    heads: Vec<SocketAddrV4>,
    incarnation: u32,
    servers: Vec<(SocketAddrV4, Node)>,
    /// What happened.
    pub history: History,
    /// Follows a program with a SnapshotState.
    pub sketch: Option<SketchChecker>,
    fault: Result<(), String>,
}

const SHARDS: u16 = 2;
const TICK_NS: u64 = 2_000_000;
const LEASE_US: u32 = 60_000;
const OLD_SECRET: (u8, Secret) = (1, Secret(*b"yesterday's one."));
const NEW_SECRET: (u8, Secret) = (2, Secret(*b"tomorrow's, new."));

fn flow_of(frame: &[u8]) -> Option<(u32, u32, u64)> {
    let word = |at: usize| frame.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let count = frame.get(46..54)?.try_into().ok().map(u64::from_be_bytes)?;
    Some((word(30)?, word(42)?, count))
}

fn objects(manifest: &Manifest) -> Vec<ObjectSettings> {
    let settings = |flow: &manifest::FlowState| ObjectSettings {
        name: flow.name.clone(),
        id: flow.object_id,
        key_bytes: flow.key_bytes as usize,
        value_bytes: flow.value_bytes as usize,
        allocator: AllocatorSettings::Zero { idle_ns: None },
        closed_ns: 10_000_000_000,
    };
    let snapshots = |object: &manifest::SnapshotState| ObjectSettings {
        name: object.name.clone(),
        id: object.object_id,
        key_bytes: object.key_bytes as usize,
        value_bytes: SNAPSHOT_VALUE_BYTES,
        allocator: AllocatorSettings::Snapshot {
            slots: object.slots as usize,
            slot_bytes: object.slot_bytes as usize,
            idle_ns: None,
        },
        closed_ns: 10_000_000_000,
    };
    manifest.flow_states.iter().map(settings).chain(manifest.snapshot_states.iter().map(snapshots)).collect()
}

/// The ring at a step of the rotation: the old secret; both; both, and sends with the new one; the new one.
fn ring(step: usize) -> KeyRing {
    let first = if step < 3 { OLD_SECRET } else { NEW_SECRET };
    let mut ring = KeyRing::new(first.0, first.1).unwrap_or_else(|| unreachable!("0 to 3"));
    if step > 0 {
        let known = ring.accept(NEW_SECRET.0, NEW_SECRET.1);
        assert!(known && (step == 1 || ring.send_with(NEW_SECRET.0)));
    }
    ring
}

impl World {
    /// Starts everything; waits (in virtual time) until the chains serve.
    pub fn start(object: &Path, manifest: &Manifest, seed: u64, faults: Faults) -> dataplane::Result<World> {
        let mut rng = StdRng::seed_from_u64(seed);
        let now_ns = 10_000_000_000;
        let chain = |shard: u16| -> Vec<SocketAddrV4> {
            let address = |at: u8| Ipv4Addr::new(10, 2, at, 10 + shard as u8);
            (1..=3).map(|at| SocketAddrV4::new(address(at), state_protocol::PORT)).collect()
        };
        let mut servers = Vec::new();
        let mut views = Views { version: 1, shards: Vec::new() };
        for shard in 0..SHARDS {
            let mut members = Vec::new();
            for address in chain(shard) {
                let start = Start { incarnation: rng.random::<u64>() | 1, epoch_base: 1, seed: rng.random(), now_ns };
                let node = Node::new(server_settings(manifest), start, ring(0), address, Vec::new());
                members.push(node.me());
                servers.push((address, node));
            }
            views.shards.push(ShardView { number: 1, founded: 1, members, joining: None });
        }
        for (_, node) in &mut servers {
            let mut out = Outputs::new();
            node.adopt(now_ns, &views, &mut out);
            node.flush(now_ns, &mut out); // HELLOs that are lost: they are sent again
        }
        let mut world = World {
            object: object.to_owned(),
            manifest: manifest.clone(),
            rng,
            faults,
            now_ns,
            next: 0,
            queue: BinaryHeap::new(),
            in_flight: Default::default(),
            switches: Vec::new(),
            frozen_until_ns: vec![0; 2],
            agents: vec![true; 2],
            rings: vec![ring(0); 2],
            heads: (0..SHARDS).map(|shard| chain(shard)[0]).collect(),
            incarnation: 0,
            servers,
            history: History::default(),
            sketch: manifest.snapshot_states.first().map(SketchChecker::new),
            fault: Ok(()),
        };
        for switch in 0..2 {
            let started = world.start_switch(switch)?;
            world.switches.push(started);
        }
        for _ in 0..2000 {
            world.advance(TICK_NS)?;
            if world
                .servers
                .iter()
                .flat_map(|(_, node)| node.replicas())
                .filter(|replica| replica.is_serving(world.now_ns))
                .count()
                == usize::from(SHARDS)
            {
                return Ok(world);
            }
        }
        panic!("the chains do not form: seed {seed}");
    }

    fn start_switch(&mut self, switch: usize) -> dataplane::Result<Switch> {
        self.incarnation += 1;
        let drift_ppm = self.rng.random_range(-self.faults.drift_ppm..=self.faults.drift_ppm);
        let id = switch as u32 + 1;
        let started = Switch::start(&self.object, &self.manifest, id, self.incarnation, &self.heads, drift_ppm)?;
        started.set_keys(&self.rings[switch])?;
        Ok(started)
    }

    /// Sends `packets` packets of `flows` flows, evenly over a time that lets leases come and go, then waits until all is quiet.
    pub fn run(&mut self, flows: u32, packets: u32) -> dataplane::Result<()> {
        let mut at_switch = vec![0usize; flows as usize];
        for packet in 1..=packets {
            let flow = self.rng.random_range(0..flows);
            if self.rng.random_bool(self.faults.moves) {
                at_switch[flow as usize] ^= 1;
            }
            self.fail(packet, packets)?;
            self.input(at_switch[flow as usize], flow, packet)?;
            let pause = match self.rng.random_range(0..1000) {
                // Long enough that flows are released; that released ones are removed.
                0..10 => 250_000_000,
                10..13 => 2_500_000_000,
                _ => self.rng.random_range(1_000..3_000_000),
            };
            self.advance(pause)?;
        }
        for _ in 0..200 {
            self.advance(TICK_NS)?;
        }
        Ok(())
    }

    /// What fails before a packet.
    fn fail(&mut self, packet: u32, packets: u32) -> dataplane::Result<()> {
        let switch = self.rng.random_range(0..self.switches.len());
        if self.rng.random_bool(self.faults.crashes) {
            self.frozen_until_ns[switch] = 0;
            self.switches[switch] = self.start_switch(switch)?;
            if let Some(sketch) = &mut self.sketch {
                sketch.crashed(switch);
            }
        }
        if self.rng.random_bool(self.faults.freezes) {
            let still_ns = self.rng.random_range(1_000_000..5_000 * u64::from(LEASE_US));
            self.frozen_until_ns[switch] = self.now_ns + still_ns;
        }
        if self.rng.random_bool(self.faults.agent_deaths) {
            self.agents[switch] ^= true;
        }
        if self.faults.rotation {
            // Each step goes round the machines, and is done before the next begins.
            let (machines, at) = (self.servers.len() + self.switches.len(), packet as usize * 40 / packets as usize);
            if let Some(step) = [5, 15, 25].iter().position(|from| (*from..from + machines).contains(&at)) {
                self.rotate(at - [5, 15, 25][step], ring(step + 1))?;
            }
        }
        Ok(())
    }

    fn rotate(&mut self, machine: usize, ring: KeyRing) -> dataplane::Result<()> {
        match machine.checked_sub(self.servers.len()) {
            None => self.servers[machine].1.set_keys(ring),
            Some(switch) => {
                self.switches[switch].set_keys(&ring)?;
                self.rings[switch] = ring;
            }
        }
        Ok(())
    }

    /// A packet comes to a switch.
    fn input(&mut self, switch: usize, flow: u32, packet: u32) -> dataplane::Result<()> {
        self.history.push(Event::Input { flow, packet });
        self.process(switch, frame(flow, packet))
    }

    fn process(&mut self, switch: usize, frame: Vec<u8>) -> dataplane::Result<()> {
        if self.now_ns < self.frozen_until_ns[switch] {
            self.enqueue(self.frozen_until_ns[switch], Arrives::Packet(switch, frame));
            return Ok(());
        }
        let became = self.switches[switch].packet(&frame, 2, self.now_ns)?;
        self.became(switch, became);
        Ok(())
    }

    /// After the faults have stopped: every flow works at every switch again, and moves from one to the other.
    pub fn check_alive(&mut self, flows: u32) -> dataplane::Result<Result<(), String>> {
        self.faults = Faults { delay_max_ns: self.faults.delay_max_ns, ..Faults::NONE };
        self.agents.fill(true);
        for (round, switch) in [(0, 0), (1, 1), (2, 0)] {
            for flow in 0..flows {
                self.input(switch, flow, u32::MAX - round * flows - flow)?;
            }
            for _ in 0..300 {
                self.advance(TICK_NS)?;
            }
            // Stragglers and packets that the network doubled may go out as well.
            let stuck: Vec<u32> =
                (0..flows).filter(|flow| !self.history.went_out(u32::MAX - round * flows - flow)).collect();
            if !stuck.is_empty() {
                return Ok(Err(format!("flows {stuck:?} are stuck at switch {switch} (round {round})")));
            }
        }
        let pending = self.switches.iter().map(Switch::queued).sum::<dataplane::Result<u64>>()?;
        Ok(if pending == 0 { Ok(()) } else { Err(format!("{pending} flows are never acknowledged")) })
    }

    /// Lets time pass, with no packets.
    pub fn wait(&mut self, ns: u64) -> dataplane::Result<()> {
        self.advance(ns)
    }

    /// How many flows each switch knows of.
    pub fn flows(&self) -> Vec<usize> {
        self.switches.iter().map(Switch::flows).collect()
    }

    /// Virtual time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The same as `run`, with packets of sketch.p4; what the checker found.
    pub fn run_sketch(&mut self, tenants: u16, packets: u32) -> dataplane::Result<Result<(), String>> {
        let slots = self.manifest.snapshot_states.first().map_or(1, |object| object.slots);
        let mut at_switch = vec![0usize; usize::from(tenants)];
        for packet in 1..=packets {
            let tenant = self.rng.random_range(0..tenants);
            if self.rng.random_bool(self.faults.moves) {
                at_switch[usize::from(tenant)] ^= 1;
            }
            self.fail(packet, packets)?;
            let indices = std::array::from_fn(|_| self.rng.random_range(0..slots));
            self.process(at_switch[usize::from(tenant)], sketch_frame(tenant, indices))?;
            let pause = match self.rng.random_range(0..1000) {
                0..5 => 250_000_000,
                5..6 => 2_500_000_000,
                _ => self.rng.random_range(1_000..1_000_000),
            };
            self.advance(pause)?;
            if let (Ok(()), Some(sketch)) = (&self.fault, &self.sketch) {
                self.fault = sketch.stored(&self.servers);
            }
            if self.fault.is_err() {
                break;
            }
        }
        Ok(self.fault.clone())
    }

    /// After the faults have stopped: every tenant's packets go out again, at both switches, and what they counted is stored in the end.
    pub fn check_sketch_alive(&mut self, tenants: u16) -> dataplane::Result<Result<(), String>> {
        self.faults = Faults { delay_max_ns: self.faults.delay_max_ns, ..Faults::NONE };
        self.agents.fill(true);
        // What is overdue meanwhile is saved.
        self.advance(300 * TICK_NS)?;
        for switch in [0, 1, 0] {
            let before = self.sketch.as_ref().map_or(0, |sketch| sketch.updates);
            for tenant in 0..tenants {
                self.process(switch, sketch_frame(tenant, [0, 1, 2, 3]))?;
            }
            self.advance(300 * TICK_NS)?;
            let went_out = self.sketch.as_ref().map_or(0, |sketch| sketch.updates) - before;
            if self.fault.is_ok() && went_out < u64::from(tenants) {
                self.fault = Err(format!("only {went_out} of {tenants} tenants' packets go out at switch {switch}"));
            }
        }
        if let (Ok(()), Some(sketch)) = (&self.fault, &self.sketch) {
            self.fault = sketch.stored(&self.servers).and_then(|()| sketch.all_stored(&self.servers));
        }
        Ok(self.fault.clone())
    }

    /// Tells the checker of snapshots what a switch sent out.
    fn observe(&mut self, switch: usize, became: &Became) {
        let (Some(sketch), Ok(())) = (&mut self.sketch, &self.fault) else { return };
        self.fault = match became {
            Became::Nothing => Ok(()),
            Became::Message(_, bytes) => sketch.sent(switch, bytes),
            Became::Output(_, frame) => {
                let tenant = tenant_of(frame).unwrap_or_default();
                let epoch = self.switches[switch].epoch_of(&tenant.to_be_bytes());
                sketch
                    .output(switch, frame, epoch, self.now_ns)
                    .and_then(|()| sketch.within_epsilon(tenant, epoch, &self.servers, self.now_ns))
            }
        };
    }

    fn became(&mut self, switch: usize, became: Became) {
        self.observe(switch, &became);
        if self.sketch.is_some() && matches!(became, Became::Output(..)) {
            return;
        }
        match became {
            Became::Nothing => {}
            Became::Output(_, frame) => {
                if let Some((flow, packet, count)) = flow_of(&frame) {
                    self.history.push(Event::Output { flow, packet, count });
                }
            }
            Became::Message(to, bytes) => {
                let from = SocketAddrV4::new(self.switches[switch].address(), state_protocol::PORT);
                self.send(Arrives::AtStore(from, to, bytes));
            }
        }
    }

    fn send(&mut self, arrives: Arrives) {
        let (Arrives::AtStore(_, _, bytes) | Arrives::AtSwitch(_, _, bytes) | Arrives::Packet(_, bytes)) = &arrives;
        let is = |types: &[MessageType]| types.iter().any(|known| bytes.get(3) == Some(&(*known as u8)));
        let hand_over = is(&[MessageType::Recall, MessageType::Release, MessageType::ReleaseAck]);
        if self.rng.random_bool(self.faults.loss) || (hand_over && self.rng.random_bool(self.faults.hand_over_loss)) {
            return;
        }
        // A request with a parked packet is not doubled: that would be a second input packet, which the history does not know of. (A network that doubles it has
        // doubled the packet.)
        let parked = is(&[MessageType::LeaseRequest, MessageType::LeaseGrant]);
        let again = match &arrives {
            _ if parked || !self.rng.random_bool(self.faults.duplication) => None,
            Arrives::AtStore(from, to, bytes) => Some(Arrives::AtStore(*from, *to, bytes.clone())),
            Arrives::AtSwitch(switch, from, bytes) => Some(Arrives::AtSwitch(*switch, *from, bytes.clone())),
            Arrives::Packet(..) => None,
        };
        for arrives in [Some(arrives), again].into_iter().flatten() {
            let mut at = self.now_ns + self.rng.random_range(10_000..self.faults.delay_max_ns.max(20_000));
            if hand_over && self.faults.hand_over_delay_ns > 0 {
                at += self.rng.random_range(0..self.faults.hand_over_delay_ns);
            }
            self.enqueue(at, arrives);
        }
    }

    fn enqueue(&mut self, at_ns: u64, arrives: Arrives) {
        self.next += 1;
        self.queue.push(Reverse((at_ns, self.next)));
        self.in_flight.insert(self.next, arrives);
    }

    /// Lets time pass: messages arrive, timers go off, generators run every tick.
    fn advance(&mut self, by_ns: u64) -> dataplane::Result<()> {
        let until = self.now_ns + by_ns;
        loop {
            let message = self.queue.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let timer = self.servers.iter().filter_map(|(_, server)| server.next_deadline()).min().unwrap_or(u64::MAX);
            let tick = (self.now_ns / TICK_NS + 1) * TICK_NS;
            let next = message.min(timer.max(self.now_ns)).min(tick);
            if next > until {
                break;
            }
            self.now_ns = self.now_ns.max(next);
            if next == message {
                self.deliver()?;
            } else if next == tick {
                for switch in 0..self.switches.len() {
                    let runs = self.agents[switch] && self.now_ns >= self.frozen_until_ns[switch];
                    for became in self.switches[switch].tick(runs, u64::from(LEASE_US) * 1000, self.now_ns)? {
                        self.became(switch, became);
                    }
                }
                self.now_ns += 1;
            } else {
                for server in 0..self.servers.len() {
                    self.serve(server, None);
                }
                self.now_ns += 1;
            }
        }
        self.now_ns = self.now_ns.max(until);
        Ok(())
    }

    fn deliver(&mut self) -> dataplane::Result<()> {
        let Some(Reverse((_, id))) = self.queue.pop() else { return Ok(()) };
        match self.in_flight.remove(&id) {
            Some(Arrives::AtStore(from, to, bytes)) => {
                if let Some(server) = self.servers.iter().position(|(address, _)| *address == to) {
                    self.serve(server, Some((from, bytes)));
                }
            }
            Some(Arrives::AtSwitch(switch, from, bytes)) if self.now_ns < self.frozen_until_ns[switch] => {
                self.enqueue(self.frozen_until_ns[switch], Arrives::AtSwitch(switch, from, bytes));
            }
            Some(Arrives::AtSwitch(switch, from, bytes)) => {
                if let (Some(sketch), Ok(())) = (&mut self.sketch, &self.fault) {
                    self.fault = sketch.arrives(&bytes, &self.servers);
                }
                let became = self.switches[switch].message(from, &bytes, self.now_ns)?;
                self.became(switch, became);
            }
            Some(Arrives::Packet(switch, frame)) => self.process(switch, frame)?,
            None => {}
        }
        Ok(())
    }

    fn serve(&mut self, server: usize, datagram: Option<(SocketAddrV4, Vec<u8>)>) {
        let mut out = Outputs::new();
        let (address, core) = &mut self.servers[server];
        match &datagram {
            Some((from, bytes)) => core.handle(self.now_ns, Input::Datagram { from: *from, bytes }, &mut out),
            None => core.handle(self.now_ns, Input::Timer, &mut out),
        }
        core.flush(self.now_ns, &mut out);
        let from = *address;
        let sent: Vec<(SocketAddrV4, Vec<u8>)> = out.datagrams().map(|(to, bytes)| (to, bytes.to_vec())).collect();
        for (to, bytes) in sent {
            let switch = self.switches.iter().position(|switch| switch.address() == *to.ip());
            self.send(match switch {
                Some(switch) => Arrives::AtSwitch(switch, *from.ip(), bytes),
                None => Arrives::AtStore(from, to, bytes),
            });
        }
    }
}

fn server_settings(manifest: &Manifest) -> Settings {
    Settings {
        shard: 0,
        shards: SHARDS,
        lease_us: LEASE_US,
        clock_drift_ppm: 1000,
        lease_margin_us: 1000,
        hold_ns: 200_000_000,
        tenure_ns: 4_000_000,
        recall_resend_ns: 5_000_000,
        resend_ns: 2_000_000,
        chain_datagram_bytes: 1400,
        limits: Limits {
            records: 10_000,
            sessions: 64,
            held: 1000,
            held_per_flow: 64,
            held_bytes: 1 << 20,
            unacked: 10_000,
            unacked_bytes: 16 << 20,
        },
        objects: objects(manifest),
    }
}

/// A UDP packet of a flow (its destination address), with its number in the payload and room for the count.
fn frame(flow: u32, packet: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1]);
    frame.extend_from_slice(&flow.to_be_bytes());
    frame.extend_from_slice(&[0x30, 0x39, 0, 80, 0, 20, 0, 0]);
    frame.extend_from_slice(&packet.to_be_bytes());
    frame.extend_from_slice(&[0; 8]);
    frame
}
