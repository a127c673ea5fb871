//! What can keep an agent from running.

use std::path::Path;

/// An error of the agent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong: file, line, field, reason.
    #[error("{file}: {field}: {reason}")]
    Config {
        /// The configuration file, with the line if the field is in it.
        file: String,
        /// Which field.
        field: String,
        /// Why, and what would be right.
        reason: String,
    },
    /// The configuration is not TOML or has unknown or missing fields.
    #[error("{file}: {reason}")]
    Parse {
        /// The configuration file.
        file: String,
        /// With line and column.
        reason: String,
    },
    /// The data plane refused something.
    #[error("{0}")]
    Dataplane(#[from] dataplane::Error),
    /// The manifest is not usable.
    #[error("{0}")]
    Manifest(#[from] manifest::Error),
    /// A system call failed.
    #[error("{action}: {source}")]
    System {
        /// What was tried.
        action: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Another switch with this `switch_id` runs; a controller said so.
    #[error(
        "{file}: switch_id: {} is the number of {}, which runs at {} and goes on; \
         write another switch_id here, or stop that one first (`stateplane switch detach` there)",
        refusal.switch_id,
        if refusal.name.is_empty() { "another switch".to_owned() } else { format!("switch {:?}", refusal.name) },
        refusal.address.ip()
    )]
    SwitchIdTaken {
        /// The configuration file.
        file: String,
        /// Which switch has it.
        refusal: wire::Refusal,
    },
    /// Anything else, in a sentence.
    #[error("{0}")]
    Other(String),
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The exit code of a command that ends with it: 3 if another switch has the `switch_id`.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Error::SwitchIdTaken { .. }) { 3 } else { 1 }
    }

    /// An I/O error on a path.
    pub(crate) fn path(action: &str, path: &Path, source: std::io::Error) -> Error {
        Error::System { action: format!("{action} {}", path.display()), source }
    }
}
