//! Runs: one by its scenario, many by their seeds, on all cores; and how a failing one becomes
//! short.

use crate::chart::Chart;
use crate::node::Template;
use crate::scenario::Scenario;
use crate::seeded::SeededBug;
use crate::world::{Violation, World};
use p4_ir::Program;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Replays that shrinking a run may cost.
const MOST_SHRINKING: u64 = 300;

/// A switch program for many runs.
pub struct Bench {
    program: Program,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcome {
    /// What did not hold, if anything.
    pub violation: Option<Violation>,
    /// Frames, timers and decisions.
    pub events: u64,
    /// Requests that are over, by what became of them.
    pub requests: BTreeMap<&'static str, u64>,
    /// Members that joined, switches that died, groups that were lost, and so on.
    pub decided: BTreeMap<&'static str, u64>,
    /// Keys whose history could not be judged in time.
    pub undecided: u64,
    /// Of everything that happened: two runs of one scenario have the same.
    pub digest: u64,
}

fn name(event: &netchain_controller::Event) -> &'static str {
    use netchain_controller::Event::{Collected, Collects, Moves};
    use netchain_controller::Event::{Died, Emptied, Joined, Joins, Left, Lost, Mute, Returned};
    match event {
        Died(_) => "died",
        Mute(_) => "mute",
        Emptied(_) => "emptied",
        Returned(_) => "returned",
        Joins(..) => "joins",
        Moves(..) => "moves",
        Joined(..) => "joined",
        Left(..) => "left",
        Lost(_) => "lost",
        Collects(_) => "collects",
        Collected(_) => "collected",
    }
}

impl Bench {
    /// Reads the switch program, with this bug.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn new(bug: Option<&SeededBug>) -> Result<Bench, String> {
        Ok(Bench { program: crate::program::compile(bug)? })
    }

    /// Runs a scenario; `chart`: also draws it. A panic of what is run is a violation (and then
    /// there is no chart).
    pub fn run(&self, scenario: &Scenario, chart: bool) -> (Outcome, Option<Chart>) {
        let ran = catch_unwind(AssertUnwindSafe(|| self.run_through(scenario, chart)));
        let (check, detail) = match ran {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(error)) => ("program", error),
            Err(panic) => {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or(panic.downcast_ref::<&str>().copied());
                ("panic", text.unwrap_or("without words").to_owned())
            }
        };
        let violation = Some(Violation { check, detail });
        (Outcome { violation, ..Outcome::default() }, None)
    }

    fn run_through(
        &self,
        scenario: &Scenario,
        chart: bool,
    ) -> Result<(Outcome, Option<Chart>), String> {
        let template = Template::new(&self.program).map_err(|stop| stop.to_string())?;
        let mut world = World::start(template, scenario, chart)?;
        world.run(&scenario.steps);
        if world.violation.is_none() {
            world.finish();
        }
        // (A history that is wrong says more than that something does not go on.)
        let mut undecided = 0;
        if world.violation.as_ref().is_none_or(|it| it.check != "program") {
            match world.history.judge(scenario.keys) {
                Ok(count) => undecided = count,
                Err((check, detail)) => world.violation = Some(Violation { check, detail }),
            }
        }
        let mut decided = BTreeMap::new();
        for (_, event) in &world.decided {
            *decided.entry(name(event)).or_default() += 1;
        }
        let outcome = Outcome {
            violation: world.violation.take(),
            events: world.happened,
            requests: std::mem::take(&mut world.history.counts),
            decided,
            undecided,
            digest: world.digest(),
        };
        Ok((outcome, world.chart.take()))
    }

    /// The shortest scenario found that fails the same check: steps are left out, then kinds of
    /// faults. Also how many replays it took. `stop`: what was found until then is it.
    pub fn shrink(
        &self,
        scenario: &Scenario,
        violation: &Violation,
        stop: fn() -> bool,
    ) -> (Scenario, u64) {
        let mut best = scenario.clone();
        let mut replays = 0;
        let mut fails = |candidate: &Scenario| {
            if replays == MOST_SHRINKING || stop() {
                return false;
            }
            replays += 1;
            let (outcome, _) = self.run(candidate, false);
            outcome.violation.is_some_and(|found| found.check == violation.check)
        };
        loop {
            let before = best.clone();
            let Ok::<_, ()>(steps) = simnet::shorten(
                &before.steps,
                |_| false,
                |steps| Ok(fails(&Scenario { steps: steps.to_vec(), ..before.clone() })),
            ) else {
                break;
            };
            best.steps = steps;
            for faults in best.faults.lesser() {
                let candidate = Scenario { faults, ..best.clone() };
                if fails(&candidate) {
                    best = candidate;
                }
            }
            if best == before {
                break;
            }
        }
        (best, replays)
    }
}

/// Which seeds.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The first.
    pub seed: u64,
    /// How many, at most.
    pub runs: u64,
    /// For how long, at most.
    pub time: Option<Duration>,
    /// How many at once.
    pub threads: usize,
    /// Asked before each run: is it to be the end?
    pub stop: fn() -> bool,
}

/// All runs together.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// Of all of them.
    pub events: u64,
    /// Requests of all of them, by what became of them.
    pub requests: BTreeMap<&'static str, u64>,
    /// What controllers decided in all of them.
    pub decided: BTreeMap<&'static str, u64>,
    /// Keys whose history could not be judged in time.
    pub undecided: u64,
    /// Failing seeds.
    pub failures: Vec<(u64, Violation)>,
}

impl Summary {
    /// Counts a run.
    pub fn add(&mut self, seed: u64, outcome: Outcome) {
        self.runs += 1;
        self.events += outcome.events;
        self.undecided += outcome.undecided;
        for (what, count) in outcome.requests {
            *self.requests.entry(what).or_default() += count;
        }
        for (what, count) in outcome.decided {
            *self.decided.entry(what).or_default() += count;
        }
        self.failures.extend(outcome.violation.map(|violation| (seed, violation)));
    }
}

/// Runs seeds on all cores until the plan is done or one fails. `progress` is told after each run.
pub fn run_many(bench: &Bench, plan: Plan, progress: impl Fn(&Summary) + Sync) -> Summary {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    let is_late = || plan.time.is_some_and(|time| started.elapsed() >= time);
    let is_over = || failed.load(Ordering::Relaxed) || is_late() || (plan.stop)();
    let work = || {
        while !is_over() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= plan.runs {
                break;
            }
            let seed = plan.seed.wrapping_add(number);
            let (outcome, _) = bench.run(&Scenario::of_seed(seed), false);
            failed.fetch_or(outcome.violation.is_some(), Ordering::Relaxed);
            let Ok(mut summary) = summary.lock() else { break };
            summary.add(seed, outcome);
            progress(&summary);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(work);
        }
    });
    summary.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}
