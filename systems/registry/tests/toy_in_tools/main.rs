//! A toy system, a counter that gossips, beside those of the registry: each seam of the tools.

mod trace_messages;

/// What a registry with the toy would list.
pub struct Toy;
