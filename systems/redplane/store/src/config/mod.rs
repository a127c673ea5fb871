//! `store.toml`: reading and checking. Every error names the file, the field and the remedy.

mod fast_path;
mod objects;
#[cfg(test)]
mod tests;

use crate::core::backends::Backend;
use crate::core::{Limits, Settings};
use crate::health::HealthCheck;
pub use daemon::config::ConfigError;
use daemon::config::{Problem, require, require_distinct};
pub use fast_path::FastPathSettings;
use fast_path::{FastPathTable, check_fast_path};
use manifest::Manifest;
use objects::{ObjectTable, check_backends, check_health, check_objects, fill_from_manifest};
use secrets::{SecretsError, SecretsFile};
use serde::Deserialize;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use wire::{KeyRing, MOST_MACHINE_BYTES, MOST_SHARDS};

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server's name, for people.
    pub name: String,
    /// The UDP address of requests and of the chain.
    pub listen: SocketAddrV4,
    /// Threads, each a server of its own, on the ports from `listen`'s on.
    pub workers: u16,
    /// What this process dies with, as controllers are told: no chain has two servers of one
    /// machine. Empty: it is alone, and has one worker.
    pub machine: String,
    /// The controllers that it reports to and hears from.
    pub controllers: Vec<SocketAddrV4>,
    /// TCP address of the metrics over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Seed of the allocators' probing; `None`: drawn at start.
    pub seed: Option<u64>,
    /// The file of shared secrets (`secrets::SecretsFile`), relative to the working directory.
    pub secrets: PathBuf,
    /// The backends of objects that have them, by the object's number: may change while the server
    /// runs (SIGHUP).
    pub backends: Vec<(u16, Vec<Backend>)>,
    /// How the health of their backends is checked, by the object's number.
    pub health: Vec<(u16, HealthCheck)>,
    /// The file this came from.
    pub file: PathBuf,
    /// Where to write down what must survive a power cut; `None`: nowhere.
    pub wal: Option<WalSettings>,
    /// Where a program in the kernel takes batches; `None`: nowhere.
    pub fast_path: Option<FastPathSettings>,
    /// What the core needs.
    pub settings: Settings,
}

/// The write-ahead log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalSettings {
    /// Its directory, relative to the working directory.
    pub directory: PathBuf,
    /// After so many bytes it is begun anew with a description of the state.
    pub checkpoint_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WalTable {
    directory: PathBuf,
    #[serde(default = "default_checkpoint_mib")]
    checkpoint_mib: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    listen: SocketAddrV4,
    #[serde(default = "default_workers")]
    workers: u16,
    machine: Option<String>,
    controllers: Vec<SocketAddrV4>,
    #[serde(default = "default_shards")]
    shards: u16,
    #[serde(default = "default_lease_ms")]
    lease_ms: u32,
    #[serde(default = "default_drift_ppm")]
    clock_drift_ppm: u32,
    #[serde(default = "default_margin_us")]
    lease_margin_us: u32,
    hold_ms: Option<u32>,
    #[serde(default = "default_tenure_ms")]
    tenure_ms: u32,
    #[serde(default = "default_recall_resend_ms")]
    recall_resend_ms: u32,
    secrets: PathBuf,
    #[serde(default = "default_resend_ms")]
    resend_ms: u32,
    #[serde(default = "default_chain_datagram_bytes")]
    chain_datagram_bytes: usize,
    metrics: Option<SocketAddr>,
    seed: Option<u64>,
    #[serde(default)]
    limits: LimitsTable,
    manifest: Option<PathBuf>,
    wal: Option<WalTable>,
    fast_path: Option<FastPathTable>,
    #[serde(default)]
    object: Vec<ObjectTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsTable {
    records: usize,
    sessions: usize,
    held: usize,
    held_per_flow: usize,
    held_mib: usize,
    unacked: usize,
    unacked_mib: usize,
}

impl Default for LimitsTable {
    fn default() -> Self {
        LimitsTable {
            records: 4_000_000,
            sessions: 4_096,
            held: 65_536,
            held_per_flow: 256,
            held_mib: 128,
            unacked: 65_536,
            unacked_mib: 128,
        }
    }
}

fn default_workers() -> u16 {
    1
}

fn default_checkpoint_mib() -> u64 {
    64
}

fn default_shards() -> u16 {
    8
}

fn default_lease_ms() -> u32 {
    250
}

fn default_drift_ppm() -> u32 {
    1_000
}

fn default_margin_us() -> u32 {
    1_000
}

fn default_tenure_ms() -> u32 {
    2
}

fn default_recall_resend_ms() -> u32 {
    5
}

fn default_resend_ms() -> u32 {
    10
}

fn default_chain_datagram_bytes() -> usize {
    1_400
}

/// Switches take no reply to a request that is older than a second; the rest is for the way.
pub const MOST_HOLD_MS: u32 = 900;
const MOST_WORKERS: u16 = 64;

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        Config::parse(path, &daemon::config::read(path)?)
    }

    /// Checks a file's text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let mut file: File = daemon::config::parse(path, text)?;
        let problem = |problem| ConfigError::in_text(path, text, problem);
        if let Some(manifest) = &file.manifest {
            // Relative to the configuration, as people expect of a path in a file.
            let manifest = path.parent().unwrap_or(Path::new("")).join(manifest);
            let manifest = Manifest::read(&manifest)
                .map_err(|error| problem(("manifest".to_owned(), error.to_string())))?;
            fill_from_manifest(&mut file.object, &manifest).map_err(problem)?;
        }
        if let Some(wal) = &mut file.wal {
            wal.directory = path.parent().unwrap_or(Path::new("")).join(&wal.directory);
        }
        file.secrets = path.parent().unwrap_or(Path::new("")).join(&file.secrets);
        let config = check(file).map_err(problem)?;
        Ok(Config { file: path.to_owned(), ..config })
    }

    /// The configuration of one of the workers: a server with its own ports, log and seed.
    pub fn worker(&self, number: u16) -> Config {
        let mut own = Config { workers: 1, ..self.clone() };
        if number > 0 {
            own.name = format!("{}-{number}", self.name);
            // Within the range: checked.
            own.listen.set_port(self.listen.port().saturating_add(number));
            if let Some(metrics) = &mut own.metrics {
                metrics.set_port(metrics.port().saturating_add(number));
            }
            if let Some(wal) = &mut own.wal {
                wal.directory = wal.directory.join(format!("worker-{number}"));
            }
            own.seed = self.seed.map(|seed| seed.wrapping_add(u64::from(number)));
        }
        own
    }

    /// Reads the shared secrets.
    pub fn keys(&self) -> Result<KeyRing, SecretsError> {
        Ok(SecretsFile::load(&self.secrets)?.ring().clone())
    }
}

fn check(file: File) -> Result<Config, Problem> {
    check_workers(&file)?;
    let fast_path = check_fast_path(&file)?;
    let wal = file.wal.map(|wal| WalSettings {
        directory: wal.directory,
        checkpoint_bytes: wal.checkpoint_mib.saturating_mul(1 << 20),
    });
    require(
        wal.as_ref().is_none_or(|wal| (1 << 20..=1 << 36).contains(&wal.checkpoint_bytes)),
        "wal.checkpoint_mib",
        || "out of range; write 1 to 65536 (default 64)".to_owned(),
    )?;
    require(!file.controllers.is_empty(), "controllers", || {
        "is empty; write the address of each controller, such as [\"10.2.1.10:5408\"]".to_owned()
    })?;
    require_distinct(&file.controllers, "controllers", "controller")?;
    for (address, field) in
        file.controllers.iter().map(|a| (a, "controllers")).chain([(&file.listen, "listen")])
    {
        require(!address.ip().is_unspecified() && address.port() != 0, field, || {
            format!(
                "other machines cannot send to {address}; write the machine's own address and port"
            )
        })?;
    }
    require((1..=MOST_SHARDS).contains(&file.shards), "shards", || {
        format!(
            "{} is out of range; write 1 to {MOST_SHARDS}, the same as the controller (default 8)",
            file.shards
        )
    })?;
    require((1..=60_000).contains(&file.lease_ms), "lease_ms", || {
        format!(
            "{} is out of range; write 50 to 60000 (default 250): switches cannot use shorter leases",
            file.lease_ms
        )
    })?;
    require(file.clock_drift_ppm <= 100_000, "clock_drift_ppm", || {
        format!("{} is out of range; write 0 to 100000 (default 1000)", file.clock_drift_ppm)
    })?;
    require(file.lease_margin_us <= 1_000_000, "lease_margin_us", || {
        format!("{} is out of range; write 0 to 1000000 (default 1000)", file.lease_margin_us)
    })?;
    let hold_ms = file.hold_ms.unwrap_or(1);
    require((1..=MOST_HOLD_MS).contains(&hold_ms), "hold_ms", || {
        format!(
            "{hold_ms} is out of range; write 1 to {MOST_HOLD_MS}: switches ignore later replies"
        )
    })?;
    require(file.tenure_ms <= 60_000, "tenure_ms", || {
        format!("{} is out of range; write 0 to 60000 (default 2)", file.tenure_ms)
    })?;
    require((1..=1_000).contains(&file.recall_resend_ms), "recall_resend_ms", || {
        format!("{} is out of range; write 1 to 1000 (default 5)", file.recall_resend_ms)
    })?;
    require((1..=10_000).contains(&file.resend_ms), "resend_ms", || {
        format!("{} is out of range; write 1 to 10000 (default 10)", file.resend_ms)
    })?;
    require((512..=60_000).contains(&file.chain_datagram_bytes), "chain_datagram_bytes", || {
        format!("{} is out of range; write 512 to 60000 (default 1400)", file.chain_datagram_bytes)
    })?;
    require(!file.object.is_empty(), "object", || {
        "is missing; add an [[object]] for each FlowState object".to_owned()
    })?;
    let limits = check_limits(&file.limits)?;
    // Workers die together; a single one is known by its address, too, but needs not to be told.
    let machine = file
        .machine
        .unwrap_or_else(|| if file.workers > 1 { file.listen.to_string() } else { String::new() });
    let backends = check_backends(&file.object)?;
    let health = check_health(&file.object)?;
    let objects = check_objects(file.object)?;
    let hold_ms = file.hold_ms.unwrap_or((2 * file.lease_ms).min(MOST_HOLD_MS));
    Ok(Config {
        name: file.name,
        listen: file.listen,
        workers: file.workers,
        machine,
        controllers: file.controllers,
        metrics: file.metrics,
        seed: file.seed,
        secrets: file.secrets,
        backends,
        wal,
        fast_path,
        health,
        file: PathBuf::new(),
        settings: Settings {
            shard: 0, // of a replica: `Node` sets it
            shards: file.shards,
            lease_us: file.lease_ms * 1_000,
            clock_drift_ppm: file.clock_drift_ppm,
            lease_margin_us: file.lease_margin_us,
            hold_ns: u64::from(hold_ms) * 1_000_000,
            tenure_ns: u64::from(file.tenure_ms) * 1_000_000,
            recall_resend_ns: u64::from(file.recall_resend_ms) * 1_000_000,
            resend_ns: u64::from(file.resend_ms) * 1_000_000,
            chain_datagram_bytes: file.chain_datagram_bytes,
            limits,
            objects,
        },
    })
}

fn check_workers(file: &File) -> Result<(), Problem> {
    require((1..=MOST_WORKERS).contains(&file.workers), "workers", || {
        format!(
            "{} is out of range; write 1 to {MOST_WORKERS}: one for each core (default 1)",
            file.workers
        )
    })?;
    let last = file.workers - 1;
    for (port, field) in [
        (Some(file.listen.port()), "listen"),
        (file.metrics.map(|metrics| metrics.port()), "metrics"),
    ] {
        require(port.is_none_or(|port| port.checked_add(last).is_some()), field, || {
            format!(
                "{} workers take that many ports, counted up from this one; write a lower port",
                file.workers
            )
        })?;
    }
    let length = file.machine.as_ref().map_or(1, String::len);
    require((1..=MOST_MACHINE_BYTES).contains(&length), "machine", || {
        format!("has {length} bytes; write 1 to {MOST_MACHINE_BYTES}, or leave it out")
    })
}

fn check_limits(limits: &LimitsTable) -> Result<Limits, Problem> {
    let positive = |value: usize, most: usize, field: &str| {
        require((1..=most).contains(&value), field, || {
            format!("{value} is out of range; write 1 to {most}")
        })
    };
    positive(limits.records, 1 << 31, "limits.records")?;
    positive(limits.sessions, 1 << 16, "limits.sessions")?;
    positive(limits.held, 1 << 24, "limits.held")?;
    positive(limits.held_per_flow, 1 << 16, "limits.held_per_flow")?;
    positive(limits.held_mib, 1 << 16, "limits.held_mib")?;
    positive(limits.unacked, 1 << 24, "limits.unacked")?;
    positive(limits.unacked_mib, 1 << 16, "limits.unacked_mib")?;
    Ok(Limits {
        records: limits.records,
        sessions: limits.sessions,
        held: limits.held,
        held_per_flow: limits.held_per_flow,
        held_bytes: limits.held_mib << 20,
        unacked: limits.unacked,
        unacked_bytes: limits.unacked_mib << 20,
    })
}
