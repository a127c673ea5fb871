//! `controller.toml` of NetChain. Every error names the file, the field and the remedy.

use controller::config::{ConfigError, Problem, ShellConfig};
use daemon::config::require;
use netchain_protocol::Ring;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// What every controller has.
    pub shell: ShellConfig,
    /// What the cluster was founded with.
    pub ring: Ring,
    /// A switch that most others have not heard for so long is dead.
    pub dead_ms: u64,
    /// A switch that has not reported for this time leaves its chains, even if others hear it.
    pub agent_ms: u64,
    /// Readers answer for so long after their last probe.
    pub lease_ms: u32,
    /// Groups that get a member at the same time.
    pub most_joins: usize,
    /// Tombstones are collected when so many of a switch's slots have keys; 0: on order only.
    pub collect_percent: u8,
    /// Between two collections in one group, unless an operator orders one.
    pub collect_gap_s: u64,
    /// A switch that has served for so long gets its groups back; 0: on order only.
    pub rebalance_after_s: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cluster: PathBuf,
    #[serde(default = "default_dead_ms")]
    dead_ms: u64,
    #[serde(default = "default_agent_ms")]
    agent_ms: u64,
    #[serde(default = "default_lease_ms")]
    lease_ms: u32,
    #[serde(default = "default_most_joins")]
    most_joins: usize,
    #[serde(default = "default_collect_percent")]
    collect_percent: u8,
    #[serde(default = "default_collect_gap_s")]
    collect_gap_s: u64,
    #[serde(default = "default_rebalance_after_s")]
    rebalance_after_s: u64,
}

fn default_dead_ms() -> u64 {
    100
}

fn default_agent_ms() -> u64 {
    500
}

fn default_lease_ms() -> u32 {
    60
}

fn default_most_joins() -> usize {
    1
}

fn default_collect_percent() -> u8 {
    80
}

fn default_collect_gap_s() -> u64 {
    600
}

fn default_rebalance_after_s() -> u64 {
    60
}

impl Config {
    /// Reads and checks a file, the founding file that it names, and looks at those for etcd.
    ///
    /// # Errors
    /// They name the file, the line or field, and the remedy.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let config = Config::parse(path, &daemon::config::read(path)?)?;
        config.shell.check_files(path)?;
        Ok(config)
    }

    /// Checks a file's text, and reads the founding file; `path` is for messages and relative
    /// paths.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let (shell, file) = ShellConfig::parse::<File>(path, text)?;
        let cluster = path.parent().unwrap_or(Path::new("")).join(&file.cluster);
        let problem = |problem: Problem| ConfigError::in_text(path, text, problem);
        let founding = |error: &dyn std::fmt::Display| {
            let remedy = "name the file that `stateplane kv found` wrote";
            problem(("cluster".to_owned(), format!("{}: {error}; {remedy}", cluster.display())))
        };
        let text = std::fs::read_to_string(&cluster).map_err(|error| founding(&error))?;
        let ring = Ring::from_toml(&text).map_err(|error| founding(&error))?;
        check(&file).map_err(problem)?;
        let File { dead_ms, agent_ms, lease_ms, most_joins, .. } = file;
        let File { collect_percent, collect_gap_s, rebalance_after_s, .. } = file;
        Ok(Config {
            shell,
            ring,
            dead_ms,
            agent_ms,
            lease_ms,
            most_joins,
            collect_percent,
            collect_gap_s,
            rebalance_after_s,
        })
    }
}

fn check(file: &File) -> Result<(), Problem> {
    require((30..=60_000).contains(&file.dead_ms), "dead_ms", || {
        format!(
            "{} is out of range; write 30 to 60000: switches probe and report every 10 ms \
             (default 100)",
            file.dead_ms
        )
    })?;
    require((file.dead_ms..=600_000).contains(&file.agent_ms), "agent_ms", || {
        format!(
            "{} is out of range; write dead_ms to 600000 (default 500): a switch that others do \
             not hear is out after dead_ms already",
            file.agent_ms
        )
    })?;
    require((40..=60_000).contains(&file.lease_ms), "lease_ms", || {
        format!(
            "{} is out of range; write 40 to 60000: a switch's lease is 20 ms shorter, and lives \
             from probes every 10 ms (default 60)",
            file.lease_ms
        )
    })?;
    require((1..=1_000).contains(&file.most_joins), "most_joins", || {
        format!("{} is out of range; write 1 to 1000 (default 1)", file.most_joins)
    })?;
    require(file.collect_percent <= 100, "collect_percent", || {
        format!(
            "{} is out of range; write 1 to 100 (default 80), or 0 to collect on order only",
            file.collect_percent
        )
    })?;
    require((1..=31_536_000).contains(&file.collect_gap_s), "collect_gap_s", || {
        format!(
            "{} is out of range; write 1 to 31536000 (default 600): each collection takes one of \
             a group's 65535 sessions",
            file.collect_gap_s
        )
    })?;
    require(file.rebalance_after_s <= 31_536_000, "rebalance_after_s", || {
        format!(
            "{} is out of range; write 1 to 31536000 (default 60), or 0 to move chains on order \
             only",
            file.rebalance_after_s
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub const CLUSTER: &str = include_str!("../../lab/cluster.toml");
    const EXAMPLE: &str = include_str!("../../docs/controller.example.toml");

    pub fn example(change: impl FnOnce(&str) -> String) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cluster.toml"), CLUSTER).unwrap();
        let path = folder.path().join("c.toml");
        Config::parse(&path, &change(EXAMPLE)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_is_good() {
        let config = example(str::to_owned).unwrap();
        assert_eq!((config.dead_ms, config.lease_ms, config.most_joins), (100, 60, 1));
        assert_eq!((config.agent_ms, config.rebalance_after_s), (500, 60));
        assert_eq!(config.ring.groups(), 12);
        assert_eq!(config.shell.listen.port(), crate::CONTROLLER_PORT);
    }

    #[test]
    fn errors_name_the_field_and_the_remedy() {
        for (from, to, field, remedy) in [
            ("dead_ms = 100", "dead_ms = 29", "dead_ms", "30 to 60000"),
            ("agent_ms = 500", "agent_ms = 99", "agent_ms", "dead_ms to 600000"),
            ("lease_ms = 60", "lease_ms = 39", "lease_ms", "40 to 60000"),
            ("most_joins = 1", "most_joins = 0", "most_joins", "1 to 1000"),
            ("most_joins", "most_join", "most_join", ""),
            ("collect_percent = 80", "collect_percent = 101", "collect_percent", "1 to 100"),
            ("collect_gap_s = 600", "collect_gap_s = 0", "collect_gap_s", "1 to 31536000"),
            (
                "rebalance_after_s = 60",
                "rebalance_after_s = 31536001",
                "rebalance_after_s",
                "0 to move",
            ),
            ("\"cluster.toml\"", "\"none.toml\"", "cluster", "kv found"),
            ("database = ", "# database = ", "database", "either"),
        ] {
            let error = example(|text| {
                assert!(text.contains(from), "{from}");
                text.replacen(from, to, 1)
            });
            let error = error.unwrap_err();
            assert!(error.contains(field) && error.contains(remedy), "{error}");
        }
    }
}
