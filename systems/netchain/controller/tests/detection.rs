//! When the controller takes a switch for dead or mute, and when not yet.

use netchain_controller::{Controller, Event, Input, Outputs, Placement, Report, Settings, State};
use std::net::Ipv4Addr;

const DEAD_MS: u64 = 100;
const AGENT_MS: u64 = 500;

fn switch(at: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, at)
}

struct All(Vec<Ipv4Addr>);

impl Placement for All {
    fn candidates(&self, _group: u16) -> &[Ipv4Addr] {
        &self.0
    }

    fn rack(&self, switch: &Ipv4Addr) -> u32 {
        u32::from(*switch)
    }
}

/// Four switches, one group, and what its controller logged.
struct Cluster {
    controller: Controller,
    now_ms: u64,
    events: Vec<Event>,
}

impl Cluster {
    fn new() -> Cluster {
        let settings = Settings {
            failures: 2,
            dead_ms: DEAD_MS,
            agent_ms: AGENT_MS,
            lease_ms: 60,
            most_joins: 1,
            again_ms: 20,
            begin_ms: 10_000,
            collect_percent: 0,
            collect_gap_ms: 0,
            rebalance_after_ms: 0,
        };
        let switches: Vec<Ipv4Addr> = (1..=4).map(switch).collect();
        let state = State::found(&switches, vec![switches[..3].to_vec()]);
        let controller = Controller::new(settings, Box::new(All(switches)), state);
        Cluster { controller, now_ms: 0, events: vec![] }
    }

    fn handle(&mut self, input: Input) {
        let mut outputs = self.controller.handle(self.now_ms, input);
        while outputs.persist.is_some() {
            self.events.append(&mut outputs.events);
            outputs = self.controller.handle(self.now_ms, Input::Persisted);
        }
        let Outputs { events, .. } = outputs;
        assert_eq!(events, []);
    }

    /// All of these report every 10 ms, for so long. `silent`: what they do not hear, and for how
    /// long, by the time that has passed.
    fn pass(&mut self, ms: u64, who: &[u8], silent: impl Fn(u8, u64) -> Vec<(Ipv4Addr, u64)>) {
        for passed in (0..ms).step_by(10) {
            self.now_ms += 10;
            for at in who {
                let applied = self.controller.state().version;
                let report = Report {
                    switch: switch(*at),
                    incarnation: 1,
                    applied,
                    asks: false,
                    silent_ms: silent(*at, passed),
                    copied: vec![],
                    used_percent: 0,
                };
                self.handle(Input::Report(report));
            }
            self.handle(Input::Timer);
        }
    }

    fn has_died(&self, at: u8) -> bool {
        self.events.contains(&Event::Died(switch(at)))
            || self.events.contains(&Event::Mute(switch(at)))
    }
}

/// Agents report before their switches have routes to each other: nobody misses the others yet, and
/// nobody has heard them.
#[test]
fn who_was_never_heard_is_not_dead_while_the_cluster_begins() {
    let mut cluster = Cluster::new();
    let none_is_heard = |at: u8, passed: u64| {
        (1..=4).filter(|other| *other != at).map(|other| (switch(other), passed)).collect()
    };
    cluster.pass(1_000, &[1, 2, 3, 4], none_is_heard);
    assert!(!(1..=4).any(|at| cluster.has_died(at)), "{:?}", cluster.events);
    // Once they have heard each other, silence is a death.
    cluster.pass(100, &[1, 2, 3, 4], |_, _| vec![]);
    cluster.pass(300, &[2, 3, 4], |_, passed| vec![(switch(1), passed)]);
    assert!(cluster.has_died(1));
}

/// Its data plane answers probes, but nobody renews its leases or takes a decision for it.
#[test]
fn a_switch_without_an_agent_leaves_its_chains() {
    let mut cluster = Cluster::new();
    cluster.pass(200, &[1, 2, 3, 4], |_, _| vec![]);
    cluster.pass(AGENT_MS - 50, &[1, 2, 4], |_, _| vec![]);
    assert!(!cluster.has_died(3), "its agent may be restarting");
    cluster.pass(100, &[1, 2, 4], |_, _| vec![]);
    assert!(cluster.events.contains(&Event::Mute(switch(3))), "{:?}", cluster.events);
    assert!(!cluster.controller.state().groups[0].chain.contains(&switch(3)));
    // It is back when its agent has the decision.
    cluster.pass(100, &[1, 2, 3, 4], |_, _| vec![]);
    assert!(cluster.events.contains(&Event::Returned(switch(3))));
}

/// A controller that hears few switches knows nothing of the others.
#[test]
fn a_controller_without_reports_takes_nobody_for_dead() {
    let mut cluster = Cluster::new();
    cluster.pass(200, &[1, 2, 3, 4], |_, _| vec![]);
    cluster.pass(2_000, &[1], |_, _| vec![]);
    assert!(!(1..=4).any(|at| cluster.has_died(at)), "{:?}", cluster.events);
}

/// Its own CPU time is what it lacks: reports wait in its socket.
#[test]
fn a_controller_that_stood_still_takes_nobody_for_mute() {
    let mut cluster = Cluster::new();
    let hear_all = |_, _| vec![];
    cluster.pass(300, &[1, 2, 3, 4], hear_all);
    cluster.now_ms += 2 * AGENT_MS;
    cluster.pass(300, &[1, 2, 3, 4], hear_all);
    assert!((1..=4).all(|at| !cluster.has_died(at)), "{:?}", cluster.events);
    // One that is mute then is found as soon as ever.
    cluster.pass(AGENT_MS + 20, &[1, 2, 3], hear_all);
    assert!(cluster.has_died(4), "{:?}", cluster.events);
}
