//! The real store under the controller's world: its servers, and what must hold of what they say.

#[path = "../common/engine.rs"]
mod engine;
mod switch;

use crate::world::{MS, SECOND, SHARDS, World, controller_address, keys, switch_address};
use chain::Outputs;
use engine::Update;
use state_protocol::{Message, MessageType, Owner, sender_of};
pub use state_store::core::Node;
use state_store::core::{AllocatorSettings, Input, Limits, ObjectSettings, Settings, Start};
use std::collections::HashMap;
use std::net::SocketAddrV4;
pub use switch::Switch;
use wire::{BatchAck, ShardReport, shard_of};

const COUNTER: u16 = 1;
const LEASE_US: u32 = 100_000;

/// A server's start.
pub type Life = Start;

fn settings() -> Settings {
    Settings {
        shards: SHARDS,
        lease_us: LEASE_US,
        clock_drift_ppm: 1_000,
        lease_margin_us: 1_000,
        shard: 0,
        hold_ns: 200 * MS,
        tenure_ns: 2 * MS,
        recall_resend_ns: 5 * MS,
        resend_ns: 10 * MS,
        chain_datagram_bytes: 1_400,
        limits: Limits {
            records: 1_000,
            sessions: 64,
            held: 64,
            held_per_flow: 16,
            held_bytes: 1 << 16,
            unacked: 256,
            unacked_bytes: 1 << 20,
        },
        objects: vec![ObjectSettings {
            name: "counter".to_owned(),
            id: COUNTER,
            key_bytes: 4,
            value_bytes: 8,
            allocator: AllocatorSettings::Zero { idle_ns: None },
            closed_ns: 240 * SECOND,
            half_open_ns: 240 * SECOND,
            shard_bytes: None,
        }],
    }
}

pub fn start(address: SocketAddrV4, life: Life) -> Node {
    Node::new(settings(), life, keys(), address, vec![controller_address()])
}

/// Goes on with what was written, if anything was.
pub fn keep_journal(node: &mut Node, now_ns: u64, written: &[u8], out: &mut Outputs) {
    let mut restored = settings().nothing_restored();
    restored.read(written).unwrap();
    node.keep_journal(now_ns, (!written.is_empty()).then_some(restored), out);
}

pub fn datagram(node: &mut Node, now_ns: u64, from: SocketAddrV4, bytes: &[u8], out: &mut Outputs) {
    node.handle(now_ns, Input::Datagram { from, bytes }, out);
}

pub fn timer(node: &mut Node, now_ns: u64, out: &mut Outputs) {
    node.handle(now_ns, Input::Timer, out);
}

pub fn digest(node: &Node, shard: u16) -> u64 {
    node.replica(shard).unwrap().records().shared_digest()
}

pub fn report(node: &Node, shard: u16) -> ShardReport {
    node.replica(shard).unwrap().report(0)
}

/// What must hold, over all of a run.
#[derive(Default, Debug)]
pub struct Checks {
    granted: HashMap<(Vec<u8>, u32), Owner>,
    last_owner: HashMap<Vec<u8>, Owner>,
    released: HashMap<Vec<u8>, u64>,
    writes: HashMap<(Vec<u8>, u64), (Owner, u32, u64)>,
    acknowledged: HashMap<Vec<u8>, (u32, u64)>,
    handovers: u64,
    /// What each batch has: of whom, shard, stream, number.
    batches: HashMap<(Owner, u16, u16, u64), Vec<Update>>,
    batch_acks: u64,
    batch_refusals: u64,
}

impl Checks {
    /// A run in which flows did not move is about nothing.
    pub fn was_tried(&self) -> bool {
        self.handovers > 20 && self.batch_acks > 100
    }

    /// At the end nothing acknowledged is missing.
    pub fn all_is_there(&self, node: &Node, shard: u16) {
        for (key, answered) in &self.acknowledged {
            if shard_of(key, SHARDS) == shard {
                let records = node.replica(shard).unwrap().records();
                let record = records.get(records.find(0, key).expect("acknowledged, yet gone"));
                assert!((record.epoch, record.seq) >= *answered, "{key:?}: {answered:?}");
            }
        }
    }
}

impl World {
    /// A server says this.
    pub fn said(&mut self, at: usize, bytes: &[u8]) {
        if let Ok(reply) = Message::decode(bytes) {
            self.trace(&format!("server {at} says"), &reply);
            self.check_reply(&reply);
        } else if let Ok(ack) = BatchAck::decode(bytes) {
            self.check_batch_ack(&ack);
        }
    }

    /// What was not refused is on every server that counts.
    fn check_batch_ack(&mut self, ack: &BatchAck) {
        let (shard, sender) = (ack.head.shard, sender_of(&ack.head));
        self.served(shard);
        let store = &mut self.checks.store;
        store.batch_acks += 1;
        store.batch_refusals += u64::from(ack.refused.count_ones());
        let name = (sender, shard, ack.head.stream, ack.head.number);
        let updates = store.batches[&name].clone();
        for (at, update) in updates.into_iter().enumerate() {
            if ack.refused >> at & 1 == 0 {
                self.acknowledged(shard, &update.key.1, (update.epoch, update.seq));
            }
        }
    }

    fn acknowledged(&mut self, shard: u16, key: &[u8], answered: (u32, u64)) {
        let newest = self.checks.store.acknowledged.entry(key.to_vec()).or_default();
        *newest = (*newest).max(answered);
        self.check_everywhere(shard, key, answered);
    }

    /// `SIMULATION_TRACE=flow` prints everything about that flow, and all events and decisions.
    fn trace(&self, what: &str, message: &Message<'_>) {
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
    fn check_reply(&mut self, reply: &Message<'_>) {
        let key = reply.key.to_vec();
        match reply.message_type {
            MessageType::LeaseGrant => {
                let owner = *self
                    .checks
                    .store
                    .granted
                    .entry((key.clone(), reply.epoch))
                    .or_insert(reply.sender);
                assert_eq!(owner, reply.sender, "epoch {} of {key:?} granted twice", reply.epoch);
                let before = self.checks.store.last_owner.insert(key, reply.sender);
                self.checks.store.handovers +=
                    u64::from(before.is_some_and(|before| before != reply.sender));
                self.check_everywhere(reply.shard, reply.key, (reply.epoch, reply.seq));
            }
            MessageType::UpdateAck => {
                self.served(reply.shard);
                self.acknowledged(reply.shard, reply.key, (reply.epoch, reply.seq));
            }
            _ => {}
        }
    }

    /// What is answered is on every server that the controller's database counts on.
    fn check_everywhere(&self, shard: u16, key: &[u8], answered: (u32, u64)) {
        for node in self.counted_on(shard) {
            let recorded = node.replica(shard).and_then(|replica| {
                let record = replica.records().get(replica.records().find(0, key)?);
                Some((record.epoch, record.seq))
            });
            assert!(
                recorded >= Some(answered),
                "{key:?}: {answered:?} answered, {recorded:?} at {:?}",
                node.me()
            );
        }
    }
}
