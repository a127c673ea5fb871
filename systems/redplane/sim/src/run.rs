//! Runs: one by its scenario, many by their seeds, on all cores; and how a failing one becomes
//! short.

use crate::chart::Chart;
use crate::checks::Violation;
use crate::program::{Kind, Program};
use crate::scenario::{Action, Scenario, Step};
use crate::switch::Switch;
use crate::world::World;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
    /// Messages that arrived, from when the chains served on.
    pub events: u64,
    /// Packets that came in.
    pub inputs: u64,
    /// Packets that went out.
    pub outputs: u64,
    /// Of everything that happened: two runs of one scenario have the same.
    pub digest: u64,
    /// Snapshots: taken; tenants that another switch went on with; counts that were taken back by
    /// that.
    pub snapshots: [u64; 3],
    /// Packets of a SnapshotState that went on without a lease.
    pub without_lease: u64,
    /// Times that a switch began a key's window anew.
    pub windows: u64,
    /// Batches that programs of the chain's fast path took.
    pub fast: u64,
}

impl Bench {
    /// Compiles the program of this kind.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn new(kind: Kind) -> Result<Bench, String> {
        Ok(Bench::with(Program::compile(kind, Bench::p4_defines(kind), None)?))
    }

    /// Macros of the P4 source that the swarm's programs are compiled with.
    pub fn p4_defines(kind: Kind) -> &'static [&'static str] {
        if kind == Kind::Snapshots {
            &["OVERDUE=DROP", "EPSILON_US=150000", "SLOTS=800"]
        } else {
            &[]
        }
    }

    /// With this program.
    pub fn with(program: Program) -> Bench {
        Bench { program, switches: Vec::new() }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs a scenario; `chart`: also draws it. A panic of what is run is a violation (and then
    /// there is no chart).
    ///
    /// # Errors
    /// The kernel refuses something: nothing can be said of the run then.
    pub fn run(
        &mut self,
        scenario: &Scenario,
        chart: bool,
    ) -> dataplane::Result<(Outcome, Option<Chart>)> {
        // What it leaves behind is dropped: the next run loads switches of its own.
        catch_unwind(AssertUnwindSafe(|| self.run_through(scenario, chart))).unwrap_or_else(
            |panic| {
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or(panic.downcast_ref::<&str>().copied());
                let detail = text.unwrap_or("without words").to_owned();
                Ok((
                    Outcome {
                        violation: Some(Violation { check: "panic", detail }),
                        ..Outcome::default()
                    },
                    None,
                ))
            },
        )
    }

    fn run_through(
        &mut self,
        scenario: &Scenario,
        chart: bool,
    ) -> dataplane::Result<(Outcome, Option<Chart>)> {
        let switches = std::mem::take(&mut self.switches);
        let mut world = World::start(&self.program, switches, scenario, chart)?;
        world.run(&scenario.steps)?;
        world.check_alive(scenario.flows, &last_switches(scenario))?;
        let judged = match self.program.kind {
            kind if kind.is_linearizable() => world.operations.check(world.clocks_are_sound),
            kind if kind.is_asynchronous()
                && scenario.faults.keeps_state()
                && world.clocks_are_sound =>
            {
                world.operations.check(true)
            }
            _ => world
                .bindings
                .as_ref()
                .map_or(Ok(()), |bindings| world.operations.check_bindings(bindings)),
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
            snapshots: sketch
                .map_or([0; 3], |sketch| [sketch.snapshots, sketch.handed_over, sketch.lost]),
            without_lease: sketch.map_or(0, |sketch| sketch.without_lease),
            windows: sketch.map_or(0, |sketch| sketch.windows),
            fast: world.store.fast.taken,
        };
        let chart = world.chart.take();
        self.switches = world.into_switches();
        Ok((outcome, chart))
    }

    /// The shortest scenario found that fails the same check: steps are left out, in halves,
    /// quarters and so on down to single ones (Zeller's and Hildebrandt's delta debugging), then
    /// kinds of faults. Also how many replays it took. `stop`: what was found until then is it.
    ///
    /// # Errors
    /// The kernel refuses something.
    pub fn shrink(
        &mut self,
        scenario: &Scenario,
        violation: &Violation,
        stop: fn() -> bool,
    ) -> dataplane::Result<(Scenario, u64)> {
        let mut best = scenario.clone();
        let mut replays = 0;
        let mut fails = |bench: &mut Bench, candidate: &Scenario| -> dataplane::Result<bool> {
            if replays == MOST_SHRINKING || stop() {
                return Ok(false);
            }
            replays += 1;
            let (outcome, _) = bench.run(candidate, false)?;
            Ok(outcome.violation.is_some_and(|found| found.check == violation.check))
        };
        loop {
            let before = best.clone();
            // Of a change of secrets all steps stay, or none: half of one would be another fault.
            let rotates = |step: &Step| matches!(step.action, Action::Rotate(..));
            let whole = best.clone();
            best.steps = simnet::shorten(&whole.steps, rotates, |steps| {
                fails(self, &Scenario { steps: steps.to_vec(), ..whole.clone() })
            })?;
            let mut candidate = best.clone();
            candidate.steps.retain(|step| !matches!(step.action, Action::Rotate(..)));
            if candidate != best && fails(self, &candidate)? {
                best = candidate;
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
    let drawn = state_store::core::SplitMix64::mix(seed);
    match drawn % 10 {
        0..3 => Kind::Linearizable,
        3 | 4 => Kind::Batched,
        5 => match drawn / 10 % 4 {
            0 => Kind::Overflowing,
            1 => Kind::Gathered,
            2 => Kind::Grouped,
            _ => Kind::Asynchronous,
        },
        6 | 7 => Kind::Snapshots,
        8 => Kind::Nat,
        _ => Kind::Balancer,
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
    /// Asked before each run: is it to be the end?
    pub stop: fn() -> bool,
}

/// All runs together.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs: all of the first so many seeds.
    pub runs: u64,
    /// Of the run with the fewest.
    pub least_events: Option<u64>,
    /// Events, inputs and outputs of all of them.
    pub total: Outcome,
    /// Failing seeds, in order.
    pub failures: Vec<(u64, Kind, Violation)>,
}

/// What is done, and what is done ahead of a run that goes on.
struct Done {
    summary: Summary,
    ahead: BTreeMap<u64, (u64, Kind, Outcome)>,
}

impl Done {
    fn add(&mut self, number: u64, seed: u64, kind: Kind, outcome: Outcome) {
        self.ahead.insert(number, (seed, kind, outcome));
        while let Some((seed, kind, outcome)) = self.ahead.remove(&self.summary.runs) {
            self.summary.add(seed, kind, outcome);
        }
    }
}

/// Runs seeds on all cores until the plan is done or one fails, or cannot be run. It goes on from
/// `before`, whose runs count as the plan's first; `progress` is told after each run what is done
/// without a gap.
///
/// # Errors
/// The compiler or the kernel refuses something, and nothing was violated until then.
pub fn run_many(
    plan: Plan,
    before: Summary,
    progress: impl Fn(&Summary) + Sync,
) -> Result<Summary, String> {
    let started = Instant::now();
    let next = AtomicU64::new(before.runs);
    let failed = AtomicBool::new(false);
    let done = Mutex::new(Done { summary: before, ahead: BTreeMap::new() });
    let is_late = || plan.time.is_some_and(|time| started.elapsed() >= time);
    let is_over = || failed.load(Ordering::Relaxed) || is_late() || (plan.stop)();
    let run = |benches: &mut Vec<Bench>, seed: u64, kind: Kind| -> Result<Outcome, String> {
        let at = match benches.iter().position(|bench| bench.program.kind == kind) {
            Some(at) => at,
            None => {
                benches.push(Bench::new(kind)?);
                benches.len() - 1
            }
        };
        let scenario = Scenario::of_seed(seed, kind);
        let (outcome, _) = benches[at].run(&scenario, false).map_err(|error| error.to_string())?;
        Ok(outcome)
    };
    let work = || -> Result<(), String> {
        let mut benches: Vec<Bench> = Vec::new();
        while !is_over() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= plan.runs {
                break;
            }
            let seed = plan.seed.wrapping_add(number);
            let kind = plan.kind.unwrap_or_else(|| kind_of_seed(seed));
            let outcome = match run(&mut benches, seed, kind) {
                Ok(outcome) => outcome,
                // Ctrl-C goes to all processes of a terminal, also to a compiler.
                Err(_) if (plan.stop)() => break,
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(format!("seed {seed} ({}): {error}", kind.name()));
                }
            };
            failed.fetch_or(outcome.violation.is_some(), Ordering::Relaxed);
            let Ok(mut done) = done.lock() else { break };
            done.add(number, seed, kind, outcome);
            progress(&done.summary);
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
    let Done { mut summary, ahead } =
        done.into_inner().map_err(|_| "a run's thread panicked".to_owned())?;
    // What was found beyond a run that did not come to its end counts as found.
    let beyond = ahead
        .into_values()
        .filter_map(|(seed, kind, outcome)| Some((seed, kind, outcome.violation?)));
    summary.failures.extend(beyond);
    match results.into_iter().collect::<Result<(), String>>() {
        Err(error) if summary.failures.is_empty() => Err(error),
        _ => Ok(summary),
    }
}

impl Summary {
    /// Counts a run.
    pub fn add(&mut self, seed: u64, kind: Kind, outcome: Outcome) {
        self.runs += 1;
        self.least_events =
            Some(self.least_events.map_or(outcome.events, |least| least.min(outcome.events)));
        self.total.events += outcome.events;
        self.total.inputs += outcome.inputs;
        self.total.outputs += outcome.outputs;
        self.total.fast += outcome.fast;
        for (sum, part) in self.total.snapshots.iter_mut().zip(outcome.snapshots) {
            *sum += part;
        }
        self.failures.extend(outcome.violation.map(|violation| (seed, kind, violation)));
    }
}
