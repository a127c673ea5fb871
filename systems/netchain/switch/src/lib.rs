//! NetChain's part of a switch: what the agent registers ([`NetChain`]).
//!
//! It owns: clients' keys in the data plane; who its peers are, and their leases; copies of slots
//! for members that join; the controller's decisions in tables, and reports to it; what `stateplane
//! status` and metrics tell of slots, windows, peers, copies and dropped messages; that windows of
//! silent clients are cleared. It must not know: how a switch starts, clients' messages, how who is
//! in which chain is decided.

#![forbid(unsafe_code)]

mod announce;
mod by_hand;
mod config;
mod controlled;
pub mod copies;
pub mod empties;
mod fill;
mod held;
mod keys;
pub mod peers;
mod roles;
pub mod windows;

pub use controlled::ControlledLoad;
pub use held::{Held, HeldKey, HeldWanted};
pub use keys::{ClientDrops, Keys, KeysLoad};

use controlled::{Controlled, REFUSED};
use copies::Copies;
use daemon::metrics::{Kind, Text};
use dataplane::Dataplane;
use empties::{Empties, Slots};
use fill::Fill;
use manifest::{Manifest, StateObject};
use netchain_protocol::layouts::{COUNTED, PEERS_COUNTED, TAG_DROPS};
use peers::{PeerLoad, Peers};
use roles::Tables;
use serde_json::{Map, Value};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch_agent::config::Config;
use switch_agent::drops::Drops;
use switch_agent::system::{Holds, ObjectLoad, now_ns};
use switch_agent::{Context, Result, Running, System};
use windows::Windows;
use wire::KeyRing;

/// What `stateplane status` is told of clients' keys has this name.
pub const CLIENT_KEYS: &str = "client_keys";
/// What it is told of peers has this name.
pub const PEERS: &str = "peers";
/// What it is told of copies has this name.
pub const COPIES: &str = "copies";
/// What it is told of the controllers has this name.
pub const CONTROLLED: &str = "decision";
/// As a manifest's state objects name it.
const SYSTEM: &str = "netchain";
/// Kinds of objects, as a manifest names them.
const SLOT_STATE: &str = "SlotState";
const WINDOW: &str = "RequestWindow";
const MESSAGE_TAG: &str = "MessageTag";
const PEER_LEASES: &str = "PeerLeases";

/// The runtime's counter of packets that ran again; the others count what was dropped or refused.
const AGAIN: u32 = 0;

/// Counters of the program whose name ends like this: reason, remedy.
const PROGRAM_DROPS: [(&str, &str); 1] = [(
    "malformed",
    "malformed messages: a client of another version sends them, or somebody forges them",
)];

/// See the crate.
pub struct NetChain;

impl System for NetChain {
    fn name(&self) -> &'static str {
        SYSTEM
    }

    fn fields(&self) -> &'static [&'static str] {
        &config::FIELDS
    }

    fn check(&self, config: &Config, manifest: &Manifest) -> Result<()> {
        if Keys::needed(manifest) { config::check(config) } else { Ok(()) }
    }

    fn has_controllers(&self, manifest: &Manifest) -> bool {
        manifest.state_objects.iter().any(|it| it.system == SYSTEM && it.kind == PEER_LEASES)
    }

    fn begin(&self, context: &Context) -> Result<Option<Box<dyn Running>>> {
        let dataplane = Arc::clone(&context.dataplane);
        let manifest = dataplane.manifest();
        let of_kind = |kind: &'static str| {
            let all = manifest.state_objects.iter();
            all.filter(move |it| it.system == SYSTEM && it.kind == kind).cloned()
        };
        let slots: Vec<StateObject> = of_kind(SLOT_STATE).collect();
        let windows: Vec<Windows> = of_kind(WINDOW).map(Windows::new).collect();
        let windows = Arc::new(windows);
        let keys = if Keys::needed(manifest) {
            Some(Keys::new(Arc::clone(&dataplane), config::source(&context.config)?))
        } else {
            None
        };
        let leases = of_kind(PEER_LEASES).next().is_some();
        let (pace, by_hand) = config::peers(&context.config)?;
        let per_s = config::copies_per_s(&context.config)?;
        let copied = slots.first().filter(|_| leases).cloned();
        let copies = copied.map(|object| Copies::new(Arc::clone(&dataplane), object, per_s));
        let copies = copies.transpose()?.map(Arc::new);
        let peers = leases.then(|| Peers::new(Arc::clone(&dataplane), pace)).transpose()?;
        let peers = peers.map(Arc::new);
        if windows.is_empty() && slots.is_empty() && keys.is_none() && peers.is_none() {
            return Ok(None);
        }
        let fills = slots.iter().map(|it| Fill::new(Arc::clone(&dataplane), it.clone()));
        let fills = fills.map(|it| it.map(Arc::new)).collect::<std::result::Result<Vec<_>, _>>()?;
        let controlled = match &peers {
            Some(peers) => controlled(context, peers, copies.as_ref(), &fills, &windows)?,
            None => None,
        };
        Ok(Some(Box::new(Objects {
            dataplane,
            fills,
            windows,
            keys,
            peers,
            copies,
            by_hand,
            controlled,
        })))
    }
}

/// What the controllers tell, if the configuration names any.
fn controlled(
    context: &Context,
    peers: &Arc<Peers>,
    copies: Option<&Arc<Copies>>,
    fills: &[Arc<Fill>],
    windows: &Arc<Vec<Windows>>,
) -> Result<Option<Arc<Controlled>>> {
    let Some((mut settings, ring)) = config::controlled(&context.config)? else { return Ok(None) };
    settings.incarnation = context.incarnation;
    let tables = Tables::new(Arc::clone(&context.dataplane), settings.own, settings.ring);
    let switches: Vec<Ipv4Addr> = ring.members().iter().map(|member| member.address).collect();
    let (peers, copies) = (Arc::clone(peers), copies.cloned());
    let dataplane = &context.dataplane;
    let slots = fills.iter().map(|it| Slots::new(Arc::clone(dataplane), it.object.clone()));
    let slots = slots.collect::<std::result::Result<_, _>>()?;
    let (windows, members) = (Arc::clone(windows), tables.members()?);
    let empties = Empties::new(Arc::clone(dataplane), slots, windows, members);
    Controlled::begin(settings, tables, peers, (copies, empties, fills.to_vec()), &switches)
        .map(|it| Some(Arc::new(it)))
}

/// The state of a loaded object.
struct Objects {
    dataplane: Arc<Dataplane>,
    fills: Vec<Arc<Fill>>,
    windows: Arc<Vec<Windows>>,
    /// If the program checks tags.
    keys: Option<Keys>,
    /// If the program has leases.
    peers: Option<Arc<Peers>>,
    /// Of the first object with slots, if the program has leases: its generator makes copies.
    copies: Option<Arc<Copies>>,
    /// The peers, as the configuration says.
    by_hand: Vec<Ipv4Addr>,
    /// If there are controllers.
    controlled: Option<Arc<Controlled>>,
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.controlled.iter().for_each(|it| it.stop());
    }
}

impl Objects {
    /// A counter of the runtime, over all CPUs.
    fn count(&self, index: u32) -> u64 {
        self.dataplane.read_count("sp_slots_stats", index).unwrap_or_default()
    }
}

impl Objects {
    fn metrics_of_peers(&self, peers: &Peers, text: &mut Text) {
        let count = |at| self.dataplane.read_count(peers::COUNTERS, at).unwrap_or_default();
        let help = "Probes that this switch sent to other switches, their answers, answers without \
                    a probe of this switch, and copies of slots.";
        let mut family = text.family("stateplane_switch_peer_messages_total", Kind::Counter, help);
        for (at, what) in (0..).zip(PEERS_COUNTED) {
            family.sample(&[("what", &what)], count(at));
        }
        if let Some(copies) = &self.copies {
            let left: u32 = copies.load().iter().filter_map(|job| job.left).sum();
            let help = "Slots that are still to be copied to members that join.";
            text.single("stateplane_switch_copies_left", Kind::Gauge, help, left);
        }
        let load = peers.load();
        let help = "Time since a switch last answered a probe.";
        let mut family = text.family("stateplane_switch_peer_silent_seconds", Kind::Gauge, help);
        for PeerLoad { address, silent_ms, .. } in &load {
            family.sample(&[("peer", address)], *silent_ms as f64 / 1000.0);
        }
        let help = "Whether this switch has a lease of the other switch, which reads need.";
        let mut family = text.family("stateplane_switch_peer_lease", Kind::Gauge, help);
        for PeerLoad { address, lease, .. } in &load {
            family.sample(&[("peer", address)], u64::from(*lease));
        }
    }
}

/// What a counter of the program whose name ends like this has counted.
fn counted(dataplane: &Dataplane, name: &str) -> u64 {
    let read = |counter| dataplane.read_counter(counter, 0).map(|it| it.packets);
    dataplane.counter(name).and_then(read).unwrap_or_default()
}

impl Running for Objects {
    fn configure(&self, _: Duration) -> Result<()> {
        self.keys.as_ref().map_or(Ok(()), Keys::read)
    }

    /// (The program has them already; a new file of clients' keys comes by the same signal.)
    fn secrets(&self, _: &KeyRing) -> Result<()> {
        self.keys.as_ref().map_or(Ok(()), Keys::read)
    }

    /// So that probes go out in time.
    fn interval(&self) -> Option<Duration> {
        let peers = self.peers.as_ref()?;
        Some(Duration::from_micros(peers.pace().probe_ms * 500))
    }

    fn serve(&self) -> Result<()> {
        self.controlled.iter().try_for_each(Controlled::serve)
    }

    fn own_addresses(&self) -> Vec<Ipv4Addr> {
        self.controlled.iter().flat_map(|it| it.own_addresses()).collect()
    }

    fn due(&self, now_ns: u64) -> u64 {
        let probes = self.peers.as_ref().map_or(0, |peers| peers.due(now_ns));
        probes + self.copies.as_ref().map_or(0, |copies| copies.due(now_ns))
    }

    fn look(&self) {
        self.keys.iter().for_each(Keys::look);
        for fill in &self.fills {
            fill.count();
        }
        if let (Some(peers), false) = (&self.peers, self.by_hand.is_empty()) {
            by_hand::set(&self.dataplane, peers, &self.by_hand);
        }
    }

    fn status(&self) -> Map<String, Value> {
        let keys = self.keys.as_ref().and_then(|keys| serde_json::to_value(keys.load()).ok());
        let peers = self.peers.as_ref().and_then(|peers| serde_json::to_value(peers.load()).ok());
        let copies = self.copies.as_ref().and_then(|it| serde_json::to_value(it.load()).ok());
        let controlled = self.controlled.as_ref();
        let controlled = controlled.and_then(|it| serde_json::to_value(it.load()).ok());
        let all = [(CLIENT_KEYS, keys), (PEERS, peers), (COPIES, copies), (CONTROLLED, controlled)];
        all.into_iter().filter_map(|(name, load)| Some((name.to_owned(), load?))).collect()
    }

    fn sweep(&self, until: Instant) -> Result<()> {
        let sweep = |windows: &Windows| windows.sweep(&self.dataplane, now_ns(), until);
        Ok(self.windows.iter().try_for_each(sweep)?)
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        let load = |object: &StateObject, consistency: &str, used: u32| ObjectLoad {
            name: object.name.clone(),
            consistency: consistency.into(),
            flows: used.into(),
            owned: used.into(),
            limit: object.capacity,
            holds: Holds::Flows,
        };
        let slots = self.fills.iter().map(|it| load(&it.object, "chain", it.count()));
        let windows = self.windows.iter().map(|it| load(&it.object, "local", it.clients()));
        slots.chain(windows).collect()
    }

    fn drops(&self) -> Vec<Drops> {
        let drop = |(at, (reason, remedy)): (u32, (&'static str, Option<&'static str>))| {
            Some(Drops { reason, remedy: remedy?, count: self.count(at) })
        };
        let slots = (0..).zip(COUNTED).filter_map(drop);
        let Some(keys) = &self.keys else { return slots.collect() };
        let tags = (0..).zip(TAG_DROPS).map(|(at, (reason, remedy))| Drops {
            reason,
            remedy,
            count: keys.dropped(at),
        });
        let program = PROGRAM_DROPS.map(|(reason, remedy)| Drops {
            reason,
            remedy,
            count: counted(&self.dataplane, reason),
        });
        let controlled = self.controlled.iter().flat_map(|it| {
            let refused = REFUSED.iter().enumerate();
            refused.map(|(at, (reason, remedy))| Drops { reason, remedy, count: it.refused(at) })
        });
        slots.chain(tags).chain(program).chain(controlled).collect()
    }

    fn metrics(&self, text: &mut Text) {
        text.single(
            "stateplane_switch_slots_again_total",
            Kind::Counter,
            "Packets that ran again because another packet changed their slot.",
            self.count(AGAIN),
        );
        if let Some(peers) = &self.peers {
            self.metrics_of_peers(peers, text);
        }
        if let Some(controlled) = &self.controlled {
            let load = controlled.load();
            let gauges = [
                ("decision_version", "Version of the controller's decision.", load.version),
                ("controllers", "Controllers that answer.", load.controllers as u64),
                (
                    "stands_in",
                    "Dead switches whose addresses this switch answers for.",
                    load.stands_in.len() as u64,
                ),
                (
                    "decision_fault",
                    "Whether the switch cannot apply the controller's decision.",
                    u64::from(load.fault.is_some()),
                ),
            ];
            for (name, help, value) in gauges {
                text.single(&format!("stateplane_switch_{name}"), Kind::Gauge, help, value);
            }
            let (taken, us) = controlled.taken();
            let counters = [
                (
                    "decisions_total",
                    "Decisions of the controller that the switch has applied.",
                    taken,
                ),
                (
                    "decisions_microseconds_total",
                    "Time that the switch took to apply decisions.",
                    us,
                ),
            ];
            for (name, help, value) in counters {
                text.single(&format!("stateplane_switch_{name}"), Kind::Counter, help, value);
            }
        }
        let Some(keys) = &self.keys else { return };
        let mut family = text.family(
            "stateplane_switch_client_dropped_total",
            Kind::Counter,
            "Messages of a client that were dropped, by its key and the reason.",
        );
        for ClientDrops { key, forged, denied, over_rate, .. } in keys.dropped_by_client() {
            for (reason, count) in
                [("forged", forged), ("denied", denied), ("over_rate", over_rate)]
            {
                family.sample(&[("key", &key), ("reason", &reason)], count);
            }
        }
    }
}
