//! What the tests with forged messages are made of.

pub mod fabric;
pub mod messages;

/// The port of stores and switches.
pub const PORT: u16 = 5407;
