//! `controller.toml`: reading and checking. Every error names the file, the field and the remedy.

mod shell;

pub use daemon::config::{ConfigError, Problem};
pub use shell::{EtcdAccess, EtcdConfig, EtcdCredentials, Keep, ShellConfig};

use crate::core::Settings;
use daemon::config::require;
use secrets::SecretsError;
use serde::Deserialize;
use std::path::Path;
use wire::{KeyRing, MOST_SHARDS};

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// What every controller has.
    pub shell: ShellConfig,
    /// What the core needs.
    pub settings: Settings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
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
    /// Reads and checks a file, and looks at those that it names for etcd.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let config = Config::parse(path, &daemon::config::read(path)?)?;
        config.shell.check_files(path)?;
        Ok(config)
    }

    /// Checks a file's text, and reads no other; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let (shell, file) = ShellConfig::parse(path, text)?;
        let settings = check(&file).map_err(|problem| ConfigError::in_text(path, text, problem))?;
        Ok(Config { shell, settings })
    }

    /// Reads the shared secrets.
    pub fn keys(&self) -> Result<KeyRing, SecretsError> {
        self.shell.keys()
    }
}

fn check(file: &File) -> Result<Settings, Problem> {
    require((1..=MOST_SHARDS).contains(&file.shards), "shards", || {
        format!("{} is out of range; write 1 to {MOST_SHARDS} (default 8)", file.shards)
    })?;
    require((1..=16).contains(&file.chain_length), "chain_length", || {
        format!(
            "{} is out of range; write 1 to 16: one more than the number of stores that may die at once (default 3)",
            file.chain_length
        )
    })?;
    let founding_servers = file.founding_servers.unwrap_or(file.chain_length);
    require((1..=1_000).contains(&founding_servers), "founding_servers", || {
        format!(
            "{founding_servers} is out of range; write 1 to 1000: the number of machines with a store at the cluster's start"
        )
    })?;
    require((100..=60_000).contains(&file.dead_ms), "dead_ms", || {
        format!(
            "{} is out of range; write 100 to 60000: stores report every 50 ms (default 250)",
            file.dead_ms
        )
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
    Ok(Settings {
        shards: file.shards,
        chain_length: file.chain_length,
        founding_servers,
        dead_ns: u64::from(file.dead_ms) * 1_000_000,
        join_timeout_ns: u64::from(file.join_timeout_ms) * 1_000_000,
        most_joins: file.most_joins,
        reorder_after_ns: u64::from(file.reorder_after_ms) * 1_000_000,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../docs/controller.example.toml");

    #[test]
    fn the_example_is_good() {
        let config = Config::parse(Path::new("/etc/c.toml"), EXAMPLE).unwrap();
        assert_eq!(
            (
                config.settings.shards,
                config.settings.chain_length,
                config.settings.founding_servers
            ),
            (8, 3, 3)
        );
        assert_eq!(config.shell.secrets, Path::new("/etc/secrets.toml"));
        assert_eq!(config.shell.keep, Keep::Database("/var/lib/stateplane/controller.redb".into()));
    }

    #[test]
    fn errors_name_the_field_and_the_remedy() {
        for (from, to, field, remedy) in [
            ("shards = 8", "shards = 257", "shards", "1 to 256"),
            ("chain_length = 3", "chain_length = 0", "chain_length", "1 to 16"),
            ("dead_ms = 250", "dead_ms = 50", "dead_ms", "every 50"),
            ("dead_ms", "dead_mss", "dead_mss", ""),
            ("database = ", "# database = ", "database", "either"),
            (
                "database = \"/var/lib/stateplane/controller.redb\"",
                "etcd = [\"here\"]",
                "etcd",
                "http://",
            ),
            ("10.2.1.10:5408", "0.0.0.0:5408", "listen", "own address"),
            ("shards = 8", "shards = 8\netcd_user = \"sp\"", "etcd_user", "belongs to `etcd`"),
        ] {
            assert!(EXAMPLE.contains(from), "{from}");
            let error = Config::parse(Path::new("c.toml"), &EXAMPLE.replacen(from, to, 1))
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("c.toml: ") && error.contains(field) && error.contains(remedy),
                "{error}"
            );
        }
    }
}
