//! What the platform's C headers and this crate share: structs in maps, numbers, counters. Each is
//! defined here once, and C's headers are made of it (`c_layout`).

pub mod core;
pub mod net;
