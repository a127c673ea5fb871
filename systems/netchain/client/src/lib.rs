//! A client of NetChain: `get`, `put`, `compare_and_set`, `add`, `delete` on keys that switches
//! serve.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = netchain_client::Client::open("kv.toml".as_ref())?;
//! let lock = netchain_client::Key::from_name("lock")?;
//! let version = client.insert(&lock, b"owner--1")?.done().ok_or("taken")?.version;
//! println!("fencing token {version}");
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

pub use client::{Client, Failed};
pub use config::Config;
pub use core::{Outcome, Shown};
pub use netchain_protocol::{Key, Operation, Status};
