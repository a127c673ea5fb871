//! What fuzzers feed bytes to: RedPlane's messages, the store's configuration, its log and its
//! answers.

use crate::RedPlane;
use fuzz_door::{Door, Doors, json_again, told};
use state_protocol::{
    Entries, Entry, Kind, Message, SnapshotPart, kind, phase_of, record_flags_of,
};
use state_store::core::{AllocatorSettings, NodeStatus, ObjectSettings, Records, Restored};
use state_store::core::{StateAnswer, StateQuery};
use std::path::Path;
use wal::frame::{FileHeader, read_batches};
use wire::{Batch, ChainHeader, ChainType};

/// Shards of the store whose log is read.
pub const SHARDS: u16 = 2;
/// Its objects: (id, bytes of keys, bytes of values).
pub const OBJECTS: [(u16, usize, usize); 2] = [(0, 13, 6), (1, 4, 8)];

/// A file in a folder that is not there: what an input names beside it is not there either.
const NOWHERE: &str = "/nonexistent/stateplane-fuzz/input.toml";

impl Doors for RedPlane {
    fn doors(&self) -> &'static [Door] {
        &[
            Door { name: "store_config", run: store_config, text: true, smoke: 1500 },
            Door { name: "store_json", run: store_json, text: true, smoke: 3000 },
            Door { name: "wal", run: wal, text: false, smoke: 4000 },
            Door { name: "journal", run: journal, text: false, smoke: 10_000 },
        ]
    }

    /// What is decoded and encoded again is decoded to the same.
    fn datagram(&self, data: &[u8]) {
        match kind(data) {
            Ok(Kind::Message(_)) => {
                let Ok(message) = Message::decode(data) else { return };
                let mut again = Vec::new();
                if message.append_to(&mut again).is_ok() {
                    let second = Message::decode(&again).expect("what was encoded");
                    assert_eq!(second, message);
                }
                for (slots, slot_bytes) in [(1, 4), (64, 8), (16384, 4)] {
                    let _ = SnapshotPart::decode_message(&message, slots, slot_bytes);
                }
            }
            Ok(Kind::Chain(_)) => {
                let Ok(header) = ChainHeader::decode(data) else { return };
                if header.chain_type == ChainType::Data
                    && let Ok(entries) = Entries::decode(&header, data)
                {
                    entries.for_each(|(entry, _)| entry_again(entry));
                }
            }
            // Also those that any system has: the lengths of keys and values are the objects'.
            Ok(Kind::Batch(_)) => {
                let Ok(batch) = Batch::decode(data) else { return };
                for record in batch.records() {
                    for (_, key_bytes, value_bytes) in OBJECTS {
                        let Some((key, value)) = record.key_and_value(key_bytes, value_bytes)
                        else {
                            continue;
                        };
                        assert_eq!((key.len(), value.len()), (key_bytes, value_bytes));
                    }
                    let phase = phase_of(record.flags);
                    assert_eq!(phase_of(record_flags_of(phase)), phase);
                }
            }
            Ok(Kind::Control(_)) => {}
            Err(error) => told(&error),
        }
    }
}

/// An entry of a chain's datagram is encoded again.
fn entry_again(entry: Entry<'_>) {
    let mut again = Vec::new();
    if entry.append_to(&mut again).is_ok() {
        assert_eq!(Entries::one(&again), Ok(entry));
    }
}

/// `store.toml`
fn store_config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(error) = state_store::config::Config::parse(Path::new(NOWHERE), &text) {
        told(&error);
    }
}

/// What messages carry as JSON: the question for a server's records and its answer, and how a
/// server is. Read and written again it is the same.
fn store_json(data: &[u8]) {
    json_again::<StateQuery>(data);
    json_again::<StateAnswer>(data);
    json_again::<NodeStatus>(data);
}

fn objects() -> Vec<ObjectSettings> {
    let settings = |(id, key_bytes, value_bytes): &(u16, usize, usize)| ObjectSettings {
        name: format!("object{id}"),
        id: *id,
        key_bytes: *key_bytes,
        value_bytes: *value_bytes,
        allocator: AllocatorSettings::Zero { idle_ns: None },
        closed_ns: 1,
        half_open_ns: 1,
        shard_bytes: None,
    };
    OBJECTS.iter().map(settings).collect()
}

/// A file of the write-ahead log.
fn wal(data: &[u8]) {
    let Some(header) = FileHeader::decode(data) else { return };
    assert_eq!(FileHeader::decode(&header.encode()), Some(header));
    let mut restored = Restored::new(Records::new(objects(), 0), SHARDS);
    let mut next = header.first_batch;
    if let Err(error) = read_batches(data, &mut next, |_, items| restored.read(items)) {
        told(&error);
    }
}

/// What is in the batches of the log: its items, without the checks that accidents do not get
/// through.
fn journal(data: &[u8]) {
    let mut restored = Restored::new(Records::new(objects(), 0), SHARDS);
    if let Err(error) = restored.read(data) {
        told(&error);
    }
    let _ = restored.replicas().map(|(_, replica)| replica.state().len()).sum::<usize>();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_of_the_corpus_is_read_by_its_own_type() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../tools/fuzz-targets/fuzz/corpus/store_json"
        );
        let text = |name: &str| std::fs::read(Path::new(folder).join(name)).expect("a seed");
        assert!(serde_json::from_slice::<StateQuery>(&text("query")).is_ok());
        assert!(serde_json::from_slice::<StateAnswer>(&text("answer")).is_ok());
        assert!(serde_json::from_slice::<NodeStatus>(&text("server")).is_ok());
    }
}
