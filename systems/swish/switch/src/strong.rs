//! The chain of switches of a program's tables and registers with SRO, in a loaded object.

use crate::group::has_consistency;
use c_layout::CStruct;
use dataplane::{Dataplane, Error, Result};
use manifest::{Manifest, StateObject};
use nix::time::{ClockId, clock_gettime};
use std::net::Ipv4Addr;
use std::time::Duration;
use swish_protocol::layouts::MEMBERS;
use swish_protocol::objects::{Consistency, StrongSettings};
use swish_protocol::strong::{NodeValue, ViewValue, address, layout, standing};

const NODE: &str = "sp_strong_node";
const VIEWS: &str = "sp_strong_views";
/// Which view is to be taken, and until when packets may read.
const WORDS: &str = "sp_strong_words";
const WANTED: u32 = 0;
const LEASE: u32 = 1;
/// What TAI is ahead of CLOCK_MONOTONIC.
const TAI_AHEAD: u32 = 2;
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
}

/// Who is in the chain, and in which order.
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
    /// The tail answers nothing before this time (CLOCK_MONOTONIC): the leases of members that are
    /// not in the view any more are over then.
    pub commits_ns: u64,
}

fn settings_of(object: &StateObject) -> Result<StrongSettings> {
    let settings = serde_json::Value::Object(object.settings.clone());
    serde_json::from_value(settings.clone()).map_err(|error| Error::Value {
        what: format!("the settings of {} in the manifest", object.name),
        text: settings.to_string(),
        reason: format!("{error}: compile the program again, with this version"),
    })
}

impl Chain {
    /// The chain of a program; `None`: it has no such variable.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn of(manifest: &Manifest) -> Result<Option<Chain>> {
        let objects = manifest.state_objects.iter();
        let objects = objects.filter(|it| has_consistency(it, Consistency::Sro));
        let objects: Vec<&StateObject> = objects.collect();
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
        Ok(Some(Chain { group, layout, timed }))
    }

    /// The switch is in this view from now on: the data plane takes it with its next message.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&self, dataplane: &Dataplane, view: &ChainView) -> Result<()> {
        let value = self.value(view);
        dataplane.write_array(VIEWS, (view.number & 1) as u32, &value.to_bytes())?;
        dataplane.write_array(WORDS, WANTED, &view.number.to_ne_bytes())
    }

    fn value(&self, view: &ChainView) -> ViewValue {
        let place = view.members.iter().position(|(member, _)| *member == view.own);
        let at = |place: usize| view.members.get(place).map(|(member, _)| *member);
        let mut value = ViewValue {
            number: view.number,
            commits_ns: view.commits_ns,
            layout: self.layout,
            own: view.own,
            incarnation: view.incarnation,
            head: at(0).unwrap_or(MEMBERS),
            next: place.and_then(|it| at(it + 1)).unwrap_or(MEMBERS),
            previous: place.and_then(|it| at(it.checked_sub(1)?)).unwrap_or(MEMBERS),
            ..ViewValue::default()
        };
        if let Some(place) = place {
            value.standing = standing::ON;
            value.standing |= if place == 0 { standing::HEAD } else { 0 };
            value.standing |= if place + 1 == view.members.len() { standing::TAIL } else { 0 };
        }
        for (member, at) in &view.members {
            if let Some(place) = value.address.get_mut(*member as usize) {
                *place = address(*at);
            }
        }
        value
    }

    /// Packets of this switch read until then (CLOCK_MONOTONIC); 0: for good.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn lease(&self, dataplane: &Dataplane, until_ns: u64) -> Result<()> {
        dataplane.write_array(WORDS, LEASE, &until_ns.to_ne_bytes())
    }

    /// The number of the view that is to be taken; 0: none yet.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wanted(&self, dataplane: &Dataplane) -> Result<u64> {
        let bytes = dataplane.read_array(WORDS, WANTED)?;
        Ok(bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes))
    }

    /// Is that view, in this life of the switch or another one, what the data plane has?
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn has(&self, dataplane: &Dataplane, view: &ChainView) -> Result<bool> {
        let bytes = dataplane.read_array(VIEWS, (view.number & 1) as u32)?;
        let found = ViewValue::from_bytes(&bytes);
        Ok(found == ViewValue { incarnation: found.incarnation, ..self.value(view) })
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

    /// Is this member the head, which looks for keys whose time is over?
    pub fn sweeps(&self, view: &ChainView) -> bool {
        self.timed && view.members.first().is_some_and(|(member, _)| *member == view.own)
    }

    /// Does the member lack word that the tail has what is written here? Then a generated frame
    /// sends it again, if it is time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn is_behind(&self, dataplane: &Dataplane) -> Result<bool> {
        let node = self.node(dataplane)?;
        Ok(node.committed < node.applied || node.view != self.wanted(dataplane)?)
    }
}
