//! Bytes: datagrams, captures.

use capture::{Frame, Link};
use std::io::Cursor;
use std::path::Path;
use trace::Objects;
use wire::{Batch, BatchAck, ChainHeader, ChainType, Control, Handover, Kind, kind};

/// A message of any kind; what is decoded and encoded again is decoded to the same.
pub(crate) fn datagram(data: &[u8]) {
    match kind(data) {
        Ok(Kind::Tool(_)) => {
            let Ok(json) = wire::answer(data) else { return };
            assert!(json.len() < data.len());
        }
        Ok(Kind::Batch(_)) => batches(data),
        Ok(Kind::System(_)) => {}
        Ok(Kind::Chain(_)) => {
            let Ok(header) = ChainHeader::decode(data) else { return };
            assert_eq!(ChainHeader::decode(&header.encode()), Ok(header));
            if header.chain_type != ChainType::Data
                && let Ok(handover) = Handover::decode(&header, data)
            {
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
    systems::doors().iter().for_each(|system| system.datagram(data));
}

/// A batch of records, or its acknowledgement.
fn batches(data: &[u8]) {
    let mut again = Vec::new();
    if let Ok(batch) = Batch::decode(data) {
        assert_eq!(batch.records().count(), batch.records().count_left());
        batch.append_to(&mut again);
        assert_eq!(Batch::decode(&again), Ok(batch));
    } else if let Ok(ack) = BatchAck::decode(data) {
        ack.append_to(&mut again);
        assert_eq!(BatchAck::decode(&again), Ok(ack));
    }
}

/// A captured frame, as `stateplane trace` shows it; the first byte says of which link.
pub(crate) fn trace(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let link = [Link::Ethernet, Link::LinuxCooked, Link::LinuxCooked2, Link::RawIp]
        [usize::from(first % 4)];
    let frame = Frame { time_ns: 1, link, bytes, original_bytes: bytes.len() as u32 };
    let _ = capture::datagram(&frame);
    if let Some(event) = trace::decode(&frame, systems::messages(), &Objects::default(), None) {
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
                let _ = trace::decode(&frame, systems::messages(), &Objects::default(), None);
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
