//! Prometheus' text format (version 0.0.4), written so that each family has its HELP and TYPE, also
//! while it has no samples: what a dashboard may ask for can be seen on a daemon that has just
//! started.
//!
//! Names: `stateplane_WHAT_UNIT`, counters end in `_total`; units are `seconds`, `bytes`, or
//! nothing for counts (<https://prometheus.io/docs/practices/naming/>).

mod server;

pub use server::Server;

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

/// What a family's values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// The text of one scrape.
#[derive(Debug, Default)]
pub struct Text(String);

/// A family that gets its samples.
pub struct Family<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Text {
    /// Begins a family. `help` says in a sentence what it counts.
    pub fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let kind = if kind == Kind::Counter { "counter" } else { "gauge" };
        self.head(name, kind, help);
        Family { text: &mut self.0, name }
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// A whole histogram.
    pub fn histogram<const BUCKETS: usize>(
        &mut self,
        name: &str,
        help: &str,
        histogram: &Histogram<BUCKETS>,
    ) {
        self.head(name, "histogram", help);
        let mut below = 0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            below += count.load(Ordering::Relaxed);
            let _ = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {below}");
        }
        let all = below + histogram.beyond.load(Ordering::Relaxed);
        let sum = histogram.sum.load(Ordering::Relaxed) as f64 * histogram.unit;
        let _ = writeln!(
            self.0,
            "{name}_bucket{{le=\"+Inf\"}} {all}\n{name}_sum {sum}\n{name}_count {all}"
        );
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail. The format's help ends at the line's end and has `\`
        // escaped.
        let help = help.replace('\\', "\\\\").replace('\n', " ");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// The text.
    pub fn finish(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// Adds a sample.
    pub fn sample(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.text.push_str(self.name);
        for (position, (name, label)) in labels.iter().enumerate() {
            let before = if position == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escape(&label.to_string()));
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Counts observations by size; any thread may observe.
#[derive(Debug)]
pub struct Histogram<const BUCKETS: usize> {
    bounds: [f64; BUCKETS],
    /// What one observed unit is in the metric's unit.
    unit: f64,
    counts: [AtomicU64; BUCKETS],
    beyond: AtomicU64,
    sum: AtomicU64,
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    /// `bounds` ascend, in the metric's unit; observations are whole multiples of `unit` (1e-9:
    /// nanoseconds of a metric in seconds).
    pub fn new(bounds: [f64; BUCKETS], unit: f64) -> Histogram<BUCKETS> {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Histogram { bounds, unit, counts, beyond: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    /// Counts an observation.
    pub fn observe(&self, value: u64) {
        let scaled = value as f64 * self.unit;
        let bucket = self.bounds.iter().position(|bound| scaled <= *bound);
        bucket.map_or(&self.beyond, |at| &self.counts[at]).fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_prometheus() {
        let mut text = Text::default();
        text.single("a_total", Kind::Counter, "Events\nof a kind", 7);
        let mut family = text.family("b", Kind::Gauge, "Sizes");
        family.sample(&[("name", &"x\"y\\z"), ("port", &3)], 0.5);
        text.family("c_total", Kind::Counter, "None yet");
        let histogram = Histogram::new([0.001, 0.01], 1e-9);
        for value in [500_000, 1_000_000, 5_000_000, 50_000_000] {
            histogram.observe(value);
        }
        text.histogram("d_seconds", "Times", &histogram);
        assert_eq!(
            text.finish(),
            "# HELP a_total Events of a kind\n# TYPE a_total counter\na_total 7\n\
             # HELP b Sizes\n# TYPE b gauge\nb{name=\"x\\\"y\\\\z\",port=\"3\"} 0.5\n\
             # HELP c_total None yet\n# TYPE c_total counter\n\
             # HELP d_seconds Times\n# TYPE d_seconds histogram\n\
             d_seconds_bucket{le=\"0.001\"} 2\nd_seconds_bucket{le=\"0.01\"} 3\nd_seconds_bucket{le=\"+Inf\"} 4\n\
             d_seconds_sum 0.0565\nd_seconds_count 4\n"
        );
    }
}
