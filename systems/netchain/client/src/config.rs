//! Which switches there are: the same list for all clients.

use netchain_protocol::{Member, Ring};
use serde::Deserialize;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// A client's configuration, as its TOML file has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The switches.
    pub switch: Vec<Switch>,
    /// Groups for each switch.
    #[serde(default = "default_groups")]
    pub groups: u16,
    /// Switches in a chain.
    #[serde(default = "default_replicas")]
    pub replicas: usize,
    /// The file with the client's key, relative to this file. Without one the client is anonymous,
    /// which switches may refuse.
    pub identity: Option<PathBuf>,
    /// After so long without a reply a request is sent again, and after twice as long once more, …
    #[serde(default = "default_retry_ms")]
    pub retry_ms: u64,
    /// After so long a request's outcome is unknown.
    #[serde(default = "default_deadline_ms")]
    pub deadline_ms: u64,
}

/// A switch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Its NetChain address.
    pub address: Ipv4Addr,
    /// Where it fails together with others; by default alone.
    pub rack: Option<String>,
}

fn default_groups() -> u16 {
    100
}

fn default_replicas() -> usize {
    3
}

fn default_retry_ms() -> u64 {
    2
}

fn default_deadline_ms() -> u64 {
    1000
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It names the file, and the line and field at fault.
    pub fn read(file: &Path) -> Result<Config, String> {
        let at = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = std::fs::read_to_string(file).map_err(|error| at(&error))?;
        let mut config: Config = toml::from_str(&text).map_err(|error| at(&error))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        config.identity = config.identity.map(|identity| folder.join(identity));
        config.ring().map_err(|error| at(&error))?;
        if config.retry_ms == 0 || config.retry_ms > config.deadline_ms {
            return Err(at(&"retry_ms: write from 1 to deadline_ms"));
        }
        Ok(config)
    }

    /// The ring of its switches.
    ///
    /// # Errors
    /// The switches make none.
    pub fn ring(&self) -> Result<Ring, String> {
        let members: Vec<Member> = self
            .switch
            .iter()
            .map(|switch| Member {
                address: switch.address,
                rack: switch.rack.clone().unwrap_or_else(|| switch.address.to_string()),
            })
            .collect();
        Ring::new(&members, self.groups, self.replicas)
    }
}
