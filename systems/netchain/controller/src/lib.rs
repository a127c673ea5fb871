//! NetChain's controller: which switches form the chain of each group.
//!
//! It owns: who is alive, views and sessions, and what each switch is told. It must not know:
//! sockets, clocks, databases, the data plane, keys. A decision is a new [`State`]; it is sent to
//! nobody before the caller has said that it is persistent. README.md has the rules, and why they
//! lose nothing.

#![forbid(unsafe_code)]

mod collect;
mod config;
mod controller;
mod decide;
mod judge;
mod moves;
mod mutation;
mod placement;
mod state;

pub use controller::{Controller, Input, Outputs};
pub use decide::{Event, Facts};
pub use judge::Judge;
pub use mutation::Mutation;
#[cfg(feature = "mutations")]
pub use mutation::plant;
pub use netchain_protocol::control::{Config, Part, Report, Role};
pub use placement::{Placement, Walks};
pub use state::{Group, Stage, Standing, State, Switch};

/// Configuration of a controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Members of a chain that may die at once; a chain has one member more.
    pub failures: usize,
    /// A switch that most others have not heard for so long is dead.
    pub dead_ms: u64,
    /// A switch that has not reported for this time, while most others do, is out of its chains.
    pub agent_ms: u64,
    /// As long as this after its last renewal, a reader answers.
    pub lease_ms: u64,
    /// Groups that get a member at the same time.
    pub most_joins: usize,
    /// A configuration that a switch does not confirm is sent again after this time.
    pub again_ms: u64,
    /// A controller that begins waits so long for switches that others have never heard.
    pub begin_ms: u64,
    /// The tombstones of a switch's groups are collected when so many of its slots have keys, in
    /// percent; 0: only if an operator wants it.
    pub collect_percent: u8,
    /// A group whose tombstones were collected waits so long for the next time, unless an operator
    /// wants it: each time takes a session.
    pub collect_gap_ms: u64,
    /// A switch that has served for so long gets the groups for which it is a better candidate than
    /// a member; 0: only if an operator wants it.
    pub rebalance_after_ms: u64,
}
