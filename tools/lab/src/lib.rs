//! The lab: a small network in Linux network namespaces, and the failover demonstration that runs
//! in it.
//!
//! Owns: topologies in TOML ([`topology`]), namespaces, links and addresses ([`build`]),
//! BIRD's configuration ([`bird`]), the processes of each node ([`process`]), failures and their
//! repair ([`instance`]), what is up and what is not ([`status`]), and the demonstration
//! ([`demo`]).
//!
//! Must not know: what a daemon does. A node's daemons, their configuration files and the commands
//! that tell when they are ready are text in the topology, so that a lab of another application is
//! another TOML file.

pub mod bird;
pub mod build;
pub mod builtin;
pub mod daemons;
pub mod demo;
pub mod error;
pub mod instance;
pub use netns;

pub mod peer;
pub mod process;
pub mod raw;
pub mod registry;
pub mod status;
pub mod template;
pub mod topology;

pub use command_line::interrupt;
pub use error::{Error, Result};
pub use instance::{Lab, Options};
pub use topology::Topology;
