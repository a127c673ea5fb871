//! The network of this world: simnet's, and what is RedPlane's about it.

use crate::faults::Faults;
use crate::scenario::Machine;
use simnet::{Conditions, Events, Treatment};
use state_protocol::MessageType;
use std::net::SocketAddrV4;

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

/// The messages that are on their way, and everything else that is to happen.
pub struct Network {
    links: simnet::Network<Machine>,
    faults: Faults,
    pub(crate) events: Events<Event>,
}

impl Network {
    /// A good network; what it does follows from the seed.
    pub fn new(seed: u64) -> Network {
        let links = simnet::Network::new(seed ^ 0xe70e_70e7);
        Network { links, faults: Faults::NONE, events: Events::default() }
    }

    /// From now on it is as bad as that.
    pub fn begin(&mut self, faults: Faults) {
        let Faults { loss, duplication, delay_max_ns, stragglers, .. } = faults;
        self.links.set_conditions(Conditions {
            loss,
            duplication,
            delay_max_ns,
            stragglers,
            ..Conditions::GOOD
        });
        self.faults = faults;
    }

    /// From now on it loses nothing, and delays little.
    pub fn heal(&mut self, delay_max_ns: u64) {
        self.links.heal(delay_max_ns);
        self.faults = Faults { delay_max_ns, ..Faults::NONE };
    }

    /// Begins a fault that lasts until then. False: it is none of the network's.
    pub fn fail(&mut self, fault: &crate::scenario::Fault, until_ns: u64) -> bool {
        self.links.begin(fault, until_ns)
    }

    /// What has been sent and will arrive.
    pub fn under_way(&self) -> impl Iterator<Item = &Datagram> {
        self.events.iter().filter_map(|event| match event {
            Event::Arrives(datagram) => Some(datagram),
            _ => None,
        })
    }

    /// May a message to or from this machine be stopped or late at that time?
    pub fn touches(&self, machine: Machine, now_ns: u64) -> bool {
        // A controller whose every link is cut hears no reports: every machine looks silent to it.
        let isolated =
            |cut: &simnet::Cut<Machine>| cut.peer.is_none() && cut.machine == Machine::Controller;
        self.links.cuts(now_ns).any(|cut| cut.names(&machine) || isolated(cut))
            || self.links.is_slow(machine, now_ns)
    }

    /// Takes a datagram; whether it will arrive at least once. `spared`: it is not lost by chance,
    /// nor late.
    pub fn send(
        &mut self,
        now_ns: u64,
        from: Machine,
        to: Machine,
        datagram: Datagram,
        spared: bool,
    ) -> bool {
        let is = |types: &[MessageType]| {
            types.iter().any(|known| datagram.bytes.get(3) == Some(&(*known as u8)))
        };
        let hand_over = is(&[MessageType::Recall, MessageType::Release, MessageType::ReleaseAck]);
        let treatment = Treatment {
            spared,
            loss: hand_over.then_some(self.faults.hand_over_loss),
            delay_max_ns: if hand_over { self.faults.hand_over_delay_ns } else { 0 },
        };
        let arrivals = self.links.send(now_ns, from, to, treatment);
        for at_ns in arrivals {
            self.events.push(at_ns, Event::Arrives(datagram.clone()));
        }
        !arrivals.is_lost()
    }

    /// Something is to happen at that time.
    pub fn push(&mut self, at_ns: u64, event: Event) {
        self.events.push(at_ns, event);
    }
}
