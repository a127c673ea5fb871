//! How long a window takes one switch, by the members of its group: one real switch, and up to
//! 4,095 members whose messages are made here.

use super::{Context, Experiment, Page};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::{Summary, quantile, summary};
use anyhow::{Result, anyhow};
use plot::{Axes, Line};
use serde_json::json;
use swish_sim::peers::Peers;
use swish_sim::{Program, Switch};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-members",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, members",
        title: "how long a window takes one switch, by the members of its group",
        quick: "1 min",
        full: "3 min",
        shows: "\
            the CPU time that a switch's program takes for a window of one counter in groups of 2 \
            to 4,096 members, and what a straight line through 2 and 32 members says of the others",
        paper: "\
            SwiSh §9 runs up to four switches. Its windows need a message of each member at each \
            other one, so the time grows with the members.",
        method: "\
            One real switch, as the compiler makes it, in the kernel (BPF_PROG_RUN, the clock that \
            the kernel measures it with). Each other member is played: a frame says that it is \
            ready, and a frame brings what it counted, both with valid tags; the switch answers \
            each with what it counted. No frame is lost, and none brings nothing: what a window \
            costs at the least, without links, NAPI and scheduling. In labs all switches \
            share two CPUs, and frames that bring nothing take most of the time \
            (`shared-windows`): no line through these figures gives those.",
    },
};

const MEMBERS: [u32; 12] = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];
/// The straight line goes through the windows of these.
const LINE: [usize; 2] = [0, 4];
/// Of the line's time, in percent of what was measured, up to 32 members.
const MOST_ERROR: f64 = 20.0;

/// The program's time of each window, in us.
fn windows(switch: &mut Switch, members: u32, count: u32) -> Result<Vec<f64>> {
    let wrong = |violation: swish_sim::Violation| anyhow!("{members} members: {violation}");
    let mut peers = Peers::begin(switch, members, members / 2).map_err(wrong)?;
    let mut took = vec![];
    for _ in 0..count {
        let before = peers.spent_ns;
        peers.packet(0, 1).map_err(wrong)?;
        peers.all_ready().map_err(wrong)?;
        peers.all_send(|_| vec![Peers::one_cell(0, 1)]).map_err(wrong)?;
        took.push((peers.spent_ns - before) as f64 / 1e3);
    }
    let is = peers.cells(0).map_err(wrong)?.first().copied();
    let must = members * count;
    if is != Some(must) {
        return Err(anyhow!("{members} members: the counter is {is:?}, not {must}"));
    }
    Ok(took)
}

/// By number of members: of each round, windows' times, sorted.
type Measured = Vec<(u32, Vec<Vec<f64>>)>;

fn measure(context: &Context) -> Result<Measured> {
    let most = MEMBERS[MEMBERS.len() - 1];
    let program = Program::compile_peers(1, most, None).map_err(|why| anyhow!(why))?;
    let mut switch = Switch::load(&program).map_err(|why| anyhow!(why))?;
    let rounds = context.pick(3, 7);
    let mut measured: Measured = MEMBERS.iter().map(|members| (*members, vec![])).collect();
    for round in 0..rounds {
        for (members, rounds) in &mut measured {
            // (As many frames of each; the first windows of a group are warmer or colder.)
            let count = (context.pick(4096, 16_384) / *members).clamp(6, 512);
            let mut took = windows(&mut switch, *members, count + 2)?.split_off(2);
            took.sort_by(f64::total_cmp);
            rounds.push(took);
        }
        context.progress("members, round", round + 1, rounds);
    }
    Ok(measured)
}

fn of(rounds: &[Vec<f64>], fraction: f64) -> Summary {
    summary(&rounds.iter().map(|took| quantile(took, fraction)).collect::<Vec<_>>())
}

fn run(context: &Context) -> Result<Outcome> {
    // (Loading the switch moves its thread to a network namespace of its own.)
    let measured = std::thread::scope(|scope| {
        let thread = scope.spawn(|| measure(context));
        thread.join().map_err(|_| anyhow!("the measurement panicked"))?
    })?;
    let medians: Vec<(f64, f64)> = measured
        .iter()
        .map(|(members, rounds)| (f64::from(*members), of(rounds, 0.5).median))
        .collect();
    let [(few, short), (more, long)] = LINE.map(|at| medians[at]);
    let each = (long - short) / (more - few);
    let line = |members: f64| short + each * (members - few);
    let mut outcome = Outcome::default();
    let mut data = vec![];
    for ((members, rounds), (x, median)) in measured.iter().zip(&medians) {
        for (name, fraction) in [("median", 0.5), ("99th percentile", 0.99)] {
            let what = format!("{members} members: {name}");
            outcome.rows.push(Row::value(what, "", of(rounds, fraction), 1, "µs"));
        }
        let error = 100.0 * (line(*x) - median).abs() / median;
        let what = format!("{members} members: the line's error");
        let row = Row::value(what, "", summary(&[error]), 0, "%");
        let is_small = *members <= 32;
        outcome.rows.push(if is_small { row.with_goal(Goal::AtMost(MOST_ERROR)) } else { row });
        let p99_us = of(rounds, 0.99).median;
        data.push(json!({ "members": members, "p50_us": median, "p99_us": p99_us,
                          "line_us": line(*x) }));
    }
    let constant = short - each * few;
    outcome.notes.push(format!(
        "The line: {constant:.2} µs for a window, and {:.0} ns for each member.",
        each * 1e3
    ));
    let axes = Axes {
        title: "A switch's time for a window of one counter, by members".into(),
        x: "members".into(),
        y: "µs".into(),
        x_log: true,
        y_log: true,
        ..Axes::default()
    };
    let lines = [
        Line::new("measured, median", medians.clone()),
        Line::new("line", medians.iter().map(|(x, _)| (*x, line(*x))).collect::<Vec<_>>()),
    ];
    let svg = plot::lines(&axes, &lines)?;
    outcome.figures.push(Figure { name: "shared-members".into(), svg });
    outcome.data = json!(data);
    Ok(outcome)
}
