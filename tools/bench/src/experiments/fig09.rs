//! Figure 9: round-trip times of each application, with and without fault tolerance.

use super::{Context, Experiment, Page};
use crate::apps::{self, App};
use crate::probe::{Probe, STAMP_BYTES, Times};
use crate::report::Goal;
use crate::results::{Outcome, Row};
use crate::sides::{self, Aim, Missing};
use crate::statistics::{quantile, ratio_summary, summary};
use crate::trace::{self, Played};
use anyhow::{Context as _, Result};
use plot::{Axes, Group};
use serde_json::{Value, json};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fig09",
    plays_a_trace: true,
    run,
    page: Page {
        figure: "Figure 9",
        title: "round-trip times of each application, with and without fault tolerance",
        quick: "50 s",
        full: "4 min",
        shows: "round trips of each application with and without fault tolerance",
        paper: "\
            RedPlane §7.1: NAT, firewall, load balancer, EPC gateway and heavy-hitter detection \
            have the same median of 8 µs as without fault tolerance; the synchronous counter takes \
            20 µs more, 12 of them for the chain of three.",
        method: "\
            Each application's lab (systems/redplane/lab/APP.toml) is up twice at the same time, \
            with fault tolerance and without (-D<APP>_LOCAL; the counter: -DCOUNTER_LOCAL), and \
            both take turns of some hundred packets; the ratio is of the medians of two turns. \
            Round trips are taken as for Figure 8, on 64 established flows. NAT, firewall, \
            heavy-hitter detection and the counters are given a seeded trace's UDP packets round \
            and round (4,096 packets, flow sizes after Zipf, 64 to 1500 bytes; or those of a \
            capture), the others packets of 64 bytes of their own kinds. The counter's packets \
            each wait for their own update to be on all three store servers (of \"one store\": on \
            one), twice a round trip; stores are processes on this very machine.",
    },
};

/// Flows, or users: few, so that the next packet of each comes long before its lease is over, even
/// on a busy machine.
const FLOWS: u32 = 64;
/// Read-centric applications: at most this ratio of the medians.
const GOAL: Goal = Goal::AtMost(1.03);

/// Packets of the trace, which is played round and round.
const TRACE: u32 = 4_096;

/// Round trips by turn, with fault tolerance first. `trace`: what is played where any UDP packets
/// will do.
fn measure(
    context: &Context,
    app: &App,
    trace: &[Vec<u8>],
    turns: usize,
    packets: usize,
) -> Result<[Vec<Times>; 2]> {
    let shape = app.shape.context("an application whose packets do not come back")?;
    let mut sides = sides::both(context, app, FLOWS, None, |lab, _| {
        Probe::new(&context.places, lab, app.path, shape)
    })?;
    let frames = if app.any_udp { trace.to_vec() } else { (app.traffic)(FLOWS, 1).frames };
    // Signalling packets among the data have no room for a stamp, and are answered to somebody
    // else.
    let frames: Vec<Vec<u8>> =
        frames.into_iter().filter(|f| f.len() >= shape.sent + STAMP_BYTES).collect();
    for side in &mut sides {
        // Leases first: what is compared is established flows.
        side.tool.send_all(&mut frames.clone())?;
    }
    sides::by_turns(&mut sides, turns, |probe, turn| {
        let start = turn * packets % frames.len();
        probe.send_all(
            &mut frames.iter().cycle().skip(start).take(packets).cloned().collect::<Vec<_>>(),
        )
    })
}

fn by_turn(turns: &[Times], fraction: f64) -> Vec<f64> {
    turns.iter().map(|turn| quantile(&turn.sorted(), fraction)).collect()
}

fn describe(turns: &[Times]) -> Value {
    json!({
        "p50_us": by_turn(turns, 0.5), "p99_us": by_turn(turns, 0.99),
        "lost": turns.iter().map(Times::lost).sum::<usize>(),
        "cpu_taken_by_others_percent": turns.iter().map(|t| t.taken_percent).collect::<Vec<_>>(),
    })
}

fn ratio_name(app: &App) -> String {
    format!("{}: with / without, median", app.name)
}

fn aims(app: &App) -> Vec<Aim> {
    if app.read_centric { vec![(ratio_name(app), app.paper[0], GOAL)] } else { Vec::new() }
}

fn rows(
    app: &App,
    [with, without]: &[Vec<Times>; 2],
    rows: &mut Vec<Row>,
    notes: &mut Vec<String>,
) -> Group {
    let medians = [by_turn(with, 0.5), by_turn(without, 0.5)];
    let ratio = ratio_summary(&medians[0], &medians[1]);
    let row = Row::value(ratio_name(app), app.paper[0], ratio, 3, "");
    rows.push(if app.read_centric { row.with_goal(GOAL) } else { row });
    let added: Vec<f64> = medians[0].iter().zip(&medians[1]).map(|(a, b)| a - b).collect();
    rows.push(Row::value(
        format!("{}: added to the median", app.name),
        "",
        summary(&added),
        2,
        "µs",
    ));
    rows.push(Row::value(format!("{}: with, median", app.name), "", summary(&medians[0]), 2, "µs"));
    let lost: usize = with.iter().map(Times::lost).sum();
    if lost > 0 {
        let packets: usize = with.iter().map(|turn| turn.us.len()).sum();
        notes.push(format!(
            "{}: {lost} of {packets} packets did not come back, with fault tolerance.",
            app.name
        ));
    }
    sides::group(app, summary(&medians[0]), summary(&medians[1]))
}

/// Runs it.
///
/// # Errors
/// A figure cannot be drawn; an application that cannot be measured is named in a note, and misses
/// its goals.
fn run(context: &Context) -> Result<Outcome> {
    // Short turns: what else the machine does hits both sides alike.
    let (turns, packets) = context.pick((40, 128), (200, 256));
    let (mut all, mut groups, mut data, mut lost) =
        (Vec::new(), Vec::new(), serde_json::Map::new(), Vec::new());
    // What is wrong with a capture is said before anything is brought up.
    let Played { frames: trace, capture } = trace::play(context, TRACE, FLOWS)?;
    let Missing { mut notes, rows: missed } = sides::each_app(
        context,
        &apps::WITHOUT_CHAIN,
        |app| app.shape.is_some(),
        aims,
        |app| {
            let measured = measure(context, app, &trace, turns, packets)?;
            groups.push(rows(app, &measured, &mut all, &mut lost));
            let [with, without] = &measured;
            data.insert(
                app.name.to_owned(),
                json!({ "with": describe(with), "without": describe(without) }),
            );
            Ok(())
        },
    );
    notes.extend(lost);
    all.extend(missed);
    if let Some((note, described)) = capture {
        notes.push(note);
        data.insert("pcap".to_owned(), described);
    }
    let axes = Axes {
        title: "Round trip through each application, established flows".into(),
        y: "µs, median".into(),
        y_log: true,
        ..Axes::default()
    };
    let figure = sides::figure("fig09", &axes, &groups)?;
    Ok(Outcome { rows: all, notes, figures: vec![figure], data: Value::Object(data) })
}
