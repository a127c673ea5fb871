//! What must hold, and is looked at whenever something is said or decided, and at the end.

use super::{CALM, SERVERS, World, server_address};
use crate::store::{self, Node};
use wire::{Member, Views};

/// What must hold, over all of a run.
#[derive(Default, Debug)]
pub struct Checks {
    /// The store's own.
    pub store: store::Checks,
    pub acks: u64,
    pub kills: u64,
    pub power_cuts: u64,
    pub joins: u64,
    pub moves: u64,
    pub reorders: u64,
    pub given_up: u64,
    pub last_ack_of_shard: Vec<u64>,
    pub longest_gap_of_shard: Vec<u64>,
}

impl World {
    /// No chain has two servers of one machine, and none gets one.
    pub(super) fn check_machines(&self, views: &Views) {
        for shard in &views.shards {
            let named =
                shard.members.iter().copied().chain(shard.joining.map(|joining| joining.member));
            let on = |member: Member| {
                (0..SERVERS).find(|at| server_address(*at) == member.address).unwrap()
            };
            let mut machines: Vec<_> = named.map(|member| self.machine_of(on(member))).collect();
            machines.sort_unstable();
            assert!(machines.windows(2).all(|pair| pair[0] != pair[1]), "{shard:?}");
        }
    }

    /// A fault, for a trace.
    pub(super) fn note(&self, fault: &str) {
        if self.traced {
            eprintln!("{:>9} {fault}", self.time / 1000);
        }
    }

    /// A server of this shard answered what it may only answer if the chain has it.
    pub fn served(&mut self, shard: u16) {
        self.checks.acks += 1;
        let shard = usize::from(shard);
        let gap = self.time - self.checks.last_ack_of_shard[shard];
        self.checks.last_ack_of_shard[shard] = self.time;
        self.checks.longest_gap_of_shard[shard] = self.checks.longest_gap_of_shard[shard].max(gap);
    }

    /// The servers that run, of those that the controller's database counts on.
    pub fn counted_on(&self, shard: u16) -> impl Iterator<Item = &Node> {
        let members = &self.database.shards[usize::from(shard)].members;
        self.nodes.iter().flatten().filter(|node| members.contains(&node.me()))
    }

    /// The network heals, the switches fall silent: every shard has its full chain, all servers of
    /// it are alike, and nothing acknowledged is missing.
    pub fn finish(&mut self, until: u64) {
        self.quiet = true;
        self.heal();
        self.network.set_conditions(CALM);
        (0..SERVERS).for_each(|at| self.restart(at));
        self.restart_controller();
        self.run(until);
        for (shard, view) in self.database.shards.iter().enumerate() {
            assert_eq!((view.members.len(), view.joining), (3, None), "shard {shard}: {view:?}");
            let node = |member: &Member| {
                self.nodes.iter().flatten().find(|node| node.me() == *member).unwrap()
            };
            let nodes: Vec<&Node> = view.members.iter().map(node).collect();
            let shard = shard as u16;
            let digests: Vec<_> = nodes.iter().map(|node| store::digest(node, shard)).collect();
            assert!(
                digests.iter().all(|digest| *digest == digests[0]),
                "shard {shard} differs: {digests:?}"
            );
            for node in &nodes {
                let report = store::report(node, shard);
                assert!(report.ready && report.view == view.number, "shard {shard}: {report:?}");
            }
            self.checks.store.all_is_there(nodes[0], shard);
        }
        for node in self.nodes.iter().flatten() {
            assert_eq!(node.views().version, self.database.version);
        }
    }
}
