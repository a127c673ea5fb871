//! `failover.svg`: RedPlane's Figure 14, drawn from our runs, with which switch carried the traffic
//! below it.

use crate::demo::analysis::Series;
use crate::demo::run::Outcome;
use crate::demo::{Config, Kind};
use crate::error::{Error, Result};
use plot::{Axes, GRAY, Line, Look, Panel, panels, steps};
use std::path::Path;

const WIDTH: u32 = 960;
/// Heights of the panels, in pixels.
const HEIGHTS: [u32; 2] = [430, 250];
/// Width of a bin of the figure, in seconds: half of the report's.
const FINE_S: f64 = 0.05;

/// How a run's line looks: apart by colour, and by width and dashes where there is no colour.
fn look(kind: Kind) -> (Look, &'static str) {
    match kind {
        Kind::Baseline => (Look { width: 1, ..Look::color(GRAY) }, "no failure (baseline)"),
        Kind::Without => (Look::color(1).dashed(), "failure, no fault tolerance"),
        Kind::With => (Look::color(0), "failure, replicated state"),
    }
}

/// Draws the figure.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, config: &Config, outcomes: &[Outcome]) -> Result<()> {
    let refused = |error: plot::Error| Error::io(path)(std::io::Error::other(error));
    let svg = draw(config, outcomes).map_err(refused)?;
    std::fs::write(path, svg).map_err(Error::io(path))
}

fn draw(config: &Config, outcomes: &[Outcome]) -> std::result::Result<String, plot::Error> {
    let bins = |outcome: &Outcome| Series::new(&outcome.samples).bins_of(FINE_S, config.seconds);
    let peak = outcomes.iter().flat_map(bins).fold(1.0, f64::max) * 1.05;
    let axes = |title: &str, y: &str| Axes {
        title: title.to_owned(),
        y: y.to_owned(),
        x_end: Some(config.seconds),
        y_end: Some(peak),
        ..Axes::default()
    };
    let mut order: Vec<&Outcome> = outcomes.iter().collect();
    // The one that matters on top.
    order.sort_by_key(|outcome| match outcome.kind {
        Kind::Baseline => 0,
        Kind::Without => 1,
        Kind::With => 2,
    });
    let runs: Vec<Line> = order
        .iter()
        .map(|outcome| {
            let (look, name) = look(outcome.kind);
            Line::new(name, steps(&bins(outcome), FINE_S)).with_look(look)
        })
        .collect();
    let goodput = Axes {
        marks: marks(config, outcomes),
        ..axes("TCP goodput through a NAT whose switch dies and returns", "goodput (Mbit/s)")
    };
    let shown = outcomes.iter().find(|o| o.kind == Kind::With).or(outcomes.last());
    let switches: Vec<Line> =
        shown.map_or_else(Vec::new, |outcome| through_switches(config, outcome));
    let below = Axes {
        x: format!("time (s), bins of {:.0} ms", FINE_S * 1e3),
        ..axes("", "per switch (Mbit/s)")
    };
    let mut shown = vec![Panel { height: HEIGHTS[0], axes: &goodput, lines: &runs }];
    if !switches.is_empty() {
        shown.push(Panel { height: HEIGHTS[1], axes: &below, lines: &switches });
    }
    panels(WIDTH, &shown)
}

/// What each switch carried, in colours that no run has.
fn through_switches(config: &Config, outcome: &Outcome) -> Vec<Line> {
    let series = Series::new(&outcome.samples);
    let names = config.cast.switches.iter().enumerate();
    names
        .map(|(index, name)| {
            let carried = series.bins_via_of(index, FINE_S, config.seconds);
            Line::new(format!("through {name}"), steps(&carried, FINE_S))
                .with_look(Look { filled: true, ..Look::color(2 + index) })
        })
        .collect()
}

/// When the switch died and when traffic moved back to it, with how long the disruption was.
fn marks(config: &Config, outcomes: &[Outcome]) -> Vec<(f64, String)> {
    let failed = || outcomes.iter().find(|outcome| outcome.kind.fails());
    let Some(outcome) = outcomes.iter().find(|o| o.kind == Kind::With).or_else(failed) else {
        return Vec::new();
    };
    let victim = config.cast.switches.first().map_or("", String::as_str);
    let length = |s: Option<f64>| s.map_or(String::new(), |s| format!(" (TCP back in {s:.2} s)"));
    let marks = [
        (outcome.failed_at, format!("{victim} fails{}", length(outcome.recovery_fail_s))),
        (outcome.returned_at, format!("{victim} returns{}", length(outcome.recovery_return_s))),
    ];
    marks.into_iter().filter_map(|(at, what)| Some((at?, what))).collect()
}
