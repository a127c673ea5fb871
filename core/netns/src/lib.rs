//! Network namespaces: making them, entering them, and what runs in them.
//!
//! A namespace of a thread ([`inside_new`], [`unshare_thread`]) has no name, and the kernel removes
//! it with the thread. A named one ([`Netns`], [`Owned`]) is listed by `ip netns`.
//!
//! A namespace is entered by `setns(CLONE_NEWNET)` in a child before `exec`, or in a short-lived
//! thread. `ip netns exec` also remounts `/sys` in a private mount namespace, which hides bpffs;
//! this does not.

mod batch;
mod named;

pub use batch::{BatchError, ip_batch};
pub use named::{Netns, Owned, path, remove};

use nix::sched::{CloneFlags, unshare};
use std::io;
use std::path::{Path, PathBuf};

/// What went wrong with a namespace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A namespace's file could not be made, opened or removed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was being done, to which namespace.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A command that ran in a namespace failed.
    #[error("{command}: {reason}")]
    Command {
        /// The command line and its namespace.
        command: String,
        /// Its exit status, or what it printed on standard error.
        reason: String,
    },
}

impl Error {
    fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        let path = path.as_ref().to_owned();
        move |source| Error::File { path, source }
    }

    fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}

/// Moves the calling thread to a network namespace of its own; the kernel removes the namespace
/// with the thread and the thread's children.
///
/// # Errors
/// The process may not make one.
pub fn unshare_thread() -> Result<(), Error> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
        Error::system("making a network namespace, which needs root")(error.into())
    })
}

/// Calls `body` in a fresh network namespace, on a thread of its own. BPF_PROG_RUN and writes to
/// device maps take their network from the calling thread, so all of that belongs into `body`.
///
/// # Errors
/// The process may not make a namespace. A panic of `body` goes on in the caller.
pub fn inside_new<T: Send>(body: impl FnOnce() -> T + Send) -> Result<T, Error> {
    on_thread(|| {
        unshare_thread()?;
        Ok(body())
    })
}

/// Has the calling thread's namespace forward packets. Called before there are links, which inherit
/// it: so `lo` forwards too, where test packets come from.
///
/// # Errors
/// The setting cannot be written.
pub fn forward() -> Result<(), Error> {
    for (path, needed) in
        [("/proc/sys/net/ipv4/ip_forward", true), ("/proc/sys/net/ipv6/conf/all/forwarding", false)]
    {
        if needed || Path::new(path).exists() {
            std::fs::write(path, "1").map_err(Error::file(path))?;
        }
    }
    Ok(())
}

/// Calls `body` on a thread of its own, so that what it enters is nobody else's.
fn on_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(body).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
