//! How soon windows go on when switches die (SwiSh Figure 6).

use super::{Context, Experiment, Page};
use crate::labs::{Running, Wanted};
use crate::report::Goal;
use crate::results::{Figure, Outcome, Row};
use crate::statistics::summary;
use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plot::{Axes, Group};
use serde::Serialize;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Its place on the page, and how it runs.
pub const EXPERIMENT: Experiment = Experiment {
    name: "shared-recovery",
    plays_a_trace: false,
    run,
    page: Page {
        figure: "SwiSh, Figure 6",
        title: "how soon windows go on when switches die",
        quick: "3 min",
        full: "15 min",
        shows: "\
            from the death of one to three of four switches, and from the moment at which the \
            controller finds the first one dead, to the next window at all others, for sketches of \
            3 × 1,024 to 3 × 65,536 counters",
        paper: "\
            SwiSh §9.2, Figure 6: recovery takes as long as the controller needs to bring the \
            survivors' sketches into agreement: longer for larger sketches, shorter when more \
            switches die, and for a sole survivor independent of the size.",
        method: "\
            Four switches in namespaces, each linked to each other one, and a controller that says \
            who is a member (its database is on disk). Hosts update a cell of each block, round \
            and round, at all switches, and read the window all the time at those that live on. \
            Switches die with all their processes and links. A switch is dead after 100 ms of \
            silence. Afterwards they return, and take part again before the next round.",
    },
};

/// Of a row, of three rows.
const ROWS: [u32; 3] = [1024, 16_384, 65_536];
const SWITCHES: u32 = 4;
/// Cells of a block.
const BLOCK: u32 = 360;
const DAY_S: f64 = 86_400.0;
const MOST_MS: f64 = 100.0;
/// No host has it: the switch in front of the sender answers.
const SWITCH: &str = "10.9.9.9:4000";
/// All members are there again.
const PATIENCE: Duration = Duration::from_secs(60);

fn seconds_of_day() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() % DAY_S)
}

/// A host's socket, to the program systems/swish/p4/probe.
struct Host(UdpSocket);

impl Host {
    fn of(lab: &Running, number: u32) -> Result<Host> {
        let socket = lab.netns(&format!("h{number}"))?.run(|| UdpSocket::bind("0.0.0.0:0"))?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        Ok(Host(socket))
    }

    fn packet(index: u32, amount: u32) -> [u8; 32] {
        let mut packet = [0; 32];
        packet[..4].copy_from_slice(&index.to_be_bytes());
        packet[4..8].copy_from_slice(&amount.to_be_bytes());
        packet
    }

    /// The window that the switch is in; none: no answer came, or it is no member.
    fn window(&self) -> Option<u64> {
        // (The switch or its link may be dead.)
        self.0.send_to(&Host::packet(0, 0), SWITCH).ok()?;
        let mut packet = [0; 64];
        self.0.recv(&mut packet).ok()?;
        let window = u64::from_be_bytes(*packet[8..].first_chunk()?);
        (window != 0).then_some(window)
    }

    /// Updates a cell of each block, round and round.
    fn flood(&self, cells: u32, stop: &AtomicBool) {
        let blocks = cells.div_ceil(BLOCK);
        let mut at = 0u32;
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..16 {
                let index = (at % blocks * BLOCK + at / blocks % BLOCK) % cells;
                let _ = self.0.send_to(&Host::packet(index, 1), SWITCH);
                at = at.wrapping_add(1);
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// When each window was read for the first time, as seconds of the day.
    fn watch(&self, stop: &AtomicBool) -> Result<Vec<f64>> {
        let (mut seen, mut last) = (vec![], None);
        while !stop.load(Ordering::Relaxed) {
            let window = self.window();
            if window.is_some() && window != last {
                seen.push(seconds_of_day()?);
                last = window;
            }
            sleep(Duration::from_micros(500));
        }
        Ok(seen)
    }
}

/// When lines with these words were logged by the controller, after `since`.
fn logged(lab: &Running, words: &str, since: f64) -> Result<Vec<f64>> {
    let path = lab.log("controller", "controller");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let at = |line: &str| {
        let (_, time) = line.split_once('T')?;
        let mut parts = time.split_once('Z')?.0.split(':').map(|it| it.parse::<f64>().ok());
        let mut part = || parts.next().flatten();
        Some(part()? * 3600.0 + part()? * 60.0 + part()?)
    };
    let lines = text.lines().filter(|line| line.contains(words) && line.contains("main"));
    Ok(lines.filter_map(at).filter(|at| *at >= since).collect())
}

fn settle(context: &Context, lab: &Running) -> Result<()> {
    let stateplane = context.places.stateplane.display().to_string();
    let secrets = lab.dir().join("fabric.secrets").display().to_string();
    let ask = [
        &stateplane,
        "shared",
        "status",
        "--address",
        "10.2.9.10:5412",
        "--secrets",
        &secrets,
        "--json",
    ];
    let begin = Instant::now();
    loop {
        // (It fails as long as not all are there.)
        let said = lab.run("controller", &ask).unwrap_or_default();
        let status: Value = serde_json::from_str(&said).unwrap_or_default();
        if status["settled"] == true {
            return Ok(());
        }
        ensure!(begin.elapsed() < PATIENCE, "not all switches are members after {PATIENCE:?}");
        ensure!(!lab::interrupt::requested(), "interrupted");
        sleep(Duration::from_millis(50));
    }
}

/// A removal, in ms.
#[derive(Serialize)]
struct Removal {
    /// From the death until the controller found the first one dead.
    found: f64,
    /// From then on, until the controller had decided.
    decided: f64,
    /// From then on, until a window had turned at all others.
    moved: f64,
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a host's thread panicked"))
}

/// SIGKILL for all of a switch's processes.
fn stop_all(lab: &Running, node: &str) -> Result<()> {
    for pid in lab.netns(node)?.processes() {
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("SIGKILL")?;
    }
    Ok(())
}

/// Kills the first switches, and lets them return.
fn removal(lab: &Running, cells: u32, dying: u32) -> Result<Removal> {
    let all: Vec<Host> = (1..=SWITCHES).map(|it| Host::of(lab, it)).collect::<Result<_>>()?;
    let living: Vec<Host> =
        (dying + 1..=SWITCHES).map(|it| Host::of(lab, it)).collect::<Result<_>>()?;
    let nodes: Vec<String> = (1..=dying).map(|number| format!("s{number}")).collect();
    let stop = AtomicBool::new(false);
    let (killed, seen) = scope(|scope| {
        let stop = &stop;
        let senders: Vec<_> =
            all.iter().map(|host| scope.spawn(move || host.flood(cells, stop))).collect();
        let watchers: Vec<_> =
            living.iter().map(|host| scope.spawn(move || host.watch(stop))).collect();
        sleep(Duration::from_millis(500));
        let killed = seconds_of_day();
        // (At once: what else `fail` does for one of them takes time in which others live on.)
        let died = nodes
            .iter()
            .try_for_each(|node| stop_all(lab, node))
            .and_then(|()| Ok(nodes.iter().try_for_each(|node| lab.cut(node))?))
            .and_then(|()| Ok(nodes.iter().try_for_each(|node| lab.fail(node))?));
        sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        senders.into_iter().try_for_each(joined)?;
        let seen = watchers.into_iter().map(|it| joined(it)?).collect::<Result<Vec<_>>>()?;
        died.and(Ok((killed?, seen)))
    })?;
    let found = *logged(lab, "dead:", killed)?.first().context("nobody was found dead")?;
    let decided = *logged(lab, "decided", killed)?.last().context("nothing was decided")?;
    let next = |seen: &Vec<f64>| {
        seen.iter().copied().find(|at| *at > decided).context("the windows stand still")
    };
    let moved = seen.iter().map(next).collect::<Result<Vec<_>>>()?;
    let moved = moved.into_iter().fold(decided, f64::max);
    nodes.iter().try_for_each(|node| lab.restore(node))?;
    let ms = |from: f64, to: f64| (to - from) * 1000.0;
    Ok(Removal { found: ms(killed, found), decided: ms(found, decided), moved: ms(found, moved) })
}

fn up(context: &Context, cells: u32) -> Result<Running> {
    let cells = cells.to_string();
    let vars = [("cells", cells.as_str()), ("kind", "SUMS"), ("bound", "1000000000")];
    let file = "systems/swish/lab/failures.toml";
    Running::up(context, Wanted { file, mode: "shared", prefer: None, vars: &vars })
}

fn run(context: &Context) -> Result<Outcome> {
    let rounds = context.pick(3, 20);
    let rows = context.pick(&ROWS[2..], &ROWS[..]);
    let mut outcome = Outcome::default();
    let (mut groups, mut data, mut done) = (vec![], vec![], 0);
    for row in rows {
        // (The program has two counters.)
        let cells = row * 3 / 2;
        let lab = up(context, cells)?;
        let mut bars = vec![];
        for dying in 1..SWITCHES {
            let mut all = vec![];
            for _ in 0..rounds {
                settle(context, &lab)?;
                all.push(removal(&lab, cells, dying)?);
                done += 1;
                let of = rounds * (SWITCHES - 1) * rows.len() as u32;
                context.progress("removals", done, of);
            }
            let of = |value: fn(&Removal) -> f64| all.iter().map(value).collect::<Vec<f64>>();
            let (found, moved) = (of(|it| it.found), of(|it| it.moved));
            let name = format!("3 × {row}, {dying} of 4 die");
            let what = format!("{name}: found dead after");
            outcome.rows.push(Row::value(what, "", summary(&found), 0, "ms"));
            let what = format!("{name}: from then on, windows move after");
            let line = Row::value(what, "", summary(&moved), 1, "ms");
            outcome.rows.push(line.with_goal_of_each(Goal::AtMost(MOST_MS), &moved));
            let it = summary(&moved);
            bars.push(Some((it.median, it.low, it.high)));
            data.push(json!({ "row": row, "dying": dying, "rounds": all }));
        }
        groups.push(Group { name: format!("3 × {row}"), bars });
    }
    let axes = Axes {
        title: "From a removal until windows move".into(),
        y: "ms".into(),
        ..Axes::default()
    };
    let svg = plot::bars(&axes, &["1 of 4 dies", "2 die", "3 die"], &groups)?;
    outcome.figures.push(Figure { name: "shared-recovery".into(), svg });
    outcome.data = json!(data);
    Ok(outcome)
}
