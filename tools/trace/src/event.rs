//! One datagram of the protocol, decoded.

use crate::objects::Objects;
use crate::system::{MessageBody, Messages, Systems};
use capture::{Datagram, Frame};
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddrV4;
use wire::{
    ChainFlags, ChainHeader, ChainType, Control, ControlType, HEADER_BYTES, KeyRing, Kind,
    Malformed, NotGenuine, Refusal, Report, Reporter, Views, kind,
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
    /// The member of the field's enum that has this value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
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

/// A datagram to or from a port that messages go over.
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
    /// A system's.
    Message(MessageBody),
    /// Between the servers of a chain.
    Chain(ChainBody),
    /// Between servers or switches and a controller.
    Control {
        /// Its type.
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
        /// Why, as a label of the stores' metrics; `unframed`: it is a message without their frame.
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

/// A message of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainBody {
    /// Its type.
    #[serde(rename = "type")]
    pub name: String,
    /// Flags that are set.
    pub flags: Vec<&'static str>,
    /// The sender's incarnation.
    pub sender: u64,
    /// The receiver's, as the sender knows it.
    pub receiver: u64,
    /// `CHAIN_DATA`: of the first entry. Others: the last one that the sender has.
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
pub(crate) fn known_names(systems: Systems) -> Vec<String> {
    let own = systems.0.iter().flat_map(|system| system.names());
    let mut names: Vec<String> = own.map(str::to_owned).collect();
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

/// What a captured frame says; none if it is not a datagram from or to one of the ports of
/// [`Systems::ports`].
pub fn decode(
    frame: &Frame<'_>,
    systems: Systems,
    objects: &Objects,
    secrets: Option<&KeyRing>,
) -> Option<Event> {
    let datagram = capture::datagram(frame)?;
    let ports = [datagram.source.port(), datagram.destination.port()];
    let framed = systems.framed(ports);
    let whole = datagram.payload.len() == datagram.payload_bytes && !datagram.fragmented;
    let body = match (framed, whole) {
        (true, true) => body(datagram.payload, systems, objects),
        (true, false) => cut(datagram.payload, systems),
        (false, true) => unframed(systems.unframed(ports)?, datagram.payload),
        (false, false) => {
            systems.unframed(ports)?;
            Body::Cut { name: None, captured: datagram.payload.len() }
        }
    };
    let tag = match secrets {
        Some(ring) if framed && whole => genuine(ring, &datagram),
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
        key_id: (framed && datagram.payload.len() >= HEADER_BYTES).then(|| datagram.payload[54]),
        tag,
        body,
    })
}

/// A message with a system's own frame.
fn unframed(system: &dyn Messages, payload: &[u8]) -> Body {
    match system.decode_unframed(payload) {
        Ok(message) => Body::Message(message),
        Err(detail) => Body::Malformed { reason: "unframed", detail },
    }
}

fn genuine(ring: &KeyRing, datagram: &Datagram<'_>) -> Tag {
    match ring.verify(datagram.payload, *datagram.source.ip(), *datagram.destination.ip()) {
        Ok(()) => Tag::Good,
        Err(NotGenuine::UnknownSecret(_)) => Tag::UnknownSecret,
        Err(NotGenuine::NoTag) => Tag::Unchecked,
        Err(NotGenuine::WrongTag) => Tag::Wrong,
    }
}

/// The number of a system's type.
fn own_number(kind: Kind) -> Option<u8> {
    match kind {
        Kind::Tool(tool_type) => Some(tool_type as u8),
        Kind::Batch(batch_type) => Some(batch_type as u8),
        Kind::System(number) => Some(number),
        Kind::Chain(_) | Kind::Control(_) => None,
    }
}

fn cut(payload: &[u8], systems: Systems) -> Body {
    let name = match kind(payload) {
        Ok(Kind::Chain(chain_type)) => Some(chain_name(chain_type)),
        Ok(Kind::Control(control_type)) => Some(control_name(control_type).to_owned()),
        Ok(own) => {
            let known = own_number(own).and_then(|number| systems.of(number));
            known.map(|(_, name)| name.to_owned())
        }
        Err(_) => None,
    };
    Body::Cut { name, captured: payload.len() }
}

fn body(payload: &[u8], systems: Systems, objects: &Objects) -> Body {
    let found = match kind(payload) {
        Ok(Kind::Chain(_)) => chain(payload, systems).map(Body::Chain),
        Ok(Kind::Control(control_type)) => Control::decode(payload).map(|control| Body::Control {
            name: control_name(control_type),
            summary: control_summary(&control),
        }),
        Ok(Kind::System(number)) if SERVER_TYPES.contains(&number) => {
            Ok(Body::Other { name: format!("TYPE_{number}") })
        }
        Ok(own) => match own_number(own).and_then(|number| systems.of(number)) {
            Some((system, _)) => system.decode(payload, objects).map(Body::Message),
            None => Err(Malformed::Type),
        },
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

fn chain(payload: &[u8], systems: Systems) -> Result<ChainBody, Malformed> {
    let header = ChainHeader::decode(payload)?;
    let mut entries = vec![];
    // A copy that is done carries no entries.
    let carries = matches!(header.chain_type, ChainType::Data | ChainType::Copy);
    if carries && !header.flags.contains(ChainFlags::DONE) {
        entries = systems.entries(&header, payload)?;
    }
    let known = [
        (ChainFlags::READY, "READY"),
        (ChainFlags::GAP, "GAP"),
        (ChainFlags::MISMATCH, "MISMATCH"),
        (ChainFlags::SYNCED, "SYNCED"),
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
