//! NetChain's evaluation, beside etcd and ZooKeeper.

pub mod echo;
pub mod failures;
pub mod latency;
pub mod locks;
pub mod packets;
pub mod scale;
pub mod sweeps;

use super::Context;
use crate::kv::labs::Site;
use crate::kv::workload::{Measured, Reading, Workload};
use crate::kv::{Service, System};
use crate::results::Row;
use crate::statistics::{Summary, summary};
use anyhow::{Result, ensure};
use plot::{Axes, Line};
use serde_json::{Value, json};
use std::time::Duration;

/// The paper's defaults: keys, share of writes, bytes of a value.
const KEYS: usize = 20_000;
const WRITES_SHARE: f64 = 0.01;
const VALUE_BYTES: usize = 64;
/// Requests under way at a time.
const OUTSTANDING: usize = 256;
/// Groups of the switches' founding.
const GROUPS: u16 = 100;

fn site(context: &Context) -> Site {
    Site::new(context.places.root.clone(), context.places.stateplane.clone())
}

/// The paper's default load.
fn default(length: Duration) -> Workload {
    Workload {
        writes_share: WRITES_SHARE,
        reading: Reading::Newest,
        value_bytes: VALUE_BYTES,
        keys: KEYS,
        outstanding: OUTSTANDING,
        rate: None,
        length,
    }
}

/// Measures a load some times over.
fn rounds(service: &mut dyn Service, load: &Workload, rounds: usize) -> Result<Vec<Measured>> {
    let once = |_| {
        ensure!(!lab::interrupt::requested(), "interrupted");
        service.run(load)
    };
    (0..rounds).map(once).collect()
}

/// One system's figures over the points of an experiment.
struct Curve {
    system: System,
    /// Point, and what was measured there.
    points: Vec<(f64, Vec<Measured>)>,
}

impl Curve {
    fn of(&self, x: f64, what: fn(&Measured) -> f64) -> Option<Summary> {
        let (_, measured) = self.points.iter().find(|(at, _)| *at == x)?;
        Some(summary(&measured.iter().map(what).collect::<Vec<_>>()))
    }

    fn line(&self, what: fn(&Measured) -> f64, from: f64) -> Line {
        let points = self.points.iter().filter_map(|(x, measured)| {
            let values: Vec<f64> = measured.iter().map(what).collect();
            // (A logarithmic axis has no 0.)
            (!values.is_empty()).then(|| (x.max(from), summary(&values).median.max(1.0)))
        });
        Line::new(self.system.name(), points.collect())
    }

    fn describe(&self) -> Value {
        let of = |measured: &Measured| {
            json!({
                "per_second": measured.per_second(),
                "per_busy_cpu_s": measured.per_busy_second(),
                "failed": measured.failed,
                "clients_cpu_share": measured.cpu.client / measured.cpu.busy.max(1e-9),
            })
        };
        let points: Vec<Value> = self
            .points
            .iter()
            .map(|(x, all)| json!({ "at": x, "rounds": all.iter().map(of).collect::<Vec<_>>() }))
            .collect();
        json!({ "system": self.system.name(), "points": points })
    }
}

/// Requests of each busy CPU second, one row for each point: switches, and how many times the
/// others'.
fn rows(
    curves: &[Curve],
    point: impl Fn(f64) -> String,
    paper: impl Fn(f64) -> String,
) -> Vec<Row> {
    let of = |system| curves.iter().find(|curve| curve.system == system);
    let Some(switches) = of(System::Switches) else { return vec![] };
    let mut rows = vec![];
    for (x, measured) in &switches.points {
        let busy = summary(&measured.iter().map(Measured::per_busy_second).collect::<Vec<_>>());
        let what = format!("{}: requests of a busy CPU second", point(*x));
        let mut row = Row::value(what, paper(*x), scaled(busy, 1e-3), 1, "K");
        for rival in [System::Etcd, System::ZooKeeper, System::Store] {
            let other = of(rival).and_then(|curve| curve.of(*x, Measured::per_busy_second));
            if let Some(other) = other.filter(|other| other.median > 0.0) {
                let times = busy.median / other.median;
                row.measured += &format!("; {times:.0} × {}", rival.name());
            }
        }
        rows.push(row);
    }
    rows
}

fn scaled(Summary { low, median, high }: Summary, by: f64) -> Summary {
    Summary { low: low * by, median: median * by, high: high * by }
}

fn axes(title: &str, x: &str, y: &str, x_log: bool) -> Axes {
    Axes { title: title.into(), x: x.into(), y: y.into(), x_log, y_log: true, ..Axes::default() }
}
