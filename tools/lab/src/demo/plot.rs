//! `failover.svg`: RedPlane's Figure 14, drawn from our runs, with which switch carried the traffic
//! below it.

use crate::demo::analysis::{BIN_S, Series};
use crate::demo::run::Outcome;
use crate::demo::{Config, Kind, Timeline};
use crate::error::{Error, Result};
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

const SIZE: (u32, u32) = (960, 640);
/// Height of the upper panel, in pixels.
const UPPER: u32 = 430;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 44, 52);
const GRID: RGBColor = RGBColor(225, 228, 232);
const EVENT: RGBColor = RGBColor(110, 118, 129);
/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const SWITCHES: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(230, 159, 0)];

/// Length of a line in the legend, in pixels.
const LEGEND_LINE: u32 = 30;

/// How a run's line looks: apart by colour, and by width and dashes where there is no colour.
#[derive(Clone, Copy)]
struct Look {
    color: RGBColor,
    width: u32,
    /// Length of a dash and of a gap, in pixels; a gap of 0 makes the line solid.
    dash: (u32, u32),
    name: &'static str,
}

fn look(kind: Kind) -> Look {
    match kind {
        Kind::Baseline => Look {
            color: RGBColor(130, 136, 145),
            width: 1,
            dash: (1, 0),
            name: "no failure (baseline)",
        },
        Kind::Without => Look {
            color: RGBColor(213, 94, 0),
            width: 2,
            dash: (7, 4),
            name: "failure, no fault tolerance",
        },
        Kind::With => Look {
            color: RGBColor(0, 114, 178),
            width: 3,
            dash: (1, 0),
            name: "failure, replicated state",
        },
    }
}

impl Look {
    fn style(self) -> ShapeStyle {
        self.color.stroke_width(self.width)
    }

    fn draw<'b>(
        self,
        chart: &mut Chart<'_, 'b>,
        points: Vec<(f64, f64)>,
    ) -> std::result::Result<(), String> {
        let annotation = if self.dash.1 == 0 {
            chart.draw_series(LineSeries::new(points, self.style())).map_err(text)?
        } else {
            let series = DashedLineSeries::new(points, self.dash.0, self.dash.1, self.style());
            chart.draw_series(series).map_err(text)?
        };
        annotation.label(self.name).legend(move |(x, y)| {
            let (dash, gap) = if self.dash.1 == 0 { (LEGEND_LINE, 1) } else { self.dash };
            DashedPathElement::new([(x, y), (x + LEGEND_LINE as i32, y)], dash, gap, self.style())
        });
        Ok(())
    }
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Draws the figure.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, config: &Config, outcomes: &[Outcome]) -> Result<()> {
    draw(path, config, outcomes).map_err(|reason| Error::io(path)(std::io::Error::other(reason)))
}

fn draw(path: &Path, config: &Config, outcomes: &[Outcome]) -> std::result::Result<(), String> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let (upper, lower) = root.split_vertically(UPPER);
    let top = peak(config, outcomes) * 1.12;
    goodput_panel(&upper, config, outcomes, top)?;
    let shown = outcomes.iter().find(|o| o.kind == Kind::With).or(outcomes.last());
    if let Some(outcome) = shown {
        switch_panel(&lower, config, outcome, top)?;
    }
    root.present().map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn peak(config: &Config, outcomes: &[Outcome]) -> f64 {
    let bins = outcomes.iter().flat_map(|o| Series::new(&o.samples).bins(config.seconds));
    bins.fold(1.0, f64::max)
}

fn label(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn goodput_panel(
    area: &Area,
    config: &Config,
    outcomes: &[Outcome],
    top: f64,
) -> std::result::Result<(), String> {
    let mut chart = ChartBuilder::on(area)
        .caption("TCP goodput through a NAT whose switch dies and returns", (FONT, 21, &INK))
        .margin(14)
        .margin_right(26)
        .x_label_area_size(22)
        .y_label_area_size(66)
        .build_cartesian_2d(0.0..config.seconds, 0.0..top)
        .map_err(text)?;
    mesh(&mut chart, "goodput (Mbit/s), bins of 100 ms", "", 6)?;
    let mut order: Vec<&Outcome> = outcomes.iter().collect();
    // The one that matters on top.
    order.sort_by_key(|o| match o.kind {
        Kind::Baseline => 0,
        Kind::Without => 1,
        Kind::With => 2,
    });
    for outcome in &order {
        let bins = Series::new(&outcome.samples).bins(config.seconds);
        look(outcome.kind).draw(&mut chart, middles(&bins))?;
    }
    events(&mut chart, config, outcomes, top)?;
    // Between the two disruptions, where goodput is either high or none.
    let plan = Timeline::of(config.seconds);
    let x_of = |t: f64| chart.backend_coord(&(t, 0.0)).0;
    let legend_x = x_of(plan.fail + 0.05 * config.seconds) - x_of(0.0);
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::Coordinate(legend_x, 120))
        .background_style(WHITE.mix(0.9))
        .border_style(GRID)
        .margin(8)
        .legend_area_size(LEGEND_LINE + 8)
        .label_font(label(15))
        .draw()
        .map_err(text)
}

fn mesh(chart: &mut Chart, y: &str, x: &str, y_labels: usize) -> std::result::Result<(), String> {
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .y_labels(y_labels)
        .x_labels(16)
        .x_label_formatter(&|v| format!("{v:.0}"))
        .y_label_formatter(&|v| format!("{v:.0}"))
        .label_style(label(14))
        .axis_desc_style(label(16))
        .y_desc(y)
        .x_desc(x)
        .draw()
        .map_err(text)
}

/// Bins as points at the middle of each.
fn middles(bins: &[f64]) -> Vec<(f64, f64)> {
    bins.iter().enumerate().map(|(i, v)| ((i as f64 + 0.5) * BIN_S, *v)).collect()
}

/// Marks when the switch died and when traffic moved back to it, with how long the disruption was.
fn events(
    chart: &mut Chart,
    config: &Config,
    outcomes: &[Outcome],
    top: f64,
) -> std::result::Result<(), String> {
    let Some(outcome) = outcomes
        .iter()
        .find(|o| o.kind == Kind::With)
        .or_else(|| outcomes.iter().find(|o| o.kind.fails()))
    else {
        return Ok(());
    };
    let victim = config.cast.switches.first().map_or("", String::as_str);
    let length = |s: Option<f64>| s.map_or(String::new(), |s| format!(" (TCP back in {s:.2} s)"));
    let marks = [
        (outcome.failed_at, format!("{victim} fails{}", length(outcome.recovery_fail_s))),
        (outcome.returned_at, format!("{victim} returns{}", length(outcome.recovery_return_s))),
    ];
    for (at, what) in marks {
        let Some(at) = at else { continue };
        chart
            .draw_series(DashedLineSeries::new([(at, 0.0), (at, top)], 6, 4, EVENT.stroke_width(1)))
            .map_err(text)?;
        let style = label(14).pos(Pos::new(HPos::Left, VPos::Top));
        chart
            .draw_series([EmptyElement::at((at, top)) + Text::new(what, (6, 4), style)])
            .map_err(text)?;
    }
    Ok(())
}

fn switch_panel(
    area: &Area,
    config: &Config,
    outcome: &Outcome,
    top: f64,
) -> std::result::Result<(), String> {
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .margin_top(4)
        .margin_right(26)
        .x_label_area_size(46)
        .y_label_area_size(66)
        .build_cartesian_2d(0.0..config.seconds, 0.0..top)
        .map_err(text)?;
    mesh(&mut chart, "per switch (Mbit/s)", "time (s)", 3)?;
    let series = Series::new(&outcome.samples);
    for (i, name) in config.cast.switches.iter().enumerate() {
        let color = SWITCHES[i % SWITCHES.len()];
        let points = middles(&series.bins_via(i, config.seconds));
        let stretches = uses(&points, top);
        chart
            .draw_series(
                AreaSeries::new(points, 0.0, color.mix(0.35)).border_style(color.stroke_width(2)),
            )
            .map_err(text)?;
        for (from, to) in
            stretches.into_iter().filter(|(from, to)| to - from > config.seconds / 10.0)
        {
            let style = label(15).pos(Pos::new(HPos::Center, VPos::Center));
            let name = Text::new(format!("through {name}"), (0, 0), style);
            chart
                .draw_series([EmptyElement::at(((from + to) / 2.0, top * 0.4)) + name])
                .map_err(text)?;
        }
    }
    Ok(())
}

/// The stretches in which a switch carries a quarter of the scale or more.
fn uses(points: &[(f64, f64)], top: f64) -> Vec<(f64, f64)> {
    let used = |point: &(f64, f64)| point.1 >= top / 4.0;
    let stretches = points.chunk_by(|a, b| used(a) == used(b)).filter(|stretch| used(&stretch[0]));
    stretches.filter_map(|stretch| Some((stretch.first()?.0, stretch.last()?.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::uses;

    #[test]
    fn finds_where_a_switch_is_used() {
        let rates = [0.0, 90.0, 90.0, 0.0, 80.0, 90.0, 90.0, 5.0];
        let points: Vec<(f64, f64)> =
            rates.iter().enumerate().map(|(i, r)| (i as f64, *r)).collect();
        assert_eq!(uses(&points, 100.0), [(1.0, 2.0), (4.0, 6.0)]);
        assert!(uses(&points[..1], 100.0).is_empty());
    }
}
