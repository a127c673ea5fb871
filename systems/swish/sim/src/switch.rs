//! A simulated switch: the loaded object in test mode, on a clock of its own.

use crate::caps::Worked;
use crate::model::{Checked, Merging, Update, violated};
use crate::program::{Program, enter};
use c_layout::CStruct;
use dataplane::layouts::core::TestValue;
use dataplane::{Dataplane, Object, Settings, Verdict};
use libbpf_rs::MapCore;
use std::net::Ipv4Addr;
use swish_protocol::control::Member;
use swish_protocol::layouts::{
    BlockValue, CELLS, CPUS as PLACES, CpuValue, MemberValue, NodeValue,
};
use swish_protocol::message::Message;
use swish_protocol::objects::{SYSTEM, period_begins};
use swish_switch::group::{Caps, Group, Looks, Open, View, own_merge, settings_of};
use wire::{KeyRing, SECRET_BYTES, Secret};

/// CPUs of each switch.
pub(crate) const CPUS: u32 = 3;
/// The port that messages take.
pub(crate) const FABRIC: u32 = 1;
/// The port that packets come in on.
pub(crate) const HOSTS: u32 = 2;
/// Where a message begins in its frame.
pub(crate) const MESSAGE_AT: usize = 42;
const NODES: &str = "sp_shared_nodes";
const CPU_MAP: &str = "sp_shared_cpus";
const BLOCKS: &str = "sp_shared_blocks";
/// What a switch knows: emptied for each run. (Loading an object takes a hundred times as long.)
const MAPS: [&str; 6] =
    [NODES, CPU_MAP, BLOCKS, "sp_shared_members", "sp_shared_got", "sp_shared_dirty_blocks"];

/// A variable of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) group: usize,
    /// Of its group's.
    pub(crate) object: usize,
    pub(crate) merge: Merging,
    pub(crate) cells: u32,
    /// Windows after which it begins anew; 0: it never does.
    pub(crate) period: u32,
    first_block: u32,
}

/// What a probe packet brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    pub(crate) window: u64,
    /// By variable, in the order of the program.
    pub(crate) read: [u32; 4],
}

/// See the file.
pub struct Switch {
    dataplane: Dataplane,
    groups: Vec<(Group, Looks)>,
    pub(crate) shared: Vec<Shared>,
    /// By how much its clock is ahead.
    offset_ns: u64,
    /// The cap on CPU time that is checked; 0: none is.
    cpu_percent: u32,
    /// By group.
    worked: Vec<Worked>,
}

/// What a run has of a view, for each switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) switches: usize,
    pub(crate) period_ns: u64,
    pub(crate) caps: Caps,
    pub(crate) bound: u64,
    pub(crate) window: u64,
    /// Children in the aggregation tree at the most; 0: there is none.
    pub(crate) fan_out: u32,
}

/// The number as a member of the switch at this place: not the place itself.
pub(crate) fn member(place: usize) -> u32 {
    3 * place as u32 + 1
}

/// The fabric's secrets.
pub(crate) fn ring() -> Option<KeyRing> {
    KeyRing::new(0, Secret([7; SECRET_BYTES]))
}

pub(crate) fn harness<T, E: std::fmt::Display>(result: Result<T, E>) -> Checked<T> {
    result.or_else(|error| violated("harness", error.to_string()))
}

impl Switch {
    /// Loads the object, with nothing in it.
    pub fn load(program: &Program) -> Result<Switch, String> {
        let link = enter()?;
        let text = |error: dataplane::Error| error.to_string();
        let mut object = Object::open(&program.object, program.manifest.clone()).map_err(text)?;
        object
            .set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })
            .map_err(text)?;
        // As on other CPUs than x86: labs have the other branch.
        object.set_constant("sp_total_store_order", 0).map_err(text)?;
        let dataplane = object.load().map_err(text)?;
        dataplane.set_port(FABRIC, link).map_err(text)?;
        dataplane.set_fabric_port(FABRIC, true).map_err(text)?;
        let groups = Group::all(&program.manifest).map_err(text)?;
        let mut shared: Vec<Shared> = vec![];
        for described in program.manifest.state_objects.iter().filter(|it| it.system == SYSTEM) {
            let settings = settings_of(described).map_err(text)?;
            let group = settings.group_number as usize;
            shared.push(Shared {
                group,
                object: shared.iter().filter(|it| it.group == group).count(),
                merge: Merging {
                    kind: settings.merge,
                    own: own_merge(&settings).map_err(text)?.map(|it| &*Box::leak(Box::new(it))),
                },
                cells: described.capacity,
                period: settings.period,
                first_block: settings.first_block,
            });
        }
        let worked = vec![Worked::default(); groups.len()];
        let groups = groups.into_iter().map(|group| (group, Looks::default())).collect();
        Ok(Switch { dataplane, groups, shared, offset_ns: 0, cpu_percent: 0, worked })
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn group(&self, group: usize) -> &Group {
        &self.groups[group].0
    }

    pub(crate) fn dataplane(&self) -> &Dataplane {
        &self.dataplane
    }

    /// Its own clock.
    pub(crate) fn clock(&self, now_ns: u64) -> u64 {
        self.offset_ns + now_ns
    }

    /// It knows nothing, and its clock is ahead by so much.
    pub(crate) fn empty(&mut self, offset_ns: u64) -> Checked {
        for name in MAPS {
            let Some(map) = self.dataplane.map(name) else { continue };
            let empty = vec![0; map.value_size() as usize];
            for index in 0..map.max_entries() {
                harness(self.dataplane.write_array(name, index, &empty))?;
            }
        }
        self.offset_ns = offset_ns;
        self.groups.iter_mut().for_each(|(_, looks)| *looks = Looks::default());
        self.worked.fill(Worked::default());
        Ok(())
    }

    /// Begins a run as the switch at this place.
    pub(crate) fn begin(&mut self, place: usize, terms: Terms, offset_ns: u64) -> Checked {
        self.empty(offset_ns)?;
        self.cpu_percent = terms.caps.cpu_percent;
        let Some(ring) = ring() else { return violated("harness", "no secret") };
        let address = |place: usize| Ipv4Addr::from_bits(0x0a00_0000 + member(place));
        let fixed =
            |place| Member { number: member(place), address: address(place), incarnation: 0 };
        let view = View {
            number: 0x1_0005,
            own: member(place),
            members: (0..terms.switches).map(fixed).collect(),
            period_ns: terms.period_ns,
            caps: terms.caps,
            bound: terms.bound,
            window: terms.window,
            begins_ns: offset_ns,
            turns_ns: offset_ns + terms.period_ns,
            fan_out: terms.fan_out,
        };
        for (group, _) in &self.groups {
            harness(group.begin(&self.dataplane, &view, CPUS, &ring, Open::default()))?;
        }
        Ok(())
    }

    /// By how much its clock is ahead.
    pub(crate) fn offset_ns(&self) -> u64 {
        self.offset_ns
    }

    /// Window and phase of a group.
    pub(crate) fn word(&self, group: usize) -> Checked<u64> {
        Ok(self.node(group)?.word)
    }

    pub(crate) fn node(&self, group: usize) -> Checked<NodeValue> {
        harness(self.groups[group].0.node(&self.dataplane))
    }

    pub(crate) fn member(&self, group: usize, place: usize) -> Checked<MemberValue> {
        harness(self.groups[group].0.member(&self.dataplane, member(place)))
    }

    fn set_word(&self, group: usize, word: u64) -> Checked {
        let node = NodeValue { word, ..self.node(group)? };
        harness(self.dataplane.write_array(NODES, group as u32, &node.to_bytes()))
    }

    fn cpu(&self, group: usize, cpu: u32) -> Checked<CpuValue> {
        let at = group as u32 * PLACES + cpu;
        Ok(CpuValue::from_bytes(&harness(self.dataplane.read_array(CPU_MAP, at))?))
    }

    /// The pin of this CPU's packet.
    pub(crate) fn pin(&self, group: usize, cpu: u32) -> Checked<u64> {
        Ok(self.cpu(group, cpu)?.packet)
    }

    /// A packet is under way on that CPU from now on, with this pin.
    pub(crate) fn set_pin(&self, group: usize, cpu: u32, pin: u64) -> Checked {
        let value = CpuValue { packet: pin, ..self.cpu(group, cpu)? };
        let at = group as u32 * PLACES + cpu;
        harness(self.dataplane.write_array(CPU_MAP, at, &value.to_bytes()))
    }

    /// All cells of a variable, as packets of the window read them.
    pub(crate) fn cells(&self, shared: &Shared, window: u64) -> Checked<Vec<u32>> {
        let mut cells = vec![];
        for block in 0..shared.cells.div_ceil(CELLS) {
            let bytes = harness(self.dataplane.read_array(BLOCKS, shared.first_block + block))?;
            let BlockValue { window: [first, second], value, .. } = BlockValue::from_bytes(&bytes);
            let newer = second < window && second > first;
            let side = if first >= window { 1 } else { usize::from(newer) };
            let begins = period_begins(shared.period, window.saturating_sub(1));
            let is_over = [first, second][side] < begins;
            cells.extend(if is_over { [0; CELLS as usize] } else { value[side] });
        }
        cells.truncate(shared.cells as usize);
        Ok(cells)
    }

    /// A probe packet on that CPU. `pins`: the words that it saw at its first access; `None`: it
    /// comes in now. `Ok(None)`: it is dropped.
    pub(crate) fn probe(
        &self,
        cpu: u32,
        (index, amount): (u32, u32),
        pins: Option<&[u64]>,
        now_ns: u64,
    ) -> Checked<Option<Probed>> {
        let mut words = vec![];
        for (group, pin) in (0..).zip(pins.into_iter().flatten()) {
            words.push(self.word(group)?);
            self.set_word(group, *pin)?;
        }
        self.dataplane.set_test_cpu(cpu);
        let frame = probe_frame(index, amount);
        let outcome = harness(self.dataplane.run(&frame, HOSTS, self.offset_ns + now_ns))?;
        for (group, word) in words.into_iter().enumerate() {
            self.set_word(group, word)?;
        }
        match outcome.verdict {
            Verdict::Drop => Ok(None),
            Verdict::Forward { port: HOSTS } => match probed(&outcome.frame) {
                Some(probed) => Ok(Some(probed)),
                None => violated("harness", "a probe came back short"),
            },
            other => violated("harness", format!("a probe goes to {other:?}")),
        }
    }

    /// Of some group it has nothing, or it is the only member.
    fn is_alone(&self) -> Checked<bool> {
        let counts = (0..self.groups()).map(|group| Ok(self.node(group)?.count));
        Ok(counts.collect::<Checked<Vec<u32>>>()?.into_iter().any(|count| count < 2))
    }

    /// A message comes in on that CPU; what goes back.
    pub(crate) fn receive(
        &mut self,
        cpu: u32,
        frame: &[u8],
        now_ns: u64,
    ) -> Checked<Option<Vec<u8>>> {
        self.dataplane.set_test_cpu(cpu);
        let outcome = harness(self.dataplane.run(frame, FABRIC, self.offset_ns + now_ns))?;
        let group = frame.get(MESSAGE_AT + 1).map_or(0, |it| it & 15);
        self.account(group.into(), self.offset_ns + now_ns)?;
        match outcome.verdict {
            Verdict::Drop => Ok(None),
            Verdict::Forward { port: FABRIC } => Ok(Some(outcome.frame)),
            // (Of a group that has not begun here, or that nobody else shares.)
            Verdict::ToHost if self.is_alone()? => Ok(None),
            other => violated("harness", format!("a message goes to {other:?}")),
        }
    }

    /// The packet generator's tick, as the agent's thread has it: it looks on one CPU, and then
    /// makes what is to begin on each of `cpus`. The messages, and the CPU of each.
    pub(crate) fn tick(
        &mut self,
        cpu: u32,
        cpus: &[u32],
        now_ns: u64,
    ) -> Checked<Vec<(u32, Vec<u8>)>> {
        let now_ns = self.offset_ns + now_ns;
        let mut made = vec![];
        for at in 0..self.groups.len() {
            let (group, looks) = &mut self.groups[at];
            let queued = harness(group.queue(&self.dataplane, looks, now_ns))?;
            self.make(at, cpu, queued, now_ns, &mut made)?;
        }
        for &cpu in cpus {
            for at in 0..self.groups.len() {
                let (group, looks) = &mut self.groups[at];
                let on = cpu as usize;
                let queued = harness(group.queue_on(&self.dataplane, looks, on, now_ns))?;
                self.make(at, cpu, queued, now_ns, &mut made)?;
            }
        }
        Ok(made)
    }

    /// The generator makes so many frames on that CPU, at this time of the switch's clock.
    fn make(
        &mut self,
        group: usize,
        cpu: u32,
        queued: u64,
        clock_ns: u64,
        made: &mut Vec<(u32, Vec<u8>)>,
    ) -> Checked {
        self.dataplane.set_test_cpu(cpu);
        for _ in 0..queued {
            let outcome = harness(self.dataplane.run_generated(clock_ns))?;
            self.account(group, clock_ns)?;
            if let Verdict::Forward { port: FABRIC } = outcome.verdict {
                made.push((cpu, outcome.frame));
            }
        }
        Ok(())
    }

    /// A frame of the group came in at this time of the switch's clock: the time that it took is
    /// noted, if there is a cap on it.
    fn account(&mut self, group: usize, began_ns: u64) -> Checked {
        if self.cpu_percent == 0 {
            return Ok(());
        }
        let test = TestValue::from_bytes(&harness(self.dataplane.read_array("sp_test", 0))?);
        let node = self.node(group)?;
        self.worked[group].frame(&node, test.clock_ns - began_ns, self.cpu_percent)
    }

    /// What the runtime counted so far, by its number.
    pub(crate) fn count(&self, stat: usize) -> u64 {
        let count = self.dataplane.read_count(swish_switch::group::STATS, stat as u32);
        count.unwrap_or_default()
    }

    /// Nothing is left over of a run before.
    pub(crate) fn drain(&self) {
        let Some(map) = self.dataplane.map("sp_shared_due") else { return };
        while let Ok(Some(_)) = map.lookup_and_delete(&[]) {}
    }
}

/// The place of the switch that a message is for.
pub(crate) fn receiver(frame: &[u8]) -> Checked<(usize, Message)> {
    let message = frame.get(MESSAGE_AT..).map(Message::decode);
    match message {
        Some(Ok(message)) if message.receiver % 3 == 1 => {
            Ok((usize::from(message.receiver / 3), message))
        }
        other => violated("message", format!("a switch sends {other:?}")),
    }
}

/// The updates of a probe, by variable.
pub(crate) fn updates_of(index: u32, amount: u32, shared: &[Shared]) -> Vec<(usize, Update)> {
    let of = |(at, shared): (usize, &Shared)| {
        (at, Update { object: shared.object, index: index % shared.cells, by: amount })
    };
    shared.iter().enumerate().map(of).collect()
}

pub(crate) fn probe_frame(index: u32, amount: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 6, 2, 0, 0, 0, 0, 5, 8, 0];
    frame.extend([0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 1, 5, 10, 0, 1, 6]);
    frame.extend([0x03, 0xe8, 0x0f, 0xa0, 0, 44, 0, 0]);
    frame.extend(index.to_be_bytes());
    frame.extend(amount.to_be_bytes());
    frame.extend([0; 28]);
    frame
}

fn probed(frame: &[u8]) -> Option<Probed> {
    let word = |at: usize| frame.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
    let window = frame.get(50..)?.first_chunk().copied().map(u64::from_be_bytes)?;
    Some(Probed { window, read: [word(58)?, word(62)?, word(66)?, word(74)?] })
}
