//! Figure 9e: latency over the offered load.

use super::{GROUPS, KEYS, VALUE_BYTES, default, site};
use crate::experiments::{Context, Experiment, Page};
use crate::kv::workload::{Measured, Spread, Workload};
use crate::kv::{Service, System, up};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::summary;
use anyhow::Result;
use plot::{Axes, Line};
use serde_json::{Value, json};
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "kv-latency",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "NetChain Figure 9e",
        title: "latency of reads and writes over the load",
        quick: "1 min",
        full: "3 min",
        shows: "how long reads and writes take, one at a time and at rates up to saturation, \
                beside etcd and ZooKeeper",
        paper: "\
            NetChain §8.2: 9.7 µs for reads and writes up to 82 MQPS, by clients with DPDK; \
            ZooKeeper 170 µs for reads and 2,350 µs for writes at low load, a little more up to 230 \
            and 27 KQPS.",
        method: "\
            The networks of Figure 9a. First one request at a time, by the blocking way of each \
            client; then requests that begin at a fixed rate, whatever the others do (latency \
            counts from when each should have begun), at 5 to 90 % of what was answered with 256 \
            under way. At a fixed rate a client looks for answers each 200 µs (switches) or as its \
            runtime does (etcd, ZooKeeper), so the first points are the ones of one at a time. \
            Clients use the kernel's UDP and TCP.",
    },
};

/// Of saturation.
const SHARES: [f64; 4] = [0.1, 0.3, 0.6, 0.9];

/// Reads or writes of a system.
struct Side {
    system: System,
    write: bool,
    alone: Vec<Spread>,
    /// Requests a second, and how long they took.
    loaded: Vec<(f64, Spread)>,
}

fn times(measured: &Measured, write: bool) -> Spread {
    Spread::of(if write { &measured.writes_us } else { &measured.reads_us })
}

fn side(
    context: &Context,
    service: &mut dyn Service,
    write: bool,
    length: Duration,
) -> Result<Side> {
    let alone = Workload::one_at_a_time(write, KEYS, length);
    let runs = (0..context.pick(1, 5)).map(|_| service.run(&alone));
    let runs: Vec<Spread> = runs.map(|it| it.map(|it| times(&it, write))).collect::<Result<_>>()?;
    let load = Workload { writes_share: if write { 1.0 } else { 0.0 }, ..default(length) };
    let most = service.run(&load)?.per_second();
    let mut loaded = vec![];
    for share in SHARES {
        let rate = share * most;
        let measured = service.run(&Workload { rate: Some(rate), outstanding: 1000, ..load })?;
        loaded.push((measured.per_second(), times(&measured, write)));
    }
    Ok(Side { system: service.system(), write, alone: runs, loaded })
}

fn run(context: &Context) -> Result<Outcome> {
    let length = Duration::from_secs_f64(context.pick(1.0, 2.0));
    let mut sides = vec![];
    for system in System::ALL {
        context.say(&format!("{} comes up", system.name()));
        let mut service = up(&site(context), system, GROUPS)?;
        service.fill(KEYS, VALUE_BYTES)?;
        service.run(&Workload { writes_share: 0.5, ..default(length) })?;
        for write in [false, true] {
            sides.push(side(context, service.as_mut(), write, length)?);
        }
        context.say(&format!("{} is measured", system.name()));
    }
    let axes = Axes {
        title: "Median latency over the load".into(),
        x: "requests a second".into(),
        y: "µs".into(),
        x_log: true,
        y_log: true,
        ..Axes::default()
    };
    let lines: Vec<Line> = sides.iter().map(line).collect();
    Ok(Outcome {
        rows: rows(&sides),
        notes: vec![],
        figures: vec![Figure { name: "kv-latency".into(), svg: plot::lines(&axes, &lines)? }],
        data: json!(sides.iter().map(describe).collect::<Vec<_>>()),
    })
}

fn word(write: bool) -> &'static str {
    if write { "writes" } else { "reads" }
}

fn line(side: &Side) -> Line {
    let points = side.loaded.iter().map(|(rate, spread)| (*rate, spread.p50)).collect();
    Line::new(format!("{}, {}", side.system.name(), word(side.write)), points)
}

fn describe(side: &Side) -> Value {
    json!({
        "system": side.system.name(), "what": word(side.write), "one_at_a_time_us": side.alone,
        "loaded": side.loaded.iter().map(|(rate, us)| json!({ "rate": rate, "us": us }))
            .collect::<Vec<_>>(),
    })
}

fn rows(sides: &[Side]) -> Vec<Row> {
    let medians = |side: &Side| side.alone.iter().map(|it| it.p50).collect::<Vec<_>>();
    let mut rows = vec![];
    for side in sides {
        let what = format!("{}, {}, one at a time: median", side.system.name(), word(side.write));
        let paper = match (side.system, side.write) {
            (System::Switches, _) => "9.7 µs",
            (System::ZooKeeper, false) => "170 µs",
            (System::ZooKeeper, true) => "2,350 µs",
            (System::Etcd | System::Store, _) => "",
        };
        let row = Row::value(what, paper, summary(&medians(side)), 1, "µs");
        rows.push(match (side.system, side.write) {
            (System::Switches, false) => row.with_goal(Goal::AtMost(10.0)),
            (System::Switches, true) => row.with_goal(Goal::AtMost(20.0)),
            _ => row,
        });
    }
    for write in [false, true] {
        let of = |system| {
            let side = sides.iter().find(|it| it.system == system && it.write == write)?;
            Some(summary(&medians(side)).median).filter(|median| *median > 0.0)
        };
        let ratio = of(System::Etcd).zip(of(System::Switches)).map(|(etcd, ours)| etcd / ours);
        let what = format!("{}, one at a time: etcd's median, times ours", word(write));
        let goal = Goal::AtLeast(30.0);
        rows.push(match ratio {
            Some(ratio) => Row::value(what, "", summary(&[ratio]), 0, "×").with_goal(goal),
            None => Row::not_measured(what, "", goal),
        });
    }
    rows
}
