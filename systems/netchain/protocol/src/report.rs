//! How evenly a ring spreads keys, parts in chains, and recovery over its switches.

use crate::Ring;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A switch's share.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// Chains that it is in. All groups have as many keys, so it holds this part of all keys'
    /// copies.
    pub chains: u32,
    /// Chains that it is the head of: writes.
    pub heads: u32,
    /// Chains that it is the tail of: reads, and replies.
    pub tails: u32,
    /// Of its chains, the parts that go to each other switch when it dies.
    pub heirs: BTreeMap<Ipv4Addr, u32>,
    /// Chains that stay one member short when it dies: no other switch is left.
    pub short: u32,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Of the ring.
    pub fingerprint: u32,
    /// Groups, each with the same part of all keys.
    pub groups: u16,
    /// Switches in a chain.
    pub replicas: usize,
    /// By switch.
    pub shares: BTreeMap<Ipv4Addr, Share>,
}

impl Report {
    /// Of the chains that the ring places.
    pub fn of(ring: &Ring) -> Report {
        let mut shares: BTreeMap<Ipv4Addr, Share> =
            ring.members().iter().map(|member| (member.address, Share::default())).collect();
        for group in 0..ring.groups() {
            let chain = ring.chain_of(group).unwrap_or_default();
            for (at, address) in chain.iter().enumerate() {
                let survivors: Vec<Ipv4Addr> =
                    chain.iter().copied().filter(|it| it != address).collect();
                let share = shares.entry(*address).or_default();
                share.chains += 1;
                share.heads += u32::from(at == 0);
                share.tails += u32::from(at + 1 == chain.len());
                match ring.heir(group, &survivors, &[*address]) {
                    Some(heir) => *share.heirs.entry(heir).or_default() += 1,
                    None => share.short += 1,
                }
            }
        }
        let (fingerprint, groups) = (ring.fingerprint(), ring.groups());
        Report { fingerprint, groups, replicas: ring.founding().failures + 1, shares }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Founding, Member};

    fn ring(switches: u8) -> Ring {
        let member = (1..=switches)
            .map(|i| Member { address: Ipv4Addr::new(10, 9, 0, i), rack: format!("r{i}") })
            .collect();
        let cluster = "0123456789abcdef".into();
        let founding = Founding { cluster, groups: 600, virtual_nodes: 100, failures: 2, member };
        Ring::found(founding).unwrap()
    }

    #[test]
    fn each_chain_is_counted_once_for_each_member() {
        let report = Report::of(&ring(6));
        let sum = |of: fn(&Share) -> u32| report.shares.values().map(of).sum::<u32>();
        assert_eq!((sum(|it| it.chains), sum(|it| it.heads), sum(|it| it.tails)), (1800, 600, 600));
        for (address, share) in &report.shares {
            assert_eq!(share.heirs.values().sum::<u32>(), share.chains, "{address}");
            assert!(!share.heirs.contains_key(address));
            // The others share a dead switch's chains: it is not one that gets all of them.
            assert_eq!(share.heirs.len(), 5, "{share:?}");
            assert!(share.heirs.values().all(|parts| *parts < share.chains / 2), "{share:?}");
            // A share is 300 of the chains, and 100 of the heads.
            assert!((200..400).contains(&share.chains), "{share:?}");
            assert!((50..150).contains(&share.heads), "{share:?}");
            assert!((50..150).contains(&share.tails), "{share:?}");
        }
    }

    #[test]
    fn of_three_switches_nobody_is_left() {
        let report = Report::of(&ring(3));
        assert!(report.shares.values().all(|share| share.short == 600 && share.heirs.is_empty()));
    }
}
