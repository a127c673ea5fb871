//! What operators see: status, metrics, and what alerts and the dashboard ask for.

use crate::common::{TestLab, json, must};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/swish").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(file(name)).expect("a file of the system")
}

/// The metrics that a text names.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("stateplane_")).map(str::to_owned).collect()
}

/// The values that queries want of a label.
fn values(text: &str, label: &str) -> BTreeSet<String> {
    let head = format!("{label}=~\"");
    let lists = text.split(&head).skip(1).filter_map(|rest| rest.split('"').next());
    lists.flat_map(|list| list.split('|')).map(str::to_owned).collect()
}

/// Alerts and dashboard ask for what the daemons of this lab measure; they show all of it.
pub fn is_complete(lab: &TestLab) {
    let running = lab.metrics("s1") + &lab.metrics("controller");
    let (alerts, dashboard) =
        (read("deploy/shared-alerts.yml"), read("deploy/shared-dashboard.json"));
    let parsed: Value = json(&dashboard);
    assert!(parsed["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    // (Of chains: tools/cli/tests/lab_paths.rs.)
    let mut asked = names(&format!("{alerts}{dashboard}"));
    asked.retain(|name| !name.starts_with("stateplane_switch_shared_chain_"));
    let known = |name: &String| running.contains(&format!("# TYPE {name} "));
    let missing: Vec<&String> = asked.iter().filter(|name| !known(name)).collect();
    assert!(missing.is_empty(), "no daemon has these: {missing:?}");
    let own = |name: &String| {
        name.starts_with("stateplane_switch_shared_") || name.starts_with("stateplane_shared_")
    };
    let types = running.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let types: BTreeSet<String> = types.map(str::to_owned).filter(own).collect();
    assert!(types.len() > 20, "{types:?}");
    let shown = names(&dashboard);
    let hidden: Vec<&String> = types.iter().filter(|name| !shown.contains(*name)).collect();
    assert!(hidden.is_empty(), "the dashboard does not show these: {hidden:?}");
    for (label, value) in ["reason", "standing"]
        .into_iter()
        .flat_map(|label| values(&alerts, label).into_iter().map(move |value| (label, value)))
    {
        assert!(running.contains(&format!("{label}=\"{value}\"")), "{label} {value}");
    }
    if let Ok(output) = Command::new("promtool")
        .args(["check", "rules"])
        .arg(file("deploy/shared-alerts.yml"))
        .output()
    {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    status(lab);
}

/// What agents say without a controller, and what the controller says.
fn status(lab: &TestLab) {
    let all = json(&must(&["shared", "status", "--json"]));
    let own = format!("{}-s1", lab.name);
    let switch = all.as_array().into_iter().flatten().find(|it| it["switch"] == own.as_str());
    let group = &switch.expect("the lab's switch")["shared"][0];
    let number = |name: &str| group[name].as_u64().unwrap_or_else(|| panic!("{name}: {group}"));
    assert_eq!(group["members"].as_array().map(Vec::len), Some(4));
    assert_eq!(number("relaxation"), 2 * 4 * number("bound"));
    assert!(number("window") > 0 && number("bytes_per_s") > 0, "{group}");
    // Four copies of two variables with 4096 cells, and a byte for each cell besides.
    assert!((2 * 4096 * 16..2 * 4096 * 20).contains(&number("memory_bytes")), "{group}");
    let log = lab::Lab::open(&lab.name).expect("a lab").log("s1", "switch");
    let log = std::fs::read_to_string(log).expect("the agent's log");
    let memory = format!("group main: {} bytes of memory", number("memory_bytes"));
    assert!(log.contains(&memory), "{log}");
    let told = super::status(lab);
    let group = &told["groups"][0];
    assert_eq!(group["relaxation"], number("relaxation"), "{group}");
    assert_eq!(group["switches"][0]["memory_bytes"], number("memory_bytes"), "{group}");
}
