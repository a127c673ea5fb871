//! A group's variables with EWO in a loaded object: what is read and written of them.

use crate::fold::{self, Digest, Steps};
use crate::gossip::{Look, Pace, Records, Terms, Wanted};
use crate::group::{FLOWS, View, has_consistency, settings_of};
use crate::hearing::{Found, Seen};
use crate::keyed::is_keyed;
use crate::records::Object;
use crate::silence;
use crate::variables::eventual_bytes;
use c_layout::CStruct;
use dataplane::{Dataplane, Result, wait_for_packets};
use libbpf_rs::{MapCore, MapFlags};
use manifest::Manifest;
use std::net::Ipv4Addr;
use swish_protocol::base::{Base, Before};
use swish_protocol::control::Member;
use swish_protocol::eventual::{
    BASES, CellValue, DUE as DUE_ENTRIES, DueValue, EndsValue, MemberValue, NodeValue, RECORDS,
    columns, life,
};
use swish_protocol::layouts::{CELLS as CELLS_OF_MESSAGE, GROUPS, MEMBERS};
use swish_protocol::lww;
use swish_protocol::objects::{
    Consistency, EventualGroup as Described, eventual_groups, with_records,
};
use swish_protocol::tag::{About, secret_value};
use wire::KeyRing;

const NODES: &str = "sp_eventual_nodes";
const ENDS: &str = "sp_eventual_ends";
const LIST: &str = "sp_eventual_list";
const MEMBER_MAP: &str = "sp_eventual_members";
const COLUMNS: &str = "sp_eventual_columns";
const CELLS: &str = "sp_eventual_cells";
const RECORD_NODES: &str = "sp_lww_nodes";
const RECORD_LIST: &str = "sp_lww_list";
/// Slots of a group that is folded, at the most. A word takes some 5 ns, and an agent that is
/// silent for `dead_ms` is removed.
const FOLDED_WORDS: u32 = 4 << 20;
const RECORD_MEMBERS: &str = "sp_lww_members";
const TERMS: &str = "sp_lww_terms";
const DUE: &str = "sp_eventual_due";
const SECRETS: &str = "sp_shared_secrets";

/// Changes that are sent again to a member of a new view, at the most: some dozens of messages.
/// What is older comes with gossip.
const SENT_AGAIN: u64 = 4096;

/// The other members.
fn members(node: &NodeValue) -> impl Iterator<Item = u32> + use<> {
    let (members, own) = (node.members, node.own);
    (0..MEMBERS).filter(move |it| members >> it & 1 == 1 && *it != own)
}

/// A group of a loaded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventualGroup {
    /// As the program has it.
    pub described: Described,
    /// Slots of a cell, and those of bases.
    pub columns: u32,
    /// Records that a message has room for.
    pub in_message: u32,
    /// Bytes of this switch's memory that are there for its variables, as `stateplane check` tells.
    pub memory_bytes: u64,
}

impl EventualGroup {
    /// All groups of a program's variables with EWO.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn all(manifest: &Manifest) -> Result<Vec<EventualGroup>> {
        let objects = manifest.state_objects.iter();
        let objects = objects.filter(|it| has_consistency(it, Consistency::Ewo) && !is_keyed(it));
        let settings = objects.map(|it| Ok((it.capacity, settings_of(it)?)));
        let settings = settings.collect::<Result<Vec<_>>>()?;
        let slots = settings.iter().filter_map(|(_, it)| it.eventual).map(|it| it.slots);
        let columns = columns(slots.max().unwrap_or(0));
        let found = eventual_groups(settings.iter().map(|(size, it)| (*size, it)));
        let keyed = Object::all(manifest)?;
        let parts = keyed.iter().map(|it| (it.size, it.key_bytes, it.value_bytes, &it.settings));
        let found = with_records(found, parts.collect());
        let in_message = keyed.first().map_or(0, |it| {
            CELLS_OF_MESSAGE / 2 / (4 + it.settings.key_words + it.settings.value_words)
        });
        let bytes = eventual_bytes(manifest)?;
        let group = |described: Described| {
            let memory_bytes = bytes.get(&described.name).copied().unwrap_or(0);
            EventualGroup { described, columns, in_message, memory_bytes }
        };
        Ok(found.into_iter().map(group).collect())
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
        let own = life(view.own, incarnation);
        self.begin_alone(dataplane, own, Ipv4Addr::UNSPECIFIED)?;
        self.take(dataplane, view, None, ring)
    }

    /// Begins a life, with empty variables and no members: its packets read and update alone.
    /// Messages to this address are refused.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin_alone(&self, dataplane: &Dataplane, life: u64, address: Ipv4Addr) -> Result<()> {
        if self.columns > 0 {
            let at = self.number() * self.columns;
            dataplane.write_array(COLUMNS, at, &life.to_ne_bytes())?;
        }
        let node = NodeValue {
            life,
            members: 0,
            view: 0,
            own: 0,
            count: 0,
            address,
            first_slotted: self.described.first_slotted,
            slotted: self.described.slotted,
            first_direct: self.described.first_direct,
            direct: self.described.direct,
        };
        dataplane.write_array(NODES, self.number(), &node.to_bytes())
    }

    /// Sends no message and merges none from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn alone(&self, dataplane: &Dataplane) -> Result<()> {
        let node = self.node(dataplane)?;
        let node = NodeValue { members: 0, view: 0, count: 0, ..node };
        dataplane.write_array(NODES, self.number(), &node.to_bytes())
    }

    /// Takes a view. Packets read and update meanwhile. What a member was sent lately is sent
    /// again: it may have taken the view earlier, and refused that. Slots of the lives in `base`
    /// are folded before.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(
        &self,
        dataplane: &Dataplane,
        view: &View,
        base: Option<&Base>,
        ring: &KeyRing,
    ) -> Result<()> {
        let before = self.node(dataplane)?;
        // (No message is made or tried with the secret of another view than its own.)
        let closed = NodeValue { members: 0, ..before };
        dataplane.write_array(NODES, self.number(), &closed.to_bytes())?;
        if let Some(base) = base {
            let folds = self.is_to_fold(dataplane, base);
            if folds.is_err() {
                // Nothing is folded: the old view goes on.
                dataplane.write_array(NODES, self.number(), &before.to_bytes())?;
            }
            if folds? {
                fold::fold(dataplane, self, base, Steps::ALL)?;
            }
        }
        self.secrets(dataplane, view, ring)?;
        for Member { number: member, address, .. } in &view.members {
            let value = MemberValue { next: 0, address: *address, frames: 0 };
            let at = self.number() * MEMBERS + member;
            dataplane.write_array(MEMBER_MAP, at, &value.to_bytes())?;
            if self.described.records > 0 {
                let value = lww::MemberValue::default();
                dataplane.write_array(RECORD_MEMBERS, at, &value.to_bytes())?;
            }
            self.send_again(dataplane, *member)?;
        }
        let own = view.members.iter().find(|member| member.number == view.own);
        let mut node = NodeValue {
            view: view.number,
            own: view.own,
            count: view.members.len() as u32,
            address: own.map_or(Ipv4Addr::UNSPECIFIED, |member| member.address),
            ..closed
        };
        dataplane.write_array(NODES, self.number(), &node.to_bytes())?;
        // (Last: a message that sees them sees all of the rest.)
        node.members = view.member_bits();
        dataplane.write_array(NODES, self.number(), &node.to_bytes())
    }

    /// Whether there is something to fold. (First no message may be under way on any CPU: it might
    /// bring a life that is over.)
    fn is_to_fold(&self, dataplane: &Dataplane, base: &Base) -> Result<bool> {
        wait_for_packets()?;
        fold::is_due(dataplane, self, base)
    }

    /// A member is sent the newest changes, whether it was sent them or not.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn send_again(&self, dataplane: &Dataplane, member: u32) -> Result<()> {
        let at = self.number() * MEMBERS + member;
        let from = |list: &str, listed: u64| {
            let room = dataplane.map(list).map_or(0, |map| map.max_entries() / GROUPS);
            listed.saturating_sub(u64::from(room / 2).min(SENT_AGAIN))
        };
        let next = from(LIST, self.ends(dataplane)?.listed);
        let value = MemberValue { next, ..self.member(dataplane, member)? };
        dataplane.write_array(MEMBER_MAP, at, &value.to_bytes())?;
        if self.described.records > 0 {
            let next = from(RECORD_LIST, self.records_listed(dataplane)?);
            let value = lww::MemberValue { next, ..self.record_member(dataplane, member)? };
            dataplane.write_array(RECORD_MEMBERS, at, &value.to_bytes())?;
        }
        Ok(())
    }

    fn ends(&self, dataplane: &Dataplane) -> Result<EndsValue> {
        Ok(EndsValue::from_bytes(&dataplane.read_array(ENDS, self.number())?))
    }

    fn records_listed(&self, dataplane: &Dataplane) -> Result<u64> {
        let bytes = dataplane.read_array(RECORD_NODES, self.number())?;
        Ok(lww::NodeValue::from_bytes(&bytes).listed)
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
            fan_out: 0,
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
            match self.life_of_column(dataplane, column)? {
                0 => break,
                life => found.push(life),
            }
        }
        Ok(found)
    }

    /// The life whose slots a column has; 0: none.
    pub(crate) fn life_of_column(&self, dataplane: &Dataplane, column: u32) -> Result<u64> {
        let bytes = dataplane.read_array(COLUMNS, self.number() * self.columns + column)?;
        Ok(bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes))
    }

    /// Says whose slots a column has.
    pub(crate) fn name_column(&self, dataplane: &Dataplane, column: u32, life: u64) -> Result<()> {
        let at = self.number() * self.columns + column;
        dataplane.write_array(COLUMNS, at, &life.to_ne_bytes())
    }

    /// As many lives may have slots; 0: no cell has slots, or the slots are more than an agent can
    /// add up between two reports.
    pub fn room(&self) -> u32 {
        let words = self.described.slotted.saturating_mul(self.columns);
        if words == 0 || words > FOLDED_WORDS { 0 } else { self.columns.saturating_sub(BASES) }
    }

    /// What the switch has of these lives.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn digest(&self, dataplane: &Dataplane, before: &Before) -> Result<Digest> {
        fold::digest(dataplane, self, before)
    }

    /// Folds slots, as [`EventualGroup::take`] does, while no message comes or goes. False: it
    /// ended after so many steps.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn fold(&self, dataplane: &Dataplane, base: &Base, steps: Steps) -> Result<bool> {
        fold::fold(dataplane, self, base, steps)
    }

    /// What the rules of the packet generator look at.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn look(&self, dataplane: &Dataplane) -> Result<Look> {
        let node = self.node(dataplane)?;
        let listed = self.ends(dataplane)?.listed;
        let mut others = vec![];
        for member in members(&node) {
            let next = self.member(dataplane, member)?.next;
            others.push((member, listed.saturating_sub(next)));
        }
        let columns = self.lives(dataplane)?.len() as u32;
        let records = self.records(dataplane, &node)?;
        Ok(Look {
            own: node.own,
            others,
            columns,
            slotted: node.slotted,
            direct: node.direct,
            records,
        })
    }

    fn records(&self, dataplane: &Dataplane, node: &NodeValue) -> Result<Records> {
        let Described { records: count, first_record: first, .. } = self.described;
        if count == 0 {
            return Ok(Records::default());
        }
        let listed = self.records_listed(dataplane)?;
        let mut waiting = vec![];
        for member in members(node) {
            let next = self.record_member(dataplane, member)?.next;
            waiting.push(listed.saturating_sub(next));
        }
        Ok(Records { waiting, first, count, in_message: self.in_message })
    }

    /// A member, as the data plane knows it of messages with records.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn record_member(&self, dataplane: &Dataplane, member: u32) -> Result<lww::MemberValue> {
        let at = self.number() * MEMBERS + member;
        Ok(lww::MemberValue::from_bytes(&dataplane.read_array(RECORD_MEMBERS, at)?))
    }

    /// Tells the data plane which members the switch hears, and which tombstones have ended.
    fn tell_terms(
        &self,
        dataplane: &Dataplane,
        pace: &mut Pace,
        terms: Terms,
        now_ns: u64,
    ) -> Result<()> {
        if self.described.records == 0 || !pace.hearing_is_due(terms, now_ns) {
            return Ok(());
        }
        let node = self.node(dataplane)?;
        let seen = |member: u32| {
            let lww::MemberValue { hears, newer, .. } = self.record_member(dataplane, member)?;
            Ok(Seen { member, frames: newer as u32, hears })
        };
        let others = members(&node).map(seen).collect::<Result<Vec<Seen>>>()?;
        let Found { hears, kept_ns } = pace.hear(node.own, &others, terms, now_ns);
        let forget_before = kept_ns.map_or(0, |kept_ns| now_ns.saturating_sub(kept_ns));
        let value = lww::TermsValue { forget_before, hears };
        dataplane.write_array(TERMS, self.number(), &value.to_bytes())
    }

    /// Notes which members have sent something since the last look.
    fn hear(
        &self,
        dataplane: &Dataplane,
        pace: &mut Pace,
        terms: Terms,
        now_ns: u64,
    ) -> Result<()> {
        if !pace.silences.is_due(now_ns) {
            return Ok(());
        }
        let seen = |member: u32| {
            let MemberValue { address, frames, .. } = self.member(dataplane, member)?;
            Ok(silence::Seen { member, address, frames })
        };
        let node = self.node(dataplane)?;
        let others = members(&node).map(seen).collect::<Result<Vec<_>>>()?;
        let speaks = self.described.records > 0
            || others.iter().any(|it| it.frames > 0)
            || self.ends(dataplane)?.listed > 0;
        let round_ns = terms.gossip_ns.max(pace.round_ns());
        pace.silences.look(&others, speaks, round_ns, now_ns);
        Ok(())
    }

    /// Queues the frames that are due; how many are to be made: more than were queued if the map is
    /// full, as what nobody made (no port was up) must not stay there.
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
        self.hear(dataplane, pace, terms, now_ns)?;
        self.tell_terms(dataplane, pace, terms, now_ns)?;
        let before = pace.place();
        let due = pace.due(&self.look(dataplane)?, terms, now_ns);
        let Some(map) = dataplane.map(DUE) else { return Ok(0) };
        let mut queued = 0;
        for (flow, Wanted { member, column, first }) in (0..).zip(due) {
            let begins = u32::from(column == RECORDS && first == self.described.first_record);
            let (group, flow) = (self.number(), FLOWS + flow % 64);
            let value = DueValue { group, member, column, first, begins, flow };
            if map.update(&[], &value.to_bytes(), MapFlags::ANY).is_err() {
                // (Rounds count what was sent.)
                pace.go_back(before);
                queued += u64::from(DUE_ENTRIES);
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
