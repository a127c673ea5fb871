//! The simulated cluster: machines with their clocks, the network, faults, and what must hold.
#![allow(dead_code)]

mod switch;

use controller::core::{Controller, Event as Decision, Input as ControllerInput, Outputs as ControllerOutputs, Why};
use state_protocol::{Control, KeyRing, Member, Message, MessageType, Owner, SECRET_BYTES, Secret, Views, shard_of};
use state_store::core::{
    AllocatorSettings, Input, Limits, Node, ObjectSettings, Outputs, Restored, Settings, SplitMix64, Start,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use switch::Switch;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
pub const SHARDS: u16 = 4;
pub const SERVERS: usize = 5;
pub const SWITCHES: u32 = 3;
pub const COUNTER: u16 = 1;
const LEASE_US: u32 = 100_000;

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

/// A machine's clock: starts anywhere, runs up to 450 ppm fast or slow (any two differ by less than the store's 1000 ppm).
#[derive(Clone, Copy)]
pub struct Clock {
    offset: u64,
    ppm: i64,
}

impl Clock {
    fn draw(rng: &mut SplitMix64) -> Clock {
        Clock { offset: SECOND + rng.draw() % (100 * SECOND), ppm: (rng.draw() % 901) as i64 - 450 }
    }

    pub fn local(&self, time: u64) -> u64 {
        self.offset + (time as i128 + time as i128 * self.ppm as i128 / 1_000_000) as u64
    }

    /// The first true time at which the clock shows `local` or more.
    fn time(&self, local: u64) -> u64 {
        let mut time = (local.saturating_sub(self.offset) as i128 * 1_000_000 / (1_000_000 + self.ppm as i128)) as u64;
        while self.local(time) < local {
            time += 1;
        }
        time
    }
}

fn settings() -> Settings {
    Settings {
        shards: SHARDS,
        lease_us: LEASE_US,
        clock_drift_ppm: 1_000,
        lease_margin_us: 1_000,
        shard: 0,
        hold_ns: 200 * MS,
        tenure_ns: 2 * MS,
        recall_resend_ns: 5 * MS,
        resend_ns: 10 * MS,
        chain_datagram_bytes: 1_400,
        limits: Limits {
            records: 1_000,
            sessions: 64,
            held: 64,
            held_per_flow: 16,
            held_bytes: 1 << 16,
            unacked: 256,
            unacked_bytes: 1 << 20,
        },
        objects: vec![ObjectSettings {
            name: "counter".to_owned(),
            id: COUNTER,
            key_bytes: 4,
            value_bytes: 8,
            allocator: AllocatorSettings::Zero { idle_ns: None },
            closed_ns: 240 * SECOND,
        }],
    }
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

/// A machine's link, or the one between two machines, is cut.
#[derive(Clone, Copy)]
pub struct Cut {
    pub one: SocketAddrV4,
    /// Its link to this one only.
    pub other: Option<SocketAddrV4>,
    /// What `one` sends is lost.
    pub out_of: bool,
    /// What is sent to `one` is lost.
    pub into: bool,
}

/// A datagram on its way.
#[derive(Clone)]
pub struct Datagram {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub bytes: Vec<u8>,
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

/// What a server that keeps a journal has on its disk, and what it wrote that may get lost.
#[derive(Default)]
struct Disk {
    incarnation: u64,
    durable: Vec<u8>,
    written: VecDeque<(u64, Vec<u8>)>,
    lives: u64,
}

/// What must hold, over all of a run.
#[derive(Default, Debug)]
pub struct Checks {
    granted: HashMap<(Vec<u8>, u32), Owner>,
    last_owner: HashMap<Vec<u8>, Owner>,
    released: HashMap<Vec<u8>, u64>,
    writes: HashMap<(Vec<u8>, u64), (Owner, u32, u64)>,
    acknowledged: HashMap<Vec<u8>, (u32, u64)>,
    pub acks: u64,
    pub handovers: u64,
    pub kills: u64,
    pub power_cuts: u64,
    pub joins: u64,
    pub moves: u64,
    pub reorders: u64,
    pub given_up: u64,
    pub last_ack_of_shard: Vec<u64>,
    pub longest_gap_of_shard: Vec<u64>,
}

pub struct World {
    rng: SplitMix64,
    pub time: u64,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: HashMap<u64, Event>,
    next_event: u64,
    nodes: Vec<Option<Node>>,
    /// Empty: servers keep no journals.
    disks: Vec<Disk>,
    /// Servers of a machine.
    workers: usize,
    clocks: Vec<Clock>,
    scheduled: Vec<u64>,
    controller: Option<Controller>,
    /// What the controller's database has.
    database: Views,
    deciding: Option<(u64, Views)>,
    decisions: u64,
    switches: Vec<Switch>,
    pub cut: Option<Cut>,
    faults: bool,
    quiet: bool,
    traced: bool,
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

    /// The first two servers are workers of one machine, so are the next two; the last one is alone. Without faults but those that the test makes.
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
        let mut rng = SplitMix64::new(seed);
        let clocks = (0..SERVERS).map(|_| Clock::draw(&mut rng)).collect();
        let switches = (1..=SWITCHES).map(|id| Switch::new(id, Clock::draw(&mut rng))).collect();
        let mut world = World {
            rng,
            time: 0,
            events: BinaryHeap::new(),
            pending: HashMap::new(),
            next_event: 0,
            nodes: (0..SERVERS).map(|_| None).collect(),
            disks: Vec::new(),
            workers: 1,
            clocks,
            scheduled: vec![u64::MAX; SERVERS],
            controller: None,
            database: Views::default(),
            deciding: None,
            decisions: 0,
            switches,
            cut: None,
            faults,
            quiet: false,
            traced: std::env::var("SIMULATION_TRACE").is_ok(),
            checks: Checks::default(),
        };
        world.checks.last_ack_of_shard = vec![0; usize::from(SHARDS)];
        world.checks.longest_gap_of_shard = vec![0; usize::from(SHARDS)];
        (0..SERVERS).for_each(|at| world.push(at as u64 * 100 * MS, Event::Restart(at)));
        (0..SWITCHES as usize).for_each(|at| world.push(0, Event::Tick(at)));
        world.push(0, Event::RestartController);
        world.push(2 * SECOND, Event::Fault);
        world
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.rng.draw() % 100 < percent
    }

    pub fn draw(&mut self, below: u64) -> u64 {
        self.rng.draw() % below
    }

    fn push(&mut self, at: u64, event: Event) {
        self.next_event += 1;
        self.pending.insert(self.next_event, event);
        self.events.push(Reverse((at, self.next_event)));
    }

    pub fn run(&mut self, until: u64) {
        while let Some(&Reverse((at, id))) = self.events.peek() {
            if at > until {
                break;
            }
            self.events.pop();
            self.time = at.max(self.time);
            match self.pending.remove(&id).unwrap() {
                Event::Deliver(datagram) => self.deliver(&datagram),
                Event::Timer(at) => {
                    self.scheduled[at] = u64::MAX;
                    self.server(at, Input::Timer);
                }
                Event::ControllerTimer => self.controller(ControllerInput::Timer),
                Event::Written(number) => self.written(number),
                Event::Tick(at) => self.tick(at),
                Event::Fault => self.fault(),
                Event::Heal => self.cut = None,
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
        let (fresh, seed) = (self.rng.draw() | 1, self.rng.draw());
        let mut incarnation = fresh;
        if let Some(disk) = self.disks.get_mut(at) {
            if disk.durable.is_empty() {
                disk.incarnation = fresh;
            }
            incarnation = disk.incarnation;
        }
        let start = Start { incarnation, epoch_base, seed, now_ns };
        let mut node = Node::new(settings(), start, keys(), server_address(at), vec![controller_address()]);
        if self.workers > 1 {
            node.set_machine(format!("machine {}", self.machine_of(at)));
        }
        let mut out = Outputs::new();
        if let Some(disk) = self.disks.get(at) {
            let mut restored = Restored::new(settings().objects, SHARDS);
            restored.read(&disk.durable).unwrap();
            let restored = (!disk.durable.is_empty()).then_some(restored);
            node.keep_journal(now_ns, restored, &mut out);
        }
        self.nodes[at] = Some(node);
        self.after_server(at, out);
        self.server(at, Input::Timer);
    }

    fn restart_controller(&mut self) {
        if self.controller.is_none() {
            let core = Controller::new(controller_settings(), self.database.clone(), true, self.time);
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
        self.nodes[at] = None;
        if self.disks.is_empty() {
            return;
        }
        // Of what was not durable some may be on the disk nevertheless.
        let survive = self.draw(self.disks[at].written.len() as u64 + 1) as usize;
        let disk = &mut self.disks[at];
        disk.lives += 1;
        let written = std::mem::take(&mut disk.written);
        disk.durable.extend(written.into_iter().take(survive).flat_map(|(_, bytes)| bytes));
    }

    /// Everything dies at once.
    fn cut_power(&mut self) {
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
        self.sync(at, ticket);
        let Some(node) = &mut self.nodes[at] else { return };
        let mut out = Outputs::new();
        node.durable(ticket, &mut out);
        self.after_server(at, out);
    }

    fn sync(&mut self, at: usize, ticket: u64) {
        let disk = &mut self.disks[at];
        while disk.written.front().is_some_and(|(written, _)| *written <= ticket) {
            disk.durable.extend(disk.written.pop_front().unwrap().1);
        }
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

    /// No chain has two servers of one machine, and none gets one.
    fn check_machines(&self, views: &Views) {
        for shard in &views.shards {
            let named = shard.members.iter().copied().chain(shard.joining.map(|joining| joining.member));
            let on = |member: Member| (0..SERVERS).find(|at| server_address(*at) == member.address).unwrap();
            let mut machines: Vec<_> = named.map(|member| self.machine_of(on(member))).collect();
            machines.sort_unstable();
            assert!(machines.windows(2).all(|pair| pair[0] != pair[1]), "{shard:?}");
        }
    }

    /// The members of a shard's chain, by the controller's database.
    pub fn members(&self, shard: usize) -> Vec<usize> {
        (0..self.database.shards[shard].members.len()).map(|place| self.member(shard, place)).collect()
    }

    fn runs(&self, member: &Member) -> bool {
        self.nodes.iter().flatten().any(|node| node.me() == *member)
    }

    /// Whether some server with every shard's state is left if this one dies. One that is cut off does not count: it may be about to lose its places, and its state with
    /// them, so its partner's death would be one failure more than a chain survives (docs/state-protocol.md, "Rules of the controller", 10).
    fn is_spare(&self, at: usize) -> bool {
        let Some(node) = &self.nodes[at] else { return false };
        let me = node.me();
        let views = [Some(&self.database), self.deciding.as_ref().map(|(_, views)| views)];
        views.into_iter().flatten().all(|views| {
            let cut = |member: &Member| self.cut.is_some_and(|cut| cut.one == member.address);
            let survives = |member: &Member| *member != me && self.runs(member) && !cut(member);
            views.shards.iter().all(|shard| shard.members.is_empty() || shard.members.iter().any(survives))
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
                let other = match self.draw(10) {
                    0..=1 => Some(controller_address()),
                    2..=8 => Some(server_address((at + 1 + self.draw(SERVERS as u64 - 1) as usize) % SERVERS)),
                    _ => None,
                };
                let way = self.draw(4);
                self.cut = Some(Cut { one: server_address(at), other, out_of: way != 0, into: way != 1 });
                let pause = self.draw(900 * MS);
                self.push(self.time + pause, Event::Heal);
            }
            8 => self.kill_controller(),
            _ => {}
        }
    }

    fn is_cut(&self, datagram: &Datagram) -> bool {
        self.cut.is_some_and(|cut| {
            let between = |from: Option<SocketAddrV4>, to: Option<SocketAddrV4>| {
                from.is_none_or(|from| from == datagram.from) && to.is_none_or(|to| to == datagram.to)
            };
            cut.out_of && between(Some(cut.one), cut.other) || cut.into && between(cut.other, Some(cut.one))
        })
    }

    pub fn transmit(&mut self, datagram: Datagram) {
        let bad = self.faults && !self.quiet;
        if !self.quiet && self.is_cut(&datagram) || bad && self.chance(3) {
            return;
        }
        let copies = if bad && self.chance(3) { 2 } else { 1 };
        for _ in 0..copies {
            let slow = if bad && self.chance(2) { 80 * MS } else { MS };
            let delay = 20_000 + self.draw(slow);
            self.push(self.time + delay, Event::Deliver(datagram.clone()));
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
        let mut out = Outputs::new();
        node.handle(self.clocks[at].local(self.time), input, &mut out);
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
            self.disks[at].written.push_back((ticket, bytes));
            if !std::mem::take(&mut out.barrier) {
                let delay = 10_000 + self.draw(10 * MS);
                self.push(self.time + delay, Event::Durable(at, self.disks[at].lives, ticket));
                continue;
            }
            // The shell waits; in the world's time that is an instant.
            self.sync(at, ticket);
            if let Some(node) = &mut self.nodes[at] {
                node.durable(ticket, &mut out);
                node.flush(now, &mut out);
            }
        }
        let Some(node) = &self.nodes[at] else { return };
        let deadline = node.next_deadline();
        let from = server_address(at);
        if self.traced {
            out.events.iter().for_each(|event| eprintln!("{:>9} server {at}: {event:?}", self.time / 1000));
        }
        for event in &out.events {
            assert!(!matches!(event, state_store::core::Event::Broken(_)), "server {at}: {event:?} at {}", self.time);
        }
        let sent: Vec<_> = out.datagrams().map(|(to, b)| Datagram { from, to, bytes: b.to_vec() }).collect();
        for datagram in sent {
            if let Ok(reply) = Message::decode(&datagram.bytes) {
                self.trace(&format!("server {at} says"), &reply);
                self.check_reply(&reply);
            }
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

    /// `SIMULATION_TRACE=flow` prints everything about that flow, and all events and decisions.
    pub fn trace(&self, what: &str, message: &Message<'_>) {
        if !self.traced {
            return;
        }
        let flow = std::env::var("SIMULATION_TRACE").ok().and_then(|flow| flow.parse().ok());
        if flow.is_some_and(|flow: u8| message.key.last() == Some(&flow)) {
            let Message { message_type, sender, request_ns, epoch, seq, lease_us, session, flags, .. } = message;
            eprintln!(
                "{:>9} {what}: {message_type:?} {sender:?} sent {request_ns} epoch {epoch} seq {seq} lease {lease_us} session {session} {flags:?}",
                self.time / 1000
            );
        }
    }

    /// Invariants on what the store says, when it says it.
    fn check_reply(&mut self, reply: &Message<'_>) {
        let key = reply.key.to_vec();
        match reply.message_type {
            MessageType::LeaseGrant => {
                let owner = *self.checks.granted.entry((key.clone(), reply.epoch)).or_insert(reply.sender);
                assert_eq!(owner, reply.sender, "epoch {} of {key:?} granted twice", reply.epoch);
                let before = self.checks.last_owner.insert(key, reply.sender);
                self.checks.handovers += u64::from(before.is_some_and(|before| before != reply.sender));
                self.check_everywhere(reply);
            }
            MessageType::UpdateAck => {
                self.checks.acks += 1;
                let shard = usize::from(reply.shard);
                let gap = self.time - self.checks.last_ack_of_shard[shard];
                self.checks.last_ack_of_shard[shard] = self.time;
                self.checks.longest_gap_of_shard[shard] = self.checks.longest_gap_of_shard[shard].max(gap);
                let newest = self.checks.acknowledged.entry(key).or_default();
                *newest = (*newest).max((reply.epoch, reply.seq));
                self.check_everywhere(reply);
            }
            _ => {}
        }
    }

    /// What is answered is on every server that the controller's database counts on.
    fn check_everywhere(&self, reply: &Message<'_>) {
        for member in &self.database.shards[usize::from(reply.shard)].members {
            let Some(node) = self.nodes.iter().flatten().find(|node| node.me() == *member) else { continue };
            let recorded = node.replica(reply.shard).and_then(|replica| {
                let record = replica.records().get(replica.records().find(0, reply.key)?);
                Some((record.epoch, record.seq))
            });
            let answered = Some((reply.epoch, reply.seq));
            assert!(recorded >= answered, "{:?}: {answered:?} answered, {recorded:?} at {member:?}", reply.key);
        }
    }

    /// The network heals, the switches fall silent: every shard has its full chain, all servers of it are alike, and nothing acknowledged is missing.
    pub fn finish(&mut self, until: u64) {
        self.quiet = true;
        self.cut = None;
        (0..SERVERS).for_each(|at| self.restart(at));
        self.restart_controller();
        self.run(until);
        for (shard, view) in self.database.shards.iter().enumerate() {
            assert_eq!((view.members.len(), view.joining), (3, None), "shard {shard}: {view:?}");
            let node = |member: &Member| self.nodes.iter().flatten().find(|node| node.me() == *member).unwrap();
            let replicas: Vec<_> = view.members.iter().map(|m| node(m).replica(shard as u16).unwrap()).collect();
            let digests: Vec<_> = replicas.iter().map(|replica| replica.records().shared_digest()).collect();
            assert!(digests.iter().all(|digest| *digest == digests[0]), "shard {shard} differs: {digests:?}");
            for replica in &replicas {
                let report = replica.report(0);
                assert!(report.ready && report.view == view.number, "shard {shard}: {report:?}");
            }
            for (key, answered) in &self.checks.acknowledged {
                if usize::from(shard_of(key, SHARDS)) == shard {
                    let records = replicas[0].records();
                    let record = records.get(records.find(0, key).expect("acknowledged, yet gone"));
                    assert!((record.epoch, record.seq) >= *answered, "{key:?}: {answered:?}");
                }
            }
        }
        for node in self.nodes.iter().flatten() {
            assert_eq!(node.views().version, self.database.version);
        }
    }
}
