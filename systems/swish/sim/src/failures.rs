//! Runs in which switches and the controller die, and come back: the real rules of the controller
//! and of the agents, on the real objects.

mod control;
mod scenario;
mod truth;

pub use scenario::{Failure, FailureScenario};

use crate::model::{Checked, Violation, violated};
use crate::program::Program;
use crate::shares::is_large;
use crate::switch::{CPUS, Switch, member, receiver, updates_of};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use scenario::BUSY_NS;
use simnet::{Events, Network, Treatment};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use swish_controller::{Controller, Decided, Input, State};
use swish_protocol::control::Message;
use swish_protocol::layouts::COUNTED;
use swish_switch::membership::Member;
use truth::Truth;

/// The packet generator's tick.
const TICK_NS: u64 = 200_000;
/// The controller's.
const LOOK_NS: u64 = 300_000;
/// A decision is persistent after so long.
const WRITE_NS: u64 = 700_000;
/// After the last failure all are members again in so much time, and windows go on. (A member that
/// was slow stays out for a while.)
const PATIENCE_NS: u64 = 700_000_000;
/// The controller's place in the network.
const CONTROLLER: usize = 100;

enum Event {
    Step(usize),
    Arrives(usize, Vec<u8>),
    Tick(usize),
    Agent(usize),
    Look,
    /// A message between a switch and the controller: from, to.
    Told(usize, usize, u32, Message),
    /// The decision of this life of the controller is persistent.
    Written(u32, State),
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct FailureOutcome {
    /// What must not be.
    pub violation: Option<Violation>,
    /// What happened, if that was asked for.
    pub log: Vec<String>,
    /// Decisions by what they did with the window: runs again, goes on, with a sum of the dead.
    pub decisions: BTreeMap<&'static str, u64>,
    /// Updates that were handed in.
    pub handed: u64,
    /// Times that a switch left a group as an operator wanted it.
    pub left: u64,
    /// Messages of windows with many (`layouts::MANY`).
    pub large: u64,
}

/// A switch's agent: a member in each group.
struct Agent {
    members: Vec<Member>,
    next_ns: u64,
}

struct World<'a> {
    scenario: &'a FailureScenario,
    switches: &'a mut [Switch],
    network: Network<usize>,
    rng: StdRng,
    now_ns: u64,
    events: Events<Event>,
    /// None: the switch is dead, or its agent is.
    agents: Vec<Option<Agent>>,
    /// A dead switch takes no packets and no frames.
    alive: Vec<bool>,
    incarnations: Vec<u32>,
    /// A life of each process; messages to an earlier one are lost.
    lives: BTreeMap<usize, u32>,
    controller: Option<Controller>,
    state: State,
    /// Nobody hears the switch's agent, or the agent anybody, until then.
    deaf_until: Vec<u64>,
    truth: Vec<Truth>,
    names: Vec<String>,
    /// By switch and group: a decision is made without it, as it leaves.
    left: Vec<Vec<bool>>,
    /// The operator wants the switch to stay after all: it updates again, and hands in what a
    /// decision without it does not count.
    stays: Vec<bool>,
    /// By switch and group: view and window at the last look.
    seen: Vec<Vec<(u32, u64)>>,
    log: Option<Vec<String>>,
    outcome: FailureOutcome,
}

fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, member(place) as u8)
}

fn socket(place: usize) -> SocketAddrV4 {
    SocketAddrV4::new(if place == CONTROLLER { Ipv4Addr::LOCALHOST } else { address(place) }, 4000)
}

fn harness<T, E: std::fmt::Display>(result: Result<T, E>) -> Checked<T> {
    result.or_else(|error| violated("harness", error.to_string()))
}

/// A run on loaded objects, which belong to this thread.
pub fn run(
    program: &Program,
    switches: &mut Vec<Switch>,
    scenario: &FailureScenario,
    logs: bool,
) -> FailureOutcome {
    while switches.len() < scenario.switches {
        match Switch::load(program) {
            Ok(switch) => switches.push(switch),
            Err(detail) => {
                let violation = Some(Violation { check: "harness", detail });
                return FailureOutcome { violation, ..FailureOutcome::default() };
            }
        }
    }
    match World::new(scenario, &mut switches[..scenario.switches], logs) {
        Err(violation) => FailureOutcome { violation: Some(violation), ..Default::default() },
        Ok(mut world) => {
            world.outcome.violation = world.run().err();
            world.outcome.log = world.log.take().unwrap_or_default();
            world.outcome
        }
    }
}

impl<'a> World<'a> {
    fn new(
        scenario: &'a FailureScenario,
        switches: &'a mut [Switch],
        logs: bool,
    ) -> Checked<World<'a>> {
        let mut rng = StdRng::seed_from_u64(scenario.seed ^ 0x0ddf_a117);
        let mut network = Network::new(scenario.seed);
        network.set_conditions(scenario.conditions);
        let mut events = Events::default();
        for place in 0..scenario.switches {
            switches[place].drain();
            switches[place].empty(1_000_000_000 + rng.random_range(0..1_000_000_000))?;
            events.push(rng.random_range(0..TICK_NS), Event::Tick(place));
            events.push(rng.random_range(0..TICK_NS), Event::Agent(place));
        }
        events.push(0, Event::Look);
        for (at, step) in scenario.steps.iter().enumerate() {
            events.push(step.at_ns, Event::Step(at));
        }
        let Some(first) = switches.first() else { return violated("harness", "no switch") };
        let groups = first.groups();
        let of_group = |group| {
            let own = first.shared.iter().filter(|it| it.group == group);
            Truth::new(&own.map(|it| (it.merge, it.cells, it.period)).collect::<Vec<_>>())
        };
        let truth = (0..groups).map(of_group).collect();
        let names = (0..groups).map(|group| first.group(group).described.name.clone()).collect();
        let count = scenario.switches;
        let mut world = World {
            scenario,
            network,
            rng,
            now_ns: 0,
            events,
            agents: (0..count).map(|_| None).collect(),
            alive: vec![true; count],
            incarnations: vec![1; count],
            lives: BTreeMap::new(),
            controller: None,
            state: State::default(),
            deaf_until: vec![0; count],
            truth,
            names,
            left: vec![vec![false; groups]; count],
            stays: vec![true; count],
            seen: vec![vec![(0, 0); groups]; count],
            log: logs.then(Vec::new),
            outcome: FailureOutcome::default(),
            switches,
        };
        for place in 0..count {
            world.begin_agent(place)?;
        }
        world.begin_controller();
        Ok(world)
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(format!("{:>9.3} ms  {}", self.now_ns as f64 / 1e6, line()));
        }
    }

    fn run(&mut self) -> Checked {
        while let Some((at_ns, event)) = self.events.pop_until(BUSY_NS) {
            self.now_ns = at_ns;
            self.happens(event)?;
        }
        self.now_ns = BUSY_NS;
        self.note(|| "the failures end".into());
        self.network.heal(40_000);
        self.deaf_until.fill(0);
        if self.controller.is_none() {
            self.begin_controller();
        }
        for place in 0..self.scenario.switches {
            self.returns(place)?;
            self.stays[place] = true;
            let agent = self.agents[place].iter_mut();
            agent.flat_map(|it| &mut it.members).for_each(|it| it.leave(false));
        }
        self.settle()
    }

    /// All are members again, and windows go on.
    fn settle(&mut self) -> Checked {
        let mut goals: Option<Vec<u64>> = None;
        while let Some((at_ns, event)) = self.events.pop_until(BUSY_NS + PATIENCE_NS) {
            self.now_ns = at_ns;
            self.happens(event)?;
            if !self.all_are_members() {
                goals = None;
                continue;
            }
            let windows = |group: usize| self.seen.iter().map(move |seen| seen[group].1);
            let newest = |group| windows(group).max().unwrap_or(0);
            let goals = goals.get_or_insert_with(|| {
                (0..self.names.len()).map(|group| newest(group) + 3).collect()
            });
            let there = |group: usize| windows(group).all(|window| window >= goals[group]);
            if (0..self.names.len()).all(there) {
                return self.look_at_all();
            }
        }
        let views: Vec<_> = self.state.groups.values().map(|it| it.newest().cloned()).collect();
        violated("progress", format!("views and windows {:?}; decided {views:?}", self.seen))
    }

    fn all_are_members(&self) -> bool {
        self.names.iter().enumerate().all(|(group, name)| {
            let newest = self.state.groups.get(name).and_then(|it| it.newest());
            newest.is_some_and(|newest| {
                newest.members.len() == self.scenario.switches
                    && self.seen.iter().all(|seen| seen[group].0 == newest.number)
            })
        })
    }

    fn happens(&mut self, event: Event) -> Checked {
        match event {
            Event::Step(at) => self.step(at),
            Event::Arrives(place, frame) => self.arrives(place, &frame),
            Event::Tick(place) => self.tick(place),
            Event::Agent(place) => self.agent(place),
            Event::Look => {
                self.events.push(self.now_ns + LOOK_NS, Event::Look);
                self.control(Input::Timer)
            }
            Event::Told(from, to, life, message) => self.told(from, to, life, message),
            Event::Written(life, state) => {
                if self.lives.get(&CONTROLLER) != Some(&life) || self.controller.is_none() {
                    return Ok(());
                }
                self.written(state);
                self.control(Input::Persisted)
            }
        }
    }

    fn step(&mut self, at: usize) -> Checked {
        let Some(step) = self.scenario.steps.get(at) else { return Ok(()) };
        match step.action.clone() {
            Failure::Packets { switch, cpu, packets } => {
                packets.into_iter().try_for_each(|packet| self.packet(switch, cpu, packet))
            }
            Failure::Dies { switch } => {
                self.note(|| format!("{switch} dies"));
                self.alive[switch] = false;
                self.agents[switch] = None;
                self.seen[switch].fill((0, 0));
                Ok(())
            }
            Failure::Returns { switch } => self.returns(switch),
            Failure::AgentDies { switch } => {
                self.note(|| format!("the agent of {switch} dies"));
                self.agents[switch] = None;
                Ok(())
            }
            Failure::Leaves { switch, leaves } => {
                self.note(|| format!("{switch} {}", if leaves { "is to leave" } else { "joins" }));
                self.stays[switch] = !leaves;
                let agent = self.agents[switch].iter_mut();
                agent.flat_map(|it| &mut it.members).for_each(|it| it.leave(leaves));
                self.agents[switch].iter_mut().for_each(|it| it.next_ns = 0);
                Ok(())
            }
            Failure::Deaf { switch, for_ns } => {
                self.note(|| format!("{switch} and the controller do not hear each other"));
                self.deaf_until[switch] = self.now_ns + for_ns;
                Ok(())
            }
            Failure::ControllerDies => {
                self.note(|| "the controller dies".into());
                self.controller = None;
                *self.lives.entry(CONTROLLER).or_default() += 1;
                Ok(())
            }
            Failure::ControllerReturns => {
                if self.controller.is_none() {
                    self.note(|| "the controller is back".into());
                    self.begin_controller();
                }
                Ok(())
            }
            Failure::Network { fault, for_ns } => {
                self.note(|| format!("{fault:?}"));
                self.network.begin(&fault, self.now_ns + for_ns);
                Ok(())
            }
        }
    }

    /// A dead switch begins a new life; a dead agent goes on with what is in the maps.
    fn returns(&mut self, place: usize) -> Checked {
        if !self.alive[place] {
            self.note(|| format!("{place} returns"));
            self.alive[place] = true;
            self.incarnations[place] += 1;
            let offset_ns = self.rng.random_range(0..1_000_000_000);
            self.switches[place].drain();
            self.switches[place].empty(offset_ns)?;
            (0..self.names.len()).for_each(|group| self.truth[group].ends(place));
        }
        if self.agents[place].is_none() {
            self.begin_agent(place)?;
        }
        Ok(())
    }

    fn arrives(&mut self, place: usize, frame: &[u8]) -> Checked {
        if !self.alive[place] {
            return Ok(());
        }
        let cpu = self.rng.random_range(0..CPUS);
        if let Some(back) = self.switches[place].receive(cpu, frame, self.now_ns)? {
            self.send(place, back)?;
        }
        self.watch(place)
    }

    fn tick(&mut self, place: usize) -> Checked {
        self.events.push(self.now_ns + TICK_NS, Event::Tick(place));
        // (The generator is a thread of the agent.)
        if self.agents[place].is_none() {
            return Ok(());
        }
        let cpu = self.rng.random_range(0..CPUS);
        let all: Vec<u32> = (0..CPUS).collect();
        for (_, frame) in self.switches[place].tick(cpu, &all, self.now_ns)? {
            self.send(place, frame)?;
        }
        self.watch(place)
    }

    fn send(&mut self, from: usize, frame: Vec<u8>) -> Checked {
        let (to, message) = receiver(&frame)?;
        if to >= self.scenario.switches || to == from {
            return violated("message", format!("{from} sends to {to}"));
        }
        self.outcome.large += u64::from(is_large(&message));
        for at_ns in self.network.send(self.now_ns, from, to, Treatment::default()) {
            self.events.push(at_ns, Event::Arrives(to, frame.clone()));
        }
        Ok(())
    }

    fn packet(&mut self, place: usize, cpu: u32, (index, amount): (u32, u32)) -> Checked {
        if !self.alive[place] {
            return Ok(());
        }
        let switch = &self.switches[place];
        let mut words = vec![];
        for group in 0..self.names.len() {
            let node = switch.node(group)?;
            // (Packets of a switch that leaves find no group.)
            words.push((node.view, if node.closed == 0 { node.word } else { 0 }));
        }
        let Some(probed) = switch.probe(cpu, (index, amount), None, self.now_ns)? else {
            return violated("dropped", format!("a packet at {place}"));
        };
        let shared = switch.shared.clone();
        for ((at, update), read) in updates_of(index, amount, &shared).into_iter().zip(probed.read)
        {
            let (group, object) = (shared[at].group, shared[at].object);
            let (view, word) = words[group];
            let right = self.truth[group].cell(view, word >> 3, object, update.index);
            if right.is_some_and(|right| right != read) {
                return violated(
                    "read",
                    format!(
                        "{place} reads {read:#x} of variable {at}, cell {}, in view {view}, window \
                         {}, not {right:x?}",
                        update.index,
                        word >> 3
                    ),
                );
            }
            if amount != 0 && word != 0 {
                self.truth[group].update(place, word, update);
            }
        }
        Ok(())
    }

    /// After each step of a switch: which views and windows it is in.
    fn watch(&mut self, place: usize) -> Checked {
        if !self.alive[place] {
            return Ok(());
        }
        for group in 0..self.names.len() {
            let node = self.switches[place].node(group)?;
            let now = if node.word == 0 { (0, 0) } else { (node.view, node.word >> 3) };
            let before = std::mem::replace(&mut self.seen[place][group], now);
            if now == before {
                continue;
            }
            self.note(|| format!("{place} is in view {} window {} of group {group}", now.0, now.1));
            if now.0 != 0 && before.0 != 0 && now.1 < before.1 {
                return violated("windows", format!("{place} goes from {before:?} to {now:?}"));
            }
            if now.0 != before.0 && now.0 != 0 {
                if self.truth[group].decision(now.0).is_none() {
                    return violated("persistent", format!("{place} is in view {}", now.0));
                }
                self.left[place][group] = false;
                let handed = self.truth[group].takes(place, before.0, now);
                self.outcome.handed += handed;
            } else if now.0 == 0 {
                let left = std::mem::take(&mut self.left[place][group]);
                self.truth[group].gives_up(place, before.0);
                self.outcome.left += u64::from(left);
                let left_for_good = left && !self.stays[place];
                if left_for_good && let Some(lost) = self.truth[group].uncounted(place) {
                    return violated("left", format!("{place} left, and took with it {lost}"));
                }
            }
            self.look(place, group)?;
        }
        Ok(())
    }

    fn look_at_all(&mut self) -> Checked {
        for place in 0..self.scenario.switches {
            (0..self.names.len()).try_for_each(|group| self.look(place, group))?;
        }
        for (place, switch) in self.switches.iter().enumerate() {
            for (at, (name, _)) in COUNTED.iter().enumerate() {
                let bad = ["faults", "line_stuck", "malformed", "no_route"];
                let count = switch.count(at);
                if bad.contains(name) && count > 0 {
                    return violated("counted", format!("{count} times {name} at {place}"));
                }
            }
        }
        for (group, truth) in self.truth.iter().enumerate() {
            if let Some(lost) = truth.lost() {
                return violated("lost", format!("group {group}: {lost}"));
            }
        }
        Ok(())
    }

    /// All cells, as packets that come in now read them.
    fn look(&mut self, place: usize, group: usize) -> Checked {
        let (view, window) = self.seen[place][group];
        if view == 0 {
            return Ok(());
        }
        for (at, shared) in self.switches[place].shared.clone().iter().enumerate() {
            if shared.group != group {
                continue;
            }
            let cells = self.switches[place].cells(shared, window)?;
            for (index, cell) in (0..).zip(cells) {
                let right = self.truth[group].cell(view, window, shared.object, index);
                if right != Some(cell) {
                    return violated(
                        "value",
                        format!(
                            "{place} has {cell:#x} in variable {at}, cell {index}, in view {view}, \
                             window {window}, not {right:x?}: {}",
                            self.truth[group].explained(view, window, shared.object, index)
                        ),
                    );
                }
            }
        }
        Ok(())
    }
}

fn shown(decided: &Decided) -> String {
    let Decided { number, members, joins, lacks, turn, window, extra, counted, .. } = decided;
    let members: Vec<u32> = members.iter().map(|it| it.number / 3).collect();
    format!(
        "{number}: {members:?} (new {joins:?}, lacking {lacks:?}), {turn:?} {window}, {} bytes of \
         the dead, counted {counted:?}",
        extra.len()
    )
}
