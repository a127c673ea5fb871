//! Attackers at growing rates, blocked by a sketch that switches share, with SDW and with EWO, and
//! by controllers, one of which reads what RedPlane's store has merged (SwiSh Figures 5a and 5b).

use super::{Context, Experiment, Page};
use crate::build::Places;
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::shared::control::{Way, Work, beside};
use crate::shared::network::Network;
use crate::shared::spread::{Leak, leak, plan};
use crate::shared::traffic::{Live, run as send};
use crate::shared::verdict::{self, lost, outcomes};
use crate::statistics::{Summary, quantile, summary};
use anyhow::{Result, ensure};
use plot::{Axes, Line, distribution};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-spread",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, Figures 5a and 5b",
        title: "attackers at growing rates: shared sketches, controllers, RedPlane's snapshots",
        quick: "4 min",
        full: "11 min",
        shows: "\
            the part of each attacker's packets that gets through, over what one switch that sees \
            all packets lets through, by the number of new attackers a second; its distribution at \
            the highest rate; what goes over the links for it; how late blocks are",
        paper: "\
            SwiSh §9.1, Figure 5b: SDW lets the first tenth of each source pass at all rates; with \
            a controller nearly all passes from 1.5 K (push) and 4 K sources a second on. Figure \
            5a: at 4 K, pull blocks 30 % of the sources, push 5 %.",
        method: "\
            The lab of `stateplane demo shared`: four real switches, two CPUs for all. Attackers \
            come at random moments; each sends 3,200 packets to as many destinations in 0.8 s, a \
            quarter through each switch. What gets through is from the hosts' ledgers; what one \
            switch would let pass is computed from the packets as they were sent. SDW has windows \
            of 2 ms. EWO has the same sketch, mirrored after 1 ms. The controller pulls each 10 \
            ms, or as often as it can, whole sketches by TCP from mapped memory; with push, agents \
            look for changes each 1 ms, and tell each once. With RedPlane's snapshots each switch \
            sends each block of its sketch that changed to a store, once in 10 ms; the store has \
            their union (Merge.OR: sums of bit sets count no destinations), and a reader beside it \
            asks for what is new each 10 ms, and has agents block as the controllers do. There is \
            one store: replicas would add bytes and delay. Rates are what senders and receivers \
            on two CPUs stand, some 80,000 packets a second: a thousandth of the paper's. Bytes \
            are those on all links between switches, and to and from controller or store. How late \
            a block is: from the packet at which one switch would block, to the first packet on \
            the last switch from which on none passes; each switch gets one in 1 ms. A run in \
            which more than one packet in 200 is lost on the way fails.",
    },
};

const RATES: [u32; 4] = [3, 6, 12, 24];
const TIME: Duration = Duration::from_secs(3);
const PERIOD_US: u32 = 2_000;
/// Between two snapshots of a block of the sketch.
const SNAPSHOT_PERIOD_US: u32 = 10_000;
/// SDW decides at most three windows late: some 24 of an attacker's packets.
const MOST: f64 = 1.05;
const MOST_WINDOWS: f64 = 3.0;

/// One that blocks.
struct Blocker {
    name: &'static str,
    define: &'static str,
    way: Option<Way>,
}

const BLOCKERS: [Blocker; 5] = [
    Blocker { name: "SDW", define: "DETECTOR_SDW", way: None },
    Blocker { name: "EWO", define: "DETECTOR_EWO", way: None },
    Blocker {
        name: "pull",
        define: "DETECTOR_LOCAL",
        way: Some(Way::Pull(Duration::from_millis(10))),
    },
    Blocker {
        name: "push",
        define: "DETECTOR_LOCAL",
        way: Some(Way::Push(Duration::from_millis(1))),
    },
    // (It has a program of its own.)
    Blocker { name: "snapshots", define: "", way: Some(Way::Store(Duration::from_millis(10))) },
];

impl Blocker {
    fn network(&self, places: &Places) -> Result<Network> {
        let program = &places.stateplane;
        let period = |us: u32| ("period_us", us.to_string());
        let define = ("define", self.define.to_owned());
        match self.way {
            None => Network::up(program, "shared", &[define, period(PERIOD_US)]),
            Some(Way::Store(_)) => {
                Network::with_store(&places.root, program, &[period(SNAPSHOT_PERIOD_US)])
            }
            Some(_) => Network::up(program, "alone", &[define, period(PERIOD_US)]),
        }
    }
}

/// What came of a run.
struct Run {
    leak: Leak,
    mbps: f64,
    /// How late blocks are, of those that are on all switches.
    late_ms: Vec<f64>,
    /// Sources that either one switch would block or these four do, but not both.
    differing: usize,
    /// A controller's rounds.
    rounds_per_s: f64,
}

impl Run {
    /// What got through over what one switch would let through, by attacker.
    fn over(&self) -> Vec<f64> {
        let pairs = self.leak.part.iter().zip(&self.leak.one_switch);
        pairs.map(|(part, one)| part / one).collect()
    }

    fn json(&self) -> Value {
        json!({
            "part": self.leak.part,
            "one_switch": self.leak.one_switch,
            "mbps": self.mbps,
            "late_ms": self.late_ms,
            "differing": self.differing,
            "rounds_per_s": self.rounds_per_s,
        })
    }
}

fn one(context: &Context, blocker: &Blocker, rate: u32, seed: u64) -> Result<Run> {
    let plan = plan(seed, rate, TIME);
    let network = blocker.network(&context.places)?;
    network.daemons_first();
    let (live, work) = (Live::default(), Work::default());
    let (begin, before) = (Instant::now(), network.link_bytes()?);
    let ledger = match blocker.way {
        Some(way) => beside(&network, way, &work, || send(&network, &plan, &live))?,
        None => send(&network, &plan, &live)?,
    };
    let bytes = network.link_bytes()? - before;
    let took_s = begin.elapsed().as_secs_f64();
    let mbps = bytes as f64 * 8e-6 / took_s;
    let rounds_per_s = work.rounds.load(Ordering::Relaxed) as f64 / took_s;
    // (A packet that was lost is no packet that was blocked.)
    let lost = lost(&ledger, network.blocked_packets()?);
    let allowed = plan.count() as u64 / 200;
    ensure!(lost <= allowed, "{}: {lost} of {} packets were lost", blocker.name, plan.count());
    let outcomes = outcomes(&plan, &ledger);
    let late_ms = outcomes.iter().filter_map(verdict::Outcome::detect_ms).collect();
    let differs = |it: &&verdict::Outcome| it.omniscient_ns.is_some() != it.everywhere();
    let differing = outcomes.iter().filter(differs).count();
    Ok(Run { leak: leak(&plan, &ledger), mbps, late_ms, differing, rounds_per_s })
}

fn run(context: &Context) -> Result<Outcome> {
    let rounds = context.pick(1, 3);
    let mut outcome = Outcome::default();
    // By blocker, then by rate.
    let mut all: Vec<Vec<Vec<Run>>> = BLOCKERS.map(|_| RATES.map(|_| vec![]).into()).into();
    let (mut done, steps) = (0, rounds * (BLOCKERS.len() * RATES.len()) as u32);
    for round in 0..rounds {
        for (at, rate) in RATES.into_iter().enumerate() {
            for (blocker, runs) in BLOCKERS.iter().zip(&mut all) {
                runs[at].push(one(context, blocker, rate, u64::from(round) + 1)?);
                done += 1;
                context.progress("runs", done, steps);
            }
        }
    }
    let mut lines = vec![];
    for (blocker, runs) in BLOCKERS.iter().zip(&all) {
        let mut points = vec![];
        for (rate, runs) in RATES.into_iter().zip(runs) {
            let over: Vec<f64> = runs.iter().flat_map(Run::over).collect();
            let what = format!("{}, {rate} attackers/s: passed / one switch's", blocker.name);
            let row = Row::value(what, "", summary(&over), 3, "");
            let judged = blocker.name == "SDW";
            outcome.rows.push(if judged { row.with_goal(Goal::AtMost(MOST)) } else { row });
            points.push((f64::from(rate), mean(&over)));
        }
        lines.push(Line::new(blocker.name, points));
    }
    for (blocker, runs) in BLOCKERS.iter().zip(&all) {
        let differing: Vec<f64> = runs.iter().flatten().map(|run| run.differing as f64).collect();
        let what =
            format!("{}: sources that only one of them blocks: one switch, all four", blocker.name);
        outcome.rows.push(Row::value(what, "", summary(&differing), 0, ""));
        if blocker.way.is_none() {
            let late_ms = runs.iter().flatten().flat_map(|run| &run.late_ms);
            let latest = late_ms.copied().fold(0.0, f64::max) * 1000.0 / f64::from(PERIOD_US);
            let what = format!("{}: the latest block of all runs", blocker.name);
            let row = Row::value(what, "", summary(&[latest]), 2, "windows");
            let judged = blocker.name == "SDW";
            outcome.rows.push(if judged { row.with_goal(Goal::AtMost(MOST_WINDOWS)) } else { row });
        }
        let Some(last) = runs.last() else { continue };
        let mut over: Vec<f64> = last.iter().flat_map(Run::over).collect();
        over.sort_by(f64::total_cmp);
        let [low, median, high] = [0.01, 0.5, 0.99].map(|share| quantile(&over, share));
        let what = format!("{}, most attackers/s: 1st to 99th percentile", blocker.name);
        outcome.rows.push(Row::value(what, "", Summary { low, median, high }, 3, ""));
        let mbps: Vec<f64> = last.iter().map(|run| run.mbps).collect();
        let what = format!("{}, most attackers/s: over the links", blocker.name);
        outcome.rows.push(Row::value(what, "", summary(&mbps), 1, "Mbit/s"));
        let late: Vec<f64> = last.iter().flat_map(|run| &run.late_ms).copied().collect();
        let what = format!("{}, most attackers/s: how late blocks are", blocker.name);
        outcome.rows.push(Row::value(what, "", summary(&late), 1, "ms"));
        if matches!(blocker.way, Some(Way::Pull(_) | Way::Store(_))) {
            let rounds: Vec<f64> = last.iter().map(|run| run.rounds_per_s).collect();
            let what = format!("{}, most attackers/s: rounds a second", blocker.name);
            outcome.rows.push(Row::value(what, "", summary(&rounds), 1, ""));
        }
    }
    outcome.figures = figures(&all, &lines)?;
    let told = BLOCKERS.iter().zip(&all).map(|(blocker, runs)| {
        let runs = RATES.into_iter().zip(runs).map(|(rate, runs)| {
            json!({ "rate": rate, "runs": runs.iter().map(Run::json).collect::<Vec<_>>() })
        });
        json!({ "blocker": blocker.name, "rates": runs.collect::<Vec<_>>() })
    });
    outcome.data = json!(told.collect::<Vec<_>>());
    Ok(outcome)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn figures(all: &[Vec<Vec<Run>>], by_rate: &[Line]) -> Result<Vec<Figure>> {
    let axes = Axes {
        title: "Packets that pass, over those that one switch lets pass".into(),
        x: "new attackers a second".into(),
        y: "mean of the attackers".into(),
        ..Axes::default()
    };
    let rates = Figure { name: "shared-spread".into(), svg: plot::lines(&axes, by_rate)? };
    let line = |(blocker, runs): (&Blocker, &Vec<Vec<Run>>)| {
        let mut parts: Vec<f64> = runs
            .iter()
            .next_back()
            .into_iter()
            .flatten()
            .flat_map(|run| &run.leak.part)
            .copied()
            .collect();
        parts.sort_by(f64::total_cmp);
        Line::new(blocker.name, distribution(&parts))
    };
    let lines: Vec<Line> = BLOCKERS.iter().zip(all).map(line).collect();
    let axes = Axes {
        title: format!("At {} new attackers a second", RATES[RATES.len() - 1]),
        x: "part of an attacker's packets that pass".into(),
        y: "part of the attackers".into(),
        ..Axes::default()
    };
    let parts = Figure { name: "shared-spread-sources".into(), svg: plot::lines(&axes, &lines)? };
    Ok(vec![rates, parts])
}
