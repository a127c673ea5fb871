//! RedPlane at the agent's fixed places.

use crate::config::{FIELDS, SwitchConfig};
use crate::generator::{self, Work};
use crate::held::{Counted, live_sessions, pending};
use crate::runtime::{FlowRuntime, FlowSettings};
use crate::settings::{self, allocator, consistency, set_shards};
use crate::{events, flows, metrics, sweep};
use daemon::metrics::Text;
use dataplane::Dataplane;
use manifest::{Home, Layout, Manifest, StateObject};
use secrets::SecretsFile;
use serde_json::{Map, Value};
use state_protocol::objects::{FlowState, flow_states, objects, record_words};
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use switch_agent::config::{CommitMode, Config};
use switch_agent::drops::Drops;
use switch_agent::system::{ObjectLoad, now_ns};
use switch_agent::{Context, Error, Result, Running, System};
use wire::{SwitchLoad, Views};

/// What a message has beside the packet that waits in it, key and value, with a VLAN tag
/// (systems/redplane/docs/state-protocol.md).
const BESIDE_STATE_BYTES: u32 = 110;
/// Key and value of most programs are no longer: so the same links are wide enough for all of them.
const USUAL_STATE_BYTES: u32 = 110;

/// RedPlane, before an object is loaded.
pub struct RedPlane;

impl System for RedPlane {
    fn name(&self) -> &'static str {
        state_protocol::objects::SYSTEM
    }

    fn fields(&self) -> &'static [&'static str] {
        &FIELDS
    }

    fn check(&self, config: &Config, manifest: &Manifest) -> Result<()> {
        let own = SwitchConfig::of(config)?;
        check_groups(config, manifest)?;
        objects(manifest).try_for_each(|object| match object.home {
            Home::ThisSwitch => check_allocator(config, &own, object),
            Home::Store => check_store(config, object),
            Home::Peers => Ok(()),
        })
    }

    fn message_bytes(&self, manifest: &Manifest) -> u32 {
        let stored = objects(manifest).filter(|object| object.home == Home::Store);
        let longest = stored.map(|object| object.key_bytes + value_bytes(object)).max();
        longest.map_or(0, |bytes| BESIDE_STATE_BYTES + bytes.max(USUAL_STATE_BYTES))
    }

    fn begin(&self, context: &Context) -> Result<Option<Box<dyn Running>>> {
        let Context { config, dataplane, incarnation } = context.clone();
        if objects(dataplane.manifest()).next().is_none() {
            return Ok(None);
        }
        let work = Mutex::new(Work::of(dataplane.manifest()));
        Ok(Some(Box::new(Switch {
            own: SwitchConfig::of(&config)?,
            config,
            dataplane,
            incarnation,
            interval: OnceLock::new(),
            work,
            counted: Counted::default(),
            swept: AtomicU64::new(0),
            told_short_lease: AtomicBool::new(false),
        })))
    }
}

/// State in the store needs a way to it.
/// Bytes of a value in a message; a snapshot's parts are no message around a packet.
fn value_bytes(object: &StateObject) -> u32 {
    object.value.fields().iter().map(|field| field.bytes).sum()
}

fn check_store(config: &Config, object: &StateObject) -> Result<()> {
    let is = match object.value {
        Layout::Fields { .. } => {
            format!(
                "is needed: the program's {} {} is {}",
                object.kind,
                object.name,
                consistency(object)
            )
        }
        Layout::Slots { .. } => {
            format!("is needed: the store keeps the program's {} {}", object.kind, object.name)
        }
    };
    if config.store.is_none() && config.controllers.is_empty() {
        return config.fault("controllers", is);
    }
    match &config.secrets {
        None => {
            let remedy =
                "name the fabric's file of secrets (`stateplane keys generate FILE` makes one)";
            config.fault("secrets", format!("{is}; {remedy}"))
        }
        Some(path) => SecretsFile::load(path)
            .map(drop)
            .or_else(|error| config.fault("secrets", error.to_string())),
    }
}

/// What a packet sets in several objects only batches carry whole.
fn check_groups(config: &Config, manifest: &Manifest) -> Result<()> {
    let flows = flow_states(manifest).map_err(|error| Error::Other(error.to_string()))?;
    match flows.iter().find(|flow| flow.settings.grouped) {
        Some(flow) if config.commit == CommitMode::Wrap => config.fault(
            "commit",
            format!(
                "\"wrap\" does not carry what the program's packets set together, in FlowState {} \
                 and others; write commit = \"batch\"",
                flow.object.name
            ),
        ),
        Some(_) => check_group_fits(config, &flows),
        None => Ok(()),
    }
}

/// A group is in one batch, which is as long as the narrowest fabric port takes.
fn check_group_fits(config: &Config, flows: &[FlowState]) -> Result<()> {
    let grouped = flows.iter().filter(|flow| flow.settings.grouped);
    let words: u32 =
        grouped.map(|flow| record_words(flow.object.key_bytes, flow.value_bytes)).sum();
    let room = switch_agent::batch_words(config)?;
    if words <= room {
        return Ok(());
    }
    config.fault(
        "port",
        format!(
            "batches have {} bytes of records by the narrowest of the fabric's ports, and what the \
             program's packets set together has {}: raise its MTU by {}",
            8 * room,
            8 * words,
            8 * (words - room)
        ),
    )
}

/// An allocator in the switch needs something to allocate.
fn check_allocator(config: &Config, own: &SwitchConfig, object: &StateObject) -> Result<()> {
    let is = format!("is needed: the program's {} {}", object.kind, object.name);
    match allocator(object) {
        "nat_ports" if own.nat_pool.is_none() => {
            config.fault("nat_pool", format!("{is} allocates from it"))
        }
        "backends" if own.backend.is_empty() => {
            config.fault("backend", format!("{is} picks one of them"))
        }
        _ => Ok(()),
    }
}

/// RedPlane on a switch.
pub(crate) struct Switch {
    pub config: Arc<Config>,
    /// RedPlane's part of it.
    pub own: SwitchConfig,
    pub dataplane: Arc<Dataplane>,
    incarnation: u32,
    /// The packet generator's; set by `configure`.
    interval: OnceLock<Duration>,
    work: Mutex<Work>,
    /// Flows, as last counted.
    pub counted: Counted,
    /// Idle flows removed so far.
    pub swept: AtomicU64,
    /// Leases are too short for the margin, and the log has it.
    told_short_lease: AtomicBool,
}

impl Switch {
    fn interval(&self) -> Duration {
        let configured = Duration::from_micros(self.config.generator_interval_us);
        self.interval.get().copied().unwrap_or(configured)
    }

    /// The settings of the data plane, but for the number of shards.
    pub(crate) fn settings(&self) -> FlowSettings {
        settings::settings(&self.config, &self.own, self.incarnation, 0, self.interval())
    }
}

impl Running for Switch {
    fn interval(&self) -> Option<Duration> {
        generator::interval(self.dataplane.manifest())
    }

    fn configure(&self, interval: Duration) -> Result<()> {
        let interval = *self.interval.get_or_init(|| interval);
        settings::configure(&self.dataplane, &self.config, &self.own, self.incarnation, interval)
    }

    fn views(&self, views: &Views) -> Result<()> {
        if !self.dataplane.has_flow_runtime() {
            return Ok(());
        }
        let heads: Option<Vec<SocketAddrV4>> = views.heads().collect();
        let heads = heads.ok_or_else(|| {
            Error::Other(format!("views {}: a shard without a head", views.version))
        })?;
        set_shards(
            &self.dataplane,
            &self.config,
            &self.own,
            self.incarnation,
            self.interval(),
            &heads,
        )
    }

    fn has_views(&self) -> Option<bool> {
        self.dataplane
            .has_flow_runtime()
            .then(|| self.dataplane.shards().is_ok_and(|shards| shards > 0))
    }

    fn due(&self, now_ns: u64) -> u64 {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.due(&self.dataplane, &self.settings(), now_ns)
    }

    fn sweep(&self, until: Instant) -> Result<()> {
        if !sweep::exists(&self.dataplane) {
            return Ok(());
        }
        let (removed, held) = sweep::sweep(&self.dataplane, self.own.idle, now_ns(), until)?;
        self.swept.fetch_add(removed, Ordering::Relaxed);
        held.into_iter().for_each(|held| self.counted.put(held));
        Ok(())
    }

    /// Says it, once, when the store's leases are too short for the configuration's margin; only
    /// answers tell how long they are.
    fn look(&self) {
        let short = self.short_lease_us(&self.sessions().1);
        if let Some(lease_us) = short.filter(|_| !self.told_short_lease.load(Ordering::Relaxed)) {
            tracing::error!(
                "{}: lease_margin_us: {} leaves nothing of the store's lease of {lease_us} us: packets that need its state are dropped; write less, or a longer \
                 lease_ms in the store's configuration",
                self.config.file.display(),
                self.own.lease_margin_us
            );
        }
        self.told_short_lease.store(short.is_some(), Ordering::Relaxed);
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        self.loads()
    }

    fn status(&self) -> Map<String, Value> {
        match serde_json::to_value(self.load()) {
            Ok(Value::Object(fields)) => fields,
            // A struct of numbers and names is an object.
            _ => Map::new(),
        }
    }

    fn metrics(&self, text: &mut Text) {
        metrics::write(self, text);
    }

    fn drops(&self) -> Vec<Drops> {
        events::drops(&self.dataplane).unwrap_or_default()
    }

    fn request(&self, op: &str, request: &Value) -> Option<Result<Value>> {
        flows::request(&self.dataplane, op, request)
    }

    fn report(&self, load: &mut SwitchLoad) {
        let live = live_sessions(&self.dataplane, now_ns());
        let sessions = live.iter().filter(|number| **number != 0).count();
        load.sessions += u32::try_from(sessions).unwrap_or(u32::MAX);
        load.owned += self.counted.last_owned();
        load.pending += pending(&self.dataplane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_keys_and_values_need_wider_links() {
        let beside = |home: &str, key_bytes: u32, value_bytes: u32| {
            let field = |bytes: u32| serde_json::json!({"name": "f", "width": 8 * bytes, "offset": 0, "bytes": bytes});
            let object = serde_json::json!({
                "id": 1, "name": "o", "system": "redplane", "kind": "FlowState", "map": "m",
                "capacity": 9, "home": home, "key": [field(key_bytes)], "key_bytes": key_bytes,
                "value": {"fields": {"fields": [field(value_bytes)], "bytes": value_bytes, "offset": 0}},
                "settings": {"consistency": "linearizable", "allocator": "zero"}
            });
            let manifest = serde_json::json!({
                "version": manifest::VERSION, "program": "p", "tables": [], "actions": [],
                "registers": [], "counters": [], "state_objects": [object], "errors": [],
                "max_ports": 1, "drop_port": 511, "headroom_bytes": 0
            });
            RedPlane.message_bytes(&serde_json::from_value(manifest).expect("a manifest"))
        };
        assert_eq!((beside("store", 13, 8), beside("store", 55, 55)), (220, 220));
        assert_eq!((beside("store", 55, 56), beside("store", 256, 256)), (221, 622));
        assert_eq!(beside("this_switch", 256, 256), 0);
    }
}
