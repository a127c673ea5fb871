//! The rows between a panel's title and its data: the legend, and what the marks say.

use crate::{Area, EVENT, Error, INK, Look, font};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Height of a row.
pub(crate) const ROW: i32 = 20;
/// Length of a sample in the legend.
const SAMPLE: i32 = 28;
/// Between an entry's sample and its name, and between entries.
const GAPS: (i32, i32) = (6, 18);
const TEXT: u32 = 13;

/// About how wide a text is, in pixels: an SVG does not know its reader's font.
fn width(text: &str) -> i32 {
    (text.chars().count() as f64 * 0.56 * f64::from(TEXT)).ceil() as i32
}

/// Puts boxes of these widths into rows; the first column and the row of each.
fn wrap(widths: &[i32], from: i32, to: i32) -> Vec<(i32, i32)> {
    let (mut x, mut row) = (from, 0);
    let mut places = Vec::new();
    for width in widths {
        if x > from && x + width > to {
            (x, row) = (from, row + 1);
        }
        places.push((x, row));
        x += width + GAPS.1;
    }
    places
}

/// A legend: how each entry looks, and its name.
pub(crate) struct Legend<'a> {
    entries: &'a [(Look, &'a str)],
    places: Vec<(i32, i32)>,
}

impl<'a> Legend<'a> {
    pub(crate) fn new(entries: &'a [(Look, &'a str)], from: i32, to: i32) -> Legend<'a> {
        let widths: Vec<i32> =
            entries.iter().map(|(_, name)| SAMPLE + GAPS.0 + width(name)).collect();
        Legend { entries, places: wrap(&widths, from, to) }
    }

    pub(crate) fn rows(&self) -> i32 {
        self.places.last().map_or(0, |place| place.1 + 1)
    }

    /// Draws it below `top`.
    pub(crate) fn draw(&self, area: &Area, top: i32) -> Result<(), Error> {
        for ((look, name), (x, row)) in self.entries.iter().zip(&self.places) {
            let y = top + row * ROW + ROW / 2;
            if look.filled {
                let corners = [(*x, y - 5), (x + SAMPLE, y + 5)];
                area.draw(&Rectangle::new(corners, look.fill())).map_err(Error::new)?;
            } else {
                let (dash, gap) = look.dash.unwrap_or((SAMPLE as u32, 1));
                let ends = [(*x, y), (x + SAMPLE, y)];
                area.draw(&DashedPathElement::new(ends, dash, gap, look.stroke()))
                    .map_err(Error::new)?;
            }
            let style = font(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
            let text = Text::new((*name).to_owned(), (x + SAMPLE + GAPS.0, y), style);
            area.draw(&text).map_err(Error::new)?;
        }
        Ok(())
    }
}

/// How many rows these texts at these columns need: one that would run into another goes below it.
pub(crate) fn mark_rows(marks: &[(i32, &str)], to: i32) -> Vec<(i32, HPos)> {
    let mut ends: Vec<Vec<(i32, i32)>> = Vec::new();
    let mut placed = Vec::new();
    for (x, text) in marks {
        let wide = width(text) + 4;
        let side = if x + wide > to { HPos::Right } else { HPos::Left };
        let (from, until) =
            if matches!(side, HPos::Left) { (*x, x + wide) } else { (x - wide, *x) };
        let free = |row: &Vec<(i32, i32)>| row.iter().all(|(a, b)| until < *a || *b < from);
        let row = ends.iter().position(free).unwrap_or_else(|| {
            ends.push(Vec::new());
            ends.len() - 1
        });
        ends[row].push((from, until));
        placed.push((row as i32, side));
    }
    placed
}

/// Draws what a mark says, and its line from there down to `bottom`.
pub(crate) fn draw_mark(
    area: &Area,
    x: i32,
    (top, bottom): (i32, i32),
    side: HPos,
    text: &str,
) -> Result<(), Error> {
    let line = DashedPathElement::new([(x, top), (x, bottom)], 6, 4, EVENT.stroke_width(1));
    area.draw(&line).map_err(Error::new)?;
    let beside = if matches!(side, HPos::Left) { 4 } else { -4 };
    let style = (crate::FONT, TEXT).into_font().color(&INK).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), (x + beside, top + ROW / 2), style)).map_err(Error::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_wrap_and_marks_give_way() {
        assert_eq!(wrap(&[50, 50, 50], 10, 140), [(10, 0), (78, 0), (10, 1)]);
        assert_eq!(wrap(&[500], 10, 140), [(10, 0)], "what is too wide stays alone");
        let rows = mark_rows(&[(10, "a long text"), (40, "another"), (390, "at the edge")], 400);
        let rows: Vec<(i32, bool)> =
            rows.into_iter().map(|(row, side)| (row, matches!(side, HPos::Left))).collect();
        assert_eq!(rows, [(0, true), (1, true), (0, false)]);
    }
}
