//! A page of the repository from results: the paper's figures and ours side by side.

use crate::experiments::{self, Page};
use crate::results::Record;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

/// Longest line of prose, in characters.
const WIDTH: usize = 100;

/// A text in lines of prose.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &(std::mem::take(&mut line) + "\n");
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines + &line + "\n"
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// An experiment's part of a page.
fn section(page: &Page, record: &Record) -> Result<String> {
    let mut text = format!("## {}: {}\n\n", page.figure, page.title);
    for paragraph in [page.paper, page.method] {
        text += &(wrapped(paragraph) + "\n");
    }
    text += "| | paper | here | goal |\n| --- | --- | --- | --- |\n";
    for row in &record.rows {
        let cells = [&row.what, &row.paper, &row.measured, &row.verdict()].map(|it| cell(it));
        writeln!(text, "| {} |", cells.join(" | "))?;
    }
    for note in &record.notes {
        text += &("\n".to_owned() + &wrapped(note));
    }
    let quick = if record.quick { " (few rounds: wide spreads)" } else { "" };
    let reproduce = format!(
        "Reproduce: `{}`. It took {:.0} s on kernel {}, {}{quick}.",
        record.command, record.seconds, record.kernel, record.cpu
    );
    Ok(text + "\n" + &wrapped(&reproduce) + "\n")
}

/// Writes the page of all experiments whose figure is one of `paper`, from the results that are in
/// the directory.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(directory: &Path, paper: &str, to: &Path) -> Result<()> {
    let mut text = format!(
        "# {paper}: paper and measured\n\n{}\n",
        wrapped(&format!(
            "Written by `stateplane-bench page --paper {paper} --markdown FILE` from the results of \
             the commands below. Ratios of one run compare; absolute figures of other machines and \
             runs say little. In parentheses is the middle half of the rounds."
        ))
    );
    for experiment in experiments::ALL.iter().filter(|it| it.page.figure.starts_with(paper)) {
        if let Some(record) = crate::page::record(experiment.name, directory)? {
            text += &section(&experiment.page, &record)?;
        }
    }
    std::fs::write(to, text.trim_end().to_owned() + "\n").with_context(|| to.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_at_words() {
        let text = wrapped(&"word ".repeat(60));
        assert!(
            text.lines().all(|line| line.len() <= WIDTH) && text.lines().count() == 3,
            "{text}"
        );
        assert_eq!(cell("a | b"), "a \\| b");
    }
}
