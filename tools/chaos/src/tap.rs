//! What the routers' interfaces carry, as far as it is about counted packets: the packets
//! themselves, and the messages of the state protocol around them.
//!
//! A packet socket sees a frame that comes in before any rule of nftables does, and one that goes
//! out after all of them. So what a router received and did not send was lost in the router, and
//! what it sent and nobody answered was lost beyond it.

use crate::ledger::{BatchId, Form, Node, Record, Sighting, What};
use crate::record::{Recorder, wait_for_times};
use capture::{Frame, Interface, Link, Seen};
use lab::error::{Error, Result};
use lab::instance::Lab;
use lab::topology::Role;
use state_protocol::{Message, MessageType};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use wire::{Batch, BatchAck, BatchHead, ChainHeader};

/// The port of the state protocol.
const PROTOCOL_PORT: u16 = 5_407;
/// Where a frame's IPv4 identification is.
const IDENTIFICATION_AT: usize = 18;
/// A flow's key: source and destination address, source and destination port, protocol.
const KEY_BYTES: usize = 13;
/// A flow's value: its count.
const VALUE_BYTES: usize = 8;

/// Threads that listen in the routers; they end with this value.
pub type Tap = Recorder<Sighting>;

/// What a thread knows.
struct Listener {
    router: Node,
    /// By interface index.
    peers: BTreeMap<u32, Node>,
    /// Whose each address is.
    addresses: Arc<BTreeMap<Ipv4Addr, Node>>,
    /// The counted packets' port.
    port: u16,
    /// The source port of flow 0.
    first_port: u16,
    /// When the recording began, in nanoseconds since 1970.
    zero_ns: u64,
    /// The newest view of each shard that was seen.
    views: Mutex<BTreeMap<u16, u64>>,
}

/// Listens in all routers of a lab, for packets to `port` from `first_port` + flow. `nodes` are all
/// of the lab's; times are counted from `zero_ns` since 1970.
///
/// # Errors
/// A packet socket cannot be opened.
pub fn start(lab: &Lab, nodes: &[String], port: u16, first_port: u16, zero_ns: u64) -> Result<Tap> {
    let mut tap = Tap::new();
    let topology = lab.topology();
    let addresses = Arc::new(addresses(lab, nodes));
    for (router, name) in nodes.iter().enumerate() {
        if topology.node.get(name).is_none_or(|node| node.role != Role::Router) {
            continue;
        }
        // Interfaces are called after the node at the other end.
        let neighbours: Vec<(String, Node)> = topology
            .ports(name)
            .filter_map(|(device, ..)| {
                Some((device.to_string(), nodes.iter().position(|node| node == device)?))
            })
            .collect();
        let open = || {
            let mut peers = BTreeMap::new();
            for (device, node) in &neighbours {
                peers.insert(nix::net::if_::if_nametoindex(device.as_str())?, *node);
            }
            Ok((Interface::open_namespace([PROTOCOL_PORT, port])?, peers))
        };
        let (interface, peers) =
            lab.netns(name)?.run(open).map_err(Error::system(format!("listening in {name}")))?;
        let listener = Listener {
            router,
            peers,
            addresses: Arc::clone(&addresses),
            port,
            first_port,
            zero_ns,
            views: Mutex::default(),
        };
        wait_for_times(&lab.netns(name)?)?;
        tap.listen(interface, move |frame, seen, found| {
            listener.sightings(frame, seen, found);
        });
    }
    Ok(tap)
}

/// Whose each address of the lab is.
fn addresses(lab: &Lab, nodes: &[String]) -> BTreeMap<Ipv4Addr, Node> {
    let mut addresses = BTreeMap::new();
    for (at, name) in nodes.iter().enumerate() {
        let own = lab.topology().ports(name).map(|(_, own, ..)| own.ip().to_string());
        let loopback = lab.variables(name).get("loopback").cloned();
        addresses.extend(own.chain(loopback).filter_map(|text| Some((text.parse().ok()?, at))));
    }
    addresses
}

impl Listener {
    fn sightings(&self, frame: &Frame, seen: Seen, all: &mut Vec<Sighting>) {
        let Some(peer) = self.peers.get(&seen.interface).copied() else { return };
        let Some(datagram) = capture::datagram(frame) else { return };
        let ns = frame.time_ns.saturating_sub(self.zero_ns);
        let to = self.addresses.get(datagram.destination.ip()).copied();
        let found = |(flow, what)| Sighting {
            ns,
            router: self.router,
            peer,
            outgoing: seen.outgoing,
            to,
            flow,
            what,
        };
        let payload = datagram.payload;
        if datagram.destination.port() == self.port {
            let packet = counted(frame.bytes, self.port);
            all.extend(packet.map(|(flow, packet, number)| {
                found((flow, What::Packet { packet, form: Form::Plain(number) }))
            }));
        } else if let Ok(message) = Message::decode(payload) {
            let both = [self.about_flow(&message), self.about_packet(&message)];
            all.extend(both.into_iter().flatten().map(found));
        } else if let Ok(batch) = Batch::decode(payload) {
            all.extend(self.records(&batch).map(found));
        } else if let Ok(answer) = BatchAck::decode(payload) {
            let (batch, refused) = (batch_id(&answer.head), answer.refused);
            all.push(found((0, What::Answered { batch, refused })));
        } else {
            all.extend(self.about_chain(payload).map(|what| found((0, what))));
        }
    }

    /// What a batch says of counted packets' flows.
    fn records(&self, batch: &Batch) -> impl Iterator<Item = (u32, What)> {
        let id = batch_id(&batch.head);
        (0_u8..).zip(batch.records()).filter_map(move |(place, record)| {
            let (key, value) = record.key_and_value(KEY_BYTES, VALUE_BYTES)?;
            let number = u64::from_be_bytes(value.try_into().ok()?);
            let record = Record { place, epoch: record.epoch, number };
            Some((self.flow_of(key)?, What::Recorded { batch: id, record }))
        })
    }

    /// The flow of a key, if its packets are counted ones.
    fn flow_of(&self, key: &[u8]) -> Option<u32> {
        let key: &[u8; KEY_BYTES] = key.try_into().ok()?;
        let [source, destination] = [8, 10].map(|at| u16::from_be_bytes([key[at], key[at + 1]]));
        (destination == self.port).then(|| u32::from(source.wrapping_sub(self.first_port)))
    }

    fn about_chain(&self, payload: &[u8]) -> Option<What> {
        let header = ChainHeader::decode(payload).ok()?;
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = views.entry(header.shard).or_default();
        let newer = header.view > *newest;
        *newest = header.view.max(*newest);
        newer.then_some(What::View { shard: header.shard, view: header.view })
    }

    fn about_flow(&self, message: &Message) -> Option<(u32, What)> {
        let epoch = message.epoch;
        let what = match message.message_type {
            MessageType::LeaseGrant => {
                let number = u64::from_be_bytes(message.value.try_into().ok()?);
                What::Granted { epoch, number, switch_id: message.sender.switch_id }
            }
            MessageType::Refused => What::Refused { epoch },
            _ => return None,
        };
        Some((self.flow_of(message.key)?, what))
    }

    fn about_packet(&self, message: &Message) -> Option<(u32, What)> {
        let (flow, packet, number) = counted(message.packet, self.port)?;
        let form = match message.message_type {
            MessageType::LeaseRequest => Form::Asked { shard: message.shard },
            MessageType::LeaseGrant | MessageType::Absent => Form::Returned,
            MessageType::Update => {
                Form::Update { epoch: message.epoch, number, shard: message.shard }
            }
            MessageType::UpdateAck => Form::Acknowledged,
            _ => return None,
        };
        Some((flow, What::Packet { packet, form }))
    }
}

fn batch_id(head: &BatchHead) -> BatchId {
    BatchId {
        switch_id: head.switch_id,
        incarnation: head.incarnation,
        stream: head.stream,
        shard: head.shard,
        number: head.number,
    }
}

/// Flow, packet and number (if a switch has written it) of a counted packet's frame.
pub fn counted(bytes: &[u8], port: u16) -> Option<(u32, u32, u64)> {
    let frame = Frame { time_ns: 0, link: Link::Ethernet, bytes, original_bytes: 0 };
    let datagram =
        capture::datagram(&frame).filter(|datagram| datagram.destination.port() == port)?;
    let [a, b, c, d, e, f, g, h] = *<&[u8; 8]>::try_from(datagram.payload).ok()?;
    let number =
        u16::from_be_bytes([*bytes.get(IDENTIFICATION_AT)?, *bytes.get(IDENTIFICATION_AT + 1)?]);
    Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]), number.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_protocol::{Flags, Owner};
    use wire::{BatchRecord, RecordFlags};

    const PORT: u16 = 7_001;

    /// Packet 9 of flow 3, numbered 258.
    fn packet() -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 36, 1, 2, 0x40, 0, 62, 17, 0, 0, 10, 1, 0, 10, 198, 51, 100, 10,
        ]);
        frame.extend([2_003_u16, PORT, 16, 0].iter().flat_map(|word| word.to_be_bytes()));
        frame.extend([0, 0, 0, 3, 0, 0, 0, 9]);
        frame
    }

    fn listener() -> Listener {
        let addresses = Arc::new(BTreeMap::from([(Ipv4Addr::new(198, 51, 100, 10), 5)]));
        Listener {
            router: 0,
            peers: BTreeMap::from([(7, 4)]),
            addresses,
            port: PORT,
            first_port: 2_000,
            zero_ns: 100,
            views: Mutex::default(),
        }
    }

    fn see(bytes: &[u8], interface: u32) -> Vec<Sighting> {
        let frame =
            Frame { time_ns: 150, link: Link::Ethernet, bytes, original_bytes: bytes.len() as u32 };
        let mut all = Vec::new();
        listener().sightings(&frame, Seen { interface, outgoing: true }, &mut all);
        all
    }

    /// Flow 3's.
    fn key(port: u16) -> Vec<u8> {
        let ports = [2_003_u16.to_be_bytes(), port.to_be_bytes()].concat();
        [&[10, 1, 0, 10, 198, 51, 100, 10][..], &ports, &[17]].concat()
    }

    fn message(message_type: MessageType) -> Vec<u8> {
        let frame = packet();
        let key = key(PORT);
        let carries_value = matches!(message_type, MessageType::Update | MessageType::LeaseGrant);
        let message = Message {
            message_type,
            object_id: 1,
            flags: Flags::NONE,
            sender: Owner { switch_id: 2, incarnation: 1 },
            request_ns: 1,
            epoch: 6,
            seq: 1,
            lease_us: 0,
            port: 1,
            session: 1,
            shard: 0,
            key: &key,
            value: if carries_value { &[0, 0, 0, 0, 0, 0, 1, 2] } else { &[] },
            packet: if message_type == MessageType::Refused { &[] } else { &frame },
        };
        let mut payload = Vec::new();
        message.append_to(&mut payload).expect("a message");
        datagram(&payload)
    }

    fn datagram(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 12];
        let length =
            |more: usize| u16::try_from(payload.len() + more).expect("short").to_be_bytes();
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend(length(28));
        bytes.extend([0, 0, 0, 0, 62, 17, 0, 0, 10, 255, 0, 1, 10, 2, 1, 10]);
        bytes.extend([PROTOCOL_PORT, PROTOCOL_PORT].iter().flat_map(|port| port.to_be_bytes()));
        bytes.extend(length(8));
        bytes.extend([0, 0]);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn packets_and_messages_around_them_are_seen() {
        let whats = |bytes: &[u8]| {
            see(bytes, 7).into_iter().map(|sighting| sighting.what).collect::<Vec<_>>()
        };
        let about = |form| What::Packet { packet: 9, form };
        let all = see(&packet(), 7);
        let plain = about(Form::Plain(258));
        assert_eq!(
            all,
            [Sighting {
                ns: 50,
                router: 0,
                peer: 4,
                outgoing: true,
                to: Some(5),
                flow: 3,
                what: plain
            }]
        );
        assert_eq!(whats(&message(MessageType::LeaseRequest)), [about(Form::Asked { shard: 0 })]);
        assert_eq!(
            whats(&message(MessageType::Update)),
            [about(Form::Update { epoch: 6, number: 258, shard: 0 })]
        );
        assert_eq!(whats(&message(MessageType::UpdateAck)), [about(Form::Acknowledged)]);
        let granted = What::Granted { epoch: 6, number: 258, switch_id: 2 };
        assert_eq!(whats(&message(MessageType::LeaseGrant)), [granted, about(Form::Returned)]);
        assert_eq!(whats(&message(MessageType::Refused)), [What::Refused { epoch: 6 }]);
    }

    #[test]
    fn records_of_batches_and_their_answers_are_seen() {
        let head = BatchHead {
            flags: 0,
            switch_id: 2,
            incarnation: 4,
            request_ns: 1,
            number: 11,
            view: 0,
            session: 1,
            stream: 1,
            client: Ipv4Addr::new(10, 255, 0, 2),
            shard: 6,
        };
        let record = BatchRecord {
            object_id: 1,
            flags: RecordFlags::NONE,
            epoch: 5,
            place: 0,
            seq: 9,
            content: &[],
        };
        let mut records = Vec::new();
        for port in [PORT + 1, PORT] {
            record.append_to(&key(port), &258_u64.to_be_bytes(), &mut records).expect("short");
        }
        let (mut batch, mut answer) = (Vec::new(), Vec::new());
        Batch::new(head, &records).expect("two records").append_to(&mut batch);
        BatchAck { head, count: 2, refused: 2 }.append_to(&mut answer);
        let id = BatchId { switch_id: 2, incarnation: 4, stream: 1, shard: 6, number: 11 };
        let whats = |payload: &[u8]| {
            let all = see(&datagram(payload), 7);
            all.into_iter().map(|it| (it.flow, it.what)).collect::<Vec<_>>()
        };
        let seen = Record { place: 1, epoch: 5, number: 258 };
        assert_eq!(whats(&batch), [(3, What::Recorded { batch: id, record: seen })]);
        assert_eq!(whats(&answer), [(0, What::Answered { batch: id, refused: 2 })]);
        assert_eq!(whats(&batch[..batch.len() - 1]), [], "cut");
    }

    #[test]
    fn what_is_not_about_counted_packets_is_passed_over() {
        assert!(see(&packet(), 8).is_empty(), "an interface that is none of the topology's");
        let mut other = packet();
        other[37] ^= 1;
        assert!(see(&other, 7).is_empty(), "another port");
        for cut in 0..packet().len() {
            assert!(see(&packet()[..cut], 7).is_empty());
        }
        assert!(see(&message(MessageType::Update)[..160], 7).is_empty(), "cut");
    }
}
