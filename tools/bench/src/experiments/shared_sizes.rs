//! How long windows take, by the size of what is shared and the number of switches (SwiSh Figure
//! 5f).

use super::{Context, Experiment, Page};
use crate::results::{Figure, Outcome, Row};
use crate::shared::cells::{Cells, Counted, Variable};
use crate::statistics::{Summary, quantile, summary};
use anyhow::{Result, ensure};
use plot::{Axes, Line};
use serde_json::json;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-sizes",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, Figure 5f",
        title: "how long a window takes, by the size of what is shared",
        quick: "2 min",
        full: "8 min",
        shows: "\
            median and 99th percentile of windows of 3 × 1 to 3 × 65,536 counters, all of which \
            change in each window, with two switches and four, with the ready phase and without; \
            messages that were sent again",
        paper: "\
            SwiSh §9.2, Figure 5f: 3 µs for one counter a row to 486 µs for 64 K, at the 99th \
            percentile. Four pipes instead of two add nothing that could be measured; the ready \
            phase adds 2 µs. With it, nothing is sent again. Without it, two pipes send nothing \
            again, and four pipes sent 2,934 updates again in 10,000 windows.",
        method: "\
            As in `shared-windows`: real switches in namespaces on two CPUs, windows without a \
            pause, bitmaps and tags; contents are verified afterwards. The paper's switches work \
            side by side; here all share two CPUs, so a window of four costs at least twice the \
            CPU time for each pair of CPUs. The form without the ready phase is a seeded change \
            of the data plane's headers, which no option of the compiler can make: a switch that \
            is ready goes on at once, and serves a member that is a window behind. It is right \
            here only because both deltas stay as user space has filled them. Sent again: messages \
            with cells beyond those of a window, times 10,000. A message that comes before its \
            receiver is in the window is dropped. The receiver asks for it by number, after two \
            looks of its agent without progress.",
    },
};

/// Cells of a row, of three rows.
const ROWS: [u32; 6] = [1, 64, 1024, 4096, 16_384, 65_536];

fn of(counted: &[Counted], value: impl Fn(&Counted) -> f64) -> Summary {
    summary(&counted.iter().map(value).collect::<Vec<_>>())
}

/// For a window of the size, what the paper says.
fn paper(row: u32) -> &'static str {
    match row {
        1 => "3 µs",
        65_536 => "486 µs",
        _ => "",
    }
}

/// Windows among so many switches.
#[derive(Clone, Copy)]
struct Form {
    switches: usize,
    /// With the ready phase.
    ready: bool,
}

const FORMS: [Form; 4] = [
    Form { switches: 2, ready: true },
    Form { switches: 2, ready: false },
    Form { switches: 4, ready: true },
    Form { switches: 4, ready: false },
];

impl Form {
    fn name(self) -> String {
        let without = if self.ready { "" } else { " without ready" };
        format!("{} switches{without}", self.switches)
    }

    /// What the paper says of messages that are sent again. (It says 2,934 of some size.)
    fn paper_again(self) -> &'static str {
        if self.ready || self.switches == 2 { "0" } else { "" }
    }
}

fn measure(context: &Context, form: Form, variable: Variable) -> Result<Vec<Counted>> {
    let places = &context.places;
    let cells = match form.ready {
        true => Cells::up(places, form.switches, variable)?,
        false => Cells::without_ready(places, form.switches, variable)?,
    };
    // (Those of the first windows: generated frames find their way.)
    cells.wait_for_windows(100)?;
    let dense = variable.cells > 20_000;
    let windows = if dense { context.pick(300, 2_000) } else { context.pick(2_000, 10_000) };
    let rounds = context.pick(3, 5);
    let counted = (0..rounds).map(|_| cells.count(windows)).collect::<Result<_>>()?;
    cells.verify()?;
    Ok(counted)
}

fn run(context: &Context) -> Result<Outcome> {
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(cpus >= 2, "shared-sizes: this machine has one CPU; the experiment needs two");
    let mut outcome = Outcome::default();
    let (mut lines, mut data) = (vec![], vec![]);
    let mut done = 0;
    for form in FORMS {
        let (mut medians, mut highs) = (vec![], vec![]);
        for row in ROWS {
            let variable = Variable { cells: 3 * row, bits: false, changed: 360.min(3 * row) };
            let counted = measure(context, form, variable)?;
            let at = |fraction| of(&counted, |it| quantile(&it.window_us, fraction));
            let (median, high) = (at(0.5), at(0.99));
            let name = format!("{}, 3 × {row}", form.name());
            outcome.rows.push(Row::value(format!("{name}: median"), "", median, 1, "µs"));
            let what = format!("{name}: 99th percentile");
            outcome.rows.push(Row::value(what, paper(row), high, 1, "µs"));
            let needed = f64::from(variable.messages());
            let again = of(&counted, |it| (it.sent - needed).max(0.0) * 10_000.0);
            let what = format!("{name}: sent again to each member, in 10,000 windows");
            outcome.rows.push(Row::value(what, form.paper_again(), again, 0, ""));
            medians.push((f64::from(row), median.median));
            highs.push((f64::from(row), high.median));
            let rounds: Vec<_> = counted
                .iter()
                .map(|it| {
                    let at = |fraction| quantile(&it.window_us, fraction);
                    json!({ "windows": it.windows, "p50_us": at(0.5), "p99_us": at(0.99),
                            "frames": it.frames, "messages": it.messages, "sent": it.sent })
                })
                .collect();
            data.push(json!({
                "switches": form.switches, "ready": form.ready, "row": row, "rounds": rounds,
            }));
            done += 1;
            context.progress("sizes", done, (FORMS.len() * ROWS.len()) as u32);
        }
        lines.push(Line::new(format!("{}, median", form.name()), medians));
        lines.push(Line::new(format!("{}, 99th percentile", form.name()), highs));
    }
    let axes = Axes {
        title: "Time of a window by counters of a row (of three)".into(),
        x: "counters of a row".into(),
        y: "µs".into(),
        x_log: true,
        y_log: true,
        ..Axes::default()
    };
    let svg = plot::lines(&axes, &lines)?;
    outcome.figures.push(Figure { name: "shared-sizes".into(), svg });
    outcome.data = json!(data);
    Ok(outcome)
}
