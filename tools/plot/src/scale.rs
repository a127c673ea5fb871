//! An axis: its range, its marks, and what they say.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use std::ops::Range;

/// What a logarithmic axis shows of a smaller value.
const LOWEST: f64 = 1e-9;

/// A linear or logarithmic axis.
#[derive(Clone)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    /// An axis for these values, up to `end` if that is given.
    pub(crate) fn new(values: impl Iterator<Item = f64>, log: bool, end: Option<f64>) -> Scale {
        let shown = |value: &f64| value.is_finite() && (!log || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(shown) {
            (low, high) = (low.min(value), high.max(value));
        }
        if !low.is_finite() {
            (low, high) = (1.0, 1.0);
        }
        if log {
            // From a mark to a mark, so that no value stands at the very edge.
            low = marks_up_to(low * 0.999).last().copied().unwrap_or(LOWEST);
            high *= 1.15;
        } else {
            low = low.min(0.0);
            high = if high > low { high + 0.06 * (high - low) } else { low + 1.0 };
        }
        Scale { low, high: end.unwrap_or(high), log }
    }

    pub(crate) fn low(&self) -> f64 {
        self.low
    }

    /// Whether the axis has a place for a value.
    pub(crate) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }
}

/// 1, 2 and 5 times the powers of ten, up to a value.
fn marks_up_to(high: f64) -> Vec<f64> {
    let mut marks: Vec<f64> = (-9..=15)
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
        .collect();
    marks.retain(|mark| *mark <= high);
    marks
}

/// A value as an axis says it.
fn text(value: f64) -> String {
    let magnitude = value.abs();
    let (scaled, unit) = match magnitude {
        m if m >= 1e6 => (value / 1e6, "M"),
        m if m >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        _ => 4,
    };
    let number = format!("{scaled:.digits$}");
    let short = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        &number
    };
    format!("{}{unit}", if short == "-0" { "0" } else { short })
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let place = |value: f64| if self.log { value.max(LOWEST).log10() } else { value };
        let (low, high) = (place(self.low), place(self.high));
        let share = (place(*value) - low) / (high - low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if !self.log {
            return RangedCoordf64::from(self.low..self.high).key_points(hint);
        }
        let mut marks = marks_up_to(self.high);
        marks.retain(|mark| *mark >= self.low * 0.999);
        if marks.len() > hint.max_num_points() {
            // Powers of ten alone, and of these as many as fit.
            marks.retain(|mark| {
                let power = mark.log10();
                (power - power.round()).abs() < 1e-9
            });
            let step = marks.len().div_ceil(hint.max_num_points().max(1)).max(1);
            marks = marks.into_iter().step_by(step).collect();
        }
        marks
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        text(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plotters::coord::ranged1d::BoldPoints;

    #[test]
    fn marks_are_round_and_within() {
        let log = Scale::new([3.0, 40.0, 700.0].into_iter(), true, None);
        assert_eq!(log.low(), 2.0);
        let marks = log.key_points(BoldPoints(10));
        assert_eq!(marks, [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(log.key_points(BoldPoints(4)), [10.0, 100.0]);
        assert_eq!(log.map(&2.0, (0, 100)), 0);
        let linear = Scale::new([1.0, 8.0].into_iter(), false, Some(10.0));
        assert_eq!((linear.low(), linear.high, linear.map(&5.0, (0, 100))), (0.0, 10.0, 50));
        let nothing = Scale::new(std::iter::empty(), true, None);
        assert!(nothing.low() < nothing.high && nothing.low() > 0.0);
    }

    #[test]
    fn numbers_are_short() {
        let said = [0.0, 0.05, 0.5, 1.5, 10.0, 12.5, 250.0, 9_999.0, 20_000.0, 3e6];
        let said = said.map(text);
        assert_eq!(said, ["0", "0.05", "0.5", "1.5", "10", "12.5", "250", "9999", "20k", "3M"]);
    }
}
