//! What the messages in a capture say.
//!
//! [`decode`] makes an [`Event`] of a datagram: what every system's messages have in common is read
//! here, the rest by the system that the type belongs to ([`Messages`]). A system with another
//! frame claims UDP ports, and reads their datagrams whole; one with further ports names them.
//! [`Objects`] name keys and values by the program's manifest, [`Filter`] chooses, [`Columns`]
//! writes lines, [`Summary`] counts and finds what was sent again. Datagrams are hostile input:
//! whatever is not a message becomes an event that says why. This crate reads no sockets and
//! changes nothing, and knows no system.

mod event;
mod filter;
mod objects;
mod packet;
mod summary;
mod system;
mod text;

pub use event::{Body, ChainBody, Event, Field, Tag, decode};
pub use filter::{Fault, Filter, type_named};
pub use objects::{Objects, hex};
pub use packet::describe;
pub use summary::{Repeat, Summary};
pub use system::{Fields, Follows, MessageBody, Messages, Systems};
pub use text::{Columns, fields};

/// The UDP ports of messages with the frame of `core/wire`; systems have further ones.
pub(crate) const PORTS: [u16; 2] = [wire::PORT, wire::CONTROLLER_PORT];
