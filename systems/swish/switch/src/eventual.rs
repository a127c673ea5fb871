//! A group's variables with EWO in a loaded object: what is read and written of them.

use crate::gossip::{Look, Pace, Terms, Wanted};
use crate::group::{FLOWS, View, has_consistency, settings_of};
use c_layout::CStruct;
use dataplane::{Dataplane, Result};
use libbpf_rs::{MapCore, MapFlags};
use manifest::Manifest;
use std::net::Ipv4Addr;
use swish_protocol::control::Member;
use swish_protocol::eventual::{CellValue, DueValue, MemberValue, NodeValue, life};
use swish_protocol::layouts::{GROUPS, MEMBERS};
use swish_protocol::objects::{Consistency, EventualGroup as Described, eventual_groups};
use swish_protocol::tag::{About, secret_value};
use wire::KeyRing;

const NODES: &str = "sp_eventual_nodes";
const MEMBER_MAP: &str = "sp_eventual_members";
const COLUMNS: &str = "sp_eventual_columns";
const CELLS: &str = "sp_eventual_cells";
const DUE: &str = "sp_eventual_due";
const SECRETS: &str = "sp_shared_secrets";

/// A group of a loaded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventualGroup {
    /// As the program has it.
    pub described: Described,
    /// Slots of a cell.
    pub columns: u32,
}

impl EventualGroup {
    /// Bytes of this switch's memory that the group's maps take: values, places, slots.
    pub fn memory_bytes(&self) -> u64 {
        let (slotted, direct) =
            (u64::from(self.described.slotted), u64::from(self.described.direct));
        (slotted + direct) * 16 + u64::from(self.columns) * slotted * 8
    }

    /// All groups of a program's variables with EWO.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn all(manifest: &Manifest) -> Result<Vec<EventualGroup>> {
        let objects = manifest.state_objects.iter();
        let objects = objects.filter(|it| has_consistency(it, Consistency::Ewo));
        let settings = objects.map(|it| Ok((it.capacity, settings_of(it)?)));
        let settings = settings.collect::<Result<Vec<_>>>()?;
        let slots = settings.iter().filter_map(|(_, it)| it.eventual).map(|it| it.slots);
        let columns = slots.max().unwrap_or(0);
        let found = eventual_groups(settings.iter().map(|(size, it)| (*size, it)));
        Ok(found.into_iter().map(|described| EventualGroup { described, columns }).collect())
    }

    fn number(&self) -> u32 {
        self.described.number
    }

    /// The group as the data plane has it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn node(&self, dataplane: &Dataplane) -> Result<NodeValue> {
        Ok(NodeValue::from_bytes(&dataplane.read_array(NODES, self.number())?))
    }

    /// A member, as the data plane knows it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn member(&self, dataplane: &Dataplane, member: u32) -> Result<MemberValue> {
        let at = self.number() * MEMBERS + member;
        Ok(MemberValue::from_bytes(&dataplane.read_array(MEMBER_MAP, at)?))
    }

    /// Begins the group on a switch where it has not begun, with empty variables.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(
        &self,
        dataplane: &Dataplane,
        view: &View,
        incarnation: u32,
        ring: &KeyRing,
    ) -> Result<()> {
        self.secrets(dataplane, view, ring)?;
        for Member { number: member, address, .. } in &view.members {
            let value = MemberValue { next: 0, address: *address, frames: 0 };
            let at = self.number() * MEMBERS + member;
            dataplane.write_array(MEMBER_MAP, at, &value.to_bytes())?;
        }
        let own_life = life(view.own, incarnation);
        if self.columns > 0 {
            let at = self.number() * self.columns;
            dataplane.write_array(COLUMNS, at, &own_life.to_ne_bytes())?;
        }
        let own = view.members.iter().find(|member| member.number == view.own);
        let mut node = NodeValue {
            life: 0,
            members: view.member_bits(),
            view: view.number,
            own: view.own,
            count: view.members.len() as u32,
            address: own.map_or(Ipv4Addr::UNSPECIFIED, |member| member.address),
            first_slotted: self.described.first_slotted,
            slotted: self.described.slotted,
            first_direct: self.described.first_direct,
            direct: self.described.direct,
            padding: 0,
            listed: 0,
            listed_padding: [0; 7],
            taken: 0,
            taken_padding: [0; 7],
        };
        dataplane.write_array(NODES, self.number(), &node.to_bytes())?;
        // (Last: a message that sees it sees all of the rest.)
        node.life = own_life;
        dataplane.write_array(NODES, self.number(), &node.to_bytes())
    }

    /// Writes what messages of this view are tagged with.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn secrets(&self, dataplane: &Dataplane, view: &View, ring: &KeyRing) -> Result<()> {
        let about = About {
            group: &self.described.name,
            layout: self.described.layout,
            view: view.number,
            members: &view.members,
        };
        for id in 0..4 {
            let value = secret_value(ring.secret(id), &about);
            // (Those of windows come first.)
            let at = (GROUPS + self.number()) * 4 + u32::from(id);
            dataplane.write_array(SECRETS, at, &value.to_bytes())?;
        }
        Ok(())
    }

    /// Whether the data plane has this view: an earlier agent began it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn has(&self, dataplane: &Dataplane, view: &View) -> Result<bool> {
        let node = self.node(dataplane)?;
        for Member { number: member, address, .. } in &view.members {
            if self.member(dataplane, *member)?.address != *address {
                return Ok(false);
            }
        }
        let known = (node.members, node.own, node.view);
        Ok(known == (view.member_bits(), view.own, view.number))
    }

    /// The lives whose slots the switch has, its own first.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn lives(&self, dataplane: &Dataplane) -> Result<Vec<u64>> {
        let mut found = vec![];
        for column in 0..self.columns {
            let bytes = dataplane.read_array(COLUMNS, self.number() * self.columns + column)?;
            match bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes) {
                0 => break,
                life => found.push(life),
            }
        }
        Ok(found)
    }

    /// What the rules of the packet generator look at.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn look(&self, dataplane: &Dataplane) -> Result<Look> {
        let node = self.node(dataplane)?;
        let mut others = vec![];
        for member in (0..MEMBERS).filter(|it| node.members >> it & 1 == 1 && *it != node.own) {
            let next = self.member(dataplane, member)?.next;
            others.push((member, node.listed.saturating_sub(next)));
        }
        let columns = self.lives(dataplane)?.len() as u32;
        Ok(Look { others, columns, slotted: node.slotted, direct: node.direct })
    }

    /// Queues the frames that are due; how many.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn queue(
        &self,
        dataplane: &Dataplane,
        pace: &mut Pace,
        terms: Terms,
        now_ns: u64,
    ) -> Result<u64> {
        let due = pace.due(&self.look(dataplane)?, terms, now_ns);
        let Some(map) = dataplane.map(DUE) else { return Ok(0) };
        let mut queued = 0;
        for (flow, Wanted { member, column, first }) in (0..).zip(due) {
            let value =
                DueValue { group: self.number(), member, column, first, flow: FLOWS + flow % 64 };
            // (It is full: the generator has as many to make as it can.)
            if map.update(&[], &value.to_bytes(), MapFlags::ANY).is_err() {
                break;
            }
            queued += 1;
        }
        Ok(queued)
    }

    /// A cell as packets read it, by its number among all groups' cells.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn cell(&self, dataplane: &Dataplane, number: u32) -> Result<u64> {
        Ok(CellValue::from_bytes(&dataplane.read_array(CELLS, number)?).value)
    }
}
