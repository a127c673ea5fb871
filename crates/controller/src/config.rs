//! `controller.toml`: reading and checking. Every error names the file, the field and the remedy.

use crate::core::Settings;
pub use config_file::ConfigError;
use config_file::{Problem, require};
use secrets::{SecretsError, SecretsFile};
use serde::Deserialize;
use state_protocol::{KeyRing, MOST_SHARDS};
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

/// Where decisions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// In a file of this machine: one controller.
    Database(PathBuf),
    /// In etcd, at one of these addresses: any number of controllers, one of which decides.
    Etcd {
        /// The members' client addresses.
        endpoints: Vec<SocketAddr>,
        /// What its keys begin with: another cluster, another prefix.
        prefix: String,
    },
}

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The controller's name, for people and for the election.
    pub name: String,
    /// The UDP address that servers and switches report to.
    pub listen: SocketAddrV4,
    /// TCP address of the metrics over HTTP.
    pub metrics: Option<SocketAddr>,
    /// The file of shared secrets, relative to the working directory.
    pub secrets: PathBuf,
    /// Where decisions are kept.
    pub keep: Keep,
    /// What the core needs.
    pub settings: Settings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    listen: SocketAddrV4,
    metrics: Option<SocketAddr>,
    secrets: PathBuf,
    database: Option<PathBuf>,
    etcd: Option<Vec<String>>,
    #[serde(default = "default_prefix")]
    etcd_prefix: String,
    #[serde(default = "default_shards")]
    shards: u16,
    #[serde(default = "default_chain_length")]
    chain_length: usize,
    founding_servers: Option<usize>,
    #[serde(default = "default_dead_ms")]
    dead_ms: u32,
    #[serde(default = "default_join_timeout_ms")]
    join_timeout_ms: u32,
    #[serde(default = "default_most_joins")]
    most_joins: usize,
    #[serde(default = "default_reorder_after_ms")]
    reorder_after_ms: u32,
}

fn default_prefix() -> String {
    "/stateplane/".to_owned()
}

fn default_shards() -> u16 {
    8
}

fn default_chain_length() -> usize {
    3
}

fn default_dead_ms() -> u32 {
    250
}

fn default_join_timeout_ms() -> u32 {
    2_000
}

fn default_most_joins() -> usize {
    4
}

fn default_reorder_after_ms() -> u32 {
    5_000
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        Config::parse(path, &config_file::read(path)?)
    }

    /// Checks a file's text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let file: File = config_file::parse(path, text)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        check(file, directory).map_err(|problem| ConfigError::field(path, problem))
    }

    /// Reads the shared secrets.
    pub fn keys(&self) -> Result<KeyRing, SecretsError> {
        Ok(SecretsFile::load(&self.secrets)?.ring().clone())
    }
}

fn check(file: File, directory: &Path) -> Result<Config, Problem> {
    require(!file.listen.ip().is_unspecified() && file.listen.port() != 0, "listen", || {
        format!("{} is no address that servers can send to; write the machine's own address and port", file.listen)
    })?;
    require((1..=MOST_SHARDS).contains(&file.shards), "shards", || {
        format!("{} is out of range; write 1 to {MOST_SHARDS} (default 8)", file.shards)
    })?;
    require((1..=16).contains(&file.chain_length), "chain_length", || {
        format!("{} is out of range; write 1 to 16: one more than may die at once (default 3)", file.chain_length)
    })?;
    let founding_servers = file.founding_servers.unwrap_or(file.chain_length);
    require((1..=1_000).contains(&founding_servers), "founding_servers", || {
        format!(
            "{founding_servers} is out of range; write with how many servers, each on a machine of its own, the cluster begins, 1 to 1000"
        )
    })?;
    require((100..=60_000).contains(&file.dead_ms), "dead_ms", || {
        format!("{} is out of range; write 100 to 60000: servers report every 50 (default 250)", file.dead_ms)
    })?;
    require((100..=600_000).contains(&file.join_timeout_ms), "join_timeout_ms", || {
        format!("{} is out of range; write 100 to 600000 (default 2000)", file.join_timeout_ms)
    })?;
    require((1..=256).contains(&file.most_joins), "most_joins", || {
        format!("{} is out of range; write 1 to 256 (default 4)", file.most_joins)
    })?;
    require((100..=86_400_000).contains(&file.reorder_after_ms), "reorder_after_ms", || {
        format!("{} is out of range; write 100 to 86400000 (default 5000)", file.reorder_after_ms)
    })?;
    let keep = match (file.database, file.etcd) {
        (Some(path), None) => Keep::Database(directory.join(path)),
        (None, Some(endpoints)) => check_etcd(&endpoints, file.etcd_prefix)?,
        _ => {
            let problem =
                "write either `database = \"FILE\"` (one controller) or `etcd = [\"http://IP:2379\"]` (several)";
            return Err(("database".to_owned(), problem.to_owned()));
        }
    };
    Ok(Config {
        name: file.name,
        listen: file.listen,
        metrics: file.metrics,
        secrets: directory.join(file.secrets),
        keep,
        settings: Settings {
            shards: file.shards,
            chain_length: file.chain_length,
            founding_servers,
            dead_ns: u64::from(file.dead_ms) * 1_000_000,
            join_timeout_ns: u64::from(file.join_timeout_ms) * 1_000_000,
            most_joins: file.most_joins,
            reorder_after_ns: u64::from(file.reorder_after_ms) * 1_000_000,
        },
    })
}

fn check_etcd(endpoints: &[String], prefix: String) -> Result<Keep, Problem> {
    let address = |endpoint: &String| {
        let address = endpoint.strip_prefix("http://").unwrap_or(endpoint).trim_end_matches('/');
        address.parse::<SocketAddr>().map_err(|_| {
            let problem = format!("\"{endpoint}\" is no address; write it as \"http://10.0.0.1:2379\" (without TLS)");
            ("etcd".to_owned(), problem)
        })
    };
    let endpoints = endpoints.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    require(!endpoints.is_empty(), "etcd", || "there is none; write at least one address".to_owned())?;
    require(prefix.starts_with('/') && prefix.ends_with('/'), "etcd_prefix", || {
        format!("\"{prefix}\" must begin and end with a slash (default \"/stateplane/\")")
    })?;
    Ok(Keep::Etcd { endpoints, prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../docs/controller.example.toml");

    #[test]
    fn the_example_is_good() {
        let config = Config::parse(Path::new("/etc/c.toml"), EXAMPLE).unwrap();
        assert_eq!((config.settings.shards, config.settings.chain_length, config.settings.founding_servers), (8, 3, 3));
        assert_eq!(config.secrets, Path::new("/etc/secrets.toml"));
        assert_eq!(config.keep, Keep::Database("/var/lib/stateplane/controller.redb".into()));
    }

    #[test]
    fn errors_name_the_field_and_the_remedy() {
        for (from, to, field, remedy) in [
            ("shards = 8", "shards = 257", "shards", "1 to 256"),
            ("chain_length = 3", "chain_length = 0", "chain_length", "1 to 16"),
            ("dead_ms = 250", "dead_ms = 50", "dead_ms", "every 50"),
            ("dead_ms", "dead_mss", "dead_mss", ""),
            ("database = ", "# database = ", "database", "either"),
            ("database = \"/var/lib/stateplane/controller.redb\"", "etcd = [\"here\"]", "etcd", "http://"),
            ("10.2.1.10:5408", "0.0.0.0:5408", "listen", "own address"),
        ] {
            assert!(EXAMPLE.contains(from), "{from}");
            let error = Config::parse(Path::new("c.toml"), &EXAMPLE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.starts_with("c.toml: ") && error.contains(field) && error.contains(remedy), "{error}");
        }
    }
}
