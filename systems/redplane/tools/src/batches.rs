//! `stateplane trace`: batches of records, and their acknowledgements.

use crate::messages::flag_names;
use serde_json::{Value, json};
use state_protocol::phase_of;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use trace::{Fields, Follows, MessageBody, Objects, hex};
use wire::{Batch, BatchAck, BatchHead, BatchRecord, RecordFlags};

/// A `BATCH`: its records in JSON; the first ones, with their keys, in the line.
pub(crate) fn batch(batch: &Batch<'_>, objects: &Objects, name: &'static str) -> MessageBody {
    let records: Vec<_> = batch.records().map(|record| RecordParts::new(record, objects)).collect();
    let mut rest = rest(&batch.head, records.len());
    for record in records.iter().take(RECORDS_IN_LINE) {
        let _ = write!(rest, "  {}", record.text(objects)); // cannot fail: a string
    }
    if records.len() > RECORDS_IN_LINE {
        let _ = write!(rest, "  and {} more", records.len() - RECORDS_IN_LINE);
    }
    let all: Vec<_> = records.iter().map(|record| record.json(objects)).collect();
    let mut about = DefaultHasher::new();
    let head = &batch.head;
    (head.switch_id, head.incarnation, head.stream, head.shard).hash(&mut about);
    let follows = Follows {
        about: about.finish(),
        number: head.number,
        sent_ns: head.request_ns,
        resent: true,
    };
    body(head, records.len(), name, ("records", all.into()), rest, Some(follows))
}

/// A `BATCH_ACK`: which records were refused.
pub(crate) fn ack(ack: &BatchAck, name: &'static str) -> MessageBody {
    let refused: Vec<u16> = (0..ack.count).filter(|at| ack.refused >> at & 1 != 0).collect();
    let mut rest = rest(&ack.head, ack.count.into());
    if !refused.is_empty() {
        let list: Vec<_> = refused.iter().map(u16::to_string).collect();
        let _ = write!(rest, "  refused {}", list.join(","));
    }
    body(&ack.head, ack.count.into(), name, ("refused", json!(refused)), rest, None)
}

/// Records that a line shows.
const RECORDS_IN_LINE: usize = 2;

fn rest(head: &BatchHead, count: usize) -> String {
    let mut rest =
        format!("sw {}  batch {} of stream {}", head.switch_id, head.number, head.stream);
    for (name, value) in [("session", u64::from(head.session)), ("view", head.view)] {
        if value != 0 {
            let _ = write!(rest, "  {name} {value}");
        }
    }
    let _ = write!(rest, "  shard {}  {count} records", head.shard);
    rest
}

fn body(
    head: &BatchHead,
    count: usize,
    name: &'static str,
    last: (&'static str, Value),
    rest: String,
    follows: Option<Follows>,
) -> MessageBody {
    let fields = vec![
        ("flags", json!(head.flags)),
        ("count", json!(count)),
        ("switch_id", json!(head.switch_id)),
        ("incarnation", json!(head.incarnation)),
        ("request_ns", json!(head.request_ns)),
        ("batch", json!(head.number)),
        ("view", json!(head.view)),
        ("session", json!(head.session)),
        ("stream", json!(head.stream)),
        ("client", json!(head.client)),
        ("shard", json!(head.shard)),
        last,
    ];
    MessageBody {
        name,
        fields: Fields(fields),
        object: String::new(),
        key: String::new(),
        key_fields: None,
        switch_id: Some(head.switch_id),
        shard: Some(head.shard),
        rest,
        follows,
    }
}

/// A record with its key and value. Without the manifest nobody knows where the value begins: all
/// of it counts as the key.
struct RecordParts<'a> {
    record: BatchRecord<'a>,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> RecordParts<'a> {
    fn new(record: BatchRecord<'a>, objects: &Objects) -> RecordParts<'a> {
        let known = objects.lengths(record.object_id);
        let parts = known.and_then(|(key, value)| record.key_and_value(key, value));
        let (key, value) = parts.unwrap_or((record.content, &[]));
        RecordParts { record, key, value }
    }

    fn flags(&self) -> Vec<&'static str> {
        let group = self.record.flags.contains(RecordFlags::GROUP).then_some("GROUP");
        group.into_iter().chain(flag_names(phase_of(self.record.flags))).collect()
    }

    fn json(&self, objects: &Objects) -> Value {
        let BatchRecord { object_id, epoch, place, seq, .. } = self.record;
        json!({
            "object_id": object_id,
            "object": objects.name(object_id),
            "flags": self.flags(),
            "epoch": epoch,
            "place": place,
            "seq": seq,
            "key": hex(self.key),
            "key_fields": objects.key(object_id, self.key),
            "value": hex(self.value),
            "value_fields": objects.value(object_id, self.value),
        })
    }

    fn text(&self, objects: &Objects) -> String {
        let BatchRecord { object_id, epoch, seq, .. } = self.record;
        let shown = |fields: Option<Vec<trace::Field>>, bytes: &[u8]| {
            fields.as_deref().map_or_else(|| hex(bytes), trace::fields)
        };
        let key = shown(objects.key(object_id, self.key), self.key);
        let mut text = format!("[{key}  epoch {epoch} seq {seq}");
        if !self.value.is_empty() {
            let _ = write!(text, " = {}", shown(objects.value(object_id, self.value), self.value));
        }
        let flags = self.flags();
        let gap = if flags.is_empty() { "" } else { " " };
        format!("{text}{gap}{}]", flags.join("+"))
    }
}
