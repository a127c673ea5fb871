//! The shared variables of a loaded object, as the agent calls them: those with SRO, and those with
//! SDW and EWO.

use crate::chained::Chained;
use crate::controlled::{self, Controlled, lock};
use crate::orders::{self, Keys};
use crate::{CONTROLLERS, Objects};
use daemon::metrics::Text;
use dataplane::Dataplane;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use switch_agent::drops::Drops;
use switch_agent::system::ObjectLoad;
use switch_agent::{Result, Running};
use wire::KeyRing;

/// See the module.
pub(crate) struct Parts {
    pub dataplane: Arc<Dataplane>,
    /// SRO.
    pub chained: Option<Chained>,
    /// SDW and EWO.
    pub objects: Option<Objects>,
    /// The groups with controllers.
    pub controlled: Option<Arc<Controlled>>,
}

impl Parts {
    fn each(&self) -> impl Iterator<Item = &dyn Running> {
        let chained = self.chained.iter().map(|it| it as &dyn Running);
        chained.chain(self.objects.iter().map(|it| it as &dyn Running))
    }

    /// What operators read and write.
    fn keys(&self) -> Vec<Box<dyn Keys + '_>> {
        let strong = self.chained.iter().flat_map(Chained::keys);
        let last = self.objects.iter();
        strong.chain(last.flat_map(|it| orders::last_writers(&self.dataplane, &it.keyed))).collect()
    }

    /// The switch leaves groups with controllers, or comes back.
    fn leave(&self, group: Option<&str>, leaves: bool) -> Result<()> {
        for found in controlled::named(self.controlled.as_deref(), group)? {
            lock(&found.member).leave(&self.dataplane, leaves)?;
        }
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.controlled.iter().for_each(|it| it.stop());
    }
}

impl Running for Parts {
    fn interval(&self) -> Option<Duration> {
        self.each().filter_map(Running::interval).min()
    }

    fn configure(&self, interval: Duration) -> Result<()> {
        self.each().try_for_each(|it| it.configure(interval))
    }

    fn secrets(&self, ring: &KeyRing) -> Result<()> {
        self.each().try_for_each(|it| it.secrets(ring))
    }

    fn serve(&self) -> Result<()> {
        self.controlled.iter().try_for_each(|it| it.serve())
    }

    fn due(&self, now_ns: u64) -> u64 {
        self.each().map(|it| it.due(now_ns)).fold(0, u64::saturating_add)
    }

    fn due_on(&self, cpu: usize, now_ns: u64) -> u64 {
        self.each().map(|it| it.due_on(cpu, now_ns)).fold(0, u64::saturating_add)
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        self.each().flat_map(Running::objects).collect()
    }

    fn status(&self) -> Map<String, Value> {
        let controllers = self.controlled.iter().filter_map(|it| {
            Some((CONTROLLERS.to_owned(), serde_json::to_value(it.controllers()).ok()?))
        });
        self.each().flat_map(Running::status).chain(controllers).collect()
    }

    fn request(&self, op: &str, request: &Value) -> Option<Result<Value>> {
        let group = request.get("group").and_then(Value::as_str);
        match op {
            "shared" => {}
            "shared_leave" | "shared_join" => {
                if let Err(error) = self.leave(group, op == "shared_leave") {
                    return Some(Err(error));
                }
            }
            _ => return orders::request(&self.dataplane, &self.keys(), op, request),
        }
        Some(Ok(Value::Object(self.status())))
    }

    /// (Both parts refuse messages for the same reasons.)
    fn drops(&self) -> Vec<Drops> {
        let mut found: Vec<Drops> = vec![];
        let refused = self.controlled.iter().flat_map(|it| it.drops());
        for drops in self.each().flat_map(Running::drops).chain(refused) {
            match found.iter_mut().find(|it| it.reason == drops.reason) {
                Some(known) => known.count += drops.count,
                None => found.push(drops),
            }
        }
        found
    }

    fn metrics(&self, text: &mut Text) {
        self.each().for_each(|it| it.metrics(text));
        self.controlled.iter().for_each(|it| it.metrics(text));
    }
}
