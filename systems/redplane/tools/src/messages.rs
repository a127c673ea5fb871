//! `stateplane trace`: the messages of systems/redplane/docs/state-protocol.md, and what the
//! entries of its chains do.

use crate::{RedPlane, batches};
use serde_json::{Value, json};
use state_protocol::{Effect, Entries, Flags, Kind, Message, MessageType, kind};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;
use trace::{Fields, Follows, MessageBody, Messages, Objects, hex};
use wire::{Batch, BatchAck, BatchType, ChainHeader, Malformed};

/// The types that any system may have.
const BATCHES: [(BatchType, &str); 2] =
    [(BatchType::Batch, "BATCH"), (BatchType::BatchAck, "BATCH_ACK")];

/// Each type with its name on the page: `LeaseRequest` is `LEASE_REQUEST` there.
fn names() -> &'static [(MessageType, String)] {
    static NAMES: OnceLock<Vec<(MessageType, String)>> = OnceLock::new();
    let on_the_page = |message_type: MessageType| {
        let mut name = String::new();
        for letter in message_type.name().chars() {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        (message_type, name)
    };
    NAMES.get_or_init(|| MessageType::ALL.iter().map(|known| on_the_page(*known)).collect())
}

impl Messages for RedPlane {
    fn names(&self) -> Vec<&'static str> {
        names().iter().map(|(_, name)| name.as_str()).chain(BATCHES.map(|(_, name)| name)).collect()
    }

    fn name(&self, number: u8) -> Option<&'static str> {
        let is = |(message_type, _): &&(MessageType, String)| *message_type as u8 == number;
        let of_batches = BATCHES.iter().find(|(known, _)| *known as u8 == number);
        let name = names().iter().find(is).map(|(_, name)| name.as_str());
        name.or(of_batches.map(|(_, name)| *name))
    }

    fn decode(&self, datagram: &[u8], objects: &Objects) -> Result<MessageBody, Malformed> {
        if let Kind::Batch(batch_type) = kind(datagram)? {
            let name = self.name(batch_type as u8).unwrap_or_default();
            return match batch_type {
                BatchType::Batch => {
                    Batch::decode(datagram).map(|it| batches::batch(&it, objects, name))
                }
                BatchType::BatchAck => BatchAck::decode(datagram).map(|it| batches::ack(&it, name)),
            };
        }
        let message = Message::decode(datagram)?;
        Ok(body(&message, objects, self.name(message.message_type as u8).unwrap_or_default()))
    }

    fn entries(
        &self,
        header: &ChainHeader,
        datagram: &[u8],
    ) -> Result<Vec<&'static str>, Malformed> {
        Ok(Entries::decode(header, datagram)?.map(|(entry, _)| effect(&entry.effect)).collect())
    }
}

fn effect(effect: &Effect<'_>) -> &'static str {
    match effect {
        Effect::None => "none",
        Effect::Write(_) => "write",
        Effect::Pair { .. } => "pair",
        Effect::Free { .. } => "free",
        Effect::SessionBegin { .. } => "session_begin",
        Effect::SessionEnd { .. } => "session_end",
        Effect::Floor { .. } => "floor",
        Effect::Snapshot(_) => "snapshot",
        Effect::Batch(_) => "batch",
    }
}

/// The P4 port of the packet (the lower 9 bits of the field).
fn port(message: &Message<'_>) -> u16 {
    message.port & 0x1ff
}

/// How often the packet was parked (the upper 7 bits).
fn parked(message: &Message<'_>) -> u16 {
    message.port >> 9
}

/// The names of the flags that are set.
pub(crate) fn flag_names(flags: Flags) -> Vec<&'static str> {
    let set = Flags::ALL.iter().filter(|(_, flag)| flags.contains(*flag));
    set.map(|(name, _)| *name).collect()
}

/// The packet in a few words. `None`: there is none, or something else is in its place.
fn packet(message: &Message<'_>) -> Option<String> {
    use MessageType::{Snapshot, SnapshotState, StateReply, StateRequest, StatusReply};
    let is_frame = !matches!(
        message.message_type,
        Snapshot | SnapshotState | StatusReply | StateRequest | StateReply
    );
    (is_frame && !message.packet.is_empty()).then(|| trace::describe(message.packet))
}

fn body(message: &Message<'_>, objects: &Objects, name: &'static str) -> MessageBody {
    let object = objects.name(message.object_id);
    let key_fields = objects.key(message.object_id, message.key);
    let fields: Vec<(&'static str, Value)> = vec![
        ("object_id", json!(message.object_id)),
        ("object", json!(object)),
        ("flags", json!(flag_names(message.flags))),
        ("switch_id", json!(message.sender.switch_id)),
        ("incarnation", json!(message.sender.incarnation)),
        ("request_ns", json!(message.request_ns)),
        ("epoch", json!(message.epoch)),
        ("seq", json!(message.seq)),
        ("lease_us", json!(message.lease_us)),
        ("port", json!(port(message))),
        ("parked", json!(parked(message))),
        ("session", json!(message.session)),
        ("shard", json!(message.shard)),
        ("key", json!(hex(message.key))),
        ("key_fields", json!(key_fields)),
        ("value", json!(hex(message.value))),
        ("value_fields", json!(objects.value(message.object_id, message.value))),
        ("packet_bytes", json!(message.packet.len())),
        ("packet", json!(packet(message))),
    ];
    MessageBody {
        name,
        fields: Fields(fields),
        object: match (object, message.object_id) {
            (Some(name), _) => name.to_owned(),
            (None, 0) => String::new(),
            (None, id) => format!("object {id}"),
        },
        key: hex(message.key),
        key_fields,
        switch_id: Some(message.sender.switch_id),
        shard: Some(message.shard),
        rest: rest(message, objects),
        follows: follows(message),
    }
}

/// The line behind the key. (Writing to a string cannot fail.)
fn rest(message: &Message<'_>, objects: &Objects) -> String {
    let mut rest = format!("sw {} ", message.sender.switch_id);
    for (name, value) in [
        ("epoch", u64::from(message.epoch)),
        ("seq", message.seq),
        ("session", u64::from(message.session)),
        ("shard", u64::from(message.shard)),
    ] {
        let shown = value != 0 || name == "shard";
        let _ =
            if shown { write!(rest, " {name} {value:<4}") } else { write!(rest, " {name} -   ") };
    }
    if message.lease_us > 0 {
        // Only a RELEASE says there how long the flow was idle.
        let _ = match message.message_type {
            MessageType::Release => write!(rest, " idle {} ms", message.lease_us),
            _ => write!(rest, " lease {} ms", f64::from(message.lease_us) / 1_000.0),
        };
    }
    let flags = flag_names(message.flags);
    if !flags.is_empty() {
        let _ = write!(rest, "  {}", flags.join("+"));
    }
    if !message.value.is_empty() {
        let known = objects.value(message.object_id, message.value);
        let value = known.as_deref().map_or_else(|| hex(message.value), trace::fields);
        let _ = write!(rest, "  = {value}");
    }
    match packet(message) {
        Some(packet) => {
            let _ = write!(rest, "  [port {}: {packet}]", port(message));
            if parked(message) > 0 {
                let _ = write!(rest, " parked {} times", parked(message));
            }
        }
        None if !message.packet.is_empty() => {
            let _ = write!(rest, "  [{} bytes]", message.packet.len());
        }
        None => {}
    }
    rest
}

/// What the message is about, and the number that grows from one to the next.
fn follows(message: &Message<'_>) -> Option<Follows> {
    use MessageType::{Heartbeat, LeaseRequest, ReadCommit, Recall, Release, Snapshot, Update};
    let mut about = DefaultHasher::new();
    (message.sender, message.object_id, message.key, message.epoch).hash(&mut about);
    let sent_ns = message.request_ns;
    let (number, sent_ns, resent) = match message.message_type {
        // Recorded or released once.
        Update | Release | Snapshot => (message.seq, sent_ns, true),
        // One for each grant. Its clock is the head's.
        Recall => (0, 0, true),
        // Any two of them are requests of their own, unless they were sent at the same time.
        LeaseRequest | ReadCommit | Heartbeat => {
            (message.shard, message.seq, message.packet).hash(&mut about);
            (sent_ns, sent_ns, false)
        }
        _ => return None,
    };
    Some(Follows { about: about.finish(), number, sent_ns, resent })
}
