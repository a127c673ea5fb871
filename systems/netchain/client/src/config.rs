//! A client's configuration file.

use netchain_protocol::Ring;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// After so long without a reply a request is sent again, in milliseconds.
const RETRY_MS: u64 = 2;
/// After so long a request's outcome is unknown.
const DEADLINE_MS: u64 = 1000;

/// What a client is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's ring.
    pub ring: Ring,
    /// After so long without a reply a request is sent again, and after twice as long once more, …
    pub retry_ms: u64,
    /// After so long a request's outcome is unknown.
    pub deadline_ms: u64,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The cluster's founding file, from this file's folder on.
    cluster: PathBuf,
    #[serde(default = "default_retry_ms")]
    retry_ms: u64,
    #[serde(default = "default_deadline_ms")]
    deadline_ms: u64,
}

fn default_retry_ms() -> u64 {
    RETRY_MS
}

fn default_deadline_ms() -> u64 {
    DEADLINE_MS
}

/// Reads a founding file.
///
/// # Errors
/// It names the file, and what is wrong in it.
pub fn read_ring(file: &Path) -> Result<Ring, String> {
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| at(&error))?;
    Ring::from_toml(&text).map_err(|error| at(&error))
}

impl Config {
    /// With the usual times.
    pub fn new(ring: Ring) -> Config {
        Config { ring, retry_ms: RETRY_MS, deadline_ms: DEADLINE_MS }
    }

    /// Reads a file, and the founding file that it names.
    ///
    /// # Errors
    /// It names the file, and the line and field at fault.
    pub fn read(file: &Path) -> Result<Config, String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| at(&error))?;
        let File { cluster, retry_ms, deadline_ms } =
            toml::from_str(&text).map_err(|error| at(&error))?;
        if retry_ms == 0 || retry_ms > deadline_ms {
            return Err(at(&"retry_ms: write from 1 to deadline_ms"));
        }
        let ring = read_ring(&file.parent().unwrap_or(Path::new("")).join(cluster))?;
        Ok(Config { ring, retry_ms, deadline_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "cluster = \"0123456789abcdef\"\ngroups = 4\nvirtual_nodes = 10\n\
                           failures = 0\n[[member]]\naddress = \"10.9.0.1\"\nrack = \"a\"\n";

    #[test]
    fn a_file_names_its_founding_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kv.toml");
        std::fs::write(folder.path().join("cluster.toml"), CLUSTER).unwrap();
        std::fs::write(&file, "cluster = \"cluster.toml\"\nretry_ms = 5").unwrap();
        let config = Config::read(&file).unwrap();
        assert_eq!((config.ring.groups(), config.retry_ms, config.deadline_ms), (4, 5, 1000));
        for (text, word) in [
            ("cluster = \"cluster.toml\"\nretry_ms = 0", "retry_ms"),
            ("cluster = \"none.toml\"", "none.toml"),
            ("cluster = \"kv.toml\"", "kv.toml"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Config::read(&file).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
