//! RedPlane in the tools: what `systems/registry` hands to them.
//!
//! It owns: how RedPlane's messages read in a trace; the setup lines of packet tests for its
//! objects, and the store behind them. It must not know: the protocol's rules.

#![forbid(unsafe_code)]

mod messages;
mod packet_test;

/// What the registry lists.
pub struct RedPlane;
