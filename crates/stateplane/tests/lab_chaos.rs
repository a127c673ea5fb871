//! Chaos in small: a few rounds that must pass, and the same faults without replicated state, which must be found. Needs root.

mod common;

use common::{must, one_at_a_time, skip, stateplane, topology};
use serde_json::Value;
use std::path::Path;

/// `stateplane lab chaos` in both labs, with seed 1 and these rounds; its results go to `folder`.
fn chaos<T>(folder: &Path, rounds: &str, more: &[&str], run: impl FnOnce(&[&str]) -> T) -> T {
    let (nat, counter) = (topology("nat.toml"), topology("flow_counter.toml"));
    let [nat, counter, folder] = [&nat, &counter, folder].map(|path| path.to_str().expect("UTF-8 path"));
    let labs = ["--topology", nat, "--topology", counter, "--out", folder];
    run(&[&["lab", "chaos", "--seed", "1", "--rounds", rounds], &labs[..], more].concat())
}

/// What a run has left on the host: labs of chaos are called after their process.
fn nothing_left() {
    let labs = std::fs::read_dir(lab::instance::LABS_DIR).into_iter().flatten().flatten();
    let names: Vec<String> = labs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    for name in names.iter().filter(|name| name.starts_with("chaos-")) {
        let pid = name.rsplit('-').next().expect("a process");
        assert!(Path::new("/proc").join(pid).exists(), "lab {name} is left over");
    }
}

#[test]
fn random_failures_break_no_connection_and_lose_no_count() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    // Round 1 of seed 1 cuts s1's power; the rounds of both labs have links cut, agents killed and messages lost.
    let report = chaos(folder.path(), "3", &["--json"], must);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["labs"][0]["rounds"].as_array().map(Vec::len), Some(3), "{report}");
    assert!(report["labs"][0]["connections"]["exchanges"].as_u64() > Some(1_000), "{report}");
    let counts = &report["labs"][1]["counts"];
    assert!(counts["out"].as_u64() > Some(1_000) && counts["counters"].as_u64() >= Some(60), "{report}");
    assert_eq!(report["open_files"][0], report["open_files"][1], "files are left open");
    let lines = std::fs::File::open(folder.path().join("history-counter.jsonl")).expect("the history");
    let events = history::read_lines(std::io::BufReader::new(lines)).expect("events");
    let history = history::History::of(events);
    assert_eq!(Some(history.outputs() as u64), counts["out"].as_u64());
    assert_eq!(history.check(), Ok(()));
    nothing_left();
}

#[test]
fn broken_connections_and_counts_that_come_twice_are_found() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let folder = tempfile::tempdir().expect("a folder");
    let output = chaos(folder.path(), "1", &["--mode", "plain"], stateplane);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let text = std::fs::read_to_string(folder.path().join("chaos.json")).expect("the report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    for lab in 0..2 {
        assert!(report["labs"][lab]["violations"].as_u64() > Some(0), "{report}");
    }
    let folders = std::fs::read_dir(folder.path()).expect("the results").flatten();
    let names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    assert!(names.contains(&"nat-round-1".to_string()), "{names:?}");
    nothing_left();
}
