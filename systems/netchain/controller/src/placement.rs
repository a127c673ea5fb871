//! Which switches should be in which chain.

use netchain_protocol::Ring;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Which switches should be in a group's chain: the ring of the cluster.
pub trait Placement {
    /// Every switch of the cluster, the group's best candidate first.
    fn candidates(&self, group: u16) -> &[Ipv4Addr];

    /// A number for what may fail together with the switch: two members of a chain should not have
    /// the same.
    fn rack(&self, switch: &Ipv4Addr) -> u32;
}

/// Candidates in the order of each group's walk around a founding's ring.
#[derive(Clone, Debug)]
pub struct Walks {
    groups: Vec<Vec<Ipv4Addr>>,
    racks: BTreeMap<Ipv4Addr, u32>,
}

impl Walks {
    /// Those of a cluster.
    pub fn of(ring: &Ring) -> Walks {
        let mut numbers = BTreeMap::new();
        let racks = ring.members().iter().map(|member| {
            let next = numbers.len() as u32; // no more than members
            (member.address, *numbers.entry(&member.rack).or_insert(next))
        });
        let racks = racks.collect();
        let groups = (0..ring.groups()).filter_map(|group| ring.candidates(group)).collect();
        Walks { groups, racks }
    }

    /// The candidates of all groups, in the order of their numbers.
    pub fn groups(&self) -> &[Vec<Ipv4Addr>] {
        &self.groups
    }
}

impl Placement for Walks {
    fn candidates(&self, group: u16) -> &[Ipv4Addr] {
        self.groups.get(usize::from(group)).map_or(&[], Vec::as_slice)
    }

    fn rack(&self, switch: &Ipv4Addr) -> u32 {
        self.racks.get(switch).copied().unwrap_or(u32::MAX)
    }
}
