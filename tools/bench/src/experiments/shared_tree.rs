//! Windows of a group of many switches: each sends each other one its messages, or all over an
//! aggregation tree.

use super::{Context, Experiment, Page};
use crate::results::{Outcome, Row};
use crate::shared::cells::{Cells, Counted, Variable};
use crate::statistics::{quantile, summary};
use anyhow::{Result, ensure};
use serde_json::json;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-tree",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, trees",
        title: "how long a window takes over an aggregation tree",
        quick: "6 min",
        full: "12 min",
        shows: "\
            windows of one set of bits among 8, 16 and 32 switches, and of 3 × 4,096 sets, all \
            changed, among 8 and 16: without a tree, and with trees whose switches have 2 or 4 \
            children; messages and bytes of all switches",
        paper: "\
            SwiSh has no such tree: each switch sends each other one its updates.",
        method: "\
            As in `shared-windows`: real switches in namespaces on two CPUs, windows without a \
            pause, contents verified afterwards. Sets of bits, as user space fills the deltas once \
            and totals go into them: unions stay what they are. Links are the same with and \
            without a tree. All switches share two CPUs, so what is measured is the work of all, \
            and hops take as long as switches wait for a CPU. On switches of their own, hops \
            count for more, and the work of others for nothing.",
    },
};

/// In blocks: 35.
const LARGE: u32 = 3 * 4096;
/// Children at the most; 0: no tree.
const TREES: [u32; 3] = [0, 2, 4];

struct Run {
    what: &'static str,
    switches: usize,
    variable: Variable,
}

const fn run_of(what: &'static str, switches: usize, cells: u32, changed: u32) -> Run {
    Run { what, switches, variable: Variable { cells, bits: true, changed } }
}

const RUNS: [Run; 5] = [
    run_of("one cell, 8 switches", 8, 1, 1),
    run_of("one cell, 16 switches", 16, 1, 1),
    run_of("one cell, 32 switches", 32, 1, 1),
    run_of("3 × 4,096 cells, 8 switches", 8, LARGE, 360),
    run_of("3 × 4,096 cells, 16 switches", 16, LARGE, 360),
];

fn run(context: &Context) -> Result<Outcome> {
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus >= 2, "shared-tree: this machine has one CPU; the experiment needs two");
    let mut outcome = Outcome::default();
    let (mut data, mut done) = (vec![], 0);
    for run in &RUNS {
        for tree in TREES {
            let name = match tree {
                0 => format!("{}, no tree", run.what),
                _ => format!("{}, tree of {tree}", run.what),
            };
            let counted = measure(context, run, tree)?;
            rows(&name, &counted, &mut outcome.rows);
            let rounds: Vec<_> = counted.iter().map(round).collect();
            data.push(json!({ "what": name, "tree": tree, "rounds": rounds }));
            done += 1;
            context.progress("groups", done, (RUNS.len() * TREES.len()) as u32);
        }
    }
    outcome.data = json!(data);
    Ok(outcome)
}

fn measure(context: &Context, run: &Run, tree: u32) -> Result<Vec<Counted>> {
    let Run { switches, variable, .. } = *run;
    let cells = match tree {
        0 => Cells::up(&context.places, switches, variable)?,
        _ => Cells::tree(&context.places, switches, variable, tree)?,
    };
    let windows =
        if variable.cells == 1 { context.pick(200, 1_000) } else { context.pick(50, 200) };
    let rounds = context.pick(3, 5);
    let counted = (0..rounds).map(|_| cells.count(windows)).collect::<Result<_>>()?;
    cells.verify()?;
    Ok(counted)
}

fn round(counted: &Counted) -> serde_json::Value {
    let at = |fraction| quantile(&counted.window_us, fraction);
    json!({
        "windows": counted.windows, "p50_us": at(0.5), "p99_us": at(0.99),
        "messages": counted.group_messages, "bytes": counted.group_bytes,
    })
}

fn rows(name: &str, counted: &[Counted], rows: &mut Vec<Row>) {
    let of =
        |value: &dyn Fn(&Counted) -> f64| summary(&counted.iter().map(value).collect::<Vec<_>>());
    for (what, fraction) in [("median", 0.5), ("99th percentile", 0.99)] {
        let took = of(&|it| quantile(&it.window_us, fraction));
        rows.push(Row::value(format!("{name}: {what}"), "", took, 1, "µs"));
    }
    let messages = of(&|it| it.group_messages);
    rows.push(Row::value(format!("{name}: messages with cells"), "", messages, 0, ""));
    let bytes = of(&|it| it.group_bytes);
    rows.push(Row::value(format!("{name}: bytes"), "", bytes, 0, "B"));
}
