//! The chain of switches of a program's tables and registers with SRO, in a loaded object.

use crate::group::has_consistency;
use c_layout::CStruct;
use dataplane::{Dataplane, Error, Result};
use libbpf_rs::MapCore;
use manifest::{Manifest, StateObject};
use nix::time::{ClockId, clock_gettime};
use std::net::Ipv4Addr;
use std::time::Duration;
use swish_protocol::layouts::MEMBERS;
use swish_protocol::objects::{Consistency, StrongSettings};
use swish_protocol::strong::{
    LifeValue, NodeValue, TableValue, ViewValue, address, layout, standing,
};

const NODE: &str = "sp_strong_node";
const VIEWS: &str = "sp_strong_views";
const STREAMS: &str = "sp_strong_streams";
const LOG: &str = "sp_strong_log";
const TOMBS: &str = "sp_strong_tomb_list";
const TABLES: &str = "sp_strong_tables";
/// How many views there were.
const WORDS: &str = "sp_strong_words";
const LIVES: &str = "sp_strong_lives";
const VIEW_COUNT: u32 = 0;
/// What TAI is ahead of CLOCK_MONOTONIC.
const TAI_AHEAD: u32 = 1;
/// In the place of a part's number: the other one has all.
const ALL: u64 = u64::MAX;
/// The runtime's counters.
pub const STATS: &str = "sp_strong_stats";

/// A program's group with SRO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub group: String,
    layout: u64,
    /// A table's keys have a time that may be over.
    timed: bool,
    /// Names of the maps from keys to places.
    tables: Vec<String>,
}

/// The members of the chain, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainView {
    /// Its number: at least 1, and larger than that of the view before.
    pub number: u64,
    /// This switch's number as a member.
    pub own: u32,
    /// This life of the switch: larger than that of the life before.
    pub incarnation: u32,
    /// Numbers below 32, and addresses, from head to tail. This switch need not be among them: then
    /// it takes no message.
    pub members: Vec<(u32, Ipv4Addr)>,
    /// Members that are to be given the others' keys.
    pub joins: Vec<u32>,
    /// Packets may read for so long after all members were known to be in the view; none: for good.
    pub lease_ns: Option<u64>,
    /// The tail answers nothing until it has been in the view for so long: no shorter than the
    /// leases of members that are not in the view any more.
    pub wait_ns: u64,
}

pub(crate) fn settings_of(object: &StateObject) -> Result<StrongSettings> {
    let settings = serde_json::Value::Object(object.settings.clone());
    serde_json::from_value(settings.clone()).map_err(|error| Error::Value {
        what: format!("the settings of {} in the manifest", object.name),
        text: settings.to_string(),
        reason: format!("{error}: compile the program again, with this version"),
    })
}

/// Is it a variable with SRO?
pub(crate) fn is_strong(object: &StateObject) -> bool {
    has_consistency(object, Consistency::Sro)
}

impl Chain {
    /// The chain of a program; `None`: it has no such variable.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn of(manifest: &Manifest) -> Result<Option<Chain>> {
        let objects: Vec<&StateObject> =
            manifest.state_objects.iter().filter(|it| is_strong(it)).collect();
        let Some(first) = objects.first() else { return Ok(None) };
        let group = settings_of(first)?.group;
        let mut timed = false;
        for object in &objects {
            timed |= settings_of(object)?.timed;
        }
        let sizes = objects.iter().map(|it| match &it.value {
            manifest::Layout::Fields { bytes, .. } => {
                [it.id.into(), it.capacity, it.key_bytes, *bytes + u32::from(timed)]
            }
            _ => [it.id.into(), it.capacity, it.key_bytes, 0],
        });
        let layout = layout(&group, sizes);
        let tables = objects.iter().map(|it| it.map.clone()).collect();
        Ok(Some(Chain { group, layout, timed, tables }))
    }

    /// The switch is in this view from now on: the data plane takes it with its next message.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&self, dataplane: &Dataplane, view: &ChainView) -> Result<()> {
        self.take_as(dataplane, view, false)
    }

    /// The same; `leaves`: rounds lend this switch no time to read.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_as(&self, dataplane: &Dataplane, view: &ChainView, leaves: bool) -> Result<()> {
        if self.view_count(dataplane)? == 0 && view.lease_ns.is_none() {
            // (Packets may come before the first message.)
            let node = NodeValue { reads_ns: u64::MAX, ..NodeValue::default() };
            dataplane.write_array(NODE, 0, &node.to_bytes())?;
        }
        let mut value = self.value(view);
        value.standing |= if leaves { standing::QUIET } else { 0 };
        self.write(dataplane, &value)
    }

    /// The switch is on in this view, in which packets read for good: without controllers.
    pub(crate) fn begins(&self, dataplane: &Dataplane, view: &ViewValue) -> Result<()> {
        let node = NodeValue { reads_ns: u64::MAX, ..NodeValue::default() };
        dataplane.write_array(NODE, 0, &node.to_bytes())?;
        self.write(dataplane, view)
    }

    /// Without controllers: what was heard of these members.
    pub(crate) fn lives(
        &self,
        dataplane: &Dataplane,
        members: &[(u32, Ipv4Addr)],
    ) -> Result<Vec<(u32, LifeValue)>> {
        let life = |(member, _): &(u32, Ipv4Addr)| {
            Ok((*member, LifeValue::from_bytes(&dataplane.read_array(LIVES, *member)?)))
        };
        members.iter().map(life).collect()
    }

    /// The same with the view as the data plane has it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn write(&self, dataplane: &Dataplane, view: &ViewValue) -> Result<()> {
        let next = self.view_count(dataplane)? + 1;
        dataplane.write_array(VIEWS, (next & 1) as u32, &view.to_bytes())?;
        dataplane.write_array(WORDS, VIEW_COUNT, &next.to_ne_bytes())
    }

    /// The switch has nothing of the group any more, and takes no message. Packets must not be
    /// allowed to read.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn empty(&self, dataplane: &Dataplane) -> Result<()> {
        // (First, or an older view would come to be the one to take.)
        dataplane.empty(VIEWS)?;
        // (The time goes on: keys that are written with another one would be over at once.)
        dataplane.write_array(WORDS, VIEW_COUNT, &0u64.to_ne_bytes())?;
        dataplane.forget_waiting()?;
        for table in &self.tables {
            dataplane.empty(table)?;
            dataplane.empty(&format!("{table}_records"))?;
            dataplane.empty(&format!("{table}_free"))?;
        }
        [STREAMS, LOG, TOMBS, TABLES, LIVES, NODE].iter().try_for_each(|it| dataplane.empty(it))
    }

    /// A number for how the group's variables lie.
    pub fn layout(&self) -> u64 {
        self.layout
    }

    /// Bytes of its tables, about.
    pub fn memory_bytes(&self, dataplane: &Dataplane) -> u64 {
        let of = |name: String| {
            dataplane.map(&name).map_or(0, |map| {
                u64::from(map.max_entries()) * u64::from(map.value_size() + map.key_size())
            })
        };
        let tables = self.tables.iter().map(|it| of(it.clone()) + of(format!("{it}_records")));
        tables.sum::<u64>() + of(LOG.to_owned()) + of(STREAMS.to_owned())
    }

    /// Keys that are there, of a table or set.
    ///
    /// # Errors
    /// The kernel refuses, or the manifest is of another version.
    pub fn live(&self, dataplane: &Dataplane, object: &StateObject) -> Result<u32> {
        let bytes = dataplane.read_array(TABLES, settings_of(object)?.table)?;
        Ok(TableValue::from_bytes(&bytes).live)
    }

    fn view_count(&self, dataplane: &Dataplane) -> Result<u64> {
        let bytes = dataplane.read_array(WORDS, VIEW_COUNT)?;
        Ok(bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes))
    }

    /// The view that the data plane is to take; none: there was none yet.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wanted(&self, dataplane: &Dataplane) -> Result<Option<ViewValue>> {
        let count = self.view_count(dataplane)?;
        if count == 0 {
            return Ok(None);
        }
        let bytes = dataplane.read_array(VIEWS, (count & 1) as u32)?;
        Ok(Some(ViewValue::from_bytes(&bytes)))
    }

    pub(crate) fn value(&self, view: &ChainView) -> ViewValue {
        let place = view.members.iter().position(|(member, _)| *member == view.own);
        let at = |place: usize| view.members.get(place).map(|(member, _)| *member);
        let mut value = ViewValue {
            number: view.number,
            wait_ns: view.wait_ns,
            lease_ns: view.lease_ns.unwrap_or(0),
            layout: self.layout,
            own: view.own,
            incarnation: view.incarnation,
            head: at(0).unwrap_or(MEMBERS),
            next: place.and_then(|it| at(it + 1)).unwrap_or(MEMBERS),
            previous: place.and_then(|it| at(it.checked_sub(1)?)).unwrap_or(MEMBERS),
            last: view.members.last().map_or(MEMBERS, |(member, _)| *member),
            ..ViewValue::default()
        };
        if let Some(place) = place {
            value.standing = standing::ON;
            value.standing |= if place == 0 { standing::HEAD } else { 0 };
            value.standing |= if place + 1 == view.members.len() { standing::TAIL } else { 0 };
            let joins = |place: usize| at(place).is_some_and(|it| view.joins.contains(&it));
            value.standing |= if joins(place) { standing::JOINS } else { 0 };
            value.standing |= if joins(place + 1) { standing::GIVES } else { 0 };
        }
        for (member, at) in &view.members {
            if let Some(place) = value.address.get_mut(*member as usize) {
                *place = address(*at);
            }
        }
        value
    }

    /// The member on this switch.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn node(&self, dataplane: &Dataplane) -> Result<NodeValue> {
        Ok(NodeValue::from_bytes(&dataplane.read_array(NODE, 0)?))
    }

    /// Tells the data plane the time, by which it judges when keys are over. It goes on by itself.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tell_time(&self, dataplane: &Dataplane) -> Result<()> {
        if !self.timed {
            return Ok(());
        }
        let tai = clock_gettime(ClockId::CLOCK_TAI).map(Duration::from).unwrap_or_default();
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        let ahead_ns = tai.saturating_sub(now).as_nanos() as u64;
        dataplane.write_array(WORDS, TAI_AHEAD, &ahead_ns.to_ne_bytes())
    }

    /// How many frames the packet generator makes at this look. Each second one is for a stream of
    /// packets that wait, while there is one: only this sends a batch again that got lost. The
    /// others are the chain's.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn frames(&self, dataplane: &Dataplane) -> Result<u64> {
        let chain = self.is_behind(dataplane)? || self.is_head(dataplane)?;
        Ok((2 * dataplane.generator_work()?).max(chain.into()))
    }

    /// Is this member the head, whose generated frames look for keys whose time is over, and begin
    /// rounds?
    fn is_head(&self, dataplane: &Dataplane) -> Result<bool> {
        let view = self.wanted(dataplane)?;
        let head = view.filter(|it| it.standing & standing::HEAD != 0);
        Ok(head.is_some_and(|view| self.timed || view.lease_ns != 0))
    }

    /// Does the member lack word that the tail has what is written here? Then a generated frame
    /// sends it again, if it is time.
    fn is_behind(&self, dataplane: &Dataplane) -> Result<bool> {
        let node = self.node(dataplane)?;
        let wanted = self.wanted(dataplane)?;
        let gives = |view: &ViewValue| view.standing & standing::GIVES != 0;
        Ok(node.committed < node.applied
            || wanted.is_some_and(|it| it.number != node.view || gives(&it) && node.part != ALL))
    }
}
