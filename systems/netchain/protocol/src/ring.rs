//! Consistent hashing (the paper's §3, "data partitioning"): from keys to groups, and from groups
//! to the switches of their chains.
//!
//! Each switch has the same number of virtual nodes on a ring of 64-bit numbers. A virtual node and
//! the keys between it and the one before are a group. The group's chain is the virtual node's own
//! switch and the next others on the ring, in racks of their own as long as there are enough.
//!
//! The function depends on the list of switches alone, in whatever order: clients, controllers and
//! tools compute the same.

use crate::Key;
use crate::message::Wrong;
use siphasher::sip::SipHasher24;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::net::Ipv4Addr;

/// A switch of the ring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its NetChain address, which names it.
    pub address: Ipv4Addr,
    /// Where it fails together with others.
    pub rack: String,
}

/// A virtual node: a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    at: u64,
    /// In `Ring::members`.
    member: usize,
    group: u16,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Ring {
    members: Vec<Member>,
    points: Vec<Point>,
    replicas: usize,
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher24::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

impl Ring {
    /// Of these switches, with `groups` virtual nodes each and chains of `replicas`.
    ///
    /// # Errors
    /// More replicas than a message has room for or than there are switches, a switch twice, or
    /// more groups than have numbers.
    pub fn new(members: &[Member], groups: u16, replicas: usize) -> Result<Ring, String> {
        let mut members = members.to_vec();
        members.sort();
        if let Some(twice) = members.windows(2).find(|pair| pair[0].address == pair[1].address) {
            return Err(format!("switch {} stands in the list twice", twice[0].address));
        }
        if replicas == 0 || replicas > crate::CHAIN_MAX || replicas > members.len() {
            return Err(format!(
                "chains of {replicas} of {} switches: from 1 to the smaller of {} and the number \
                 of switches",
                members.len(),
                crate::CHAIN_MAX
            ));
        }
        let all = members.len() * usize::from(groups);
        if groups == 0 || all > usize::from(u16::MAX) {
            return Err(format!(
                "{groups} groups for each of {} switches are {all}: from 1 to {}",
                members.len(),
                u16::MAX
            ));
        }
        let mut points = Vec::with_capacity(all);
        for (member, switch) in members.iter().enumerate() {
            for node in 0..groups {
                let at = hash(&[&switch.address.octets(), &node.to_be_bytes()]);
                points.push(Point { at, member, group: 0 });
            }
        }
        points.sort();
        for (group, point) in points.iter_mut().enumerate() {
            point.group = group as u16;
        }
        Ok(Ring { members, points, replicas })
    }

    /// Number of groups; they count from 0.
    pub fn groups(&self) -> u16 {
        self.points.len() as u16
    }

    /// Switches, in the order of their addresses.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The group of a key.
    pub fn group_of(&self, key: &Key) -> u16 {
        let at = hash(&[&key.0]);
        let next = self.points.partition_point(|point| point.at < at);
        self.points[next % self.points.len()].group
    }

    /// The group of a name.
    ///
    /// # Errors
    /// The name is too long.
    pub fn group_of_name(&self, name: &str) -> Result<u16, Wrong> {
        Ok(self.group_of(&Key::from_name(name)?))
    }

    /// The chain of a group as the ring places it, from head to tail. None: no such group.
    pub fn chain_of(&self, group: u16) -> Option<Vec<Ipv4Addr>> {
        let first = usize::from(group);
        self.points.get(first)?;
        let mut chain: Vec<usize> = Vec::with_capacity(self.replicas);
        let mut racks = BTreeSet::new();
        // Once around for racks of their own, once more for what is then still missing.
        for any_rack in [false, true] {
            for step in 0..self.points.len() {
                let member = self.points[(first + step) % self.points.len()].member;
                let rack = &self.members[member].rack;
                if chain.len() < self.replicas
                    && !chain.contains(&member)
                    && (any_rack || !racks.contains(rack))
                {
                    racks.insert(rack.clone());
                    chain.push(member);
                }
            }
        }
        Some(chain.into_iter().map(|member| self.members[member].address).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn members(count: u8, racks: u8) -> Vec<Member> {
        (0..count)
            .map(|i| Member {
                address: Ipv4Addr::new(10, 9, 0, i + 1),
                rack: format!("r{}", i % racks),
            })
            .collect()
    }

    #[test]
    fn chains_are_of_distinct_switches_and_racks() {
        for (count, racks) in [(3, 3), (4, 2), (9, 3), (12, 12)] {
            let ring = Ring::new(&members(count, racks), 100, 3).unwrap();
            for group in 0..ring.groups() {
                let chain = ring.chain_of(group).unwrap();
                let switches: BTreeSet<_> = chain.iter().collect();
                let used: BTreeSet<_> =
                    chain.iter().map(|it| (it.octets()[3] - 1) % racks).collect();
                assert_eq!(switches.len(), 3, "{chain:?}");
                assert_eq!(used.len(), usize::from(racks.min(3)), "{chain:?}");
            }
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let mut list = members(7, 7);
        let ring = Ring::new(&list, 50, 3).unwrap();
        list.reverse();
        let other = Ring::new(&list, 50, 3).unwrap();
        for group in 0..ring.groups() {
            assert_eq!(ring.chain_of(group), other.chain_of(group));
        }
    }

    /// A switch more takes about its share of the keys, and moves no others.
    #[test]
    fn a_new_switch_moves_its_share() {
        let before = Ring::new(&members(4, 4), 100, 1).unwrap();
        let after = Ring::new(&members(5, 5), 100, 1).unwrap();
        let (mut moved, all) = (0, 20_000);
        for i in 0..all {
            let key = Key::from_name(&format!("key-{i}")).unwrap();
            let [old, new] = [&before, &after].map(|it| it.chain_of(it.group_of(&key)).unwrap()[0]);
            assert!(old == new || new == Ipv4Addr::new(10, 9, 0, 5), "{old} -> {new}");
            moved += u32::from(old != new);
        }
        assert!((all / 10..all * 3 / 10).contains(&moved), "{moved}");
    }

    /// With 100 virtual nodes each no switch heads more than half as many keys again as its share.
    #[test]
    fn keys_spread() {
        let ring = Ring::new(&members(6, 6), 100, 3).unwrap();
        let mut heads: BTreeMap<Ipv4Addr, u32> = BTreeMap::new();
        for i in 0..60_000 {
            let group = ring.group_of_name(&format!("key-{i}")).unwrap();
            *heads.entry(ring.chain_of(group).unwrap()[0]).or_default() += 1;
        }
        assert!(heads.values().all(|keys| (5_000..15_000).contains(keys)), "{heads:?}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(Ring::new(&members(2, 2), 100, 3).is_err());
        assert!(Ring::new(&members(5, 5), 100, 5).is_err());
        assert!(Ring::new(&members(3, 3), 0, 3).is_err());
        assert!(Ring::new(&members(200, 200), 1000, 3).is_err());
        let mut twice = members(3, 3);
        twice.push(twice[0].clone());
        assert!(Ring::new(&twice, 100, 3).unwrap_err().contains("10.9.0.1"));
    }
}
