//! What an entry of the chain does to the records and sessions of a shard: complete descriptions of
//! what is to be, so that an effect that is applied twice changes nothing the second time, and a
//! whole shard can be copied as effects.

use crate::snapshot::{EFFECT_HEAD_BYTES, SnapshotPart};
use crate::{Flags, MAX_KEY_BYTES, MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, Owner};
use std::net::{Ipv4Addr, SocketAddrV4};
use wire::{BatchRecords, EncodeError, Reader, Writer};

const RECORD_HEADER_BYTES: usize = 32;
const FREE_HEADER_BYTES: usize = 8;
const BATCH_HEADER_BYTES: usize = 16;
const OWNED: u32 = 1;
/// Of a key and of a value.
const LONGEST: usize = 256;
const _: () = assert!(MAX_KEY_BYTES == LONGEST && MAX_VALUE_BYTES == LONGEST);

/// A record's replicated fields, all of them, as an effect sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordWrite<'a> {
    /// The FlowState object's number.
    pub object_id: u16,
    /// The current grant.
    pub epoch: u32,
    /// Sequence number of the recorded update.
    pub seq: u64,
    /// Who was granted `epoch` and has not released it.
    pub owner: Option<Owner>,
    /// The owner's session in which it was last granted or acknowledged; 0 without an owner.
    pub session: u32,
    /// `HALF_CLOSED`, `CLOSED`, `HALF_OPEN`: what the last release or update said of the
    /// connection.
    pub phase: Flags,
    /// The flow's key.
    pub key: &'a [u8],
    /// The flow's value.
    pub value: &'a [u8],
}

/// Updates of many records by their owner, all in one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchWrite<'a> {
    /// Whose they all are.
    pub owner: Owner,
    /// Its session; never 0.
    pub session: u32,
    /// The updates, as the switch's `BATCH` has them. One that is older than what is recorded under
    /// its epoch changes nothing.
    pub records: BatchRecords<'a>,
}

/// What an entry does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect<'a> {
    /// Nothing: the entry orders its reply behind everything before it.
    None,
    /// Creates or replaces one record; its link to another one stays.
    Write(RecordWrite<'a>),
    /// Creates or replaces two linked records: a NAT binding and its reverse. `first` is the one
    /// that was asked for.
    Pair {
        /// The record that was asked for.
        first: RecordWrite<'a>,
        /// The other direction, of the same object.
        second: RecordWrite<'a>,
    },
    /// Removes the record, if there is one, and the one that it is linked with.
    Free {
        /// The FlowState object's number.
        object_id: u16,
        /// The record's key.
        key: &'a [u8],
        /// Epochs of new records begin above this: the highest of those removed.
        floor: u32,
    },
    /// A switch's session begins, in the place of the one that it had.
    SessionBegin {
        /// Its number, and the floor of the numbers that come.
        session: u32,
        /// The switch.
        owner: Owner,
        /// Where the switch is reached.
        client: SocketAddrV4,
    },
    /// A session ends: its flows are nobody's.
    SessionEnd {
        /// Its number.
        session: u32,
    },
    /// Epochs of new records, and sessions, begin above this. Only for copies of a whole shard.
    Floor {
        /// The highest number used.
        floor: u32,
    },
    /// A part of a snapshot of a record's slots.
    Snapshot(SnapshotPart<'a>),
    /// Replaces records that there are; their links to others stay.
    Batch(BatchWrite<'a>),
}

/// One entry of a chain of replicas of a shard.
pub type Entry<'a> = wire::Entry<'a, Effect<'a>>;

/// The entries of a `Data` message, or of a `Copy`, in order, each with its own bytes.
pub type Entries<'a> = wire::Entries<'a, Effect<'a>>;

impl<'a> wire::Effect<'a> for Effect<'a> {
    const MOST_REPLY_BYTES: usize = MAX_MESSAGE_BYTES;

    fn number(&self) -> u8 {
        match self {
            Effect::None => 0,
            Effect::Write(_) => 1,
            Effect::Pair { .. } => 2,
            Effect::Free { .. } => 3,
            Effect::SessionBegin { .. } => 4,
            Effect::SessionEnd { .. } => 5,
            Effect::Floor { .. } => 6,
            Effect::Snapshot(_) => 7,
            Effect::Batch(_) => 8,
        }
    }

    fn encoded_bytes(&self) -> usize {
        let record =
            |record: &RecordWrite<'_>| RECORD_HEADER_BYTES + record.key.len() + record.value.len();
        match self {
            Effect::None => 0,
            Effect::Write(write) => record(write),
            Effect::Pair { first, second } => record(first) + record(second),
            Effect::Free { key, .. } => FREE_HEADER_BYTES + key.len(),
            Effect::SessionBegin { .. } => 20,
            Effect::SessionEnd { .. } | Effect::Floor { .. } => 4,
            Effect::Snapshot(part) => EFFECT_HEAD_BYTES + part.key.len() + part.slots.len(),
            Effect::Batch(batch) => BATCH_HEADER_BYTES + batch.records.as_bytes().len(),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Effect::None => Ok(()),
            Effect::Write(record) => encode_record(record, w),
            Effect::Pair { first, second } => {
                encode_record(first, w)?;
                encode_record(second, w)
            }
            Effect::Free { object_id, key, floor } => {
                w.u16(*object_id)?;
                w.u8(length(key)?)?;
                w.u8(0)?;
                w.u32(*floor)?;
                w.put(key)
            }
            Effect::SessionBegin { session, owner, client } => {
                w.u32(*session)?;
                w.u32(owner.switch_id)?;
                w.u32(owner.incarnation)?;
                w.u32(client.ip().to_bits())?;
                w.u16(client.port())?;
                w.u16(0)
            }
            Effect::SessionEnd { session } => w.u32(*session),
            Effect::Floor { floor } => w.u32(*floor),
            Effect::Snapshot(part) => part.encode_effect(w),
            Effect::Batch(BatchWrite { owner, session, records }) => {
                w.u32(owner.switch_id)?;
                w.u32(owner.incarnation)?;
                w.u32(*session)?;
                w.u32(0)?;
                w.put(records.as_bytes())
            }
        }
    }

    fn decode(number: u8, bytes: &'a [u8]) -> Option<Effect<'a>> {
        let mut r = Reader::new(bytes);
        let effect = match number {
            0 => Effect::None,
            1 => Effect::Write(decode_record(&mut r)?),
            2 => {
                let (first, second) = (decode_record(&mut r)?, decode_record(&mut r)?);
                if first.object_id != second.object_id || first.key == second.key {
                    return None;
                }
                Effect::Pair { first, second }
            }
            3 => {
                let object_id = r.u16()?;
                let key_bytes = length_of(r.u8()?);
                r.u8()?;
                let floor = r.u32()?;
                Effect::Free { object_id, key: r.take(key_bytes)?, floor }
            }
            4 => decode_session(&mut r)?,
            5 => Effect::SessionEnd { session: nonzero(r.u32()?)? },
            6 => Effect::Floor { floor: r.u32()? },
            7 => Effect::Snapshot(SnapshotPart::decode_effect(&mut r)?),
            8 => decode_batch(&mut r)?,
            _ => return None,
        };
        (r.remaining() == 0).then_some(effect)
    }
}

fn nonzero(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}

fn decode_session<'a>(r: &mut Reader<'_>) -> Option<Effect<'a>> {
    let session = nonzero(r.u32()?)?;
    let owner = Owner { switch_id: r.u32()?, incarnation: r.u32()? };
    let address = Ipv4Addr::from_bits(r.u32()?);
    let client = SocketAddrV4::new(address, r.u16()?);
    r.u16()?;
    Some(Effect::SessionBegin { session, owner, client })
}

fn decode_batch<'a>(r: &mut Reader<'a>) -> Option<Effect<'a>> {
    let owner = Owner { switch_id: r.u32()?, incarnation: r.u32()? };
    let session = nonzero(r.u32()?)?;
    r.u32()?;
    let records = BatchRecords::check(r.take(r.remaining())?).ok()?;
    Some(Effect::Batch(BatchWrite { owner, session, records }))
}

/// A key's or a value's length in one byte: no record has an empty one, so 0 says 256.
fn length(field: &[u8]) -> Result<u8, EncodeError> {
    match field.len() {
        LONGEST => Ok(0),
        0 => Err(EncodeError::FieldEmpty),
        bytes => u8::try_from(bytes).map_err(|_| EncodeError::FieldTooLong),
    }
}

fn length_of(byte: u8) -> usize {
    if byte == 0 { LONGEST } else { byte.into() }
}

fn encode_record(record: &RecordWrite<'_>, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.u16(record.object_id)?;
    w.u8(length(record.key)?)?;
    w.u8(length(record.value)?)?;
    let owned = if record.owner.is_some() { OWNED } else { 0 };
    // The bits of the phase are those of the header's, which OWNED is not among.
    w.u32(owned | u32::from(record.phase.0 & Flags::PHASES.0))?;
    w.u32(record.epoch)?;
    let owner = record.owner.unwrap_or(Owner { switch_id: 0, incarnation: 0 });
    w.u32(owner.switch_id)?;
    w.u32(owner.incarnation)?;
    w.u32(record.session)?;
    w.u64(record.seq)?;
    w.put(record.key)?;
    w.put(record.value)
}

fn decode_record<'a>(r: &mut Reader<'a>) -> Option<RecordWrite<'a>> {
    let object_id = r.u16()?;
    let (key_bytes, value_bytes) = (length_of(r.u8()?), length_of(r.u8()?));
    let flags = r.u32()?;
    let epoch = r.u32()?;
    let owner = Owner { switch_id: r.u32()?, incarnation: r.u32()? };
    let session = r.u32()?;
    let seq = r.u64()?;
    let owned = flags & OWNED != 0;
    let phase = Flags(u16::try_from(flags & !OWNED).ok()?);
    if !Flags::PHASES.contains(phase) || owned != (session != 0) {
        return None;
    }
    let (key, value) = (r.take(key_bytes)?, r.take(value_bytes)?);
    Some(RecordWrite {
        object_id,
        epoch,
        seq,
        owner: owned.then_some(owner),
        session,
        phase,
        key,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{CHAIN_HEADER_BYTES, ChainFlags, ChainHeader, ChainType};

    /// A record of a key and a value of 8 bytes each.
    const RECORD: &[u8] =
        b"\0\x07\x04\x02\0\0\0\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0bkey-keysvalvalue";

    fn entries() -> [Entry<'static>; 7] {
        let client = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 5407);
        let first = RecordWrite {
            object_id: 7,
            epoch: 9,
            seq: 11,
            owner: Some(Owner { switch_id: 1, incarnation: 2 }),
            session: 14,
            phase: Flags::HALF_CLOSED,
            key: b"forward",
            value: b"abc",
        };
        let second = RecordWrite {
            owner: None,
            session: 0,
            phase: Flags::CLOSED,
            key: b"reverse",
            value: b"xyz",
            ..first
        };
        let owner = Owner { switch_id: 1, incarnation: 2 };
        [
            Entry { effect: Effect::None, client, reply: b"reply" },
            Entry { effect: Effect::Write(second), client, reply: b"" },
            Entry { effect: Effect::Pair { first, second }, client, reply: b"r" },
            Entry {
                effect: Effect::Free { object_id: 7, key: b"forward", floor: 9 },
                client,
                reply: b"",
            },
            Entry {
                effect: Effect::SessionBegin { session: 14, owner, client },
                client,
                reply: b"x",
            },
            Entry { effect: Effect::SessionEnd { session: 14 }, client, reply: b"" },
            Entry {
                effect: Effect::Batch(BatchWrite {
                    owner,
                    session: 14,
                    records: BatchRecords::check(RECORD).unwrap(),
                }),
                client,
                reply: b"ack",
            },
        ]
    }

    fn datagram() -> (ChainHeader, Vec<u8>) {
        let header = ChainHeader {
            chain_type: ChainType::Data,
            flags: ChainFlags::READY,
            count: 7,
            shard: 8,
            view: 9,
            sender: 3,
            receiver: 4,
            index: 5,
            committed: 6,
            config_digest: 7,
        };
        let mut bytes = header.encode().to_vec();
        for entry in entries() {
            entry.append_to(&mut bytes).unwrap();
        }
        (header, bytes)
    }

    #[test]
    fn data_comes_back_as_it_was() {
        let (header, bytes) = datagram();
        assert_eq!(ChainHeader::decode(&bytes), Ok(header));
        let decoded: Vec<_> = Entries::decode(&header, &bytes).unwrap().collect();
        assert_eq!(decoded.iter().map(|(entry, _)| *entry).collect::<Vec<_>>(), entries());
        for (entry, own) in decoded {
            assert_eq!(Entries::one(own), Ok(entry));
        }
    }

    /// Also in one byte, as the shorter ones.
    #[test]
    fn lengths_go_to_256_and_no_further() {
        let bytes = [b'x'; LONGEST + 1];
        let write = |key: usize, value: usize| {
            Effect::Write(RecordWrite {
                object_id: 7,
                epoch: 9,
                seq: 11,
                owner: None,
                session: 0,
                phase: Flags::NONE,
                key: &bytes[..key],
                value: &bytes[..value],
            })
        };
        let free = |key: usize| Effect::Free { object_id: 7, key: &bytes[..key], floor: 9 };
        let client = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5407);
        let encoded = |effect| {
            let mut bytes = Vec::new();
            let entry = Entry { effect, client, reply: b"" };
            entry.append_to(&mut bytes).map(|()| bytes)
        };
        for length in [1, 255, 256] {
            for effect in [write(length, 1), write(1, length), write(length, length), free(length)]
            {
                let bytes = encoded(effect).unwrap();
                assert_eq!(Entries::one(&bytes).unwrap().effect, effect, "{length}");
                assert!(Entries::one(&bytes[..bytes.len() - 1]).is_err());
            }
        }
        for effect in [write(257, 1), write(1, 257), free(257)] {
            assert_eq!(encoded(effect), Err(EncodeError::FieldTooLong));
        }
        for effect in [write(0, 1), write(1, 0), free(0)] {
            assert_eq!(encoded(effect), Err(EncodeError::FieldEmpty));
        }
    }

    #[test]
    fn every_truncation_and_extension_is_malformed() {
        let (header, bytes) = datagram();
        for length in CHAIN_HEADER_BYTES..bytes.len() {
            assert!(Entries::decode(&header, &bytes[..length]).is_err(), "{length} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Entries::decode(&header, &longer).is_err());
        for count in [0, 6, 8] {
            assert!(Entries::decode(&ChainHeader { count, ..header }, &bytes).is_err());
        }
    }
}
