//! `stateplane sim`: runs seeds through the simulator; a failing one becomes short, and is drawn.

use sim::{Bench, Kind, Plan, Scenario, Summary, kind_of_seed, run_many};
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines of a chart that are printed.
const CHART_LINES: usize = 400;

const EXAMPLES: &str = "Examples:
  stateplane sim --seconds 60                 random runs for a minute, on all cores
  stateplane sim --seed 7 --chart             one run, drawn
  stateplane sim --seed 1 --runs 200 --object snapshots";

/// The compiled programs, the store and the controller on a simulated network with faults. Exit code 1: something did not hold; what, and the shortest run that
/// shows it, is printed. Needs root (it loads the programs into the kernel). docs/correctness.md says what is checked.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The first seed; without it, one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds from there on. Without --runs and --seconds: one if there is a --seed, else 1000.
    #[arg(long)]
    runs: Option<u64>,
    /// For so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Only this: linearizable, asynchronous or snapshots. Without it, the seed says which.
    #[arg(long)]
    object: Option<String>,
    /// Runs at the same time; without it, one for each core.
    #[arg(long)]
    jobs: Option<usize>,
    /// Draw the run of --seed, whether it fails or not.
    #[arg(long)]
    chart: bool,
    /// Do not look for a shorter run that fails.
    #[arg(long)]
    no_shrink: bool,
}

/// Runs the command; returns its exit code.
pub fn run(args: Args) -> u8 {
    if let Err(error) = dataplane::check_permitted() {
        eprintln!("error: {error}");
        return 1;
    }
    let kind = match args.object.as_deref().map(|name| (name, Kind::ALL.iter().find(|kind| kind.name() == name))) {
        Some((name, None)) => {
            eprintln!("error: --object {name}: not linearizable, asynchronous or snapshots");
            return 2;
        }
        Some((_, kind)) => kind.copied(),
        None => None,
    };
    match simulate(&args, kind) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    }
}

fn simulate(args: &Args, kind: Option<Kind>) -> Result<u8, String> {
    let clock = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(1)) * 1_000_000
    };
    let seed = args.seed.unwrap_or_else(clock);
    let runs = match (args.runs, args.seconds, args.seed) {
        (Some(runs), ..) => runs,
        (None, Some(_), _) => u64::MAX,
        (None, None, Some(_)) => 1,
        (None, None, None) => 1_000,
    };
    if args.chart {
        return draw(seed, kind.unwrap_or_else(|| kind_of_seed(seed)));
    }
    let threads = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let plan = Plan { seed, runs, time: args.seconds.map(Duration::from_secs), threads, kind };
    let started = Instant::now();
    let shown = Mutex::new(Instant::now());
    let summary = run_many(plan, |so_far| show(&shown, started, so_far))?;
    for (seed, kind, violation) in &summary.failures {
        outln!("seed {seed} ({}): {violation}", kind.name());
    }
    if let Some((seed, kind, violation)) = summary.failures.first().filter(|_| !args.no_shrink) {
        shorten(*seed, *kind, violation)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    let total = &summary.total;
    outln!(
        "{} runs from seed {seed} in {seconds:.1} s ({:.0} a second): {} events ({:.0} a run), {} packets in, {} out, {} snapshots; {} violations",
        summary.runs,
        summary.runs as f64 / seconds,
        total.events,
        total.events as f64 / summary.runs.max(1) as f64,
        total.inputs,
        total.outputs,
        total.snapshots[0],
        summary.failures.len()
    );
    Ok(u8::from(!summary.failures.is_empty()))
}

/// Progress, every few seconds.
fn show(shown: &Mutex<Instant>, started: Instant, so_far: &Summary) {
    let pause = Duration::from_secs(if std::io::stderr().is_terminal() { 1 } else { 10 });
    let Ok(mut last) = shown.lock() else { return };
    if last.elapsed() >= pause {
        *last = Instant::now();
        let seconds = started.elapsed().as_secs_f64();
        let mut out = std::io::stderr();
        let _ = writeln!(out, "{:>6.0} s: {} runs, {:.0} a second", seconds, so_far.runs, so_far.runs as f64 / seconds);
    }
}

fn scenario(seed: u64, kind: Kind) -> Scenario {
    Scenario::of_seed(seed, kind != Kind::Snapshots)
}

fn shorten(seed: u64, kind: Kind, violation: &sim::Violation) -> Result<(), String> {
    let mut bench = Bench::new(kind)?;
    let whole = scenario(seed, kind);
    let (shortest, replays) = bench.shrink(&whole, violation).map_err(|error| error.to_string())?;
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
    outln!("again: stateplane sim --seed {seed} --object {}", kind.name());
    Ok(())
}

fn draw(seed: u64, kind: Kind) -> Result<u8, String> {
    let mut bench = Bench::new(kind)?;
    let (outcome, chart) = bench.run(&scenario(seed, kind), true).map_err(|error| error.to_string())?;
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
