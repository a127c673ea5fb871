//! The detector for real: an attack that is spread over four switches, which share a sketch, or
//! send snapshots of theirs to a store that merges them. They block the sources that one switch
//! would that sees all packets, by the hosts' ledger. Needs root. Waits for timers.

mod common;

use bench::shared::control::{Way, Work, beside};
use bench::shared::network::Network;
use bench::shared::plan::Plan;
use bench::shared::traffic::{self, Live};
use bench::shared::verdict::outcomes;
use common::{must, one_at_a_time, skip};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn read(folder: &tempfile::TempDir, file: &str) -> Value {
    let text = std::fs::read_to_string(folder.path().join(file)).expect(file);
    serde_json::from_str(&text).expect(file)
}

#[test]
fn sharing_switches_block_what_one_would() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
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

#[test]
fn what_a_store_has_merged_blocks_what_one_switch_would() {
    if skip() {
        return;
    }
    let _turn = one_at_a_time();
    let binary = Path::new(env!("CARGO_BIN_EXE_stateplane"));
    let network = Network::with_store(Path::new("../.."), binary, &[]).expect("a lab");
    let (plan, live, work) = (Plan::new(1, 4, 8), Live::default(), Work::default());
    let send = || traffic::run(&network, &plan, &live);
    let way = Way::Store(Duration::from_millis(20));
    let ledger = beside(&network, way, &work, send).expect("packets, and a reader of the store");
    let outcomes = outcomes(&plan, &ledger);
    assert_eq!(outcomes.iter().filter(|it| it.attacks && it.everywhere()).count(), 4);
    for (number, it) in outcomes.iter().enumerate() {
        let one_switch = it.omniscient_ns.is_some();
        assert_eq!((it.somewhere(), it.everywhere()), (one_switch, one_switch), "{number}: {it:?}");
        assert!(it.destinations.iter().all(|count| *count < 1000), "{number}: seen alone");
    }
    assert!(work.bytes.load(Ordering::Relaxed) > 0, "nothing was read from the store");
}
