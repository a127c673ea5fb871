//! `kv.svg`: how each service answers while its head or leader dies.

use crate::kv::System;
use crate::kv::failure::{Plan, Verdict};
use plot::{Axes, Line, Look, Panel, panels};

const WIDTH: u32 = 960;
const HEIGHT: u32 = 240;

/// A service's run.
pub struct Shown<'a> {
    /// Which service.
    pub system: System,
    /// What was planned.
    pub plan: &'a Plan,
    /// What came of it.
    pub verdict: &'a Verdict,
}

/// Draws all runs, one below the other.
///
/// # Errors
/// The drawing library refuses.
pub fn draw(runs: &[Shown]) -> Result<String, plot::Error> {
    let all: Vec<(Axes, Vec<Line>)> = runs.iter().enumerate().map(panel).collect();
    let panels_of = |(axes, lines)| Panel { height: HEIGHT, axes, lines };
    panels(WIDTH, &all.iter().map(|(axes, lines)| panels_of((axes, lines))).collect::<Vec<_>>())
}

fn panel((number, run): (usize, &Shown)) -> (Axes, Vec<Line>) {
    let Shown { system, plan, verdict } = run;
    let line = Line::new(
        format!("{}: {:.0} requests a second", system.name(), plan.rate),
        verdict.percent(),
    )
    .with_look(Look { filled: true, ..Look::color(number) });
    let back = verdict.failover_ms.map_or("no write after it".to_owned(), |ms| {
        format!("every lock is written again after {ms:.0} ms")
    });
    let axes = Axes {
        title: if number == 0 {
            "Requests answered in 10 ms at first try, while the head or leader dies".into()
        } else {
            String::new()
        },
        x: "time (s), bins of 100 ms".into(),
        y: "answered (%)".into(),
        x_end: Some(plan.end.as_secs_f64()),
        y_end: Some(105.0),
        marks: vec![
            (plan.kill.as_secs_f64(), format!("{} killed: {back}", system.victim())),
            (plan.restore.as_secs_f64(), "started again".into()),
        ],
        ..Axes::default()
    };
    (axes, vec![line])
}
