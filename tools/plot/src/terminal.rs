//! Bars of characters.

/// Heights of a bar, lowest first.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last `width` values as bars, one a value; `scale` fills a bar.
pub fn bars(values: &[f64], width: usize, scale: f64) -> String {
    values[values.len().saturating_sub(width)..]
        .iter()
        .map(|value| BARS[(value / scale * 8.0).round().clamp(0.0, 8.0) as usize])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::bars;

    #[test]
    fn bars_scale_and_keep_the_newest() {
        assert_eq!(bars(&[0.0, 50.0, 100.0, 300.0], 10, 100.0), " ▄██");
        assert_eq!(bars(&[0.0, 50.0, 100.0], 2, 100.0), "▄█");
    }
}
