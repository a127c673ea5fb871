//! `shared.svg`: how soon each way blocks an attacker everywhere. And a run in the terminal.

use crate::shared::traffic::Live;
use plot::{Axes, Line, Look, Panel, distribution, panels};
use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 380;
/// Of a bar in the terminal.
const BIN: Duration = Duration::from_millis(100);
const BARS: usize = 60;

/// Draws the distributions of times, in ms, each with a name.
///
/// # Errors
/// The drawing library refuses.
pub fn draw(runs: &[(String, Vec<f64>)]) -> Result<String, plot::Error> {
    let line = |(number, (name, times)): (usize, &(String, Vec<f64>))| {
        let mut sorted = times.clone();
        sorted.sort_by(f64::total_cmp);
        let mut points = vec![(0.0, 0.0)];
        points.extend(distribution(&sorted).into_iter().map(|(ms, share)| (ms, share * 100.0)));
        Line::new(name.clone(), points).with_look(Look::color(number))
    };
    let lines: Vec<Line> = runs.iter().enumerate().map(line).collect();
    let axes = Axes {
        title: "From the packet that one switch would block at, to the block on all four".into(),
        x: "ms".into(),
        y: "attackers blocked (%)".into(),
        y_end: Some(105.0),
        ..Axes::default()
    };
    panels(WIDTH, &[Panel { height: HEIGHT, axes: &axes, lines: &lines }])
}

/// A line on standard error. (A closed one is no reason to stop measuring.)
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Shows a run until it is `over`: bars of the share of packets that the switches drop.
pub fn watch(name: &str, live: &Live, over: impl Fn() -> bool) {
    let (began, terminal) = (Instant::now(), std::io::stderr().is_terminal());
    let (mut shares, mut before, mut said) = (vec![], (0, 0), 0);
    while !over() {
        std::thread::sleep(BIN);
        let now = (live.sent.load(Ordering::Relaxed), live.arrived.load(Ordering::Relaxed));
        let (sent, arrived) = (now.0 - before.0, now.1 - before.1);
        before = now;
        shares.push(if sent == 0 { 0.0 } else { 1.0 - (arrived as f64 / sent as f64).min(1.0) });
        let bars = plot::terminal::bars(&shares, BARS, 1.0);
        let line = format!(
            "  {name:<4} {:>5.1} s │{bars:<BARS$}│ dropped: {:.0} % of {}",
            began.elapsed().as_secs_f64(),
            100.0 * (now.0.saturating_sub(now.1)) as f64 / now.0.max(1) as f64,
            now.0
        );
        if terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
        } else if began.elapsed().as_secs() > said {
            said = began.elapsed().as_secs();
            note(&line);
        }
    }
    if terminal {
        note("");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn draws_each_way() {
        let runs = [("sdw".to_owned(), vec![3.0, 1.0]), ("pull".to_owned(), vec![])];
        let text = super::draw(&runs).expect("a figure");
        assert!(text.contains("sdw") && text.contains("pull"), "{text}");
    }
}
