//! Runs: one by its scenario, many by their seeds, on all cores; and how a failing one becomes short.

use crate::chart::Chart;
use crate::checks::Violation;
use crate::program::{Kind, Program};
use crate::scenario::{Action, Scenario};
use crate::switch::Switch;
use crate::world::World;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Replays that shrinking a run may cost.
const MOST_SHRINKING: u64 = 400;

/// A program, and switches that are loaded with it: they are used again and again.
pub struct Bench {
    program: Program,
    switches: Vec<Switch>,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcome {
    /// What did not hold, if anything.
    pub violation: Option<Violation>,
    /// Messages that arrived and packets that left.
    pub events: u64,
    /// Packets that came in.
    pub inputs: u64,
    /// Packets that went out.
    pub outputs: u64,
    /// Of everything that happened: two runs of one scenario have the same.
    pub digest: u64,
    /// Snapshots: taken; tenants that another switch went on with; counts that were taken back by that.
    pub snapshots: [u64; 3],
    /// Packets of a SnapshotState that went on without a lease.
    pub without_lease: u64,
}

impl Bench {
    /// Compiles the program of this kind.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn new(kind: Kind) -> Result<Bench, String> {
        let defines: &[&str] =
            if kind == Kind::Snapshots { &["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=400"] } else { &[] };
        Ok(Bench::with(Program::compile(kind, defines, &[])?))
    }

    /// With this program.
    pub fn with(program: Program) -> Bench {
        Bench { program, switches: Vec::new() }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs a scenario; `chart`: also draws it.
    ///
    /// # Errors
    /// The kernel refuses something: nothing can be said of the run then.
    pub fn run(&mut self, scenario: &Scenario, chart: bool) -> dataplane::Result<(Outcome, Option<Chart>)> {
        let switches = std::mem::take(&mut self.switches);
        let mut world = World::start(&self.program, switches, scenario, chart)?;
        world.run(&scenario.steps)?;
        world.check_alive(scenario.flows, &last_switches(scenario))?;
        let judged = match self.program.kind {
            Kind::Linearizable => world.operations.check(world.clocks_are_sound),
            Kind::Asynchronous if scenario.faults.keeps_state() => world.operations.check(true),
            _ => Ok(()),
        };
        if let Err(detail) = judged {
            world.violated("linearizable", detail);
        }
        let (inputs, outputs) = world.operations.counts();
        let sketch = world.sketch.as_ref();
        let outcome = Outcome {
            violation: world.violation.take(),
            events: world.events,
            inputs,
            outputs: sketch.map_or(outputs, |sketch| sketch.updates),
            digest: world.digest(),
            snapshots: sketch.map_or([0; 3], |sketch| [sketch.snapshots, sketch.handed_over, sketch.lost]),
            without_lease: sketch.map_or(0, |sketch| sketch.without_lease),
        };
        let chart = world.chart.take();
        self.switches = world.into_switches();
        Ok((outcome, chart))
    }

    /// The shortest scenario found that fails the same check: steps are left out, in halves, quarters and so on down to single ones (Zeller's and Hildebrandt's delta
    /// debugging), then kinds of faults. Also how many replays it took.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub fn shrink(&mut self, scenario: &Scenario, violation: &Violation) -> dataplane::Result<(Scenario, u64)> {
        let mut best = scenario.clone();
        let mut replays = 0;
        let mut fails = |bench: &mut Bench, candidate: &Scenario| -> dataplane::Result<bool> {
            replays += 1;
            let (outcome, _) = bench.run(candidate, false)?;
            Ok(replays <= MOST_SHRINKING && outcome.violation.is_some_and(|found| found.check == violation.check))
        };
        loop {
            let before = best.clone();
            let mut chunk = best.steps.len().div_ceil(2).max(1);
            loop {
                let mut at = 0;
                while at < best.steps.len() {
                    let mut candidate = best.clone();
                    candidate.steps.drain(at..(at + chunk).min(best.steps.len()));
                    match fails(self, &candidate)? {
                        true => best = candidate,
                        false => at += chunk,
                    }
                }
                if chunk == 1 {
                    break;
                }
                chunk = chunk.div_ceil(2);
            }
            for faults in best.faults.lesser() {
                let candidate = Scenario { faults, ..best.clone() };
                if fails(self, &candidate)? {
                    best = candidate;
                }
            }
            if best == before {
                return Ok((best, replays));
            }
        }
    }
}

/// Where each flow's packets went last.
fn last_switches(scenario: &Scenario) -> Vec<usize> {
    let mut last = vec![0; scenario.flows as usize];
    for step in &scenario.steps {
        if let Action::Packet { switch, flow, .. } = step.action {
            last[flow as usize] = switch;
        }
    }
    last
}

/// What a seed's run is about.
pub fn kind_of_seed(seed: u64) -> Kind {
    match state_store::core::SplitMix64::mix(seed) % 8 {
        0..5 => Kind::Linearizable,
        5 => Kind::Asynchronous,
        _ => Kind::Snapshots,
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
    /// Only this.
    pub kind: Option<Kind>,
}

/// All runs together.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// Events, inputs and outputs of all of them.
    pub total: Outcome,
    /// Failing seeds, lowest first.
    pub failures: Vec<(u64, Kind, Violation)>,
}

/// Runs seeds on all cores until the plan is done or one fails; `progress` is told now and then.
///
/// # Errors
/// The compiler or the kernel refuses something.
pub fn run_many(plan: Plan, progress: impl Fn(&Summary) + Sync) -> Result<Summary, String> {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    let is_over = || failed.load(Ordering::Relaxed) || plan.time.is_some_and(|time| started.elapsed() >= time);
    let work = || -> Result<(), String> {
        let mut benches: Vec<Bench> = Vec::new();
        while !is_over() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= plan.runs {
                break;
            }
            let seed = plan.seed.wrapping_add(number);
            let kind = plan.kind.unwrap_or_else(|| kind_of_seed(seed));
            let at = match benches.iter().position(|bench| bench.program.kind == kind) {
                Some(at) => at,
                None => {
                    benches.push(Bench::new(kind)?);
                    benches.len() - 1
                }
            };
            let scenario = Scenario::of_seed(seed, kind != Kind::Snapshots);
            let (outcome, _) = benches[at].run(&scenario, false).map_err(|error| format!("seed {seed}: {error}"))?;
            let Ok(mut summary) = summary.lock() else { break };
            summary.add(seed, kind, outcome);
            failed.fetch_or(!summary.failures.is_empty(), Ordering::Relaxed);
            progress(&summary);
        }
        Ok(())
    };
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.threads.max(1)).map(|_| scope.spawn(work)).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<(), String>>| {
            thread.join().unwrap_or_else(|_| Err("a run's thread panicked".to_owned()))
        };
        threads.into_iter().map(ended).collect()
    });
    results.into_iter().collect::<Result<(), String>>()?;
    let mut summary = summary.into_inner().map_err(|_| "a run's thread panicked".to_owned())?;
    summary.failures.sort_by_key(|(seed, ..)| *seed);
    Ok(summary)
}

impl Summary {
    /// Counts a run.
    pub fn add(&mut self, seed: u64, kind: Kind, outcome: Outcome) {
        self.runs += 1;
        self.total.events += outcome.events;
        self.total.inputs += outcome.inputs;
        self.total.outputs += outcome.outputs;
        for (sum, part) in self.total.snapshots.iter_mut().zip(outcome.snapshots) {
            *sum += part;
        }
        self.failures.extend(outcome.violation.map(|violation| (seed, kind, violation)));
    }
}
