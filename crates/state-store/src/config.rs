//! `store.toml`: reading and checking. Every error names the file, the field and the remedy.

use crate::core::backends::{Backend, Health, MOST_BACKENDS, MOST_WEIGHT};
use crate::core::nat::{KEY_BYTES, VALUE_BYTES};
use crate::core::{
    AllocatorSettings, BackendPolicy, BackendSettings, IdleNs, Limits, NatSettings, ObjectSettings, Settings,
};
use crate::health::{HealthCheck, HealthTable};
use manifest::Manifest;
use secrets::{SecretsError, SecretsFile};
use serde::Deserialize;
use state_protocol::{
    KeyRing, MAX_KEY_BYTES, MAX_VALUE_BYTES, MOST_SHARDS, MOST_SNAPSHOT_PARTS, SNAPSHOT_PART_BYTES,
    SNAPSHOT_VALUE_BYTES,
};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: cannot read: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Not TOML, or a field is missing, misspelt or of another type.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line, column and reason.
        message: String,
    },
    /// A field's value makes no sense.
    #[error("{path}: {field}: {problem}")]
    Field {
        /// The file.
        path: PathBuf,
        /// The field, with its table and number.
        field: String,
        /// What is wrong and what to write instead.
        problem: String,
    },
}

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server's name, for people.
    pub name: String,
    /// The UDP address of requests and of the chain.
    pub listen: SocketAddrV4,
    /// The controllers that it reports to and hears from.
    pub controllers: Vec<SocketAddrV4>,
    /// TCP address of the metrics over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Seed of the allocators' probing; `None`: drawn at start.
    pub seed: Option<u64>,
    /// The file of shared secrets (`secrets::SecretsFile`), relative to the working directory.
    pub secrets: PathBuf,
    /// The backends of objects that have them, by the object's number: may change while the server runs (SIGHUP).
    pub backends: Vec<(u16, Vec<Backend>)>,
    /// How the health of their backends is checked, by the object's number.
    pub health: Vec<(u16, HealthCheck)>,
    /// The file this came from.
    pub file: PathBuf,
    /// Where to write down what must survive a power cut; `None`: nowhere.
    pub wal: Option<WalSettings>,
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
            held_per_flow: 64,
            held_mib: 128,
            unacked: 65_536,
            unacked_mib: 128,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ObjectTable {
    name: String,
    id: Option<u16>,
    key_bytes: Option<usize>,
    value_bytes: Option<usize>,
    allocator: Option<AllocatorName>,
    external: Option<Vec<Ipv4Addr>>,
    ports: Option<String>,
    idle: Option<IdleTable>,
    idle_s: Option<u32>,
    policy: Option<PolicyName>,
    #[serde(default)]
    backend: Vec<BackendTable>,
    health: Option<HealthTable>,
    closed_s: Option<u32>,
    slots: Option<usize>,
    slot_bytes: Option<usize>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum AllocatorName {
    Zero,
    NatPorts,
    Snapshot,
    Backends,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum PolicyName {
    Weighted,
    LeastConnections,
    Maglev,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackendTable {
    address: Ipv4Addr,
    port: u16,
    weight: Option<u32>,
    #[serde(default)]
    state: StateName,
}

#[derive(Deserialize, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum StateName {
    #[default]
    Active,
    Drained,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct IdleTable {
    tcp_s: u32,
    udp_s: u32,
    icmp_s: u32,
    other_s: u32,
}

impl Default for IdleTable {
    fn default() -> Self {
        // RFC 5382 REQ-5 (2 h 4 min), RFC 4787 REQ-5 (recommended 5 min), RFC 5508 REQ-1 (60 s).
        IdleTable { tcp_s: 7_440, udp_s: 300, icmp_s: 60, other_s: 300 }
    }
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

const NS_PER_S: u64 = 1_000_000_000;
/// RFC 7857 §2: a NAT keeps a closed TCP connection's binding for 4 minutes.
const DEFAULT_CLOSED_S: u32 = 240;
/// Switches take no reply to a request that is older than a second; the rest is for the way.
pub const MOST_HOLD_MS: u32 = 900;

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Config::parse(path, &text)
    }

    /// Checks a file's text; `path` is for messages.
    pub fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
        let mut file: File = toml::from_str(text).map_err(|error| parse_error(path, text, &error))?;
        let problem = |(field, problem)| ConfigError::Field { path: path.to_owned(), field, problem };
        if let Some(manifest) = &file.manifest {
            // Relative to the configuration, as people expect of a path in a file.
            let manifest = path.parent().unwrap_or(Path::new("")).join(manifest);
            let manifest =
                Manifest::read(&manifest).map_err(|error| problem(("manifest".to_owned(), error.to_string())))?;
            fill_from_manifest(&mut file.object, &manifest).map_err(problem)?;
        }
        if let Some(wal) = &mut file.wal {
            wal.directory = path.parent().unwrap_or(Path::new("")).join(&wal.directory);
        }
        file.secrets = path.parent().unwrap_or(Path::new("")).join(&file.secrets);
        let config = check(file).map_err(problem)?;
        Ok(Config { file: path.to_owned(), ..config })
    }

    /// Reads the shared secrets.
    pub fn keys(&self) -> Result<KeyRing, SecretsError> {
        Ok(SecretsFile::load(&self.secrets)?.ring().clone())
    }
}

fn parse_error(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let at = error.span().map(|span| {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("{line}:{column}: ")
    });
    let message = format!("{}{}", at.unwrap_or_default(), error.message());
    ConfigError::Parse { path: path.to_owned(), message }
}

type Problem = (String, String);

fn require(holds: bool, field: &str, problem: impl FnOnce() -> String) -> Result<(), Problem> {
    if holds { Ok(()) } else { Err((field.to_owned(), problem())) }
}

fn check(file: File) -> Result<Config, Problem> {
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
        "there is none; write the address of each, such as [\"10.2.1.10:5408\"]".to_owned()
    })?;
    for (address, field) in file.controllers.iter().map(|a| (a, "controllers")).chain([(&file.listen, "listen")]) {
        require(!address.ip().is_unspecified() && address.port() != 0, field, || {
            format!("{address} is no address that others can send to; write the machine's own address and port")
        })?;
    }
    require((1..=MOST_SHARDS).contains(&file.shards), "shards", || {
        format!("{} is out of range; write 1 to {MOST_SHARDS}, the same as the controller (default 8)", file.shards)
    })?;
    require((1..=60_000).contains(&file.lease_ms), "lease_ms", || {
        format!("{} is out of range; write 1 to 60000 (default 250)", file.lease_ms)
    })?;
    require(file.clock_drift_ppm <= 100_000, "clock_drift_ppm", || {
        format!("{} is out of range; write 0 to 100000 (default 1000)", file.clock_drift_ppm)
    })?;
    require(file.lease_margin_us <= 1_000_000, "lease_margin_us", || {
        format!("{} is out of range; write 0 to 1000000 (default 1000)", file.lease_margin_us)
    })?;
    let hold_ms = file.hold_ms.unwrap_or(1);
    require((1..=MOST_HOLD_MS).contains(&hold_ms), "hold_ms", || {
        format!("{hold_ms} is out of range; write 1 to {MOST_HOLD_MS}: switches take no reply that is later")
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
        "there is none; add an [[object]] for each FlowState object".to_owned()
    })?;
    let limits = check_limits(&file.limits)?;
    let backends = check_backends(&file.object)?;
    let health = check_health(&file.object)?;
    let objects = check_objects(file.object)?;
    let hold_ms = file.hold_ms.unwrap_or((2 * file.lease_ms).min(MOST_HOLD_MS));
    Ok(Config {
        name: file.name,
        listen: file.listen,
        controllers: file.controllers,
        metrics: file.metrics,
        seed: file.seed,
        secrets: file.secrets,
        backends,
        wal,
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

fn check_limits(limits: &LimitsTable) -> Result<Limits, Problem> {
    let positive = |value: usize, most: usize, field: &str| {
        require((1..=most).contains(&value), field, || format!("{value} is out of range; write 1 to {most}"))
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

/// Takes ids, sizes and allocators from the program's manifest, and objects that have no table of their own.
fn fill_from_manifest(tables: &mut Vec<ObjectTable>, manifest: &Manifest) -> Result<(), Problem> {
    for flow in manifest.flow_states.iter().filter(|flow| flow.consistency == "linearizable") {
        let at = tables.iter().position(|table| table.name == flow.name).unwrap_or_else(|| {
            tables.push(ObjectTable { name: flow.name.clone(), ..ObjectTable::default() });
            tables.len() - 1
        });
        let place = format!("object[{at}] \"{}\"", flow.name);
        let allocator = match flow.allocator.as_str() {
            "zero" => AllocatorName::Zero,
            "nat_ports" => AllocatorName::NatPorts,
            "backends" => AllocatorName::Backends,
            other => return Err((place, format!("the manifest's allocator \"{other}\" is unknown to this version"))),
        };
        let table = &mut tables[at];
        fill(&mut table.id, flow.object_id, &format!("{place}.id"))?;
        fill(&mut table.key_bytes, flow.key_bytes as usize, &format!("{place}.key_bytes"))?;
        fill(&mut table.value_bytes, flow.value_bytes as usize, &format!("{place}.value_bytes"))?;
        fill(&mut table.allocator, allocator, &format!("{place}.allocator"))?;
    }
    for snapshot in manifest.snapshot_states.iter().filter(|snapshot| snapshot.period_us != 0) {
        let at = tables.iter().position(|table| table.name == snapshot.name).unwrap_or_else(|| {
            tables.push(ObjectTable { name: snapshot.name.clone(), ..ObjectTable::default() });
            tables.len() - 1
        });
        let place = format!("object[{at}] \"{}\"", snapshot.name);
        let table = &mut tables[at];
        fill(&mut table.id, snapshot.object_id, &format!("{place}.id"))?;
        fill(&mut table.key_bytes, snapshot.key_bytes as usize, &format!("{place}.key_bytes"))?;
        fill(&mut table.value_bytes, SNAPSHOT_VALUE_BYTES, &format!("{place}.value_bytes"))?;
        fill(&mut table.allocator, AllocatorName::Snapshot, &format!("{place}.allocator"))?;
        fill(&mut table.slots, snapshot.slots as usize, &format!("{place}.slots"))?;
        fill(&mut table.slot_bytes, snapshot.slot_bytes as usize, &format!("{place}.slot_bytes"))?;
    }
    Ok(())
}

fn fill<T: PartialEq + Copy + std::fmt::Debug>(own: &mut Option<T>, manifests: T, field: &str) -> Result<(), Problem> {
    let before = *own.get_or_insert(manifests);
    require(before == manifests, field, || format!("{before:?}, but the manifest says {manifests:?}; leave it out"))
}

fn given<T: Copy>(value: Option<T>, place: &str, field: &str) -> Result<T, Problem> {
    let problem = "is missing; write it, or name the program's `manifest`, which has it";
    value.ok_or_else(|| (format!("{place}.{field}"), problem.to_owned()))
}

fn check_objects(tables: Vec<ObjectTable>) -> Result<Vec<ObjectSettings>, Problem> {
    let mut ids = HashSet::new();
    let mut objects = Vec::new();
    for (at, table) in tables.into_iter().enumerate() {
        let place = format!("object[{at}] \"{}\"", table.name);
        let id = given(table.id, &place, "id")?;
        require(ids.insert(id), &format!("{place}.id"), || format!("{id} is used twice; give each object its own"))?;
        objects.push(check_object(table, &place)?);
    }
    Ok(objects)
}

fn check_object(table: ObjectTable, place: &str) -> Result<ObjectSettings, Problem> {
    let id = given(table.id, place, "id")?;
    let key_bytes = given(table.key_bytes, place, "key_bytes")?;
    let value_bytes = given(table.value_bytes, place, "value_bytes")?;
    require((1..=MAX_KEY_BYTES).contains(&key_bytes), &format!("{place}.key_bytes"), || {
        format!("{} is out of range; write 1 to {MAX_KEY_BYTES}", key_bytes)
    })?;
    require((1..=MAX_VALUE_BYTES).contains(&value_bytes), &format!("{place}.value_bytes"), || {
        format!("{} is out of range; write 1 to {MAX_VALUE_BYTES}", value_bytes)
    })?;
    let allocator = match given(table.allocator, place, "allocator")? {
        AllocatorName::Zero => check_zero(&table, place)?,
        AllocatorName::Snapshot => check_snapshot(&table, value_bytes, place)?,
        AllocatorName::NatPorts => AllocatorSettings::NatPorts(check_nat(&table, key_bytes, value_bytes, place)?),
        AllocatorName::Backends => AllocatorSettings::Backends(check_balancer(&table, key_bytes, value_bytes, place)?),
    };
    let snapshot = matches!(allocator, AllocatorSettings::Snapshot { .. });
    for (given, field) in [(table.slots.is_some(), "slots"), (table.slot_bytes.is_some(), "slot_bytes")] {
        require(snapshot || !given, &format!("{place}.{field}"), || {
            "belongs to allocator = \"snapshot\"; remove it".to_owned()
        })?;
    }
    let closed_s = table.closed_s.unwrap_or(DEFAULT_CLOSED_S);
    require(closed_s > 0, &format!("{place}.closed_s"), || {
        format!(
            "0 would give a port on while packets of the old connection are on their way; write 1 or more (default {DEFAULT_CLOSED_S})"
        )
    })?;
    let closed_ns = u64::from(closed_s) * NS_PER_S;
    Ok(ObjectSettings { name: table.name, id, key_bytes, value_bytes, allocator, closed_ns })
}

fn check_zero(table: &ObjectTable, place: &str) -> Result<AllocatorSettings, Problem> {
    for (present, field) in
        [(table.external.is_some(), "external"), (table.ports.is_some(), "ports"), (table.idle.is_some(), "idle")]
    {
        require(!present, &format!("{place}.{field}"), || {
            "belongs to allocator = \"nat_ports\"; remove it (idle_s is the idle time of \"zero\")".to_owned()
        })?;
    }
    require(table.idle_s != Some(0), &format!("{place}.idle_s"), || {
        "0 would remove records at once; leave it out to keep them for ever".to_owned()
    })?;
    Ok(AllocatorSettings::Zero { idle_ns: table.idle_s.map(|seconds| u64::from(seconds) * NS_PER_S) })
}

fn check_snapshot(table: &ObjectTable, value_bytes: usize, place: &str) -> Result<AllocatorSettings, Problem> {
    let AllocatorSettings::Zero { idle_ns } = check_zero(table, place)? else {
        return Err((place.to_owned(), "has no idle time".to_owned()));
    };
    let slots = given(table.slots, place, "slots")?;
    let slot_bytes = given(table.slot_bytes, place, "slot_bytes")?;
    require([4, 8].contains(&slot_bytes), &format!("{place}.slot_bytes"), || {
        format!("{slot_bytes} is not possible; slots have 4 or 8 bytes")
    })?;
    let most = MOST_SNAPSHOT_PARTS * SNAPSHOT_PART_BYTES / slot_bytes;
    require((1..=most).contains(&slots), &format!("{place}.slots"), || {
        format!("{slots} is out of range; write 1 to {most}")
    })?;
    require(value_bytes == SNAPSHOT_VALUE_BYTES, &format!("{place}.value_bytes"), || {
        format!("allocator \"snapshot\" needs {SNAPSHOT_VALUE_BYTES} (of no meaning), not {value_bytes}")
    })?;
    Ok(AllocatorSettings::Snapshot { slots, slot_bytes, idle_ns })
}

/// What a NAT and a load balancer have in common: keys, values and idle times.
fn check_bindings(
    table: &ObjectTable,
    allocator: &str,
    key_bytes: usize,
    value_bytes: usize,
    place: &str,
) -> Result<IdleNs, Problem> {
    require(key_bytes == KEY_BYTES, &format!("{place}.key_bytes"), || {
        format!("allocator \"{allocator}\" needs {KEY_BYTES} (addresses, ports, protocol), not {}", key_bytes)
    })?;
    require(value_bytes == VALUE_BYTES, &format!("{place}.value_bytes"), || {
        format!("allocator \"{allocator}\" needs {VALUE_BYTES} (address, port), not {}", value_bytes)
    })?;
    require(table.idle_s.is_none(), &format!("{place}.idle_s"), || {
        "belongs to allocator = \"zero\"; write idle = { tcp_s = …, udp_s = …, icmp_s = … }".to_owned()
    })?;
    let default_idle = IdleTable::default();
    let idle = table.idle.as_ref().unwrap_or(&default_idle);
    for (seconds, field) in
        [(idle.tcp_s, "tcp_s"), (idle.udp_s, "udp_s"), (idle.icmp_s, "icmp_s"), (idle.other_s, "other_s")]
    {
        require(seconds > 0, &format!("{place}.idle.{field}"), || {
            "0 would free bindings in use; write 1 or more".to_owned()
        })?;
    }
    let ns = |seconds: u32| u64::from(seconds) * NS_PER_S;
    Ok(IdleNs { tcp: ns(idle.tcp_s), udp: ns(idle.udp_s), icmp: ns(idle.icmp_s), other: ns(idle.other_s) })
}

fn check_balancer(
    table: &ObjectTable,
    key_bytes: usize,
    value_bytes: usize,
    place: &str,
) -> Result<BackendSettings, Problem> {
    let idle_ns = check_bindings(table, "backends", key_bytes, value_bytes, place)?;
    for (present, field) in [(table.external.is_some(), "external"), (table.ports.is_some(), "ports")] {
        require(!present, &format!("{place}.{field}"), || {
            "belongs to allocator = \"nat_ports\"; remove it".to_owned()
        })?;
    }
    let policy = match table.policy.unwrap_or(PolicyName::Weighted) {
        PolicyName::Weighted => BackendPolicy::Weighted,
        PolicyName::LeastConnections => BackendPolicy::LeastConnections,
        PolicyName::Maglev => BackendPolicy::Maglev,
    };
    Ok(BackendSettings { policy, idle_ns })
}

/// The backends of each object that may have them.
fn check_backends(tables: &[ObjectTable]) -> Result<Vec<(u16, Vec<Backend>)>, Problem> {
    let mut lists = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        let place = format!("object[{at}] \"{}\"", table.name);
        if table.allocator != Some(AllocatorName::Backends) {
            let none = table.backend.is_empty() && table.policy.is_none() && table.health.is_none();
            require(none, &format!("{place}.backend"), || {
                "belongs to allocator = \"backends\", as policy and health do; remove it".to_owned()
            })?;
            continue;
        }
        require(table.backend.len() <= MOST_BACKENDS, &format!("{place}.backend"), || {
            format!("there are {}; list {MOST_BACKENDS} at the most", table.backend.len())
        })?;
        let mut backends: Vec<Backend> = Vec::new();
        for (number, backend) in table.backend.iter().enumerate() {
            let field = |name: &str| format!("{place}.backend[{number}].{name}");
            let address = SocketAddrV4::new(backend.address, backend.port);
            require(!address.ip().is_unspecified() && address.port() != 0, &field("address"), || {
                format!("{address} is no address that clients could be sent to")
            })?;
            require(backends.iter().all(|other| other.address != address), &field("address"), || {
                format!("{address} is listed twice; list each backend once")
            })?;
            let weight = backend.weight.unwrap_or(1);
            require((1..=MOST_WEIGHT).contains(&weight), &field("weight"), || {
                format!("{weight} is out of range; write 1 to {MOST_WEIGHT}, or state = \"drained\" for none")
            })?;
            backends.push(Backend {
                address,
                weight,
                drained: backend.state == StateName::Drained,
                health: Health::Up,
            });
        }
        if let Some(id) = table.id {
            lists.push((id, backends));
        }
    }
    Ok(lists)
}

/// How the health of each object's backends is checked.
fn check_health(tables: &[ObjectTable]) -> Result<Vec<(u16, HealthCheck)>, Problem> {
    let mut checks = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        if let (Some(health), Some(id)) = (&table.health, table.id) {
            checks.push((id, health.check(&format!("object[{at}] \"{}\".health", table.name))?));
        }
    }
    Ok(checks)
}

fn check_nat(table: &ObjectTable, key_bytes: usize, value_bytes: usize, place: &str) -> Result<NatSettings, Problem> {
    let idle_ns = check_bindings(table, "nat_ports", key_bytes, value_bytes, place)?;
    let external = table.external.clone().unwrap_or_default();
    let distinct: HashSet<_> = external.iter().collect();
    require(!external.is_empty() && distinct.len() == external.len(), &format!("{place}.external"), || {
        "must list at least one address, each once, such as external = [\"203.0.113.1\"]".to_owned()
    })?;
    Ok(NatSettings { external, ports: check_ports(table.ports.as_deref().unwrap_or("1024-65535"), place)?, idle_ns })
}

fn check_ports(text: &str, place: &str) -> Result<std::ops::RangeInclusive<u16>, Problem> {
    let bounds = text.split_once('-').and_then(|(low, high)| {
        let range: (u16, u16) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        Some(range)
    });
    match bounds {
        Some((low, high)) if low > 0 && low <= high => Ok(low..=high),
        _ => Err((
            format!("{place}.ports"),
            format!("\"{text}\" is no range of ports; write lowest-highest, such as \"1024-65535\""),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../../docs/store.example.toml");

    fn problem(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "the example has no `{from}`");
        Config::parse(Path::new("store.toml"), &GOOD.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn the_example_is_good() {
        let config = Config::parse(Path::new("store.toml"), GOOD).unwrap();
        assert_eq!((config.settings.shards, config.controllers.len()), (8, 1));
        assert_eq!(config.settings.hold_ns, 500_000_000);
        assert_eq!(config.secrets, Path::new("secrets.toml"));
        assert!(
            config.keys().unwrap_err().to_string().contains("keys generate"),
            "relative to the file, and not there"
        );
    }

    #[test]
    fn backends_are_read_and_checked() {
        let config = Config::parse(Path::new("store.toml"), GOOD).unwrap();
        let [(3, backends)] = &config.backends[..] else { panic!("{:?}", config.backends) };
        let seen: Vec<_> = backends.iter().map(|b| (b.address.to_string(), b.weight, b.drained)).collect();
        assert_eq!(seen, [("10.0.4.1:8080".to_owned(), 2, false), ("10.0.4.2:8080".to_owned(), 1, true)]);
        assert_eq!(config.file, Path::new("store.toml"));
        // Which backends there are is not part of what a chain must agree on: it changes while they run.
        let other = Config::parse(Path::new("store.toml"), &GOOD.replace("10.0.4.2", "10.0.4.3")).unwrap();
        assert_eq!(other.settings.digest(), config.settings.digest());
        let other = Config::parse(Path::new("store.toml"), &GOOD.replace("\"weighted\"", "\"maglev\"")).unwrap();
        assert_ne!(other.settings.digest(), config.settings.digest());
        for (from, to, part) in [
            ("10.0.4.2", "10.0.4.1", "listed twice"),
            ("weight = 2 ", "weight = 0 ", "state = \"drained\""),
            ("\"drained\"", "\"gone\"", "gone"),
            ("\"weighted\"", "\"fair\"", "fair"),
            ("\"10.0.4.1\"", "\"0.0.0.0\"", "no address"),
            ("policy = \"weighted\"", "idle_s = 5", "belongs to"),
            ("policy = \"weighted\"", "ports = \"1-2\"", "nat_ports"),
            ("allocator = \"backends\"", "allocator = \"zero\"", "belongs to allocator = \"backends\""),
        ] {
            let problem = problem(from, to);
            assert!(problem.contains(part), "{from} → {to}: {problem}");
        }
    }

    #[test]
    fn objects_come_from_the_manifest() {
        let directory = tempfile::tempdir().unwrap();
        let field = r#"{"name": "f", "width": 32, "offset": 0, "bytes": 4}"#;
        let flow = |name: &str, id: u16, consistency: &str| {
            format!(
                r#"{{"name": "{name}", "object_id": {id}, "map": "m", "size": 9, "consistency": "{consistency}",
                "allocator": "zero", "key": [{field}], "value": [{field}], "key_bytes": 4, "value_bytes": 4, "value_offset": 0}}"#
            )
        };
        let flows: Vec<serde_json::Value> =
            [flow("a", 1, "linearizable"), flow("b", 2, "local"), flow("c", 3, "linearizable")]
                .iter()
                .map(|text| serde_json::from_str(text).unwrap())
                .collect();
        let json = serde_json::json!({
            "version": manifest::VERSION, "program": "p", "tables": [], "actions": [], "registers": [], "counters": [],
            "flow_states": flows, "errors": [], "max_ports": 1, "drop_port": 511, "headroom_bytes": 0
        });
        std::fs::write(directory.path().join("p.json"), json.to_string()).unwrap();
        let path = directory.path().join("store.toml");
        let top = "name = \"s\"\nlisten = \"10.0.0.1:1\"\ncontrollers = [\"10.0.0.1:2\"]\nsecrets = \"s\"\nmanifest = \"p.json\"\n";
        let config = Config::parse(&path, &format!("{top}[[object]]\nname = \"c\"\nidle_s = 5\n")).unwrap();
        let found: Vec<_> = config.settings.objects.iter().map(|o| (o.name.as_str(), o.id, o.key_bytes)).collect();
        assert_eq!(found, [("c", 3, 4), ("a", 1, 4)]);
        assert_eq!(config.settings.objects[0].idle_ns(&[0; 4]), Some(5 * NS_PER_S));
        let error = Config::parse(&path, &format!("{top}[[object]]\nname = \"c\"\nid = 8\n")).unwrap_err().to_string();
        assert!(error.contains("\"c\".id: 8, but the manifest says 3"), "{error}");
    }

    #[test]
    fn every_fault_names_its_field_and_remedy() {
        for (from, to, field, remedy) in [
            ("listen = \"10.0.3.1:5407\"", "listen = \"0.0.0.0:5407\"", "listen", "own address"),
            ("controllers = [\"10.0.3.1:5408\"]", "controllers = []", "controllers", "10.2.1.10:5408"),
            ("shards = 8", "shards = 0", "shards", "1 to 256"),
            ("lease_ms = 250", "lease_ms = 0", "lease_ms", "1 to 60000"),
            ("key_bytes = 13", "key_bytes = 12", "key_bytes", "needs 13"),
            ("value_bytes = 6", "value_bytes = 65", "value_bytes", "1 to 64"),
            ("ports = \"1024-65535\"", "ports = \"9-8\"", "ports", "lowest-highest"),
            ("external = [\"203.0.113.1\", \"203.0.113.2\"]", "external = []", "external", "at least one"),
            ("id = 1", "id = 2", "object[1]", "its own"),
            ("lease_ms", "lease_mss", "lease_mss", "7:1"),
            ("udp_s = 300", "udp_s = 0", "idle.udp_s", "1 or more"),
            ("hold_ms = 500", "hold_ms = 901", "hold_ms", "1 to 900"),
            ("closed_s = 240", "closed_s = 0", "closed_s", "1 or more"),
            ("secrets = \"secrets.toml\"", "", "secrets", ""),
        ] {
            let text = problem(from, to);
            assert!(text.starts_with("store.toml: ") && text.contains(field), "{from}: {text}");
            assert!(text.contains(remedy) || field == "lease_mss" || remedy.is_empty(), "{from}: {text}");
        }
    }
}
