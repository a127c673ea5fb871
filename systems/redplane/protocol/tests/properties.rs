//! Whatever the fields are: what is encoded comes back, and what is decoded encodes to the same
//! bytes. Failing cases print themselves and replay.

use proptest::collection::vec;
use proptest::prelude::*;
use state_protocol::{
    BatchWrite, Effect, Entries, Entry, Flags, Message, MessageType, Owner, RecordWrite, kind,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{BatchRecord, BatchRecords, RecordFlags};
use wire::{ChainFlags, ChainHeader, ChainType};

fn owner() -> impl Strategy<Value = Owner> {
    any::<(u32, u32)>().prop_map(|(switch_id, incarnation)| Owner { switch_id, incarnation })
}

type Numbers = (u16, u16, u64, u32, u64, u32, u16, u32, u16);

/// The message, with only the parts that its type carries.
fn message<'a>(
    message_type: MessageType,
    sender: Owner,
    numbers: Numbers,
    key: &'a [u8],
    value: &'a [u8],
    packet: &'a [u8],
) -> Message<'a> {
    let (object_id, flags, request_ns, epoch, seq, lease_us, port, session, shard) = numbers;
    let flags = Flags(flags);
    use MessageType::*;
    let keyless = matches!(
        message_type,
        Heartbeat | HeartbeatAck | StatusRequest | StatusReply | StateRequest | StateReply
    );
    let valued = matches!(message_type, Update | LeaseGrant | SnapshotAck)
        || message_type == Release && !flags.contains(Flags::UNKNOWN);
    let bare = matches!(
        message_type,
        Heartbeat
            | HeartbeatAck
            | Release
            | ReleaseAck
            | Recall
            | Refused
            | SnapshotAck
            | StatusRequest
    );
    Message {
        message_type,
        object_id,
        flags,
        sender,
        request_ns,
        epoch,
        seq,
        lease_us,
        port,
        session,
        shard,
        key: if keyless { &[] } else { key },
        value: if valued { value } else { &[] },
        packet: if bare { &[] } else { packet },
    }
}

proptest! {
    #[test]
    fn messages_come_back(
        at in 0..MessageType::ALL.len(),
        sender in owner(),
        numbers in any::<Numbers>(),
        key in vec(any::<u8>(), 1..=64),
        value in vec(any::<u8>(), 1..=64),
        packet in vec(any::<u8>(), 0..200),
    ) {
        let message = message(MessageType::ALL[at], sender, numbers, &key, &value, &packet);
        let mut bytes = vec![9];
        message.append_to(&mut bytes).unwrap();
        prop_assert_eq!(bytes.len(), 1 + message.encoded_bytes());
        prop_assert_eq!(Message::decode(&bytes[1..]), Ok(message));
    }

    #[test]
    fn what_decodes_encodes_to_the_same(mut bytes in vec(any::<u8>(), 64..200), at in 0..MessageType::ALL.len(), fix in any::<bool>()) {
        bytes[..4].copy_from_slice(&[0x53, 0x50, 2, MessageType::ALL[at] as u8]);
        if fix {
            // Lengths that have a chance to add up.
            let key = usize::from(bytes[29] % 65).min(bytes.len() - 64);
            let value = usize::from(bytes[31] % 65).min(bytes.len() - 64 - key);
            let packet = bytes.len() - 64 - key - value;
            bytes[28..32].copy_from_slice(&[0, key as u8, 0, value as u8]);
            bytes[46..48].copy_from_slice(&[0, packet as u8]);
        }
        if let Ok(message) = Message::decode(&bytes) {
            let mut again = Vec::new();
            message.append_to(&mut again).unwrap();
            bytes[54..64].fill(0); // the tag is the key ring's
            prop_assert_eq!(again, bytes);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300), data in any::<bool>()) {
        let mut bytes = bytes;
        if data && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[0x53, 0x50, 2, 33]);
        }
        let _ = (kind(&bytes), Message::decode(&bytes));
        if let Ok(header) = ChainHeader::decode(&bytes) {
            let _ = Entries::decode(&header, &bytes).map(|entries| entries.count());
        }
    }

    #[test]
    fn chain_entries_come_back(
        owner in owner(),
        owned in any::<bool>(),
        numbers in any::<(u16, u32, u64, u16)>(),
        session in 1..=u32::MAX,
        closed in 0..4u16,
        key in vec(any::<u8>(), 1..=64),
        other in vec(any::<u8>(), 1..=64),
        value in vec(any::<u8>(), 1..=64),
        reply in vec(any::<u8>(), 0..100),
        address in any::<(u32, u16)>(),
    ) {
        prop_assume!(key != other);
        let (object_id, epoch, seq, shard) = numbers;
        let first = RecordWrite {
            object_id,
            epoch,
            seq,
            owner: owned.then_some(owner),
            session: if owned { session } else { 0 },
            phase: Flags(closed << 2),
            key: &key,
            value: &value,
        };
        let second = RecordWrite { key: &other, owner: None, session: 0, ..first };
        let client = SocketAddrV4::new(Ipv4Addr::from_bits(address.0), address.1);
        let mut records = Vec::new();
        let flags = RecordFlags(0);
        let record = BatchRecord { object_id, flags, epoch, place: epoch, seq, content: &[] };
        record.append_to(&key, &value, &mut records).unwrap();
        record.append_to(&other, &value, &mut records).unwrap();
        let effects = [
            Effect::None,
            Effect::Write(first),
            Effect::Pair { first, second },
            Effect::Free { object_id, key: &key, floor: epoch },
            Effect::SessionBegin { session, owner, client },
            Effect::SessionEnd { session },
            Effect::Floor { floor: epoch },
            Effect::Batch(BatchWrite {
                owner,
                session,
                records: BatchRecords::check(&records).unwrap(),
            }),
        ];
        let header = ChainHeader {
            chain_type: ChainType::Data,
            flags: ChainFlags::READY,
            count: effects.len() as u16,
            view: seq,
            sender: seq,
            receiver: 2,
            index: 3,
            committed: 4,
            config_digest: 5,
            shard,
        };
        let mut bytes = header.encode().to_vec();
        for effect in effects {
            Entry { effect, client, reply: &reply }.append_to(&mut bytes).unwrap();
        }
        prop_assert_eq!(ChainHeader::decode(&bytes), Ok(header));
        let entries: Vec<_> = Entries::decode(&header, &bytes).unwrap().map(|(entry, _)| entry).collect();
        prop_assert_eq!(entries.len(), effects.len());
        for (entry, effect) in entries.iter().zip(effects) {
            prop_assert_eq!(*entry, Entry { effect, client, reply: &reply });
        }
    }
}
