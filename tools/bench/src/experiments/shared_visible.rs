//! When an update of a shared variable is read by all switches (SwiSh §9.2: after two windows).

use super::{Context, Experiment, Page};
use crate::labs::{Running, Wanted};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{quantile, summary};
use anyhow::{Context as _, Result, ensure};
use plot::{Axes, Line, distribution};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-visible",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, visibility",
        title: "after how long all switches read an update",
        quick: "20 s",
        full: "1 min",
        shows: "\
            how many windows pass from a packet that updates a variable with SDW to the moment at \
            which all four switches read that",
        paper: "\
            SwiSh §9.2: updates become visible after two windows: 6 µs, with windows of 3 µs.",
        method: "\
            Real switches in namespaces, the program probe.p4. At random moments a packet adds to \
            a counter at one switch. Packets to all switches read the counter, one after another, \
            until each has shown the sum. The time from the update's departure to the last \
            switch's first such answer is divided by the mean time of a window in that run. It has \
            the round trips of the packets that read, so windows are of 2 ms and more.",
    },
};

const SWITCHES: usize = 4;
const MOST_WINDOWS: f64 = 3.0;
const PERIODS_US: [u32; 2] = [2_000, 10_000];
/// Of the program.
const CELLS: u32 = 4096;
/// An update is lost, or the windows stand still.
const PATIENCE: Duration = Duration::from_secs(5);
/// No host has it: the switch in front of the sender answers.
const SWITCH: &str = "10.9.9.9:4000";

/// A host's socket.
struct Host(UdpSocket);

/// `probe_t` in systems/swish/p4/probe/probe.p4, as far as it is used.
struct Answer {
    window: u64,
    counter: u32,
}

impl Host {
    fn of(lab: &Running, number: usize) -> Result<Host> {
        let socket = lab.netns(&format!("h{number}"))?.run(|| UdpSocket::bind("0.0.0.0:0"))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        socket.connect(SWITCH)?;
        Ok(Host(socket))
    }

    fn ask(&self, index: u32, amount: u32) -> Result<Answer> {
        let mut packet = [0; 32];
        packet[..4].copy_from_slice(&index.to_be_bytes());
        packet[4..8].copy_from_slice(&amount.to_be_bytes());
        self.0.send(&packet)?;
        ensure!(self.0.recv(&mut packet).context("no answer")? == packet.len(), "a short answer");
        let (window, rest) = packet[8..].split_first_chunk().context("a window")?;
        let counter = rest.first_chunk().context("a counter")?;
        Ok(Answer { window: u64::from_be_bytes(*window), counter: u32::from_be_bytes(*counter) })
    }
}

/// What one run gave.
struct Seen {
    /// From an update to the last switch that read it, in us.
    delays_us: Vec<f64>,
    window_us: f64,
}

/// From the update's departure until all switches have read it.
fn update(hosts: &[Host], at: usize, index: u32, sum: u32) -> Result<Duration> {
    let begin = Instant::now();
    hosts[at].ask(index, 1)?;
    let mut waiting: Vec<&Host> = hosts.iter().collect();
    while !waiting.is_empty() {
        ensure!(begin.elapsed() < PATIENCE, "an update is not read after {PATIENCE:?}");
        let mut still = vec![];
        for host in waiting {
            if host.ask(index, 0)?.counter != sum {
                still.push(host);
            }
        }
        waiting = still;
    }
    Ok(begin.elapsed())
}

fn watch(context: &Context, period_us: u32, updates: u32) -> Result<Seen> {
    let period = period_us.to_string();
    let file = "systems/swish/lab/probe.toml";
    let vars = [("period_us", period.as_str())];
    let lab = Running::up(context, Wanted { file, mode: "shared", prefer: None, vars: &vars })?;
    let hosts: Vec<Host> =
        (1..=SWITCHES).map(|number| Host::of(&lab, number)).collect::<Result<_>>()?;
    // (Neighbours are asked for with the first packets.)
    let begin = Instant::now();
    while !hosts.iter().all(|host| host.ask(0, 0).is_ok_and(|answer| answer.window > 20)) {
        ensure!(begin.elapsed() < PATIENCE, "the windows do not begin");
    }
    let mut random = StdRng::seed_from_u64(1);
    let mut delays_us = vec![];
    let (begin, first) = (Instant::now(), hosts[0].ask(0, 0)?.window);
    for number in 0..updates {
        std::thread::sleep(Duration::from_micros(random.random_range(0..u64::from(period_us))));
        let (index, sum) = (number % CELLS, number / CELLS + 1);
        let took = update(&hosts, number as usize % SWITCHES, index, sum)?;
        delays_us.push(took.as_secs_f64() * 1e6);
        ensure!(!lab::interrupt::requested(), "interrupted");
        if (number + 1).is_multiple_of(100) {
            let what = format!("windows of {} ms, updates", period_us / 1000);
            context.progress(&what, number + 1, updates);
        }
    }
    let windows = hosts[0].ask(0, 0)?.window - first;
    delays_us.sort_by(f64::total_cmp);
    Ok(Seen { delays_us, window_us: begin.elapsed().as_secs_f64() * 1e6 / windows as f64 })
}

fn run(context: &Context) -> Result<Outcome> {
    let updates = context.pick(400, 2_000);
    let mut outcome = Outcome::default();
    let (mut lines, mut data) = (vec![], vec![]);
    for period_us in PERIODS_US {
        let seen = watch(context, period_us, updates)?;
        let windows: Vec<f64> = seen.delays_us.iter().map(|us| us / seen.window_us).collect();
        let name = format!("windows of {} ms", period_us / 1000);
        for (what, fraction) in [("median", 0.5), ("99th percentile", 0.99)] {
            let at = summary(&[quantile(&windows, fraction)]);
            let row = Row::value(format!("{name}: {what}"), "2", at, 2, "windows");
            let judged = fraction > 0.9;
            outcome.rows.push(if judged { row.with_goal(Goal::AtMost(MOST_WINDOWS)) } else { row });
        }
        let window = summary(&[seen.window_us]);
        outcome.rows.push(Row::value(format!("{name}: mean of a window"), "", window, 0, "µs"));
        data.push(json!({
            "period_us": period_us, "window_us": seen.window_us, "delays_us": seen.delays_us,
        }));
        lines.push(Line::new(name, distribution(&windows)));
    }
    let axes = Axes {
        title: "Windows from an update to its reading at all switches".into(),
        x: "windows".into(),
        y: "part of the updates".into(),
        ..Axes::default()
    };
    outcome
        .figures
        .push(Figure { name: "shared-visible".into(), svg: plot::lines(&axes, &lines)? });
    outcome.data = json!(data);
    Ok(outcome)
}
