//! SwiSh's part of a switch: what the agent registers ([`SwiSh`]).
//!
//! It owns: who shares which group of variables, in the data plane; which frames the packet
//! generator makes for them; what `stateplane status` and metrics tell of groups. It must not know:
//! how a switch starts, when a window turns (`bpf/swish`).

#![forbid(unsafe_code)]

mod config;
pub mod due;
pub mod group;

use daemon::metrics::{Kind, Text};
use dataplane::Dataplane;
use due::Rounds;
use group::{Group, STATS, View};
use manifest::{Manifest, StateObject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use swish_protocol::layouts::{COUNTED, CPUS};
use swish_protocol::objects::SYSTEM;
use switch_agent::config::Config;
use switch_agent::drops::Drops;
use switch_agent::system::ObjectLoad;
use switch_agent::{Context, Result, Running, System};
use wire::KeyRing;

/// What `stateplane status` is told of groups has this name.
pub const SHARED: &str = "shared";

/// See the crate.
pub struct SwiSh;

impl System for SwiSh {
    fn name(&self) -> &'static str {
        SYSTEM
    }

    fn fields(&self) -> &'static [&'static str] {
        &config::FIELDS
    }

    fn check(&self, config: &Config, manifest: &Manifest) -> Result<()> {
        let groups = Group::all(manifest)?;
        if !groups.is_empty() && config.secrets.is_none() {
            let reason = "is needed, as the program has shared variables: switches tag what they \
                          send each other (`stateplane keys generate FILE` makes a file)";
            return config.fault("secrets", reason);
        }
        config::views(config, &groups).map(drop)
    }

    fn begin(&self, context: &Context) -> Result<Option<Box<dyn Running>>> {
        let dataplane = Arc::clone(&context.dataplane);
        let groups = Group::all(dataplane.manifest())?;
        if groups.is_empty() {
            return Ok(None);
        }
        let views = config::views(&context.config, &groups)?;
        let groups = groups.into_iter().zip(views);
        let groups = groups.map(|(group, view)| Shared { group, view, rounds: Mutex::default() });
        let config = Arc::clone(&context.config);
        Ok(Some(Box::new(Objects { dataplane, config, groups: groups.collect() })))
    }
}

/// A group on this switch.
struct Shared {
    group: Group,
    view: View,
    rounds: Mutex<Rounds>,
}

/// What `stateplane status` is told of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLoad {
    /// Its name.
    pub group: String,
    /// Addresses of the members.
    pub members: Vec<Ipv4Addr>,
    /// The view.
    pub view: u32,
    /// The window that packets read.
    pub window: u64,
    /// What the switch does in it, as a number (`layouts::phase`).
    pub phase: u64,
    /// Blocks of 360 cells.
    pub blocks: u32,
}

/// The shared variables of a loaded object.
struct Objects {
    dataplane: Arc<Dataplane>,
    config: Arc<Config>,
    groups: Vec<Shared>,
}

impl Objects {
    fn count(&self, index: u32) -> u64 {
        self.dataplane.read_count(STATS, index).unwrap_or_default()
    }

    fn loads(&self) -> Vec<GroupLoad> {
        let load = |shared: &Shared| {
            let node = shared.group.node(&self.dataplane).ok()?;
            Some(GroupLoad {
                group: shared.group.described.name.clone(),
                members: shared.view.members.iter().map(|(_, address)| *address).collect(),
                view: node.view,
                window: node.word >> 3,
                phase: node.word & 7,
                blocks: node.blocks,
            })
        };
        self.groups.iter().filter_map(load).collect()
    }
}

impl Running for Objects {
    fn interval(&self) -> Option<Duration> {
        let shortest = self.groups.iter().map(|it| it.view.period_ns).min()?;
        Some(Duration::from_nanos((shortest / 20).clamp(100_000, 1_000_000)))
    }

    fn configure(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn secrets(&self, ring: &KeyRing) -> Result<()> {
        let cpus = libbpf_rs::num_possible_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok());
        let Some(cpus) = cpus.filter(|cpus| *cpus <= CPUS) else {
            let reason =
                format!("the program's shared variables work on machines of up to {CPUS} CPUs");
            return self.config.fault("object", reason);
        };
        for Shared { group, view, .. } in &self.groups {
            // (An earlier agent may have begun the group: it goes on.)
            if group.node(&self.dataplane)?.word == 0 {
                group.begin(&self.dataplane, view, cpus, ring)?;
            } else if group.has(&self.dataplane, view)? {
                group.secrets(&self.dataplane, view, ring)?;
            } else {
                let reason = "is another one than the running data plane has: end all switches of \
                              the group (`stateplane switch stop`), and start them again";
                let field = format!("shared.{}", group.described.name);
                return self.config.fault(field, reason);
            }
        }
        Ok(())
    }

    fn due(&self, now_ns: u64) -> u64 {
        let queue = |Shared { group, rounds, .. }: &Shared| {
            let mut rounds = rounds.lock().unwrap_or_else(PoisonError::into_inner);
            group.queue(&self.dataplane, &mut rounds, now_ns).unwrap_or_default()
        };
        self.groups.iter().map(queue).sum()
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        let load = |object: &StateObject| ObjectLoad {
            name: object.name.clone(),
            consistency: group::settings_of(object)
                .map_or_else(|_| "?".into(), |it| it.consistency.name().to_lowercase()),
            flows: object.capacity.into(),
            owned: object.capacity.into(),
            limit: object.capacity,
        };
        let all = self.dataplane.manifest().state_objects.iter();
        all.filter(|it| it.system == SYSTEM).map(load).collect()
    }

    fn status(&self) -> Map<String, Value> {
        let loads = serde_json::to_value(self.loads()).unwrap_or_default();
        Map::from_iter([(SHARED.to_owned(), loads)])
    }

    fn drops(&self) -> Vec<Drops> {
        let drop = |(at, (reason, remedy)): (u32, (&'static str, Option<&'static str>))| {
            Some(Drops { reason, remedy: remedy?, count: self.count(at) })
        };
        (0..).zip(COUNTED).filter_map(drop).collect()
    }

    fn metrics(&self, text: &mut Text) {
        let help = "Windows of shared variables that ended; messages sent, merged, and received \
                    again.";
        let mut family = text.family("stateplane_switch_shared_total", Kind::Counter, help);
        for (at, (what, remedy)) in (0..).zip(COUNTED) {
            if remedy.is_none() {
                family.sample(&[("what", &what)], self.count(at));
            }
        }
        let help = "The window of a group of shared variables that packets read.";
        let mut family = text.family("stateplane_switch_shared_window", Kind::Gauge, help);
        for load in self.loads() {
            family.sample(&[("group", &load.group)], load.window);
        }
    }
}
