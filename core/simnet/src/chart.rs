//! A message sequence chart of a run, in text: a column for each machine, time downwards.

use std::fmt::Write;

const COLUMN: usize = 7;

#[derive(Clone, Debug)]
struct Line<M> {
    ns: u64,
    from: M,
    /// `None`: something that happens at a machine.
    to: Option<M>,
    lost: bool,
    text: String,
}

/// What happened, in order.
#[derive(Clone, Debug)]
pub struct Chart<M> {
    /// From left to right: a machine, and its name.
    columns: Vec<(M, String)>,
    lines: Vec<Line<M>>,
}

impl<M: Copy + PartialEq> Chart<M> {
    /// An empty chart of these machines, each with a name of at most six letters.
    pub fn new(columns: Vec<(M, String)>) -> Chart<M> {
        Chart { columns, lines: Vec::new() }
    }

    /// A message arrives, or (`lost`) never will.
    pub fn message(&mut self, ns: u64, from: M, to: M, text: String, lost: bool) {
        self.lines.push(Line { ns, from, to: Some(to), lost, text });
    }

    /// Something happens at a machine.
    pub fn note(&mut self, ns: u64, machine: M, text: &str) {
        let text = text.to_owned();
        self.lines.push(Line { ns, from: machine, to: None, lost: false, text });
    }

    /// The last `most` lines as text.
    pub fn render(&self, most: usize) -> String {
        let mut out = format!("{:>12} ", "ms");
        for (_, name) in &self.columns {
            let _ = write!(out, "{name:<COLUMN$}");
        }
        out.push('\n');
        for line in &self.lines[self.lines.len().saturating_sub(most)..] {
            let (ms, picture) = (line.ns as f64 / 1e6, self.picture(line));
            let _ = writeln!(out, "{ms:>12.3} {picture} {}", line.text);
        }
        out
    }

    fn picture(&self, line: &Line<M>) -> String {
        let column = |machine: M| {
            let at = self.columns.iter().position(|(known, _)| *known == machine);
            at.unwrap_or_default() * COLUMN
        };
        let width = self.columns.len() * COLUMN;
        let mut cells: Vec<char> =
            (0..width).map(|at| if at % COLUMN == 0 { '|' } else { ' ' }).collect();
        let start = column(line.from);
        let Some(to) = line.to else {
            cells[start] = '*';
            return cells.into_iter().collect();
        };
        let end = column(to);
        let (low, high) = (start.min(end), start.max(end));
        if low != high {
            cells[low + 1..high].fill('-');
            let head = if end > start { (end - 1, '>') } else { (end + 1, '<') };
            cells[head.0] = head.1;
        }
        if line.lost {
            cells[(low + high) / 2] = 'X';
        }
        cells.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_go_from_column_to_column() {
        let mut chart = Chart::new(vec![('a', "a".to_owned()), ('b', "b".to_owned())]);
        chart.message(1_000_000, 'a', 'b', "asks".to_owned(), false);
        chart.message(2_000_000, 'b', 'a', "answers".to_owned(), true);
        chart.note(3_000_000, 'b', "dies");
        let drawn = chart.render(usize::MAX);
        let lines: Vec<&str> = drawn.lines().skip(1).map(|line| &line[13..]).collect();
        assert_eq!(lines, ["|----->|       asks", "|<-X---|       answers", "|      *       dies"]);
        assert_eq!(chart.render(1).lines().count(), 2);
    }
}
