//! A simulated switch with eventual.p4: the loaded object in test mode, on a clock of its own.

use super::ledger::{Grows, Slots, Update};
use crate::model::{Checked, violated};
use crate::program::{Program, enter};
use crate::switch::{FABRIC, HOSTS, MESSAGE_AT, harness, member, probe_frame};
use c_layout::CStruct;
use dataplane::{Dataplane, Object, Settings, Verdict};
use libbpf_rs::{MapCore, MapFlags};
use std::net::Ipv4Addr;
use swish_protocol::base::{Base, Before};
use swish_protocol::control::Member;
use swish_protocol::eventual::{CellValue, Message, life_of};
use swish_protocol::layouts::MEMBERS;
use swish_protocol::objects::{Merge, SYSTEM};
use swish_switch::eventual::EventualGroup;
use swish_switch::fold::Steps;
use swish_switch::gossip::{Pace, Terms};
use swish_switch::group::{View, settings_of};
use wire::{KeyRing, SECRET_BYTES, Secret};

const CELLS: &str = "sp_eventual_cells";
const SLOTS: &str = "sp_eventual_slots";
/// What a switch knows: emptied when it begins anew.
const MAPS: [&str; 7] = [
    CELLS,
    SLOTS,
    "sp_eventual_columns",
    "sp_eventual_nodes",
    "sp_eventual_ends",
    "sp_eventual_list",
    "sp_eventual_members",
];
/// Variables of the program.
const VARIABLES: usize = 5;

/// A variable of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    first_cell: u32,
    cells: u32,
    merge: Merge,
    lanes: u32,
}

/// A group's cells: those with slots, and those without.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    pub(crate) slotted: Vec<u32>,
    pub(crate) direct: Vec<(u32, Grows)>,
}

/// See the file.
pub(crate) struct Switch {
    dataplane: Dataplane,
    groups: Vec<(EventualGroup, Pace)>,
    shared: Vec<Shared>,
    slotted: u32,
    pub(crate) life: u64,
    offset_ns: u64,
}

fn empty(map: &impl MapCore) -> Checked {
    let count = map.max_entries();
    let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
    let values = vec![0; (map.value_size().next_multiple_of(8) * count) as usize];
    harness(map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY))
}

impl Switch {
    /// Loads the object, with nothing in it.
    pub(crate) fn load(program: &Program) -> Result<Switch, String> {
        let link = enter()?;
        let text = |error: dataplane::Error| error.to_string();
        let mut object = Object::open(&program.object, program.manifest.clone()).map_err(text)?;
        object
            .set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })
            .map_err(text)?;
        let dataplane = object.load().map_err(text)?;
        dataplane.set_port(FABRIC, link).map_err(text)?;
        dataplane.set_fabric_port(FABRIC, true).map_err(text)?;
        let groups = EventualGroup::all(&program.manifest).map_err(text)?;
        let slotted = groups.iter().map(|it| it.described.slotted).sum();
        let mut shared = vec![];
        for described in program.manifest.state_objects.iter().filter(|it| it.system == SYSTEM) {
            let settings = settings_of(described).map_err(text)?;
            let eventual = settings.eventual.ok_or("a variable with another consistency")?;
            shared.push(Shared {
                first_cell: eventual.first_cell,
                cells: described.capacity,
                merge: settings.merge,
                lanes: eventual.lanes,
            });
        }
        let groups = groups.into_iter().map(|group| (group, Pace::default())).collect();
        Ok(Switch { dataplane, groups, shared, slotted, life: 0, offset_ns: 0 })
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Begins, empty, as the switch at this place.
    pub(crate) fn begin(
        &mut self,
        place: usize,
        switches: usize,
        incarnation: u32,
        offset_ns: u64,
    ) -> Checked {
        for name in MAPS {
            if let Some(map) = self.dataplane.map(name) {
                empty(map)?;
            }
        }
        if let Some(map) = self.dataplane.map("sp_eventual_due") {
            while let Ok(Some(_)) = map.lookup_and_delete(&[]) {}
        }
        self.offset_ns = offset_ns;
        self.life = life_of(address(place), incarnation);
        let Some(ring) = KeyRing::new(0, Secret([7; SECRET_BYTES])) else {
            return violated("harness", "no secret");
        };
        let view = view(FIRST_VIEW, place, u32::MAX, switches);
        for (group, pace) in &mut self.groups {
            *pace = Pace::new(place as u64);
            harness(group.begin_alone(&self.dataplane, self.life, address(place)))?;
            harness(group.take(&self.dataplane, &view, None, &ring))?;
        }
        Ok(())
    }

    /// Takes a view; a switch that is no member goes on alone.
    pub(crate) fn take(
        &mut self,
        number: u32,
        place: usize,
        (members, base): (u32, Option<&Base>),
        switches: usize,
    ) -> Checked {
        let Some(ring) = KeyRing::new(0, Secret([7; SECRET_BYTES])) else {
            return violated("harness", "no secret");
        };
        let view = view(number, place, members, switches);
        for (group, pace) in &mut self.groups {
            let is_member = members >> place & 1 == 1;
            if is_member {
                harness(group.take(&self.dataplane, &view, base, &ring))?;
            } else {
                harness(group.alone(&self.dataplane))?;
            }
            pace.begin_view(!is_member);
        }
        Ok(())
    }

    /// The agent ends in the middle of taking a view, after so many words of what it folds.
    pub(crate) fn end_in(&self, base: &Base, steps: u64) -> Checked {
        for (group, _) in &self.groups {
            harness(group.alone(&self.dataplane))?;
            harness(group.fold(&self.dataplane, base, Steps::new(steps)))?;
        }
        Ok(())
    }

    /// By group: how many lives that are over the switch has, and a number for what it has of them.
    pub(crate) fn sums(&self, before: &Before) -> Checked<Vec<(u32, u64)>> {
        let sum = |(group, _): &(EventualGroup, Pace)| {
            let found = harness(group.digest(&self.dataplane, before))?;
            Ok((found.lives, found.digest))
        };
        self.groups.iter().map(sum).collect()
    }

    /// A packet comes in and leaves; what it read, by variable.
    pub(crate) fn probe(&self, index: u32, amount: u32, now_ns: u64) -> Checked<Vec<u32>> {
        let frame = probe_frame(index, amount);
        let outcome = harness(self.dataplane.run(&frame, HOSTS, self.offset_ns + now_ns))?;
        let Verdict::Forward { port: HOSTS } = outcome.verdict else {
            return violated("harness", format!("a probe goes to {:?}", outcome.verdict));
        };
        let words = outcome.frame.get(50..).unwrap_or_default().chunks_exact(4).take(VARIABLES);
        let mut read: Vec<u32> =
            words.map(|it| it.first_chunk().copied().map_or(0, u32::from_be_bytes)).collect();
        // (The packet has the sketch before the set; the program declares them the other way.)
        if read.len() == VARIABLES {
            read.swap(2, 3);
        }
        Ok(read)
    }

    /// What a packet with this index and amount changes: cells with slots, and those without.
    pub(crate) fn updates(&self, index: u32, amount: u32) -> Vec<(Update, Option<Grows>)> {
        let mut found = vec![];
        // (As eventual.p4 has it: counters, balances, sets; sketch, largest.)
        let changes = [
            (0, 0, index, amount),
            (1, 0, index, amount >> 1),
            (1, 1, index + 1, amount),
            (2, 0, index, amount),
            (3, 0, index & 63, amount),
            (4, 0, index & 63, amount),
        ];
        for (at, lane, index, by) in changes {
            let Some(shared) = self.shared.get(at).filter(|it| index < it.cells && by > 0) else {
                continue;
            };
            let cell = shared.first_cell + lane * shared.cells + index;
            found.push((Update { cell, by }, grows(shared.merge)));
        }
        found
    }

    /// What a packet with this index must read, from the cells' values.
    pub(crate) fn reads(&self, index: u32) -> Checked<Vec<u32>> {
        let read = |(at, shared): (usize, &Shared)| {
            let index = if at < 3 { index } else { index & 63 };
            let cell = shared.first_cell + index;
            let less = if shared.lanes == 2 { self.value(cell + shared.cells)? } else { 0 };
            Ok(self.value(cell)?.wrapping_sub(less) as u32)
        };
        self.shared.iter().enumerate().map(read).collect()
    }

    /// A message comes in.
    pub(crate) fn receive(&self, frame: &[u8], now_ns: u64) -> Checked {
        let outcome = harness(self.dataplane.run(frame, FABRIC, self.offset_ns + now_ns))?;
        match outcome.verdict {
            Verdict::Drop => Ok(()),
            other => violated("harness", format!("a message goes to {other:?}")),
        }
    }

    /// The packet generator's tick; the messages that it makes.
    pub(crate) fn tick(&mut self, terms: Terms, now_ns: u64) -> Checked<Vec<Vec<u8>>> {
        let now_ns = self.offset_ns + now_ns;
        let mut frames = vec![];
        for (group, pace) in &mut self.groups {
            for _ in 0..harness(group.queue(&self.dataplane, pace, terms, now_ns))? {
                let outcome = harness(self.dataplane.run_generated(now_ns))?;
                if let Verdict::Forward { port: FABRIC } = outcome.verdict {
                    frames.push(outcome.frame);
                }
            }
        }
        Ok(frames)
    }

    /// A group's cells.
    pub(crate) fn cells(&self, group: usize) -> Cells {
        let described = &self.groups[group].0.described;
        let slotted = described.first_slotted..described.first_slotted + described.slotted;
        let direct = described.first_direct..described.first_direct + described.direct;
        let grows_of = |cell: u32| {
            let of = self
                .shared
                .iter()
                .find(|it| (it.first_cell..it.first_cell + it.cells).contains(&cell));
            of.and_then(|it| grows(it.merge)).unwrap_or(Grows::Bits)
        };
        Cells {
            slotted: slotted.collect(),
            direct: direct.map(|cell| (cell, grows_of(cell))).collect(),
        }
    }

    /// A group's slots, by life.
    pub(crate) fn slots(&self, group: usize) -> Checked<Slots> {
        let group = &self.groups[group].0;
        let mut found = Slots::new();
        for (column, life) in (0..).zip(harness(group.lives(&self.dataplane))?) {
            let first = column * self.slotted + group.described.first_slotted;
            let slot = |at: u32| {
                let bytes = harness(self.dataplane.read_array(SLOTS, at))?;
                Ok(bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes))
            };
            let slots = (first..first + group.described.slotted).map(slot);
            if found.insert(life, slots.collect::<Checked<_>>()?).is_some() {
                return violated("columns", format!("life {life:#x} has two"));
            }
        }
        Ok(found)
    }

    /// A cell as packets read it.
    pub(crate) fn value(&self, cell: u32) -> Checked<u64> {
        let bytes = harness(self.dataplane.read_array(CELLS, cell))?;
        Ok(CellValue::from_bytes(&bytes).value)
    }

    /// What the runtime counted so far, by its number.
    pub(crate) fn count(&self, stat: usize) -> u64 {
        let count = self.dataplane.read_count(swish_switch::group::STATS, stat as u32);
        count.unwrap_or_default()
    }
}

/// The view that all begin in.
pub(crate) const FIRST_VIEW: u32 = 0x1_0005;

pub(crate) fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, member(place) as u8)
}

fn view(number: u32, place: usize, members: u32, switches: usize) -> View {
    let fixed = |place| Member { number: member(place), address: address(place), incarnation: 0 };
    let members = (0..switches).filter(|it| members >> it & 1 == 1).map(fixed).collect();
    View { number, own: member(place), members, bound: 1, window: 1, ..View::default() }
}

fn grows(merge: Merge) -> Option<Grows> {
    match merge {
        Merge::Sum => None,
        // (The program has no merge of its own.)
        Merge::Or | Merge::Own => Some(Grows::Bits),
        Merge::Max => Some(Grows::Maximum),
    }
}

/// The place of the switch that a message is for.
pub(crate) fn receiver(frame: &[u8]) -> Checked<(usize, Message)> {
    match frame.get(MESSAGE_AT..).map(Message::decode) {
        Some(Ok(message)) if message.receiver % 3 == 1 && u32::from(message.receiver) < MEMBERS => {
            Ok((usize::from(message.receiver / 3), message))
        }
        other => violated("message", format!("a switch sends {other:?}")),
    }
}
