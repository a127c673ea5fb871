//! Runs of a chain of switches with SRO: pairs.p4 on each, a faulty network between them, members
//! that die or are cut off. Each key's history must be linearizable, a packet must see all of
//! another one's writes or nothing, and packets must be answered when the faults are over. With
//! tally.p4, each packet must be counted where it left, once.

mod access;
mod counted;
mod directed;
mod orders;
mod restart;
mod switch;

use crate::model::{Checked, Violation, violated};
use crate::program::Program;
use access::{Access, Op};
use history::linearizable::{Operation, check_within};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Conditions, Events, Links, Network, Treatment, swarm};
use std::collections::BTreeMap;
use swish_protocol::strong::kind;
use switch::{CPUS, Left, Member};

type NetworkFault = simnet::Fault<usize, ()>;

/// How long packets and faults go on; the same in runs in which switches join.
const BUSY_NS: u64 = 20_000_000;
const LONG_NS: u64 = 80_000_000;
/// The packet generator's tick; the same in runs of many seconds.
const TICK_NS: u64 = 500_000;
const SLOW_TICK_NS: u64 = 5_000_000;
/// In so much time after the faults all is answered.
const PATIENCE_NS: u64 = 200_000_000;
/// A removed switch may read for so long.
const LEASE_NS: u64 = 12_000_000;
/// Of messages that are overtaken.
const LATE_NS: u64 = 6_000_000;
/// Where a frame says what kind of message it is.
const KIND_AT: usize = 42;
/// Keys that packets use.
const KEYS: u32 = 3;
/// Keys from this number on are inserted, and rarely used: a copy has several parts then.
const COLD: u32 = 1000;
const COLD_KEYS: u32 = 80;
/// States of the search for an order, at the most.
const STATES: usize = 400_000;

enum Event {
    Packet(usize, Op),
    Order(usize, Op),
    Arrives(usize, Vec<u8>),
    Tick(usize),
    /// The member is removed, and the others hear of it.
    Removed(usize),
    /// It comes back, with nothing.
    Returns(usize),
    /// Without controllers: it loses what it has, and comes back.
    Restarts(usize),
    TakesView(usize, usize),
}

/// Messages that do not arrive before somebody lets them.
struct Held {
    to: usize,
    kind: u8,
    frames: Vec<Vec<u8>>,
}

/// The members of the chain, from head to tail, and which of them joins.
#[derive(Clone, Debug, Default)]
struct View {
    chain: Vec<usize>,
    joins: Vec<usize>,
    lease_ns: u64,
    wait_ns: u64,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What must not be.
    pub violation: Option<Violation>,
    /// Packets that were answered.
    pub answered: u64,
    /// What data planes counted, by name.
    pub counted: BTreeMap<&'static str, u64>,
    /// What happened.
    pub log: Vec<String>,
}

/// Loaded objects that runs use again.
pub struct Chains<'a> {
    program: &'a Program,
    members: Vec<Member>,
}

impl<'a> Chains<'a> {
    /// With no object loaded yet.
    pub fn new(program: &'a Program) -> Chains<'a> {
        Chains { program, members: vec![] }
    }

    fn load(&mut self, switches: usize) -> Checked {
        while self.members.len() < switches {
            let loaded = Member::load(self.program);
            self.members.push(loaded.or_else(|detail| violated("harness", detail))?);
        }
        Ok(())
    }

    /// The run of this seed.
    pub fn run(&mut self, seed: u64) -> Outcome {
        self.run_as(seed, false)
    }

    /// The same, and operators read and write, too.
    pub fn run_with_orders(&mut self, seed: u64) -> Outcome {
        self.run_as(seed, true)
    }

    fn run_as(&mut self, seed: u64, orders: bool) -> Outcome {
        let mut rng = StdRng::seed_from_u64(seed);
        let switches = rng.random_range(2..5);
        if let Err(violation) = self.load(switches) {
            return Outcome { violation: Some(violation), ..Outcome::default() };
        }
        let mut outcome = Outcome::default();
        let members = &mut self.members[..switches];
        let before: Vec<Vec<u64>> = members.iter().map(Member::counts).collect();
        match World::new(seed, rng, members) {
            Err(violation) => outcome.violation = Some(violation),
            Ok(mut world) => {
                if orders {
                    world.add_orders(seed);
                }
                outcome.violation = world.run().err();
                outcome.answered =
                    world.history.iter().filter(|it| it.1.returned.is_some()).count() as u64;
                outcome.log = std::mem::take(&mut world.log);
            }
        }
        for (member, before) in self.members.iter().zip(before) {
            for ((at, (name, _)), before) in
                swish_protocol::strong::COUNTED.iter().enumerate().zip(before)
            {
                *outcome.counted.entry(name).or_default() += member.counts()[at] - before;
            }
        }
        outcome
    }
}

struct World<'a> {
    members: &'a mut [Member],
    network: Network<usize>,
    rng: StdRng,
    now_ns: u64,
    tick_ns: u64,
    events: Events<Event>,
    /// By packet: its key, and what came of it.
    history: Vec<(u32, Operation<Access>)>,
    /// The first one has number 1.
    views: Vec<View>,
    /// Of a member: the number of the view that it was told of last.
    told: Vec<usize>,
    /// All members have known of the newest view since then.
    settled_ns: u64,
    /// Of a removed member: whether it is dead, or cut off.
    dead: Vec<Option<bool>>,
    busy_ns: u64,
    cold: u32,
    /// Messages of this kind are often overtaken by others.
    late: Option<u8>,
    held: Option<Held>,
    /// Parts of copies that were sent.
    parts: u64,
    /// By switch: the order that waits for its answer.
    orders: Vec<Option<orders::Order>>,
    /// Packets that left a switch, by that and by the cell that counts them.
    leaves: BTreeMap<(usize, u32), u64>,
    log: Vec<String>,
}

impl<'a> World<'a> {
    /// All members in the first view, and no packets yet.
    fn quiet(seed: u64, tick_ns: u64, members: &'a mut [Member]) -> Checked<World<'a>> {
        let mut rng = StdRng::seed_from_u64(seed);
        let count = members.len();
        let lease_ns = tick_ns * (LEASE_NS / TICK_NS);
        let first = View { chain: (0..count).collect(), lease_ns, ..View::default() };
        let mut events = Events::default();
        for (place, member) in members.iter_mut().enumerate() {
            member.begin(place, 1_000_000_000 + rng.random_range(0..1_000_000_000))?;
            member.take(1, 1, &first)?;
            events.push(rng.random_range(0..tick_ns), Event::Tick(place));
        }
        let mut network = Network::new(seed);
        network.heal(40_000);
        Ok(World {
            network,
            rng,
            now_ns: 0,
            tick_ns,
            events,
            history: vec![],
            views: vec![first],
            told: vec![1; count],
            settled_ns: 0,
            dead: vec![None; count],
            busy_ns: BUSY_NS,
            cold: 0,
            late: None,
            held: None,
            parts: 0,
            orders: (0..count).map(|_| None).collect(),
            leaves: BTreeMap::new(),
            log: vec![],
            members,
        })
    }

    fn conditions(rng: &mut StdRng) -> Conditions {
        Conditions {
            loss: swarm(rng, 0.6, 0.3),
            duplication: swarm(rng, 0.6, 0.4),
            delay_min_ns: 5_000,
            delay_max_ns: if rng.random_bool(0.5) { 40_000 } else { 400_000 },
            stragglers: swarm(rng, 0.5, 0.2),
            straggle_ns: 6_000_000,
            slow_ns: 2_000_000,
        }
    }

    fn new(seed: u64, mut rng: StdRng, members: &'a mut [Member]) -> Checked<World<'a>> {
        let mut world = World::quiet(rng.random(), TICK_NS, members)?;
        let mut network = Network::new(seed);
        network.set_conditions(World::conditions(&mut rng));
        let count = world.members.len();
        let events = &mut world.events;
        let joins = count > 2 && rng.random_bool(0.5);
        let busy_ns = if joins { LONG_NS } else { BUSY_NS };
        world.busy_ns = busy_ns;
        world.late = match rng.random_range(0..3) {
            0 => Some(kind::COPY),
            1 => Some(kind::ROUND),
            _ => None,
        };
        if joins {
            world.cold = rng.random_range(0..COLD_KEYS);
            for key in 0..world.cold {
                let switch = rng.random_range(0..count);
                let insert = Op { access: Access::Insert(key + 1), key: COLD + key };
                events.push(rng.random_range(0..busy_ns / 4), Event::Packet(switch, insert));
            }
            for _ in 0..rng.random_range(0..40) {
                let (switch, at) = (rng.random_range(0..count), rng.random_range(0..busy_ns));
                let key = COLD + rng.random_range(0..COLD_KEYS);
                events.push(at, Event::Packet(switch, Op { key, ..Op::draw(&mut rng, KEYS) }));
            }
            for _ in 0..rng.random_range(1..4) {
                let place = rng.random_range(0..count);
                events.push(rng.random_range(0..busy_ns), Event::Removed(place));
            }
        }
        for _ in 0..rng.random_range(10..if joins { 140 } else { 70 }) {
            let at = rng.random_range(0..busy_ns);
            let burst = if rng.random_bool(0.3) { rng.random_range(2..8) } else { 1 };
            let switch = rng.random_range(0..count);
            for _ in 0..burst {
                let near = at + rng.random_range(0..20_000);
                events.push(near, Event::Packet(switch, Op::draw(&mut rng, KEYS)));
            }
        }
        if count > 2 && !joins && rng.random_bool(0.7) {
            events
                .push(rng.random_range(0..busy_ns / 2), Event::Removed(rng.random_range(0..count)));
        }
        for _ in 0..rng.random_range(0..3) {
            let fault = match rng.random_range(0..2) {
                0 => NetworkFault::Slow { machine: rng.random_range(0..count) },
                _ => NetworkFault::Links(Links::Loss { percent: rng.random_range(20..100) }),
            };
            network.begin(&fault, rng.random_range(0..busy_ns));
        }
        (world.network, world.rng) = (network, rng);
        Ok(world)
    }

    fn note(&mut self, line: String) {
        self.log.push(format!("{:>9.3} ms  {line}", self.now_ns as f64 / 1e6));
    }

    fn run(&mut self) -> Checked {
        self.until(self.busy_ns)?;
        self.network.heal(40_000);
        self.late = None;
        self.until(self.busy_ns + PATIENCE_NS / 2)?;
        // Each switch of the chain answers for each key: so all that was written is there.
        let first = self.history.len();
        for place in self.newest().chain.clone() {
            for key in (0..KEYS).chain(COLD..COLD + self.cold) {
                self.packet(place, Op { access: Access::Read, key })?;
            }
            // (A switch has room for so many packets that wait.)
            self.until(self.now_ns + PATIENCE_NS / 16)?;
        }
        self.until(self.now_ns + PATIENCE_NS / 2)?;
        let open = self.history[first..].iter().filter(|(_, it)| it.returned.is_none()).count();
        if open > 0 {
            let nodes: Vec<_> = self.members.iter().map(Member::node).collect();
            return violated("progress", format!("{open} reads without an answer: {nodes:?}"));
        }
        self.check_orders()?;
        self.check()
    }

    fn check(&self) -> Checked {
        for key in (0..KEYS).chain(COLD..COLD + COLD_KEYS).chain(World::ordered_keys()) {
            let own = self.history.iter().filter(|(of, _)| *of == key);
            let own: Vec<Operation<Access>> = own.map(|(_, operation)| *operation).collect();
            if let Some(Err(error)) = check_within(&own, STATES) {
                return violated("linearizable", format!("key {key}: {error}"));
            }
        }
        (0..self.members.len()).try_for_each(|place| self.check_counted(place))
    }

    /// Each packet is counted at the switch that it left, once: however often it ran there.
    fn check_counted(&self, place: usize) -> Checked {
        for cell in 0..counted::CELLS {
            let Some([in_windows, at_once]) = self.members[place].counted(cell)? else { break };
            let left = self.leaves.get(&(place, cell)).copied().unwrap_or_default();
            // (The windows of a dead switch stand still.)
            if at_once != left || (in_windows != left && !self.is_dead(place)) {
                let detail = format!(
                    "{left} packets of cell {cell} left {place}, which counted {in_windows} in \
                     windows and {at_once} at once"
                );
                return violated("counted", detail);
            }
        }
        Ok(())
    }

    fn until(&mut self, until_ns: u64) -> Checked {
        while let Some((at_ns, event)) = self.events.pop_until(until_ns) {
            self.now_ns = at_ns;
            match event {
                Event::Packet(place, op) => self.packet(place, op)?,
                Event::Order(place, op) => self.order(place, op)?,
                Event::Arrives(place, frame) => self.arrives(place, &frame)?,
                Event::Tick(place) => self.tick(place)?,
                Event::Removed(place) => self.removed(place)?,
                Event::Returns(place) => self.returns(place)?,
                Event::Restarts(place) => self.restarts(place)?,
                Event::TakesView(place, number) => self.takes(place, number)?,
            }
        }
        self.now_ns = until_ns;
        Ok(())
    }

    fn is_dead(&self, place: usize) -> bool {
        self.dead[place] == Some(true)
    }

    fn packet(&mut self, place: usize, op: Op) -> Checked {
        if self.is_dead(place) {
            return Ok(());
        }
        let id = self.history.len();
        let operation = Operation { input: op.access, invoked: self.now_ns * 2, returned: None };
        self.history.push((op.key, operation));
        self.note(format!("packet {id} at {place}: {op:?}"));
        let cpu = self.rng.random_range(0..CPUS);
        let left = self.members[place].packet(cpu, id, op, self.now_ns)?;
        self.left(place, left)
    }

    fn arrives(&mut self, place: usize, frame: &[u8]) -> Checked {
        // (One without a view takes no message: it goes to the kernel.)
        if self.is_dead(place) || self.told[place] == 0 {
            return Ok(());
        }
        let cpu = self.rng.random_range(0..CPUS);
        let left = self.members[place].receive(cpu, frame, self.now_ns)?;
        self.left(place, left)?;
        self.look_at_order(place)
    }

    fn tick(&mut self, place: usize) -> Checked {
        if self.is_dead(place) {
            return Ok(());
        }
        self.events.push(self.now_ns + self.tick_ns, Event::Tick(place));
        let cpu = self.rng.random_range(0..CPUS);
        let left = self.members[place].tick(cpu, self.now_ns)?;
        self.left(place, left)?;
        self.look_at_order(place)
    }

    fn newest(&self) -> &View {
        &self.views[self.views.len() - 1]
    }

    fn is_whole(&self, place: usize) -> bool {
        !self.is_dead(place) && self.members[place].is_whole()
    }

    /// A member is removed: it is dead, or cut off and reads until its lease is over.
    fn removed(&mut self, place: usize) -> Checked {
        let View { mut chain, mut joins, .. } = self.newest().clone();
        let others = chain.iter().filter(|it| **it != place && self.is_whole(**it)).count();
        if !chain.contains(&place) || others == 0 {
            return Ok(());
        }
        let dies = self.rng.random_bool(0.5);
        self.note(format!("{place} {}", if dies { "dies" } else { "is removed, and lives" }));
        self.dead[place] = Some(dies);
        let away_ns = self.rng.random_range(1_000_000..20_000_000);
        // (One that others hear of goes on with rounds of its view, as long as some let them pass.)
        let cut = !dies && self.rng.random_bool(0.5);
        if !dies {
            // What it may not read any more, others may write.
            for _ in 0..self.rng.random_range(0..40) {
                let at = self.now_ns + LEASE_NS + self.rng.random_range(0..4_000_000);
                let switch = self.rng.random_range(0..self.members.len());
                let access =
                    if switch == place { Access::Read } else { Access::Set(self.rng.random()) };
                let key = self.rng.random_range(0..KEYS);
                self.events.push(at, Event::Packet(switch, Op { access, key }));
            }
        }
        if cut {
            self.network.begin(
                &NetworkFault::Cut(simnet::Cut {
                    machine: place,
                    peer: None,
                    direction: simnet::Direction::Both,
                }),
                self.now_ns + away_ns,
            );
        }
        chain.retain(|member| *member != place);
        joins.retain(|member| *member != place && !self.is_whole(*member));
        self.decided(View { chain, joins, lease_ns: LEASE_NS, wait_ns: LEASE_NS });
        if self.busy_ns == LONG_NS {
            self.events.push(self.now_ns + away_ns, Event::Returns(place));
        }
        Ok(())
    }

    /// A switch joins, once all others have been in the newest view for so long that nobody reads
    /// in an older one.
    fn returns(&mut self, place: usize) -> Checked {
        let View { mut chain, .. } = self.newest().clone();
        let settled = self.is_settled() && self.now_ns >= self.settled_ns + 2 * LEASE_NS;
        if !settled || !chain.iter().all(|it| self.is_whole(*it)) {
            self.events.push(self.now_ns + 2_000_000, Event::Returns(place));
            return Ok(());
        }
        self.members[place].empty()?;
        // (Whether its order took effect, nobody tells.)
        self.orders[place] = None;
        self.note(format!("{place} comes back, with nothing"));
        if self.is_dead(place) {
            self.events.push(self.now_ns + self.tick_ns, Event::Tick(place));
        }
        self.dead[place] = None;
        chain.push(place);
        self.told[place] = 0;
        // What is copied changes meanwhile.
        for _ in 0..self.rng.random_range(0..160) {
            let at = self.now_ns + self.rng.random_range(0..6_000_000);
            let key = COLD + self.rng.random_range(0..COLD_KEYS);
            let op = match self.rng.random_range(0..2) {
                0 => Op { access: Access::Remove, key },
                _ => Op { key, ..Op::draw(&mut self.rng, KEYS) },
            };
            let switch = chain[self.rng.random_range(0..chain.len())];
            self.events.push(at, Event::Packet(switch, op));
        }
        self.decided(View { chain, joins: vec![place], lease_ns: LEASE_NS, wait_ns: 0 });
        Ok(())
    }

    fn decided(&mut self, view: View) {
        let told = view.chain.iter().filter(|it| self.told[**it] > 0);
        for member in told {
            let at = self.now_ns + self.rng.random_range(0..2_000_000);
            self.events.push(at, Event::TakesView(*member, self.views.len() + 1));
        }
        self.views.push(view);
    }

    fn is_settled(&self) -> bool {
        self.newest().chain.iter().all(|it| self.is_dead(*it) || self.told[*it] == self.views.len())
    }

    fn takes(&mut self, place: usize, number: usize) -> Checked {
        let view = self.views[number - 1].clone();
        if self.dead[place].is_some() || self.told[place] >= number || number < self.views.len() {
            return Ok(());
        }
        self.note(format!("{place} takes view {number}: {view:?}"));
        let life = if self.told[place] == 0 { Some(number) } else { None };
        self.members[place].take(number as u64, life.map_or(0, |it| it as u32), &view)?;
        self.told[place] = number;
        // The joiner is told when all others know: their rounds of older views are over.
        let fresh = |it: &&usize| self.told[**it] == 0;
        if view.chain.iter().all(|it| self.told[*it] == number || self.told[*it] == 0) {
            for member in view.chain.iter().filter(fresh) {
                let at = self.now_ns + self.rng.random_range(0..1_000_000);
                self.events.push(at, Event::TakesView(*member, number));
            }
        }
        if self.is_settled() {
            self.settled_ns = self.now_ns;
        }
        Ok(())
    }

    fn left(&mut self, place: usize, left: Vec<Left>) -> Checked {
        for one in left {
            match one {
                Left::Message { to, frame } => {
                    let kind = frame.get(KIND_AT).copied();
                    self.parts += u64::from(kind == Some(kind::COPY));
                    if let Some(held) = &mut self.held
                        && (held.to, Some(held.kind)) == (to, kind)
                    {
                        held.frames.push(frame);
                        continue;
                    }
                    let arrivals = self.network.send(self.now_ns, place, to, Treatment::default());
                    let late = self.late.is_some() && kind == self.late;
                    for at_ns in arrivals {
                        let more = if late && self.rng.random_bool(0.3) { LATE_NS } else { 1 };
                        let at_ns = at_ns + self.rng.random_range(0..more);
                        self.events.push(at_ns, Event::Arrives(to, frame.clone()));
                    }
                }
                Left::Packet { id, answer } => {
                    self.note(format!("packet {id} leaves {place}: {answer:?}"));
                    let Some((key, operation)) = self.history.get_mut(id) else {
                        return violated("packet", format!("{place} sends packet {id}"));
                    };
                    if operation.returned.is_some() {
                        return violated("packet", format!("packet {id} leaves twice"));
                    }
                    *self.leaves.entry((place, *key % counted::CELLS)).or_default() += 1;
                    let found = answer.checked().or_else(|detail| violated("group", detail))?;
                    let output = operation.input.answer(found);
                    operation.returned = Some((self.now_ns * 2 + 1, output));
                }
            }
        }
        Ok(())
    }
}
