//! Figure 12: throughput of each application, with and without fault tolerance.

use super::Context;
use crate::apps::{App, PATH};
use crate::labs::Running;
use crate::line::{Delivered, Line};
use crate::plot::{self, Axes, Group};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, ratio_summary, summary};
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;

const FLOWS: u32 = 1_024;
const SETUP_RATE: f64 = 5_000.0;

/// The best of a round, and all of it.
type Most = (Delivered, Vec<Delivered>);

struct Side {
    line: Line,
    _lab: Running,
}

fn bring_up(context: &Context, app: &App, fault_tolerant: bool) -> Result<Side> {
    let lab = Running::up(context, app.lab(fault_tolerant))?;
    let traffic = (app.traffic)(FLOWS, 1);
    if !traffic.setup.is_empty() {
        let line = Line::new(&context.places, &lab, PATH, &traffic.setup, app.counted_port)?;
        line.send(2 * traffic.setup.len() as u64, SETUP_RATE)?;
    }
    let line = Line::new(&context.places, &lab, PATH, &traffic.frames, app.counted_port)?;
    // Every flow has its lease before anything is counted.
    line.send(2 * traffic.frames.len() as u64, SETUP_RATE)?;
    Ok(Side { line, _lab: lab })
}

fn measure(
    context: &Context,
    app: &App,
    rounds: u32,
    rates: &[Option<f64>],
    window: Duration,
) -> Result<[Vec<Most>; 2]> {
    let sides = [bring_up(context, app, true)?, bring_up(context, app, false)?];
    let mut measured = [Vec::new(), Vec::new()];
    for round in 0..rounds as usize {
        for position in 0..2 {
            let index = (position + round) % 2;
            measured[index].push(sides[index].line.most(rates, window)?);
        }
    }
    Ok(measured)
}

/// Runs it.
///
/// # Errors
/// A figure cannot be drawn; an application that cannot be measured is named in a note.
pub fn run(context: &Context) -> Result<Outcome> {
    let (rounds, window) = context.pick((1, Duration::from_millis(250)), (5, Duration::from_millis(400)));
    let rates: &[Option<f64>] = context
        .pick(&[Some(50e3), Some(150e3), None], &[Some(30e3), Some(60e3), Some(120e3), Some(240e3), Some(480e3), None]);
    let (apps, mut notes) = App::present(&context.places.root);
    let (mut rows, mut groups, mut data) = (Vec::new(), Vec::new(), serde_json::Map::new());
    for (number, app) in apps.iter().enumerate() {
        let [with, without] = match measure(context, app, rounds, rates, window) {
            Ok(measured) => measured,
            Err(error) => {
                notes.push(format!("{}: not measured: {error:#}", app.name));
                context.say(&format!("{}: {error:#}", app.name));
                continue;
            }
        };
        let best = |side: &[Most]| -> Vec<f64> { side.iter().map(|(best, _)| best.delivered / 1e6).collect() };
        let (with_best, without_best) = (best(&with), best(&without));
        let ratio = ratio_summary(&with_best, &without_best);
        let row = Row::value(format!("{}: with / without", app.name), app.paper[2], ratio, 3, "");
        let goal = match (app.read_centric, app.folder) {
            (true, _) => Some(0.97),
            (false, "flow_counter") => Some(0.5),
            _ => None,
        };
        rows.push(match goal {
            Some(goal) => row.with_goal(Goal::AtLeast(goal)),
            None => row,
        });
        rows.push(Row::value(format!("{}: with", app.name), "", summary(&with_best), 3, "M packets/s"));
        let bar = |s: Summary| Some((s.median, s.low, s.high));
        groups.push(Group {
            name: app.name.to_owned(),
            bars: vec![bar(summary(&with_best)), bar(summary(&without_best))],
        });
        let all = |side: &[Most]| -> Value { side.iter().map(|(_, all)| json!(all)).collect() };
        data.insert(app.name.to_owned(), json!({ "with": all(&with), "without": all(&without) }));
        context.progress("applications", number as u32 + 1, apps.len() as u32);
    }
    let axes = Axes {
        title: "Throughput of each application, 64-byte packets".into(),
        y: "M packets/s".into(),
        ..Axes::default()
    };
    let figures =
        vec![Figure { name: "fig12".into(), svg: plot::bars(&axes, &["with fault tolerance", "without"], &groups)? }];
    Ok(Outcome { rows, notes, figures, data: Value::Object(data) })
}
