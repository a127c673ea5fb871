//! SwiSh's messages and maps, byte by byte.
//!
//! It owns: bytes (systems/swish/README.md). It must not know: sockets, clocks, rules.

#![forbid(unsafe_code)]

pub mod base;
pub mod bulk;
pub mod control;
pub mod eventual;
pub mod exclusion;
#[cfg(feature = "for-tests")]
pub mod for_tests;
pub mod layouts;
pub mod lww;
pub mod memory;
pub mod message;
pub mod objects;
pub mod strong;
pub mod tag;

pub use message::Message;

/// The UDP port of switches.
pub const PORT: u16 = 5411;

/// In packet tests and interpreters, a switch that shares with nobody begins a window after so many
/// microseconds.
pub const TEST_PERIOD_US: u64 = 1000;
