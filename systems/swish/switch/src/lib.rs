//! SwiSh's part of a switch: what the agent registers ([`SwiSh`]).
//!
//! It owns: the members of each group of variables in the data plane; which frames the packet
//! generator makes for them; what `stateplane status` and metrics tell of groups. It must not know:
//! how a switch starts, when a window turns (`bpf/swish`).

#![forbid(unsafe_code)]

mod buckets;
mod cells;
mod chain_member;
mod chained;
mod config;
mod controlled;
pub mod due;
pub mod eventual;
mod eventual_load;
pub mod eventual_member;
pub mod exclusion;
pub mod fold;
pub mod gossip;
pub mod group;
pub mod hearing;
pub mod keyed;
pub mod lives;
pub mod load;
mod maps;
pub mod membership;
pub mod mutation;
pub mod orders;
mod parts;
pub mod records;
pub mod silence;
pub mod strong;
pub mod strong_keys;
mod tree;
pub mod variables;

use chain_member::ChainMember;
pub use chained::{CHAIN, ChainLoad};
use chained::{Chained, object_load};
use config::{Has, Source};
pub use controlled::ControllersLoad;
use controlled::{Controlled, Following, lock};
use daemon::metrics::{Kind, Text};
use dataplane::Dataplane;
use eventual::EventualGroup;
use eventual_load::Eventual;
pub use eventual_load::{EventualLoad, RecordsLoad};
use eventual_member::EventualMember;
use exclusion::ExcludedLoad;
use group::{Group, Looks, Open, STATS, View};
use load::{GroupLoad, LATE_MS, Traffic, is_late, relaxation};
use manifest::{Manifest, StateObject};
use membership::Member;
use parts::Parts;
use records::Object;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strong::{Chain, is_strong};
use swish_protocol::control::{Load, part_name};
use swish_protocol::eventual::FRAME_BYTES;
use swish_protocol::layouts::{COUNTED, CPUS, MEMBERS};
use swish_protocol::objects::{Consistency, SYSTEM};
use switch_agent::config::Config;
use switch_agent::drops::Drops;
use switch_agent::system::ObjectLoad;
use switch_agent::system::now_ns;
use switch_agent::{Context, Result, Running, System};
use wire::KeyRing;

/// What `stateplane status` is told of groups has this name.
pub const SHARED: &str = "shared";

/// What it is told of variables with EWO.
pub const EVENTUAL: &str = "shared_eventual";

/// What it is told of controllers.
pub const CONTROLLERS: &str = "shared_controllers";

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
        let chain = Chain::of(manifest)?;
        let (groups, eventual) = (Group::all(manifest)?, EventualGroup::all(manifest)?);
        let is_empty = chain.is_none() && groups.is_empty() && eventual.is_empty();
        if !is_empty && config.secrets.is_none() {
            let reason = "is needed, as the program has shared variables: switches tag their \
                          messages (`stateplane keys generate FILE` makes a file)";
            return config.fault("secrets", reason);
        }
        if chain.is_some() {
            chained::check(config, manifest)?;
        }
        // (Before the object is loaded: the kernel may not have as much.)
        for group in &groups {
            let (name, bytes) = (&group.described.name, group.memory_bytes());
            let (members, room) = (group.members_bytes(), group.room());
            tracing::info!(
                "shared variables with SDW, group {name}: {bytes} bytes of memory, of which \
                 {members} for up to {room} members"
            );
        }
        for group in &eventual {
            let (name, bytes) = (&group.described.name, group.memory_bytes);
            tracing::info!("shared variables with EWO, group {name}: {bytes} bytes of memory");
        }
        configured(config, chain.as_ref(), groups, eventual).map(drop)
    }

    fn doubts(&self, config: &Config, manifest: &Manifest) -> Result<Vec<(String, String)>> {
        let chain = Chain::of(manifest)?;
        let (groups, eventual) = (Group::all(manifest)?, EventualGroup::all(manifest)?);
        let with_windows: Vec<&str> = groups.iter().map(|it| &*it.described.name).collect();
        let others = eventual.iter().map(|it| &*it.described.name);
        let others: BTreeSet<&str> = others.chain(chain.iter().map(|it| &*it.group)).collect();
        let known: Vec<&str> = with_windows.iter().chain(&others).copied().collect();
        let said = config::groups(config, &known)?;
        let has = |name: &str| Has { windows: with_windows.contains(&name), eventual: true };
        Ok(others.iter().flat_map(|name| said.unused(name, has(name))).collect())
    }

    fn figures(&self, config: &Config, manifest: &Manifest) -> Result<Vec<(String, String)>> {
        let groups = Group::all(manifest)?.into_iter();
        let names: Vec<String> = groups.map(|it| it.described.name).collect();
        config::bounds(config, &names)
    }

    fn begin(&self, context: &Context) -> Result<Option<Box<dyn Running>>> {
        let dataplane = Arc::clone(&context.dataplane);
        let manifest = dataplane.manifest();
        let chain = Chain::of(manifest)?;
        let (groups, eventual) = (Group::all(manifest)?, EventualGroup::all(manifest)?);
        if chain.is_none() && groups.is_empty() && eventual.is_empty() {
            return Ok(None);
        }
        let said = configured(&context.config, chain.as_ref(), groups, eventual)?;
        let controlled = controlled(context, chain.as_ref(), &said)?;
        let Configured { windows: groups, eventual, chain: source } = said;
        let chained = match (chain, source) {
            (Some(chain), Some((part, source))) => {
                Some(Chained::begin(context, chain, (part, &source), controlled.clone())?)
            }
            _ => None,
        };
        let has_others = !(groups.is_empty() && eventual.is_empty());
        let objects = Objects {
            dataplane: Arc::clone(&dataplane),
            config: Arc::clone(&context.config),
            incarnation: context.incarnation,
            groups,
            eventual,
            keyed: Object::all(manifest)?,
            controlled: controlled.clone(),
        };
        let objects = has_others.then_some(objects);
        Ok(Some(Box::new(Parts { dataplane, chained, objects, controlled })))
    }
}

/// The groups that have controllers, if any has.
fn controlled(
    context: &Context,
    chain: Option<&Chain>,
    said: &Configured,
) -> Result<Option<Arc<Controlled>>> {
    let mut found = vec![];
    let mut address = None;
    let mut add = |name: &str, part: &str, source: &Source, member: Following| {
        let Source::Controllers(controllers, own) = source else { return Ok(()) };
        if address.is_some_and(|it| it != own.address) {
            let field = format!("shared.{name}.own");
            return context
                .config
                .fault(field, "must be the same in all groups with `controllers`");
        }
        address = Some(own.address);
        let (name, part) = (name.to_owned(), part.to_owned());
        let (controllers, member) = (controllers.clone(), Mutex::new(member));
        found.push(controlled::Group { name, part, controllers, member });
        Ok(())
    };
    let (incarnation, pace) = (context.incarnation, membership::Pace::default());
    for Shared { group, source, .. } in &said.windows {
        let Source::Controllers(_, own) = source else { continue };
        let settings = membership::Settings {
            own: own.address,
            incarnation,
            period_ns: own.period_ns,
            caps: own.caps,
            bound: own.bound,
            cpus: cpus(&context.config)?,
            pace,
        };
        let member = Member::new(&context.dataplane, group.clone(), settings)?;
        let name = &group.described.name;
        add(name, name, source, Following::Windows(Box::new(member)))?;
    }
    for Eventual { group, part, source, pace: gossip, .. } in &said.eventual {
        let Source::Controllers(_, own) = source else { continue };
        let (name, own) = (part.clone(), own.address);
        let settings = eventual_member::Settings { name, own, incarnation, pace };
        let member = EventualMember::new(group.clone(), settings, Arc::clone(gossip));
        add(&group.described.name, part, source, Following::Eventual(Box::new(member)))?;
    }
    if let (Some(chain), Some((part, source))) = (chain, &said.chain)
        && let Source::Controllers(_, own) = source
    {
        let settings = chain_member::Settings {
            name: part.clone(),
            own: own.address,
            incarnation,
            memory_bytes: chain.memory_bytes(&context.dataplane),
            pace,
        };
        let member = ChainMember::new(chain.clone(), settings);
        add(&chain.group, part, source, Following::Chain(Box::new(member)))?;
    }
    Ok(Controlled::of(context, address, found))
}

/// CPUs that may have packets.
fn cpus(config: &Config) -> Result<u32> {
    let cpus = libbpf_rs::num_possible_cpus().ok().and_then(|cpus| u32::try_from(cpus).ok());
    match cpus.filter(|cpus| *cpus <= CPUS) {
        Some(cpus) => Ok(cpus),
        None => {
            let reason =
                format!("the program's shared variables work on machines of up to {CPUS} CPUs");
            config.fault("object", reason)
        }
    }
}

/// The program's groups, with what the configuration says of each.
struct Configured {
    windows: Vec<Shared>,
    eventual: Vec<Eventual>,
    /// Of the group with SRO: its name at controllers, and where its members come from.
    chain: Option<(String, Source)>,
}

fn configured(
    config: &Config,
    chain: Option<&Chain>,
    groups: Vec<Group>,
    eventual: Vec<EventualGroup>,
) -> Result<Configured> {
    let names = groups.iter().map(|it| it.described.name.as_str());
    let names = names.chain(eventual.iter().map(|it| it.described.name.as_str()));
    let names = names.chain(chain.map(|it| it.group.as_str())).map(str::to_owned);
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let said = config::groups(config, &known)?;
    let windows = groups.into_iter().map(|group| {
        let source = said.source(&group.described.name, group.room())?;
        Ok(Shared { group, source, looks: Mutex::default(), traffic: Mutex::default() })
    });
    let windows: Vec<Shared> = windows.collect::<Result<_>>()?;
    let has_windows = |name: &str| windows.iter().any(|it| it.group.described.name == name);
    for name in &known {
        let has_eventual = eventual.iter().any(|it| it.described.name == *name);
        said.fits(name, Has { windows: has_windows(name), eventual: has_eventual })?;
    }
    let eventual = eventual.into_iter().map(|group| {
        let windows = has_windows(&group.described.name);
        Eventual::of(config, &said, group, windows)
    });
    let eventual: Vec<Eventual> = eventual.collect::<Result<_>>()?;
    let others = windows.iter().map(|it| &it.group.described.name);
    let others = others.chain(eventual.iter().map(|it| &it.group.described.name));
    let others: Vec<&String> = others.collect();
    let source = |Chain { group, .. }: &Chain| {
        let part = part_name(group, Consistency::Sro, !others.contains(&group));
        said.source(group, MEMBERS).map(|source| (part, source))
    };
    let chain = chain.map(source).transpose()?;
    Ok(Configured { windows, eventual, chain })
}

const OTHER_VIEW: &str = "is another one than the running data plane has: run `stateplane switch \
                          detach NAME` for all switches of the group, and only then start them";

/// A group on this switch.
struct Shared {
    group: Group,
    source: Source,
    looks: Mutex<Looks>,
    /// Of a group without controllers.
    traffic: Mutex<Traffic>,
}

/// The variables with SDW and EWO of a loaded object.
struct Objects {
    dataplane: Arc<Dataplane>,
    config: Arc<Config>,
    incarnation: u32,
    groups: Vec<Shared>,
    eventual: Vec<Eventual>,
    /// Registers, tables and sets with EWO.
    keyed: Vec<Object>,
    /// The groups with controllers.
    controlled: Option<Arc<Controlled>>,
}

impl Objects {
    fn count(&self, index: u32) -> u64 {
        self.dataplane.read_count(STATS, index).unwrap_or_default()
    }

    /// The member of a group with controllers.
    fn follower(&self, group: &str) -> Option<&Mutex<Following>> {
        self.controlled.as_ref()?.member(group)
    }

    fn loads(&self) -> Vec<GroupLoad> {
        self.groups.iter().filter_map(|shared| self.load(shared, now_ns()).ok().flatten()).collect()
    }

    fn load(&self, shared: &Shared, now_ns: u64) -> Result<Option<GroupLoad>> {
        let (group, dataplane) = (&shared.group, &self.dataplane);
        let node = group.node(dataplane)?;
        let mut excluded = ExcludedLoad::default();
        let (members, load, leaves, still_ms) = match &shared.source {
            Source::Fixed(view) => {
                let mut traffic = lock(&shared.traffic);
                if traffic.is_due(now_ns) {
                    traffic.update(now_ns, load::bytes(dataplane, group)?);
                }
                let load = load::of_view(view, group, &node, now_ns);
                let load = Load { bytes_per_s: traffic.per_s(), ..load };
                (view.members.clone(), load, false, u64::MAX)
            }
            Source::Controllers(..) => {
                let Some(member) = self.follower(&group.described.name) else { return Ok(None) };
                let mut member = lock(member);
                let Some(member) = member.windows() else { return Ok(None) };
                let members = member.view().map(|view| view.members.clone()).unwrap_or_default();
                excluded = member.excluded(now_ns);
                (members, member.load(now_ns), member.leaves(), member.still_ms(now_ns))
            }
        };
        let mut found = GroupLoad {
            group: group.described.name.clone(),
            members: members.iter().map(|member| member.address).collect(),
            view: node.view,
            window: node.word >> 3,
            phase: node.word & 7,
            age_ms: load.age_ms,
            held_ms: load::held_ns(&node, now_ns) / 1_000_000,
            pause_ms: load::pause_ns(&node, now_ns) / 1_000_000,
            period_us: load.period_us,
            bound: load.bound,
            relaxation: relaxation(members.len(), load.bound),
            bytes_per_s: load.bytes_per_s,
            memory_bytes: load.memory_bytes,
            blocks: node.blocks.max(group.described.blocks),
            held_up: vec![],
            fixed: matches!(shared.source, Source::Fixed(_)),
            behind: None,
            leaves,
            excluded,
            fault: self.controlled.as_ref().and_then(|it| it.fault()),
        };
        if is_late(&found) && found.fixed {
            found.behind = load::behind(dataplane, group, &node)?;
        }
        // (When a long pause of another member is over, all send, and the switch waits for none.)
        if is_late(&found) && found.behind.is_none() && found.window != 0 && still_ms >= LATE_MS {
            let lacks = load::lacks(dataplane, group, &node)?;
            let of = members.iter().filter(|it| lacks.contains(&it.number));
            found.held_up = of.map(|it| it.address).collect();
        }
        Ok(Some(found))
    }

    fn group_metrics(&self, text: &mut Text) {
        type Value = fn(&GroupLoad) -> f64;
        let gauges: [(&str, &str, Value); 7] = [
            ("window", "The window of a group of shared variables that packets read.", |it| {
                it.window as f64
            }),
            ("members", "Switches that share a group, as this one knows it.", |it| {
                it.members.len() as f64
            }),
            ("window_age_seconds", "Since the window of a group began.", |it| {
                it.age_ms as f64 / 1000.0
            }),
            ("held_up", "Members that the window of a group waits for.", |it| {
                it.held_up.len() as f64
            }),
            ("relaxation", "r = 2NB: updates that a packet misses at the most.", |it| {
                it.relaxation as f64
            }),
            ("received_bytes_per_second", "Messages of a group from other members.", |it| {
                it.bytes_per_s as f64
            }),
            ("memory_bytes", "Memory of a group's maps.", |it| it.memory_bytes as f64),
        ];
        let loads = self.loads();
        for (name, help, value) in gauges {
            let name = format!("stateplane_switch_shared_{name}");
            let mut family = text.family(&name, Kind::Gauge, help);
            loads.iter().for_each(|load| family.sample(&[("group", &load.group)], value(load)));
        }
    }

    fn eventual_loads(&self) -> Vec<EventualLoad> {
        self.eventual.iter().filter_map(|it| it.load(self)).collect()
    }

    fn eventual_metrics(&self, text: &mut Text) {
        let of = |name: &str| {
            let at = COUNTED.iter().position(|(counted, _)| *counted == name);
            at.map_or(0, |at| self.count(at as u32))
        };
        let bytes = (of("eventual_sent") + of("eventual_gossip")) * FRAME_BYTES;
        let help = "Bytes of messages about variables with EWO that were sent.";
        let name = "stateplane_switch_shared_eventual_bytes_total";
        text.family(name, Kind::Counter, help).sample(&[], bytes);
        let loads = self.eventual_loads();
        let help = "Lives of switches that have a slot in a group's variables with EWO.";
        let mut family = text.family("stateplane_switch_shared_lives", Kind::Gauge, help);
        loads.iter().for_each(|it| family.sample(&[("group", &it.group)], u64::from(it.lives)));
        let help = "Since the member of a group with EWO was heard that is silent for longest.";
        let name = "stateplane_switch_shared_heard_age_seconds";
        let mut family = text.family(name, Kind::Gauge, help);
        loads.iter().for_each(|it| family.sample(&[("group", &it.group)], it.age_ms as f64 / 1e3));
        let help = "Members of a group with EWO of which nothing comes.";
        let mut family = text.family("stateplane_switch_shared_unheard", Kind::Gauge, help);
        loads.iter().for_each(|it| family.sample(&[("group", &it.group)], it.held_up.len() as u64));
        let help = "Changed cells and records that a member is still to be sent, at the most.";
        let mut family = text.family("stateplane_switch_shared_waiting", Kind::Gauge, help);
        loads.iter().for_each(|it| family.sample(&[("group", &it.group)], it.waiting));
        let records = || loads.iter().flat_map(|it| &it.records);
        let help = "Keys of tables and sets with EWO: those that are there, and removed ones.";
        let mut family = text.family("stateplane_switch_shared_keys", Kind::Gauge, help);
        for it in records() {
            family.sample(&[("object", &it.object), ("state", &"there")], it.keys);
            family.sample(&[("object", &it.object), ("state", &"removed")], it.removed);
        }
        let help = "Writes to tables and sets with EWO that found no room.";
        let mut family = text.family("stateplane_switch_shared_full_total", Kind::Counter, help);
        for it in records() {
            family.sample(&[("object", &it.object), ("from", &"packets")], it.full);
            family.sample(&[("object", &it.object), ("from", &"members")], it.full_of_others);
        }
    }
}

impl Running for Objects {
    fn interval(&self) -> Option<Duration> {
        let mirrors = self.eventual.iter().map(|it| it.terms.mirror_ns.saturating_mul(20));
        // (In a tree, each level may wait for a look.)
        let period = |it: &Shared| if it.source.has_tree() { 0 } else { it.source.period_ns() };
        let shortest = self.groups.iter().map(period).chain(mirrors).min()?;
        Some(Duration::from_nanos((shortest / 20).clamp(100_000, 1_000_000)))
    }

    fn configure(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    fn secrets(&self, ring: &KeyRing) -> Result<()> {
        let cpus = cpus(&self.config)?;
        for shared in &self.groups {
            let group = &shared.group;
            let Source::Fixed(view) = &shared.source else {
                if let Some(member) = self.follower(&group.described.name)
                    && let Some(member) = lock(member).windows()
                {
                    member.secrets(&self.dataplane, ring)?;
                }
                continue;
            };
            // (An earlier agent may have begun the group: it goes on.)
            if group.node(&self.dataplane)?.word == 0 {
                let view = &View { begins_ns: now_ns(), ..view.clone() };
                group.begin(&self.dataplane, view, cpus, ring, Open::default())?;
            } else if group.has(&self.dataplane, view)? {
                group.secrets(&self.dataplane, view, ring)?;
            } else {
                let field = format!("shared.{}", group.described.name);
                return self.config.fault(field, OTHER_VIEW);
            }
        }
        self.eventual.iter().try_for_each(|it| it.secrets(self, ring))
    }

    fn due(&self, now_ns: u64) -> u64 {
        let queue = |Shared { group, looks, .. }: &Shared| {
            let mut looks = lock(looks);
            group.queue(&self.dataplane, &mut looks, now_ns).unwrap_or_default()
        };
        let gossip = |it: &Eventual| {
            it.group.queue(&self.dataplane, &mut it.pace(), it.terms, now_ns).unwrap_or_default()
        };
        self.groups.iter().map(queue).sum::<u64>() + self.eventual.iter().map(gossip).sum::<u64>()
    }

    fn due_on(&self, cpu: usize, now_ns: u64) -> u64 {
        let queue = |Shared { group, looks, .. }: &Shared| {
            let mut looks = lock(looks);
            group.queue_on(&self.dataplane, &mut looks, cpu, now_ns).unwrap_or_default()
        };
        self.groups.iter().map(queue).sum()
    }

    fn objects(&self) -> Vec<ObjectLoad> {
        let load = |object: &StateObject| {
            let consistency = object.settings.get("consistency").and_then(Value::as_str);
            let keyed = self.keyed.iter().find(|it| it.name == object.name);
            let counts = || keyed?.counts(&self.dataplane).ok();
            let live = || counts().map_or(0, |it| it.live);
            object_load(object, consistency.unwrap_or("?").to_owned(), live)
        };
        let all = self.dataplane.manifest().state_objects.iter();
        all.filter(|it| it.system == SYSTEM && !is_strong(it)).map(load).collect()
    }

    fn status(&self) -> Map<String, Value> {
        let loads = serde_json::to_value(self.loads()).unwrap_or_default();
        let eventual = serde_json::to_value(self.eventual_loads()).unwrap_or_default();
        Map::from_iter([(SHARED.to_owned(), loads), (EVENTUAL.to_owned(), eventual)])
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
        self.group_metrics(text);
        self.eventual_metrics(text);
    }
}
