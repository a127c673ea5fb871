//! Figure 14: failover, the paper's own way and beside keepalived + conntrackd while new
//! connections arrive.

use super::{Context, Experiment, Page};
use crate::churn::{self, End, Lives, Load};
use crate::labs::{Running, Wanted};
use crate::moves;
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, summary};
use anyhow::{Context as _, Result, bail};
use plot::{Axes, Line};
use serde_json::{Value, json};
use std::net::SocketAddrV4;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fig14",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "Figure 14",
        title: "\
            failover, beside keepalived and conntrackd, while 2,000 connections a second arrive",
        quick: "90 s",
        full: "6 min",
        shows: "\
            failover: long TCP flows; a link that moves while both switches live (recall); 2,000 \
            new connections a second beside keepalived + conntrackd: lost connections, of those \
            established before the failure and after it",
        paper: "\
            RedPlane §7.3: a switch that runs a NAT is killed and comes back while TCP flows pass. \
            Without fault tolerance the connections break; with RedPlane TCP throughput is back \
            after 0.9 s (failure) and 1.0 s (return), with leases of 1 s.\n\n\
            The paper does not compare with what Linux gateways use today: keepalived moves the \
            addresses to the other machine, and conntrackd has told that one, asynchronously, of \
            the connections.",
        method: "\
            First the paper's own experiment, by `stateplane demo`: iperf3's long flows and idle \
            connections, the switch killed and restored.\n\n\
            Then a link moves while both switches live: in systems/redplane/lab/nat.toml, all \
            traffic preferring s1, the link between it and the core is taken down and up again by \
            turns, while datagrams of one flow go to an echo server, one each millisecond. The \
            longest time from the move on in which none comes back holds the routing protocol's \
            change and the recall of the flow from the other switch (which the switches' metrics \
            must show).\n\n\
            Then new connections: 140 hosts open 2,000 TCP connections a second in all to one \
            server, from random ports; each makes an 8-byte exchange twice a second for 1.5 s and \
            closes. In the middle the machine that carries the traffic dies (SIGKILL to all of it, \
            links down, memory gone). A connection is lost if it was established and then is reset \
            or gets no answer for 10 s; those that were established when the machine died, and \
            those that were established afterwards (during the outage, or by the machine that took \
            over), are counted apart. stateplane runs in systems/redplane/lab/nat.toml (BGP with \
            BFD, 20 ms × 5, all traffic preferring s1); the others in \
            tools/bench/setups/conntrackd.toml: two nftables NATs, VRRP with advertisements every \
            30 ms, conntrackd in FT-FW mode over a link of its own, its external cache committed \
            by the script that conntrack-tools ship. Detection is quicker for stateplane here: its \
            neighbours see the carrier go (BFD, for links that fall silent, would take 100 ms), \
            VRRP waits for three advertisements. One machine carries everything before, another \
            after. The kernel helps itself where conntrackd has lost a connection: it takes up TCP \
            in its middle and picks the same external port if that is free; so connections lost \
            are fewer than connections not copied. How long service is away is told twice: by what \
            is sent from a moment on being answered at once, and by the rate of all exchanges, \
            which swings for some time after, as clients wait half a second after each answer and \
            those that waited for the same outage go on together. New connections go on at once \
            with stateplane; those that the dead switch had wait for what is left of its lease. \
            The others' outage is detection alone, as their connections belong to nobody. \
            \"Strict\" is conntrackd with that taken away (nf_conntrack_tcp_loose 0 and invalid \
            packets dropped, as stateful firewalls have it).",
    },
};

/// Where the connections go.
const SERVER_PORT: u16 = 7_000;
/// Where the datagrams go that are watched while a link moves, a port a move.
const RECALL_PORT: u16 = 9_000;
/// A link's change must have moved the flow by then: BGP comes back within seconds.
const MOVED_WITHIN: Duration = Duration::from_secs(30);
/// Hosts besides the first.
const MORE_HOSTS: u32 = 139;
/// Width of the bins of rates, in seconds.
const BIN_S: f64 = 0.1;
/// The same of the figures.
const DRAWN_BIN_S: f64 = 0.05;
/// Recovered: this share of the rate before, as the mean of each [`MEAN_BINS`] bins in
/// [`SUSTAINED_BINS`]. (The connections of an outage send again together: for seconds after, rates
/// swing from bin to bin.)
const RECOVERED: f64 = 0.8;
const MEAN_BINS: usize = 3;
const SUSTAINED_BINS: usize = 8;

/// Served: this share of what was sent in each of these bins (by when it was sent first) was
/// answered so soon. Unlike the rate of answers it does not swing with the clients, which wait for
/// an answer before they go on.
const SERVED: f64 = 0.95;
const SERVED_BIN_S: f64 = 0.05;
const SERVED_WITHIN_S: f64 = 0.1;

struct System {
    name: &'static str,
    lab: Wanted<'static>,
}

const SYSTEMS: [System; 4] = [
    System {
        name: "stateplane",
        lab: Wanted {
            file: "systems/redplane/lab/nat.toml",
            mode: "replicated",
            prefer: Some("s1"),
            vars: &[],
        },
    },
    System {
        name: "keepalived + conntrackd",
        lab: Wanted {
            file: "tools/bench/setups/conntrackd.toml",
            mode: "conntrackd",
            prefer: None,
            vars: &[],
        },
    },
    System {
        name: "keepalived + conntrackd, strict",
        lab: Wanted {
            file: "tools/bench/setups/conntrackd.toml",
            mode: "strict",
            prefer: None,
            vars: &[],
        },
    },
    System {
        name: "keepalived alone",
        lab: Wanted {
            file: "tools/bench/setups/conntrackd.toml",
            mode: "alone",
            prefer: None,
            vars: &[],
        },
    },
];

/// When things happen, in seconds.
#[derive(Clone, Copy)]
struct Plan {
    fail: f64,
    end: f64,
}

struct Run {
    lives: Lives,
    failed_at: f64,
}

/// One run of one system in a fresh lab.
fn run_once(context: &Context, system: &System, plan: Plan, seed: u64) -> Result<Run> {
    let lab = Running::up(context, system.lab)?;
    let sources = lab.add_addresses("inside", MORE_HOSTS)?;
    let (_, server) = lab.host_port("outside")?;
    let load = Load {
        server: SocketAddrV4::new(server, SERVER_PORT),
        sources,
        rate_per_s: 2_000.0,
        opening_s: plan.end,
        life_s: 1.5,
        pause_s: 0.5,
        answer_timeout_s: 10.0,
        seed,
    };
    let (client_space, server_space) = (lab.netns("inside")?, lab.netns("outside")?);
    let (ready, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let io = std::io::Error::other::<String>;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            server_space
                .run(|| churn::serve(SERVER_PORT, &ready, &stop).map_err(|e| io(format!("{e:#}"))))
        });
        while !ready.load(Ordering::Acquire) && !server.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let start = Instant::now();
        let (load, stop_client) = (&load, &stop);
        let client = scope.spawn(move || {
            client_space
                .run(|| churn::run(load, start, stop_client).map_err(|e| io(format!("{e:#}"))))
        });
        let killed = kill_at(&lab, start, plan.fail);
        while !client.is_finished() && !lab::interrupt::requested() {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        let lives =
            client.join().map_err(|_| anyhow::anyhow!("the client panicked"))?.context("client")?;
        server.join().map_err(|_| anyhow::anyhow!("the server panicked"))?.context("server")?;
        if lab::interrupt::requested() {
            bail!("interrupted");
        }
        Ok(Run { lives, failed_at: killed? })
    })
}

/// Kills s1 at a moment; the moment at which it began to die.
fn kill_at(lab: &Running, start: Instant, at: f64) -> Result<f64> {
    while start.elapsed().as_secs_f64() < at && !lab::interrupt::requested() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let t = start.elapsed().as_secs_f64();
    lab.fail("s1")?;
    Ok(t)
}

/// Time from the failure until rates are back for good; none if they never are.
fn recovery(rates: &[(f64, f64)], failed_at: f64, end: f64) -> Option<f64> {
    let before: Vec<f64> =
        rates.iter().filter(|(t, _)| *t > 1.5 && t + BIN_S < failed_at).map(|r| r.1).collect();
    let enough = RECOVERED * summary(&before).median;
    let after: Vec<&(f64, f64)> =
        rates.iter().filter(|(t, _)| t - BIN_S / 2.0 >= failed_at && *t < end).collect();
    let good = |w: &[&(f64, f64)]| {
        w.iter().map(|(_, rate)| rate).sum::<f64>() / MEAN_BINS as f64 >= enough
    };
    let at = after.windows(SUSTAINED_BINS).position(|w| w.windows(MEAN_BINS).all(good))?;
    Some(after[at].0 - BIN_S / 2.0 - failed_at)
}

/// Time from the failure until what is sent is served, for good; none if it never is.
fn served_again(exchanges: &[(f64, f64)], failed_at: f64, end: f64) -> Option<f64> {
    let mut bins = vec![(0u32, 0u32); ((end - failed_at) / SERVED_BIN_S) as usize];
    for (asked, answered) in exchanges.iter().filter(|(asked, _)| *asked >= failed_at) {
        if let Some((soon, all)) = bins.get_mut(((asked - failed_at) / SERVED_BIN_S) as usize) {
            *all += 1;
            *soon += u32::from(answered - asked <= SERVED_WITHIN_S);
        }
    }
    let bad = |(soon, all): &(u32, u32)| f64::from(*soon) < SERVED * f64::from(*all);
    let good_from = bins.iter().rposition(bad).map_or(0, |last| last + 1);
    (good_from < bins.len()).then_some(good_from as f64 * SERVED_BIN_S)
}

/// What one run says, as numbers.
struct Figures {
    established: f64,
    lost: f64,
    /// After the failure, during the outage and when it was over.
    established_later: f64,
    lost_later: f64,
    not_opened: f64,
    lost_before: f64,
    silence_s: f64,
    recovery_s: Option<f64>,
    served_s: Option<f64>,
}

fn figures_of(run: &Run, plan: Plan) -> Figures {
    let t = run.failed_at;
    let lives = &run.lives;
    let before = lives.lives.iter().filter(|l| l.ended <= t && l.end != End::Finished).count();
    let not_opened = lives.lives.iter().filter(|l| l.ended > t && l.end == End::NotOpened).count();
    // The longest time without any answer after the failure.
    let mut last = t;
    let mut silence: f64 = 0.0;
    for answer in lives.answers.iter().filter(|a| **a >= t && **a <= plan.end) {
        silence = silence.max(answer - last);
        last = *answer;
    }
    silence = silence.max(plan.end - last);
    let rates = Lives::rate(lives.answers.iter().copied(), BIN_S, plan.end);
    Figures {
        established: lives.open_at(t).count() as f64,
        lost: lives.lost_of(t) as f64,
        established_later: lives.established_after(t).count() as f64,
        lost_later: lives.lost_of_later(t) as f64,
        not_opened: not_opened as f64,
        lost_before: before as f64,
        silence_s: silence,
        recovery_s: recovery(&rates, t, plan.end),
        served_s: served_again(&lives.exchanges, t, plan.end),
    }
}

/// The paper's own experiment: `stateplane demo` does it, and knows how to measure it.
fn demo(context: &Context, seconds: u32) -> Result<Value> {
    let out = context.places.output.join("demo");
    let path = out.join("failover.json");
    // An earlier run's figures are not this one's.
    super::remove(&path)?;
    let output = Command::new(&context.places.stateplane)
        .args(["demo", "--runs", "with,without", "--seconds", &seconds.to_string(), "--out"])
        .arg(&out)
        .output()
        .context("stateplane demo")?;
    // Without success there are figures if it went wrong in a way that they show.
    let said = || {
        let text = String::from_utf8_lossy(&output.stderr);
        text.trim().lines().last().unwrap_or("stateplane demo said nothing").to_owned()
    };
    let text = std::fs::read(&path).with_context(said)?;
    Ok(serde_json::from_slice(&text)?)
}

fn demo_rows(demo: &Value) -> Vec<Row> {
    let number = |run: &str, field: &str| demo[run][field].as_f64();
    let text =
        |value: Option<f64>, unit: &str| value.map_or("never".to_owned(), |v| format!("{v}{unit}"));
    let one = |v: f64| Summary { low: v, median: v, high: v };
    let mut rows = Vec::new();
    let what = "long flows: TCP back after the failure";
    let back = match number("with", "recovery_fail_s") {
        Some(value) => Row::value(what, "0.9 s", one(value), 3, "s"),
        None => Row::text(what, "0.9 s", "never"),
    };
    rows.push(back.with_goal(Goal::AtMost(0.35)));
    rows.push(Row::text(
        "long flows: TCP back after the return",
        "1.0 s",
        text(number("with", "recovery_return_s"), " s"),
    ));
    let of = |run: &str| {
        format!(
            "{} of {}",
            text(number(run, "connections_broken"), ""),
            text(number(run, "connections"), "")
        )
    };
    rows.push(Row::text("connections broken, replicated", "0", of("with")));
    rows.push(Row::text("connections broken, no fault tolerance", "all", of("without")));
    rows
}

/// Moves the link between s1 and the core away and back, so many times in all, while both switches
/// live and one flow's datagrams pass: each time the flow is recalled from the switch that has it.
/// The longest silence of each move, in seconds.
fn recalls(context: &Context, moves: u16) -> Result<Vec<f64>> {
    let lab = Running::up(context, SYSTEMS[0].lab)?;
    let recalled = || -> Result<f64> {
        let of = |switch| super::fig15::flow_events(&lab, switch, "recalled");
        Ok(of("s1")? + of("s2")?)
    };
    let mut silences = Vec::new();
    for number in 0..moves {
        let before = recalled()?;
        let up = number % 2 == 1;
        let link = if up { "up" } else { "down" };
        // Routes come back later than they go: the stream runs on until its flow has moved.
        let moved = || -> Result<()> {
            lab.set_link("core", "s1", up)?;
            let start = Instant::now();
            while recalled()? == before {
                if start.elapsed() > MOVED_WITHIN || lab::interrupt::requested() {
                    bail!("no flow was recalled when the link between core and s1 went {link}");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        };
        silences.push(moves::silence(&lab, RECALL_PORT + number, moved)?);
        if lab::interrupt::requested() {
            bail!("interrupted");
        }
        context.progress("moves between living switches", u32::from(number) + 1, u32::from(moves));
    }
    Ok(silences)
}

fn recall_rows(silences: &Result<Vec<f64>>) -> Vec<Row> {
    let what = "a link moves, both switches live: longest silence of a flow";
    let goal = Goal::AtMost(0.1);
    match silences {
        Ok(silences) => {
            let longest = silences.iter().copied().fold(0.0, f64::max);
            vec![
                Row::value(what, "", summary(silences), 3, "s").with_goal_of_each(goal, silences),
                Row::text(
                    format!("the same, longest of {} moves", silences.len()),
                    "",
                    format!("{longest:.3} s"),
                ),
            ]
        }
        Err(_) => vec![Row::not_measured(what, "", goal)],
    }
}

fn rows_of(name: &str, figures: &[Figures]) -> Vec<Row> {
    let over = |of: fn(&Figures) -> f64| summary(&figures.iter().map(of).collect::<Vec<_>>());
    let lost = |what: &str, of: fn(&Figures) -> f64, lost: fn(&Figures) -> f64| {
        let what = format!("{name}: connections lost of {:.0} established {what}", over(of).median);
        let row = Row::value(what, "", over(lost), 0, "");
        let each: Vec<f64> = figures.iter().map(lost).collect();
        if name == SYSTEMS[0].name { row.with_goal_of_each(Goal::AtMost(0.0), &each) } else { row }
    };
    let time_of = |what: &str, of: fn(&Figures) -> Option<f64>| {
        let times: Vec<f64> = figures.iter().filter_map(of).collect();
        let what = format!("{name}: {what}");
        if times.len() == figures.len() {
            Row::value(what, "", summary(&times), 2, "s")
        } else {
            Row::text(what, "", "not in every run")
        }
    };
    vec![
        lost("before the failure", |f| f.established, |f| f.lost),
        lost("after it", |f| f.established_later, |f| f.lost_later),
        Row::value(
            format!("{name}: not opened within 10 s, after the failure"),
            "",
            over(|f| f.not_opened),
            0,
            "",
        ),
        time_of("95 % of what is sent answered within 0.1 s again, after", |f| f.served_s),
        time_of("rate of exchanges back to 80 %", |f| f.recovery_s),
        Row::value(
            format!("{name}: longest time without any answer"),
            "",
            over(|f| f.silence_s),
            2,
            "s",
        ),
    ]
}

fn figure(runs: &[Vec<Run>], plan: Plan) -> Result<Vec<Figure>> {
    let line = |index: usize, of: &dyn Fn(&Lives) -> Vec<(f64, f64)>| {
        let rates = runs[index].first().map_or(Vec::new(), |run| of(&run.lives));
        let rates: Vec<f64> = rates.into_iter().map(|(_, rate)| rate).collect();
        Line::new(SYSTEMS[index].name, plot::steps(&rates, DRAWN_BIN_S))
    };
    let answers = |lives: &Lives| Lives::rate(lives.answers.iter().copied(), DRAWN_BIN_S, plan.end);
    let opened = |lives: &Lives| {
        Lives::rate(lives.lives.iter().filter_map(|l| l.established), DRAWN_BIN_S, plan.end)
    };
    let mut figures = Vec::new();
    for (name, title, y, of) in [
        (
            "fig14-exchanges",
            "Exchanges while the machine that carries them dies",
            "exchanges a second",
            &answers as &dyn Fn(&Lives) -> _,
        ),
        ("fig14-opened", "New connections at the same time", "established a second", &opened),
    ] {
        let axes = Axes {
            title: title.into(),
            x: format!("time (s), bins of {:.0} ms", DRAWN_BIN_S * 1e3),
            x_end: Some(plan.end),
            y: y.into(),
            marks: vec![(plan.fail, "the machine dies".into())],
            ..Axes::default()
        };
        let lines: Vec<Line> = (0..SYSTEMS.len()).map(|index| line(index, of)).collect();
        figures.push(Figure { name: name.into(), svg: plot::lines(&axes, &lines)? });
    }
    Ok(figures)
}

/// Runs it.
///
/// # Errors
/// A lab does not come up, or traffic does not start.
fn run(context: &Context) -> Result<Outcome> {
    for (program, package) in
        [("conntrackd", "conntrackd"), ("keepalived", "keepalived"), ("iperf3", "iperf3")]
    {
        lab::instance::require_program(program, package)?;
    }
    let rounds = context.pick(1, 3);
    let plan = context.pick(Plan { fail: 3.0, end: 6.0 }, Plan { fail: 4.0, end: 10.0 });
    context.say("the paper's own experiment: stateplane demo");
    let demo = demo(context, context.pick(10, 15)).unwrap_or_else(|error| {
        context.say(&format!("{error:#}"));
        json!({ "not_measured": format!("{error:#}") })
    });
    let mut runs: Vec<Vec<Run>> = SYSTEMS.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for position in 0..SYSTEMS.len() {
            let index = (position + round as usize) % SYSTEMS.len();
            runs[index].push(run_once(context, &SYSTEMS[index], plan, u64::from(round) + 1)?);
            let done = round * SYSTEMS.len() as u32 + position as u32 + 1;
            context.progress(
                "new connections and a failure, run",
                done,
                rounds * SYSTEMS.len() as u32,
            );
        }
    }
    let silences = recalls(context, context.pick(4, 20));
    let mut rows = demo_rows(&demo);
    rows.extend(recall_rows(&silences));
    let mut data = serde_json::Map::new();
    let mut notes = Vec::new();
    if let Some(problem) = demo["not_measured"].as_str() {
        notes.push(format!("Long flows: not measured: {problem}"));
    }
    match silences {
        Ok(silences) => drop(data.insert("recall_silence_s".to_owned(), json!(silences))),
        Err(error) => notes.push(format!("Moves between living switches: not measured: {error:#}")),
    }
    for (system, runs) in SYSTEMS.iter().zip(&runs) {
        let figures: Vec<Figures> = runs.iter().map(|run| figures_of(run, plan)).collect();
        rows.extend(rows_of(system.name, &figures));
        let before: f64 = figures.iter().map(|f| f.lost_before).sum();
        if before > 0.0 {
            notes.push(format!("{}: {before} connections broke before the failure.", system.name));
        }
        let described = figures.iter().zip(runs).map(|(f, run)| {
            json!({
                "failed_at_s": run.failed_at, "opened": run.lives.lives.len(), "answers": run.lives.answers.len(),
                "established": f.established, "lost": f.lost, "established_after": f.established_later,
                "lost_after": f.lost_later, "not_opened": f.not_opened,
                "lost_before": f.lost_before, "longest_silence_s": f.silence_s, "recovery_s": f.recovery_s,
                "served_s": f.served_s,
                "answers_per_s": Lives::rate(run.lives.answers.iter().copied(), BIN_S, plan.end),
            })
        });
        data.insert(system.name.to_owned(), described.collect());
    }
    data.insert("demo".to_owned(), demo);
    Ok(Outcome { rows, notes, figures: figure(&runs, plan)?, data: Value::Object(data) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_recovered_or_was_not_measured_misses_its_goal() {
        let back = |demo: Value| demo_rows(&demo)[0].clone();
        let good = back(json!({ "with": { "recovery_fail_s": 0.3 } }));
        let bad = [
            back(json!({ "with": { "recovery_fail_s": null } })),
            back(json!({ "not_measured": "" })),
            recall_rows(&Err(anyhow::anyhow!("no lab")))[0].clone(),
            recall_rows(&Ok(vec![0.05, 0.2, 0.3]))[0].clone(),
        ];
        assert_eq!(good.reached, Some(true), "{good:?}");
        assert!(bad.iter().all(|row| row.goal.is_some() && row.reached == Some(false)), "{bad:?}");
    }

    #[test]
    fn a_connection_lost_in_one_run_misses_the_goal_on_either_side_of_the_failure() {
        let figures = |lost, lost_later| Figures {
            established: 3_000.0,
            lost,
            established_later: 5_000.0,
            lost_later,
            not_opened: 0.0,
            lost_before: 0.0,
            silence_s: 0.2,
            recovery_s: Some(0.2),
            served_s: Some(0.2),
        };
        let reached = |name: &str, lost: f64, lost_later: f64| -> Vec<Option<bool>> {
            // In the middle run only: the median does not show it.
            let runs = [figures(0.0, 0.0), figures(lost, lost_later), figures(0.0, 0.0)];
            rows_of(name, &runs)[..2].iter().map(|row| row.reached).collect()
        };
        assert_eq!(reached("stateplane", 0.0, 0.0), [Some(true), Some(true)]);
        assert_eq!(reached("stateplane", 1.0, 0.0), [Some(false), Some(true)]);
        assert_eq!(reached("stateplane", 0.0, 1.0), [Some(true), Some(false)]);
        assert_eq!(reached("keepalived alone", 1.0, 1.0), [None, None]);
    }

    #[test]
    fn what_is_sent_is_served_again_when_nearly_all_of_it_has_an_answer_at_once() {
        // A message each ms; those of 300 ms from the failure on wait for a time-out, and one is
        // never answered.
        let wait = |t: f64| if (1.0..1.3).contains(&t) { 1.0 } else { 0.001 };
        let mut exchanges: Vec<(f64, f64)> =
            (0..3_000).map(|i| f64::from(i) / 1e3).map(|t| (t, t + wait(t))).collect();
        exchanges[2_500].1 = f64::INFINITY;
        let found = served_again(&exchanges, 1.0, 3.0).expect("is served again");
        assert!((found - 0.3).abs() < 0.06, "{found}");
        assert_eq!(served_again(&exchanges, 1.0, 1.2), None);
    }

    #[test]
    fn recovery_is_the_begin_of_what_lasts() {
        let rates: Vec<(f64, f64)> = (0..60)
            .map(|i| {
                let t = (f64::from(i) + 0.5) * BIN_S;
                // Down from 3.0 to 3.8, with one burst.
                (t, if (3.0..3.8).contains(&t) && i != 33 { 0.0 } else { 100.0 })
            })
            .collect();
        let found = recovery(&rates, 3.0, 6.0).expect("recovers");
        // A bin that is empty may be in a mean that is good.
        assert!((found - 0.8).abs() < 0.11, "{found}");
        assert_eq!(recovery(&rates, 3.0, 4.0), None);
    }
}
