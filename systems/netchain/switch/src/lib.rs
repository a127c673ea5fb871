//! NetChain's part of a switch: what the agent registers ([`NetChain`]).
//!
//! It owns: what `stateplane status` and metrics tell of slots and windows; that windows of silent
//! clients are cleared. It must not know: how a switch
//! starts, messages, who is in which chain (tables say that today; a controller will).

#![forbid(unsafe_code)]

pub mod windows;

use daemon::metrics::{Kind, Text};
use dataplane::Dataplane;
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Manifest, StateObject};
use netchain_protocol::layouts::COUNTED;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch_agent::config::Config;
use switch_agent::drops::Drops;
use switch_agent::system::{ObjectLoad, now_ns};
use switch_agent::{Context, Result, Running, System};
use windows::Windows;

/// As a manifest's state objects name it.
const SYSTEM: &str = "netchain";
/// The kind of object that is no slots.
const WINDOW: &str = "RequestWindow";

/// The runtime's counter of packets that ran again; the others count what was dropped or refused.
const AGAIN: u32 = 0;

/// See the crate.
pub struct NetChain;

impl System for NetChain {
    fn name(&self) -> &'static str {
        SYSTEM
    }

    fn check(&self, _: &Config, _: &Manifest) -> Result<()> {
        Ok(())
    }

    fn begin(&self, context: &Context) -> Result<Option<Box<dyn Running>>> {
        let all = context
            .dataplane
            .manifest()
            .state_objects
            .iter()
            .filter(|object| object.system == SYSTEM)
            .cloned();
        let (windows, slots): (Vec<StateObject>, _) = all.partition(|it| it.kind == WINDOW);
        if windows.is_empty() && slots.is_empty() {
            return Ok(None);
        }
        let windows = windows.into_iter().map(Windows::new).collect();
        Ok(Some(Box::new(Objects { dataplane: Arc::clone(&context.dataplane), slots, windows })))
    }
}

/// The state of a loaded object.
struct Objects {
    dataplane: Arc<Dataplane>,
    slots: Vec<StateObject>,
    windows: Vec<Windows>,
}

impl Objects {
    /// Slots that were ever in use. None: the map cannot be read.
    fn used(&self, object: &StateObject) -> Option<u32> {
        let bytes = self.dataplane.read_array(&format!("{}_used", object.map), 0).ok()?;
        let used = u32::from_ne_bytes(*bytes.first_chunk()?);
        // CPUs that came too late for the last slot have counted on.
        Some(used.min(object.capacity))
    }

    /// A counter of the runtime, over all CPUs.
    fn count(&self, index: u32) -> u64 {
        let read = |map: &dyn MapCore| map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
        let per_cpu = self.dataplane.map("sp_slots_stats").and_then(|map| read(map).ok()).flatten();
        let values = per_cpu.into_iter().flatten();
        values.filter_map(|bytes| bytes.first_chunk().copied()).map(u64::from_ne_bytes).sum()
    }
}

impl Running for Objects {
    fn configure(&self, _: Duration) -> Result<()> {
        Ok(())
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
        let slots = self.slots.iter().filter_map(|it| Some(load(it, "chain", self.used(it)?)));
        let windows = self.windows.iter().map(|it| load(&it.object, "local", it.clients()));
        slots.chain(windows).collect()
    }

    fn drops(&self) -> Vec<Drops> {
        let drop = |(at, (reason, remedy)): (u32, (&'static str, Option<&'static str>))| {
            Some(Drops { reason, remedy: remedy?, count: self.count(at) })
        };
        (0..).zip(COUNTED).filter_map(drop).collect()
    }

    fn metrics(&self, text: &mut Text) {
        text.single(
            "stateplane_switch_slots_again_total",
            Kind::Counter,
            "Packets that ran again because another packet changed their slot.",
            self.count(AGAIN),
        );
    }
}
