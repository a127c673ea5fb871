//! A group of variables in a loaded object: what is read and written of it.

use crate::buckets::bucket_end;
use crate::due::{Look, Rounds, Seen, Wanted};
use crate::tree::exchanged;
use c_layout::CStruct;
use dataplane::{Dataplane, Error, MappedWords, Result};
use libbpf_rs::{MapCore, MapFlags};
use manifest::Manifest;
use p4_interpreter::Evaluator;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use swish_protocol::control::Member;
use swish_protocol::layouts::{
    BUCKETS, BlockValue, CELLS, CPUS, CpuValue, DUE as DUE_ENTRIES, DueValue, MEMBERS, MemberValue,
    NOT_KNOWN, NodeValue, phase, tree,
};
use swish_protocol::objects::{
    Consistency, Group as Described, Merge, OwnMerge, SYSTEM, SharedSettings, groups, member_bytes,
    period_begins,
};
use swish_protocol::tag::{About, secret_value};
use wire::KeyRing;

const NODES: &str = "sp_shared_nodes";
const MEMBER_MAP: &str = "sp_shared_members";
const CPU_MAP: &str = "sp_shared_cpus";
const GOT: &str = "sp_shared_got";
const SECRETS: &str = "sp_shared_secrets";
const DUE: &str = "sp_shared_due";
const BLOCKS: &str = "sp_shared_blocks";
const WINDOW_NS: &str = "sp_shared_window_ns";
/// The runtime's counters.
pub const STATS: &str = "sp_shared_stats";
/// The first UDP source port of messages: frames of several ports may be on several CPUs.
pub(crate) const FLOWS: u32 = 49_152;

/// A group of a loaded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// As the program has it.
    pub described: Described,
    /// Words of a member's bitmap of messages.
    got_words: u32,
    /// In order of their blocks.
    variables: Vec<Variable>,
}

/// A variable of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    /// Its first block, of the group's.
    first: u32,
    /// How its blocks merge.
    merge: Merge,
    /// With [`Merge::Own`]: the function.
    own: Option<Evaluator>,
    /// After how many windows it begins anew; 0: it never does.
    period: u32,
}

/// What the open delta of a group has before the group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Changed blocks, which are listed.
    pub blocks: u32,
    /// Changed cells of one, at the most.
    pub most_cells: u32,
}

/// Caps on what a group's windows cost this switch: longer pauses between windows keep them. The
/// slowest member decides for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Of all frames that this switch sends; 0: no cap.
    pub bandwidth_mbps: u64,
    /// Of one CPU's time, work on frames; 0: no cap.
    pub cpu_percent: u32,
}

impl Caps {
    /// How long a byte takes, in 2^-16 ns.
    fn byte_time(&self) -> u64 {
        (8000 << 16) / self.bandwidth_mbps.max(1) * u64::from(self.bandwidth_mbps > 0)
    }
}

/// The members of a group, and the terms on which they share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Its number.
    pub number: u32,
    /// This switch's number as a member.
    pub own: u32,
    /// All members, this switch too.
    pub members: Vec<Member>,
    /// Of a window, at the least; 0: the next one begins at once.
    pub period_ns: u64,
    /// What windows may cost.
    pub caps: Caps,
    /// Updates of a rotation on this switch.
    pub bound: u64,
    /// The number of the window that the group begins in: at least 1.
    pub window: u64,
    /// When that begins, and when it may turn (CLOCK_MONOTONIC).
    pub begins_ns: u64,
    /// See `begins_ns`.
    pub turns_ns: u64,
    /// How many children a member of the aggregation tree has at the most; 0: there is no tree.
    pub fan_out: u32,
}

impl View {
    /// A bit for each member of a group of few.
    pub fn member_bits(&self) -> u64 {
        let few = self.members.iter().filter(|it| it.number < MEMBERS);
        few.fold(0, |bits, member| bits | 1 << member.number)
    }

    /// Members' numbers are below this.
    pub fn limit(&self) -> u32 {
        self.members.iter().map(|it| it.number + 1).max().unwrap_or(0)
    }

    /// Of the members and the tree (FNV-1a, by words): with others, messages have other tags.
    pub fn fingerprint(&self) -> u64 {
        let member = |it: &Member| [it.number, u32::from(it.address)];
        let words = [self.fan_out].into_iter().chain(self.members.iter().flat_map(member));
        let add = |hash: u64, word| (hash ^ u64::from(word)).wrapping_mul(0x0100_0000_01b3);
        words.fold(0xcbf2_9ce4_8422_2325, add)
    }
}

/// What an agent keeps of a group from one look of the packet generator to the next.
#[derive(Default)]
pub struct Looks {
    rounds: Rounds,
    /// The members' records, which each look reads.
    members: Option<MappedWords>,
    /// What CPUs have sent.
    cpus: Option<MappedWords>,
}

/// A map in memory, which is opened at the first look.
fn mapped<'a>(
    kept: &'a mut Option<MappedWords>,
    dataplane: &Dataplane,
    map: &str,
) -> Result<&'a MappedWords> {
    match kept {
        Some(words) => Ok(words),
        None => Ok(kept.insert(dataplane.map_words(map)?)),
    }
}

/// A variable's settings in a manifest.
///
/// # Errors
/// The manifest is of another version.
pub fn settings_of(object: &manifest::StateObject) -> Result<SharedSettings> {
    serde_json::from_value(serde_json::Value::Object(object.settings.clone())).map_err(|error| {
        Error::Value {
            what: format!("the settings of {} in the manifest", object.name),
            text: serde_json::Value::Object(object.settings.clone()).to_string(),
            reason: format!("{error}: compile the program again, with this version"),
        }
    })
}

/// What runs the merge that a program gives a variable, if it gives one.
///
/// # Errors
/// The manifest is of another version.
pub fn own_merge(settings: &SharedSettings) -> Result<Option<Evaluator>> {
    settings.own.as_ref().map(evaluator).transpose()
}

fn evaluator(own: &OwnMerge) -> Result<Evaluator> {
    let function: p4_ir::Merge =
        serde_json::from_value(own.function.clone()).map_err(|error| Error::Value {
            what: format!("the function {} in the manifest", own.name),
            text: own.function.to_string(),
            reason: format!("{error}: compile the program again, with this version"),
        })?;
    Ok(Evaluator::new(&function))
}

/// Does a manifest's object have this consistency? Its settings say so, whatever its kind is.
pub fn has_consistency(object: &manifest::StateObject, consistency: Consistency) -> bool {
    let name = serde_json::to_value(consistency).unwrap_or_default();
    object.system == SYSTEM && object.settings.get("consistency") == Some(&name)
}

impl Group {
    /// All groups of a program's variables with SDW.
    ///
    /// # Errors
    /// The manifest is of another version.
    pub fn all(manifest: &Manifest) -> Result<Vec<Group>> {
        let objects = manifest.state_objects.iter();
        let objects = objects.filter(|it| has_consistency(it, Consistency::Sdw));
        let settings = objects.map(|it| Ok((it.capacity, settings_of(it)?)));
        let settings: Vec<(u32, SharedSettings)> = settings.collect::<Result<_>>()?;
        let found = groups(settings.iter().map(|(cells, it)| (*cells, it)));
        let most = found.iter().map(|it| it.blocks).max().unwrap_or(0);
        let got_words = most.div_ceil(64);
        let of = |described: Described| {
            let own = settings.iter().filter(|(_, it)| it.group_number == described.number);
            let variables = own.map(|(_, it)| {
                let first = it.first_block - described.first;
                let own = own_merge(it)?;
                Ok(Variable { first, merge: it.merge, own, period: it.period })
            });
            let mut variables = variables.collect::<Result<Vec<_>>>()?;
            variables.sort_by_key(|it| it.first);
            Ok(Group { got_words, variables, described })
        };
        found.into_iter().map(of).collect()
    }

    fn number(&self) -> u32 {
        self.described.number
    }

    pub(crate) fn got_words(&self) -> u32 {
        self.got_words
    }

    /// Switches that the group has room for.
    pub fn room(&self) -> u32 {
        self.described.members
    }

    /// Where in its map a member's record is.
    fn member_at(&self, member: u32) -> u32 {
        self.number() * self.room() + member
    }

    /// Bytes of this switch's memory that the group's maps take.
    pub fn memory_bytes(&self) -> u64 {
        let lists = 2 * size_of::<u32>() as u64;
        u64::from(self.described.blocks) * (size_of::<BlockValue>() as u64 + lists)
            + self.members_bytes()
    }

    /// Of those, for what is kept of members.
    pub fn members_bytes(&self) -> u64 {
        u64::from(self.room()) * member_bytes(self.got_words * 64)
    }

    /// All variables merge by addition.
    pub fn sums(&self) -> bool {
        self.variables.iter().all(|it| it.merge == Merge::Sum)
    }

    /// Merges cells of a block of the group with others, as the data plane does it.
    ///
    /// # Errors
    /// The program's function makes nothing of them (`stateplane check` tries it).
    pub fn merge(&self, block: u32, cells: &mut [u32], with: &[u32]) -> Result<()> {
        let variable = self.variable_of(block);
        let merge = variable.map_or(Merge::Sum, |it| it.merge);
        for (cell, by) in cells.iter_mut().zip(with) {
            *cell = match (merge.of(*cell, *by), variable.and_then(|it| it.own.as_ref())) {
                (Some(made), _) => made,
                (None, Some(own)) => {
                    own.of_cells(*cell, *by).map_err(|why| self.no_merge(why.to_string()))?
                }
                (None, None) => return Err(self.no_merge("the manifest has no function".into())),
            };
        }
        Ok(())
    }

    fn no_merge(&self, why: String) -> Error {
        Error::Value {
            what: format!("the merge of a sketch of group {}", self.described.name),
            text: self.described.name.clone(),
            reason: format!("{why}: compile the program again, with this version"),
        }
    }

    /// After how many windows a block of the group begins anew; 0: it never does.
    pub fn period_of(&self, block: u32) -> u32 {
        self.variable_of(block).map_or(0, |it| it.period)
    }

    fn variable_of(&self, block: u32) -> Option<&Variable> {
        self.variables.iter().rev().find(|it| it.first <= block)
    }

    /// The group as the data plane has it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn node(&self, dataplane: &Dataplane) -> Result<NodeValue> {
        Ok(NodeValue::from_bytes(&dataplane.read_array(NODES, self.number())?))
    }

    /// Writes all of the group but its window.
    fn write_node(&self, dataplane: &Dataplane, node: &NodeValue) -> Result<()> {
        dataplane.write_array(NODES, self.number(), &node.to_bytes())
    }

    /// A member, as the data plane knows it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn member(&self, dataplane: &Dataplane, member: u32) -> Result<MemberValue> {
        let bytes = dataplane.read_array(MEMBER_MAP, self.member_at(member))?;
        Ok(MemberValue::from_bytes(&bytes))
    }

    /// The members of the view that the data plane has, with their numbers.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn members(&self, dataplane: &Dataplane) -> Result<Vec<(u32, MemberValue)>> {
        let limit = self.node(dataplane)?.limit.min(self.room());
        let read = (0..limit).map(|number| Ok((number, self.member(dataplane, number)?)));
        let read: Vec<(u32, MemberValue)> = read.collect::<Result<_>>()?;
        Ok(read.into_iter().filter(|(_, it)| !it.address.is_unspecified()).collect())
    }

    /// Begins the group on a switch where it has not begun, with the values that its blocks have.
    /// `cpus`: those that may have packets.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin(
        &self,
        dataplane: &Dataplane,
        view: &View,
        cpus: u32,
        ring: &KeyRing,
        open: Open,
    ) -> Result<()> {
        let cpus = cpus.clamp(1, CPUS);
        self.secrets(dataplane, view, ring)?;
        // (All records: an earlier agent may have ended while it wrote a larger view, and a record
        // with an address is a member's.)
        let (place, near) = view.neighbours();
        let addresses = near.iter().map(|it| (it.number, it.address));
        let addresses: BTreeMap<u32, Ipv4Addr> = addresses.collect();
        let room = self.room();
        // (The map refuses numbers that it has no room for.)
        let beyond = addresses.keys().copied().filter(|number| *number >= room);
        for number in (0..room).chain(beyond) {
            let value = MemberValue {
                ready: 0,
                total: NOT_KNOWN,
                merged: 0,
                complete: 0,
                frames: 0,
                next: [0; 2],
                address: addresses.get(&number).copied().unwrap_or(Ipv4Addr::UNSPECIFIED),
                full: 0,
            };
            dataplane.write_array(MEMBER_MAP, self.member_at(number), &value.to_bytes())?;
        }
        for cpu in 0..CPUS {
            // (What does not divide goes to the first CPUs: together they have the bound.)
            let left = view.bound % u64::from(cpus);
            let share = view.bound / u64::from(cpus) + u64::from(u64::from(cpu) < left);
            let value = CpuValue { share, ..CpuValue::default() };
            dataplane.write_array(CPU_MAP, self.number() * CPUS + cpu, &value.to_bytes())?;
        }
        let own = view.members.iter().find(|member| member.number == view.own);
        let side = (view.window & 1) as usize;
        let mut node = NodeValue {
            word: 0,
            sealed: 0,
            ready: [0; 2],
            all_ready: 0,
            complete: 0,
            limit: view.limit(),
            period_ns: view.period_ns,
            next_ns: view.turns_ns,
            began_ns: [view.begins_ns; 2],
            view: view.number,
            own: view.own,
            count: near.len() as u32,
            cpus,
            first: self.described.first,
            blocks: self.described.blocks,
            message_blocks: 1,
            totals: [0; 2],
            address: own.map_or(Ipv4Addr::UNSPECIFIED, |member| member.address),
            most_cells: [0; 2],
            dirty_blocks: [0; 2],
            filled: 0,
            closed: 0,
            moved_ns: view.begins_ns,
            byte_time: view.caps.byte_time(),
            sent_bytes: 0,
            busy_ns: 0,
            cpu_percent: view.caps.cpu_percent,
            tree: place,
            members: view.fingerprint(),
        };
        (node.dirty_blocks[side], node.most_cells[side]) = (open.blocks, open.most_cells);
        self.write_node(dataplane, &node)?;
        // (The word last: a packet that sees it sees all of the rest. Nothing changes the node
        // before.)
        node.word = view.window << 3;
        self.write_node(dataplane, &node)
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
            fan_out: view.fan_out,
        };
        for id in 0..4 {
            let value = secret_value(ring.secret(id), &about);
            let at = self.number() * 4 + u32::from(id);
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
        let (place, near) = view.neighbours();
        let known = [
            node.count as usize == near.len(),
            node.tree == place,
            node.members == view.fingerprint(),
            node.limit == view.limit(),
            node.own == view.own,
            node.view == view.number,
            node.period_ns == view.period_ns,
            node.byte_time == view.caps.byte_time(),
            node.cpu_percent == view.caps.cpu_percent,
        ];
        for Member { number, address, .. } in &near {
            if self.member(dataplane, *number)?.address != *address {
                return Ok(false);
            }
        }
        Ok(known.into_iter().all(|it| it))
    }

    /// What the rules of the packet generator look at.
    fn look(&self, dataplane: &Dataplane, records: &MappedWords) -> Result<Look> {
        let node = self.node(dataplane)?;
        let stride = size_of::<MemberValue>() / size_of::<u64>();
        let mut bytes = [0; size_of::<MemberValue>()];
        let mut members = vec![];
        for member in 0..node.limit.min(self.room()) {
            let first = self.member_at(member) as usize * stride;
            for (at, word) in (first..).zip(bytes.chunks_exact_mut(size_of::<u64>())) {
                word.copy_from_slice(&records.get(at).to_ne_bytes());
            }
            let value = MemberValue::from_bytes(&bytes);
            if !value.address.is_unspecified() {
                members.push((member, value));
            }
        }
        let own = members.iter().find(|(member, _)| *member == node.own);
        let own_total = own.map_or(NOT_KNOWN, |(_, own)| own.total);
        let seen = |(member, it): (u32, MemberValue)| {
            let MemberValue { total, merged, frames, .. } = it;
            let (sends, to_send) = exchanged(&node, own_total, member, &it);
            (member, Seen { total, merged, to_send, sends, frames })
        };
        let members: Vec<(u32, Seen)> = members.into_iter().map(seen).collect();
        let side = (node.word >> 3 & 1) as usize;
        // (In a pause, children in a tree may lack what came down last.)
        let pauses = node.word & 7 == phase::ADVANCED && members.iter().all(|it| it.1.to_send == 0);
        Ok(Look {
            word: node.word,
            sealed: node.sealed != 0,
            waits_until_ns: if pauses { node.next_ns } else { 0 },
            own: node.own,
            tree: node.tree != tree::NONE,
            ready: if node.tree == tree::NONE { 0 } else { node.ready[side] },
            records: node.limit.min(self.room()),
            members,
        })
    }

    /// The numbers of a member's messages, below `total`, that are not merged: so many at the most.
    fn missing(&self, dataplane: &Dataplane, member: u32, total: u32, most: usize) -> Vec<u32> {
        let mut found = vec![];
        for word in 0..total.div_ceil(64) {
            let at = self.member_at(member) * self.got_words + word;
            let Ok(bytes) = dataplane.read_array(GOT, at) else { return found };
            let got = bytes.first_chunk().copied().map_or(u64::MAX, u64::from_ne_bytes);
            for bit in (0..64).filter(|bit| got >> bit & 1 == 0) {
                let number = word * 64 + bit;
                if number >= total || found.len() >= most {
                    return found;
                }
                found.push(number);
            }
        }
        found
    }

    /// Queues the frames that are due; how many.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn queue(&self, dataplane: &Dataplane, looks: &mut Looks, now_ns: u64) -> Result<u64> {
        if !looks.rounds.is_due(now_ns) {
            return Ok(0);
        }
        let look = self.look(dataplane, mapped(&mut looks.members, dataplane, MEMBER_MAP)?)?;
        let window = (look.word >> 3) as u32;
        let due = looks
            .rounds
            .due(look, now_ns, |member, total, most| self.missing(dataplane, member, total, most));
        Ok(self.push(dataplane, window, due))
    }

    /// Queues frames that are to begin on this CPU; how many.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn queue_on(
        &self,
        dataplane: &Dataplane,
        looks: &mut Looks,
        cpu: usize,
        now_ns: u64,
    ) -> Result<u64> {
        if cpu >= CPUS as usize {
            return Ok(0);
        }
        let records = mapped(&mut looks.cpus, dataplane, CPU_MAP)?;
        let words = size_of::<CpuValue>() / size_of::<u64>();
        let first = (self.number() * CPUS) as usize * words + cpu * words;
        let sent = records.get(first + CpuValue::LAYOUT.word("sent_bytes"));
        let due = looks.rounds.due_on(cpu, sent, now_ns);
        Ok(self.push(dataplane, looks.rounds.window(), due))
    }

    /// Queues frames until the map is full; how many are to be made: more than were queued then, as
    /// frames that were not made (no port was up) must not stay there.
    fn push(&self, dataplane: &Dataplane, window: u32, due: Vec<Wanted>) -> u64 {
        let Some(map) = dataplane.map(DUE) else { return 0 };
        let mut queued = 0;
        for (flow, Wanted { member, want }) in (0..).zip(due) {
            let value =
                DueValue { group: self.number(), member, want, flow: FLOWS + flow % 64, window };
            if map.update(&[], &value.to_bytes(), MapFlags::ANY).is_err() {
                queued += u64::from(DUE_ENTRIES);
                break;
            }
            queued += 1;
        }
        queued
    }

    /// A cell as packets of the window read it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn cell(&self, dataplane: &Dataplane, first_block: u32, index: u32) -> Result<u32> {
        let window = self.node(dataplane)?.word >> 3;
        let bytes = dataplane.read_array(BLOCKS, first_block + index / CELLS)?;
        let block = BlockValue::from_bytes(&bytes);
        let [first, second] = block.window;
        let side = if first >= window { 1 } else { usize::from(second < window && second > first) };
        let period = self.period_of(first_block + index / CELLS - self.described.first);
        let begins = period_begins(period, window.saturating_sub(1));
        let is_over = block.window[side] < begins;
        Ok(if is_over { 0 } else { block.value[side][(index % CELLS) as usize] })
    }

    /// How long windows took, in ns: upper ends of buckets, and counts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn window_times(&self, dataplane: &Dataplane) -> Result<Vec<(u64, u64)>> {
        let mut found = vec![];
        for bucket in 0..BUCKETS {
            let bytes = dataplane.read_array(WINDOW_NS, self.number() * BUCKETS + bucket)?;
            let count = bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes);
            if count > 0 {
                found.push((bucket_end(bucket), count));
            }
        }
        Ok(found)
    }
}
