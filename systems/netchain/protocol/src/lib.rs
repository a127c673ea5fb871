//! NetChain's messages, byte by byte, and the function from keys to groups and chains, which
//! clients, controllers and tools share.
//!
//! It owns: bytes (systems/netchain/docs/design.md, "Message"), the ring. It must not know:
//! sockets, clocks, rules.

#![forbid(unsafe_code)]

pub mod control;
pub mod layouts;
pub mod message;
pub mod report;
pub mod ring;
pub mod tag;

pub use message::{Key, Message, Operation, Record, Room, Status, Wrong};
pub use report::Report;
pub use ring::{Founding, Member, Ring};
pub use tag::{ClientKey, KEYS_MAX};

/// The UDP port of switches.
pub const PORT: u16 = 5410;
/// Switches in a chain at the most: addresses that a message has room for.
pub const CHAIN_MAX: usize = 4;
/// Groups of a cluster at the most: the program's table of roles has room for them.
pub const GROUPS_MAX: u16 = 4096;
/// Switches of a cluster at the most: their numbers as peers fit into a byte.
pub const MEMBERS_MAX: usize = layouts::PEERS as usize;
/// Bytes of a value at the most.
pub const VALUE_MAX: usize = 128;
