//! A run: packets, messages and faults in order of virtual time.

use crate::caps::Spent;
use crate::model::{Checked, Model, violated};
use crate::scenario::{Action, BUSY_NS, Scenario};
use crate::shares::{Shares, is_large};
use crate::switch::{CPUS, Probed, Switch, Terms, receiver, updates_of};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use simnet::{Events, Network, Treatment};
use std::collections::HashMap;
use swish_protocol::layouts::{COUNTED, phase};
use swish_protocol::message::Message;

/// The window that all begin in.
const FIRST: u64 = 1;
/// The packet generator's tick.
const TICK_NS: u64 = 200_000;
/// After the last fault each group gets three windows on in so much time.
const PATIENCE_NS: u64 = 40_000_000;
/// One in so many looks at all cells comes between two windows.
const LOOKS: u32 = 6;

enum Event {
    Step(usize),
    /// A frame, and the CPU that it stays on.
    Arrives(usize, Option<u32>, Vec<u8>),
    Tick(usize),
    /// The packet that is under way on this CPU of that switch leaves.
    Leaves(usize, u32),
}

/// A packet that is under way.
struct Under {
    packet: (u32, u32),
    /// By group; `None`: not known yet.
    pins: Option<Vec<u64>>,
}

/// What a CPU used of its share: rotation and updates.
type Used = HashMap<(usize, usize, u32), (u64, u64)>;

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    switches: &'a mut [Switch],
    network: Network<usize>,
    rng: StdRng,
    now_ns: u64,
    events: Events<Event>,
    /// By group.
    models: Vec<Model>,
    /// By switch, then group.
    windows: Vec<Vec<u64>>,
    /// The same.
    spent: Vec<Vec<Spent>>,
    under_way: HashMap<(usize, u32), Under>,
    idle_until: Vec<u64>,
    used: Used,
    /// In a run without faults; see [`Scenario::is_exact`].
    shares: Option<Shares>,
    /// What happened, if anybody wants to know.
    log: Option<Vec<String>>,
    /// How often each shape of message left: none, by blocks of one, whole.
    pub(crate) shapes: HashMap<u32, u64>,
    /// Messages of windows with many.
    pub(crate) large: u64,
    pub(crate) probes: u64,
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
        let terms = Terms {
            switches: scenario.switches,
            period_ns: scenario.period_ns,
            caps: scenario.caps,
            bound: scenario.bound,
            window: FIRST,
            fan_out: scenario.fan_out,
        };
        let mut events = Events::default();
        for (place, switch) in switches.iter_mut().enumerate() {
            switch.drain();
            switch.begin(place, terms, 1_000_000_000 + rng.random_range(0..1_000_000_000))?;
            events.push(rng.random_range(0..TICK_NS), Event::Tick(place));
        }
        for (at, step) in scenario.steps.iter().enumerate() {
            events.push(step.at_ns, Event::Step(at));
        }
        let groups = switches.first().map_or(0, Switch::groups);
        let shared = switches.first().map(|it| it.shared.clone()).unwrap_or_default();
        let of_group = |group| {
            let own = shared.iter().filter(|it| it.group == group);
            Model::new(&own.map(|it| (it.merge, it.cells, it.period)).collect::<Vec<_>>(), FIRST)
        };
        Ok(World {
            scenario,
            network,
            rng,
            now_ns: 0,
            events,
            models: (0..groups).map(of_group).collect(),
            windows: vec![vec![FIRST; groups]; scenario.switches],
            spent: vec![vec![Spent::default(); groups]; scenario.switches],
            under_way: HashMap::new(),
            idle_until: vec![0; scenario.switches],
            used: Used::new(),
            shares: scenario.is_exact.then(Shares::default),
            log: logs.then(Vec::new),
            switches,
            shapes: HashMap::new(),
            large: 0,
            probes: 0,
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

    /// All of it.
    pub(crate) fn run(&mut self) -> Checked {
        while let Some((at_ns, event)) = self.events.pop_until(BUSY_NS) {
            self.now_ns = at_ns;
            self.happens(event)?;
        }
        self.now_ns = BUSY_NS;
        self.note(|| "the faults end".into());
        let under_way: Vec<_> = self.under_way.keys().copied().collect();
        for (switch, cpu) in under_way {
            self.leaves(switch, cpu)?;
        }
        self.network.heal(40_000);
        self.idle_until.fill(0);
        self.settle()
    }

    /// Windows go on, until all see all.
    fn settle(&mut self) -> Checked {
        let goals: Vec<u64> =
            self.models.iter().map(|it| it.newest().max(it.last_rotation()) + 3).collect();
        // (With a cap on CPU time, pauses are a multiple of what windows take of the CPUs.)
        let pauses =
            100u64.checked_div(self.scenario.caps.cpu_percent.into()).map_or(0, |it| 1 + it);
        // (In a tree a window takes many frames that bring nothing, one level after the other: with
        // a cap on bandwidth they make its pauses longer.)
        let capped = self.scenario.fan_out > 0 && self.scenario.caps.bandwidth_mbps > 0;
        let patience_ns = PATIENCE_NS * if capped { 5 } else { 1 };
        let until_ns = self.now_ns + patience_ns * (1 + pauses);
        while let Some((at_ns, event)) = self.events.pop_until(until_ns) {
            self.now_ns = at_ns;
            self.happens(event)?;
            let there = |windows: &Vec<u64>| {
                windows.iter().zip(&goals).all(|(window, goal)| window >= goal)
            };
            if self.windows.iter().all(there) {
                self.look_at_all()?;
                return self.shares.as_ref().map_or(Ok(()), Shares::end);
            }
        }
        let state = self.describe()?;
        violated("progress", format!("windows {:?}, not {goals:?}: {state}", self.windows))
    }

    fn describe(&self) -> Checked<String> {
        let mut text = String::new();
        for (place, switch) in self.switches.iter().enumerate() {
            for group in 0..switch.groups() {
                let node = switch.node(group)?;
                let members = (0..self.scenario.switches).map(|peer| {
                    let it = switch.member(group, peer)?;
                    Ok(format!("{}/{}/{}", it.ready, it.merged, it.total as i32))
                });
                let members = members.collect::<Checked<Vec<_>>>()?;
                text += &format!(
                    "\n  switch {place} group {group}: {}.{} complete {} {members:?}",
                    node.word >> 3,
                    node.word & 7,
                    node.complete
                );
            }
        }
        Ok(text)
    }

    fn happens(&mut self, event: Event) -> Checked {
        match event {
            Event::Step(at) => self.step(at),
            Event::Arrives(switch, cpu, frame) => self.arrives(switch, cpu, &frame),
            Event::Tick(switch) => self.tick(switch),
            Event::Leaves(switch, cpu) => self.leaves(switch, cpu),
        }
    }

    fn step(&mut self, at: usize) -> Checked {
        let Some(step) = self.scenario.steps.get(at) else { return Ok(()) };
        let action = step.action.clone();
        match action {
            Action::Packets { switch, cpu, packets } => {
                if self.under_way.contains_key(&(switch, cpu)) {
                    return Ok(());
                }
                self.note(|| format!("{} packets at {switch}", packets.len()));
                packets.into_iter().try_for_each(|packet| self.packet(switch, cpu, packet))
            }
            Action::Slow { switch, cpu, packet, unknown, for_ns } => {
                self.enters(switch, cpu, packet, unknown, for_ns)
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

    /// CPUs of the switch without a packet.
    fn free_cpus(&self, switch: usize) -> Vec<u32> {
        (0..CPUS).filter(|cpu| !self.under_way.contains_key(&(switch, *cpu))).collect()
    }

    /// One of these.
    fn any_of(&mut self, cpus: &[u32]) -> Option<u32> {
        (!cpus.is_empty()).then(|| cpus[self.rng.random_range(0..cpus.len())])
    }

    fn arrives(&mut self, switch: usize, stays: Option<u32>, frame: &[u8]) -> Checked {
        let free = self.free_cpus(switch);
        let cpu = match stays {
            Some(cpu) => free.contains(&cpu).then_some(cpu),
            None => self.any_of(&free),
        };
        let Some(cpu) = cpu else {
            let again = self.now_ns + TICK_NS;
            self.events.push(again, Event::Arrives(switch, stays, frame.to_vec()));
            return Ok(());
        };
        if self.log.is_some() {
            let (_, message) = receiver(frame)?;
            self.note(|| format!("{switch} gets {}", told(&message)));
        }
        let back = self.switches[switch].receive(cpu, frame, self.now_ns)?;
        if let Some(back) = back {
            self.send(switch, cpu, back)?;
        }
        self.watch(switch)
    }

    fn tick(&mut self, switch: usize) -> Checked {
        self.events.push(self.now_ns + TICK_NS, Event::Tick(switch));
        if self.now_ns < self.idle_until[switch] {
            return Ok(());
        }
        let free = self.free_cpus(switch);
        // (Where frames stay, the generator's thread stays on the first CPU that is free.)
        let stays = self.scenario.frames_stay.then(|| free.first().copied()).flatten();
        let Some(cpu) = stays.or_else(|| self.any_of(&free)) else { return Ok(()) };
        for (cpu, frame) in self.switches[switch].tick(cpu, &free, self.now_ns)? {
            self.send(switch, cpu, frame)?;
        }
        self.watch(switch)?;
        if self.rng.random_range(0..LOOKS) == 0 {
            for group in 0..self.models.len() {
                self.look(switch, group)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, from: usize, cpu: u32, frame: Vec<u8>) -> Checked {
        let (to, message) = receiver(&frame)?;
        if to >= self.scenario.switches || to == from || !self.are_neighbours(from, to) {
            return violated("message", format!("{from} sends to {to}"));
        }
        *self.shapes.entry(shape(&message)).or_default() += 1;
        self.large += u64::from(is_large(&message));
        if let Some(shares) = &mut self.shares {
            shares.sent(from, to, cpu, &message, self.now_ns)?;
        }
        let stays = self.scenario.frames_stay.then_some(cpu);
        for at_ns in self.network.send(self.now_ns, from, to, Treatment::default()) {
            self.events.push(at_ns, Event::Arrives(to, stays, frame.clone()));
        }
        Ok(())
    }

    /// In a tree, one is the other's parent.
    fn are_neighbours(&self, one: usize, other: usize) -> bool {
        let (fan_out, below) = (self.scenario.fan_out as usize, one.max(other));
        fan_out == 0 || (below - 1) / fan_out == one.min(other)
    }

    /// A packet comes in and leaves.
    fn packet(&mut self, switch: usize, cpu: u32, packet: (u32, u32)) -> Checked {
        let words = self.words(switch)?;
        let probed = self.switches[switch].probe(cpu, packet, None, self.now_ns)?;
        self.left(switch, cpu, packet, &words, probed)
    }

    fn words(&self, switch: usize) -> Checked<Vec<u64>> {
        (0..self.models.len()).map(|group| self.switches[switch].word(group)).collect()
    }

    /// A packet comes in, and takes long.
    fn enters(
        &mut self,
        switch: usize,
        cpu: u32,
        packet: (u32, u32),
        unknown: bool,
        for_ns: u64,
    ) -> Checked {
        let taken = (0..CPUS).filter(|cpu| self.under_way.contains_key(&(switch, *cpu))).count();
        if taken + 1 >= CPUS as usize || self.under_way.contains_key(&(switch, cpu)) {
            return Ok(());
        }
        let words = self.words(switch)?;
        self.note(|| format!("a slow packet at {switch}, CPU {cpu}, pinned to {words:?}"));
        // (What it reads now and at its end is of one window.)
        self.packet(switch, cpu, (packet.0, 0))?;
        for (group, word) in words.iter().enumerate() {
            self.switches[switch].set_pin(group, cpu, if unknown { 1 } else { *word })?;
        }
        let pins = (!unknown).then_some(words);
        self.under_way.insert((switch, cpu), Under { packet, pins });
        self.events.push(self.now_ns + for_ns, Event::Leaves(switch, cpu));
        Ok(())
    }

    fn leaves(&mut self, switch: usize, cpu: u32) -> Checked {
        let Some(Under { packet, pins }) = self.under_way.remove(&(switch, cpu)) else {
            return Ok(());
        };
        self.note(|| format!("the slow packet at {switch}, CPU {cpu} leaves"));
        let Some(pins) = pins else { return self.packet(switch, cpu, packet) };
        let probed =
            self.switches[switch].probe(cpu, packet, Some(pins.as_slice()), self.now_ns)?;
        self.left(switch, cpu, packet, &pins, probed)
    }

    /// A packet with these pins left: what it read is checked, and its updates are noted.
    fn left(
        &mut self,
        switch: usize,
        cpu: u32,
        (index, amount): (u32, u32),
        words: &[u64],
        probed: Option<Probed>,
    ) -> Checked {
        self.probes += 1;
        for group in 0..words.len() {
            let pin = self.switches[switch].pin(group, cpu)?;
            if pin != 0 {
                return violated("pin", format!("a packet left {pin} at {switch}, CPU {cpu}"));
            }
        }
        let shared = self.switches[switch].shared.clone();
        let mut takes = vec![];
        let mut dropped = false;
        for (at, update) in updates_of(index, amount, &shared) {
            if amount == 0 {
                break;
            }
            let group = shared[at].group;
            let rotation = rotation(words[group]);
            let used = self.used.entry((switch, group, cpu)).or_default();
            if used.0 != rotation {
                *used = (rotation, 0);
            }
            let share = self.scenario.bound / u64::from(CPUS)
                + u64::from(u64::from(cpu) < self.scenario.bound % u64::from(CPUS));
            if used.1 < share {
                used.1 += 1;
                takes.push((group, rotation, update));
            } else {
                // (The counter is the first one; the others pass.)
                dropped |= at == 0;
            }
        }
        if dropped {
            // (What does not take effect leaves its place to others.)
            for (group, _, _) in &takes {
                self.used.entry((switch, *group, cpu)).or_default().1 -= 1;
            }
        }
        match probed {
            None if !dropped => return violated("dropped", format!("a packet at {switch}")),
            None => return Ok(()),
            Some(_) if dropped => {
                return violated("bound", format!("{switch} counted more than its share"));
            }
            Some(probed) => self.read(switch, index, words, probed)?,
        }
        for (group, rotation, update) in takes {
            self.models[group].update(rotation, update)?;
        }
        Ok(())
    }

    /// What a packet with these pins read.
    fn read(&mut self, switch: usize, index: u32, words: &[u64], probed: Probed) -> Checked {
        if probed.window != words[0] >> 3 {
            let Probed { window, .. } = probed;
            return violated("window", format!("{switch} read {window}, pinned {words:?}"));
        }
        let shared = self.switches[switch].shared.clone();
        for ((at, update), read) in updates_of(index, 0, &shared).into_iter().zip(probed.read) {
            let (group, object) = (shared[at].group, shared[at].object);
            let window = words[group] >> 3;
            let right = self.models[group].value(window, object, update.index);
            if right != Some(read) {
                return violated(
                    "read",
                    format!(
                        "{switch} reads {read:#x} of variable {at}, cell {}, in window {window}, \
                         not {right:x?}",
                        update.index
                    ),
                );
            }
            let most = 2 * self.scenario.switches as u128 * u128::from(self.scenario.bound);
            let unseen = self.models[group].unseen(window);
            if unseen as u128 > most {
                return violated("r = 2NB", format!("{switch} misses {unseen}, not {most}"));
            }
        }
        Ok(())
    }

    /// After each step of a switch: which windows it is in.
    fn watch(&mut self, switch: usize) -> Checked {
        for group in 0..self.models.len() {
            let window = self.switches[switch].word(group)? >> 3;
            let before = std::mem::replace(&mut self.windows[switch][group], window);
            if window == before {
                continue;
            }
            self.note(|| format!("{switch} enters window {window} of group {group}"));
            if window < before {
                return violated("windows", format!("{switch} goes from {before} to {window}"));
            }
            let own = &self.switches[switch];
            self.spent[switch][group].look(&own.node(group)?, own.offset_ns())?;
            self.models[group].enter(window);
            let others = self.windows.iter().map(|windows| windows[group]);
            let (least, most) = others.fold((u64::MAX, 0), |(a, b), it| (a.min(it), b.max(it)));
            if most > least + 1 {
                return violated("windows", format!("group {group}: {:?}", self.windows));
            }
            self.look(switch, group)?;
        }
        Ok(())
    }

    fn look_at_all(&mut self) -> Checked {
        for switch in 0..self.scenario.switches {
            (0..self.models.len()).try_for_each(|group| self.look(switch, group))?;
        }
        for (place, switch) in self.switches.iter().enumerate() {
            for (at, (name, _)) in COUNTED.iter().enumerate() {
                let bad = ["faults", "line_stuck", "malformed", "forged", "no_route", "foreign"];
                let count = switch.count(at);
                if bad.contains(name) && count > 0 {
                    return violated("counted", format!("{count} times {name} at {place}"));
                }
            }
        }
        Ok(())
    }

    /// All cells, as packets that come in now read them.
    fn look(&mut self, switch: usize, group: usize) -> Checked {
        let window = self.windows[switch][group];
        for (at, shared) in self.switches[switch].shared.iter().enumerate() {
            if shared.group != group {
                continue;
            }
            let cells = self.switches[switch].cells(shared, window)?;
            for (index, cell) in (0..).zip(cells) {
                let right = self.models[group].value(window, shared.object, index);
                if right != Some(cell) {
                    return violated(
                        "value",
                        format!(
                            "{switch} has {cell:#x} in variable {at}, cell {index}, in window \
                             {window}, not {right:x?}"
                        ),
                    );
                }
            }
        }
        Ok(())
    }
}

/// The rotation that an update belongs to: one before the switch rotates in a window is sent in it,
/// a later one in the next (SwiSh §7.2, with a ready phase).
fn rotation(word: u64) -> u64 {
    let (window, phase) = (word >> 3, word & 7);
    if phase < phase::ROTATED { window } else { window + 1 }
}

/// Blocks that the message has room for; 0: it brings nothing.
fn shape(message: &Message) -> u32 {
    match &message.cells {
        swish_protocol::message::Cells::None => 0,
        swish_protocol::message::Cells::Block { .. } => 1,
        swish_protocol::message::Cells::Single { each, .. } => (*each).into(),
    }
}

fn told(message: &Message) -> String {
    format!(
        "g{} from {} window {}.{}{} shape {} number {} of {} wants {} hops {}",
        message.group,
        message.sender / 3,
        message.window,
        message.phase,
        if message.previous { " (before)" } else { "" },
        shape(message),
        message.number as i16,
        message.total as i16,
        message.want as i16,
        message.hops,
    )
}
