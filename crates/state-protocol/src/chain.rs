//! Messages between the servers of a chain: `docs/state-protocol.md`, "Chain messages".

use crate::bytes::{Reader, Writer};
use crate::{
    EncodeError, Kind, MAGIC, MAX_KEY_BYTES, MAX_MESSAGE_BYTES, MAX_VALUE_BYTES, Malformed, Owner, VERSION, kind,
};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of the fixed header of a chain message.
pub const CHAIN_HEADER_BYTES: usize = 48;
/// Bytes of the fixed part of an entry in `CHAIN_DATA`.
pub const ENTRY_HEADER_BYTES: usize = 12;
const RECORD_HEADER_BYTES: usize = 28;

/// Type of a chain message; the number is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChainType {
    /// Predecessor to successor: who I am, and whether I still am; answered by an `Ack`.
    Hello = 32,
    /// Predecessor to successor: entries in order.
    Data = 33,
    /// Successor to predecessor: what was applied, and what the tail has.
    Ack = 34,
}

impl ChainType {
    pub(crate) fn from_number(number: u8) -> Option<ChainType> {
        Some(match number {
            32 => ChainType::Hello,
            33 => ChainType::Data,
            34 => ChainType::Ack,
            _ => return None,
        })
    }
}

/// Flags of a chain message: the sender's condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChainFlags(pub u16);

impl ChainFlags {
    /// No flag.
    pub const NONE: ChainFlags = ChainFlags(0);
    /// All links from the sender to the tail are up.
    pub const READY: ChainFlags = ChainFlags(1);
    /// The sender knows that a server of its chain lost its state; it serves no more.
    pub const BROKEN: ChainFlags = ChainFlags(2);
    /// `Ack`: entries came out of order; send again from `index + 1`.
    pub const GAP: ChainFlags = ChainFlags(4);
    /// `Ack`: the sender's configuration is not the receiver's.
    pub const MISMATCH: ChainFlags = ChainFlags(8);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: ChainFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits.
    pub fn with(self, other: ChainFlags) -> ChainFlags {
        ChainFlags(self.0 | other.0)
    }
}

/// The fixed header of a chain message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHeader {
    /// What kind of message.
    pub chain_type: ChainType,
    /// The sender's condition.
    pub flags: ChainFlags,
    /// `Data`: how many entries follow; otherwise 0.
    pub count: u16,
    /// The sender's incarnation: drawn at random at start, never 0.
    pub sender: u64,
    /// The receiver's incarnation as the sender knows it; 0: not yet.
    pub receiver: u64,
    /// `Hello`: the last entry that the sender has. `Data`: the first entry in this message. `Ack`: the last entry applied.
    pub index: u64,
    /// The last entry that the sender knows to be at the tail.
    pub committed: u64,
    /// Digest of the configuration that all servers of a chain must share.
    pub config_digest: u64,
}

impl ChainHeader {
    /// Reads the header of a chain message, and refuses a `Hello` or `Ack` with anything after it.
    pub fn decode(datagram: &[u8]) -> Result<ChainHeader, Malformed> {
        let chain_type = match kind(datagram)? {
            Kind::Chain(chain_type) => chain_type,
            Kind::Message(_) => return Err(Malformed::Type),
        };
        let header = Self::read(datagram, chain_type).ok_or(Malformed::TooShort)?;
        if chain_type != ChainType::Data && (datagram.len() != CHAIN_HEADER_BYTES || header.count != 0) {
            return Err(Malformed::LengthMismatch);
        }
        Ok(header)
    }

    fn read(datagram: &[u8], chain_type: ChainType) -> Option<ChainHeader> {
        let mut r = Reader::new(datagram);
        r.u32()?; // magic, version and type were read by `kind`
        Some(ChainHeader {
            chain_type,
            flags: ChainFlags(r.u16()?),
            count: r.u16()?,
            sender: r.u64()?,
            receiver: r.u64()?,
            index: r.u64()?,
            committed: r.u64()?,
            config_digest: r.u64()?,
        })
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; CHAIN_HEADER_BYTES] {
        let mut bytes = [0; CHAIN_HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[2] = VERSION;
        bytes[3] = self.chain_type as u8;
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.count.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.sender.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.receiver.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.index.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.committed.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.config_digest.to_be_bytes());
        bytes
    }
}

/// A record's replicated fields, as an effect sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordWrite<'a> {
    /// The FlowState object's number.
    pub object_id: u16,
    /// The current grant.
    pub epoch: u32,
    /// Sequence number of the recorded update.
    pub seq: u64,
    /// Who holds, or last held, the lease.
    pub owner: Option<Owner>,
    /// The flow's key.
    pub key: &'a [u8],
    /// The flow's value.
    pub value: &'a [u8],
}

/// What an entry does to the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect<'a> {
    /// Nothing: the entry orders its reply behind everything before it.
    None,
    /// Creates or replaces one record.
    Write(RecordWrite<'a>),
    /// Creates two linked records. The second has no owner and an epoch one lower than the first's, so that both first grants have the same.
    Pair {
        /// The record that was asked for.
        first: RecordWrite<'a>,
        /// Key of the other direction; as long as the first's.
        second_key: &'a [u8],
        /// Value of the other direction; as long as the first's.
        second_value: &'a [u8],
    },
    /// Removes the record and the one that it is linked with.
    Free {
        /// The FlowState object's number.
        object_id: u16,
        /// The record's key.
        key: &'a [u8],
    },
}

impl<'a> Effect<'a> {
    fn number(&self) -> u8 {
        match self {
            Effect::None => 0,
            Effect::Write(_) => 1,
            Effect::Pair { .. } => 2,
            Effect::Free { .. } => 3,
        }
    }

    fn encoded_bytes(&self) -> usize {
        match self {
            Effect::None => 0,
            Effect::Write(record) => RECORD_HEADER_BYTES + record.key.len() + record.value.len(),
            Effect::Pair { first, second_key, second_value } => {
                RECORD_HEADER_BYTES + first.key.len() + first.value.len() + second_key.len() + second_value.len()
            }
            Effect::Free { key, .. } => 4 + key.len(),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
        match self {
            Effect::None => Ok(()),
            Effect::Write(record) => encode_record(record, w),
            Effect::Pair { first, second_key, second_value } => {
                if second_key.len() != first.key.len() || second_value.len() != first.value.len() {
                    return Err(EncodeError::FieldTooLong);
                }
                encode_record(first, w)?;
                w.put(second_key)?;
                w.put(second_value)
            }
            Effect::Free { object_id, key } => {
                w.u16(*object_id)?;
                w.u8(length(key, MAX_KEY_BYTES)?)?;
                w.u8(0)?;
                w.put(key)
            }
        }
    }

    fn decode(number: u8, bytes: &'a [u8]) -> Option<Effect<'a>> {
        let mut r = Reader::new(bytes);
        let effect = match number {
            0 => Effect::None,
            1 => Effect::Write(decode_record(&mut r)?),
            2 => {
                let first = decode_record(&mut r)?;
                first.epoch.checked_sub(1)?;
                Effect::Pair { first, second_key: r.take(first.key.len())?, second_value: r.take(first.value.len())? }
            }
            3 => {
                let object_id = r.u16()?;
                let key_bytes = usize::from(r.u8()?);
                r.u8()?;
                if key_bytes == 0 || key_bytes > MAX_KEY_BYTES {
                    return None;
                }
                Effect::Free { object_id, key: r.take(key_bytes)? }
            }
            _ => return None,
        };
        (r.remaining() == 0).then_some(effect)
    }
}

fn length(field: &[u8], limit: usize) -> Result<u8, EncodeError> {
    if field.len() > limit {
        return Err(EncodeError::FieldTooLong);
    }
    u8::try_from(field.len()).map_err(|_| EncodeError::FieldTooLong)
}

fn encode_record(record: &RecordWrite<'_>, w: &mut Writer<'_>) -> Result<(), EncodeError> {
    w.u16(record.object_id)?;
    w.u8(length(record.key, MAX_KEY_BYTES)?)?;
    w.u8(length(record.value, MAX_VALUE_BYTES)?)?;
    w.u32(u32::from(record.owner.is_some()))?;
    w.u32(record.epoch)?;
    let owner = record.owner.unwrap_or(Owner { switch_id: 0, incarnation: 0 });
    w.u32(owner.switch_id)?;
    w.u32(owner.incarnation)?;
    w.u64(record.seq)?;
    w.put(record.key)?;
    w.put(record.value)
}

fn decode_record<'a>(r: &mut Reader<'a>) -> Option<RecordWrite<'a>> {
    let object_id = r.u16()?;
    let key_bytes = usize::from(r.u8()?);
    let value_bytes = usize::from(r.u8()?);
    let owned = match r.u32()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let epoch = r.u32()?;
    let owner = Owner { switch_id: r.u32()?, incarnation: r.u32()? };
    let seq = r.u64()?;
    if key_bytes == 0 || key_bytes > MAX_KEY_BYTES || value_bytes > MAX_VALUE_BYTES {
        return None;
    }
    let (key, value) = (r.take(key_bytes)?, r.take(value_bytes)?);
    Some(RecordWrite { object_id, epoch, seq, owner: owned.then_some(owner), key, value })
}

/// One step of the chain: an effect and the answer that the tail sends once it has applied it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What changes.
    pub effect: Effect<'a>,
    /// Where the reply goes.
    pub client: SocketAddrV4,
    /// The encoded reply message; empty: none.
    pub reply: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Appends the entry to `buffer`, which is left as it was on error.
    pub fn append_to(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.reply.len() > MAX_MESSAGE_BYTES {
            return Err(EncodeError::FieldTooLong);
        }
        let start = buffer.len();
        let effect_bytes = self.effect.encoded_bytes();
        buffer.resize(start + ENTRY_HEADER_BYTES + effect_bytes + self.reply.len(), 0);
        let result = self.encode(effect_bytes, &mut buffer[start..]);
        if result.is_err() {
            buffer.truncate(start);
        }
        result
    }

    fn encode(&self, effect_bytes: usize, buffer: &mut [u8]) -> Result<(), EncodeError> {
        let mut w = Writer::new(buffer);
        w.u8(self.effect.number())?;
        w.u8(0)?;
        w.u16(u16::try_from(effect_bytes).map_err(|_| EncodeError::FieldTooLong)?)?;
        w.u16(self.reply.len() as u16)?; // at most MAX_MESSAGE_BYTES, checked by the caller
        w.u16(self.client.port())?;
        w.u32(self.client.ip().to_bits())?;
        self.effect.encode(&mut w)?;
        w.put(self.reply)
    }

    fn read(r: &mut Reader<'a>) -> Option<Entry<'a>> {
        let number = r.u8()?;
        r.u8()?;
        let effect_bytes = usize::from(r.u16()?);
        let reply_bytes = usize::from(r.u16()?);
        let port = r.u16()?;
        let address = Ipv4Addr::from_bits(r.u32()?);
        let effect = Effect::decode(number, r.take(effect_bytes)?)?;
        if reply_bytes > MAX_MESSAGE_BYTES {
            return None;
        }
        Some(Entry { effect, client: SocketAddrV4::new(address, port), reply: r.take(reply_bytes)? })
    }
}

/// The entries of a `CHAIN_DATA` message, in order, each with its own bytes.
pub struct Entries<'a> {
    reader: Reader<'a>,
    bytes: &'a [u8],
    left: u16,
}

impl<'a> Entries<'a> {
    /// Checks all entries of `datagram`, whose header is `header`, before giving out any.
    pub fn decode(header: &ChainHeader, datagram: &'a [u8]) -> Result<Entries<'a>, Malformed> {
        let bytes = datagram.get(CHAIN_HEADER_BYTES..).ok_or(Malformed::TooShort)?;
        let mut check = Entries { reader: Reader::new(bytes), bytes, left: header.count };
        for _ in 0..header.count {
            check.next().ok_or(Malformed::ChainEntry)?;
        }
        if header.count == 0 || check.reader.remaining() != 0 {
            return Err(Malformed::LengthMismatch);
        }
        Ok(Entries { reader: Reader::new(bytes), bytes, left: header.count })
    }

    /// Reads one entry from bytes that hold exactly one.
    pub fn one(bytes: &'a [u8]) -> Result<Entry<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let entry = Entry::read(&mut reader).ok_or(Malformed::ChainEntry)?;
        if reader.remaining() != 0 {
            return Err(Malformed::ChainEntry);
        }
        Ok(entry)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Entry<'a>, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let start = self.bytes.len() - self.reader.remaining();
        let entry = Entry::read(&mut self.reader)?;
        let end = self.bytes.len() - self.reader.remaining();
        Some((entry, &self.bytes[start..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> [Entry<'static>; 4] {
        let client = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 5407);
        let first = RecordWrite {
            object_id: 7,
            epoch: 9,
            seq: 11,
            owner: Some(Owner { switch_id: 1, incarnation: 2 }),
            key: b"forward",
            value: b"abc",
        };
        [
            Entry { effect: Effect::None, client, reply: b"reply" },
            Entry { effect: Effect::Write(RecordWrite { owner: None, ..first }), client, reply: b"" },
            Entry { effect: Effect::Pair { first, second_key: b"reverse", second_value: b"xyz" }, client, reply: b"r" },
            Entry { effect: Effect::Free { object_id: 7, key: b"forward" }, client, reply: b"" },
        ]
    }

    fn datagram() -> (ChainHeader, Vec<u8>) {
        let header = ChainHeader {
            chain_type: ChainType::Data,
            flags: ChainFlags::READY,
            count: 4,
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

    #[test]
    fn every_truncation_and_extension_is_malformed() {
        let (header, bytes) = datagram();
        for length in CHAIN_HEADER_BYTES..bytes.len() {
            assert!(Entries::decode(&header, &bytes[..length]).is_err(), "{length} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Entries::decode(&header, &longer).is_err());
        for count in [0, 3, 5] {
            assert!(Entries::decode(&ChainHeader { count, ..header }, &bytes).is_err());
        }
    }

    #[test]
    fn hello_and_ack_carry_nothing() {
        let (header, _) = datagram();
        let mut bytes = ChainHeader { chain_type: ChainType::Ack, count: 0, ..header }.encode().to_vec();
        assert!(ChainHeader::decode(&bytes).is_ok());
        bytes.push(0);
        assert_eq!(ChainHeader::decode(&bytes), Err(Malformed::LengthMismatch));
        assert_eq!(ChainHeader::decode(&bytes[..47]), Err(Malformed::TooShort));
    }
}
