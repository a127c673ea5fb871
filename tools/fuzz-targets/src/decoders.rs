//! Bytes: datagrams, captures, logs.

use capture::{Frame, Link};
use state_protocol::{Entries, Entry, Kind, Message, SnapshotPart, kind};
use state_store::core::{AllocatorSettings, ObjectSettings, Records, Restored};
use std::io::Cursor;
use std::path::Path;
use trace::Objects;
use wal::frame::{FileHeader, read_batches};
use wire::{ChainHeader, ChainType, Control, Handover};

/// Shards of the store whose log is read.
pub const SHARDS: u16 = 2;
/// Its objects: (id, bytes of keys, bytes of values).
pub const OBJECTS: [(u16, usize, usize); 2] = [(0, 13, 6), (1, 4, 8)];

/// A message of any kind; what is decoded and encoded again is decoded to the same.
pub(crate) fn datagram(data: &[u8]) {
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
            assert_eq!(ChainHeader::decode(&header.encode()), Ok(header));
            if header.chain_type == ChainType::Data {
                let Ok(entries) = Entries::decode(&header, data) else { return };
                entries.for_each(|(entry, _)| entry_again(entry));
            } else if let Ok(handover) = Handover::decode(&header, data) {
                let again = [header.encode().as_slice(), &handover.encode()].concat();
                assert_eq!(Handover::decode(&header, &again), Ok(handover));
            }
        }
        Ok(Kind::Control(_)) => {
            let Ok(control) = Control::decode(data) else { return };
            if let Ok(again) = control.encode() {
                assert_eq!(Control::decode(&again), Ok(control));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An entry of a chain's datagram is encoded again.
fn entry_again(entry: Entry<'_>) {
    let mut again = Vec::new();
    if entry.append_to(&mut again).is_ok() {
        assert_eq!(Entries::one(&again), Ok(entry));
    }
}

/// A captured frame, as `stateplane trace` shows it; the first byte says of which link.
pub(crate) fn trace(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let link = [Link::Ethernet, Link::LinuxCooked, Link::LinuxCooked2, Link::RawIp]
        [usize::from(first % 4)];
    let frame = Frame { time_ns: 1, link, bytes, original_bytes: bytes.len() as u32 };
    let _ = capture::datagram(&frame);
    if let Some(event) = trace::decode(&frame, &Objects::default(), None) {
        let json = serde_json::to_string(&event).expect("an event is plain data");
        assert!(!json.is_empty() && !event.type_name().is_empty());
    }
}

/// A pcap or pcapng file.
pub(crate) fn capture(data: &[u8]) {
    let mut reader = match capture::Reader::new(Path::new("fuzz.pcap"), Cursor::new(data.to_vec()))
    {
        Ok(reader) => reader,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                assert!(frame.bytes.len() <= data.len());
                let _ = trace::decode(&frame, &Objects::default(), None);
            }
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    assert!(reader.frames() <= data.len() as u64);
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
    };
    OBJECTS.iter().map(settings).collect()
}

/// A file of the write-ahead log.
pub(crate) fn wal(data: &[u8]) {
    let Some(header) = FileHeader::decode(data) else { return };
    assert_eq!(FileHeader::decode(&header.encode()), Some(header));
    let mut restored = Restored::new(Records::new(objects(), 0), SHARDS);
    let mut next = header.first_batch;
    if let Err(error) = read_batches(data, &mut next, |_, items| restored.read(items)) {
        assert!(!error.to_string().is_empty());
    }
}

/// What is in the batches of the log: its items, without the checks that accidents do not get
/// through.
pub(crate) fn journal(data: &[u8]) {
    let mut restored = Restored::new(Records::new(objects(), 0), SHARDS);
    if let Err(error) = restored.read(data) {
        assert!(!error.to_string().is_empty());
    }
    let _ = restored.replicas().map(|(_, replica)| replica.state().len()).sum::<usize>();
}
