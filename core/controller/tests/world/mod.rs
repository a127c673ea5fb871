//! The simulated cluster: machines with their clocks, the network, faults, and what must hold.
//!
//! What the servers keep, and what switches ask of them, is the test's module `store`: a toy in
//! this crate's tests, a real store in those of a system.
#![allow(dead_code)] // each test uses its part

mod checks;

pub use checks::Checks;

use crate::store::{self, Life, Node, Switch};
use chain::Outputs;
use controller::core::{
    Controller, Event as Decision, Input as ControllerInput, Outputs as ControllerOutputs, Why,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
pub use simnet::{Clock, Cut, Direction};
use simnet::{Conditions, Disk, Events, Fault, Network, Treatment};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{Control, KeyRing, Member, SECRET_BYTES, Secret, Views};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
pub const SHARDS: u16 = 4;
pub const SERVERS: usize = 5;
pub const SWITCHES: u32 = 3;
const CALM: Conditions = Conditions { delay_min_ns: 20_000, delay_max_ns: MS, ..Conditions::GOOD };
const FAULTY: Conditions =
    Conditions { loss: 0.03, duplication: 0.03, stragglers: 0.02, straggle_ns: 80 * MS, ..CALM };

/// A clock that starts anywhere; any two differ by less than the store's 1000 ppm.
fn draw_clock(rng: &mut StdRng) -> Clock {
    Clock::new(rng.random_range(SECOND..101 * SECOND), rng.random_range(-450..=450))
}

pub fn server_address(at: usize) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, at as u8 + 1), 5407)
}

pub fn switch_address(switch_id: u32) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 1, 0, switch_id as u8), 5407)
}

pub fn controller_address() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 5408)
}

pub fn keys() -> KeyRing {
    KeyRing::new(0, Secret([7; SECRET_BYTES])).unwrap()
}

fn controller_settings() -> controller::core::Settings {
    controller::core::Settings {
        shards: SHARDS,
        chain_length: 3,
        founding_servers: 3,
        dead_ns: 250 * MS,
        join_timeout_ns: 2 * SECOND,
        most_joins: 2,
        reorder_after_ns: 100 * MS,
    }
}

/// A datagram on its way.
#[derive(Clone)]
pub struct Datagram {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub bytes: Vec<u8>,
}

/// What happens to a server.
enum Input<'a> {
    Datagram { from: SocketAddrV4, bytes: &'a [u8] },
    Timer,
}

enum Event {
    Deliver(Datagram),
    Timer(usize),
    ControllerTimer,
    /// The database has written the decision.
    Written(u64),
    Tick(usize),
    Fault,
    Heal,
    Restart(usize),
    RestartController,
    /// A server's disk has everything up to this ticket, if it did not die since.
    Durable(usize, u64, u64),
}

pub struct World {
    rng: StdRng,
    pub time: u64,
    events: Events<Event>,
    /// Between the machines at these addresses.
    network: Network<SocketAddrV4>,
    pub nodes: Vec<Option<Node>>,
    /// Empty: servers keep no journals.
    disks: Vec<Disk>,
    /// Of the servers' last lives.
    incarnations: Vec<u64>,
    /// Servers of a machine.
    workers: usize,
    clocks: Vec<Clock>,
    scheduled: Vec<u64>,
    controller: Option<Controller>,
    /// What the controller's database has.
    pub database: Views,
    deciding: Option<(u64, Views)>,
    decisions: u64,
    pub switches: Vec<Switch>,
    /// There is one at a time.
    cut: Option<Cut<SocketAddrV4>>,
    /// The one before, and when it ended.
    healed: Option<(Cut<SocketAddrV4>, u64)>,
    pub faults: bool,
    pub quiet: bool,
    pub traced: bool,
    pub checks: Checks,
}

impl World {
    pub fn new(seed: u64) -> World {
        World::with(seed, true)
    }

    /// Servers keep journals: they may all die at once, and come back with what is on their disks.
    pub fn with_journals(seed: u64) -> World {
        let mut world = World::with(seed, true);
        world.disks = (0..SERVERS).map(|_| Disk::default()).collect();
        world
    }

    /// The first two servers are workers of one machine, so are the next two; the last one is
    /// alone. Without faults but those that the test makes.
    pub fn paired(seed: u64) -> World {
        let mut world = World::with(seed, false);
        world.workers = 2;
        world
    }

    /// Without faults but those that the test makes.
    pub fn calm(seed: u64) -> World {
        World::with(seed, false)
    }

    fn with(seed: u64, faults: bool) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let clocks = (0..SERVERS).map(|_| draw_clock(&mut rng)).collect();
        let switches = (1..=SWITCHES).map(|id| Switch::new(id, draw_clock(&mut rng))).collect();
        let mut world = World {
            rng,
            time: 0,
            events: Events::default(),
            network: Network::new(seed),
            nodes: (0..SERVERS).map(|_| None).collect(),
            disks: Vec::new(),
            incarnations: vec![0; SERVERS],
            workers: 1,
            clocks,
            scheduled: vec![u64::MAX; SERVERS],
            controller: None,
            database: Views::default(),
            deciding: None,
            decisions: 0,
            switches,
            cut: None,
            healed: None,
            faults,
            quiet: false,
            traced: std::env::var("SIMULATION_TRACE").is_ok(),
            checks: Checks::default(),
        };
        world.network.set_conditions(if faults { FAULTY } else { CALM });
        world.checks.last_ack_of_shard = vec![0; usize::from(SHARDS)];
        world.checks.longest_gap_of_shard = vec![0; usize::from(SHARDS)];
        (0..SERVERS).for_each(|at| world.push(at as u64 * 100 * MS, Event::Restart(at)));
        (0..SWITCHES as usize).for_each(|at| world.push(0, Event::Tick(at)));
        world.push(0, Event::RestartController);
        world.push(2 * SECOND, Event::Fault);
        world
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.draw(100) < percent
    }

    pub fn draw(&mut self, below: u64) -> u64 {
        self.rng.random_range(0..below)
    }

    fn push(&mut self, at: u64, event: Event) {
        self.events.push(at, event);
    }

    pub fn run(&mut self, until: u64) {
        while let Some((at, event)) = self.events.pop_until(until) {
            self.time = at.max(self.time);
            match event {
                Event::Deliver(datagram) => self.deliver(&datagram),
                Event::Timer(at) => {
                    self.scheduled[at] = u64::MAX;
                    self.server(at, Input::Timer);
                }
                Event::ControllerTimer => self.controller(ControllerInput::Timer),
                Event::Written(number) => self.written(number),
                Event::Tick(at) => self.tick(at),
                Event::Fault => self.fault(),
                Event::Heal => self.heal(),
                Event::Restart(at) => self.restart(at),
                Event::RestartController => self.restart_controller(),
                Event::Durable(at, life, ticket) => self.durable(at, life, ticket),
            }
        }
        self.time = until;
    }

    fn restart(&mut self, at: usize) {
        if self.nodes[at].is_some() {
            return;
        }
        let now_ns = self.clocks[at].local(self.time);
        // Ticks of the wall clock, which goes on while a server is down.
        let epoch_base = 1_000 + (self.time / (250 * MS)) as u32;
        let (fresh, seed) = (self.rng.random::<u64>() | 1, self.rng.random());
        // Who starts with a log is the one that wrote it.
        let empty = self.disks.get(at).is_none_or(|disk| disk.durable.is_empty());
        self.incarnations[at] = if empty { fresh } else { self.incarnations[at] };
        let incarnation = self.incarnations[at];
        let mut node =
            store::start(server_address(at), Life { incarnation, epoch_base, seed, now_ns });
        if self.workers > 1 {
            node.set_machine(format!("machine {}", self.machine_of(at)));
        }
        let mut out = Outputs::new();
        if let Some(disk) = self.disks.get(at) {
            store::keep_journal(&mut node, now_ns, &disk.durable, &mut out);
        }
        self.nodes[at] = Some(node);
        self.after_server(at, out);
        self.server(at, Input::Timer);
    }

    fn restart_controller(&mut self) {
        if self.controller.is_none() {
            let core =
                Controller::new(controller_settings(), self.database.clone(), true, self.time);
            self.controller = Some(core);
            self.controller(ControllerInput::Timer);
        }
    }

    fn kill_controller(&mut self) {
        self.controller = None;
        // The write under way happens or not.
        if self.chance(50)
            && let Some((_, views)) = self.deciding.take()
        {
            self.database = views;
        }
        self.deciding = None;
        let pause = self.draw(600 * MS);
        self.push(self.time + pause, Event::RestartController);
    }

    pub fn kill(&mut self, at: usize) {
        self.checks.kills += 1;
        self.note(&format!("server {at} is killed"));
        self.nodes[at] = None;
        if self.disks.is_empty() {
            return;
        }
        // Of what was not durable some may be on the disk nevertheless.
        let survive = self.draw(self.disks[at].written.len() as u64 + 1) as usize;
        self.disks[at].lose_power(survive);
    }

    /// Everything dies at once.
    pub fn cut_power(&mut self) {
        self.checks.power_cuts += 1;
        for at in 0..SERVERS {
            self.kill(at);
            let pause = self.draw(700 * MS);
            self.push(self.time + pause, Event::Restart(at));
        }
        self.kill_controller();
    }

    fn durable(&mut self, at: usize, life: u64, ticket: u64) {
        if life != self.disks[at].lives {
            return;
        }
        self.disks[at].sync(ticket);
        let Some(node) = &mut self.nodes[at] else { return };
        let mut out = Outputs::new();
        node.durable(ticket, &mut out);
        self.after_server(at, out);
    }

    /// The server at that place of a shard's chain.
    pub fn member(&self, shard: usize, place: usize) -> usize {
        let member = self.database.shards[shard].members[place];
        (0..SERVERS).find(|at| server_address(*at) == member.address).unwrap()
    }

    /// Starts a server again that was killed.
    pub fn revive(&mut self, at: usize) {
        self.restart(at);
    }

    /// The machine that a server is on.
    pub fn machine_of(&self, at: usize) -> usize {
        at / self.workers
    }

    /// The members of a shard's chain, by the controller's database.
    pub fn members(&self, shard: usize) -> Vec<usize> {
        (0..self.database.shards[shard].members.len())
            .map(|place| self.member(shard, place))
            .collect()
    }

    fn runs(&self, member: &Member) -> bool {
        self.nodes.iter().flatten().any(|node| node.me() == *member)
    }

    /// Cuts links until [`World::heal`], and heals the cut before.
    pub fn cut(&mut self, cut: Cut<SocketAddrV4>) {
        self.heal();
        self.note(&format!("{cut:?}"));
        self.network.begin::<()>(&Fault::Cut(cut), u64::MAX);
        self.cut = Some(cut);
    }

    pub fn heal(&mut self) {
        if let Some(cut) = self.cut.take() {
            self.note("the cut heals");
            self.network.end_faults();
            self.healed = Some((cut, self.time));
        }
    }

    /// Whether some server with every shard's state is left if this one dies. One at an end of a
    /// link that is cut, or was a moment ago, does not count: it may be about to lose its places,
    /// and its state with them, so its partner's death would be one failure more than a chain
    /// survives (rule 10 of the controller).
    fn is_spare(&self, at: usize) -> bool {
        let Some(node) = &self.nodes[at] else { return false };
        let me = node.me();
        let views = [Some(&self.database), self.deciding.as_ref().map(|(_, views)| views)];
        views.into_iter().flatten().all(|views| {
            let healed =
                self.healed.filter(|(_, at_ns)| self.time < at_ns + SECOND).map(|(cut, _)| cut);
            let cut = |member: &Member| {
                self.cut.iter().chain(&healed).any(|cut| cut.names(&member.address))
            };
            let survives = |member: &Member| *member != me && self.runs(member) && !cut(member);
            views
                .shards
                .iter()
                .all(|shard| shard.members.is_empty() || shard.members.iter().any(survives))
        })
    }

    /// Kills a server, cuts a link or a machine off, or kills the controller.
    fn fault(&mut self) {
        if self.quiet || !self.faults {
            return;
        }
        let pause = self.draw(500 * MS);
        self.push(self.time + 50 * MS + pause, Event::Fault);
        let at = self.draw(SERVERS as u64) as usize;
        match self.draw(10) {
            0 if !self.disks.is_empty() => self.cut_power(),
            0..=3 if !self.disks.is_empty() || self.is_spare(at) => {
                self.kill(at);
                let pause = self.draw(1_500 * MS);
                self.push(self.time + pause, Event::Restart(at));
            }
            4..=7 => {
                let peer = match self.draw(10) {
                    0..=1 => Some(controller_address()),
                    2..=8 => Some(server_address(
                        (at + 1 + self.draw(SERVERS as u64 - 1) as usize) % SERVERS,
                    )),
                    _ => None,
                };
                let direction = match self.draw(4) {
                    0 => Direction::Into,
                    1 => Direction::OutOf,
                    _ => Direction::Both,
                };
                self.cut(Cut { machine: server_address(at), peer, direction });
                let pause = self.draw(900 * MS);
                self.push(self.time + pause, Event::Heal);
            }
            8 => self.kill_controller(),
            _ => {}
        }
    }

    /// A switch's next turn.
    pub fn tick_after(&mut self, pause: u64, at: usize) {
        self.push(self.time + pause, Event::Tick(at));
    }

    pub fn transmit(&mut self, datagram: Datagram) {
        for at in self.network.send(self.time, datagram.from, datagram.to, Treatment::default()) {
            self.push(at, Event::Deliver(datagram.clone()));
        }
    }

    fn deliver(&mut self, datagram: &Datagram) {
        let (from, bytes) = (datagram.from, datagram.bytes.as_slice());
        if datagram.to == controller_address() {
            return self.controller(ControllerInput::Datagram { from, bytes });
        }
        if let Some(at) = (0..SERVERS).find(|at| server_address(*at) == datagram.to) {
            return self.server(at, Input::Datagram { from, bytes });
        }
        // What the controller answers is for agents, which these switches have none of.
        if Control::decode(bytes).is_ok() {
            return;
        }
        let at = (0..SWITCHES).find(|at| switch_address(at + 1) == datagram.to).unwrap();
        self.switch_receives(at as usize, bytes);
    }

    fn controller(&mut self, input: ControllerInput<'_>) {
        let now = self.time;
        let Some(controller) = &mut self.controller else { return };
        let mut out = ControllerOutputs::default();
        let timer = matches!(input, ControllerInput::Timer);
        controller.handle(now, input, &mut out);
        let deadline = controller.next_deadline();
        if timer {
            self.push(deadline.max(now + 1), Event::ControllerTimer);
        }
        for event in out.events {
            if self.traced {
                eprintln!("{:>9} {event:?}", now / 1000);
            }
            if let Decision::Decided { why, .. } = event {
                self.checks.joins += u64::from(why == Why::Joined);
                self.checks.reorders += u64::from(why == Why::Reordered);
                self.checks.moves += u64::from(why == Why::Moved);
                self.checks.given_up += u64::from(why == Why::JoinGivenUp);
                assert_ne!(why, Why::StateLost, "at {now}");
            }
        }
        if let Some(views) = out.persist {
            assert!(self.deciding.is_none());
            assert!(views.version > self.database.version);
            self.decisions += 1;
            self.deciding = Some((self.decisions, views));
            let delay = self.draw(20 * MS);
            self.push(now + delay, Event::Written(self.decisions));
        }
        for (to, mut bytes) in out.datagrams {
            keys().sign(&mut bytes, *controller_address().ip(), *to.ip());
            self.transmit(Datagram { from: controller_address(), to, bytes });
        }
    }

    fn written(&mut self, number: u64) {
        if self.deciding.as_ref().is_some_and(|(deciding, _)| *deciding == number)
            && let Some((_, views)) = self.deciding.take()
        {
            self.check_machines(&views);
            self.database = views;
            self.controller(ControllerInput::Persisted);
        }
    }

    fn server(&mut self, at: usize, input: Input<'_>) {
        let Some(node) = &mut self.nodes[at] else { return };
        let (now, mut out) = (self.clocks[at].local(self.time), Outputs::new());
        match input {
            Input::Datagram { from, bytes } => store::datagram(node, now, from, bytes, &mut out),
            Input::Timer => store::timer(node, now, &mut out),
        }
        self.after_server(at, out);
    }

    /// Writes what a server wants written, sends what it wants sent.
    fn after_server(&mut self, at: usize, mut out: Outputs) {
        let now = self.clocks[at].local(self.time);
        if let Some(node) = &mut self.nodes[at] {
            node.flush(now, &mut out);
        }
        while !out.journal.is_empty() {
            let (ticket, bytes) = (out.ticket, std::mem::take(&mut out.journal));
            self.disks[at].write(ticket, bytes);
            if !std::mem::take(&mut out.barrier) {
                let delay = 10_000 + self.draw(10 * MS);
                self.push(self.time + delay, Event::Durable(at, self.disks[at].lives, ticket));
                continue;
            }
            // The shell waits; in the world's time that is an instant.
            self.disks[at].sync(ticket);
            if let Some(node) = &mut self.nodes[at] {
                node.durable(ticket, &mut out);
                node.flush(now, &mut out);
            }
        }
        let Some(node) = &self.nodes[at] else { return };
        let deadline = node.next_deadline();
        let from = server_address(at);
        if self.traced {
            out.events
                .iter()
                .for_each(|event| eprintln!("{:>9} server {at}: {event:?}", self.time / 1000));
        }
        for event in &out.events {
            assert!(
                !matches!(event, chain::Event::Broken(_)),
                "server {at}: {event:?} at {}",
                self.time
            );
        }
        let sent: Vec<_> =
            out.datagrams().map(|(to, b)| Datagram { from, to, bytes: b.to_vec() }).collect();
        for datagram in sent {
            self.said(at, &datagram.bytes);
            self.transmit(datagram);
        }
        if let Some(next) = deadline {
            let next = self.clocks[at].time(next).max(self.time + 1);
            if next < self.scheduled[at] {
                self.scheduled[at] = next;
                self.push(next, Event::Timer(at));
            }
        }
    }
}
