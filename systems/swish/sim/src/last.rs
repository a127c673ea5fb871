//! Registers, tables and sets with EWO: a world of switches that write them, lose messages, and
//! restart. Of each key the last writer wins.
//!
//! It owns: what must hold of records (systems/swish/README.md, "EWO"). It must not know: how a
//! message is merged.

mod ledger;
mod scenario;
mod switch;
mod world;

pub use scenario::Scenario;

use crate::eventual::{Counts, Outcome};
use crate::model::Violation;
use crate::program::{LAST_KEYS, Program};
use crate::seeded::SeededBug;
use scenario::op;
use std::collections::BTreeMap;
use swish_protocol::layouts::COUNTED;
use swish_switch::gossip::Terms;
use switch::Switch;
use world::World;

/// Loaded objects that runs use again. They belong to the thread that made them.
pub struct Bench<'a> {
    program: &'a Program,
    switches: Vec<Switch>,
}

impl<'a> Bench<'a> {
    /// With no object loaded yet.
    pub fn new(program: &'a Program) -> Bench<'a> {
        Bench { program, switches: vec![] }
    }

    /// A run.
    pub fn run(&mut self, scenario: &Scenario, logs: bool) -> Outcome {
        while self.switches.len() < scenario.switches {
            match Switch::load(self.program) {
                Ok(switch) => self.switches.push(switch),
                Err(detail) => {
                    let violation = Some(Violation { check: "harness", detail });
                    return Outcome { violation, ..Outcome::default() };
                }
            }
        }
        match World::new(scenario, &mut self.switches[..scenario.switches], logs) {
            Err(violation) => Outcome { violation: Some(violation), ..Outcome::default() },
            Ok(mut world) => {
                let violation = world.run().err();
                Outcome { violation, log: world.take_log(), counts: world.counts.clone() }
            }
        }
    }

    /// A shorter run in which the same check fails.
    pub fn shrink(&mut self, scenario: &Scenario, violation: &Violation) -> Scenario {
        let fails = |steps: &[_]| {
            let candidate = Scenario { steps: steps.to_vec(), ..scenario.clone() };
            let found = self.run(&candidate, false).violation;
            Ok::<bool, ()>(found.is_some_and(|it| it.check == violation.check))
        };
        let steps = simnet::shorten(&scenario.steps, |_| false, fails);
        Scenario { steps: steps.unwrap_or_else(|()| scenario.steps.clone()), ..scenario.clone() }
    }
}

/// A switch alone, whose table is filled: what finds no room is counted, and a removed key's place
/// is free when its tombstone has ended.
///
/// # Errors
/// It is not so.
pub fn fill_a_table(program: &Program) -> Result<(), Violation> {
    let loaded = Switch::load(program);
    let mut switch = loaded.map_err(|detail| Violation { check: "harness", detail })?;
    switch.begin(0, 1, 1, 0)?;
    let terms = Terms {
        bytes_per_s: 1_000_000_000,
        mirror_ns: 1_000_000,
        gossip_ns: 1_000_000,
        tombstone_ns: 5_000_000,
    };
    let full = COUNTED.iter().position(|(name, _)| *name == "table_full").unwrap_or(0);
    let is = |right: bool, detail: String| {
        if right { Ok(()) } else { Err(Violation { check: "full", detail }) }
    };
    let has = |switch: &Switch, key: u32| -> Result<bool, Violation> {
        Ok(switch.records()?.contains_key(&(switch::TABLE, key)))
    };
    for key in 0..LAST_KEYS {
        switch.packet(op::SET, key, 1, 1_000_000)?;
    }
    is(switch.count(full) == 0, "room is missing".into())?;
    switch.packet(op::SET, LAST_KEYS, 1, 1_000_000)?;
    is(!has(&switch, LAST_KEYS)? && switch.count(full) == 2, format!("{}", switch.count(full)))?;
    // A place is taken by the tombstone first.
    switch.packet(op::REMOVE, 0, 0, 1_000_000)?;
    switch.packet(op::SET, LAST_KEYS, 1, 1_000_000)?;
    is(switch.count(full) == 4, format!("{} without room", switch.count(full)))?;
    for at in 0..60 {
        let frames = switch.tick(terms, 1_000_000 + at * 200_000)?;
        is(frames.is_empty(), "a switch alone sends".into())?;
    }
    switch.packet(op::SET, LAST_KEYS, 1, 20_000_000)?;
    is(has(&switch, LAST_KEYS)? && switch.count(full) == 4, "no room behind a tombstone".into())?;
    switch.are_counted(&switch.records()?)
}

/// A recorded message comes in again and again: its sender is heard once, not more. So a tombstone
/// does not end while the sender is away.
///
/// # Errors
/// It is not so.
pub fn repeat_a_message(program: &Program) -> Result<(), Violation> {
    let load = || Switch::load(program).map_err(|detail| Violation { check: "harness", detail });
    let (mut sender, mut receiver) = (load()?, load()?);
    sender.begin(0, 2, 1, 1_000_000_000)?;
    receiver.begin(1, 2, 1, 0)?;
    let terms = Terms {
        bytes_per_s: 1_000_000_000,
        mirror_ns: 100_000,
        gossip_ns: 1_000_000,
        tombstone_ns: 5_000_000,
    };
    let mut frames = vec![];
    for at in 0..20 {
        sender.packet(op::SET, at, 1, 1_000_000 + u64::from(at) * 200_000)?;
        frames.extend(sender.tick(terms, 1_100_000 + u64::from(at) * 200_000)?);
    }
    let heard = |times: u64| {
        let found = receiver.heard(0)?;
        let detail = format!("heard {found} times, not {times}");
        if found == times { Ok(()) } else { Err(Violation { check: "repeated", detail }) }
    };
    let [first, .., last] = frames.as_slice() else {
        return Err(Violation { check: "harness", detail: format!("{} frames", frames.len()) });
    };
    for (frame, times) in [(first, 1), (first, 1), (last, 2), (first, 2), (last, 2)] {
        receiver.receive(frame, 9_000_000)?;
        heard(times)?;
    }
    Ok(())
}

/// Runs of these seeds, until one fails: which, and why. Else the sum of their counts.
///
/// # Errors
/// The program does not compile.
pub fn run_many(
    seeds: std::ops::Range<u64>,
    bug: Option<&SeededBug>,
) -> Result<(Option<(u64, Violation)>, Counts), String> {
    let program = Program::compile_last(bug)?;
    let mut bench = Bench::new(&program);
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let outcome = bench.run(&Scenario::of_seed(seed), false);
        for (what, count) in outcome.counts {
            *counts.entry(what).or_default() += count;
        }
        if let Some(violation) = outcome.violation {
            return Ok((Some((seed, violation)), counts));
        }
    }
    Ok((None, counts))
}
