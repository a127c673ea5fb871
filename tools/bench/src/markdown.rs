//! A page of the repository from results: the paper's figures and ours side by side. The results
//! and the figures that it shows are copied to its folder.

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
    let mut text = format!("## {}\n\n", page.figure);
    let title = format!("Measured: {}.", page.title);
    for paragraph in [title.as_str(), page.paper] {
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
    for name in &record.figures {
        writeln!(text, "\n![{}]({name})", page.figure)?;
    }
    let quick = if record.quick { " (few rounds: wide spreads)" } else { "" };
    let reproduce = format!(
        "Reproduce: `{}`. It took {:.0} s on kernel {}, {}{quick}. Raw numbers: [{name}.json]({name}.json).",
        record.command,
        record.seconds,
        record.kernel,
        record.cpu,
        name = record.name
    );
    Ok(text + "\n" + &wrapped(&reproduce) + "\n")
}

/// The papers whose names begin the names of their figures; all other figures are RedPlane's.
const NAMED: [&str; 2] = ["NetChain", "SwiSh"];
/// All of them.
pub const PAPERS: [&str; 3] = ["RedPlane", NAMED[0], NAMED[1]];

fn is_of(paper: &str, figure: &str) -> bool {
    let named = NAMED.into_iter().find(|name| figure.starts_with(name));
    named.unwrap_or(PAPERS[0]) == paper
}

/// Writes the page of all experiments whose figure is one of `paper`, from the results that are in
/// the directory, and copies those to the page's folder.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(directory: &Path, paper: &str, to: &Path) -> Result<()> {
    let mut text = format!(
        "# {paper}: paper and measured\n\n{}\n",
        wrapped(&format!(
            "Written by `stateplane-bench page --paper {paper} --markdown FILE` from the results of \
             the commands below. Ratios of one run compare; absolute figures of other machines and \
             runs say little. In parentheses is the middle half of the rounds. \
             `stateplane-bench page` makes a page that also says how each figure is measured."
        ))
    );
    let beside = to.parent().unwrap_or(Path::new("."));
    for experiment in experiments::ALL.iter().filter(|it| is_of(paper, it.page.figure)) {
        if let Some(record) = crate::page::record(experiment.name, directory)? {
            text += &section(&experiment.page, &record)?;
            let json = format!("{}.json", experiment.name);
            for name in record.figures.iter().chain([&json]) {
                let (from, to) = (directory.join(name), beside.join(name));
                std::fs::copy(&from, &to).with_context(|| from.display().to_string())?;
            }
        }
    }
    std::fs::write(to, text.trim_end().to_owned() + "\n").with_context(|| to.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_of_one_paper() {
        for (figure, of) in [("Figure 8", 0), ("§5.3", 0), ("NetChain Table 1", 1), ("SwiSh", 2)] {
            let found: Vec<&str> = PAPERS.into_iter().filter(|it| is_of(it, figure)).collect();
            assert_eq!(found, [PAPERS[of]], "{figure}");
        }
    }

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
