//! What must hold, and is looked at whenever something is said or decided, and at the end.

use super::{CALM, SERVERS, SHARDS, World, server_address};
use state_protocol::{Message, MessageType, Owner};
use std::collections::HashMap;
use wire::{Member, Views, shard_of};

/// What must hold, over all of a run.
#[derive(Default, Debug)]
pub struct Checks {
    pub(super) granted: HashMap<(Vec<u8>, u32), Owner>,
    pub(super) last_owner: HashMap<Vec<u8>, Owner>,
    pub(super) released: HashMap<Vec<u8>, u64>,
    pub(super) writes: HashMap<(Vec<u8>, u64), (Owner, u32, u64)>,
    pub(super) acknowledged: HashMap<Vec<u8>, (u32, u64)>,
    pub acks: u64,
    pub handovers: u64,
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

    /// `SIMULATION_TRACE=flow` prints everything about that flow, and all events and decisions.
    pub fn trace(&self, what: &str, message: &Message<'_>) {
        if !self.traced {
            return;
        }
        let flow = std::env::var("SIMULATION_TRACE").ok().and_then(|flow| flow.parse().ok());
        if flow.is_some_and(|flow: u8| message.key.last() == Some(&flow)) {
            let Message {
                message_type,
                sender,
                request_ns,
                epoch,
                seq,
                lease_us,
                session,
                flags,
                ..
            } = message;
            eprintln!(
                "{:>9} {what}: {message_type:?} {sender:?} sent {request_ns} epoch {epoch} seq {seq} lease {lease_us} session {session} {flags:?}",
                self.time / 1000
            );
        }
    }

    /// Invariants on what the store says, when it says it.
    pub(super) fn check_reply(&mut self, reply: &Message<'_>) {
        let key = reply.key.to_vec();
        match reply.message_type {
            MessageType::LeaseGrant => {
                let owner =
                    *self.checks.granted.entry((key.clone(), reply.epoch)).or_insert(reply.sender);
                assert_eq!(owner, reply.sender, "epoch {} of {key:?} granted twice", reply.epoch);
                let before = self.checks.last_owner.insert(key, reply.sender);
                self.checks.handovers +=
                    u64::from(before.is_some_and(|before| before != reply.sender));
                self.check_everywhere(reply);
            }
            MessageType::UpdateAck => {
                self.checks.acks += 1;
                let shard = usize::from(reply.shard);
                let gap = self.time - self.checks.last_ack_of_shard[shard];
                self.checks.last_ack_of_shard[shard] = self.time;
                self.checks.longest_gap_of_shard[shard] =
                    self.checks.longest_gap_of_shard[shard].max(gap);
                let newest = self.checks.acknowledged.entry(key).or_default();
                *newest = (*newest).max((reply.epoch, reply.seq));
                self.check_everywhere(reply);
            }
            _ => {}
        }
    }

    /// What is answered is on every server that the controller's database counts on.
    fn check_everywhere(&self, reply: &Message<'_>) {
        for member in &self.database.shards[usize::from(reply.shard)].members {
            let Some(node) = self.nodes.iter().flatten().find(|node| node.me() == *member) else {
                continue;
            };
            let recorded = node.replica(reply.shard).and_then(|replica| {
                let record = replica.records().get(replica.records().find(0, reply.key)?);
                Some((record.epoch, record.seq))
            });
            let answered = Some((reply.epoch, reply.seq));
            assert!(
                recorded >= answered,
                "{:?}: {answered:?} answered, {recorded:?} at {member:?}",
                reply.key
            );
        }
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
            let replicas: Vec<_> =
                view.members.iter().map(|m| node(m).replica(shard as u16).unwrap()).collect();
            let digests: Vec<_> =
                replicas.iter().map(|replica| replica.records().shared_digest()).collect();
            assert!(
                digests.iter().all(|digest| *digest == digests[0]),
                "shard {shard} differs: {digests:?}"
            );
            for replica in &replicas {
                let report = replica.report(0);
                assert!(report.ready && report.view == view.number, "shard {shard}: {report:?}");
            }
            for (key, answered) in &self.checks.acknowledged {
                if usize::from(shard_of(key, SHARDS)) == shard {
                    let records = replicas[0].records();
                    let record = records.get(records.find(0, key).expect("acknowledged, yet gone"));
                    assert!((record.epoch, record.seq) >= *answered, "{key:?}: {answered:?}");
                }
            }
        }
        for node in self.nodes.iter().flatten() {
            assert_eq!(node.views().version, self.database.version);
        }
    }
}
