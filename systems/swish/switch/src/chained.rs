//! Tables, sets and registers with SRO on this switch: what the agent does for their chain.

use crate::chain_member::ChainMember;
use crate::config::Source;
use crate::controlled::{Controlled, Following, lock};
use crate::exclusion::ExcludedLoad;
use crate::group::View;
use crate::lives::{Lives, Others};
use crate::load::ANEW;
use crate::orders::Keys;
use crate::strong::{Chain, ChainView, STATS, is_strong};
use crate::strong_keys::{StrongKeys, Table};
use daemon::metrics::{Kind, Text};
use dataplane::{Dataplane, SecretSet};
use manifest::{Manifest, StateObject};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use swish_protocol::objects::{Consistency, SET, TABLE};
use swish_protocol::strong::{COUNTED, CPUS, NodeValue};
use switch_agent::config::{CommitMode, Config};
use switch_agent::drops::Drops;
use switch_agent::system::{Holds, ObjectLoad, now_ns};
use switch_agent::{Context, Result, Running};
use wire::KeyRing;

/// What `stateplane status` is told of the chain has this name.
pub const CHAIN: &str = "shared_chain";

/// Looks of the packet generator: what waits for an answer that got lost waits for so long.
const INTERVAL: Duration = Duration::from_millis(1);
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
    /// Packets may read: it is a member, has all, and hears of the others.
    pub reads: bool,
    /// It is to leave the group, or has left it.
    #[serde(default)]
    pub leaves: bool,
    /// Switches that controllers keep out.
    #[serde(default, skip_serializing_if = "ExcludedLoad::is_empty")]
    pub excluded: ExcludedLoad,
    /// Of its tables.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Why it does not hear of controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// For how long batches have waited without one that reached all switches.
    #[serde(default)]
    pub still_ms: u64,
    /// Without controllers: members have not agreed yet to begin.
    #[serde(default)]
    pub meets: bool,
    /// Without controllers: members that do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<Ipv4Addr>,
    /// Without controllers: members that restarted without their state. This one may be among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarted: Vec<Ipv4Addr>,
    /// Without controllers: batches wait, and this is the first member that lacks them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<Ipv4Addr>,
}

/// Batches that wait for so long do not wait for a message that got lost.
const STILL_MS: u64 = 1_000;

impl ChainLoad {
    /// What is not as it should be, for operators. None: all is well.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![];
        for member in &self.restarted {
            notes.push(format!("{member} restarted without its state: {ANEW}"));
        }
        for member in &self.silent {
            let then = if self.meets { "the group begins when all do" } else { "writes wait" };
            notes.push(format!("{member} does not answer: {then}"));
        }
        if self.still_ms >= STILL_MS {
            let behind = self.applied.saturating_sub(self.committed);
            let lacks = match self.lacks {
                Some(member) if !self.restarted.contains(&member) => {
                    format!("; {member} is the first that lacks some")
                }
                _ => String::new(),
            };
            let s = self.still_ms / 1_000;
            notes.push(format!("{behind} batches are not at all switches, for {s} s{lacks}"));
        }
        if !self.reads && !self.leaves && self.restarted.is_empty() {
            let why = match &self.excluded.own {
                Some(why) => why.text(),
                None if self.meets => "members have not all agreed to begin".to_owned(),
                None => "a member does not answer, or this switch joins".to_owned(),
            };
            notes.push(format!("packets may not read: {why}"));
        }
        notes.extend(self.fault.clone());
        notes
    }
}

/// How long batches have waited.
#[derive(Default)]
struct Still {
    committed: u64,
    since_ns: u64,
}

/// The chain, on this switch.
pub(crate) struct Chained {
    dataplane: Arc<Dataplane>,
    config: Arc<Config>,
    chain: Chain,
    /// What controllers call it.
    part: String,
    /// None: controllers decide on it.
    lives: Option<Lives>,
    still: Mutex<Still>,
    controlled: Option<Arc<Controlled>>,
    /// When the data plane was last told the time.
    told_ns: AtomicU64,
    /// What operators read and write.
    tables: Vec<Table>,
    orders: Mutex<()>,
}

/// Checks what the configuration says beside the program's chain.
pub(crate) fn check(config: &Config, manifest: &Manifest) -> Result<()> {
    if config.commit == CommitMode::Wrap {
        let names = manifest.state_objects.iter().filter(|it| is_strong(it));
        let names: Vec<&str> = names.map(|it| it.name.as_str()).collect();
        let reason = format!(
            "must be \"batch\": packets that write {} wait in the switch until all switches have \
             the write",
            names.join(", ")
        );
        return config.fault("commit", reason);
    }
    Ok(())
}

/// The members are a chain in the order of the configuration.
fn view_of(view: &View, incarnation: u32) -> ChainView {
    let members = view.members.iter().map(|member| (member.number, member.address)).collect();
    let (joins, lease_ns) = (vec![], None);
    ChainView { number: 1, own: view.own, incarnation, members, joins, lease_ns, wait_ns: 0 }
}

impl Chained {
    pub(crate) fn begin(
        context: &Context,
        chain: Chain,
        (part, source): (String, &Source),
        controlled: Option<Arc<Controlled>>,
    ) -> Result<Chained> {
        let config = Arc::clone(&context.config);
        let lives = match source {
            Source::Fixed(fixed) => {
                Some(Lives::new(chain.clone(), view_of(fixed, context.incarnation)))
            }
            Source::Controllers(..) => None,
        };
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
            part,
            lives,
            still: Mutex::default(),
            controlled,
            told_ns: AtomicU64::new(0),
            tables: Table::all(context.dataplane.manifest())?,
            orders: Mutex::default(),
        })
    }

    fn count(&self, at: u32) -> u64 {
        self.dataplane.read_count(STATS, at).unwrap_or_default()
    }

    fn member(&self) -> Option<&Mutex<Following>> {
        self.controlled.as_ref()?.member(&self.part)
    }

    /// Of a group with controllers.
    fn with_member<T>(&self, ask: impl FnOnce(&mut ChainMember) -> T) -> Option<T> {
        lock(self.member()?).chain().map(ask)
    }

    /// From head to tail, as far as this agent knows them.
    fn members(&self) -> Vec<Ipv4Addr> {
        if let Some(lives) = &self.lives {
            return lives.members().iter().map(|(_, address)| *address).collect();
        }
        let addresses = |member: &mut ChainMember| {
            member.members().unwrap_or_default().iter().map(|it| it.address).collect()
        };
        self.with_member(addresses).unwrap_or_default()
    }

    /// What operators read and write.
    pub(crate) fn keys(&self) -> Vec<Box<dyn Keys + '_>> {
        let keys = |table| StrongKeys { dataplane: &self.dataplane, table, turn: &self.orders };
        self.tables.iter().map(|table| Box::new(keys(table)) as Box<dyn Keys>).collect()
    }

    fn load(&self) -> Option<ChainLoad> {
        let node = self.chain.node(&self.dataplane).ok()?;
        let now_ns = now_ns();
        let others = self.lives.as_ref().map(|it| it.others(&self.dataplane, now_ns));
        let meets = others.as_ref().is_some_and(|it| it.as_ref().is_ok_and(|it| !it.agreed));
        let Others { silent, restarted, lacks, .. } = others.transpose().ok()?.unwrap_or_default();
        // (Without controllers, a number for lives is in a view's lower half.)
        let view = if self.lives.is_some() { node.view >> u32::BITS } else { node.view };
        let still_ms = self.stands(&node, now_ns) / 1_000_000;
        Some(ChainLoad {
            group: self.chain.group.clone(),
            members: self.members(),
            view,
            applied: node.applied,
            committed: node.committed,
            reads: node.reads_ns > now_ns,
            leaves: self.with_member(|it| it.leaves()).unwrap_or_default(),
            excluded: self.with_member(|it| it.excluded(now_ns)).unwrap_or_default(),
            memory_bytes: self.chain.memory_bytes(&self.dataplane),
            fault: self.controlled.as_ref().and_then(|it| it.fault()),
            still_ms,
            meets,
            silent,
            restarted,
            lacks: lacks.filter(|_| still_ms >= STILL_MS),
        })
    }

    /// For how long, in ns, batches have waited without one that reached all switches.
    fn stands(&self, node: &NodeValue, now_ns: u64) -> u64 {
        let mut still = lock(&self.still);
        if still.since_ns == 0
            || node.committed != still.committed
            || node.committed >= node.applied
        {
            *still = Still { committed: node.committed, since_ns: now_ns };
        }
        now_ns.saturating_sub(still.since_ns)
    }
}

/// What `stateplane status` is told of a variable. `live`: keys of a table or set.
pub(crate) fn object_load(
    object: &StateObject,
    consistency: String,
    live: impl FnOnce() -> u64,
) -> ObjectLoad {
    let has_keys = [TABLE, SET].contains(&object.kind.as_str());
    ObjectLoad {
        name: object.name.clone(),
        consistency,
        flows: if has_keys { live() } else { 0 },
        owned: 0,
        limit: object.capacity,
        holds: if has_keys { Holds::Entries } else { Holds::Cells },
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
        let Some(lives) = &self.lives else {
            self.with_member(ChainMember::begin);
            return Ok(());
        };
        // (Or an earlier agent began the chain: it goes on, in that life.)
        if lives.begin(&self.dataplane)? {
            return Ok(());
        }
        self.config.fault(format!("shared.{}", self.chain.group), crate::OTHER_VIEW)
    }

    fn due(&self, now_ns: u64) -> u64 {
        if now_ns.saturating_sub(self.told_ns.load(Ordering::Relaxed)) > TELL_TIME_NS {
            self.told_ns.store(now_ns, Ordering::Relaxed);
            // (The next one is as good: the data plane goes on with what it knows.)
            let _ = self.chain.tell_time(&self.dataplane);
            if let Ok(node) = self.chain.node(&self.dataplane) {
                self.stands(&node, now_ns);
            }
        }
        let frames = match &self.lives {
            Some(lives) => lives.due(&self.dataplane, now_ns),
            None => self.chain.frames(&self.dataplane),
        };
        frames.unwrap_or_default()
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        let load = |object: &StateObject| {
            let live = || self.chain.live(&self.dataplane, object).unwrap_or_default().into();
            object_load(object, Consistency::Sro.name().to_lowercase(), live)
        };
        let all = self.dataplane.manifest().state_objects.iter();
        all.filter(|it| is_strong(it)).map(load).collect()
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
        let help = "For so many seconds batches have waited, and none came to be in all switches.";
        let name = "stateplane_switch_shared_chain_still_seconds";
        let still_s = load.still_ms / 1_000;
        text.family(name, Kind::Gauge, help).sample(&[("group", &load.group)], still_s);
        let help = "Without controllers: members that do not answer, or that restarted without \
                    their state.";
        let name = "stateplane_switch_shared_chain_members";
        let mut family = text.family(name, Kind::Gauge, help);
        for (state, members) in [("silent", &load.silent), ("restarted", &load.restarted)] {
            family.sample(&[("group", &load.group), ("state", &state)], members.len());
        }
    }
}
