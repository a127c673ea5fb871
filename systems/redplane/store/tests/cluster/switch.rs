//! Model switches: systems/redplane/docs/state-protocol.md, "Rules of the switch", cut down to what
//! the store can see of them.

use super::COUNTER;
use super::engine::{Engine, STREAMS, Update};
use crate::world::{
    Clock, Datagram, MS, SHARDS, SWITCHES, World, keys, server_address, switch_address,
};
use state_protocol::{Flags, Message, MessageType, Owner, sender_of};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use wire::{BatchAck, shard_of};

const FLOWS: u64 = 12;
/// Switches up to this one send batches, the others an UPDATE for each packet.
const BATCHING: u32 = 2;

/// Object and key.
pub type Key = (u16, Vec<u8>);

/// One flow in a switch.
#[derive(Default, Clone)]
struct Entry {
    epoch: u32,
    seq: u64,
    acked: u64,
    value: u64,
    lease_end: u64,
    /// Grants up to this one are released, or over.
    released: u32,
}

pub struct Switch {
    owner: Owner,
    clock: Clock,
    entries: HashMap<Vec<u8>, Entry>,
    /// By shard; none, if it sends no batches.
    engines: Vec<Engine>,
    last_batch_ns: u64,
}

impl Switch {
    pub fn new(switch_id: u32, clock: Clock) -> Switch {
        let engines = engines(switch_id);
        let owner = Owner { switch_id, incarnation: 1 };
        Switch { owner, clock, entries: HashMap::new(), engines, last_batch_ns: 0 }
    }
}

fn engines(switch_id: u32) -> Vec<Engine> {
    let shards = if switch_id <= BATCHING { SHARDS } else { 0 };
    (0..shards).map(|_| Engine::default()).collect()
}

fn request<'a>(message_type: MessageType, sender: Owner, key: &'a [u8]) -> Message<'a> {
    Message {
        message_type,
        object_id: COUNTER,
        flags: Flags::NONE,
        sender,
        request_ns: 0,
        epoch: 0,
        seq: 0,
        lease_us: 0,
        port: 9,
        session: 0,
        shard: shard_of(key, SHARDS),
        key,
        value: &[],
        packet: &[],
    }
}

impl World {
    fn live(&self, at: usize, entry: &Entry) -> bool {
        self.switches[at].clock.local(self.time) < entry.lease_end
    }

    /// At most one switch holds a live lease on a flow.
    fn check_leases(&self, key: &[u8]) {
        let holds = |at: &usize| {
            self.switches[*at].entries.get(key).is_some_and(|entry| self.live(*at, entry))
        };
        let holders: Vec<_> = (0..self.switches.len()).filter(holds).collect();
        assert!(holders.len() <= 1, "{holders:?} all hold {key:?} at {}", self.time);
    }

    pub fn tick(&mut self, at: usize) {
        if self.quiet {
            return;
        }
        let pause = self.draw(4 * MS) + 1;
        self.tick_after(pause, at);
        if self.draw(2_000) == 0 {
            self.switches[at].owner.incarnation += 1;
            self.switches[at].entries.clear();
            self.switches[at].engines = engines(self.switches[at].owner.switch_id);
        }
        self.send_batches(at);
        if self.chance(25) {
            self.resend(at);
        }
        let key = self.draw_key(at);
        let entry = self.switches[at].entries.get(&key).cloned().unwrap_or_default();
        let owner = self.switches[at].owner;
        if !self.live(at, &entry) {
            let lease = request(MessageType::LeaseRequest, owner, &key);
            self.ask(at, &Message { flags: Flags::ALLOCATE, packet: b"parked", ..lease });
        } else if self.chance(60) {
            self.write(at, &key);
        } else if entry.seq > entry.acked && !self.switches[at].engines.is_empty() {
            self.read_pending(at, key, &entry);
        } else if entry.seq > entry.acked {
            let packet = [&[0][..], &entry.value.to_be_bytes()].concat();
            let read = request(MessageType::ReadCommit, owner, &key);
            self.ask(at, &Message { epoch: entry.epoch, seq: entry.seq, packet: &packet, ..read });
        } else {
            self.release(&key, entry.value, true);
        }
    }

    /// Flows have a favourite switch that changes now and then, so that there is both: quiet
    /// possession and hand-over.
    fn draw_key(&mut self, at: usize) -> Vec<u8> {
        let phase = self.time / (700 * MS);
        let favourite = |flow: u64| (phase + flow) % u64::from(SWITCHES) == at as u64;
        let mut flow = self.draw(FLOWS);
        if !favourite(flow) && !self.chance(10) {
            flow = (0..FLOWS)
                .map(|step| (flow + step) % FLOWS)
                .find(|flow| favourite(*flow))
                .unwrap_or(flow);
        }
        vec![0, 0, 0, flow as u8]
    }

    /// To the head that the controller's newest views name, as the switch's agent would have it.
    fn ask(&mut self, at: usize, request: &Message<'_>) {
        let request_ns = self.switches[at].clock.local(self.time);
        let mut bytes = Vec::new();
        Message { request_ns, ..*request }.append_to(&mut bytes).unwrap();
        let Some(head) = self.database.heads().nth(usize::from(request.shard)).flatten() else {
            return;
        };
        // Now and then one that heard of no view for long asks somebody else.
        self.trace(&format!("from switch {}", at + 1), &Message { request_ns, ..*request });
        let head = self.maybe_another(head);
        let from = switch_address(request.sender.switch_id);
        keys().sign(&mut bytes, *from.ip(), *head.ip());
        self.transmit(Datagram { from, to: head, bytes });
    }

    fn maybe_another(&mut self, head: SocketAddrV4) -> SocketAddrV4 {
        let another = self.faults && self.chance(3);
        if another { server_address(self.draw(5) as usize) } else { head }
    }

    /// Sends the batches that are due, to the heads of their shards.
    fn send_batches(&mut self, at: usize) {
        let heads: Vec<_> = self.database.heads().collect();
        for shard in 0..self.switches[at].engines.len() {
            let Some(head) = heads.get(shard).copied().flatten() else { continue };
            let switch = &mut self.switches[at];
            let now = switch.clock.local(self.time);
            let (owner, place) = (switch.owner, (shard as u16, 0));
            let due = switch.engines[shard].due(now, owner, place, &mut switch.last_batch_ns);
            for mut bytes in due {
                self.note_batch(&bytes);
                let (head, from) = (self.maybe_another(head), switch_address(owner.switch_id));
                keys().sign(&mut bytes, *from.ip(), *head.ip());
                self.transmit(Datagram { from, to: head, bytes });
            }
        }
    }

    fn note_batch(&mut self, bytes: &[u8]) {
        let batch = wire::Batch::decode(bytes).unwrap();
        let update = |record: wire::BatchRecord<'_>| {
            let (key, value) = record.key_and_value(4, 8).unwrap();
            let (key, value) = ((record.object_id, key.to_vec()), value.to_vec());
            Update { key, epoch: record.epoch, seq: record.seq, value, group: false }
        };
        let head = batch.head;
        let name = (sender_of(&head), head.shard, head.stream, head.number);
        let updates: Vec<_> = batch.records().map(update).collect();
        let known = self.checks.store.batches.entry(name).or_insert_with(|| updates.clone());
        assert_eq!(*known, updates, "a batch changed on its way");
    }

    /// The packet waits for the batch that has the update, or puts it into its own.
    fn read_pending(&mut self, at: usize, key: Vec<u8>, entry: &Entry) {
        let stream = self.draw(STREAMS as u64) as usize;
        let engine = &mut self.switches[at].engines[usize::from(shard_of(&key, SHARDS))];
        let content = [&[0][..], &entry.value.to_be_bytes()].concat();
        let (epoch, seq) = (entry.epoch, entry.seq);
        let key = (COUNTER, key);
        if !engine.wait(&key, epoch, seq, content.clone()) && engine.has_room(stream, 1) {
            let value = entry.value.to_be_bytes().to_vec();
            let again = Update { key: key.clone(), epoch, seq, value, group: false };
            engine.set(stream, vec![again], vec![(key, epoch, content)]);
        }
        self.send_batches(at);
    }

    fn write_in_batch(&mut self, at: usize, key: &[u8]) {
        let stream = self.draw(STREAMS as u64) as usize;
        let switch = &mut self.switches[at];
        let engine = &mut switch.engines[usize::from(shard_of(key, SHARDS))];
        let entry = switch.entries.get_mut(key).unwrap();
        if !engine.has_room(stream, 1) {
            return;
        }
        (entry.value, entry.seq) = (entry.value + 1, entry.seq + 1);
        let (epoch, seq, value) = (entry.epoch, entry.seq, entry.value.to_be_bytes().to_vec());
        let shows = vec![((COUNTER, key.to_vec()), epoch, [&[1][..], &value].concat())];
        let key = (COUNTER, key.to_vec());
        engine.set(stream, vec![Update { key, epoch, seq, value, group: false }], shows);
        self.send_batches(at);
    }

    fn batch_acknowledged(&mut self, at: usize, ack: &BatchAck) {
        let switch = &mut self.switches[at];
        if sender_of(&ack.head) != switch.owner {
            return;
        }
        let released = switch.engines[usize::from(ack.head.shard)].acknowledge(ack);
        for (update, refused) in released
            .durable
            .iter()
            .map(|update| (update, false))
            .chain(released.refused.iter().map(|update| (update, true)))
        {
            let entry = switch.entries.get_mut(&update.key.1);
            let Some(entry) = entry.filter(|entry| entry.epoch == update.epoch) else { continue };
            if refused {
                (entry.lease_end, entry.released) = (0, entry.released.max(entry.epoch));
            } else {
                entry.acked = entry.acked.max(update.seq);
            }
        }
        for (key, epoch, content) in released.packets.into_iter().flat_map(|packet| packet.shows) {
            let (kind, count) = content.split_first().unwrap();
            let count = u64::from_be_bytes(count.try_into().unwrap());
            self.output((sender_of(&ack.head), epoch), &key.1, *kind == 1, count);
        }
        self.send_batches(at);
    }

    fn write(&mut self, at: usize, key: &[u8]) {
        if !self.switches[at].engines.is_empty() {
            return self.write_in_batch(at, key);
        }
        let owner = self.switches[at].owner;
        let entry = self.switches[at].entries.get_mut(key).unwrap();
        entry.value += 1;
        entry.seq += 1;
        let (epoch, seq, value) = (entry.epoch, entry.seq, entry.value.to_be_bytes());
        let packet = [&[1][..], &value].concat();
        let update = request(MessageType::Update, owner, key);
        self.ask(at, &Message { epoch, seq, value: &value, packet: &packet, ..update });
    }

    /// An output leaves the network with this count. `now`: the switch read it this instant, so it
    /// may not be older than any that left before.
    fn release(&mut self, key: &[u8], count: u64, now: bool) {
        let newest = self.checks.store.released.entry(key.to_vec()).or_default();
        assert!(!now || count >= *newest, "{key:?}: read {count} after {newest} had left");
        *newest = count.max(*newest);
    }

    fn resend(&mut self, at: usize) {
        let owner = self.switches[at].owner;
        if !self.switches[at].engines.is_empty() {
            return;
        }
        let entries = self.switches[at].entries.iter();
        let mut unacked: Vec<_> = entries
            .filter(|(_, e)| e.seq > e.acked && e.epoch > e.released)
            .map(|(k, e)| (k.clone(), e.clone()))
            .collect();
        unacked.sort_by(|one, other| one.0.cmp(&other.0)); // a hash map's order is not the seed's
        for (key, entry) in unacked {
            let value = entry.value.to_be_bytes();
            let update = request(MessageType::Update, owner, &key);
            self.ask(at, &Message { epoch: entry.epoch, seq: entry.seq, value: &value, ..update });
        }
    }

    pub fn switch_receives(&mut self, at: usize, bytes: &[u8]) {
        if let Ok(ack) = BatchAck::decode(bytes) {
            return self.batch_acknowledged(at, &ack);
        }
        let reply = &Message::decode(bytes).unwrap();
        self.trace(
            &format!("to switch {}, local {}", at + 1, self.switches[at].clock.local(self.time)),
            reply,
        );
        if reply.sender != self.switches[at].owner {
            return;
        }
        let lease_end = reply.request_ns + u64::from(reply.lease_us) * 1_000;
        match reply.message_type {
            MessageType::LeaseGrant => {
                let entry = self.switches[at].entries.entry(reply.key.to_vec()).or_default();
                if reply.epoch <= entry.released {
                    return;
                }
                if reply.epoch > entry.epoch {
                    let (value, released) =
                        (u64::from_be_bytes(reply.value.try_into().unwrap()), entry.released);
                    *entry = Entry {
                        epoch: reply.epoch,
                        seq: reply.seq,
                        acked: reply.seq,
                        value,
                        lease_end,
                        released,
                    };
                } else if reply.epoch == entry.epoch {
                    entry.lease_end = entry.lease_end.max(lease_end);
                }
                self.check_leases(reply.key);
            }
            MessageType::UpdateAck => {
                if let Some(entry) =
                    self.switches[at].entries.get_mut(reply.key).filter(|e| e.epoch == reply.epoch)
                {
                    entry.acked = entry.acked.max(reply.seq);
                    if entry.epoch > entry.released {
                        entry.lease_end = entry.lease_end.max(lease_end);
                    }
                }
                self.check_leases(reply.key);
                if let Some((kind, count)) = reply.packet.split_first() {
                    let count = u64::from_be_bytes(count.try_into().unwrap());
                    self.output((reply.sender, reply.epoch), reply.key, *kind == 1, count);
                }
            }
            MessageType::Refused => {
                if let Some(entry) =
                    self.switches[at].entries.get_mut(reply.key).filter(|e| e.epoch == reply.epoch)
                {
                    (entry.lease_end, entry.released) = (0, entry.released.max(entry.epoch));
                }
            }
            MessageType::Recall => self.recalled(at, reply),
            MessageType::Absent | MessageType::ReleaseAck => {}
            other => panic!("{other:?} to a switch"),
        }
    }

    fn recalled(&mut self, at: usize, recall: &Message<'_>) {
        let owner = self.switches[at].owner;
        let entry = self.switches[at].entries.entry(recall.key.to_vec()).or_default();
        let release = request(MessageType::Release, owner, recall.key);
        let release = Message { epoch: recall.epoch, ..release };
        if entry.epoch != recall.epoch {
            entry.released = entry.released.max(recall.epoch);
            if entry.epoch <= entry.released {
                entry.lease_end = 0;
            }
            return self.ask(at, &Message { flags: Flags::UNKNOWN, ..release });
        }
        (entry.released, entry.lease_end) = (entry.released.max(entry.epoch), 0);
        let (seq, value) = (entry.seq, entry.value.to_be_bytes());
        self.ask(at, &Message { seq, value: &value, ..release });
    }

    /// A piggybacked packet came back. No two writes may ever have led to the same count: one of
    /// them would have been lost.
    fn output(&mut self, (owner, epoch): (Owner, u32), key: &[u8], written: bool, count: u64) {
        if written {
            let by = (owner, epoch, count);
            let before = *self.checks.store.writes.entry((key.to_vec(), count)).or_insert(by);
            assert_eq!(before, by, "an update that left was lost");
        }
        self.release(key, count, false);
    }
}
