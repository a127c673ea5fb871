//! The state protocol on the wire: how a switch talks to the state store, and how the store's servers talk to each other.
//!
//! This crate owns the byte layouts of `systems/redplane/docs/state-protocol.md` and every way in which bytes can fail to follow them. It knows no
//! sockets, clocks or state: `&[u8]` in, borrowed structs out, and back, without allocation. `KeyRing` makes and checks the tags.

mod bytes;
mod chain;
mod control;
mod effect;
mod keys;
mod malformed;
mod message;
mod shard;
mod siphash;
mod snapshot;
mod status;

pub use chain::{CHAIN_HEADER_BYTES, ChainFlags, ChainHeader, ChainType, ENTRY_HEADER_BYTES, Entries, Entry, Handover};
pub use control::{
    Control, ControlType, Joining, MAX_CONTROL_BYTES, MOST_MACHINE_BYTES, Member, Report, Reporter, ShardReport,
    ShardView, SwitchLoad, Views,
};
pub use effect::{Effect, RecordWrite};
pub use keys::{KeyRing, MOST_SECRETS, NotGenuine, SECRET_BYTES, Secret, tag_of};
pub use malformed::{EncodeError, Malformed};
pub use message::{Flags, Message, MessageType, Owner};
pub use shard::{MOST_SHARDS, client_shard_of, key_hash, shard_of};
pub use snapshot::{MOST_SNAPSHOT_PARTS, SNAPSHOT_PART_BYTES, SNAPSHOT_VALUE_BYTES, SnapshotPart, snapshot_parts};
pub use status::json_that_fits;

/// UDP port of the state store and of switches.
pub const PORT: u16 = 5407;
/// UDP port of controllers.
pub const CONTROLLER_PORT: u16 = 5408;
/// First two bytes of every message: "SP".
pub const MAGIC: u16 = 0x5350;
/// The only protocol version there is.
pub const VERSION: u8 = 2;
/// Bytes of the fixed header of every message.
pub const HEADER_BYTES: usize = 64;
/// Longest key in bytes; the shortest is one byte.
pub const MAX_KEY_BYTES: usize = 64;
/// Longest value in bytes.
pub const MAX_VALUE_BYTES: usize = 64;
/// Longest piggybacked packet in bytes: any Ethernet jumbo frame, with room for the chain's own header in one UDP datagram.
pub const MAX_PACKET_BYTES: usize = 16_384;
/// Longest message in bytes.
pub const MAX_MESSAGE_BYTES: usize = HEADER_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES + MAX_PACKET_BYTES;

/// What a datagram is, by its first four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Between a switch (or a status tool) and the store.
    Message(MessageType),
    /// Between two servers of a chain.
    Chain(ChainType),
    /// To or from a controller.
    Control(ControlType),
}

/// Reads the magic, version and type that every message begins with.
pub fn kind(datagram: &[u8]) -> Result<Kind, Malformed> {
    let mut reader = bytes::Reader::new(datagram);
    if reader.u16().ok_or(Malformed::TooShort)? != MAGIC {
        return Err(Malformed::Magic);
    }
    if reader.u8().ok_or(Malformed::TooShort)? != VERSION {
        return Err(Malformed::Version);
    }
    let number = reader.u8().ok_or(Malformed::TooShort)?;
    MessageType::from_number(number)
        .map(Kind::Message)
        .or_else(|| ChainType::from_number(number).map(Kind::Chain))
        .or_else(|| ControlType::from_number(number).map(Kind::Control))
        .ok_or(Malformed::Type)
}
