//! Redis beside the store: acknowledged writes for each second of the servers' CPU time.

use super::{Context, Experiment, Page};
use crate::kernel::pin_to_cpu;
use crate::requests::redis::Redis;
use crate::requests::stores::Stores;
use crate::requests::{BATCH, Load};
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, ratio_summary, summary};
use anyhow::Result;
use plot::{Axes, Group};
use serde_json::json;
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "redis",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "Store",
        title: "writes a core: the store beside Redis",
        quick: "30 s",
        full: "2 min",
        shows: "\
            acknowledged writes for each second of the servers' CPU time: one store beside one \
            Redis, and a chain of three stores beside a Redis with two replicas",
        paper: "\
            RedPlane has no such figure: its store is C++ over raw sockets, and is not compared \
            with another one.",
        method: "\
            Loopback; all servers on CPU 1, the client on CPU 0; 10,000 keys of 13 bytes, values \
            of 8 bytes, about 256 writes under way; nothing on disk. A turn is 1 s (full: 2 s) of \
            load; systems take turns. CPU time is that of the servers' processes.\n\n\
            One at a time: an UPDATE in a message of its own; a SET on each of 256 connections. \
            Together: batches of 29 updates, as the engine in the switch makes them, nine under \
            way; 29 SETs in one write on each of nine connections. A chain of three answers when \
            all three have the write; the Redis beside it has two replicas, and the client sends \
            `WAIT 2` behind a SET (or behind 29), so it is answered when both have it.\n\n\
            The store's messages have tags (SipHash, 64 bits), an owner that may write, and \
            numbers that make a write that comes twice change nothing. Redis is without TLS and \
            without a password here. Its replicas may lose writes that WAIT reported, at a \
            failover; the chain's do not.",
    },
};

/// Where the servers are, and where the client.
const SERVERS_CPU: usize = 1;
const CLIENT_CPU: usize = 0;

/// Servers, writes together, and the names of both systems.
struct Case {
    what: &'static str,
    servers: usize,
    together: usize,
}

const CASES: [Case; 4] = [
    Case { what: "one server, one at a time", servers: 1, together: 1 },
    Case { what: "one server, 29 together", servers: 1, together: BATCH },
    Case { what: "three servers, one at a time", servers: 3, together: 1 },
    Case { what: "three servers, 29 together", servers: 3, together: BATCH },
];

fn of_stores(context: &Context, case: &Case, time: Duration) -> Result<Load> {
    let directory = tempfile::tempdir()?;
    let mut stores =
        Stores::start(&context.places.stateplane, case.servers, SERVERS_CPU, directory.path())?;
    if case.together == 1 { stores.updates(time) } else { stores.batches(time) }
}

fn of_redis(case: &Case, time: Duration) -> Result<Load> {
    let directory = tempfile::tempdir()?;
    Redis::start(case.servers - 1, SERVERS_CPU, directory.path())?.load(case.together, time)
}

fn run(context: &Context) -> Result<Outcome> {
    let (rounds, time) = context.pick((3, Duration::from_secs(1)), (7, Duration::from_secs(2)));
    std::thread::scope(|scope| {
        // (This process does other experiments afterwards, on all CPUs.)
        scope
            .spawn(|| measure(context, rounds, time))
            .join()
            .unwrap_or_else(|_| Err(anyhow::anyhow!("the measuring thread panicked")))
    })
}

fn measure(context: &Context, rounds: u32, time: Duration) -> Result<Outcome> {
    pin_to_cpu(CLIENT_CPU)?;
    let mut all = vec![(Vec::new(), Vec::new()); CASES.len()];
    for round in 0..rounds {
        for (case, (stores, redis)) in CASES.iter().zip(&mut all) {
            // Who is first in a round changes.
            if round % 2 == 0 {
                stores.push(of_stores(context, case, time)?);
                redis.push(of_redis(case, time)?);
            } else {
                redis.push(of_redis(case, time)?);
                stores.push(of_stores(context, case, time)?);
            }
        }
        context.progress("writes for each CPU second, round", round + 1, rounds);
    }
    let mut outcome = Outcome::default();
    let mut groups = Vec::new();
    let mut data = Vec::new();
    for (case, (stores, redis)) in CASES.iter().zip(&all) {
        let rates = |loads: &[Load]| loads.iter().map(Load::per_cpu_second).collect::<Vec<_>>();
        let speeds = |loads: &[Load]| -> Summary {
            summary(&loads.iter().map(|it| it.writes as f64 / it.seconds).collect::<Vec<_>>())
        };
        let (of_stores, of_redis) = (rates(stores), rates(redis));
        let ratio = ratio_summary(&of_stores, &of_redis);
        let what = format!("{}: store / Redis, writes for each CPU second", case.what);
        outcome.rows.push(Row::value(what, "", ratio, 2, ""));
        for (system, rates, speed) in
            [("store", &of_stores, speeds(stores)), ("Redis", &of_redis, speeds(redis))]
        {
            let thousands = summary(&rates.iter().map(|it| it / 1e3).collect::<Vec<_>>());
            let what = format!("{}: {system}, for each CPU second", case.what);
            outcome.rows.push(Row::value(what, "", thousands, 1, "thousand writes"));
            data.push(json!({
                "case": case.what, "system": system, "servers": case.servers,
                "together": case.together, "per_cpu_second": rates, "per_second": speed,
            }));
        }
        groups.push(Group {
            name: case.what.to_owned(),
            bars: [&of_stores, &of_redis].map(|rates| Some(bar(summary(rates)))).to_vec(),
        });
    }
    outcome.data = json!(data);
    outcome.figures = figure(groups)?;
    Ok(outcome)
}

/// Median and quartiles, in thousands.
fn bar(Summary { low, median, high }: Summary) -> (f64, f64, f64) {
    (median / 1e3, low / 1e3, high / 1e3)
}

fn figure(groups: Vec<Group>) -> Result<Vec<Figure>> {
    let axes = Axes {
        title: "Acknowledged writes for each second of the servers' CPU time".into(),
        y: "thousand writes".into(),
        ..Axes::default()
    };
    let svg = plot::bars(&axes, &["store", "Redis"], &groups)?;
    Ok(vec![Figure { name: "redis".into(), svg }])
}
