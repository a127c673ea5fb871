//! A run: packets, messages and faults in order of virtual time.

use super::ledger::{Grows, Ledger, Slots, only_grow};
use super::scenario::{Action, Scenario};
use super::switch::{Cells, FIRST_VIEW, Switch, address, receiver};
use crate::model::{Checked, violated};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Events, Network, Treatment};
use std::collections::{BTreeMap, BTreeSet};
use swish_protocol::base::Base;
use swish_protocol::eventual::{incarnation_of, is_base};
use swish_protocol::layouts::COUNTED;
use swish_switch::gossip::Terms;

/// The packet generator's tick.
const TICK_NS: u64 = 200_000;
const MIRROR_NS: u64 = 400_000;
const GOSSIP_NS: u64 = 3_000_000;
/// After the last fault a message takes no longer.
const DELAY_NS: u64 = 40_000;
/// So long it takes until all switches are told of a view.
const TOLD_NS: u64 = 2_000_000;
/// The controller looks this often whether slots can be given back.
const CONTROLLER_NS: u64 = 1_500_000;
/// As many lives beside those of the switches are enough.
const OVER: usize = 2;
/// So long an agent is away that has ended.
const AGENT_NS: u64 = 3_000_000;
/// Words that it has written at the most.
const STEPS: u64 = 3000;
/// One in so many ticks is followed by a look at all slots.
const LOOKS: u32 = 20;

enum Event {
    Step(usize),
    Arrives(usize, Vec<u8>),
    Tick(usize),
    /// The switch is told of the view with this number.
    Told(usize, u32),
    /// An agent begins again: it is told of the newest view.
    Agent(usize),
    Controller,
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    switches: &'a mut [Switch],
    network: Network<usize>,
    rng: StdRng,
    now_ns: u64,
    events: Events<Event>,
    terms: Terms,
    ledger: Ledger,
    /// By group.
    cells: Vec<Cells>,
    /// By switch, then group: slots at the last look in this life.
    before: Vec<Vec<Slots>>,
    idle_until: Vec<u64>,
    incarnation: u32,
    /// All views: a bit for each member, and what is folded.
    views: Vec<(u32, Option<Base>)>,
    /// By group: what the base has at the least.
    base: Vec<Vec<u64>>,
    /// Agents may end while they fold.
    agents_end: bool,
    /// Switches whose agents have.
    ended: BTreeSet<usize>,
    /// By switch: the newest view that it was told of.
    known: Vec<u32>,
    log: Option<Vec<String>>,
    /// Packets, messages and restarts.
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl<'a> World<'a> {
    pub(crate) fn new(
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
            // (Some switches have restarted before.)
            incarnation += rng.random_range(1..3);
            let offset_ns = 1_000_000_000 + rng.random_range(0..1_000_000_000);
            switch.begin(place, scenario.switches, incarnation, offset_ns)?;
            events.push(rng.random_range(0..TICK_NS), Event::Tick(place));
        }
        events.push(CONTROLLER_NS, Event::Controller);
        for (at, step) in scenario.steps.iter().enumerate() {
            events.push(step.at_ns, Event::Step(at));
        }
        let groups = switches.first().map_or(0, Switch::groups);
        let cells = switches.first().map(|it| (0..groups).map(|at| it.cells(at)).collect());
        let terms = Terms {
            bytes_per_s: scenario.bytes_per_s,
            mirror_ns: MIRROR_NS,
            gossip_ns: GOSSIP_NS,
            tombstone_ns: GOSSIP_NS,
        };
        Ok(World {
            scenario,
            network,
            rng,
            now_ns: 0,
            events,
            terms,
            ledger: Ledger::default(),
            cells: cells.unwrap_or_default(),
            before: vec![vec![Slots::new(); groups]; scenario.switches],
            idle_until: vec![0; scenario.switches],
            incarnation,
            views: vec![(u32::MAX, None)],
            base: vec![vec![]; groups],
            agents_end: true,
            ended: BTreeSet::new(),
            known: vec![FIRST_VIEW; scenario.switches],
            log: logs.then(Vec::new),
            switches,
            counts: BTreeMap::new(),
        })
    }

    /// The log of the run so far.
    pub(crate) fn take_log(&mut self) -> Vec<String> {
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
    pub(crate) fn run(&mut self) -> Checked {
        self.until(self.scenario.busy_ns)?;
        self.note(|| "the faults end".into());
        self.network.heal(DELAY_NS);
        self.idle_until.fill(0);
        self.agents_end = false;
        self.decide(u32::MAX);
        self.until(self.now_ns + TOLD_NS + AGENT_NS)?;
        self.look_at_all()?;
        // Each slot comes round to each other switch in as many rounds.
        self.terms.bytes_per_s = 1_000_000_000;
        let rounds = self.scenario.switches as u64 + 1;
        self.until(self.now_ns + rounds * (GOSSIP_NS + TICK_NS) + DELAY_NS)?;
        self.look_at_all()?;
        self.converged("converged")?;
        self.mirrored()
    }

    fn until(&mut self, until_ns: u64) -> Checked {
        while let Some((at_ns, event)) = self.events.pop_until(until_ns) {
            self.now_ns = at_ns;
            self.happens(event)?;
        }
        self.now_ns = until_ns;
        Ok(())
    }

    /// Without gossip, a change is at all switches soon, twice of the same cells.
    fn mirrored(&mut self) -> Checked {
        self.terms.gossip_ns = 1 << 60;
        for _ in 0..2 {
            for switch in 0..self.scenario.switches {
                let amount = self.rng.random_range(1..1000);
                self.packet(switch, 7 * switch as u32, amount)?;
            }
            self.until(self.now_ns + MIRROR_NS + 3 * TICK_NS + DELAY_NS)?;
            self.converged("mirrored")?;
        }
        Ok(())
    }

    fn happens(&mut self, event: Event) -> Checked {
        match event {
            Event::Step(at) => self.step(at),
            Event::Arrives(switch, frame) => {
                self.count("messages");
                self.switches[switch].receive(&frame, self.now_ns)
            }
            Event::Tick(switch) => self.tick(switch),
            Event::Told(switch, number) => self.told(switch, number),
            Event::Agent(switch) => {
                self.ended.remove(&switch);
                self.told(switch, self.newest())
            }
            Event::Controller => {
                self.events.push(self.now_ns + CONTROLLER_NS, Event::Controller);
                self.control()
            }
        }
    }

    fn newest(&self) -> u32 {
        FIRST_VIEW + self.views.len() as u32 - 1
    }

    /// Slots of lives that are over are given back, once all switches are members and have the
    /// same. (As `systems/swish/controller` decides.)
    fn control(&mut self) -> Checked {
        let (switches, newest) = (self.scenario.switches, self.newest());
        let Some((members, base)) = self.views.last().cloned() else { return Ok(()) };
        let all = (1u32 << switches) - 1;
        let taken = |it: &usize| self.known[*it] == newest && !self.ended.contains(it);
        if members & all != all || !(0..switches).all(|it| taken(&it)) {
            return Ok(());
        }
        let mut before = base.map(|it| it.before).unwrap_or_default();
        for (place, switch) in self.switches.iter().enumerate() {
            before.add(address(place), incarnation_of(switch.life));
        }
        let sums = self.switches.iter().map(|it| it.sums(&before));
        let sums = sums.collect::<Checked<Vec<_>>>()?;
        let same = sums.iter().all(|it| Some(it) == sums.first());
        let over = sums.iter().flatten().map(|(lives, _)| *lives as usize).max();
        if !same || over.unwrap_or(0) <= OVER {
            return Ok(());
        }
        self.ledger.before = before.clone();
        for (group, base) in self.base.iter_mut().enumerate() {
            let Some(switch) = self.switches.first() else { continue };
            let folded = self.ledger.folded(&switch.slots(group)?);
            *base = folded.into_iter().find(|(life, _)| is_base(*life)).unwrap_or_default().1;
        }
        self.count("folds");
        let base = Base { number: newest + 1, before };
        self.note(|| format!("slots are given back: {base:?}"));
        self.decide_with(u32::MAX, Some(base));
        Ok(())
    }

    fn decide(&mut self, members: u32) {
        let base = self.views.last().and_then(|(_, base)| base.clone());
        self.decide_with(members, base);
    }

    /// Switches are told of the decision one after another.
    fn decide_with(&mut self, members: u32, base: Option<Base>) {
        self.views.push((members, base));
        let number = FIRST_VIEW + self.views.len() as u32 - 1;
        for switch in 0..self.scenario.switches {
            let at_ns = self.now_ns + self.rng.random_range(0..TOLD_NS);
            self.events.push(at_ns, Event::Told(switch, number));
        }
    }

    fn told(&mut self, switch: usize, number: u32) -> Checked {
        let at = (number - FIRST_VIEW) as usize;
        let (members, base) = self.views.get(at).cloned().unwrap_or((u32::MAX, None));
        // (It may have been told of a later one.)
        if number <= self.known[switch] || self.ended.contains(&switch) {
            return Ok(());
        }
        let is_member = members >> switch & 1 == 1;
        if let Some(base) = base.as_ref().filter(|_| is_member && self.agents_end)
            && self.rng.random_bool(0.3)
        {
            self.note(|| format!("the agent of {switch} ends while it takes view {number}"));
            self.count("agents");
            self.switches[switch].end_in(base, self.rng.random_range(0..STEPS))?;
            self.ended.insert(switch);
            let at_ns = self.now_ns + self.rng.random_range(0..AGENT_NS);
            self.events.push(at_ns, Event::Agent(switch));
            return Ok(());
        }
        self.known[switch] = number;
        self.note(|| format!("{switch} is told of view {number}: {members:#b}"));
        self.count("views");
        self.switches[switch].take(number, switch, (members, base.as_ref()), self.scenario.switches)
    }

    fn step(&mut self, at: usize) -> Checked {
        let Some(step) = self.scenario.steps.get(at) else { return Ok(()) };
        match step.action.clone() {
            Action::Packets { switch, packets } => {
                self.note(|| format!("{} packets at {switch}", packets.len()));
                packets.into_iter().try_for_each(|(index, by)| self.packet(switch, index, by))
            }
            Action::Restart { switch } => {
                self.note(|| format!("{switch} begins anew"));
                self.count("restarts");
                self.incarnation += 1;
                let offset_ns = 1_000_000_000 + self.rng.random_range(0..1_000_000_000);
                let switches = self.scenario.switches;
                self.switches[switch].begin(switch, switches, self.incarnation, offset_ns)?;
                self.before[switch].fill(Slots::new());
                self.known[switch] = FIRST_VIEW;
                self.ended.remove(&switch);
                self.told(switch, self.newest())?;
                // (It has another incarnation: messages of its last life are of an earlier view.)
                let members = self.views.last().map_or(u32::MAX, |(members, _)| *members);
                self.decide(members);
                Ok(())
            }
            Action::View { members } => {
                self.note(|| format!("members are to be {members:#b}"));
                self.decide(members);
                Ok(())
            }
            Action::Idle { switch, for_ns } => {
                self.note(|| format!("the agent of {switch} stands still"));
                self.idle_until[switch] = self.now_ns + for_ns;
                Ok(())
            }
            Action::Network { fault, for_ns } => {
                self.note(|| format!("{fault:?}"));
                self.network.begin(&fault, self.now_ns + for_ns);
                Ok(())
            }
        }
    }

    fn tick(&mut self, switch: usize) -> Checked {
        self.events.push(self.now_ns + TICK_NS, Event::Tick(switch));
        if self.now_ns < self.idle_until[switch] || self.ended.contains(&switch) {
            return Ok(());
        }
        for frame in self.switches[switch].tick(self.terms, self.now_ns)? {
            let (to, message) = receiver(&frame)?;
            if to >= self.scenario.switches || to == switch {
                return violated("message", format!("{switch} sends to {to}"));
            }
            self.note(|| format!("{switch} to {to}: life {:#x}", message.life));
            for at_ns in self.network.send(self.now_ns, switch, to, Treatment::default()) {
                self.events.push(at_ns, Event::Arrives(to, frame.clone()));
            }
        }
        if self.rng.random_range(0..LOOKS) == 0 { self.look(switch) } else { Ok(()) }
    }

    /// A packet comes in and leaves: it reads what the switch has, and changes it.
    fn packet(&mut self, at: usize, index: u32, amount: u32) -> Checked {
        self.count("packets");
        let switch = &self.switches[at];
        let updates = switch.updates(index, amount);
        let cells = updates.iter().map(|(it, _)| Ok((it.cell, switch.value(it.cell)?)));
        let values = cells.collect::<Checked<BTreeMap<u32, u64>>>()?;
        let right = switch.reads(index)?;
        let read = switch.probe(index, amount, self.now_ns)?;
        if read != right {
            return violated("read", format!("{at} reads {read:x?} of {index}, not {right:x?}"));
        }
        let life = switch.life;
        for (update, grows) in updates {
            let before = values.get(&update.cell).copied().unwrap_or_default();
            let (now, wanted) = (switch.value(update.cell)?, u64::from(update.by));
            let wanted = grows.map_or(before + wanted, |it| it.of(before, wanted));
            if now != wanted {
                let cell = update.cell;
                return violated("update", format!("{at}: cell {cell} is {now}, not {wanted}"));
            }
            match grows {
                None => self.ledger.add(life, update),
                Some(grows) => self.ledger.grow(life, update, grows),
            }
        }
        Ok(())
    }

    fn look_at_all(&mut self) -> Checked {
        (0..self.scenario.switches).try_for_each(|switch| self.look(switch))?;
        let mut bad = vec!["faults", "cell_stuck", "malformed", "forged", "no_route", "no_slot"];
        // (Switches take a view one after another.)
        if self.views.len() == 1 {
            bad.push("foreign");
        }
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

    /// All slots of a switch, and the sums beside them.
    fn look(&mut self, at: usize) -> Checked {
        if self.ended.contains(&at) {
            return Ok(());
        }
        let switch = &self.switches[at];
        for (group, cells) in self.cells.iter().enumerate() {
            let slots = switch.slots(group)?;
            let folded = |slots: &Slots| self.ledger.folded(slots);
            let before = folded(&self.before[at][group]);
            only_grow(at, &before, &folded(&slots), &self.ledger, &cells.slotted)?;
            for (place, cell) in cells.slotted.iter().enumerate() {
                let sum: u64 = slots.values().filter_map(|it| it.get(place)).sum();
                let value = switch.value(*cell)?;
                if value != sum {
                    return violated("sum", format!("{at}: cell {cell} is {value}, not {sum}"));
                }
                let own = slots.get(&switch.life).and_then(|it| it.get(place)).copied();
                let wanted = self.ledger.slot(switch.life, *cell);
                if own != Some(wanted) {
                    return violated("own", format!("{at}: cell {cell}: {own:?}, not {wanted}"));
                }
            }
            for (cell, grows) in &cells.direct {
                let value = switch.value(*cell)?;
                let all = self.ledger.direct(*cell, *grows, |_| true);
                let own = self.ledger.direct(*cell, *grows, |life| life == switch.life);
                if !grows.has(all, value) || !grows.has(value, own) {
                    let detail = format!("{at}: cell {cell} is {value:#x}, of {all:#x}");
                    return violated(
                        if *grows == Grows::Bits { "bits" } else { "maximum" },
                        detail,
                    );
                }
            }
            self.before[at][group] = slots;
        }
        Ok(())
    }

    /// All switches have the same, and nothing of a living one is missing.
    fn converged(&mut self, check: &'static str) -> Checked {
        let lives: BTreeSet<u64> = self.switches.iter().map(|it| it.life).collect();
        for (group, cells) in self.cells.iter().enumerate() {
            let all: Vec<Slots> =
                self.switches.iter().map(|it| it.slots(group)).collect::<Checked<_>>()?;
            let all: Vec<Slots> = all.iter().map(|it| self.ledger.folded(it)).collect();
            for (place, cell) in cells.slotted.iter().enumerate() {
                for life in lives.iter().chain(all.iter().flat_map(BTreeMap::keys)) {
                    let slot = |slots: &Slots| {
                        slots.get(life).and_then(|it| it.get(place)).copied().unwrap_or_default()
                    };
                    let found: Vec<u64> = all.iter().map(slot).collect();
                    let first = found.first().copied().unwrap_or_default();
                    let is_alive = lives.contains(life);
                    let least = self.base[group].get(place).copied().unwrap_or_default();
                    let right = !is_alive || first == self.ledger.slot(*life, *cell);
                    let right = right && (!is_base(*life) || first >= least);
                    if !right || found.iter().any(|it| *it != first) {
                        let alive = if is_alive { "living" } else { "dead" };
                        let detail = format!("cell {cell} of {alive} {life:#x}: {found:?}");
                        return violated(check, detail);
                    }
                }
            }
            for (cell, grows) in &cells.direct {
                let values = self.switches.iter().map(|it| it.value(*cell));
                let found: Vec<u64> = values.collect::<Checked<_>>()?;
                let first = found.first().copied().unwrap_or_default();
                let least = self.ledger.direct(*cell, *grows, |life| lives.contains(&life));
                if found.iter().any(|it| *it != first) || !grows.has(first, least) {
                    return violated(check, format!("cell {cell}: {found:x?}, at least {least:x}"));
                }
            }
        }
        Ok(())
    }
}
