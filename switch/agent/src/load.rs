//! How much a switch holds and has to do: flows, updates that wait, the packet generator's pace. For metrics and `stateplane status`.

use crate::agent::Agent;
use crate::config::{Config, Port};
use crate::generator::WORK;
use dataplane::Dataplane;
use dataplane::flow::{entry_at, entry_flags};
use dataplane::{GATEWAY_DROPS, GATEWAY_EVENTS};
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Layout, StateObject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::SwitchLoad;

/// Counting a million flows takes some tenths of a second: not more often than this, whoever asks. (A sweep, which looks at all of them anyway, counts them, too.)
const COUNTED_FOR: Duration = Duration::from_secs(5);
/// Letters of a name in a report, which is sent twenty times a second.
const NAME_MOST: usize = 64;

/// How full a state object is: flows of a FlowState, instances (tenants) of a SnapshotState.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectLoad {
    /// Its name.
    pub name: String,
    /// `local`, `linearizable`, …
    pub consistency: String,
    /// Entries held, counted at most 5 s ago: also of flows that have gone to another switch, until they are idle.
    pub flows: u64,
    /// Those of them that are this switch's to use now; of a `local` object all are.
    #[serde(default)]
    pub owned: u64,
    /// As many fit.
    pub limit: u32,
}

/// A session with a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLoad {
    /// The shard.
    pub shard: u32,
    /// The session's number.
    pub number: u32,
    /// How long its lease goes on without another word from the store, in ms; 0: it is over.
    pub left_ms: u64,
    /// Smoothed round-trip time of updates and heartbeats, in microseconds; 0: nothing measured.
    #[serde(default)]
    pub round_trip_us: u64,
    /// What is not acknowledged for so long is sent again, in microseconds.
    #[serde(default)]
    pub resend_timeout_us: u64,
    /// Requests that the store has not answered; new packets are dropped while this is the window.
    #[serde(default)]
    pub outstanding: u64,
    /// The leases' length, as the store said last, in microseconds; 0: it has not.
    #[serde(default)]
    pub lease_us: u64,
}

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
    /// FlowState and SnapshotState objects.
    pub objects: Vec<ObjectLoad>,
    /// Shards of the store.
    pub shards: u32,
    /// Sessions that the switch has or had with them.
    pub sessions: Vec<SessionLoad>,
    /// The shortest lease that the store gives, in microseconds, if `lease_margin_us` is no less: then no lease ever begins, and packets that need one are dropped.
    #[serde(default)]
    pub short_lease_us: Option<u64>,
    /// Entries of the pending ring: updates and releases that are not acknowledged.
    pub pending: u64,
    /// How late the packet generator's last look at the ring was, in microseconds; none for a program without one.
    pub generator_lag_us: Option<u64>,
    /// What the FlowState runtime did, by event.
    pub events: Vec<(String, u64)>,
    /// Ports with the program on them.
    pub ports_attached: usize,
    /// Ports of the configuration.
    pub ports: usize,
    /// Next hops, and what a gateway's program dropped and handed over.
    #[serde(default)]
    pub gateway: GatewayLoad,
    /// Fabric ports without room for the hosts' longest packets in messages.
    #[serde(default)]
    pub narrow_ports: Vec<NarrowPort>,
}

/// Next hops, and what a gateway's program dropped and handed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayLoad {
    /// Routers behind ports that routes name.
    pub next_hops: usize,
    /// Those of them that are not resolved: what goes there waits, or is lost.
    pub unresolved: Vec<HopLoad>,
    /// What gateway_check() refused, by reason.
    pub drops: Vec<(String, u64)>,
    /// What else the program did, by event.
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

/// What a message has beside the packet that waits in it, at the most (systems/redplane/docs/state-protocol.md).
pub const MESSAGE_BYTES: u32 = 220;
/// Ethernet's.
const USUAL_MTU: u32 = 1_500;

/// Fabric ports without room for what hosts send; `mtus`: by port, where the interface is there.
fn narrow_ports(config: &Config, mtus: &BTreeMap<u32, u32>) -> Vec<NarrowPort> {
    let mtu = |port: &Port| mtus.get(&port.port).copied().filter(|mtu| *mtu != 0);
    let (fabric, hosts): (Vec<_>, Vec<_>) = config.port.iter().partition(|port| port.fabric);
    let largest = || hosts.into_iter().filter_map(mtu).max();
    let hosts_mtu = config.hosts_mtu.or_else(largest).unwrap_or(USUAL_MTU);
    let narrow = fabric.into_iter().filter_map(|port| {
        let (mtu, interface) = (mtu(port)?, port.interface.clone());
        let leaves = mtu.saturating_sub(MESSAGE_BYTES);
        let port = port.port;
        (leaves < hosts_mtu).then_some(NarrowPort { port, interface, mtu, leaves, hosts_mtu })
    });
    narrow.collect()
}

/// Entries of an object: all, and those that are this switch's to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    flows: u64,
    owned: u64,
}

impl Held {
    /// One more. `live`: [`live_sessions`]; `local`: of an object that lives in this switch alone.
    pub(crate) fn count(&mut self, entry: &[u8], live: &[u32], local: bool) {
        self.flows += 1;
        self.owned += u64::from(local || is_owned(entry, live));
    }

    /// Those of an object.
    fn of(dataplane: &Dataplane, object: &StateObject, live: &[u32]) -> Held {
        let (mut held, local) = (Held::default(), object.is_local());
        let Some(map) = dataplane.map(&object.map) else { return held };
        match object.value {
            Layout::Fields { .. } => {
                let counted = dataplane::for_each_entry(map, |_, value| {
                    held.count(value, live, local);
                    true
                });
                counted.unwrap_or_else(|error| tracing::warn!("counting flows: {error}"));
            }
            // Few and large: one at a time.
            Layout::Slots { .. } => map
                .keys()
                .filter_map(|key| map.lookup(&key, MapFlags::ANY).ok().flatten())
                .for_each(|value| held.count(&value, live, local)),
        }
        held
    }
}

/// Each shard's session, or 0 where there is none whose lease lives.
pub(crate) fn live_sessions(dataplane: &Dataplane, now_ns: u64) -> Vec<u32> {
    let number = |shard| dataplane.session(shard).ok().filter(|it| it.lease_end_ns > now_ns).map_or(0, |it| it.number);
    (0..dataplane.shards().unwrap_or(0)).map(number).collect()
}

/// Entries per object, as last counted.
#[derive(Default)]
pub(crate) struct Counted {
    last: Mutex<Option<(Instant, Vec<Held>)>>,
    short: Mutex<Option<SwitchLoad>>,
}

impl Counted {
    /// Takes a count that somebody else made, in that order.
    pub(crate) fn put(&self, counts: Vec<Held>) {
        *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some((Instant::now(), counts));
    }

    /// What controllers are told, as it was after the last sweep: who reports waits for nothing.
    pub(crate) fn short(&self) -> Option<SwitchLoad> {
        self.short.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub(crate) fn put_short(&self, short: SwitchLoad) {
        *self.short.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(short);
    }

    /// What was counted last, all objects together; without counting.
    fn last_owned(&self) -> u64 {
        let last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        last.as_ref().map_or(0, |(_, counts)| counts.iter().map(|held| held.owned).sum())
    }

    /// In the order of the manifest. Whoever comes while another counts waits for the result.
    fn held(&self, dataplane: &Dataplane) -> Vec<Held> {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((when, counts)) = &*last
            && when.elapsed() < COUNTED_FOR
        {
            return counts.clone();
        }
        let live = live_sessions(dataplane, crate::sweep::now_ns());
        let objects = dataplane.manifest().state_objects.iter();
        let counts: Vec<Held> = objects.map(|object| Held::of(dataplane, object, &live)).collect();
        *last = Some((Instant::now(), counts.clone()));
        counts
    }
}

/// Is the entry this switch's to use? `live`: each shard's session, or 0 without a lease.
fn is_owned(entry: &[u8], live: &[u32]) -> bool {
    let half = |at: usize| entry.get(at..at + 2).and_then(|it| it.try_into().ok()).map_or(0, u16::from_ne_bytes);
    let session = entry.get(entry_at::SESSION..entry_at::SESSION + 4).and_then(|it| it.try_into().ok());
    let session = session.map_or(0, u32::from_ne_bytes);
    let gone = half(entry_at::FLAGS) & (entry_flags::RELEASED | entry_flags::DYING) != 0;
    session != 0 && !gone && live.get(usize::from(half(entry_at::SHARD))) == Some(&session)
}

/// Entries that wait in the pending ring.
pub(crate) fn pending(dataplane: &Dataplane) -> u64 {
    let bytes = dataplane.read_array(WORK, 0).unwrap_or_default();
    let count = bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, i64::from_ne_bytes);
    // Packets pop and push while this reads: a moment below zero is possible.
    u64::try_from(count).unwrap_or(0)
}

fn shorter_than(margin_us: u64, sessions: &[SessionLoad]) -> Option<u64> {
    sessions.iter().map(|session| session.lease_us).filter(|lease_us| (1..=margin_us).contains(lease_us)).min()
}

impl Agent {
    /// How full the objects are.
    pub(crate) fn objects(&self) -> Vec<ObjectLoad> {
        let held = self.counted.held(&self.dataplane);
        let load = |(object, held): (&StateObject, Held)| ObjectLoad {
            name: object.name.clone(),
            consistency: crate::flow_state::consistency(object).to_owned(),
            flows: held.flows,
            owned: held.owned,
            limit: object.capacity,
        };
        self.dataplane.manifest().state_objects.iter().zip(held).map(load).collect()
    }

    /// The sessions with the store's shards.
    pub(crate) fn sessions(&self) -> (u32, Vec<SessionLoad>) {
        let (shards, now_ns) = (self.dataplane.shards().unwrap_or(0), crate::sweep::now_ns());
        let settings = crate::flow_state::settings(&self.dataplane, &self.config, 0, shards);
        let session = |shard| {
            let session = self.dataplane.session(shard).ok().filter(|session| session.number != 0)?;
            let left_ms = session.lease_end_ns.saturating_sub(now_ns) / 1_000_000;
            let round_trips = self.dataplane.round_trips(shard).unwrap_or_default();
            Some(SessionLoad {
                shard,
                number: session.number,
                left_ms,
                round_trip_us: round_trips.smoothed_ns / 1_000,
                resend_timeout_us: round_trips.resend_timeout_ns(&settings) / 1_000,
                outstanding: round_trips.outstanding,
                lease_us: session.lease_ns / 1_000,
            })
        };
        (shards, (0..shards).filter_map(session).collect())
    }

    /// The shortest of the store's leases, in microseconds, if the configuration's margin leaves nothing of it.
    pub(crate) fn short_lease_us(&self, sessions: &[SessionLoad]) -> Option<u64> {
        shorter_than(self.config.lease_margin_us, sessions)
    }

    /// How the switch knows where the store is; `None`: its program has nothing there, or the configuration names the store itself.
    pub(crate) fn views_known(&self) -> Option<ViewsKnown> {
        if self.config.controllers.is_empty() || !self.dataplane.has_flow_runtime() {
            return None;
        }
        Some(match self.dataplane.shards() {
            Ok(0) | Err(_) => ViewsKnown::None,
            Ok(_) if self.views_version.load(Ordering::Relaxed) == 0 => ViewsKnown::Kept,
            Ok(_) => ViewsKnown::Told,
        })
    }

    /// The same in short, for the controllers, without counting flows now.
    pub(crate) fn short_load(&self) -> SwitchLoad {
        let ports = self.ports().unwrap_or_default();
        let live = live_sessions(&self.dataplane, crate::sweep::now_ns());
        let has_generator = self.dataplane.has_map(WORK);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let short = |text: &str| text.chars().take(NAME_MOST).collect();
        SwitchLoad {
            name: short(&self.config.name),
            program: short(&self.dataplane.manifest().program),
            ports_attached: count(ports.iter().filter(|port| port.attached).count()),
            ports: count(ports.len()),
            sessions: count(live.iter().filter(|number| **number != 0).count()),
            owned: self.counted.last_owned(),
            pending: pending(&self.dataplane),
            generator_lag_us: has_generator.then(|| self.generator.lag_us.load(Ordering::Relaxed)),
        }
    }

    /// How much the switch holds and has to do.
    pub(crate) fn load(&self) -> Load {
        let events = crate::flow_state::events(&self.dataplane).unwrap_or_default();
        let ports = self.ports().unwrap_or_default();
        let (shards, sessions) = self.sessions();
        let has_generator = self.dataplane.has_map(WORK);
        Load {
            views: self.views_known(),
            views_version: self.views_version.load(Ordering::Relaxed),
            objects: self.objects(),
            shards,
            short_lease_us: self.short_lease_us(&sessions),
            sessions,
            pending: pending(&self.dataplane),
            generator_lag_us: has_generator.then(|| self.generator.lag_us.load(Ordering::Relaxed)),
            events: events.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            ports_attached: ports.iter().filter(|port| port.attached).count(),
            ports: ports.len(),
            gateway: self.gateway_load(),
            narrow_ports: self.narrow_ports(),
        }
    }

    /// Next hops, and what a gateway's program dropped and handed over.
    pub(crate) fn gateway_load(&self) -> GatewayLoad {
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        let hops = self.gateway.hops();
        let drops = self.dataplane.gateway_counts(&GATEWAY_DROPS).unwrap_or_default();
        let events = self.dataplane.gateway_counts(&GATEWAY_EVENTS).unwrap_or_default();
        GatewayLoad {
            next_hops: hops.count,
            unresolved: hops.unresolved,
            drops: drops.into_iter().map(named).collect(),
            events: events.into_iter().map(named).collect(),
            agent: self.gateway.counts().map(named).collect(),
            held: self.gateway.held.load(Ordering::Relaxed),
        }
    }

    /// Fabric ports that are too narrow; none for a program that has nothing in the store.
    pub(crate) fn narrow_ports(&self) -> Vec<NarrowPort> {
        match self.dataplane.has_flow_runtime() {
            true => narrow_ports(&self.config, &self.gateway.mtus()),
            false => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_owned_in_a_session_that_lives() {
        let entry = |shard: u16, session: u32, flags: u16| {
            let mut entry = vec![0; entry_at::KEY];
            entry[entry_at::SESSION..entry_at::SESSION + 4].copy_from_slice(&session.to_ne_bytes());
            entry[entry_at::SHARD..entry_at::SHARD + 2].copy_from_slice(&shard.to_ne_bytes());
            entry[entry_at::FLAGS..entry_at::FLAGS + 2].copy_from_slice(&flags.to_ne_bytes());
            entry
        };
        let owned = |shard, session, flags| is_owned(&entry(shard, session, flags), &[5, 0]);
        assert!(owned(0, 5, entry_flags::CLOSED));
        assert!(!owned(0, 4, 0), "of an earlier session");
        assert!(!owned(1, 5, 0) && !owned(2, 5, 0), "its shard has no lease");
        assert!(!owned(1, 0, 0), "never granted");
        assert!(!owned(0, 5, entry_flags::RELEASED) && !is_owned(&[], &[5]));
    }

    #[test]
    fn a_fabric_port_needs_room_for_the_hosts_packets_in_messages() {
        let config = |hosts_mtu: &str| {
            let text = format!(
                "name = \"s1\"\nobject = \"nat.o\"\n{hosts_mtu}\n\
                 [[port]]\ninterface = \"core\"\nport = 1\nfabric = true\n\
                 [[port]]\ninterface = \"tor\"\nport = 2\n"
            );
            Config::parse(std::path::Path::new("s1.toml"), &text).unwrap()
        };
        let narrow = |hosts_mtu: &str, core, tor| {
            let ports = narrow_ports(&config(hosts_mtu), &BTreeMap::from([(1, core), (2, tor)]));
            ports.first().map(|port| (port.leaves, port.hosts_mtu))
        };
        assert_eq!((narrow("", 1720, 1500), narrow("", 1719, 1500)), (None, Some((1499, 1500))));
        assert_eq!((narrow("", 1500, 1280), narrow("", 0, 1500)), (None, None), "0: not there");
        assert_eq!(narrow("", 1500, 0), Some((1280, 1500)), "Ethernet's, if nobody knows");
        assert_eq!(narrow("hosts_mtu = 9000", 1720, 1500), Some((1500, 9000)));
    }

    #[test]
    fn a_lease_of_which_the_margin_leaves_nothing_is_short() {
        let session = |lease_us| SessionLoad {
            shard: 0,
            number: 1,
            left_ms: 0,
            round_trip_us: 0,
            resend_timeout_us: 0,
            outstanding: 0,
            lease_us,
        };
        let short = |leases: &[u64]| shorter_than(300, &leases.iter().copied().map(session).collect::<Vec<_>>());
        assert_eq!((short(&[301]), short(&[300]), short(&[]), short(&[0])), (None, Some(300), None, None));
        assert_eq!(short(&[0, 400, 250, 299]), Some(250), "the shortest; a shard that has not answered says nothing");
    }
}
