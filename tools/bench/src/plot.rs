//! The figures: lines and grouped bars as SVG, in the look of the demonstration's.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

const SIZE: (u32, u32) = (860, 440);
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 44, 52);
const GRID: RGBColor = RGBColor(225, 228, 232);
const EVENT: RGBColor = RGBColor(110, 118, 129);
/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(130, 136, 145),
];
const LEGEND_LINE: i32 = 28;

/// What stands around the data.
#[derive(Clone, Debug, Default)]
pub struct Axes {
    /// Above the figure.
    pub title: String,
    /// Below it.
    pub x: String,
    /// Left of it.
    pub y: String,
    /// Logarithmic x.
    pub x_log: bool,
    /// Logarithmic y.
    pub y_log: bool,
    /// Vertical marks: where, and what.
    pub marks: Vec<(f64, String)>,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// In order of x.
    pub points: Vec<(f64, f64)>,
}

/// Bars that stand together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Below the bars.
    pub name: String,
    /// One a series: middle, low, high; none where a series has nothing here.
    pub bars: Vec<Option<(f64, f64, f64)>>,
}

fn error(problem: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("drawing a figure: {problem}")
}

fn font(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// Position of a value on an axis; logarithmic axes carry the power of ten.
fn place(value: f64, log: bool) -> f64 {
    if log { value.max(1e-9).log10() } else { value }
}

fn tick(position: f64, log: bool, step: f64) -> String {
    let value = if log { 10f64.powf(position) } else { position };
    let magnitude = value.abs();
    if magnitude >= 1e6 {
        format!("{:.0}M", value / 1e6)
    } else if magnitude >= 1e4 {
        format!("{:.0}k", value / 1e3)
    } else if magnitude >= 10.0 || (magnitude == 0.0) || (!log && step >= 1.0) {
        format!("{value:.0}")
    } else if magnitude >= 1.0 || (!log && step >= 0.1) {
        format!("{value:.1}")
    } else {
        format!("{value:.3}").trim_end_matches('0').to_owned()
    }
}

fn range(values: impl Iterator<Item = f64>, log: bool) -> (f64, f64) {
    let placed: Vec<f64> =
        values.filter(|v| v.is_finite() && (!log || *v > 0.0)).map(|v| place(v, log)).collect();
    let low = placed.iter().copied().fold(f64::INFINITY, f64::min);
    let high = placed.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match (log, low.is_finite() && high > low) {
        (_, false) if low.is_finite() && low != 0.0 => (low.min(0.0), low.max(low + 1.0)),
        (_, false) => (0.0, 1.0),
        (true, true) => (low.floor(), high + 0.05 * (high - low)),
        (false, true) => (low.min(0.0), high + 0.08 * high.abs()),
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(work: impl FnOnce(&Area) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(error)?;
        work(&area)?;
        area.present().map_err(error)?;
    }
    Ok(svg)
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// An empty chart with its caption.
fn chart<'a, 'b>(
    area: &'a Area<'b>,
    axes: &Axes,
    x: Range<f64>,
    y: Range<f64>,
) -> Result<Chart<'a, 'b>> {
    ChartBuilder::on(area)
        .caption(&axes.title, (FONT, 19, &INK))
        .margin(14)
        .margin_right(28)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)
        .map_err(error)
}

fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>, position: SeriesLabelPosition) -> Result<()> {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .margin(8)
        .legend_area_size(LEGEND_LINE + 8)
        .label_font(font(13))
        .draw()
        .map_err(error)
}

/// Lines over numbers.
///
/// # Errors
/// The drawing library refuses.
pub fn lines(axes: &Axes, lines: &[Line]) -> Result<String> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let (x0, x1) = range(all().map(|p| p.0), axes.x_log);
    let (y0, y1) = range(all().map(|p| p.1), axes.y_log);
    draw(|area| {
        let mut chart = chart(area, axes, x0..x1, y0..y1)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .x_labels(10)
            .y_labels(7)
            .x_label_formatter(&|v| tick(*v, axes.x_log, (x1 - x0) / 10.0))
            .y_label_formatter(&|v| tick(*v, axes.y_log, (y1 - y0) / 7.0))
            .label_style(font(13))
            .axis_desc_style(font(15))
            .x_desc(axes.x.as_str())
            .y_desc(axes.y.as_str())
            .draw()
            .map_err(error)?;
        for (index, line) in lines.iter().enumerate() {
            let style = COLORS[index % COLORS.len()].stroke_width(2);
            let points = line
                .points
                .iter()
                .filter(|p| (!axes.x_log || p.0 > 0.0) && (!axes.y_log || p.1 > 0.0));
            let points: Vec<(f64, f64)> =
                points.map(|(x, y)| (place(*x, axes.x_log), place(*y, axes.y_log))).collect();
            let few = points.len() <= 24;
            if few {
                let dots = points
                    .iter()
                    .map(|p| Circle::new(*p, 3, COLORS[index % COLORS.len()].filled()));
                chart.draw_series(dots).map_err(error)?;
            }
            chart
                .draw_series(LineSeries::new(points, style))
                .map_err(error)?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + LEGEND_LINE, y)], style));
        }
        for (at, what) in &axes.marks {
            let x = place(*at, axes.x_log);
            chart
                .draw_series(DashedLineSeries::new([(x, y0), (x, y1)], 6, 4, EVENT.stroke_width(1)))
                .map_err(error)?;
            let style = font(13).pos(Pos::new(HPos::Left, VPos::Top));
            let text = Text::new(what.clone(), (6, 4), style);
            chart.draw_series([EmptyElement::at((x, y1)) + text]).map_err(error)?;
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    })
}

/// Bars in groups, each with its spread.
///
/// # Errors
/// The drawing library refuses.
pub fn bars(axes: &Axes, series: &[&str], groups: &[Group]) -> Result<String> {
    let values = groups.iter().flat_map(|g| g.bars.iter().flatten().map(|b| b.2));
    let (y0, y1) = range(values.chain(if axes.y_log { None } else { Some(0.0) }), axes.y_log);
    draw(|area| {
        let mut chart = chart(area, axes, 0.0..groups.len().max(1) as f64, y0..y1)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .x_labels(0)
            .y_labels(7)
            .y_label_formatter(&|v| tick(*v, axes.y_log, (y1 - y0) / 7.0))
            .label_style(font(13))
            .axis_desc_style(font(15))
            .y_desc(axes.y.as_str())
            .draw()
            .map_err(error)?;
        let width = 0.8 / series.len().max(1) as f64;
        for (index, name) in series.iter().enumerate() {
            let color = COLORS[index % COLORS.len()];
            let placed = groups.iter().enumerate().filter_map(|(g, group)| {
                let left = g as f64 + 0.1 + index as f64 * width;
                group.bars.get(index).copied().flatten().map(|bar| (left, bar))
            });
            let placed: Vec<(f64, (f64, f64, f64))> = placed.collect();
            let rectangles = placed.iter().map(|(left, (middle, ..))| {
                let corners = [(*left, y0), (left + width * 0.92, place(*middle, axes.y_log))];
                Rectangle::new(corners, color.mix(0.8).filled())
            });
            chart.draw_series(rectangles).map_err(error)?.label(*name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 5), (x + LEGEND_LINE, y + 5)], color.mix(0.8).filled())
            });
            let spreads = placed.iter().map(|(left, (_, low, high))| {
                let x = left + width * 0.46;
                PathElement::new(
                    [(x, place(*low, axes.y_log)), (x, place(*high, axes.y_log))],
                    INK.stroke_width(1),
                )
            });
            chart.draw_series(spreads).map_err(error)?;
        }
        for (g, group) in groups.iter().enumerate() {
            let style = font(13).pos(Pos::new(HPos::Center, VPos::Top));
            let text = Text::new(group.name.clone(), (0, 8), style);
            chart.draw_series([EmptyElement::at((g as f64 + 0.5, y0)) + text]).map_err(error)?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

/// The cumulative distribution of sorted samples, thinned to what a figure can show.
pub fn distribution(sorted: &[f64]) -> Vec<(f64, f64)> {
    const POINTS: usize = 400;
    let count = sorted.len();
    let step = (count / POINTS).max(1);
    let mut points: Vec<(f64, f64)> =
        (0..count).step_by(step).map(|i| (sorted[i], (i + 1) as f64 / count as f64)).collect();
    // The tail is what tells systems apart: the last hundredth in full.
    let tail = count - count / 100;
    let fine = (count / 100 / 100).max(1);
    points.retain(|p| p.1 <= tail as f64 / count.max(1) as f64);
    points.extend((tail..count).step_by(fine).map(|i| (sorted[i], (i + 1) as f64 / count as f64)));
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_what_it_is_given() {
        let line = Line { name: "one & two".into(), points: vec![(0.0, 1.0), (1.0, 2.0)] };
        let svg = lines(&Axes { title: "T".into(), ..Axes::default() }, &[line]).expect("lines");
        assert!(svg.starts_with("<svg") && svg.contains("one &amp; two"), "{svg}");
        let group = Group { name: "g".into(), bars: vec![Some((1.0, 0.5, 1.5)), None] };
        let svg =
            bars(&Axes { y_log: true, ..Axes::default() }, &["a", "b"], &[group]).expect("bars");
        assert!(svg.contains("<rect"));
        assert!(
            bars(&Axes::default(), &[], &[]).is_ok() && lines(&Axes::default(), &[]).is_ok(),
            "nothing measured"
        );
    }

    #[test]
    fn distributions_end_at_one() {
        let samples: Vec<f64> = (0..10_000).map(f64::from).collect();
        let points = distribution(&samples);
        assert!(points.len() < 700 && points.windows(2).all(|w| w[0].1 < w[1].1));
        assert_eq!(points.last(), Some(&(9_999.0, 1.0)));
    }
}
