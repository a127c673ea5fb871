//! Messages between the servers of a chain: `core/chain/docs/protocol.md`.

use crate::bytes::{Reader, Writer};
use crate::{EncodeError, HEADER_BYTES, Kind, MAGIC, Malformed, VERSION, kind};
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of the fixed header of a chain message.
pub const CHAIN_HEADER_BYTES: usize = HEADER_BYTES;
/// Bytes of the fixed part of an entry in `CHAIN_DATA`.
pub const ENTRY_HEADER_BYTES: usize = 12;

/// Type of a chain message; the number is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChainType {
    /// Predecessor to successor: I am at this view, and have entries up to here; answered by an
    /// `Ack`.
    Hello = 32,
    /// Predecessor to successor: entries in order.
    Data = 33,
    /// Successor to predecessor: what was applied, and what the tail has.
    Ack = 34,
    /// Tail to the server that joins: parts of the records, in order.
    Copy = 35,
    /// The server that joins to the tail: which of them it has.
    CopyAck = 36,
}

impl ChainType {
    #[inline]
    pub(crate) fn from_number(number: u8) -> Option<ChainType> {
        Some(match number {
            32 => ChainType::Hello,
            33 => ChainType::Data,
            34 => ChainType::Ack,
            35 => ChainType::Copy,
            36 => ChainType::CopyAck,
            _ => return None,
        })
    }

    fn has_body(self) -> bool {
        matches!(self, ChainType::Data | ChainType::Copy)
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
    /// `Ack`, `CopyAck`: something is missing before what came; send again from `index + 1`.
    pub const GAP: ChainFlags = ChainFlags(2);
    /// `Ack`: the sender's configuration is not the receiver's.
    pub const MISMATCH: ChainFlags = ChainFlags(4);
    /// The sender has everything that was acknowledged up to `index`: it is a member, or its copy
    /// is done.
    pub const SYNCED: ChainFlags = ChainFlags(8);
    /// `Copy`: that was all. The message carries no effects, but the number of the last entry that
    /// the copy has the effect of: `Handover`.
    pub const DONE: ChainFlags = ChainFlags(16);

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
    /// `Data`, `Copy`: how many entries or items follow; otherwise 0.
    pub count: u16,
    /// The shard whose chain this is.
    pub shard: u16,
    /// The number of the shard's view that the sender is in.
    pub view: u64,
    /// The sender's incarnation: drawn at random at start, never 0.
    pub sender: u64,
    /// The receiver's incarnation, as the view names it.
    pub receiver: u64,
    /// `Hello`, `Ack`: the last entry that the sender has. `Data`: the first entry in this message.
    /// `Copy`: the number of this message, from 1. `CopyAck`: the last of them that was taken in
    /// order.
    pub index: u64,
    /// The last entry that the sender knows to be at the tail. `Copy`, `CopyAck`: the view in which
    /// the joining began.
    pub committed: u64,
    /// Digest of the configuration that all servers of a chain must share.
    pub config_digest: u32,
}

impl ChainHeader {
    /// Reads the header of a chain message, and refuses anything after it in one that carries
    /// nothing.
    pub fn decode(datagram: &[u8]) -> Result<ChainHeader, Malformed> {
        let Kind::Chain(chain_type) = kind(datagram)? else { return Err(Malformed::Type) };
        let header = Self::read(datagram, chain_type).ok_or(Malformed::TooShort)?;
        if !chain_type.has_body() && (datagram.len() != CHAIN_HEADER_BYTES || header.count != 0) {
            return Err(Malformed::LengthMismatch);
        }
        Ok(header)
    }

    fn read(datagram: &[u8], chain_type: ChainType) -> Option<ChainHeader> {
        let mut r = Reader::new(datagram.get(..CHAIN_HEADER_BYTES)?);
        r.u32()?; // magic, version and type were read by `kind`
        Some(ChainHeader {
            chain_type,
            flags: ChainFlags(r.u16()?),
            count: r.u16()?,
            view: r.u64()?,
            sender: r.u64()?,
            receiver: r.u64()?,
            index: r.u64()?,
            committed: r.u64()?,
            config_digest: r.u32()?,
            shard: r.u16()?,
        })
    }

    /// The header's bytes, with no tag yet: `KeyRing::sign` writes it.
    pub fn encode(&self) -> [u8; CHAIN_HEADER_BYTES] {
        let mut bytes = [0; CHAIN_HEADER_BYTES];
        bytes[0..2].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[2] = VERSION;
        bytes[3] = self.chain_type as u8;
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.count.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.view.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.sender.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.receiver.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.index.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.committed.to_be_bytes());
        bytes[48..52].copy_from_slice(&self.config_digest.to_be_bytes());
        bytes[52..54].copy_from_slice(&self.shard.to_be_bytes());
        bytes
    }
}

/// What an entry does to the state that a chain replicates. A system implements it by a type that
/// borrows from the datagram, so that nothing is copied.
pub trait Effect<'a>: Sized {
    /// Longest reply that an entry of the system carries.
    const MOST_REPLY_BYTES: usize;

    /// The effect's type, as the entry's header has it.
    fn number(&self) -> u8;

    /// Bytes of the encoded effect.
    fn encoded_bytes(&self) -> usize;

    /// Puts exactly `encoded_bytes` into `w`.
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError>;

    /// Reads an effect of type `number` that takes all of `bytes`.
    fn decode(number: u8, bytes: &'a [u8]) -> Option<Self>;
}

/// One step of the chain: an effect and the answer that the tail sends once it has applied it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a, E> {
    /// What changes.
    pub effect: E,
    /// Where the reply goes.
    pub client: SocketAddrV4,
    /// The encoded reply message; empty: none.
    pub reply: &'a [u8],
}

impl<'a, E: Effect<'a>> Entry<'a, E> {
    /// Appends the entry to `buffer`, which is left as it was on error.
    pub fn append_to(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.reply.len() > E::MOST_REPLY_BYTES {
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
        w.u16(u16::try_from(self.reply.len()).map_err(|_| EncodeError::FieldTooLong)?)?;
        w.u16(self.client.port())?;
        w.u32(self.client.ip().to_bits())?;
        self.effect.encode(&mut w)?;
        w.put(self.reply)
    }

    fn read(r: &mut Reader<'a>) -> Option<Entry<'a, E>> {
        let number = r.u8()?;
        r.u8()?;
        let effect_bytes = usize::from(r.u16()?);
        let reply_bytes = usize::from(r.u16()?);
        let port = r.u16()?;
        let address = Ipv4Addr::from_bits(r.u32()?);
        let effect = E::decode(number, r.take(effect_bytes)?)?;
        if reply_bytes > E::MOST_REPLY_BYTES {
            return None;
        }
        Some(Entry {
            effect,
            client: SocketAddrV4::new(address, port),
            reply: r.take(reply_bytes)?,
        })
    }
}

/// The end of a copy: from here on the tail answers through the joining server only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover {
    /// The last entry that the copy has the effect of.
    pub index: u64,
}

impl Handover {
    /// What follows the header of a `Copy` with the flag `DONE`.
    pub fn encode(&self) -> [u8; 8] {
        self.index.to_be_bytes()
    }

    /// Reads a `Copy` with the flag `DONE`.
    pub fn decode(header: &ChainHeader, datagram: &[u8]) -> Result<Handover, Malformed> {
        let bytes = datagram.get(CHAIN_HEADER_BYTES..).ok_or(Malformed::TooShort)?;
        let bytes: &[u8; 8] = bytes.try_into().map_err(|_| Malformed::LengthMismatch)?;
        let done = header.chain_type == ChainType::Copy
            && header.flags.contains(ChainFlags::DONE)
            && header.count == 0;
        if done {
            Ok(Handover { index: u64::from_be_bytes(*bytes) })
        } else {
            Err(Malformed::ChainEntry)
        }
    }
}

/// The entries of a `Data` message, or of a `Copy`, in order, each with its own bytes.
pub struct Entries<'a, E> {
    reader: Reader<'a>,
    bytes: &'a [u8],
    left: u16,
    effect: PhantomData<E>,
}

impl<'a, E: Effect<'a>> Entries<'a, E> {
    fn new(bytes: &'a [u8], left: u16) -> Self {
        Entries { reader: Reader::new(bytes), bytes, left, effect: PhantomData }
    }

    /// Checks all entries of `datagram`, whose header is `header`, before giving out any.
    pub fn decode(header: &ChainHeader, datagram: &'a [u8]) -> Result<Self, Malformed> {
        let bytes = datagram.get(CHAIN_HEADER_BYTES..).ok_or(Malformed::TooShort)?;
        let mut check = Self::new(bytes, header.count);
        for _ in 0..header.count {
            check.next().ok_or(Malformed::ChainEntry)?;
        }
        if header.count == 0 || check.reader.remaining() != 0 {
            return Err(Malformed::LengthMismatch);
        }
        Ok(Self::new(bytes, header.count))
    }

    /// Reads one entry from bytes that hold exactly one.
    pub fn one(bytes: &'a [u8]) -> Result<Entry<'a, E>, Malformed> {
        let mut reader = Reader::new(bytes);
        let entry = Entry::read(&mut reader).ok_or(Malformed::ChainEntry)?;
        if reader.remaining() != 0 {
            return Err(Malformed::ChainEntry);
        }
        Ok(entry)
    }
}

impl<'a, E: Effect<'a>> Iterator for Entries<'a, E> {
    type Item = (Entry<'a, E>, &'a [u8]);

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

    /// A system with two effects: nothing (0), and a word and any bytes (1).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Toy<'a> {
        Nothing,
        Put { word: u32, bytes: &'a [u8] },
    }

    impl<'a> Effect<'a> for Toy<'a> {
        const MOST_REPLY_BYTES: usize = 5;

        fn number(&self) -> u8 {
            u8::from(*self != Toy::Nothing)
        }

        fn encoded_bytes(&self) -> usize {
            match self {
                Toy::Nothing => 0,
                Toy::Put { bytes, .. } => 5 + bytes.len(),
            }
        }

        fn encode(&self, w: &mut Writer<'_>) -> Result<(), EncodeError> {
            match self {
                Toy::Nothing => Ok(()),
                Toy::Put { word, bytes } => {
                    w.u32(*word)?;
                    w.u8(u8::try_from(bytes.len()).map_err(|_| EncodeError::FieldTooLong)?)?;
                    w.put(bytes)
                }
            }
        }

        fn decode(number: u8, bytes: &'a [u8]) -> Option<Toy<'a>> {
            let mut r = Reader::new(bytes);
            let effect = match number {
                0 => Toy::Nothing,
                1 => {
                    let (word, count) = (r.u32()?, r.u8()?);
                    Toy::Put { word, bytes: r.take(usize::from(count))? }
                }
                _ => return None,
            };
            (r.remaining() == 0).then_some(effect)
        }
    }

    type ToyEntries<'a> = Entries<'a, Toy<'a>>;

    fn entries() -> [Entry<'static, Toy<'static>>; 3] {
        let client = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 5407);
        [
            Entry { effect: Toy::Nothing, client, reply: b"reply" },
            Entry { effect: Toy::Put { word: 7, bytes: b"abc" }, client, reply: b"" },
            Entry { effect: Toy::Put { word: u32::MAX, bytes: b"" }, client, reply: b"r" },
        ]
    }

    fn datagram() -> (ChainHeader, Vec<u8>) {
        let header = ChainHeader {
            chain_type: ChainType::Data,
            flags: ChainFlags::READY,
            count: 3,
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
        let decoded: Vec<_> = ToyEntries::decode(&header, &bytes).unwrap().collect();
        assert_eq!(decoded.iter().map(|(entry, _)| *entry).collect::<Vec<_>>(), entries());
        for (entry, own) in decoded {
            assert_eq!(Entries::one(own), Ok(entry));
        }
    }

    /// The layout of the document, written out by hand.
    #[test]
    fn an_entry_has_the_documents_layout() {
        let mut bytes = vec![9];
        entries()[1].append_to(&mut bytes).unwrap();
        let expected =
            [9, 1, 0, 0, 8, 0, 0, 0x15, 0x1f, 10, 1, 2, 3, 0, 0, 0, 7, 3, b'a', b'b', b'c'];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn every_truncation_and_extension_is_malformed() {
        let (header, bytes) = datagram();
        for length in CHAIN_HEADER_BYTES..bytes.len() {
            assert!(ToyEntries::decode(&header, &bytes[..length]).is_err(), "{length} bytes");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(ToyEntries::decode(&header, &longer).is_err());
        for count in [0, 2, 4] {
            assert!(ToyEntries::decode(&ChainHeader { count, ..header }, &bytes).is_err());
        }
    }

    #[test]
    fn what_the_system_refuses_is_malformed() {
        let (header, bytes) = datagram();
        let mut unknown = bytes.clone();
        unknown[CHAIN_HEADER_BYTES] = 2;
        assert_eq!(ToyEntries::decode(&header, &unknown).err(), Some(Malformed::ChainEntry));
        let long = Entry { reply: b"longer", ..entries()[0] };
        let mut buffer = vec![7];
        assert_eq!(long.append_to(&mut buffer), Err(EncodeError::FieldTooLong));
        assert_eq!(buffer, [7]);
        let mut long = bytes;
        long[CHAIN_HEADER_BYTES + 5] = 6;
        long.push(0);
        assert_eq!(
            ToyEntries::decode(&ChainHeader { count: 1, ..header }, &long).err(),
            Some(Malformed::ChainEntry)
        );
    }

    #[test]
    fn hello_and_ack_carry_nothing() {
        let (header, _) = datagram();
        let mut bytes =
            ChainHeader { chain_type: ChainType::Ack, count: 0, ..header }.encode().to_vec();
        assert!(ChainHeader::decode(&bytes).is_ok());
        bytes.push(0);
        assert_eq!(ChainHeader::decode(&bytes), Err(Malformed::LengthMismatch));
        assert_eq!(ChainHeader::decode(&bytes[..63]), Err(Malformed::TooShort));
    }
}
