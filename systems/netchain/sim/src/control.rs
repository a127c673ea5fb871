//! The simulated controller: the real rules, and a database that outlives them.

use netchain_controller::{Config, Controller, Event, Input, Judge, Settings, State, Walks};
use netchain_protocol::Ring;
use simnet::Clock;
use std::net::Ipv4Addr;

/// What the controller wants done after an input.
#[derive(Default)]
pub(crate) struct Wants {
    /// To be made persistent.
    pub(crate) persist: Option<State>,
    /// To be sent.
    pub(crate) configs: Vec<(Ipv4Addr, Config)>,
    /// It decided this.
    pub(crate) events: Vec<Event>,
}

/// A controller, or its place while there is none.
pub(crate) struct Control {
    settings: Settings,
    /// Of each group, the best candidate for its chain first.
    pub(crate) walks: Walks,
    judge: Judge,
    /// The database.
    pub(crate) disk: State,
    controller: Option<Controller>,
    /// Of the one that runs.
    clock: Clock,
    /// How many there were: what is under way for an earlier one does not count.
    pub(crate) life: u64,
    pub(crate) returns_ns: u64,
    pub(crate) frozen_until_ns: u64,
}

impl Control {
    pub(crate) fn new(ring: &Ring, settings: Settings) -> Control {
        let groups = 0..ring.groups();
        let switches: Vec<Ipv4Addr> = ring.members().iter().map(|it| it.address).collect();
        let chains = groups.map(|group| ring.chain_of(group).unwrap_or_default());
        Control {
            judge: Judge::new(settings.clone()),
            settings,
            walks: Walks::of(ring),
            disk: State::found(&switches, chains.collect()),
            controller: None,
            clock: Clock::new(0, 0),
            life: 0,
            returns_ns: 0,
            frozen_until_ns: 0,
        }
    }

    /// A controller begins, with what the database has.
    pub(crate) fn begin(&mut self, clock: Clock) {
        let placement = Box::new(self.walks.clone());
        self.controller =
            Some(Controller::new(self.settings.clone(), placement, self.disk.clone()));
        self.clock = clock;
        self.life += 1;
    }

    pub(crate) fn end(&mut self) {
        self.controller = None;
        self.life += 1;
    }

    pub(crate) fn runs(&self) -> bool {
        self.controller.is_some()
    }

    /// What became persistent; what does not hold of it.
    pub(crate) fn persisted(&mut self, state: State, now_ns: u64) -> Result<(), String> {
        let judged = self.judge.decided(now_ns / 1_000_000, &self.disk, &state);
        self.disk = state;
        judged
    }

    /// Takes an input.
    pub(crate) fn take(&mut self, input: Input, now_ns: u64) -> Wants {
        let Some(controller) = &mut self.controller else { return Wants::default() };
        let now_ms = self.clock.local(now_ns) / 1_000_000;
        let outputs = controller.handle(now_ms, input);
        Wants { persist: outputs.persist, configs: outputs.configs, events: outputs.events }
    }
}
