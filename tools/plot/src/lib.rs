//! Figures: lines, areas and grouped bars as SVG, and bars of characters for terminals.
//!
//! One look for all. Legend and marks stand in rows above the data, never over it.

mod rows;
mod scale;
pub mod terminal;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use rows::{Legend, ROW, draw_mark, mark_rows};
use scale::Scale;

const SIZE: (u32, u32) = (860, 440);
pub(crate) const FONT: &str = "sans-serif";
pub(crate) const INK: RGBColor = RGBColor(40, 44, 52);
const GRID: RGBColor = RGBColor(225, 228, 232);
pub(crate) const EVENT: RGBColor = RGBColor(110, 118, 129);
/// Colours that stay apart for colour-blind readers (Okabe and Ito); neighbours differ most.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(70, 74, 82),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];
/// The colour of what others are compared with.
pub const GRAY: usize = COLORS.len();
const MARGIN: i32 = 14;
const RIGHT_MARGIN: i32 = 28;
const Y_LABELS: i32 = 70;

/// A figure that cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("drawing a figure: {0}")]
pub struct Error(String);

impl Error {
    pub(crate) fn new(problem: impl std::fmt::Display) -> Error {
        Error(problem.to_string())
    }
}

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
    /// Where x ends; after the last value if that is not given.
    pub x_end: Option<f64>,
    /// Where y ends; above the highest value if that is not given.
    pub y_end: Option<f64>,
    /// Vertical marks: where, and what.
    pub marks: Vec<(f64, String)>,
}

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Number of the colour; [`GRAY`] for what others are compared with.
    pub color: usize,
    /// In pixels.
    pub width: u32,
    /// Lengths of a dash and of a gap, in pixels.
    pub dash: Option<(u32, u32)>,
    /// Whether the area down to the axis is filled.
    pub filled: bool,
}

impl Look {
    /// A line of a colour.
    pub fn color(color: usize) -> Look {
        Look { color, width: 2, dash: None, filled: false }
    }

    /// The same, dashed: what a model says of a measured line.
    pub fn dashed(self) -> Look {
        Look { dash: Some((7, 4)), ..self }
    }

    fn rgb(self) -> RGBColor {
        if self.color == GRAY { RGBColor(150, 155, 163) } else { COLORS[self.color % COLORS.len()] }
    }

    pub(crate) fn stroke(self) -> ShapeStyle {
        self.rgb().stroke_width(self.width)
    }

    pub(crate) fn fill(self) -> ShapeStyle {
        self.rgb().mix(0.8).filled()
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// In order of x.
    pub points: Vec<(f64, f64)>,
    /// Its look; by default the next colour.
    pub look: Option<Look>,
}

impl Line {
    /// A line in the next colour.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        Line { name: name.into(), points, look: None }
    }

    /// The line with a look of its own.
    pub fn with_look(self, look: Look) -> Line {
        Line { look: Some(look), ..self }
    }
}

/// Bars that stand together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Below the bars.
    pub name: String,
    /// One a series: middle, low, high; none where a series has nothing here.
    pub bars: Vec<Option<(f64, f64, f64)>>,
}

/// Lines over numbers, as a part of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Panel<'a> {
    /// In pixels.
    pub height: u32,
    /// What stands around the lines.
    pub axes: &'a Axes,
    /// The lines.
    pub lines: &'a [Line],
}

pub(crate) fn font(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

fn draw(size: (u32, u32), work: impl FnOnce(&Area) -> Result<(), Error>) -> Result<String, Error> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE).map_err(Error::new)?;
        work(&area)?;
        area.present().map_err(Error::new)?;
    }
    Ok(svg)
}

/// Draws the title, the legend and the axes of a panel that begins at `top`; `names` says whether
/// x has numbers.
fn frame<'a, 'b>(
    root: &Area<'b>,
    area: &'a Area<'b>,
    axes: &Axes,
    legend: &Legend,
    scales: (Scale, Scale),
    numbers: bool,
) -> Result<Chart<'a, 'b>, Error> {
    let (width, top) = (root.dim_in_pixel().0 as i32, area.get_base_pixel().1);
    let mut used = top + MARGIN / 2;
    if !axes.title.is_empty() {
        let style = font(19).pos(Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(axes.title.clone(), (width / 2, used), style)).map_err(Error::new)?;
        used += 28;
    }
    legend.draw(root, used)?;
    used += legend.rows() * ROW + 4;
    let (left, right) = (MARGIN + Y_LABELS, width - RIGHT_MARGIN);
    let x_of =
        |value: f64| plotters::coord::ranged1d::Ranged::map(&scales.0, &value, (left, right));
    let said: Vec<(i32, &str)> =
        axes.marks.iter().map(|(at, what)| (x_of(*at), what.as_str())).collect();
    let places = mark_rows(&said, right);
    let marks_top = used;
    used += places.iter().map(|(row, _)| row + 1).max().unwrap_or(0) * ROW;
    let below = if axes.x.is_empty() { 26 } else { 44 };
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .margin_top((used - top) as u32)
        .margin_right(RIGHT_MARGIN)
        .x_label_area_size(below)
        .y_label_area_size(Y_LABELS)
        .build_cartesian_2d(scales.0, scales.1)
        .map_err(Error::new)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_labels(if numbers { 14 } else { 0 })
        .y_labels(7)
        .label_style(font(13))
        .axis_desc_style(font(15))
        .x_desc(axes.x.as_str())
        .y_desc(axes.y.as_str());
    if !numbers {
        mesh.disable_x_mesh();
    }
    mesh.draw().map_err(Error::new)?;
    let bottom = chart.plotting_area().get_pixel_range().1.end;
    for ((x, what), (row, side)) in said.iter().zip(places) {
        draw_mark(root, *x, (marks_top + row * ROW, bottom), side, what)?;
    }
    Ok(chart)
}

/// Draws a panel's lines into its area of the figure.
fn panel<'b>(root: &Area<'b>, area: &Area<'b>, panel: &Panel) -> Result<(), Error> {
    let Panel { axes, lines, .. } = panel;
    let all = || lines.iter().flat_map(|line| &line.points);
    let x = Scale::new(all().map(|p| p.0), axes.x_log, axes.x_end);
    let y = Scale::new(all().map(|p| p.1), axes.y_log, axes.y_end);
    let looks: Vec<(Look, &str)> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| (line.look.unwrap_or(Look::color(index)), line.name.as_str()))
        .collect();
    let right = root.dim_in_pixel().0 as i32 - RIGHT_MARGIN;
    let legend = Legend::new(&looks, MARGIN + Y_LABELS, right);
    let mut chart = frame(root, area, axes, &legend, (x.clone(), y.clone()), true)?;
    for (line, (look, _)) in lines.iter().zip(&looks) {
        let shown = |p: &&(f64, f64)| x.shows(p.0) && y.shows(p.1);
        let points: Vec<(f64, f64)> = line.points.iter().filter(shown).copied().collect();
        if points.len() <= 24 && !look.filled {
            let dots = points.iter().map(|p| Circle::new(*p, 3, look.rgb().filled()));
            chart.draw_series(dots).map_err(Error::new)?;
        }
        if look.filled {
            let area = AreaSeries::new(points, y.low(), look.rgb().mix(0.35));
            chart.draw_series(area.border_style(look.stroke())).map_err(Error::new)?;
        } else if let Some((dash, gap)) = look.dash {
            let series = DashedLineSeries::new(points, dash, gap, look.stroke());
            chart.draw_series(series).map_err(Error::new)?;
        } else {
            chart.draw_series(LineSeries::new(points, look.stroke())).map_err(Error::new)?;
        }
    }
    Ok(())
}

/// Panels below each other, in one figure.
///
/// # Errors
/// The drawing library refuses.
pub fn panels(width: u32, panels: &[Panel]) -> Result<String, Error> {
    draw((width, panels.iter().map(|panel| panel.height).sum()), |root| {
        let mut rest = root.clone();
        for one in panels {
            let (area, below) = rest.split_vertically(one.height);
            panel(root, &area, one)?;
            rest = below;
        }
        Ok(())
    })
}

/// Lines over numbers.
///
/// # Errors
/// The drawing library refuses.
pub fn lines(axes: &Axes, lines: &[Line]) -> Result<String, Error> {
    panels(SIZE.0, &[Panel { height: SIZE.1, axes, lines }])
}

/// Bars in groups, each with its spread.
///
/// # Errors
/// The drawing library refuses.
pub fn bars(axes: &Axes, series: &[&str], groups: &[Group]) -> Result<String, Error> {
    let spreads = groups.iter().flat_map(|g| g.bars.iter().flatten()).flat_map(|b| [b.1, b.2]);
    let base = if axes.y_log { None } else { Some(0.0) };
    let y = Scale::new(spreads.chain(base), axes.y_log, axes.y_end);
    let x = Scale::new(std::iter::once(0.0), false, Some(groups.len().max(1) as f64));
    draw(SIZE, |root| {
        let entries: Vec<(Look, &str)> = series
            .iter()
            .enumerate()
            .map(|(index, name)| (Look { filled: true, ..Look::color(index) }, *name))
            .collect();
        let legend = Legend::new(&entries, MARGIN + Y_LABELS, SIZE.0 as i32 - RIGHT_MARGIN);
        let mut chart = frame(root, root, axes, &legend, (x, y.clone()), false)?;
        let width = 0.8 / series.len().max(1) as f64;
        for (index, (look, _)) in entries.iter().enumerate() {
            let placed: Vec<(f64, (f64, f64, f64))> = groups
                .iter()
                .enumerate()
                .filter_map(|(g, group)| {
                    let left = g as f64 + 0.1 + index as f64 * width;
                    group.bars.get(index).copied().flatten().map(|bar| (left, bar))
                })
                .collect();
            let rectangles = placed.iter().map(|(left, (middle, ..))| {
                Rectangle::new([(*left, y.low()), (left + width * 0.92, *middle)], look.fill())
            });
            chart.draw_series(rectangles).map_err(Error::new)?;
            let spreads = placed.iter().map(|(left, (_, low, high))| {
                let x = left + width * 0.46;
                PathElement::new([(x, *low), (x, *high)], INK.stroke_width(1))
            });
            chart.draw_series(spreads).map_err(Error::new)?;
        }
        for (g, group) in groups.iter().enumerate() {
            let style = font(13).pos(Pos::new(HPos::Center, VPos::Top));
            let text = Text::new(group.name.clone(), (0, 8), style);
            chart
                .draw_series([EmptyElement::at((g as f64 + 0.5, y.low())) + text])
                .map_err(Error::new)?;
        }
        Ok(())
    })
}

/// The outline of bins of a width, from 0: each value from its bin's begin to its end.
pub fn steps(bins: &[f64], width: f64) -> Vec<(f64, f64)> {
    let edge = |index: usize| index as f64 * width;
    bins.iter()
        .enumerate()
        .flat_map(|(index, value)| [(edge(index), *value), (edge(index + 1), *value)])
        .collect()
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
        let axes = Axes {
            title: "T".into(),
            marks: vec![(0.5, "here".into()), (0.51, "there".into())],
            ..Axes::default()
        };
        let line = Line::new("one & two", vec![(0.0, 1.0), (1.0, 2.0)]);
        let look = Look { filled: true, ..Look::color(GRAY) };
        let area = Line { look: Some(look), ..line.clone() };
        let svg = lines(&axes, &[line, area]).expect("lines");
        assert!(svg.starts_with("<svg") && svg.contains("one &amp; two"), "{svg}");
        assert!(svg.contains("here") && svg.contains("there"), "{svg}");
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
    fn bins_become_steps() {
        let outline = steps(&[3.0, 1.0], 0.5);
        assert_eq!(outline, [(0.0, 3.0), (0.5, 3.0), (0.5, 1.0), (1.0, 1.0)]);
    }

    #[test]
    fn distributions_end_at_one() {
        let samples: Vec<f64> = (0..10_000).map(f64::from).collect();
        let points = distribution(&samples);
        assert!(points.len() < 700 && points.windows(2).all(|w| w[0].1 < w[1].1));
        assert_eq!(points.last(), Some(&(9_999.0, 1.0)));
    }
}
