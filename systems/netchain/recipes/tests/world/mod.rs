//! A simulated store: keys with the switches' meaning, and a network that delays, loses, and
//! delivers late; clients whose clocks differ, who are paused and killed. All from one seed.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod scenarios;

use netchain_client::{Done, Key, Operation, Outcome, Refused, Request, Shown};
use netchain_recipes::{Answer, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// After so long a request has no outcome.
const DEADLINE_US: u64 = 50_000;
/// A run that takes longer is stuck.
const END_US: u64 = 600_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    Reply(usize),
    Timeout(usize),
    Wake(usize),
    Resume(usize),
    Trouble,
}

struct Op {
    client: usize,
    request: Request,
    /// What the switches did.
    result: Option<Outcome>,
    answer: Option<Outcome>,
    told: bool,
}

struct Host {
    /// Local time is `offset_us + real time x rate`.
    offset_us: u64,
    rate: f64,
    paused: bool,
    dead: bool,
    /// Something came while it was paused.
    woken: bool,
}

/// What somebody believes to hold.
#[derive(Clone, Copy, Debug)]
struct Held {
    until_us: u64,
    writes: bool,
    /// Stays while it is held without a gap.
    hold: u64,
}

/// How much trouble there is.
#[derive(Clone, Copy)]
pub struct Trouble {
    /// Pauses are up to so long; 0: there are none.
    pub pause_us: u64,
    /// Clients are killed.
    pub kills: bool,
}

pub struct World {
    rng: StdRng,
    now_us: u64,
    count: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub keys: HashMap<Key, (u64, Option<Vec<u8>>)>,
    ops: Vec<Op>,
    hosts: Vec<Host>,
    held: HashMap<(String, usize), Held>,
    waiting: HashMap<(String, usize), u64>,
    tokens: HashMap<String, u64>,
    trouble: Trouble,
    /// Pauses, kills, seats that were left without a word, and copies that came when nobody waited
    /// for them any more, so far: each of them may cost others a lease.
    troubles: u64,
    free_since: HashMap<String, (u64, u64)>,
    pub counts: HashMap<&'static str, u64>,
}

impl World {
    fn at(&mut self, at_us: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at_us, self.count, event)));
    }

    fn later(&mut self, after_us: u64, event: Event) {
        self.at(self.now_us + after_us, event);
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn way_us(&mut self) -> u64 {
        if self.chance(5) {
            self.rng.random_range(200..40_000)
        } else {
            self.rng.random_range(20..200)
        }
    }

    fn local_us(&self, client: usize) -> u64 {
        let host = &self.hosts[client];
        host.offset_us + (self.now_us as f64 * host.rate) as u64
    }

    fn ask(&mut self, client: usize, request: Request) -> usize {
        let op = self.ops.len();
        self.ops.push(Op { client, request, result: None, answer: None, told: false });
        if self.chance(4) {
            // A copy that comes when nobody waits for it any more, or none.
            if self.chance(50) {
                let late_us = self.rng.random_range(0..1_000_000);
                self.later(late_us, Event::Arrive(op));
            }
        } else {
            let way_us = self.way_us();
            self.later(way_us, Event::Arrive(op));
        }
        self.later(DEADLINE_US, Event::Timeout(op));
        op
    }

    /// What the switches do with a request, once.
    fn execute(&mut self, request: &Request) -> Outcome {
        let slot = self.keys.entry(request.key).or_default();
        let now = Shown { version: slot.0, value: slot.1.clone() };
        let operand = request.operand;
        let holds = match request.operation {
            Operation::Read => return Outcome::Done(Done { own: None, now }),
            Operation::Put | Operation::Add => true,
            Operation::Insert => slot.1.is_none(),
            Operation::CompareVersion => slot.0 == operand,
            Operation::Delete => slot.1.is_some() && (operand == 0 || slot.0 == operand),
            other => panic!("{other:?}"),
        };
        if !holds {
            return Outcome::Refused(Refused { now, moved: false });
        }
        slot.1 = match request.operation {
            Operation::Delete => None,
            Operation::Add => {
                let old =
                    slot.1.as_ref().map_or(0, |it| u64::from_be_bytes(it[..8].try_into().unwrap()));
                Some((old + operand).to_be_bytes().to_vec())
            }
            _ => request.value.clone(),
        };
        slot.0 += 1;
        let now = Shown { version: slot.0, value: slot.1.clone() };
        Outcome::Done(Done { own: Some(slot.0), now })
    }

    /// The client that hears something.
    fn happen(&mut self, event: Event) -> Option<usize> {
        match event {
            Event::Arrive(op) => {
                let request = self.ops[op].request.clone();
                self.troubles += u64::from(self.ops[op].told);
                let result = self.execute(&request);
                self.ops[op].result = Some(result);
                if !self.chance(4) {
                    let way_us = self.way_us();
                    self.later(way_us, Event::Reply(op));
                }
                None
            }
            Event::Reply(op) => {
                let mut outcome = self.ops[op].result.clone();
                if self.chance(10) {
                    // A copy was answered later: it shows what the key has then.
                    let (version, value) = self.keys[&self.ops[op].request.key].clone();
                    let later = Shown { version, value };
                    let forgets = self.chance(20);
                    match &mut outcome {
                        Some(Outcome::Done(done)) if done.own.is_some() => {
                            if done.own != Some(later.version) && forgets {
                                done.own = None;
                            }
                            done.now = later;
                        }
                        Some(Outcome::Refused(refused)) => {
                            *refused = Refused { now: later, moved: true };
                        }
                        _ => {}
                    }
                }
                self.tell(op, outcome?)
            }
            Event::Timeout(op) => match self.ops[op].request.operation {
                Operation::Read => self.tell(op, Outcome::NoChain),
                _ => self.tell(op, Outcome::Unknown),
            },
            Event::Wake(client) => Some(client),
            Event::Resume(client) => {
                self.hosts[client].paused = false;
                std::mem::take(&mut self.hosts[client].woken).then_some(client)
            }
            Event::Trouble => {
                self.make_trouble();
                None
            }
        }
    }

    fn tell(&mut self, op: usize, outcome: Outcome) -> Option<usize> {
        let op = &mut self.ops[op];
        (!std::mem::replace(&mut op.told, true)).then(|| {
            op.answer = Some(outcome);
            op.client
        })
    }

    fn make_trouble(&mut self) {
        let again_us = self.rng.random_range(20_000..400_000);
        self.later(again_us, Event::Trouble);
        let client = self.rng.random_range(0..self.hosts.len());
        if self.hosts[client].dead || self.hosts[client].paused || self.trouble.pause_us == 0 {
            return;
        }
        self.troubles += 1;
        let alive = self.hosts.iter().filter(|host| !host.dead).count();
        if self.trouble.kills && alive > 2 && self.chance(10) {
            self.hosts[client].dead = true;
            *self.counts.entry("kills").or_default() += 1;
        } else {
            self.hosts[client].paused = true;
            let pause_us = self.rng.random_range(0..self.trouble.pause_us);
            self.later(pause_us, Event::Resume(client));
            *self.counts.entry("pauses").or_default() += 1;
        }
    }

    fn believers(&self, object: &str) -> Vec<(usize, Held)> {
        let of_object = self.held.iter().filter(|((held, _), _)| held == object);
        of_object
            .filter(|((_, client), held)| self.local_us(*client) < held.until_us)
            .map(|((_, client), held)| (*client, *held))
            .collect()
    }

    /// Nobody may wait for long for what nobody holds.
    fn check_progress(&mut self, lease_us: u64) {
        let mut objects: Vec<String> =
            self.waiting.keys().map(|(object, _)| object.clone()).collect();
        objects.sort();
        objects.dedup();
        self.free_since.retain(|object, _| objects.contains(object));
        for object in objects {
            let waits = self.waiting.keys().any(|(waited, client)| {
                *waited == object && !self.hosts[*client].dead && !self.hosts[*client].paused
            });
            if !waits || !self.believers(&object).is_empty() {
                self.free_since.remove(&object);
                continue;
            }
            let (now_us, troubles) = (self.now_us, self.troubles);
            let (since_us, before) =
                *self.free_since.entry(object.clone()).or_insert((now_us, troubles));
            let most_us = (lease_us * 102 / 100 + 400_000) * (1 + troubles - before);
            assert!(now_us - since_us <= most_us, "stuck: {object} for {} us", now_us - since_us);
        }
    }
}

/// A client's view of the world.
#[derive(Clone)]
pub struct SimStore {
    pub world: Rc<RefCell<World>>,
    pub client: usize,
}

impl SimStore {
    /// It waits for something.
    pub fn waits(&self, object: &str) {
        let mut world = self.world.borrow_mut();
        let now_us = world.now_us;
        world.waiting.insert((object.to_owned(), self.client), now_us);
    }

    /// It believes for so long to hold something, of which `most` may believe at a time (one, if
    /// anybody writes).
    pub fn holds(&self, object: &str, left: Duration, writes: bool, most: usize) {
        let mut world = self.world.borrow_mut();
        *world.counts.entry("held").or_default() += 1;
        world.waiting.remove(&(object.to_owned(), self.client));
        let until_us = world.local_us(self.client) + left.as_micros() as u64;
        let before = world.believers(object).into_iter().find(|(client, _)| *client == self.client);
        let hold = before.map_or(world.counts["held"], |(_, held)| held.hold);
        world.held.insert((object.to_owned(), self.client), Held { until_us, writes, hold });
        let believers = world.believers(object);
        let most = if believers.iter().any(|(_, held)| held.writes) { 1 } else { most };
        assert!(believers.len() <= most, "{} believe to hold {object}", believers.len());
    }

    /// Tokens of what only one can hold grow.
    pub fn token(&self, object: &str, token: u64) {
        let mut world = self.world.borrow_mut();
        let last = world.tokens.insert(object.to_owned(), token);
        assert!(last.is_none_or(|last| last < token), "{object}: token {token} after {last:?}");
    }

    /// It holds it no more.
    pub fn gives_up(&self, object: &str) {
        let mut world = self.world.borrow_mut();
        world.held.remove(&(object.to_owned(), self.client));
        world.waiting.remove(&(object.to_owned(), self.client));
    }

    /// It leaves without a word.
    pub fn abandons(&self) {
        self.world.borrow_mut().troubles += 1;
    }

    /// Clients that believe to hold it, and since which time of holding.
    pub fn believers(&self, object: &str) -> Vec<(usize, u64)> {
        let believers = self.world.borrow().believers(object);
        believers.into_iter().map(|(client, held)| (client, held.hold)).collect()
    }

    pub fn random_below(&self, most: u64) -> u64 {
        self.world.borrow_mut().rng.random_range(0..most)
    }

    pub fn count(&self, what: &'static str, more: u64) {
        *self.world.borrow_mut().counts.entry(what).or_default() += more;
    }
}

impl Store for SimStore {
    async fn ask(&self, request: Request) -> Answer {
        let op = self.world.borrow_mut().ask(self.client, request);
        let answer =
            std::future::poll_fn(|_| match self.world.borrow_mut().ops[op].answer.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => Poll::Pending,
            });
        Ok(answer.await)
    }

    fn now_us(&self) -> u64 {
        self.world.borrow().local_us(self.client)
    }

    async fn sleep(&self, us: u64) {
        let until_us = self.now_us() + us;
        {
            let mut world = self.world.borrow_mut();
            let real_us = (us as f64 / world.hosts[self.client].rate).ceil() as u64 + 2;
            world.later(real_us, Event::Wake(self.client));
        }
        let over = |_: &mut Context<'_>| match self.now_us() >= until_us {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        std::future::poll_fn(over).await;
    }

    fn random(&self) -> u64 {
        self.world.borrow_mut().rng.random()
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Runs one task for each client until all that live are done.
pub fn run(
    seed: u64,
    clients: usize,
    trouble: Trouble,
    lease_us: u64,
    start: impl Fn(SimStore) -> Task,
) -> Rc<RefCell<World>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let hosts = (0..clients).map(|_| Host {
        offset_us: rng.random_range(0..1_000_000_000),
        rate: rng.random_range(0.996..1.004),
        paused: false,
        dead: false,
        woken: false,
    });
    let hosts = hosts.collect();
    let world = Rc::new(RefCell::new(World {
        rng,
        now_us: 0,
        count: 0,
        events: BinaryHeap::new(),
        keys: HashMap::new(),
        ops: vec![],
        hosts,
        held: HashMap::new(),
        waiting: HashMap::new(),
        tokens: HashMap::new(),
        trouble,
        troubles: 0,
        free_since: HashMap::new(),
        counts: HashMap::new(),
    }));
    let store = |client| SimStore { world: world.clone(), client };
    let mut tasks: Vec<Option<Task>> = (0..clients).map(|at| Some(start(store(at)))).collect();
    for client in 0..clients {
        let start_us = world.borrow_mut().rng.random_range(0..20_000);
        world.borrow_mut().at(start_us, Event::Wake(client));
    }
    world.borrow_mut().at(50_000, Event::Trouble);
    let is_live = |tasks: &[Option<Task>], client: usize| {
        tasks[client].is_some() && !world.borrow().hosts[client].dead
    };
    while (0..clients).any(|client| is_live(&tasks, client)) {
        let heard = {
            let mut world = world.borrow_mut();
            let Some(Reverse((at_us, _, event))) = world.events.pop() else { break };
            world.now_us = at_us;
            if at_us >= END_US {
                let (waiting, held) = (&world.waiting, world.believers("it"));
                panic!("stuck: waiting {waiting:?}, held {held:?}");
            }
            let heard = world.happen(event);
            world.check_progress(lease_us);
            heard
        };
        let Some(client) = heard else { continue };
        {
            let mut world = world.borrow_mut();
            let host = &mut world.hosts[client];
            if host.dead {
                drop(world);
                tasks[client] = None;
                continue;
            }
            if host.paused {
                host.woken = true;
                continue;
            }
        }
        if let Some(task) = &mut tasks[client]
            && task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        {
            tasks[client] = None;
        }
    }
    world
}
