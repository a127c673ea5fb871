use super::*;
use crate::{KeyRing, NotGenuine, Secret, tag_of};
use siphasher::sip::SipHasher24;

const SECRET: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const SWITCH: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const HEAD: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

fn head() -> BatchHead {
    BatchHead {
        flags: 0x0102,
        switch_id: 0x0a0b0c0d,
        incarnation: 0x11121314,
        request_ns: 0x2122232425262728,
        number: 0x3132333435363738,
        view: 0x4142434445464748,
        session: 0x51525354,
        stream: 0x6162,
        client: Ipv4Addr::new(0x71, 0x72, 0x73, 0x74),
        shard: 0x8182,
    }
}

fn record(seq: u64, flags: RecordFlags) -> BatchRecord<'static> {
    BatchRecord { object_id: 0x0304, flags, epoch: 5, place: 6, seq, content: &[] }
}

/// Records with these flags, each of a key of 3 bytes and a value of 9.
fn records(flags: &[RecordFlags]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, flags) in flags.iter().enumerate() {
        record(at as u64, *flags).append_to(b"key", b"the value", &mut bytes).unwrap();
    }
    bytes
}

fn batch(records: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Batch::new(head(), records).unwrap().append_to(&mut bytes);
    bytes
}

/// The header of the document, written out by hand, but for type, count and lengths.
fn header(batch_type: u8, count: u8, body_bytes: u8) -> Vec<u8> {
    let mut header = vec![0x53, 0x50, 2, batch_type, 1, 2, 0, count];
    header.extend([0x0a, 0x0b, 0x0c, 0x0d]);
    for from in [0x11, 0x21, 0x25, 0x31, 0x35, 0x41, 0x45, 0x51] {
        header.extend(from..from + 4);
    }
    header.extend([0, body_bytes, 0x61, 0x62, 0x71, 0x72, 0x73, 0x74, 0x81, 0x82]);
    header.resize(HEADER_BYTES, 0);
    header
}

#[test]
fn layouts_are_the_documents() {
    let bytes = batch(&records(&[RecordFlags::GROUP, RecordFlags(4)]));
    let record = |flags: u8, seq: u8| {
        let mut record = vec![3, 4, flags, 3, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 0];
        record.extend([0, 0, 0, 0, 0, 0, 0, seq]);
        record.extend(b"key\0\0\0\0\0the value\0\0\0\0\0\0\0");
        record
    };
    let expected = [header(8, 2, 96), vec![0; 8], record(1, 0), record(4, 1)].concat();
    assert_eq!(bytes, expected);
    let ack = BatchAck { head: head(), count: 2, refused: 2 };
    let mut bytes = Vec::new();
    ack.append_to(&mut bytes);
    assert_eq!(bytes, [header(74, 2, 0), vec![0, 0, 0, 0, 0, 0, 0, 2]].concat());
    assert_eq!((BatchAck::decode(&bytes), bytes.len()), (Ok(ack), BatchAck::BYTES));
}

#[test]
fn records_come_back() {
    let bytes = batch(&records(&[RecordFlags::GROUP, RecordFlags::NONE, RecordFlags::NONE]));
    let batch = Batch::decode(&bytes).unwrap();
    assert_eq!((batch.head, batch.encoded_bytes()), (head(), bytes.len()));
    assert_eq!(batch.records().count_left(), 3);
    for (at, of) in batch.records().enumerate() {
        assert_eq!((of.seq, of.object_id, of.epoch, of.place), (at as u64, 0x0304, 5, 6));
        assert_eq!(of.flags.contains(RecordFlags::GROUP), at == 0);
        assert_eq!(of.key_and_value(3, 9), Some((&b"key"[..], &b"the value"[..])));
        // Other lengths that take as many words; zeros are the padding of either.
        assert_eq!(of.key_and_value(2, 9), None, "`y` in the padding");
        assert_eq!(of.key_and_value(3, 8), None, "too few words");
        assert_eq!(of.key_and_value(3, 17), None, "too many words");
        assert_eq!(of.key_and_value(100, 9), None);
    }
}

/// Digest and tag as the document describes them, by another implementation.
#[test]
fn digest_and_tag_are_the_documents() {
    let of_records = records(&[RecordFlags::NONE]);
    let mut bytes = batch(&of_records);
    assert!(KeyRing::new(2, Secret(SECRET)).unwrap().sign(&mut bytes, SWITCH, HEAD));
    let hash = |bytes: &[u8]| SipHasher24::new_with_key(&SECRET).hash(bytes);
    assert_eq!((bytes[54], bytes[55]), (2, 2));
    assert_eq!(bytes[64..72], hash(&of_records).to_be_bytes());
    let mut row = [SWITCH.octets(), HEAD.octets()].concat();
    row.extend_from_slice(&bytes[..72]);
    row[8 + 56..8 + 64].fill(0);
    assert_eq!(tag_of(&bytes), hash(&row));
}

#[test]
fn every_changed_bit_shows() {
    let mut bytes = batch(&records(&[RecordFlags::NONE]));
    let ring = KeyRing::new(0, Secret(SECRET)).unwrap();
    assert!(ring.sign(&mut bytes, SWITCH, HEAD));
    assert_eq!(ring.verify(&bytes, SWITCH, HEAD), Ok(()));
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(ring.verify(&bytes, SWITCH, HEAD).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..bytes.len() {
        assert!(ring.verify(&bytes[..length], SWITCH, HEAD).is_err(), "{length} bytes");
    }
    assert!(!ring.sign(&mut bytes[..71], SWITCH, HEAD), "no room for the digest");
}

/// A member that passes a batch on signs the header anew; the digest stays the switch's.
#[test]
fn digest_and_tag_have_secrets_of_their_own() {
    let mut both = KeyRing::new(0, Secret(SECRET)).unwrap();
    assert!(both.accept(1, Secret([7; 16])));
    let mut bytes = batch(&records(&[RecordFlags::NONE]));
    assert!(both.sign(&mut bytes, SWITCH, HEAD));
    let digest = bytes[64..72].to_vec();
    let new = KeyRing::new(1, Secret([7; 16])).unwrap();
    assert!(both.send_with(1) && both.sign(&mut bytes, SWITCH, HEAD));
    assert_ne!(bytes[64..72], digest, "signed anew as a whole");
    assert_eq!(new.verify(&bytes, SWITCH, HEAD), Ok(()));
    bytes[55] = 3;
    assert_eq!(both.verify(&bytes, SWITCH, HEAD), Err(NotGenuine::WrongTag), "the tag covers it");
}

#[test]
fn each_field_out_of_range_has_its_reason() {
    let good = batch(&records(&[RecordFlags::NONE, RecordFlags::NONE]));
    for length in 0..good.len() {
        assert!(Batch::decode(&good[..length]).is_err(), "{length} bytes");
    }
    let longer = [good.as_slice(), &[0; 8]].concat();
    assert_eq!(Batch::decode(&longer), Err(Malformed::LengthMismatch));
    for (at, byte, reason) in [
        (0, 0, Malformed::Magic),
        (2, 1, Malformed::Version),
        (3, 3, Malformed::Type),
        (3, 74, Malformed::Type),
        (7, 1, Malformed::Records),
        (7, 3, Malformed::Records),
        (45, 97, Malformed::LengthMismatch),
        (75, 2, Malformed::Records),
        (75, 0, Malformed::Records),
        (75, 255, Malformed::Records),
        (122, 1, Malformed::Records), // the last record is of a group that goes on
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(Batch::decode(&bytes), Err(reason), "byte {at} = {byte}");
    }
}

#[test]
fn acknowledgements_name_no_record_that_is_not_there() {
    let encoded = |count: u16, refused: u64| {
        let mut bytes = Vec::new();
        BatchAck { head: head(), count, refused }.append_to(&mut bytes);
        bytes
    };
    for (count, refused) in [(1, 1), (2, 0), (64, u64::MAX), (63, u64::MAX >> 1)] {
        let ack = BatchAck::decode(&encoded(count, refused)).unwrap();
        assert_eq!((ack.count, ack.refused), (count, refused));
    }
    for (count, refused) in [(0, 0), (1, 2), (63, u64::MAX), (65, 0)] {
        assert_eq!(BatchAck::decode(&encoded(count, refused)), Err(Malformed::Records));
    }
    let good = encoded(1, 0);
    for length in 0..good.len() {
        assert!(BatchAck::decode(&good[..length]).is_err(), "{length} bytes");
    }
    assert_eq!(BatchAck::decode(&batch(&records(&[RecordFlags::NONE]))), Err(Malformed::Type));
}

#[test]
fn a_batch_is_bounded() {
    let most = [RecordFlags::NONE; 29];
    assert_eq!(Batch::new(head(), &[]), Err(Malformed::Records));
    assert!(Batch::new(head(), &records(&most)).is_ok(), "29 of 48 bytes");
    let more = [RecordFlags::NONE; 30];
    assert_eq!(Batch::new(head(), &records(&more)), Err(Malformed::Records));
    // The shortest records: as many as an acknowledgement has bits do not fit.
    let mut short = Vec::new();
    for _ in 0..MOST_RECORDS {
        record(0, RecordFlags::NONE).append_to(b"k", b"", &mut short).unwrap();
    }
    assert_eq!(Batch::new(head(), &short), Err(Malformed::Records));
    let mut bytes = vec![7];
    let long = [0; 513];
    let error = record(0, RecordFlags::NONE).append_to(&long, b"", &mut bytes);
    assert_eq!((error, bytes), (Err(EncodeError::FieldTooLong), vec![7]));
    let error = record(0, RecordFlags::NONE).append_to(b"", b"", &mut Vec::new());
    assert_eq!(error, Err(EncodeError::FieldTooLong));
}
