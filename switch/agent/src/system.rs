//! Where a system plugs into the agent.
//!
//! A [`System`] is what is known before an object is loaded; the command line hands the agent all
//! of them. [`System::begin`] makes a [`Running`] for an object that has state of the system. The
//! agent calls its places in this order:
//!
//! | when | places |
//! | --- | --- |
//! | before the first packet | `interval`, `configure`, `secrets`, `views` (kept from an earlier agent) |
//! | when the agent serves | `serve` |
//! | each look of the packet generator | `due` |
//! | a controller sends newer views | `views` |
//! | SIGHUP | `secrets` |
//! | each [`SWEEP_EVERY`] | `sweep`, then `report` |
//! | after news of the host, and every few seconds | `own_addresses`, `look` |
//! | somebody asks | `objects`, `status`, `metrics`, `drops`, `request`, `has_views` |
//!
//! Who is in which chain, the switch's incarnations, its secrets, and the generator's thread serve
//! every system and are the agent's.

use crate::config::Config;
use crate::drops::Drops;
use crate::error::Result;
use daemon::metrics::Text;
use dataplane::Dataplane;
use manifest::Manifest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{KeyRing, SwitchLoad, Views};

/// Time from one sweep to the next.
pub const SWEEP_EVERY: Duration = Duration::from_secs(2);

/// A system, before any object is loaded.
pub trait System: Sync {
    /// As a manifest's state objects name it.
    fn name(&self) -> &'static str;

    /// Fields of `switch.toml` that the system reads by itself ([`Config::part`]): the agent takes
    /// them for no mistake. No two systems have the same.
    fn fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// Checks what the system reads of the configuration against the program's objects; touches
    /// nothing.
    ///
    /// # Errors
    /// [`Config::fault`]: the field, why, and the remedy.
    fn check(&self, config: &Config, manifest: &Manifest) -> Result<()>;

    /// What of the configuration does nothing with this program: fields, each with the reason and
    /// the remedy. [`System::check`] has found nothing.
    ///
    /// # Errors
    /// As [`System::check`].
    fn doubts(&self, _config: &Config, _manifest: &Manifest) -> Result<Vec<(String, String)>> {
        Ok(vec![])
    }

    /// What settings come to with this program: fields, each with what `--check` tells of it.
    /// [`System::check`] has found nothing.
    ///
    /// # Errors
    /// As [`System::check`].
    fn figures(&self, _config: &Config, _manifest: &Manifest) -> Result<Vec<(String, String)>> {
        Ok(vec![])
    }

    /// What a message of the program has beside the packet that waits in it, in bytes at the most.
    /// 0: none waits.
    fn message_bytes(&self, _manifest: &Manifest) -> u32 {
        0
    }

    /// Whether `controllers` are this system's own, for programs with this manifest. The system
    /// speaks with them then ([`Running::serve`]); otherwise the agent does, about views.
    fn has_controllers(&self, _manifest: &Manifest) -> bool {
        false
    }

    /// Begins with a loaded object. `None`: the object has no state of this system.
    ///
    /// # Errors
    /// The object cannot be used; the agent does not start.
    fn begin(&self, context: &Context) -> Result<Option<Box<dyn Running>>>;
}

/// What a system works with.
#[derive(Clone)]
pub struct Context {
    /// The switch's configuration.
    pub config: Arc<Config>,
    /// The loaded object.
    pub dataplane: Arc<Dataplane>,
    /// The number of this switch's life.
    pub incarnation: u32,
}

/// A system at work on a loaded object. Places that it has no use for stay as they are here.
pub trait Running: Send + Sync {
    /// The longest time between two looks of the packet generator that will do. `None`: any.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// Writes settings into the object's maps. `interval`: the packet generator's.
    ///
    /// # Errors
    /// A map cannot be written; the agent does not start.
    fn configure(&self, interval: Duration) -> Result<()>;

    /// Takes the fabric's secrets, which the program has already, if it checks and tags messages.
    ///
    /// # Errors
    /// They cannot be written; the earlier ones stay.
    fn secrets(&self, _ring: &KeyRing) -> Result<()> {
        Ok(())
    }

    /// Takes views in which every shard has a head. The agent changes nothing else meanwhile.
    ///
    /// # Errors
    /// They cannot be written.
    fn views(&self, _views: &Views) -> Result<()> {
        Ok(())
    }

    /// Begins what the system does beside the agent, on threads of its own. They end with the
    /// process.
    ///
    /// # Errors
    /// The system has no threads left; the agent does not start.
    fn serve(&self) -> Result<()> {
        Ok(())
    }

    /// Addresses whose packets the program takes also when the host has them: they do not go up to
    /// the kernel as those for the host's other addresses do.
    fn own_addresses(&self) -> Vec<Ipv4Addr> {
        vec![]
    }

    /// Whether the maps have views, of this agent or of one before. `None`: the system needs none.
    fn has_views(&self) -> Option<bool> {
        None
    }

    /// Queues what generated frames are to do at `now_ns` (CLOCK_MONOTONIC); how many are needed.
    /// The generator's thread calls it at each look.
    fn due(&self, _now_ns: u64) -> u64 {
        0
    }

    /// The same of frames that are to begin on this CPU: a frame of a system whose messages go back
    /// and forth stays on the CPU on which it began, unless a network card chooses another one.
    fn due_on(&self, _cpu: usize, _now_ns: u64) -> u64 {
        0
    }

    /// Goes through the object's entries, and removes what nobody uses. It returns by `until`.
    ///
    /// # Errors
    /// The kernel refuses; the next sweep tries again.
    fn sweep(&self, _until: Instant) -> Result<()> {
        Ok(())
    }

    /// Looks whether all is well, and warns.
    fn look(&self) {}

    /// How full the state objects are.
    fn objects(&self) -> Vec<ObjectLoad> {
        vec![]
    }

    /// What `stateplane status` shows of the system. The names stand beside the agent's own
    /// ([`crate::load::Load`]), so no two systems may have the same.
    fn status(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Its metrics.
    fn metrics(&self, _text: &mut Text) {}

    /// What it dropped, by reason: always the same reasons in the same order.
    fn drops(&self) -> Vec<Drops> {
        vec![]
    }

    /// Answers a request of the control socket that the agent does not know: an object with `op`.
    /// `None`: it is no request of this system.
    fn request(&self, _op: &str, _request: &Value) -> Option<Result<Value>> {
        None
    }

    /// Adds its part of what controllers are told. It must not take long.
    fn report(&self, _load: &mut SwitchLoad) {}
}

/// How full a state object is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLoad {
    /// Its name.
    pub name: String,
    /// `local`, `linearizable`, …
    pub consistency: String,
    /// Entries held, counted at most 5 s ago: also of flows that have gone to another switch, until
    /// they are idle.
    pub flows: u64,
    /// Those of them that are this switch's to use now; of a `local` object all are.
    #[serde(default)]
    pub owned: u64,
    /// As many fit.
    pub limit: u32,
    /// What it holds.
    #[serde(default)]
    pub holds: Holds,
}

/// What a state object holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// Entries of flows, each of which one switch has at a time.
    #[default]
    Flows,
    /// Entries that belong to no switch more than to another one: `owned` is 0.
    Entries,
    /// Cells that are there from the beginning, `limit` of them: `flows` and `owned` are 0.
    Cells,
}

/// The clock of bpf_ktime_get_ns.
pub fn now_ns() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// What of a good configuration does nothing with the program: file, field, reason and remedy of
/// each.
pub(crate) fn doubts(
    systems: &[&dyn System],
    config: &Config,
    manifest: &Manifest,
) -> Result<Vec<String>> {
    let mut found = vec![];
    for system in systems {
        let all = system.doubts(config, manifest)?.into_iter();
        let told = all.map(|(field, why)| format!("{}: {field}: {why}", config.place(&field)));
        found.extend(told);
    }
    Ok(found)
}

/// Checks a program against the systems that there are, and the configuration against each.
pub(crate) fn check(systems: &[&dyn System], config: &Config, manifest: &Manifest) -> Result<()> {
    for object in &manifest.state_objects {
        if !systems.iter().any(|system| system.name() == object.system) {
            let known: Vec<&str> = systems.iter().map(|system| system.name()).collect();
            let reason = format!(
                "the program's {} {} needs the system {:?}; this build has: {}",
                object.kind,
                object.name,
                object.system,
                known.join(", ")
            );
            return config.fault("object", reason);
        }
    }
    systems.iter().try_for_each(|system| system.check(config, manifest))
}

/// What messages of the program have beside the packet in them, in bytes at the most.
pub(crate) fn message_bytes(systems: &[&dyn System], manifest: &Manifest) -> u32 {
    systems.iter().map(|system| system.message_bytes(manifest)).max().unwrap_or(0)
}

/// Whether `controllers` are a system's own.
pub(crate) fn have_controllers(systems: &[&dyn System], manifest: &Manifest) -> bool {
    systems.iter().any(|system| system.has_controllers(manifest))
}

/// The systems that have state in a switch's object.
pub(crate) struct Systems(Vec<(&'static str, Box<dyn Running>)>);

impl Systems {
    pub fn begin(systems: &[&dyn System], context: &Context) -> Result<Systems> {
        let begun =
            |system: &&dyn System| Some((system.name(), system.begin(context).transpose()?));
        let running = systems.iter().filter_map(begun).map(|(name, running)| Ok((name, running?)));
        running.collect::<Result<_>>().map(Systems)
    }

    fn each(&self) -> impl Iterator<Item = &dyn Running> {
        self.0.iter().map(|(_, running)| &**running)
    }

    /// Whether no system has state here.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Time between two looks of the packet generator: as configured, or less where a system needs
    /// it.
    pub fn interval(&self, configured: Duration) -> Duration {
        self.each().filter_map(Running::interval).fold(configured, Duration::min)
    }

    pub fn configure(&self, interval: Duration) -> Result<()> {
        self.each().try_for_each(|it| it.configure(interval))
    }

    /// Gives the program and the systems the fabric's secrets.
    pub fn secrets(&self, dataplane: &Dataplane, ring: &KeyRing) -> Result<()> {
        if dataplane.has_secrets() {
            dataplane.set_secrets(&ring.into())?;
        }
        self.each().try_for_each(|it| it.secrets(ring))
    }

    pub fn views(&self, views: &Views) -> Result<()> {
        self.each().try_for_each(|it| it.views(views))
    }

    /// Whether all have views that need some; `None`: none needs any.
    pub fn have_views(&self) -> Option<bool> {
        self.each().filter_map(Running::has_views).reduce(|all, one| all && one)
    }

    pub fn serve(&self) -> Result<()> {
        self.each().try_for_each(Running::serve)
    }

    /// The host's own addresses, without those whose packets the program takes.
    pub fn without_own(&self, mut addresses: Vec<Ipv4Addr>) -> Vec<Ipv4Addr> {
        let own: Vec<Ipv4Addr> = self.each().flat_map(Running::own_addresses).collect();
        addresses.retain(|address| !own.contains(address));
        addresses
    }

    pub fn due(&self, now_ns: u64) -> u64 {
        self.each().map(|it| it.due(now_ns)).fold(0, u64::saturating_add)
    }

    pub fn due_on(&self, cpu: usize, now_ns: u64) -> u64 {
        self.each().map(|it| it.due_on(cpu, now_ns)).fold(0, u64::saturating_add)
    }

    pub fn sweep(&self, until: Instant) {
        for running in self.each() {
            if let Err(error) = running.sweep(until) {
                tracing::warn!("removing idle entries: {error}");
            }
        }
    }

    pub fn look(&self) {
        self.each().for_each(Running::look);
    }

    pub fn objects(&self) -> Vec<ObjectLoad> {
        self.each().flat_map(Running::objects).collect()
    }

    pub fn status(&self) -> Map<String, Value> {
        self.each().flat_map(Running::status).collect()
    }

    pub fn metrics(&self, text: &mut Text) {
        self.each().for_each(|it| it.metrics(text));
    }

    pub fn drops(&self) -> impl Iterator<Item = (&'static str, Drops)> {
        self.0.iter().flat_map(|(name, it)| it.drops().into_iter().map(move |drops| (*name, drops)))
    }

    pub fn request(&self, request: &Value) -> Option<Result<Value>> {
        let op = request.get("op")?.as_str()?;
        self.each().find_map(|it| it.request(op, request))
    }

    pub fn report(&self, load: &mut SwitchLoad) {
        self.each().for_each(|it| it.report(load));
    }
}
