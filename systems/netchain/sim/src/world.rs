//! Switches, clients, the controller and the network between them, in virtual time.

use crate::chart::{self, Chart};
use crate::client::Client;
use crate::control::{Control, Wants};
use crate::faults::Faults;
use crate::frames::{destination, machine_at, source, switch_address};
use crate::history::History;
use crate::node::{Became, LEASE_MS, Node, Template};
use crate::scenario::{Action, Fault, Machine, Scenario, Step};
use netchain_controller::{Config, Input, Report, Settings, State};
use netchain_protocol::{Founding, Key, Member, Ring};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Arrivals, Clock, Events, Network, Treatment};

pub(crate) const MS: u64 = 1_000_000;
/// A switch that is not heard for so long is dead.
const DEAD_MS: u64 = 120;
/// One whose agent does not report for so long is out of its chains.
const AGENT_MS: u64 = 400;
/// One that has served for so long gets its groups back.
const REBALANCE_AFTER_MS: u64 = 250;
/// The controller's rules run this often.
const CONTROLLER_EVERY_NS: u64 = 10 * MS;
/// A run has some thousands.
const MOST_EVENTS: u64 = 400_000;

mod clients;
mod hosts;

/// What did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What must hold.
    pub check: &'static str,
    /// What was seen.
    pub detail: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.check, self.detail)
    }
}

/// What happens at a time.
#[derive(Clone, Debug)]
enum Event {
    /// A frame comes to a machine.
    Frame(Machine, Vec<u8>),
    /// A switch's agent tells the controller of itself.
    Report(Report),
    /// The controller tells a switch what to do.
    Config(usize, Config),
    /// A switch's agent writes a table; in this life of the switch.
    Write(usize, u64),
    /// A switch's agent and its packet generator do what is due; in this life of the switch.
    Tick(usize, u64),
    /// The controller looks at the time; in this life of it.
    Look(u64),
    /// A decision is persistent; of this life.
    Persisted(u64, Box<State>),
    /// A client's requests are due.
    Client(usize),
    /// A machine is there again.
    Back(Machine),
}

/// A switch's machine.
pub(crate) struct Host<'p> {
    /// None: it has no power.
    pub(crate) node: Option<Node<'p>>,
    clock: Clock,
    /// Lives so far, of the switch or its agent.
    life: u64,
    /// Of its slots, so far.
    incarnation: u32,
    /// Its ports are dead, or it has no power.
    down_until_ns: u64,
    frozen_until_ns: u64,
    agent_back_ns: u64,
}

/// A data center.
pub(crate) struct World<'p> {
    template: Template<'p>,
    rng: StdRng,
    pub(crate) now_ns: u64,
    network: Network<Machine>,
    events: Events<Event>,
    faults: Faults,
    pub(crate) ring: Ring,
    pub(crate) hosts: Vec<Host<'p>>,
    pub(crate) clients: Vec<Client>,
    pub(crate) control: Control,
    pub(crate) keys: Vec<Key>,
    /// What clients asked and heard.
    pub history: History,
    /// Values written so far: each is another one.
    values: u64,
    /// What did not hold.
    pub violation: Option<Violation>,
    /// Draws what happens, if wanted.
    pub chart: Option<Chart>,
    /// Events so far, and a digest of all that arrived.
    pub happened: u64,
    digest: u64,
    /// Joins, losses and so on that the controller decided.
    pub decided: Vec<(u64, netchain_controller::Event)>,
}

/// The cluster of a scenario.
fn found(scenario: &Scenario) -> Result<Ring, String> {
    // In every other run two switches share a rack.
    let in_rack = 1 + (scenario.seed % 2) as usize;
    let member = (0..scenario.switches)
        .map(|at| Member { address: switch_address(at), rack: format!("r{}", at / in_rack) })
        .collect();
    Ring::found(Founding {
        cluster: format!("{:016x}", scenario.seed),
        groups: scenario.groups,
        virtual_nodes: 20,
        failures: scenario.failures,
        member,
    })
}

impl<'p> World<'p> {
    /// Starts everything; waits (in virtual time) until the groups serve.
    ///
    /// # Errors
    /// The program is not interpreted, or no cluster can be founded like this.
    pub(crate) fn start(
        template: Template<'p>,
        scenario: &Scenario,
        chart: bool,
    ) -> Result<World<'p>, String> {
        let mut rng = StdRng::seed_from_u64(scenario.seed);
        let ring = found(scenario)?;
        let settings = Settings {
            failures: scenario.failures,
            dead_ms: DEAD_MS,
            agent_ms: AGENT_MS,
            lease_ms: LEASE_MS,
            most_joins: 2,
            again_ms: 50,
            begin_ms: 300,
            collect_percent: 0,
            collect_gap_ms: 0,
            rebalance_after_ms: REBALANCE_AFTER_MS,
        };
        let drift_ppm = scenario.faults.drift_ppm;
        let mut clock = || {
            let drift = rng.random_range(-drift_ppm..=drift_ppm);
            Clock::new(rng.random_range(1..1_000_000) * MS, drift)
        };
        let host = |clock| Host {
            node: None,
            clock,
            life: 0,
            incarnation: 0,
            down_until_ns: 0,
            frozen_until_ns: 0,
            agent_back_ns: 0,
        };
        let hosts = (0..scenario.switches).map(|_| host(clock())).collect();
        let clients = (0..scenario.clients)
            .map(|at| Client::new(ring.clone(), 0xc0 + at as u64, clock()))
            .collect();
        // (Half of the keys begin with 0, the others with 1. A key's number is its second byte.)
        let key = |at: usize| {
            let mut key = Key([0; 16]);
            (key.0[0], key.0[1], key.0[15]) = ((at % 2) as u8, at as u8, 0x55);
            key
        };
        let mut world = World {
            template,
            rng,
            now_ns: 1_000 * MS,
            network: Network::new(scenario.seed),
            events: Events::default(),
            // (Nothing fails before the groups serve.)
            faults: Faults { drift_ppm, ..Faults::NONE },
            control: Control::new(&ring, settings),
            ring,
            hosts,
            clients,
            keys: (0..scenario.keys).map(key).collect(),
            history: History::new(scenario.collects()),
            values: 0,
            violation: None,
            chart: chart.then(|| chart::new(scenario.switches, scenario.clients)),
            happened: 0,
            digest: 0,
            decided: vec![],
        };
        (0..scenario.switches).for_each(|at| world.power_on(at));
        world.begin_controller();
        for _ in 0..100 {
            world.advance(10 * MS);
            if world.serves() {
                break;
            }
        }
        if !world.serves() {
            world.violated("liveness", "the groups do not begin to serve".to_owned());
        }
        world.faults = scenario.faults;
        world.network.set_conditions(scenario.faults.conditions());
        Ok(world)
    }

    /// A digest of all that arrived: two runs of one scenario have the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Runs steps until something does not hold.
    pub fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.advance(step.pause_ns);
            if self.violation.is_some() {
                break;
            }
            self.act(step.action);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Ask(ask) => self.ask(ask),
            Action::List(list) => self.list(list),
            Action::Fault(fault, for_ns) => self.fail(&fault, for_ns),
            Action::Drain(at, on) => {
                self.note(Machine::Controller, &format!("drain of s{}: {on}", at + 1));
                self.control(Input::Drain(switch_address(at), on));
            }
            Action::Collect => {
                self.note(Machine::Controller, "tombstones are to be collected");
                self.control(Input::Collect(None));
            }
        }
    }

    /// Something goes wrong for this time.
    fn fail(&mut self, fault: &Fault, for_ns: u64) {
        let until_ns = self.now_ns + for_ns;
        let text = format!("{fault} for {} ms", for_ns / MS);
        self.note(fault.machine().copied().unwrap_or(Machine::Controller), &text);
        match *fault {
            Fault::Crash { machine: Machine::Switch(at), keeps_state } => {
                let host = &mut self.hosts[at];
                host.down_until_ns = host.down_until_ns.max(until_ns);
                if !keeps_state {
                    host.node = None;
                    host.life += 1;
                    self.events.push(host.down_until_ns, Event::Back(Machine::Switch(at)));
                }
            }
            Fault::Crash { machine: Machine::Controller, .. } => self.kill_controller(for_ns),
            Fault::Freeze { machine } => match machine {
                Machine::Switch(at) => self.hosts[at].frozen_until_ns = until_ns,
                Machine::Client(at) => self.clients[at].frozen_until_ns = until_ns,
                Machine::Controller => self.control.frozen_until_ns = until_ns,
            },
            Fault::Process { machine: Machine::Switch(at), .. } => {
                self.hosts[at].agent_back_ns = until_ns;
            }
            Fault::Cut(_) | Fault::Slow { .. } | Fault::Links(_) => {
                self.network.begin(fault, until_ns);
            }
            // A client that dies is as one that stands still for ever: nobody asks it again.
            Fault::Crash { .. } | Fault::Process { .. } => {}
        }
    }

    fn kill_controller(&mut self, for_ns: u64) {
        if self.control.runs() {
            self.control.end();
            self.control.returns_ns = self.now_ns + for_ns;
            self.events.push(self.control.returns_ns, Event::Back(Machine::Controller));
        }
    }

    /// After the faults: everybody is back, the network is good.
    pub(crate) fn heal(&mut self) {
        self.network.heal(300_000);
        self.faults = Faults { delay_max_ns: 300_000, ..Faults::NONE };
        let now_ns = self.now_ns;
        for host in &mut self.hosts {
            host.down_until_ns = host.down_until_ns.min(now_ns);
            host.frozen_until_ns = host.frozen_until_ns.min(now_ns);
            host.agent_back_ns = host.agent_back_ns.min(now_ns);
        }
        for at in 0..self.clients.len() {
            self.clients[at].frozen_until_ns = now_ns;
            self.clients[at].hurry(now_ns);
            self.client_soon(at);
        }
        self.control.frozen_until_ns = now_ns;
        for at in 0..self.hosts.len() {
            if self.hosts[at].node.is_none() {
                self.power_on(at);
            }
        }
        if !self.control.runs() {
            self.begin_controller();
        }
        for at in 0..self.hosts.len() {
            self.control(Input::Drain(switch_address(at), false));
        }
    }

    fn begin_controller(&mut self) {
        let drift = self.rng.random_range(-self.faults.drift_ppm..=self.faults.drift_ppm);
        let clock = Clock::new(self.rng.random_range(1..1_000_000) * MS, drift);
        self.control.begin(clock);
        self.note(Machine::Controller, "begins");
        self.events.push(self.now_ns, Event::Look(self.control.life));
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, by_ns: u64) {
        let until_ns = self.now_ns + by_ns;
        while self.violation.is_none() {
            let Some((at_ns, event)) = self.events.pop_until(until_ns) else { break };
            self.now_ns = self.now_ns.max(at_ns);
            self.happened += 1;
            if self.happened > MOST_EVENTS {
                self.violated("liveness", format!("more than {MOST_EVENTS} events"));
            }
            self.happen(event);
        }
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// Until when the machine of an event stands still.
    fn still_until_ns(&self, event: &Event) -> u64 {
        match event {
            Event::Frame(Machine::Switch(at), _)
            | Event::Config(at, _)
            | Event::Write(at, _)
            | Event::Tick(at, _) => self.hosts[*at].frozen_until_ns,
            Event::Frame(Machine::Client(at), _) | Event::Client(at) => {
                self.clients[*at].frozen_until_ns
            }
            Event::Report(_) | Event::Look(_) | Event::Persisted(..) => {
                self.control.frozen_until_ns
            }
            Event::Frame(Machine::Controller, _) | Event::Back(_) => 0,
        }
    }

    fn happen(&mut self, event: Event) {
        let still_until_ns = self.still_until_ns(&event);
        if self.now_ns < still_until_ns {
            return self.events.push(still_until_ns, event);
        }
        match event {
            Event::Frame(machine, frame) => self.arrives(machine, &frame),
            Event::Report(report) => {
                if self.control.runs() {
                    self.control(Input::Report(report));
                }
            }
            Event::Config(at, config) => self.configure(at, config),
            Event::Write(at, life) => self.write(at, life),
            Event::Tick(at, life) => self.tick(at, life),
            Event::Look(life) if life == self.control.life => {
                self.control(Input::Timer);
                self.events.push(self.now_ns + CONTROLLER_EVERY_NS, Event::Look(life));
            }
            Event::Persisted(life, state) if life == self.control.life => {
                if let Err(detail) = self.control.persisted(*state, self.now_ns) {
                    self.violated("decision", detail);
                }
                self.control(Input::Persisted);
            }
            Event::Look(_) | Event::Persisted(..) => {}
            Event::Client(at) => {
                if self.now_ns >= self.clients[at].wakes_ns {
                    self.clients[at].wakes_ns = u64::MAX;
                    self.client_time(at);
                }
            }
            Event::Back(Machine::Switch(at)) => {
                let host = &self.hosts[at];
                if host.node.is_none() && self.now_ns >= host.down_until_ns {
                    self.power_on(at);
                }
            }
            Event::Back(Machine::Controller) => {
                if !self.control.runs() && self.now_ns >= self.control.returns_ns {
                    self.begin_controller();
                }
            }
            Event::Back(Machine::Client(_)) => {}
        }
    }

    /// A frame comes to a machine.
    fn arrives(&mut self, machine: Machine, frame: &[u8]) {
        let Machine::Switch(at) = machine else {
            if let Machine::Client(at) = machine {
                self.mix(frame);
                self.draw(machine, frame, false);
                let heard = self.clients[at].receive(crate::frames::payload(frame), self.now_ns);
                self.client_does(at, heard);
            }
            return;
        };
        let now_ns = self.now_ns;
        let host = &mut self.hosts[at];
        let node = host.node.as_mut().filter(|_| now_ns >= host.down_until_ns);
        let Some(node) = node else { return self.draw(machine, frame, true) };
        let became = node.receive(frame, now_ns);
        self.mix(frame);
        self.draw(machine, frame, false);
        self.became(at, became);
        self.check_order();
    }

    fn became(&mut self, at: usize, became: Result<Became, String>) {
        match became {
            Ok(Became::Sends(frame)) => self.send(Machine::Switch(at), frame),
            Ok(Became::Nothing) => {}
            Err(error) => self.violated("program", error),
        }
    }

    fn send(&mut self, from: Machine, frame: Vec<u8>) {
        let to = self.route(destination(&frame));
        let arrivals = self.transmit(from, to);
        if arrivals.is_lost() {
            self.draw(to, &frame, true);
        }
        for at_ns in arrivals {
            self.events.push(at_ns, Event::Frame(to, frame.clone()));
        }
    }

    fn transmit(&mut self, from: Machine, to: Machine) -> Arrivals {
        self.network.send(self.now_ns, from, to, Treatment::default())
    }

    /// The controller takes an input, and may die before or after anything that comes of it.
    fn control(&mut self, input: Input) {
        if !self.control.runs() {
            return;
        }
        let Wants { persist, configs, events } = self.control.take(input, self.now_ns);
        for event in events {
            self.note(Machine::Controller, &format!("{event:?}"));
            self.decided.push((self.now_ns, event));
        }
        for (to, config) in configs {
            if self.dies_now() {
                return;
            }
            let version = config.version;
            if version > self.control.disk.version {
                let detail = format!("version {version} is sent before it is persistent");
                return self.violated("persistence", detail);
            }
            let machine = machine_at(to);
            if let Machine::Switch(at) = machine {
                for at_ns in self.transmit(Machine::Controller, machine) {
                    self.events.push(at_ns, Event::Config(at, config.clone()));
                }
            }
        }
        if let Some(state) = persist
            && !self.dies_now()
        {
            let done_ns = self.now_ns + self.rng.random_range(MS / 2..8 * MS);
            let (life, state) = (self.control.life, Box::new(state));
            self.events.push(done_ns, Event::Persisted(life, state));
        }
    }

    fn dies_now(&mut self) -> bool {
        let dies = self.rng.random_bool(self.faults.controller_steps);
        if dies {
            self.note(Machine::Controller, "dies between two steps");
            let for_ns = self.rng.random_range(MS..200 * MS);
            self.kill_controller(for_ns);
        }
        dies
    }

    fn draw(&mut self, to: Machine, frame: &[u8], lost: bool) {
        if let Some(chart) = &mut self.chart
            && let Some(text) = chart::describe(frame)
        {
            // (A stamped write keeps its client's address: who sent it, a chart cannot tell.)
            chart.message(self.now_ns, machine_at(source(frame)), to, text, lost);
        }
    }

    /// Something happens at a machine.
    pub(crate) fn note(&mut self, machine: Machine, text: &str) {
        if let Some(chart) = &mut self.chart {
            chart.note(self.now_ns, machine, text);
        }
    }

    pub(crate) fn violated(&mut self, check: &'static str, detail: String) {
        if self.violation.is_none() {
            self.note(Machine::Controller, &format!("{check}: {detail}"));
            self.violation = Some(Violation { check, detail });
        }
    }

    fn mix(&mut self, bytes: &[u8]) {
        let mut digest = self.digest ^ self.now_ns;
        for byte in bytes {
            digest = (digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.digest = digest;
    }
}
