//! The detector for real: an attack that is spread over four switches, which share a sketch. They
//! block the sources that one switch would that sees all packets, by the hosts' ledger. Needs root.
//! Waits for timers.

mod common;

use common::{must, skip};
use serde_json::Value;

fn read(folder: &tempfile::TempDir, file: &str) -> Value {
    let text = std::fs::read_to_string(folder.path().join(file)).expect(file);
    serde_json::from_str(&text).expect(file)
}

#[test]
fn sharing_switches_block_what_one_would() {
    if skip() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().to_str().expect("UTF-8");
    let words = ["demo", "shared", "--only", "sdw", "--attackers", "4", "--benign", "8"];
    must(&[&words[..], &["--period-us", "10000", "--out", out]].concat());

    let figures = read(&folder, "shared.json");
    let sdw = &figures["sdw"];
    assert_eq!((&sdw["attackers"], &sdw["detected"]), (&Value::from(4), &Value::from(4)), "{sdw}");
    let details = read(&folder, "shared-details.json");
    let sources = details["sdw"]["sources"].as_array().expect("sources");
    assert_eq!(sources.len(), 12);
    for source in sources {
        let blocked = source["blocked"].as_array().expect("a word for each switch");
        assert_eq!(blocked.len(), 4);
        assert!(blocked.iter().all(|it| *it == source["one_switch_blocks"]), "{source}");
        // None of the switches saw too many alone.
        let counts = source["destinations"].as_array().expect("a number for each switch");
        assert!(counts.iter().all(|it| it.as_u64() < Some(1000)), "{source}");
    }
}
