//! The vocabulary of faults, of simulations and of the chaos lab.

use crate::network::Links;
use rand::Rng;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What goes wrong, for a while. `M` names a machine, `P` a process on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fault")]
pub enum Fault<M, P> {
    /// A machine dies: a power cut. What is sent to it meanwhile is lost.
    Crash {
        /// The machine.
        machine: M,
        /// It comes back as it was: its ports were dead. Else empty, as another incarnation.
        keeps_state: bool,
    },
    /// A machine stands still. What arrives waits.
    Freeze {
        /// The machine.
        machine: M,
    },
    /// What is sent to a machine takes longer.
    Slow {
        /// The machine.
        machine: M,
    },
    /// A link carries nothing, or one way only.
    Cut(Cut<M>),
    /// SIGKILL to one process of a machine. The rest of the machine goes on.
    Process {
        /// The machine.
        machine: M,
        /// The process.
        process: P,
    },
    /// What every link does to the messages.
    #[serde(untagged)]
    Links(Links),
}

/// How likely a run has a fault. With `chance` it can happen, at most with the probability `most`;
/// else it cannot.
///
/// Swarm testing (Groce et al., ISSTA 2012): each run has some of the faults, each as bad as drawn.
/// With all of them always on, what needs much of one and none of another would never come up.
pub fn swarm(rng: &mut impl Rng, chance: f64, most: f64) -> f64 {
    match rng.random_bool(chance) {
        true => most * rng.random::<f64>().powi(2),
        false => 0.0,
    }
}

/// A link that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut<M> {
    /// One end.
    pub machine: M,
    /// The other end; `None`: all links of `machine`.
    pub peer: Option<M>,
    /// What is lost.
    pub direction: Direction,
}

/// Which frames a cut link loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both ways, and both ends lose their carrier. A simulated network has no carrier: as `Both`.
    Carrier,
    /// Both ways; the ends keep their carrier.
    Both,
    /// What is sent to `machine`.
    Into,
    /// What `machine` sends.
    OutOf,
}

impl<M, P> Fault<M, P> {
    /// The machine at which it happens; `None`: everywhere.
    pub fn machine(&self) -> Option<&M> {
        match self {
            Fault::Crash { machine, .. } | Fault::Freeze { machine } | Fault::Slow { machine } => {
                Some(machine)
            }
            Fault::Cut(cut) => Some(&cut.machine),
            Fault::Process { machine, .. } => Some(machine),
            Fault::Links(_) => None,
        }
    }
}

impl<M: fmt::Display, P: fmt::Display> fmt::Display for Fault<M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Crash { machine, keeps_state: false } => write!(f, "{machine} dead"),
            Fault::Crash { machine, keeps_state: true } => write!(f, "{machine} without ports"),
            Fault::Freeze { machine } => write!(f, "{machine} frozen"),
            Fault::Slow { machine } => write!(f, "{machine} slow"),
            Fault::Cut(cut) => cut.fmt(f),
            Fault::Process { machine, process } => write!(f, "{machine}'s {process} killed"),
            Fault::Links(links) => links.fmt(f),
        }
    }
}

impl<M: fmt::Display> fmt::Display for Cut<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        let peer = self.peer.as_ref().map_or("*".to_owned(), |peer| peer.to_string());
        match self.direction {
            Direction::Carrier => write!(f, "{machine}-{peer} down"),
            Direction::Both => write!(f, "{machine}-{peer} silent"),
            Direction::Into => write!(f, "{peer}>{machine} lost"),
            Direction::OutOf => write!(f, "{machine}>{peer} lost"),
        }
    }
}

impl<M: PartialEq> Cut<M> {
    /// Does it stop a message?
    pub fn stops(&self, from: &M, to: &M) -> bool {
        let between = |machine: &M, peer: &M| {
            *machine == self.machine && self.peer.as_ref().is_none_or(|it| it == peer)
        };
        let (into, out_of) = (between(to, from), between(from, to));
        match self.direction {
            Direction::Carrier | Direction::Both => into || out_of,
            Direction::Into => into,
            Direction::OutOf => out_of,
        }
    }

    /// Is `machine` an end of it that the cut names?
    pub fn names(&self, machine: &M) -> bool {
        self.machine == *machine || self.peer.as_ref() == Some(machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_stops_its_direction_only() {
        let stopped = |peer, direction| {
            let cut = Cut { machine: 'a', peer, direction };
            let links = [('a', 'b'), ('b', 'a'), ('a', 'c'), ('c', 'a'), ('b', 'c')];
            links.map(|(from, to)| cut.stops(&from, &to))
        };
        assert_eq!(stopped(Some('b'), Direction::Both), [true, true, false, false, false]);
        assert_eq!(stopped(Some('b'), Direction::Carrier), [true, true, false, false, false]);
        assert_eq!(stopped(Some('b'), Direction::OutOf), [true, false, false, false, false]);
        assert_eq!(stopped(Some('b'), Direction::Into), [false, true, false, false, false]);
        assert_eq!(stopped(None, Direction::Both), [true, true, true, true, false]);
        assert_eq!(stopped(None, Direction::OutOf), [true, false, true, false, false]);
        assert_eq!(stopped(None, Direction::Into), [false, true, false, true, false]);
    }
}
