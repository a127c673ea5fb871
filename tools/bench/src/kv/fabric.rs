//! A model of NetChain in a spine-leaf network: how often a query meets each switch, and what the
//! busiest one lets through. Placement is the real one (the ring's chains).
//!
//! Leaves have the numbers 0 to L − 1, spines L to L + L/2 − 1. Each leaf is linked to each spine.
//! Shortest paths share the traffic alike (ECMP). A packet costs each switch that it meets once.

use anyhow::{Context, Result};
use netchain_client::Ring;
use netchain_protocol::{Founding, GROUPS_MAX, Member};
use std::net::Ipv4Addr;

/// What a packet costs a switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// It is routed.
    pub route: f64,
    /// The reader answers it.
    pub read: f64,
    /// A write at the head, in the middle, and at the tail.
    pub write: [f64; 3],
}

impl Costs {
    /// The paper's: all alike.
    pub const ALIKE: Costs = Costs { route: 1.0, read: 1.0, write: [1.0; 3] };
}

/// A query's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// A linearizable read.
    Read,
    /// A write through the whole chain.
    Write,
}

/// The network, with all of its switches in chains.
#[derive(Debug)]
pub struct Fabric {
    leaves: usize,
    spines: usize,
    /// Switches of each group's chain, head first, and the group's share of queries.
    chains: Vec<(Vec<usize>, f64)>,
    /// Leaves with clients.
    clients: Vec<usize>,
}

/// Address of a switch of the model.
fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, number as u8 + 1)
}

impl Fabric {
    /// `leaves` and half as many spines, f = 2, 100 virtual nodes and up to 100 groups a switch;
    /// clients at all leaves, keys alike over the groups.
    ///
    /// # Errors
    /// There are more switches than a founding has room for.
    pub fn founded(leaves: usize) -> Result<Fabric> {
        let switches = leaves + leaves / 2;
        let member = (0..switches)
            .map(|number| Member { address: address(number), rack: format!("r{number}") });
        let groups = u16::try_from(switches * 100).unwrap_or(u16::MAX).min(GROUPS_MAX);
        let founding = Founding {
            cluster: "0123456789abcdef".into(),
            groups,
            virtual_nodes: 100,
            failures: 2,
            member: member.collect(),
        };
        let ring = Ring::found(founding).map_err(anyhow::Error::msg)?;
        let shares = vec![1.0 / f64::from(groups); usize::from(groups)];
        Fabric::of(leaves, &ring, &shares, (0..leaves).collect())
    }

    /// With chains of a ring; `shares`: of all queries, by group.
    ///
    /// # Errors
    /// A chain has an address that is no switch's.
    pub fn of(leaves: usize, ring: &Ring, shares: &[f64], clients: Vec<usize>) -> Result<Fabric> {
        let spines = leaves / 2;
        let number = |at: &Ipv4Addr| (0..leaves + spines).find(|it| address(*it) == *at);
        let chain = |(group, share): (u16, &f64)| {
            let chain = ring.chain_of(group).context("no such group")?;
            let chain: Option<Vec<usize>> = chain.iter().map(number).collect();
            Ok((chain.context("a member that is no switch")?, *share))
        };
        let chains = (0..).zip(shares).map(chain).collect::<Result<_>>()?;
        Ok(Fabric { leaves, spines, chains, clients })
    }

    /// How many switches there are.
    pub fn switches(&self) -> usize {
        self.leaves + self.spines
    }

    /// Switches between two others, each with the share of packets that meet it.
    fn between(&self, from: usize, to: usize) -> Vec<(usize, f64)> {
        let any = |first: usize, count: usize| {
            (first..first + count).map(|it| (it, 1.0 / count as f64)).collect()
        };
        match (from < self.leaves, to < self.leaves) {
            _ if from == to => vec![],
            (true, true) => any(self.leaves, self.spines),
            (false, false) => any(0, self.leaves),
            _ => vec![],
        }
    }

    /// What a query costs each switch on average.
    pub fn load(&self, query: Query, costs: &Costs) -> Vec<f64> {
        let mut load = vec![0.0; self.switches()];
        for (chain, share) in &self.chains {
            for client in &self.clients {
                let share = share / self.clients.len() as f64;
                self.add(&mut load, query, costs, chain, *client, share);
            }
        }
        load
    }

    fn add(
        &self,
        load: &mut [f64],
        query: Query,
        costs: &Costs,
        chain: &[usize],
        client: usize,
        share: f64,
    ) {
        let stops: Vec<(usize, f64)> = match query {
            Query::Read => chain.last().map(|tail| (*tail, costs.read)).into_iter().collect(),
            Query::Write => {
                let last = chain.len() - 1;
                let cost = |at| costs.write[if at == last { 2 } else { usize::from(at > 0) }];
                chain.iter().enumerate().map(|(at, switch)| (*switch, cost(at))).collect()
            }
        };
        // The client's leaf routes what comes from its host, unless it serves it itself.
        let mut at = client;
        if stops.first().is_some_and(|(first, _)| *first != client) {
            load[client] += costs.route * share;
        }
        for (stop, cost) in stops {
            for (switch, part) in self.between(at, stop) {
                load[switch] += costs.route * share * part;
            }
            load[stop] += cost * share;
            at = stop;
        }
        // The reply.
        if at != client {
            for (switch, part) in self.between(at, client) {
                load[switch] += costs.route * share * part;
            }
            load[client] += costs.route * share;
        }
    }

    /// Queries for each unit of time in which a switch bears costs of 1, and how much more than the
    /// average the busiest one bears. `writes`: their share.
    pub fn throughput(&self, writes: f64, costs: &Costs) -> (f64, f64) {
        let reads = self.load(Query::Read, costs);
        let both = reads.iter().zip(self.load(Query::Write, costs));
        let load: Vec<f64> =
            both.map(|(read, write)| read * (1.0 - writes) + write * writes).collect();
        let most = load.iter().copied().fold(0.0, f64::max);
        let mean = load.iter().sum::<f64>() / load.len() as f64;
        (1.0 / most, most / mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four leaves (0 to 3), two spines (4, 5), one group, clients at leaf 0.
    fn one(chain: &[usize]) -> Fabric {
        Fabric { leaves: 4, spines: 2, chains: vec![(chain.to_vec(), 1.0)], clients: vec![0] }
    }

    #[test]
    fn a_read_is_routed_there_and_back() {
        let load = one(&[1, 2, 3]).load(Query::Read, &Costs::ALIKE);
        // Leaf 0, a spine, the tail, a spine, leaf 0.
        assert_eq!(load, [2.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        let costs = Costs { route: 10.0, read: 7.0, write: [0.0; 3] };
        assert_eq!(one(&[1, 2, 0]).load(Query::Read, &costs), [7.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(one(&[1, 2, 4]).load(Query::Read, &costs), [20.0, 0.0, 0.0, 0.0, 7.0, 0.0]);
    }

    #[test]
    fn a_write_meets_its_chain_and_what_lies_between() {
        let costs = Costs { route: 1.0, read: 0.0, write: [10.0, 20.0, 30.0] };
        // Leaf 0, spine 4 (head), leaf 1 (middle), a spine, leaf 2 (tail), a spine, leaf 0.
        let load = one(&[4, 1, 2]).load(Query::Write, &costs);
        assert_eq!(load, [2.0, 20.0, 30.0, 0.0, 11.0, 1.0]);
        // Between two spines lies any leaf.
        let load = one(&[4, 5, 0]).load(Query::Write, &costs);
        assert_eq!(load, [1.0 + 0.25 + 30.0, 0.25, 0.25, 0.25, 10.0, 20.0]);
    }

    #[test]
    fn throughput_grows_with_the_network() {
        let of = |leaves| Fabric::founded(leaves).unwrap().throughput(0.0, &Costs::ALIKE).0;
        let ratio = of(64) / of(4);
        assert!((8.0..24.0).contains(&ratio), "{ratio}");
    }
}
