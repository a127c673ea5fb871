//! Runs, one after another and on several threads; how a failing one becomes short.

use crate::model::Violation;
use crate::program::Program;
use crate::scenario::Scenario;
use crate::seeded::SeededBug;
use crate::switch::Switch;
use crate::world::World;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Switches of a run at the most.
const SWITCHES: usize = 40;

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What must not be.
    pub violation: Option<Violation>,
    /// What happened, if that was asked for.
    pub log: Vec<String>,
    /// Packets that were checked.
    pub probes: u64,
    /// Messages by the blocks that they had room for.
    pub shapes: BTreeMap<u32, u64>,
    /// Messages of windows with many (`layouts::MANY`).
    pub large: u64,
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
        let count = scenario.switches.min(SWITCHES);
        while self.switches.len() < count {
            match Switch::load(self.program) {
                Ok(switch) => self.switches.push(switch),
                Err(detail) => {
                    let violation = Some(Violation { check: "harness", detail });
                    return Outcome { violation, ..Outcome::default() };
                }
            }
        }
        match World::new(scenario, &mut self.switches[..count], logs) {
            Err(violation) => Outcome { violation: Some(violation), ..Outcome::default() },
            Ok(mut world) => {
                let violation = world.run().err();
                Outcome {
                    violation,
                    log: world.take_log(),
                    probes: world.probes,
                    shapes: world.shapes.iter().map(|(shape, count)| (*shape, *count)).collect(),
                    large: world.large,
                }
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

/// Which runs.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// From this seed on.
    pub seed: u64,
    /// So many.
    pub runs: u64,
    /// Or as many as begin in this time.
    pub time: Option<Duration>,
    /// Threads.
    pub threads: usize,
}

/// What came of them.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many there were.
    pub runs: u64,
    /// Packets that were checked.
    pub probes: u64,
    /// Messages by the blocks that they had room for.
    pub shapes: BTreeMap<u32, u64>,
    /// By seed.
    pub failures: BTreeMap<u64, Violation>,
}

/// Many runs, until one fails.
///
/// # Errors
/// The program does not compile.
pub fn run_many(plan: Plan, bug: Option<&SeededBug>) -> Result<Summary, String> {
    let program = Program::compile(bug)?;
    let (next, summary) = (AtomicU64::new(0), Mutex::new(Summary::default()));
    let began = Instant::now();
    let work = || {
        let mut bench = Bench::new(&program);
        loop {
            let run = next.fetch_add(1, Ordering::Relaxed);
            if run >= plan.runs || plan.time.is_some_and(|time| began.elapsed() >= time) {
                return;
            }
            let outcome = bench.run(&Scenario::of_seed(plan.seed + run), false);
            let mut summary = summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            summary.runs += 1;
            summary.probes += outcome.probes;
            for (shape, count) in outcome.shapes {
                *summary.shapes.entry(shape).or_default() += count;
            }
            if let Some(violation) = outcome.violation {
                summary.failures.insert(plan.seed + run, violation);
                next.store(plan.runs, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..plan.threads.max(1)).for_each(|_| {
            scope.spawn(work);
        });
    });
    Ok(summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}
