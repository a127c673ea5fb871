//! A chain of three servers and three model switches on a network that loses, repeats, delays,
//! reorders, cuts, replays and forges, with clocks that start at different times and run at
//! different rates. Everything follows from one seed.
//!
//! Of every four seeds one has no switch that sends batches, and the others one, two and three.

mod checks;

use crate::common::switch::{Key, Packet, Switch};
use crate::common::*;
use checks::Checks;
use fast_chain::{Memory, Verdict};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Clock, Conditions, Cut, Direction, Disk, Events, Fault, Network, Treatment};
use state_protocol::{Message, Owner};
use state_store::core::{AllocatorSettings, Input, Outputs, Settings};
use std::net::SocketAddrV4;
use std::sync::Arc;
use wire::BatchAck;

const SWITCHES: u32 = 3;
const RUN: u64 = 6 * SECOND;
const NAT_HOSTS: u8 = 6;
const FAULTY: Conditions = Conditions {
    loss: 0.05,
    duplication: 0.05,
    delay_min_ns: 20_000,
    delay_max_ns: 2 * MS,
    stragglers: 0.02,
    straggle_ns: 80 * MS,
    ..Conditions::GOOD
};

/// A clock that starts anywhere; any two differ by less than the store's 1000 ppm.
fn draw_clock(rng: &mut StdRng) -> Clock {
    Clock::new(rng.random_range(0..100 * SECOND), rng.random_range(-450..=450))
}

enum Event {
    Deliver(Datagram),
    Timer(usize),
    Tick(usize),
    Cut,
    Heal,
    /// A server's disk has everything up to this ticket, if it did not lose power since.
    Durable(usize, u64, u64),
    PowerCut,
}

struct World {
    rng: StdRng,
    time: u64,
    events: Events<Event>,
    /// Between the machines at these addresses.
    network: Network<SocketAddrV4>,
    servers: Vec<Server>,
    clocks: Vec<Clock>,
    scheduled: Vec<u64>,
    switches: Vec<Switch>,
    switch_clocks: Vec<Clock>,
    /// Datagrams that the adversary has kept.
    kept: Vec<Datagram>,
    /// Of servers that keep a journal.
    disks: Vec<Disk>,
    phase: Phase,
    checks: Checks,
}

/// How much goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Faults, and packets at all switches.
    Faults,
    /// No faults; switches only do what they do of themselves.
    Calm,
    /// Switches are gone.
    Silent,
}

impl World {
    fn new(seed: u64, power_cuts: bool) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let clocks: Vec<_> = (0..3).map(|_| draw_clock(&mut rng)).collect();
        let (mut servers, mut disks) = (Vec::new(), Vec::new());
        for (at, clock) in clocks.iter().enumerate() {
            let start = start(at as u64 + 1, clock.local(0));
            if power_cuts {
                let (server, durable) =
                    Server::founding_with_journal(world_settings(), start, at, 3);
                servers.push(server);
                disks.push(Disk { durable, ..Disk::default() });
            } else {
                let memory = fast_memory(seed, at);
                servers.push(Server::founding_with(world_settings(), start, at, 3, memory));
            }
        }
        let batching = (seed % 4) as u32;
        let switches =
            (1..=SWITCHES).map(|id| Switch::of_kind(owner(id, 1), id <= batching)).collect();
        let switch_clocks = (1..=SWITCHES).map(|_| draw_clock(&mut rng)).collect();
        let mut world = World {
            rng,
            time: 0,
            events: Events::default(),
            network: Network::new(seed),
            servers,
            clocks,
            scheduled: vec![u64::MAX; 3],
            switches,
            switch_clocks,
            kept: Vec::new(),
            disks,
            phase: Phase::Faults,
            checks: Checks::default(),
        };
        world.network.set_conditions(FAULTY);
        (0..3).for_each(|at| world.push(0, Event::Timer(at)));
        (0..SWITCHES as usize).for_each(|at| world.push(0, Event::Tick(at)));
        world.push(SECOND, Event::Cut);
        if power_cuts {
            world.push(SECOND, Event::PowerCut);
        }
        world
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.draw(100) < percent
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.rng.random_range(0..below)
    }

    fn push(&mut self, at: u64, event: Event) {
        self.events.push(at, event);
    }

    fn run(&mut self, until: u64) {
        while let Some((at, event)) = self.events.pop_until(until) {
            self.time = at.max(self.time);
            match event {
                Event::Deliver(datagram) => self.deliver(&datagram),
                Event::Timer(at) => {
                    self.scheduled[at] = u64::MAX;
                    self.server(at, Input::Timer);
                }
                Event::Tick(at) => self.tick(at),
                Event::Durable(at, life, ticket) => self.durable(at, life, ticket),
                Event::PowerCut => self.cut_power(),
                Event::Cut => self.cut_something(),
                Event::Heal => {
                    let pause = self.draw(300 * MS);
                    self.push(self.time + pause, Event::Cut);
                }
            }
        }
        self.time = until;
    }

    /// Cuts a link of the chain, or all links of one machine.
    fn cut_something(&mut self) {
        if self.phase != Phase::Faults {
            return;
        }
        let one = self.draw(3) as usize;
        let peer = self.chance(50).then(|| server_address((one + 1) % 3));
        let cut = Cut { machine: server_address(one), peer, direction: Direction::Both };
        let until = self.time + self.draw(250 * MS);
        self.network.begin::<()>(&Fault::Cut(cut), until);
        self.push(until, Event::Heal);
    }

    fn transmit(&mut self, datagram: Datagram) {
        if self.phase == Phase::Faults {
            self.adversary(&datagram);
        }
        for at in self.network.send(self.time, datagram.from, datagram.to, Treatment::default()) {
            self.push(at, Event::Deliver(datagram.clone()));
        }
    }

    /// Keeps datagrams and sends them again at any later time; sends others that are not genuine.
    fn adversary(&mut self, datagram: &Datagram) {
        if self.chance(3) {
            self.kept.push(datagram.clone());
        }
        if self.chance(3) && !self.kept.is_empty() {
            let at = self.draw(self.kept.len() as u64) as usize;
            let delay = self.draw(3 * SECOND);
            self.checks.replayed += 1;
            self.push(self.time + delay, Event::Deliver(self.kept[at].clone()));
        }
        if self.chance(3) {
            let mut forged = datagram.clone();
            let (at, bit) = (self.draw(forged.bytes.len() as u64) as usize, self.draw(8));
            forged.bytes[at] ^= 1 << bit;
            self.forge(forged);
            self.forge(Datagram { from: switch_address(9), ..datagram.clone() });
        }
    }

    /// Delivers what is not genuine: nothing may change, and nothing be answered.
    fn forge(&mut self, datagram: Datagram) {
        let Some(at) = (0..3).find(|at| server_address(*at) == datagram.to) else { return };
        self.checks.forged += 1;
        let now = self.clocks[at].local(self.time);
        let server = &mut self.servers[at];
        server.node.take_changes();
        let before = server.digest();
        let mut out = Outputs::new();
        let (from, to) = (datagram.from, datagram.to);
        let verdict = server.program(from, &datagram.bytes);
        assert!(!matches!(verdict, Verdict::Send { .. }), "forged, and taken by the program");
        assert!(keys().verify(&datagram.bytes, *from.ip(), *to.ip()).is_err());
        server.handle(now, Input::Datagram { from, bytes: &datagram.bytes }, &mut out);
        assert!(
            server.digest() == before && out.is_empty(),
            "{:02x?} had an effect",
            datagram.bytes
        );
    }

    fn deliver(&mut self, datagram: &Datagram) {
        let input = Input::Datagram { from: datagram.from, bytes: &datagram.bytes };
        if let Some(at) = (0..3).find(|at| server_address(*at) == datagram.to) {
            // Now and then user space is at work on the shard.
            let is_busy = self.chance(10);
            let verdict = match is_busy {
                true => Verdict::Other,
                false => self.servers[at].program(datagram.from, &datagram.bytes),
            };
            return match verdict {
                Verdict::Send { to, datagram: sent } => {
                    self.note_taken(&datagram.bytes);
                    self.program_sends(at, to, sent)
                }
                Verdict::Other | Verdict::Pass(_) => self.server(at, input),
            };
        }
        let at = (0..SWITCHES as usize)
            .find(|at| switch_address(*at as u32 + 1) == datagram.to)
            .unwrap();
        if self.phase == Phase::Silent {
            return;
        }
        assert_eq!(keys().verify(&datagram.bytes, *datagram.from.ip(), *datagram.to.ip()), Ok(()));
        let now = self.local(at);
        match BatchAck::decode(&datagram.bytes) {
            Ok(ack) => self.switches[at].receive_ack(now, &ack),
            Err(_) => self.switches[at].receive(now, &Message::decode(&datagram.bytes).unwrap()),
        }
        self.after_switch(at);
    }

    /// A server's program sends a batch on, or its answer.
    fn program_sends(&mut self, at: usize, to: SocketAddrV4, bytes: Vec<u8>) {
        if let Ok(ack) = BatchAck::decode(&bytes) {
            self.check_batch_ack(&ack);
        }
        self.transmit(Datagram { from: server_address(at), to, bytes });
    }

    fn local(&self, at: usize) -> u64 {
        self.switch_clocks[at].local(self.time)
    }

    /// Sends what a switch wants sent, and sees to the packets that came back.
    fn after_switch(&mut self, at: usize) {
        self.check_owners();
        for packet in std::mem::take(&mut self.switches[at].packets) {
            match packet {
                Packet::Parked(key) => self.packet(at, &key),
                Packet::Output(key, epoch, content) => {
                    if let Some((kind, count)) = content.split_first() {
                        self.output(at, &key.1, epoch, *kind == 1, count_of(count));
                    }
                }
            }
        }
        let from = switch_address(at as u32 + 1);
        for mut bytes in std::mem::take(&mut self.switches[at].out) {
            self.note_batch(&bytes);
            assert!(keys().sign(&mut bytes, *from.ip(), *server_address(0).ip()));
            self.transmit(Datagram { from, to: server_address(0), bytes });
        }
    }

    /// A packet at a switch.
    fn packet(&mut self, at: usize, key: &Key) {
        if self.phase == Phase::Silent {
            return;
        }
        let (now, write) = (self.local(at), self.phase == Phase::Faults && self.chance(50));
        if let Some(value) = self.switches[at].packet(now, key, write) {
            self.leaves(&key.1, count_of(&value), true);
        }
    }

    fn server(&mut self, at: usize, input: Input<'_>) {
        let mut out = Outputs::new();
        let now = self.clocks[at].local(self.time);
        self.servers[at].handle(now, input, &mut out);
        self.after_server(at, out);
    }

    /// Writes what a server wants written, sends what it wants sent.
    fn after_server(&mut self, at: usize, mut out: Outputs) {
        let now = self.clocks[at].local(self.time);
        self.servers[at].flush(now, &mut out);
        while !out.journal.is_empty() {
            let (ticket, bytes) = (out.ticket, std::mem::take(&mut out.journal));
            self.disks[at].write(ticket, bytes);
            if std::mem::take(&mut out.barrier) {
                // The shell waits; in the world's time that is an instant.
                self.disks[at].sync(ticket);
                self.servers[at].node.durable(ticket, &mut out);
                self.servers[at].flush(now, &mut out);
            } else {
                let delay = self.draw(15 * MS) + 10_000;
                self.push(self.time + delay, Event::Durable(at, self.disks[at].lives, ticket));
            }
        }
        let from = server_address(at);
        let sent: Vec<_> =
            out.datagrams().map(|(to, b)| Datagram { from, to, bytes: b.to_vec() }).collect();
        for datagram in sent {
            if let Ok(reply) = Message::decode(&datagram.bytes) {
                self.take_changes();
                self.check_reply(&reply);
            } else if let Ok(ack) = BatchAck::decode(&datagram.bytes) {
                self.check_batch_ack(&ack);
            }
            self.transmit(datagram);
        }
        if let Some(next) = self.servers[at].next_deadline() {
            let next = self.clocks[at].time(next).max(self.time + 1);
            if next < self.scheduled[at] {
                self.scheduled[at] = next;
                self.push(next, Event::Timer(at));
            }
        }
    }

    fn durable(&mut self, at: usize, life: u64, ticket: u64) {
        if life != self.disks[at].lives {
            return;
        }
        self.disks[at].sync(ticket);
        let mut out = Outputs::new();
        self.servers[at].node.durable(ticket, &mut out);
        self.after_server(at, out);
    }

    /// All servers, or one, lose power: what was not durable is gone, but for some of what was
    /// written first.
    fn cut_power(&mut self) {
        if self.phase != Phase::Faults {
            return;
        }
        let one = self.chance(30).then(|| self.draw(3) as usize);
        self.checks.power_cuts += 1;
        for at in (0..3).filter(|at| one.is_none_or(|one| one == *at)) {
            let survive = self.draw((self.disks[at].written.len() + 1) as u64) as usize;
            self.disks[at].lose_power(survive);
            let now = self.clocks[at].local(self.time);
            if self.chance(50) {
                // A checkpoint in the place of all that was written before.
                let start = start(at as u64 + 1, now);
                let mut out = Outputs::new();
                let mut server = Server::restored(
                    world_settings(),
                    start,
                    at,
                    &self.disks[at].durable,
                    &mut Outputs::new(),
                );
                server.node.checkpoint_views(&mut out);
                server.node.checkpoint(0);
                server.flush(now, &mut out);
                self.disks[at].durable = out.journal;
            }
            let mut out = Outputs::new();
            let start = start(at as u64 + 1, now);
            self.servers[at] =
                Server::restored(world_settings(), start, at, &self.disks[at].durable, &mut out);
            self.scheduled[at] = u64::MAX;
            self.after_server(at, out);
        }
        let pause = self.draw(900 * MS);
        self.push(self.time + pause, Event::PowerCut);
    }

    fn tick(&mut self, at: usize) {
        if self.phase == Phase::Silent {
            return;
        }
        let pause = self.draw(6 * MS) + 1;
        self.push(self.time + pause, Event::Tick(at));
        let now = self.local(at);
        if self.phase == Phase::Faults {
            if self.draw(1_000) == 0 {
                let Owner { switch_id, incarnation } = self.switches[at].owner;
                let batching = self.switches[at].batching();
                self.switches[at] = Switch::of_kind(owner(switch_id, incarnation + 1), batching);
            }
            let key = self.draw_key(at);
            self.packet(at, &key);
        }
        if self.phase == Phase::Calm || self.chance(25) {
            let close = self.chance(50);
            self.switches[at].maintain(now, close);
        }
        self.after_switch(at);
    }

    /// Flows have a favourite switch that changes now and then, so that there is both: quiet
    /// possession and hand-over.
    fn draw_key(&mut self, at: usize) -> Key {
        let phase = self.time / (700 * MS);
        let favourite = |flow: u64| (phase + flow) % u64::from(SWITCHES) == at as u64;
        let mut flow = self.draw(4);
        if !favourite(flow) && !self.chance(10) {
            flow = (0..4).find(|flow| favourite(*flow)).unwrap_or(flow);
        }
        if self.chance(60) {
            return (COUNTER, vec![0, 0, 0, flow as u8]);
        }
        let host = (self.draw(u64::from(NAT_HOSTS))) as u8;
        let key = vec![
            10,
            0,
            0,
            host,
            8,
            8,
            8,
            (flow / 2) as u8,
            0x13,
            0x88,
            0,
            53,
            if flow == 3 { 1 } else { 17 },
        ];
        let bound = self.switches[at]
            .entries
            .get(&(NAT, key.clone()))
            .filter(|e| flow == 1 && e.value.len() == 6);
        match bound {
            // The reverse direction, as packets from outside look.
            Some(bound) => (
                NAT,
                [&key[4..8], &bound.value[..4], &key[10..12], &bound.value[4..6], &key[12..]]
                    .concat(),
            ),
            None => (NAT, key),
        }
    }

    /// Without faults, every switch gets every flow that it has packets of, whoever has it.
    fn everyone_gets_its_turn(&mut self) {
        self.phase = Phase::Calm;
        self.network.heal(FAULTY.delay_max_ns);
        // What is under way arrives, also from the adversary.
        self.run(self.time + 4 * SECOND);
        for flow in 0..4 {
            for at in 0..SWITCHES as usize {
                let key = (COUNTER, vec![0, 0, 0, flow]);
                let start = self.time;
                while !self.switches[at].owns(self.local(at), &key) {
                    assert!(self.time < start + SECOND, "switch {at} never gets {key:?}");
                    self.packet(at, &key);
                    self.after_switch(at);
                    self.run(self.time + 10 * MS);
                }
            }
        }
    }
}

/// Of every eight seeds four have a fast path; one of their servers behind the head may have none.
fn fast_memory(seed: u64, at: usize) -> Option<Arc<Memory>> {
    if (seed / 4).is_multiple_of(2) || (at > 0 && seed / 8 % 5 == at as u64) {
        return None;
    }
    // Room for a part of the records only.
    Some(Memory::own(world_settings().fast_path(12, server_address(at), seed)))
}

fn world_settings() -> Settings {
    let mut settings = settings();
    // The counters must not start anew within a run.
    settings.objects[0].allocator = AllocatorSettings::Zero { idle_ns: None };
    settings
}

/// A whole run.
pub fn simulate(seed: u64, power_cuts: bool) -> Checks {
    let mut world = World::new(seed, power_cuts);
    world.run(RUN);
    world.everyone_gets_its_turn();
    world.finish();
    world.checks
}
