//! Consistent hashing (the paper's §4.1, "data partitioning"): from keys to groups, and from groups
//! to the switches of their first chains.
//!
//! The keys' 64-bit hashes are cut into as many equal parts as there are groups. Each switch has
//! virtual nodes on the same ring of numbers. A group's first chain is the switches of the virtual
//! nodes from the group's beginning on, in racks of their own as long as there are enough.
//!
//! All of that is fixed when the cluster is founded: a switch that joins later changes no group.
//! Who is in a chain after its first view is the controller's decision, and nobody computes it from
//! a list of switches.

use crate::Key;
use crate::message::Wrong;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use std::collections::BTreeSet;
use std::hash::Hasher;
use std::net::Ipv4Addr;

/// A switch of the ring.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its NetChain address, which names it.
    pub address: Ipv4Addr,
    /// Where it fails together with others.
    pub rack: String,
}

/// What a cluster is founded with: a file that is written once and never changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Founding {
    /// The cluster's identity, in hexadecimal digits: random, so that no other cluster has it.
    pub cluster: String,
    /// Groups that keys are spread over.
    pub groups: u16,
    /// Virtual nodes of each switch.
    pub virtual_nodes: u16,
    /// Members of a chain that may fail at a time (f): a chain has one switch more.
    pub failures: usize,
    /// The switches at the beginning.
    pub member: Vec<Member>,
}

/// A virtual node of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    at: u64,
    /// In `Founding::member`.
    member: usize,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Its members are in the order of their addresses.
    founding: Founding,
    nodes: Vec<Node>,
    fingerprint: u32,
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher24::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// Of all that a founding says. Never 0.
fn fingerprint(founding: &Founding) -> u32 {
    let mut bytes = founding.cluster.as_bytes().to_vec();
    bytes.push(0);
    bytes.extend(founding.groups.to_be_bytes());
    bytes.extend(founding.virtual_nodes.to_be_bytes());
    bytes.extend((founding.failures as u32).to_be_bytes());
    for member in &founding.member {
        bytes.extend(member.address.octets());
        bytes.extend((member.rack.len() as u32).to_be_bytes());
        bytes.extend(member.rack.as_bytes());
    }
    let whole = hash(&[&bytes]);
    (((whole >> 32) ^ whole) as u32).max(1)
}

impl Ring {
    /// Founds a cluster.
    ///
    /// # Errors
    /// An identity that is none, more switches in a chain than a message has room for or than there
    /// are, a switch twice, no groups or virtual nodes, or more groups or switches than a switch
    /// has room for.
    pub fn found(mut founding: Founding) -> Result<Ring, String> {
        founding.member.sort();
        let Founding { cluster, groups, virtual_nodes, failures, member } = &founding;
        let digits = cluster.len() == 16 && cluster.bytes().all(|it| it.is_ascii_hexdigit());
        if !digits || cluster.bytes().any(|it| it.is_ascii_uppercase()) {
            return Err(format!("cluster {cluster:?}: write 16 digits of 0-9 and a-f, at random"));
        }
        if let Some(twice) = member.windows(2).find(|pair| pair[0].address == pair[1].address) {
            return Err(format!("switch {} is a member twice", twice[0].address));
        }
        // (A message has room for the chain and a switch that joins it in another's place.)
        if *failures >= member.len() || *failures + 2 > crate::CHAIN_MAX {
            return Err(format!(
                "failures = {failures} of {} members: a chain has one switch more than failures, \
                 and at most {}",
                member.len(),
                crate::CHAIN_MAX - 1
            ));
        }
        if *groups == 0 || *virtual_nodes == 0 {
            return Err("groups and virtual_nodes: write numbers from 1 on".into());
        }
        if *groups > crate::GROUPS_MAX {
            return Err(format!("groups = {groups}: write at most {}", crate::GROUPS_MAX));
        }
        if member.len() > crate::MEMBERS_MAX {
            return Err(format!("{} members: write at most {}", member.len(), crate::MEMBERS_MAX));
        }
        let mut nodes = Vec::with_capacity(member.len() * usize::from(*virtual_nodes));
        for (at, switch) in member.iter().enumerate() {
            for node in 0..*virtual_nodes {
                let place = hash(&[&switch.address.octets(), &node.to_be_bytes()]);
                nodes.push(Node { at: place, member: at });
            }
        }
        nodes.sort();
        let fingerprint = fingerprint(&founding);
        Ok(Ring { founding, nodes, fingerprint })
    }

    /// Reads a founding file.
    ///
    /// # Errors
    /// The text is no TOML, or says what cannot be.
    pub fn from_toml(text: &str) -> Result<Ring, String> {
        Ring::found(toml::from_str(text).map_err(|error| error.to_string())?)
    }

    /// The founding file.
    ///
    /// # Errors
    /// Of the TOML library.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(&self.founding).map_err(|error| error.to_string())
    }

    /// What the cluster was founded with.
    pub fn founding(&self) -> &Founding {
        &self.founding
    }

    /// A number that differs, but for one in four thousand million cases, between two foundings:
    /// each message carries it. Never 0.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// Number of groups; they count from 0.
    pub fn groups(&self) -> u16 {
        self.founding.groups
    }

    /// Switches, in the order of their addresses.
    pub fn members(&self) -> &[Member] {
        &self.founding.member
    }

    /// The group of a key.
    pub fn group_of(&self, key: &Key) -> u16 {
        let part = u128::from(hash(&[&key.0])) * u128::from(self.groups());
        (part >> 64) as u16
    }

    /// The group of a name.
    ///
    /// # Errors
    /// The name is too long.
    pub fn group_of_name(&self, name: &str) -> Result<u16, Wrong> {
        Ok(self.group_of(&Key::from_name(name)?))
    }

    /// All switches in the order of a group's walk around the ring, as places in `members`.
    fn walk(&self, group: u16) -> Vec<usize> {
        let begins = (u128::from(group) << 64) / u128::from(self.groups());
        let first = self.nodes.partition_point(|node| u128::from(node.at) < begins);
        let mut met = Vec::with_capacity(self.members().len());
        for node in self.nodes[first..].iter().chain(&self.nodes[..first]) {
            if !met.contains(&node.member) {
                met.push(node.member);
            }
            if met.len() == self.members().len() {
                break;
            }
        }
        met
    }

    /// All switches, the best for a group's chain first: of each rack the first one on the group's
    /// walk, then the others. None: no such group.
    pub fn candidates(&self, group: u16) -> Option<Vec<Ipv4Addr>> {
        if group >= self.groups() {
            return None;
        }
        let mut racks = BTreeSet::new();
        let walk = self.walk(group).into_iter().map(|member| &self.members()[member]);
        let (first, others): (Vec<_>, Vec<_>) = walk.partition(|it| racks.insert(&it.rack));
        Some(first.into_iter().chain(others).map(|it| it.address).collect())
    }

    /// A group's chain in view 1, from head to tail. None: no such group.
    pub fn chain_of(&self, group: u16) -> Option<Vec<Ipv4Addr>> {
        let mut chain = self.candidates(group)?;
        chain.truncate(self.founding.failures + 1);
        Some(chain)
    }

    /// The switch that makes a group's chain whole again: the next on the group's walk that is none
    /// of `survivors` and `dead`, in a rack where no survivor is if there is one. It is advice: the
    /// controller decides.
    pub fn heir(&self, group: u16, survivors: &[Ipv4Addr], dead: &[Ipv4Addr]) -> Option<Ipv4Addr> {
        let members = self.members();
        let racks: BTreeSet<&String> = members
            .iter()
            .filter(|member| survivors.contains(&member.address))
            .map(|member| &member.rack)
            .collect();
        let walk = self.walk(group);
        let able: Vec<&Member> = walk
            .into_iter()
            .map(|member| &members[member])
            .filter(|it| !survivors.contains(&it.address) && !dead.contains(&it.address))
            .collect();
        let elsewhere = able.iter().find(|member| !racks.contains(&member.rack));
        elsewhere.or(able.first()).map(|member| member.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn founding(count: u8, racks: u8, groups: u16, failures: usize) -> Founding {
        let member = (0..count)
            .map(|i| Member {
                address: Ipv4Addr::new(10, 9, 0, i.wrapping_add(1)),
                rack: format!("r{}", i % racks),
            })
            .collect();
        let cluster = "0123456789abcdef".into();
        Founding { cluster, groups, virtual_nodes: 100, failures, member }
    }

    #[test]
    fn chains_are_of_distinct_switches_and_racks() {
        for (count, racks) in [(3, 3), (4, 2), (9, 3), (12, 12)] {
            let ring = Ring::found(founding(count, racks, 500, 2)).unwrap();
            for group in 0..ring.groups() {
                let chain = ring.chain_of(group).unwrap();
                let switches: BTreeSet<_> = chain.iter().collect();
                let used: BTreeSet<_> =
                    chain.iter().map(|it| (it.octets()[3] - 1) % racks).collect();
                assert_eq!(switches.len(), 3, "{chain:?}");
                assert_eq!(used.len(), usize::from(racks.min(3)), "{chain:?}");
            }
            assert_eq!(ring.chain_of(500), None);
        }
    }

    /// Who takes over after the chain, one after the other.
    #[test]
    fn candidates_are_the_chain_and_its_heirs() {
        for (count, racks) in [(3, 3), (4, 2), (9, 3), (12, 12), (8, 1)] {
            let ring = Ring::found(founding(count, racks, 200, 2)).unwrap();
            for group in 0..ring.groups() {
                let candidates = ring.candidates(group).unwrap();
                let mut all = ring.chain_of(group).unwrap();
                while let Some(heir) = ring.heir(group, &all, &[]) {
                    all.push(heir);
                }
                assert_eq!(candidates, all, "{count} switches in {racks} racks, group {group}");
                assert_eq!(all.len(), usize::from(count));
            }
            assert_eq!(ring.candidates(200), None);
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let mut other = founding(7, 7, 50, 2);
        let ring = Ring::found(other.clone()).unwrap();
        other.member.reverse();
        assert_eq!(Ring::found(other).unwrap(), ring);
    }

    #[test]
    fn what_was_founded_is_read_again() {
        let ring = Ring::found(founding(7, 3, 50, 2)).unwrap();
        assert_eq!(Ring::from_toml(&ring.to_toml().unwrap()).unwrap(), ring);
        assert!(Ring::from_toml("groups = 3").unwrap_err().contains("cluster"));
    }

    /// The numbers that switches and clients of a cluster have in common: a change here parts
    /// clusters that run.
    #[test]
    fn groups_and_fingerprint_stay_what_they_are() {
        let ring = Ring::found(founding(3, 3, 100, 2)).unwrap();
        let groups = ["", "foo", "lock"].map(|name| ring.group_of_name(name).unwrap());
        assert_eq!((groups, ring.fingerprint()), ([19, 99, 56], 3_661_157_029));
    }

    /// All that clients and switches must agree on is in the fingerprint.
    #[test]
    fn each_field_changes_the_fingerprint() {
        let first = founding(4, 4, 100, 2);
        let changes: [fn(&mut Founding); 6] = [
            |it| it.cluster = "0123456789abcdee".into(),
            |it| it.groups = 101,
            |it| it.virtual_nodes = 101,
            |it| it.failures = 1,
            |it| it.member[2].rack = "r7".into(),
            |it| drop(it.member.pop()),
        ];
        let mut seen = BTreeSet::from([Ring::found(first.clone()).unwrap().fingerprint()]);
        for change in changes {
            let mut other = first.clone();
            change(&mut other);
            assert!(seen.insert(Ring::found(other).unwrap().fingerprint()));
        }
    }

    /// Groups have the same share of the keys, so that a report can count groups.
    #[test]
    fn keys_spread() {
        let ring = Ring::found(founding(6, 6, 20, 2)).unwrap();
        let mut keys: BTreeMap<u16, u32> = BTreeMap::new();
        for i in 0..60_000 {
            *keys.entry(ring.group_of_name(&format!("key-{i}")).unwrap()).or_default() += 1;
        }
        assert_eq!(keys.len(), 20);
        assert!(keys.values().all(|keys| (2_700..3_300).contains(keys)), "{keys:?}");
    }

    #[test]
    fn an_heir_is_no_member_and_not_dead_and_in_a_rack_of_its_own() {
        let ring = Ring::found(founding(8, 4, 200, 2)).unwrap();
        for group in 0..ring.groups() {
            let chain = ring.chain_of(group).unwrap();
            let (dead, survivors) = (chain[0], &chain[1..]);
            let heir = ring.heir(group, survivors, &[dead]).unwrap();
            let racks: BTreeSet<u8> =
                survivors.iter().chain([&heir]).map(|it| (it.octets()[3] - 1) % 4).collect();
            assert!(!chain.contains(&heir));
            assert_eq!(racks.len(), 3, "{chain:?} {heir}");
        }
        let ring = Ring::found(founding(3, 3, 10, 2)).unwrap();
        let chain = ring.chain_of(0).unwrap();
        assert_eq!(ring.heir(0, &chain[1..], &chain[..1]), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(Ring::found(founding(2, 2, 100, 2)).is_err());
        assert!(Ring::found(founding(5, 5, 100, 4)).is_err());
        assert!(Ring::found(founding(3, 3, 0, 2)).is_err());
        assert!(Ring::found(founding(3, 3, 4096, 2)).is_ok());
        assert!(Ring::found(founding(3, 3, 4097, 2)).unwrap_err().contains("at most 4096"));
        assert!(Ring::found(founding(255, 3, 10, 2)).is_ok());
        let mut other = founding(255, 3, 10, 2);
        other.member.push(Member { address: Ipv4Addr::new(10, 9, 1, 1), rack: "r".into() });
        assert!(Ring::found(other).unwrap_err().contains("at most 255"));
        let mut other = founding(3, 3, 10, 2);
        other.member.push(other.member[0].clone());
        assert!(Ring::found(other).unwrap_err().contains("10.9.0.1"));
        let mut other = founding(3, 3, 10, 2);
        other.cluster = "test".into();
        assert!(Ring::found(other).unwrap_err().contains("\"test\""));
    }
}
