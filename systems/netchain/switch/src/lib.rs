//! NetChain's part of a switch: what the agent registers ([`NetChain`]).
//!
//! It owns: clients' keys in the data plane; what `stateplane status` and metrics tell of slots,
//! windows and dropped messages; that windows of silent clients are cleared. It must not know: how
//! a switch starts, messages, who is in which chain (tables say that today; a controller will).

#![forbid(unsafe_code)]

mod config;
pub mod follow;
mod keys;
pub mod windows;

pub use keys::{ClientDrops, Keys, KeysLoad};

use daemon::metrics::{Kind, Text};
use dataplane::Dataplane;
use manifest::{Manifest, StateObject};
use netchain_protocol::layouts::{COUNTED, TAG_DROPS};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch_agent::config::Config;
use switch_agent::drops::Drops;
use switch_agent::system::{ObjectLoad, now_ns};
use switch_agent::{Context, Result, Running, System};
use windows::Windows;
use wire::KeyRing;

/// What `stateplane status` is told of clients' keys has this name.
pub const CLIENT_KEYS: &str = "client_keys";
/// As a manifest's state objects name it.
const SYSTEM: &str = "netchain";
/// Kinds of objects, as a manifest names them.
const SLOT_STATE: &str = "SlotState";
const WINDOW: &str = "RequestWindow";
const MESSAGE_TAG: &str = "MessageTag";

/// The runtime's counter of packets that ran again; the others count what was dropped or refused.
const AGAIN: u32 = 0;

/// Counters of the program whose name ends like this: reason, remedy.
const PROGRAM_DROPS: [(&str, &str); 1] = [(
    "malformed",
    "messages of other lengths or fields than there are: a client of another version, or somebody \
     who tries",
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

    fn begin(&self, context: &Context) -> Result<Option<Box<dyn Running>>> {
        let dataplane = Arc::clone(&context.dataplane);
        let manifest = dataplane.manifest();
        let of_kind = |kind: &'static str| {
            let all = manifest.state_objects.iter();
            all.filter(move |it| it.system == SYSTEM && it.kind == kind).cloned()
        };
        let slots: Vec<StateObject> = of_kind(SLOT_STATE).collect();
        let windows: Vec<Windows> = of_kind(WINDOW).map(Windows::new).collect();
        let keys = if Keys::needed(manifest) {
            Some(Keys::new(Arc::clone(&dataplane), config::source(&context.config)?))
        } else {
            None
        };
        if windows.is_empty() && slots.is_empty() && keys.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::new(Objects { dataplane, slots, windows, keys })))
    }
}

/// The state of a loaded object.
struct Objects {
    dataplane: Arc<Dataplane>,
    slots: Vec<StateObject>,
    windows: Vec<Windows>,
    /// If the program checks tags.
    keys: Option<Keys>,
}

impl Objects {
    /// A counter of the runtime, over all CPUs.
    fn count(&self, index: u32) -> u64 {
        self.dataplane.read_count("sp_slots_stats", index).unwrap_or_default()
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

    fn look(&self) {
        self.keys.iter().for_each(Keys::look);
    }

    fn status(&self) -> Map<String, Value> {
        let load = self.keys.as_ref().and_then(|keys| serde_json::to_value(keys.load()).ok());
        load.map(|load| (CLIENT_KEYS.to_owned(), load)).into_iter().collect()
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
        };
        // (An object whose map cannot be read is left out.)
        let used = |it| windows::used(&self.dataplane, it).ok();
        let slots = self.slots.iter().filter_map(|it| Some(load(it, "chain", used(it)?)));
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
        slots.chain(tags).chain(program).collect()
    }

    fn metrics(&self, text: &mut Text) {
        text.single(
            "stateplane_switch_slots_again_total",
            Kind::Counter,
            "Packets that ran again because another packet changed their slot.",
            self.count(AGAIN),
        );
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
