//! The network: what is on its way, and what becomes of it.

use crate::faults::Faults;
use crate::scenario::Machine;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use state_protocol::MessageType;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddrV4;

/// A server that is slow takes up to so much longer for each message.
const SLOW_NS: u64 = 30_000_000;
/// Longest extra delay of a message that straggles.
const STRAGGLES_NS: u64 = 600_000_000;

/// A UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its source.
    pub from: SocketAddrV4,
    /// Its destination.
    pub to: SocketAddrV4,
    /// Its payload.
    pub bytes: Vec<u8>,
}

/// What waits for its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A datagram arrives.
    Arrives(Datagram),
    /// A host's packet waits for a switch that stands still.
    Packet(usize, Vec<u8>),
    /// A server begins another life.
    Restart(usize),
    /// The controller comes back.
    RestartController,
    /// The controller's database has written this decision.
    Written(u64),
}

struct Cut {
    from: Machine,
    to: Option<Machine>,
    both: bool,
    until_ns: u64,
}

impl Cut {
    fn stops(&self, from: Machine, to: Machine) -> bool {
        let meets = |one: Machine, other: Machine| one == self.from && self.to.is_none_or(|to| to == other);
        meets(from, to) || (self.both && meets(to, from))
    }
}

/// Everything that is to happen, in order of time.
pub struct Network {
    rng: StdRng,
    faults: Faults,
    next: u64,
    order: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    cuts: Vec<Cut>,
    slow_until_ns: BTreeMap<Machine, u64>,
}

impl Network {
    /// A good network; what it does follows from the seed.
    pub fn new(seed: u64) -> Network {
        Network {
            rng: StdRng::seed_from_u64(seed ^ 0xe70e_70e7),
            faults: Faults::NONE,
            next: 0,
            order: BinaryHeap::new(),
            events: BTreeMap::new(),
            cuts: Vec::new(),
            slow_until_ns: BTreeMap::new(),
        }
    }

    /// From now on it is as bad as that.
    pub fn begin(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// When the last message arrives that is on its way.
    pub fn last_ns(&self) -> Option<u64> {
        self.order.iter().map(|Reverse((at_ns, _))| *at_ns).max()
    }

    /// What has been sent and will arrive.
    pub fn under_way(&self) -> impl Iterator<Item = &Datagram> {
        self.events.values().filter_map(|event| match event {
            Event::Arrives(datagram) => Some(datagram),
            _ => None,
        })
    }

    /// From now on it loses nothing, and delays little.
    pub fn heal(&mut self, delay_max_ns: u64) {
        self.faults = Faults { delay_max_ns, ..Faults::NONE };
        self.cuts.clear();
        self.slow_until_ns.clear();
    }

    /// Cuts links.
    pub fn cut(&mut self, from: Machine, to: Option<Machine>, both: bool, until_ns: u64) {
        self.cuts.push(Cut { from, to, both, until_ns });
    }

    /// Is some link of this machine cut at that time?
    pub fn touches(&self, machine: Machine, now_ns: u64) -> bool {
        // Whom nobody hears is touched; so is everybody if that is the controller: it hears nobody.
        let isolated = |cut: &Cut| cut.to.is_none() && cut.from == Machine::Controller;
        let ends = |cut: &Cut| cut.from == machine || cut.to == Some(machine) || isolated(cut);
        self.cuts.iter().any(|cut| now_ns < cut.until_ns && ends(cut))
    }

    /// What is sent to this machine takes longer until then.
    pub fn slow(&mut self, machine: Machine, until_ns: u64) {
        self.slow_until_ns.insert(machine, until_ns);
    }

    /// Is this machine slow at that time?
    pub fn is_slow(&self, machine: Machine, now_ns: u64) -> bool {
        self.slow_until_ns.get(&machine).is_some_and(|until| now_ns < *until)
    }

    /// Takes a datagram; whether it will arrive at least once. `spared`: it is not lost by chance, nor late.
    pub fn send(&mut self, now_ns: u64, from: Machine, to: Machine, datagram: Datagram, spared: bool) -> bool {
        let is = |types: &[MessageType]| types.iter().any(|known| datagram.bytes.get(3) == Some(&(*known as u8)));
        let hand_over = is(&[MessageType::Recall, MessageType::Release, MessageType::ReleaseAck]);
        let cut = self.cuts.iter().any(|cut| now_ns < cut.until_ns && cut.stops(from, to));
        let lost = self.rng.random_bool(self.faults.loss) && !spared;
        if cut || lost || (hand_over && self.rng.random_bool(self.faults.hand_over_loss)) {
            return false;
        }
        let doubled = self.rng.random_bool(self.faults.duplication);
        for _ in 0..1 + usize::from(doubled) {
            let mut at_ns = now_ns + self.rng.random_range(10_000..self.faults.delay_max_ns.max(20_000));
            if hand_over && self.faults.hand_over_delay_ns > 0 {
                at_ns += self.rng.random_range(0..self.faults.hand_over_delay_ns);
            }
            if self.rng.random_bool(self.faults.stragglers) && !spared {
                at_ns += self.rng.random_range(0..STRAGGLES_NS);
            }
            if self.is_slow(to, now_ns) {
                at_ns += self.rng.random_range(0..SLOW_NS);
            }
            self.push(at_ns, Event::Arrives(datagram.clone()));
        }
        true
    }

    /// Something is to happen at that time.
    pub fn push(&mut self, at_ns: u64, event: Event) {
        self.next += 1;
        self.order.push(Reverse((at_ns, self.next)));
        self.events.insert(self.next, event);
    }

    /// When something happens next.
    pub fn next_ns(&self) -> Option<u64> {
        self.order.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// What happens next.
    pub fn pop(&mut self) -> Option<Event> {
        let Reverse((_, id)) = self.order.pop()?;
        self.events.remove(&id)
    }
}
