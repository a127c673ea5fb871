//! A rate limiter whose users' packets take four switches (SwiSh Figure 5c).

use super::{Context, Experiment, Page};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::shared::limiter::{BIN, Bin, LIMIT_PPS, Phase, SPLITS, Way, limit};
use crate::statistics::summary;
use anyhow::Result;
use plot::{Axes, Line, Look};
use serde_json::json;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-limiter",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, Figure 5c",
        title: "a rate limiter on four switches",
        quick: "1 min",
        full: "5 min",
        shows: "\
            how far each 200 ms of each user are from its limit, while offered traffic (half, once, \
            three times the limit) and its split over the switches change: with SDW, with EWO, and \
            with a controller that gives each switch a part of the limit",
        paper: "\
            SwiSh §9.1: SDW and EWO keep each user's limit through changes of the split; with a \
            controller that pulls, throughput falls to below 1.5 of 2 Mpps. (Its trace offers \
            exactly the limit.)",
        method: "\
            Real switches in namespaces; hosts send 64-byte packets of two users, 5,000 packets a \
            second each being the limit, in phases of a second. What was sent and what arrived is \
            from the hosts' ledgers. The error of a bin is the difference of what arrived and what \
            the limit allowed of what was offered, over the limit. The burst is 25 packets (2.5 % of \
            a bin). The controller pulls what came to each switch over TCP, as often as it can \
            (each 10 ms) and twice a second, remembers it for 100 ms, and divides the limit in the \
            same parts; each switch has 2 % of the limit at the least, for packets that begin to \
            come there.",
    },
};

/// How often a controller looks: as often as it can, and as the paper's.
const WAYS: [(&str, Way); 4] = [
    ("SDW", Way::Windows(2_000)),
    ("EWO", Way::Eventual),
    ("controller, each 10 ms", Way::Controller(Duration::from_millis(10))),
    ("controller, each 500 ms", Way::Controller(Duration::from_millis(500))),
];
const OFFERS: [f64; 3] = [0.5, 1.0, 3.0];
const MOST_PERCENT: f64 = 5.0;

/// Errors in percent, by what was offered.
fn errors(users: &[Vec<Bin>], bins: u32) -> [Vec<f64>; OFFERS.len()] {
    let mut errors = [const { vec![] }; OFFERS.len()];
    for (at, bin) in users.iter().flat_map(|bins| bins.iter().enumerate()) {
        let phase = at / bins as usize;
        errors[phase % OFFERS.len()].push(bin.error().abs() * 100.0);
    }
    errors
}

fn run(context: &Context) -> Result<Outcome> {
    let rounds = context.pick(1, 3);
    let mut outcome = Outcome::default();
    let bins = 1000 / BIN.as_millis() as u32;
    let splits = context.pick(&SPLITS[..2], &SPLITS[..]);
    let phases: Vec<Phase> = (splits.iter())
        .flat_map(|split| OFFERS.map(|offered| Phase { offered, split: *split, bins }))
        .collect();
    // By way, then by round.
    let mut all: Vec<Vec<Vec<Vec<Bin>>>> = WAYS.map(|_| vec![]).into();
    for round in 0..rounds {
        for (at, (_, way)) in WAYS.into_iter().enumerate() {
            all[at].push(limit(&context.places.stateplane, way, &phases)?);
            let done = round * WAYS.len() as u32 + at as u32 + 1;
            context.progress("runs", done, rounds * WAYS.len() as u32);
        }
    }
    for ((name, way), rounds) in WAYS.iter().zip(&all) {
        let each: Vec<_> = rounds.iter().map(|users| errors(users, bins)).collect();
        for (at, offered) in OFFERS.iter().enumerate() {
            let errors: Vec<f64> = each.iter().flat_map(|errors| &errors[at]).copied().collect();
            let worst = errors.iter().copied().fold(0.0, f64::max);
            let what = format!("{name}, {offered} of the limit offered");
            outcome.rows.push(Row::value(format!("{what}: error"), "", summary(&errors), 2, "%"));
            let row = Row::value(format!("{what}: worst bin"), "", summary(&[worst]), 1, "%");
            let judged = matches!(way, Way::Windows(_));
            let goal = Goal::AtMost(MOST_PERCENT);
            outcome.rows.push(if judged { row.with_goal(goal) } else { row });
        }
    }
    outcome.figures.push(figure(&all)?);
    let told = WAYS.iter().zip(&all).map(|((name, _), rounds)| json!({ *name: rounds }));
    outcome.data = json!(told.collect::<Vec<_>>());
    Ok(outcome)
}

/// What of the first user came through, in the last round.
fn figure(all: &[Vec<Vec<Vec<Bin>>>]) -> Result<Figure> {
    let limit = f64::from(LIMIT_PPS) * BIN.as_secs_f64();
    let points = |of: fn(&Bin) -> u32, bins: &[Bin]| -> Vec<(f64, f64)> {
        let values = bins.iter().map(|bin| f64::from(of(bin)) / limit);
        values.enumerate().map(|(at, value)| (at as f64 * BIN.as_secs_f64(), value)).collect()
    };
    let mut lines = vec![];
    for ((name, _), rounds) in WAYS.iter().zip(all) {
        let Some(bins) = rounds.last().and_then(|users| users.first()) else { continue };
        if lines.is_empty() {
            let offered = points(|bin| bin.offered, bins);
            lines.push(Line::new("offered", offered).with_look(Look::color(7).dashed()));
        }
        lines.push(Line::new(*name, points(|bin| bin.admitted, bins)));
    }
    let axes = Axes {
        title: "A user's packets, of its limit".into(),
        x: "s".into(),
        y: "part of the limit".into(),
        ..Axes::default()
    };
    Ok(Figure { name: "shared-limiter".into(), svg: plot::lines(&axes, &lines)? })
}
