//! What an experiment gives: rows beside the paper's, figures, and the raw numbers.

use crate::report::Goal;
use crate::statistics::Summary;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of the comparison.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Row {
    /// What is measured.
    pub what: String,
    /// What the paper says of it, or nothing.
    pub paper: String,
    /// What was measured here, for people.
    pub measured: String,
    /// The number itself with its spread over the rounds, where there is one.
    pub value: Option<Summary>,
    /// What it should reach, if there is a goal.
    pub goal: Option<Goal>,
    /// Whether the median reaches it.
    pub reached: Option<bool>,
}

impl Row {
    /// A row of text alone.
    pub fn text(
        what: impl Into<String>,
        paper: impl Into<String>,
        measured: impl Into<String>,
    ) -> Row {
        Row {
            what: what.into(),
            paper: paper.into(),
            measured: measured.into(),
            value: None,
            goal: None,
            reached: None,
        }
    }

    /// A number with its spread, shown with so many decimals and a unit.
    pub fn value(
        what: impl Into<String>,
        paper: impl Into<String>,
        value: Summary,
        decimals: usize,
        unit: &str,
    ) -> Row {
        let Summary { low, median, high } = value;
        let space = if unit.is_empty() { "" } else { " " };
        let measured =
            format!("{median:.decimals$}{space}{unit} ({low:.decimals$} to {high:.decimals$})");
        Row { value: Some(value), ..Row::text(what, paper, measured) }
    }

    /// The same row with a goal for its median.
    pub fn with_goal(mut self, goal: Goal) -> Row {
        self.goal = Some(goal);
        // What could not be measured has not reached it.
        self.reached = Some(self.value.is_some_and(|value| goal.reached_by(value.median)));
        self
    }

    /// The same row with a goal that each sample must reach: for what may never happen.
    pub fn with_goal_of_each(mut self, goal: Goal, samples: &[f64]) -> Row {
        self.goal = Some(goal);
        self.reached =
            Some(!samples.is_empty() && samples.iter().all(|sample| goal.reached_by(*sample)));
        self
    }

    /// A goal of what could not be measured: missed.
    pub fn not_measured(what: impl Into<String>, paper: impl Into<String>, goal: Goal) -> Row {
        Row::text(what, paper, "not measured").with_goal(goal)
    }

    /// The goal and whether it is reached, for people.
    pub fn verdict(&self) -> String {
        let bound = match self.goal {
            None => return String::new(),
            Some(Goal::AtLeast(bound)) => format!("≥ {bound}"),
            Some(Goal::AtMost(bound)) => format!("≤ {bound}"),
            Some(Goal::Within(low, high)) => format!("{low} to {high}"),
        };
        format!("{bound}: {}", if self.reached == Some(true) { "reached" } else { "MISSED" })
    }
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name without `.svg`.
    pub name: String,
    /// The SVG itself.
    pub svg: String,
}

/// All that an experiment gives.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The comparison.
    pub rows: Vec<Row>,
    /// What a reader must know of these very figures: what was left out, what went wrong.
    pub notes: Vec<String>,
    /// The drawings.
    pub figures: Vec<Figure>,
    /// Everything measured.
    pub data: Value,
}

/// `out/bench/NAME.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// The experiment.
    pub name: String,
    /// Whether it ran with `--quick`: fewer rounds, so more spread.
    pub quick: bool,
    /// What reproduces it.
    pub command: String,
    /// The capture that was played instead of its own packets.
    #[serde(default)]
    pub pcap: Option<String>,
    /// `uname -r`.
    pub kernel: String,
    /// The processor's own name.
    pub cpu: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The comparison.
    pub rows: Vec<Row>,
    /// See [`Outcome::notes`].
    pub notes: Vec<String>,
    /// File names of the drawings.
    pub figures: Vec<String>,
    /// Everything measured.
    pub data: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_judge_the_median() {
        let value = Summary { low: 0.9, median: 0.98, high: 1.1 };
        let row = Row::value("x", "1", value, 2, "");
        assert_eq!(row.measured, "0.98 (0.90 to 1.10)");
        assert_eq!(row.clone().with_goal(Goal::AtLeast(0.97)).verdict(), "≥ 0.97: reached");
        assert_eq!(row.clone().with_goal(Goal::AtMost(0.97)).verdict(), "≤ 0.97: MISSED");
        assert_eq!(row.clone().with_goal(Goal::Within(0.9, 1.1)).verdict(), "0.9 to 1.1: reached");
        assert_eq!(row.with_goal(Goal::Within(0.99, 1.1)).reached, Some(false));
    }

    #[test]
    fn one_bad_round_misses_a_goal_of_each() {
        let row = Row::value("lost", "", Summary { low: 0.0, median: 0.0, high: 0.0 }, 0, "");
        assert_eq!(
            row.clone().with_goal_of_each(Goal::AtMost(0.0), &[0.0, 0.0, 500.0]).reached,
            Some(false)
        );
        assert_eq!(
            row.clone().with_goal_of_each(Goal::AtMost(0.0), &[0.0, 0.0]).reached,
            Some(true)
        );
        assert_eq!(row.with_goal_of_each(Goal::AtMost(0.0), &[]).reached, Some(false));
    }

    #[test]
    fn what_was_not_measured_misses_its_goal() {
        let row = Row::not_measured("x", "1", Goal::AtMost(0.35));
        assert_eq!((row.reached, row.verdict().as_str()), (Some(false), "≤ 0.35: MISSED"));
    }
}
