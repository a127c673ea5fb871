//! A simulated switch with last.p4: the loaded object in test mode, on a clock of its own.

use super::ledger::{Records, Stamp, Write};
use super::scenario::op;
use crate::model::{Checked, violated};
use crate::program::{Program, enter};
use crate::switch::{FABRIC, HOSTS, harness, member};
use dataplane::{Dataplane, Object as Loaded, Settings, Verdict, for_each_entry};
use libbpf_rs::{MapCore, MapFlags};
use std::net::Ipv4Addr;
use swish_protocol::control::Member;
use swish_protocol::eventual::life;
use swish_switch::eventual::EventualGroup;
use swish_switch::gossip::{Pace, Terms};
use swish_switch::group::View;
use swish_switch::records::Object;
use wire::{KeyRing, SECRET_BYTES, Secret};

/// What a switch knows: emptied when it begins anew.
const MAPS: [&str; 10] = [
    "sp_eventual_columns",
    "sp_eventual_nodes",
    "sp_eventual_ends",
    "sp_eventual_members",
    "sp_lww_records",
    "sp_lww_counts",
    "sp_lww_nodes",
    "sp_lww_terms",
    "sp_lww_list",
    "sp_lww_members",
];

/// The program's objects, by their places.
pub(super) const TABLE: usize = 0;
pub(super) const SET: usize = 1;
pub(super) const REGISTER: usize = 2;

/// What a packet read: of the table or register; whether the set had the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) found: bool,
    pub(super) in_set: bool,
    pub(super) value: [u32; 3],
}

/// See the file.
pub(crate) struct Switch {
    dataplane: Dataplane,
    groups: Vec<(EventualGroup, Pace)>,
    objects: Vec<Object>,
    pub(super) life: u64,
    pub(super) offset_ns: u64,
}

fn empty(map: &impl MapCore) -> Checked {
    let count = map.max_entries();
    let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
    let values = vec![0; (map.value_size().next_multiple_of(8) * count) as usize];
    harness(map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY))
}

impl Switch {
    /// Loads the object, with nothing in it.
    pub(super) fn load(program: &Program) -> Result<Switch, String> {
        let link = enter()?;
        let text = |error: dataplane::Error| error.to_string();
        let mut object = Loaded::open(&program.object, program.manifest.clone()).map_err(text)?;
        object
            .set(Settings { test_mode: true, host_traffic: false, virtual_clock: true })
            .map_err(text)?;
        let dataplane = object.load().map_err(text)?;
        dataplane.set_port(FABRIC, link).map_err(text)?;
        dataplane.set_fabric_port(FABRIC, true).map_err(text)?;
        let groups = EventualGroup::all(&program.manifest).map_err(text)?;
        let groups = groups.into_iter().map(|group| (group, Pace::default())).collect();
        let objects = Object::all(&program.manifest).map_err(text)?;
        Ok(Switch { dataplane, groups, objects, life: 0, offset_ns: 0 })
    }

    /// Begins, empty, as the switch at this place.
    pub(super) fn begin(
        &mut self,
        place: usize,
        switches: usize,
        incarnation: u32,
        offset_ns: u64,
    ) -> Checked {
        self.empty()?;
        self.offset_ns = offset_ns;
        self.life = life(member(place), incarnation);
        let Some(ring) = KeyRing::new(0, Secret([7; SECRET_BYTES])) else {
            return violated("harness", "no secret");
        };
        let address = |place: usize| Ipv4Addr::new(10, 0, 0, member(place) as u8);
        let fixed =
            |place| Member { number: member(place), address: address(place), incarnation: 0 };
        let view = View {
            number: 0x1_0005,
            own: member(place),
            members: (0..switches).map(fixed).collect(),
            bound: 1,
            window: 1,
            ..View::default()
        };
        for (group, pace) in &mut self.groups {
            *pace = Pace::new(place as u64);
            harness(group.begin(&self.dataplane, &view, incarnation, &ring))?;
        }
        Ok(())
    }

    fn empty(&self) -> Checked {
        for map in MAPS.iter().filter_map(|name| self.dataplane.map(name)) {
            empty(map)?;
        }
        let queues = self.dataplane.maps().filter(|(name, _)| name.ends_with("_free"));
        for map in queues.map(|(_, map)| map).chain(self.dataplane.map("sp_eventual_due")) {
            while let Ok(Some(_)) = map.lookup_and_delete(&[]) {}
        }
        let Some(index) = self.dataplane.map("sp_lww_index") else { return Ok(()) };
        let mut keys = vec![];
        harness(for_each_entry(index, |key, _| {
            keys.push(key.to_vec());
            true
        }))?;
        keys.iter().try_for_each(|key| harness(index.delete(key)))
    }

    /// A packet comes in and leaves; what it read.
    pub(super) fn packet(&self, op: u8, key: u32, value: u32, now_ns: u64) -> Checked<Read> {
        let mut frame = vec![2, 0, 0, 0, 0, 6, 2, 0, 0, 0, 0, 5, 8, 0];
        frame.extend([0x45, 0, 0, 52, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 1, 5, 10, 0, 1, 6]);
        frame.extend([0x03, 0xe8, 0x0f, 0xa0, 0, 32, 0, 0]);
        frame.extend([op, 0, 0, 0]);
        frame.extend(key.to_be_bytes());
        frame.extend(value.to_be_bytes());
        frame.extend([0; 12]);
        let outcome = harness(self.dataplane.run(&frame, HOSTS, self.offset_ns + now_ns))?;
        let Verdict::Forward { port: HOSTS } = outcome.verdict else {
            return violated("harness", format!("a packet goes to {:?}", outcome.verdict));
        };
        let word = |at: usize| {
            let bytes = outcome.frame.get(at..).and_then(|it| it.first_chunk().copied());
            bytes.map_or(0, u32::from_be_bytes)
        };
        let flag = |at: usize| outcome.frame.get(at).is_some_and(|it| *it == 1);
        Ok(Read { found: flag(43), in_set: flag(44), value: [word(54), word(58), word(62)] })
    }

    /// What a packet must read of these records.
    pub(super) fn reads(records: &Records, op: u8, key: u32) -> Read {
        let is_number = matches!(op, op::READ_NUMBER | op::WRITE_NUMBER);
        let object = if is_number { REGISTER } else { TABLE };
        let held = records.get(&(object, key)).and_then(|it| it.value.as_ref());
        let word = |at: usize| {
            let bytes = held.and_then(|it| it.get(at..)).and_then(|it| it.first_chunk().copied());
            bytes.map_or(0, u32::from_be_bytes)
        };
        // (Of the copy, the 32 bits in its middle.)
        let value = [word(0), word(6), word(12)];
        let in_set = records.get(&(SET, key)).is_some_and(|it| it.value.is_some());
        Read { found: !is_number && held.is_some(), in_set: !is_number && in_set, value }
    }

    /// A message comes in.
    pub(super) fn receive(&self, frame: &[u8], now_ns: u64) -> Checked {
        let outcome = harness(self.dataplane.run(frame, FABRIC, self.offset_ns + now_ns))?;
        match outcome.verdict {
            Verdict::Drop => Ok(()),
            other => violated("harness", format!("a message goes to {other:?}")),
        }
    }

    /// The packet generator's tick; the messages that it makes.
    pub(super) fn tick(&mut self, terms: Terms, now_ns: u64) -> Checked<Vec<Vec<u8>>> {
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

    /// Messages from the switch at this place that were newer than all before.
    pub(super) fn heard(&self, place: usize) -> Checked<u64> {
        let mut newer = 0;
        for (group, _) in &self.groups {
            newer += harness(group.record_member(&self.dataplane, member(place)))?.newer;
        }
        Ok(newer)
    }

    /// All records, tombstones too.
    pub(super) fn records(&self) -> Checked<Records> {
        let mut found = Records::new();
        for (at, object) in self.objects.iter().enumerate() {
            for record in harness(object.records(&self.dataplane))? {
                let key = record.key.first_chunk().copied().map_or(0, u32::from_be_bytes);
                let stamp: Stamp = record.stamp;
                let value = (!record.removed).then_some(record.value);
                if found.insert((at, key), Write { stamp, value }).is_some() {
                    return violated("places", format!("key {key} of object {at} has two"));
                }
            }
        }
        Ok(found)
    }

    /// What the data plane counts of records is what there is.
    pub(super) fn are_counted(&self, records: &Records) -> Checked {
        for (at, object) in self.objects.iter().enumerate().filter(|(at, _)| *at != REGISTER) {
            let counts = harness(object.counts(&self.dataplane))?;
            let own = || records.iter().filter(|((of, _), _)| *of == at);
            let live = own().filter(|(_, it)| it.value.is_some()).count() as u64;
            let removed = own().count() as u64 - live;
            if (counts.live, counts.removed) != (live, removed) {
                return violated("counts", format!("{counts:?}, of {live} and {removed} removed"));
            }
        }
        Ok(())
    }

    /// What the runtime counted so far, by its number.
    pub(super) fn count(&self, stat: usize) -> u64 {
        let count = self.dataplane.read_count(swish_switch::group::STATS, stat as u32);
        count.unwrap_or_default()
    }
}
