//! `stateplane trace`: requests, writes on their way down a chain, and replies. They have a form of
//! their own, and a UDP port by which they are told.

use crate::NetChain;
use netchain_protocol::message::{AGAIN, MOVED, REPLY, STAMPED};
use netchain_protocol::{Message, PORT};
use serde_json::{Value, json};
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use trace::{Field, Fields, Follows, MessageBody, Messages, Objects, hex};
use wire::Malformed;

/// A client asks.
const REQUEST: &str = "KV_REQUEST";
/// The head has given a write its version.
const WRITE: &str = "KV_WRITE";
const ANSWER: &str = "KV_REPLY";

/// Bits of a version behind the session's number.
const SEQUENCE_BITS: u32 = 48;

impl Messages for NetChain {
    fn names(&self) -> Vec<&'static str> {
        vec![REQUEST, WRITE, ANSWER]
    }

    fn name(&self, _: u8) -> Option<&'static str> {
        None
    }

    fn decode(&self, _: &[u8], _: &Objects) -> Result<MessageBody, Malformed> {
        Err(Malformed::Type)
    }

    fn ports(&self) -> &'static [u16] {
        &[PORT]
    }

    fn decode_unframed(&self, datagram: &[u8]) -> Result<MessageBody, String> {
        Message::decode(datagram).map(|message| body(&message)).map_err(|error| error.to_string())
    }
}

/// `CompareVersion` is `COMPARE_VERSION`.
pub(crate) fn word(name: &impl Debug) -> String {
    let mut word = String::new();
    for letter in format!("{name:?}").chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_uppercase());
    }
    word
}

/// Bytes as the text that they are; else as hexadecimal digits.
fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => format!("0x{}", hex(bytes)),
    }
}

/// Session and sequence number.
fn version(version: u64) -> String {
    let (session, sequence) = (version >> SEQUENCE_BITS, version & ((1 << SEQUENCE_BITS) - 1));
    format!("{session}.{sequence}")
}

fn flags(message: &Message) -> Vec<&'static str> {
    let named = [(REPLY, "REPLY"), (STAMPED, "STAMPED"), (MOVED, "MOVED"), (AGAIN, "AGAIN")];
    named.iter().filter(|(flag, _)| message.flags & flag != 0).map(|(_, name)| *name).collect()
}

fn body(message: &Message) -> MessageBody {
    let name = match message.flags {
        flags if flags & REPLY != 0 => ANSWER,
        flags if flags & STAMPED != 0 => WRITE,
        _ => REQUEST,
    };
    // Names end with zero bytes.
    let length = message.key.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let key = shown(&message.key.0[..length]);
    let fields: Vec<(&'static str, Value)> = vec![
        ("operation", json!(word(&message.operation))),
        ("status", json!(word(&message.status))),
        ("flags", json!(flags(message))),
        ("group", json!(message.group)),
        ("view", json!(message.view)),
        ("client", json!(format!("{:016x}", message.client))),
        ("number", json!(message.number)),
        ("version", json!(message.version)),
        ("operand", json!(message.operand)),
        ("key", json!(hex(&message.key.0))),
        ("chain", json!(message.chain)),
        ("value", json!(message.value.as_deref().map(hex))),
    ];
    MessageBody {
        name,
        fields: Fields(fields),
        object: format!("group {}", message.group),
        key: hex(&message.key.0),
        key_fields: Some(vec![Field { name: "key".to_owned(), value: key, member: None }]),
        switch_id: None,
        shard: None,
        rest: rest(message, name),
        follows: follows(message, name),
    }
}

/// The line behind the key. (Writing to a string cannot fail.)
fn rest(message: &Message, name: &str) -> String {
    let mut rest = word(&message.operation);
    if name == ANSWER {
        let _ = write!(rest, " {}", word(&message.status));
    }
    if message.version != 0 {
        let _ = write!(rest, "  version {}", version(message.version));
    }
    if message.operand != 0 {
        let _ = write!(rest, "  operand {}", message.operand);
    }
    if let Some(value) = &message.value {
        let _ = write!(rest, "  value {}", shown(value));
    }
    let _ = write!(
        rest,
        "  view {}  client {:016x} number {}",
        message.view, message.client, message.number
    );
    if !message.chain.is_empty() {
        let hops: Vec<String> = message.chain.iter().map(ToString::to_string).collect();
        let _ = write!(rest, "  then {}", hops.join(" "));
    }
    for flag in flags(message).into_iter().filter(|flag| ["MOVED", "AGAIN"].contains(flag)) {
        let _ = write!(rest, "  {flag}");
    }
    rest
}

/// A client numbers its requests; one that comes again was sent again. Servers answer each.
fn follows(message: &Message, name: &str) -> Option<Follows> {
    if name != REQUEST {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    (message.client, message.key.0).hash(&mut hasher);
    let (about, number) = (hasher.finish(), u64::from(message.number));
    Some(Follows { about, number, sent_ns: 0, resent: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::{Frame, Link};
    use netchain_protocol::message::Room;
    use netchain_protocol::{Key, Operation, Status};
    use trace::{Columns, Event, Repeat, Summary, Systems};

    /// Over UDP to a switch's port, or (`back`) from it.
    fn event(payload: &[u8], back: bool, time_ns: u64) -> Event {
        let mut bytes = vec![0; 12];
        bytes.extend([8, 0, 0x45, 0]);
        bytes.extend((28 + payload.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let ports = if back { [PORT, 40_000] } else { [40_000, PORT] };
        for half in [ports[0], ports[1], 8 + payload.len() as u16, 0] {
            bytes.extend(half.to_be_bytes());
        }
        bytes.extend(payload);
        let frame = Frame { time_ns, link: Link::Ethernet, bytes: &bytes, original_bytes: 0 };
        trace::decode(&frame, Systems(&[&NetChain]), &Objects::default(), None).expect("its port")
    }

    fn request() -> Message {
        Message {
            operation: Operation::CompareVersion,
            status: Status::Request,
            flags: 0,
            group: 7,
            view: 3,
            key_id: 0,
            tag: 0,
            ring: 0,
            client: 0xabc,
            number: 12,
            version: 0,
            operand: 9,
            key: Key::from_name("greeting").expect("short"),
            chain: vec![[10, 9, 0, 2].into()],
            records: Default::default(),
            room: Room::Small,
            value: Some(b"hello".to_vec()),
        }
    }

    fn line(message: &Message, back: bool) -> String {
        let event = event(&message.encode().expect("it fits"), back, 0);
        let line = Columns::default().line(&event, None);
        line.split_whitespace().skip(4).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_request_a_write_and_a_reply_are_lines() {
        let asked = "group 7 key=\"greeting\" COMPARE_VERSION";
        assert_eq!(
            line(&request(), false),
            format!(
                "KV_REQUEST {asked} operand 9 value \"hello\" view 3 client 0000000000000abc number 12 then 10.9.0.2"
            )
        );
        let write = Message { flags: STAMPED, version: 1 << SEQUENCE_BITS | 4, ..request() };
        assert!(line(&write, false).starts_with(&format!("KV_WRITE {asked} version 1.4")));
        let reply = Message { flags: REPLY | MOVED, status: Status::Refused, ..write };
        let line = line(&reply, true);
        assert!(line.starts_with(&format!("KV_REPLY {asked} REFUSED version 1.4")), "{line}");
        assert!(line.ends_with("MOVED"), "{line}");
    }

    #[test]
    fn a_value_that_is_no_text_is_digits_and_a_request_that_comes_again_is_marked() {
        let first = Message { value: Some(vec![0, 255]), ..request() };
        assert!(line(&first, false).contains("value 0x00ff"));
        let again = Message { flags: AGAIN, ..first.clone() };
        let next = Message { number: 13, ..first.clone() };
        let mut summary = Summary::default();
        let seen: Vec<_> = [first, again, next]
            .iter()
            .zip([0, 20_000_000, 40_000_000])
            .map(|(it, ns)| summary.add(&event(&it.encode().expect("it fits"), false, ns)))
            .collect();
        assert_eq!(seen, [None, Some(Repeat::Retransmission), None]);
    }

    #[test]
    fn other_bytes_are_malformed() {
        let event = event(&[1, 2, 3], false, 0);
        assert_eq!(event.type_name(), "MALFORMED");
        assert!(Columns::default().line(&event, None).contains("3 bytes"));
    }
}
