//! A message: request, stamped write and reply have one form.

use crate::{CHAIN_MAX, VALUE_MAX};
use std::net::Ipv4Addr;

/// Of the message's form.
pub const FORMAT: u8 = 1;
/// Where the tag is, in all formats.
pub const TAG_OFFSET: usize = 8;
/// Bytes before records and value.
const BASE_BYTES: usize = 88;
/// Records in a write, and bytes of each.
pub const RECORDS: usize = 4;
const RECORD_BYTES: usize = 21;
/// In the place of a length, also a slot's: there is no value.
pub const NO_VALUE: u8 = 255;

/// The message is a reply.
pub const REPLY: u16 = 0x8000;
/// Of a member: the head has given the write its version, or it is a message between switches.
pub const STAMPED: u16 = 0x4000;
/// In a reply: version and value are not those of the verdict. Of [`Status::Done`] they are a later
/// write's, and the operand is the request's own version (0: nobody knows it any more).
pub const MOVED: u16 = 0x0002;
/// In a reply with the group's chain: the version is the group's floor, and the operand the view
/// since which the head is this one.
pub const TOLD: u16 = 0x0004;
/// A copy of the request went to an earlier head, which may have carried it out.
pub const AGAIN: u16 = 0x0001;

/// A key: 16 bytes, whatever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// A name as a key, with zero bytes behind it.
    ///
    /// # Errors
    /// It has more than 16 bytes: names are never hashed into keys.
    pub fn from_name(name: &str) -> Result<Key, Wrong> {
        let mut key = [0; 16];
        let bytes = name.as_bytes();
        key.get_mut(..bytes.len()).ok_or(Wrong::LongName(bytes.len()))?.copy_from_slice(bytes);
        Ok(Key(key))
    }
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// The newest value.
    Read = 1,
    /// Writes the value.
    Put = 2,
    /// Writes it if the key has none.
    Insert = 3,
    /// Writes it if the key's version is the operand.
    CompareVersion = 4,
    /// Writes it if the value's first eight bytes are the operand.
    CompareOwner = 5,
    /// Adds the operand to the value's first eight bytes.
    Add = 6,
    /// Removes the value, if the version is the operand or the operand is 0.
    Delete = 7,
    /// Between switches: a slot for a member that joins.
    Copy = 8,
    /// Between switches: it has that version or a newer one.
    CopyAck = 9,
    /// Between switches: a sign of life, for a lease.
    Probe = 10,
    /// The next keys of a group that begin with a prefix.
    List = 11,
    /// Between switches: a tombstone that all members may free.
    Collect = 12,
    /// Between switches: all members have it.
    CollectAck = 13,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Not answered yet.
    Request = 0,
    /// Done.
    Done = 1,
    /// The key has no value.
    Absent = 2,
    /// The condition does not hold.
    Refused = 3,
    /// The head has no slot for another key.
    Full = 4,
    /// The group has another view.
    OldView = 5,
    /// The switch serves no such group.
    NoGroup = 6,
    /// No such operation.
    Unknown = 7,
    /// It came again, and nobody knows any more whether it was carried out.
    Undecided = 8,
    /// The key's value is longer than the request has room for: nothing is decided.
    NoRoom = 9,
    /// The switch's part is another one.
    WrongSwitch = 10,
    /// The group has lost all its members.
    Lost = 11,
    /// The head has no room for another client.
    TooMany = 12,
    /// The client's key may not do that.
    Denied = 13,
    /// The switch does not know the message's format.
    BadFormat = 14,
    /// The switch belongs to another cluster.
    WrongRing = 15,
    /// The switch's view does not serve yet, or it has no lease to answer reads: ask again soon.
    Paused = 16,
}

const OPERATIONS: [Operation; 13] = [
    Operation::Read,
    Operation::Put,
    Operation::Insert,
    Operation::CompareVersion,
    Operation::CompareOwner,
    Operation::Add,
    Operation::Delete,
    Operation::Copy,
    Operation::CopyAck,
    Operation::Probe,
    Operation::List,
    Operation::Collect,
    Operation::CollectAck,
];

const STATUSES: [Status; 17] = [
    Status::Request,
    Status::Done,
    Status::Absent,
    Status::Refused,
    Status::Full,
    Status::OldView,
    Status::NoGroup,
    Status::Unknown,
    Status::Undecided,
    Status::NoRoom,
    Status::WrongSwitch,
    Status::Lost,
    Status::TooMany,
    Status::Denied,
    Status::BadFormat,
    Status::WrongRing,
    Status::Paused,
];

/// Bytes of a value that a message has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Room {
    /// None.
    None = 0,
    /// 16 bytes.
    Small = 1,
    /// 64 bytes.
    Medium = 2,
    /// 128 bytes.
    Large = 3,
}

impl Room {
    /// In bytes.
    pub fn bytes(self) -> usize {
        [0, 16, 64, VALUE_MAX][self as usize]
    }

    /// The smallest for a value of so many bytes.
    pub fn of(bytes: usize) -> Option<Room> {
        [Room::None, Room::Small, Room::Medium, Room::Large]
            .into_iter()
            .find(|room| room.bytes() >= bytes)
    }
}

/// A request that was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whose.
    pub client: u64,
    /// The client's number of it.
    pub number: u32,
    /// A [`Status`]; 0: no record.
    pub status: u8,
    /// The version that it made.
    pub version: u64,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What is asked for.
    pub operation: Operation,
    /// What became of it.
    pub status: Status,
    /// [`REPLY`] and its like.
    pub flags: u16,
    /// Which of the client's keys made the tag; it stays while switches pass the message on.
    pub key_id: u16,
    /// Over the payload with zeros in the tag's place; 0: there is none.
    pub tag: u64,
    /// Fingerprint of the ring ([`crate::Ring::fingerprint`]).
    pub ring: u32,
    /// Of the group, as the sender knows it; 0: it does not.
    pub view: u32,
    /// The key's group.
    pub group: u16,
    /// Identity of the client's process.
    pub client: u64,
    /// Number of the request.
    pub number: u32,
    /// Session (16 bits) and sequence number (48 bits). In writes' requests: a version that the key
    /// had before the first copy was sent; 0: none is known.
    pub version: u64,
    /// What to compare with, or to add.
    pub operand: u64,
    /// The key.
    pub key: Key,
    /// Addresses still to come; at most [`CHAIN_MAX`].
    pub chain: Vec<Ipv4Addr>,
    /// Of writes: the key's newest requests.
    pub records: [Record; RECORDS],
    /// Room for a value.
    pub room: Room,
    /// The value; None: there is none. Of a reply with [`Status::NoRoom`], what there was room for.
    pub value: Option<Vec<u8>>,
}

/// Why bytes are no message, or a message has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Too short, or longer than its fields say.
    #[error("the message's length, {0} bytes, does not match its length fields")]
    Length(usize),
    /// Another form.
    #[error("format {0}, not {FORMAT}")]
    Format(u8),
    /// No such operation.
    #[error("unknown operation {0}")]
    Operation(u8),
    /// No such status.
    #[error("unknown status {0}")]
    Status(u8),
    /// No such room.
    #[error("unknown room {0}")]
    Room(u8),
    /// More addresses than a chain has.
    #[error("a chain of {0} addresses; a chain has at most {CHAIN_MAX}")]
    Chain(usize),
    /// A value that does not fit.
    #[error("a value of {0} bytes; a value has at most {VALUE_MAX}")]
    LongValue(usize),
    /// A name that does not fit.
    #[error("a name of {0} bytes; a name has at most 16")]
    LongName(usize),
}

/// Reads from the front of a slice that is long enough.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let front = self.bytes(N);
        array[..front.len()].copy_from_slice(front);
        array
    }

    fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.array())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.array())
    }
}

/// Does a message of this kind have a key's records?
fn has_records(operation: Operation) -> bool {
    !matches!(operation, Operation::Read | Operation::Probe)
}

impl Message {
    /// Asks a switch for the view and chain of a group: a read in view 0, which no switch carries
    /// out. The reply carries the client's identity and the number. The chain is empty.
    pub fn probe(ring: u32, group: u16, key: Key, (client, number): (u64, u32)) -> Message {
        Message {
            operation: Operation::Read,
            status: Status::Request,
            flags: 0,
            key_id: 0,
            tag: 0,
            ring,
            view: 0,
            group,
            client,
            number,
            version: 0,
            operand: 0,
            key,
            chain: vec![],
            records: Default::default(),
            room: Room::None,
            value: None,
        }
    }

    /// Bytes of the UDP payload.
    pub fn bytes(&self) -> usize {
        let records = if has_records(self.operation) { RECORDS * RECORD_BYTES } else { 0 };
        BASE_BYTES + records + self.room.bytes()
    }

    /// The UDP payload.
    ///
    /// # Errors
    /// Chain or value do not fit.
    pub fn encode(&self) -> Result<Vec<u8>, Wrong> {
        let value = self.value.as_deref();
        let held = value.unwrap_or_default();
        if held.len() > self.room.bytes() {
            return Err(Wrong::LongValue(held.len()));
        }
        if self.chain.len() > CHAIN_MAX {
            return Err(Wrong::Chain(self.chain.len()));
        }
        let mut out = Vec::with_capacity(self.bytes());
        let hops = self.chain.len() as u8;
        out.extend([FORMAT, self.operation as u8, self.status as u8, hops]);
        out.extend(self.flags.to_be_bytes());
        out.extend(self.key_id.to_be_bytes());
        out.extend(self.tag.to_be_bytes());
        out.extend(self.ring.to_be_bytes());
        out.extend(self.view.to_be_bytes());
        out.extend(self.group.to_be_bytes());
        out.extend([self.room as u8, value.map_or(NO_VALUE, |value| value.len() as u8)]);
        out.extend(self.number.to_be_bytes());
        out.extend(self.client.to_be_bytes());
        out.extend(self.version.to_be_bytes());
        out.extend(self.operand.to_be_bytes());
        out.extend(self.key.0);
        for at in 0..CHAIN_MAX {
            out.extend(self.chain.get(at).map_or([0; 4], |hop| hop.octets()));
        }
        if has_records(self.operation) {
            for record in &self.records {
                out.extend(record.client.to_be_bytes());
                out.extend(record.number.to_be_bytes());
                out.push(record.status);
                out.extend(record.version.to_be_bytes());
            }
        }
        out.extend(held);
        out.resize(self.bytes(), 0);
        Ok(out)
    }

    /// Reads a UDP payload.
    ///
    /// # Errors
    /// It is no message.
    pub fn decode(bytes: &[u8]) -> Result<Message, Wrong> {
        // Of another format the length means nothing.
        match bytes.first() {
            Some(&format) if format != FORMAT => return Err(Wrong::Format(format)),
            Some(_) if bytes.len() >= BASE_BYTES => {}
            _ => return Err(Wrong::Length(bytes.len())),
        }
        let mut read = Reader(bytes);
        let (_format, operation, status, hops) = (read.u8(), read.u8(), read.u8(), read.u8());
        let operation = OPERATIONS
            .into_iter()
            .find(|known| *known as u8 == operation)
            .ok_or(Wrong::Operation(operation))?;
        let status = STATUSES.get(usize::from(status)).copied().ok_or(Wrong::Status(status))?;
        let (flags, key_id, tag) = (read.u16(), read.u16(), read.u64());
        let (ring, view, group) = (read.u32(), read.u32(), read.u16());
        let (room, length) = (read.u8(), read.u8());
        let room = [Room::None, Room::Small, Room::Medium, Room::Large]
            .get(usize::from(room))
            .copied()
            .ok_or(Wrong::Room(room))?;
        let (number, client) = (read.u32(), read.u64());
        let (version, operand, key) = (read.u64(), read.u64(), Key(read.array()));
        let hops = usize::from(hops);
        if hops > CHAIN_MAX {
            return Err(Wrong::Chain(hops));
        }
        let mut chain: Vec<Ipv4Addr> = (0..CHAIN_MAX).map(|_| read.u32().into()).collect();
        chain.truncate(hops);
        let mut message = Message {
            operation,
            status,
            flags,
            key_id,
            tag,
            ring,
            view,
            group,
            client,
            number,
            version,
            operand,
            key,
            chain,
            records: Default::default(),
            room,
            value: None,
        };
        if bytes.len() != message.bytes() {
            return Err(Wrong::Length(bytes.len()));
        }
        if has_records(operation) {
            for record in &mut message.records {
                let (client, number) = (read.u64(), read.u32());
                *record = Record { client, number, status: read.u8(), version: read.u64() };
            }
        }
        if length != NO_VALUE {
            let length = usize::from(length);
            // A reply without room still says how long the value is.
            let shown = if status == Status::NoRoom { length.min(room.bytes()) } else { length };
            if shown > room.bytes() {
                return Err(Wrong::LongValue(length));
            }
            message.value = Some(read.bytes(shown).to_vec());
        }
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> impl Strategy<Value = Message> {
        let fixed = (0usize..OPERATIONS.len(), 0usize..STATUSES.len(), any::<[u16; 3]>());
        let numbers = (any::<[u32; 3]>(), any::<[u64; 4]>(), any::<[u8; 16]>());
        let record = (any::<u64>(), any::<u32>(), any::<u8>(), any::<u64>());
        let rest = (
            prop::collection::vec(any::<u32>(), 0..=CHAIN_MAX),
            prop::array::uniform4(record),
            prop::option::of(prop::collection::vec(any::<u8>(), 0..=VALUE_MAX)),
        );
        (fixed, numbers, rest).prop_map(|(fixed, numbers, (chain, records, value))| {
            let operation = OPERATIONS[fixed.0];
            let records = if !has_records(operation) {
                Default::default()
            } else {
                records.map(|(client, number, status, version)| Record {
                    client,
                    number,
                    status,
                    version,
                })
            };
            Message {
                operation,
                status: STATUSES[fixed.1],
                flags: fixed.2[0],
                key_id: fixed.2[1],
                group: fixed.2[2],
                ring: numbers.0[0],
                view: numbers.0[1],
                number: numbers.0[2],
                tag: numbers.1[0],
                client: numbers.1[1],
                version: numbers.1[2],
                operand: numbers.1[3],
                key: Key(numbers.2),
                chain: chain.into_iter().map(Ipv4Addr::from).collect(),
                records,
                room: Room::of(value.as_ref().map_or(0, Vec::len)).unwrap(),
                value,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            let bytes = message.encode().unwrap();
            prop_assert_eq!(bytes.len(), message.bytes());
            prop_assert_eq!(Message::decode(&bytes).unwrap(), message);
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Message::decode(&bytes);
        }
    }

    /// The table of fields in design.md.
    #[test]
    fn fields_are_where_the_page_says() {
        let bytes = Message {
            operation: Operation::CompareOwner,
            status: Status::Refused,
            flags: 0x0102,
            key_id: 0x0304,
            tag: 0x0506_0708_090a_0b0c,
            ring: 0x0d0e_0f10,
            view: 0x1112_1314,
            group: 0x1516,
            number: 0x1718_191a,
            client: 0x1b1c_1d1e_1f20_2122,
            version: 0x2324_2526_2728_292a,
            operand: 0x2b2c_2d2e_2f30_3132,
            key: Key([0x33; 16]),
            chain: vec![[0x34; 4].into(), [0x35; 4].into()],
            records: [Record { client: 0x36, number: 0x37, status: 0x38, version: 0x39 }; 4],
            room: Room::Small,
            value: Some(vec![0x3a; 3]),
        }
        .encode()
        .unwrap();
        assert_eq!(bytes[..4], [1, 5, 3, 2]);
        let ascending: Vec<u8> = (1..=0x16).collect();
        assert_eq!(bytes[4..26], ascending);
        assert_eq!(bytes[TAG_OFFSET..TAG_OFFSET + 8], ascending[4..12]);
        assert_eq!(bytes[26..28], [1, 3]);
        let ascending: Vec<u8> = (0x17..=0x32).collect();
        assert_eq!(bytes[28..56], ascending);
        assert_eq!(bytes[56..72], [0x33; 16]);
        assert_eq!(bytes[72..88], [[0x34; 4], [0x35; 4], [0; 4], [0; 4]].concat());
        assert_eq!(
            (bytes[88 + 7], bytes[88 + 11], bytes[88 + 12], bytes[88 + 20]),
            (0x36, 0x37, 0x38, 0x39)
        );
        assert_eq!(bytes[88 + 84..], [&[0x3a; 3][..], &[0; 13]].concat());
    }

    #[test]
    fn another_format_is_named_whatever_its_length() {
        assert_eq!(Message::decode(&[2, 1]), Err(Wrong::Format(2)));
        assert_eq!(Message::decode(&[1, 1]), Err(Wrong::Length(2)));
    }

    #[test]
    fn a_long_name_is_no_key() {
        assert_eq!(Key::from_name("seventeen-letters"), Err(Wrong::LongName(17)));
        assert_eq!(Key::from_name("foo").unwrap().0[..4], *b"foo\0");
    }
}
