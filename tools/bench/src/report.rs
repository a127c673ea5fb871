//! Ratios with goals, and the raw numbers of the NAT measurement.

use crate::statistics::Summary;
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// No less than the first, no more than the second.
    Within(f64, f64),
}

impl Goal {
    /// Whether a number reaches it.
    pub fn reached_by(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(bound) => value >= bound,
            Goal::AtMost(bound) => value <= bound,
            Goal::Within(low, high) => (low..=high).contains(&value),
        }
    }
}

impl Ratio {
    /// Compares with the goal.
    pub fn new(what: &str, flows: u32, ratio: Summary, goal: Option<Goal>) -> Ratio {
        let reached = goal.map(|goal| goal.reached_by(ratio.median));
        Ratio { what: what.to_owned(), flows, ratio, goal, reached }
    }
}

/// Everything of one run.
#[derive(Debug, Serialize)]
pub struct Report {
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
