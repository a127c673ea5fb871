//! Variables with EWO: a world of switches that change them, lose messages, and restart.
//!
//! It owns: what must hold of slots (systems/swish/README.md, "EWO"). It must not know: how a
//! message is merged.

mod ledger;
mod scenario;
mod switch;
mod world;

pub use scenario::{Action, Scenario};
pub(crate) use switch::receiver;

use crate::model::Violation;
use crate::program::Program;
use crate::seeded::SeededBug;
use std::collections::BTreeMap;
use switch::Switch;
use world::World;

/// How much there was of what.
pub type Counts = BTreeMap<&'static str, u64>;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What must not be.
    pub violation: Option<Violation>,
    /// What happened, if that was asked for.
    pub log: Vec<String>,
    /// Packets, messages and restarts.
    pub counts: Counts,
}

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

/// Runs of these seeds, until one fails: which, and why. Else the sum of their counts.
///
/// # Errors
/// The program does not compile.
pub fn run_many(
    seeds: std::ops::Range<u64>,
    bug: Option<&SeededBug>,
    scenario: fn(u64) -> Scenario,
) -> Result<(Option<(u64, Violation)>, Counts), String> {
    let program = Program::compile_eventual(bug)?;
    let mut bench = Bench::new(&program);
    let mut counts = BTreeMap::new();
    for seed in seeds {
        let outcome = bench.run(&scenario(seed), false);
        for (what, count) in outcome.counts {
            *counts.entry(what).or_default() += count;
        }
        if let Some(violation) = outcome.violation {
            return Ok((Some((seed, violation)), counts));
        }
    }
    Ok((None, counts))
}
