//! Switches, store servers and the network between them, in virtual time.

use crate::history::{Event, History};
use crate::switch::{Became, Switch};
use manifest::Manifest;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use state_protocol::MessageType;
use state_store::core::{AllocatorSettings, Input, Limits, ObjectSettings, Outputs, Server, Settings, Start};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// How bad the network and the machines are. Probabilities are per message or per tick.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A message is lost.
    pub loss: f64,
    /// A message comes twice.
    pub duplication: f64,
    /// Longest delay of a message, in ns (drawn evenly from 10 µs up: they overtake each other).
    pub delay_max_ns: u64,
    /// Per packet sent: a flow's packets take the other switch from now on.
    pub moves: f64,
    /// Per packet sent: a switch loses its state and comes back empty.
    pub crashes: f64,
}

enum Arrives {
    AtStore(SocketAddrV4, SocketAddrV4, Vec<u8>),
    AtSwitch(usize, Vec<u8>),
}

/// A data center of two switches and a chain of three servers.
pub struct World {
    object: PathBuf,
    manifest: Manifest,
    rng: StdRng,
    faults: Faults,
    now_ns: u64,
    next: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    in_flight: std::collections::BTreeMap<u64, Arrives>,
    switches: Vec<Switch>,
    servers: Vec<(SocketAddrV4, Server)>,
    /// What happened.
    pub history: History,
}

const TICK_NS: u64 = 2_000_000;
const LEASE_US: u32 = 60_000;

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
    };
    manifest.flow_states.iter().map(settings).collect()
}

impl World {
    /// Starts everything; waits (in virtual time) until the chain serves.
    pub fn start(object: &Path, manifest: &Manifest, seed: u64, faults: Faults) -> dataplane::Result<World> {
        let mut rng = StdRng::seed_from_u64(seed);
        let chain: Vec<SocketAddrV4> =
            (1..=3).map(|at| SocketAddrV4::new(Ipv4Addr::new(10, 2, at, 10), state_protocol::PORT)).collect();
        let now_ns = 1_000_000_000;
        let server = |position: usize, rng: &mut StdRng| {
            let settings = Settings {
                chain: chain.clone(),
                position,
                lease_us: LEASE_US,
                clock_drift_ppm: 1000,
                lease_margin_us: 1000,
                hold_ns: 200_000_000,
                resend_ns: 2_000_000,
                chain_datagram_bytes: 1400,
                limits: Limits {
                    records: 10_000,
                    held: 1000,
                    held_per_flow: 64,
                    held_bytes: 1 << 20,
                    unacked: 10_000,
                    unacked_bytes: 16 << 20,
                },
                objects: objects(manifest),
            };
            let start = Start { incarnation: rng.random::<u64>() | 1, epoch_base: 1, seed: rng.random(), now_ns };
            (chain[position], Server::new(settings, start))
        };
        let servers = (0..3).map(|position| server(position, &mut rng)).collect();
        let switches =
            (1..=2).map(|id| Switch::start(object, manifest, id, rng.random())).collect::<dataplane::Result<_>>()?;
        let mut world = World {
            object: object.to_owned(),
            manifest: manifest.clone(),
            rng,
            faults,
            now_ns,
            next: 0,
            queue: BinaryHeap::new(),
            in_flight: Default::default(),
            switches,
            servers,
            history: History::default(),
        };
        for _ in 0..2000 {
            world.advance(TICK_NS)?;
            if world.servers[0].1.is_serving(world.now_ns) {
                return Ok(world);
            }
        }
        panic!("the chain does not form: seed {seed}");
    }

    /// Sends `packets` packets of `flows` flows, evenly over a time that lets leases come and go, then waits until all is quiet.
    pub fn run(&mut self, flows: u32, packets: u32) -> dataplane::Result<()> {
        let mut at_switch = vec![0usize; flows as usize];
        for packet in 1..=packets {
            let flow = self.rng.random_range(0..flows);
            if self.rng.random_bool(self.faults.moves) {
                at_switch[flow as usize] ^= 1;
            }
            if self.rng.random_bool(self.faults.crashes) {
                let switch = self.rng.random_range(0..self.switches.len());
                let incarnation = self.rng.random();
                self.switches[switch] = Switch::start(&self.object, &self.manifest, switch as u32 + 1, incarnation)?;
            }
            self.history.push(Event::Input { flow, packet });
            let became = self.switches[at_switch[flow as usize]].packet(&frame(flow, packet), 2, self.now_ns)?;
            self.became(at_switch[flow as usize], became);
            let pause = self.rng.random_range(1_000..3_000_000);
            self.advance(pause)?;
        }
        for _ in 0..200 {
            self.advance(TICK_NS)?;
        }
        Ok(())
    }

    /// After the faults have stopped: every flow works at every switch again.
    pub fn check_alive(&mut self, flows: u32) -> dataplane::Result<bool> {
        self.faults = Faults { loss: 0.0, duplication: 0.0, moves: 0.0, crashes: 0.0, ..self.faults };
        for flow in 0..flows {
            let packet = u32::MAX - flow;
            self.history.push(Event::Input { flow, packet });
            let became = self.switches[0].packet(&frame(flow, packet), 2, self.now_ns)?;
            self.became(0, became);
        }
        for _ in 0..300 {
            self.advance(TICK_NS)?;
        }
        let pending = self.switches.iter().map(Switch::queued).sum::<dataplane::Result<u64>>()?;
        // Stragglers and packets that the network doubled may go out as well.
        Ok((0..flows).all(|flow| self.history.went_out(u32::MAX - flow)) && pending == 0)
    }

    /// Sweeps both switches; how many flows went.
    pub fn sweep(&self, idle_before_ns: u64) -> dataplane::Result<usize> {
        let object = &self.manifest.flow_states[0];
        self.switches.iter().map(|switch| switch.sweep(object.object_id.into(), &object.map, idle_before_ns)).sum()
    }

    /// Virtual time.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn became(&mut self, switch: usize, became: Became) {
        match became {
            Became::Nothing => {}
            Became::Output(_, frame) => {
                if let Some((flow, packet, count)) = flow_of(&frame) {
                    self.history.push(Event::Output { flow, packet, count });
                }
            }
            Became::Message(bytes) => {
                let from = SocketAddrV4::new(self.switches[switch].address(), state_protocol::PORT);
                self.send(Arrives::AtStore(from, self.servers[0].0, bytes));
            }
        }
    }

    fn send(&mut self, arrives: Arrives) {
        if self.rng.random_bool(self.faults.loss) {
            return;
        }
        // A request with a parked packet is not doubled: that would be a second input packet, which the history does not know of. (A network that doubles it has
        // doubled the packet.)
        let parked = |bytes: &[u8]| bytes.get(3) == Some(&(MessageType::LeaseRequest as u8));
        let again = match &arrives {
            _ if !self.rng.random_bool(self.faults.duplication) => None,
            Arrives::AtStore(from, to, bytes) if !parked(bytes) => Some(Arrives::AtStore(*from, *to, bytes.clone())),
            Arrives::AtSwitch(switch, bytes) if bytes.get(3) != Some(&(MessageType::LeaseGrant as u8)) => {
                Some(Arrives::AtSwitch(*switch, bytes.clone()))
            }
            _ => None,
        };
        for arrives in [Some(arrives), again].into_iter().flatten() {
            let at = self.now_ns + self.rng.random_range(10_000..self.faults.delay_max_ns.max(20_000));
            self.next += 1;
            self.queue.push(Reverse((at, self.next)));
            self.in_flight.insert(self.next, arrives);
        }
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
                    for bytes in self.switches[switch].generate(self.now_ns)? {
                        self.became(switch, Became::Message(bytes));
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
            Some(Arrives::AtSwitch(switch, bytes)) => {
                let became = self.switches[switch].message(&bytes, self.now_ns)?;
                self.became(switch, became);
            }
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
                Some(switch) => Arrives::AtSwitch(switch, bytes),
                None => Arrives::AtStore(from, to, bytes),
            });
        }
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
