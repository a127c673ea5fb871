//! Why bytes are not a message, and why a struct cannot become bytes.

use thiserror::Error;

/// Why a received datagram is not a message of this protocol. Each reason has its own counter in a
/// server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Malformed {
    /// Shorter than the fixed header.
    #[error("shorter than its header")]
    TooShort,
    /// Does not begin with `0x5350`.
    #[error("wrong magic number")]
    Magic,
    /// Another protocol version.
    #[error("unsupported protocol version")]
    Version,
    /// No such message type.
    #[error("unknown message type")]
    Type,
    /// `key_bytes` is 0 or above 64, or not 0 where no key belongs.
    #[error("key length out of range")]
    KeyLength,
    /// `value_bytes` is above 64.
    #[error("value length out of range")]
    ValueLength,
    /// `packet_bytes` is above the limit.
    #[error("packet length out of range")]
    PacketLength,
    /// The header's lengths do not add up to the datagram's.
    #[error("lengths do not add up to the datagram's")]
    LengthMismatch,
    /// A value where the message type carries none.
    #[error("a value in a message that carries none")]
    UnexpectedValue,
    /// A packet where the message type carries none.
    #[error("a packet in a message that carries none")]
    UnexpectedPacket,
    /// No value where the message type must carry one.
    #[error("no value in a message that must carry one")]
    MissingValue,
    /// A chain entry with an unknown effect, or whose lengths do not add up.
    #[error("chain entry with an unknown effect or wrong lengths")]
    ChainEntry,
    /// A control message whose JSON is none, or not what its type carries.
    #[error("the JSON does not fit the message's type")]
    Json,
    /// Records of a batch that do not add up to its count and length, or whose last group does not
    /// end.
    #[error("the records do not add up to the batch's count and length")]
    Records,
}

impl Malformed {
    /// Every reason, in a fixed order.
    pub const ALL: [Malformed; 14] = [
        Malformed::TooShort,
        Malformed::Magic,
        Malformed::Version,
        Malformed::Type,
        Malformed::KeyLength,
        Malformed::ValueLength,
        Malformed::PacketLength,
        Malformed::LengthMismatch,
        Malformed::UnexpectedValue,
        Malformed::UnexpectedPacket,
        Malformed::MissingValue,
        Malformed::ChainEntry,
        Malformed::Json,
        Malformed::Records,
    ];

    /// The reason's name in metrics: lower case with underscores.
    pub fn label(self) -> &'static str {
        match self {
            Malformed::TooShort => "too_short",
            Malformed::Magic => "magic",
            Malformed::Version => "version",
            Malformed::Type => "type",
            Malformed::KeyLength => "key_length",
            Malformed::ValueLength => "value_length",
            Malformed::PacketLength => "packet_length",
            Malformed::LengthMismatch => "length_mismatch",
            Malformed::UnexpectedValue => "unexpected_value",
            Malformed::UnexpectedPacket => "unexpected_packet",
            Malformed::MissingValue => "missing_value",
            Malformed::ChainEntry => "chain_entry",
            Malformed::Json => "json",
            Malformed::Records => "records",
        }
    }
}

/// Why a struct could not be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The caller's buffer is shorter than the message.
    #[error("buffer too small for the message")]
    BufferTooSmall,
    /// Key, value, packet, effect or reply is longer than the protocol's limit.
    #[error("a field is longer than the protocol allows")]
    FieldTooLong,
    /// A key or value that a record must have has no bytes.
    #[error("a key or value without bytes")]
    FieldEmpty,
}
