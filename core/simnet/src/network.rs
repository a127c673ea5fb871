//! What becomes of a message.

use crate::fault::{Cut, Fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What all links do to messages, for a while: a part of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub enum Links {
    /// They lose some.
    Loss {
        /// Of a hundred.
        percent: u8,
    },
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Links::Loss { percent } => write!(f, "{percent} % of messages lost"),
        }
    }
}

/// How bad the network is to every message. Probabilities are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// A message is lost.
    pub loss: f64,
    /// A message comes twice.
    pub duplication: f64,
    /// Shortest delay, in ns.
    pub delay_min_ns: u64,
    /// Longest delay, in ns. Delays are drawn evenly, so messages overtake each other.
    pub delay_max_ns: u64,
    /// A message straggles: it takes up to `straggle_ns` longer.
    pub stragglers: f64,
    /// In ns.
    pub straggle_ns: u64,
    /// What is sent to a slow machine takes up to so much longer, in ns.
    pub slow_ns: u64,
}

impl Conditions {
    /// Nothing is lost, repeated or late.
    pub const GOOD: Conditions = Conditions {
        loss: 0.0,
        duplication: 0.0,
        delay_min_ns: 10_000,
        delay_max_ns: 300_000,
        stragglers: 0.0,
        straggle_ns: 600_000_000,
        slow_ns: 30_000_000,
    };
}

/// How one message is treated, beside the conditions for all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Treatment {
    /// It is not lost by chance, nor does it straggle. Cuts stop it all the same.
    pub spared: bool,
    /// Loses it beside the network's own loss. `None` draws nothing.
    pub loss: Option<f64>,
    /// Delays it by up to so many ns more.
    pub delay_max_ns: u64,
}

/// When the copies of a message arrive: none, one or two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals([Option<u64>; 2]);

impl Arrivals {
    /// No copy arrives.
    pub fn is_lost(&self) -> bool {
        self.0[0].is_none()
    }
}

impl IntoIterator for Arrivals {
    type Item = u64;
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<u64>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

/// The network between machines that `M` names. It decides when messages arrive; their bytes are
/// the simulation's.
#[derive(Clone, Debug)]
pub struct Network<M> {
    rng: StdRng,
    conditions: Conditions,
    cuts: Vec<(Cut<M>, u64)>,
    slow: Vec<(M, u64)>,
    links: Vec<(Links, u64)>,
}

impl<M: Copy + PartialEq> Network<M> {
    /// A good network. What it does follows from the seed.
    pub fn new(seed: u64) -> Network<M> {
        Network {
            rng: StdRng::seed_from_u64(seed),
            conditions: Conditions::GOOD,
            cuts: Vec::new(),
            slow: Vec::new(),
            links: Vec::new(),
        }
    }

    /// From now on it is as bad as that.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.conditions = conditions;
    }

    /// Begins a fault that lasts until then. False: it is none of the network's.
    pub fn begin<P>(&mut self, fault: &Fault<M, P>, until_ns: u64) -> bool {
        match fault {
            Fault::Cut(cut) => self.cuts.push((*cut, until_ns)),
            Fault::Slow { machine } => {
                self.slow.retain(|(slow, _)| slow != machine);
                self.slow.push((*machine, until_ns));
            }
            Fault::Links(links) => self.links.push((*links, until_ns)),
            Fault::Crash { .. } | Fault::Freeze { .. } | Fault::Process { .. } => return false,
        }
        true
    }

    /// Ends all faults, and the conditions are good but for the longest delay.
    pub fn heal(&mut self, delay_max_ns: u64) {
        self.conditions = Conditions { delay_max_ns, ..Conditions::GOOD };
        self.end_faults();
    }

    /// Ends all faults; the conditions stay.
    pub fn end_faults(&mut self) {
        self.cuts.clear();
        self.slow.clear();
        self.links.clear();
    }

    /// The cuts at that time.
    pub fn cuts(&self, now_ns: u64) -> impl Iterator<Item = &Cut<M>> {
        self.cuts.iter().filter(move |(_, until_ns)| now_ns < *until_ns).map(|(cut, _)| cut)
    }

    /// Is this machine slow at that time?
    pub fn is_slow(&self, machine: M, now_ns: u64) -> bool {
        self.slow.iter().any(|(slow, until_ns)| *slow == machine && now_ns < *until_ns)
    }

    /// When a message that is sent now arrives.
    pub fn send(&mut self, now_ns: u64, from: M, to: M, treatment: Treatment) -> Arrivals {
        let Conditions { loss, duplication, stragglers, straggle_ns, slow_ns, .. } =
            self.conditions;
        let cut = self.cuts(now_ns).any(|cut| cut.stops(&from, &to));
        let lost = self.rng.random_bool(loss) || self.loses(now_ns);
        if cut
            || (lost && !treatment.spared)
            || treatment.loss.is_some_and(|loss| self.rng.random_bool(loss))
        {
            return Arrivals::default();
        }
        let copies = 1 + usize::from(self.rng.random_bool(duplication));
        let mut arrivals = Arrivals::default();
        for arrival in &mut arrivals.0[..copies] {
            let mut at_ns = now_ns + self.delay();
            if treatment.delay_max_ns > 0 {
                at_ns += self.rng.random_range(0..treatment.delay_max_ns);
            }
            if self.rng.random_bool(stragglers) && !treatment.spared {
                at_ns += self.rng.random_range(0..straggle_ns.max(1));
            }
            if self.is_slow(to, now_ns) {
                at_ns += self.rng.random_range(0..slow_ns.max(1));
            }
            *arrival = Some(at_ns);
        }
        arrivals
    }

    fn delay(&mut self) -> u64 {
        let Conditions { delay_min_ns: min, delay_max_ns: max, .. } = self.conditions;
        self.rng.random_range(min..max.max(min + 10_000))
    }

    /// What the links do to messages at that time.
    fn links(&self, now_ns: u64) -> impl Iterator<Item = Links> {
        self.links.iter().filter(move |(_, until_ns)| now_ns < *until_ns).map(|(links, _)| *links)
    }

    fn loses(&mut self, now_ns: u64) -> bool {
        let percent = self.links(now_ns).map(|Links::Loss { percent }| percent).max();
        percent.is_some_and(|percent| self.rng.random_range(0..100) < percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Direction;

    type F = Fault<char, ()>;

    fn arrivals(network: &mut Network<char>, now_ns: u64, to: char) -> usize {
        (0..1_000).flat_map(|_| network.send(now_ns, 'a', to, Treatment::default())).count()
    }

    #[test]
    fn a_good_network_delivers_each_message_once_and_in_time() {
        let mut network = Network::new(1);
        for _ in 0..1_000 {
            let arrived: Vec<u64> =
                network.send(7, 'a', 'b', Treatment::default()).into_iter().collect();
            assert!(matches!(arrived[..], [at] if (10_007..300_007).contains(&at)), "{arrived:?}");
        }
    }

    #[test]
    fn conditions_hold_for_every_message() {
        let mut network = Network::<char>::new(2);
        network.set_conditions(Conditions { loss: 0.5, ..Conditions::GOOD });
        assert!((400..600).contains(&arrivals(&mut network, 0, 'b')));
        network.set_conditions(Conditions { duplication: 0.5, ..Conditions::GOOD });
        assert!((1_400..1_600).contains(&arrivals(&mut network, 0, 'b')));
        network.set_conditions(Conditions { loss: 1.0, ..Conditions::GOOD });
        let spared = Treatment { spared: true, ..Treatment::default() };
        assert!(!network.send(0, 'a', 'b', spared).is_lost());
        assert!(network.send(0, 'a', 'b', Treatment::default()).is_lost());
        network.heal(300_000);
        assert!(network.send(0, 'a', 'b', Treatment { loss: Some(1.0), ..spared }).is_lost());
    }

    #[test]
    fn faults_of_the_network_end_when_their_time_is_over() {
        let mut network = Network::new(3);
        let cut = Cut { machine: 'b', peer: None, direction: Direction::Both };
        assert!(network.begin::<()>(&Fault::Cut(cut), 100));
        assert_eq!((arrivals(&mut network, 99, 'b'), arrivals(&mut network, 99, 'c')), (0, 1_000));
        assert_eq!((network.cuts(99).count(), network.cuts(100).count()), (1, 0));
        assert_eq!(arrivals(&mut network, 100, 'b'), 1_000);
        assert!(network.begin::<()>(&Fault::Links(Links::Loss { percent: 50 }), 200));
        assert!((400..600).contains(&arrivals(&mut network, 150, 'b')));
        assert_eq!(arrivals(&mut network, 200, 'b'), 1_000);
        assert!(network.begin(&F::Slow { machine: 'b' }, 300));
        assert!(
            network.is_slow('b', 299) && !network.is_slow('b', 300) && !network.is_slow('c', 299)
        );
        let late = |at: u64| at > 250 + Conditions::GOOD.delay_max_ns;
        assert!((0..100).flat_map(|_| network.send(250, 'a', 'b', Treatment::default())).any(late));
        for machines in [F::Crash { machine: 'b', keeps_state: false }, F::Freeze { machine: 'b' }]
        {
            assert!(!network.begin(&machines, 400), "{machines:?} is a machine's");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_network() {
        let run = |seed| {
            let mut network = Network::new(seed);
            network.set_conditions(Conditions {
                loss: 0.2,
                duplication: 0.2,
                stragglers: 0.1,
                ..Conditions::GOOD
            });
            let arrived: Vec<_> =
                (0..500).map(|at| network.send(at, 'a', 'b', Treatment::default())).collect();
            arrived
        };
        assert_eq!(run(4), run(4));
        assert_ne!(run(4), run(5));
    }
}
