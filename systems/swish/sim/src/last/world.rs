//! A run: packets, messages and faults in order of virtual time.

use super::ledger::{Key, Ledger, Records, Stamp, Write};
use super::scenario::{Scenario, op, packet};
use super::switch::{REGISTER, SET, Switch, TABLE};
use crate::eventual::{Action, receiver};
use crate::model::{Checked, violated};
use crate::scenario::BUSY_NS;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Events, Network, Treatment};
use std::collections::{BTreeMap, BTreeSet};
use swish_protocol::layouts::COUNTED;
use swish_switch::gossip::Terms;

/// The packet generator's tick.
const TICK_NS: u64 = 200_000;
const MIRROR_NS: u64 = 400_000;
const GOSSIP_NS: u64 = 1_000_000;
/// At the least: what members' hearing asks for is more.
const TOMBSTONE_NS: u64 = 1_000_000;
/// So long tombstones are kept, for each other switch (`swish_switch::hearing`).
const KEPT_NS: u64 = 16 * GOSSIP_NS;
/// After the last fault a message takes no longer.
const DELAY_NS: u64 = 40_000;
/// One in so many ticks is followed by a look at all records.
const LOOKS: u32 = 20;

enum Event {
    Step(usize),
    Arrives(usize, Vec<u8>),
    Tick(usize),
}

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    switches: &'a mut [Switch],
    network: Network<usize>,
    rng: StdRng,
    now_ns: u64,
    events: Events<Event>,
    terms: Terms,
    ledger: Ledger,
    /// By switch: the newest stamp of each key that it had in this life.
    before: Vec<BTreeMap<Key, Stamp>>,
    idle_until: Vec<u64>,
    incarnation: u32,
    log: Option<Vec<String>>,
    /// Packets, messages and restarts.
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl<'a> World<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        switches: &'a mut [Switch],
        logs: bool,
    ) -> Checked<World<'a>> {
        let mut rng = StdRng::seed_from_u64(scenario.seed ^ 0x5157_15f0);
        let mut network = Network::new(scenario.seed);
        network.set_conditions(scenario.conditions);
        let mut events = Events::default();
        let mut incarnation = 0;
        for (place, switch) in switches.iter_mut().enumerate() {
            incarnation += rng.random_range(1..3);
            // Clocks are set badly: by up to a second.
            let offset_ns = 1_000_000_000 + rng.random_range(0..1_000_000_000);
            switch.begin(place, scenario.switches, incarnation, offset_ns)?;
            events.push(rng.random_range(0..TICK_NS), Event::Tick(place));
        }
        for (at, step) in scenario.steps.iter().enumerate() {
            events.push(step.at_ns, Event::Step(at));
        }
        let terms = Terms {
            bytes_per_s: scenario.bytes_per_s,
            mirror_ns: MIRROR_NS,
            gossip_ns: GOSSIP_NS,
            tombstone_ns: TOMBSTONE_NS,
        };
        Ok(World {
            scenario,
            network,
            rng,
            now_ns: 0,
            events,
            terms,
            ledger: Ledger::default(),
            before: vec![BTreeMap::new(); scenario.switches],
            idle_until: vec![0; scenario.switches],
            incarnation,
            log: logs.then(Vec::new),
            switches,
            counts: BTreeMap::new(),
        })
    }

    /// The log of the run so far.
    pub(super) fn take_log(&mut self) -> Vec<String> {
        self.log.take().unwrap_or_default()
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>9.3} ms  {}", self.now_ns as f64 / 1e6, line()));
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// All of it.
    pub(super) fn run(&mut self) -> Checked {
        self.until(BUSY_NS)?;
        self.note(|| "the faults end".into());
        self.network.heal(DELAY_NS);
        self.idle_until.fill(0);
        self.look_at_all()?;
        // Each record comes round to each other switch in as many rounds.
        self.terms.bytes_per_s = 1_000_000_000;
        let rounds = self.scenario.switches as u64 + 1;
        self.until(self.now_ns + rounds * (GOSSIP_NS + TICK_NS) + DELAY_NS)?;
        self.look_at_all()?;
        self.converged("converged")?;
        self.mirrored()?;
        self.forgotten()
    }

    fn until(&mut self, until_ns: u64) -> Checked {
        while let Some((at_ns, event)) = self.events.pop_until(until_ns) {
            self.now_ns = at_ns;
            self.happens(event)?;
        }
        self.now_ns = until_ns;
        Ok(())
    }

    /// Without gossip, a change is at all switches soon, twice of the same keys.
    fn mirrored(&mut self) -> Checked {
        self.terms.gossip_ns = 1 << 60;
        for _ in 0..2 {
            for switch in 0..self.scenario.switches {
                let (key, value) = packet(&mut self.rng, 3);
                self.packet(switch, key, value)?;
            }
            self.until(self.now_ns + MIRROR_NS + 3 * TICK_NS + DELAY_NS)?;
            self.converged("mirrored")?;
        }
        self.terms.gossip_ns = GOSSIP_NS;
        Ok(())
    }

    /// When all have heard all for long, no tombstone is left, and none comes back.
    fn forgotten(&mut self) -> Checked {
        let others = self.scenario.switches as u64 - 1;
        for _ in 0..2 {
            // (Until all hear all; as long as tombstones are kept; and two rounds more.)
            let wait_ns = others * KEPT_NS + (4 * others + 4) * GOSSIP_NS;
            self.until(self.now_ns + wait_ns)?;
            self.look_at_all()?;
            for (at, switch) in self.switches.iter().enumerate() {
                let records = switch.records()?;
                if let Some((key, write)) = records.iter().find(|(_, it)| it.value.is_none()) {
                    return violated("forgotten", format!("{at}: {key:?} is {write:x?}"));
                }
            }
        }
        Ok(())
    }

    fn happens(&mut self, event: Event) -> Checked {
        match event {
            Event::Step(at) => self.step(at),
            Event::Arrives(switch, frame) => {
                self.count("messages");
                self.switches[switch].receive(&frame, self.now_ns)?;
                // (So that nothing that was there for a moment is missed.)
                self.look(switch)
            }
            Event::Tick(switch) => self.tick(switch),
        }
    }

    fn step(&mut self, at: usize) -> Checked {
        let Some(step) = self.scenario.steps.get(at) else { return Ok(()) };
        match step.action.clone() {
            Action::Packets { switch, packets } => {
                self.note(|| format!("at {switch}: {packets:x?}"));
                packets.into_iter().try_for_each(|(key, value)| self.packet(switch, key, value))
            }
            Action::Restart { switch } => {
                self.note(|| format!("{switch} begins anew"));
                self.count("restarts");
                self.incarnation += 1;
                // (Wall clocks go on, or others would not hear it for so long.)
                let ahead_ns = self.rng.random_range(0..1_000_000_000);
                let offset_ns = self.switches[switch].offset_ns + ahead_ns;
                let switches = self.scenario.switches;
                self.switches[switch].begin(switch, switches, self.incarnation, offset_ns)?;
                self.before[switch].clear();
                Ok(())
            }
            Action::Idle { switch, for_ns } => {
                self.note(|| format!("the agent of {switch} stands still"));
                self.idle_until[switch] = self.now_ns + for_ns;
                Ok(())
            }
            // (Views change in the runs of cells.)
            Action::View { .. } => Ok(()),
            Action::Network { fault, for_ns } => {
                self.note(|| format!("{fault:?}"));
                self.network.begin(&fault, self.now_ns + for_ns);
                Ok(())
            }
        }
    }

    fn tick(&mut self, switch: usize) -> Checked {
        self.events.push(self.now_ns + TICK_NS, Event::Tick(switch));
        if self.now_ns < self.idle_until[switch] {
            return Ok(());
        }
        for frame in self.switches[switch].tick(self.terms, self.now_ns)? {
            let (to, message) = receiver(&frame)?;
            if to >= self.scenario.switches || to == switch {
                return violated("message", format!("{switch} sends to {to}"));
            }
            self.note(|| format!("{switch} to {to}: {:x?}", message.cells));
            for at_ns in self.network.send(self.now_ns, switch, to, Treatment::default()) {
                self.events.push(at_ns, Event::Arrives(to, frame.clone()));
            }
        }
        if self.rng.random_range(0..LOOKS) == 0 { self.look(switch) } else { Ok(()) }
    }

    /// A packet comes in and leaves: it reads what the switch has, and writes.
    fn packet(&mut self, at: usize, op_and_key: u32, value: u32) -> Checked {
        self.count("packets");
        let (op, key) = ((op_and_key >> 24) as u8, op_and_key & 0xff_ffff);
        let had = self.switches[at].records()?;
        let read = self.switches[at].packet(op, key, value, self.now_ns)?;
        let right = Switch::reads(&had, op, key);
        if read != right {
            return violated("read", format!("{at} reads {read:x?} of {key}, not {right:x?}"));
        }
        let has = self.switches[at].records()?;
        let mut wanted: BTreeMap<Key, Option<Vec<u8>>> =
            had.iter().map(|(key, it)| (*key, it.value.clone())).collect();
        let changed = changes(&had, op, key, value);
        wanted.extend(changed.iter().cloned());
        let found: BTreeMap<Key, Option<Vec<u8>>> =
            has.iter().map(|(key, it)| (*key, it.value.clone())).collect();
        if found != wanted {
            return violated("update", format!("{at}: {found:x?}, not {wanted:x?}"));
        }
        for (key, _) in changed {
            // (The register is a group of its own, with a clock of its own.)
            let of_group = |(it, _): &(&Key, &Write)| (it.0 == REGISTER) == (key.0 == REGISTER);
            let stamps = had.iter().filter(of_group).map(|(_, it)| it.stamp);
            let newest = stamps.max().unwrap_or_default();
            let write: Write = has[&key].clone();
            if write.stamp.1 != self.switches[at].life || write.stamp <= newest {
                let detail = format!("{at}: {key:?} is {write:x?}, after {newest:x?}");
                return violated("clock", detail);
            }
            self.ledger.add(key, write);
        }
        self.look(at)
    }

    fn look_at_all(&mut self) -> Checked {
        (0..self.scenario.switches).try_for_each(|switch| self.look(switch))?;
        let bad =
            ["faults", "cell_stuck", "malformed", "forged", "no_route", "foreign", "table_full"];
        for (place, switch) in self.switches.iter().enumerate() {
            for (at, (name, _)) in COUNTED.iter().enumerate() {
                let count = switch.count(at);
                if bad.contains(name) && count > 0 {
                    return violated("counted", format!("{count} times {name} at {place}"));
                }
            }
        }
        Ok(())
    }

    /// All records of a switch.
    fn look(&mut self, at: usize) -> Checked {
        let records = self.switches[at].records()?;
        self.ledger.may_be(at, &records, &self.before[at])?;
        self.switches[at].are_counted(&records)?;
        self.before[at].extend(records.iter().map(|(key, it)| (*key, it.stamp)));
        Ok(())
    }

    /// All switches have the same, and nothing of a living one is missing.
    fn converged(&mut self, check: &'static str) -> Checked {
        let lives: BTreeSet<u64> = self.switches.iter().map(|it| it.life).collect();
        let all = self.switches.iter().map(Switch::records).collect::<Checked<Vec<Records>>>()?;
        let live = |records: &Records| -> Records {
            let live = records.iter().filter(|(_, it)| it.value.is_some());
            live.map(|(key, it)| (*key, it.clone())).collect()
        };
        let Some(first) = all.first() else { return Ok(()) };
        for (at, records) in all.iter().enumerate() {
            let (found, wanted) = (live(records), live(first));
            if found != wanted {
                return violated(check, format!("{at}: {found:x?}, not {wanted:x?}"));
            }
            self.ledger.has_all(records, &lives)?;
        }
        Ok(())
    }
}

/// What a packet writes on a switch that has these records: as last.p4 has it.
fn changes(had: &Records, op: u8, key: u32, value: u32) -> Vec<(Key, Option<Vec<u8>>)> {
    let held = |object: usize| had.get(&(object, key)).and_then(|it| it.value.as_ref());
    let bytes = |value: u32| Some([value; 4].map(u32::to_be_bytes).concat());
    let table = held(TABLE);
    let was = table.and_then(|it| it.first_chunk().copied()).map_or(0, u32::from_be_bytes);
    let in_set = ((SET, key), Some(vec![]));
    match op {
        op::INSERT if table.is_none() => vec![((TABLE, key), bytes(value)), in_set],
        op::INSERT => vec![in_set],
        op::SET => vec![((TABLE, key), bytes(value)), in_set],
        op::ADD => vec![((TABLE, key), bytes(was.wrapping_add(value))), in_set],
        op::REMOVE => {
            let own = [TABLE, SET].into_iter().filter(|it| held(*it).is_some());
            own.map(|object| ((object, key), None)).collect()
        }
        op::WRITE_NUMBER => vec![((REGISTER, key), bytes(value))],
        _ => vec![],
    }
}
