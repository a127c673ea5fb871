//! Figure 9: round-trip times of each application, with and without fault tolerance.

use super::Context;
use crate::apps::{App, PATH};
use crate::labs::Running;
use crate::line::Line;
use crate::plot::{self, Axes, Group};
use crate::probe::{Probe, STAMP_BYTES, Times};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, quantile, ratio_summary, summary};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Flows, or users: few, so that the next packet of each comes long before its lease is over, even on a busy machine.
const FLOWS: u32 = 64;
/// Setup packets a second.
const SETUP_RATE: f64 = 5_000.0;
/// Read-centric applications: at most this ratio of the medians.
const GOAL: Goal = Goal::AtMost(1.03);

struct Side {
    probe: Probe,
    _lab: Running,
}

fn bring_up(context: &Context, app: &App, fault_tolerant: bool) -> Result<Side> {
    let lab = Running::up(context, app.lab(fault_tolerant))?;
    let traffic = (app.traffic)(FLOWS, 1);
    if !traffic.setup.is_empty() {
        let line = Line::new(&context.places, &lab, PATH, &traffic.setup, app.counted_port)?;
        // Twice: what was lost the first time is there after the second.
        line.send(2 * traffic.setup.len() as u64, SETUP_RATE)?;
    }
    let shape = app.shape.context("an application whose packets do not come back")?;
    let probe = Probe::new(&context.places, &lab, PATH, shape)?;
    Ok(Side { probe, _lab: lab })
}

/// Medians and 99th percentiles by slice, with and without.
struct Measured {
    with: Vec<Times>,
    without: Vec<Times>,
}

fn measure(context: &Context, app: &App, slices: u32, packets: usize) -> Result<Measured> {
    let mut sides = [bring_up(context, app, true)?, bring_up(context, app, false)?];
    let shape = app.shape.context("no shape")?;
    // Signalling packets among the data have no room for a stamp, and are answered to somebody else.
    let frames: Vec<Vec<u8>> =
        (app.traffic)(FLOWS, 1).frames.into_iter().filter(|f| f.len() >= shape.sent + STAMP_BYTES).collect();
    let mut times: [Vec<Times>; 2] = [Vec::new(), Vec::new()];
    for side in &mut sides {
        // Leases first: what is compared is established flows.
        side.probe.send_all(&mut frames.clone())?;
    }
    for slice in 0..slices as usize {
        for position in 0..2 {
            let index = (position + slice) % 2;
            let start = slice * packets % frames.len();
            let mut chosen: Vec<Vec<u8>> = frames.iter().cycle().skip(start).take(packets).cloned().collect();
            times[index].push(sides[index].probe.send_all(&mut chosen)?);
        }
    }
    let [with, without] = times;
    Ok(Measured { with, without })
}

fn by_slice(slices: &[Times], fraction: f64) -> Vec<f64> {
    slices.iter().map(|slice| quantile(&slice.sorted(), fraction)).collect()
}

/// Runs it.
///
/// # Errors
/// A lab does not come up, or packets do not come back.
pub fn run(context: &Context) -> Result<Outcome> {
    let (slices, packets) = context.pick((6, 400), (20, 2_000));
    let (apps, mut notes) = App::present(&context.places.root);
    let apps: Vec<&App> = apps.into_iter().filter(|app| app.shape.is_some()).collect();
    let (mut rows, mut groups, mut data) = (Vec::new(), Vec::new(), serde_json::Map::new());
    for (number, app) in apps.iter().enumerate() {
        let measured = match measure(context, app, slices, packets) {
            Ok(measured) => measured,
            Err(error) => {
                notes.push(format!("{}: not measured: {error:#}", app.name));
                context.say(&format!("{}: {error:#}", app.name));
                continue;
            }
        };
        let (with, without) = (by_slice(&measured.with, 0.5), by_slice(&measured.without, 0.5));
        let ratio = Row::value(
            format!("{}: with / without, median", app.name),
            app.paper[0],
            ratio_summary(&with, &without),
            3,
            "",
        );
        rows.push(if app.read_centric { ratio.with_goal(GOAL) } else { ratio });
        let added: Vec<f64> = with.iter().zip(&without).map(|(a, b)| a - b).collect();
        rows.push(Row::value(format!("{}: added to the median", app.name), "", summary(&added), 1, "µs"));
        let lost: usize = measured.with.iter().map(Times::lost).sum();
        if lost > 0 {
            notes.push(format!(
                "{}: {lost} of {} packets did not come back, with fault tolerance.",
                app.name,
                packets * measured.with.len()
            ));
        }
        let bar = |s: Summary| Some((s.median, s.low, s.high));
        groups.push(Group { name: app.name.to_owned(), bars: vec![bar(summary(&with)), bar(summary(&without))] });
        let side = |slices: &[Times]| -> Value {
            json!({ "p50_us": by_slice(slices, 0.5), "p99_us": by_slice(slices, 0.99), "lost": slices.iter().map(Times::lost).sum::<usize>() })
        };
        data.insert(app.name.to_owned(), json!({ "with": side(&measured.with), "without": side(&measured.without) }));
        context.progress("applications", number as u32 + 1, apps.len() as u32);
    }
    let axes = Axes {
        title: "Round trip through each application, established flows".into(),
        y: "µs, median".into(),
        ..Axes::default()
    };
    let figures =
        vec![Figure { name: "fig09".into(), svg: plot::bars(&axes, &["with fault tolerance", "without"], &groups)? }];
    Ok(Outcome { rows, notes, figures, data: Value::Object(data) })
}
