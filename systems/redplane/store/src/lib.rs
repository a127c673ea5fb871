//! The state store: an in-memory, chain-replicated owner of flow state, leases and NAT ports.
//!
//! `core` is the protocol as a state machine without IO; `config` reads `store.toml`; `health`
//! checks backends; `shell` gives the core a UDP socket, a clock and signals.

pub mod config;
pub mod core;
pub mod health;
pub mod shell;
