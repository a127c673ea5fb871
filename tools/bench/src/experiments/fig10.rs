//! Figure 10: how much of the bandwidth the state protocol takes, by application; and the
//! analytical model of it, at scale.

use super::{Context, Experiment, Page};
use crate::apps::{ASYNCHRONOUS, App};
use crate::labs::Running;
use crate::line::Line;
use crate::messages::Messages;
use crate::model::Model;
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::sides::{self, Aim, Missing};
use crate::statistics::{Summary, summary};
use crate::trace::{self, Played};
use anyhow::{Context as _, Result, bail};
use plot::{Axes, Group, Line as Curve};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fig10",
    plays_a_trace: true,
    run,
    page: Page {
        figure: "Figure 10",
        title: "bandwidth that the state protocol takes, by application, and at scale",
        quick: "50 s",
        full: "3 min",
        shows: "\
            bandwidth of the state protocol by application (messages with stores and controllers), \
            measured and by the analytical model (goal: within 10 %), up to 10,000 switches",
        paper: "\
            RedPlane §7.2: messages are almost none of the bytes for NAT, firewall and load \
            balancer, 12.8 % for the EPC gateway, next to nothing for heavy-hitter detection with \
            a snapshot every millisecond, and 51.2 % for the synchronous counter. Its analytical \
            model finds the same shares with more switches.",
        method: "\
            The kernel sends 64-byte packets of 1,024 flows through the switch, 5,000 to 20,000 a \
            second; nftables on the router between switch and stores counts the messages of the \
            switch (UDP 5407 with stores, 5408 with the controller), both ways, Ethernet headers \
            included. (With --pcap, applications that take any packets get a capture's, with its \
            lengths and as uneven as its conversations are: what the protocol would take beside \
            that traffic. A note names it. The model of the asynchronous counter is an upper bound \
            then: a busy flow's update leaves when the generator looks next after 5 ms.) The share \
            is messages over messages and packets (received and sent), as in the paper. Each update has \
            a message of its own and travels with its packet, also as in the paper (`commit = \
            \"wrap\"`); Figure 12 has how many messages a packet takes in batches, the default. \"From \
            nothing\" begins with a switch that knows no flow. Our messages have a 64-byte header \
            (tags, epochs, sessions), the paper's are shorter: the counter's share shows it.\n\n\
            The analytical model (tools/bench/src/model.rs) is computed from \
            systems/redplane/docs/state-protocol.md alone, not fitted: for each update UPDATE and \
            UPDATE_ACK with the packet in both; for each second heartbeats (3 in each lease, for \
            each shard), 20 REPORTs to each controller with their HEARDs, and snapshots. The \
            asynchronous counter's updates leave without the packets, each flow's newest value at \
            most every 5 ms (Figure 12 of the draft has its share). \"Measured / model\" checks it \
            at each rate, and has a goal: 0.9 to 1.1. At scale, each of N switches adds the same, \
            so shares do not change with N; what grows is what a shard's head hears: N × 3 / lease \
            heartbeats a second, however many flows; and what each controller hears: N × 20 \
            reports a second. A store takes 4,096 sessions of each shard by default, which is less \
            than 10,000 switches: `[limits] sessions = 16384` in each store's configuration \
            (65,536 at most). The figure has up to 10,000 switches at the rate of the paper's \
            (122.5 M packets/s each).",
    },
};

const FLOWS: u32 = 1_024;
/// Packets of a capture that are played, round and round.
const CAPTURED: u32 = 4_096;
/// Offered rates, in packets a second: the model must be right at each.
const RATES: [f64; 3] = [5_000.0, 10_000.0, 20_000.0];
/// Read-centric applications: at most this share, in percent, at [`MODEL_SWITCH_PPS`].
const READ_CENTRIC_PERCENT: f64 = 0.5;
/// Packets a second that a switch of the paper's testbed forwards.
const MODEL_SWITCH_PPS: f64 = 122.5e6;
/// Switches that the model is computed for.
const SWITCHES: [f64; 9] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0];

/// Measured over model: further off, and the model is wrong.
pub const MODEL_GOAL: Goal = Goal::Within(0.9, 1.1);

/// Loads without any message that are made again, and how long BGP has in between to come back.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// What one load made.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Load {
    /// Packets sent into the switch.
    pub packets: f64,
    /// How long that took.
    pub seconds: f64,
    /// Packets in and out, as the paper counts.
    pub original_bytes: f64,
    /// Of the state protocol, both ways.
    pub messages: f64,
    /// Of the state protocol, both ways.
    pub message_bytes: f64,
}

impl Load {
    /// Sends so many packets at a rate through a lab's switch and counts messages.
    ///
    /// # Errors
    /// They cannot be sent or counted.
    pub fn measure(lab: &Running, line: &Line, packets: u64, rate: f64) -> Result<Load> {
        let messages = Messages::count(lab)?;
        let before = line.counted()?;
        let start = std::time::Instant::now();
        line.send(packets, rate)?;
        let seen = messages.seen()?;
        let seconds = start.elapsed().as_secs_f64();
        let after = line.counted()?;
        Ok(Load {
            packets: packets as f64,
            seconds,
            original_bytes: packets as f64 * line.frame_bytes() + (after.1 - before.1) as f64,
            messages: seen.packets as f64,
            message_bytes: seen.bytes as f64,
        })
    }

    fn share_percent(&self) -> f64 {
        100.0 * self.message_bytes / (self.message_bytes + self.original_bytes)
    }

    /// Messages measured over what the model says for this load.
    fn over(&self, model: &Model) -> f64 {
        self.message_bytes / self.seconds / model.bytes_per_s(self.packets / self.seconds)
    }
}

/// One application.
#[derive(Serialize)]
struct Measured {
    /// The model is an upper bound: flows of a capture come in bursts, which the generator's looks
    /// part as they fall.
    bound: bool,
    flows: usize,
    /// Every flow's first packet asks the store.
    from_nothing: Load,
    /// Known flows, by rate and round.
    loads: Vec<Vec<Load>>,
    model: Model,
    frame_bytes: f64,
}

/// A load during which the switch had a way to stores and controllers: it reports to these however
/// little there is to do, so no message at all means that it had none (on a machine that is too
/// busy, BFD takes a live link for a dead one).
fn connected(mut load: impl FnMut() -> Result<Load>) -> Result<Load> {
    for _ in 0..TRIES {
        let load = load()?;
        if load.messages > 0.0 {
            return Ok(load);
        }
        std::thread::sleep(PAUSE);
    }
    bail!(
        "no message of the switch in {TRIES} loads: it has no way to the stores (is the machine too busy for BFD?)"
    )
}

fn measure(
    context: &Context,
    app: &App,
    captured: Option<&Played>,
    (rounds, seconds): (u32, f64),
) -> Result<Measured> {
    let (lab, traffic) = app.bring_up(context, app.wrapped(), FLOWS, captured)?;
    let flows = match captured.filter(|_| app.any_udp) {
        Some(played) => trace::numbers_by_flow(&played.frames).len(),
        None => FLOWS as usize,
    };
    let model = Model::of(&lab, app.folder, &traffic.frames, app.updates)?;
    let line = app.line(context, &lab, &traffic.frames)?;
    let at = |rate: f64| connected(|| Load::measure(&lab, &line, (rate * seconds) as u64, rate));
    // Each flow comes in it.
    let from_nothing = connected(|| {
        let packets = ((RATES[1] * seconds) as u64).max(traffic.frames.len() as u64);
        Load::measure(&lab, &line, packets, RATES[1])
    })?;
    let mut loads = vec![Vec::new(); RATES.len()];
    for _ in 0..rounds {
        for (rate, loads) in RATES.iter().zip(&mut loads) {
            loads.push(at(*rate)?);
        }
    }
    let bound = captured.is_some() && app.mode == ASYNCHRONOUS;
    Ok(Measured { bound, flows, from_nothing, loads, model, frame_bytes: line.frame_bytes() })
}

fn over_name(app: &App) -> String {
    format!("{}: measured / model, at 5k to 20k packets/s", app.name)
}

fn scale_name(app: &App) -> String {
    format!("{}: model, 10,000 switches of 122.5 M packets/s", app.name)
}

fn aims(app: &App) -> Vec<Aim> {
    let share = (scale_name(app), app.paper[1], Goal::AtMost(READ_CENTRIC_PERCENT));
    let all = [Some((over_name(app), "", MODEL_GOAL)), app.read_centric.then_some(share)];
    all.into_iter().flatten().collect()
}

fn rows(app: &App, measured: &Measured, rows: &mut Vec<Row>) -> Summary {
    let fast = measured.loads.last().map_or(&[][..], |loads| &loads[..]);
    let shares: Vec<f64> = fast.iter().map(Load::share_percent).collect();
    let share = summary(&shares);
    let what = format!("{}: messages' share of all bytes, known flows, 20k packets/s", app.name);
    rows.push(Row::value(what, app.paper[1], share, 2, "%"));
    let over: Vec<f64> =
        measured.loads.iter().flatten().map(|load| load.over(&measured.model)).collect();
    let row = Row::value(over_name(app), "", summary(&over), 3, "");
    rows.push(if measured.bound { row } else { row.with_goal(MODEL_GOAL) });
    let at_scale = measured.model.share_percent(10_000.0, MODEL_SWITCH_PPS, measured.frame_bytes);
    let one = Summary { low: at_scale, median: at_scale, high: at_scale };
    let row = Row::value(scale_name(app), app.paper[1], one, 4, "%");
    rows.push(if app.read_centric {
        row.with_goal(Goal::AtMost(READ_CENTRIC_PERCENT))
    } else {
        row
    });
    let cold = &measured.from_nothing;
    rows.push(Row::text(
        format!("{}: from nothing, {} flows", app.name, measured.flows),
        "",
        format!(
            "{:.2} % of all bytes, {:.2} messages a flow",
            cold.share_percent(),
            cold.messages / measured.flows as f64
        ),
    ));
    share
}

/// Messages of all switches in Gbit/s, by number of switches.
fn curve(app: &App, model: &Model) -> Curve {
    let gbit = |switches: f64| switches * model.bytes_per_s(MODEL_SWITCH_PPS) * 8.0 / 1e9;
    Curve::new(app.name, SWITCHES.iter().map(|n| (*n, gbit(*n).max(1e-6))).collect())
}

/// Runs it.
///
/// # Errors
/// A figure cannot be drawn; an application that cannot be measured is named in a note, and misses
/// its goals.
fn run(context: &Context) -> Result<Outcome> {
    let amount = context.pick((2, 0.4), (7, 2.0));
    // What is wrong with a capture is said before anything is brought up.
    let captured = trace::captured(context, CAPTURED)?;
    let (mut all, mut groups, mut curves, mut data) =
        (Vec::new(), Vec::new(), Vec::new(), serde_json::Map::new());
    let mut heartbeats = None;
    let Missing { mut notes, rows: missed } = sides::each_app(
        context,
        &[],
        |_| true,
        aims,
        |app| {
            let measured = measure(context, app, captured.as_ref(), amount)?;
            let share = rows(app, &measured, &mut all);
            let model = measured.model.share_percent(1.0, RATES[2], measured.frame_bytes);
            let bars =
                vec![Some((share.median, share.low, share.high)), Some((model, model, model))];
            groups.push(Group { name: app.name.to_owned(), bars });
            curves.push(curve(app, &measured.model));
            heartbeats.get_or_insert(measured.model.heartbeats_a_second() / measured.model.shards);
            data.insert(app.name.to_owned(), json!({ "measured": measured }));
            Ok(())
        },
    );
    let each = heartbeats.context("no application could be measured")?;
    all.push(Row::text(
        "model: heartbeats at a shard's head, 10,000 switches",
        "renewals: 2 a second and flow",
        format!(
            "{:.0} a second, however many flows; the store's `[limits] sessions` (4,096) must be raised",
            10_000.0 * each
        ),
    ));
    all.push(Row::text(
        "model: reports at each controller, 10,000 switches",
        "",
        format!("{:.0} a second, each answered", Model::reports_a_second(10_000.0)),
    ));
    all.extend(missed);
    if let Some((note, described)) = captured.and_then(|played| played.capture) {
        notes.push(format!("{note} Applications that take only packets of their own have these."));
        data.insert("pcap".to_owned(), described);
    }
    let axes = Axes {
        title: "Share of bandwidth that the state protocol takes, 20k packets/s".into(),
        y: "% of all bytes".into(),
        ..Axes::default()
    };
    let scale = Axes {
        title: "Model: messages of all switches, 122.5 M packets/s each".into(),
        x: "switches".into(),
        y: "Gbit/s".into(),
        x_log: true,
        y_log: true,
        ..Axes::default()
    };
    let figures = vec![
        Figure { name: "fig10".into(), svg: plot::bars(&axes, &["measured", "model"], &groups)? },
        Figure { name: "fig10-model".into(), svg: plot::lines(&scale, &curves)? },
    ];
    Ok(Outcome { rows: all, notes, figures, data: Value::Object(data) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_without_messages_is_made_again() {
        let load = |messages| Load {
            packets: 1.0,
            seconds: 1.0,
            original_bytes: 1.0,
            messages,
            message_bytes: 0.0,
        };
        let mut answers = [0.0, 7.0].into_iter();
        let found = connected(|| Ok(load(answers.next().unwrap_or_default()))).expect("the second");
        assert_eq!(found.messages, 7.0);
    }
}
