//! The deterministic simulator: the real compiled XDP object (through BPF_PROG_RUN, with a virtual clock) and the real store core, with a
//! simulated network between them that loses, duplicates and reorders.
//!
//! It owns: virtual time, the network and its faults, the history of what went in and came out. It must not know: the protocol's rules. The same seed
//! gives the same run.

#![forbid(unsafe_code)]

mod sketch;
mod switch;
mod world;

pub(crate) use ::history;
pub use ::history::{Event, History, Violation};
pub use sketch::SketchChecker;
pub use switch::Switch;
pub use world::{Faults, World};
