//! Alerts and the dashboard of a key-value service ask for what its daemons measure.

use crate::cluster::Cluster;
use crate::page::{read, repository};
use std::collections::BTreeSet;
use std::process::Command;

const ALERTS: &str = "systems/netchain/deploy/kv-alerts.yml";
const DASHBOARD: &str = "systems/netchain/deploy/kv-dashboard.json";

/// What daemons that run measure: a switch and the controller.
pub fn is_complete(cluster: &Cluster) {
    let running = cluster.lab.metrics("s1") + &cluster.lab.metrics("controller");
    let alerts = alerts();
    let mut queries: Vec<String> = alerts.clone();
    queries.extend(panels());
    let page = read("systems/netchain/docs/operate.md");
    queries.extend(page.lines().map(str::to_owned));
    let missing: BTreeSet<String> = queries
        .iter()
        .flat_map(|query| words(query))
        .filter(|name| !running.contains(&format!("# TYPE {name} ")))
        .collect();
    assert!(missing.is_empty(), "no daemon has these: {missing:#?}");
    // Whatever a switch drops of requests and messages has an alert.
    let told: BTreeSet<String> = alerts.iter().flat_map(|query| values(query, "reason")).collect();
    let known = reasons(&running);
    assert!(known.len() > 8, "{known:?}");
    assert_eq!(told, known, "reasons with an alert, and reasons that there are");
    let own = queries.iter().flat_map(|query| values(query, "what"));
    let what: BTreeSet<String> = own.collect();
    for what in what {
        assert!(running.contains(&format!("what=\"{what}\"")), "{what}");
    }
    promtool();
}

/// The queries of the alerts.
fn alerts() -> Vec<String> {
    let text = read(ALERTS);
    let of = |head: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix(head));
        lines.map(str::to_owned).collect()
    };
    let (names, queries) = (of("- alert: "), of("expr: "));
    let unique: BTreeSet<&String> = names.iter().collect();
    assert!(names.len() > 20 && unique.len() == names.len(), "{names:?}");
    for parts in [&queries, &of("summary: "), &of("labels: ")] {
        assert_eq!(parts.len(), names.len(), "each alert has its parts");
    }
    queries
}

/// The queries of the dashboard.
fn panels() -> Vec<String> {
    let dashboard: serde_json::Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries = targets.map(|it| it["expr"].as_str().expect("a query").to_owned());
    let queries: Vec<String> = queries.collect();
    assert!(queries.len() > 25, "{queries:?}");
    queries
}

/// The metrics that a text names.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("stateplane_")).map(str::to_owned).collect()
}

/// The values that a query wants of a label.
fn values(query: &str, label: &str) -> Vec<String> {
    let head = format!("{label}=");
    let named = query.split(&head).skip(1);
    let lists =
        named.filter_map(|rest| rest.trim_start_matches('~').strip_prefix('"')?.split('"').next());
    lists.flat_map(|list| list.split('|')).map(str::to_owned).collect()
}

/// Why switches drop what is this system's.
fn reasons(running: &str) -> BTreeSet<String> {
    let head = "stateplane_drops_total{part=\"netchain\",reason=\"";
    let lines = running.lines().filter_map(|line| line.strip_prefix(head)?.split('"').next());
    lines.map(str::to_owned).collect()
}

/// What Prometheus' own tool says, where it is.
fn promtool() {
    let file = repository().join(ALERTS);
    let Ok(output) = Command::new("promtool").args(["check", "rules"]).arg(file).output() else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
