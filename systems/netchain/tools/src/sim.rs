//! `stateplane kv sim`: runs seeds through the simulator; shortens and draws one that fails.

use clap::Parser;
use command_line::{interrupt, outln};
use netchain_sim::{Bench, Plan, Scenario, Violation, run_many};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Lines of a chart that are printed.
const CHART_LINES: usize = 400;

/// Exit codes, beside 0.
const VIOLATED: u8 = 1;
/// As shells have it: 128 and the signal.
const INTERRUPTED: u8 = 130;

/// How many runs, and which.
#[derive(Parser, Debug)]
pub(crate) struct Args {
    /// The first seed; without it, one from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of seeds. Without --runs and --seconds: one if there is a --seed, else 1000.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Run for this many seconds.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Runs at the same time; by default one for each core.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Draw the run of --seed, whether it fails or not.
    #[arg(long, requires = "seed", conflicts_with_all = ["runs", "seconds"])]
    chart: bool,
    /// Do not look for a shorter run that fails.
    #[arg(long)]
    no_shrink: bool,
}

/// Runs the command; returns its exit code.
///
/// # Errors
/// The switch program is not accepted.
pub(crate) fn run(args: &Args) -> Result<u8, String> {
    let bench = Bench::new(None)?;
    if let Some(seed) = args.seed.filter(|_| args.chart) {
        let (outcome, chart) = bench.run(&Scenario::of_seed(seed), true);
        outln!("{}", chart.map_or_else(String::new, |chart| chart.render(usize::MAX)));
        return Ok(match outcome.violation {
            Some(violation) => {
                outln!("{violation}");
                VIOLATED
            }
            None => {
                outln!("seed {seed}: {} events, digest {:016x}", outcome.events, outcome.digest);
                0
            }
        });
    }
    let runs = match (args.runs, args.seconds, args.seed) {
        (Some(runs), ..) => runs,
        (None, Some(_), _) => u64::MAX,
        (None, None, Some(_)) => 1,
        (None, None, None) => 1_000,
    };
    let clock = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(1, |since| since.as_secs()) * 1_000_000
    };
    let threads =
        args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, usize::from);
    let plan = Plan {
        seed: args.seed.unwrap_or_else(clock),
        runs,
        time: args.seconds.map(Duration::from_secs),
        threads,
        stop: interrupt::requested,
    };
    interrupt::install();
    let began = Instant::now();
    let summary = run_many(&bench, plan, |_| ());
    for (seed, violation) in &summary.failures {
        outln!("seed {seed}: {violation}");
    }
    if let Some((seed, violation)) = summary.failures.first() {
        if !args.no_shrink {
            shorten(&bench, *seed, violation);
        }
        outln!("again: stateplane kv sim --seed {seed}");
    }
    let seconds = began.elapsed().as_secs_f64();
    outln!(
        "{} runs from seed {} in {seconds:.1} s ({:.1} a second): {} events; requests {:?}; \
         decisions {:?}; {} keys not judged in time; {} violations",
        summary.runs,
        plan.seed,
        summary.runs as f64 / seconds,
        summary.events,
        summary.requests,
        summary.decided,
        summary.undecided,
        summary.failures.len()
    );
    Ok(match summary.failures.is_empty() {
        false => VIOLATED,
        true if interrupt::requested() => INTERRUPTED,
        true => 0,
    })
}

fn shorten(bench: &Bench, seed: u64, violation: &Violation) {
    let whole = Scenario::of_seed(seed);
    let (shortest, replays) = bench.shrink(&whole, violation, interrupt::requested);
    let (outcome, chart) = bench.run(&shortest, true);
    let (steps, of) = (shortest.steps.len(), whole.steps.len());
    outln!("{steps} steps of {of} are enough ({replays} replays); {:?}", shortest.faults);
    for step in &shortest.steps {
        outln!("  after {:>10.3} ms: {:?}", step.pause_ns as f64 / 1e6, step.action);
    }
    if let Some(chart) = chart {
        outln!("{}", chart.render(CHART_LINES));
    }
    if let Some(violation) = outcome.violation {
        outln!("{violation}");
    }
}
