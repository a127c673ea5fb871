//! What a run does, step by step: drawn from its seed before it begins, so that a failing run can
//! be made shorter by leaving steps out.

use crate::faults::Faults;
use netchain_protocol::Operation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Cut, Direction};
use std::fmt;

const MS: u64 = 1_000_000;

/// A machine of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Machine {
    /// A switch and its agent.
    Switch(usize),
    /// A client.
    Client(usize),
    /// The controller.
    Controller,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine::Switch(at) => write!(f, "s{}", at + 1),
            Machine::Client(at) => write!(f, "c{}", at + 1),
            Machine::Controller => f.write_str("ctl"),
        }
    }
}

/// What goes wrong. The only process apart from its machine is a switch's [`AGENT`].
pub type Fault = simnet::Fault<Machine, &'static str>;
/// A switch's agent, as a process.
pub const AGENT: &str = "agent";

/// A request. What it compares with is what its client saw last, or something older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who asks.
    pub client: usize,
    /// For what.
    pub operation: Operation,
    /// Number of the key.
    pub key: usize,
    /// Bytes of the value that is written.
    pub length: usize,
    /// The condition: of what was seen last (0), or of that many observations before.
    pub back: usize,
}

/// A listing of the keys that begin as one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// Who asks.
    pub client: usize,
    /// Number of the key whose first bytes are the prefix.
    pub key: usize,
    /// Bytes of the prefix.
    pub bytes: usize,
    /// The client does something else for so long, in ns, before it asks for the next page.
    pub pause_ns: u64,
}

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client begins a request.
    Ask(Ask),
    /// A client begins a listing.
    List(List),
    /// Something goes wrong for so many ns.
    Fault(Fault, u64),
    /// An operator drains a switch, or ends that.
    Drain(usize, bool),
    /// An operator has all tombstones collected.
    Collect,
}

/// An action, and how long after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Virtual time that passes first.
    pub pause_ns: u64,
    /// What happens then.
    pub action: Action,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What the network does with each message is drawn from this.
    pub seed: u64,
    /// How often it loses and delays.
    pub faults: Faults,
    /// Switches of the cluster.
    pub switches: usize,
    /// Members of a chain that may fail at once.
    pub failures: usize,
    /// Groups of keys.
    pub groups: u16,
    /// Clients.
    pub clients: usize,
    /// Keys.
    pub keys: usize,
    /// What happens.
    pub steps: Vec<Step>,
}

impl Scenario {
    /// The swarm's run of a seed.
    pub fn of_seed(seed: u64) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed);
        let faults = Faults::swarm(&mut rng);
        Scenario::draw(seed, faults)
    }

    /// A run with these faults.
    pub fn draw(seed: u64, faults: Faults) -> Scenario {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x0ce7_c4a1);
        let switches = rng.random_range(3..=5);
        let mut scenario = Scenario {
            seed,
            faults,
            switches,
            failures: rng.random_range(1..=2),
            groups: [1, 1, 2, 3][rng.random_range(0..4)],
            clients: rng.random_range(1..=4),
            keys: [1, 1, 2, 3, 5, 9][rng.random_range(0..6)],
            steps: Vec::new(),
        };
        let lists = rng.random_bool(0.4);
        if lists {
            // (More than a page has place for, mostly.)
            scenario.keys = [2, 5, 9, 12, 18, 18][rng.random_range(0..6)];
            scenario.fill(&mut rng);
        }
        let requests = match rng.random_range(0..8) {
            0 => rng.random_range(60..=160),
            _ => rng.random_range(15..=60),
        };
        let pause_ns = [500_000, 3 * MS, 12 * MS, 40 * MS][rng.random_range(0..4)];
        // Which operations a run has at all. (A listing says of a key only whether it is there.)
        let comes_and_goes = |it: &Operation| matches!(it, Operation::Insert | Operation::Delete);
        let always = |it: &Operation| *it == Operation::Read || lists && comes_and_goes(it);
        let kinds: Vec<Operation> =
            OPERATIONS.into_iter().filter(|it| always(it) || rng.random_bool(0.5)).collect();
        for _ in 0..requests {
            scenario.fail(&mut rng);
            if lists && rng.random_bool(0.2) {
                scenario.list(&mut rng, pause_ns);
                continue;
            }
            let ask = Ask {
                client: rng.random_range(0..scenario.clients),
                operation: kinds[rng.random_range(0..kinds.len())],
                key: rng.random_range(0..scenario.keys),
                length: [8, 8, 8, 16, 40, 128][rng.random_range(0..6)],
                back: if rng.random_bool(0.8) { 0 } else { rng.random_range(1..4) },
            };
            let pause_ns = match rng.random_range(0..60) {
                // Long enough for a failover, or for a joining member.
                0 => 300 * MS,
                _ => rng.random_range(1_000..pause_ns),
            };
            scenario.steps.push(Step { pause_ns, action: Action::Ask(ask) });
        }
        scenario
    }

    /// Most keys get a value.
    fn fill(&mut self, rng: &mut StdRng) {
        for key in 0..self.keys {
            if rng.random_bool(0.1) {
                continue;
            }
            let client = rng.random_range(0..self.clients);
            let ask = Ask { client, operation: Operation::Put, key, length: 8, back: 0 };
            let pause_ns = rng.random_range(1_000..2 * MS);
            self.steps.push(Step { pause_ns, action: Action::Ask(ask) });
        }
    }

    /// A client lists keys: all of them, half of them, one.
    fn list(&mut self, rng: &mut StdRng, pause_ns: u64) {
        let list = List {
            client: rng.random_range(0..self.clients),
            key: rng.random_range(0..self.keys),
            bytes: [0, 0, 0, 1, 1, 2, 16][rng.random_range(0..7)],
            // (Often long enough for another view between two pages.)
            pause_ns: [0, 0, MS, 60 * MS, 300 * MS][rng.random_range(0..5)],
        };
        let pause_ns = rng.random_range(1_000..pause_ns);
        self.steps.push(Step { pause_ns, action: Action::List(list) });
    }

    /// What fails before a request.
    fn fail(&mut self, rng: &mut StdRng) {
        let faults = self.faults;
        let switch = Machine::Switch(rng.random_range(0..self.switches));
        let other = match rng.random_range(0..=self.clients) {
            at if at < self.clients => Machine::Client(at),
            _ => Machine::Controller,
        };
        let cut = self.cut(rng);
        let crash = |machine, keeps_state| Fault::Crash { machine, keeps_state };
        let chances = [
            (faults.power_cuts, crash(switch, false), 400),
            (faults.outages, crash(switch, true), 400),
            (faults.freezes, Fault::Freeze { machine: switch }, 400),
            (faults.stalls, Fault::Freeze { machine: other }, 400),
            (faults.agent_deaths, Fault::Process { machine: switch, process: AGENT }, 500),
            (faults.slowness, Fault::Slow { machine: switch }, 400),
            (faults.cuts, Fault::Cut(cut), 500),
            (faults.controller_deaths, crash(Machine::Controller, true), 300),
        ];
        for (chance, fault, most_ms) in chances {
            if rng.random_bool(chance) {
                let for_ns = rng.random_range(MS..most_ms * MS);
                self.steps.push(Step { pause_ns: 0, action: Action::Fault(fault, for_ns) });
            }
        }
        if rng.random_bool(faults.isolations) {
            self.isolate(rng);
        }
        if rng.random_bool(faults.drains) {
            let at = rng.random_range(0..self.switches);
            let action = Action::Drain(at, rng.random_bool(0.5));
            self.steps.push(Step { pause_ns: 0, action });
        }
        if rng.random_bool(faults.collections) {
            self.collect(rng);
        }
    }

    /// Tombstones are collected, often with what makes that hard: a key is made and deleted just
    /// before, and a client hears nothing, or a switch misses the delete, or the head changes.
    fn collect(&mut self, rng: &mut StdRng) {
        let mut then = |pause_ns, action| self.steps.push(Step { pause_ns, action });
        let (client, other) =
            (rng.random_range(0..self.clients), rng.random_range(0..self.clients));
        let key = rng.random_range(0..self.keys);
        let ask =
            |client, operation| Action::Ask(Ask { client, operation, key, length: 8, back: 0 });
        let mut some_ms = |most: u64| rng.random_range(100_000..most * MS);
        let deaf = Cut { machine: Machine::Client(client), peer: None, direction: Direction::Into };
        let (first, second) = (some_ms(5), some_ms(10));
        let (deaf_ns, split_ns, view_ns, after_ns) =
            (some_ms(700), some_ms(150), some_ms(300), some_ms(400));
        if rng.random_bool(0.5) {
            then(0, Action::Fault(Fault::Cut(deaf), deaf_ns));
        }
        if rng.random_bool(0.7) {
            let made = [Operation::Add, Operation::Insert, Operation::Put];
            then(first, ask(client, made[rng.random_range(0..3)]));
        }
        let pair = (rng.random_range(0..self.switches), rng.random_range(0..self.switches));
        if rng.random_bool(0.4) && pair.0 != pair.1 {
            let (machine, peer) = (Machine::Switch(pair.0), Some(Machine::Switch(pair.1)));
            let split = Cut { machine, peer, direction: Direction::Both };
            then(second, Action::Fault(Fault::Cut(split), split_ns));
        }
        if rng.random_bool(0.7) {
            then(second, ask(other, Operation::Delete));
        }
        then(first, Action::Collect);
        if rng.random_bool(0.4) {
            let machine = Machine::Switch(rng.random_range(0..self.switches));
            let crash = Fault::Crash { machine, keeps_state: rng.random_bool(0.3) };
            then(view_ns, Action::Fault(crash, after_ns));
        }
        then(after_ns, ask(other, Operation::Read));
    }

    /// Are tombstones collected in this run?
    pub fn collects(&self) -> bool {
        self.steps.iter().any(|step| step.action == Action::Collect)
    }

    /// A switch is cut off from the others and the controller, and not from its clients.
    fn isolate(&mut self, rng: &mut StdRng) {
        let at = rng.random_range(0..self.switches);
        let for_ns = rng.random_range(100 * MS..900 * MS);
        let others = (0..self.switches).filter(|other| *other != at).map(Machine::Switch);
        for peer in others.chain([Machine::Controller]) {
            let machine = Machine::Switch(at);
            let cut = Cut { machine, peer: Some(peer), direction: Direction::Both };
            let action = Action::Fault(Fault::Cut(cut), for_ns);
            self.steps.push(Step { pause_ns: 0, action });
        }
    }

    fn machine(&self, rng: &mut StdRng) -> Machine {
        match rng.random_range(0..=self.switches + self.clients) {
            at if at < self.switches => Machine::Switch(at),
            at if at < self.switches + self.clients => Machine::Client(at - self.switches),
            _ => Machine::Controller,
        }
    }

    fn cut(&self, rng: &mut StdRng) -> Cut<Machine> {
        let machine = self.machine(rng);
        let peer = rng.random_bool(0.7).then(|| self.machine(rng)).filter(|peer| *peer != machine);
        let directions = [Direction::Both, Direction::Into, Direction::OutOf];
        Cut { machine, peer, direction: directions[rng.random_range(0..3)] }
    }
}

/// All that clients ask for; reads and compares more often.
const OPERATIONS: [Operation; 9] = [
    Operation::Read,
    Operation::Put,
    Operation::Insert,
    Operation::CompareVersion,
    Operation::CompareVersion,
    Operation::CompareOwner,
    Operation::Add,
    Operation::Delete,
    Operation::Read,
];
