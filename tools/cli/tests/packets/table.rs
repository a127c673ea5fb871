//! The table of all cases and systems, and the list of differences from nftables that are accepted.
//!
//! `table.txt` is what the suite found when it was last looked at: with `STATEPLANE_WRITE_TABLE=1`
//! it is written anew. `differences.toml` says why each cell that differs from nftables' does.

use super::system::{SYSTEMS, System};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

/// What each case came to, by system: mode → case → words.
pub type Results = BTreeMap<&'static str, BTreeMap<String, String>>;

/// A difference that is accepted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    /// The systems' modes.
    systems: Vec<String>,
    /// The cases' names.
    cases: Vec<String>,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    difference: Vec<Difference>,
}

fn beside(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/packets").join(file)
}

/// The table as text: a block for each case.
pub fn text(names: &[String], results: &Results) -> String {
    let mut text = String::from(
        "# What becomes of each kind of packet. Below each application's reference, nftables, stands \"same\" or what differs.\n\
         # Written by lab_packets.rs with STATEPLANE_WRITE_TABLE=1; the words are explained in
         # verdict.rs.\n",
    );
    for name in names {
        let _ = write!(text, "\n[{name}]\n");
        for system in SYSTEMS {
            let Some(cell) = results.get(system.mode).and_then(|of| of.get(name)) else { continue };
            let reference = system.reference.and_then(|mode| results.get(mode)?.get(name));
            if cell.is_empty() && reference.is_none_or(String::is_empty) {
                continue;
            }
            let cell = if reference == Some(cell) { "same" } else { cell };
            let _ = writeln!(text, "{:<16} {cell}", system.mode);
        }
    }
    text
}

/// The cells in which a system differs from its reference.
fn differing(results: &Results) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for System { mode, reference, .. } in SYSTEMS {
        let Some(reference) = reference.and_then(|reference| results.get(reference)) else {
            continue;
        };
        for (case, cell) in results.get(mode).into_iter().flatten() {
            if reference.get(case) != Some(cell) {
                found.insert((mode.to_string(), case.clone()));
            }
        }
    }
    found
}

/// Everything that is not as the two files say: nothing, if all is well.
pub fn complaints(names: &[String], results: &Results) -> Vec<String> {
    let mut complaints = vec![];
    let now = text(names, results);
    let file = beside("table.txt");
    if std::env::var_os("STATEPLANE_WRITE_TABLE").is_some() {
        std::fs::write(&file, &now).expect("the table is written");
    }
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    complaints.extend(changed_lines(&before, &now));

    let accepted = std::fs::read_to_string(beside("differences.toml")).expect("differences.toml");
    let accepted: Differences =
        toml::from_str(&accepted).unwrap_or_else(|e| panic!("differences.toml: {e}"));
    let mut listed: BTreeSet<(String, String)> = BTreeSet::new();
    for difference in &accepted.difference {
        if difference.reason.trim().is_empty() {
            complaints.push(format!("differences.toml: {:?} have no reason", difference.cases));
        }
        for case in &difference.cases {
            if !names.contains(case) {
                complaints.push(format!("differences.toml: there is no case \"{case}\""));
            }
            listed.extend(difference.systems.iter().map(|system| (system.clone(), case.clone())));
        }
    }
    let found = differing(results);
    let cell = |mode: &str, case: &str| {
        results.get(mode).and_then(|of| of.get(case)).cloned().unwrap_or_default()
    };
    for (mode, case) in found.difference(&listed) {
        let reference =
            SYSTEMS.iter().find(|system| system.mode == mode).and_then(|system| system.reference);
        let (is, wanted) = (cell(mode, case), cell(reference.unwrap_or_default(), case));
        complaints.push(format!(
            "not accepted: {mode}, \"{case}\"\n    {is}\n  where nftables has\n    {wanted}"
        ));
    }
    let ran = |mode: &String| results.contains_key(mode.as_str());
    for (mode, case) in listed.difference(&found).filter(|(mode, _)| ran(mode)) {
        complaints.push(format!(
            "differences.toml: {mode}, \"{case}\" does not differ any more: take it out"
        ));
    }
    complaints
}

/// Lines that are in one text only, each with its case.
fn changed_lines(before: &str, now: &str) -> Vec<String> {
    let lines = |text: &str| {
        let mut case = String::new();
        let mut lines = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if line.starts_with('[') {
                case = line.to_string();
            } else {
                lines.insert(format!("{case} {line}"));
            }
        }
        lines
    };
    let (before, now) = (lines(before), lines(now));
    let gone = before.difference(&now).map(|line| format!("table.txt has  {line}"));
    let new = now.difference(&before).map(|line| format!("the suite has  {line}"));
    gone.chain(new).collect()
}
