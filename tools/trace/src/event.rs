//! One datagram of the protocol, decoded.

use crate::PORTS;
use crate::objects::{Objects, hex};
use crate::packet;
use capture::{Datagram, Frame};
use serde::Serialize;
use state_protocol::{Effect, Entries, Flags, Kind, Message, MessageType, kind};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddrV4;
use wire::{
    ChainFlags, ChainHeader, ChainType, Control, ControlType, HEADER_BYTES, KeyRing, Malformed,
    NotGenuine, Refusal, Report, Reporter, Views,
};

/// Numbers that belong to chains (from 32) and controllers (to 63), also such as this version does
/// not know.
const SERVER_TYPES: std::ops::RangeInclusive<u8> = 32..=63;

/// A field of a key or value, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// As the program declares it.
    pub name: String,
    /// Readable.
    pub value: String,
}

/// Whether a message is genuine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tag {
    /// Not looked at: no secrets were given, or the capture does not have all of the message.
    Unchecked,
    /// It is what a secret makes of the message.
    Good,
    /// It is not.
    Wrong,
    /// It names a secret that was not given.
    UnknownSecret,
}

/// A datagram to or from the protocol's ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When, in ns since 1970.
    pub time_ns: u64,
    /// Who sent it.
    pub from: SocketAddrV4,
    /// To whom.
    pub to: SocketAddrV4,
    /// Bytes of the datagram.
    pub bytes: usize,
    /// Which secret it names.
    pub key_id: Option<u8>,
    /// Is it genuine?
    pub tag: Tag,
    /// Tells datagrams apart: a hash of all that was captured of it.
    #[serde(skip)]
    pub digest: u64,
    /// What it is.
    #[serde(flatten)]
    pub body: Body,
}

/// What a datagram is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// Between a switch (or a status tool) and the store.
    Message(MessageBody),
    /// Between the servers of a chain.
    Chain(ChainBody),
    /// Between servers or switches and a controller.
    Control {
        /// As `systems/redplane/docs/state-protocol.md` calls it.
        #[serde(rename = "type")]
        name: &'static str,
        /// What it says, in short.
        summary: String,
    },
    /// Of a type that only newer versions know.
    Other {
        /// The type's name, or its number.
        #[serde(rename = "type")]
        name: String,
    },
    /// None of the protocol's messages.
    Malformed {
        /// Why, as a label of the stores' metrics.
        reason: &'static str,
        /// Why, in words.
        detail: String,
    },
    /// The capture does not have all of it.
    Cut {
        /// What its type byte says, if that is there.
        #[serde(rename = "type")]
        name: Option<String>,
        /// Bytes captured.
        captured: usize,
    },
}

/// A message between switch and store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageBody {
    /// As `systems/redplane/docs/state-protocol.md` calls it.
    #[serde(rename = "type")]
    pub name: &'static str,
    /// The state object's number; 0: none.
    pub object_id: u16,
    /// Its name, if the manifest has it.
    pub object: Option<String>,
    /// Flags that are set.
    pub flags: Vec<&'static str>,
    /// Which switch.
    pub switch_id: u32,
    /// Which life of it.
    pub incarnation: u32,
    /// The switch's clock when it sent the request, in ns.
    pub request_ns: u64,
    /// Grant.
    pub epoch: u32,
    /// Sequence number.
    pub seq: u64,
    /// Length of the lease in microseconds; `RELEASE`: idle time in ms.
    pub lease_us: u32,
    /// P4 port of the packet (the lower 9 bits of the field).
    pub port: u16,
    /// How often the packet was parked (the upper 7 bits).
    pub parked: u16,
    /// Session.
    pub session: u32,
    /// Shard.
    pub shard: u16,
    /// The key, in hexadecimal.
    pub key: String,
    /// Its fields, if the manifest has the object.
    pub key_fields: Option<Vec<Field>>,
    /// The value, in hexadecimal.
    pub value: String,
    /// Its fields, if the manifest has the object.
    pub value_fields: Option<Vec<Field>>,
    /// Bytes of what stands in the packet's place.
    pub packet_bytes: usize,
    /// The packet in a few words.
    pub packet: Option<String>,
}

/// A message of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainBody {
    /// As `systems/redplane/docs/state-protocol.md` calls it.
    #[serde(rename = "type")]
    pub name: String,
    /// Flags that are set.
    pub flags: Vec<&'static str>,
    /// The sender's incarnation.
    pub sender: u64,
    /// The receiver's, as the sender knows it.
    pub receiver: u64,
    /// See `systems/redplane/docs/state-protocol.md`.
    pub index: u64,
    /// The last entry known to be at the tail.
    pub committed: u64,
    /// Shard.
    pub shard: u16,
    /// The number of the shard's view that the sender is in.
    pub view: u64,
    /// Entries, by what they do: `write`, `pair`, and so on.
    pub entries: Vec<&'static str>,
}

/// `LeaseRequest` is `LEASE_REQUEST` in the document.
fn type_name(message_type: MessageType) -> &'static str {
    match message_type {
        MessageType::LeaseRequest => "LEASE_REQUEST",
        MessageType::Update => "UPDATE",
        MessageType::ReadCommit => "READ_COMMIT",
        MessageType::Heartbeat => "HEARTBEAT",
        MessageType::Release => "RELEASE",
        MessageType::Snapshot => "SNAPSHOT",
        MessageType::LeaseGrant => "LEASE_GRANT",
        MessageType::Absent => "ABSENT",
        MessageType::UpdateAck => "UPDATE_ACK",
        MessageType::Refused => "REFUSED",
        MessageType::HeartbeatAck => "HEARTBEAT_ACK",
        MessageType::Recall => "RECALL",
        MessageType::ReleaseAck => "RELEASE_ACK",
        MessageType::SnapshotAck => "SNAPSHOT_ACK",
        MessageType::SnapshotState => "SNAPSHOT_STATE",
        MessageType::StatusRequest => "STATUS_REQUEST",
        MessageType::StatusReply => "STATUS_REPLY",
        MessageType::StateRequest => "STATE_REQUEST",
        MessageType::StateReply => "STATE_REPLY",
    }
}

/// `Hello` is `CHAIN_HELLO`.
fn chain_name(chain_type: ChainType) -> String {
    let name = match chain_type {
        ChainType::Hello => "CHAIN_HELLO",
        ChainType::Data => "CHAIN_DATA",
        ChainType::Ack => "CHAIN_ACK",
        ChainType::Copy => "CHAIN_COPY",
        ChainType::CopyAck => "CHAIN_COPY_ACK",
    };
    name.to_owned()
}

fn control_name(control_type: ControlType) -> &'static str {
    match control_type {
        ControlType::Report => "REPORT",
        ControlType::Views => "VIEWS",
        ControlType::Heard => "HEARD",
        ControlType::ViewsWanted => "VIEWS_WANTED",
        ControlType::Refused => "SWITCH_REFUSED",
        ControlType::OtherSecrets => "OTHER_SECRETS",
    }
}

/// Every name of a message that filters can ask for.
pub(crate) fn known_names() -> Vec<String> {
    let mut names: Vec<String> =
        MessageType::ALL.iter().map(|known| type_name(*known).to_owned()).collect();
    use ChainType::{Ack, Copy, CopyAck, Data, Hello};
    names.extend([Hello, Data, Ack, Copy, CopyAck].map(chain_name));
    names.extend(
        [
            ControlType::Report,
            ControlType::Views,
            ControlType::Heard,
            ControlType::ViewsWanted,
            ControlType::Refused,
            ControlType::OtherSecrets,
        ]
        .map(|known| control_name(known).to_owned()),
    );
    names
}

impl Event {
    /// The type's name; `MALFORMED` for what has none.
    pub fn type_name(&self) -> &str {
        match &self.body {
            Body::Message(message) => message.name,
            Body::Chain(ChainBody { name, .. }) | Body::Other { name } => name,
            Body::Control { name, .. } => name,
            Body::Malformed { .. } => "MALFORMED",
            Body::Cut { name, .. } => name.as_deref().unwrap_or("CUT"),
        }
    }
}

/// What a captured frame says; none if it is not a datagram from or to one of the protocol's ports.
pub fn decode(frame: &Frame<'_>, objects: &Objects, secrets: Option<&KeyRing>) -> Option<Event> {
    let datagram = capture::datagram(frame)?;
    let ports = [datagram.source.port(), datagram.destination.port()];
    if !ports.iter().any(|port| PORTS.contains(port)) {
        return None;
    }
    let whole = datagram.payload.len() == datagram.payload_bytes && !datagram.fragmented;
    let tag = match secrets {
        Some(ring) if whole => genuine(ring, &datagram),
        _ => Tag::Unchecked,
    };
    let mut hasher = DefaultHasher::new();
    (datagram.source, datagram.destination, datagram.payload).hash(&mut hasher);
    Some(Event {
        time_ns: frame.time_ns,
        digest: hasher.finish(),
        from: datagram.source,
        to: datagram.destination,
        bytes: datagram.payload_bytes,
        key_id: (datagram.payload.len() >= HEADER_BYTES).then(|| datagram.payload[54]),
        tag,
        body: if whole { body(datagram.payload, objects) } else { cut(datagram.payload) },
    })
}

fn genuine(ring: &KeyRing, datagram: &Datagram<'_>) -> Tag {
    match ring.verify(datagram.payload, *datagram.source.ip(), *datagram.destination.ip()) {
        Ok(()) => Tag::Good,
        Err(NotGenuine::UnknownSecret(_)) => Tag::UnknownSecret,
        Err(NotGenuine::NoTag) => Tag::Unchecked,
        Err(NotGenuine::WrongTag) => Tag::Wrong,
    }
}

fn cut(payload: &[u8]) -> Body {
    let name = match kind(payload) {
        Ok(Kind::Message(message_type)) => Some(type_name(message_type).to_owned()),
        Ok(Kind::Chain(chain_type)) => Some(chain_name(chain_type)),
        Ok(Kind::Control(control_type)) => Some(control_name(control_type).to_owned()),
        Err(_) => None,
    };
    Body::Cut { name, captured: payload.len() }
}

fn body(payload: &[u8], objects: &Objects) -> Body {
    let found = match kind(payload) {
        Ok(Kind::Message(_)) => Message::decode(payload)
            .map(|message| Body::Message(MessageBody::new(&message, objects))),
        Ok(Kind::Chain(_)) => chain(payload).map(Body::Chain),
        Ok(Kind::Control(control_type)) => Control::decode(payload).map(|control| Body::Control {
            name: control_name(control_type),
            summary: control_summary(&control),
        }),
        Err(Malformed::Type)
            if payload.get(3).is_some_and(|number| SERVER_TYPES.contains(number)) =>
        {
            Ok(Body::Other { name: format!("TYPE_{}", payload[3]) })
        }
        Err(reason) => Err(reason),
    };
    found.unwrap_or_else(|reason| Body::Malformed {
        reason: reason.label(),
        detail: reason.to_string(),
    })
}

/// What a controller is told, or tells: without the shards where all is as it should be.
fn control_summary(control: &Control) -> String {
    match control {
        Control::Report { report: Report { reporter, version, shards, replicas, .. }, .. } => {
            let who = match reporter {
                Reporter::Server => "server".to_owned(),
                Reporter::Switch { switch_id } => format!("sw {switch_id}"),
            };
            let ready = replicas.iter().filter(|replica| replica.ready).count();
            format!(
                "{who}  views {version}  {shards} shards  {} replicas, {ready} ready",
                replicas.len()
            )
        }
        Control::Views(Views { version, shards }) => {
            let chained = shards.iter().filter(|shard| !shard.members.is_empty()).count();
            let joining = shards.iter().filter(|shard| shard.joining.is_some()).count();
            format!(
                "views {version}  {} shards, {chained} with a chain, {joining} joining",
                shards.len()
            )
        }
        Control::Refused { refusal: Refusal { switch_id, address, .. }, .. } => {
            format!("switch_id {switch_id} is that of the switch at {address}")
        }
        Control::Heard | Control::ViewsWanted | Control::OtherSecrets => String::new(),
    }
}

fn chain(payload: &[u8]) -> Result<ChainBody, Malformed> {
    let header = ChainHeader::decode(payload)?;
    let mut entries = vec![];
    // A copy that is done carries no entries.
    let carries = matches!(header.chain_type, ChainType::Data | ChainType::Copy);
    if carries && !header.flags.contains(ChainFlags::DONE) {
        entries = Entries::decode(&header, payload)?
            .map(|(entry, _)| effect_name(&entry.effect))
            .collect();
    }
    let known = [
        (ChainFlags::READY, "READY"),
        (ChainFlags::GAP, "GAP"),
        (ChainFlags::MISMATCH, "MISMATCH"),
        (ChainFlags::WHOLE, "WHOLE"),
        (ChainFlags::DONE, "DONE"),
    ];
    Ok(ChainBody {
        name: chain_name(header.chain_type),
        flags: known
            .iter()
            .filter(|(flag, _)| header.flags.contains(*flag))
            .map(|(_, name)| *name)
            .collect(),
        sender: header.sender,
        receiver: header.receiver,
        index: header.index,
        committed: header.committed,
        shard: header.shard,
        view: header.view,
        entries,
    })
}

fn effect_name(effect: &Effect<'_>) -> &'static str {
    match effect {
        Effect::None => "none",
        Effect::Write(_) => "write",
        Effect::Pair { .. } => "pair",
        Effect::Free { .. } => "free",
        Effect::SessionBegin { .. } => "session_begin",
        Effect::SessionEnd { .. } => "session_end",
        Effect::Floor { .. } => "floor",
        Effect::Snapshot(_) => "snapshot",
    }
}

impl MessageBody {
    fn new(message: &Message<'_>, objects: &Objects) -> MessageBody {
        let known = [
            (Flags::ALLOCATE, "ALLOCATE"),
            (Flags::EXHAUSTED, "EXHAUSTED"),
            (Flags::HALF_CLOSED, "HALF_CLOSED"),
            (Flags::CLOSED, "CLOSED"),
            (Flags::HALF_OPEN, "HALF_OPEN"),
            (Flags::UNKNOWN, "UNKNOWN"),
            (Flags::PROBE, "PROBE"),
        ];
        use MessageType::{Snapshot, SnapshotState, StateReply, StateRequest, StatusReply};
        let is_frame = !matches!(
            message.message_type,
            Snapshot | SnapshotState | StatusReply | StateRequest | StateReply
        );
        MessageBody {
            name: type_name(message.message_type),
            object_id: message.object_id,
            object: objects.name(message.object_id).map(str::to_owned),
            flags: known
                .iter()
                .filter(|(flag, _)| message.flags.contains(*flag))
                .map(|(_, name)| *name)
                .collect(),
            switch_id: message.sender.switch_id,
            incarnation: message.sender.incarnation,
            request_ns: message.request_ns,
            epoch: message.epoch,
            seq: message.seq,
            lease_us: message.lease_us,
            port: message.port & 0x1ff,
            parked: message.port >> 9,
            session: message.session,
            shard: message.shard,
            key: hex(message.key),
            key_fields: objects.key(message.object_id, message.key),
            value: hex(message.value),
            value_fields: objects.value(message.object_id, message.value),
            packet_bytes: message.packet.len(),
            packet: (is_frame && !message.packet.is_empty())
                .then(|| packet::describe(message.packet)),
        }
    }
}
