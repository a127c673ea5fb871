//! NetChain's controller as a process: its rules (`netchain-controller`) in the platform's shell
//! (`controller::shell`).
//!
//! It owns: the configuration file, the founding of the first decision, which reports are news,
//! what tools are answered, metrics. It must not know: how decisions are made, sockets, databases.

#![forbid(unsafe_code)]

mod config;
mod decision;
mod metrics;
mod orders;
mod reports;
mod rules;
mod status;

pub use config::Config;
pub use orders::{Answer, Order, Request};
pub use status::{GroupStatus, Groups, GroupsWanted, Silent, Status, SwitchStatus};

use controller::shell::{RunError, serve};

/// UDP port of controllers.
pub const CONTROLLER_PORT: u16 = 5411;

/// Runs a controller until SIGTERM or SIGINT: see [`controller::shell::serve`].
///
/// # Errors
/// As [`controller::shell::serve`].
pub fn run(config: &Config) -> Result<(), RunError> {
    serve(&config.shell, |kept, leading, now_ns| {
        rules::Switches::new(config.clone(), kept, leading, now_ns)
    })
}
