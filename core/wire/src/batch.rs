//! Batches: records of many keys in one message, and their acknowledgement.
//! `core/wire/docs/batches.md`.
//!
//! Any system whose switches wait for durability sends its records so. What a record's key, value
//! and own flags mean is the system's.

use crate::{BatchHeader, EncodeError, HEADER_BYTES, Kind, MAGIC, Malformed, Reader, RecordHeader};
use crate::{VERSION, kind};
use c_layout::{Be16, Be32, Be64, Member};
use std::net::Ipv4Addr;

/// Bytes of the digest, with which the body of a `BATCH` begins.
pub const DIGEST_BYTES: usize = 8;
/// Most records of a batch: its acknowledgement has a bit for each.
pub const MOST_RECORDS: usize = 64;
/// Most bytes of a batch's records: with all headers it is 1,500 bytes of IP.
pub const MOST_RECORDS_BYTES: usize = 1_400;
/// Most 8-byte words of a record's key and value.
pub const MOST_RECORD_WORDS: usize = 64;
/// Bytes of what a record has in front of its key.
pub const RECORD_HEADER_BYTES: usize = RecordHeader::BYTES;

const WORD_BYTES: usize = 8;
const REFUSED_BYTES: usize = 8;

/// Type of a message that carries records, or acknowledges them; the number is the wire's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BatchType {
    /// Records, to be made durable.
    Batch = 8,
    /// All of the batch that was not refused is durable.
    BatchAck = 74,
}

impl BatchType {
    #[inline]
    pub(crate) fn from_number(number: u8) -> Option<BatchType> {
        match number {
            8 => Some(BatchType::Batch),
            74 => Some(BatchType::BatchAck),
            _ => None,
        }
    }
}

/// What a batch and its acknowledgement both say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHead {
    /// No bit has a meaning yet.
    pub flags: u16,
    /// The switch whose records these are.
    pub switch_id: u32,
    /// Which of its lives.
    pub incarnation: u32,
    /// The switch's clock in ns when it sent the batch; echoed.
    pub request_ns: u64,
    /// The batch's number in its stream, from 1; echoed.
    pub number: u64,
    /// Between members of a chain: the view that the sender is in. 0: from or to a switch.
    pub view: u64,
    /// The session that the switch believes to have with the shard (request), or has (answer); 0:
    /// none.
    pub session: u32,
    /// The CPU of the switch; echoed.
    pub stream: u16,
    /// The switch's protocol address: the answer goes there.
    pub client: Ipv4Addr,
    /// The shard of all keys.
    pub shard: u16,
}

impl BatchHead {
    fn read(header: &BatchHeader) -> BatchHead {
        BatchHead {
            flags: header.flags.0,
            switch_id: header.switch_id.0,
            incarnation: header.incarnation.0,
            request_ns: header.request_ns.0,
            number: header.batch.0,
            view: header.view.0,
            session: header.session.0,
            stream: header.stream.0,
            client: header.client,
            shard: header.shard.0,
        }
    }

    /// The header, with no tag yet.
    fn header(&self, batch_type: BatchType, count: u16, body_bytes: u16) -> BatchHeader {
        BatchHeader {
            magic: Be16(MAGIC),
            version: VERSION,
            message_type: batch_type as u8,
            flags: Be16(self.flags),
            count: Be16(count),
            switch_id: Be32(self.switch_id),
            incarnation: Be32(self.incarnation),
            request_ns: Be64(self.request_ns),
            batch: Be64(self.number),
            view: Be64(self.view),
            session: Be32(self.session),
            body_bytes: Be16(body_bytes),
            stream: Be16(self.stream),
            client: self.client,
            shard: Be16(self.shard),
            key_id: 0,
            body_key_id: 0,
            tag: Be64(0),
        }
    }
}

/// The header of a datagram of that type, and what is behind it.
fn split(datagram: &[u8], expected: BatchType) -> Result<(BatchHeader, Reader<'_>), Malformed> {
    if kind(datagram)? != Kind::Batch(expected) {
        return Err(Malformed::Type);
    }
    let mut reader = Reader::new(datagram);
    let header = BatchHeader::read(reader.take(HEADER_BYTES).ok_or(Malformed::TooShort)?);
    Ok((header, reader))
}

/// Records of a stream in one message; they borrow the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Whose batch it is, and which.
    pub head: BatchHead,
    records: BatchRecords<'a>,
}

impl<'a> Batch<'a> {
    /// A batch of records that [`BatchRecord::append_to`] put one behind the other.
    ///
    /// # Errors
    /// They are none, too many or too long, or a group does not end.
    pub fn new(head: BatchHead, records: &'a [u8]) -> Result<Batch<'a>, Malformed> {
        Ok(Batch { head, records: BatchRecords::check(records)? })
    }

    /// Reads a whole datagram, and checks that its records fill it. Whether it is genuine, also
    /// its digest, is for [`KeyRing::verify`](crate::KeyRing::verify) to say.
    ///
    /// # Errors
    /// It has another type, anything is missing or left over, or the records do not add up.
    pub fn decode(datagram: &'a [u8]) -> Result<Batch<'a>, Malformed> {
        let (header, mut reader) = split(datagram, BatchType::Batch)?;
        reader.take(DIGEST_BYTES).ok_or(Malformed::TooShort)?;
        if reader.remaining() != usize::from(header.body_bytes.0) {
            return Err(Malformed::LengthMismatch);
        }
        let records = reader.take(reader.remaining()).ok_or(Malformed::TooShort)?;
        let batch = Batch::new(BatchHead::read(&header), records)?;
        if batch.records.count == header.count.0 { Ok(batch) } else { Err(Malformed::Records) }
    }

    /// Its records, in order.
    pub fn records(&self) -> BatchRecords<'a> {
        self.records
    }

    /// Bytes of the encoded message.
    pub fn encoded_bytes(&self) -> usize {
        HEADER_BYTES + DIGEST_BYTES + self.records.bytes.len()
    }

    /// Appends the message, with no digest and no tag yet (`KeyRing::sign` writes both).
    pub fn append_to(&self, buffer: &mut Vec<u8>) {
        let records = self.records.bytes;
        // `BatchRecords::check` has bounded both.
        let (count, bytes) = (self.records.count, records.len() as u16);
        let start = buffer.len();
        buffer.resize(start + HEADER_BYTES + DIGEST_BYTES, 0);
        self.head
            .header(BatchType::Batch, count, bytes)
            .write(&mut buffer[start..][..HEADER_BYTES]);
        buffer.extend_from_slice(records);
    }
}

/// All records of a batch that are not refused are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchAck {
    /// The batch's own, but for the session.
    pub head: BatchHead,
    /// Records that the batch had.
    pub count: u16,
    /// Bit n: record n was refused.
    pub refused: u64,
}

impl BatchAck {
    /// Bytes of the encoded message.
    pub const BYTES: usize = HEADER_BYTES + REFUSED_BYTES;

    /// Reads a whole datagram.
    ///
    /// # Errors
    /// It has another type or length, or names records that no batch has.
    pub fn decode(datagram: &[u8]) -> Result<BatchAck, Malformed> {
        let (header, mut reader) = split(datagram, BatchType::BatchAck)?;
        let refused = reader.u64().ok_or(Malformed::TooShort)?;
        if reader.remaining() != 0 || header.body_bytes.0 != 0 {
            return Err(Malformed::LengthMismatch);
        }
        let count = header.count.0;
        let beyond = u32::from(count) < u64::BITS && refused >> count != 0;
        if beyond || !(1..=MOST_RECORDS).contains(&usize::from(count)) {
            return Err(Malformed::Records);
        }
        Ok(BatchAck { head: BatchHead::read(&header), count, refused })
    }

    /// Appends the message, with no tag yet (`KeyRing::sign` writes it).
    pub fn append_to(&self, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        buffer.resize(start + HEADER_BYTES, 0);
        self.head.header(BatchType::BatchAck, self.count, 0).write(&mut buffer[start..]);
        buffer.extend(self.refused.to_be_bytes());
    }
}

/// A record's flags. Bits 2 to 4 are the system's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RecordFlags(pub u8);

impl RecordFlags {
    /// No flag.
    pub const NONE: RecordFlags = RecordFlags(0);
    /// The next record is of the same packet: both are refused, or none.
    pub const GROUP: RecordFlags = RecordFlags(1);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: RecordFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits that either has.
    pub const fn with(self, other: RecordFlags) -> RecordFlags {
        RecordFlags(self.0 | other.0)
    }
}

/// The new value of one key, complete: it may be applied twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRecord<'a> {
    /// The object's number in the manifest.
    pub object_id: u16,
    /// Whether it goes with the next one; the system's own.
    pub flags: RecordFlags,
    /// The grant that the switch holds.
    pub epoch: u32,
    /// Not used: 0.
    pub place: u32,
    /// Of the key's updates.
    pub seq: u64,
    /// Key and value, each filled up with zeros to 8 bytes: [`BatchRecord::key_and_value`].
    pub content: &'a [u8],
}

impl<'a> BatchRecord<'a> {
    /// Key and value, whose lengths the object has. `None`: the record does not have these lengths,
    /// or something else than zeros behind key or value.
    pub fn key_and_value(
        &self,
        key_bytes: usize,
        value_bytes: usize,
    ) -> Option<(&'a [u8], &'a [u8])> {
        let (key, value) = self.content.split_at_checked(key_bytes.next_multiple_of(WORD_BYTES))?;
        if value.len() != value_bytes.next_multiple_of(WORD_BYTES) {
            return None;
        }
        let (key, after_key) = key.split_at(key_bytes);
        let (value, after_value) = value.split_at(value_bytes);
        let zeros = after_key.iter().chain(after_value).all(|byte| *byte == 0);
        zeros.then_some((key, value))
    }

    /// Appends a record of this key and value; `content` is not looked at. `buffer` is left as it
    /// was on error.
    ///
    /// # Errors
    /// Key and value are longer than a record's.
    pub fn append_to(
        &self,
        key: &[u8],
        value: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let padded = |part: &[u8]| part.len().next_multiple_of(WORD_BYTES);
        let words = (padded(key) + padded(value)) / WORD_BYTES;
        if !(1..=MOST_RECORD_WORDS).contains(&words) {
            return Err(EncodeError::FieldTooLong);
        }
        self.append_header(words, buffer);
        for part in [key, value] {
            buffer.extend_from_slice(part);
            buffer.resize(buffer.len() + padded(part) - part.len(), 0);
        }
        Ok(())
    }

    /// Appends a record that was read, with `content` as it is.
    pub fn append_as_it_is(&self, buffer: &mut Vec<u8>) {
        self.append_header(self.content.len() / WORD_BYTES, buffer);
        buffer.extend_from_slice(self.content);
    }

    /// `words`: at most [`MOST_RECORD_WORDS`].
    fn append_header(&self, words: usize, buffer: &mut Vec<u8>) {
        let header = RecordHeader {
            object_id: Be16(self.object_id),
            flags: self.flags.0,
            words: words as u8,
            epoch: Be32(self.epoch),
            place: Be32(self.place),
            zero: Be32(0),
            seq: Be64(self.seq),
        };
        let start = buffer.len();
        buffer.resize(start + RECORD_HEADER_BYTES, 0);
        header.write(&mut buffer[start..]);
    }

    fn read(reader: &mut Reader<'a>) -> Option<BatchRecord<'a>> {
        let header = RecordHeader::read(reader.take(RECORD_HEADER_BYTES)?);
        let words = usize::from(header.words);
        if !(1..=MOST_RECORD_WORDS).contains(&words) {
            return None;
        }
        Some(BatchRecord {
            object_id: header.object_id.0,
            flags: RecordFlags(header.flags),
            epoch: header.epoch.0,
            place: header.place.0,
            seq: header.seq.0,
            content: reader.take(words * WORD_BYTES)?,
        })
    }
}

/// The records of a batch, which were checked: an iterator over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRecords<'a> {
    bytes: &'a [u8],
    count: u16,
}

impl<'a> BatchRecords<'a> {
    /// All that are left, as they stand on the wire.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many are left.
    pub fn count_left(&self) -> usize {
        self.count.into()
    }

    /// Reads records that fill `bytes`.
    ///
    /// # Errors
    /// They are none, too many or too long, do not end where `bytes` does, or the last one is of
    /// a group that goes on.
    pub fn check(bytes: &'a [u8]) -> Result<BatchRecords<'a>, Malformed> {
        if bytes.len() > MOST_RECORDS_BYTES {
            return Err(Malformed::Records);
        }
        let (mut reader, mut count, mut group) = (Reader::new(bytes), 0, true);
        while reader.remaining() > 0 {
            let record = BatchRecord::read(&mut reader).ok_or(Malformed::Records)?;
            group = record.flags.contains(RecordFlags::GROUP);
            count += 1;
        }
        // Without any record, no group has ended either.
        if group || usize::from(count) > MOST_RECORDS {
            return Err(Malformed::Records);
        }
        Ok(BatchRecords { bytes, count })
    }
}

impl<'a> Iterator for BatchRecords<'a> {
    type Item = BatchRecord<'a>;

    fn next(&mut self) -> Option<BatchRecord<'a>> {
        self.count = self.count.checked_sub(1)?;
        let mut reader = Reader::new(self.bytes);
        let record = BatchRecord::read(&mut reader)?;
        self.bytes = &self.bytes[self.bytes.len() - reader.remaining()..];
        Some(record)
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
