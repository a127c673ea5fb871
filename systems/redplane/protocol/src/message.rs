//! Messages between a switch and the store: `systems/redplane/docs/state-protocol.md`, "Header" and
//! "Messages".

use crate::layouts::MessageHeader;
use crate::{Kind, MAX_KEY_BYTES, MAX_VALUE_BYTES, kind};
use c_layout::{Be16, Be32, Be64, Member};
use wire::{
    EncodeError, HEADER_BYTES, MAGIC, MAX_PACKET_BYTES, Malformed, Reader, ToolType, VERSION,
    Writer,
};

macro_rules! message_types {
    ($($(#[doc = $help:literal])+ $name:ident = $number:expr, [$($part:ident)*];)*) => {
        /// Type of a message between switch (or status tool) and store; the number is the wire's.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum MessageType {
            $($(#[doc = $help])+ $name = $number,)*
        }

        impl MessageType {
            /// Every type, in the order of their numbers.
            pub const ALL: &[MessageType] = &[$(MessageType::$name),*];

            /// Its name in the code.
            pub fn name(self) -> &'static str {
                match self {
                    $(MessageType::$name => stringify!($name),)*
                }
            }

            fn carries(self, part: Part) -> bool {
                match self {
                    $(MessageType::$name => [$(Part::$part),*].contains(&part),)*
                }
            }

            pub(crate) fn from_number(number: u8) -> Option<MessageType> {
                match number {
                    $(of if of == MessageType::$name as u8 => Some(MessageType::$name),)*
                    _ => None,
                }
            }
        }
    };
}

/// What a message may have behind its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Key,
    Value,
    /// Or what stands in its place.
    Packet,
}

message_types! {
    /// "I need this flow's state."
    LeaseRequest = 1, [Key Packet];
    /// "Record this, then give me the packet back."
    Update = 3, [Key Value Packet];
    /// The output depends on an update not yet acknowledged.
    ReadCommit = 4, [Key Packet];
    /// Prolongs the session with the shard, and so the leases of all its flows.
    Heartbeat = 5, [];
    /// "This flow is no longer mine; this is its newest state."
    Release = 6, [Key Value];
    /// Part of a snapshot; the slots are in the place of the packet.
    Snapshot = 7, [Key Packet];
    /// The switch owns the flow.
    LeaseGrant = 65, [Key Value Packet];
    /// No such state.
    Absent = 66, [Key Packet];
    /// Everything up to `seq` is on all servers.
    UpdateAck = 67, [Key Packet];
    /// The sender is not the owner, or its epoch not the current one.
    Refused = 68, [Key];
    /// The answer to a heartbeat.
    HeartbeatAck = 69, [];
    /// Another switch has packets of this flow: release it.
    Recall = 70, [Key];
    /// The release is on all servers.
    ReleaseAck = 71, [Key];
    /// The part of the snapshot is on all servers.
    SnapshotAck = 72, [Key Value];
    /// Part of the newest whole snapshot; the slots are in the place of the packet.
    SnapshotState = 73, [Key Packet];
    /// A status tool asks how a store server is.
    StatusRequest = ToolType::StatusRequest as u8, [];
    /// The answer: JSON in the place of the packet.
    StatusReply = ToolType::StatusReply as u8, [Packet];
    /// A tool asks what a store server has; the question is JSON in the place of the packet.
    StateRequest = ToolType::StateRequest as u8, [Packet];
    /// The answer: JSON in the place of the packet.
    StateReply = ToolType::StateReply as u8, [Packet];
}

/// Numbers from here on are replies.
pub(crate) const FIRST_REPLY: u8 = 64;
/// Numbers from here on are the tools': no switch has to do with them.
pub(crate) const FIRST_OF_TOOLS: u8 = 100;

impl MessageType {
    /// Whether switches (and status tools) send it to the store, and not the other way.
    pub fn is_request(self) -> bool {
        (self as u8) < FIRST_REPLY
            || matches!(self, MessageType::StatusRequest | MessageType::StateRequest)
    }

    /// Whether the store answers a switch with it.
    pub(crate) fn is_reply(self) -> bool {
        !self.is_request() && (self as u8) < FIRST_OF_TOOLS
    }

    pub(crate) fn carries_key(self) -> bool {
        self.carries(Part::Key)
    }

    pub(crate) fn carries_value(self, flags: Flags) -> bool {
        // A switch that does not have the flow releases it without a value.
        self.carries(Part::Value)
            && !(self == MessageType::Release && flags.contains(Flags::UNKNOWN))
    }

    pub(crate) fn carries_packet(self) -> bool {
        self.carries(Part::Packet)
    }
}

/// The header's `flags`. Bits without a meaning are ignored when received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u16);

macro_rules! flags {
    ($($(#[doc = $help:literal])+ $name:ident = $bit:literal,)*) => {
        impl Flags {
            $($(#[doc = $help])+ pub const $name: Flags = Flags($bit);)*

            /// Each flag and its name.
            pub const ALL: &[(&str, Flags)] = &[$((stringify!($name), Flags::$name)),*];
        }
    };
}

flags! {
    /// `LEASE_REQUEST`: create the state when there is none.
    ALLOCATE = 1,
    /// `ABSENT`: the allocator (or the store's memory) is full.
    EXHAUSTED = 2,
    /// `UPDATE`, `RELEASE`: one side of the connection has said goodbye.
    HALF_CLOSED = 4,
    /// `UPDATE`, `RELEASE`: the connection is over.
    CLOSED = 8,
    /// `RELEASE`: the switch has no such entry, so there is no value.
    UNKNOWN = 16,
    /// `RECALL`: only of a flow that the switch does not have; one that has it keeps it, and says
    /// so by a `READ_COMMIT`.
    PROBE = 32,
    /// `LEASE_REQUEST`: of a binding that is created for it, grant the reverse record too.
    /// `LEASE_GRANT`: of that record; it answers no request of its own.
    REVERSE = 64,
    /// `UPDATE`, `RELEASE`: the connection was asked for, and not answered yet. `LEASE_GRANT`: so
    /// it is of the record that is granted.
    HALF_OPEN = 256,
}

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// `HALF_CLOSED`, `CLOSED` and `HALF_OPEN`: how far a flow's life has come.
    pub const PHASES: Flags = Flags::HALF_CLOSED.with(Flags::CLOSED).with(Flags::HALF_OPEN);

    /// Whether all bits of `other` are set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits that both have.
    pub fn and(self, other: Flags) -> Flags {
        Flags(self.0 & other.0)
    }

    /// The bits that either has.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// One life of one switch: a switch that lost its state is another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The header's `switch_id`.
    pub switch_id: u32,
    /// The header's `incarnation`.
    pub incarnation: u32,
}

/// A message between switch and store; `key`, `value` and `packet` borrow the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it asks or answers.
    pub message_type: MessageType,
    /// The FlowState object's number in the manifest.
    pub object_id: u16,
    /// `ALLOCATE`, `EXHAUSTED`, `HALF_CLOSED`, `CLOSED`, `UNKNOWN`, `PROBE`, `REVERSE`,
    /// `HALF_OPEN`.
    pub flags: Flags,
    /// Who asks; echoed in replies.
    pub sender: Owner,
    /// The switch's clock in ns when it sent the request; echoed in replies.
    pub request_ns: u64,
    /// The grant that the sender holds (requests) or the current one (replies); 0: none.
    pub epoch: u32,
    /// Per-flow sequence number.
    pub seq: u64,
    /// Replies: length of the session's lease in microseconds, counted from `request_ns`.
    /// `RELEASE`: time without a packet in milliseconds.
    pub lease_us: u32,
    /// P4 port of the piggybacked packet; echoed.
    pub port: u16,
    /// The sender's session with the shard, as it knows it (requests) or as it is (replies); 0:
    /// none.
    pub session: u32,
    /// The key's shard.
    pub shard: u16,
    /// The flow's key.
    pub key: &'a [u8],
    /// The flow's value.
    pub value: &'a [u8],
    /// A whole Ethernet frame, or empty.
    pub packet: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a whole datagram; refuses one with anything missing, left over, or out of place for
    /// its type.
    pub fn decode(datagram: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let message_type = match kind(datagram)? {
            Kind::Message(message_type) => message_type,
            Kind::Chain(_) | Kind::Batch(_) | Kind::Control(_) => return Err(Malformed::Type),
        };
        let mut reader = Reader::new(datagram);
        let message = Self::read(&mut reader, message_type).ok_or(Malformed::TooShort)??;
        message.check_carried()?;
        Ok(message)
    }

    /// `None`: too short for the header.
    fn read(
        reader: &mut Reader<'a>,
        message_type: MessageType,
    ) -> Option<Result<Message<'a>, Malformed>> {
        // Magic, version and type were read by `kind`; `KeyRing` reads the tag and its secret.
        let header = MessageHeader::read(reader.take(HEADER_BYTES)?);
        let key_bytes = usize::from(header.key_bytes.0);
        let value_bytes = usize::from(header.value_bytes.0);
        let packet_bytes = usize::from(header.packet_bytes.0);
        if key_bytes > MAX_KEY_BYTES || (key_bytes > 0) != message_type.carries_key() {
            return Some(Err(Malformed::KeyLength));
        }
        if value_bytes > MAX_VALUE_BYTES {
            return Some(Err(Malformed::ValueLength));
        }
        if packet_bytes > MAX_PACKET_BYTES {
            return Some(Err(Malformed::PacketLength));
        }
        if reader.remaining() != key_bytes + value_bytes + packet_bytes {
            return Some(Err(Malformed::LengthMismatch));
        }
        let (key, value, packet) =
            (reader.take(key_bytes)?, reader.take(value_bytes)?, reader.take(packet_bytes)?);
        Some(Ok(Message {
            message_type,
            object_id: header.object_id.0,
            flags: Flags(header.flags.0),
            sender: Owner { switch_id: header.switch_id.0, incarnation: header.incarnation.0 },
            request_ns: header.request_ns.0,
            epoch: header.epoch.0,
            seq: header.seq.0,
            lease_us: header.lease_us.0,
            port: header.port.0,
            session: header.session.0,
            shard: header.shard.0,
            key,
            value,
            packet,
        }))
    }

    /// The header, with no tag yet.
    fn header(&self) -> MessageHeader {
        // `encode_into` has checked the three lengths: they fit in 16 bits.
        let bytes = |part: &[u8]| Be16(part.len() as u16);
        MessageHeader {
            magic: Be16(MAGIC),
            version: VERSION,
            message_type: self.message_type as u8,
            object_id: Be16(self.object_id),
            flags: Be16(self.flags.0),
            switch_id: Be32(self.sender.switch_id),
            incarnation: Be32(self.sender.incarnation),
            request_ns: Be64(self.request_ns),
            epoch: Be32(self.epoch),
            key_bytes: bytes(self.key),
            value_bytes: bytes(self.value),
            seq: Be64(self.seq),
            lease_us: Be32(self.lease_us),
            port: Be16(self.port),
            packet_bytes: bytes(self.packet),
            session: Be32(self.session),
            shard: Be16(self.shard),
            ..MessageHeader::default()
        }
    }

    fn check_carried(&self) -> Result<(), Malformed> {
        let carries_value = self.message_type.carries_value(self.flags);
        if !self.value.is_empty() && !carries_value {
            return Err(Malformed::UnexpectedValue);
        }
        if self.value.is_empty() && carries_value {
            return Err(Malformed::MissingValue);
        }
        if !self.packet.is_empty() && !self.message_type.carries_packet() {
            return Err(Malformed::UnexpectedPacket);
        }
        Ok(())
    }

    /// Bytes of the encoded message.
    pub fn encoded_bytes(&self) -> usize {
        HEADER_BYTES + self.key.len() + self.value.len() + self.packet.len()
    }

    /// The name by which a switch knows a reply again. `sp_flow_reply_name` computes the same, and
    /// says why. `tag`: the datagram's.
    pub fn reply_name(&self, tag: u64) -> u64 {
        if self.packet.is_empty() || self.message_type == MessageType::SnapshotState {
            return tag;
        }
        let (object, port) = (u64::from(self.object_id) << 48, u64::from(self.port) << 32);
        let echoed = self.request_ns ^ object ^ port ^ self.packet.len() as u64;
        let seq = if self.message_type == MessageType::UpdateAck { self.seq } else { 0 };
        let name = (wire::key_hash(self.key) ^ echoed)
            .wrapping_add(seq.wrapping_mul(0xbf58_476d_1ce4_e5b9))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        name ^ name >> 32
    }

    /// Writes the message to the front of `buffer`, with no tag yet (`KeyRing::sign` writes it);
    /// returns how many bytes it takes.
    pub fn encode_into(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        if self.key.len() > MAX_KEY_BYTES
            || self.value.len() > MAX_VALUE_BYTES
            || self.packet.len() > MAX_PACKET_BYTES
        {
            return Err(EncodeError::FieldTooLong);
        }
        let (head, body) =
            buffer.split_at_mut_checked(HEADER_BYTES).ok_or(EncodeError::BufferTooSmall)?;
        self.header().write(head);
        let mut w = Writer::new(body);
        w.put(self.key)?;
        w.put(self.value)?;
        w.put(self.packet)?;
        Ok(HEADER_BYTES + w.written())
    }

    /// Appends the message to `buffer`, which is left as it was on error.
    pub fn append_to(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = buffer.len();
        buffer.resize(start + self.encoded_bytes(), 0);
        let result = self.encode_into(&mut buffer[start..]);
        if result.is_err() {
            buffer.truncate(start);
        }
        result.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use wire::{KeyRing, Secret, status_reply, tag_of};

    fn update() -> Message<'static> {
        Message {
            message_type: MessageType::Update,
            object_id: 0x0102,
            flags: Flags::ALLOCATE,
            sender: Owner { switch_id: 0x0a0b0c0d, incarnation: 0x11121314 },
            request_ns: 0x2122232425262728,
            epoch: 0x31323334,
            seq: 0x4142434445464748,
            lease_us: 0x51525354,
            port: 0x6162,
            session: 0x71727374,
            shard: 0x8182,
            key: b"key",
            value: b"va",
            packet: b"frame",
        }
    }

    /// The layout of the document, written out by hand.
    const UPDATE: &[u8] = &[
        0x53, 0x50, 2, 3, 0x01, 0x02, 0, 1, 0x0a, 0x0b, 0x0c, 0x0d, 0x11, 0x12, 0x13, 0x14, 0x21,
        0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0, 3, 0, 2, 0x41, 0x42,
        0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x51, 0x52, 0x53, 0x54, 0x61, 0x62, 0, 5, 0x71, 0x72,
        0x73, 0x74, 0x81, 0x82, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'k', b'e', b'y', b'v', b'a', b'f',
        b'r', b'a', b'm', b'e',
    ];

    #[test]
    fn layout_is_the_documents() {
        let mut bytes = Vec::new();
        update().append_to(&mut bytes).unwrap();
        assert_eq!(bytes, UPDATE);
        assert_eq!(Message::decode(UPDATE), Ok(update()));
    }

    #[test]
    fn the_tag_is_the_documents() {
        // Made by another implementation of SipHash-2-4 from the document's text.
        let mut bytes = UPDATE.to_vec();
        let ring = KeyRing::new(2, Secret(std::array::from_fn(|at| at as u8))).unwrap();
        assert!(ring.sign(&mut bytes, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 7)));
        assert_eq!(tag_of(&bytes), 0xdc462ca34cc241c1);
        assert_eq!((bytes[54], &bytes[..54], &bytes[64..]), (2, &UPDATE[..54], &UPDATE[64..]));
    }

    /// Controllers, which know no system's messages, answer with the same header.
    #[test]
    fn a_status_reply_is_a_message() {
        let request = Message {
            message_type: MessageType::StatusRequest,
            key: b"",
            value: b"",
            packet: b"",
            ..update()
        };
        let mut bytes = Vec::new();
        request.append_to(&mut bytes).unwrap();
        let json: &[u8] = br#"{"leading":true}"#;
        let reply = Message {
            message_type: MessageType::StatusReply,
            flags: Flags::NONE,
            packet: json,
            ..request
        };
        let mut expected = Vec::new();
        reply.append_to(&mut expected).unwrap();
        let mut signed = bytes.clone();
        signed[54..64].fill(0xff);
        assert_eq!(status_reply(&signed, json), Some(expected));
        assert_eq!(status_reply(&bytes, &[b' '; MAX_PACKET_BYTES + 1]), None);
        assert_eq!(status_reply(&bytes[..63], json), None);
        assert_eq!(status_reply(&[bytes.as_slice(), b"x"].concat(), json), None);
        assert_eq!(status_reply(UPDATE, json), None);
        // Tools, too, ask and read without knowing a system's messages.
        let asked = Message {
            object_id: 0,
            flags: Flags::NONE,
            sender: Owner { switch_id: 0, incarnation: 0 },
            request_ns: 0,
            epoch: 0,
            seq: 0,
            lease_us: 0,
            port: 0,
            session: 0,
            shard: 0,
            packet: json,
            message_type: MessageType::StateRequest,
            ..request
        };
        let mut as_message = Vec::new();
        asked.append_to(&mut as_message).unwrap();
        assert_eq!(wire::question(ToolType::StateRequest, json), Some(as_message));
        assert_eq!(wire::question(ToolType::StateRequest, &[0; MAX_PACKET_BYTES + 1]), None);
        let mut answer = status_reply(&bytes, json).unwrap_or_default();
        assert_eq!(wire::answer(&answer), Ok(json));
        assert_eq!(wire::answer(&bytes), Err(Malformed::Type));
        assert_eq!(wire::answer(&answer[..70]), Err(Malformed::LengthMismatch));
        answer[29] = 1;
        assert_eq!(wire::answer(&answer), Err(Malformed::LengthMismatch));
        for at in [29, 31, 47] {
            let mut longer = bytes.clone();
            longer[at] = 1;
            assert!(
                Message::decode(&longer).is_err() && status_reply(&longer, json).is_none(),
                "byte {at}"
            );
        }
    }

    #[test]
    fn every_truncation_and_extension_is_malformed() {
        for length in 0..UPDATE.len() {
            assert!(Message::decode(&UPDATE[..length]).is_err(), "{length} bytes");
        }
        let mut longer = UPDATE.to_vec();
        longer.push(0);
        assert_eq!(Message::decode(&longer), Err(Malformed::LengthMismatch));
    }

    #[test]
    fn each_field_out_of_range_has_its_reason() {
        let cases: &[(usize, u8, Malformed)] = &[
            (0, 0, Malformed::Magic),
            (2, 1, Malformed::Version),
            (3, 2, Malformed::Type),
            (3, 33, Malformed::Type),
            (28, 1, Malformed::KeyLength),
            (29, 0, Malformed::KeyLength),
            (30, 1, Malformed::ValueLength),
            (46, 0x41, Malformed::PacketLength),
            (29, 4, Malformed::LengthMismatch),
            (3, 1, Malformed::UnexpectedValue),
        ];
        for &(at, byte, reason) in cases {
            let mut bytes = UPDATE.to_vec();
            bytes[at] = byte;
            assert_eq!(Message::decode(&bytes), Err(reason), "byte {at} = {byte}");
        }
        let release = Message { message_type: MessageType::Release, packet: b"", ..update() };
        for (message, reason) in [
            (
                Message { message_type: MessageType::ReleaseAck, value: b"", ..update() },
                Malformed::UnexpectedPacket,
            ),
            (Message { value: b"", ..update() }, Malformed::MissingValue),
            (
                Message {
                    message_type: MessageType::Heartbeat,
                    value: b"",
                    packet: b"",
                    ..update()
                },
                Malformed::KeyLength,
            ),
            (Message { value: b"", ..release }, Malformed::MissingValue),
            (Message { flags: Flags::UNKNOWN, ..release }, Malformed::UnexpectedValue),
        ] {
            let mut bytes = Vec::new();
            message.append_to(&mut bytes).unwrap();
            assert_eq!(Message::decode(&bytes), Err(reason), "{message:?}");
        }
    }

    #[test]
    fn encoding_refuses_what_does_not_fit() {
        let long = [0; MAX_KEY_BYTES + 1];
        let message = Message { key: &long, ..update() };
        let mut bytes = vec![7];
        assert_eq!(message.append_to(&mut bytes), Err(EncodeError::FieldTooLong));
        assert_eq!(bytes, [7]);
        assert_eq!(update().encode_into(&mut [0; 20]), Err(EncodeError::BufferTooSmall));
    }
}
