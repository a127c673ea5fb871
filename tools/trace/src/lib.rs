//! What the state protocol's messages in a capture say: `systems/redplane/docs/state-protocol.md`
//! made readable.
//!
//! [`decode`] makes an [`Event`] of a datagram, [`Objects`] name keys and values by the program's
//! manifest, [`Filter`] chooses, [`Columns`] writes lines, [`Summary`] counts and finds what was
//! sent again. Datagrams are hostile input: whatever is not a message becomes an event that says
//! why. This crate reads no sockets and changes nothing.

mod event;
mod filter;
mod objects;
mod packet;
mod summary;
mod text;

pub use event::{Body, ChainBody, Event, Field, MessageBody, Tag, decode};
pub use filter::{Fault, Filter, type_named};
pub use objects::Objects;
pub use summary::{Repeat, Summary};
pub use text::Columns;

/// The UDP ports whose datagrams are looked at.
pub const PORTS: [u16; 2] = [wire::PORT, wire::CONTROLLER_PORT];
