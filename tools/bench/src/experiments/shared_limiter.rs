//! A rate limiter whose users' packets take four switches (SwiSh Figure 5c).

use super::{Context, Experiment, Page};
use crate::report::Goal;
use crate::results::{Outcome, Row};
use crate::shared::limiter::{BIN, Bin, Phase, SPLITS, limit};
use crate::statistics::summary;
use anyhow::Result;
use serde_json::json;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-limiter",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, Figure 5c",
        title: "a rate limiter on four switches",
        quick: "20 s",
        full: "2 min",
        shows: "\
            how far each 200 ms of each user are from its limit, while offered traffic (half, once, \
            three times the limit) and its split over the switches change",
        paper: "\
            SwiSh §9.1: SDW and EWO keep each user's limit through changes of the split; with a \
            controller that pulls, throughput falls to below 1.5 of 2 Mpps. (Its trace offers \
            exactly the limit.)",
        method: "\
            Real switches in namespaces; hosts send 64-byte packets of two users, 5,000 packets a \
            second each being the limit, in phases of a second. What was sent and what arrived is \
            from the hosts' ledgers. The error of a bin is the difference of what arrived and what \
            the limit allowed of what was offered, over the limit. The burst is 25 packets (2.5 % of \
            a bin).",
    },
};

/// Windows of SDW.
const PERIOD_US: u32 = 2_000;

fn run(context: &Context) -> Result<Outcome> {
    let rounds = context.pick(1, 3);
    let mut outcome = Outcome::default();
    let mut errors = [vec![], vec![], vec![]];
    let offers = [0.5, 1.0, 3.0];
    let bins = 1000 / BIN.as_millis() as u32;
    let splits = context.pick(&SPLITS[..2], &SPLITS[..]);
    let phases: Vec<Phase> = (splits.iter())
        .flat_map(|split| offers.map(|offered| Phase { offered, split: *split, bins }))
        .collect();
    let mut all: Vec<Vec<Vec<Bin>>> = vec![];
    for round in 0..rounds {
        let users = limit(&context.places.stateplane, "SHARED", PERIOD_US, &phases)?;
        for (at, bin) in users.iter().flat_map(|bins| bins.iter().enumerate()) {
            // (What is sent around the end of a phase is no phase's.)
            let phase = at / bins as usize;
            errors[phase % offers.len()].push(bin.error().abs() * 100.0);
        }
        all.push(users);
        context.progress("rounds", round + 1, rounds);
    }
    for (offered, errors) in offers.iter().zip(&errors) {
        let worst = errors.iter().copied().fold(0.0, f64::max);
        let what = format!("SDW, {offered} of the limit offered");
        outcome.rows.push(Row::value(format!("{what}: error"), "", summary(errors), 2, "%"));
        let row = Row::value(format!("{what}: worst bin"), "", summary(&[worst]), 1, "%");
        outcome.rows.push(row.with_goal(Goal::AtMost(5.0)));
    }
    outcome.data = json!({ "sdw": all });
    Ok(outcome)
}
