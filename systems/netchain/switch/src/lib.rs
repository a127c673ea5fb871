//! NetChain's part of a switch: what the agent registers ([`NetChain`]).
//!
//! It owns: what `stateplane status` and metrics tell of slots. It must not know: how a switch
//! starts, messages, who is in which chain (tables say that today; a controller will).

#![forbid(unsafe_code)]

use daemon::metrics::{Kind, Text};
use dataplane::Dataplane;
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Manifest, StateObject};
use netchain_protocol::layouts::COUNTED;
use std::sync::Arc;
use std::time::Duration;
use switch_agent::config::Config;
use switch_agent::drops::Drops;
use switch_agent::system::ObjectLoad;
use switch_agent::{Context, Result, Running, System};

/// As a manifest's state objects name it.
const SYSTEM: &str = "netchain";

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
        let objects: Vec<StateObject> = context
            .dataplane
            .manifest()
            .state_objects
            .iter()
            .filter(|object| object.system == SYSTEM)
            .cloned()
            .collect();
        if objects.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(Slots { dataplane: Arc::clone(&context.dataplane), objects })))
    }
}

/// The slots of a loaded object.
struct Slots {
    dataplane: Arc<Dataplane>,
    objects: Vec<StateObject>,
}

impl Slots {
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

impl Running for Slots {
    fn configure(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        let load = |object: &StateObject| {
            let used = self.used(object)?.into();
            Some(ObjectLoad {
                name: object.name.clone(),
                consistency: "chain".into(),
                flows: used,
                owned: used,
                limit: object.capacity,
            })
        };
        self.objects.iter().filter_map(load).collect()
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
