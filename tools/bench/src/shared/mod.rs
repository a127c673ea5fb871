//! Super-spreaders whose destinations are spread over four switches: found by a shared sketch, and
//! by controllers that pull sketches or are pushed changes (SwiSh §8.1); also `stateplane demo
//! shared`.
//!
//! It owns: the lab, the traffic ([`plan`], [`spread`], [`traffic`]), what an omniscient switch
//! would do ([`sketch`]), the controllers ([`control`]; of limits [`shares`]; on what RedPlane's
//! store has merged [`snapshots`]), what came of it ([`verdict`]), the demonstration ([`demo`]),
//! what packets cost meanwhile ([`live`]), as many packets as the CPUs carry ([`load`]), and a CPU
//! for a switch ([`pinned`]). It must not know: when a window turns.

pub mod cells;
pub mod control;
pub mod demo;
pub mod figure;
pub mod limiter;
pub mod live;
pub mod load;
pub mod network;
pub mod pinned;
pub mod plan;
pub mod shares;
pub mod sketch;
pub mod snapshots;
pub mod spread;
pub mod traffic;
pub mod verdict;

/// Switches of the lab.
pub const SWITCHES: usize = 4;
