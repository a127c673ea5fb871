//! What RedPlane's data plane did and met, by event.

use dataplane::Dataplane;
use libbpf_rs::{MapCore, MapFlags};
use switch_agent::Result;

/// What the runtime counts, in the order of `enum sp_flow_stat` in stateplane_flow.h.
const EVENTS: [&str; 41] = [
    "parked",
    "grants",
    "absent",
    "updates",
    "read_commits",
    "acks",
    "refused",
    "resent",
    "conflicts",
    "commit_conflicts",
    "ignored_grants",
    "malformed",
    "not_fabric",
    "unknown_object",
    "flows_full",
    "too_many_attempts",
    "no_route",
    "too_big",
    "ring_full",
    "ports_exhausted",
    "bad_tag",
    "late",
    "recalled",
    "recalled_unknown",
    "released",
    "release_acks",
    "heartbeats",
    "no_head",
    "no_secret",
    "backends_exhausted",
    "snapshots",
    "snapshot_parts",
    "snapshot_parts_resent",
    "snapshot_parts_missing",
    "snapshot_overdue",
    "replayed",
    "other_incarnation",
    "snapshot_without_lease",
    "snapshot_updates_lost",
    "window_full",
    "window_lost",
];

/// What the data plane did since the maps were made; empty for an object without RedPlane's state.
pub fn events(dataplane: &Dataplane) -> Result<Vec<(&'static str, u64)>> {
    let Some(map) = dataplane.map("sp_flow_stats") else { return Ok(vec![]) };
    let count = |index: usize| -> Result<u64> {
        let per_cpu = map
            .lookup_percpu(&(index as u32).to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| dataplane::Error::libbpf("read sp_flow_stats", error))?;
        let value = |bytes: &Vec<u8>| bytes.get(..8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
        Ok(per_cpu.iter().flatten().map(value).sum())
    };
    EVENTS.iter().enumerate().map(|(index, name)| Ok((*name, count(index)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_names_are_the_runtimes() {
        let header = include_str!("../../../../bpf/redplane/stateplane_flow.h");
        let (_, list) = header.split_once("enum sp_flow_stat {").unwrap();
        let (list, _) = list.split_once("SP_STAT_COUNT").unwrap();
        let names: Vec<String> =
            list.split(',').filter_map(|name| name.trim().strip_prefix("SP_STAT_")).map(str::to_lowercase).collect();
        assert_eq!(names, EVENTS);
    }
}
