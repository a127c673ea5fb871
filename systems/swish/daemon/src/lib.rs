//! The controller of shared variables as a process: its rules (`swish-controller`) in the
//! platform's shell (`controller::shell`).
//!
//! It owns: the configuration file, what tools are answered, metrics. It must not know: how
//! decisions are made, sockets, databases.

#![forbid(unsafe_code)]

mod config;
mod metrics;
mod rules;
mod status;

pub use config::Config;
pub use status::{GroupStatus, Status, SwitchStatus};

use controller::shell::{RunError, serve};

/// Runs a controller until SIGTERM or SIGINT: see [`controller::shell::serve`].
///
/// # Errors
/// As [`controller::shell::serve`].
pub fn run(config: &Config) -> Result<(), RunError> {
    serve(&config.shell, |kept, leading, now_ns| {
        rules::Switches::new(config.clone(), kept, leading, now_ns)
    })
}
