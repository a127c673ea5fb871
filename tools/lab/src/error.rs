//! What can go wrong in a lab, worded for the person who has to put it right.

use std::path::{Path, PathBuf};

/// Result of a lab operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a lab operation; its text says what failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field of a topology file has no usable value.
    #[error("{}: {field}: {reason}", file.display())]
    Topology {
        /// The topology file.
        file: PathBuf,
        /// Path of the field in the file, such as `link[2].a.address`.
        field: String,
        /// Why the value is not usable, and what would be.
        reason: String,
    },
    /// A topology file is not TOML or has a field of the wrong type.
    #[error("{}: {message}", file.display())]
    Syntax {
        /// The topology file.
        file: PathBuf,
        /// The TOML parser's message with line, column and source line.
        message: String,
    },
    /// The process may not make network namespaces.
    #[error(
        "making network namespaces needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN): run it again with sudo"
    )]
    NotRoot,
    /// A program that the lab calls is not installed.
    #[error("{program} is not installed: apt-get install {package}")]
    Missing {
        /// The program looked for in PATH.
        program: String,
        /// The Debian package that has it.
        package: String,
    },
    /// A command that the lab ran failed.
    #[error("{command}: {reason}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status and what it printed on standard error.
        reason: String,
    },
    /// A daemon has ended that should run.
    #[error("ended")]
    Exited,
    /// Something is wrong with a daemon.
    #[error("{at}: {what}; the end of its log:\n  {log}")]
    Daemon {
        /// What is wrong.
        what: String,
        /// Node and daemon.
        at: String,
        /// The last lines that it printed.
        log: String,
    },
    /// A network namespace could not be made, entered or set up.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// A file or directory could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done, to which object.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// No lab of that name, or none at all.
    #[error("{0}")]
    NoLab(String),
    /// The lab has no such node, link or daemon.
    #[error("lab {lab}: no {kind} \"{name}\"; it has {known}")]
    Unknown {
        /// The lab's name.
        lab: String,
        /// `node`, `link`, `daemon`, `mode` or `variable`.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is, comma-separated.
        known: String,
    },
    /// Something did not come up in time.
    #[error("{what} within {seconds} s{}{hint}", if hint.is_empty() { "" } else { "; " })]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long, in seconds.
        seconds: u64,
        /// Where to look; may be empty.
        hint: String,
    },
    /// A lab did not come up, and its logs were kept.
    #[error("{error}\nthe logs and configurations of its nodes are in {}", logs.display())]
    Up {
        /// What failed.
        error: Box<Error>,
        /// The folder with one folder for each node.
        logs: PathBuf,
    },
    /// A signal asked the process to stop.
    #[error("interrupted")]
    Interrupted,
    /// A run in the lab cannot go on: a measurement did not come about, or a condition does not
    /// hold.
    #[error("{0}")]
    Run(String),
}

impl Error {
    /// Wraps an I/O error with the path it is about.
    pub fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |source| Self::Io { path, source }
    }

    /// Wraps a system call's error with what was being done.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
