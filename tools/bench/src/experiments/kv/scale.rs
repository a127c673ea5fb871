//! Figure 9f: throughput over the number of switches, by a model, and the model beside a small lab.

use super::{Context, KEYS, axes, packets, site};
use crate::experiments::{Experiment, Page};
use crate::kv::Service;
use crate::kv::fabric::{Costs, Fabric, Query};
use crate::kv::switches::Switches;
use crate::kv::workload::Workload;
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, summary};
use crate::xdp_time::Counting;
use anyhow::{Result, ensure};
use plot::{Line, Look};
use serde_json::{Value, json};
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "kv-scale",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "NetChain Figure 9f",
        title: "throughput over the number of switches, and the model beside a lab",
        quick: "70 s",
        full: "2 min",
        shows: "queries a second that spine-leaf networks of 6 to 96 switches let through, by a \
                model with measured times of packets; packets and CPU time of a query, by the \
                model and in a lab of 6 switches",
        paper: "\
            NetChain §8.3: by simulation, with 4 BQPS a switch, reads and writes grow linearly \
            from 6 to 96 switches; writes traverse more hops, and so are fewer.",
        method: "\
            The model places keys as the product does (100 virtual nodes and up to 100 groups a \
            switch, 4,096 at the most; f = 2; all leaves and spines serve), with half as many \
            spines as leaves, clients at all leaves, and traffic spread alike over shortest \
            paths. A packet costs each switch that it meets the time that kv-packets measures \
            (routed, read, written at head, middle or tail), on one core a switch. The throughput \
            is where the busiest switch has no time left. The lab (setups/kv_fabric.toml) is the \
            smallest such network, in XDP on this machine, with clients at one leaf, one path for \
            each pair of addresses. There the kernel counts runs of all switches' programs and \
            their time; what they do without load is subtracted. A packet costs some more there; \
            why is not isolated. The curve bends below the linear one (dashed: the smallest \
            network's throughput for each of its switches): placement is uneven, and 4,096 groups \
            are 43 a switch at 96.",
    },
};

/// Leaves; half as many spines beside them.
const LEAVES: [usize; 5] = [4, 8, 16, 32, 64];
const MIXES: [(&str, f64); 3] = [("reads", 0.0), ("1 % writes", 0.01), ("writes", 1.0)];

/// Nanoseconds of a packet, as this machine needs them.
fn costs(context: &Context) -> Result<Costs> {
    let measured = packets::measure(context, true)?;
    let ns: Vec<f64> = measured.iter().map(|cost| summary(&cost.ns).median).collect();
    let [route, read, head, middle, tail] = ns[..] else {
        anyhow::bail!("{} kinds of packets", ns.len())
    };
    Ok(Costs { route, read, write: [head, middle, tail] })
}

fn exactly(value: f64) -> Summary {
    Summary { low: value, median: value, high: value }
}

/// What the model says of a network.
struct Point {
    switches: usize,
    /// Queries in a microsecond.
    mqps: f64,
    /// What the smallest network lets through, times its size.
    linear_mqps: f64,
    /// Load of the busiest switch by the mean of all.
    busiest_by_mean: f64,
    /// With all packets alike, 4 billion of them a second and switch.
    bqps_as_in_the_paper: f64,
}

impl Point {
    fn describe(&self, mix: &str) -> Value {
        json!({
            "switches": self.switches, "mix": mix, "mqps": self.mqps,
            "linear_mqps": self.linear_mqps, "busiest_by_mean": self.busiest_by_mean,
            "bqps_as_in_the_paper": self.bqps_as_in_the_paper,
        })
    }
}

/// Networks of all sizes, the smallest first.
fn sizes(writes: f64, costs: &Costs) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = vec![];
    for leaves in LEAVES {
        let fabric = Fabric::founded(leaves)?;
        let (throughput, busiest_by_mean) = fabric.throughput(writes, costs);
        let (alike, _) = fabric.throughput(writes, &Costs::ALIKE);
        // (Queries a nanosecond.)
        let (switches, mqps) = (fabric.switches(), throughput * 1e3);
        let each = points.first().map_or(mqps / switches as f64, |it| it.mqps / it.switches as f64);
        points.push(Point {
            switches,
            mqps,
            linear_mqps: each * switches as f64,
            busiest_by_mean,
            bqps_as_in_the_paper: alike * 4.0,
        });
    }
    Ok(points)
}

fn rows_of(mix: &str, points: &[Point]) -> Vec<Row> {
    let (Some(few), Some(many)) = (points.first(), points.last()) else { return vec![] };
    let what = format!("{mix}: {} switches / {}", many.switches, few.switches);
    let row = Row::value(what, "16 (linear)", exactly(many.mqps / few.mqps), 1, "times");
    let mut rows = vec![row.with_goal(Goal::AtLeast(16.0))];
    for it in [few, many] {
        let what = format!("{mix}: {} switches, one core each", it.switches);
        rows.push(Row::value(what, "", exactly(it.mqps), 2, "M/s"));
        let what = format!("{mix}: {} switches, load of the busiest one / mean", it.switches);
        rows.push(Row::value(what, "", exactly(it.busiest_by_mean), 2, "times"));
    }
    rows
}

fn run(context: &Context) -> Result<Outcome> {
    let _counting = Counting::begin()?;
    let costs = costs(context)?;
    let (mut rows, mut lines, mut data) = (vec![], vec![], vec![]);
    for (color, (mix, writes)) in MIXES.into_iter().enumerate() {
        let points = sizes(writes, &costs)?;
        rows.extend(rows_of(mix, &points));
        data.extend(points.iter().map(|it| it.describe(mix)));
        let mut draw = |name: String, look, of: &dyn Fn(&Point) -> f64| {
            let line = points.iter().map(|it| (it.switches as f64, of(it))).collect();
            lines.push(Line::new(name, line).with_look(look));
        };
        let look = Look::color(color);
        draw(mix.into(), look, &|it| it.mqps);
        draw(format!("{mix}, linear"), look.dashed(), &|it| it.linear_mqps);
    }
    let (more, told) = lab(context, &costs)?;
    rows.extend(more);
    let mut axes = axes("Throughput over the size of the network", "switches", "M queries/s", true);
    axes.y_log = true;
    let svg = plot::lines(&axes, &lines)?;
    Ok(Outcome {
        rows,
        notes: vec![],
        figures: vec![Figure { name: "kv-scale".into(), svg }],
        data: json!({ "model": data, "lab": told }),
    })
}

/// Packets and nanoseconds of all switches.
#[derive(Clone, Copy, Debug)]
struct Spent {
    packets: f64,
    ns: f64,
}

fn spent(service: &Switches) -> Result<Spent> {
    let mut all = Spent { packets: 0.0, ns: 0.0 };
    for switch in ["s1", "s2", "s3", "s4", "s5", "s6"] {
        for (runs, ns) in packets::programs(service.network(), switch)? {
            all.packets += runs as f64;
            all.ns += ns as f64;
        }
    }
    Ok(all)
}

/// What is spent while `work` is done, a second of it without load subtracted.
fn during(service: &mut Switches, idle: Spent, load: &Workload) -> Result<Spent> {
    let (before, sent) = (spent(service)?, service.sent());
    let began = std::time::Instant::now();
    service.run(load)?;
    let (after, seconds) = (spent(service)?, began.elapsed().as_secs_f64());
    let queries = (service.sent() - sent) as f64;
    ensure!(queries > 1000.0, "{queries} queries");
    Ok(Spent {
        packets: (after.packets - before.packets - idle.packets * seconds) / queries,
        ns: (after.ns - before.ns - idle.ns * seconds) / queries,
    })
}

fn lab(context: &Context, costs: &Costs) -> Result<(Vec<Row>, Value)> {
    let mut service = Switches::in_fabric(&site(context))?;
    service.fill(KEYS, 64)?;
    let fabric = Fabric::of(4, service.ring(), &service.shares(), vec![0])?;
    let length = Duration::from_secs_f64(context.pick(1.0, 4.0));
    let before = spent(&service)?;
    std::thread::sleep(length);
    let after = spent(&service)?;
    let seconds = length.as_secs_f64();
    let idle = Spent {
        packets: (after.packets - before.packets) / seconds,
        ns: (after.ns - before.ns) / seconds,
    };
    let (mut rows, mut told) = (vec![], vec![]);
    for (word, query, writes) in [("read", Query::Read, 0.0), ("write", Query::Write, 1.0)] {
        let once = Workload::one_at_a_time(false, KEYS, length);
        let load = Workload { outstanding: 64, writes_share: writes, ..once };
        let mut all = vec![];
        for round in 0..context.pick(3, 7) {
            all.push(during(&mut service, idle, &load)?);
            context.progress(&format!("{word}s in the lab"), round + 1, context.pick(3, 7));
        }
        let of = |what: fn(&Spent) -> f64| all.iter().map(what).collect::<Vec<f64>>();
        let (packets, ns) = (of(|it| it.packets), of(|it| it.ns));
        let model = |costs| fabric.load(query, costs).iter().sum::<f64>();
        let (hops, time) = (model(&Costs::ALIKE), model(costs));
        let by = |measured: &[f64], model: f64| {
            summary(&measured.iter().map(|it| it / model).collect::<Vec<_>>())
        };
        let what = format!("lab of 6 switches, {word}: packets at switches, measured / model");
        let paper = format!("model: {hops:.2}");
        let row = Row::value(what, paper, by(&packets, hops), 3, "");
        rows.push(row.with_goal(Goal::Within(0.98, 1.02)));
        let what = format!("lab of 6 switches, {word}: CPU time of programs, measured / model");
        let paper = format!("model: {time:.0} ns");
        let row = Row::value(what, paper, by(&ns, time), 2, "");
        rows.push(row.with_goal(Goal::Within(0.8, 1.25)));
        told.push(json!({
            "query": word, "packets": packets, "ns": ns, "model_packets": hops, "model_ns": time,
        }));
    }
    Ok((rows, json!(told)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linear_line_begins_where_the_model_does() {
        let costs = Costs { route: 1.0, read: 1.0, write: [1.0; 3] };
        let points = sizes(0.0, &costs).unwrap();
        assert_eq!((points[0].switches, points[4].switches), (6, 96));
        assert_eq!(points[0].linear_mqps, points[0].mqps);
        assert!((points[4].linear_mqps / points[0].mqps - 16.0).abs() < 1e-9);
        assert!(points.iter().all(|it| it.busiest_by_mean >= 1.0));
        let shown: Vec<String> =
            rows_of("reads", &points).iter().map(|it| it.what.clone()).collect();
        assert!(shown.contains(&"reads: 96 switches, load of the busiest one / mean".to_owned()));
    }
}
