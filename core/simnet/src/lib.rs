//! The ground of every simulation: virtual time, a faulty network, clocks, disks, and one
//! vocabulary of faults. README.md has the parts.
//!
//! Times are nanoseconds of virtual time. Whatever is drawn follows from a seed.

#![forbid(unsafe_code)]

mod chart;
mod clock;
mod disk;
mod events;
mod fault;
mod network;
mod shrink;

pub use chart::Chart;
pub use clock::Clock;
pub use disk::Disk;
pub use events::Events;
pub use fault::{Cut, Direction, Fault, swarm};
pub use network::{Arrivals, Conditions, Links, Network, Treatment};
pub use shrink::shorten;
