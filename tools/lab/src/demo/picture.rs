//! What the terminal shows while the demonstration runs: a live picture on a terminal, plain lines
//! elsewhere.

use crate::demo::Kind;
use crate::demo::analysis::Series;
use crate::demo::run::Outcome;
use crate::peer::Exchange;
use crossterm::style::{Color, ResetColor, SetForegroundColor};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{cursor, queue};
use std::io::{IsTerminal, Write};

/// Columns beside the bars: names and numbers.
const MARGIN: usize = 26;

/// The state of a run that a picture is drawn from.
pub struct View<'a> {
    /// Seconds since the run began.
    pub t: f64,
    /// Its length, in seconds.
    pub end: f64,
    /// What has been measured.
    pub series: Series<'a>,
    /// The switches' names.
    pub switches: &'a [String],
    /// The last exchange on the idle connections.
    pub exchange: Option<&'a Exchange>,
    /// Rate that fills a bar, in Mbit/s; 0 to take the highest seen.
    pub scale_mbps: f64,
}

/// Draws on standard error, so that standard output holds only results.
pub struct Picture {
    live: bool,
    /// Lines of the picture that are on the screen now.
    drawn: u16,
    /// The next whole second to print a line for, without a terminal.
    next_second: f64,
}

impl Default for Picture {
    fn default() -> Self {
        Self { live: std::io::stderr().is_terminal(), drawn: 0, next_second: 1.0 }
    }
}

impl Picture {
    /// A line about what is going on.
    pub fn note(&mut self, text: &str) {
        self.above(text);
    }

    /// A run begins.
    pub fn begin(&mut self, kind: Kind, number: usize, total: usize) {
        self.next_second = 1.0;
        self.above(&format!("run {number} of {total}: {}", kind.title()));
    }

    /// Something happened.
    pub fn event(&mut self, t: f64, what: &str) {
        self.above(&format!("  {t:6.2} s  {what}"));
    }

    /// A run has ended.
    pub fn end(&mut self, outcome: &Outcome) {
        let seconds = |s: Option<f64>| s.map_or("never".to_string(), |s| format!("{s:.2} s"));
        let mut text = format!(
            "  goodput {:.0} Mbit/s; {} of {} connections broken",
            outcome.normal_mbps, outcome.broken, outcome.connections
        );
        if outcome.kind.fails() {
            text.push_str(&format!(
                "; back after the failure: {}, after the return: {}",
                seconds(outcome.recovery_fail_s),
                seconds(outcome.recovery_return_s)
            ));
        }
        // The last picture stays on the screen; the next run draws below it.
        self.drawn = 0;
        self.above(&text);
    }

    /// Prints a line above the picture; the picture is drawn again below it.
    fn above(&mut self, text: &str) {
        let mut out = std::io::stderr().lock();
        if self.drawn > 0 {
            let _ = queue!(
                out,
                cursor::MoveToPreviousLine(self.drawn),
                Clear(ClearType::FromCursorDown)
            );
            self.drawn = 0;
        }
        // A closed standard error is no reason to stop measuring.
        let _ = writeln!(out, "{text}");
        let _ = out.flush();
    }

    /// Draws the state of a run; without a terminal, prints a line each second.
    pub fn draw(&mut self, view: &View) {
        if self.live {
            // As above.
            let _ = self.draw_live(view);
        } else if view.t >= self.next_second {
            let from = self.next_second - 1.0;
            self.next_second += 1.0;
            let mut line = format!(
                "  {:6.2} s  goodput {:5.0} Mbit/s",
                view.t,
                view.series.goodput(from, from + 1.0)
            );
            for (i, name) in view.switches.iter().enumerate() {
                line.push_str(&format!("  {name} {:5.0}", view.series.via(i, from, from + 1.0)));
            }
            self.above(&line);
        }
    }

    fn draw_live(&mut self, view: &View) -> std::io::Result<()> {
        let columns = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
        let width = columns.saturating_sub(MARGIN).clamp(10, 200);
        let all = view.series.bins(view.t);
        let scale = if view.scale_mbps > 0.0 {
            view.scale_mbps
        } else {
            all.iter().copied().fold(1.0, f64::max)
        };
        let mut out = std::io::stderr().lock();
        if self.drawn > 0 {
            queue!(out, cursor::MoveToPreviousLine(self.drawn))?;
        }
        let mut rows = Vec::new();
        for (i, name) in view.switches.iter().enumerate() {
            let color = if i == 0 { Color::Blue } else { Color::DarkYellow };
            rows.push((format!("via {name}"), view.series.bins_via(i, view.t), color));
        }
        rows.push(("goodput".to_string(), all, Color::Green));
        for (name, bins, color) in &rows {
            let last = bins.last().copied().unwrap_or(0.0);
            queue!(out, Clear(ClearType::CurrentLine))?;
            write!(out, "  {name:<8}")?;
            queue!(out, SetForegroundColor(*color))?;
            write!(out, "{:<width$}", plot::terminal::bars(bins, width, scale))?;
            queue!(out, ResetColor)?;
            writeln!(out, "{last:6.0} Mbit/s")?;
        }
        queue!(out, Clear(ClearType::CurrentLine))?;
        let connections = view.exchange.map_or(String::new(), |e| {
            format!("; idle connections: {} answer, {} broken", e.answered, e.broken())
        });
        writeln!(out, "  {:4.1} s of {:.1}{connections}", view.t, view.end)?;
        self.drawn = u16::try_from(rows.len() + 1).unwrap_or(0);
        out.flush()
    }
}
