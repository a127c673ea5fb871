//! Counters, replicated by a chain in a simulated world.
#![allow(dead_code)] // each test uses its part

mod checks;
mod counters;
mod server;
pub mod world;

pub use checks::Checks;
pub use counters::{Change, Counters};
pub use server::Server;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
