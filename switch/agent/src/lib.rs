//! The switch agent: runs a compiled object on a host's interfaces.
//!
//! It owns: configuration, the life of pins and links (start, take-over, replacement, end), the
//! host's addresses, the packet generator's thread, next hops and the slow path (`gateway`), the
//! controllers' views, the control socket and metrics. It must not know: P4, map layouts, or any
//! system: those plug in ([`system`]).
//!
//! The agent may die at any time: program, tables and state are pinned, and forwarding goes on. The
//! next agent of the same name takes them over.

mod addresses;
mod admission;
mod agent;
pub mod client;
mod commit;
pub mod config;
pub mod control;
pub mod drops;
mod durable;
mod error;
mod gateway;
mod generator;
mod incarnation;
mod kept_views;
pub mod load;
mod metrics;
pub mod origin;
mod preflight;
pub mod replace;
mod run_dir;
mod start;
mod start_tables;
pub mod system;
mod views;

pub use agent::{check, detach, figures, run};
pub use commit::{Waiting, batch_words};
pub use error::{Error, Result};
pub use run_dir::{RunDirectory, known, running};
pub use system::{Context, Running, System};
