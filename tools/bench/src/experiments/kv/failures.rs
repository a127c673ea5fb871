//! Figure 10: a switch dies under load and comes back, with 1 and 100 groups.

use super::{default, site};
use crate::experiments::{Context, Experiment, Page};
use crate::kv::failure::{Live, Plan, Verdict};
use crate::kv::workload::Workload;
use crate::kv::{Service, System, up};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::summary;
use anyhow::Result;
use plot::{Axes, Line, Panel, panels};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "kv-failures",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "NetChain Figure 10",
        title: "head, middle and tail die and come back, with 1 and 100 groups",
        quick: "90 s",
        full: "3 min",
        shows: "requests answered in 10 ms at first try while head, middle or tail die and come \
                back, with 1 and 100 groups; etcd and ZooKeeper lose their leader beside it",
        paper: "\
            NetChain §8.4: with one group, the throughput drops to half during a recovery of 150 s \
            with 50 % writes (a tail's would drop to 0); with 100 groups it drops by 0.5 %. The \
            failover itself has a second added by hand there.",
        method: "\
            Requests begin at 30 % of the rate that is answered with 256 under way, one half \
            writes of 200 locks. After 2 s all links of a switch go down, and its processes are \
            killed; its own chains go on with two members and get the fourth switch as third; after \
            6 s it is started again. A request counts as answered if its answer comes within 10 ms \
            of when it was due, to its first copy. The failover lasts from the first command that \
            takes a link down until the last of all locks of which it was head (or middle, tail) is \
            written again; each lock has a write under way soon after the kill. The dip is the lowest share of a bin of 100 ms after that, so that of \
            the recovery. etcd and ZooKeeper: the leader, whose servers are taken for dead after \
            100 to 200 ms, as switches are.",
    },
};

/// Places in a chain.
const PLACES: [&str; 3] = ["head", "middle", "tail"];
/// Of saturation.
const OFFERED: f64 = 0.3;
/// After so long the dip of a recovery may be this deep.
const DIP: f64 = 0.02;
/// After so many ms each lock is written again.
const FAILOVER_MS: f64 = 350.0;

/// A run.
struct Run {
    name: String,
    system: System,
    groups: u16,
    plan: Plan,
    verdict: Verdict,
}

fn one(service: &mut dyn Service, name: String, groups: u16, place: usize) -> Result<Run> {
    let load = Workload { writes_share: 0.5, keys: 200, ..default(Duration::from_secs(1)) };
    service.fill(load.keys, load.value_bytes)?;
    let most = service.run(&load)?.per_second();
    let seconds = Duration::from_secs;
    let plan = Plan {
        rate: OFFERED * most,
        writes_share: load.writes_share,
        locks: load.keys,
        place,
        kill: seconds(2),
        restore: seconds(6),
        end: seconds(11),
    };
    let recorded = service.fail(&plan, &Arc::new(Live::new(&plan)))?;
    let verdict = recorded.verdict(&plan);
    Ok(Run { name, system: service.system(), groups, plan, verdict })
}

fn run(context: &Context) -> Result<Outcome> {
    let mut runs = vec![];
    for groups in [1, 100] {
        // (Each run begins with whole chains: a lab of its own.)
        for (place, word) in PLACES.iter().enumerate() {
            context.say(&format!("{groups} groups, a {word} dies"));
            let mut service = up(&site(context), System::Switches, groups)?;
            let said = if groups == 1 { "1 group" } else { "100 groups" };
            runs.push(one(service.as_mut(), format!("{said}, {word}"), groups, place)?);
        }
    }
    for system in [System::Etcd, System::ZooKeeper] {
        context.say(&format!("{}'s leader dies", system.name()));
        let mut service = up(&site(context), system, 1)?;
        runs.push(one(service.as_mut(), format!("{}, leader", system.name()), 1, 0)?);
    }
    Ok(Outcome {
        rows: runs.iter().flat_map(rows).collect(),
        notes: vec![],
        figures: vec![Figure { name: "kv-failures".into(), svg: draw(&runs)? }],
        data: json!(runs.iter().map(describe).collect::<Vec<_>>()),
    })
}

fn rows(run: &Run) -> Vec<Row> {
    let Run { name, verdict, .. } = run;
    let goals = run.system == System::Switches;
    let what = format!("{name} dies: until every lock is written again");
    let failover = match verdict.failover_ms {
        Some(ms) => Row::value(what, "not given", summary(&[ms]), 0, "ms"),
        None => Row::not_measured(what, "not given", Goal::AtMost(FAILOVER_MS)),
    };
    let paper = match (run.system, run.groups) {
        (System::Switches, 1) => "50 % (tail: 100 %)",
        (System::Switches, _) => "0.5 %",
        _ => "",
    };
    let percent = summary(&[verdict.dip * 100.0]);
    let dip = Row::value(format!("{name} dies: dip of the recovery"), paper, percent, 1, "%");
    let lost = Row::value(
        format!("{name} dies: acknowledged writes lost"),
        "",
        summary(&[verdict.lost as f64]),
        0,
        "",
    );
    if !goals {
        return vec![failover, dip, lost];
    }
    let failover = failover.with_goal(Goal::AtMost(FAILOVER_MS));
    let dip = if run.groups == 1 { dip } else { dip.with_goal(Goal::AtMost(DIP * 100.0)) };
    vec![failover, dip, lost.with_goal(Goal::AtMost(0.0))]
}

fn describe(run: &Run) -> Value {
    json!({
        "run": run.name, "rate": run.plan.rate, "failover_ms": run.verdict.failover_ms,
        "first_write_ms": run.verdict.first_ms, "dip": run.verdict.dip,
        "deepest": run.verdict.deepest, "lost": run.verdict.lost, "shares": run.verdict.shares,
    })
}

fn draw(runs: &[Run]) -> Result<String> {
    let lines = |shown: fn(&&Run) -> bool| -> Vec<Line> {
        let line = |it: &Run| Line::new(it.name.clone(), it.verdict.percent());
        runs.iter().filter(shown).map(line).collect()
    };
    let all = [
        lines(|it| it.system == System::Switches && it.groups == 1),
        lines(|it| it.system == System::Switches && it.groups == 100),
        lines(|it| it.system != System::Switches),
    ];
    let axes = |title: &str| Axes {
        title: title.into(),
        x: "time (s), bins of 100 ms".into(),
        y: "answered (%)".into(),
        y_end: Some(105.0),
        marks: vec![(2.0, "dies".into()), (6.0, "is started again".into())],
        ..Axes::default()
    };
    let titles = ["Requests answered in 10 ms at first try", "", ""].map(axes);
    let shown: Vec<Panel> =
        titles.iter().zip(&all).map(|(axes, lines)| Panel { height: 260, axes, lines }).collect();
    Ok(panels(960, &shown)?)
}
