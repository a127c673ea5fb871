//! Figure 11: bandwidth of snapshots, by period and by number of sketches.

use super::fig10::{Load, MODEL_GOAL};
use super::{Context, Experiment, Page};
use crate::apps::{self, App};
use crate::labs::{Running, Wanted};
use crate::model::Model;
use crate::packets;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::summary;
use anyhow::Result;
use plot::{Axes, Line as Curve, Look};
use serde_json::{Value, json};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fig11",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "Figure 11",
        title: "bandwidth of snapshots, by period and number of sketches",
        quick: "25 s",
        full: "3 min",
        shows: "bandwidth of snapshots by period and number of sketches, measured and by the model",
        paper: "\
            RedPlane §7.2: heavy-hitter detection that replicates its sketches every millisecond \
            takes 34.16 Mbit/s (13.8 %); with five sketches it is still less than what the \
            synchronous counter takes (51.2 %).",
        method: "\
            systems/redplane/lab/heavy_hitter.toml, compiled with each period: 20,000 packets a \
            second of as many VLANs as there are sketches (3 rows of 64 slots of 32 bits each, and \
            the number of the window), so that every sketch changes in every period. nftables on \
            the router between switch and stores counts messages both ways, Ethernet headers \
            included.\n\n\
            The model: per period and sketch one SNAPSHOT (headers, key, 16 bytes, 772 of slots) \
            and one SNAPSHOT_ACK; heartbeats and reports to the controller besides. The paper's \
            switch sends each slot in a packet of its own, ours up to 320 in one. A period begins \
            anew when the snapshot before is acknowledged and the generator, which sleeps between, \
            looks: so measured periods are a little longer than asked for, and the ratio below \
            one: by some percent at 4 ms and more, by much at 1 ms if the machine is busy, as \
            these delays are then of the period's own length. The goal of 0.9 to 1.1 holds for \
            all.",
    },
};

/// Flows of each sketch, that is, of each VLAN.
const FLOWS: u32 = 64;
/// Packets a second, of all sketches together: each sketch changes in each period.
const RATE: f64 = 20_000.0;

/// Measured and modelled Mbit/s of one lab, by number of sketches.
struct Measured {
    period_ms: u32,
    /// Sketches, samples of measured, model.
    points: Vec<(u32, Vec<f64>, f64)>,
}

fn measure(
    context: &Context,
    app: &App,
    period_ms: u32,
    sketches: &[u32],
    rounds: u32,
    seconds: f64,
) -> Result<Measured> {
    let macros = format!("-DSKETCH_PERIOD_US={}", period_ms * 1_000);
    let lab = Running::up(context, Wanted { vars: &[("macro", &macros)], ..app.lab(true) })?;
    let untagged = (app.traffic)(FLOWS, 1).frames;
    // Else what it and the controllers tell each other may come this way, without a tag: a tenant
    // more, of whom snapshots are taken.
    lab.fail("s2")?;
    let mut points = Vec::new();
    for &count in sketches {
        let frames: Vec<Vec<u8>> = untagged
            .iter()
            .flat_map(|frame| (1..=count).map(|vlan| packets::tagged(frame, vlan as u16)))
            .collect();
        let mut model = Model::of(&lab, app.folder, &frames, app.updates)?;
        model.sketches = f64::from(count);
        // A VLAN is one key, and a session is with its shard only.
        model.shards = model.shards.min(f64::from(count));
        app.prepare(context, &lab, &frames)?;
        let line = app.line(context, &lab, &frames)?;
        let mut samples = Vec::new();
        for _ in 0..rounds {
            let load = Load::measure(&lab, &line, (RATE * seconds) as u64, RATE)?;
            samples.push(load.message_bytes / load.seconds * 8.0 / 1e6);
        }
        points.push((count, samples, model.bytes_per_s(RATE) * 8.0 / 1e6));
    }
    Ok(Measured { period_ms, points })
}

fn rows(measured: &[Measured]) -> Vec<Row> {
    let mut rows = Vec::new();
    for Measured { period_ms, points } in measured {
        for (count, samples, model) in points {
            let paper = match (period_ms, count) {
                (1, 1) => "34.16 Mbit/s (13.8 %)",
                (1, 5) => "less than the counter's",
                _ => "",
            };
            let plural = if *count == 1 { "" } else { "es" };
            let what = format!("every {period_ms} ms, {count} sketch{plural}");
            rows.push(Row::value(what.clone(), paper, summary(samples), 2, "Mbit/s"));
            let over: Vec<f64> = samples.iter().map(|sample| sample / model).collect();
            let over = Row::value(
                format!("{what}: measured / model ({model:.2} Mbit/s)"),
                "",
                summary(&over),
                3,
                "",
            );
            rows.push(over.with_goal(MODEL_GOAL));
        }
    }
    rows
}

/// Runs it.
///
/// # Errors
/// A lab does not come up, or messages cannot be counted.
fn run(context: &Context) -> Result<Outcome> {
    let app = apps::named("heavy_hitter")?;
    let (rounds, seconds) = context.pick((2, 0.4), (7, 1.5));
    let periods: &[u32] = context.pick(&[1, 4, 16], &[1, 2, 4, 8, 16]);
    let sketches: &[u32] = context.pick(&[1, 3, 5], &[1, 2, 3, 4, 5]);
    let mut measured = Vec::new();
    for (done, period_ms) in periods.iter().enumerate() {
        measured.push(measure(context, app, *period_ms, sketches, rounds, seconds)?);
        context.progress("periods", done as u32 + 1, periods.len() as u32);
    }
    let mut curves = Vec::new();
    for (color, Measured { period_ms, points }) in measured.iter().enumerate() {
        let name = format!("every {period_ms} ms");
        let of_measured =
            points.iter().map(|(count, samples, _)| (f64::from(*count), summary(samples).median));
        curves.push(
            Curve::new(format!("{name}, measured"), of_measured.collect())
                .with_look(Look::color(color)),
        );
        let of_model = points.iter().map(|(count, _, model)| (f64::from(*count), *model));
        curves.push(
            Curve::new(format!("{name}, model"), of_model.collect())
                .with_look(Look::color(color).dashed()),
        );
    }
    let axes = Axes {
        title: "Bandwidth of snapshots, both ways".into(),
        x: "sketches of 3 × 64 slots".into(),
        y: "Mbit/s".into(),
        ..Axes::default()
    };
    let data: Vec<Value> = measured
        .iter()
        .flat_map(|m| {
            m.points.iter().map(|(count, samples, model)| {
            json!({ "period_ms": m.period_ms, "sketches": count, "mbit_per_s": samples, "model_mbit_per_s": model })
        })
        })
        .collect();
    let figures = vec![Figure { name: "fig11".into(), svg: plot::lines(&axes, &curves)? }];
    Ok(Outcome { rows: rows(&measured), notes: Vec::new(), figures, data: Value::Array(data) })
}
