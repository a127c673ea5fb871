//! Figure 13: throughput of the key-value store by share of updates, and by servers.

use super::{Context, Experiment, Page};
use crate::apps::{self, App};
use crate::contention::process_cpu_ns;
use crate::labs::{Running, Wanted, remove_node};
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, ratio_summary, summary};
use anyhow::Result;
use plot::{Axes, Line as Curve, Look};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fig13",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "Figure 13",
        title: "key-value store: throughput by share of updates and number of store servers",
        quick: "40 s",
        full: "3 min",
        shows: "key-value store by share of updates and number of stores",
        paper: "\
            RedPlane §7.2: the more of the requests are updates, the lower the throughput; with \
            more store servers it falls less.",
        method: "\
            systems/redplane/lab/key_value.toml with one, two and three store servers and chains \
            of one (the 8 shards are spread over them), and three with chains of three: 512 \
            uniformly drawn keys, requests made by the kernel before the switch, replies counted \
            by XDP where they come back; of several offered rates the most that comes back counts.\n\n\
            There are two cores: one has generator and switch, the other all stores, so more \
            servers cannot be faster here. What can be measured is the CPU time of the busiest \
            server for each update: its inverse is what the cluster takes if each server has a \
            core of its own, and the model goes on from there: min(switch alone, updates of the \
            cluster / share of updates). (What the kernel does for the stores' packets on the \
            switch's core is not in it.)",
    },
};

const KEYS: u32 = 512;
const SHARES: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 1.0];
const STORES: [&str; 3] = ["store1", "store2", "store3"];

/// Store servers, and how many of them have each of the 8 shards.
#[derive(Clone, Copy, Debug, Serialize)]
struct Stores {
    servers: usize,
    chain: usize,
}

const CLUSTERS: [Stores; 4] = [
    Stores { servers: 1, chain: 1 },
    Stores { servers: 2, chain: 1 },
    Stores { servers: 3, chain: 1 },
    Stores { servers: 3, chain: 3 },
];

impl Stores {
    fn name(self) -> String {
        let servers = if self.servers == 1 { "server" } else { "servers" };
        format!("{} {servers}, chains of {}", self.servers, self.chain)
    }

    fn bring_up(self, context: &Context, app: &App) -> Result<Running> {
        let (servers, chain) = (self.servers.to_string(), self.chain.to_string());
        let wanted =
            Wanted { vars: &[("servers", &servers), ("chain_length", &chain)], ..app.lab(true) };
        Running::up_changed(context, wanted, |topology| {
            for node in &STORES[self.servers..] {
                remove_node(topology, node);
            }
        })
    }
}

/// CPU time so far of each store server, in ns.
fn store_cpu_ns(lab: &Running) -> Result<Vec<u64>> {
    lab.daemons_named("store").into_iter().map(process_cpu_ns).collect()
}

/// One cluster.
#[derive(Serialize)]
struct Measured {
    stores: Stores,
    shares: [f64; 5],
    /// Most replies a second, by share of updates and round.
    delivered: Vec<Vec<f64>>,
    /// CPU time of the busiest server for each reply to an update, in ns, by round.
    busiest_ns: Vec<f64>,
}

fn measure(
    context: &Context,
    app: &App,
    stores: Stores,
    rounds: u32,
    rates: &[Option<f64>],
    window: Duration,
) -> Result<Measured> {
    let lab = stores.bring_up(context, app)?;
    app.prepare(context, &lab, &apps::key_value(KEYS, 1, 0.0).setup)?;
    let mut measured = Measured {
        stores,
        shares: SHARES,
        delivered: vec![Vec::new(); SHARES.len()],
        busiest_ns: Vec::new(),
    };
    for round in 0..rounds {
        for (index, share) in SHARES.iter().enumerate() {
            let frames = apps::key_value(KEYS, u64::from(round) + 2, *share).frames;
            let line = app.line(context, &lab, &frames)?;
            let (cpu, replies) = (store_cpu_ns(&lab)?, line.counted()?.0);
            measured.delivered[index].push(line.most(rates, window)?.0.delivered);
            if *share == 1.0 {
                let after = store_cpu_ns(&lab)?;
                let busiest =
                    after.iter().zip(&cpu).map(|(after, before)| after - before).max().unwrap_or(0);
                let replies = line.counted()?.0 - replies;
                measured.busiest_ns.push(busiest as f64 / replies.max(1) as f64);
            }
        }
    }
    Ok(measured)
}

/// Throughput by the model: the switch's own most, or the updates that the stores' cores take over
/// the share of updates.
fn model(switch: f64, updates_per_s: f64, share: f64) -> f64 {
    if share == 0.0 { switch } else { switch.min(updates_per_s / share) }
}

fn mega(s: Summary) -> Summary {
    Summary { low: s.low / 1e6, median: s.median / 1e6, high: s.high / 1e6 }
}

/// Updates a second if each server had a core of its own.
fn capacity(measured: &Measured) -> Summary {
    summary(&measured.busiest_ns.iter().map(|ns| 1e9 / ns.max(1.0)).collect::<Vec<_>>())
}

fn rows(all: &[Measured]) -> Vec<Row> {
    let last = SHARES.len() - 1;
    let mut rows = Vec::new();
    for measured in all {
        let name = measured.stores.name();
        let ratio = ratio_summary(&measured.delivered[last], &measured.delivered[0]);
        rows.push(Row::value(
            format!("{name}: 100 % updates / none"),
            "falls with updates",
            ratio,
            3,
            "",
        ));
        for (share, rates) in SHARES.iter().zip(&measured.delivered) {
            let what = format!("{name}: {:.0} % updates", share * 100.0);
            rows.push(Row::value(what, "", mega(summary(rates)), 3, "M packets/s"));
        }
        let paper = if measured.stores.servers > 1 { "grows with servers" } else { "" };
        let what = format!("{name}: updates a second with a core for each server");
        rows.push(Row::value(what, paper, mega(capacity(measured)), 3, "M"));
    }
    rows
}

fn curves(all: &[Measured]) -> Vec<Curve> {
    let switch = all.iter().map(|m| summary(&m.delivered[0]).median).fold(0.0, f64::max);
    let mut curves = Vec::new();
    for (color, measured) in all.iter().enumerate() {
        let name = measured.stores.name();
        let points = SHARES.iter().zip(&measured.delivered);
        let points =
            points.map(|(share, rates)| (share * 100.0, summary(rates).median / 1e6)).collect();
        curves.push(Curve::new(format!("{name}, measured"), points).with_look(Look::color(color)));
        let cores = capacity(measured).median;
        let model = |i: u32| {
            let share = f64::from(i) * 0.05;
            (share * 100.0, model(switch, cores, share) / 1e6)
        };
        let points = (0..=20).map(model).collect();
        curves.push(
            Curve::new(format!("{name}, a core each (model)"), points)
                .with_look(Look::color(color).dashed()),
        );
    }
    curves
}

/// Runs it.
///
/// # Errors
/// A lab does not come up, or nothing comes through.
fn run(context: &Context) -> Result<Outcome> {
    let app = apps::named("key_value")?;
    let (rounds, window) =
        context.pick((1, Duration::from_millis(150)), (5, Duration::from_millis(300)));
    let rates: &[Option<f64>] = context.pick(
        &[Some(60e3), Some(150e3), None],
        &[Some(30e3), Some(60e3), Some(120e3), Some(240e3), None],
    );
    let mut all = Vec::new();
    for (done, stores) in CLUSTERS.into_iter().enumerate() {
        all.push(measure(context, app, stores, rounds, rates, window)?);
        context.progress("clusters", done as u32 + 1, CLUSTERS.len() as u32);
    }
    let axes = Axes {
        title: "Key-value store by share of updates".into(),
        x: "% updates".into(),
        y: "M packets/s".into(),
        ..Axes::default()
    };
    let figures = vec![Figure { name: "fig13".into(), svg: plot::lines(&axes, &curves(&all))? }];
    let data: Value = serde_json::to_value(&all)?;
    Ok(Outcome { rows: rows(&all), notes: Vec::new(), figures, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_bound_by_switch_or_stores() {
        assert_eq!(model(2e6, 1e5, 0.0), 2e6);
        assert_eq!(model(2e6, 1e5, 0.5), 2e5);
        assert_eq!(model(2e6, 6e5, 0.01), 2e6);
    }
}
