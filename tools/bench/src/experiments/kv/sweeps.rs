//! Figures 9a to 9d: throughput over the size of values, keys, share of writes, and losses.

use super::{Curve, GROUPS, KEYS, VALUE_BYTES, axes, default, rounds, rows, scaled, site};
use crate::experiments::{Context, Experiment, Page};
use crate::kv::workload::{Measured, Workload};
use crate::kv::{Service, System, up};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use anyhow::Result;
use serde_json::json;
use std::time::Duration;

/// What all four have in common.
const METHOD: &str = "\
    Three servers of a key (switches: f = 2, 100 groups, on four switches), each linked to the \
    clients' host and to each other one, all on this machine (setups/kv_switches.toml, \
    kv_servers.toml); data on tmpfs; reads linearizable (ZooKeeper: sync and read). 256 requests \
    are under way: by one thread that sends and receives in batches (switches), by etcd-client and \
    zookeeper-client on one thread (etcd: to the leader; ZooKeeper: over all three servers). \
    Systems run one after another. What compares is requests of a busy CPU second of the whole \
    machine (/proc/stat, clients included): packets in XDP are charged to whoever runs. The paper \
    has four client machines and switches in hardware.";

/// One of them.
struct Sweep {
    name: &'static str,
    title: &'static str,
    x: &'static str,
    x_log: bool,
    /// Where 0 is drawn on a logarithmic axis.
    least: f64,
    points: &'static [f64],
    quick: &'static [f64],
    set: fn(&mut Workload, f64),
    /// Before each point.
    before: fn(&mut dyn Service, &Workload, f64) -> Result<()>,
    say: fn(f64) -> String,
    paper: fn(f64) -> String,
    /// Whom it compares.
    systems: &'static [System],
    /// Also the goals of reads and writes alone.
    goals: bool,
}

const fn experiment(
    name: &'static str,
    figure: &'static str,
    title: &'static str,
    shows: &'static str,
    paper: &'static str,
    run: fn(&Context) -> Result<Outcome>,
) -> Experiment {
    let page = Page { figure, title, quick: "1 min", full: "4 min", shows, paper, method: METHOD };
    Experiment { name, plays_a_trace: false, page, run }
}

/// Figure 9a.
pub const VALUES: Experiment = experiment(
    "kv-values",
    "NetChain Figure 9a",
    "throughput over the size of values",
    "requests of a busy CPU second with values of 0 to 128 bytes, beside etcd and ZooKeeper",
    "NetChain §8.1: 82 MQPS with four servers, ZooKeeper 140 KQPS; neither depends on the size of \
     values up to 128 bytes.",
    |context| run(context, &VALUES_SWEEP),
);

const VALUES_SWEEP: Sweep = Sweep {
    name: "kv-values",
    title: "Throughput over the size of values",
    x: "bytes of a value",
    x_log: false,
    least: 0.0,
    points: &[8.0, 16.0, 32.0, 64.0, 96.0, 128.0],
    quick: &[16.0, 64.0, 128.0],
    set: |load, x| load.value_bytes = x as usize,
    before: |service, load, _| service.fill(load.keys, load.value_bytes),
    say: |x| format!("values of {x} bytes"),
    paper: |_| "82 MQPS; ZooKeeper 140 KQPS".into(),
    systems: &System::ALL,
    goals: false,
};

/// Figure 9b.
pub const STORE: Experiment = experiment(
    "kv-store",
    "NetChain Figure 9b",
    "throughput over the number of keys",
    "requests of a busy CPU second with 1,000 to 60,000 keys, beside etcd and ZooKeeper",
    "NetChain §8.1: neither system depends on the number of keys (up to 100 K).",
    |context| run(context, &STORE_SWEEP),
);

const STORE_SWEEP: Sweep = Sweep {
    name: "kv-store",
    title: "Throughput over the number of keys",
    x: "keys",
    x_log: true,
    least: 1.0,
    points: &[1_000.0, 5_000.0, 20_000.0, 60_000.0],
    quick: &[1_000.0, 20_000.0],
    set: |load, x| load.keys = x as usize,
    before: |service, load, _| service.fill(load.keys, load.value_bytes),
    say: |x| format!("{x} keys"),
    paper: |_| "82 MQPS; ZooKeeper 140 KQPS".into(),
    systems: &System::ALL,
    goals: false,
};

/// Figure 9c.
pub const WRITES: Experiment = experiment(
    "kv-writes",
    "NetChain Figure 9c",
    "throughput over the share of writes",
    "requests of a busy CPU second with 0 to 100 % writes, beside etcd and ZooKeeper",
    "NetChain §8.1: 82 MQPS whatever the share; ZooKeeper 230 KQPS of reads, 140 KQPS with 1 % \
     writes, 27 KQPS of writes.",
    |context| run(context, &WRITES_SWEEP),
);

const WRITES_SWEEP: Sweep = Sweep {
    name: "kv-writes",
    title: "Throughput over the share of writes",
    x: "writes (%)",
    x_log: false,
    least: 0.0,
    points: &[0.0, 1.0, 10.0, 25.0, 50.0, 75.0, 100.0],
    quick: &[0.0, 1.0, 50.0, 100.0],
    set: |load, x| load.writes_share = x / 100.0,
    before: |_, _, _| Ok(()),
    say: |x| format!("{x} % writes"),
    paper: |x| match x {
        0.0 => "82 MQPS; ZooKeeper 230 KQPS".into(),
        1.0 => "82 MQPS; ZooKeeper 140 KQPS".into(),
        100.0 => "82 MQPS; ZooKeeper 27 KQPS".into(),
        _ => String::new(),
    },
    // (The store's values have 32 bytes.)
    systems: &[System::Switches, System::Etcd, System::ZooKeeper, System::Store],
    goals: true,
};

/// Figure 9d.
pub const LOSS: Experiment = experiment(
    "kv-loss",
    "NetChain Figure 9d",
    "throughput over the share of lost packets",
    "requests of a busy CPU second while the clients' links lose packets, beside etcd and \
     ZooKeeper",
    "NetChain §8.1: 82 MQPS up to 1 % of lost packets, 48 MQPS with 10 %; ZooKeeper 50 KQPS with 1 \
     %, 3 KQPS with 10 %. Each switch loses packets there. Here only the links of the clients' \
     host do, each way, in its kernel (nftables): what servers say to each other is not lost, \
     which is to the servers' good.",
    |context| run(context, &LOSS_SWEEP),
);

const LOSS_SWEEP: Sweep = Sweep {
    name: "kv-loss",
    title: "Throughput over the share of lost packets",
    x: "lost packets (%)",
    x_log: true,
    least: 0.001,
    points: &[0.0, 0.01, 0.1, 1.0, 10.0],
    quick: &[0.0, 1.0, 10.0],
    set: |_, _| {},
    before: |service, _, x| service.network().lose("client", x / 100.0),
    say: |x| format!("{x} % lost"),
    paper: |x| match x {
        1.0 => "82 MQPS; ZooKeeper 50 KQPS".into(),
        10.0 => "48 MQPS; ZooKeeper 3 KQPS".into(),
        _ => "82 MQPS; ZooKeeper 140 KQPS".into(),
    },
    systems: &System::ALL,
    goals: false,
};

fn run(context: &Context, sweep: &Sweep) -> Result<Outcome> {
    let points = context.pick(sweep.quick, sweep.points);
    let length = Duration::from_secs_f64(context.pick(1.0, 2.0));
    let mut curves = vec![];
    for system in sweep.systems.iter().copied() {
        context.say(&format!("{} comes up", system.name()));
        let mut service = up(&site(context), system, GROUPS)?;
        let service = service.as_mut();
        service.fill(KEYS, VALUE_BYTES)?;
        // (A virtual machine of Java compiles what it runs often.)
        service.run(&Workload { writes_share: 0.5, ..default(length) })?;
        let mut curve = Curve { system, points: vec![] };
        for (done, x) in points.iter().enumerate() {
            let mut load = default(length);
            (sweep.set)(&mut load, *x);
            (sweep.before)(service, &load, *x)?;
            curve.points.push((*x, rounds(service, &load, context.pick(1, 3))?));
            context.progress(system.name(), done as u32 + 1, points.len() as u32);
        }
        curves.push(curve);
    }
    let y = "requests of a busy CPU second";
    let axes = axes(sweep.title, sweep.x, y, sweep.x_log);
    let lines: Vec<_> =
        curves.iter().map(|it| it.line(Measured::per_busy_second, sweep.least)).collect();
    let mut rows = rows(&curves, sweep.say, sweep.paper);
    if sweep.goals {
        rows.extend(goals(&curves));
    }
    Ok(Outcome {
        rows,
        notes: vec![clients(&curves)],
        figures: vec![Figure { name: sweep.name.into(), svg: plot::lines(&axes, &lines)? }],
        data: json!(curves.iter().map(Curve::describe).collect::<Vec<_>>()),
    })
}

/// How much of the CPU's time clients had.
fn clients(curves: &[Curve]) -> String {
    let share = |curve: &Curve| {
        let all = || curve.points.iter().flat_map(|(_, measured)| measured);
        let (client, busy): (f64, f64) =
            (all().map(|it| it.cpu.client).sum(), all().map(|it| it.cpu.busy).sum());
        format!("{} {:.0} %", curve.system.name(), 100.0 * client / busy.max(1e-9))
    };
    let shares: Vec<String> = curves.iter().map(share).collect();
    format!(
        "The clients' process had this share of the busy CPU time: {} (of switches, most packets \
         are processed in the client's system calls).",
        shares.join(", ")
    )
}

/// How many times the rivals' requests of a busy CPU second, for reads and writes alone.
fn goals(curves: &[Curve]) -> Vec<Row> {
    let of = |system: System, x: f64| {
        let curve = curves.iter().find(|curve| curve.system == system)?;
        curve.of(x, Measured::per_busy_second)
    };
    let mut rows = vec![];
    for (rival, bound) in [(System::Etcd, 50.0), (System::ZooKeeper, 40.0)] {
        for (what, x) in [("reads", 0.0), ("writes", 100.0)] {
            let times = of(System::Switches, x)
                .zip(of(rival, x))
                .map(|(ours, theirs)| scaled(ours, 1.0 / theirs.median.max(1e-9)));
            let name = format!("{what}: of a busy CPU second, times {}'s", rival.name());
            let goal = Goal::AtLeast(bound);
            rows.push(match times {
                Some(times) => Row::value(name, "", times, 1, "×").with_goal(goal),
                None => Row::not_measured(name, "", goal),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::WRITES_SHARE;
    use super::*;

    #[test]
    fn the_default_point_is_in_each_sweep() {
        for (sweep, default) in [
            (&VALUES_SWEEP, VALUE_BYTES as f64),
            (&STORE_SWEEP, KEYS as f64),
            (&WRITES_SWEEP, WRITES_SHARE * 100.0),
            (&LOSS_SWEEP, 0.0),
        ] {
            for points in [sweep.points, sweep.quick] {
                assert!(points.contains(&default), "{}", sweep.name);
            }
        }
    }
}
