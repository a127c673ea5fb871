//! The controller of the state store: who is in which shard's chain.
//!
//! `core` decides, as a state machine without IO; `config` reads `controller.toml`; `shell` gives
//! the core a socket, a clock and a database. The data path needs it only when something changes:
//! chains that are formed go on without it.

pub mod config;
pub mod core;
pub mod shell;
