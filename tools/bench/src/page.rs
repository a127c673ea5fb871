//! `out/bench/index.html`: every experiment with the paper's figures and ours side by side, in one
//! file that needs no other.

use crate::experiments::{self, Asked, Page};
use crate::results::Record;
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = "body{font:16px/1.5 sans-serif;color:#282c34;max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:3rem;border-top:1px solid #e1e4e8;padding-top:1rem}\
table{border-collapse:collapse;width:100%;margin:1rem 0}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;\
border-bottom:1px solid #e1e4e8}th{font-weight:600}code,pre{font:14px monospace;background:#f4f5f7;padding:.1rem .3rem}\
svg{max-width:100%;height:auto}.missed{color:#b33a00;font-weight:600}.small{color:#5b6470;font-size:.9rem}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Paragraphs: blank lines part them.
fn paragraphs(text: &str) -> String {
    text.split("\n\n")
        .filter(|p| !p.trim().is_empty())
        .map(|p| format!("<p>{}</p>\n", escape(p.trim())))
        .collect()
}

fn table(record: &Record) -> Result<String> {
    let mut html =
        String::from("<table><tr><th></th><th>paper</th><th>here</th><th>goal</th></tr>\n");
    for row in &record.rows {
        let class = if row.reached == Some(false) { " class=\"missed\"" } else { "" };
        writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td{class}>{}</td></tr>",
            escape(&row.what),
            escape(&row.paper),
            escape(&row.measured),
            escape(&row.verdict())
        )?;
    }
    html.push_str("</table>\n");
    Ok(html)
}

fn results(record: &Record, directory: &Path) -> Result<String> {
    let mut html = table(record)?;
    for note in &record.notes {
        writeln!(html, "<p class=\"small\">{}</p>", escape(note))?;
    }
    for name in &record.figures {
        let path = directory.join(name);
        let svg = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        writeln!(html, "<figure>{svg}</figure>")?;
    }
    let quick = if record.quick { ", quick (few rounds: wide spreads)" } else { "" };
    writeln!(
        html,
        "<p class=\"small\">Reproduce: <code>{}</code>. Took {:.0} s on kernel {}, {}{quick}. Raw numbers: <code>{}.json</code>.</p>",
        escape(&record.command),
        record.seconds,
        escape(&record.kernel),
        escape(&record.cpu),
        escape(&record.name)
    )?;
    Ok(html)
}

fn section(name: &str, page: &Page, record: Option<&Record>, directory: &Path) -> Result<String> {
    let mut html =
        format!("<h2 id=\"{name}\">{}: {}</h2>\n", escape(page.figure), escape(page.title));
    html.push_str(&paragraphs(page.paper));
    html.push_str(&paragraphs(page.method));
    match record {
        Some(record) => html.push_str(&results(record, directory)?),
        None => writeln!(
            html,
            "<p>Not measured yet: <code>{}</code></p>",
            escape(&experiments::command(name, &Asked::default()))
        )?,
    }
    Ok(html)
}

/// How many of an experiment's goals are reached.
fn verdict(record: Option<&Record>) -> String {
    let Some(record) = record else {
        return " <span class=\"missed\">not measured yet</span>".to_owned();
    };
    let judged: Vec<bool> = record.rows.iter().filter_map(|row| row.reached).collect();
    let reached = judged.iter().filter(|reached| **reached).count();
    let class = if reached < judged.len() { "missed" } else { "small" };
    let of = if judged.is_empty() {
        "no goals".to_owned()
    } else {
        format!("{reached} of {} goals reached", judged.len())
    };
    let quick = if record.quick { ", quick run" } else { "" };
    format!(" <span class=\"{class}\">{of}{quick}</span>")
}

/// Reads an experiment's results, if it has run.
pub(crate) fn record(name: &str, directory: &Path) -> Result<Option<Record>> {
    let path = directory.join(format!("{name}.json"));
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    match serde_json::from_slice(&text) {
        Ok(record) => Ok(Some(record)),
        // An older program's file; its measurement does not count.
        Err(problem) => {
            eprintln!("bench: {}: {problem}: run {name} again", path.display());
            Ok(None)
        }
    }
}

/// The summary: how many goals are reached, and each goal with the paper's figure and ours.
fn summary(experiments: &[(&str, Page, Option<Record>)]) -> Result<String> {
    let mut html = String::new();
    let (mut reached, mut goals, mut missing) = (0, 0, Vec::new());
    for (name, page, record) in experiments {
        let link = format!("<a href=\"#{name}\">{}</a>", escape(page.figure));
        let Some(record) = record else {
            missing.push(link);
            continue;
        };
        for row in &record.rows {
            let Some(good) = row.reached else { continue };
            goals += 1;
            reached += usize::from(good);
            let class = if good { "" } else { " class=\"missed\"" };
            writeln!(
                html,
                "<tr><td>{link}</td><td>{}</td><td>{}</td><td>{}</td><td{class}>{}</td></tr>",
                escape(&row.what),
                escape(&row.paper),
                escape(&row.measured),
                escape(&row.verdict())
            )?;
        }
    }
    let unmeasured = match missing.as_slice() {
        [] => String::new(),
        some => format!(" Not measured yet: {}.", some.join(", ")),
    };
    let head = "<tr><th></th><th></th><th>paper</th><th>here</th><th>goal</th></tr>";
    let table = if goals > 0 { format!("<table>{head}\n{html}</table>\n") } else { String::new() };
    Ok(format!(
        "<p><strong>{reached} of {goals} goals reached</strong> in {} of {} experiments.{unmeasured}</p>\n{table}",
        experiments.len() - missing.len(),
        experiments.len(),
    ))
}

/// Writes the page from the results that are in the directory.
///
/// # Errors
/// A file cannot be read or written.
pub fn write(directory: &Path) -> Result<()> {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>stateplane: the papers' evaluations, repeated</title>\
         <style>{STYLE}</style></head><body>\n<h1>RedPlane's and NetChain's evaluations, repeated</h1>\n\
         <p>Each experiment of RedPlane (SIGCOMM ’21) §7 and NetChain (NSDI ’18) §8, on Linux hosts with XDP in the place of Tofino switches. The papers' absolute figures come from other machines: what \
         compares is the ratio between systems measured in one run. Numbers are medians over rounds; in parentheses is the middle half.</p>\n"
    );
    let mut all = Vec::new();
    for experiment in experiments::ALL {
        let record = record(experiment.name, directory)?;
        all.push((experiment.name, experiment.page, record));
    }
    html.push_str(&summary(&all)?);
    html.push_str("<ul>\n");
    let mut sections = String::new();
    for (name, page, record) in &all {
        let state = verdict(record.as_ref());
        writeln!(
            html,
            "<li><a href=\"#{name}\">{}: {}</a>{state}</li>",
            escape(page.figure),
            escape(page.title)
        )?;
        sections.push_str(&section(name, page, record.as_ref(), directory)?);
    }
    html.push_str("</ul>\n");
    html.push_str(&sections);
    html.push_str("</body></html>\n");
    let path = directory.join("index.html");
    std::fs::write(&path, html).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Goal;
    use crate::results::Row;
    use crate::statistics::summary as spread;

    #[test]
    fn the_summary_counts_goals_and_names_what_is_missing() {
        let page = |figure| Page {
            figure,
            title: "",
            quick: "",
            full: "",
            shows: "",
            paper: "",
            method: "",
        };
        let goal = |value: f64| {
            Row::value("a < b", "1", spread(&[value]), 1, "").with_goal(Goal::AtLeast(0.9))
        };
        let record = Record {
            name: "fig08".into(),
            quick: true,
            command: String::new(),
            pcap: None,
            kernel: String::new(),
            cpu: String::new(),
            seconds: 1.0,
            rows: vec![goal(1.0), goal(0.5), Row::text("no goal", "", "")],
            notes: vec![],
            figures: vec![],
            data: serde_json::Value::Null,
        };
        let all = [("fig08", page("Figure 8"), Some(record)), ("fig09", page("Figure 9"), None)];
        let html = summary(&all).unwrap();
        assert!(html.contains("1 of 2 goals reached</strong> in 1 of 2 experiments"), "{html}");
        assert!(html.contains("Not measured yet: <a href=\"#fig09\">Figure 9</a>"), "{html}");
        assert_eq!(html.matches("a &lt; b").count(), 2, "{html}");
        assert_eq!(html.matches("class=\"missed\"").count(), 1, "{html}");
    }
}
