//! What a switch does with the controller's decisions: rules without IO.
//!
//! A [`Follower`] says what a [`Config`] is in the program's tables, which are exchanged as one
//! each, in an order that lets no lease begin too early: parts, dead switches, then the version
//! (systems/netchain/docs/design.md, "Rules of the switch", 4). The agent's own code for that
//! (`systems/netchain/switch/src/roles.rs`) writes into a loaded program.

use netchain_protocol::control::{Config, Part, Role};
use std::net::Ipv4Addr;

/// In the place of a peer's number: there is none.
const NOBODY: u8 = 255;
/// Members that an action has room for.
const MOST_MEMBERS: usize = 4;

/// A table of netchain.p4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// `roles`, by the number of a group.
    Roles,
    /// `dead_sources`, by an address.
    DeadSources,
    /// `destinations`, by an address.
    Destinations,
}

/// An entry of a table, all of whose keys are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The only key: a group, or an address.
    pub key: u32,
    /// The action's name in the program.
    pub action: &'static str,
    /// Its arguments, in order.
    pub arguments: Vec<u64>,
}

/// A switch's place in a cluster, and the decision that it follows.
#[derive(Clone, Debug)]
pub struct Follower {
    address: Ipv4Addr,
    ring: u32,
    incarnation: u32,
    /// The other switches. A peer's number is its place here.
    peers: Vec<Ipv4Addr>,
    /// The newest decision that all packets see, as long as this agent knows it.
    config: Option<Config>,
    /// Its version; 0: none was taken in this life of the slots.
    applied: u64,
}

impl Follower {
    /// A switch of the cluster that was founded with this ring. `incarnation`: of its slots; not 0.
    /// `switches`: all of the cluster.
    pub fn new(address: Ipv4Addr, ring: u32, incarnation: u32, switches: &[Ipv4Addr]) -> Follower {
        let mut peers: Vec<Ipv4Addr> =
            switches.iter().copied().filter(|it| *it != address).collect();
        peers.sort_unstable();
        Follower { address, ring, incarnation, peers, config: None, applied: 0 }
    }

    /// The other switches; a peer's number is its place.
    pub fn peers(&self) -> &[Ipv4Addr] {
        &self.peers
    }

    /// The newest decision that all packets see.
    pub fn config(&self) -> Option<&Config> {
        self.config.as_ref()
    }

    /// Its version; 0: none was taken in this life.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// This agent does not know the decision that the tables have.
    pub fn asks(&self) -> bool {
        self.applied > 0 && self.config.is_none()
    }

    /// Another agent begins, with the tables as they are.
    pub fn begin_again(&mut self) {
        self.config = None;
    }

    /// What new slots begin with: no parts, and no version, so the switch gives no lease.
    pub fn begin(&self) -> [(Table, Vec<Entry>); 3] {
        [
            (Table::Roles, vec![]),
            (Table::DeadSources, vec![]),
            (Table::Destinations, vec![self.serves(0)]),
        ]
    }

    /// What to write, in this order, for a configuration; then [`Follower::confirm`] it. None: it
    /// is for another life, or not newer than what the switch has.
    pub fn writes(&self, config: &Config) -> Option<[(Table, Vec<Entry>); 3]> {
        let asked = self.asks() && config.version == self.applied;
        if config.incarnation != self.incarnation || (config.version <= self.applied && !asked) {
            return None;
        }
        let roles = (0..).zip(&config.roles).map(|(group, role)| self.part(group, role));
        let dead = |address: &Ipv4Addr| Entry {
            key: address.to_bits(),
            action: "dead",
            arguments: vec![],
        };
        let sources = config.dead.iter().map(dead).collect();
        let own = [self.serves(config.version)];
        let destinations = own.into_iter().chain(config.dead.iter().map(dead)).collect();
        Some([
            (Table::Roles, roles.collect()),
            (Table::DeadSources, sources),
            (Table::Destinations, destinations),
        ])
    }

    /// All packets see what [`Follower::writes`] said of it: reports may tell its version.
    pub fn confirm(&mut self, config: Config) {
        self.applied = config.version;
        self.config = Some(config);
    }

    fn serves(&self, version: u64) -> Entry {
        let arguments = vec![self.ring.into(), version];
        Entry { key: self.address.to_bits(), action: "serve", arguments }
    }

    /// The entry of `roles` for a group.
    fn part(&self, group: u32, role: &Role) -> Entry {
        let (view, floor) = (u64::from(role.view), role.floor.into());
        let since = role.head_since.into();
        let mut chain = vec![role.chain.len() as u64];
        let member = |at: usize| role.chain.get(at).map_or(0, |it| it.to_bits().into());
        chain.extend((0..MOST_MEMBERS).map(member));
        let (action, arguments) = match role.part {
            Part::None => ("refer", [vec![view, since, floor], chain].concat()),
            Part::Paused => ("pause", [vec![view, since, floor], chain].concat()),
            Part::Lost => ("lost", vec![view]),
            Part::Member { .. } => {
                let next = role.next.map_or(0, |next| next.to_bits());
                let position = role.part.position().into();
                let own = [view, since, role.session.into(), floor, position, next.into()];
                let peers = self.numbers(&role.chain).into();
                ("take_part", [own.to_vec(), chain, vec![peers]].concat())
            }
        };
        Entry { key: group, action, arguments }
    }

    /// The numbers of the other members as peers, one in each byte.
    fn numbers(&self, chain: &[Ipv4Addr]) -> u32 {
        let others = chain.iter().filter(|it| **it != self.address);
        let number = |it: &Ipv4Addr| self.peers.iter().position(|peer| peer == it);
        let mut bytes = [NOBODY; 4];
        for (byte, other) in bytes.iter_mut().zip(others) {
            *byte = number(other).and_then(|at| u8::try_from(at).ok()).unwrap_or(NOBODY);
        }
        u32::from_be_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(at: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, at)
    }

    fn config(version: u64, part: Part) -> Config {
        let chain = vec![address(3), address(1)];
        let (next, copies_to) = (Some(address(1)), None);
        let (view, head_since, session, floor) = (5, 4, 2, 1);
        let role = Role { view, head_since, session, floor, part, next, copies_to, chain };
        Config {
            version,
            incarnation: 7,
            switches: vec![1, 2, 3].into_iter().map(address).collect(),
            roles: vec![role],
            dead: vec![address(2)],
        }
    }

    #[test]
    fn the_version_comes_last() {
        let mut follower = Follower::new(address(3), 9, 7, &[1, 2, 3].map(address));
        let part = Part::Member {
            head: true,
            reader: false,
            tail: false,
            joining: false,
            collecting: true,
        };
        let config = config(4, part);
        let [roles, sources, destinations] = follower.writes(&config).unwrap();
        let order = [roles.0, sources.0, destinations.0];
        assert_eq!(order, [Table::Roles, Table::DeadSources, Table::Destinations]);
        let one = |at: u8| u64::from(address(at).to_bits());
        assert_eq!((roles.1[0].key, roles.1[0].action), (0, "take_part"));
        let expected = [5, 4, 2, 1, 17, one(1), 2, one(3), one(1), 0, 0, 0x00ff_ffff];
        assert_eq!(roles.1[0].arguments, expected);
        assert_eq!(destinations.1[0].arguments, [9, 4]);
        assert_eq!(destinations.1[1].action, "dead");
        follower.confirm(config);
        assert_eq!(follower.applied(), 4);
    }

    #[test]
    fn what_is_old_or_for_another_life_changes_nothing() {
        let mut follower = Follower::new(address(3), 9, 7, &[1, 2, 3].map(address));
        follower.confirm(config(4, Part::Paused));
        assert_eq!(follower.writes(&config(4, Part::Lost)), None);
        let other = Config { incarnation: 8, ..config(5, Part::Lost) };
        assert_eq!(follower.writes(&other), None);
        follower.begin_again();
        assert!(follower.asks() && follower.writes(&config(4, Part::Paused)).is_some());
    }
}
