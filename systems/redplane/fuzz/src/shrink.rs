//! Makes a failing history short, and tells it.

use crate::campaign::Action;
use crate::rig::{Pool, Rig};
use anyhow::{Error, anyhow};
use fuzz_door::hex;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Shrinking may take this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether the history still ends in a failure, and which.
fn failure(rig: &mut Rig, pool: Pool, history: &[Action]) -> Option<Error> {
    if let Err(error) = rig.reset(pool) {
        return Some(error);
    }
    history.iter().find_map(|action| action.run(rig).err())
}

/// Leaves out of the history what the failure does not need, in ever smaller pieces.
fn shorten(rig: &mut Rig, pool: Pool, mut history: Vec<Action>, until: Instant) -> Vec<Action> {
    let mut piece = history.len().saturating_sub(1);
    while piece > 0 && Instant::now() < until {
        let mut end = history.len() - 1;
        while end > 0 && Instant::now() < until {
            let start = end.saturating_sub(piece);
            let mut shorter = history.clone();
            shorter.drain(start..end);
            if failure(rig, pool, &shorter).is_some() {
                history = shorter;
            }
            end = start.min(history.len() - 1);
        }
        piece /= 2;
    }
    history
}

/// Cuts the last frame's end, then makes its bytes zero, as far as it still fails.
fn simplify(rig: &mut Rig, pool: Pool, history: &mut [Action], until: Instant) {
    let Some(Action::Frame(last)) = history.last().cloned() else { return };
    let mut frame = last.frame.clone();
    let mut fails = |frame: &[u8]| {
        if let Some(Action::Frame(step)) = history.last_mut() {
            step.frame = frame.to_vec();
        }
        Instant::now() < until && failure(rig, pool, history).is_some()
    };
    let mut cut = frame.len() / 2;
    while cut > 0 {
        if fails(&frame[..frame.len() - cut]) {
            frame.truncate(frame.len() - cut);
        } else {
            cut /= 2;
        }
        cut = cut.min(frame.len());
    }
    for at in 0..frame.len() {
        let byte = std::mem::take(&mut frame[at]);
        if byte != 0 && !fails(&frame) {
            frame[at] = byte;
        }
    }
    if let Some(Action::Frame(step)) = history.last_mut() {
        step.frame = frame;
    }
}

/// The error for people: seed, shortest history, expected and got.
pub(crate) fn report(
    rig: &mut Rig,
    pool: Pool,
    history: Vec<Action>,
    error: Error,
    seed: u64,
    number: u64,
) -> Error {
    let until = Instant::now() + PATIENCE;
    let mut history = shorten(rig, pool, history, until);
    simplify(rig, pool, &mut history, until);
    let mut text = format!("seed {seed}, step {number}: {error:#}\n\nshortened, with {pool:?}:\n");
    for action in &history {
        // Writing to a string cannot fail.
        let _ = match action {
            Action::Frame(step) => {
                writeln!(text, "{} ns, port {}: {}", step.now_ns, step.port, hex(&step.frame))
            }
            Action::Generate(now_ns) => writeln!(text, "{now_ns} ns: packet generator"),
        };
    }
    match failure(rig, pool, &history) {
        Some(error) => anyhow!("{text}{error:#}"),
        None => anyhow!("{text}(it does not fail again)"),
    }
}
