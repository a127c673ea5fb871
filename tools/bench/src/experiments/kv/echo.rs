//! Reads and writes beside an echo with tags over the same hops.

use super::{Context, GROUPS, KEYS, site};
use crate::experiments::{Experiment, Page};
use crate::kv::Service;
use crate::kv::echo::Echo;
use crate::kv::switches::Switches;
use crate::kv::workload::{Spread, Workload};
use crate::report::Goal;
use crate::results::{Outcome, Row};
use crate::statistics::{ratio_summary, summary};
use anyhow::{Result, ensure};
use serde_json::json;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "kv-echo",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "NetChain, latency",
        title: "reads and writes beside an echo over the same hops",
        quick: "40 s",
        full: "70 s",
        shows: "how long a read and a write take one at a time, beside an XDP program that checks \
                and makes tags over the same hops and does nothing else",
        paper: "NetChain §8.2: the switches' own delay is below a microsecond; clients' IO is most \
                of the latency.",
        method: "\
            Both networks are up and take turns. The echo (setups/kv_echo.c) gets messages of the \
            same length from a blocking UDP socket; each switch on the way checks a tag, makes \
            another, and looks the next hop up in the kernel's routes. Hops: to the tail and back; \
            to head, middle, tail, and back.",
    },
};

const WORDS: [&str; 2] = ["read", "write"];

fn run(context: &Context) -> Result<Outcome> {
    let mut service = Switches::up(&site(context), GROUPS)?;
    service.fill(KEYS, 64)?;
    let echo = Echo::up(&site(context))?;
    let length = Duration::from_secs_f64(0.3);
    let rounds = context.pick(6, 40);
    // By kind: of reads and writes, and of echoes.
    let mut ours: [Vec<Spread>; 2] = Default::default();
    let mut echoes: [Vec<Spread>; 2] = Default::default();
    for round in 0..rounds {
        ensure!(!lab::interrupt::requested(), "interrupted");
        for (kind, write) in [false, true].into_iter().enumerate() {
            for turn in 0..2 {
                if (turn + round) % 2 == 0 {
                    let load = Workload::one_at_a_time(write, KEYS, length);
                    let measured = service.run(&load)?;
                    let us = if write { &measured.writes_us } else { &measured.reads_us };
                    ours[kind].push(Spread::of(us));
                } else {
                    echoes[kind].push(Spread::of(&echo.run(write, length)?));
                }
            }
        }
        context.progress("rounds", round as u32 + 1, rounds as u32);
    }
    let mut rows = vec![];
    for (kind, word) in WORDS.iter().enumerate() {
        let bound = if kind == 0 { 10.0 } else { 20.0 };
        for (share, of) in
            [("median", (|it| it.p50) as fn(&Spread) -> f64), ("99th percentile", |it| it.p99)]
        {
            let all = |spreads: &[Spread]| spreads.iter().map(of).collect::<Vec<f64>>();
            let (ours, echoes) = (all(&ours[kind]), all(&echoes[kind]));
            let row = Row::value(format!("{word}, {share}"), "9.7 µs", summary(&ours), 1, "µs");
            rows.push(if share == "median" { row.with_goal(Goal::AtMost(bound)) } else { row });
            let what = format!("echo over the hops of a {word}, {share}");
            rows.push(Row::value(what, "", summary(&echoes), 1, "µs"));
            let ratio = ratio_summary(&ours, &echoes);
            let row = Row::value(format!("{word} / echo, {share}"), "", ratio, 2, "");
            rows.push(row.with_goal(Goal::AtMost(1.3)));
        }
    }
    let data = json!({
        "reads": ours[0], "writes": ours[1], "read_echoes": echoes[0], "write_echoes": echoes[1],
    });
    Ok(Outcome { rows, notes: vec![], figures: vec![], data })
}
