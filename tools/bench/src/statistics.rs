//! Medians and quartiles.

use serde::{Deserialize, Serialize};

/// Where the middle half of some samples lies.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Summary {
    /// First quartile.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// Third quartile.
    pub high: f64,
}

/// Median and quartiles, interpolated; all zero when there are no samples.
pub fn summary(samples: &[f64]) -> Summary {
    let mut sorted: Vec<f64> = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Summary {
        low: quantile(&sorted, 0.25),
        median: quantile(&sorted, 0.5),
        high: quantile(&sorted, 0.75),
    }
}

/// The samples divided pair by pair, summed up.
pub fn ratio_summary(above: &[f64], below: &[f64]) -> Summary {
    let ratios: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
    summary(&ratios)
}

/// The value below which a fraction of sorted samples lies, interpolated; 0 when there are none.
pub fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = fraction * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_five() {
        assert_eq!(
            summary(&[5.0, 1.0, 4.0, 2.0, 3.0]),
            Summary { low: 2.0, median: 3.0, high: 4.0 }
        );
    }

    #[test]
    fn median_of_two_lies_between() {
        assert_eq!(summary(&[1.0, 2.0]).median, 1.5);
    }

    #[test]
    fn nothing_gives_nothing() {
        assert_eq!(summary(&[]), Summary::default());
    }
}
