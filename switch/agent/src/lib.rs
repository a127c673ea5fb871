//! The switch agent: runs a compiled object on a host's interfaces.
//!
//! It owns: configuration, the life of pins and links (start, take-over, replacement, end), the host's addresses, the packet generator, next hops and the
//! slow path (`gateway`), the control socket and metrics. It must not know: P4, map layouts, or the state protocol beyond the settings that the data plane needs.
//!
//! The agent may die at any time: program, tables and state are pinned, and forwarding goes on. The next agent of the same name takes them over.

mod addresses;
mod agent;
pub mod client;
pub mod config;
pub mod control;
mod durable;
mod error;
pub mod flow_state;
mod gateway;
mod generator;
mod incarnation;
mod kept_views;
pub mod load;
mod metrics;
mod run_dir;
mod start;
mod sweep;
mod views;

pub use agent::{check, detach, run};
pub use error::{Error, Result};
pub use run_dir::{RunDirectory, known, running};
pub use start::missing_interfaces;
