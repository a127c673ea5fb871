//! Switches, servers, the controller and the network between them, in virtual time.

use crate::agent::{AGENT_PORT, Around};
use crate::bindings::BindingChecker;
use crate::chart::Chart;
use crate::checks::{Checks, Violation};
use crate::faults::Faults;
use crate::frames::counter_frame;
use crate::network::{Datagram, Event, Network};
use crate::operations::Operations;
use crate::program::Program;
use crate::scenario::{Action, Fault, Machine, SERVERS, SWITCHES, Scenario, Step};
use crate::sketch::{SketchChecker, sketch_frame};
use crate::store::Store;
use crate::switch::{Became, Switch};
use controller::core::Input as ControllerInput;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{KeyRing, Secret};

pub(crate) const MS: u64 = 1_000_000;
/// Of the cluster.
pub(crate) const SHARDS: u16 = 2;
pub(crate) const TICK_NS: u64 = 2 * MS;
const OLD_SECRET: (u8, Secret) = (1, Secret(*b"yesterday's one."));
const NEW_SECRET: (u8, Secret) = (2, Secret(*b"tomorrow's, new."));
/// After one in so many answers to heartbeats (and other messages without a key) every flow is
/// looked at.
const HEARTBEATS_PER_LOOK: u64 = 8;
/// A run has some thousands.
const MOST_EVENTS: u64 = 2_000_000;

/// The ring at a step of the rotation: the old secret; both; both, and sends with the new one; the
/// new one.
pub(crate) fn ring(step: usize) -> KeyRing {
    let first = if step < 3 { OLD_SECRET } else { NEW_SECRET };
    let mut ring = KeyRing::new(first.0, first.1).unwrap_or_else(|| unreachable!("0 to 3"));
    if step > 0 {
        let known = ring.accept(NEW_SECRET.0, NEW_SECRET.1);
        assert!(known && (step == 1 || ring.send_with(NEW_SECRET.0)));
    }
    ring
}

/// A data center.
pub struct World {
    pub(crate) rng: StdRng,
    pub(crate) now_ns: u64,
    pub(crate) network: Network,
    pub(crate) switches: Vec<Switch>,
    pub(crate) around: Vec<Around>,
    pub(crate) store: Store,
    pub(crate) incarnation: u32,
    pub(crate) faults: Faults,
    pub(crate) clocks_are_sound: bool,
    pub(crate) linearizable: bool,
    /// Of counter.p4's flows.
    pub(crate) key_bytes: usize,
    pub(crate) delay_max_ns: u64,
    packets: u32,
    /// Answers to heartbeats that switches took.
    heartbeats: u64,
    pub(crate) checks: Checks,
    /// What hosts saw.
    pub operations: Operations,
    /// Follows a program with a SnapshotState.
    pub sketch: Option<SketchChecker>,
    /// Flows of a program whose packets also set a total of all flows (counter.p4, GROUPED).
    pub(crate) grouped: Option<u32>,
    /// Follows a program whose flows the store gives something.
    pub(crate) bindings: Option<BindingChecker>,
    /// What did not hold.
    pub violation: Option<Violation>,
    /// Draws what happens, if wanted.
    pub chart: Option<Chart>,
    /// Events since the chains serve: messages that arrived. And a digest of all, from the
    /// beginning.
    pub events: u64,
    digest: u64,
}

impl World {
    /// Starts everything; waits (in virtual time) until the chains serve. `switches`: loaded
    /// objects of the program, as many as there are at hand.
    pub fn start(
        program: &Program,
        mut switches: Vec<Switch>,
        scenario: &Scenario,
        chart: bool,
    ) -> dataplane::Result<World> {
        let mut rng = StdRng::seed_from_u64(scenario.seed);
        let faults = scenario.faults;
        while switches.len() < SWITCHES {
            switches.push(Switch::load(&program.object, &program.manifest, program.kind)?);
        }
        let store = Store::new(program, &mut rng, &faults);
        let mut world = World {
            rng,
            now_ns: 10_000 * MS,
            network: Network::new(scenario.seed),
            switches,
            around: (0..SWITCHES).map(|_| Around::begin(ring(0), 0, 0)).collect(),
            store,
            incarnation: 0,
            faults,
            clocks_are_sound: faults.clocks_are_sound(),
            linearizable: program.is_linearizable(),
            key_bytes: program.flows.first().map_or(0, |flow| flow.object.key_bytes as usize),
            delay_max_ns: faults.delay_max_ns.min(2 * MS),
            packets: 0,
            heartbeats: 0,
            checks: Checks::default(),
            operations: Operations::default(),
            sketch: program.snapshots.first().map(SketchChecker::new),
            grouped: program
                .flows
                .iter()
                .any(|flow| flow.settings.grouped)
                .then_some(scenario.flows),
            bindings: BindingChecker::new(program.kind, faults.drift_ppm, scenario.seed),
            violation: None,
            chart: chart.then(Chart::default),
            events: 0,
            digest: 0,
        };
        let keys: Vec<Vec<u8>> = (0..scenario.flows).map(|flow| world.key(flow)).collect();
        if let Some(chart) = &mut world.chart {
            keys.iter().zip(0..).for_each(|(key, flow)| chart.call(key, flow));
        }
        (0..SWITCHES).try_for_each(|switch| world.start_switch(switch))?;
        (0..SERVERS).for_each(|at| world.start_server(at));
        world.start_controller();
        for _ in 0..1000 {
            world.advance(5 * MS)?;
            if world.serves() {
                world.network.begin(faults);
                world.events = 0;
                return Ok(world);
            }
        }
        world.violated("liveness", "the chains do not form".to_owned());
        Ok(world)
    }

    /// Does every shard have a head that takes requests, and both switches know it?
    fn serves(&self) -> bool {
        let serving = |shard: u16| {
            let serves = |(node, clock): (&Option<state_store::core::Node>, &simnet::Clock)| {
                let replica = node.as_ref().and_then(|node| node.replica(shard));
                replica.is_some_and(|replica| replica.is_serving(clock.local(self.now_ns)))
            };
            self.store.nodes.iter().zip(&self.store.clocks).any(serves)
        };
        (0..SHARDS).all(serving)
            && self.around.iter().all(|around| around.views_version == self.store.database.version)
    }

    /// The loaded objects, for the next world.
    pub fn into_switches(self) -> Vec<Switch> {
        self.switches
    }

    /// How many flows each switch knows of.
    pub fn flows(&self) -> Vec<usize> {
        self.switches.iter().map(Switch::flows).collect()
    }

    /// Lets time pass, with no packets.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub fn wait(&mut self, ns: u64) -> dataplane::Result<()> {
        self.advance(ns)
    }

    /// A digest of everything that happened.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Runs steps until something does not hold.
    pub fn run(&mut self, steps: &[Step]) -> dataplane::Result<()> {
        for step in steps {
            self.advance(step.pause_ns)?;
            if self.violation.is_some() {
                break;
            }
            self.act(step.action)?;
            self.check_stored();
        }
        Ok(())
    }

    pub(crate) fn check_stored(&mut self) {
        self.check_groups();
        let stored = self.sketch.as_ref().map_or(Ok(()), |sketch| sketch.stored(&self.store));
        if let Err(detail) = stored {
            self.violated("snapshots", detail);
        }
    }

    fn act(&mut self, action: Action) -> dataplane::Result<()> {
        match action {
            Action::Packet { switch, flow, read } => {
                return self.input(switch, flow, read).map(drop);
            }
            Action::Fault(fault, for_ns) => self.fail(&fault, for_ns)?,
            Action::Rotate(machine, step) => self.rotate(machine, step)?,
        }
        Ok(())
    }

    /// Something goes wrong for this time, unless it would be more than a chain survives.
    fn fail(&mut self, fault: &Fault, for_ns: u64) -> dataplane::Result<()> {
        let (for_ms, until_ns) = (for_ns / MS, self.now_ns + for_ns);
        match *fault {
            Fault::Crash { machine: Machine::Switch(switch), keeps_state } => {
                self.crash(switch, for_ns, keeps_state)?;
            }
            Fault::Crash { machine: Machine::Server(server), .. } => {
                self.kill_server(server, for_ns)
            }
            Fault::Crash { machine: Machine::Controller, .. } => self.kill_controller(for_ns),
            // It would be more than a chain survives.
            Fault::Freeze { machine } | Fault::Slow { machine } if !self.may_fail(machine) => {}
            Fault::Cut(cut) if !self.may_cut(&cut) => {}
            Fault::Freeze { machine } => {
                self.note(machine, &format!("stands still for {for_ms} ms"));
                self.freeze(machine, until_ns);
            }
            Fault::Slow { machine } => {
                self.note(machine, &format!("is slow for {for_ms} ms"));
                self.network.fail(fault, until_ns);
            }
            Fault::Cut(cut) => {
                let simnet::Cut { machine, peer, direction } = cut;
                let peer = peer.map_or("everybody".to_owned(), |peer| format!("{peer:?}"));
                self.note(machine, &format!("cut from {peer} ({direction:?}) for {for_ms} ms"));
                self.network.fail(fault, until_ns);
            }
            Fault::Process { machine: Machine::Switch(switch), .. } => {
                self.around[switch].agent ^= true;
                let what = if self.around[switch].agent { "agent is back" } else { "agent dies" };
                self.note(Machine::Switch(switch), what);
            }
            // Servers and the controller have no process beside themselves.
            Fault::Process { .. } => {}
            // Every link's.
            _ => {
                let is_known = self.network.fail(fault, until_ns);
                debug_assert!(is_known, "{fault:?} goes wrong nowhere");
            }
        }
        Ok(())
    }

    fn freeze(&mut self, machine: Machine, until_ns: u64) {
        match machine {
            Machine::Switch(at) => self.around[at].frozen_until_ns = until_ns,
            Machine::Server(at) => self.store.frozen_until_ns[at] = until_ns,
            // No scenario draws it. To all others it is as a crash that keeps the database.
            Machine::Controller => self.kill_controller(until_ns - self.now_ns),
        }
    }

    /// May this machine stand still, or be slow? A server then counts as one of the f that may
    /// fail.
    fn may_fail(&self, machine: Machine) -> bool {
        match machine {
            Machine::Server(at) => self.is_spare(at),
            Machine::Switch(_) | Machine::Controller => true,
        }
    }

    /// A server at the end of a cut counts as one of the f that may fail at once. A controller that
    /// is cut from everybody hears no server: then no other may fail.
    fn may_cut(&self, cut: &simnet::Cut<Machine>) -> bool {
        let server =
            |machine: Machine| if let Machine::Server(at) = machine { Some(at) } else { None };
        match (cut.machine, cut.peer) {
            (Machine::Controller, None) => self.all_well(),
            _ => {
                let lost: Vec<usize> = [Some(cut.machine), cut.peer]
                    .into_iter()
                    .flatten()
                    .filter_map(server)
                    .collect();
                lost.is_empty() || self.survives_without(&lost)
            }
        }
    }

    fn rotate(&mut self, machine: usize, step: usize) -> dataplane::Result<()> {
        if machine < SERVERS {
            self.store.rings[machine] = ring(step);
            if let Some(node) = &mut self.store.nodes[machine] {
                node.set_keys(ring(step));
            }
        } else if machine < SERVERS + SWITCHES {
            let switch = machine - SERVERS;
            self.around[switch].ring = ring(step);
            self.switches[switch].set_keys(&ring(step))?;
        } else {
            self.store.controller_ring = ring(step);
        }
        Ok(())
    }

    /// A host's packet comes to a switch; its number.
    pub(crate) fn input(&mut self, switch: usize, flow: u32, read: bool) -> dataplane::Result<u32> {
        self.packets += 1;
        let packet = self.packets;
        let frame = match (self.sketch.as_ref().map(SketchChecker::slots), &mut self.bindings) {
            (Some(slots), _) => {
                sketch_frame(flow as u16, std::array::from_fn(|_| self.rng.random_range(0..slots)))
            }
            (None, Some(bindings)) => bindings.frame(flow, packet, read, self.now_ns),
            (None, None) => counter_frame(flow, packet, read),
        };
        self.operations.input(flow, packet, read);
        self.note(
            Machine::Switch(switch),
            &format!(
                "<- {} of flow {flow}: packet {packet}",
                ["update", "read"][usize::from(read)]
            ),
        );
        self.process(switch, frame)?;
        Ok(packet)
    }

    fn process(&mut self, switch: usize, frame: Vec<u8>) -> dataplane::Result<()> {
        if self.is_down(switch) {
            self.note(Machine::Switch(switch), "is down: the packet is lost");
            return Ok(());
        }
        if self.now_ns < self.around[switch].frozen_until_ns {
            self.network.push(self.around[switch].frozen_until_ns, Event::Packet(switch, frame));
            return Ok(());
        }
        for became in self.switches[switch].packet(&frame, 2, self.now_ns)? {
            self.became(switch, became);
        }
        Ok(())
    }

    /// After the faults: everybody is back, the network is good.
    pub(crate) fn heal(&mut self) {
        self.network.heal(self.delay_max_ns);
        for around in &mut self.around {
            around.agent = true;
            around.frozen_until_ns = around.frozen_until_ns.min(self.now_ns);
            around.down_until_ns = around.down_until_ns.min(self.now_ns);
        }
        self.store.frozen_until_ns.fill(0);
        (0..SERVERS).for_each(|at| self.start_server(at));
        self.start_controller();
    }

    pub(crate) fn became(&mut self, switch: usize, became: Became) {
        match became {
            Became::Nothing => {}
            Became::Output(_, frame) => self.let_out(switch, &frame),
            Became::Message(to, bytes) => {
                let sender = &self.switches[switch];
                if let Some(sketch) = &mut self.sketch
                    && let Err(detail) =
                        sketch.sent(switch, &bytes, |object, key| sender.window_of(object, key))
                {
                    self.violated("snapshots", detail);
                }
                let from = SocketAddrV4::new(self.switches[switch].address(), wire::PORT);
                self.send(Machine::Switch(switch), Datagram { from, to, bytes });
            }
        }
    }

    /// Lets time pass: messages arrive, timers go off, agents and generators run every tick.
    pub(crate) fn advance(&mut self, by_ns: u64) -> dataplane::Result<()> {
        let until_ns = self.now_ns + by_ns;
        while self.violation.is_none() {
            if self.events > MOST_EVENTS {
                self.violated("liveness", format!("more than {MOST_EVENTS} messages"));
            }
            let message = self.network.events.next_ns().unwrap_or(u64::MAX).max(self.now_ns);
            let timer = self.store.next_timer_ns(self.now_ns);
            let tick = (self.now_ns / TICK_NS + 1) * TICK_NS;
            let next = message.min(timer).min(tick);
            if next > until_ns {
                break;
            }
            self.now_ns = next;
            if next == message {
                self.happen()?;
            } else if next == tick {
                (0..SWITCHES).try_for_each(|switch| self.tick(switch))?;
            } else {
                self.store_timers();
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
        Ok(())
    }

    fn happen(&mut self) -> dataplane::Result<()> {
        match self.network.events.pop().map(|(_, event)| event) {
            Some(Event::Arrives(datagram)) => self.arrives(datagram)?,
            Some(Event::Packet(switch, frame)) => self.process(switch, frame)?,
            Some(Event::Restart(at)) => {
                self.note(Machine::Server(at), "is back, empty");
                self.start_server(at);
            }
            Some(Event::RestartController) => {
                self.note(Machine::Controller, "is back");
                self.start_controller();
            }
            Some(Event::Written(number)) => self.written(number),
            None => {}
        }
        Ok(())
    }

    fn arrives(&mut self, datagram: Datagram) -> dataplane::Result<()> {
        let to = machine_at(*datagram.to.ip());
        if let Machine::Switch(at) = to
            && self.is_down(at)
        {
            self.draw(to, &datagram, true);
            return Ok(());
        }
        if let Machine::Server(at) = to
            && !self.is_busy()
            && self.program_takes(at, &datagram)
        {
            self.mix(&datagram.bytes);
            self.draw(to, &datagram, false);
            return Ok(());
        }
        let still_until_ns = match to {
            Machine::Switch(at) => self.around[at].frozen_until_ns,
            Machine::Server(at) => self.store.frozen_until_ns[at],
            Machine::Controller => 0,
        };
        if self.now_ns < still_until_ns {
            self.network.push(still_until_ns, Event::Arrives(datagram));
            return Ok(());
        }
        self.mix(&datagram.bytes);
        self.draw(to, &datagram, false);
        match to {
            Machine::Server(at) => self.serve(at, Some((datagram.from, datagram.bytes))),
            Machine::Switch(at) if datagram.to.port() == AGENT_PORT => {
                self.take_views(at, &datagram)?
            }
            Machine::Switch(at) => self.switch_takes(at, &datagram)?,
            Machine::Controller => {
                let (from, bytes) = (datagram.from, datagram.bytes.as_slice());
                if self.store.controller_ring.verify(bytes, *from.ip(), *datagram.to.ip()).is_ok() {
                    self.decide(ControllerInput::Datagram { from, bytes });
                }
            }
        }
        Ok(())
    }

    fn switch_takes(&mut self, at: usize, datagram: &Datagram) -> dataplane::Result<()> {
        let bytes = &datagram.bytes;
        if let Some(sketch) = &mut self.sketch
            && let Err(detail) = sketch.arrives(bytes, &self.store)
        {
            self.violated("snapshots", detail);
        }
        for became in self.switches[at].message(*datagram.from.ip(), bytes, self.now_ns)? {
            self.became(at, became);
        }
        match state_protocol::Message::decode(bytes) {
            Ok(message) if !message.key.is_empty() => self.check_one_owner(message.key),
            Ok(_) => {
                // It prolongs a session. Not after each one: asking costs more than everything else
                // of a heartbeat.
                self.heartbeats += 1;
                if self.heartbeats.is_multiple_of(HEARTBEATS_PER_LOOK) {
                    self.check_one_owner_each();
                }
            }
            Err(_) => {}
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, from: Machine, datagram: Datagram) {
        let to = machine_at(*datagram.to.ip());
        let bytes = self.chart.is_some().then(|| datagram.bytes.clone());
        if !self.network.send(self.now_ns, from, to, datagram, self.is_spared(from, to))
            && let (Some(chart), Some(bytes)) = (&mut self.chart, bytes)
        {
            chart.message(self.now_ns, from, to, &bytes, true);
        }
    }

    /// While a member of a chain is dead or cut off, the others' reports get through: each loss of
    /// one would be another failure, and only f at a time are survived.
    fn is_spared(&self, from: Machine, to: Machine) -> bool {
        let between = |one: Machine, other: Machine| {
            one == Machine::Controller && matches!(other, Machine::Server(_))
        };
        (between(from, to) || between(to, from)) && !self.all_well()
    }

    fn draw(&mut self, to: Machine, datagram: &Datagram, lost: bool) {
        if let Some(chart) = &mut self.chart {
            chart.message(self.now_ns, machine_at(*datagram.from.ip()), to, &datagram.bytes, lost);
        }
    }

    /// Something happens at a machine.
    pub(crate) fn note(&mut self, machine: Machine, text: &str) {
        if let Some(chart) = &mut self.chart {
            chart.note(self.now_ns, machine, text);
        }
    }

    pub(crate) fn mix(&mut self, bytes: &[u8]) {
        self.events += 1;
        let mut digest = self.digest ^ self.now_ns;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            digest = state_store::core::SplitMix64::mix(digest ^ u64::from_le_bytes(word));
        }
        self.digest = digest;
    }
}

fn machine_at(address: Ipv4Addr) -> Machine {
    match address.octets() {
        [10, 255, 0, id] => Machine::Switch(usize::from(id) - 1),
        [10, 2, 0, at] => Machine::Server(usize::from(at) - 1),
        _ => Machine::Controller,
    }
}
