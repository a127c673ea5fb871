//! A group's variables with EWO as the agent has them: where its view comes from, and what
//! operators are told of it.

use crate::config::{Groups, Source};
use crate::controlled::lock;
use crate::eventual::EventualGroup;
use crate::gossip::{Pace, Terms};
use crate::group::View;
use crate::{OTHER_VIEW, Objects};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use swish_protocol::control::{Member, part_name};
use swish_protocol::layouts::MEMBERS;
use swish_protocol::objects::Consistency;
use switch_agent::Result;
use switch_agent::config::Config;
use switch_agent::system::now_ns;
use wire::KeyRing;

/// A group's variables with EWO on this switch.
pub(crate) struct Eventual {
    pub group: EventualGroup,
    /// What controllers call it.
    pub part: String,
    pub source: Source,
    pub terms: Terms,
    pub pace: Arc<Mutex<Pace>>,
}

/// What `stateplane status` is told of a group's variables with EWO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventualLoad {
    /// Its name.
    pub group: String,
    /// Addresses of the members.
    pub members: Vec<Ipv4Addr>,
    /// The view.
    pub view: u32,
    /// Cells, with those that count what is subtracted.
    pub cells: u32,
    /// Slots of a counter, and those of them that are in use: a life of a switch has one.
    pub slots: u32,
    /// See `slots`.
    pub lives: u32,
    /// Changed cells and records that a member is still to be sent, at the most.
    pub waiting: u64,
    /// What the configuration allows.
    pub bandwidth_mbps: u64,
    /// How long the last round of gossip took; 0: none is over yet.
    pub round_ms: u64,
    /// Since the member was heard that is silent for longest.
    #[serde(default)]
    pub age_ms: u64,
    /// Members of which nothing comes, for longer than gossip takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_up: Vec<Ipv4Addr>,
    /// Messages that came from other members.
    #[serde(default)]
    pub bytes_per_s: u64,
    /// Of the group's maps.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Registers, tables and sets.
    #[serde(default)]
    pub records: Vec<RecordsLoad>,
    /// The switch is to leave the group, or has left it.
    #[serde(default)]
    pub leaves: bool,
    /// Why the newest decision of a controller is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// What `stateplane status` is told of a table or set with EWO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsLoad {
    /// Its name.
    pub object: String,
    /// Keys that are there.
    pub keys: u64,
    /// Removed ones, which take their places until all switches have heard of it.
    pub removed: u64,
    /// As many fit.
    pub size: u32,
    /// Writes of this switch that found no room.
    pub full: u64,
    /// Writes of other switches that found none.
    pub full_of_others: u64,
}

impl EventualLoad {
    /// Whether it shares the group with all other members.
    pub fn is_well(&self) -> bool {
        self.fault.is_none() && (self.leaves || self.view != 0 && self.held_up.is_empty())
    }

    /// What there is to say of the members, for people.
    pub fn notes(&self) -> Vec<String> {
        let note = |it: &Ipv4Addr| {
            format!("nothing comes from {it}: it is dead, or cut off. Packets go on everywhere")
        };
        self.held_up.iter().map(note).collect()
    }
}

impl Eventual {
    /// With what the configuration says of it. `windows`: the group has variables with SDW, too.
    ///
    /// # Errors
    /// A field is out of range, or does not fit the program.
    pub(crate) fn of(
        config: &Config,
        said: &Groups<'_>,
        group: EventualGroup,
        windows: bool,
    ) -> Result<Eventual> {
        let name = &group.described.name;
        let (source, terms) = (said.source(name, MEMBERS)?, said.terms(name)?);
        let seed = match &source {
            Source::Fixed(view) => {
                has_slots(config, &group, view)?;
                view.own.into()
            }
            Source::Controllers(_, own) => u32::from(own.address).into(),
        };
        let pace = Arc::new(Mutex::new(Pace::new(seed)));
        let part = part_name(name, Consistency::Ewo, !windows);
        Ok(Eventual { group, part, source, terms, pace })
    }

    /// Begins the group, or goes on with that of an earlier agent.
    pub(crate) fn secrets(&self, objects: &Objects, ring: &KeyRing) -> Result<()> {
        let group = &self.group;
        let Source::Fixed(view) = &self.source else {
            if let Some(member) = objects.follower(&self.part)
                && let Some(member) = lock(member).eventual()
            {
                member.secrets(&objects.dataplane, ring)?;
            }
            return Ok(());
        };
        if group.node(&objects.dataplane)?.life == 0 {
            Ok(group.begin(&objects.dataplane, view, objects.incarnation, ring)?)
        } else if group.has(&objects.dataplane, view)? {
            Ok(group.secrets(&objects.dataplane, view, ring)?)
        } else {
            objects.config.fault(format!("shared.{}", group.described.name), OTHER_VIEW)
        }
    }

    pub(crate) fn pace(&self) -> MutexGuard<'_, Pace> {
        lock(&self.pace)
    }

    /// The members, as far as this agent knows them, and whether this switch is to leave them.
    fn members(&self, objects: &Objects) -> (Vec<Ipv4Addr>, bool) {
        let addresses = |members: &[Member]| members.iter().map(|it| it.address).collect();
        if let Source::Fixed(view) = &self.source {
            return (addresses(&view.members), false);
        }
        let Some(member) = objects.follower(&self.part) else {
            return (vec![], false);
        };
        let mut member = lock(member);
        let Some(member) = member.eventual() else { return (vec![], false) };
        (addresses(member.members().unwrap_or_default()), member.leaves())
    }

    pub(crate) fn load(&self, objects: &Objects) -> Option<EventualLoad> {
        let (dataplane, keyed) = (&objects.dataplane, &objects.keyed);
        let look = self.group.look(dataplane).ok()?;
        let (members, leaves) = self.members(objects);
        let own = keyed.iter().filter(|it| it.settings.group == self.group.described.name);
        let records = own.filter(|it| !it.is_register()).map(|it| {
            let counts = it.counts(dataplane).unwrap_or_default();
            RecordsLoad {
                object: it.name.clone(),
                keys: counts.live,
                removed: counts.removed,
                size: it.size,
                full: counts.full,
                full_of_others: counts.full_of_others,
            }
        });
        let (now_ns, pace) = (now_ns(), self.pace());
        Some(EventualLoad {
            group: self.group.described.name.clone(),
            members,
            view: self.group.node(dataplane).ok()?.view,
            cells: look.slotted + look.direct,
            slots: self.group.room(),
            lives: look.columns,
            waiting: look.waiting(),
            records: records.collect(),
            bandwidth_mbps: self.terms.bytes_per_s / 125_000,
            round_ms: pace.round_ns() / 1_000_000,
            age_ms: pace.silences.age_ms(now_ns),
            held_up: pace.silences.silent(now_ns).into_iter().map(|it| it.1).collect(),
            bytes_per_s: pace.silences.bytes_per_s(),
            memory_bytes: self.group.memory_bytes,
            leaves,
            fault: objects.controlled.as_ref().and_then(|it| it.fault()),
        })
    }
}

/// Each member has a slot. (With controllers the number of members is not known before: a life
/// that finds no slot is counted.)
fn has_slots(config: &Config, group: &EventualGroup, view: &View) -> Result<()> {
    let (members, slots) = (view.members.len(), group.room() as usize);
    if group.described.slotted == 0 || members <= slots {
        return Ok(());
    }
    let reason = format!(
        "{members} switches, and a counter of the program has {slots} slots: compile it with \
         @slots(N), and let N be a few more than the number of switches"
    );
    config.fault(format!("shared.{}.members", group.described.name), reason)
}
