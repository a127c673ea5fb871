//! A program with tables and registers with SRO on this switch: what the agent does for its chain.
//! (The compiler lets it have no other shared variables.)

use crate::config;
use crate::strong::{Chain, ChainView, STATS};
use daemon::metrics::{Kind, Text};
use dataplane::{Dataplane, SecretSet};
use manifest::{Manifest, StateObject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use swish_protocol::objects::{Consistency, SYSTEM};
use swish_protocol::strong::{COUNTED, CPUS};
use switch_agent::config::{CommitMode, Config};
use switch_agent::drops::Drops;
use switch_agent::system::ObjectLoad;
use switch_agent::{Context, Result, Running};
use wire::KeyRing;

/// What `stateplane status` is told of the chain has this name.
pub const CHAIN: &str = "shared_chain";

/// Looks of the packet generator: what waits for an answer that got lost waits for so long.
const INTERVAL: Duration = Duration::from_millis(1);
/// Frames of a look at a member that lacks word of the tail: each second one is for packets that
/// wait.
const FRAMES: u64 = 2;
/// How often the data plane is told the time: clocks are set, and run apart.
const TELL_TIME_NS: u64 = 1_000_000_000;

/// What `stateplane status` is told of the group with SRO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainLoad {
    /// Its name.
    pub group: String,
    /// Addresses of the members, from head to tail.
    pub members: Vec<Ipv4Addr>,
    /// The view that the member has taken.
    pub view: u64,
    /// Batches that are written here.
    pub applied: u64,
    /// Of those, so many are known to be in all switches.
    pub committed: u64,
}

/// The chain, on this switch.
pub(crate) struct Chained {
    dataplane: Arc<Dataplane>,
    config: Arc<Config>,
    chain: Chain,
    view: ChainView,
    /// When the data plane was last told the time.
    told_ns: AtomicU64,
}

/// Checks what the configuration says of the program's chain.
pub(crate) fn check(config: &Config, manifest: &Manifest, chain: &Chain) -> Result<()> {
    if config.secrets.is_none() {
        let reason = "is needed, as the program has shared variables: switches tag what they send \
                      each other (`stateplane keys generate FILE` makes a file)";
        return config.fault("secrets", reason);
    }
    if config.commit == CommitMode::Wrap {
        let names = manifest.state_objects.iter().filter(|it| it.system == SYSTEM);
        let names: Vec<&str> = names.map(|it| it.name.as_str()).collect();
        let reason = format!(
            "must be \"batch\": packets that write {} wait in the switch until all switches have \
             that",
            names.join(", ")
        );
        return config.fault("commit", reason);
    }
    view_of(config, chain, 0).map(drop)
}

/// The members are a chain in the order of the configuration.
fn view_of(config: &Config, chain: &Chain, incarnation: u32) -> Result<ChainView> {
    let view = config::groups(config, &[&chain.group])?.view(&chain.group)?;
    let members = view.members.iter().map(|member| (member.number, member.address)).collect();
    Ok(ChainView { number: 1, own: view.own, incarnation, members, commits_ns: 0 })
}

impl Chained {
    pub(crate) fn begin(context: &Context, chain: Chain) -> Result<Chained> {
        let config = Arc::clone(&context.config);
        let view = view_of(&config, &chain, context.incarnation)?;
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(usize::MAX);
        if cpus > CPUS as usize {
            let reason =
                format!("the program's shared variables work on machines of up to {CPUS} CPUs");
            return config.fault("object", reason);
        }
        Ok(Chained {
            dataplane: Arc::clone(&context.dataplane),
            config,
            chain,
            view,
            told_ns: AtomicU64::new(0),
        })
    }

    fn count(&self, at: u32) -> u64 {
        self.dataplane.read_count(STATS, at).unwrap_or_default()
    }

    fn load(&self) -> Option<ChainLoad> {
        let node = self.chain.node(&self.dataplane).ok()?;
        Some(ChainLoad {
            group: self.chain.group.clone(),
            members: self.view.members.iter().map(|(_, address)| *address).collect(),
            view: node.view,
            applied: node.applied,
            committed: node.committed,
        })
    }
}

impl Running for Chained {
    fn interval(&self) -> Option<Duration> {
        Some(INTERVAL)
    }

    fn configure(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn secrets(&self, ring: &KeyRing) -> Result<()> {
        self.dataplane.set_secrets(&SecretSet::from(ring))?;
        self.chain.tell_time(&self.dataplane)?;
        if self.chain.wanted(&self.dataplane)? == 0 {
            return Ok(self.chain.take(&self.dataplane, &self.view)?);
        }
        // (An earlier agent began the chain: it goes on, in that life.)
        if self.chain.has(&self.dataplane, &self.view)? {
            return Ok(());
        }
        self.config.fault(format!("shared.{}", self.chain.group), crate::OTHER_VIEW)
    }

    fn due(&self, now_ns: u64) -> u64 {
        if now_ns.saturating_sub(self.told_ns.load(Ordering::Relaxed)) > TELL_TIME_NS {
            self.told_ns.store(now_ns, Ordering::Relaxed);
            // (The next one is as good: the data plane goes on with what it knows.)
            let _ = self.chain.tell_time(&self.dataplane);
        }
        if self.chain.is_behind(&self.dataplane).unwrap_or(false) {
            return FRAMES;
        }
        u64::from(self.chain.sweeps(&self.view))
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        let load = |object: &StateObject| ObjectLoad {
            name: object.name.clone(),
            consistency: Consistency::Sro.name().to_lowercase(),
            flows: object.capacity.into(),
            owned: object.capacity.into(),
            limit: object.capacity,
        };
        let all = self.dataplane.manifest().state_objects.iter();
        all.filter(|it| it.system == SYSTEM).map(load).collect()
    }

    fn status(&self) -> Map<String, Value> {
        let load = self.load().and_then(|load| serde_json::to_value(load).ok());
        load.map(|load| (CHAIN.to_owned(), load)).into_iter().collect()
    }

    fn drops(&self) -> Vec<Drops> {
        let drop = |(at, (reason, remedy)): (u32, (&'static str, Option<&'static str>))| {
            Some(Drops { reason, remedy: remedy?, count: self.count(at) })
        };
        (0..).zip(COUNTED).filter_map(drop).collect()
    }

    fn metrics(&self, text: &mut Text) {
        let help = "A chain of switches with SRO: packets that wrote, waited and ran again; \
                    batches that were decided, written, sent on and answered.";
        let mut family = text.family("stateplane_switch_shared_chain_total", Kind::Counter, help);
        for (at, (what, remedy)) in (0..).zip(COUNTED) {
            if remedy.is_none() {
                family.sample(&[("what", &what)], self.count(at));
            }
        }
        let Some(load) = self.load() else { return };
        let help = "Batches that are written here, and not known to be in all switches.";
        let mut family = text.family("stateplane_switch_shared_chain_behind", Kind::Gauge, help);
        let behind = load.applied.saturating_sub(load.committed);
        family.sample(&[("group", &load.group)], behind);
    }
}
