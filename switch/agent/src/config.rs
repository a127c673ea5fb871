//! `switch.toml`. A system reads its own fields of the file (`System::fields`, [`Config::part`]).

mod gateway;

pub use gateway::{DestinationMac, Fragments, Ingress};

use crate::error::{Error, Result};
use crate::system::System;
use dataplane::{ActionSpec, EntrySpec, KeySpec, ReversePath};
use manifest::GENERATOR_PORT;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// A switch's configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Names the run directory `/run/stateplane/NAME`.
    pub name: String,
    /// The compiled object; relative to the configuration file. The manifest lies beside it.
    pub object: PathBuf,
    /// Who this is in the state protocol; unique per switch.
    #[serde(default)]
    pub switch_id: u32,
    /// The state protocol's source address.
    pub protocol_address: Option<Ipv4Addr>,
    /// The head of the chain of a store with a single shard.
    pub store: Option<SocketAddrV4>,
    /// The controllers, which say who the heads are.
    #[serde(default)]
    pub controllers: Vec<SocketAddrV4>,
    /// The fabric's shared secrets (`stateplane keys`); relative to the configuration file. SIGHUP
    /// has it read again.
    pub secrets: Option<PathBuf>,
    /// Keeps what must outlive a reboot: the number of the switch's last life, so that the next has
    /// a higher one, also if the clock is behind then; and the controllers' last views, so that the
    /// next knows the store from its first packet on. Relative to the configuration file; made if
    /// it is not there.
    pub state_directory: Option<PathBuf>,
    /// ARP, neighbour discovery and packets for the host's own addresses go to the kernel.
    #[serde(default = "yes")]
    pub host_traffic: bool,
    /// On SIGTERM and SIGINT the program is taken off the ports, and Linux forwards what comes,
    /// untranslated and unfiltered. If false, as by default, it stays and goes on forwarding, as
    /// after SIGKILL.
    #[serde(default)]
    pub detach: bool,
    /// Where to serve Prometheus metrics.
    pub metrics: Option<SocketAddr>,
    /// How often the packet generator looks for work.
    #[serde(default = "default_generator_interval_us")]
    pub generator_interval_us: u64,
    /// Where packets wait until the store has what they depend on.
    #[serde(default)]
    pub commit: CommitMode,
    /// In the switch they wait no longer than this; what has waited longer is dropped.
    #[serde(default = "default_commit_hold_ms")]
    pub commit_hold_ms: u32,
    /// What becomes of a packet for which there is no room in the switch.
    #[serde(default)]
    pub when_full: WhenFull,
    /// What a gateway checks of what comes in.
    #[serde(default)]
    pub ingress: Ingress,
    /// ICMP errors that the program answers with, a second; 0: none.
    #[serde(default = "default_icmp_rate_per_s")]
    pub icmp_rate_per_s: u32,
    /// Whether a program that calls clamp_tcp_mss() makes TCP's segments fit the smaller MTU.
    #[serde(default)]
    pub clamp_mss: bool,
    /// Fragments that come before their first.
    #[serde(default)]
    pub fragments: Fragments,
    /// The longest IP packets that hosts send, in bytes: fabric ports must have room for them in
    /// messages. None: the largest MTU of the ports that are not fabric, or Ethernet's.
    pub hosts_mtu: Option<u32>,
    /// Ports.
    #[serde(default)]
    pub port: Vec<Port>,
    /// Table entries.
    #[serde(default)]
    pub table: Vec<Table>,
    /// The file this came from.
    #[serde(skip)]
    pub file: PathBuf,
    /// What was in it.
    #[serde(skip)]
    text: String,
}

fn yes() -> bool {
    true
}

fn default_commit_hold_ms() -> u32 {
    1_000
}

fn default_generator_interval_us() -> u64 {
    2_000
}

/// A Linux host answers as many (icmp_msgs_per_sec).
fn default_icmp_rate_per_s() -> u32 {
    1_000
}

/// Where packets wait until the store has what they depend on.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CommitMode {
    /// Each in a message of its own, in the network: takes no memory.
    Wrap,
    /// In the switch, and their updates share messages: `docs/output-commit.md`.
    Batch,
    /// [`CommitMode::Batch`] if this machine has memory and links for it; else
    /// [`CommitMode::Wrap`].
    #[default]
    Auto,
}

/// What becomes of a packet that is to wait in the switch, where there is no room.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// It is dropped, before it has changed anything.
    #[default]
    Drop,
    /// It waits in a message of its own, as with [`CommitMode::Wrap`].
    Wrap,
}

/// A port.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The interface's name.
    pub interface: String,
    /// The P4 port.
    pub port: u32,
    /// Leads to other switches and the store: protocol messages may come in here.
    #[serde(default)]
    pub fabric: bool,
    /// Instead of `ingress.reverse_path`.
    pub reverse_path: Option<ReversePath>,
}

/// What a table holds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Control-plane name.
    pub name: String,
    /// Default action.
    pub default: Option<Action>,
    /// Entries.
    #[serde(default)]
    pub entry: Vec<Entry>,
}

/// An action with its arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Control-plane name.
    pub action: String,
    /// By parameter name.
    #[serde(default)]
    pub arguments: BTreeMap<String, Scalar>,
}

/// A file of tables alone, each with its entries as in `switch.toml`: TOML, or JSON if its name
/// ends in `.json`.
pub fn read_tables(path: &Path) -> Result<Vec<Table>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        table: Vec<Table>,
    }
    let text = std::fs::read_to_string(path).map_err(|error| Error::path("read", path, error))?;
    let file = path.display().to_string();
    if path.extension().is_some_and(|it| it == "json") {
        let parsed = serde_json::from_str(&text);
        let file: File =
            parsed.map_err(|error| Error::Parse { file, reason: error.to_string() })?;
        return Ok(file.table);
    }
    part::<File>(path, &text, |_| true).map(|file| file.table)
}

/// A table entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Matches by key name.
    #[serde(default)]
    pub key: BTreeMap<String, Scalar>,
    /// Higher wins, or smaller if the table has `largest_priority_wins = false`.
    pub priority: Option<u32>,
    /// Control-plane name.
    pub action: String,
    /// By parameter name.
    #[serde(default)]
    pub arguments: BTreeMap<String, Scalar>,
}

/// A value: `7`, `"10.0.0.0/8"`, `true`.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// A number.
    Number(i64),
    /// True or false.
    Truth(bool),
    /// Anything else, as text.
    Text(String),
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Scalar::Number(number) => number.to_string(),
            Scalar::Truth(truth) => truth.to_string(),
            Scalar::Text(text) => text.clone(),
        }
    }
}

fn arguments(given: &BTreeMap<String, Scalar>) -> Vec<(Option<String>, String)> {
    given.iter().map(|(name, value)| (Some(name.clone()), value.text())).collect()
}

impl Action {
    /// In the data plane's terms.
    pub fn spec(&self) -> ActionSpec {
        ActionSpec { name: self.action.clone(), arguments: arguments(&self.arguments) }
    }
}

impl Entry {
    /// In the data plane's terms.
    pub fn spec(&self) -> EntrySpec {
        let keys = self
            .key
            .iter()
            .map(|(name, value)| KeySpec { name: Some(name.clone()), text: value.text() });
        EntrySpec {
            keys: keys.collect(),
            priority: self.priority,
            action: ActionSpec { name: self.action.clone(), arguments: arguments(&self.arguments) },
        }
    }
}

/// The fields of a file's top level that `wanted` picks.
fn part<T: DeserializeOwned>(path: &Path, text: &str, wanted: impl Fn(&str) -> bool) -> Result<T> {
    let parsed = DeTable::parse(text).and_then(|mut table| {
        let all = std::mem::take(table.get_mut());
        *table.get_mut() = all.into_iter().filter(|(name, _)| wanted(name.get_ref())).collect();
        T::deserialize(toml::Deserializer::from(table))
    });
    parsed.map_err(|mut error| {
        // For the line and its text.
        error.set_input(Some(text));
        Error::Parse {
            file: path.display().to_string(),
            reason: error.to_string().trim_end().to_owned(),
        }
    })
}

impl Config {
    /// Reads a configuration file and checks what can be checked without the object.
    /// Systems check their fields later (`System::check`).
    pub fn read(path: &Path, systems: &[&dyn System]) -> Result<Config> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::Parse {
            file: path.display().to_string(),
            reason: format!("cannot read: {error}; check the path and its permissions"),
        })?;
        Config::parse(path, &text, systems)
    }

    /// Parses a configuration's text; `path` is for messages and relative paths.
    pub fn parse(path: &Path, text: &str, systems: &[&dyn System]) -> Result<Config> {
        let of_a_system =
            |field: &str| systems.iter().any(|system| system.fields().contains(&field));
        let mut config: Config = part(path, text, |field| !of_a_system(field))?;
        (config.file, config.text) = (path.to_owned(), text.to_owned());
        if let Some(directory) = path.parent() {
            config.object = directory.join(&config.object);
            config.secrets = config.secrets.map(|secrets| directory.join(secrets));
            config.state_directory = config.state_directory.map(|state| directory.join(state));
        }
        config.validate()?;
        Ok(config)
    }

    /// Some fields of the file's top level: a system's.
    ///
    /// # Errors
    /// They are not what `T` has; says in which line.
    pub fn part<T: DeserializeOwned>(&self, fields: &[&str]) -> Result<T> {
        part(&self.file, &self.text, |field| fields.contains(&field))
    }

    /// An error in a field of this configuration.
    ///
    /// # Errors
    /// Always.
    pub fn fault<T>(&self, field: impl Into<String>, reason: impl Into<String>) -> Result<T> {
        let (field, reason) = (field.into(), reason.into());
        Err(Error::Config { file: self.place(&field), field, reason })
    }

    /// The file, with the field's line if it is there.
    pub(crate) fn place(&self, field: &str) -> String {
        daemon::config::place(&self.file, &self.text, field)
    }

    fn validate(&self) -> Result<()> {
        if !crate::run_dir::valid_name(&self.name) {
            return self.fault("name", "must be 1 to 64 letters, digits, - and _");
        }
        if self.port.is_empty() {
            return self.fault("port", "a switch needs at least one [[port]]");
        }
        for (index, port) in self.port.iter().enumerate() {
            let field = |name: &str| format!("port[{index}].{name}");
            if port.port >= GENERATOR_PORT {
                let reason = "is not below 509 (509 is the packet generator's port, 510 the \
                              kernel's, 511 the drop port)";
                return self.fault(field("port"), format!("{} {reason}", port.port));
            }
            if port.interface.is_empty()
                || port.interface.len() > 15
                || port.interface.contains('\0')
            {
                return self
                    .fault(field("interface"), "an interface's name has 1 to 15 characters");
            }
            for earlier in &self.port[..index] {
                if earlier.port == port.port {
                    return self.fault(field("port"), format!("{} is given twice", port.port));
                }
                if earlier.interface == port.interface {
                    return self
                        .fault(field("interface"), format!("{:?} is given twice", port.interface));
                }
            }
        }
        if !(100..=1_000_000).contains(&self.generator_interval_us) {
            return self.fault("generator_interval_us", "must be 100 to 1000000 (0.1 ms to 1 s)");
        }
        if self.when_full == WhenFull::Wrap && self.commit == CommitMode::Wrap {
            let remedy = "\"wrap\" needs commit = \"batch\" or \"auto\". With commit = \"wrap\" all \
                          packets wait in messages: remove when_full";
            return self.fault("when_full", remedy);
        }
        self.validate_gateway()?;
        if self.store.is_some() && !self.controllers.is_empty() {
            return self.fault(
                "store",
                "`controllers` gives the stores' addresses already; remove `store`",
            );
        }
        let stored = self.store.is_some() || !self.controllers.is_empty();
        if stored && self.protocol_address.is_none() {
            return self.fault(
                "protocol_address",
                "is needed with `controllers` or `store`: the store replies to it",
            );
        }
        if let Some(address) = self.protocol_address
            && (address.is_unspecified()
                || address.is_multicast()
                || address.is_broadcast()
                || address.is_loopback())
        {
            let problem = format!(
                "{address} cannot receive the store's replies; write this switch's own address, on lo and announced by BGP"
            );
            return self.fault("protocol_address", problem);
        }
        if stored && self.switch_id == 0 {
            let problem = "is needed with `controllers` or `store`; write a number above 0, another one on each switch";
            return self.fault("switch_id", problem);
        }
        let twice = self
            .controllers
            .iter()
            .enumerate()
            .find(|(at, address)| self.controllers[..*at].contains(address));
        if let Some((_, address)) = twice {
            return self.fault(
                "controllers",
                format!("{address} is given twice; write each controller once"),
            );
        }
        if stored && !self.port.iter().any(|port| port.fabric) {
            let problem =
                "with `controllers` or `store`, at least one port must have `fabric = true`";
            return self.fault("port", problem);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "s1"
object = "nat.o"
switch_id = 1
protocol_address = "10.255.0.1"
store = "10.2.1.10:5407"
metrics = "127.0.0.1:9100"
[[port]]
interface = "core"
port = 1
fabric = true
[[port]]
interface = "tor"
port = 2
[[table]]
name = "ingress.routes"
default = { action = "drop" }
[[table.entry]]
key = { "hdr.ip.dst" = "10.0.0.0/8", vrf = 1 }
action = "forward"
arguments = { port = 2 }
"#;

    fn fault(text: &str) -> String {
        Config::parse(Path::new("/etc/sp/switch.toml"), text, &[]).unwrap_err().to_string()
    }

    #[test]
    fn reads_a_good_one() {
        let config = Config::parse(Path::new("/etc/sp/switch.toml"), GOOD, &[]).unwrap();
        assert_eq!(config.object, Path::new("/etc/sp/nat.o"));
        assert!(
            config.host_traffic
                && !config.detach
                && config.port[0].fabric
                && !config.port[1].fabric
        );
        let spec = config.table[0].entry[0].spec();
        assert_eq!(spec.keys[1], KeySpec { name: Some("vrf".into()), text: "1".into() });
    }

    #[test]
    fn each_fault_names_file_and_field() {
        for (from, to, parts) in [
            ("name = \"s1\"", "name = \"../x\"", "name: must be"),
            ("name = \"s1\"", "nome = \"s1\"", "unknown field `nome`"),
            ("object = \"nat.o\"\n", "", "missing field `object`"),
            ("port = 2", "port = 1", "port[1].port: 1 is given twice"),
            ("port = 2", "port = 511", "port[1].port: 511"),
            ("port = 2", "port = 510", "port[1].port: 510"),
            ("port = 2", "port = 509", "port[1].port: 509"),
            ("port = 2", "port = 2\nreverse_path = \"lax\"", "unknown variant `lax`"),
            ("switch_id = 1", "switch_id = 1\nfragments = { held = 4097 }", "fragments.held: 4097"),
            ("switch_id = 1", "switch_id = 1\nfragments = { held_ms = 0 }", "fragments.held_ms: 0"),
            ("switch_id = 1", "switch_id = 1\nhosts_mtu = 67", "hosts_mtu: 67"),
            ("port = 2", "port = \"2\"", "line 14"),
            ("\"tor\"", "\"core\"", "port[1].interface: \"core\" is given twice"),
            ("\"tor\"", "\"sixteen-letters-\"", "port[1].interface"),
            ("protocol_address = \"10.255.0.1\"\n", "", "protocol_address: is needed"),
            ("\"10.255.0.1\"", "\"0.0.0.0\"", "protocol_address: 0.0.0.0"),
            ("\"10.255.0.1\"", "\"127.0.0.1\"", "protocol_address: 127.0.0.1"),
            ("\"10.255.0.1\"", "\"224.0.0.1\"", "protocol_address: 224.0.0.1"),
            ("switch_id = 1\n", "", "switch_id: is needed"),
            ("fabric = true\n", "", "port: with `controllers`"),
            (
                "store = \"10.2.1.10:5407\"",
                "controllers = [\"10.2.1.10:5408\", \"10.2.1.10:5408\"]",
                "controllers: 10.2.1.10:5408 is given twice",
            ),
            ("10.2.1.10:5407", "10.2.1.10", "line 6"),
            ("switch_id = 1", "switch_id = 1\nwhen_full = \"wait\"", "unknown variant `wait`"),
            (
                "switch_id = 1",
                "switch_id = 1\ncommit = \"wrap\"\nwhen_full = \"wrap\"",
                "when_full: \"wrap\" needs",
            ),
            ("switch_id = 1", "switch_id = 1\ngenerator_interval_us = 1", "generator_interval_us"),
            ("switch_id = 1", "switch_id = 1\nof_a_system = 1", "unknown field `of_a_system`"),
            ("name = \"s1\"", "name = ", "line 2"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let message = fault(&GOOD.replacen(from, to, 1));
            assert!(
                message.starts_with("/etc/sp/switch.toml: ") && message.contains(parts),
                "{to}: {message}"
            );
        }
    }

    /// The fields that a struct knows, as its reader names them when it meets another one.
    fn fields<T: DeserializeOwned>() -> Vec<String> {
        let error = toml::from_str::<T>("no_such_field = 1").err().map(|it| it.to_string());
        let (_, known) = error.as_deref().and_then(|it| it.split_once("expected one of")).unwrap();
        known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_example_has_every_field() {
        let text = include_str!("../../../docs/switch.example.toml");
        let (config, port) = (fields::<Config>(), fields::<Port>());
        assert!(config.len() > 20 && port.len() == 4, "{config:?} {port:?}");
        let has = |field: &str| {
            let heads = [format!("{field} = "), format!("[{field}]"), format!("[[{field}]]")];
            let line = |line: &str| heads.iter().any(|it| line.contains(it.as_str()));
            text.lines().any(line)
        };
        let missing: Vec<&String> = config.iter().chain(&port).filter(|it| !has(it)).collect();
        assert!(missing.is_empty(), "docs/switch.example.toml lacks {missing:?}");
    }
}
