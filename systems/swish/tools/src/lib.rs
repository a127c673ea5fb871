//! SwiSh in the tools: what `systems/registry` hands to them.
//!
//! It owns: windows of shared variables in packet tests; its messages in a trace. It must not know:
//! when a window turns.

#![forbid(unsafe_code)]

mod messages;
mod packet_test;

/// What the registry lists.
pub struct SwiSh;

impl command_line::System for SwiSh {}

/// It has none of its own yet.
impl fuzz_door::Campaigns for SwiSh {}
