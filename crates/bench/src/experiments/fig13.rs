//! Figure 13: throughput of the key-value store by share of updates, and by servers.

use super::Context;
use crate::apps::{self, ALL, PATH};
use crate::labs::{Running, Wanted, remove_node};
use crate::line::Line;
use crate::packets::KV_PORT;
use crate::plot::{self, Axes, Line as Curve};
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, ratio_summary, summary};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::time::Duration;

const FOLDER: &str = "key_value";
const KEYS: u32 = 512;
const SETUP_RATE: f64 = 5_000.0;
const SHARES: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 1.0];
/// Chains that are measured, by length; a chain of one has all of a core, of three a third each.
const CHAINS: [usize; 2] = [1, 3];

fn bring_up(context: &Context, servers: usize) -> Result<Running> {
    let app = ALL.iter().find(|app| app.folder == FOLDER).context("no such application")?;
    let all = ["store1", "store2", "store3"];
    let count = servers.to_string();
    let wanted = Wanted { vars: &[("servers", &count)], ..app.lab(true) };
    Running::up_changed(context, wanted, |topology| {
        for node in &all[servers..] {
            remove_node(topology, node);
        }
    })
}

/// Most packets a second, by share of updates.
fn measure(
    context: &Context,
    lab: &Running,
    rounds: u32,
    rates: &[Option<f64>],
    window: Duration,
) -> Result<Vec<Vec<f64>>> {
    let setup = apps::key_value(KEYS, 1, 0.0).setup;
    Line::new(&context.places, lab, PATH, &setup, KV_PORT)?.send(2 * setup.len() as u64, SETUP_RATE)?;
    let mut samples = vec![Vec::new(); SHARES.len()];
    for round in 0..rounds {
        for (index, share) in SHARES.iter().enumerate() {
            let frames = apps::key_value(KEYS, u64::from(round) + 2, *share).frames;
            let line = Line::new(&context.places, lab, PATH, &frames, KV_PORT)?;
            // Leases that ended meanwhile.
            line.send(frames.len() as u64, 20_000.0)?;
            samples[index].push(line.most(rates, window)?.0.delivered);
        }
    }
    Ok(samples)
}

/// Throughput that the model predicts for `servers` shards of one core each: the switch's own most, or the stores' updates over their share.
fn model(switch: f64, updates_per_core: f64, share: f64, servers: f64) -> f64 {
    if share == 0.0 { switch } else { switch.min(servers * updates_per_core / share) }
}

/// Runs it.
///
/// # Errors
/// A lab does not come up, or nothing comes through.
pub fn run(context: &Context) -> Result<Outcome> {
    let app = ALL.iter().find(|app| app.folder == FOLDER).context("no such application")?;
    if !app.there(&context.places.root) {
        let notes = vec![format!("Left out, as there is no {}.", app.lab)];
        return Ok(Outcome { notes, ..Outcome::default() });
    }
    let (rounds, window) = context.pick((1, Duration::from_millis(200)), (5, Duration::from_millis(400)));
    let rates: &[Option<f64>] =
        context.pick(&[Some(60e3), None], &[Some(30e3), Some(60e3), Some(120e3), Some(240e3), None]);
    let mut by_chain = Vec::new();
    for (done, servers) in CHAINS.into_iter().enumerate() {
        let lab = bring_up(context, servers)?;
        by_chain.push(measure(context, &lab, rounds, rates, window)?);
        context.progress("chains", done as u32 + 1, CHAINS.len() as u32);
    }
    let mega = |s: Summary| Summary { low: s.low / 1e6, median: s.median / 1e6, high: s.high / 1e6 };
    let (mut rows, mut curves, mut data) = (Vec::new(), Vec::new(), serde_json::Map::new());
    for (servers, samples) in CHAINS.iter().zip(&by_chain) {
        for (share, rates) in SHARES.iter().zip(samples) {
            let what = format!("chain of {servers}, {:.0} % updates", share * 100.0);
            rows.push(Row::value(what, "", mega(summary(rates)), 3, "M packets/s"));
        }
        let points = SHARES.iter().zip(samples).map(|(share, rates)| (share * 100.0, summary(rates).median / 1e6));
        curves.push(Curve { name: format!("measured, chain of {servers}"), points: points.collect() });
        data.insert(format!("chain_of_{servers}"), json!({ "shares": SHARES, "delivered_per_s": samples }));
    }
    let last = SHARES.len() - 1;
    let row = Row::value(
        "100 % updates / none, chain of 3",
        "falls with updates",
        ratio_summary(&by_chain[1][last], &by_chain[1][0]),
        3,
        "",
    );
    rows.insert(0, row);
    // A chain of one has the other core to itself.
    let (switch, per_core) = (summary(&by_chain[0][0]).median, summary(&by_chain[0][last]).median);
    rows.push(Row::text("updates a second of one store core", "", format!("{:.3} M", per_core / 1e6)));
    for servers in [1.0, 2.0, 3.0, 6.0] {
        let shares = (0..=20).map(|i| f64::from(i) * 0.05);
        let points = shares.map(|share| (share * 100.0, model(switch, per_core, share, servers) / 1e6));
        curves.push(Curve { name: format!("model, {servers} cores of stores"), points: points.collect() });
        let rate = model(switch, per_core, 1.0, servers) / 1e6;
        rows.push(Row::text(
            format!("model: 100 % updates, {servers} store cores"),
            "grows with servers",
            format!("{rate:.3} M packets/s"),
        ));
    }
    let axes = Axes {
        title: "Key-value store by share of updates".into(),
        x: "% updates".into(),
        y: "M packets/s".into(),
        ..Axes::default()
    };
    let figures = vec![Figure { name: "fig13".into(), svg: plot::lines(&axes, &curves)? }];
    Ok(Outcome { rows, notes: Vec::new(), figures, data: Value::Object(data) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_bound_by_switch_or_stores() {
        assert_eq!(model(2e6, 1e5, 0.0, 1.0), 2e6);
        assert_eq!(model(2e6, 1e5, 0.5, 1.0), 2e5);
        assert_eq!(model(2e6, 1e5, 0.01, 6.0), 2e6);
    }
}
