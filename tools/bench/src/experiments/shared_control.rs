//! What a controller's round over the switches takes, beside a window that they turn by themselves
//! (SwiSh Figure 1).

use super::{Context, Experiment, Page};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::shared::SWITCHES;
use crate::shared::cells::{Cells, Variable};
use crate::shared::control::{Way, Work, beside};
use crate::shared::network::Network;
use crate::shared::sketch::CELLS;
use crate::statistics::{quantile, ratio_summary, summary};
use anyhow::{Result, ensure};
use plot::{Axes, Group};
use serde_json::json;
use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-control",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, Figure 1",
        title: "a controller's round beside a window",
        quick: "30 s",
        full: "1 min",
        shows: "\
            how long it takes to read a sketch of 3 × 32,768 cells from a switch by system calls \
            and through mapped memory, how long a controller's round over four switches takes, and \
            a window of the same sketch",
        paper: "\
            SwiSh §3.2: 507 ms to read 3 × 64 K registers from a switch's control plane, 486 µs \
            for the same in the data plane: three orders of magnitude.",
        method: "\
            The lab of `stateplane demo shared`, without traffic. Its controller asks all switches \
            for their sketches, as soon as it has those of the round before; their agents read \
            them through mapped memory, without a system call, and send them by TCP. The \
            controller merges, and would tell the switches what to block. Windows are those of \
            four switches that share such a sketch and change all of it, without a pause. All is \
            on two CPUs.",
    },
};

/// What the controller's rounds take, in ms.
fn rounds_ms(network: &Network, time: Duration) -> Result<f64> {
    let work = Work::default();
    let took = beside(network, Way::Pull(Duration::ZERO), &work, || {
        // (The first rounds fill buffers.)
        std::thread::sleep(time / 4);
        let (begin, before) = (Instant::now(), work.messages.load(Ordering::Relaxed));
        std::thread::sleep(time);
        let sketches = work.messages.load(Ordering::Relaxed) - before;
        Ok(begin.elapsed().as_secs_f64() * 1e3 / (sketches as f64 / SWITCHES as f64))
    })?;
    ensure!(took.is_finite(), "the controller got no sketch");
    Ok(took)
}

/// How long it takes to read a switch's sketch: by a system call for each cell, and through mapped
/// memory, in ms.
fn reads_ms(network: &Network) -> Result<[f64; 2]> {
    let dataplane = network.dataplane(0)?;
    let sketch = dataplane.register("sketch")?;
    let begin = Instant::now();
    for cell in 0..CELLS as u32 {
        black_box(dataplane.read_register(sketch, cell)?);
    }
    let by_calls = begin.elapsed();
    let mapped = dataplane.map_words(&sketch.map)?;
    let begin = Instant::now();
    for cell in 0..CELLS {
        black_box(mapped.get(cell));
    }
    Ok([by_calls, begin.elapsed()].map(|it| it.as_secs_f64() * 1e3))
}

fn run(context: &Context) -> Result<Outcome> {
    let (rounds, time) = (context.pick(3, 9), Duration::from_millis(context.pick(500, 1_000)));
    let (mut calls, mut mapped, mut controller) = (vec![], vec![], vec![]);
    let network = Network::up(&context.places.stateplane, "alone", &[])?;
    for round in 0..rounds {
        let [by_calls, by_memory] = reads_ms(&network)?;
        calls.push(by_calls);
        mapped.push(by_memory);
        controller.push(rounds_ms(&network, time)?);
        context.progress("controller, round", round + 1, rounds);
    }
    drop(network);
    let places = &context.places;
    let variable = Variable { cells: CELLS as u32, bits: true, changed: 360 };
    let cells = Cells::up(places, SWITCHES, variable)?;
    let mut windows = vec![];
    for round in 0..rounds {
        windows.push(quantile(&cells.count(context.pick(200, 1_000))?.window_us, 0.5) / 1e3);
        context.progress("windows, round", round + 1, rounds);
    }
    cells.verify()?;
    let all = [
        ("read by a system call for each cell", "507 ms (3 × 64 K)", &calls),
        ("read through mapped memory", "", &mapped),
        ("controller's round over four switches", "", &controller),
        ("window of four switches", "486 µs (two, 3 × 64 K)", &windows),
    ];
    let mut outcome = Outcome::default();
    for (what, paper, ms) in all {
        outcome.rows.push(Row::value(what, paper, summary(ms), 2, "ms"));
    }
    let ratio = ratio_summary(&controller, &windows);
    let row = Row::value("controller's round / window", "over 1,000", ratio, 1, "");
    outcome.rows.push(row.with_goal(Goal::AtLeast(1.0)));
    let group = |(what, _, ms): &(&str, &str, &Vec<f64>)| {
        let it = summary(ms);
        Group { name: (*what).to_owned(), bars: vec![Some((it.median, it.low, it.high))] }
    };
    let groups: Vec<Group> = all.iter().map(group).collect();
    let axes = Axes {
        title: "Reading and sharing a sketch of 3 × 32,768 cells".into(),
        y: "ms".into(),
        y_log: true,
        ..Axes::default()
    };
    let svg = plot::bars(&axes, &["time"], &groups)?;
    outcome.figures.push(Figure { name: "shared-control".into(), svg });
    outcome.data = json!({ "read_by_calls_ms": calls, "read_mapped_ms": mapped,
                           "round_ms": controller, "window_ms": windows });
    Ok(outcome)
}
