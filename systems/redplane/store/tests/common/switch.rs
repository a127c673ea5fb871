//! A model of a switch: systems/redplane/docs/state-protocol.md, "Rules of the switch", for
//! counters that packets write and read, and NAT bindings.
#![allow(dead_code)]

use super::engine::{Engine, STREAMS, Update};
use super::{COUNTER, MS, NAT, SECOND, message, release, update};
use state_protocol::{Flags, Message, MessageType, Owner, sender_of};
use std::collections::BTreeMap;
use wire::BatchAck;

pub type Key = (u16, Vec<u8>);

/// A reply to a request that was sent longer ago is not taken.
const LATE_NS: u64 = SECOND;
const REMOVE_AFTER_NS: u64 = 2 * SECOND;
const RELEASE_AFTER_NS: u64 = 250 * MS;
const HEARTBEAT_NS: u64 = 33 * MS;

/// What became of a flow that this switch gave away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    No,
    /// `RELEASE` is on its way; with the value, or because the grant never came.
    Sent {
        unknown: bool,
        closed: bool,
    },
    /// All servers know since then, on this switch's clock.
    Over(u64),
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub epoch: u32,
    pub seq: u64,
    pub acked: u64,
    pub value: Vec<u8>,
    pub session: u32,
    pub released: Released,
    pub last_packet: u64,
}

/// One life of a switch.
pub struct Switch {
    pub owner: Owner,
    pub entries: BTreeMap<Key, Entry>,
    pub session: u32,
    pub session_end: u64,
    /// Every session's end was extended by so many replies.
    pub prolonged: u64,
    pub late: u64,
    next_heartbeat: u64,
    last_request: u64,
    /// Encoded requests, without tag.
    pub out: Vec<Vec<u8>>,
    /// Packets that came back: with their final content (acknowledged), or to be processed
    /// (parked).
    pub packets: Vec<Packet>,
    /// Of one that sends batches.
    engine: Option<Engine>,
}

pub enum Packet {
    Parked(Key),
    /// Content, and the epoch of the acknowledgement that released it.
    Output(Key, u32, Vec<u8>),
}

impl Switch {
    pub fn new(owner: Owner) -> Switch {
        Switch {
            owner,
            entries: BTreeMap::new(),
            session: 0,
            session_end: 0,
            prolonged: 0,
            late: 0,
            next_heartbeat: 0,
            last_request: 0,
            out: Vec::new(),
            packets: Vec::new(),
            engine: None,
        }
    }

    /// One that sends batches, or not.
    pub fn of_kind(owner: Owner, batching: bool) -> Switch {
        Switch { engine: batching.then(Engine::default), ..Switch::new(owner) }
    }

    pub fn batching(&self) -> bool {
        self.engine.is_some()
    }

    /// Rule 1, and Sessions: a flow is the switch's while its session is the current one and that
    /// one's lease lives.
    pub fn owns(&self, now: u64, key: &Key) -> bool {
        let current =
            |entry: &Entry| entry.released == Released::No && entry.session == self.session;
        now < self.session_end && self.entries.get(key).is_some_and(current)
    }

    fn send(&mut self, now: u64, request: &Message<'_>) {
        self.last_request = now.max(self.last_request);
        let mut bytes = Vec::new();
        // Only forward NAT keys may allocate.
        let inside = request.object_id == COUNTER || request.key.first() == Some(&10);
        let flags = if inside {
            request.flags
        } else {
            request.flags.and(Flags::PHASES.with(Flags::UNKNOWN))
        };
        let stamped =
            Message { request_ns: self.last_request, session: self.session, flags, ..*request };
        stamped.append_to(&mut bytes).unwrap();
        self.out.push(bytes);
    }

    /// A packet of a flow: processed if the flow is this switch's (returns its output, if nothing
    /// must be waited for), else parked.
    pub fn packet(&mut self, now: u64, key: &Key, write: bool) -> Option<Vec<u8>> {
        if !self.owns(now, key) {
            let request = super::lease(key.0, self.owner, &key.1);
            let flags = request.flags.with(Flags::REVERSE);
            self.send(now, &Message { flags, packet: b"parked", ..request });
            return None;
        }
        let entry = self.entries.get_mut(key)?;
        entry.last_packet = now;
        if key.0 == NAT {
            return None;
        }
        if self.engine.is_some() {
            return self.packet_in_batch(now, key, write);
        }
        if write {
            let count = super::count_of(&entry.value) + 1;
            entry.value = count.to_be_bytes().to_vec();
            entry.seq += 1;
        }
        let entry = entry.clone();
        if write {
            let request = update(self.owner, &key.1, entry.epoch, entry.seq, &entry.value);
            self.send(now, &Message { packet: &[&[1][..], &entry.value].concat(), ..request });
        } else if entry.seq > entry.acked {
            let read = message(MessageType::ReadCommit, COUNTER, self.owner, &key.1);
            let packet = [&[0][..], &entry.value].concat();
            self.send(
                now,
                &Message { epoch: entry.epoch, seq: entry.seq, packet: &packet, ..read },
            );
        } else {
            return Some(entry.value);
        }
        None
    }

    /// What the packet generator does: heartbeats, updates again, releases of what is idle,
    /// releases again.
    pub fn maintain(&mut self, now: u64, close: bool) {
        self.send_batches(now);
        if now >= self.next_heartbeat && self.session > 0 {
            self.next_heartbeat = now + HEARTBEAT_NS;
            self.send(now, &super::heartbeat(self.owner));
        }
        self.entries
            .retain(|_, entry| !matches!(entry.released, Released::Over(since) if now >= since + REMOVE_AFTER_NS));
        let keys: Vec<Key> = self.entries.keys().cloned().collect();
        for key in keys {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            match entry.released {
                Released::Over(_) => {}
                Released::Sent { .. } => self.send_release(now, &key),
                Released::No if entry.seq > entry.acked && self.engine.is_some() => {}
                Released::No if entry.seq > entry.acked => {
                    let entry = entry.clone();
                    self.send(
                        now,
                        &update(self.owner, &key.1, entry.epoch, entry.seq, &entry.value),
                    );
                }
                Released::No if now > entry.last_packet + RELEASE_AFTER_NS => {
                    entry.released =
                        Released::Sent { unknown: false, closed: close && key.0 == NAT };
                    self.send_release(now, &key);
                }
                Released::No => {}
            }
        }
    }

    /// A packet of a flow that is this switch's. Now and then it also writes the flow that only
    /// this switch has: then both are set together.
    fn packet_in_batch(&mut self, now: u64, key: &Key, write: bool) -> Option<Vec<u8>> {
        let own: Key = (COUNTER, vec![1, self.owner.switch_id as u8, 0, 0]);
        let draw = now / 1_000;
        let mut keys = vec![key.clone()];
        let is_own = *key == own;
        if write && draw.is_multiple_of(3) && !is_own {
            if self.owns(now, &own) {
                keys.insert((draw / 3 % 2) as usize, own);
            } else {
                self.packet(now, &own, false);
            }
        }
        // Who sets the own flow comes in on one CPU: what builds on it is seen there.
        let stream = if is_own || keys.len() > 1 { 0 } else { draw as usize % STREAMS };
        let Entry { epoch, seq, acked, value, .. } = self.entries.get(key)?.clone();
        let engine = self.engine.as_mut()?;
        if !write {
            let content = [&[0][..], &value].concat();
            if seq <= acked {
                return Some(value);
            }
            if !engine.wait(key, epoch, seq, content.clone()) && engine.has_room(stream, 1) {
                // Its batch is gone: the packet's own has the same update once more.
                let again = Update { key: key.clone(), epoch, seq, value, group: false };
                engine.set(stream, vec![again], vec![(key.clone(), epoch, content)]);
            }
            return None;
        }
        if !engine.has_room(stream, keys.len()) {
            return None;
        }
        let (mut updates, mut shows) = (Vec::new(), Vec::new());
        for (at, key) in keys.iter().enumerate() {
            let entry = self.entries.get_mut(key)?;
            entry.last_packet = now;
            entry.value = (super::count_of(&entry.value) + 1).to_be_bytes().to_vec();
            entry.seq += 1;
            let (epoch, seq, value) = (entry.epoch, entry.seq, entry.value.clone());
            shows.push((key.clone(), epoch, [&[1][..], &value].concat()));
            updates.push(Update {
                key: key.clone(),
                epoch,
                seq,
                value,
                group: at + 1 < keys.len(),
            });
        }
        engine.set(stream, updates, shows);
        self.send_batches(now);
        None
    }

    fn send_batches(&mut self, now: u64) {
        let Some(engine) = &mut self.engine else { return };
        let sent = engine.due(now, self.owner, (0, self.session), &mut self.last_request);
        self.out.extend(sent);
    }

    /// Takes an acknowledgement of a batch that was found genuine.
    pub fn receive_ack(&mut self, now: u64, ack: &BatchAck) {
        if sender_of(&ack.head) != self.owner {
            return;
        }
        if now > ack.head.request_ns + LATE_NS {
            self.late += 1;
            return;
        }
        let Some(engine) = &mut self.engine else { return };
        let released = engine.acknowledge(ack);
        for update in released.durable {
            let entry = self.entries.get_mut(&update.key);
            let Some(entry) = entry.filter(|entry| entry.epoch == update.epoch) else { continue };
            entry.acked = entry.acked.max(update.seq);
            if entry.released == Released::No {
                entry.session = entry.session.max(ack.head.session);
            }
        }
        for update in released.refused {
            let entry = self.entries.get_mut(&update.key);
            let Some(entry) = entry.filter(|entry| entry.epoch == update.epoch) else { continue };
            if entry.released == Released::No {
                entry.released = Released::Sent { unknown: true, closed: false };
                self.send_release(now, &update.key);
            }
        }
        for (key, epoch, content) in released.packets.into_iter().flat_map(|packet| packet.shows) {
            self.packets.push(Packet::Output(key, epoch, content));
        }
        self.send_batches(now);
    }

    fn send_release(&mut self, now: u64, key: &Key) {
        let Some(entry) = self.entries.get(key).cloned() else { return };
        let Released::Sent { unknown, closed } = entry.released else { return };
        let flags = match (unknown, closed) {
            (true, _) => Flags::UNKNOWN,
            (_, true) => Flags::CLOSED,
            _ => Flags::NONE,
        };
        let value: &[u8] = if unknown { &[] } else { &entry.value };
        let request = release(self.owner, &key.1, entry.epoch, entry.seq, value);
        let idle_ms = (now.saturating_sub(entry.last_packet) / MS) as u32;
        self.send(now, &Message { object_id: key.0, flags, lease_us: idle_ms, ..request });
    }

    /// Takes a message that was found genuine.
    pub fn receive(&mut self, now: u64, reply: &Message<'_>) {
        if reply.sender != self.owner {
            return;
        }
        let key = (reply.object_id, reply.key.to_vec());
        if now > reply.request_ns + LATE_NS {
            self.late += 1;
            return;
        }
        self.hear(reply);
        match reply.message_type {
            MessageType::LeaseGrant => self.grant(now, &key, reply),
            MessageType::UpdateAck => {
                if let Some(entry) =
                    self.entries.get_mut(&key).filter(|entry| entry.epoch == reply.epoch)
                {
                    entry.acked = entry.acked.max(reply.seq);
                    if entry.released == Released::No {
                        entry.session = entry.session.max(reply.session);
                    }
                }
                if !reply.packet.is_empty() {
                    self.packets.push(Packet::Output(key, reply.epoch, reply.packet.to_vec()));
                }
            }
            MessageType::Refused | MessageType::ReleaseAck => {
                let refused = reply.message_type == MessageType::Refused;
                if let Some(entry) =
                    self.entries.get_mut(&key).filter(|entry| entry.epoch == reply.epoch)
                    && (refused || entry.released != Released::No)
                    && !matches!(entry.released, Released::Over(_))
                {
                    entry.released = Released::Over(now);
                }
            }
            MessageType::Recall => self.recall(now, &key, reply.epoch),
            MessageType::Absent | MessageType::HeartbeatAck => {}
            other => panic!("{other:?} to a switch"),
        }
    }

    /// Sessions, 1.
    fn hear(&mut self, reply: &Message<'_>) {
        if reply.lease_us == 0 || reply.session < self.session {
            return;
        }
        if reply.session > self.session {
            (self.session, self.session_end) = (reply.session, 0);
        }
        let end = reply.request_ns + u64::from(reply.lease_us) * 1_000;
        self.prolonged += u64::from(end > self.session_end);
        self.session_end = self.session_end.max(end);
    }

    /// Rule 3.
    fn grant(&mut self, now: u64, key: &Key, reply: &Message<'_>) {
        let before = self.entries.get(key).map(|entry| (entry.epoch, entry.released));
        match before {
            Some((epoch, released)) if epoch == reply.epoch => {
                if released != Released::No {
                    self.send_release(now, key);
                } else if let Some(entry) = self.entries.get_mut(key) {
                    entry.session = entry.session.max(reply.session);
                }
            }
            Some((epoch, _)) if epoch > reply.epoch => {}
            _ => {
                let entry = Entry {
                    epoch: reply.epoch,
                    seq: reply.seq,
                    acked: reply.seq,
                    value: reply.value.to_vec(),
                    session: reply.session,
                    released: Released::No,
                    last_packet: now,
                };
                self.entries.insert(key.clone(), entry);
            }
        }
        if !reply.packet.is_empty() {
            self.packets.push(Packet::Parked(key.clone()));
        }
    }

    /// Rule 6.
    fn recall(&mut self, now: u64, key: &Key, epoch: u32) {
        match self.entries.get_mut(key) {
            Some(entry) if entry.epoch > epoch => return,
            Some(entry) if entry.epoch == epoch => {
                if entry.released == Released::No {
                    entry.released = Released::Sent { unknown: false, closed: false };
                }
                if matches!(entry.released, Released::Over(_)) {
                    // The head does not know yet: it will, without being told.
                    return;
                }
            }
            _ => {
                let released = Released::Sent { unknown: true, closed: false };
                let none = Entry {
                    epoch,
                    seq: 0,
                    acked: 0,
                    value: Vec::new(),
                    session: 0,
                    released,
                    last_packet: now,
                };
                self.entries.insert(key.clone(), none);
            }
        }
        self.send_release(now, key);
    }
}
