//! `controller.toml` of shared variables. Every error names the file, the field and the remedy.

use controller::config::{ConfigError, Problem, ShellConfig};
use daemon::config::require;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use swish_controller::{GroupSettings, Settings};
use swish_protocol::control::{USUAL_DEAD_MS, USUAL_SLOW_MS};
use swish_protocol::layouts::MEMBERS;

const MS_NS: u64 = 1_000_000;

/// Five reports of a switch, one after the other.
const FEW_REPORTS_MS: u64 = 50;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// What every controller has.
    pub shell: ShellConfig,
    /// What the rules need.
    pub settings: Settings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_dead_ms")]
    dead_ms: u64,
    #[serde(default = "default_slow_ms")]
    slow_ms: u64,
    #[serde(default = "default_lost_ms")]
    lost_ms: u64,
    #[serde(default = "default_lease_ms")]
    lease_ms: u64,
    #[serde(default)]
    group: BTreeMap<String, Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(deserialize_with = "addresses")]
    switches: Vec<Ipv4Addr>,
}

fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Ipv4Addr>, D::Error> {
    let one = |text: String| {
        text.parse().map_err(|_| {
            D::Error::custom(format!(
                "{text:?}: write a switch's IPv4 address, such as \"10.9.0.1\""
            ))
        })
    };
    Vec::<String>::deserialize(from)?.into_iter().map(one).collect()
}

fn default_dead_ms() -> u64 {
    USUAL_DEAD_MS
}

fn default_slow_ms() -> u64 {
    USUAL_SLOW_MS
}

fn default_lost_ms() -> u64 {
    10_000
}

fn default_lease_ms() -> u64 {
    200
}

impl Config {
    /// Reads and checks a file, and looks at those that it names for etcd.
    ///
    /// # Errors
    /// They name the file, the line or field, and the remedy.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let config = Config::parse(path, &daemon::config::read(path)?)?;
        config.shell.check_files(path)?;
        Ok(config)
    }

    /// Checks a file's text; `path` is for messages.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let (shell, file) = ShellConfig::parse::<File>(path, text)?;
        check(&file).map_err(|problem| ConfigError::in_text(path, text, problem))?;
        let group =
            |(name, group): (String, Group)| (name, GroupSettings { switches: group.switches });
        let settings = Settings {
            groups: file.group.into_iter().map(group).collect(),
            dead_ns: file.dead_ms * MS_NS,
            asked_dead_ns: asked_dead_ms(file.dead_ms) * MS_NS,
            slow_ns: file.slow_ms * MS_NS,
            join_ns: 50 * MS_NS,
            lost_ns: file.lost_ms * MS_NS,
            again_ns: 20 * MS_NS,
            seal_ns: 500 * MS_NS,
            begin_ns: 1_000 * MS_NS,
            lease_ns: file.lease_ms * MS_NS,
        };
        Ok(Config { shell, settings })
    }
}

/// Half of it, but not so little that a busy machine looks dead.
fn asked_dead_ms(dead_ms: u64) -> u64 {
    (dead_ms / 2).max(FEW_REPORTS_MS).min(dead_ms)
}

fn check(file: &File) -> Result<(), Problem> {
    require((30..=60_000).contains(&file.dead_ms), "dead_ms", || {
        format!(
            "{} is out of range; write 30 to 60000: switches report every 10 ms (default 100)",
            file.dead_ms
        )
    })?;
    let slow = file.slow_ms == 0 || (200..=600_000).contains(&file.slow_ms);
    require(slow, "slow_ms", || {
        format!(
            "{} is out of range; write 200 to 600000 (default 2000), or 0 to remove no switch \
             that reports",
            file.slow_ms
        )
    })?;
    require((file.dead_ms..=3_600_000).contains(&file.lost_ms), "lost_ms", || {
        format!("{} is out of range; write dead_ms to 3600000 (default 10000)", file.lost_ms)
    })?;
    require((50..=60_000).contains(&file.lease_ms), "lease_ms", || {
        format!("{} is out of range; write 50 to 60000 (default 200)", file.lease_ms)
    })?;
    require(!file.group.is_empty(), "group", || {
        "is missing; write [group.NAME] with `switches`, for each group of the program".to_owned()
    })?;
    for (name, group) in &file.group {
        // (The compiler's rule for `@group`.)
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_name = (1..=32).contains(&name.len()) && name.bytes().all(plain);
        require(is_name, &format!("group.{name:?}"), || {
            "no program has a group of this name; write 1 to 32 letters, digits, - and _, as \
             `@group` has them"
                .to_owned()
        })?;
        let field = format!("group.{name}.switches");
        let count = group.switches.len();
        require((1..=MEMBERS as usize).contains(&count), &field, || {
            format!(
                "{count} switches; write 1 to {MEMBERS} (a larger group needs SDW, and `members` \
                 in switch.toml instead of a controller)"
            )
        })?;
        for (at, switch) in group.switches.iter().enumerate() {
            require(!group.switches[..at].contains(switch), &field, || {
                format!("{switch} is given twice; write each switch once")
            })?;
            let nobodys = switch.is_unspecified()
                || switch.is_multicast()
                || switch.is_broadcast()
                || switch.is_loopback();
            require(!nobodys, &field, || {
                format!(
                    "{switch} is no switch's address; write the `own` of its `[shared.{name}]` in \
                     switch.toml"
                )
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../docs/controller.example.toml");

    #[test]
    fn the_example_is_good() {
        let config = Config::parse(Path::new("/etc/c.toml"), EXAMPLE).unwrap();
        assert_eq!(config.shell.listen.port(), swish_protocol::control::CONTROLLER_PORT);
        assert_eq!(config.settings.groups["main"].switches.len(), 4);
        assert_eq!((config.settings.dead_ns, config.settings.slow_ns), (100 * MS_NS, 2000 * MS_NS));
    }

    #[test]
    fn members_that_are_asked_have_half_of_the_time() {
        for (dead_ms, asked_ms) in [(30, 30), (60, 50), (100, 50), (400, 200)] {
            let text = EXAMPLE.replacen("dead_ms = 100", &format!("dead_ms = {dead_ms}"), 1);
            let settings = Config::parse(Path::new("c.toml"), &text).unwrap().settings;
            let Settings { dead_ns, asked_dead_ns, .. } = settings;
            assert_eq!((dead_ns, asked_dead_ns), (dead_ms * MS_NS, asked_ms * MS_NS));
        }
    }

    #[test]
    fn errors_name_the_field_and_the_remedy() {
        for (from, to, field, remedy) in [
            ("dead_ms = 100", "dead_ms = 29", "dead_ms", "30 to 60000"),
            ("slow_ms = 2000", "slow_ms = 199", "slow_ms", "0 to remove no"),
            ("lost_ms = 10000", "lost_ms = 99", "lost_ms", "dead_ms to"),
            ("lease_ms = 200", "lease_ms = 49", "lease_ms", "50 to 60000"),
            ("lost_ms", "lost_mss", "lost_mss", ""),
            ("[group.main]\nswitches", "[group.main]\nswitch", "switch", ""),
            ("\"10.9.0.2\"", "\"10.9.0.1\"", "group.main.switches", "once"),
            ("\"10.9.0.2\"", "\"0.0.0.0\"", "group.main.switches", "write the `own`"),
            ("\"10.9.0.2\"", "\"224.0.0.1\"", "group.main.switches", "write the `own`"),
            ("\"10.9.0.2\"", "\"s2\"", "\"s2\"", "IPv4 address"),
            ("[group.main]", "[group.\"a b\"]", "group.\"a b\"", "1 to 32 letters"),
            ("database = ", "# database = ", "database", "either"),
        ] {
            assert!(EXAMPLE.contains(from), "{from}");
            let error = Config::parse(Path::new("c.toml"), &EXAMPLE.replacen(from, to, 1));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(field) && error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn the_example_has_every_field() {
        // (The reader names all fields when it meets another one.)
        let error = serde_json::from_str::<File>("{ \"no_such_field\": 1 }").map(drop);
        let error = error.unwrap_err().to_string();
        let (_, known) = error.split_once("expected one of").expect("the fields");
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        assert!(known.len() == 5, "{error}");
        for field in known {
            let heads = [format!("\n{field} = "), format!("\n[{field}.")];
            assert!(heads.iter().any(|it| EXAMPLE.contains(it)), "{field}");
        }
    }
}
