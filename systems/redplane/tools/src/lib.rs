//! RedPlane in the tools: what `systems/registry` hands to them.
//!
//! It owns: RedPlane's commands, and what `status` and `state` show of it; its messages in a trace;
//! the setup lines of packet tests for its objects, and the store behind them; what fuzzers feed
//! bytes to. It must not know: the protocol's rules.

#![forbid(unsafe_code)]

mod batches;
mod commands;
mod doors;
mod messages;
mod packet_test;

pub use doors::{OBJECTS, SHARDS};

/// What the registry lists.
pub struct RedPlane;
