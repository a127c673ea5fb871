//! The table that people read, and `nat.json`.

use crate::statistics::Summary;
use serde::Serialize;

/// A ratio with its goal.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// What is compared, such as `linearizable / local, throughput`.
    pub what: String,
    /// Conversations.
    pub flows: u32,
    /// Median and quartiles over the rounds.
    pub ratio: Summary,
    /// What it should reach, if there is a goal.
    pub goal: Option<Goal>,
    /// Whether the median reaches it.
    pub reached: Option<bool>,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Ratio {
    /// Compares with the goal.
    pub fn new(what: &str, flows: u32, ratio: Summary, goal: Option<Goal>) -> Ratio {
        let reached = goal.map(|goal| match goal {
            Goal::AtLeast(bound) => ratio.median >= bound,
            Goal::AtMost(bound) => ratio.median <= bound,
        });
        Ratio { what: what.to_owned(), flows, ratio, goal, reached }
    }

    /// One aligned line.
    pub fn line(&self) -> String {
        let goal = match (self.goal, self.reached) {
            (Some(Goal::AtLeast(bound)), Some(true)) => format!("goal ≥ {bound}: reached"),
            (Some(Goal::AtLeast(bound)), _) => format!("goal ≥ {bound}: MISSED"),
            (Some(Goal::AtMost(bound)), Some(true)) => format!("goal ≤ {bound}: reached"),
            (Some(Goal::AtMost(bound)), _) => format!("goal ≤ {bound}: MISSED"),
            (None, _) => String::new(),
        };
        let Summary { low, median, high } = self.ratio;
        format!("  {:<52} {:>6} flows  {median:>7.3}  ({low:.3} to {high:.3})  {goal}", self.what, self.flows)
    }
}

/// Everything of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `uname -r`.
    pub kernel: String,
    /// The processor's own name.
    pub cpu: String,
    /// Rounds of the per-packet measurement.
    pub rounds: u32,
    /// Packets a round and system.
    pub packets: u32,
    /// CPU time, by number of conversations.
    pub per_packet: Vec<PerPacket>,
    /// Packets a second, by number of conversations.
    pub traffic: Vec<Traffic>,
    /// What `make bench` is for.
    pub ratios: Vec<Ratio>,
}

/// See [`crate::per_packet`].
#[derive(Debug, Serialize)]
pub struct PerPacket {
    /// Conversations.
    pub flows: u32,
    /// One a system.
    pub systems: Vec<crate::per_packet::Measured>,
}

/// See [`crate::traffic`].
#[derive(Debug, Serialize)]
pub struct Traffic {
    /// Conversations.
    pub flows: u32,
    /// One a system.
    pub systems: Vec<crate::traffic::Carried>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_compare_with_the_median() {
        let ratio = Summary { low: 0.9, median: 0.98, high: 1.1 };
        assert_eq!(Ratio::new("x", 1, ratio, Some(Goal::AtLeast(0.97))).reached, Some(true));
        assert_eq!(Ratio::new("x", 1, ratio, Some(Goal::AtMost(0.97))).reached, Some(false));
    }
}
