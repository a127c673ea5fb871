//! A client of NetChain: `get`, `put`, `compare_and_set`, `add`, `delete` on keys that switches
//! serve.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = netchain_client::Client::open("kv.toml".as_ref())?;
//! let lock = netchain_client::Key::from_name("lock")?;
//! let done = client.insert(&lock, b"owner--1")?.done().ok_or("taken")?;
//! println!("fencing token {}", done.own.ok_or("taken again meanwhile")?);
//! # Ok(())
//! # }
//! ```
//!
//! | | requests at a time | whose thread does the IO |
//! | --- | --- | --- |
//! | [`Client`] | one | the caller's, which waits |
//! | [`Pipeline`] | up to 4096 | the caller's, in `next` or `turn` |
//! | [`AsyncClient`] (feature `tokio`) | up to 4096, from any tasks | a task's of the caller's runtime |
//!
//! [`core`] decides what to send and when, without sockets and clocks; [`engine`] does so for many
//! requests; [`Pipeline`] gives them a UDP socket, and all clients are made of it.

#![deny(unsafe_code)]

#[cfg(feature = "tokio")]
mod asynchronous;
mod client;
mod config;
pub mod core;
pub mod engine;
mod fork;
mod listing;
mod outcome;
mod pipeline;
mod request;
mod socket;

#[cfg(feature = "tokio")]
pub use asynchronous::{Asking, AsyncClient};
pub use client::Client;
pub use config::{Config, read_ring};
pub use engine::{Answer, Ticket};
#[cfg(feature = "tokio")]
pub use listing::AsyncKeys;
pub use listing::{Keys, ListFailed, Listing};
pub use netchain_protocol::message::Wrong;
pub use netchain_protocol::{Founding, Key, Member, Operation, Report, Ring, Status};
pub use outcome::{Done, Failure, NotBegun, Outcome, Page, Refused, Shown};
pub use pipeline::{Failed, Pipeline};
pub use request::Request;
pub use socket::Calls;
