//! RedPlane in the tools: what `systems/registry` hands to them.
//!
//! It owns: how RedPlane's messages read in a trace. It must not know: the protocol's rules.

#![forbid(unsafe_code)]

mod messages;

/// What the registry lists.
pub struct RedPlane;
