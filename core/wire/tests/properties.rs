//! Whatever the bytes are: a signed message verifies until it is changed, and decoding never
//! panics. Failing cases print themselves and replay.

use proptest::collection::vec;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use wire::{Batch, BatchAck, BatchHead, BatchRecord, BatchRecords, RecordFlags};
use wire::{ChainHeader, Control, KeyRing, SECRET_BYTES, Secret, kind, shard_of, status_reply};

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..300), number in any::<u8>(), framed in any::<bool>()) {
        if framed && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[0x53, 0x50, 2, number]);
        }
        let _ = (kind(&bytes), ChainHeader::decode(&bytes), Control::decode(&bytes), status_reply(&bytes, b"{}"));
        let _ = (Batch::decode(&bytes), BatchAck::decode(&bytes));
    }

    #[test]
    fn what_is_signed_verifies_and_what_is_changed_does_not(
        secret in any::<[u8; SECRET_BYTES]>(),
        id in 0..4u8,
        mut bytes in vec(any::<u8>(), 72..300),
        addresses in any::<(u32, u32)>(),
        change in any::<(usize, u8)>(),
    ) {
        let (source, destination) = (Ipv4Addr::from_bits(addresses.0), Ipv4Addr::from_bits(addresses.1));
        bytes[..2].copy_from_slice(b"SP");
        let ring = KeyRing::new(id, Secret(secret)).unwrap();
        prop_assert!(ring.sign(&mut bytes, source, destination));
        prop_assert_eq!(ring.verify(&bytes, source, destination), Ok(()));
        let at = change.0 % bytes.len();
        bytes[at] ^= change.1.max(1);
        prop_assert!(ring.verify(&bytes, source, destination).is_err());
    }

    #[test]
    fn shards_are_in_range(key in vec(any::<u8>(), 1..=64), shards in 1..=256u16) {
        prop_assert!(shard_of(&key, shards) < shards);
    }
}

/// Records as lengths of key and value, epoch, place, seq and flags.
fn records() -> impl Strategy<Value = Vec<(usize, usize, u32, u32, u64, u8)>> {
    let lengths = (1..=64usize, 0..=64usize);
    let record = (lengths, any::<(u32, u32, u64, u8)>());
    vec(
        record.prop_map(|((key, value), (epoch, place, seq, flags))| {
            (key, value, epoch, place, seq, flags)
        }),
        1..9,
    )
}

proptest! {
    #[test]
    fn batches_come_back(records in records(), numbers in any::<(u32, u64, u64, u16)>()) {
        let (key, value) = ([7; 64], [9; 64]);
        let mut bytes = Vec::new();
        for (at, (key_bytes, value_bytes, epoch, place, seq, flags)) in records.iter().enumerate() {
            let flags = if at + 1 == records.len() { flags & !1 } else { *flags };
            let record = BatchRecord {
                object_id: at as u16,
                flags: RecordFlags(flags),
                epoch: *epoch,
                place: *place,
                seq: *seq,
                content: &[],
            };
            record.append_to(&key[..*key_bytes], &value[..*value_bytes], &mut bytes).unwrap();
        }
        let (switch_id, number, view, stream) = numbers;
        let head = BatchHead {
            flags: 0,
            switch_id,
            incarnation: 2,
            request_ns: 3,
            number,
            view,
            session: 4,
            stream,
            client: Ipv4Addr::LOCALHOST,
            shard: 5,
        };
        let mut datagram = Vec::new();
        Batch::new(head, &bytes).unwrap().append_to(&mut datagram);
        let batch = Batch::decode(&datagram).unwrap();
        prop_assert_eq!(batch.head, head);
        prop_assert_eq!(batch.records().count_left(), records.len());
        for (record, meant) in batch.records().zip(&records) {
            prop_assert_eq!((record.epoch, record.place, record.seq), (meant.2, meant.3, meant.4));
            let parts = record.key_and_value(meant.0, meant.1);
            prop_assert_eq!(parts, Some((&key[..meant.0], &value[..meant.1])));
        }
    }

    /// Whatever records are read, they take all of the body and no more.
    #[test]
    fn records_fill_what_they_are_read_from(bytes in vec(0..4u8, 0..200)) {
        if let Ok(records) = BatchRecords::check(&bytes) {
            let taken: usize = records.map(|record| 24 + record.content.len()).sum();
            prop_assert_eq!(taken, bytes.len());
        }
    }
}
