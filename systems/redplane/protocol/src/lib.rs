//! RedPlane's messages on the wire: how a switch talks to the state store, and what the entries of
//! a chain do.
//!
//! This crate owns the byte layouts of `systems/redplane/docs/state-protocol.md` that are
//! RedPlane's own, what is in RedPlane's maps, and the types of its objects in a manifest; `wire`
//! owns the layouts of any system. It knows no sockets, clocks or state: messages are `&[u8]` in,
//! borrowed structs out, and back, without allocation.

mod batch;
mod client_shard;
mod definitions;
mod effect;
pub mod layouts;
mod message;
pub mod objects;
mod snapshot;

pub use batch::{phase_of, record_flags_of, sender_of};
pub use client_shard::client_shard_of;
pub use definitions::{COUNTED, COUNTERS, header as numbers_header};
pub use effect::{BatchWrite, Effect, Entries, Entry, RecordWrite};
pub use message::{Flags, Message, MessageType, Owner};
pub use snapshot::{
    MOST_SNAPSHOT_KEY_BYTES, MOST_SNAPSHOT_PARTS, SNAPSHOT_PART_BYTES, SNAPSHOT_VALUE_BYTES,
    SnapshotPart, snapshot_parts,
};

use wire::{BatchType, ChainType, ControlType, HEADER_BYTES, MAX_PACKET_BYTES, Malformed};

/// Longest key in bytes; the shortest is one byte.
pub const MAX_KEY_BYTES: usize = 256;
/// Longest value in bytes.
pub const MAX_VALUE_BYTES: usize = 256;
/// Longest message in bytes.
pub const MAX_MESSAGE_BYTES: usize =
    HEADER_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES + MAX_PACKET_BYTES;

/// What a datagram is, by its first four bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Between a switch (or a status tool) and the store.
    Message(MessageType),
    /// Between two servers of a chain.
    Chain(ChainType),
    /// Records that a switch waits for, or their acknowledgement.
    Batch(BatchType),
    /// To or from a controller.
    Control(ControlType),
}

/// Reads the magic, version and type that every message begins with.
pub fn kind(datagram: &[u8]) -> Result<Kind, Malformed> {
    let number = match wire::kind(datagram)? {
        wire::Kind::Chain(chain_type) => return Ok(Kind::Chain(chain_type)),
        wire::Kind::Control(control_type) => return Ok(Kind::Control(control_type)),
        wire::Kind::Batch(batch_type) => return Ok(Kind::Batch(batch_type)),
        wire::Kind::Tool(tool_type) => tool_type as u8,
        wire::Kind::System(number) => number,
    };
    MessageType::from_number(number).map(Kind::Message).ok_or(Malformed::Type)
}
