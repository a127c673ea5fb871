//! Random and mutated inputs: programs for the compiler, and what the registered systems bring.
//!
//! It owns: generators, mutations, the oracles that say what must come out, and shrinking. It must
//! not know: how the compiler or the emitted code work inside, and any system; for generated
//! programs the oracle is compiler/p4-interpreter.
//!
//! Every run prints its seed and is repeated by it.

#![forbid(unsafe_code)]

pub mod differential;
mod mutate;
pub mod programs;

use std::time::{SystemTime, UNIX_EPOCH};

/// A seed that no run had before.
pub fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64)
}
