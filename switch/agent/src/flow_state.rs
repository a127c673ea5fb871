//! FlowState: the settings that the data plane needs, and a look at the flows it holds.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::generator;
use dataplane::Dataplane;
use dataplane::flow::{FlowSettings, MOST_SHARDS, SecretSet};
use libbpf_rs::{MapCore, MapFlags};
use manifest::{Layout, StateObject, WireField};
use secrets::SecretsFile;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

/// How a state object's outputs relate to its state, as `status` shows it.
pub(crate) fn consistency(object: &StateObject) -> &str {
    match object.value {
        Layout::Fields { .. } => word(object, "consistency"),
        Layout::Slots { .. } if object.is_local() => "local",
        Layout::Slots { .. } => "bounded",
    }
}

/// What gives a new flow its value: `zero`, `nat_ports` or `backends`.
pub(crate) fn allocator(object: &StateObject) -> &str {
    word(object, "allocator")
}

/// Time between two snapshots of a key, of the objects of which snapshots are taken.
pub(crate) fn snapshot_periods_us(dataplane: &Dataplane) -> impl Iterator<Item = u32> {
    let periods = dataplane.manifest().state_objects.iter().filter_map(|it| it.settings.get("period_us")?.as_u64());
    periods.filter_map(|period_us| u32::try_from(period_us).ok()).filter(|period_us| *period_us != 0)
}

/// A setting that is a word.
fn word<'a>(object: &'a StateObject, setting: &str) -> &'a str {
    object.settings.get(setting).and_then(|it| it.as_str()).unwrap_or_default()
}

/// Writes what the object's FlowState maps need; maps that the object does not have are skipped.
pub(crate) fn configure(dataplane: &Dataplane, config: &Config, incarnation: u32) -> Result<()> {
    if dataplane.has_flow_runtime() {
        // A successor goes on with the shards that it finds, until it is told of others.
        let shards = dataplane.shards()?;
        dataplane.set_flow_settings(settings(dataplane, config, incarnation, shards))?;
        if let Some(secrets) = &config.secrets {
            dataplane.set_secrets(&read_secrets(secrets)?)?;
        }
        if let Some(store) = config.store {
            set_shards(dataplane, config, incarnation, &[store])?;
        }
    }
    if let Some(pool) = &config.nat_pool {
        // The range was checked when the configuration was read.
        let (low, high) = pool.port_range().unwrap_or((1024, u16::MAX));
        dataplane.set_nat_pool(&pool.external, low, high)?;
    }
    if !config.backend.is_empty() {
        let backends: Vec<_> = config.backend.iter().map(|backend| (backend.address, backend.share())).collect();
        dataplane.set_backends(&backends)?;
    }
    if dataplane.has_map("sp_fabric_port") {
        for port in 0..dataplane.manifest().max_ports {
            let fabric = config.port.iter().any(|known| known.port == port && known.fabric);
            dataplane.write_array("sp_fabric_port", port, &[u8::from(fabric)])?;
        }
    }
    Ok(())
}

pub(crate) fn settings(dataplane: &Dataplane, config: &Config, incarnation: u32, shards: u32) -> FlowSettings {
    FlowSettings {
        switch_id: config.switch_id,
        incarnation,
        protocol_address: config.protocol_address.unwrap_or(Ipv4Addr::UNSPECIFIED),
        shards,
        lease_margin_ns: config.lease_margin_us * 1_000,
        resend_least_ns: config.resend_timeout_us * 1_000,
        resend_most_ns: config.resend_timeout_most_us * 1_000,
        window: u64::from(config.window_packets),
        look_ns: generator::interval(dataplane, config.generator_interval_us).as_nanos() as u64,
    }
}

/// Reads the file of shared secrets.
pub(crate) fn read_secrets(path: &Path) -> Result<SecretSet> {
    let file = SecretsFile::load(path).map_err(|error| Error::Other(error.to_string()))?;
    let ring = file.ring();
    Ok(SecretSet {
        secrets: std::array::from_fn(|id| ring.secret(id as u8).map(|secret| secret.0)),
        sends: ring.sending(),
    })
}

/// Makes the cluster have these shards: `heads[n]` is the head of shard n's chain. Another number of shards is another cluster: the sessions with
/// the earlier one are over, and its flows are asked for anew.
pub(crate) fn set_shards(
    dataplane: &Dataplane,
    config: &Config,
    incarnation: u32,
    heads: &[SocketAddrV4],
) -> Result<()> {
    if heads.is_empty() || heads.len() > MOST_SHARDS {
        return Err(Error::Other(format!("{} shards; a cluster has 1 to {MOST_SHARDS}", heads.len())));
    }
    let shards = heads.len() as u32;
    let same = dataplane.shards()? == shards;
    for (shard, head) in (0u32..).zip(heads) {
        // Whoever is told the same again has nothing to send again.
        if dataplane.shard_head(shard)? != Some(*head) {
            dataplane.change_shard_head(shard, Some(*head), crate::sweep::now_ns())?;
        }
    }
    if !same {
        for shard in 0..MOST_SHARDS as u32 {
            dataplane.clear_session(shard)?;
        }
        // Last: from here on requests find all heads.
        dataplane.set_flow_settings(settings(dataplane, config, incarnation, shards))?;
    }
    Ok(())
}

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

/// What the FlowState runtime did since the maps were made; empty for an object without FlowState.
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

/// A flow's key and value, field by field.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// `(field, value)`.
    pub key: Vec<(String, String)>,
    /// `(field, value)`.
    pub value: Vec<(String, String)>,
}

/// The flows of a FlowState object, at most `limit`, and how many there are.
pub fn list(dataplane: &Dataplane, object: &StateObject, limit: usize) -> Result<(Vec<Flow>, usize)> {
    let Some(map) = dataplane.map(&object.map) else { return Ok((vec![], 0)) };
    let (mut flows, mut count) = (vec![], 0);
    dataplane::for_each_entry(map, |key, value| {
        count += 1;
        if flows.len() < limit {
            let wire_value = value.get(object.value.offset() as usize..).unwrap_or_default();
            flows.push(Flow { key: fields(&object.key, key), value: fields(object.value.fields(), wire_value) });
        }
        true
    })?;
    Ok((flows, count))
}

/// Wire form to text: each field is big-endian.
fn fields(fields: &[WireField], bytes: &[u8]) -> Vec<(String, String)> {
    let text = |field: &WireField| {
        let range = field.offset as usize..(field.offset + field.bytes) as usize;
        let value = bytes.get(range).unwrap_or_default().iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
        dataplane::value::format_value(value, field.width, &field.name)
    };
    fields.iter().map(|field| (field.name.clone(), text(field))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_names_are_the_runtimes() {
        let header = include_str!("../../../bpf/redplane/stateplane_flow.h");
        let (_, list) = header.split_once("enum sp_flow_stat {").unwrap();
        let (list, _) = list.split_once("SP_STAT_COUNT").unwrap();
        let names: Vec<String> =
            list.split(',').filter_map(|name| name.trim().strip_prefix("SP_STAT_")).map(str::to_lowercase).collect();
        assert_eq!(names, EVENTS);
    }
}
