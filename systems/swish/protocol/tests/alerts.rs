//! What alerts ask for by name is counted under that name.

use swish_protocol::{layouts, strong};

const ALERTS: &str = include_str!("../../deploy/shared-alerts.yml");

/// What switches count of messages and packets, beside what controllers send them.
fn counted(reason: &str) -> bool {
    let mut all = layouts::COUNTED.iter().chain(&strong::COUNTED);
    reason == "controller_bad_tag" || all.any(|(name, _)| *name == reason)
}

#[test]
fn alerts_name_reasons_that_are_counted() {
    let mut seen = vec![];
    for head in ["reason=\"", "reason=~\""] {
        for rest in ALERTS.split(head).skip(1) {
            let reasons = rest.split('"').next().unwrap_or_default();
            seen.extend(reasons.split('|'));
        }
    }
    for wanted in ["no_slot", "no_lease", "too_many", "table_full", "full_dropped"] {
        assert!(seen.contains(&wanted), "no alert for {wanted}");
    }
    let unknown: Vec<&str> = seen.into_iter().filter(|it| !counted(it)).collect();
    assert!(unknown.is_empty(), "nobody counts {unknown:?}");
}
