//! What must hold in a simulated run: of the store's answers, of the switches' flows, of what
//! leaves the network, and of the servers in the end.

use super::{Phase, World};
use crate::common::engine::Update;
use crate::common::switch::Key;
use crate::common::*;
use state_protocol::{Message, MessageType, Owner, sender_of};
use std::collections::{HashMap, HashSet};
use wire::{Batch, BatchAck};

/// What must hold, over all of a run.
#[derive(Default)]
pub struct Checks {
    pub granted: HashMap<Key, (u32, Owner)>,
    /// The highest count that left, by flow.
    pub outputs: HashMap<Vec<u8>, u64>,
    pub writes: HashMap<(Vec<u8>, u64), (Owner, u32, u64)>,
    pub sessions: HashMap<u32, Owner>,
    pub grants: u64,
    pub acks: u64,
    pub handovers: u64,
    pub releases: u64,
    pub recalls: u64,
    pub sessions_ended: u64,
    pub forged: u64,
    pub replayed: u64,
    pub power_cuts: u64,
    /// What each batch has: of whom, stream, number.
    pub batches: HashMap<(Owner, u16, u64), Vec<Update>>,
    /// Updates that an answer to a batch said to be durable.
    pub durable: HashSet<(Owner, Key, u32, u64)>,
    /// Updates that a program took: a copy of the batch that was lost behind it, perhaps.
    pub taken: HashSet<(Owner, Key, u32, u64)>,
    pub batch_acks: u64,
    /// Batches that a program took.
    pub by_program: u64,
    pub refused: u64,
    /// Updates refused only for their group.
    pub refused_with_group: u64,
}

fn updates_of(batch: &Batch<'_>) -> impl Iterator<Item = Update> {
    batch.records().map(|record| {
        let (key, value) = record.key_and_value(4, 8).unwrap();
        Update {
            key: (record.object_id, key.to_vec()),
            epoch: record.epoch,
            seq: record.seq,
            value: value.to_vec(),
            group: record.flags.contains(wire::RecordFlags::GROUP),
        }
    })
}

impl World {
    /// Invariants on what the store says, in the order in which it says it.
    pub fn check_reply(&mut self, reply: &Message<'_>) {
        let key = (reply.object_id, reply.key.to_vec());
        let owner = self.checks.sessions.entry(reply.session).or_insert(reply.sender);
        assert_eq!(*owner, reply.sender, "session {} of two switches", reply.session);
        match reply.message_type {
            MessageType::LeaseGrant => {
                self.checks.grants += 1;
                if let Some((epoch, owner)) =
                    self.checks.granted.insert(key, (reply.epoch, reply.sender))
                {
                    let same = reply.epoch == epoch && reply.sender == owner;
                    assert!(same || reply.epoch > epoch, "epoch {} after {epoch}", reply.epoch);
                    self.checks.handovers += u64::from(!same);
                }
            }
            MessageType::ReleaseAck => {
                self.checks.releases += 1;
                for server in &self.servers {
                    let object = usize::from(reply.object_id != COUNTER);
                    let Some(slot) = server.records().find(object, reply.key) else { continue };
                    let record = server.records().get(slot);
                    let over = record.epoch > reply.epoch || record.owner.is_none();
                    assert!(
                        over,
                        "released {} acknowledged, yet owned under {}",
                        reply.epoch, record.epoch
                    );
                }
            }
            MessageType::UpdateAck => {
                self.checks.acks += 1;
                for server in &self.servers {
                    let slot = server
                        .records()
                        .find(0, reply.key)
                        .expect("acknowledged, yet not recorded");
                    let record = server.records().get(slot);
                    let recorded = (record.epoch, record.seq) >= (reply.epoch, reply.seq);
                    assert!(
                        recorded,
                        "acknowledged {} is not on every server: {}",
                        reply.seq, record.seq
                    );
                }
            }
            _ => {}
        }
    }

    /// All servers' records have what their programs took.
    pub fn take_changes(&mut self) {
        self.servers.iter_mut().for_each(|server| server.node.take_changes());
    }

    /// Notes what a program took.
    pub fn note_taken(&mut self, bytes: &[u8]) {
        let batch = Batch::decode(bytes).expect("the program took it");
        let owner = sender_of(&batch.head);
        let names = updates_of(&batch).map(|it| (owner, it.key, it.epoch, it.seq));
        self.checks.taken.extend(names);
        self.checks.by_program += 1;
    }

    /// Notes what a switch sends in a batch.
    pub fn note_batch(&mut self, bytes: &[u8]) {
        let Ok(batch) = Batch::decode(bytes) else { return };
        let updates: Vec<_> = updates_of(&batch).collect();
        let name = (sender_of(&batch.head), batch.head.stream, batch.head.number);
        let known = self.checks.batches.entry(name).or_insert_with(|| updates.clone());
        assert_eq!(*known, updates, "a batch changed on its way");
    }

    /// What the tail says of a batch: what is not refused is on every server, and what is refused
    /// of a flow that only groups set is on none, nor is what builds on it.
    pub fn check_batch_ack(&mut self, ack: &BatchAck) {
        let owner = sender_of(&ack.head);
        let updates = self.checks.batches[&(owner, ack.head.stream, ack.head.number)].clone();
        assert_eq!(usize::from(ack.count), updates.len());
        self.checks.batch_acks += 1;
        self.take_changes();
        let refused = |at: usize| ack.refused >> at & 1 == 1;
        for (at, update) in updates.iter().enumerate() {
            let Update { key, epoch, seq, .. } = update;
            let name = (owner, key.clone(), *epoch, *seq);
            let sent = (*epoch, *seq);
            let recorded = self.servers.iter().map(|server| {
                let slot = server.records().find(0, &key.1)?;
                let record = server.records().get(slot);
                Some((record.epoch, record.seq))
            });
            if !refused(at) {
                self.checks.acks += 1;
                for recorded in recorded {
                    assert!(recorded >= Some(sent), "{sent:?} acknowledged, {recorded:?} recorded");
                }
                self.checks.durable.insert(name);
                continue;
            }
            self.checks.refused += 1;
            // An earlier copy of it may have been acknowledged, or have lost its answer with a
            // server; and another stream may have a later update of a flow that several set.
            let own = key.1[0] == 1;
            let taken = self.checks.durable.contains(&name) || self.checks.taken.contains(&name);
            if !own || self.checks.power_cuts > 0 || taken {
                continue;
            }
            for recorded in recorded.flatten() {
                // Its grant ended with the refusal.
                let here = recorded.0 == *epoch && recorded.1 >= *seq;
                assert!(!here, "{key:?} {sent:?} refused, yet recorded: {recorded:?}");
                self.checks.refused_with_group += u64::from(recorded.0 == *epoch);
            }
        }
    }

    /// At most one switch owns a flow; no two bindings in use share an external end towards one
    /// remote end.
    pub fn check_owners(&self) {
        let mut owners: HashMap<&Key, usize> = HashMap::new();
        let mut external = HashMap::new();
        for (at, switch) in self.switches.iter().enumerate() {
            let now = self.local(at);
            for (key, entry) in switch.entries.iter().filter(|(key, _)| switch.owns(now, key)) {
                if let Some(other) = owners.insert(key, at) {
                    panic!("switches {other} and {at} both own {key:?} at {}", self.time);
                }
                if key.0 == NAT && key.1[0] == 10 {
                    let end = (entry.value.clone(), key.1[4..8].to_vec(), key.1[10..].to_vec());
                    let before = external.insert(end, key);
                    assert!(
                        before.is_none_or(|before| before == key),
                        "one port for {before:?} and {key:?}"
                    );
                }
            }
        }
    }

    /// An output leaves the network with this count. `now`: the switch read it this instant, so it
    /// may not be older than any that left before.
    pub fn leaves(&mut self, key: &[u8], count: u64, now: bool) {
        let newest = self.checks.outputs.entry(key.to_vec()).or_default();
        assert!(!now || count >= *newest, "{key:?}: read {count} after {newest} had left");
        *newest = count.max(*newest);
    }

    /// A piggybacked packet came back. No two writes may ever have led to the same count: one of
    /// them would have been lost.
    pub fn output(&mut self, at: usize, key: &[u8], epoch: u32, written: bool, count: u64) {
        if written {
            let by = (self.switches[at].owner, epoch, count);
            let before = *self.checks.writes.entry((key.to_vec(), count)).or_insert(by);
            assert_eq!(before, by, "an update that left was lost");
        }
        self.leaves(key, count, false);
    }

    /// The network heals, the switches fall silent: all servers come to be alike, and nothing of an
    /// idle binding is left.
    pub fn finish(&mut self) {
        self.phase = Phase::Silent;
        self.run(self.time + 30 * SECOND);
        self.take_changes();
        let counters = self.servers[0].counters();
        (self.checks.recalls, self.checks.sessions_ended) =
            (counters.recalls, counters.sessions_ended);
        let digests: Vec<_> =
            self.servers.iter().map(|server| server.records().shared_digest()).collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "servers differ: {digests:?}");
        for (server, clock) in self.servers.iter().zip(&self.clocks) {
            let status = server.status(clock.local(self.time));
            assert_eq!(
                (status.unacked, status.held, status.reason.clone()),
                (0, 0, None),
                "{status:?}"
            );
            assert_eq!((status.recalls, status.sessions), (0, 0), "{status:?}");
            let objects = server.node_status(clock.local(self.time)).objects;
            assert_eq!((objects[1].records, objects[1].ports_in_use), (0, Some(0)), "leaked ports");
            assert_eq!(status.committed, status.index);
        }
    }
}
