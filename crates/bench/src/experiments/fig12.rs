//! Figure 12: throughput of each application, with and without fault tolerance.

use super::Context;
use crate::apps::App;
use crate::line::Delivered;
use crate::messages::Messages;
use crate::report::Goal;
use crate::results::{Outcome, Row};
use crate::sides;
use crate::statistics::{ratio_summary, summary};
use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

const FLOWS: u32 = 1_024;

/// Turns of each side: many short ones, as what else the machine does comes and goes.
#[derive(Clone, Copy)]
struct Amount {
    rounds: usize,
    window: Duration,
    /// For applications whose packets wait for stores: some deliver less when they are offered too much.
    rates: &'static [Option<f64>],
    rated_rounds: usize,
}

/// One application's samples, with fault tolerance first.
#[derive(Serialize)]
struct Measured {
    samples: [Vec<Delivered>; 2],
    /// Messages of the state protocol for each packet that came out with fault tolerance.
    messages_a_packet: f64,
}

/// What is compared: read-centric applications by what their CPU did (nothing waits for anybody), others by the clock on the wall.
fn rate_of(app: &App, delivered: &Delivered) -> f64 {
    if app.read_centric { delivered.per_cpu_s.unwrap_or_default() } else { delivered.delivered }
}

fn measure(context: &Context, app: &App, amount: Amount) -> Result<Measured> {
    let mut sides = sides::both(context, app, FLOWS, |lab, traffic| {
        // Every flow has its lease before anything is counted.
        app.prepare(context, lab, &traffic.frames)?;
        app.line(context, lab, &traffic.frames)
    })?;
    let (rates, rounds): (&[Option<f64>], _) =
        if app.read_centric { (&[None], amount.rounds) } else { (amount.rates, amount.rated_rounds) };
    let messages = Messages::count(&sides[0].lab)?;
    let before = sides[0].tool.counted()?.0;
    let samples = sides::by_turns(&mut sides, rounds, |line, _| Ok(line.most(rates, amount.window)?.0))?;
    let packets = sides[0].tool.counted()?.0 - before;
    let messages_a_packet = messages.seen()?.packets as f64 / packets.max(1) as f64;
    Ok(Measured { samples, messages_a_packet })
}

fn goal(app: &App) -> Option<Goal> {
    match (app.read_centric, app.folder) {
        (true, _) => Some(Goal::AtLeast(0.97)),
        (false, "flow_counter") => Some(Goal::AtLeast(0.5)),
        _ => None,
    }
}

fn rows(app: &App, measured: &Measured, rows: &mut Vec<Row>) {
    let rates = |side: usize| -> Vec<f64> { measured.samples[side].iter().map(|d| rate_of(app, d) / 1e6).collect() };
    let (with, without) = (rates(0), rates(1));
    let unit = if app.read_centric { "M packets a CPU second" } else { "M packets/s" };
    let ratio =
        Row::value(format!("{}: with / without", app.name), app.paper[2], ratio_summary(&with, &without), 3, "");
    rows.push(match goal(app) {
        Some(goal) => ratio.with_goal(goal),
        None => ratio,
    });
    rows.push(Row::value(format!("{}: with", app.name), "", summary(&with), 3, unit));
    let nothing = measured.samples.iter().flatten().filter(|d| d.delivered == 0.0).count();
    if nothing > 0 {
        rows.push(Row::text(format!("{}: turns in which nothing came through", app.name), "", nothing.to_string()));
    }
    let taken: Vec<f64> = measured.samples.iter().flatten().filter_map(|d| d.taken_percent).collect();
    let mut said = format!("{:.4} messages", measured.messages_a_packet);
    if !taken.is_empty() {
        said += &format!(", others had the CPU for {:.1} %", summary(&taken).median);
    }
    rows.push(Row::text(format!("{}: for each packet", app.name), "", said));
}

/// Runs it.
///
/// # Errors
/// A figure cannot be drawn; an application that cannot be measured is named in a note.
pub fn run(context: &Context) -> Result<Outcome> {
    let amount = context.pick(
        Amount {
            rounds: 15,
            window: Duration::from_millis(80),
            rates: &[Some(60e3), Some(150e3), None],
            rated_rounds: 2,
        },
        Amount {
            rounds: 60,
            window: Duration::from_millis(150),
            rates: &[Some(30e3), Some(60e3), Some(120e3), Some(240e3), Some(480e3), None],
            rated_rounds: 7,
        },
    );
    let (mut all, mut groups, mut data) = (Vec::new(), Vec::new(), serde_json::Map::new());
    let notes = sides::each_app(
        context,
        |_| true,
        |app| {
            let measured = measure(context, app, amount)?;
            rows(app, &measured, &mut all);
            let side = |side: usize| {
                summary(&measured.samples[side].iter().map(|d| rate_of(app, d) / 1e6).collect::<Vec<f64>>())
            };
            groups.push(sides::group(app, side(0), side(1)));
            data.insert(app.name.to_owned(), serde_json::to_value(&measured)?);
            Ok(())
        },
    );
    let figure = sides::figure("fig12", "Throughput of each application, 64-byte packets", "M packets/s", &groups)?;
    Ok(Outcome { rows: all, notes, figures: vec![figure], data: Value::Object(data) })
}
