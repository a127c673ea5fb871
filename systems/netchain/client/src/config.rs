//! A client's configuration file.

use netchain_protocol::Ring;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// After so long without a reply a request is sent again, in milliseconds.
const RETRY_MS: u64 = 2;
/// After so long a request's outcome is unknown.
const DEADLINE_MS: u64 = 1000;
/// Switches forget a client that was silent for 60 s, so no request may take as long.
const DEADLINE_MAX_MS: u64 = 30_000;
/// Identities for writes at the most.
const IDENTITIES: u8 = 4;

/// What a client is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster's ring.
    pub ring: Ring,
    /// The file with the client's key. None: the client has none, and switches may not hear it.
    pub identity: Option<PathBuf>,
    /// After so long without a reply a request is sent again, and after twice as long once more, …
    pub retry_ms: u64,
    /// After so long a request's outcome is unknown.
    pub deadline_ms: u64,
    /// Identities for writes at the most. Each can have 255 writes between its oldest one and its
    /// newest one, and takes a window in the switches. More than one are used only while a window
    /// is full.
    pub identities: u8,
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The cluster's founding file, from this file's folder on.
    cluster: PathBuf,
    /// The client's key, from this file's folder on.
    identity: Option<PathBuf>,
    #[serde(default = "default_retry_ms")]
    retry_ms: u64,
    #[serde(default = "default_deadline_ms")]
    deadline_ms: u64,
    #[serde(default = "default_identities")]
    identities: u8,
}

fn default_identities() -> u8 {
    IDENTITIES
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
        let (retry_ms, deadline_ms) = (RETRY_MS, DEADLINE_MS);
        Config { ring, identity: None, retry_ms, deadline_ms, identities: IDENTITIES }
    }

    /// Reads a file, and the founding file that it names.
    ///
    /// # Errors
    /// It names the file, and the line and field at fault.
    pub fn read(file: &Path) -> Result<Config, String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| at(&error))?;
        let File { cluster, identity, retry_ms, deadline_ms, identities } =
            toml::from_str(&text).map_err(|error| at(&error))?;
        if retry_ms == 0 || retry_ms > deadline_ms {
            return Err(at(&"retry_ms: write from 1 to deadline_ms"));
        }
        if deadline_ms > DEADLINE_MAX_MS {
            return Err(at(&format!("deadline_ms: write at most {DEADLINE_MAX_MS}")));
        }
        if identities == 0 {
            return Err(at(&"identities: write a number from 1 on"));
        }
        let folder = file.parent().unwrap_or(Path::new(""));
        let ring = read_ring(&folder.join(cluster))?;
        let identity = identity.map(|identity| folder.join(identity));
        Ok(Config { ring, identity, retry_ms, deadline_ms, identities })
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
            ("cluster = \"cluster.toml\"\ndeadline_ms = 60000", "deadline_ms"),
            ("cluster = \"cluster.toml\"\nidentities = 0", "identities"),
            ("cluster = \"none.toml\"", "none.toml"),
            ("cluster = \"kv.toml\"", "kv.toml"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Config::read(&file).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
