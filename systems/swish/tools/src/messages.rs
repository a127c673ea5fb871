//! `stateplane trace`: messages between switches of a group. They have a form of their own, and a
//! UDP port by which they are told. Those of agents and controllers have the platform's frame.

mod control;

use crate::SwiSh;
use fuzz_door::{Door, Doors, told};
use serde_json::json;
use swish_protocol::eventual;
use swish_protocol::message::{Cells, Message};
use swish_protocol::strong::{self, NO_MEMBER, kind};
use swish_protocol::{PORT, layouts::NOTHING};
use trace::{Fields, MessageBody, Messages, Objects};
use wire::Malformed;

/// It brings cells.
const DELTA: &str = "SHARED_DELTA";
/// It says how far its sender is.
const STATE: &str = "SHARED_STATE";
/// With EWO: single cells that packets changed.
const CHANGES: &str = "SHARED_CHANGES";
/// With EWO: a run of cells of one life.
const GOSSIP: &str = "SHARED_GOSSIP";

/// Of a chain with SRO: writes to the head, down the chain, and the tail's answer; the round that
/// lends time to read; keys, to one that joins; the sender's life, without controllers.
const CHAIN: [(u8, &str); 7] = [
    (kind::REQUEST, "SHARED_REQUEST"),
    (kind::BATCH, "SHARED_BATCH"),
    (kind::ACK, "SHARED_BATCH_ACK"),
    (kind::ROUND, "SHARED_ROUND"),
    (kind::COPY, "SHARED_COPY"),
    (kind::COPIED, "SHARED_COPIED"),
    (kind::HELLO, "SHARED_HELLO"),
];

const PHASES: [&str; 7] =
    ["advanced", "resetting", "ready", "turning", "rotated", "counting", "sending"];

impl Messages for SwiSh {
    fn names(&self) -> Vec<&'static str> {
        let numbered = CHAIN.iter().chain(&control::TYPES).map(|(_, name)| *name);
        [DELTA, STATE, CHANGES, GOSSIP].into_iter().chain(numbered).collect()
    }

    fn name(&self, number: u8) -> Option<&'static str> {
        control::name(number)
    }

    fn decode(&self, datagram: &[u8], _: &Objects) -> Result<MessageBody, Malformed> {
        control::decode(datagram)
    }

    fn framed_ports(&self) -> &'static [u16] {
        &control::PORTS
    }

    fn ports(&self) -> &'static [u16] {
        &[PORT, strong::PORT, eventual::PORT]
    }

    fn decode_unframed(&self, datagram: &[u8]) -> Result<MessageBody, String> {
        // (No other message begins with such a byte and is as long.)
        if let Ok(message) = strong::Message::decode(datagram) {
            return Ok(chain_body(&message));
        }
        match eventual::Message::decode(datagram) {
            Ok(message) => Ok(eventual_body(&message)),
            Err(eventual::Wrong::Cells) => Err(eventual::Wrong::Cells.to_string()),
            Err(eventual::Wrong::Length | eventual::Wrong::Kind) => Message::decode(datagram)
                .map(|message| body(&message))
                .map_err(|error| error.to_string()),
        }
    }
}

fn chain_body(message: &strong::Message) -> MessageBody {
    let name = CHAIN.iter().find(|(kind, _)| *kind == message.kind).map_or("?", |it| it.1);
    let refused = message.refused.count_ones();
    let resender = (message.resender != NO_MEMBER).then_some(message.resender);
    let order = if message.kind == kind::REQUEST { "knows" } else { "number" };
    let again = resender.map_or_else(String::new, |it| format!(" sent again by {it}"));
    let rest = format!(
        "view {} from {} stream {} batch {} {order} {}: {} records, {refused} refused{again}",
        message.view, message.origin, message.stream, message.batch, message.seq, message.count
    );
    MessageBody {
        name,
        fields: Fields(vec![
            ("view", json!(message.view)),
            ("origin", json!(message.origin)),
            ("stream", json!(message.stream)),
            ("batch", json!(message.batch)),
            ("number", json!(message.seq)),
            ("records", json!(message.count)),
            ("refused", json!(refused)),
            ("full", json!(message.full.count_ones())),
            ("resender", json!(resender)),
        ]),
        rest,
        ..MessageBody::default()
    }
}

fn eventual_body(message: &eventual::Message) -> MessageBody {
    let (name, brings, cells) = match &message.cells {
        eventual::Cells::Single(cells) => (CHANGES, format!("{} cells", cells.len()), cells.len()),
        eventual::Cells::Run(first, cells) => {
            (GOSSIP, format!("{} cells from {first}", cells.len()), cells.len())
        }
        eventual::Cells::Records(is_gossip, _, records) => {
            let removed = records.iter().filter(|it| it.removed).count();
            let name = if *is_gossip { GOSSIP } else { CHANGES };
            let count = records.len();
            (name, format!("{count} records, {removed} removed"), count)
        }
    };
    let (member, incarnation) = eventual::whose(message.life);
    let of = match message.life {
        0 if matches!(message.cells, eventual::Cells::Records(..)) => String::new(),
        0 => " without slots".into(),
        _ => format!(" of {member} incarnation {incarnation}"),
    };
    let rest = format!(
        "group {} view {} {}→{} {brings}{of}",
        message.group, message.view, message.sender, message.receiver
    );
    let life = (message.life > 0).then(|| json!({"member": member, "incarnation": incarnation}));
    MessageBody {
        name,
        fields: Fields(vec![
            ("group", json!(message.group)),
            ("view", json!(message.view)),
            ("sender", json!(message.sender)),
            ("receiver", json!(message.receiver)),
            ("life", json!(life)),
            ("cells", json!(cells)),
            ("records", records(message)),
        ]),
        rest,
        ..MessageBody::default()
    }
}

/// What a message says of records: objects by their numbers, keys in wire form.
fn records(message: &eventual::Message) -> serde_json::Value {
    let eventual::Cells::Records(_, hears, records) = &message.cells else { return json!(null) };
    let hears: Vec<u32> = (0..32).filter(|member| hears >> member & 1 == 1).collect();
    let hex = |words: &[u64]| -> String {
        words.iter().flat_map(|it| it.to_ne_bytes()).map(|it| format!("{it:02x}")).collect()
    };
    let record = |it: &swish_protocol::lww::Record| {
        json!({
            "object": it.object,
            "key": hex(&it.key),
            "removed": it.removed,
            "time": it.time,
            "writer": eventual::whose(it.writer).0,
        })
    };
    json!({"hears": hears, "list": records.iter().map(record).collect::<Vec<_>>()})
}

fn body(message: &Message) -> MessageBody {
    let phase = PHASES.get(usize::from(message.phase)).copied().unwrap_or("?");
    let number = |number: u16| (number != NOTHING).then_some(number);
    let (name, brings) = match &message.cells {
        Cells::None => (STATE, String::new()),
        Cells::Block { block, .. } => (DELTA, format!(" block {block}")),
        Cells::Single { entries, .. } => {
            let cells: usize = entries.iter().map(|(_, cells)| cells.len()).sum();
            (DELTA, format!(" {cells} cells of {} blocks", entries.len()))
        }
    };
    let of = match (number(message.number), number(message.total)) {
        (Some(number), Some(total)) => format!(" message {number} of {total}"),
        (None, Some(total)) => format!(" {total} messages"),
        _ => String::new(),
    };
    let before = if message.previous { " before" } else { "" };
    let want = number(message.want).map_or_else(String::new, |want| format!(" lacks {want}"));
    let rest = format!(
        "group {} view {} {}→{} window {} {phase}{of}{before}{brings}{want}",
        message.group, message.view, message.sender, message.receiver, message.window
    );
    MessageBody {
        name,
        fields: Fields(vec![
            ("group", json!(message.group)),
            ("view", json!(message.view)),
            ("sender", json!(message.sender)),
            ("receiver", json!(message.receiver)),
            ("window", json!(message.window)),
            ("phase", json!(phase)),
            ("cells_window", json!(message.cells_window())),
            ("number", json!(number(message.number))),
            ("total", json!(number(message.total))),
            ("want", json!(number(message.want))),
        ]),
        rest,
        ..MessageBody::default()
    }
}

impl Doors for SwiSh {
    fn doors(&self) -> &'static [Door] {
        &[]
    }

    fn datagram(&self, data: &[u8]) {
        match control::decode(data) {
            Ok(message) => assert!(!message.rest.is_empty()),
            Err(error) => told(&error),
        }
        match Message::decode(data) {
            Ok(message) => assert!(!body(&message).rest.is_empty()),
            Err(error) => told(&error),
        }
        match strong::Message::decode(data) {
            Ok(message) => assert!(!chain_body(&message).rest.is_empty()),
            Err(error) => told(&error),
        }
        match eventual::Message::decode(data) {
            Ok(message) => assert!(!eventual_body(&message).rest.is_empty()),
            Err(error) => told(&error),
        }
    }
}
