//! How much a switch holds and has to do: state objects, views, the packet generator's pace, next
//! hops. For metrics and `stateplane status`.

use crate::agent::Agent;
use crate::commit::Waiting;
use crate::config::CommitMode;
use crate::drops::DropLoad;
use crate::generator;
use crate::preflight::narrow_ports;
use crate::system::ObjectLoad;
use dataplane::{COMMIT_COUNTERS, GATEWAY_EVENTS};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::SocketAddrV4;
use std::sync::atomic::Ordering;
use wire::SwitchLoad;

/// Letters of a name in a report, which is sent twenty times a second.
const NAME_MOST: usize = 64;

/// How a switch knows where the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewsKnown {
    /// It does not know: packets that need the store's state are dropped.
    None,
    /// As an earlier agent was told; no controller has answered this one yet.
    Kept,
    /// A controller has told this agent.
    Told,
}

/// How much a switch holds and has to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// How it knows where the store is; none: it needs no controllers for that.
    pub views: Option<ViewsKnown>,
    /// Version of the last views that a controller sent to this agent; 0: none yet.
    pub views_version: u64,
    /// State objects of all systems.
    pub objects: Vec<ObjectLoad>,
    /// How late the packet generator's last look at its work was, in microseconds; none for a
    /// program without one.
    pub generator_lag_us: Option<u64>,
    /// Ports with the program on them.
    pub ports_attached: usize,
    /// Ports of the configuration.
    pub ports: usize,
    /// Next hops, and what a gateway's program handed over.
    #[serde(default)]
    pub gateway: GatewayLoad,
    /// Where packets wait until the store has their updates; none: no packet of the program does.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// Packets that wait in the switch, and what became of them, by event.
    #[serde(default)]
    pub commit: Vec<(String, u64)>,
    /// What was dropped, by reason.
    #[serde(default)]
    pub drops: Vec<DropLoad>,
    /// Fabric ports without room for the hosts' longest packets in messages.
    #[serde(default)]
    pub narrow_ports: Vec<NarrowPort>,
    /// Controllers that run, and do not take this switch's messages: they have other secrets.
    #[serde(default)]
    pub other_secrets: Vec<SocketAddrV4>,
    /// What the systems tell of themselves.
    #[serde(flatten)]
    pub systems: Map<String, Value>,
}

/// Next hops, and what a gateway's program handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayLoad {
    /// Routers behind ports that routes name.
    pub next_hops: usize,
    /// Those of them that are not resolved: what goes there waits, or is lost.
    pub unresolved: Vec<HopLoad>,
    /// What the program did, by event.
    pub events: Vec<(String, u64)>,
    /// What the agent did for it, by result.
    pub agent: Vec<(String, u64)>,
    /// Fragments that are held now.
    pub held: u64,
}

/// A next hop without an entry in the neighbour table that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopLoad {
    /// The router.
    pub address: String,
    /// The P4 port.
    pub port: u32,
}

/// A fabric port that is too narrow: what must wait in a message and does not fit is dropped
/// (`too_big`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NarrowPort {
    /// The P4 port.
    pub port: u32,
    /// Its interface.
    pub interface: String,
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// The longest IP packet that fits into a message there.
    pub leaves: u32,
    /// The longest that hosts send.
    pub hosts_mtu: u32,
}

impl Agent {
    /// How the switch knows where the store is; `None`: its program has nothing there, or the
    /// configuration names the store itself.
    pub(crate) fn views_known(&self) -> Option<ViewsKnown> {
        if self.config.controllers.is_empty() {
            return None;
        }
        Some(match self.systems.have_views()? {
            false => ViewsKnown::None,
            true if self.views_version.load(Ordering::Relaxed) == 0 => ViewsKnown::Kept,
            true => ViewsKnown::Told,
        })
    }

    /// The same in short, for the controllers, without counting flows now.
    pub(crate) fn short_load(&self) -> SwitchLoad {
        let ports = self.ports().unwrap_or_default();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let short = |text: &str| text.chars().take(NAME_MOST).collect();
        let mut load = SwitchLoad {
            name: short(&self.config.name),
            program: short(&self.dataplane.manifest().program),
            ports_attached: count(ports.iter().filter(|port| port.attached).count()),
            ports: count(ports.len()),
            sessions: 0,
            owned: 0,
            pending: 0,
            generator_lag_us: self.generator_lag_us(),
        };
        self.systems.report(&mut load);
        load
    }

    /// How much the switch holds and has to do.
    pub(crate) fn load(&self) -> Load {
        let ports = self.ports().unwrap_or_default();
        Load {
            views: self.views_known(),
            views_version: self.views_version.load(Ordering::Relaxed),
            objects: self.systems.objects(),
            generator_lag_us: self.generator_lag_us(),
            ports_attached: ports.iter().filter(|port| port.attached).count(),
            ports: ports.len(),
            gateway: self.gateway_load(),
            waiting: self.waiting.clone(),
            commit: self.commit_load(),
            drops: self.drops(),
            narrow_ports: self.narrow_ports(),
            other_secrets: self.refused_views.with_other_secrets(),
            systems: self.systems.status(),
        }
    }

    /// How late the packet generator is; none for a program without one.
    fn generator_lag_us(&self) -> Option<u64> {
        generator::exists(&self.dataplane).then(|| self.generator.lag_us.load(Ordering::Relaxed))
    }

    /// Next hops, and what a gateway's program handed over.
    pub(crate) fn gateway_load(&self) -> GatewayLoad {
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        let hops = self.gateway.hops();
        let names = GATEWAY_EVENTS.iter().map(|(name, _)| *name);
        let events = self.dataplane.gateway_counts(names).unwrap_or_default();
        GatewayLoad {
            next_hops: hops.count,
            unresolved: hops.unresolved,
            events: events.into_iter().map(named).collect(),
            agent: self.gateway.counts().map(named).collect(),
            held: self.gateway.held.load(Ordering::Relaxed),
        }
    }

    /// What output commit counts; none of a program whose packets do not wait in the switch.
    pub(crate) fn commit_load(&self) -> Vec<(String, u64)> {
        let count =
            |name: &'static str| Some((name.to_owned(), self.dataplane.commit_count(name).ok()??));
        let counts: Vec<_> = COMMIT_COUNTERS.iter().filter_map(|(name, _)| count(name)).collect();
        if self.config.commit == CommitMode::Wrap { Vec::new() } else { counts }
    }

    /// Fabric ports that are too narrow; none for a program of which no packet waits in a message.
    pub(crate) fn narrow_ports(&self) -> Vec<NarrowPort> {
        narrow_ports(&self.config, &self.gateway.mtus(), self.message_bytes)
    }
}
