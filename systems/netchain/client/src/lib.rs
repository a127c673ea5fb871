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
//! [`core`] decides what to send and when, without sockets and clocks; [`Client`] gives it a UDP
//! socket.

#![forbid(unsafe_code)]

mod client;
mod config;
pub mod core;
mod outcome;

pub use client::{Client, Failed};
pub use config::{Config, read_ring};
pub use netchain_protocol::{Founding, Key, Member, Operation, Report, Ring, Status};
pub use outcome::{Done, Failure, NotBegun, Outcome, Refused, Shown};
