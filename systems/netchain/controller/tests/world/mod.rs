//! Simulated clusters for the controller: switches that die, return empty or are not heard; writes
//! and reads that follow the roles that switches have; a controller that dies.
//!
//! The data plane is simple: a write goes down its chain in one step, as far as roles let
//! it. Its messages in flight are the business of the model (`systems/netchain/spec`).

use netchain_controller::{
    Config, Controller, Event, Group, Input, Judge, Part, Placement, Report, Settings, Stage,
    Standing, State,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

const GROUPS: u16 = 6;
const DEAD_MS: u64 = 100;
const LEASE_MS: u64 = 80;
/// In the end chains have the members that the placement wants, after this time.
const MOVED_AFTER_MS: u64 = 60_000;

/// The switch that comes after another one takes its groups.
struct Circle(Vec<Vec<Ipv4Addr>>);

impl Circle {
    fn of(switches: &[Ipv4Addr]) -> Circle {
        let from = |group: u16| {
            let mut all = switches.to_vec();
            all.rotate_left(usize::from(group) % switches.len());
            all
        };
        Circle((0..GROUPS).map(from).collect())
    }
}

impl Placement for Circle {
    fn candidates(&self, group: u16) -> &[Ipv4Addr] {
        &self.0[usize::from(group)]
    }

    fn rack(&self, switch: &Ipv4Addr) -> u32 {
        u32::from(*switch)
    }
}

/// A switch. Slots are sets of writes, by group.
struct Switch {
    address: Ipv4Addr,
    /// None: it is down.
    incarnation: Option<u32>,
    config: Option<Config>,
    /// A configuration that not all CPUs have yet, and when they do.
    coming: Option<(u64, Config)>,
    slots: Vec<BTreeSet<u64>>,
    /// Groups that it copies: the view, and what is left.
    copies: BTreeMap<u16, (u32, Vec<u64>)>,
    /// Until when it answers reads, by group: the view, and the time.
    leases: BTreeMap<u16, (u32, u64)>,
    /// Neither other switches nor the controller hear it until then; clients do.
    unheard_until_ms: u64,
    returns_ms: u64,
}

impl Switch {
    fn part(&self, group: u16) -> (u32, Part) {
        let role = self.config.as_ref().and_then(|it| it.roles.get(usize::from(group)));
        role.filter(|_| self.incarnation.is_some())
            .map_or((0, Part::None), |role| (role.view, role.part))
    }
}

enum Message {
    Report(Report),
    Config(Ipv4Addr, Config),
}

pub struct World {
    pub seed: u64,
    random: StdRng,
    now_ms: u64,
    settings: Settings,
    switches: Vec<Switch>,
    /// What has been made persistent.
    disk: State,
    controller: Option<Controller>,
    judge: Judge,
    controller_returns_ms: u64,
    persisting: Option<(u64, State)>,
    flying: Vec<(u64, Message)>,
    acknowledged: Vec<BTreeSet<u64>>,
    next_write: u64,
    /// No group may lose all members that have everything.
    /// Switches have few free slots.
    fills: bool,
    careful: bool,
    pub counts: Counts,
}

#[derive(Debug, Default)]
pub struct Counts {
    pub writes: u64,
    pub reads: u64,
    pub deaths: u64,
    pub returns: u64,
    pub joins: u64,
    pub moves: u64,
    pub collections: u64,
    pub lost: u64,
    pub controller_deaths: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut random = StdRng::seed_from_u64(seed);
        let failures = random.random_range(1..=2);
        let count = random.random_range(failures + 1..=6);
        let addresses: Vec<Ipv4Addr> =
            (1..=count).map(|at| Ipv4Addr::new(10, 9, 0, at as u8)).collect();
        let circle = Circle::of(&addresses);
        let chain = |group| circle.candidates(group)[..=failures].to_vec();
        let state = State::found(&addresses, (0..GROUPS).map(chain).collect());
        let settings = Settings {
            failures,
            dead_ms: DEAD_MS,
            agent_ms: 5 * DEAD_MS,
            lease_ms: LEASE_MS,
            most_joins: random.random_range(1..=3),
            again_ms: 20,
            begin_ms: 500,
            collect_percent: [0, 80][random.random_range(0..2)],
            collect_gap_ms: 2_000,
            rebalance_after_ms: [0, 200, 1_000][random.random_range(0..3)],
        };
        let switch = |(at, address): (u32, &Ipv4Addr)| Switch {
            address: *address,
            incarnation: Some(at),
            config: None,
            coming: None,
            slots: vec![BTreeSet::new(); usize::from(GROUPS)],
            copies: BTreeMap::new(),
            leases: BTreeMap::new(),
            unheard_until_ms: 0,
            returns_ms: 0,
        };
        let careful = random.random_bool(0.5);
        World {
            seed,
            now_ms: 0,
            switches: (1..).zip(&addresses).map(switch).collect(),
            controller: Some(Controller::new(settings.clone(), Box::new(circle), state.clone())),
            judge: Judge::new(settings.clone()),
            settings,
            random,
            disk: state,
            controller_returns_ms: 0,
            persisting: None,
            flying: vec![],
            acknowledged: vec![BTreeSet::new(); usize::from(GROUPS)],
            next_write: 0,
            careful,
            fills: true,
            counts: Counts::default(),
        }
    }

    /// Until `end_ms`, with or without failures.
    pub fn run(&mut self, end_ms: u64, failures: bool) {
        while self.now_ms < end_ms {
            self.now_ms += 1;
            if failures {
                self.fail();
            }
            self.returns();
            self.deliver();
            for at in 0..self.switches.len() {
                self.step(at);
            }
            self.control(Input::Timer);
            for _ in 0..4 {
                let group = self.random.random_range(0..GROUPS);
                self.write(group);
                self.read(group);
            }
        }
    }

    /// Everything comes back; in the end every chain is whole.
    pub fn finish(&mut self) {
        self.fills = false;
        for switch in &mut self.switches {
            switch.unheard_until_ms = 0;
            switch.returns_ms = switch.returns_ms.min(self.now_ms);
        }
        self.controller_returns_ms = self.controller_returns_ms.min(self.now_ms);
        self.run(self.now_ms + 10, false); // (the controller is there again)
        let undrained: Vec<Ipv4Addr> = self.switches.iter().map(|it| it.address).collect();
        undrained.into_iter().for_each(|it| self.control(Input::Drain(it, false)));
        self.run(self.now_ms + 1_000, false);
        for group in 0..GROUPS {
            if self.disk.groups[usize::from(group)].stage == Stage::Lost {
                self.control(Input::Refound(group));
                self.run(self.now_ms + 100, false);
            }
        }
        self.run(self.now_ms + 4_000, false);
        self.chains_return();
        let seed = self.seed;
        for (number, group) in self.disk.groups.iter().enumerate() {
            assert_eq!(group.stage, Stage::Serving, "seed {seed}: group {number}: {group:?}");
            let full = group.full().count();
            assert!(
                full > self.settings.failures,
                "seed {seed}: group {number}: {group:?} of {:?}",
                self.disk.groups
            );
        }
        let fenced =
            self.disk.switches.values().filter(|it| it.standing != Standing::Serving).count();
        assert_eq!(fenced, 0, "seed {seed}: fenced in the end: {:?}", self.disk.switches);
        let before = self.counts.writes;
        self.run(self.now_ms + 100, false);
        assert!(self.counts.writes > before, "seed {seed}: no write is acknowledged");
    }

    fn circle(&self) -> Circle {
        Circle::of(&self.switches.iter().map(|it| it.address).collect::<Vec<Ipv4Addr>>())
    }

    /// All are alive and nothing happens: each chain has the members that the placement wants.
    fn chains_return(&mut self) {
        if self.settings.rebalance_after_ms == 0 {
            self.rebalance();
        }
        let (circle, count) = (self.circle(), self.settings.failures + 1);
        let wanted: Vec<_> = (0..GROUPS).map(|group| &circle.candidates(group)[..count]).collect();
        let until_ms = self.now_ms + MOVED_AFTER_MS;
        let spares = self.switches.len() > count;
        let has_moved = |(group, wanted): (&Group, &&[Ipv4Addr])| {
            // (A head stays where it is, and a reader that nobody stands in for.)
            let reader = wanted.last();
            let reads = [group.chain.first(), group.chain.last()].contains(&reader);
            group.stage == Stage::Serving
                && group.joining.is_none()
                && group.chain.len() == count
                && group.chain.iter().all(|it| wanted.contains(it))
                && (reads || !spares)
        };
        while !self.disk.groups.iter().zip(&wanted).all(has_moved) {
            let groups = &self.disk.groups;
            assert!(self.now_ms < until_ms, "seed {}: chains do not return: {groups:?}", self.seed);
            self.run(self.now_ms + 50, false);
        }
    }

    /// An operator wants chains to move now.
    fn rebalance(&mut self) {
        self.judge.ordered(self.now_ms);
        self.control(Input::Rebalance);
    }

    fn fail(&mut self) {
        let at = self.random.random_range(0..self.switches.len());
        match self.random.random_range(0..4_000) {
            0..4 if self.switches[at].incarnation.is_some() && self.may_die(at) => {
                let switch = &mut self.switches[at];
                switch.incarnation = None;
                switch.returns_ms = self.now_ms + self.random.random_range(DEAD_MS + 40..1_500);
                self.counts.deaths += 1;
            }
            4..8 if self.may_die(at) => {
                self.switches[at].unheard_until_ms =
                    self.now_ms + self.random.random_range(10..800);
            }
            8..10 if self.controller.is_some() => {
                (self.controller, self.persisting) = (None, None);
                self.controller_returns_ms = self.now_ms + self.random.random_range(10..600);
                self.counts.controller_deaths += 1;
            }
            10..12 => {
                let (address, on) = (self.switches[at].address, self.random.random_bool(0.3));
                self.control(Input::Drain(address, on));
            }
            12 => self.rebalance(),
            _ => {}
        }
    }

    /// Careful: of each group that it has, another switch has everything, and is not about to die.
    fn may_die(&self, at: usize) -> bool {
        let address = self.switches[at].address;
        !self.careful
            || self.disk.groups.iter().all(|group| {
                let lives = |it: &Ipv4Addr| {
                    let switch = self.switch(*it);
                    let known = self.disk.switches[it].incarnation;
                    switch.incarnation == Some(known) && switch.unheard_until_ms < self.now_ms
                };
                let whole = matches!(group.stage, Stage::Serving);
                let others = group.full().filter(|it| *it != address && lives(it)).count();
                !group.chain.contains(&address) || (whole && others > 0)
            })
    }

    fn switch(&self, address: Ipv4Addr) -> &Switch {
        self.switches.iter().find(|it| it.address == address).expect("one of the cluster")
    }

    fn returns(&mut self) {
        for switch in &mut self.switches {
            if switch.incarnation.is_none() && switch.returns_ms <= self.now_ms {
                switch.incarnation = Some(self.random.random_range(100..u32::MAX));
                (switch.config, switch.coming) = (None, None);
                switch.slots = vec![BTreeSet::new(); usize::from(GROUPS)];
                switch.copies.clear();
                switch.leases.clear();
            }
        }
        if self.controller.is_none() && self.controller_returns_ms <= self.now_ms {
            let circle = self.circle();
            let (settings, state) = (self.settings.clone(), self.disk.clone());
            self.controller = Some(Controller::new(settings, Box::new(circle), state));
        }
        if let Some((_, state)) = self.persisting.take_if(|(at_ms, _)| *at_ms <= self.now_ms) {
            for (group, (old, new)) in self.disk.groups.iter().zip(&state.groups).enumerate() {
                if new.stage == Stage::Lost && old.stage != Stage::Lost {
                    self.acknowledged[group].clear();
                }
            }
            let joining = state.groups.iter().filter(|group| group.joining.is_some()).count();
            // (And one that joins a whole chain.)
            assert!(joining <= self.settings.most_joins + 1, "seed {}: {joining} join", self.seed);
            let judged = self.judge.decided(self.now_ms, &self.disk, &state);
            assert!(judged.is_ok(), "seed {}: {judged:?}", self.seed);
            for (old, new) in self.disk.groups.iter().zip(&state.groups) {
                assert!(new.floor >= old.floor && new.session >= old.session, "{new:?}");
                let begins = new.collecting && new.view != old.view;
                let in_own_session = new.session > old.session && new.floor == new.session;
                assert!(!begins || in_own_session, "a session is not new: {old:?}, {new:?}");
                let other_head = new.head().is_some() && new.head() != old.head();
                assert!(!other_head || new.head_since > old.view, "another head: {new:?}");
                assert!(!new.collecting || new.joining.is_none(), "one joins: {new:?}");
                self.counts.collections +=
                    u64::from(old.collecting && !new.collecting && old.view == new.view);
            }
            self.disk = state;
            self.control(Input::Persisted);
        }
    }

    fn control(&mut self, input: Input) {
        let Some(controller) = &mut self.controller else { return };
        let outputs = controller.handle(self.now_ms, input);
        if let Some(state) = outputs.persist {
            self.persisting = Some((self.now_ms + self.random.random_range(1..8), state));
        }
        for event in outputs.events {
            match event {
                Event::Joined(..) => self.counts.joins += 1,
                Event::Moves(..) => self.counts.moves += 1,
                Event::Lost(group) => {
                    assert!(!self.careful, "seed {}: group {group} is lost", self.seed);
                    self.counts.lost += 1;
                }
                Event::Returned(_) => self.counts.returns += 1,
                _ => {}
            }
        }
        for (to, config) in outputs.configs {
            // A controller that dies now would decide otherwise under the same version.
            assert!(
                config.version <= self.disk.version,
                "seed {}: version {} is sent before it is persistent",
                self.seed,
                config.version
            );
            self.post(Message::Config(to, config));
        }
    }

    /// Messages are late, lost, repeated.
    fn post(&mut self, message: Message) {
        if self.random.random_bool(0.05) {
            return;
        }
        let delay = if self.random.random_bool(0.02) { 60 } else { 4 };
        let at_ms = self.now_ms + 1 + self.random.random_range(0..delay);
        self.flying.push((at_ms, message));
    }

    fn deliver(&mut self) {
        let now_ms = self.now_ms;
        let due: Vec<(u64, Message)> =
            self.flying.extract_if(.., |(at_ms, _)| *at_ms <= now_ms).collect();
        for (_, message) in due {
            match message {
                Message::Report(report) => self.control(Input::Report(report)),
                Message::Config(to, config) => {
                    let grace_ms = self.random.random_range(5..40);
                    let switch = self.switches.iter_mut().find(|it| it.address == to);
                    let switch = switch.expect("one of the cluster");
                    let newer = |old: &Config| old.version >= config.version;
                    if switch.incarnation == Some(config.incarnation)
                        && switch.unheard_until_ms <= now_ms
                        && switch.coming.is_none()
                        && !switch.config.as_ref().is_some_and(newer)
                    {
                        switch.coming = Some((now_ms + grace_ms, config));
                    }
                }
            }
        }
    }

    /// A switch takes a configuration, copies, reports.
    fn step(&mut self, at: usize) {
        let now_ms = self.now_ms;
        let switch = &mut self.switches[at];
        let Some(incarnation) = switch.incarnation else { return };
        if let Some((_, config)) = switch.coming.take_if(|(at_ms, _)| *at_ms <= now_ms) {
            switch.config = Some(config);
        }
        self.copy(at);
        if now_ms % 20 == at as u64 {
            self.renew(at);
        }
        let switch = &self.switches[at];
        if now_ms % 10 != at as u64 || switch.unheard_until_ms > now_ms {
            return;
        }
        // For how long it does not hear others is short or long here: no more matters.
        let silent = |other: &&Switch| {
            other.address != switch.address
                && (other.incarnation.is_none() || other.unheard_until_ms > now_ms)
        };
        let silent: Vec<_> = self.switches.iter().filter(silent).map(|it| it.address).collect();
        let silent_ms = silent.into_iter().map(|it| (it, DEAD_MS)).collect();
        let done = switch.copies.iter().filter(|(_, (_, left))| left.is_empty());
        let report = Report {
            switch: switch.address,
            incarnation,
            applied: switch.config.as_ref().map_or(0, |it| it.version),
            asks: false,
            silent_ms,
            copied: done.map(|(group, (view, _))| (*group, *view)).collect(),
            used_percent: if self.fills { [0, 79, 80][incarnation as usize % 3] } else { 0 },
        };
        self.post(Message::Report(report));
    }

    fn copy(&mut self, at: usize) {
        for group in 0..GROUPS {
            let slots = usize::from(group);
            let switch = &mut self.switches[at];
            let role = switch.config.as_ref().and_then(|it| it.roles.get(slots)).cloned();
            if let Some(role) = &role
                && role.copies_to.is_some()
                && matches!(role.part, Part::Member { head: true, collecting: true, .. })
            {
                // (What it sends down the chain is none of the controller's.)
                switch.copies.insert(group, (role.view, vec![]));
                continue;
            }
            let Some((role, to)) = role.and_then(|it| it.copies_to.map(|to| (it, to))) else {
                continue;
            };
            let known = switch.copies.get(&group).is_some_and(|(view, _)| *view == role.view);
            if !known {
                let all = switch.slots[slots].iter().copied().collect();
                switch.copies.insert(group, (role.view, all));
            }
            let Some((view, left)) = switch.copies.get_mut(&group) else { continue };
            let (view, some) = (*view, left.split_off(left.len().saturating_sub(8)));
            let to = self.switches.iter_mut().find(|it| it.address == to);
            let to = to.expect("one of the cluster");
            let takes =
                matches!(to.part(group), (its, Part::Member { joining: true, .. }) if its == view);
            if takes {
                to.slots[slots].extend(some);
            } else if let Some((_, left)) = self.switches[at].copies.get_mut(&group) {
                left.extend(some);
            }
        }
    }

    fn write(&mut self, group: u16) {
        let at = self.random.random_range(0..self.switches.len());
        let (_, part) = self.switches[at].part(group);
        if !matches!(part, Part::Member { head: true, .. }) {
            return;
        }
        let (write, slots) = (self.next_write, usize::from(group));
        self.next_write += 1;
        let lost = |world: &mut World| world.random.random_bool(0.02);
        let whole = self.passes(at, group, lost, |switch| {
            switch.slots[slots].insert(write);
        });
        if whole.is_some() {
            self.acknowledged[slots].insert(write);
            self.counts.writes += 1;
        }
    }

    /// A message goes down a group's chain from switch `at`, as far as roles let it: each member is
    /// touched. The tail, if it comes so far.
    fn passes(
        &mut self,
        mut at: usize,
        group: u16,
        lost: impl Fn(&mut World) -> bool,
        touch: impl Fn(&mut Switch),
    ) -> Option<usize> {
        let (view, _) = self.switches[at].part(group);
        loop {
            let switch = &mut self.switches[at];
            let (its, Part::Member { tail, .. }) = switch.part(group) else { return None };
            if its != view {
                return None;
            }
            touch(switch);
            let role = switch.config.as_ref().and_then(|it| it.roles.get(usize::from(group)));
            let next = role.and_then(|it| it.next);
            if tail {
                return Some(at);
            }
            if lost(self) {
                return None;
            }
            let next = self.switches.iter().position(|it| Some(it.address) == next);
            at = next.expect("a member that is not the tail has a next one");
        }
    }

    /// The reader's lease begins anew with a message that all members pass on.
    fn renew(&mut self, at: usize) {
        for group in 0..GROUPS {
            let (view, part) = self.switches[at].part(group);
            if !matches!(part, Part::Member { reader: true, .. }) {
                continue;
            }
            let role = self.switches[at].config.as_ref().map(|it| &it.roles[usize::from(group)]);
            let head = role.and_then(|it| it.chain.first()).copied();
            let head = self.switches.iter().position(|it| Some(it.address) == head);
            let head = head.expect("a chain has a head");
            // (Not the reader's own part, but that all others are in its view.)
            let lost = |world: &mut World| world.random.random_bool(0.02);
            let same = self.switches[head].part(group).0 == view;
            if same && self.passes(head, group, lost, |_| ()).is_some() {
                self.switches[at].leases.insert(group, (view, self.now_ms + LEASE_MS));
            }
        }
    }

    /// A reader that gets its answer through must have all that was acknowledged.
    fn read(&mut self, group: u16) {
        let at = self.random.random_range(0..self.switches.len());
        let (view, part) = self.switches[at].part(group);
        let address = self.switches[at].address;
        let lease = self.switches[at].leases.get(&group);
        let has_lease = lease.is_some_and(|(its, end_ms)| *its == view && self.now_ms < *end_ms);
        if !matches!(part, Part::Member { reader: true, .. }) || !has_lease {
            return;
        }
        self.counts.reads += 1;
        let acknowledged = &self.acknowledged[usize::from(group)];
        let has = &self.switches[at].slots[usize::from(group)];
        let misses = acknowledged.difference(has).count();
        assert_eq!(
            misses,
            0,
            "seed {}, {} ms: group {group}: {address} in view {view} answers a read without {misses} \
             acknowledged writes; decided: {:?}",
            self.seed,
            self.now_ms,
            self.disk.groups[usize::from(group)]
        );
    }
}
