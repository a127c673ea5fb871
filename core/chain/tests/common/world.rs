//! The world: servers on a faulty network, clients, and a controller that sees what servers would
//! report. Everything follows from one seed.

use super::checks::Answer;
use super::{Change, Checks, Counters, MS, Server};
use chain::{Outputs, Replica, Role};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use simnet::{Clock, Conditions, Cut, Direction, Disk, Events, Fault, Network, Treatment};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{ChainHeader, ChainType, Joining, Member, ShardView};

const MACHINES: usize = 5;
const FULL: usize = 3;
const NAMES: u64 = 150;
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 9, 9), 99);
const FAULTY: Conditions = Conditions {
    loss: 0.05,
    duplication: 0.05,
    delay_min_ns: 20_000,
    delay_max_ns: 2 * MS,
    stragglers: 0.02,
    straggle_ns: 60 * MS,
    ..Conditions::GOOD
};

enum Event {
    Deliver {
        from: SocketAddrV4,
        to: SocketAddrV4,
        bytes: Vec<u8>,
    },
    Timer(usize),
    View(usize, ShardView),
    Ask,
    Control,
    Cut,
    /// A server's disk has everything up to this ticket, if it did not lose power since.
    Durable(usize, u64, u64),
    Restart(usize),
}

pub struct World {
    rng: StdRng,
    time: u64,
    events: Events<Event>,
    network: Network<SocketAddrV4>,
    pub servers: Vec<Server>,
    scheduled: Vec<u64>,
    /// The newest view, and since when it is.
    pub view: ShardView,
    view_since: u64,
    incarnation: u64,
    operation: u64,
    faults: bool,
    asks: bool,
    pub checks: Checks,
}

impl World {
    /// Servers that keep a journal lose power; others die.
    pub fn new(seed: u64, journals: bool) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut clock = || Clock::new(rng.random_range(1..1 << 40), rng.random_range(-450..=450));
        let disk = || journals.then(Disk::default);
        let servers: Vec<_> =
            (0..MACHINES).map(|at| Server::new(at, at as u64 + 1, clock(), disk())).collect();
        let members = servers[..FULL].iter().map(|server| server.me).collect();
        let view = ShardView { number: 1, founded: 1, members, joining: None, draining: false };
        let mut world = World {
            rng,
            time: 0,
            events: Events::default(),
            network: Network::new(seed),
            servers,
            scheduled: vec![u64::MAX; MACHINES],
            view,
            view_since: 0,
            incarnation: MACHINES as u64,
            operation: 0,
            faults: true,
            asks: true,
            checks: Checks::default(),
        };
        world.network.set_conditions(FAULTY);
        world.tell_all();
        for event in [Event::Ask, Event::Control, Event::Cut] {
            world.events.push(50 * MS, event);
        }
        world
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.draw(100) < percent
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.rng.random_range(0..below)
    }

    fn after(&mut self, ns: u64, event: Event) {
        self.events.push(self.time + ns, event);
    }

    pub fn run(&mut self, until: u64) {
        while let Some((at_ns, event)) = self.events.pop_until(until) {
            self.time = at_ns.max(self.time);
            self.step(event);
        }
        self.time = until;
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Deliver { to, bytes, .. } if to == CLIENT => {
                self.checks.told(&Answer::decode(&bytes));
            }
            Event::Deliver { from, to, bytes } => {
                let at = (0..MACHINES).find(|at| Server::address(*at) == to).unwrap();
                self.server(at, |server, now, out| server.datagram(now, from, &bytes, out));
            }
            Event::Timer(at) => {
                self.scheduled[at] = u64::MAX;
                self.server(at, |server, now, out| server.timer(now, out));
            }
            Event::View(at, view) => {
                self.server(at, |server, now, out| server.adopt(now, &view, out))
            }
            Event::Ask => self.ask(),
            Event::Control => self.control(),
            Event::Cut => self.cut(),
            Event::Durable(at, life, ticket) => self.durable(at, life, ticket),
            Event::Restart(at) => self.restart(at),
        }
    }

    /// Something happens to a server, if it lives.
    fn server(&mut self, at: usize, act: impl FnOnce(&mut Server, u64, &mut Outputs)) {
        let now = self.servers[at].clock.local(self.time);
        let mut out = Outputs::new();
        if self.servers[at].alive {
            act(&mut self.servers[at], now, &mut out);
            self.flush(at, out);
        }
    }

    /// Sends what a server wants sent, and looks at what it did.
    fn flush(&mut self, at: usize, mut out: Outputs) {
        let now = self.servers[at].clock.local(self.time);
        if let Some(ticket) = self.servers[at].flush(now, &mut out) {
            let life = self.servers[at].disk.as_ref().map_or(0, |disk| disk.lives);
            let delay = 10_000 + self.draw(10 * MS);
            self.after(delay, Event::Durable(at, life, ticket));
        }
        let from = Server::address(at);
        for (to, bytes) in out.datagrams() {
            if to == CLIENT {
                self.checks.answered(&self.servers, at, &Answer::decode(bytes));
            } else {
                Self::fits(bytes);
            }
            for arrival in self.network.send(self.time, from, to, Treatment::default()) {
                self.events.push(arrival, Event::Deliver { from, to, bytes: bytes.to_vec() });
            }
        }
        self.checks.alike(&self.servers, at);
        if let Some(next) = self.servers[at].next_deadline() {
            let next = self.servers[at].clock.time(next).max(self.time + 1);
            if next < self.scheduled[at] {
                self.scheduled[at] = next;
                self.events.push(next, Event::Timer(at));
            }
        }
    }

    /// A message is no longer than was configured, but for a single entry.
    fn fits(bytes: &[u8]) {
        let header = ChainHeader::decode(bytes).expect("a chain message");
        let many = matches!(header.chain_type, ChainType::Data | ChainType::Copy);
        let fits = bytes.len() <= Server::DATAGRAM_BYTES || (many && header.count == 1);
        assert!(fits, "bounded: {} bytes in {header:?}", bytes.len());
    }

    /// A client asks whoever takes itself for the head: several may.
    fn ask(&mut self) {
        if !self.asks {
            return;
        }
        let pause = 50_000 + self.draw(2 * MS);
        self.after(pause, Event::Ask);
        let at = self.draw(MACHINES as u64) as usize;
        let name = self.draw(NAMES).to_be_bytes()[5..].to_vec();
        let kind = self.draw(20);
        let orders = |server: &Server| {
            server.replica().is_some_and(|replica| replica.may_order() && !replica.is_backed_up())
        };
        if !orders(&self.servers[at]) {
            return;
        }
        self.operation += 1;
        let operation = self.operation;
        self.checks.begins(operation, &name);
        self.server(at, |server, _, out| {
            server.act(|replica| {
                let reached = replica.state().reached(&name);
                let count = reached + u64::from(kind >= 4);
                let change = match kind {
                    0 | 1 => Change::Nothing,
                    2 | 3 => Change::Remove { name: &name, floor: reached },
                    _ => Change::Set { name: &name, count },
                };
                let counted = kind >= 4;
                let answer = Answer { operation, counted, count, name: name.clone() };
                replica.order(change, CLIENT, &answer.encode(), out).expect("it fits");
            })
        });
    }

    /// A link fails for a while, or all links of a machine.
    fn cut(&mut self) {
        if !self.faults {
            return;
        }
        let machine = Server::address(self.draw(MACHINES as u64) as usize);
        let other = Server::address(self.draw(MACHINES as u64) as usize);
        let peer = self.chance(50).then_some(other).filter(|other| *other != machine);
        let direction = if self.chance(50) { Direction::Both } else { Direction::Into };
        let until = self.time + self.draw(150 * MS);
        self.network.begin::<()>(&Fault::Cut(Cut { machine, peer, direction }), until);
        let pause = self.draw(300 * MS);
        self.after(pause, Event::Cut);
    }

    /// A machine dies. What was not durable may be lost; a server without a journal loses all, and
    /// comes back as another.
    fn die(&mut self, at: usize) {
        let survive = self.draw(4) as usize;
        let server = &mut self.servers[at];
        server.alive = false;
        self.scheduled[at] = u64::MAX;
        if let Some(disk) = &mut server.disk {
            disk.lose_power(survive);
            self.checks.power_cuts += 1;
        } else {
            self.incarnation += 1;
            server.me.incarnation = self.incarnation;
            self.checks.deaths += 1;
        }
        let pause = self.draw(200 * MS);
        self.after(pause, Event::Restart(at));
    }

    fn restart(&mut self, at: usize) {
        self.servers[at].alive = true;
        self.server(at, |server, now, out| server.restart(now, out));
    }

    fn durable(&mut self, at: usize, life: u64, ticket: u64) {
        if self.servers[at].disk.as_ref().is_some_and(|disk| disk.lives == life) {
            self.server(at, |server, _, out| server.durable(ticket, out));
        }
    }

    fn tell_all(&mut self) {
        for at in 0..MACHINES {
            let delay = self.draw(30 * MS);
            let view = self.view.clone();
            self.after(delay, Event::View(at, view));
        }
    }

    fn of(&self, member: Member) -> Option<&Server> {
        self.servers.iter().find(|server| server.alive && server.me == member)
    }

    /// The replica of a member that is in the newest view.
    fn current(&self, member: Member) -> Option<&Replica<Counters>> {
        let replica = self.of(member)?.replica()?;
        (replica.view().number == self.view.number).then_some(replica)
    }

    /// Now and then something dies, or begins its journal anew. The controller looks at reports,
    /// and decides.
    fn control(&mut self) {
        let pause = 5 * MS + self.draw(20 * MS);
        self.after(pause, Event::Control);
        if self.faults && self.chance(8) {
            let at = self.draw(MACHINES as u64) as usize;
            // Without journals one member that has everything must stay.
            let others =
                |member: &&Member| self.of(**member).is_some() && **member != self.servers[at].me;
            let stays = self.view.members.iter().filter(others).count() > 0;
            if self.servers[at].alive && (stays || self.servers[at].disk.is_some()) {
                self.die(at);
            }
        }
        if self.chance(20) {
            let at = self.draw(MACHINES as u64) as usize;
            self.server(at, |server, _, _| server.checkpoint());
        }
        if let Some(view) = self.decide() {
            (self.view, self.view_since) =
                (ShardView { number: self.view.number + 1, ..view }, self.time);
        }
        self.tell_all();
    }

    fn decide(&mut self) -> Option<ShardView> {
        let view = self.view.clone();
        let journals = self.servers[0].disk.is_some();
        let (suspects, gives_up) = (self.faults && self.chance(2), self.faults && self.chance(3));
        let wrongly = self.draw(FULL as u64) as usize;
        let dead = |at: usize, member: &Member| match journals {
            // It comes back with what it had, so it may stay.
            true => suspects && at == wrongly,
            false => self.of(*member).is_none() || (suspects && at == wrongly),
        };
        let members = view.members.iter().enumerate();
        let left: Vec<Member> =
            members.filter(|(at, member)| !dead(*at, member)).map(|(_, member)| *member).collect();
        if left.len() < view.members.len() && left.iter().any(|it| self.of(*it).is_some()) {
            // A copy is one tail's: another would go on in the middle of its stream.
            let joining = view.joining.filter(|_| left.last() == view.members.last());
            return Some(ShardView { members: left, joining, draining: false, ..view });
        }
        if let Some(joining) = view.joining {
            let replica = self.current(joining.member);
            if replica.is_some_and(|it| it.report(0).synced && it.broken().is_none()) && !gives_up {
                self.checks.joined += 1;
                let members = view.members.iter().copied().chain([joining.member]).collect();
                return Some(ShardView { members, joining: None, ..view });
            }
            let broken = replica.is_some_and(|it| it.broken().is_some());
            // A tail that lost power does not go on with a copy.
            let late = self.time > self.view_since + 400 * MS;
            let gone = self.of(joining.member).is_none() || late;
            return (gone || broken || gives_up).then_some(ShardView { joining: None, ..view });
        }
        if view.draining {
            let drained = self.current(view.members[0]).is_some_and(|it| it.report(0).drained);
            if !drained {
                return gives_up.then_some(ShardView { draining: false, ..view });
            }
            let mut members = view.members.clone();
            members.shuffle(&mut self.rng);
            self.checks.reordered += 1;
            return Some(ShardView { members, draining: false, ..view });
        }
        if view.members.len() < FULL {
            let spare = |server: &&Server| server.alive && !view.members.contains(&server.me);
            let member = self.servers.iter().find(spare)?.me;
            let joining = Some(Joining { member, since: view.number + 1 });
            return Some(ShardView { joining, ..view });
        }
        (self.faults && self.chance(5)).then_some(ShardView { draining: true, ..view })
    }

    /// Faults end, then requests; in the end all have all.
    pub fn finish(&mut self) {
        self.faults = false;
        self.network.heal(MS);
        self.run(self.time + 1_200 * MS);
        let before = self.checks.answers;
        self.run(self.time + 500 * MS);
        assert!(
            self.checks.answers > before,
            "it answers when nothing fails any more: {:?}: {:?}",
            self.view,
            self.servers
                .iter()
                .filter_map(Server::replica)
                .map(|it| it.report(0))
                .collect::<Vec<_>>()
        );
        self.asks = false;
        self.run(self.time + 1_000 * MS);
        let members: Vec<_> = self.view.members.iter().map(|it| self.of(*it).unwrap()).collect();
        assert_eq!((members.len(), members[0].role()), (FULL, Role::Head), "{:?}", self.view);
        self.checks.all_have_all(&members);
    }
}
