//! The chain's fast path: updates of records that are here go through the chain in XDP on the
//! stores' hosts; all else goes up to user space, which defines what a batch means.
//! `docs/output-commit.md`, "The chain's fast path".
//!
//! A shard's records lie in memory that the store and the program share, under one lock a shard.
//! The program tries the lock a few times and leaves the batch to user space if it stays held;
//! user space waits for a run to end. [`ShardMirror`] is user space's side, [`take`] says what the
//! program does, [`Program`] loads it. The crate knows no system's rules, no sockets and no clocks.

mod count;
mod layouts;
mod map;
mod member;
mod memory;
mod mirror;
mod mutation;
mod program;
mod route;

pub use count::Count;
pub use layouts::header as maps_header;
pub use member::{Verdict, take};
pub use memory::{Memory, ObjectShape, Shape};
pub use mirror::{Change, Entry, ShardMirror, Standing};
pub use mutation::Mutation;
#[cfg(feature = "mutations")]
pub use mutation::plant;
pub use program::{Link, LoadError, Mode, Program, Run};
