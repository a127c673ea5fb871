//! Windows of a variable that switches share (SwiSh §8.1), each with all, some or one of its cells
//! changed.

use super::{Context, Experiment, Page};
use crate::report::Goal;
use crate::results::{Outcome, Row};
use crate::shared::cells::{BARE_BYTES, Cells, Counted, FULL_BYTES, Variable};
use crate::statistics::{Summary, quantile, summary};
use anyhow::{Result, ensure};
use serde_json::json;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-windows",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, windows",
        title: "how long a window of shared variables takes",
        quick: "2 min",
        full: "6 min",
        shows: "\
            windows of 3 × 65,536 counters or bit sets between two switches, with all cells changed, \
            a tenth and a hundredth; windows of one counter among 2 to 32 switches",
        paper: "\
            SwiSh §8.1: a window of 3 × 64 K counters takes 486 µs between two switches, one of a \
            single counter 3 µs.",
        method: "\
            Real switches, each in a namespace, with their agents on two CPUs; links have a queue \
            for each CPU. Windows follow each other without a pause, with everything on: the \
            ready phase, bitmaps of messages, tags, pins of packets on several CPUs. Packets could \
            not change 196,608 cells in each window, so user space fills both deltas through the \
            mapped arrays before the run. A switch clears nothing then. (Clearing is spread over \
            the packets that write.) After the run, all cells of all switches are compared with \
            what all switches have sent. Windows' times are the data plane's own, from the \
            beginning of one to the beginning of the next.",
    },
};

/// 3 x 64 K.
const LARGE: u32 = 3 * 65_536;
const WORST_WINDOW_US: f64 = 486.0;
const DENSE_BYTES: f64 = 786_432.0;

/// A row's variable.
struct Run {
    what: &'static str,
    paper: &'static str,
    switches: usize,
    variable: Variable,
    /// Of the median and the 99th percentile, in us.
    goals: [Option<f64>; 2],
    dense: bool,
}

const fn large(what: &'static str, bits: bool, changed: u32, goals: [Option<f64>; 2]) -> Run {
    let variable = Variable { cells: LARGE, bits, changed };
    Run { what, paper: "", switches: 2, variable, goals, dense: changed == 360 }
}

const fn small(what: &'static str, switches: usize, goals: [Option<f64>; 2]) -> Run {
    let variable = Variable { cells: 1, bits: false, changed: 1 };
    Run { what, paper: "", switches, variable, goals, dense: false }
}

const RUNS: [Run; 9] = [
    Run {
        paper: "486 µs",
        ..large("3 × 64 K counters", false, 360, [None, Some(WORST_WINDOW_US)])
    },
    large("3 × 64 K counters, 10 % changed", false, 36, [None, None]),
    large("3 × 64 K counters, 1 % changed", false, 4, [None, None]),
    large("3 × 64 K bit sets", true, 360, [Some(250.0), None]),
    Run { paper: "3 µs", ..small("one counter, 2 switches", 2, [Some(10.0), None]) },
    small("one counter, 4 switches", 4, [None, None]),
    small("one counter, 8 switches", 8, [None, None]),
    small("one counter, 16 switches", 16, [None, None]),
    small("one counter, 32 switches", 32, [None, None]),
];

fn run(context: &Context) -> Result<Outcome> {
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus >= 2, "shared-windows: this machine has one CPU; the experiment needs two");
    let rounds = context.pick(3, 5);
    let mut outcome = Outcome::default();
    let mut data = vec![];
    for run in &RUNS {
        let counted = measure(context, run, rounds)?;
        rows(run, &counted, &mut outcome.rows);
        data.push(json!({
            "what": run.what, "switches": run.switches,
            "rounds": counted.iter().map(round).collect::<Vec<_>>(),
        }));
    }
    outcome.data = json!(data);
    Ok(outcome)
}

fn round(counted: &Counted) -> serde_json::Value {
    let at = |fraction| quantile(&counted.window_us, fraction);
    json!({
        "windows": counted.windows, "p50_us": at(0.5), "p99_us": at(0.99),
        "frames": counted.frames, "messages": counted.messages,
    })
}

fn measure(context: &Context, run: &Run, rounds: u32) -> Result<Vec<Counted>> {
    let windows = match run.switches {
        _ if run.dense => context.pick(1_000, 2_000),
        // (All share two CPUs.)
        16.. => context.pick(200, 1_000),
        _ => context.pick(2_000, 10_000),
    };
    let places = &context.places;
    let cells = Cells::up(places, run.switches, run.variable)?;
    let mut counted = vec![];
    for round in 0..rounds {
        counted.push(cells.count(windows)?);
        context.progress(&format!("{}, round", run.what), round + 1, rounds);
    }
    cells.verify()?;
    Ok(counted)
}

fn of(counted: &[Counted], value: impl Fn(&Counted) -> f64) -> Summary {
    summary(&counted.iter().map(value).collect::<Vec<_>>())
}

fn rows(run: &Run, counted: &[Counted], rows: &mut Vec<Row>) {
    let quantiles = [("median", 0.5), ("99th percentile", 0.99)];
    for ((name, fraction), goal) in quantiles.into_iter().zip(run.goals) {
        let took = of(counted, |it| quantile(&it.window_us, fraction));
        let row = Row::value(format!("{}: {name}", run.what), run.paper, took, 1, "µs");
        rows.push(match goal {
            Some(goal) => row.with_goal(Goal::AtMost(goal)),
            None => row,
        });
    }
    if run.variable.cells == LARGE {
        let frames = of(counted, |it| it.frames);
        let row = Row::value(format!("{}: packets each way", run.what), "", frames, 1, "");
        rows.push(if run.dense { row.with_goal(Goal::AtMost(560.0)) } else { row });
        let bytes = of(counted, |it| {
            let bare = (it.frames - it.messages).max(0.0);
            it.messages * f64::from(FULL_BYTES) + bare * f64::from(BARE_BYTES)
        });
        let row = Row::value(format!("{}: bytes each way", run.what), "", bytes, 0, "B");
        let goal = Goal::AtMost((1.1 * DENSE_BYTES).floor());
        rows.push(if run.dense { row.with_goal(goal) } else { row });
    }
}
