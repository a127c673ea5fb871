//! Random and mutated inputs for every door: programs for the compiler, frames and state messages
//! for the compiled NAT.
//!
//! It owns: generators, mutations, the oracles that say what must come out, and shrinking. It must
//! not know: how the compiler or the emitted code work inside; the oracles follow
//! systems/redplane/p4/nat/nat.p4's comments, systems/redplane/docs/state-protocol.md and the RFCs,
//! and for generated programs compiler/p4-interpreter.
//!
//! Every run prints its seed and is repeated by it.

#![forbid(unsafe_code)]

pub mod campaign;
mod checksum;
pub mod differential;
pub mod entries;
pub mod generate;
pub mod mutate;
pub mod nat;
mod network;
pub mod programs;
pub mod rig;
mod shrink;

use std::time::{SystemTime, UNIX_EPOCH};

/// A seed that no run had before.
pub fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64)
}

/// Bytes as one hexadecimal number, as STF files write packets.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
