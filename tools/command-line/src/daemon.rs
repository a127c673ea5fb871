//! What the commands that run daemons have in common: logs, and the question how one is.

use crate::outln;
use secrets::SecretsFile;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::io::IsTerminal;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Logs to standard error; `RUST_LOG` says how much.
pub fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let color = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(color);
    // Someone else's logger, if there is one, will do.
    let _ = log.with_target(false).try_init();
}

/// Whether a controller could write its database, a file: what `--check` asks.
///
/// # Errors
/// The configuration that names it, why not, and what to do.
pub fn can_keep_database(config: &Path, database: &Path) -> Result<(), String> {
    let folder = database.parent().unwrap_or(Path::new("/"));
    can_write(folder, false).map_err(|reason| format!("{}: database: {reason}", config.display()))
}

/// Whether a daemon could write into a directory, or (`made`: it makes it itself) make it: what
/// `--check` asks. As the user that runs this.
///
/// # Errors
/// Why not, and what to do.
pub fn can_write(directory: &Path, made: bool) -> Result<(), String> {
    let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let there =
        here.ancestors().find(|path| path.as_os_str().is_empty() || path.exists()).unwrap_or(here);
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    if there != here && !made {
        return Err(format!(
            "there is no directory {}; make it for the daemon's user",
            here.display()
        ));
    }
    if !there.is_dir() {
        return Err(format!("{} is not a directory; name another path", there.display()));
    }
    nix::unistd::access(there, nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK)
        .map_err(|error| {
            format!(
                "cannot write in {} ({}); it must belong to the daemon's user",
                there.display(),
                error.desc()
            )
        })
}

/// Whom `status` asks, and how.
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    /// Its address.
    #[arg(long, value_name = "IP:PORT")]
    pub address: SocketAddrV4,
    /// The fabric's shared secrets (`stateplane keys`); the daemon answers only with them.
    #[arg(long, value_name = "FILE")]
    secrets: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// How long to wait for an answer.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout_ms: u64,
}

impl StatusArgs {
    /// Asks, and prints the answer: as JSON, or by `print`.
    ///
    /// # Errors
    /// There is no answer, or there are no secrets.
    pub fn ask<S: DeserializeOwned + Serialize>(
        &self,
        print: impl Fn(&S),
    ) -> Result<S, Box<dyn Error>> {
        let secrets = SecretsFile::load(&self.secrets)?;
        let status: S = ::daemon::ask::query(
            self.address,
            secrets.ring(),
            Duration::from_millis(self.timeout_ms),
        )?;
        if self.json {
            outln!("{}", crate::json(&status));
        } else {
            print(&status);
        }
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::can_write;
    use std::path::Path;

    #[test]
    fn directories_that_cannot_be_written_are_told() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("file");
        let deep = folder.path().join("a/b/c");
        assert_eq!((can_write(folder.path(), false), can_write(&deep, true)), (Ok(()), Ok(())));
        assert!(
            can_write(&deep, false).is_err_and(|error| error.contains("there is no directory"))
        );
        for path in [&file, &file.join("wal")] {
            assert!(
                can_write(path, true).is_err_and(|error| error.contains("is not a directory")),
                "{}",
                path.display()
            );
        }
        assert_eq!(can_write(Path::new(""), false), can_write(Path::new("."), false));
    }
}
