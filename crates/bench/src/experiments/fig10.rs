//! Figure 10: how much of the bandwidth the state protocol takes, by application; and the model of it at scale.

use super::Context;
use crate::apps::{App, PATH};
use crate::labs::Running;
use crate::line::Line;
use crate::messages::Messages;
use crate::plot::Line as Curve;
use crate::plot::{self, Axes, Group};
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, summary};
use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

const FLOWS: u32 = 1_024;
const SETUP_RATE: f64 = 5_000.0;
/// Packets a second that a switch of the paper's data centre forwards, for the model.
const MODEL_SWITCH_PPS: f64 = 122.5e6;
const SWITCHES: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];

/// One load.
#[derive(Clone, Copy, Debug, Serialize)]
struct Load {
    packets: f64,
    seconds: f64,
    original_bytes: f64,
    messages: f64,
    message_bytes: f64,
}

impl Load {
    fn share(&self) -> f64 {
        self.message_bytes / (self.message_bytes + self.original_bytes)
    }
}

/// What a packet and what a second cost in message bytes: the model's two terms.
#[derive(Clone, Copy, Debug, Serialize)]
struct Model {
    bytes_a_packet: f64,
    bytes_a_second: f64,
}

impl Model {
    /// Through two loads of different rates.
    fn fit(slow: &Load, fast: &Load) -> Model {
        let rate = |l: &Load, amount: f64| amount / l.seconds;
        let packets = rate(fast, fast.packets) - rate(slow, slow.packets);
        let bytes_a_packet = ((rate(fast, fast.message_bytes) - rate(slow, slow.message_bytes)) / packets).max(0.0);
        let bytes_a_second = (rate(slow, slow.message_bytes) - bytes_a_packet * rate(slow, slow.packets)).max(0.0);
        Model { bytes_a_packet, bytes_a_second }
    }

    fn bytes_per_s(&self, packets_per_s: f64) -> f64 {
        self.bytes_a_packet * packets_per_s + self.bytes_a_second
    }
}

/// One load on a lab that is up: so many packets at a rate.
fn load(lab: &Running, line: &Line, packets: u64, rate: f64) -> Result<Load> {
    let messages = Messages::count(lab, PATH.near, PATH.switch)?;
    let before = line.counted()?;
    let start = std::time::Instant::now();
    line.send(packets, rate)?;
    let seconds = start.elapsed().as_secs_f64();
    let (after, seen) = (line.counted()?, messages.seen()?);
    Ok(Load {
        packets: packets as f64,
        seconds,
        // Received and sent, as the paper counts.
        original_bytes: packets as f64 * line.frame_bytes() + (after.1 - before.1) as f64,
        messages: seen.packets as f64,
        message_bytes: seen.bytes as f64,
    })
}

struct Measured {
    cold: Load,
    shares: Vec<f64>,
    model: Model,
    /// The model's bytes over the measured ones, at a rate that it was not fitted to.
    check: f64,
}

fn measure(context: &Context, app: &App, rounds: u32, seconds: f64) -> Result<Measured> {
    let lab = Running::up(context, app.lab(true))?;
    let traffic = (app.traffic)(FLOWS, 1);
    if !traffic.setup.is_empty() {
        let line = Line::new(&context.places, &lab, PATH, &traffic.setup, app.counted_port)?;
        line.send(2 * traffic.setup.len() as u64, SETUP_RATE)?;
    }
    let line = Line::new(&context.places, &lab, PATH, &traffic.frames, app.counted_port)?;
    let at = |rate: f64| load(&lab, &line, (rate * seconds) as u64, rate);
    // From nothing: every flow's first packet asks the store.
    let cold = at(10_000.0)?;
    let mut shares = Vec::new();
    let (mut slow, mut fast) = (cold, cold);
    for _ in 0..rounds {
        slow = at(5_000.0)?;
        fast = at(20_000.0)?;
        shares.push(fast.share() * 100.0);
    }
    let model = Model::fit(&slow, &fast);
    let between = at(10_000.0)?;
    let check = model.bytes_per_s(between.packets / between.seconds) * between.seconds / between.message_bytes.max(1.0);
    Ok(Measured { cold, shares, model, check })
}

/// Message bandwidth of a data centre, in Gbit/s.
fn at_scale(model: &Model, switches: f64) -> f64 {
    switches * model.bytes_per_s(MODEL_SWITCH_PPS) * 8.0 / 1e9
}

/// Runs it.
///
/// # Errors
/// A figure cannot be drawn; an application that cannot be measured is named in a note.
pub fn run(context: &Context) -> Result<Outcome> {
    let (rounds, seconds) = context.pick((1, 0.5), (5, 2.0));
    let (apps, mut notes) = App::present(&context.places.root);
    let (mut rows, mut groups, mut curves, mut data) = (Vec::new(), Vec::new(), Vec::new(), serde_json::Map::new());
    for (number, app) in apps.iter().enumerate() {
        let measured = match measure(context, app, rounds, seconds) {
            Ok(measured) => measured,
            Err(error) => {
                notes.push(format!("{}: not measured: {error:#}", app.name));
                continue;
            }
        };
        let share: Summary = summary(&measured.shares);
        rows.push(Row::value(
            format!("{}: messages' share of all bytes, known flows", app.name),
            app.paper[1],
            share,
            2,
            "%",
        ));
        rows.push(Row::text(
            format!("{}: the same from nothing, {FLOWS} flows", app.name),
            "",
            format!(
                "{:.2} %, {:.2} messages a flow",
                measured.cold.share() * 100.0,
                measured.cold.messages / f64::from(FLOWS)
            ),
        ));
        rows.push(Row::text(
            format!("{}: model / measured, at another rate", app.name),
            "consistent",
            format!(
                "{:.2} ({:.1} bytes a packet + {:.0} a second)",
                measured.check, measured.model.bytes_a_packet, measured.model.bytes_a_second
            ),
        ));
        groups.push(Group { name: app.name.to_owned(), bars: vec![Some((share.median, share.low, share.high))] });
        let points = SWITCHES.iter().map(|n| (*n, at_scale(&measured.model, *n).max(1e-6)));
        curves.push(Curve { name: app.name.to_owned(), points: points.collect() });
        let mut described = serde_json::to_value(measured.model)?;
        described["cold"] = serde_json::to_value(measured.cold)?;
        described["shares_percent"] = measured.shares.clone().into();
        described["model_over_measured"] = measured.check.into();
        data.insert(app.name.to_owned(), described);
        context.progress("applications", number as u32 + 1, apps.len() as u32);
    }
    let axes = Axes {
        title: "Share of bandwidth that the state protocol takes".into(),
        y: "% of all bytes".into(),
        ..Axes::default()
    };
    let model = Axes {
        title: "Model: messages of all switches, 122.5 M packets/s each".into(),
        x: "switches".into(),
        y: "Gbit/s".into(),
        x_log: true,
        y_log: true,
        ..Axes::default()
    };
    let figures = vec![
        Figure { name: "fig10".into(), svg: plot::bars(&axes, &["messages"], &groups)? },
        Figure { name: "fig10-model".into(), svg: plot::lines(&model, &curves)? },
    ];
    Ok(Outcome { rows, notes, figures, data: Value::Object(data) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_goes_through_its_loads() {
        let of = |packets: f64| Load {
            packets,
            seconds: 2.0,
            original_bytes: 0.0,
            messages: 0.0,
            message_bytes: 2.0 * (150.0 * packets / 2.0 + 900.0),
        };
        let model = Model::fit(&of(10_000.0), &of(40_000.0));
        assert!((model.bytes_a_packet - 150.0).abs() < 1e-6 && (model.bytes_a_second - 900.0).abs() < 1e-3);
        assert!((model.bytes_per_s(7_000.0) - 1_050_900.0).abs() < 1.0);
    }
}
