//! Figure 15: what waits in the switch to be sent again, by loss of messages.

use super::{Context, Experiment, Page};
use crate::apps::{self, App, SWITCH};
use crate::labs::Running;
use crate::line::Line;
use crate::messages::Messages;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, quantile, summary};
use anyhow::{Context as _, Result};
use plot::{Axes, Line as Curve};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fig15",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "Figure 15",
        title: "what the switch keeps to send again, by loss of messages",
        quick: "20 s",
        full: "1 min",
        shows: "updates that wait in the switch, by loss of messages",
        paper: "\
            RedPlane §7.4: each packet makes a request (the most demanding application), and the \
            switch keeps a truncated copy until the reply: less than 1.5 KB without loss at 100 \
            Gbit/s, at most 18 KB when 2 % of the requests are lost.",
        method: "\
            systems/redplane/lab/flow_counter.toml: every packet is an update. nftables on the \
            router between switch and stores drops messages at random, each way by itself. The \
            switch's own metric (stateplane_updates_pending) is read every few milliseconds while \
            packets are sent at a rate. What waits is an entry of the pending ring; the value that \
            would be sent again is the flow's own entry, so one flow never has more than one, \
            however many of its updates are on their way. Bytes count the slot, the value and its \
            two sequence numbers.",
    },
};

const FLOWS: u32 = 4_096;
/// Lost of a million messages, each way.
const LOSSES: [u32; 5] = [0, 5_000, 10_000, 20_000, 50_000];
const METRIC: &str = "stateplane_updates_pending";
/// Where switches of the labs have their metrics.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9_100);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(2);

fn scrape() -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&METRICS, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: switch\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The value of a metric without labels, or the sum over its labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    let values: Vec<f64> = text
        .lines()
        .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])))
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// How often something happened in a switch's flow runtime.
///
/// # Errors
/// Its metrics cannot be read, or have no such event.
pub fn flow_events(lab: &Running, switch: &str, event: &str) -> Result<f64> {
    let text = lab.netns(switch)?.run(scrape).with_context(|| format!("metrics of {switch}"))?;
    let name = format!("stateplane_flow_events_total{{event=\"{event}\"}} ");
    let value =
        text.lines().find_map(|line| line.strip_prefix(&name)).and_then(|value| value.parse().ok());
    value.with_context(|| format!("metrics of {switch} have no event {event}"))
}

/// Updates that wait, looked at again and again while packets are sent.
fn occupancy(lab: &Running, line: &Line, rate: f64, seconds: f64) -> Result<Vec<f64>> {
    let done = AtomicBool::new(false);
    let switch = lab.netns(SWITCH)?;
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            switch.run(|| {
                let mut seen = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let pending = metric(&scrape()?, METRIC);
                    seen.push(
                        pending
                            .ok_or_else(|| std::io::Error::other(format!("no metric {METRIC}")))?,
                    );
                    std::thread::sleep(LOOK_EVERY);
                }
                Ok(seen)
            })
        });
        let sent = line.send((rate * seconds) as u64, rate);
        done.store(true, Ordering::Relaxed);
        let seen = watcher
            .join()
            .map_err(|_| anyhow::anyhow!("the watcher panicked"))?
            .context("metrics of the switch")?;
        sent?;
        Ok(seen)
    })
}

/// Bytes that an update takes while it waits: its slot in the ring, and what of the flow's entry is
/// there for it (value and two numbers).
fn bytes_of_one(app: &App) -> f64 {
    const SLOT: f64 = 72.0; // struct sp_flow_pending
    const NUMBERS: f64 = 16.0;
    let value = if app.folder == "flow_counter" { 8.0 } else { 64.0 };
    SLOT + NUMBERS + value
}

/// Runs it.
///
/// # Errors
/// The lab does not come up, or its metrics cannot be read.
fn run(context: &Context) -> Result<Outcome> {
    let app = apps::named("flow_counter")?;
    let (rates, seconds) = context
        .pick((&[5_000.0, 20_000.0][..], 0.6), (&[5_000.0, 10_000.0, 20_000.0, 40_000.0][..], 2.0));
    let (lab, traffic) = app.bring_up(context, app.lab(true), FLOWS, None)?;
    app.prepare(context, &lab, &traffic.frames)?;
    let line = app.line(context, &lab, &traffic.frames)?;
    let (mut rows, mut curves, mut data) = (Vec::new(), Vec::new(), Vec::new());
    let one = bytes_of_one(app);
    for (done, rate) in rates.iter().enumerate() {
        let mut points = Vec::new();
        for loss in LOSSES {
            Messages::lose(&lab, loss)?;
            let mut seen = occupancy(&lab, &line, *rate, seconds)?;
            seen.sort_by(f64::total_cmp);
            let most = quantile(&seen, 1.0);
            let of_all: Summary = summary(&seen);
            points.push((f64::from(loss) / 10_000.0, most * one / 1e3));
            let what = format!(
                "{:.0}k packets/s, {} % lost: updates waiting",
                rate / 1e3,
                f64::from(loss) / 10_000.0
            );
            let paper = match loss {
                0 => "< 1.5 KB at 100 Gbit/s",
                20_000 => "≤ 18 KB at 100 Gbit/s",
                _ => "",
            };
            let measured = format!(
                "{:.0} ({:.0} to {:.0}), at most {most:.0}: {:.1} KB",
                of_all.median,
                of_all.low,
                of_all.high,
                most * one / 1e3
            );
            rows.push(Row { value: Some(of_all), ..Row::text(what, paper, measured) });
            data.push(json!({ "packets_per_s": rate, "loss": f64::from(loss) / 1e6, "waiting": of_all, "most": most, "looks": seen.len() }));
        }
        curves.push(Curve::new(format!("{:.0}k packets/s", rate / 1e3), points));
        context.progress("rates", done as u32 + 1, rates.len() as u32);
    }
    let axes = Axes {
        title: "Updates that wait for their acknowledgement, at most".into(),
        x: "% of messages lost, each way".into(),
        y: "KB".into(),
        ..Axes::default()
    };
    let figures = vec![Figure { name: "fig15".into(), svg: plot::lines(&axes, &curves)? }];
    Ok(Outcome { rows, notes: Vec::new(), figures, data: Value::Array(data) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_read_with_and_without_labels() {
        let text = "# HELP a x\na 3\na_b 9\nc{d=\"1\"} 2\nc{d=\"2\"} 5\n";
        assert_eq!(
            (metric(text, "a"), metric(text, "c"), metric(text, "z")),
            (Some(3.0), Some(7.0), None)
        );
    }
}
