//! The page's table of drops: what the switches of this machine dropped, and what to do.

use super::overview::Switch;
use super::page::Section;
use switch_agent::drops::DropLoad;

/// What was dropped; what goes on comes first.
pub fn drops(switches: &[Switch]) -> Section {
    let mut found: Vec<(&str, &DropLoad)> = switches
        .iter()
        .filter_map(|switch| Some((switch.name.as_str(), switch.load.as_ref()?)))
        .flat_map(|(name, load)| load.agent.drops.iter().map(move |drops| (name, drops)))
        .filter(|(_, drops)| drops.count > 0)
        .collect();
    found.sort_by(|(_, one), (_, other)| other.rate_per_s.total_cmp(&one.rate_per_s));
    let row = |(name, drops): &(&str, &DropLoad)| {
        vec![
            (*name).to_owned(),
            format!("{} {}", drops.part, drops.reason),
            drops.count.to_string(),
            format!("{:.1}", drops.rate_per_s),
            drops.remedy.clone(),
        ]
    };
    Section {
        head: vec!["switch", "dropped for", "count", "a second", "remedy"],
        rows: found.iter().map(row).collect(),
        notes: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::super::overview::Load;
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_dropped_is_told_with_rate_and_remedy_what_goes_on_first() {
        let drops = |reason: &str, count: u64, rate_per_s: f64| {
            json!({
                "part": "toy", "reason": reason, "count": count, "rate_per_s": rate_per_s,
                "remedy": "raise the MTU"
            })
        };
        let load = json!({
            "views": null, "views_version": 0, "objects": [], "generator_lag_us": null,
            "ports_attached": 2, "ports": 2,
            "drops": [drops("late", 9, 0.0), drops("flows_full", 0, 0.0), drops("too_big", 3, 1.25)],
        });
        let load =
            Load::of(serde_json::from_value(load).expect("as agents tell"), &[]).expect("load");
        let switch = Switch { name: "s1".to_owned(), error: None, status: None, load: Some(load) };
        let rows = super::drops(&[switch]).rows;
        let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
        assert_eq!(
            rows,
            [
                row(["s1", "toy too_big", "3", "1.2", "raise the MTU"]),
                row(["s1", "toy late", "9", "0.0", "raise the MTU"]),
            ]
        );
    }
}
