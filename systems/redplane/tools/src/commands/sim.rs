//! `stateplane sim`: runs seeds through the simulator; a failing one becomes short, and is drawn.

use command_line::{interrupt, outln};
use sim::{Bench, Kind, Plan, Resumed, Scenario, Summary, kind_of_seed, run_many};
use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines of a chart that are printed.
const CHART_LINES: usize = 400;
/// How far the runs have come is saved this often.
const SAVED_EVERY: Duration = Duration::from_secs(5);

/// Exit codes, beside 0 and 1 (a violation).
const COULD_NOT_RUN: u8 = 2;
/// As shells have it: 128 and the signal.
const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = "Examples:
  stateplane sim --seconds 60                 random runs for a minute, on all cores
  stateplane sim --seed 7 --chart             one run, drawn
  stateplane sim --seed 1 --runs 200 --object snapshots
  stateplane sim --runs 1000000 --resume runs.json    until stopped; run again to go on

Needs root: it loads the compiled programs into the kernel. The checks are listed in
systems/redplane/docs/correctness.md.

Exit codes: 0 all runs are good, 1 an invariant does not hold (it is printed, with the shortest
run that shows it), 2 the simulation could not run, 130 it was interrupted, and nothing had failed.";

/// Simulate switches, store and controller on a faulty network, and check the invariants
#[derive(clap::Parser, Debug)]
#[command(name = "sim", after_help = EXAMPLES)]
pub struct Args {
    /// The first seed; without it, one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds. Without --runs and --seconds: one if there is a --seed, else 1000.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Run for this many seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Only runs with this kind of state. By default the seed decides.
    #[arg(long, value_parser = Kind::ALL.map(Kind::name))]
    object: Option<String>,
    /// Runs at the same time; by default one for each core.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Save the progress in this file, and go on from it.
    #[arg(long, value_name = "FILE", conflicts_with = "chart")]
    resume: Option<PathBuf>,
    /// Draw the run of --seed, whether it fails or not.
    #[arg(long, requires = "seed", conflicts_with_all = ["runs", "seconds"])]
    chart: bool,
    /// Do not look for a shorter run that fails.
    #[arg(long)]
    no_shrink: bool,
}

/// Runs the command; returns its exit code.
pub fn run(args: Args) -> u8 {
    if let Err(error) = dataplane::check_permitted() {
        eprintln!("error: {error}");
        return COULD_NOT_RUN;
    }
    let named = |name: &str| Kind::ALL.into_iter().find(|kind| kind.name() == name);
    let kind = args.object.as_deref().and_then(named);
    match simulate(&args, kind) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            COULD_NOT_RUN
        }
    }
}

fn simulate(args: &Args, kind: Option<Kind>) -> Result<u8, String> {
    let clock = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(1)) * 1_000_000
    };
    let runs = match (args.runs, args.seconds, args.seed) {
        (Some(runs), ..) => runs,
        (None, Some(_), _) => u64::MAX,
        (None, None, Some(_)) => 1,
        (None, None, None) => 1_000,
    };
    if let Some(seed) = args.seed.filter(|_| args.chart) {
        return draw(seed, kind.unwrap_or_else(|| kind_of_seed(seed)));
    }
    let saved = args
        .resume
        .as_deref()
        .map(|path| Resumed::read(path, args.seed, kind))
        .transpose()?
        .flatten();
    let seed = saved.as_ref().map(|saved| saved.seed).or(args.seed).unwrap_or_else(clock);
    let saved = saved.map_or_else(|| Resumed::begin(seed, kind), Ok)?;
    let before = saved.summary();
    let threads =
        args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, usize::from);
    let plan = Plan {
        seed,
        runs,
        time: args.seconds.map(Duration::from_secs),
        threads,
        kind,
        stop: interrupt::requested,
    };
    if before.runs >= runs {
        outln!(
            "nothing left to do: {} runs from seed {seed} are done, without a violation",
            before.runs
        );
        return Ok(0);
    }
    interrupt::install();
    let progress = Progress::new(args.resume.as_deref(), &saved, plan);
    progress.begin();
    // Before hours of work: can it be kept?
    progress.save(&progress.saved.summary())?;
    let summary = run_many(plan, before, |so_far| progress.show(so_far))?;
    progress.save(&summary)?;
    for (seed, kind, violation) in &summary.failures {
        outln!("seed {seed} ({}): {violation}", kind.name());
    }
    if let Some((seed, kind, violation)) = summary.failures.first().filter(|_| !args.no_shrink) {
        shorten(*seed, *kind, violation)?;
    }
    let (again, code) = ending(&summary, plan);
    if let Some(again) = again {
        outln!("{again}");
    }
    outln!("{}", progress.sum_up(&summary));
    Ok(code)
}

/// The command that runs the first failing seed again, and the exit code.
fn ending(summary: &Summary, plan: Plan) -> (Option<String>, u8) {
    let again = summary.failures.first().map(|(seed, kind, _)| {
        let object = kind.name();
        format!("again: stateplane sim --seed {seed} --object {object}")
    });
    let code = match &again {
        Some(_) => 1,
        None if (plan.stop)() => INTERRUPTED,
        None => 0,
    };
    (again, code)
}

/// What many runs tell while they go on.
struct Progress<'a> {
    file: Option<&'a Path>,
    saved: &'a Resumed,
    plan: Plan,
    started: Instant,
    /// When it was shown last, and when saved.
    last: Mutex<(Instant, Instant)>,
}

impl<'a> Progress<'a> {
    fn new(file: Option<&'a Path>, saved: &'a Resumed, plan: Plan) -> Progress<'a> {
        let now = Instant::now();
        Progress { file, saved, plan, started: now, last: Mutex::new((now, now)) }
    }

    fn begin(&self) {
        let done = self.saved.summary().runs;
        let mut out = std::io::stderr();
        let _ = match done {
            0 => writeln!(out, "seeds from {}", self.plan.seed),
            _ => writeln!(out, "seeds from {}; {done} runs are done", self.plan.seed),
        };
    }

    /// Every few seconds, says how far it is, and saves that.
    fn show(&self, so_far: &Summary) {
        let pause = Duration::from_secs(if std::io::stderr().is_terminal() { 1 } else { 10 });
        let Ok(mut last) = self.last.lock() else { return };
        let mut out = std::io::stderr();
        if last.0.elapsed() >= pause {
            last.0 = Instant::now();
            let rate = self.rate(so_far);
            let left = self.plan.runs.saturating_sub(so_far.runs) as f64 / rate.max(1e-9);
            let left = match self.plan.time {
                Some(time) => left.min(time.saturating_sub(self.started.elapsed()).as_secs_f64()),
                None => left,
            };
            let seconds = self.started.elapsed().as_secs_f64();
            let _ = writeln!(
                out,
                "{seconds:>6.0} s: {} runs, {rate:.0} a second, {} left",
                so_far.runs,
                duration(left)
            );
        }
        if last.1.elapsed() >= SAVED_EVERY {
            last.1 = Instant::now();
            if let Err(error) = self.save(so_far) {
                let _ = writeln!(out, "error: {error}");
            }
        }
    }

    /// Runs a second, of this session.
    fn rate(&self, so_far: &Summary) -> f64 {
        (so_far.runs - self.saved.summary().runs) as f64 / self.started.elapsed().as_secs_f64()
    }

    fn seconds(&self) -> f64 {
        self.saved.seconds as f64 + self.started.elapsed().as_secs_f64()
    }

    fn save(&self, so_far: &Summary) -> Result<(), String> {
        let Some(file) = self.file.filter(|_| so_far.failures.is_empty()) else { return Ok(()) };
        self.saved.write(file, so_far, self.seconds() as u64)
    }

    fn sum_up(&self, summary: &Summary) -> String {
        let (total, runs) = (&summary.total, summary.runs);
        format!(
            "{runs} runs from seed {} in {:.1} s ({:.0} a second now): {} events ({:.0} a run, {} at the least), {} packets in, {} out, {} snapshots; {} violations",
            self.plan.seed,
            self.seconds(),
            self.rate(summary),
            total.events,
            total.events as f64 / runs.max(1) as f64,
            summary.least_events.unwrap_or(0),
            total.inputs,
            total.outputs,
            total.snapshots[0],
            summary.failures.len()
        )
    }
}

/// For people.
fn duration(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds if seconds < 1e7 => format!("{:.1} h", seconds / 3600.0),
        _ => "much".to_owned(),
    }
}

fn shorten(seed: u64, kind: Kind, violation: &sim::Violation) -> Result<(), String> {
    let mut bench = Bench::new(kind)?;
    let whole = Scenario::of_seed(seed, kind);
    let (shortest, replays) =
        bench.shrink(&whole, violation, interrupt::requested).map_err(|error| error.to_string())?;
    let (outcome, chart) = bench.run(&shortest, true).map_err(|error| error.to_string())?;
    outln!(
        "{} steps of {} are enough ({replays} replays); {:?}",
        shortest.steps.len(),
        whole.steps.len(),
        shortest.faults
    );
    for step in &shortest.steps {
        outln!("  after {:>10.3} ms: {:?}", step.pause_ns as f64 / 1e6, step.action);
    }
    if let Some(chart) = chart {
        outln!("{}", chart.render(CHART_LINES));
    }
    if let Some(violation) = outcome.violation {
        outln!("{violation}");
    }
    Ok(())
}

fn draw(seed: u64, kind: Kind) -> Result<u8, String> {
    let mut bench = Bench::new(kind)?;
    let (outcome, chart) =
        bench.run(&Scenario::of_seed(seed, kind), true).map_err(|error| error.to_string())?;
    outln!("{}", chart.map_or_else(String::new, |chart| chart.render(usize::MAX)));
    match &outcome.violation {
        Some(violation) => outln!("{violation}"),
        None => outln!(
            "seed {seed} ({}): {} events, digest {:016x}; 0 violations",
            kind.name(),
            outcome.events,
            outcome.digest
        ),
    }
    Ok(u8::from(outcome.violation.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_violation_is_exit_code_1_and_says_how_to_run_it_again() {
        let plan = Plan { seed: 5, runs: 9, time: None, threads: 1, kind: None, stop: || false };
        let mut summary = Summary::default();
        summary.add(5, Kind::Nat, sim::Outcome::default());
        assert_eq!(ending(&summary, plan), (None, 0));
        assert_eq!(ending(&summary, Plan { stop: || true, ..plan }), (None, INTERRUPTED));
        let violation = sim::Violation { check: "once", detail: "twice".to_owned() };
        summary.add(
            6,
            Kind::Nat,
            sim::Outcome { violation: Some(violation), ..Default::default() },
        );
        let (again, code) = ending(&summary, Plan { stop: || true, ..plan });
        assert_eq!(code, 1);
        // What it says is a command that means this seed's run.
        let again = again.expect("a command");
        let words = again.strip_prefix("again: stateplane ").expect("a command").split(' ');
        let args = Command::try_parse_from(words).expect("arguments").args;
        assert_eq!((args.seed, args.object.as_deref(), args.runs), (Some(6), Some("nat"), None));
    }
}
