//! A model of what docs/output-commit.md has planned for switches: packets wait, records of many
//! flows share a message, one batch of a stream is in flight.
#![allow(dead_code)]

use super::MS;
use super::switch::Key;
use state_protocol::Owner;
use wire::{Batch, BatchAck, BatchHead, BatchRecord, RecordFlags};

/// Streams of a switch: its CPUs.
pub const STREAMS: usize = 2;
/// Records of a batch; few, so that batches are full now and then.
const MOST: usize = 6;
const RESEND_NS: u64 = 15 * MS;

/// An update that a batch carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub key: Key,
    pub epoch: u32,
    pub seq: u64,
    pub value: Vec<u8>,
    /// The next one is the same packet's.
    pub group: bool,
}

/// A packet that waits for records of a batch, by their places in it.
#[derive(Clone, Debug)]
pub struct Parked {
    pub needs: Vec<usize>,
    /// What it shows, of each flow: key, epoch, content.
    pub shows: Vec<(Key, u32, Vec<u8>)>,
}

#[derive(Clone, Default)]
struct Lot {
    updates: Vec<Update>,
    packets: Vec<Parked>,
}

struct Flight {
    number: u64,
    sent_ns: u64,
    lot: Lot,
}

#[derive(Default)]
struct Stream {
    /// Of the batch in flight, or the last one.
    number: u64,
    open: Lot,
    flight: Option<Flight>,
}

/// What an acknowledgement brings about.
#[derive(Default)]
pub struct Released {
    pub durable: Vec<Update>,
    pub refused: Vec<Update>,
    pub packets: Vec<Parked>,
}

#[derive(Default)]
pub struct Engine {
    streams: [Stream; STREAMS],
}

impl Lot {
    fn place(&self, key: &Key, epoch: u32, seq: u64) -> Option<usize> {
        let is = |update: &Update| update.key == *key && (update.epoch, update.seq) == (epoch, seq);
        self.updates.iter().position(is)
    }

    /// Drops the packets, and with them the updates, that build on any of these; returns what is
    /// dropped.
    fn drop_what_builds_on(&mut self, refused: &[Update]) -> Vec<Update> {
        let mut bad: Vec<(Key, u32)> =
            refused.iter().map(|update| (update.key.clone(), update.epoch)).collect();
        let of = |update: &Update| (update.key.clone(), update.epoch);
        loop {
            let known = bad.len();
            for packet in &self.packets {
                let needs = packet.needs.iter().map(|at| of(&self.updates[*at]));
                if needs.clone().any(|need| bad.contains(&need)) {
                    let new: Vec<_> = needs.filter(|need| !bad.contains(need)).collect();
                    bad.extend(new);
                }
            }
            if bad.len() == known {
                break;
            }
        }
        let goes = |update: &Update| bad.contains(&of(update));
        let updates = std::mem::take(&mut self.updates);
        let mut places = Vec::new();
        let mut dropped = Vec::new();
        for update in updates {
            if goes(&update) {
                places.push(None);
                dropped.push(update);
            } else {
                places.push(Some(self.updates.len()));
                self.updates.push(update);
            }
        }
        self.packets.retain_mut(|packet| {
            let needs: Option<Vec<usize>> = packet.needs.iter().map(|at| places[*at]).collect();
            needs.is_some_and(|needs| {
                packet.needs = needs;
                true
            })
        });
        dropped
    }
}

impl Engine {
    /// Whether a packet with so many updates finds room; to be asked before it changes anything.
    pub fn has_room(&self, stream: usize, updates: usize) -> bool {
        self.streams[stream].open.updates.len() + updates <= MOST
    }

    /// A packet set these. An update of a flow that stands alone in the batch is overwritten.
    pub fn set(&mut self, stream: usize, updates: Vec<Update>, shows: Vec<(Key, u32, Vec<u8>)>) {
        let open = &mut self.streams[stream].open;
        let alone = |at: usize| {
            !open.updates[at].group && at.checked_sub(1).is_none_or(|at| !open.updates[at].group)
        };
        if let [update] = updates.as_slice()
            && let Some(at) = (0..open.updates.len()).find(|at| {
                let known = &open.updates[*at];
                alone(*at) && (&known.key, known.epoch) == (&update.key, update.epoch)
            })
        {
            open.updates[at] = update.clone();
            return open.packets.push(Parked { needs: vec![at], shows });
        }
        let first = open.updates.len();
        let needs = (first..first + updates.len()).collect();
        open.updates.extend(updates);
        open.packets.push(Parked { needs, shows });
    }

    /// A packet read an update that is not acknowledged. `false`: no batch has it.
    pub fn wait(&mut self, key: &Key, epoch: u32, seq: u64, content: Vec<u8>) -> bool {
        for stream in &mut self.streams {
            let flight = stream.flight.as_mut().map(|flight| &mut flight.lot);
            for lot in flight.into_iter().chain([&mut stream.open]) {
                if let Some(at) = lot.place(key, epoch, seq) {
                    let shows = vec![(key.clone(), epoch, content)];
                    lot.packets.push(Parked { needs: vec![at], shows });
                    return true;
                }
            }
        }
        false
    }

    /// Batches that are to be sent now, with no tag yet: the next of a stream that has none in
    /// flight, the one in flight again if it is overdue. `request_ns`: grows with each.
    pub fn due(
        &mut self,
        now: u64,
        owner: Owner,
        (shard, session): (u16, u32),
        request_ns: &mut u64,
    ) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if stream.flight.is_none() && !stream.open.updates.is_empty() {
                stream.number += 1;
                let lot = std::mem::take(&mut stream.open);
                stream.flight = Some(Flight { number: stream.number, sent_ns: 0, lot });
            }
            let Some(flight) = stream
                .flight
                .as_mut()
                .filter(|it| it.sent_ns == 0 || now >= it.sent_ns + RESEND_NS)
            else {
                continue;
            };
            flight.sent_ns = now.max(1);
            *request_ns = now.max(*request_ns + 1);
            let head = BatchHead {
                flags: 0,
                switch_id: owner.switch_id,
                incarnation: owner.incarnation,
                request_ns: *request_ns,
                number: flight.number,
                view: 0,
                session,
                stream: at as u16,
                client: *super::switch_address(owner.switch_id).ip(),
                shard,
            };
            sent.push(encode(head, &flight.lot.updates));
        }
        sent
    }

    /// Takes an acknowledgement, if it is of the batch in flight.
    pub fn acknowledge(&mut self, ack: &BatchAck) -> Released {
        let mut released = Released::default();
        let stream = &mut self.streams[usize::from(ack.head.stream)];
        let Some(flight) = stream.flight.take_if(|flight| flight.number == ack.head.number) else {
            return released;
        };
        assert_eq!(usize::from(ack.count), flight.lot.updates.len());
        let refused = |at: usize| ack.refused >> at & 1 == 1;
        let durable = |packet: &Parked| !packet.needs.iter().any(|at| refused(*at));
        released.packets = flight.lot.packets.into_iter().filter(durable).collect();
        for (at, update) in flight.lot.updates.into_iter().enumerate() {
            let list = if refused(at) { &mut released.refused } else { &mut released.durable };
            list.push(update);
        }
        let more = stream.open.drop_what_builds_on(&released.refused);
        released.refused.extend(more);
        released
    }
}

fn encode(head: BatchHead, updates: &[Update]) -> Vec<u8> {
    let (mut records, mut bytes) = (Vec::new(), Vec::new());
    for update in updates {
        let record = BatchRecord {
            object_id: update.key.0,
            flags: if update.group { RecordFlags::GROUP } else { RecordFlags::NONE },
            epoch: update.epoch,
            place: 0,
            seq: update.seq,
            content: &[],
        };
        record.append_to(&update.key.1, &update.value, &mut records).unwrap();
    }
    Batch::new(head, &records).unwrap().append_to(&mut bytes);
    bytes
}
